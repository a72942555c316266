"""Attacks: what nodes that lie send in place of their rows.

Attackers see all rows of a round, know which nodes are honest, and act together. Otherwise they follow the method:
their own states are those of honest nodes with their data.

M. Baruch, G. Baruch, Y. Goldberg: A Little Is Enough, 2019 (ALIE); C. Xie, O. Koyejo, I. Gupta: Fall of Empires:
Breaking Byzantine-Tolerant SGD by Inner Product Manipulation, 2020 (FOE); S. P. Karimireddy, L. He, M. Jaggi:
Byzantine-Robust Learning on Heterogeneous Datasets via Bucketing, 2022 (mimic). Their attackers alter gradients; here,
as in what followed for networks, they alter what nodes send, such as models.

Two attacks send every neighbour another row, to drive honest nodes apart: L. He, S. P. Karimireddy, M. Jaggi:
Byzantine-Robust Decentralized Learning via ClippedGossip, 2022 (dissensus); R. Gaucher, A. Dieuleveut, H. Hendrikx:
Unified Breakdown Analysis for Byzantine Robust Gossip, 2025 (spectral heterogeneity). Every attacker sends to node i

    x_i - epsilon sum_k W_ik (x_k - x_i) / sum_j W_ij                (dissensus; k honest, j attackers)
    x_i + scale v_i sum_k v_k x_k                                    (spectral heterogeneity)

where v is the eigenvector of the second smallest eigenvalue of the Laplacian of the honest nodes' graph.

Axes: m nodes, n parameters.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar
from zlib import crc32

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.special import ndtri

from jdfl.arrays import ops
from jdfl.base import checks, struct
from jdfl.base.settings import NotNegative, Number, Positive, Provenance
from jdfl.base.streams import Stream
from jdfl.network import Graph, as_dense, mix
from jdfl.problems import Problem
from jdfl.robust.rule import Aimed

DRAWN = Stream("attack", "choice")


@dataclass(frozen=True)
class Scene:
    """What attackers know when rows are sent."""

    graph: Graph  # of the round
    x: Array  # [m, n] what all nodes would send if all were honest
    liars: Array  # [m] bool the attackers
    ready: Any = None  # the result of the attack's `prepare`
    key: Any = None  # [] for what they draw

    @cached_property
    def honest(self) -> Array:
        """1 for honest nodes and 0 for attackers, honest [m, 1] of the rows' type."""
        return (~self.liars)[:, None].astype(self.x.dtype)

    @cached_property
    def mean(self) -> Array:
        """The mean of the honest rows [n]."""
        return jnp.sum(self.honest * self.x, axis=0) / jnp.sum(self.honest)

    @cached_property
    def deviation(self) -> Array:
        """The standard deviation of every coordinate over the honest rows [n], with m - 1 in the denominator."""
        squares = jnp.sum(self.honest * (self.x - self.mean[None]) ** 2, axis=0)
        return jnp.sqrt(squares / jnp.maximum(jnp.sum(self.honest) - 1, 1))

    def alike(self, row: Array) -> Array:
        """The same row [n] for all nodes [m, n]."""
        return jnp.broadcast_to(row[None], self.x.shape)


@struct.dataclass
class Attack:
    """An attack. A subclass has its settings and `rows`; it may alter the attackers' data or the weights instead.

    Class variables: `kind` and `title` are its names, and `aimed` says that row i is what node i receives, from every
    attacker, instead of what node i sends. `provenance` says what it was written from.
    """

    kind: ClassVar[str] = ""
    provenance: ClassVar[Provenance] = ()
    title: ClassVar[str] = ""
    aimed: ClassVar[bool] = False

    def rows(self, scene: Scene) -> Array:
        """Return the rows [m, n] that attackers send, in the places of the attackers; here what they would send anyway.

        Of an attack that is `aimed` they are the rows that the nodes receive, in the places of the receivers.
        """
        return scene.x

    def prepare(self, graph: Graph, liars: Array) -> Any:
        """Return what all rounds need, from the first graph and the attackers liars [m]; None: nothing."""
        return None

    def problem(self, problem: Problem, liars: Array) -> Problem:
        """Return the problem with the data that attackers liars [m] train on."""
        return problem

    def graph(self, graph: Graph, liars: Array) -> Graph:
        """Return the graph with the weights that the nodes use if the attackers liars [m] lie about their links."""
        return graph

    def check(self, problem: Problem) -> None:
        """Raise ValueError for a problem that the attack does not fit."""


@dataclass
class Lies:
    """The attack of one round, as `jdfl.Round` applies it."""

    attack: Attack
    liars: Array  # [m] bool the attackers of this round
    ready: Any
    key: Array  # [] of `DRAWN` in this round
    channels: set[str] = field(default_factory=set)  # those on which it was applied

    def of(self, graph: Graph, x: Array, channel: str, index: int) -> tuple[Array, Aimed | None]:
        """The rows that all receive [m, n], and those that single nodes receive."""
        self.channels.add(channel)
        key = jax.random.fold_in(jax.random.fold_in(self.key, jnp.uint32(crc32(channel.encode()))), index)
        rows = self.attack.rows(Scene(graph, x, self.liars, self.ready, key)).astype(x.dtype)
        if self.attack.aimed:
            return x, Aimed(self.liars, rows)
        return jnp.where(self.liars[:, None], rows, x), None


@struct.dataclass
class SignFlip(Attack):
    """Sign flip: an attacker sends minus `scale` times its row."""

    kind: ClassVar[str] = "sign-flip"
    provenance: ClassVar[Provenance] = ("no paper",)
    title: ClassVar[str] = "sign flip"
    scale: Positive = 1.0
    """Factor of the length."""

    def rows(self, scene: Scene) -> Array:
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
        data: Any = problem.data
        labels = data[1]
        classes = max(2, getattr(problem, "classes", 2)) if type(problem).scores is not Problem.scores else 1
        flipped = problem.per_example(lambda own, lies: jnp.where(lies, classes - 1 - own, own), labels, liars)
        return replace(problem, data=(data[0], flipped, *data[2:]))

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
        return scene.alike(-self.epsilon * scene.mean)


@struct.dataclass
class Mimic(Attack):
    """Mimic: all attackers send the row of the same honest node, which then counts many times.

    The paper chooses the node along the direction of largest variance; here it is the honest node farthest from the
    mean of the honest rows in every round.
    """

    kind: ClassVar[str] = "mimic"
    provenance: ClassVar[Provenance] = ("from memory",)
    title: ClassVar[str] = "mimic"

    def rows(self, scene: Scene) -> Array:
        far = jnp.where(scene.liars, -1, jnp.sum((scene.x - scene.mean[None]) ** 2, axis=1))
        return scene.alike(scene.x[jnp.argmax(far)])


@struct.dataclass
class FreeRider(Attack):
    """Free rider: an attacker sends the mean of its honest in-neighbours' rows and contributes nothing of its own."""

    kind: ClassVar[str] = "free-rider"
    provenance: ClassVar[Provenance] = ("no paper",)
    title: ClassVar[str] = "free rider"

    def rows(self, scene: Scene) -> Array:
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
        return -self.scale * scene.x

    def graph(self, graph: Graph, liars: Array) -> Graph:
        false = jnp.where(graph.mask & liars[graph.senders], graph.weight, 0)
        held = jnp.sum(false, axis=1)
        room = jnp.minimum((self.factor - 1) * held, jnp.maximum(graph.self_weight, 0))
        grown = 1 + room / jnp.where(held > 0, held, 1)
        weight = jnp.where(false > 0, graph.weight * grown[:, None].astype(graph.weight.dtype), graph.weight)
        return replace(graph, weight=weight, self_weight=graph.self_weight - room.astype(graph.weight.dtype))


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
        """The eigenvector v [m], of length 1, and 0 at the attackers."""
        good = ~liars
        links = as_dense(replace(graph, weight=graph.mask.astype(jnp.float32), self_weight=jnp.zeros((graph.m,))))
        links = jnp.where(good[:, None] & good[None], (links + links.T) / 2, 0)
        laplacian = jnp.diag(jnp.sum(links, axis=1)) - links
        _, vectors = jnp.linalg.eigh(laplacian + jnp.diag(jnp.where(liars, 4.0 * graph.m, 0)))  # attackers come last
        return jnp.where(good, vectors[:, 1], 0)

    def rows(self, scene: Scene) -> Array:
        v = scene.ready.astype(scene.x.dtype)
        return scene.x + self.scale * jnp.outer(v, jnp.dot(v, scene.x, precision=ops.HIGHEST))
