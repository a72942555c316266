"""The cost of noise correlated over rounds, and what a node's neighbours learn: MAFALDA-SGD's two figures.

It takes some minutes on two cores.

A. Bellet, E. Cyffers, D. Frey, R. Gaudel, D. Lerévérend, F. Taïani: Unified Privacy Guarantees for Decentralized
Learning via Matrix Factorization, 2025. Settings are those of its authors' code (the package MFDL), unless marked as
ours.

- Utility (Figure 3): the Florentine families (15 nodes), the mean of a node and its neighbours, 5 passes of 16 batches,
  a clip of 1, a step size of .1. The paper learns California housing and FEMNIST, which are not available here; ours is
  softmax regression on digits (of scikit-learn). All methods have the same mu for a record over all rounds.
- Privacy (Figure 2): mean Renyi divergence at order 2 by distance from node 0, in 10 rounds of unit noise that use all
  records, on the Florentine families and an Erdos-Renyi graph of 100 nodes (with our choice of density). By the formula
  of E. Cyffers et al. (2022) as in their Theorem 11 on arXiv, capped at what everyone learns; and by the factorization,
  which `jdfl.observe` derives. The paper calls the latter a guarantee: it is one for fixed gradients only (see
  `python -m experiments.observers`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
from jax import Array
from matplotlib.figure import Figure

import jdfl
from experiments.common import Made, Options, Row, experiment, row
from experiments.observer_attack import world
from jdfl.algorithms.mafalda import sensitivity, workload
from jdfl.base import struct
from jdfl.network import Network, as_dense
from jdfl.network.graph import round_of
from jdfl.observers import Neighbour
from jdfl.problems import Problem

BATCHES, PASSES, LR, CLIP = 16, 5, 0.1, 1.0
ROUNDS = BATCHES * PASSES
MUS = (0.25, 0.5, 1.0, 2.0, 4.0)
SEEN = 10  # rounds of the figure on privacy
COLOURS = ("0.2", "tab:blue", "tab:orange", "tab:green", "tab:red")


@struct.dataclass
class Factored(jdfl.MAFALDA):
    """MAFALDA-SGD with a C that does not depend on the network: for independent noise, or the sums of AntiPGD."""

    sums: bool = struct.field(pytree_node=False, default=False)
    """Whether noise is the difference between this round's and the last round's (AntiPGD)."""

    def plan(self, problem: Problem, network: Network, steps: int) -> Array:
        """The rows of C [T, p], whose sensitivity is 1 over the horizon."""
        width = self.horizon if self.sums else 1
        rows = np.tril(np.ones((self.horizon, self.horizon)))[:, ::-1] if self.sums else np.ones((self.horizon, 1))
        rows = np.array([np.roll(one, k + 1) for k, one in enumerate(rows)])[:, :width] if self.sums else rows
        return jnp.asarray(rows[:steps] / sensitivity(rows, BATCHES)[-1], problem.dtype)


def mean_network(graph: Any) -> Network:
    """Every node takes the mean of its own and its neighbours' parameters."""
    links = nx.to_numpy_array(graph, nodelist=range(len(graph))) + np.eye(len(graph))
    return jdfl.network.from_matrix(links / links.sum(axis=1, keepdims=True))


def florentine() -> Any:
    """Marriages and business relations between 15 families of Florence."""
    return nx.convert_node_labels_to_integers(nx.florentine_families_graph(), ordering="sorted")


def methods(band: int) -> dict[str, Any]:
    """The methods, without a noise multiplier."""
    fields: Any = {"lr": LR, "horizon": ROUNDS, "objective": "pi"}  # means of neighbours, as published: no equal shares
    return {
        "independent noise": Factored(**fields),
        "AntiPGD": Factored(**fields, sums=True),
        "MAFALDA-SGD, 4 diagonals": jdfl.MAFALDA(**fields, band=4),
        f"MAFALDA-SGD, {band} diagonals": jdfl.MAFALDA(**fields, band=band),
    }


def surrogate(algorithm: Any, problem: Problem, network: Network) -> float:
    """The mean square change of all parameters of a run due to noise of mu = 1."""
    rows = np.asarray(algorithm.plan(problem, network, ROUNDS), float)
    C = np.zeros((ROUNDS, ROUNDS))
    for back in range(rows.shape[1]):
        C[np.arange(back, ROUNDS), np.arange(ROUNDS - back)] = rows[back:, back]
    inverse = np.linalg.inv(C)
    return float(np.sum(inverse * (workload(network, ROUNDS) @ inverse)) * sensitivity(rows, BATCHES)[-1] ** 2)


def nodes_objective(w: Array, problem: Problem) -> Array:
    """The objective on all data at the nodes' own models, averaged."""
    return jnp.mean(jax.vmap(problem.values_at)(w))


def utility(seeds: int, mus: Sequence[float], band: int) -> list[Row]:
    """Objectives after all passes by method and mu, and the effect of noise by the surrogate."""
    network, made = mean_network(florentine()), []
    problems = [jdfl.problems.classification("digits", m=network.m, seed=seed) for seed in range(seeds)]
    batch = min(int(np.min(np.asarray(one.sizes))) for one in problems) // BATCHES
    turns: Any = {"batch": batch, "sampling": "in order"}

    def ended(algorithm: Any, problem: Problem, seed: int) -> float:
        result = jdfl.run(algorithm, problem, network, steps=ROUNDS, key=seed, metrics=[nodes_objective])
        return float(result.history["nodes_objective"].iloc[-1])

    exact = jdfl.MAFALDA(lr=LR, horizon=ROUNDS, objective="pi", gradients=jdfl.Gradients(**turns, clip=CLIP))
    made.append(row("no noise", "objective", None, [ended(exact, one, seed) for seed, one in enumerate(problems)]))
    chosen = methods(band)
    noisy = jdfl.Gradients(**turns, clip=CLIP, mechanism=jdfl.Gaussian(1.0))
    moved = {name: surrogate(replace(one, gradients=noisy), problems[0], network) for name, one in chosen.items()}
    for name, value in moved.items():
        made.append(row(name, "noise / independent", None, [value / moved["independent noise"]]))
    for mu in mus:
        private = replace(noisy, mechanism=jdfl.Gaussian(1 / mu))
        for name, algorithm in chosen.items():
            found = [ended(replace(algorithm, gradients=private), one, seed) for seed, one in enumerate(problems)]
            made.append(row(f"mu = {mu:g}, {name}", "objective", None, found))
    return made


def formula(W: np.ndarray, attacker: int, rounds: int) -> np.ndarray:
    """Divergences [m] at order 2 of unit noise by the corrected sum over messages, capped at those of all releases."""
    heard = np.flatnonzero(W[attacker] * (np.arange(len(W)) != attacker))
    total, power = np.zeros(len(W)), np.eye(len(W))
    for lag in range(rounds):
        total += (rounds - lag) * (power[:, heard] / np.sum(power[:, heard] ** 2, axis=0)).sum(axis=1)
        power = power @ W
    return np.minimum(total, rounds)


def privacy(quick: bool) -> list[Row]:
    """Mean divergences by distance from node 0."""
    graphs = {"Florentine": florentine()}
    if not quick:
        graphs["Erdos-Renyi"] = nx.fast_gnp_random_graph(100, 0.1, seed=42)
    made = []
    for name, graph in graphs.items():
        network, m = mean_network(graph), len(graph)
        unit = jdfl.Gradients(clip=1.0, mechanism=jdfl.Gaussian(1.0))
        seen = jdfl.observe(
            jdfl.DPSGD(order="adapt-then-combine", objective="pi", gradients=unit),
            world(m, 0, 1.0),
            network,
            Neighbour(0),
            steps=SEEN,
            delta=1e-3,
        )
        theirs = formula(np.asarray(as_dense(round_of(network, 0)), float), 0, SEEN)
        far = nx.single_source_shortest_path_length(graph, 0)
        for distance in range(1, max(far.values()) + 1):
            some = [node for node, steps in far.items() if steps == distance]
            case = f"{name}, distance {distance}"
            made.append(row(case, "sum over messages", None, [theirs[some].mean()]))
            made.append(row(case, "derived, fixed gradients", None, [(seen.mu[some] ** 2).mean()]))
            above = float(np.mean(seen.mu[some] ** 2 > theirs[some] * (1 + 1e-6)))
            made.append(row(case, "share above the sum", None, [above]))
    return made


def draw(rows: Sequence[Row], mus: Sequence[float], names: Sequence[str]) -> Figure:
    cells: Mapping[tuple[str, str], Row] = {(one.case, one.column): one for one in rows}
    fig = Figure(figsize=(10, 4), layout="constrained")
    left, right = fig.subplots(1, 2)
    for name, colour, marker in zip(names, COLOURS[1:], "osD^"):
        values = [cells[f"mu = {mu:g}, {name}", "objective"] for mu in mus]
        left.errorbar(
            mus, [x.mean for x in values], [x.half for x in values], color=colour, marker=marker, capsize=3, label=name
        )
    left.axhline(cells["no noise", "objective"].mean, color=COLOURS[0], linestyle=":", label="no noise")
    left.set(xscale="log", yscale="log", xlabel="mu of a record in all rounds", ylabel="objective of the nodes' models")
    left.set_xticks(mus, [f"{mu:g}" for mu in mus], minor=False)
    left.set_xticks([], minor=True)
    left.legend(fontsize=8)
    graphs = dict.fromkeys(one.case.split(",")[0] for one in rows if "distance" in one.case)
    for graph, colour in zip(graphs, COLOURS[1:]):
        for column, style in (("sum over messages", "--"), ("derived, fixed gradients", "-")):
            line = [one for one in rows if one.case.startswith(f"{graph},") and one.column == column]
            at = [int(one.case.split()[-1]) for one in line]
            label = f"{graph}: {column}"
            right.plot(at, [one.mean for one in line], style, color=colour, marker="o", label=label)
    right.set(yscale="log", xlabel="distance from the node that observes", ylabel="mean Renyi divergence at order 2")
    right.xaxis.get_major_locator().set_params(integer=True)
    right.legend(fontsize=8)
    return fig


@experiment()
def main(chosen: Options) -> Made:
    """Both figures; with `--quick` fewer cases."""
    mus, band = (MUS[1:4:2], 8) if chosen.quick else (MUS, BATCHES)
    rows = utility(chosen.seeds, mus, band) + privacy(chosen.quick)
    title = "Softmax regression on digits, 15 nodes: objective by mu, and what a neighbour learns"
    return Made({title: rows}, draw(rows, mus, list(methods(band))))
