"""Robust rules: the time of every rule compared with plain mixing on the same network, in one run.

Run `python -m benchmarks.robust [--quick] [--out DIR]`; two minutes on two cores.
"""

import sys
from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

import jdfl
from benchmarks.common import Row, interleaved, options, ratios, report, row
from jdfl import robust

NAME = "robust"
LIMIT = (
    "Clipping reads every received row twice, for its distance and for the sum, and the distances are products of "
    "blocks that stay in the cache. Blocks in which both are computed were not faster."
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


def measured(m: int, n: int, degree: int, repeats: int) -> list[Row]:
    """Milliseconds of every rule, and its ratio to mixing."""
    graph = jdfl.network.k_regular(m, degree).graph
    x = jnp.asarray(np.random.default_rng(0).standard_normal((m, n)), jnp.float32)
    works = {"mixing": partial(jax.jit(jdfl.network.mix), graph, x)}
    works |= {name: partial(jax.jit(partial(_applied, rule)), graph, x) for name, (rule, _) in RULES.items()}
    seconds = interleaved(works, repeats)
    case = f"m={m} n={n}, {degree} neighbours"
    rows = [row(case, name, [1e3 * time for time in times], "ms") for name, times in seconds.items()]
    for name, (_, goal) in RULES.items():
        rows.append(row(case, f"{name} / mixing", ratios(seconds[name], seconds["mixing"]), "x", goal))
    return rows


def _applied(rule: robust.Rule, graph: jdfl.network.Graph, x: jax.Array) -> jax.Array:
    return rule(graph, x)


def main(arguments: Sequence[str] | None = None) -> list[Row]:
    chosen = options("Robust rules", arguments)
    rows = measured(40, 10, 4, 2) if chosen.quick else measured(4096, 1000, 16, 15)
    if chosen.quick:
        rows = [Row(one.case, one.measure, one.value, one.unit) for one in rows]  # goals are for real sizes
    report("Robust rules", rows, chosen.out, NAME, chosen.quick)
    return rows


if __name__ == "__main__":
    main(sys.argv[1:])
