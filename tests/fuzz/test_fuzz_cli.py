"""The command line: whatever is typed, it runs, or exits as documented with a line that says why; never a traceback."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from hypothesis import strategies as st

from jdfl import cli
from jdfl.cli import main
from jdfl.config import RunConfig, members
from jdfl.config.compare import Settings
from jdfl.results import read_run
from tests.fuzz.judge import fuzz, sizes, tried

pytestmark = [pytest.mark.filterwarnings("default"), pytest.mark.filterwarnings("ignore::RuntimeWarning")]
TINY = ["--problem.m", "4", "--problem.n", "6", "--problem.s", "2", "--problem.rows", "5", "9", "--steps", "2"]
TINY += ["--network", "complete", "--algorithm", "d-psgd"]
VALUES = ["nan", "inf", "-inf", "-1", "0", "1", "2", "3", "0.5", "1e-320", "1e300", "4294967296", "1" * 30, "9" * 5000]
VALUES += ["", " ", "x", "none", "None", "True", "ring", "dense", "ceps", "auto", "[1, 2]", "{}", "é", "\ud800", "--", "-"]
VALUES += ["/", ".", "/dev/null", "missing", "a" * 300, "lr=1", "config.yaml", "../config.yaml", "%s", "$(x)", "a=b"]
STATUS = {0, 1, 2, 3, 4, 124, 130, 143}


def flags(kind: Any, path: str = "") -> Iterator[str]:
    """The names of all settings of a class, also those of the kinds that its settings may be of."""
    for name, annotation in get_type_hints(kind).items():
        if name not in {field.name for field in dataclasses.fields(kind)}:
            continue
        yield path + name.replace("_", "-")
        for inner in members(annotation).values():
            if path.count(".") < 2:
                yield from flags(inner, f"{path}{name}.")


RUN = sorted(set(flags(RunConfig)))
OPTIONS = {
    "run": sorted({*RUN, *flags(cli.run.Options)}),
    "resume": sorted({*RUN, *flags(cli.resume.Options)}),
    "verify": sorted({*RUN, *flags(cli.verify.Options)}),
    "compare": sorted({*flags(Settings), *flags(cli.compare.Options), "algorithms"}),
    "account": sorted({*RUN, *flags(cli.account.Options)}),
    "audit": sorted({*RUN, *flags(cli.audit.Options)}),
}
SPREAD = ("devices", "distributed", "coordinator", "processes", "process")  # other processes would be waited for


@st.composite
def words(draw: st.DrawFn) -> tuple[str, list[str]]:
    """A command, and what may be typed after it."""
    command = draw(st.sampled_from(sorted(OPTIONS)))
    typed = [] if draw(st.booleans()) else list(TINY)
    if command in ("resume", "verify"):
        typed[:0] = draw(st.sampled_from([["folder"], ["missing"], ["file"], [""], []]))
    names = st.sampled_from([name for name in OPTIONS[command] if name not in SPREAD])
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
    monkeypatch.setenv("JDFL_CACHE", "0")
    monkeypatch.delenv("JDFL_DATA", raising=False)
    (tmp_path / "folder").mkdir()
    for name in ("config.yaml", "folder/config.yaml"):
        (tmp_path / name).write_text("steps: 2\nproblem: {kind: example1, m: 4, n: 6, s: 2, rows: [5, 9]}\n")
    (tmp_path / "file").touch()
    return tmp_path


def parsed(command: str, typed: list[str]) -> Any:
    """What a command is to do; its exit status after help or a complaint."""
    try:
        return cli._COMMANDS[command][0](typed)
    except SystemExit as stop:
        assert stop.code in (0, 2)
        return stop.code


@sizes(60, 700)
def test_anything_typed_is_parsed_or_refused(count, place, capfd):
    fuzz(count, words(), lambda given: tried(lambda: parsed(*given), given))
    assert "Traceback" not in "".join(capfd.readouterr())


def ended(typed: list[str], capfd: Any) -> int:
    """The exit status of a command, which tells on stderr what failed, and leaves no part of a run as a whole."""
    status = main(typed)
    told = capfd.readouterr().err
    assert status in STATUS, (status, typed)
    assert "Traceback" not in told, typed
    assert status == 0 or told.strip() or status == 1, typed
    for folder in Path("runs").glob("*"):
        if not (folder / "summary.json").is_file():
            with pytest.raises(FileNotFoundError, match=r"finished run|run directory"):
                read_run(folder)
    return status
