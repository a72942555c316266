"""CEPS paper, Table I: the capabilities of the registered algorithms, found by inspecting and trying their classes.

Run `python -m experiments.ceps_table1 [--quick] [--seeds N] [--out DIR]`; `--quick` takes the paper's seven. A cell of
the file is 1 or 0, the mean over --seeds tiny problems; the paper's value is given for its seven. `capabilities`
documents how each is found; classes that are registered later appear automatically.
"""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from experiments.capabilities import COLUMNS, Cell, Found, look
from experiments.common import Made, Options, Row, experiment, row
from jdfl.algorithms import REGISTRY

# local updates, device participation, communication topology, information compression, privacy protection
PAPER = {
    "d-psgd": ("Single", "Full", "Mixing Matrix", "None", "None"),
    "dcd-psgd": ("Single", "Full", "Mixing Matrix", "Difference Compression", "None"),
    "dfedavgm": ("Multiple", "Full", "Mixing Matrix", "Quantization", "None"),
    "dfedsam": ("Single", "Full", "Mixing Matrix", "None", "None"),
    "matcha": ("Multiple", "Partial", "Dynamic Network", "None", "None"),
    "dsgt": ("Single", "Full", "Mixing Matrix", "None", "Differential Privacy"),  # as DP-DSGT
    "ceps": ("Multiple", "Partial", "Dynamic Network", "1BCS", "Differential Privacy"),
}
NO = ("Single", "Full", "Mixing Matrix", "None")
# Reasons why our cell differs from the paper's; differences that are only options here need none.
REASONS = {
    ("dfedsam", "local updates"): "its own paper takes K local steps per round, and that is the class's default",
    ("matcha", "local updates"): "its own paper takes one step per round, and that is the class's default",
    ("d-psgd", "device participation"): "any W is taken; the CEPS paper itself runs it so, as D-PSGD-PC",
    ("d-psgd", "communication topology"): "any W is taken; the CEPS paper itself runs it so, as D-PSGD-DN",
}


def agrees(column: str, paper: str, cell: Cell) -> bool:
    """Whether the paper's cell matches what was found; for local updates, what is found by default."""
    if column == "local updates":
        return cell.text.split(";")[0] == paper
    if column != "information compression":
        return cell.has == (paper not in NO)
    wanted = {"None": "", "Difference Compression": "differences", "Quantization": "QSGD", "1BCS": "OneBit"}[paper]
    return wanted in cell.text if wanted else not cell.has


Differing = tuple[str, str, str, Cell, str]  # algorithm, column, the paper's cell, ours, and the reason for it


def differing(found: dict[str, Found]) -> list[Differing]:
    """The paper's cells that differ from ours; without a reason where ours has only an option more."""
    return [
        (name, column, paper, cell, REASONS.get((name, column)) or cell.reason)
        for name, cells in PAPER.items()
        for column, paper in zip(COLUMNS, cells)
        if not agrees(column, paper, cell := found[name].cells[column])
    ]


def show(found: dict[str, Found]) -> None:
    """Print the table: every cell has ours, and below it the paper's where there is one."""
    table = Table(title="CEPS paper, Table I, as found", caption="paper's cell below ours", show_lines=True)
    for header in ("algorithm", *COLUMNS, "networks"):
        table.add_column(header)
    for name, one in found.items():
        paper = PAPER.get(name, ("",) * len(COLUMNS))
        cells = [one.cells[column].text + (f"\npaper: {said}" if said else "") for column, said in zip(COLUMNS, paper)]
        table.add_row(name, *cells, one.networks)
    console = Console()
    console.width = max(console.width, 200)
    console.print(table)


def draw(rows: Sequence[Row]) -> Figure:
    """A mark where an algorithm has a property, a ring where the paper says that it does."""
    cases, columns = (list(dict.fromkeys(getattr(one, part) for one in rows)) for part in ("case", "column"))
    fig = Figure(figsize=(9, 1.2 + 0.35 * len(cases)), layout="constrained")
    axis = fig.subplots()
    for label, has, style in (("jdfl", lambda one: one.mean > 0.5, "o"), ("paper", lambda one: one.paper == 1, "s")):
        here = [(columns.index(one.column), cases.index(one.case)) for one in rows if has(one)]
        place = np.array(here).reshape(-1, 2)
        colour = "#0072B2" if label == "jdfl" else "none"
        axis.scatter(*place.T, s=60 if label == "jdfl" else 180, marker=style, c=colour, ec="#D55E00", label=label)
    axis.set_xticks(range(len(columns)), columns, rotation=20, ha="right")
    axis.set_yticks(range(len(cases)), [f"{case} *" if case in PAPER else case for case in cases])
    axis.invert_yaxis()
    axis.grid(alpha=0.25)
    fig.supxlabel("* in the paper's table", fontsize=9)
    fig.legend(loc="outside upper center", ncols=2, frameon=False)
    return fig


@experiment(seeds=1)
def main(chosen: Options) -> Made:
    """Every registered algorithm, or the paper's seven with `--quick`."""
    names = [*PAPER, *(name for name in REGISTRY if name not in PAPER and not chosen.quick)]
    trials = [{name: look(REGISTRY[name], seed) for name in names} for seed in range(chosen.seeds)]
    rows: list[Row] = []
    for name in names:
        for place, column in enumerate(COLUMNS):
            said = None if name not in PAPER else float(PAPER[name][place] not in NO)
            rows.append(row(name, column, said, [float(one[name].cells[column].has) for one in trials]))
        for column in trials[0][name].accepts:
            rows.append(row(name, f"network: {column}", None, [float(one[name].accepts[column]) for one in trials]))
    show(trials[0])
    others, cells = differing(trials[0]), len(PAPER) * len(COLUMNS)
    print("The paper's cells that differ from ours, without a reason where ours is only an option more:")
    for name, column, paper, cell, reason in others:
        print(f"  {name}, {column}: paper {paper}, here {cell.text}. {reason}")
    more = sum(not reason for *_, reason in others)
    numbers = {"cells": cells, "the same": cells - len(others)}
    numbers |= {"only options here": more, "with a reason": len(others) - more}
    counts = [row("the paper's cells", column, None, [number]) for column, number in numbers.items()]
    return Made({"The paper's cells": counts}, draw(rows), rows)


if __name__ == "__main__":
    main()
