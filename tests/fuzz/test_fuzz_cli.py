"""The command line: whatever is typed, it is parsed, or refused with a line that says why; never a traceback."""

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any, get_type_hints

import pytest
from hypothesis import strategies as st

from jdfl.cli import _functions, account, audit, bench, compare, data, report, resume, run, sweep, verify
from jdfl.config import RunConfig, members
from jdfl.lab.settings import Settings
from tests.fuzz.judge import fuzz, sizes, tried

pytestmark = [pytest.mark.filterwarnings("default"), pytest.mark.filterwarnings("ignore::RuntimeWarning")]
TINY = ["--problem.m", "4", "--problem.n", "6", "--problem.s", "2", "--problem.rows", "5", "9", "--steps", "2"]
TINY += ["--network", "complete", "--algorithm", "d-psgd"]
VALUES = [".nan", ".inf", "-.inf", "inf", "-1", "0", "1", "2", "3", "0.5", "1e-320", "1e300", "4294967296", "1" * 30]
VALUES += ["9" * 5000, "", " ", "x", "none", "None", "True", "ring", "dense", "ceps", "auto", "[1, 2]", "{}", "é"]
VALUES += ["/", ".", "/dev/null", "missing", "lr=1", "config.yaml", "../config.yaml", "%s", "$(x)", "--", "-", "a=b"]
VALUES += ["\ud800", "a" * 300]


def flags(kind: Any, path: str = "") -> Iterator[str]:
    """The names of all settings of a class, also those of the kinds that its settings may be of."""
    for name, annotation in get_type_hints(kind, include_extras=True).items():
        if name not in {field.name for field in dataclasses.fields(kind)}:
            continue
        yield path + name.replace("_", "-")
        for inner in members(annotation).values():
            if path.count(".") < 2:
                yield from flags(inner, f"{path}{name}.")


@functools.cache
def options() -> dict[str, list[str]]:
    """The names of all options by command."""
    ran = set(flags(RunConfig))
    known = {
        **{name: ran | set(flags(module.Options)) for name, module in OF_RUNS.items()},
        "compare": {*flags(Settings), *flags(compare.Options), "algorithms"},
        "report": set(flags(report.Options)),
        "data": set(flags(data.Options)),
    }
    return {name: sorted(found) for name, found in known.items()}


OF_RUNS = {"run": run, "resume": resume, "verify": verify, "account": account, "audit": audit}
OF_RUNS |= {"sweep": sweep, "bench": bench}
SPREAD = ("devices", "distributed", "coordinator", "processes", "process")  # other processes would be waited for


@st.composite
def words(draw: st.DrawFn) -> tuple[str, list[str]]:
    """A command, and what may be typed after it."""
    command = draw(st.sampled_from(sorted(options())))
    typed = [] if draw(st.booleans()) else list(TINY)
    if command in ("resume", "verify"):
        typed[:0] = draw(st.sampled_from([["folder"], ["missing"], ["file"], [""], []]))
    names = st.sampled_from([name for name in options()[command] if name not in SPREAD])
    for _ in range(draw(st.integers(0, 4))):
        name = f"--{draw(names)}"
        how = draw(st.sampled_from(["two", "joined", "alone", "value", "several"]))
        value = draw(st.sampled_from(VALUES))
        typed += {
            "two": [name, value],
            "joined": [f"{name}={value}"],
            "alone": [name],
            "value": [value],
            "several": [name, value, draw(st.sampled_from(VALUES))],
        }[how]
    return command, typed


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with a configuration, a run's folder without records, and a file."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("JDFL_DATA", raising=False)
    (tmp_path / "folder").mkdir()
    for name in ("config.yaml", "folder/config.yaml"):
        (tmp_path / name).write_text("steps: 2\nproblem: {kind: example1, m: 4, n: 6, s: 2, rows: [5, 9]}\n")
    (tmp_path / "file").touch()


def parsed(command: str, typed: list[str]) -> Any:
    """What a command is to do; its exit status after help or a complaint."""
    try:
        return _functions(command)[0](typed)
    except SystemExit as stop:
        return stop.code


@sizes(40, 700)
def test_anything_typed_is_parsed_or_refused(count, place, capfd):
    def check(given: tuple[str, list[str]]) -> None:
        found = tried(lambda: parsed(*given), given)
        assert not isinstance(found, int) or found in (0, 2)

    fuzz(count, words(), check)
    assert "Traceback" not in "".join(capfd.readouterr())


SHORT = [".nan", ".inf", "-1", "0", "1", "2", "0.5", "1e300", "x", "", "none", "file", "1" * 30]
