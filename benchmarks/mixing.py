"""Mixing: fixed networks compared with SciPy's CSR and JAX's sparse product, and networks redrawn in every round.

Run `python -m benchmarks.mixing [--quick] [--out DIR]`; five minutes on two cores.
"""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.experimental import sparse

from benchmarks.common import Options, Row, benchmark, interleaved, ratios, row
from jdfl import network as nw

RESULT = (
    "On a Barabasi-Albert network of 20,000 nodes, buckets take {Barabasi-Albert(m=20000, links=5, seed=0) n=100 -> "
    "buckets / scipy} of the time of SciPy's CSR product."
)
LIMIT = (
    "Blocks of four and six neighbours, gathers without bounds and tables by columns were within 10 %. At m=2048 and "
    "n=100 four recordings gave 0.53 to 0.74 of SciPy's time, a separate idle process 0.51."
)
MIXES, ENOUGH = 10, 2e7  # in one timing, in sequence as in a run, and numbers that result: threads wake up first
MOST_BCOO = 1e8  # floats that the sparse product may create, one row of n per slot


def one_case(network: nw.Static, n: int, repeats: int, hubs: bool) -> list[Row]:
    """Milliseconds to mix rows [m, n] in every format, and the format that auto chose."""
    graph = nw.bucketed(network.graph)
    x = jnp.asarray(np.random.default_rng(0).standard_normal((graph.m, n)), jnp.float32)
    mixes = max(MIXES, int(ENOUGH / x.size))
    formats: list[nw.Format] = ["padded", "buckets"]
    mix = jax.jit(lambda graph, x: lax.fori_loop(0, mixes, lambda _, x: nw.mix(graph, x), x))
    works = {form: partial(mix, replace(graph, format=form), x) for form in formats}
    if graph.senders.size * n <= MOST_BCOO:
        W = sparse.BCOO.from_scipy_sparse(nw.to_scipy(graph).astype(np.float32))
        works["bcoo"] = partial(jax.jit(lambda W, x: lax.fori_loop(0, mixes, lambda _, x: W @ x, x)), W, x)
    truth = np.asarray(works["padded"]())
    same = all(np.allclose(work(), truth, rtol=1e-5, atol=1e-5) for work in works.values())
    matrix, rows = nw.to_scipy(graph).astype(np.float32), np.asarray(x)

    def by_scipy() -> np.ndarray:
        y = rows
        for _ in range(mixes):
            y = matrix @ y
        return y

    seconds = interleaved(works | {"scipy": by_scipy}, repeats)
    case = f"{network.name} n={n}"
    picked = network.graph.format
    right = picked == min(("padded", "buckets"), key=lambda form: float(np.median(seconds[form])))
    links = int(np.asarray(graph.mask).sum())
    many = graph.m >= 2048 and not hubs
    own = seconds[picked]
    return [
        *(
            row(case, f"one mix, {form}", [1e3 * time / mixes for time in times], "ms")
            for form, times in seconds.items()
        ),
        row(case, "padded / buckets", ratios(seconds["padded"], seconds["buckets"]), "x", ">= 2" if hubs else ""),
        row(case, f"{picked} / scipy", ratios(own, seconds["scipy"]), "x", "<= 0.6" if graph.m >= 2048 else ""),
        *(
            [row(case, f"bcoo / {picked}", ratios(seconds["bcoo"], own), "x", ">= 4" if many else "")]
            if "bcoo" in works
            else []
        ),
        Row(case, "slots of the table / links", graph.senders.size / links, "x"),
        Row(case, "slots in the buckets / links", graph.buckets.slots / links if graph.buckets else 0.0, "x"),
        Row(case, f"auto picked {picked}, the faster", float(right), ""),
        Row(case, "all formats agree", float(same), "", ">= 1", same),
    ]


@jax.jit
def rounds_over(network: nw.Network, x: Array) -> Array:
    """The rows x [m, n] after some rounds, each over the network of that round."""
    key = jax.random.key(0)
    return lax.fori_loop(0, MIXES, lambda k, x: nw.mix(network.at(k, jax.random.fold_in(key, k)), x), x)


def drawn(m: int, n: int, repeats: int) -> list[Row]:
    """Milliseconds of a round whose network is redrawn, and of one with a fixed network of the same degree."""
    x = jnp.asarray(np.random.default_rng(0).standard_normal((m, n)), jnp.float32)
    ring, regular = nw.ring(m), nw.k_regular(m, 8)
    pairs: dict[str, tuple[nw.Network, nw.Network]] = {
        "8 random neighbours": (nw.random_neighbours(m, 8), regular),
        "random matching": (nw.random_matching(m), ring),
        "links up with probability .5": (nw.random_links(regular, 0.5), regular),
        "links lost with probability .2": (nw.link_loss(regular, 0.2), regular),
        "one-peer exponential": (nw.one_peer_exponential(m), ring),
    }
    fixed = {name: partial(rounds_over, network, x) for name, network in (("8-regular", regular), ("ring", ring))}
    works = {name: partial(rounds_over, network, x) for name, (network, _) in pairs.items()}
    seconds = interleaved(fixed | works, repeats)
    case = f"networks of a round, m={m} n={n}"
    rows = [
        row(case, f"a round, {name}", [1e3 * time / MIXES for time in times], "ms") for name, times in seconds.items()
    ]
    for name, (_, base) in pairs.items():
        beside = "8-regular" if base is regular else "ring"
        rows.append(row(case, f"{name} / {beside}", ratios(seconds[name], seconds[beside]), "x"))
    return rows


@benchmark("Mixing")
def main(chosen: Options) -> list[Row]:
    repeats = 2 if chosen.quick else 15
    if chosen.quick:
        cases = [(nw.barabasi_albert(60, 2), 10, True), (nw.star(60), 10, True), (nw.ring(60), 10, False)]
    else:
        cases = [
            *((nw.barabasi_albert(2000, 5), n, True) for n in (100, 1000)),
            (nw.barabasi_albert(20_000, 5), 100, True),
            *((nw.star(2000), n, True) for n in (100, 1000)),
            *((nw.barabasi_albert(200, 3), n, False) for n in (100, 1000)),
            (nw.erdos_renyi(2000, 0.01), 1000, False),
            (nw.torus(2500), 1000, False),
            *((nw.k_regular(2048, 11 + 1), n, False) for n in (100, 1000)),
            (nw.k_regular(65_536, 12), 100, False),
        ]
    rows = [line for network, n, hubs in cases for line in one_case(network, n, repeats, hubs)]
    rows += [
        line
        for m, n in (((60, 10),) if chosen.quick else ((2048, 1000), (65_536, 100)))
        for line in drawn(m, n, repeats)
    ]
    if chosen.quick:
        rows = [one if one.unit == "" else replace(one, goal="", met=None) for one in rows]  # goals are for real sizes
    return rows


if __name__ == "__main__":
    main()
