"""Strict settings for every test: no silent rank or dtype promotion, and warnings are errors (pyproject).

Programs are compiled without XLA's fusion emitters, and with few of LLVM's optimizations but in modules about bits,
speed or memory (`pytestmark = pytest.mark.optimized`) and with `--optimized`.
"""

import gc
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any
from zlib import crc32

import hypothesis
import jax
import pytest

from jdfl import testing
from jdfl.engine import compiling
from jdfl.lab import drawing
from tests.later import Later

ROTATED = pytest.StashKey[str]()
IN_TURN, EVERY = Path(__file__).parent / "in_turn.txt", 8  # written by python -m tools.in_turn
sys.dont_write_bytecode = False  # or every run rewrites all assertions again, which takes longest of collecting
gc.set_threshold(100_000, 20, 50)  # tracing makes many objects that stay: a tenth of the time went into looking at them
XLA_FLAGS = ["--xla_cpu_parallel_codegen_split_count=1"]  # not several parts of a program at a time
if jax.__version_info__ < (0, 11):  # later XLA has no such choice, and ends processes for flags that it lacks
    XLA_FLAGS.append("--xla_cpu_use_fusion_emitters=false")  # with both, compiling takes 60 % of the time
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_num_cpu_devices", 8)  # for tests of several devices; the others use the first
hypothesis.settings.register_profile("jdfl", deadline=None, derandomize=True, max_examples=25)
hypothesis.settings.load_profile("jdfl")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--optimized", action="store_true", help="compile every test's programs as users' are")


def pytest_configure(config: pytest.Config) -> None:
    """Workers and the processes that tests start compile alike, and share what is compiled with the next run."""
    os.environ["JDFL_CACHE"] = "0"  # that of whoever runs the tests
    jax.config.update("jax_compilation_cache_dir", os.environ.get("JAX_COMPILATION_CACHE_DIR"))
    given = os.environ.get("XLA_FLAGS", "").split()
    if not config.getoption("--optimized"):  # XLA reads it when something is computed first
        os.environ["XLA_FLAGS"] = " ".join([*given, *(flag for flag in XLA_FLAGS if flag not in given)])
    if hasattr(config, "cache"):  # not so with -p no:cacheprovider
        os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(config.cache.mkdir("xla")))
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
        os.environ.setdefault("PYTHONWARNINGS", "ignore:Error reading persistent compilation cache entry:UserWarning")
        jax.config.update("jax_compilation_cache_dir", os.environ["JAX_COMPILATION_CACHE_DIR"])
        seconds = float(os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"])
        jax.config.update("jax_persistent_cache_min_compile_time_secs", seconds)


@pytest.fixture(autouse=True, scope="module")
def _optimize(request: pytest.FixtureRequest) -> None:
    as_users = request.config.getoption("--optimized") or request.node.get_closest_marker("optimized") is not None
    if jax.config.read("jax_disable_most_optimizations") == as_users:
        jax.clear_caches()  # or a module would mix both kinds
        jax.config.update("jax_disable_most_optimizations", not as_users)


def turn() -> int:
    """Which variants of rotated tests have their turn: a number from the commit, or JDFL_TURN."""
    if told := os.environ.get("JDFL_TURN"):
        return int(told)
    where = {"cwd": Path(__file__).parent, "capture_output": True, "text": True}
    commit = subprocess.run(["git", "rev-parse", "HEAD"], **where).stdout.strip() if shutil.which("git") else ""
    return int(commit[:6] or "0", 16)


@pytest.hookimpl(tryfirst=True)  # before slow tests are left out
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of a `rotated(n)` test's variants, one in n has its turn at a commit; of the tests in IN_TURN, one in EVERY.

    The others are slow. A name decides as well, so that tests of one file do not all have the same turn.
    """
    listed = set(IN_TURN.read_text(encoding="utf-8").splitlines())
    seen, left, now = Counter[str](), 0, turn()
    for item in items:
        marker, name = item.get_closest_marker("rotated"), item.nodeid.partition("[")[0]
        if item.get_closest_marker("slow") or (marker is None and item.nodeid not in listed):
            continue
        place, every = (crc32(item.nodeid.encode()), EVERY) if marker is None else (seen[name], marker.args[0])
        if (place + now) % every:
            item.add_marker(pytest.mark.slow)
            left += 1
        seen[name] += 1
    if seen:
        config.stash[ROTATED] = f"{seen.total() - left} of {seen.total()} tests have their turn {now}"


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker tells the first process which variants it took."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["rotated"] = session.config.stash.get(ROTATED, "")


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """What a worker tells."""
    if told := getattr(node, "workeroutput", {}).get("rotated"):
        node.config.stash[ROTATED] = told


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """No test is left out in silence."""
    if (told := config.stash.get(ROTATED, "")) and "not slow" in config.option.markexpr:
        terminalreporter.write_line(
            f"Of those that take turns, {told}: JDFL_TURN takes others, and make slow all of them."
        )


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(request: pytest.FixtureRequest) -> None:
    """Parameters that are `Later` are built."""
    if isinstance(getattr(request, "param", None), Later):
        request.param = request.param()


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder with the real data sets; the test is skipped where JDFL_DATA does not name one."""
    folder = os.environ.get("JDFL_DATA")
    if not folder:
        pytest.skip("JDFL_DATA is not set: no real data on this machine")
    return Path(folder)


@pytest.fixture
def compilations():
    """A function that says how many programs have been compiled so far."""
    return testing.compilations


@pytest.fixture(scope="module")
def undrawn():
    """Figures are files without a picture, which takes half of the time of a run by the command line."""

    def write(self: Any, fname: Any, format: str = "", **_: Any) -> None:
        content = b"<svg></svg>" if format == "svg" else b"\x89PNG"
        (fname.write if hasattr(fname, "write") else Path(fname).write_bytes)(content)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(drawing.Picture, "savefig", write)
        yield


_MOST_PROGRAMS, _MOST_MAPS = 600, 15_000  # Linux gives a process 65,530 maps of memory
_LOOK_AFTER = 20  # programs: to count maps takes 20 ms where there are many
_kept_since = _looked_at = 0


@pytest.fixture(autouse=True)
def _forget_compiled_programs():
    """Compiled programs are mapped memory, of which a process may have so much only; modules share few of them."""
    yield
    global _kept_since, _looked_at
    now = testing.compilations()
    look = now - _looked_at > _LOOK_AFTER
    _looked_at = now if look else _looked_at
    if now - _kept_since > _MOST_PROGRAMS or (look and compiling.pieces() > _MOST_MAPS):
        jax.clear_caches()
        _kept_since = testing.compilations()
