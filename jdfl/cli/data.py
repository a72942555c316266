"""`jdfl data`: the list of datasets, and downloads of the published ones."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

from jdfl.base import checks
from jdfl.cli import flags
from jdfl.cli.catalogue import data_status
from jdfl.problems import NAMES
from jdfl.problems.fetch import SOURCES, fetch

_ABOUT = """List the datasets and their files, or download some and print their licences.

Files are saved in the folder that JDFL_DATA names, or else in a folder of your home, where jdfl finds them. After an
interruption the same command continues, and every file is compared with its pinned checksum."""

_EXAMPLES = f"""examples:
  jdfl data list                                       all datasets, found or not
  jdfl data fetch mnist a9a                            download two
  jdfl data fetch cifar10 --to /scratch/data           and set JDFL_DATA=/scratch/data

to download: {", ".join(SOURCES)}

exit status: 0 done, 2 a mistake, no network, or a file that is not what it should be
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Options of the command."""

    words: flags.Words
    """Either list, for a list of all datasets, or fetch and names, to download them."""
    to: Path | None = None
    """Folder to download into."""
    json: bool = False
    """Print JSON."""


def parse(args: list[str]) -> tuple[Options]:
    """The options behind the arguments of `jdfl data`."""
    return (flags.parse_options(args, Options, prog="jdfl data", about=_ABOUT, examples=_EXAMPLES),)


def data(options: Options) -> int:
    """List or download; returns the exit status."""
    what, names = (options.words[0], options.words[1:]) if options.words else ("list", ())
    checks.one_of(("list", "fetch"), **{"jdfl data": what})
    if what == "list":
        if names or options.to is not None:
            raise ValueError(f"Expected nothing after `jdfl data list`, got {names or options.to}.")
        told = {name: data_status(name) for name in NAMES}
        width = max(map(len, told))
        text = "\n".join(f"{name:<{width}}  {status}" for name, status in told.items())
        print(json.dumps(told, indent=2) if options.json else text)
        return 0
    if not names:
        raise ValueError(f"Expected names of datasets after `jdfl data fetch`, got none. Known: {', '.join(SOURCES)}.")
    tell: Callable[[str], None] = (lambda _: None) if options.json else print
    places = {name: str(fetch(name, options.to, tell)) for name in names}
    if options.json:
        print(json.dumps(places, indent=2))
    elif options.to is not None:
        print(f"Set JDFL_DATA={options.to} for jdfl to find it.")
    return 0
