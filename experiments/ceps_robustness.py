"""CEPS III-F: the certified robustness of sparse and dense classifiers, and whether noise in training certifies any.

It takes four minutes on two cores. The data are the digits, odd against even, and QSAR oral toxicity if JDFL_DATA has
it; rows are scaled to unit norm. On QSAR sparse models predict the larger class nearly everywhere, and so are certified
where they have learnt nothing: read "balanced".

The certified radius of a linear classifier is exact (`certified_radii`). Its certificates are attacked:
by the worst perturbation and 20 random corners of the ball, at 0.999 and just over 1.001 times the radius of every test
example.

The paper says that its noise "enhances robustness" against perturbations of an input, with reference to PixelDP (M.
Lecuyer et al.). The theorem there is about predictions that are randomised by noise on the input: with (epsilon, delta)
for inputs at most L apart, the first class stays first if p_1 > e^(2 epsilon) p_2 + (1 + e^epsilon) delta. CEPS has
noise on gradients in training, for one training record, and its prediction is not random: p_1 = 1 and p_2 = 0, so that
the condition holds for every input and every L, and yet predictions change just outside of the exact radius. "wrongly
certified" is the share of test examples for which the condition holds and such an input is found. So the noise
certifies nothing about inputs; what it bounds is the effect of one training record. Runs of 120 rounds compare the
radii of models with noise to those without (epsilon = inf).

Models are those of node 0, with s nonzeros; "dense" is the optimum of the same objective over all nodes' data.
"""

import math
from contextlib import suppress
from dataclasses import replace
from typing import Any, Literal

import numpy as np

import jdfl
from experiments.common import Made, Options, Row, bars, experiment, row

RADII: dict[Literal["linf", "l2"], tuple[float, ...]] = {
    "linf": (0.005, 0.01, 0.02, 0.05),
    "l2": (0.02, 0.05, 0.1, 0.2),
}
NODES, SPARSE, EPSILONS, DELTA = 16, (10, 50), (math.inf, 8.0, 1.0), 1e-5
PRIVATE = 120  # rounds of runs with noise
INSIDE, OUTSIDE, CORNERS = 0.999, 1.001, 20
LEAST = 1e-9  # beyond radii of 0, of examples that have none of the model's features
NETWORK = jdfl.network.circulant(NODES, (1, 2))  # each node selects 2 of its 4 neighbours


def data(quick: bool) -> list[Any]:
    """The datasets, with rows of unit norm and two classes."""
    found = [jdfl.problems.load("digits", binary=True)]
    with suppress(FileNotFoundError):
        found += [] if quick else [jdfl.problems.load("qsar")]
    return [replace(one, features=scaled(one.features)) for one in found]


def scaled(features: Any) -> np.ndarray:
    """Rows of unit norm [N, n]; zeros stay."""
    rows = np.asarray(features, np.float32)
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(length > 0, length, 1)


def method(s: int) -> Any:
    """CEPS whose sigma_i |N_i^k| is 1/4, which bounds the curvature of the loss on rows of unit norm."""
    return jdfl.CEPS(s=s, rate=0.5, sigma=0.125, codec=jdfl.Sparse())


def trained(problem: Any, s: int, epsilon: float | None, seed: int, steps: int) -> np.ndarray:
    """The parameters [n] of node 0; with an epsilon, after PRIVATE rounds, with noise if it is finite."""
    algorithm, steps = method(s), steps if epsilon is None else PRIVATE
    if epsilon is not None and math.isfinite(epsilon):
        private = replace(algorithm, clip=1.0, mechanism=jdfl.Gaussian(1.0))
        algorithm = jdfl.calibrate(private, problem, NETWORK, steps=steps, epsilon=epsilon, delta=DELTA, key=seed)
    return np.asarray(jdfl.run(algorithm, problem, NETWORK, key=seed, steps=steps, metrics=()).params, float)[0]


def dual_direction(w: np.ndarray, norm: str) -> np.ndarray:
    """The perturbation [n] of norm 1 that raises the score most."""
    return np.sign(w) if norm == "linf" else w / np.linalg.norm(w)


def attacked(w: np.ndarray, rows: np.ndarray, radius: np.ndarray, norm: str, seed: int) -> np.ndarray:
    """Which predictions [N] change by some perturbation of norm radius [N], of those that are tried."""
    draw, score = np.random.default_rng(seed), rows @ w
    side = np.where(score > 0, 1.0, -1.0)
    tried = [-side[:, None] * dual_direction(w, norm)]
    for _ in range(CORNERS):
        other = draw.choice([-1.0, 1.0], rows.shape)
        tried.append(other if norm == "linf" else other / np.sqrt(rows.shape[1]))
    changed = [((rows + radius[:, None] * one) @ w > 0) != (score > 0) for one in tried]
    return np.any(changed, axis=0)


def by_pixeldp(epsilon: float, delta: float, first: float = 1.0, second: float = 0.0) -> bool:
    """Whether PixelDP's condition holds for these probabilities of the two classes."""
    return first > math.exp(2 * epsilon) * second + (1 + math.exp(epsilon)) * delta


def certified_radii(w: np.ndarray, rows: np.ndarray, labels: np.ndarray, norm: Literal["linf", "l2"]) -> np.ndarray:
    """How far the features of every example may move at least [N]: |<a, w>| over w's dual norm; < 0 where wrong."""
    margin, reach = rows @ w, float(np.linalg.norm(w, 1 if norm == "linf" else 2))
    radius = np.abs(margin) / reach if reach > 0 else np.full(margin.shape, np.inf)
    return np.where((margin > 0) == (labels == 1), radius, -radius)


def judged(w: np.ndarray, test: Any, seed: int, epsilon: float | None) -> dict[str, float]:
    """Accuracy, radii, certified accuracy, and what attacks on the certificates show."""
    rows, labels = (np.asarray(part, float) for part in test)
    told: dict[str, float] = {"nonzeros": float(np.count_nonzero(w))}
    of = {norm: certified_radii(w, rows, labels, norm) for norm in RADII}

    def balanced(right: np.ndarray) -> float:
        return float(np.mean([right[labels == label].mean() for label in (0, 1)]))

    told["larger class"] = float(max(labels.mean(), 1 - labels.mean()))
    told["accuracy"], told["balanced accuracy"] = float((of["l2"] > 0).mean()), balanced(of["l2"] > 0)
    for norm, radii in RADII.items():
        told[f"median {norm} radius"] = float(np.median(np.abs(of[norm])))
        for r in radii:
            told[f"certified, {norm} {r:g}"] = float((of[norm] > r).mean())
            told[f"certified, {norm} {r:g}, balanced"] = balanced(of[norm] > r)
        for name, factor in (("inside", INSIDE), ("outside", OUTSIDE)):
            changed = attacked(w, rows, factor * np.abs(of[norm]) + (factor > 1) * LEAST, norm, seed)
            told[f"attacks that succeed just {name}, {norm}"] = float(changed.mean())
    if epsilon is not None and math.isfinite(epsilon):
        holds = by_pixeldp(epsilon, DELTA)
        told["PixelDP's condition holds"] = float(holds)
        told["wrongly certified"] = holds * told["attacks that succeed just outside, linf"]
    return told


def collect(rows: Any, seeds: int, quick: bool) -> list[Row]:
    found: dict[str, list[dict[str, float]]] = {}
    private = EPSILONS[:2] if quick else EPSILONS
    models: dict[str, tuple[int, float | None]] = {f"{rows.name}: CEPS, s = {s}": (s, None) for s in SPARSE}
    models |= {f"{rows.name}: CEPS, s = 10, {PRIVATE} rounds, epsilon = {one:g}": (10, one) for one in private}
    for seed in range(seeds):
        problem: Any = jdfl.problems.classification(rows, NODES, penalty=1e-4, seed=seed)
        problem = problem.declared("partition", "holdout")
        for case, (s, epsilon) in models.items():
            w = trained(problem, s, epsilon, seed, 400 if quick else 3000)
            found.setdefault(case, []).append(judged(w, problem.test, seed, epsilon))
        dense = np.asarray(jdfl.problems.optimum(problem).w, float)
        found.setdefault(f"{rows.name}: dense", []).append(judged(dense, problem.test, seed, None))
    return [row(case, name, None, [one[name] for one in told]) for case, told in found.items() for name in told[0]]


@experiment(seeds=3)
def main(chosen: Options) -> Made:
    """All models; with `--quick` fewer rounds and one epsilon."""
    rows = [one for dataset in data(chosen.quick) for one in collect(dataset, chosen.seeds, chosen.quick)]
    return Made({"Certified robustness (CEPS III-F)": rows}, bars(rows, ["balanced accuracy"], "balanced accuracy"))
