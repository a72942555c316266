"""Single plausible bugs, each with the tests that must see it: what the suite is measured by.

    python -m tests.mutants [PART ...] [--only TEXT] [--find FILE ...]

tests/mutants.toml has them, part by part. Every bug of the parts (all without a name) is planted in a copy of the
checkout, where each of its killers has to fail; before that they all have to pass in the copy as it is. What was seen
is written to tests/mutants.json, with the commit. Ends with status 1 where a killer misses its bug. --find plants the
bugs and prints which tests of some files in tests/ fail, for whoever looks for killers.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parent.parent
TABLE, RECORD = (Path(__file__).with_suffix(suffix) for suffix in (".toml", ".json"))


class Mutant(NamedTuple):
    """A bug: `old`, which is once in a file, becomes `new`. At least two tests see it."""

    file: str  # in jdfl/
    old: str
    new: str
    killers: list[str]  # FILE::NAME in tests/, with all parameters


def mutants() -> dict[str, Mutant]:
    """All of them by part and place, as steps-0."""
    parts = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    return {f"{part}-{i}": Mutant(**one) for part, some in parts.items() for i, one in enumerate(some)}


def planted(mutant: Mutant) -> str:
    """The text of the file with the bug; ValueError unless `old` is there once."""
    text = (ROOT / "jdfl" / mutant.file).read_text(encoding="utf-8")
    if text.count(mutant.old) != 1:
        raise ValueError(f"Expected {mutant.old!r} once in jdfl/{mutant.file}, got it {text.count(mutant.old)} times.")
    return text.replace(mutant.old, mutant.new)


def failing(folder: Path, tests: Sequence[str]) -> set[str]:
    """The functions among some tests that fail in a copy of the checkout; RuntimeError where pytest cannot run them."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-rfE", "--tb=no", "-n", "0"]
    command += [f"tests/{test}" for test in tests]
    where = os.environ | {"PYTHONPATH": str(folder)}
    done = subprocess.run(command, cwd=folder, env=where, capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise RuntimeError(f"{' '.join(command)}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    return set(re.findall(r"^(?:FAILED|ERROR) tests/([^\[\s]+)", done.stdout, re.MULTILINE))


def copied(folder: Path) -> None:
    """The files of the checkout that git knows or does not ignore, in a folder."""
    told = subprocess.run(["git", "ls-files", "-coz", "--exclude-standard"], cwd=ROOT, capture_output=True, check=True)
    for name in filter(None, told.stdout.decode().split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)


def record(name: str, told: Any) -> None:
    """Write what was seen of a bug; other parts may be tried at the same time."""
    known = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
    known[name] = told
    lines = [f"{json.dumps(name)}: {json.dumps(known[name])}" for name in mutants() if name in known]
    RECORD.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Plant the bugs one after another; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutants", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parts = list(dict.fromkeys(name.partition("-")[0] for name in mutants()))
    parser.add_argument("part", nargs="*", metavar="PART", help=f"some of {', '.join(parts)}; all without a name")
    parser.add_argument("--only", default="", metavar="TEXT", help="bugs with this in their name, file or text")
    parser.add_argument("--find", nargs="+", default=(), metavar="FILE", help="print which tests of these fail")
    given = parser.parse_args(arguments)
    if unknown := set(given.part) - set(parts):
        parser.error(f"There is no part {sorted(unknown)[0]!r}; the parts are {', '.join(parts)}.")
    chosen = {
        name: one
        for name, one in mutants().items()
        if (not given.part or name.partition("-")[0] in given.part) and given.only in f"{name} {one.file} {one.new}"
    }
    if not chosen:
        parser.error(f"No bug has {given.only!r} in its name, file or text.")
    if absent := [name for name in given.find if not (ROOT / "tests" / name.partition("::")[0]).exists()]:
        parser.error(f"There is no tests/{absent[0]}.")
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True)
    missed = 0
    with tempfile.TemporaryDirectory() as where:
        copied(folder := Path(where))
        wanted = sorted({killer for one in chosen.values() for killer in given.find or one.killers})
        if broken := failing(folder, wanted):
            parser.error(f"These fail without any bug: {', '.join(sorted(broken))}.")
        for name, one in chosen.items():
            file, began = folder / "jdfl" / one.file, time.monotonic()
            sound = file.read_text(encoding="utf-8")
            file.write_text(planted(one), encoding="utf-8")
            found = failing(folder, given.find or one.killers)
            file.write_text(sound, encoding="utf-8")
            blind = [] if given.find else [killer for killer in one.killers if killer not in found]
            missed += bool(blind)
            words = f"missed by {', '.join(blind)}" if blind else f"seen by {', '.join(sorted(found)) or 'none'}"
            print(f"{name} {one.file} ({time.monotonic() - began:.0f} s): {words}", flush=True)
            if not given.find:
                record(name, {"commit": commit.stdout.strip(), "seen by": sorted(found), "missed by": blind})
    print(f"{len(chosen)} bugs, {missed} of them missed by one of their tests")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
