"""What every test file costs: processor seconds, compiled programs, and seconds of compiling, tracing and lowering.

    python -m tools.profile_tests [--out FILE] [PYTEST ARGUMENTS ...]

Runs pytest with these arguments (those of `make test` if there are none) and prints the most expensive files; FILE has
all of them as JSON. It is a plugin, so `pytest -p tools.profile_tests --profile FILE` does the same. Processor seconds
are those of all threads of a worker and of the processes that a test has waited for; the other times are elapsed ones.
What a fixture of a module or session costs is counted for the test that asks for it first.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import jax
import pytest

ROOT = Path(__file__).parent.parent
OUT = ROOT / "out" / "tests.json"
USUAL = ("-n", "2", "--dist", "loadfile")  # as `make test`
SHOWN = 40
_EVENTS = {  # of jax.monitoring
    "/jax/core/compile/backend_compile_duration": "compile",
    "/jax/core/compile/jaxpr_trace_duration": "trace",
    "/jax/core/compile/jaxpr_to_mlir_module_duration": "lower",
}
COLUMNS = ("tests", "seconds", "programs", "compile", "trace", "lower")
_spent: dict[str, float] = defaultdict(float)  # by this process so far


def _listen(event: str, duration_secs: float, **_: str | int) -> None:
    if name := _EVENTS.get(event):
        _spent[name] += duration_secs
        _spent["programs"] += name == "compile"


def _now() -> dict[str, float]:
    used = os.times()
    return {**_spent, "seconds": used.user + used.system + used.children_user + used.children_system}


class Profile:
    """The plugin: every process measures its tests, and the first one adds them up."""

    def __init__(self, path: Path) -> None:
        self.path, self.began = path, time.monotonic()
        self.files: dict[str, dict[str, float]] = defaultdict(lambda: dict.fromkeys(COLUMNS, 0))
        self.collecting: list[float] = []
        self.before: dict[str, float] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        """A test begins."""
        self.before = _now()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
        """A test is over: what it took travels with its last report."""
        if call.when == "teardown":
            after = _now()
            item.user_properties.append(("spent", {key: after[key] - self.before.get(key, 0) for key in after}))
        return (yield)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """All tests are known to the process."""
        seconds = _now()["seconds"]
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["collecting"] = seconds  # pyright: ignore[reportAttributeAccessIssue]
        else:
            self.collecting.append(seconds)

    def pytest_testnodedown(self, node: Any) -> None:
        """A worker of xdist is done."""
        self.collecting.append(node.workeroutput.get("collecting", 0))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test of this process or of a worker has ended."""
        for name, spent in report.user_properties if report.when == "teardown" else ():
            if name == "spent":
                row = self.files[report.nodeid.partition("::")[0]]
                row["tests"] += 1
                for key, value in spent.items():  # type: ignore[union-attr]
                    row[key] += value

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Write the file, and the table."""
        found = {
            "commit": commit(),
            "elapsed": round(time.monotonic() - self.began, 1),
            "collecting": [round(one, 1) for one in self.collecting],
            "files": {name: {key: round(row[key], 2) for key in COLUMNS} for name, row in sorted(self.files.items())},
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        for line in table(found):
            terminalreporter.write_line(line)
        terminalreporter.write_line(f"all files: {self.path}")


def commit() -> str:
    """The commit of the checkout, with a + where files differ from it."""
    asked = ("git", "describe", "--always", "--dirty=+", "--abbrev=12")
    done = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def table(found: dict[str, Any]) -> Iterator[str]:
    """The most expensive files, and the sum of all, in lines."""
    files = found["files"]
    total = {key: sum(row[key] for row in files.values()) for key in COLUMNS}
    yield f"{'':52}" + "".join(f"{key:>10}" for key in COLUMNS)
    most = sorted(files.items(), key=lambda item: -item[1]["seconds"])[:SHOWN]
    for name, row in [*most, (f"all {len(files)} files", total)]:
        yield f"{name[-52:]:52}" + "".join(f"{row[key]:>10,.0f}" for key in COLUMNS)
    collecting = ", ".join(f"{one:.0f}" for one in found["collecting"])
    yield f"collecting took {collecting} processor seconds, everything {found['elapsed']:.0f} s"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Take the name of the file."""
    parser.addoption("--profile", type=Path, default=OUT, help="file for what tests cost")


def pytest_configure(config: pytest.Config) -> None:
    """Listen to the compiler."""
    jax.monitoring.register_event_duration_secs_listener(_listen)
    config.pluginmanager.register(Profile(Path(str(config.getoption("--profile")))), "profile of tests")


def main(arguments: list[str]) -> int:
    """Run pytest with the plugin; returns its exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=OUT, help="file for what tests cost")
    given, others = parser.parse_known_args(arguments)
    command = [sys.executable, "-m", "pytest", "-p", "tools.profile_tests", f"--profile={given.out}"]
    return subprocess.call([*command, *(others or USUAL)], cwd=ROOT)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
