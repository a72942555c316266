"""The slow tests in parts that can be stopped and go on, with a record of what passed at which commit.

    python -m tools.slow [PART ...] [--list] [PYTEST ARGUMENTS ...]

Runs the slow tests of the parts (all without a name) that have not yet passed at this commit, and writes every one that
passes to out/slow.jsonl at once: a second call goes on where the first one was stopped. --list says what passed and how
long it took. Changed files that are not committed make a commit of their own, which is forgotten with the next change.
"""

import argparse
import hashlib
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
RECORD = ROOT / "out" / "slow.jsonl"
PARTS = {  # beginnings of tests in tests/; a test belongs to the first part that has it
    "disks": ("test_crash_points.py::test_a_disk",),
    "crash": ("robustness", "store", "test_crash", "test_killed", "test_resume", "test_verify", "test_distributed"),
    "audits": ("auditing", "observers", "privacy", "robust", "test_experiments_privacy", "test_experiments_leakage"),
    "ceps": ("test_every_experiment.py::test_its_small_version_is_what_it_says[ceps",),
    "experiments": ("test_every",),
    "lab": ("test_experiments", "comparison", "study", "test_demo", "overview"),
    "compilers": ("test_sharding", "test_backend", "kernels", "models", "codecs"),
    "docs": ("docs",),
    "rest": ("",),
}


def part_of(test: str) -> str:
    """The part to which a test or file belongs, by its path."""
    path = test.removeprefix("tests/")
    return next(name for name, starts in PARTS.items() if path.startswith(starts))


def commit() -> str:
    """That of the checkout, with a digest of what was changed since."""

    def told(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout

    changed = told("diff", "HEAD") + told("ls-files", "--others", "--exclude-standard")
    return told("rev-parse", "HEAD")[:12] + (f"-{hashlib.sha256(changed.encode()).hexdigest()[:8]}" if changed else "")


def recorded() -> Iterator[dict[str, Any]]:
    """What passed, when, and in how many seconds; a line that was cut off does not count."""
    for line in RECORD.read_text(encoding="utf-8").splitlines() if RECORD.exists() else ():
        if line.endswith("}"):
            yield json.loads(line)


class Slow:
    """The plugin: leaves out other parts and what has passed, and writes what passes."""

    def __init__(self, parts: list[str], now: str) -> None:
        self.parts, self.now = parts, now
        self.passed = {one["test"] for one in recorded() if one["commit"] == now}

    @pytest.hookimpl(trylast=True)  # after those that are not slow
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """The tests that are left."""
        left = [one for one in items if one.nodeid not in self.passed and part_of(one.nodeid) in self.parts]
        config.hook.pytest_deselected(items=[one for one in items if one not in set(left)])
        items[:] = left

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test ended, of this process or of a worker."""
        if report.when != "call" or not (report.passed or report.skipped) or hasattr(report, "written"):
            return
        RECORD.parent.mkdir(exist_ok=True)
        told = {"commit": self.now, "test": report.nodeid, "seconds": round(report.duration, 1)}
        with RECORD.open("a", encoding="utf-8") as file:
            file.write(json.dumps(told) + "\n")


def pytest_addoption(parser: pytest.Parser) -> None:
    """The parts, as a flag of pytest for its workers."""
    parser.addoption("--slow-parts", default="", help="parts of tools.slow")


def pytest_configure(config: pytest.Config) -> None:
    """The plugin is active in every process; the first alone writes."""
    if parts := config.getoption("--slow-parts"):
        plugin = Slow(parts.split(","), commit())
        if hasattr(config, "workerinput"):
            plugin.pytest_runtest_logreport = lambda report: None
        config.pluginmanager.register(plugin)


def main() -> int:
    """Run or list; the exit status is pytest's."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.slow", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", nargs="*", choices=[*PARTS, []], help="all without a name")
    parser.add_argument("--list", action="store_true", help="what passed at this commit")
    given, others = parser.parse_known_args()
    if given.list:
        now, tests, seconds = commit(), Counter[str](), Counter[str]()
        for one in recorded():
            if one["commit"] == now:
                tests[part_of(one["test"])] += 1
                seconds[part_of(one["test"])] += one["seconds"]
        for name in PARTS:
            print(f"{name}: {tests[name]} tests passed at {now} in {seconds[name] / 60:.1f} minutes of one worker")
        return 0
    flags = ["-p", "tools.slow", "--slow-parts", ",".join(given.part or PARTS), "-m", "slow"]
    where = ["tests", "-o", "addopts=-q --strict-markers --strict-config", "-n", "2", "--dist", "worksteal"]
    ended = subprocess.run([sys.executable, "-m", "pytest", *where, *flags, *others], cwd=ROOT).returncode
    passed = sum(one["commit"] == commit() and part_of(one["test"]) in (given.part or PARTS) for one in recorded())
    print(f"{passed} slow tests of {', '.join(given.part or PARTS)} have passed at {commit()}.")
    return 0 if ended == pytest.ExitCode.NO_TESTS_COLLECTED and passed else ended


if __name__ == "__main__":
    sys.exit(main())
