"""Strict settings for every test: no silent rank or dtype promotion, and warnings are errors (pyproject).

Most of the suite's time is the compiler's: modules compile with few of LLVM's optimizations and without XLA's fusion
emitters (its other passes remain), but for those about bits, speed or memory (`pytestmark = pytest.mark.optimized`),
and all of them where `--optimized` is given.
"""

import functools
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import hypothesis
import jax
import pytest
from jax._src import compiler

from jdfl import testing
from jdfl.engine import programs
from tests.later import Later

sys.dont_write_bytecode = False  # or every run rewrites all assertions again, which takes longest of collecting
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_num_cpu_devices", 8)  # for tests of several devices; the others use the first
hypothesis.settings.register_profile("jdfl", deadline=None, derandomize=True, max_examples=25)
hypothesis.settings.load_profile("jdfl")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--optimized", action="store_true", help="compile every test's programs as users' are")


def pytest_configure(config: pytest.Config) -> None:
    """Workers, the processes that tests start and the next run of the tests share compiled programs."""
    if hasattr(config, "cache"):  # not so with -p no:cacheprovider
        os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(config.cache.mkdir("xla")))
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
        os.environ.setdefault("PYTHONWARNINGS", "ignore:Error reading persistent compilation cache entry:UserWarning")
        jax.config.update("jax_compilation_cache_dir", os.environ["JAX_COMPILATION_CACHE_DIR"])
        seconds = float(os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"])
        jax.config.update("jax_persistent_cache_min_compile_time_secs", seconds)


_FAST = {  # to compile: with both it takes a third of the time
    "xla_cpu_use_fusion_emitters": False,
    "xla_cpu_parallel_codegen_split_count": 1,  # not several parts of a program at a time
}
_options = compiler.get_compile_options


@functools.cache
def _fast() -> dict[str, Any]:
    """Those of _FAST that this version of XLA has."""

    def known(option: dict[str, Any]) -> bool:
        try:
            jax.jit(lambda: 0, compiler_options=option)()
        except jax.errors.JaxRuntimeError:
            return False
        return True

    return {name: value for name, value in _FAST.items() if known({name: value})}


def _fast_options(*args: Any, env_options_overrides: dict[str, Any] | None = None, **named: Any) -> Any:
    """The options of every compilation, with _FAST; jax has no public way to give some to all."""
    return _options(*args, env_options_overrides={**(env_options_overrides or {}), **_fast()}, **named)


@pytest.fixture(autouse=True, scope="module")
def _optimize(request: pytest.FixtureRequest) -> None:
    as_users = request.config.getoption("--optimized") or request.node.get_closest_marker("optimized") is not None
    if jax.config.read("jax_disable_most_optimizations") == as_users:
        jax.clear_caches()  # or a module would mix both kinds
        jax.config.update("jax_disable_most_optimizations", not as_users)
        _fast()  # is not found out while something compiles
        compiler.get_compile_options = _options if as_users else _fast_options


@pytest.hookimpl(tryfirst=True)  # before slow tests are left out
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of the variants of a `thinned(n, first)` test, one in n is run every time; the others are slow."""
    seen: Counter[str] = Counter()
    for item in items:
        marker = item.get_closest_marker("thinned")
        if marker is None or item.get_closest_marker("slow"):
            continue
        every, first = (*marker.args, 0)[:2]
        name = item.nodeid.partition("[")[0]
        if seen[name] % every != first:
            item.add_marker(pytest.mark.slow)
        seen[name] += 1


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


_MOST_PROGRAMS, _MOST_MAPS = 600, 15_000  # Linux gives a process 65,530 maps of memory
_kept_since = 0


@pytest.fixture(autouse=True)
def _forget_compiled_programs():
    """Compiled programs are mapped memory, of which a process may have so much only; modules share few of them."""
    yield
    global _kept_since
    new = testing.compilations() - _kept_since
    if new > _MOST_PROGRAMS or (new and programs.pieces() > _MOST_MAPS):
        jax.clear_caches()
        _kept_since = testing.compilations()
