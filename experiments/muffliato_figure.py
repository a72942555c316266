"""Muffliato paper, first figure: what nodes learn about one another, by formula and exactly, by distance.

Run `python -m experiments.muffliato_figure [--quick] [--out DIR]`. E. Cyffers, M. Even, A. Bellet, L. Massoulié:
"Muffliato: Peer-to-Peer Privacy Amplification for Decentralized Optimization and Averaging", 2022. The full text was
not available; settings and draws are those of its authors' published scripts, and the paper's numbers are read off the
picture published with them, to within 5 %.

A node's loss is that of Rényi differential privacy at alpha = 2, with noise for which it is 1 to an observer of the
released value itself. It is the squared size of a Gaussian shift, and 1 is the guarantee against everyone.

- Published size: a hypercube of 2^11 nodes ("exponential"), Erdos-Renyi with probability ln(n) / n, a random geometric
  graph of range .07 (2,048 nodes), a grid of 45 x 45 nodes, with Metropolis weights. Gossip is accelerated and takes
  ln(n) / sqrt(l) rounds, l being the spectral gap. The published loss of node 0 for an observer v is a sum over its
  neighbours w and rounds t from 1 on, of (W^t)_w0^2 / sum_j (W^t)_wj^2, clipped at 1, with the powers of W of gossip
  without acceleration.
- The same for what one observer, node 0, learns about the others, together with what `jdfl.observe` derives from its
  whole view, which is exact, since values are fixed: on the same hypercube, and on smaller graphs of the other kinds,
  the geometric one with the same mean number of neighbours. "Rounded" adds noise of 2^-24 to every message, like
  float32 rounding.

- One gossip: mu^2 in units of what a node releases, by the formula and derived, for the pair of nodes where they differ
  most; and by a later version of the formula.

The span of the observer's messages does not depend on acceleration (they are polynomials in W of every degree), and the
sum of all losses is the dimension of that span: distant nodes can be known entirely.
The paper's graphs of Facebook users are not included.
"""

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from scipy import sparse as sp
from scipy.sparse import csgraph

import jdfl
from experiments.common import Made, Options, Row, experiment, row
from experiments.observer_attack import world
from jdfl.lab.drawing import COLOURS, plain
from jdfl.network import Static, as_dense, from_edges
from jdfl.observers import Neighbour
from jdfl.observers.observe import Observed, observe

ROUNDING = 2.0**-24  # of a message of size one in float32
RADIUS = 0.07
PAPER: dict[str, dict[int, float]] = {
    "exponential": dict(enumerate((0.638, 0.243, 0.123, 0.0741, 0.0507, 0.0359, 0.0269, 0.0202, 0.0157), 2)),
    "Erdos-Renyi": {2: 0.26, 3: 0.108, 4: 0.085, 5: 0.0575},
    "geometric": {8: 0.37, 9: 0.166, 10: 0.059, 11: 0.022, 12: 0.0093, 13: 0.0035, 14: 0.00128},
    "grid": {20: 0.57, 21: 0.45, 22: 0.33, 23: 0.25, 24: 0.18, 25: 0.13},
}


def hypercube(power: int) -> Static:
    """Nodes are linked if their numbers differ in a single one of `power` bits."""
    nodes = range(2**power)
    return from_edges([(i, i ^ (1 << bit)) for i in nodes for bit in range(power) if not i >> bit & 1], len(nodes))


def grid(side: int) -> Static:
    """A grid of side x side nodes without wrap-around; node 0 is a corner."""
    node = np.arange(side**2).reshape(side, side)
    ends = [(node[:, :-1], node[:, 1:]), (node[:-1], node[1:])]
    return from_edges(np.concatenate([np.stack([a.ravel(), b.ravel()], axis=1) for a, b in ends]).tolist(), side**2)


def erdos_renyi(m: int) -> Static:
    """Every pair with probability ln(m) / m, redrawn until all are connected; the draws are the script's."""
    drawn, edges = random.Random(0), []
    while not connected(edges, m):
        edges = [pair for pair in combinations(range(m), 2) if drawn.random() < math.log(m) / m]
    return from_edges(edges, m)


def geometric(m: int) -> Static:
    """Points of the unit square within RADIUS of each other for 2,048 of them, drawn as in the script."""
    drawn = np.random.RandomState(0)
    drawn.uniform(size=2048)  # the script's runs of gossip begin with these,
    drawn.randn(2048)  # and their noise
    place = drawn.random_sample((m, 2))
    apart = np.linalg.norm(place[:, None] - place[None], axis=2)
    return from_edges(np.argwhere(np.triu(apart <= RADIUS * math.sqrt(2048 / m), 1)).tolist(), m)


def connected(edges: Sequence[tuple[int, int]], m: int) -> bool:
    ends = np.array(edges, int).reshape(-1, 2)
    return csgraph.connected_components(sp.coo_array((np.ones(len(ends)), tuple(ends.T)), (m, m)), False)[0] == 1


@dataclass(frozen=True)
class Gossip:
    """Gossip on a graph, for the paper's number of rounds."""

    W: np.ndarray  # [m, m] weights
    links: np.ndarray  # [m, m] bool adjacency
    gap: float
    rounds: int

    @classmethod
    def on(cls, network: Static) -> "Gossip":
        """Gossip on a network whose weights are symmetric."""
        W = np.asarray(as_dense(network.graph), float)
        gap = float(1 - np.linalg.eigvalsh(W)[-2])
        return cls(W, (W != 0) & ~np.eye(len(W), dtype=bool), gap, math.ceil(math.log(len(W)) / math.sqrt(gap)))

    def distances(self) -> np.ndarray:
        """The number of links between node 0 and each node [m]."""
        return csgraph.shortest_path(self.links, unweighted=True, indices=[0])[0].astype(int)

    def told(self) -> Iterator[np.ndarray]:
        """What a single message of node w would reveal about node u [m, m], in every round from the second on."""
        W = sp.csr_array(self.W)
        power = self.W
        for _ in range(self.rounds):
            yield power**2 / np.sum(power**2, axis=1, keepdims=True)
            power = W @ power

    def published(self) -> np.ndarray:
        """The paper's loss [m] of node 0 for every observer."""
        return np.minimum(self.links @ sum(one[:, 0] for one in self.told()), 1.0)

    def formula(self) -> np.ndarray:
        """The same for every node [m] and the observer 0."""
        return np.minimum(self.links[0] @ sum(self.told()), 1.0)

    def view(self, accelerated: bool = True) -> np.ndarray:
        """The messages [., m] that node 0 receives, as combinations of all nodes' releases."""
        gap = self.gap
        w = 2 * (1 - math.sqrt(gap * (1 - gap / 4))) / (1 - gap / 2) ** 2 if accelerated else 1.0
        rows = [np.eye(len(self.W))[self.links[0]]]
        for k in range(self.rounds - 1):
            rows.append(rows[-1] @ self.W if k == 0 else w * rows[-1] @ self.W + (1 - w) * rows[-2])
        return np.concatenate(rows)


def known(view: np.ndarray, rounding: float) -> np.ndarray:
    """The loss [m] of every node for observer 0, who knows its own noise, with additional noise in every message."""
    _, size, axes = np.linalg.svd(view[:, 1:], full_matrices=False)
    kept = size**2 / (size**2 + rounding**2) if rounding else (size > 1e-11 * size[0]).astype(float)
    return np.append(0.0, kept @ axes**2)


def observed(network: Static, gossip: Gossip) -> tuple[np.ndarray, float]:
    """The exact loss [m] of every node for observer 0, and the guarantee against everyone, by jdfl."""
    noisy = jdfl.Gradients(clip=1.0, mechanism=jdfl.Gaussian(1.0))
    algorithm = jdfl.Muffliato(lr=1.0, gradients=noisy, gossips=gossip.rounds, accelerated=True)
    problem: Any = world(network.m, 0, 1.0)
    run = Observed.of(algorithm, problem, network, steps=gossip.rounds, key=0, delta=1e-5)
    found = run.by(Neighbour(0))
    if not found.bound:
        raise AssertionError("values are fixed, so the view of them is exact")
    return np.nan_to_num(found.mu**2), 1 / run.report.noise_multiplier**2


Curves = dict[str, np.ndarray]  # [distances], from 0 on


def curves(losses: Mapping[str, np.ndarray], distance: np.ndarray) -> Curves:
    """The mean of losses [m] over the nodes at every distance."""
    return {name: np.bincount(distance, loss) / np.bincount(distance) for name, loss in losses.items()}


def exact(network: Static) -> Curves:
    """Formula, exact value, the same with rounded messages, and the guarantee, for observer 0."""
    gossip = Gossip.on(network)
    loss, guarantee = observed(network, gossip)
    losses = {"formula": gossip.formula(), "exact": loss, "rounded": known(gossip.view(), ROUNDING)}
    return curves(losses | {"guarantee": np.full(network.m, guarantee)}, gossip.distances())


def draw(published: Mapping[str, np.ndarray], found: Mapping[str, tuple[int, Curves]]) -> Figure:
    drawing = Figure(figsize=(3.2 * len(found), 3.4), layout="constrained")
    axes = drawing.subplots(1, len(found), sharey=True, squeeze=False)[0]
    for axis, (name, (m, one)) in zip(axes, found.items()):
        lines = [("formula, published size", published.get(name, one["formula"]), COLOURS[2], "-")]
        lines += [("formula", one["formula"], COLOURS[0], "--"), ("exact", one["exact"], COLOURS[1], ".-")]
        lines += [("guarantee, all messages", one["guarantee"], "black", "-")]
        for label, values, colour, style in lines:
            axis.plot(np.arange(1, len(values)), values[1:], style, color=colour, label=label)
        axis.plot(list(PAPER[name]), list(PAPER[name].values()), "x", color=COLOURS[3], label="the paper's figure")
        axis.set(yscale="log", ylim=(1e-5, 2.0), title=f"{name}, {m} nodes", xlabel="links between the nodes")
        axis.set_xlim(0, 40 if name == "grid" else 20)
        plain(axis)
    axes[0].set_ylabel("privacy loss, alpha = 2")
    handles = axes[0].get_legend_handles_labels()
    drawing.legend(*handles, loc="outside upper center", ncols=5, frameon=False)
    return drawing


def formula(W: np.ndarray, links: np.ndarray, observer: int, rounds: int, square: int = 2) -> np.ndarray:
    """The paper's mu^2 [m] of what an observer learns in a gossip, in units of one release: the sum over messages.

    A later version has no square in the numerator (as in the code of A. Bellet et al., 2025): 1 in place of it.
    """
    power, total = np.eye(len(W)), np.zeros(len(W))
    for _ in range(rounds):
        for node in np.flatnonzero(links[observer]):
            total += power[node] ** square / np.sum(power[node] ** 2)
        power = W @ power
    return np.minimum(total, 1.0)


def single_messages(quick: bool) -> list[Row]:
    """The formula and the exact value of one gossip, for the pairs where they differ most."""
    line_of_three = jdfl.network.from_edges([(0, 1), (1, 2)], 3)
    cases = {"line of three": (line_of_three, 2), "ring of 12": (jdfl.network.ring(12), 3)}
    if not quick:
        grid, random = jdfl.network.torus(16), jdfl.network.erdos_renyi(24, 0.3, seed=1)
        cases |= {"torus of 16": (grid, 3), "Erdos-Renyi of 24": (random, 3)}
    made = []
    for name, (network, rounds) in cases.items():
        W = np.asarray(as_dense(network.graph), float)
        links = W != 0
        np.fill_diagonal(links, False)
        noise = jdfl.Gradients(clip=1.0, mechanism=jdfl.Gaussian(1.0))
        algorithm = jdfl.Muffliato(lr=1.0, gradients=noise, gossips=rounds)
        found = observe(algorithm, world(network.m, 0, 1.0), network, Neighbour(0), steps=rounds, delta=1e-3)
        added = formula(W, links, 0, rounds)
        node = max(range(1, network.m), key=lambda one: found.mu[one] ** 2 - added[one])
        case = f"Muffliato: {name}, {rounds} rounds, node 0 about node {node}"
        made.append(row(case, "mu^2 by formula", None, [added[node]]))
        later = formula(W, links, 0, rounds, square=1)
        made.append(row(case, "mu^2 by the later formula", None, [later[node]]))
        made.append(row(case, "nodes above the later formula", None, [float(np.sum(found.mu**2 > later + 1e-9))]))
        made.append(row(case, "mu^2", None, [float(found.mu[node] ** 2)]))
    return made


@experiment(seeds=1)
def main(chosen: Options) -> Made:
    """All graphs; with `--quick` small ones, in addition to the published hypercube."""
    large = {"exponential": hypercube(11)}
    small = {"exponential": hypercube(6), "Erdos-Renyi": erdos_renyi(48)}
    if not chosen.quick:
        large |= {"Erdos-Renyi": erdos_renyi(2048), "geometric": geometric(2048), "grid": grid(45)}
        small = {"exponential": large["exponential"], "Erdos-Renyi": erdos_renyi(256)}
        small |= {"geometric": geometric(256), "grid": grid(16)}
    rows, published, found = [], {}, {}
    for name, network in large.items():
        gossip = Gossip.on(network)
        published[name] = curves({"": gossip.published()}, gossip.distances())[""]
        for k, paper in PAPER[name].items():
            rows.append(row(f"{name}, published size, distance {k}", "formula", paper, [published[name][k]]))
    for name, network in small.items():
        found[name] = network.m, exact(network)
        for k in range(1, len(found[name][1]["exact"])):
            case = f"{name}, {network.m} nodes, distance {k}"
            rows += [row(case, column, None, [values[k]]) for column, values in found[name][1].items()]
    rows += single_messages(chosen.quick)
    return Made({"Muffliato: the privacy loss of nodes, by their distance": rows}, draw(published, found))
