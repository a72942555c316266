"""Networks around others: neighbours, messages or nodes are missing, late or slow, or all nodes meet now and then."""

from dataclasses import dataclass
from typing import ClassVar

from jdfl import network
from jdfl.config.defaults import defaults, fields
from jdfl.config.network import ErdosRenyi
from jdfl.config.sequences import Changing, Fixed

_partial_communication = defaults(network.partial_communication)
_link_loss = defaults(network.link_loss)
_bursty_loss = defaults(network.bursty_loss)
_node_participation = defaults(network.node_participation)
_outages = defaults(network.outages)
_membership = defaults(network.membership)
_delays = defaults(network.delays)
_timed = defaults(network.timed)


@dataclass(frozen=True, kw_only=True)
class PartialCommunication:
    """Every node asks a share of those that it hears, drawn anew in every round, and takes the plain mean."""

    kind: ClassVar[str] = "partial-communication"
    base: "Base" = ErdosRenyi()  # noqa: RUF009 (frozen)
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
    base: "Base" = ErdosRenyi()  # noqa: RUF009 (frozen)
    """The network whose messages they are."""
    p: float
    """Probability that a message is lost."""
    directed: bool = _link_loss.directed
    """Lose the two ways of a link apart."""
    weights: network.Missing = _link_loss.weights
    """What is missing goes to the receiver's own weight, or all that is left is scaled up to sum to one, or the sender
    keeps it (for push-sum)."""

    def build(self, m: int) -> network.LinkLoss:
        """The network of m nodes."""
        return network.link_loss(self.base.build(m), self.p, directed=self.directed, weights=self.weights)


@dataclass(frozen=True, kw_only=True)
class NodeParticipation:
    """Only some nodes take part in a round, drawn anew: each with probability p, or count of them."""

    kind: ClassVar[str] = "node-participation"
    base: "Base" = ErdosRenyi()  # noqa: RUF009 (frozen)
    """The network whose nodes they are."""
    p: float | None = _node_participation.p
    """Probability that a node takes part; give it or count."""
    count: int | None = _node_participation.count
    """How many nodes take part; give it or p."""
    weights: network.Missing = _node_participation.weights
    """Where the weight of what is missing goes, as for link-loss."""

    def build(self, m: int) -> network.NodeParticipation:
        """The network of m nodes."""
        return network.node_participation(self.base.build(m), self.p, count=self.count, weights=self.weights)


@dataclass(frozen=True, kw_only=True)
class BurstyLoss:
    """Messages are lost in bursts: every link is good or bad for a while (Gilbert-Elliott)."""

    kind: ClassVar[str] = "bursty-loss"
    base: "Base" = ErdosRenyi()  # noqa: RUF009 (frozen)
    """The network whose messages they are."""
    to_bad: float
    """Probability that a good link is bad in the next round."""
    to_good: float
    """Probability that a bad link is good in the next round."""
    good: float = _bursty_loss.good
    """Probability that a message is lost on a good link."""
    bad: float = _bursty_loss.bad
    """Probability that a message is lost on a bad link."""
    directed: bool = _bursty_loss.directed
    """Let the two ways of a link have states of their own."""
    weights: network.Missing = _bursty_loss.weights
    """Where the weight of what is missing goes, as for link-loss."""

    def build(self, m: int) -> network.BurstyLoss:
        """The network of m nodes."""
        given = fields(self)
        return network.bursty_loss(given.pop("base").build(m), given.pop("to_bad"), given.pop("to_good"), **given)


@dataclass(frozen=True, kw_only=True)
class Outages:
    """Nodes fail for a while and come back with what they had."""

    kind: ClassVar[str] = "outages"
    base: "Base" = ErdosRenyi()  # noqa: RUF009 (frozen)
    """The network whose nodes they are."""
    down: float
    """Probability that a node is down in the next round."""
    up: float
    """Probability that one that is down comes back in the next round."""
    weights: network.Missing = _outages.weights
    """Where the weight of what is missing goes, as for link-loss."""

    def build(self, m: int) -> network.Outages:
        """The network of m nodes."""
        return network.outages(self.base.build(m), self.down, self.up, weights=self.weights)


@dataclass(frozen=True, kw_only=True)
class Membership:
    """Nodes join the network and leave it in given rounds."""

    kind: ClassVar[str] = "membership"
    base: "Base" = ErdosRenyi()  # noqa: RUF009 (frozen)
    """The network of all nodes that are ever there."""
    joins: tuple[int, ...] | None = _membership.joins
    """The first round of every node, or one for all; none: from the start."""
    leaves: tuple[int, ...] | None = _membership.leaves
    """The first round without every node, or one for all; none: to the end."""
    weights: network.Missing = _membership.weights
    """Where the weight of what is missing goes, as for link-loss."""

    def build(self, m: int) -> network.Membership:
        """The network of m nodes."""
        joins, leaves = (given[0] if given and len(given) == 1 else given for given in (self.joins, self.leaves))
        return network.membership(self.base.build(m), joins=joins, leaves=leaves, weights=self.weights)


@dataclass(frozen=True, kw_only=True)
class Delays:
    """Messages are late by some rounds, up to a bound."""

    kind: ClassVar[str] = "delays"
    base: Fixed = ErdosRenyi()  # noqa: RUF009 (frozen)
    """The network whose messages they are."""
    bound: int
    """The most rounds that a message takes."""
    p: float = _delays.p
    """Probability that a message is late."""

    def build(self, m: int) -> network.Delays:
        """The network of m nodes."""
        return network.delays(self.base.build(m), self.bound, self.p)


@dataclass(frozen=True, kw_only=True)
class FixedTime:
    """The same time always."""

    kind: ClassVar[str] = "fixed"
    seconds: float = network.FixedTime.seconds
    """The time."""

    def build(self) -> network.Times:
        """The distribution."""
        return network.FixedTime(**fields(self))


@dataclass(frozen=True, kw_only=True)
class ExponentialTime:
    """Exponential times."""

    kind: ClassVar[str] = "exponential"
    mean: float = network.ExponentialTime.mean
    """Their mean."""

    def build(self) -> network.Times:
        """The distribution."""
        return network.ExponentialTime(**fields(self))


@dataclass(frozen=True, kw_only=True)
class LogNormalTime:
    """Times whose logarithm is normal."""

    kind: ClassVar[str] = "log-normal"
    median: float = network.LogNormalTime.median
    """Their median."""
    sigma: float = network.LogNormalTime.sigma
    """Standard deviation of their logarithm."""

    def build(self) -> network.Times:
        """The distribution."""
        return network.LogNormalTime(**fields(self))


@dataclass(frozen=True, kw_only=True)
class ParetoTime:
    """Times with a heavy tail."""

    kind: ClassVar[str] = "pareto"
    least: float = network.ParetoTime.least
    """The shortest of them."""
    shape: float = network.ParetoTime.shape
    """The exponent of the tail; the smaller, the heavier."""

    def build(self) -> network.Times:
        """The distribution."""
        return network.ParetoTime(**fields(self))


Time = FixedTime | ExponentialTime | LogNormalTime | ParetoTime


@dataclass(frozen=True, kw_only=True)
class Timed:
    """Nodes and messages take time, which the run adds up."""

    kind: ClassVar[str] = "timed"
    base: "Base" = ErdosRenyi()  # noqa: RUF009 (frozen)
    """The network whose times they are."""
    compute: Time = ExponentialTime()
    """Seconds of one gradient, drawn anew in every round."""
    latency: Time = FixedTime(seconds=0.0)
    """Seconds of a message, beside its bits."""
    bandwidth: float | None = _timed.bandwidth
    """Bits per second of a message; none: its size takes no time."""
    slowness: Time | None = _timed.slowness
    """How many times as long a node computes, in all rounds; none: all alike."""
    first: bool = _timed.first
    """Who combines some of its neighbours takes the first that respond."""

    def build(self, m: int) -> network.Timed:
        """The network of m nodes."""
        slowness = None if self.slowness is None else self.slowness.build()
        return network.timed(
            self.base.build(m),
            self.compute.build(),
            latency=self.latency.build(),
            bandwidth=self.bandwidth,
            slowness=slowness,
            first=self.first,
        )


Missing = PartialCommunication | LinkLoss | BurstyLoss | NodeParticipation | Outages | Membership
Faulty = Missing | Delays | Timed
Base = Fixed | Changing | Faulty  # of networks that are around any other


@dataclass(frozen=True, kw_only=True)
class Synchronised:
    """All nodes take the mean of all in every so many rounds."""

    kind: ClassVar[str] = "synchronised"
    base: "Base" = ErdosRenyi()  # noqa: RUF009 (frozen)
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


Wrapped = Faulty | Synchronised | Laplacian
