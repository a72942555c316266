"""Noise of every node from its own key: the keys of runs compared with JAX's, for equal numbers; and exact noise.

Run `python -m benchmarks.noise [--quick] [--out DIR]`; half a minute on two cores.
"""

from collections.abc import Callable
from functools import partial

import jax
import numpy as np
from jax import Array

from benchmarks.common import Options, Row, benchmark, interleaved, ratios, row
from jdfl.base.keys import typed_key
from jdfl.privacy.exact import discrete_gaussian

RESULT = (
    "Normal numbers for 4,096 nodes with 1,000 parameters take {normal [4096, 1000] -> jax / jdfl} times as long with"
    " JAX's keys."
)
SAMPLERS = {"normal": jax.random.normal, "Laplace": jax.random.laplace}


def compared(m: int, n: int, kind: str, repeats: int) -> list[Row]:
    """Time of an entry with both kinds of keys, and the ratio."""

    def draw(keys: Array) -> Array:
        return jax.vmap(lambda key: SAMPLERS[kind](key, (n,)))(keys)

    keys = {"jdfl": jax.random.split(typed_key(0), m), "jax": jax.random.split(jax.random.key(0), m)}
    ways = {name: partial(jax.jit(draw), key) for name, key in keys.items()}
    ours, theirs = (np.asarray(way()) for way in ways.values())
    if not np.array_equal(ours, theirs):
        raise RuntimeError(f"The keys disagree for m = {m}, n = {n}, {kind}.")
    seconds = interleaved(ways, repeats)
    case = f"{kind} [{m}, {n}]"
    each = {f"{name}, an entry": [1e9 * time / (m * n) for time in times] for name, times in seconds.items()}
    ratio = row(case, "jax / jdfl", ratios(seconds["jax"], seconds["jdfl"]), "x")
    return [*(row(case, *one, "ns") for one in each.items()), ratio]


def exact(m: int, n: int, repeats: int) -> list[Row]:
    """Time of exact noise of two and three levels relative to normal numbers, with keys of both kinds."""
    keys = jax.random.split(typed_key(0), m)
    ways: dict[str, Callable[[], Array]] = {
        "jdfl": partial(jax.jit(jax.vmap(lambda key: jax.random.normal(key, (n,)))), keys),
        "jax": partial(
            jax.jit(jax.vmap(lambda key: jax.random.normal(key, (n,)))), jax.random.split(jax.random.key(0), m)
        ),
    }
    ways |= {
        f"{levels} levels": partial(jax.jit(jax.vmap(partial(discrete_gaussian, n=n, levels=levels))), keys)
        for levels in (2, 3)
    }
    seconds = interleaved(ways, repeats)
    return [
        row(f"exact [{m}, {n}]", f"{name} / normal, keys of {kind}", ratios(seconds[name], seconds[kind]), "x", goal)
        for name in list(ways)[2:]
        for kind, goal in (("jax", "<= 3"), ("jdfl", ""))
    ]


@benchmark("Noise", goals=False)
def main(chosen: Options) -> list[Row]:
    sizes = ((3, 50),) if chosen.quick else ((20, 2000), (128, 1000), (4096, 1000), (10, 24_324))
    rows = [line for kind in SAMPLERS for size in sizes for line in compared(*size, kind, 2 if chosen.quick else 31)]
    rows += [line for size in sizes for line in exact(*size, 2 if chosen.quick else 31)]
    return rows


if __name__ == "__main__":
    main()
