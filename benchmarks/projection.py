"""P_s: compared with NumPy's argpartition and `lax.top_k`, over s/n and types: the basis of projection.py's constants.

Run `python -m benchmarks.projection [--quick] [--out DIR]`; about a minute on two cores.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from benchmarks.common import Options, Row, benchmark, interleaved, ratios, row
from jdfl.arrays import ops

RESULT = (
    "For the 300 largest of 1,000 numbers in each of 128 rows, `lax.top_k` takes {float32 [128, 1000] s=300 -> top_k "
    "/ jdfl} and NumPy {float32 [128, 1000] s=300 -> numpy / jdfl} times as long."
)
CALLS = 5  # per timing, in sequence: the first wakes threads
SHARES = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.3, 0.6, 0.9)
GOALS = {("numpy", 0.01): ">= 2.5", ("top_k", 0.3): ">= 2"}


def by_numpy(x: np.ndarray, s: int) -> np.ndarray:
    """The s largest entries of every row [m, n], ignoring ties."""
    kept = np.argpartition(np.abs(x), x.shape[1] - s, axis=1)[:, -s:]
    result = np.zeros_like(x)
    np.put_along_axis(result, kept, np.take_along_axis(x, kept, axis=1), axis=1)
    return result


def by_top_k(x: Array, s: int) -> Array:
    """`lax.top_k` and a scatter."""
    kept = lax.top_k(jnp.abs(x), s)[1]
    line = jnp.arange(x.shape[0])[:, None]
    return jnp.zeros_like(x).at[line, kept].set(jnp.take_along_axis(x, kept, axis=1))


def one_by_one(project: Callable[[Array], Array], x: Array) -> Array:
    """Row after row in one program, as communicating nodes are processed."""
    return lax.map(lambda one: project(one[None, :])[0], x)


def repeated(call: Callable[[], Any]) -> list[Any]:
    """The results of several calls."""
    return [call() for _ in range(CALLS)]


def compared(m: int, n: int, share: float, repeats: int, dtype: str = "float32", single: bool = False) -> list[Row]:
    """Time per row in every way, and the ratios; `single` processes row by row."""
    s = max(1, round(share * n))
    x = np.random.default_rng(0).standard_normal((m, n)).astype(np.float32)
    rows = jnp.asarray(x).astype(dtype)
    ways: dict[str, Any] = {"jdfl": partial(ops.top_s, s=s), "top_k": partial(by_top_k, s=s)}
    if single:
        ways = {name: partial(one_by_one, way) for name, way in ways.items()}
    compiled = {name: jax.jit(way).lower(rows).compile() for name, way in ways.items()}
    calls: dict[str, Callable[[], Any]] = {name: partial(way, rows) for name, way in compiled.items()}
    if dtype == "float32" and not single:
        calls["numpy"] = lambda: by_numpy(x, s)
    results = [np.asarray(call()).astype(np.float32) for call in calls.values()]
    if dtype == "float32" and any(not np.array_equal(one, results[0]) for one in results):
        raise RuntimeError(f"The ways disagree for m = {m}, n = {n}, s = {s}.")
    seconds = interleaved({name: partial(repeated, call) for name, call in calls.items()}, repeats)
    case = f"{dtype} {'1 of ' if single else ''}[{m}, {n}] s={s}"
    lines = [
        row(case, f"{name}, a row", [1e6 * time / (m * CALLS) for time in times], "us")
        for name, times in seconds.items()
    ]
    for name in list(calls)[1:]:
        goal = "" if single else GOALS.get((name, share), "")
        lines.append(row(case, f"{name} / jdfl", ratios(seconds[name], seconds["jdfl"]), "x", goal))
    return lines


@benchmark("P_s", goals=False)
def main(chosen: Options) -> list[Row]:
    sizes = ((8, 150),) if chosen.quick else ((128, 1000), (512, 1000), (128, 2000), (512, 2000))
    shares, repeats = (SHARES[2::4], 2) if chosen.quick else (SHARES, 11)
    m, n = sizes[0]
    rows = [line for size in sizes for share in shares for line in compared(*size, share, repeats)]
    rows += [line for share in shares for line in compared(m, n, share, repeats, single=True)]
    rows += compared(20, 2000, 0.3, repeats)
    with jax.enable_x64(True):
        for dtype in ("float64", "bfloat16", "float16", "int32"):
            rows += [line for share in shares[::4] for line in compared(m // 2, n, share, repeats, dtype)]
    return rows


if __name__ == "__main__":
    main()
