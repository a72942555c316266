"""`jdfl export`: the tables of a run that goes on or was cut off."""

import dataclasses
import json
import sys
from pathlib import Path

from jdfl.cli import flags
from jdfl.lab.results import export as written
from jdfl.store import manifest

_ABOUT = """Write the tables of a run, metrics.csv and those of its nodes, as far as its journal has them.

A run that has ended has them already. While it goes on, or after it was cut off, everything that was recorded is in the
file `journal` of its folder; a journal that is damaged is read up to the damage."""

_EXAMPLES = """examples:
  jdfl export runs/NAME                                into the folder of the run
  jdfl export runs/NAME --to tables                    into another folder, which is made

exit status: 0 done, 2 a folder without a journal, or nothing recorded in it
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """The run, and where its tables go."""

    folders: flags.Folders
    """The folder of the run."""
    to: Path | None = None
    """Folder for the tables; none: that of the run."""
    json: bool = False
    """Print JSON."""


def parse(args: list[str]) -> tuple[Options]:
    """The options behind the arguments of `jdfl export`."""
    return (flags.parse_options(args, Options, prog="jdfl export", about=_ABOUT, examples=_EXAMPLES),)


def export(options: Options) -> int:
    """Write the tables and say where they are; returns the exit status."""
    if len(options.folders) != 1:
        raise ValueError(f"Expected the folder of one run after `jdfl export`, got {len(options.folders)}.")
    (folder,) = options.folders
    files = [str(path) for path in written(folder, options.to)]
    ended = (folder / manifest.NAME).is_file()
    print(json.dumps({"files": files, "ended": ended}) if options.json else "\n".join(files))
    if not ended:
        print(f"The run in {folder} has not ended: these are its records so far.", file=sys.stderr)
    return 0
