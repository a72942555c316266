"""`jdfl report`: one page about one run or several."""

import dataclasses
import json
from pathlib import Path

from jdfl.cli import flags
from jdfl.lab.overview import write_overview

_ABOUT = """Write one self-contained HTML file about the runs in these folders: curves, network, privacy, data, costs.

Runs that differ only in their seeds are shown together, others are compared."""

_EXAMPLES = """examples:
  jdfl report runs/NAME                                runs/NAME/report.html
  jdfl report runs/*ceps* runs/*d-psgd* --out ceps.html --title "CEPS and D-PSGD"

exit status: 0 done, 2 a folder does not contain a run
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """The runs of the page, and its file."""

    folders: flags.Folders
    """Folders of runs."""
    out: Path | None = None
    """File to write; none: report.html in the folder of a single run, or else in the current folder."""
    title: str = ""
    """Heading; empty: the algorithms and the problem."""
    json: bool = False
    """Print JSON."""


def parse(args: list[str]) -> tuple[Options]:
    """The options behind the arguments of `jdfl report`."""
    return (flags.parse_options(args, Options, prog="jdfl report", about=_ABOUT, examples=_EXAMPLES),)


def report(options: Options) -> int:
    """Write the page and say where it is; returns the exit status."""
    single = options.folders[0] if len(options.folders) == 1 else Path()
    path = single / "report.html" if options.out is None else _page(options.out)
    path = write_overview(options.folders, path, options.title)
    print(json.dumps({"page": str(path)}) if options.json else path)
    return 0


def _page(path: Path) -> Path:
    """The file at --out; ValueError for a name that does not end in .html, such as a table of a run."""
    if path.suffix not in (".html", ".htm"):
        raise ValueError(
            f"Expected a file whose name ends in .html at --out, got {str(path)!r}. For example page.html."
        )
    if not path.parent.is_dir():
        raise ValueError(f"Expected --out in a folder that is there, got {str(path)!r}. Make {path.parent} first.")
    return path
