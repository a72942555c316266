"""Programs compiled for devices that are not there: registered methods keep their counts.

They need the compilers, `pip install 'jdfl[cuda]'` or `'jdfl[tpu]'`, each in an environment of its own.
"""

import subprocess
import sys
from importlib.util import find_spec

import jax
import jax.numpy as jnp
import pytest

from benchmarks import aot, hlo, roofline
from jdfl.arrays import ops, projection
from tests.refused import refused

PACKAGES = {"h100": "jax_cuda13_plugin", "v5e": "libtpu"}


def turns(module, function, *rows) -> list[int]:
    """The most turns that a function of one of the rows takes of every loop that depends on data, in their order."""
    counts, loop = [], module.lax.while_loop

    def counted(goes_on, body, start):
        end, count = loop(lambda c: goes_on(c[0]), lambda c: (body(c[0]), c[1] + 1), (start, jnp.int32(0)))
        counts.append(count)
        return end

    def both(*row):
        counts.clear()
        return function(*row), list(counts)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module.lax, "while_loop", counted)
        return [int(jnp.max(one)) for one in jax.jit(jax.vmap(both))(*rows)[1]]


def test_loops_turn_as_often_as_they_are_counted():
    """A search for ties makes no turn on normal numbers, and is counted like that for the threshold."""
    rows, wanted = jax.random.normal(jax.random.key(0), (20_000, 100)), roofline.TURNS["_search"]
    search, ties = turns(projection, lambda x: projection._largest(x, 10), rows)
    assert 0.7 * wanted <= search <= wanted  # 12 of 4,096 rows with s = 100 of 1000
    assert ties == 0
    keys, places = jax.random.split(jax.random.key(1), 20_000), jnp.broadcast_to(jnp.arange(3), (20_000, 3))
    (walked,) = turns(ops, lambda key, place: ops.permuted(key, place, jnp.int32(7)), keys, places)
    assert walked == roofline.TURNS["permuted"]


def needs(target):
    return pytest.mark.skipif(find_spec(PACKAGES[target]) is None, reason=f"{PACKAGES[target]} is not installed")


def python(*words):
    """The output of a process of its own: the target is settled before JAX is used."""
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("target", [pytest.param(name, marks=needs(name)) for name in PACKAGES])
def test_registered_methods_keep_their_counts(target):
    python("-m", "benchmarks.roofline", "--registered", "--target", target)


@pytest.mark.skipif(find_spec(PACKAGES["h100"]) is not None, reason="the compiler is installed")
def test_a_missing_compiler_is_named():
    with pytest.raises(AssertionError, match=r"pip install 'jdfl\[cuda\]'"):
        python("-m", "benchmarks.roofline", "--quick")


def test_a_size_without_room_is_refused_with_one_that_fits():
    with refused(aot.TooLargeError, "m <= 500", "m = 1,000"):
        aot._check_room(aot.H100, 1000, 160e9)
    aot._check_room(aot.H100, 1000, 80e9)


def test_counts_that_grow_are_named_and_time_is_that_of_bytes_operations_or_a_start():
    before = roofline.Counts(100, 2, 1e9, 1.2)
    assert not roofline.Counts(104, 2, 1.04e9, 1.2).worse(before)
    assert roofline.Counts(106, 2, 2e9, 1.2).worse(before) == ["kernels 100 -> 106", "bytes 1e+09 -> 2e+09"]
    target = aot.Target("", "", "", "", 1e12, 0, 0, 1e12, 2e12, launch=1e-6, sync=1e-5)
    by_bytes, by_work, by_start = (
        hlo.Kernel("", "", 1, roofline.REACHED * 1e12),
        hlo.Kernel("", "", 2, 0, ints=1e12, floats=2e12),
        hlo.Kernel("", "", 3, 8),
    )
    assert roofline.seconds(hlo.Cost((by_bytes, by_work, by_start), 1), target) == pytest.approx(1 + 4 + 3e-6 + 1e-5)
