"""The index page of the experiments: the figure, the table and the command of each.

It shows the contents of a folder made by `python -m experiments.NAME` or `python -m experiments`.
"""

import ast
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from experiments.common import Row, html_table
from jdfl.lab.page import Code, Fold, Image, Part, Section, page

FOLDER = Path(__file__).parent
PAPERS = (  # heading, description, names of its experiments
    (
        "CEPS",
        "Sha, Zhou, Kong, Li: Sparse Decentralized Federated Learning. Sparse models, rare communication, one-bit "
        "compressed sensing.",
        r"ceps_|gpsp_",
    ),
    (
        "DPPS and PartPSP",
        "Private push-sum over directed networks, where only part of a model is shared.",
        r"dpps_|partpsp_|lemma2_",
    ),
    ("DO-ADP", "Random activation and top-k messages, and their effect on privacy.", r"doadp_|theorem1_"),
    ("Beyond the papers", "All methods and codecs side by side, attacks, unreliable networks, the demo.", r""),
)


@dataclass(frozen=True)
class Experiment:
    name: str
    title: str
    about: str


def experiments() -> list[Experiment]:
    """All scripts of this folder that make a table, paper by paper."""
    scripts = [
        path for path in sorted(FOLDER.glob("[a-z]*.py")) if re.search(r"^def main\(", _text(path), re.MULTILINE)
    ]
    found = [_described(path) for path in scripts]
    return sorted(found, key=lambda one: paper_of(one.name))


def paper_of(name: str) -> int:
    """The index in PAPERS of the first entry that has the experiment."""
    return next(i for i, (_, _, names) in enumerate(PAPERS) if re.match(names, name))


def _described(path: Path) -> Experiment:
    title, _, about = (ast.get_docstring(ast.parse(_text(path))) or path.stem).partition("\n")
    return Experiment(path.stem, title.rstrip("."), about.strip())


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def write_index(out: Path) -> Path:
    """OUT/index.html, with everything in the folder."""
    sections: list[Section] = []
    known = experiments()
    for i, (heading, about, _) in enumerate(PAPERS):
        mine = [one for one in known if paper_of(one.name) == i]
        sections.append(Section(heading, [about]))
        sections += [Section(one.title, _parts(one, out)) for one in mine]
    return page(out / "index.html", "jdfl: every table and figure, ours and the papers'", sections)


def _parts(one: Experiment, out: Path) -> list[Part]:
    parts: list[Part] = []
    rows = _rows(out / f"{one.name}.json")
    ran = _present(out / f"{one.name}.run.json")
    said = json.loads(_text(ran)) if ran else {}
    if rows:
        made = json.loads(_text(out / f"{one.name}.provenance.json"))
        took = f", {said['seconds']:.0f} s" if "seconds" in said else ""
        parts.append(f"{said.get('command', f'python -m experiments.{one.name}')}{took}, provenance {made['hash']}")
    else:
        parts.append(f"Not here yet: python -m experiments.{one.name} --out {out}")
    if said.get("status", 0) != 0:
        parts.append(f"Its last run ended with status {said['status']}; {one.name}.log has its output.")
    figure = _present(out / f"{one.name}.png")
    if figure:
        parts.append(Image(figure, f"Figure of: {one.title}. The table below has its numbers."))
    if rows:
        parts.append(Fold(f"Table, {len(rows)} numbers: paper and ours", [html_table(rows)]))
    log = _present(out / f"{one.name}.log")
    if log:
        parts.append(Fold("Printed output", [Code(_text(log))]))
    if one.about:
        parts.append(Fold("About", [one.about.replace("\n\n", "\0").replace("\n", " ").replace("\0", "\n\n")]))
    return parts


def _rows(path: Path) -> Sequence[Row]:
    return [Row(**one) for one in json.loads(_text(path))] if path.is_file() else []


def _present(path: Path) -> Path | None:
    return path if path.is_file() else None
