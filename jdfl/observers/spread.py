"""How a node's releases spread through a method's messages: an affine map whose rows are derived on request.

Axes: m nodes, d slots of the neighbour table, T rounds, P inputs per node, c columns.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy import sparse as sp
from scipy.sparse import csgraph

from jdfl.algorithms.round import To


@dataclass(frozen=True)
class Place:
    """A point in the program where rows leave all nodes: in a round, or before all rounds (-1), with the recipient."""

    round: int
    to: To


@dataclass(frozen=True)
class Spread:
    """The map from inputs (releases and pairwise noise) to everything that leaves the nodes in the rounds of a run."""

    m: int
    steps: int
    inputs: list[float | None]  # [P] noise of each release in units of its sensitivity; None: pairwise noise
    factor: np.ndarray | None  # [P, P] maps independent noise to that of the releases; None: identity
    rounds: list[int]  # [P] in which they enter; -1: before all rounds
    places: list[Place]  # of messages, in the order of the program
    by: np.ndarray  # [messages, m] bool senders
    senders: np.ndarray  # [T, m, d] int32 the neighbour table
    heard: np.ndarray  # [T, m, d] bool slots whose messages arrive
    weight: np.ndarray  # [T, m, d] float32 mixing weights
    everyone: np.ndarray  # [T] bool rounds in which all nodes receive from all others
    points: list[tuple[int, int]]  # releases among the inputs, and the places where their gradients are taken
    fixed: bool  # whether noise is added only to values that depend on inputs through gradients, if at all
    final: int  # the place of the final parameters
    pull: Callable[[Array, Array], tuple[Array, Array]]  # coefficients, from places [c] and weights of nodes [m, c]
    columns: int

    def rows(self, wanted: Sequence[tuple[int, np.ndarray]]) -> np.ndarray:
        """The coefficients [len(wanted), P, m] of rows, each given by a place and weights [m] of the nodes there.

        Releases are in units of their sensitivities, pairwise noise as it is added at a node.
        """
        found = np.zeros((len(wanted), len(self.inputs), self.m))
        for start in range(0, len(wanted), self.columns):
            some = wanted[start : start + self.columns]
            place, weight = np.zeros(self.columns, np.int32), np.zeros((self.m, self.columns))
            for j, (where, nodes) in enumerate(some):
                place[j], weight[:, j] = where, nodes
            with jax.enable_x64(True):
                first, rest = self.pull(jnp.asarray(place), jnp.asarray(weight))
            both = np.concatenate([np.asarray(first), np.asarray(rest)])  # [P, m, c]
            found[start : start + len(some)] = np.moveaxis(both, 2, 0)[: len(some)]
        return found

    def distances(self) -> np.ndarray:
        """The number of links from each node to each other one [m, m], along links used in any round."""
        heard = np.zeros((self.m, self.m), bool)
        for senders, mask in zip(self.senders, self.heard):
            heard[np.nonzero(mask)[0], senders[mask]] = True
        heard[:] |= self.everyone.any()
        return csgraph.shortest_path(heard, unweighted=True)

    def noises(self, unknown: np.ndarray) -> Any:
        """How unknown unit noises combine into the noise of inputs: [P m, noises], for unknown nodes [m].

        Each release has its node's own noise; pairwise noise has one unit per link and round, known to both its nodes.
        """
        if self.factor is not None:
            own = np.eye(self.m)[:, unknown]
            return sp.kron(self.factor * np.array(self.inputs, float), own, format="csr")
        size, parts = self.m * len(self.inputs), []
        for p, (multiplier, k) in enumerate(zip(self.inputs, self.rounds)):
            if multiplier is not None:
                ends, weights = np.flatnonzero(unknown)[:, None], np.array([multiplier])
            else:
                listener, slot = np.nonzero(self.heard[max(k, 0)])
                pairs = np.stack([listener, self.senders[max(k, 0)][listener, slot]], axis=1)
                ends = pairs[(pairs[:, 0] < pairs[:, 1]) & unknown[pairs].all(axis=1)]
                weights = np.array([1.0, -1.0])
            columns = np.broadcast_to(np.arange(len(ends))[:, None], ends.shape).ravel()
            values = np.broadcast_to(weights, ends.shape).ravel()
            parts.append(sp.csr_array((values, (p * self.m + ends.ravel(), columns)), (size, len(ends))))
        return sp.hstack(parts, format="csr")
