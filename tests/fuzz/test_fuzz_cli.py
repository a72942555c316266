"""The command line: whatever is typed, it runs, or exits as documented with a line that says why; never a traceback."""

import dataclasses
import functools
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_type_hints

import pytest
from hypothesis import strategies as st

from jdfl.cli import _functions, account, audit, bench, compare, data, main, report, resume, run, sweep, verify
from jdfl.config import RunConfig, members
from jdfl.engine.provenance import Provenance
from jdfl.lab.results import read_run
from jdfl.lab.settings import Settings
from tests.fuzz.judge import fuzz, sizes, tried
from tests.fuzz.strategies import damaged

pytestmark = [pytest.mark.filterwarnings("default"), pytest.mark.filterwarnings("ignore::RuntimeWarning")]
TINY = ["--problem.m", "4", "--problem.n", "6", "--problem.s", "2", "--problem.rows", "5", "9", "--steps", "2"]
TINY += ["--network", "complete", "--algorithm", "d-psgd"]
VALUES = [".nan", ".inf", "-.inf", "inf", "-1", "0", "1", "2", "3", "0.5", "1e-320", "1e300", "4294967296", "1" * 30]
VALUES += ["9" * 5000, "", " ", "x", "none", "None", "True", "ring", "dense", "ceps", "auto", "[1, 2]", "{}", "é"]
VALUES += ["/", ".", "/dev/null", "missing", "lr=1", "config.yaml", "../config.yaml", "%s", "$(x)", "--", "-", "a=b"]
VALUES += ["\ud800", "a" * 300]
STATUS = {0, 1, 2, 3, 4, 124, 130, 143}


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


def ended(typed: list[str], capfd: Any) -> int:
    """The exit status of a command, which tells on stderr what failed, and leaves no part of a run as a whole."""
    status = main(typed)
    told = capfd.readouterr().err
    assert status in STATUS, (status, typed)
    assert "Traceback" not in told, (told, typed)
    assert status in (0, 1) or told.strip(), typed
    for folder in Path("runs").glob("*"):
        if not (folder / "summary.json").is_file():
            with pytest.raises(FileNotFoundError):
                read_run(folder)
    return status


SHORT = [".nan", ".inf", "-1", "0", "1", "2", "0.5", "1e300", "x", "", "none", "file", "1" * 30]
FLAGS = "every seed chunk repeats metrics diverged-above problem.noise algorithm.lr algorithm.batch algorithm.clip"
ODD_RUNS = st.dictionaries(
    st.sampled_from([*FLAGS.split(), "max-seconds", "out", "stop"]), st.sampled_from(SHORT), min_size=1, max_size=2
)


@sizes(2, 60)
def test_odd_runs_end_as_documented(count, place, capfd):
    def check(given: dict[str, str]) -> None:
        typed = ["run", *TINY, "--quiet", *(word for name, value in given.items() for word in (f"--{name}", value))]
        tried(lambda: ended(typed, capfd), typed)

    fuzz(count, ODD_RUNS, check)


@sizes(10, 200)
def test_odd_plans_of_releases_are_accounted_for_or_refused(count, place, capfd):
    names = ["releases", "multiplier", "epsilon", "delta", "batch", "records"]
    pairs = st.dictionaries(st.sampled_from(names), st.sampled_from(["3", *SHORT]))
    more = [[], ["--noise", "laplace"], ["--sampling", "poisson"], ["--adjacency", "add-remove"], ["--json"]]

    def check(given: tuple[dict[str, str], list[list[str]]]) -> None:
        typed = ["account", "--releases", "3", *(word for words in given[1] for word in words)]
        typed += [word for name, value in given[0].items() for word in (f"--{name}", value)]
        tried(lambda: ended(typed, capfd), typed)

    fuzz(count, st.tuples(pairs, st.lists(st.sampled_from(more), max_size=3)), check)


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """The folder of a run that is done."""
    base = tmp_path_factory.mktemp("whole")
    assert main(["run", *TINY, "--quiet", "--out", str(base)]) == 0
    (folder,) = base.iterdir()
    return folder


READERS = ("metrics.csv", "provenance.json", "summary.json", "config.yaml")


@sizes(8, 120)
def test_a_damaged_folder_is_verified_and_resumed_or_refused(count, place, whole, capfd):
    cases = st.sampled_from(READERS).flatmap(
        lambda name: st.tuples(st.just(name), damaged((whole / name).read_bytes()))
    )

    def check(given: tuple[str, bytes]) -> None:
        name, content = given
        shutil.rmtree("run", ignore_errors=True)
        shutil.copytree(whole, "run")
        Path("run", name).write_bytes(content)
        command = "resume" if name == "summary.json" else "verify"
        tried(lambda: ended([command, "run"], capfd), given)

    fuzz(count, cases, check)


JSON = [b"", b"[", b"[]", b"3", b"null", b"{}", b'{"ending": "diverged"}', b'{"ending": []}', b"\xff\xfe", b"NaN"]
JSON += [
    b'{"versions": 3, "settings": {}}',
    b'{"versions": {"jdfl": 3}, "settings": {}}',
    b'{"a": 1, "a": 2}',
    b"[" * 10**5,
]
TABLES = [b"", b"round\n", b"a,b\n1,2\n", b"round\n1\n1\n", b"round,objective\n1,2,3\n", b"round,round\n1,2\n", b'"']
TABLES += [b"\0\0", b"\xff\xfe", *(b"round\n%s\n" % text for text in (b"nan", b"inf", b"1e300", b"-1", b"x", b"0.5"))]


def test_odd_json_and_odd_records_in_a_folder(place, whole):
    shutil.copytree(whole, "run")
    for content in JSON:
        for name in ("summary.json", "provenance.json"):
            Path("run", name).write_bytes(content)
        tried(lambda: resume._summary(Path("run")), content)
        tried(lambda: verify._changed(Path("run"), SimpleNamespace(provenance=Provenance({}, {}))), content)  # pyright: ignore
    for content in TABLES:
        Path("metrics.csv").write_bytes(content)
        tried(lambda: verify._records(Path("metrics.csv")), content)
