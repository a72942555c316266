"""Which tests of `make test` need not run at every commit: those whose code others run, and that alone see no bug.

    python -m tools.in_turn [--from FOLDER]

Runs the tests of `make test` with branch coverage by test (an hour on two cores; needs the extra `quality`), or reads
what such a run has left in FOLDER, and writes tests/in_turn.txt. These stay: tests below SHORT seconds, loops and
formulas of papers, those that see planted bugs (tests/mutants.toml), and those that are needed to run every branch,
chosen greedily by branches per second. The others take turns (tests/conftest.py).
"""

import argparse
import re
import sqlite3
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections import defaultdict
from heapq import heapify, heappop, heappush
from pathlib import Path

from tests.mutants import mutants

ROOT = Path(__file__).parent.parent
LIST = ROOT / "tests" / "in_turn.txt"
SHORT = 0.3  # seconds
WORTH = 0.6  # branches that nothing else runs, per second: a test with fewer is left to its turn
STAY = re.compile(r"loop|formula|closed_form|within_the_sensitivity|noise_of_its_own|fresh|fit_and_no_more")


def measure(folder: Path) -> None:
    """Run the tests, with the coverage of each and its time in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    settings = folder / "settings.ini"
    settings.write_text(f"[run]\nbranch = True\nsource = jdfl\ndata_file = {folder / 'data'}\nparallel = True\n")
    cover = ["--cov", f"--cov-config={settings}", "--cov-context=test", "--cov-report="]
    run = [
        sys.executable,
        "-m",
        "pytest",
        "-n",
        "2",
        "--dist",
        "loadfile",
        f"--junitxml={folder / 'junit.xml'}",
        *cover,
    ]
    subprocess.run(run, cwd=ROOT, check=True)


def seconds_of(folder: Path) -> dict[str, float]:
    """The seconds of every test, by its id."""
    cases = ET.parse(folder / "junit.xml").getroot().iter("testcase")
    return {
        f"{one.attrib['classname'].replace('.', '/')}.py::{one.attrib['name']}": float(one.attrib["time"])
        for one in cases
    }


def branches_of(folder: Path) -> dict[str, set[tuple[int, int, int]]]:
    """The branches that every test runs, by its id."""
    found = defaultdict[str, set[tuple[int, int, int]]](set)
    with sqlite3.connect(folder / "data") as data:
        names = {i: name.partition("|")[0] for i, name in data.execute("select id, context from context")}
        for context, *branch in data.execute("select context_id, file_id, fromno, tono from arc"):
            if names[context]:  # by no test: imports
                found[names[context]].add((branch[0], branch[1], branch[2]))
    return found


def chosen(seconds: dict[str, float], branches: dict[str, set[tuple[int, int, int]]], killers: set[str]) -> set[str]:
    """The tests that run at every commit."""

    def stays(name: str) -> bool:
        function = name.partition("[")[0]
        return seconds[name] < SHORT or {name, function} & killers != set() or STAY.search(function) is not None

    kept = {name for name in seconds if stays(name)}
    run = set[tuple[int, int, int]]().union(*(branches[name] for name in kept))
    queue = [(-len(branches[name] - run) / seconds[name], name) for name in set(seconds) - kept]
    heapify(queue)
    while queue:
        name = heappop(queue)[1]
        worth = len(branches[name] - run) / seconds[name]
        if queue and worth < -queue[0][0]:
            heappush(queue, (-worth, name))
        elif worth >= WORTH:
            kept.add(name)
            run |= branches[name]
        else:
            break
    return kept


def main() -> None:
    """Write the list."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--from", dest="folder", type=Path)
    folder = parser.parse_args().folder
    if folder is None:
        measure(folder := ROOT / "out" / "in_turn")
    seconds, branches = seconds_of(folder), branches_of(folder)
    killers = {f"tests/{one}" for mutant in mutants().values() for one in mutant.killers}
    kept = chosen(seconds, branches, killers)
    left = sorted(set(seconds) - kept)
    LIST.write_text("".join(f"{name}\n" for name in left))
    lost = set().union(*branches.values()) - set().union(*(branches[name] for name in kept))
    spent = [sum(seconds[name] for name in some) for some in (seconds, left)]
    print(f"{len(left)} of {len(seconds)} tests, {spent[1]:.0f} of {spent[0]:.0f} s, take turns; {len(lost)} branches")


if __name__ == "__main__":
    main()
