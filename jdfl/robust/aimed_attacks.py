"""Attacks that send every neighbour another row, to drive honest nodes apart: dissensus and spectral heterogeneity.

L. He, S. P. Karimireddy, M. Jaggi: Byzantine-Robust Decentralized Learning via ClippedGossip, 2022 (dissensus);
R. Gaucher, A. Dieuleveut, H. Hendrikx: Unified Breakdown Analysis for Byzantine Robust Gossip, 2025.

    x_i - epsilon sum_k W_ik (x_k - x_i) / sum_j W_ij                (dissensus; k honest, j attackers)
    x_i + scale v_i sum_k v_k x_k                                    (spectral heterogeneity)

is what every attacker sends to node i; v is the eigenvector of the second smallest eigenvalue of the Laplacian of the
honest nodes' graph.

Axes: m nodes, n parameters.
"""

from dataclasses import replace
from typing import Any, ClassVar

import jax.numpy as jnp
from jax import Array

from jdfl.arrays import ops
from jdfl.base import struct
from jdfl.base.settings import Positive, Provenance
from jdfl.network import Graph, as_dense, mix
from jdfl.robust.attack import Attack, Scene


@struct.dataclass
class Dissensus(Attack):
    """Dissensus: what the honest neighbours would move a node by is taken back `epsilon` times."""

    kind: ClassVar[str] = "dissensus"
    provenance: ClassVar[Provenance] = ("from memory",)
    title: ClassVar[str] = "dissensus"
    aimed: ClassVar[bool] = True
    epsilon: Positive = 1.0
    """At 1 a node that averages with W does not move towards the honest ones."""

    def rows(self, scene: Scene) -> Array:
        """The rows [m, n], in the places of the receivers."""
        graph = scene.graph
        liar = graph.mask & scene.liars[graph.senders]
        good = jnp.where(liar, 0, graph.weight)
        moved = mix(replace(graph, weight=good, self_weight=-jnp.sum(good, axis=1)), scene.x)
        held = jnp.sum(jnp.where(liar, graph.weight, 0), axis=1)
        return scene.x - self.epsilon * moved / jnp.where(held > 0, held, 1).astype(moved.dtype)[:, None]


@struct.dataclass
class SpectralAttack(Attack):
    """Spectral heterogeneity: nodes are pushed apart along the graph's slowest direction.

    The paper searches the factor that moves a node furthest in every round; here it is fixed.
    """

    kind: ClassVar[str] = "spectral"
    provenance: ClassVar[Provenance] = ("from memory",)
    title: ClassVar[str] = "spectral heterogeneity"
    aimed: ClassVar[bool] = True
    scale: Positive = 1.0
    """Factor of what is added."""

    def prepare(self, graph: Graph, liars: Array) -> Any:
        """The eigenvector v [m], 0 at the attackers."""
        return fiedler(graph, liars)

    def rows(self, scene: Scene) -> Array:
        """The rows [m, n], in the places of the receivers."""
        v = scene.ready.astype(scene.x.dtype)
        return scene.x + self.scale * jnp.outer(v, jnp.dot(v, scene.x, precision=ops.HIGHEST))


def fiedler(graph: Graph, liars: Array) -> Array:
    """The eigenvector [m] of the second smallest eigenvalue of the Laplacian of the honest nodes' graph.

    It has length 1 and is 0 at the attackers.
    """
    good = ~liars
    links = as_dense(replace(graph, weight=graph.mask.astype(jnp.float32), self_weight=jnp.zeros((graph.m,))))
    links = jnp.where(good[:, None] & good[None], (links + links.T) / 2, 0)
    laplacian = jnp.diag(jnp.sum(links, axis=1)) - links
    _, vectors = jnp.linalg.eigh(laplacian + jnp.diag(jnp.where(liars, 4.0 * graph.m, 0)))  # attackers come last
    return jnp.where(good, vectors[:, 1], 0)
