"""Attack jdfl from outside and count what comes of it: `python -m tests.robustness --help`."""

import argparse
import contextlib
import json
import os
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Generator, Iterable
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import jax
import numpy as np

from jdfl.lab import drawing
from tests.robustness.outcomes import BAD, Tally

COUNTS = {"folders": (2000, 25), "calls": (8000, 150), "inputs": (2000, 60)}  # all, and with --quick
SECONDS = {"folders": 120.0, "calls": 60.0, "inputs": 60.0}  # of one attack


def main(args: list[str] | None = None) -> int:
    """Attack, print the counts and every bad one; the status is 1 where there was a bad one."""
    parser = argparse.ArgumentParser(prog="python -m tests.robustness", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few attacks of each part")
    parser.add_argument("--seed", type=int, default=0, help="another seed: other attacks")
    parser.add_argument("--part", choices=COUNTS, help="one part alone")
    parser.add_argument("--count", type=int, help="so many attacks of each part")
    parser.add_argument("--only", type=int, help="one attack alone, by its number in the part")
    parser.add_argument("--out", type=Path, help="JSON file to whose counts these are added")
    given = parser.parse_args(args)
    told: dict[str, Any] = {}
    bad = 0
    for part, counts in COUNTS.items():
        if given.part in (None, part):
            only = given.only is not None
            numbers = [given.only] if only else range(given.count or counts[given.quick])
            found, seconds = attacked(part, given.seed, numbers, few=given.quick)
            told[part] = found.told()
            bad += len(found.bad)
            print(f"{part}, {seconds:.0f} s: {json.dumps(told[part], indent=1)}", flush=True)
    if given.out is not None:
        before = json.loads(given.out.read_text()) if given.out.exists() else {}
        told = {part: added(before.get(part), one) for part, one in told.items()}
        given.out.write_text(json.dumps(before | told, indent=1) + "\n")
    return min(bad, 1)


def added(before: dict[str, Any] | None, now: dict[str, Any]) -> dict[str, Any]:
    """The counts of a part of two times; None: there were none before."""
    if before is None:
        return now
    outcomes = Counter(before["outcomes"]) + Counter(now["outcomes"])
    counts = {name: before[name] + now[name] for name in ("attacks", *BAD)}
    return {"seeds": [*before["seeds"], *now["seeds"]], **counts, "outcomes": dict(sorted(outcomes.items()))}


def attacked(part: str, seed: int, numbers: Iterable[int], *, few: bool) -> tuple[Tally, float]:
    """The attacks of one part, in a new folder; and the seconds they took."""
    tally, begun = Tally(seed, part), time.monotonic()
    with _apart():
        one: Callable[[Random], str] = import_module(f"tests.robustness.{part}").attacks(few)
        for number in numbers:
            tally.attack(number, one, SECONDS[part])
            if (number + 1) % 250 == 0:
                print(f"{part}: {number + 1}, {time.monotonic() - begun:.0f} s, {dict(tally.counts)}", flush=True)
    return tally, time.monotonic() - begun


@contextlib.contextmanager
def _apart() -> Generator[None]:
    """In an empty folder, without data and cache; figures, which take half the time of a run, are empty."""
    here, environment = Path.cwd(), {"JDFL_CACHE": "0", "JDFL_DATA": ""}
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.dict(os.environ, environment),
        mock.patch.object(drawing.Picture, "savefig", lambda _, path, **__: Path(path).write_bytes(b"figure")),
        warnings.catch_warnings(),
        np.errstate(all="ignore"),
    ):
        warnings.simplefilter("ignore")
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(here)


if __name__ == "__main__":
    jax.config.update("jax_disable_most_optimizations", True)  # of programs, which are compiled sooner
    sys.exit(main())
