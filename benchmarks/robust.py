"""Robust rules: the time of every rule compared with plain mixing, and that of the quick robustness atlas.

Run `python -m benchmarks.robust [--quick] [--out DIR]`; five minutes on two cores.
"""

import os
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

import jdfl
from benchmarks.common import Options, Row, benchmark, interleaved, ratios, row
from experiments import robustness_atlas
from jdfl import robust
from jdfl.robust.rule import squares

RESULT = (
    "With 16 neighbours, the coordinate median takes {m=4096 n=1000, 16 neighbours -> coordinate median / mixing} and"
    " ClippedGossip {m=4096 n=1000, 16 neighbours -> ClippedGossip, given length / mixing} times the time of mixing."
)
LIMIT = (
    "Medians and trimmed means sort the values of every coordinate by a network of exchanges, and every one passes "
    "over two rows in the cache. Clipping reads every received row twice, for its distance and for the sum, and a "
    "distance costs two passes over a block in the cache: XLA adds up rows only as a product, whose factors it forms. "
    "The rows about distances have other ways, all slower: one slot after another, sums of eight lanes, and products "
    "with the own row."
)
RULES: dict[str, tuple[robust.Rule, str]] = {
    "coordinate median": (robust.CoordinateMedian(), "<= 10"),
    "trimmed mean": (robust.TrimmedMean(b=2), "<= 10"),
    "ClippedGossip, given length": (robust.ClippedGossip(tau=1.0), "<= 3"),
    "ClippedGossip, adaptive": (robust.ClippedGossip(b=2), "<= 3"),
    "CS+-RG": (robust.CSPlus(b=2), "<= 3"),
    "NNA": (robust.NNA(b=2), ""),
    "BALANCE": (robust.BALANCE(), ""),
    "geometric median": (robust.GeometricMedian(), ""),
    "Krum": (robust.Krum(b=2), ""),
}


def in_slots(received: robust.Received) -> jax.Array:
    """The squared distances [m, d], computed for one slot of all nodes after another."""
    return received.slots(lambda rows: squares(rows - received.own))


def in_lanes(received: robust.Received) -> jax.Array:
    """The squared distances [m, d], by sums of every eighth entry, in blocks of nodes."""

    def of(own: jax.Array, others: jax.Array, here: jax.Array) -> jax.Array:
        return jnp.sum(jnp.sum(((others - own) ** 2).reshape(len(others), -1, 8), axis=1), axis=1)

    return received.each(of)


def by_products(received: robust.Received) -> jax.Array:
    """The squared distances [m, d] from lengths and products, which cancel where rows are near one another."""
    lengths = squares(received.own)
    products = received.each(lambda own, others, here: jnp.dot(others, own, precision=jax.lax.Precision.HIGHEST))
    return lengths[received.senders] + lengths[:, None] - 2 * products


DISTANCES: dict[str, Callable[[robust.Received], jax.Array]] = {
    "distances": robust.Received.distances,
    "distances, slot after slot": in_slots,
    "distances, in lanes": in_lanes,
    "distances, by products": by_products,
}


def measured(m: int, n: int, degree: int, repeats: int) -> list[Row]:
    """Milliseconds of every rule, and its ratio to mixing."""
    graph = jdfl.network.k_regular(m, degree).graph
    x = jnp.asarray(np.random.default_rng(0).standard_normal((m, n)), jnp.float32)
    works = {"mixing": partial(jax.jit(jdfl.network.mix), graph, x)}
    works |= {name: partial(jax.jit(partial(_applied, rule)), graph, x) for name, (rule, _) in RULES.items()}
    works |= {name: partial(jax.jit(partial(_found, find)), graph, x) for name, find in DISTANCES.items()}
    seconds = interleaved(works, repeats)
    case = f"m={m} n={n}, {degree} neighbours"
    rows = [row(case, name, [1e3 * time for time in times], "ms") for name, times in seconds.items()]
    for name, (_, goal) in RULES.items():
        rows.append(row(case, f"{name} / mixing", ratios(seconds[name], seconds["mixing"]), "x", goal))
    rows += [row(case, f"{name} / mixing", ratios(seconds[name], seconds["mixing"]), "x") for name in DISTANCES]
    return rows


def atlas(places: robustness_atlas.Places) -> list[Row]:
    """Seconds of an atlas whose programs are compiled, and its runs by the second where they are kept."""
    seconds, found = list[float](), robustness_atlas.Found()
    with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, XDG_CACHE_HOME=folder):
        for turn in ("first", "again"):
            begun = time.perf_counter()
            found = robustness_atlas.computed(Path(folder) / turn, places)
            seconds.append(time.perf_counter() - begun)
    case = f"atlas, {len(found):,} runs of m=25 n=100, 200 rounds"
    return [
        row(case, "all, with compilation", seconds[:1], "s", "<= 180"),
        row(case, "runs a second, without compilation", [len(found) / seconds[1]], "", ">= 27"),
    ]


def _applied(rule: robust.Rule, graph: jdfl.network.Graph, x: jax.Array) -> jax.Array:
    return rule(graph, x)


def _found(find: Callable[[robust.Received], jax.Array], graph: jdfl.network.Graph, x: jax.Array) -> jax.Array:
    return find(robust.Received.of(graph, x))


@benchmark("Robust rules")
def main(chosen: Options) -> list[Row]:
    if chosen.quick:
        small = measured(40, 16, 4, 2)
        rows = [Row(one.case, one.measure, one.value, one.unit) for one in small]  # goals are for real sizes
    else:
        rows = [*measured(4096, 1000, 16, 15), *atlas(robustness_atlas.places(quick=True, seeds=2))]
    return rows


if __name__ == "__main__":
    main()
