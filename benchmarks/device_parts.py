"""What `benchmarks.device` measures in separate processes: parts of rounds, and small runs compared with the CPU's.

`python -m benchmarks.device_parts parts QUICK` and `... compare FIRST STEP` print JSON; the memory that they use is
free for other processes afterwards.
"""

import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import jdfl
from benchmarks.common import Row, row
from benchmarks.machine import bandwidth
from jdfl import testing
from jdfl.arrays import projection
from jdfl.base.keys import typed_key
from jdfl.privacy.exact import discrete_gaussian
from tests.contract.table import TABLE

ROUNDS = 20  # that are compared
REPEATS = 5  # of a timing


def often(work: Callable[..., Any], *arguments: Any, repeats: int = REPEATS) -> list[float]:
    """Seconds of a call, which is compiled first."""
    compiled = jax.jit(work)
    jax.block_until_ready(compiled(*arguments))
    seconds = []
    for _ in range(repeats):
        began = time.perf_counter()
        jax.block_until_ready(compiled(*arguments))
        seconds.append(time.perf_counter() - began)
    return seconds


def parts(quick: bool) -> None:
    """Print the parts of a round: rows gathered, kernels started, waits for the host, noise, selections.

    The memory bandwidth in GB/s comes first. The memory used here is free for other processes afterwards.
    """
    copying = bandwidth(quick)[1]
    numbers, turns = (2**16, 50) if quick else (2**29, 5000)
    rows = []
    for n in (25, 100, 1000):
        m = numbers // n
        x, far = jnp.ones((m, n)), jax.random.permutation(jax.random.key(1), m)
        for name, index in (("drawn", far), ("in order", jnp.arange(m))):
            seconds = often(lambda x, index: x[index], x, index)
            shares = [8 * m * n / one / 1e9 / copying for one in seconds]
            rows.append(row(f"rows of {n} numbers, {name}", "gathering / copying", shares, "x"))
    x = jnp.ones((8,))

    loops = {
        "a turn of a loop with a tiny sort": lambda x: lax.fori_loop(0, turns, lambda _, x: jnp.sort(x) * 1.5, x),
        "a turn that depends on data": lambda x: lax.while_loop(lambda x: x[0] < turns, lambda x: x + 1, x),
    }
    for name, work in loops.items():
        rows.append(row(name, "time", [1e6 * one / turns for one in often(work, x)], "us"))
    size = numbers // 2
    for name, key in (("jax", jax.random.key(0)), ("jdfl", typed_key(0))):
        seconds = often(partial(jax.random.normal, shape=(size,)), key)
        rows.append(row(f"normal numbers, keys of {name}", "a number", [1e12 * one / size for one in seconds], "ps"))
    rows += exact(numbers // 4)
    for n, s in ((100, 10), (1000, 10), (1000, 100)):
        x = jax.random.normal(jax.random.key(0), (numbers // 4 // n, n))
        for name, select in (("top_k", lambda x, s: lax.top_k(jnp.abs(x), s)), ("jdfl", projection.top_s)):
            seconds = often(partial(select, s=s), x)
            shares = [4 * x.size / one / 1e9 / copying for one in seconds]
            rows.append(row(f"{s} of {n} numbers, {name}", "reading once / bandwidth", shares, "x"))
    print(json.dumps([copying, [asdict(one) for one in rows]]), flush=True)


def exact(numbers: int) -> list[Row]:
    """Exact noise compared with normal numbers from the same keys, and whether its bits equal the CPU's."""
    n = 1000
    keys = jax.random.split(typed_key(0), numbers // n)
    normal, rows = often(jax.vmap(lambda key: jax.random.normal(key, (n,))), keys), []
    for levels in (2, 3):
        draw = jax.vmap(partial(discrete_gaussian, n=n, levels=levels))
        ratio = [ours / theirs for ours, theirs in zip(often(draw, keys), normal)]
        with jax.default_device(jax.local_devices(backend="cpu")[0]):
            there = np.asarray(jax.jit(draw)(jax.random.split(typed_key(0), len(keys))[:64]))
        same = float(np.array_equal(np.asarray(jax.jit(draw)(keys[:64])), there))
        case = f"exact noise, {levels} levels"
        rows.append(row(case, "time / normal numbers", ratio, "x", "<= 3"))
        rows.append(row(case, "bits as on the CPU", [same], "", ">= 1"))
    return rows


def compared(first: int, step: int) -> None:
    """Print, for some rows of the contract's table, the difference of parameters from the CPU's, and of counts."""
    found = {}
    for line in TABLE[first::step]:
        params, counts = [], []
        for device in (jax.local_devices()[0], jax.local_devices(backend="cpu")[0]):
            with jax.default_device(device):
                problem, graph = testing.small_problem(shared=line.shared), testing.small_network()
                result = jdfl.run(line.algorithm, problem, graph, steps=ROUNDS, key=3)
                params.append(np.asarray(result.params))
                counts.append(result.sums)
        here, there = params
        off = np.abs(here - there).max() / np.abs(there).max()
        found[str(line)] = [float(off), float(counts[0] != counts[1])]
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "parts":
        parts(bool(int(sys.argv[2])))
    else:
        compared(*map(int, sys.argv[2:4]))
