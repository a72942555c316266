"""Average consensus by push-sum and by DPPS, on the library's directed networks.

Every node has a vector of n entries with an l1 norm of at most 1. Without noise all nodes reach the mean, also with
unequal out-degrees, where the masses a_i in the correction y = s / a differ. With noise of a certified schedule every
round changes what they agree on. The table has, over seeds: the error (the root mean square distance of the nodes from
the mean, over the mean's norm), its minimum over all rounds and its last value; the ratio of certified to true
distances; and epsilon of the whole run at delta = 1e-5, for all messages, when a node's vector is replaced, and when
one node's messages are exchanged for another's. All of it depends on b and gamma_n only through b / gamma_n.

What it shows: a vector is sent only in round 0, whose noise alone hides it: epsilon = b / gamma_n. Useful accuracy
takes hundreds. Where b / gamma_n is a few times n or less, noise drives nodes apart faster than mixing brings them
together on networks with few neighbours; a schedule whose noise grows too large is refused. Synchronised nodes are
equal after the first global mean, so that noise ends there. Where out-degrees are unequal, messages s_i never become
equal, since a_i do not, and noise never ends. S allows for the float32 rounding of messages, so the ratio is
meaningless in rounds in which nodes hardly differ: it is taken over rounds in which two of them are at least 1e-4
apart. Three seeds take 80 seconds of processor time.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from matplotlib.figure import Figure

import jdfl
from experiments.common import Made, Options, Row, experiment, row
from jdfl import network, privacy
from jdfl.problems import Problem

NOISE_RATE, DELTA, NEAR = 1e-3, 1e-5, 1e-5
B = (0.1, 0.3, 1.0, 3.0)
ROUNDS, NOISY = 3000, 60
DIFFERENT = 1e-4  # for messages of norm 1, far above their rounding errors


def apart(w: Array, problem: Problem) -> Array:
    """Root mean square distance of the nodes' vectors from the mean, over the mean's norm."""
    assert problem.truth is not None
    square = jnp.mean(jnp.sum(jnp.square(w - problem.truth[None]), axis=1))
    return jnp.sqrt(square) / jnp.linalg.norm(problem.truth)


def vectors(m: int, n: int, seed: int) -> np.ndarray:
    """The nodes' vectors [m, n]: a shared and an individual part of equal size, the largest l1 norm being 1."""
    rng = np.random.default_rng(seed)
    drawn = rng.normal(size=(m, n)) + rng.normal(size=n)
    return drawn / np.abs(drawn).sum(axis=1).max()


def networks(m: int) -> dict[str, Any]:
    exp = partial(network.one_peer_exponential, m)
    return {
        "2-Out": network.d_out(m, 2),
        "4-Out": network.d_out(m, 4),
        "8-Out": network.d_out(m, 8),
        "EXP, paper's hops": exp(hops="paper"),
        "EXP, code's hops (one-peer)": exp(hops="code"),
        "random directed": network.erdos_renyi(m, 3 / m, directed=True, weights="out-degree"),
        "2-Out, synchronised": network.synchronised(network.d_out(m, 2), 4),
    }


class Noisy(NamedTuple):
    error: np.ndarray  # [rounds]
    seen: np.ndarray  # [rounds, 2] true and certified distances
    epsilon: tuple[float, float]  # a vector replaced, a node swapped


def exact(problem: Problem, net: Any, rounds: int) -> tuple[np.ndarray, np.ndarray]:
    """The error round by round, and the final masses [m], of a run without noise."""
    result = jdfl.run(jdfl.AverageConsensus(), problem, net, steps=rounds, metrics=[apart])
    return result.history["apart"].to_numpy(float)[1:], np.asarray(result.state.sums.a)


def noisy(problem: Problem, net: Any, b: float, key: int) -> Noisy:
    """A run with certified noise; ValueError where no finite schedule exists."""
    dpps = jdfl.DPPS(b=b, noise_rate=NOISE_RATE, watch=True)
    result = jdfl.run(jdfl.AverageConsensus(1.0, dpps), problem, net, steps=NOISY, key=key, metrics=[apart])
    told = privacy.report(result.guarantee, result.releases, result.records, delta=DELTA)
    return Noisy(
        result.history["apart"].to_numpy(float)[1:],
        np.asarray(result.state.sums.seen, np.float64),
        (told.epsilon, told.beside[0]["epsilon"]),
    )


def lines(case: str, runs: Sequence[Noisy]) -> list[Row]:
    counted = [one.seen[one.seen[:, 0] > DIFFERENT] for one in runs]
    return [
        row(case, "error, least", None, [one.error.min() for one in runs]),
        row(case, "error, last", None, [one.error[-1] for one in runs]),
        row(case, "certified / true, median", None, [np.median(s[:, 1] / s[:, 0]) for s in counted]),
        row(case, "rounds with S too small", None, [int(np.sum(one.seen[:, 0] > one.seen[:, 1])) for one in runs]),
        row(case, "epsilon, vector replaced", None, [one.epsilon[0] for one in runs]),
        row(case, "epsilon, nodes swapped", None, [one.epsilon[1] for one in runs]),
    ]


def measured(m: int, n: int, seeds: int) -> tuple[list[Row], dict[tuple[str, float], np.ndarray]]:
    """All rows of m nodes, and the errors of the first seed by network and b (0: no noise)."""
    problems = [jdfl.problems.averaging(vectors(m, n, seed)) for seed in range(seeds)]
    rows, noise, curves = [], [], {}
    for name, net in networks(m).items():
        case = f"m={m} n={n} {name}"
        found = [exact(problem, net, ROUNDS) for problem in problems]
        curves[name, 0.0] = found[0][0]
        near = [int(np.argmax(error <= NEAR)) + 1 if (error <= NEAR).any() else ROUNDS for error, _ in found]
        rows.append(row(case, f"rounds to {NEAR:g}", None, near))
        rows.append(row(case, "error, last", None, [error[-1] for error, _ in found]))
        rows.append(row(case, "least mass", None, [a.min() for _, a in found]))
        rows.append(row(case, "largest mass", None, [a.max() for _, a in found]))
        for b in B:
            noisy_case = f"{case}, b={b:g}"
            try:
                runs = [noisy(problem, net, b, seed) for seed, problem in enumerate(problems)]
            except ValueError as error:
                if "drives the nodes apart" not in str(error):
                    raise
                noise.append(row(noisy_case, "refused: S grows without bound", None, [1]))
                continue
            noise += lines(noisy_case, runs)
            curves[name, b] = runs[0].error
    return rows + noise, curves


def draw(curves: Mapping[tuple[str, float], np.ndarray], title: str) -> Figure:
    """Errors over rounds without noise, and with the weakest noise but one."""
    fig = Figure(figsize=(11, 5), layout="constrained")
    panels = fig.subplots(1, 2)
    for axis, b in zip(panels, (0.0, B[-2])):
        for place, name in enumerate(dict.fromkeys(name for name, _ in curves)):
            if (name, b) in curves:
                error = curves[name, b]
                axis.plot(np.arange(1, len(error) + 1), np.maximum(error, 1e-9), label=name, color=f"C{place}")
        words = "no noise" if b == 0 else f"certified noise, b / gamma_n = {b / NOISE_RATE:g}"
        axis.set(xscale="log", yscale="log", xlabel="round", ylabel="error", title=words)
        axis.grid(alpha=0.3)
    fig.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    fig.suptitle(title)
    return fig


@experiment(seeds=3)
def main(chosen: Options) -> Made:
    """10 nodes and 20 entries; without `--quick` also 32 nodes and 100 entries."""
    rows, curves, m = [], {}, 0
    for m, n in ((10, 20),) if chosen.quick else ((10, 20), (32, 100)):
        found, curves = measured(m, n, chosen.seeds)
        rows += found
    tables = {
        "Push-sum without noise": [one for one in rows if ", b=" not in one.case],
        f"DPPS with certified noise, gamma_n = {NOISE_RATE:g}": [one for one in rows if ", b=" in one.case],
    }
    return Made(tables, draw(curves, f"distance from the mean, m = {m}"))
