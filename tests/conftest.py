"""Strict settings for every test: no silent rank or dtype promotion, and warnings are errors (pyproject).

Most of the suite's time is the compiler's: modules compile with few of LLVM's optimizations and without XLA's fusion
emitters (its other passes remain), but for those about bits, speed or memory (`pytestmark = pytest.mark.optimized`),
and all of them where `--optimized` is given.
"""

import functools
import os
from collections import Counter
from pathlib import Path
from typing import Any

import hypothesis
import jax
import pytest
from jax._src import compiler
from packaging.version import Version

from jdfl import programs

if Version(jax.__version__) >= Version("0.12"):  # or bits depend on places, see jdfl.rounding
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_max_isa=AVX".strip()
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
        jax.config.update("jax_compilation_cache_dir", os.environ["JAX_COMPILATION_CACHE_DIR"])
        seconds = float(os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"])
        jax.config.update("jax_persistent_cache_min_compile_time_secs", seconds)


_PLAIN = {"xla_cpu_use_fusion_emitters": False}  # they take twice the time to compile
_options = compiler.get_compile_options


def _plain_options(*args: Any, env_options_overrides: dict[str, Any] | None = None, **named: Any) -> Any:
    """The options of every compilation, with _PLAIN; jax has no public way to give some to all."""
    return _options(*args, env_options_overrides={**(env_options_overrides or {}), **_PLAIN}, **named)


@functools.cache
def _plain_is_known() -> bool:
    """Other versions of XLA may not have this option."""
    try:
        jax.jit(lambda: 0, compiler_options=_PLAIN)()
    except jax.errors.JaxRuntimeError:
        return False
    return True


@pytest.fixture(autouse=True, scope="module")
def _optimize(request: pytest.FixtureRequest) -> None:
    as_users = request.config.getoption("--optimized") or request.node.get_closest_marker("optimized") is not None
    if jax.config.read("jax_disable_most_optimizations") == as_users:
        jax.clear_caches()  # or a module would mix both kinds
        jax.config.update("jax_disable_most_optimizations", not as_users)
        compiler.get_compile_options = _plain_options if not as_users and _plain_is_known() else _options


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


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder with the real data sets; the test is skipped where JDFL_DATA does not name one."""
    folder = os.environ.get("JDFL_DATA")
    if not folder:
        pytest.skip("JDFL_DATA is not set: no real data on this machine")
    return Path(folder)


_compiled = 0


def _listen(event: str, duration: float, **_: object) -> None:
    global _compiled
    _compiled += event == "/jax/core/compile/backend_compile_duration"


jax.monitoring.register_event_duration_secs_listener(_listen)


@pytest.fixture
def compilations():
    """A function that says how many programs have been compiled so far."""
    return lambda: _compiled


_MOST_PROGRAMS, _MOST_MAPS = 600, 15_000  # Linux gives a process 65,530 maps of memory
_kept_since = 0


@pytest.fixture(autouse=True)
def _forget_compiled_programs():
    """Compiled programs are mapped memory, of which a process may have so much only; modules share few of them."""
    yield
    global _kept_since
    new = _compiled - _kept_since
    if new > _MOST_PROGRAMS or (new and programs.pieces() > _MOST_MAPS):
        jax.clear_caches()
        _kept_since = _compiled
