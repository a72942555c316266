"""Networks around others: a share of the neighbours, messages or nodes is missing, or all nodes meet now and then."""

from dataclasses import dataclass
from typing import ClassVar

from jdfl import network
from jdfl.config.defaults import defaults
from jdfl.config.network import ErdosRenyi
from jdfl.config.sequences import Changing, Fixed

_partial_communication = defaults(network.partial_communication)
_link_loss = defaults(network.link_loss)
_node_participation = defaults(network.node_participation)


@dataclass(frozen=True, kw_only=True)
class PartialCommunication:
    """Every node asks a share of those that it hears, drawn anew in every round, and takes the plain mean."""

    kind: ClassVar[str] = "partial-communication"
    base: Fixed | Changing = ErdosRenyi()  # noqa: RUF009 (frozen)
    """The network whose in-neighbours they are; its own weights are not used."""
    rate: float
    """Share of its in-neighbours that a node asks, rounded up to a whole number."""
    include_self: bool = _partial_communication.include_self
    """Take the node's own row into the mean."""

    def build(self, m: int) -> network.PartialCommunication:
        """The network of m nodes."""
        return network.partial_communication(self.base.build(m), self.rate, include_self=self.include_self)


@dataclass(frozen=True, kw_only=True)
class LinkLoss:
    """Messages are lost with probability p, drawn anew in every round."""

    kind: ClassVar[str] = "link-loss"
    base: Fixed | Changing = ErdosRenyi()  # noqa: RUF009 (frozen)
    """The network whose messages they are."""
    p: float
    """Probability that a message is lost."""
    directed: bool = _link_loss.directed
    """Lose the two ways of a link apart."""
    weights: network.Missing = _link_loss.weights
    """What is missing goes to the node's own weight, or all that is left is scaled up to sum to one."""

    def build(self, m: int) -> network.LinkLoss:
        """The network of m nodes."""
        return network.link_loss(self.base.build(m), self.p, directed=self.directed, weights=self.weights)


@dataclass(frozen=True, kw_only=True)
class NodeParticipation:
    """Only some nodes take part in a round, drawn anew: each with probability p, or count of them."""

    kind: ClassVar[str] = "node-participation"
    base: Fixed | Changing = ErdosRenyi()  # noqa: RUF009 (frozen)
    """The network whose nodes they are."""
    p: float | None = _node_participation.p
    """Probability that a node takes part; give it or count."""
    count: int | None = _node_participation.count
    """How many nodes take part; give it or p."""

    def build(self, m: int) -> network.NodeParticipation:
        """The network of m nodes."""
        return network.node_participation(self.base.build(m), self.p, count=self.count)


Partial = PartialCommunication | LinkLoss | NodeParticipation


@dataclass(frozen=True, kw_only=True)
class Synchronised:
    """All nodes take the mean of all in every so many rounds."""

    kind: ClassVar[str] = "synchronised"
    base: Fixed | Changing | Partial = ErdosRenyi()  # noqa: RUF009 (frozen)
    """The network of the rounds between."""
    every: int = 4
    """Rounds from one mean of all to the next; the first one is in round every - 1."""

    def build(self, m: int) -> network.Synchronised:
        """The network of m nodes."""
        return network.synchronised(self.base.build(m), self.every)


@dataclass(frozen=True, kw_only=True)
class Laplacian:
    """Every link weighs 1 / iota, the rest stays with the nodes: W = I - L / iota."""

    kind: ClassVar[str] = "laplacian"
    base: Fixed = ErdosRenyi()  # noqa: RUF009 (frozen)
    """The network whose links they are; its own weights are not used."""
    iota: float | None = None
    """Larger than the largest number of neighbours; none: one more than it."""

    def build(self, m: int) -> network.Static:
        """The network of m nodes."""
        return network.laplacian(self.base.build(m), self.iota)


Wrapped = Partial | Synchronised | Laplacian
