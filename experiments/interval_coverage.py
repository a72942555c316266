"""Coverage of the confidence intervals of experiments, over 200 experiments whose truth is known.

Run `python -m experiments.interval_coverage [--quick] [--out DIR]`.

Every trial redraws the vectors of the nodes, v_i ~ N(0, I), and D-PSGD averages them over a ring. Its iteration is
linear, so that expectations have closed forms. With step size a and eigenvalues l of W, after K rounds from zero:

    mean over nodes              xbar = (1 - (1 - a)^K) vbar            E suboptimality   = n (1 - a)^(2 K) / (2 m)
    other eigenvectors of W      c_l = a (1 - (l - a)^K) / (1 - l + a)  E consensus error = n / m sum_(l < 1) c_l^2

An experiment has ten trials and two step sizes. The intervals are those of its table (of the mean over trials) and of
`Comparison.differences` (paired by trial). Where they are right, 95 % of them cover, in 200 experiments 93 to 97 %
with probability 0.8.

Axes: m nodes, n parameters.
"""

import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

import jdfl
from experiments.common import Made, Options, bars, experiment, row
from jdfl.network import to_scipy
from jdfl.problems import Problem

M, N, ROUNDS, TRIALS = 8, 20, 10, 10
WORDS = {"gap": "suboptimality", "disagreement": "consensus error"}
STEP_SIZES = {"small": 0.05, "large": 0.1}
NETWORK = jdfl.network.ring(M)


def vectors(seed: int) -> Problem:
    """A problem whose optimum is the mean of M standard normal vectors [N].

    Args:
        seed: The seed of the vectors.
    """
    return jdfl.problems.averaging(np.random.default_rng(seed).normal(size=(M, N)))


def gap(w: jax.Array, problem: Problem) -> jax.Array:
    """f(xbar) - f* = ||xbar - vbar||^2 / 2 []."""
    assert problem.truth is not None  # of averaging
    return jnp.sum((w.mean(axis=0) - problem.truth) ** 2) / 2


def disagreement(w: jax.Array, problem: Problem) -> jax.Array:
    """The consensus error (1/m) sum_i ||w_i - xbar||^2 []."""
    return jnp.mean(jnp.sum((w - w.mean(axis=0, keepdims=True)) ** 2, axis=1))


METRICS: tuple[Callable[..., jax.Array], ...] = (gap, disagreement)


def truth(metric: str, a: float) -> float:
    """The expectation of a metric after ROUNDS rounds with step size a."""
    if metric == "gap":
        return N / (2 * M) * (1 - a) ** (2 * ROUNDS)
    eigenvalues = np.linalg.eigvalsh(to_scipy(NETWORK).toarray())[:-1]
    return N / M * float(np.sum((a * (1 - (eigenvalues - a) ** ROUNDS) / (1 - eigenvalues + a)) ** 2))


def quantities(found: jdfl.Comparison) -> dict[str, tuple[float, float, float]]:
    """What the intervals of one experiment are about: truth, estimate and half-width by quantity."""
    at, told = found.at("round"), dict[str, tuple[float, float, float]]()
    for name in (metric.__name__ for metric in METRICS):
        for label, a in STEP_SIZES.items():
            mean, half = at.loc[label, [name, f"{name}_ci"]].to_numpy(float)
            told[f"{WORDS[name]}, {label} step size"] = truth(name, a), float(mean), float(half)
        row = found.differences(metric=name, reference="small").loc["large"]
        mean, high = float(row["difference"]), float(row["high"])
        exact = truth(name, STEP_SIZES["large"]) - truth(name, STEP_SIZES["small"])
        told[f"{WORDS[name]}, paired difference"] = exact, mean, high - mean
    return told


def run(experiments: int) -> pd.DataFrame:
    """A row per experiment and quantity: truth, estimate, half-width, and whether the interval covers the truth."""
    rows: list[dict[str, object]] = []
    methods = {label: jdfl.Entry(jdfl.DPSGD(lr=a), tune={}) for label, a in STEP_SIZES.items()}
    how: dict[str, Any] = {"tuning": None, "steps": ROUNDS, "every": ROUNDS, "metrics": METRICS, "measure": gap}
    for i in range(experiments):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # nothing is tuned
            trials = range(i * TRIALS, (i + 1) * TRIALS)
            found = jdfl.compare(methods, vectors, NETWORK, trials=trials, progress=False, **how)
        for name, (exact, mean, half) in quantities(found).items():
            covers = abs(mean - exact) <= half
            rows.append({"quantity": name, "truth": exact, "mean": mean, "half": half, "covers": covers})
    return pd.DataFrame(rows)


@experiment(seeds=1)
def main(chosen: Options) -> Made:
    """200 experiments, or eight with `--quick`."""
    experiments = 8 if chosen.quick else 200
    table = run(experiments)
    rows = [
        row(str(name), "share that covers", None, some["covers"].to_numpy(float))
        for name, some in table.groupby("quantity", sort=False)
    ]
    title = f"95 % confidence intervals of {experiments} experiments with {TRIALS} trials each"
    return Made({title: rows}, bars(rows, ["share that covers"], "share of intervals that cover"))
