"""The points of a study, as `jdfl sweep` shows them: the best first, and which were refused or diverged."""

import json
import sys
from typing import Any

import pandas as pd

from jdfl.config import ledger_of
from jdfl.engine.result import BAD
from jdfl.lab.files import write
from jdfl.lab.groups import REFUSED
from jdfl.lab.study import Study, best_first, together
from jdfl.lab.study_page import write_page
from jdfl.lab.summary import finite
from jdfl.lab.table import PM, Cell, Grid, fitted, markdown, rounded, wrapped
from jdfl.lab.table import write as write_text

_SHOWN = 20  # points


def show(study: Study, table: pd.DataFrame, *, by: str, as_json: bool, quiet: bool) -> None:
    """Write the table and the page of a study, and print its points, those that were refused or diverged on stderr."""
    fields = list(study.groups[0].points[0].values)
    refused = [row for row in table.to_dict("records") if row["ending"] == REFUSED]
    for reason in dict.fromkeys(str(row["reason"]) for row in refused):
        where = [str(row["point"]) for row in refused if str(row["reason"]) == reason]
        print(f"jdfl: refused, {_points(where)}: {reason}", file=sys.stderr)
    for ending, words in BAD.items():
        bad = table.loc[table["ending"] == ending, "point"].astype(str)
        if len(bad):
            where = _points(list(bad.unique()))
            print(f"jdfl: {len(bad)} of {len(table)} runs {words}: {where}", file=sys.stderr)
    ranked = best_first(table, fields, by) if len(refused) < len(table) else pd.DataFrame()
    measured = [str(name) for name in ranked if f"{name}_ci" in ranked]
    heads, rows = _cells(ranked, fields, measured)
    sum_of_all = together(table)
    ledger = ledger_of(study.config.base)
    standing = None if ledger is None else ledger.standing()
    which = f"of all {table.loc[table['ending'] != REFUSED, 'point'].nunique()} points"
    said = [sum_of_all and sum_of_all.statement(which), standing and standing.statement()]
    spent = " ".join(filter(None, said))
    left = _left(study)
    below = "".join(f"\n{line}\n" for line in (left, spent) if line)
    lines = "".join(f"{line}\n" for line in markdown(heads, rows))
    write(study.folder / "table.md", lines + below)
    write_page(study.folder / "report.html", study.config, table, measured, heads, rows, spent, left)
    if as_json:
        found = [{str(name): _plain(value) for name, value in row.items()} for row in ranked.to_dict("records")]
        told: dict[str, Any] = {"folder": str(study.folder), "by": by, "points": found}
        told["together"] = None if sum_of_all is None else sum_of_all.as_dict()
        told["ledger"] = None if standing is None else standing.as_dict()
        print(json.dumps(told, indent=2, allow_nan=False))
    elif quiet:
        print(study.folder)
    else:
        few = [name for name in measured if name in (by, "rounds", "bytes")]
        heads, best = _cells(ranked.head(_SHOWN), fields, few)
        said = [f"The best {len(best)} of {len(rows)} points by {by}, means over seeds.", *([spent] if spent else [])]
        lead = 1 + len(fields)
        shown = fitted(Grid(heads, [list(map(Cell, row)) for row in best], said), lead)
        print(wrapped(write_text(shown, "text")), end="")
        print(f"table:  {study.folder / 'results.parquet'}\npage:   {study.folder / 'report.html'}")


def _left(study: Study) -> str:
    """The points that an interrupted study lacks, in words; empty for a complete one."""
    points = sum(len(group.points) for group in study.left)
    whole = sum(len(group.points) for group in study.groups)
    return f"{points} of {whole} points are not done and not shown here." if points else ""


def _points(numbers: list[str]) -> str:
    return f"point{'s' * (len(numbers) > 1)} {', '.join(numbers[:10])}{' ...' * (len(numbers) > 10)}"


def _cells(ranked: pd.DataFrame, fields: list[str], measured: list[str]) -> tuple[list[str], list[list[str]]]:
    """Headings and rows: the fields, and mean ± half-width of its 95 % interval of every metric."""
    rows: list[list[str]] = []
    for row in ranked.to_dict("records"):
        cells = [_number(row[name]) for name in ("point", *fields)]
        for name in measured:
            cells.append(rounded(row[name], row[f"{name}_ci"]))
        rows.append([*cells, str(row["diverged"])])
    last = [name.rpartition(".")[2] for name in fields]
    short = [end if last.count(end) == 1 else name for name, end in zip(fields, last, strict=True)]
    return ["point", *short, *(f"{name.replace('_', ' ')} {PM}" for name in measured), "diverged"], rows


def _number(value: Any) -> str:
    if value is None or value != value:
        return "none"
    return f"{value:.5g}" if isinstance(value, float) else str(value)


def _plain(value: Any) -> Any:
    """For JSON: numbers that are not finite become None."""
    if isinstance(value, float):
        return finite(value)
    return value.item() if hasattr(value, "item") else value
