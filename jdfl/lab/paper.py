"""One archive for a paper about a finished run, sweep or comparison.

    table.tex          final metrics of a run, points of a sweep, or methods of a comparison
    figure.pdf         3.3 inches wide; missing where no metric was recorded
    config.yaml        the settings (study.yaml of a sweep), or the script of what Python has saved
    requirements.txt   jdfl and the packages that it depends on, in exact versions
    environment.json   these, and Python, platform, devices and XLA_FLAGS
    provenance.json    the hash of code, libraries, settings and data, and what it summarises
    summary.md         totals and the privacy statement of a run; table.md of a sweep or a comparison
    README.md          what this is, and the commands that repeat it

All of it is what the folder recorded when the work was done. The same folder gives the same bytes.
"""

import io
import json
import re
import shlex
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from jdfl.config import StudyConfig, from_yaml
from jdfl.engine import provenance
from jdfl.engine.metrics import COUNTS
from jdfl.lab import drawing, plots
from jdfl.lab.comparison import Comparison, load
from jdfl.lab.curves import AXES, BAND, band
from jdfl.lab.study import MEANS, best_first, means, together, varied
from jdfl.lab.table import Cell, Grid, number, write
from jdfl.results.summary import as_paragraphs
from jdfl.store import manifest
from jdfl.store.files import placed, read

_COPIED = ("config.yaml", "study.yaml", "environment.json", "provenance.json", "summary.md", "table.md", "table.tex")
_LINES = 12  # that a figure distinguishes
_BEGIN = (1980, 1, 1, 0, 0, 0)  # of time, in an archive
_ASIDE = "The key of the noise is not in this archive: the commands draw other noise, and give another hash."
_SEEDED = "The noise follows from the seeds in the settings: anyone with this archive can compute and remove it."
_SAME = (
    "The provenance has to be the same; where it is not, provenance.json says in what. Datasets that do not come with "
    "jdfl are read from the folder that JDFL_DATA names."
)


@dataclass(frozen=True)
class _Work:
    """What an archive is about."""

    title: str
    hash: str
    command: str
    figure: Any  # None: no metrics
    notes: list[str]
    files: dict[str, str] = field(default_factory=dict[str, str])  # that the folder does not have


def write_paper(folder: str | Path, to: str | Path | None = None, script: str | Path | None = None) -> tuple[Path, str]:
    """Write the archive about finished work, to paper.zip in its folder by default; returns its path and provenance.

    The script is what made a folder without settings. FileNotFoundError for a folder that jdfl has not written or
    finished, ValueError for files that are not as they were written, and without a script where one is needed.
    """
    folder, script = Path(folder), None if script is None else Path(script)
    path = folder / "paper.zip" if to is None else Path(to)
    if not (folder / manifest.NAME).is_file():
        raise FileNotFoundError(
            f"Expected a finished run, sweep or comparison, got {str(folder)!r}, which is not there, not "
            f"of jdfl or was cut off. Finish one that was cut off: jdfl resume {folder}"
        )
    if path.suffix != ".zip" or not path.parent.is_dir():
        raise ValueError(f"Expected --to to end in .zip, in a folder that is there, got {str(path)!r}.")
    if script is not None and not (script.suffix in (".py", ".ipynb") and script.is_file()):
        raise ValueError(f"Expected --script to be a Python file or a notebook that is there, got {str(script)!r}.")
    manifest.check(folder)
    files = {name: (folder / name).read_bytes() for name in _COPIED if (folder / name).is_file()}
    work = _study(folder) if "study.yaml" in files else _loaded(folder)
    command = f"env/bin/jdfl {work.command} --folder again"
    if script is not None:
        files[script.name] = script.read_bytes()
        command = f"env/bin/{'python' if script.suffix == '.py' else 'jupyter execute'} {shlex.quote(script.name)}"
    elif not {"study.yaml", "config.yaml"} & set(files):
        raise ValueError(
            f"Expected the script that has saved {folder}, which has no config.yaml. Add --script FILE.py."
        )
    around = read(folder / "environment.json")
    versions = around.get("packages") or {name: around[name] for name in ("jax", "jaxlib", "jdfl", "numpy")}
    flags = {"XLA_FLAGS": around.get("xla_flags"), "JAX_ENABLE_X64": "1" if around["x64"] else ""}
    settings = "".join(f"{name}={shlex.quote(value)} " for name, value in flags.items() if value)
    python, device = around["python"], f"{around['devices']} x {around['device']} ({around['backend']})"
    steps = [f"python{python.rpartition('.')[0]} -m venv env", "env/bin/pip install -r requirements.txt"]
    steps += [f"{settings}{command}", *([] if script else ["env/bin/jdfl export --paper again"])]
    parts = [f"# {work.title}", f"Made by jdfl {around['jdfl']}; provenance `{work.hash}`.", *work.notes]
    parts += [
        "## To repeat",
        f"On {around['platform']}, {device}, with Python {python}:",
        "```sh\n" + "\n".join(steps) + "\n```",
        _SAME,
    ]
    readme = "".join(f"{part}\n\n" for part in parts).rstrip("\n") + "\n"
    texts = {"requirements.txt": "".join(f"{name}=={one}\n" for name, one in versions.items()), "README.md": readme}
    files |= {name: text.encode() for name, text in (work.files | texts).items()}
    if work.figure is not None:
        content = io.BytesIO()
        work.figure.savefig(content, format="pdf", metadata={"CreationDate": None})
        files["figure.pdf"] = content.getvalue()
    with placed(path) as place, zipfile.ZipFile(place, "w") as archive:
        for name, content in sorted(files.items()):
            archive.writestr(zipfile.ZipInfo(name, _BEGIN), content, zipfile.ZIP_DEFLATED)
    return path, work.hash


def _loaded(folder: Path) -> _Work:
    """What the folder of a run or a comparison has."""
    found = load(folder)
    if isinstance(found, Comparison):
        noisy = any(run.guarantee.event is not None for label in found.results for run in found.runs(label))
        notes = [f"Bands of the figure: {BAND}."]
        notes += [f"{label}: {as_paragraphs(report.statement())}" for label, report in found.privacy.items()]
        title, command = f"Comparison on {found.setting}", "compare --config config.yaml"
        figure = found.plot().fig
        return _Work(title, found.provenance, command, figure, [*notes, *([_SEEDED] if noisy else [])])
    data, settings = read(folder / "summary.json"), found.provenance.settings
    config = folder / "config.yaml"
    aside = settings.get("key") != settings.get("private key") or (
        config.is_file() and re.search(r"(?m)^key_file: (?!null$)", config.read_text(encoding="utf-8"))
    )
    notes = [] if found.guarantee.event is None else [_ASIDE if aside else _SEEDED]
    metrics = {name: value for name, value in data["metrics"].items() if name not in COUNTS}
    counts = {name: data[name] for name in ("rounds", "bytes", "gradients")}
    rows = [[Cell(name.replace("_", " ")), Cell(number(value))] for name, value in (metrics | counts).items()]
    caption = [data["run"], f"Ended after {data['rounds']} rounds ({data['ending']}): {data['reason']}."]
    files = {"table.tex": write(Grid(["quantity", "value"], rows, caption), "latex")}
    command = f"run --config config.yaml{' --kernels' if 'kernels' in settings else ''}"
    figure = plots.of_result(found, "round", None).fig if metrics else None
    return _Work(data["run"].rstrip("."), data["provenance"], command, figure, notes, files)


def _study(folder: Path) -> _Work:
    """What the folder of a sweep has."""
    config = from_yaml((folder / "study.yaml").read_text(encoding="utf-8"), StudyConfig)
    table, records = (pd.read_parquet(folder / name) for name in ("results.parquet", "curves.parquet"))
    if not (folder / "table.tex").is_file():
        raise ValueError(f"Expected table.tex in {folder}, found none. Write it: jdfl resume {folder}")
    hashes = sorted(set(table["provenance"].dropna().astype(str))) if "provenance" in table else []
    origin = provenance.total(hashes)
    by = re.findall(r"points by ([^,]+),", (folder / "table.tex").read_text(encoding="utf-8"))[0].replace("\\", "")
    numeric, done = varied(config, table)
    if done.empty:
        raise ValueError(f"Expected a sweep with results, got {folder}, all of whose runs diverged or were refused.")
    if numeric:
        panels, meaning = {name: means(done, name, by) for name in numeric}, MEANS
    else:  # the best points against rounds
        best = best_first(done, [], by)["point"].tolist()[:_LINES]
        labels = done.drop_duplicates("point").set_index("point")["label"]
        records = records[records["point"].isin(best)]
        records = records.assign(label=records["point"].map(labels), ending="")
        panels, meaning = {AXES["round"]: band(records, "round", by)}, BAND
    labels = sorted({str(label) for frame in panels.values() for label in frame["label"]})
    names = {label: label if len(labels) > 1 else "" for label in labels}
    figure = drawing.lines(panels, names, by.replace("_", " "), band=meaning, origin=origin).fig
    tried = ", ".join(line.partition("=")[0].strip() for line in config.over)
    title = f"Sweep of {tried} of {config.base.algorithm.kind} on {config.base.problem.kind}"
    notes = [f"Bands of the figure: {meaning}.", *([] if together(table) is None else [_SEEDED])]
    files = {"provenance.json": json.dumps({"hash": origin, "runs": hashes}, indent=2) + "\n"}
    return _Work(title, origin, "sweep --config study.yaml", figure, notes, files)
