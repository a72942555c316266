"""Attacks whose attackers send one row to all their neighbours, train on wrong data, or lie about their links.

M. Baruch, G. Baruch, Y. Goldberg: A Little Is Enough, 2019 (ALIE); C. Xie, O. Koyejo, I. Gupta: Fall of Empires:
Breaking Byzantine-Tolerant SGD by Inner Product Manipulation, 2020 (FOE); S. P. Karimireddy, L. He, M. Jaggi:
Byzantine-Robust Learning on Heterogeneous Datasets via Bucketing, 2022 (mimic). Their attackers alter gradients; here,
as in what followed for networks, they alter what nodes send, such as models.

Axes: m nodes, n parameters.
"""

from dataclasses import replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.special import ndtri

from jdfl.base import checks, struct
from jdfl.base.settings import Natural, NotNegative, Number, Positive, Provenance
from jdfl.network import Graph, mix
from jdfl.problems import Problem
from jdfl.robust.attack import Attack, Scene


@struct.dataclass
class SignFlip(Attack):
    """Sign flip: an attacker sends minus `scale` times its row."""

    kind: ClassVar[str] = "sign-flip"
    provenance: ClassVar[Provenance] = ("no paper",)
    title: ClassVar[str] = "sign flip"
    scale: Positive = 1.0
    """Factor of the length."""

    def rows(self, scene: Scene) -> Array:
        """The rows [m, n]."""
        return -self.scale * scene.x


@struct.dataclass
class LabelFlip(Attack):
    """Label flip: an attacker is honest, but trains with label classes - 1 - b in place of b.

    In a regression the targets have the other sign.
    """

    kind: ClassVar[str] = "label-flip"
    provenance: ClassVar[Provenance] = ("no paper",)
    title: ClassVar[str] = "label flip"

    def problem(self, problem: Problem, liars: Array) -> Problem:
        """The problem with flipped labels in the attackers' data."""
        data: Any = problem.data
        labels = data[1]
        classes = max(2, getattr(problem, "classes", 2)) if type(problem).scores is not Problem.scores else 1
        rows = liars.reshape(-1, *[1] * (labels.ndim - 1))
        return replace(problem, data=(data[0], jnp.where(rows, classes - 1 - labels, labels), *data[2:]))

    def check(self, problem: Problem) -> None:
        """Raise ValueError for data that are not pairs of features and labels."""
        if not isinstance(problem.data, tuple) or len(problem.data) < 2 or problem.data[1].ndim != 2:
            checks.refuse(
                "data (features, labels) for the attack label flip", "problem", problem.name, "Use sign flip."
            )


@struct.dataclass
class GaussianRows(Attack):
    """Gaussian: an attacker sends independent normal numbers around the mean of the honest rows."""

    kind: ClassVar[str] = "gaussian"
    provenance: ClassVar[Provenance] = ("no paper",)
    title: ClassVar[str] = "Gaussian"
    sigma: Positive = 10.0
    """Standard deviation of every number."""

    def rows(self, scene: Scene) -> Array:
        """The rows [m, n]."""
        return scene.mean[None] + self.sigma * jax.random.normal(scene.key, scene.x.shape, scene.x.dtype)


@struct.dataclass
class ALIE(Attack):
    """A little is enough: attackers send the honest mean less z standard deviations in every coordinate.

    z is the largest with which the honest rows needed for a majority are still further out, as in the paper: the normal
    quantile of (m - b - s) / (m - b), s = floor(m / 2 + 1) - b, for b attackers.
    """

    kind: ClassVar[str] = "alie"
    provenance: ClassVar[Provenance] = ("from memory",)
    title: ClassVar[str] = "ALIE"
    z: Number | None = None
    """Standard deviations; None: by the paper's formula for the number of nodes."""

    def rows(self, scene: Scene) -> Array:
        """The rows [m, n]."""
        m, b = len(scene.liars), jnp.sum(scene.liars)
        wanted = m // 2 + 1 - b
        share = (m - b - wanted) / jnp.maximum(m - b, 1)
        z = ndtri(jnp.clip(share, 0.01, 0.99)) if self.z is None else self.z
        return scene.alike(scene.mean - jnp.asarray(z, scene.x.dtype) * scene.deviation)


@struct.dataclass
class FOE(Attack):
    """Inner-product manipulation (Fall of Empires): attackers send -`epsilon` times the mean of honest rows."""

    kind: ClassVar[str] = "foe"
    provenance: ClassVar[Provenance] = ("from memory",)
    title: ClassVar[str] = "FOE"
    epsilon: Positive = 0.1
    """Factor of the mean."""

    def rows(self, scene: Scene) -> Array:
        """The rows [m, n]."""
        return scene.alike(-self.epsilon * scene.mean)


@struct.dataclass
class Mimic(Attack):
    """Mimic: all attackers send the row of the same honest node, which then counts many times.

    The paper chooses the node along the direction of largest variance; without a given node it is here the honest node
    farthest from the mean of the honest rows in every round.
    """

    kind: ClassVar[str] = "mimic"
    provenance: ClassVar[Provenance] = ("from memory",)
    title: ClassVar[str] = "mimic"
    node: Natural | None = struct.field(pytree_node=False, default=None)
    """The copied node; None: the farthest honest one."""

    def rows(self, scene: Scene) -> Array:
        """The rows [m, n]."""
        if self.node is not None:
            return scene.alike(scene.x[self.node])
        far = jnp.where(scene.liars, -1, jnp.sum((scene.x - scene.mean[None]) ** 2, axis=1))
        return scene.alike(scene.x[jnp.argmax(far)])

    def check(self, problem: Problem) -> None:
        """Raise ValueError for a node that there is not."""
        if self.node is not None:
            checks.whole(0, problem.m - 1, "Nodes are numbered from 0.", node=self.node)


@struct.dataclass
class FreeRider(Attack):
    """Free rider: an attacker sends the mean of its honest in-neighbours' rows and contributes nothing of its own."""

    kind: ClassVar[str] = "free-rider"
    provenance: ClassVar[Provenance] = ("no paper",)
    title: ClassVar[str] = "free rider"

    def rows(self, scene: Scene) -> Array:
        """The rows [m, n]."""
        graph = scene.graph
        good = (graph.mask & ~scene.liars[graph.senders]).astype(scene.x.dtype)
        count = jnp.sum(good, axis=1)
        found = mix(replace(graph, weight=good, self_weight=jnp.zeros_like(count), format="padded"), scene.x)
        return jnp.where(count[:, None] > 0, found / jnp.maximum(count, 1)[:, None], scene.mean[None])


@struct.dataclass
class TopologyLiar(Attack):
    """Topology liar: attackers announce degrees that are too small, so that neighbours give them more weight.

    A neighbour's weight W_ij of an attacker j grows by `factor`, as far as the neighbour's own weight W_ii allows. What
    the attackers send is another attack's; rules that do not look at weights notice nothing else.
    """

    kind: ClassVar[str] = "topology-liar"
    provenance: ClassVar[Provenance] = ("no paper",)
    title: ClassVar[str] = "topology liar"
    factor: Positive = 3.0
    """Factor of the weights."""
    scale: NotNegative = 1.0
    """They send minus this times their rows."""

    def rows(self, scene: Scene) -> Array:
        """The rows [m, n]."""
        return -self.scale * scene.x

    def graph(self, graph: Graph, liars: Array) -> Graph:
        """The graph with the attackers' weights."""
        false = jnp.where(graph.mask & liars[graph.senders], graph.weight, 0)
        held = jnp.sum(false, axis=1)
        room = jnp.minimum((self.factor - 1) * held, jnp.maximum(graph.self_weight, 0))
        grown = 1 + room / jnp.where(held > 0, held, 1)
        weight = jnp.where(false > 0, graph.weight * grown[:, None].astype(graph.weight.dtype), graph.weight)
        return replace(graph, weight=weight, self_weight=graph.self_weight - room.astype(graph.weight.dtype))
