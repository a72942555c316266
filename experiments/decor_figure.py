"""DECOR paper, figure of least squares: the optimality gap against epsilon for central, correlated and local noise.

Y. Allouah, A. Koloskova, A. El Firdoussi, M. Jaggi, R. Guerraoui: "The Privacy Power of Correlated Noise in
Decentralized Learning", 2024. The full text was not available; settings, noise and numbers are those of its authors'
repository. The paper's gap is the marker's height in the vector figure published there, and its epsilon is that of the
noise tables.

16 nodes with losses ||a_i x - b_i||^2 / 2, a_i = i / 4 for i = 1 to 16, b_i ten numbers of deviation 1 / i, start at
x = 1. They take 3,500 steps of size 1.668e-3 along gradients clipped to norm 1, a node's whole gradient. The gap is the
mean over nodes of ||x_i - x*||^2 and over the steps 3,301 to 3,499. delta = 1e-5. The repository does not fix the draw
of b_i; ours is used.

- CDP: complete graph, own noise that is local noise divided by sqrt(16). A node's message does not have that epsilon; a
  server trusted by everyone is meant.
- LDP: own noise, on complete graph, torus ("grid") and ring.
- DECOR: own noise and link noise, as in the repository's tables, which aim at epsilon and miss it. "DECOR, exact": the
  same own noise, with as much link noise as their accountant requires for that epsilon.

Epsilon is that of the paper's accountant, T r + 2 sqrt(T r ln(1 / delta)) for r = 2 max_u (S^-1)_uu, S = own^2 I +
links^2 L with the Laplacian L. jdfl's epsilon for the same noise is given too, from the exact Gaussian mechanism.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from matplotlib.figure import Figure
from scipy.optimize import brentq

import jdfl
from experiments.common import Made, Options, Row, experiment, row
from jdfl.base import struct
from jdfl.lab.drawing import COLOURS, plain
from jdfl.lab.table import half_widths
from jdfl.network import Static, as_dense
from jdfl.problems import Problem

M, N, LR, DELTA = 16, 10, 1.668e-3, 1e-5
STEPS, LAST = 3500, 200  # and the number of last records whose gaps are averaged, without the very last one
EPSILONS = (1, 3, 5, 7, 10, 15, 20, 25, 30, 40)
NETWORKS = {"complete": jdfl.network.complete(M), "grid": jdfl.network.torus(M), "ring": jdfl.network.ring(M)}

# The repository's tables: own noise, link noise, and their epsilon.
NOISE: dict[str, tuple[tuple[float, float, float], ...]] = {
    "complete": (
        (153.8355, 251.0, 1.0946), (53.29268, 126.0, 3.0554), (33.10334, 63.0, 5.3033), (24.40329, 63.0, 7.0456),
        (17.8271, 32.0, 10.7968), (13.36999, 24.0, 15.1825), (11.14954, 16.0, 20.361), (8.86111, 16.0, 25.282),
        (8.11752, 12.0, 30.2239), (7.2194, 8.0, 40.3265),
    ),
    "grid": (
        (198.21113, 251.0, 1.3185), (68.66557, 126.0, 3.2356), (42.65238, 63.0, 6.1185), (31.4427, 63.0, 7.2374),
        (22.96953, 47.0, 10.2369), (16.28708, 32.0, 15.7205), (13.45634, 26.0, 20.0704), (11.76111, 20.0, 25.7669),
        (11.05663, 16.0, 31.2208), (8.57304, 14.0, 40.228),
    ),
    "ring": (
        (207.08626, 501.0, 1.2683), (59.44184, 251.0, 3.5948), (42.65238, 126.0, 6.1108), (27.21905, 126.0, 8.1374),
        (22.96953, 94.0, 10.4597), (17.01635, 63.0, 15.6955), (15.76315, 43.0, 20.4475), (12.24444, 39.0, 25.7222),
        (10.63676, 35.0, 30.2948), (9.24986, 26.0, 40.205),
    ),
}  # fmt: skip

# Heights of the published figure's markers, to three digits.
PAPER: dict[str, tuple[float, ...]] = {
    "CDP": (89.9, 3.87, 0.807, 0.181, 0.0891, 0.0218, 0.0125, 0.00618, 0.00593, 0.00358),
    "DECOR, complete": (104, 4.94, 0.804, 0.244, 0.0942, 0.0227, 0.0165, 0.00877, 0.00826, 0.00552),
    "DECOR, grid": (179, 9.01, 1.55, 0.671, 0.24, 0.0747, 0.0514, 0.0273, 0.0273, 0.0157),
    "DECOR, ring": (167, 5.63, 1.79, 0.564, 0.366, 0.146, 0.114, 0.0641, 0.0538, 0.0263),
    "LDP, complete": (2060, 161, 30.9, 18.0, 4.82, 1.46, 0.85, 0.434, 0.296, 0.182),
    "LDP, grid": (1750, 142, 25.6, 14.3, 9.12, 3.4, 0.916, 0.596, 0.352, 0.151),
    "LDP, ring": (1840, 110, 56.0, 11.6, 6.52, 2.4, 1.21, 0.867, 0.387, 0.27),
}


@struct.dataclass
class Scaled(Problem):
    """Losses ||a x - b||^2 / 2; data = (a [m, 1], b [m, 1, n]), one example per node."""

    @property
    def n(self) -> int:
        return self.data[1].shape[-1]

    def loss(self, w: Array, example: Any) -> Array:
        """The loss [] of an example, a [] and b [n], at the parameters w [n]."""
        a, b = example
        return 0.5 * jnp.sum(jnp.square(a * w - b))


def problem() -> Scaled:
    """The paper's problem, with its optimum as `truth`."""
    i = np.arange(1, M + 1)
    a, b = i / math.sqrt(M), np.random.default_rng(0).standard_normal((M, N)) / i[:, None]
    data = jnp.asarray(a[:, None], jnp.float32), jnp.asarray(b[:, None], jnp.float32)
    best = a @ b / np.sum(a**2)
    ones = jnp.ones((M, 1), jnp.float32)
    truth, start = jnp.asarray(best, jnp.float32), jnp.ones((N,), jnp.float32)
    return Scaled(data, ones, jnp.asarray(a**2, jnp.float32), truth, start=start, name="scaled identities")


def gap(w: Array, problem: Problem) -> Array:
    """The mean [] of ||w_i - w*||^2 over the nodes, for parameters w [m, n]."""
    assert problem.truth is not None
    return jnp.mean(jnp.sum(jnp.square(w - problem.truth[None]), axis=1))


def rate(own: float, links: float, network: Static) -> float:
    """The r of the paper's accountant: a round's Rényi divergence of order alpha divided by alpha, at clip 1."""
    joined = np.asarray(as_dense(network.graph)) != 0
    np.fill_diagonal(joined, False)
    S = own**2 * np.eye(M) + links**2 * (np.diag(joined.sum(axis=1)) - joined)
    return 2 * float(np.max(np.diag(np.linalg.inv(S))))


def converted(r: float) -> float:
    """The paper's epsilon for all rounds, given r of a single round."""
    return STEPS * r + 2 * math.sqrt(STEPS * r * math.log(1 / DELTA))


def local(epsilon: float) -> float:
    """The own noise that alone has an epsilon by the paper's accountant."""
    log = math.log(1 / DELTA)
    return math.sqrt(2 * STEPS) / (math.sqrt(log + epsilon) - math.sqrt(log))


def exactly(own: float, network: Static, epsilon: float) -> float:
    """The link noise that, together with own noise, has an epsilon by the paper's accountant."""

    def over(links: float) -> float:
        return converted(rate(own, links, network)) - epsilon

    return float(brentq(over, 0.0, 1e5 * own, rtol=1e-10))


def decor(own: float, links: float) -> jdfl.DECOR:
    """DECOR with noise of these deviations; sensitivities are 2."""
    return jdfl.DECOR(lr=LR, gradients=noisy(own), pairs=links / 2)


def noisy(own: float) -> jdfl.Gradients:
    """A node's whole gradient, clipped to 1, with noise of this deviation."""
    return jdfl.Gradients(clip=1.0, per="batch", mechanism=jdfl.Gaussian(own / 2))


def gaps(algorithms: Sequence[Any], network: Static, keys: Sequence[int]) -> np.ndarray:
    """The gap [methods, seeds] of methods that differ only in their noise."""
    over = [
        {"gradients.mechanism.multiplier": float(one.gradients.mechanism.multiplier)}
        | ({"pairs": float(one.pairs)} if isinstance(one, jdfl.DECOR) else {})
        for one in algorithms
    ]
    found = jdfl.sweep(algorithms[0], problem(), network, over=over, keys=keys, steps=STEPS, metrics=[gap])
    values = [float(one.history["gap"].to_numpy()[-LAST:-1].mean()) for one in found]
    return np.reshape(values, (len(algorithms), len(keys)))


def study(epsilons: Sequence[int], keys: Sequence[int]) -> dict[str, np.ndarray]:
    """The gaps [epsilons, seeds] of all methods."""
    each, found = [local(epsilon) for epsilon in epsilons], {}
    for name, network in NETWORKS.items():
        table = [NOISE[name][EPSILONS.index(epsilon)] for epsilon in epsilons]
        noise = [one / math.sqrt(M) for one in each] if name == "complete" else []
        alone = [jdfl.DPSGD(lr=LR, order="adapt-then-combine", gradients=noisy(one)) for one in each + noise]
        paired = [decor(own, links) for own, links, _ in table]
        paired += [decor(own, exactly(own, network, epsilon)) for (own, _, _), epsilon in zip(table, epsilons)]
        reached = gaps(alone, network, keys)
        found[f"LDP, {name}"] = reached[: len(each)]
        if noise:
            found["CDP"] = reached[len(each) :]
        found[f"DECOR, {name}"], found[f"DECOR, exact, {name}"] = np.split(gaps(paired, network, keys), 2)
    return found


def accounted(epsilons: Sequence[int]) -> list[Row]:
    """The epsilon of the tables' noise by the paper's accountant and by jdfl's."""
    rows = []
    for name, network in NETWORKS.items():
        for epsilon in epsilons:
            own, links, said = NOISE[name][EPSILONS.index(epsilon)]
            report = jdfl.account_plan(decor(own, links), problem(), network, steps=STEPS, delta=DELTA)
            case = f"noise for epsilon {epsilon}, {name}"
            rows.append(row(case, "epsilon, their accountant", said, [converted(rate(own, links, network))]))
            rows.append(row(case, "epsilon, jdfl", None, [report.epsilon]))
    return rows


def draw(found: Mapping[str, np.ndarray], epsilons: Sequence[int]) -> Figure:
    drawing = Figure(figsize=(10.0, 3.8), layout="constrained")
    axes = drawing.subplots(1, 3, sharey=True)
    for axis, name in zip(axes, NETWORKS):
        shown = {
            "CDP": "CDP",
            "DECOR": f"DECOR, {name}",
            "DECOR, exact": f"DECOR, exact, {name}",
            "LDP": f"LDP, {name}",
        }
        for colour, (label, curve) in zip(COLOURS, shown.items()):
            mean, half = found[curve].mean(axis=1), half_widths(found[curve])
            axis.plot(epsilons, mean, color=colour, label=label)
            axis.fill_between(epsilons, np.maximum(mean - half, mean / 10), mean + half, color=colour, alpha=0.18)
            if curve in PAPER:
                axis.plot(EPSILONS, PAPER[curve], "x", color=colour, label=f"{label}, published")
        axis.set(yscale="log", title=name, xlabel="epsilon, a node's data")
        plain(axis)
    axes[0].set_ylabel("optimality gap")
    drawing.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=4, frameon=False)
    return drawing


@experiment()
def main(chosen: Options) -> Made:
    """All epsilons; with `--quick` two of them."""
    epsilons = (10, 40) if chosen.quick else EPSILONS
    found = study(epsilons, range(chosen.seeds))
    rows: list[Row] = []
    for name, values in found.items():
        for epsilon, one in zip(epsilons, values):
            paper = PAPER[name][EPSILONS.index(epsilon)] if name in PAPER else None
            rows.append(row(f"{name}, epsilon {epsilon}", "gap", paper, one.tolist()))
    return Made({"DECOR: optimality gap by epsilon": rows + accounted(epsilons)}, draw(found, epsilons))
