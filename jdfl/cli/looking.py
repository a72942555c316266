"""The commands that look at what there is: `choose` and `data`, and at runs: `report` and `export`.

What draws is imported by those that need it, so that the others answer soon.
"""

import dataclasses
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jdfl.base import checks
from jdfl.base.terminal import wrapped
from jdfl.cli.flags import Folders, Words
from jdfl.lab import choosing
from jdfl.problems import places
from jdfl.problems.fetch import SOURCES, fetch
from jdfl.store import manifest

_flags: Any = dataclasses.make_dataclass(
    "Flags",
    [
        (name, bool, dataclasses.field(default=False, metadata={"about": f"{text[0].upper()}{text[1:]}."}))
        for name, text in choosing.PROPERTIES.items()
    ],
    frozen=True,
    kw_only=True,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Properties(_flags):
    """List the algorithms that have all of the properties that you ask for, and what the others lack.

    Without properties, algorithms are listed by how many they have; --json has the reason of every single one.

    The answer is found by trying: every algorithm is given such a network and such settings, and its own message is the
    reason. Nothing is run. What the methods reach is in the table of docs/algorithms.md.

    Examples:
      jdfl choose --directed --lossy                       links run one way, and messages are lost
      jdfl choose --compressed --exact                     few bytes, and the optimum nevertheless
      jdfl choose --private --local-steps --json

    exit status: 0 some fit, 1 none does, 2 a mistake in the flags
    """

    json: bool = False
    """Print JSON."""


def choose(options: Properties) -> int:
    """Print which algorithms fit and which do not; returns the exit status."""
    found = choosing.choose(*(name for name in choosing.PROPERTIES if getattr(options, name)))
    fitting = [one for one in found if one.fits]
    if options.json:
        print(json.dumps([dataclasses.asdict(one) for one in found], indent=2))
        return int(not fitting)
    width = max(len(one.name) for one in found)
    if any(one.has for one in found):
        print(f"{len(found)} algorithms, by how many of {len(choosing.PROPERTIES)} properties they have:")
        for one in found:
            print(wrapped(", ".join(one.has), f"  {one.name:<{width}}  {len(one.has):>2}  "))
        return 0
    print(f"{len(fitting)} of {len(found)} algorithms fit" + (":" if fitting else "."))
    for one in fitting:
        print(wrapped(f"{one.title}; tune {', '.join(one.tuned) or 'nothing'}", f"  {one.name:<{width}}  "))
    if len(fitting) < len(found):
        print("\nthe others, by the first property that they lack:")
    groups: dict[str, list[Any]] = {}
    for one in found[len(fitting) :]:
        groups.setdefault(one.lacks.partition(":")[0], []).append(one)
    for lacking, members in sorted(groups.items(), key=lambda group: -len(group[1])):
        print(wrapped(", ".join(one.name for one in members), f"  {lacking} ({len(members)}): ", "    "))
        print(wrapped(f"{members[0].name}: {members[0].lacks.partition(': ')[2]}", "    "))
    return int(not fitting)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Data:
    """List the datasets and their files, or download some and print their licences.

    Files are saved in the folder that JDFL_DATA names, or else in a folder of your home, where jdfl finds them. After
    an interruption the same command continues with files whose checksum is pinned, and begins others again.

    Examples:
      jdfl data list                                       all datasets, found or not
      jdfl data fetch mnist a9a                            download two
      jdfl data fetch cifar10 --to /scratch/data           and set JDFL_DATA=/scratch/data

    exit status: 0 done, 2 a mistake, no network, or a file that is not what it should be
    """

    words: Words = ()
    """Either list, for a list of all datasets, or fetch and names, to download them."""
    to: Path | None = None
    """Folder to download into."""
    json: bool = False
    """Print JSON."""


Data.__doc__ = f"{Data.__doc__}\n    to download: {', '.join(SOURCES)}"


def data(options: Data) -> int:
    """List or download datasets; returns the exit status."""
    what, names = (options.words[0], options.words[1:]) if options.words else ("list", ())
    checks.one_of(("list", "fetch"), **{"jdfl data": what})
    if what == "list":
        if names or options.to is not None:
            raise ValueError(f"Expected nothing after `jdfl data list`, got {names or options.to}.")
        found = {name: places.status(name) for name in (*places.NAMES, *places.NATURAL)}
        lines = (wrapped(status, f"{name:<{max(map(len, found))}}  ") for name, status in found.items())
        print(json.dumps(found, indent=2) if options.json else "\n".join(lines))
        return 0
    if not names:
        raise ValueError(f"Expected names of datasets after `jdfl data fetch`, got none. Known: {', '.join(SOURCES)}.")
    tell: Callable[[str], None] = (lambda _: None) if options.json else print
    found = {name: str(fetch(name, options.to, tell)) for name in names}
    if options.json:
        print(json.dumps(found, indent=2))
    elif options.to is not None:
        print(f"Set JDFL_DATA={options.to} for jdfl to find it.")
    return 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Report:
    """Write one self-contained HTML file about the runs in these folders: curves, network, privacy, data, costs.

    Runs that differ only in their seeds are shown together, others are compared.

    Examples:
      jdfl report runs/NAME                                runs/NAME/report.html
      jdfl report runs/*ceps* runs/*d-psgd* --out ceps.html --title "CEPS and D-PSGD"

    exit status: 0 done, 2 a folder does not contain a run
    """

    folders: Folders = ()
    """Folders of runs."""
    out: Path | None = None
    """File to write; none: report.html in the folder of a single run, or else in the current folder."""
    title: str = ""
    """Heading; empty: the algorithms and the problem."""
    json: bool = False
    """Print JSON."""


def report(options: Report) -> int:
    """Write the page and say where it is; returns the exit status."""
    from jdfl.lab.overview import write_overview

    out = options.out
    if out is None:
        out = (options.folders[0] if len(options.folders) == 1 else Path()) / "report.html"
    elif out.suffix not in (".html", ".htm"):  # such as a table of a run
        raise ValueError(f"Expected a file whose name ends in .html at --out, got {str(out)!r}. For example page.html.")
    elif not out.parent.is_dir():
        raise ValueError(f"Expected --out in a folder that is there, got {str(out)!r}. Make {out.parent} first.")
    path = write_overview(options.folders, out, options.title)
    print(json.dumps({"page": str(path)}) if options.json else path)
    return 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Export:
    """Write the tables of a run as far as its journal has them, or with --paper one archive for a paper.

    A run that has ended has its tables already. While it goes on, or after it was cut off, everything that was recorded
    is in the file `journal` of its folder; a journal that is damaged is read up to the damage.

    The archive is about a finished run, sweep or comparison: LaTeX table, figure (PDF, 3.3 inches), settings,
    provenance, versions of all packages, and a README with the commands that repeat it. The same folder gives the same
    bytes. Keys of noise are never in it.

    Examples:
      jdfl export runs/NAME                                into the folder of the run
      jdfl export runs/NAME --to tables                    into another folder, which is made
      jdfl export --paper runs/NAME                        runs/NAME/paper.zip
      jdfl export --paper saved --script compare.py        of what Python has saved, with the script that did it

    exit status: 0 done, 2 a folder without a journal, or nothing recorded in it; with --paper, one that is not finished
    """

    folders: Folders = ()
    """The folder of the run; with --paper, of a run, a sweep or a comparison."""
    to: Path | None = None
    """Folder for the tables; none: that of the run. With --paper, the archive; none: paper.zip in the folder."""
    paper: bool = False
    """Write one archive for a paper."""
    script: Path | None = None
    """Python file or notebook that made a folder without config.yaml, for the archive."""
    json: bool = False
    """Print JSON."""


def export(options: Export) -> int:
    """Write the tables of a run, or the archive, and say where they are; returns the exit status."""
    if len(options.folders) != 1:
        raise ValueError(f"Expected the folder of one run after `jdfl export`, got {len(options.folders)}.")
    (folder,) = options.folders
    if options.paper:
        from jdfl.lab.paper import write_paper

        path, origin = write_paper(folder, options.to, options.script)
        content = {"files": [str(path)], "ended": True, "provenance": origin}
        print(json.dumps(content) if options.json else f"{path}\nprovenance: {origin}")
        return 0
    if options.script is not None:
        raise ValueError(f"Expected --script with --paper, got --script {options.script} alone. Add --paper.")
    from jdfl.results.folder import export as write_tables

    files = [str(path) for path in write_tables(folder, options.to)]
    ended = (folder / manifest.NAME).is_file()
    print(json.dumps({"files": files, "ended": ended}) if options.json else "\n".join(files))
    if not ended:
        print(f"The run in {folder} has not ended: these are its records so far.", file=sys.stderr)
    return 0
