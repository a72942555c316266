"""Networks that change from round to round. The number of nodes is the problem's."""

from dataclasses import dataclass, replace
from typing import ClassVar

from jdfl import checks, network
from jdfl.config.defaults import defaults, fields
from jdfl.config.network import (
    BarabasiAlbert,
    Circulant,
    Complete,
    DOut,
    EdgeListFile,
    ErdosRenyi,
    Exponential,
    KIn,
    KRegular,
    RandomGeometric,
    Ring,
    Star,
    Torus,
    WattsStrogatz,
)
from jdfl.network import Static, Weights

Seeded = ErdosRenyi | KRegular | KIn | WattsStrogatz | BarabasiAlbert | RandomGeometric
Fixed = Seeded | Ring | Circulant | Exponential | DOut | Torus | Star | Complete | EdgeListFile

_MOST = 10_000  # networks in turn, which are all drawn and stored beforehand
_erdos_renyi = defaults(network.erdos_renyi)
_random_links = defaults(network.random_links)
_matcha = defaults(network.matcha)
_random_neighbours = defaults(network.random_neighbours)
_one_peer = defaults(network.one_peer_exponential)


@dataclass(frozen=True, kw_only=True)
class RandomLinks:
    """Every link of a network is up with probability p, drawn anew in every round."""

    kind: ClassVar[str] = "random-links"
    base: Fixed = ErdosRenyi()  # noqa: RUF009 (frozen)
    """The network whose links they are; its own weights are not used."""
    p: float
    """Probability that a link is up."""
    weights: Weights | None = _random_links.weights
    """Rule for the weights of the links that are up; None: metropolis, or uniform if links run one way."""

    def build(self, m: int) -> network.RandomLinks:
        """The network of m nodes."""
        return network.random_links(self.base.build(m), self.p, weights=self.weights)


@dataclass(frozen=True, kw_only=True)
class ErdosRenyiRounds:
    """Every link is there with probability p, drawn anew in every round, connected or not."""

    kind: ClassVar[str] = "erdos-renyi-rounds"
    p: float = _erdos_renyi.p
    """Probability of a link."""
    weights: Weights | None = _random_links.weights
    """Rule for the mixing weights; None: metropolis."""

    def build(self, m: int) -> network.RandomLinks:
        """The network of m nodes."""
        return network.erdos_renyi_rounds(m, **fields(self))


@dataclass(frozen=True, kw_only=True)
class RandomNeighbours:
    """Every node hears `degree` others, drawn anew in every round."""

    kind: ClassVar[str] = "random-neighbours"
    degree: int
    """Nodes that a node hears."""
    weights: network.NeighbourWeights = _random_neighbours.weights
    """Rule for the mixing weights; out-degree is for push-sum."""

    def build(self, m: int) -> network.RandomNeighbours:
        """The network of m nodes."""
        return network.random_neighbours(m, **fields(self))


@dataclass(frozen=True, kw_only=True)
class RandomMatching:
    """Random pairs of nodes, drawn anew in every round."""

    kind: ClassVar[str] = "random-matching"

    def build(self, m: int) -> network.RandomMatching:
        """The network of m nodes."""
        return network.random_matching(m)


@dataclass(frozen=True, kw_only=True)
class OnePeerExponential:
    """Node i sends to node i + 2^k (mod m) alone in round k, k in turn, which takes the mean of both."""

    kind: ClassVar[str] = "one-peer-exponential"
    hops: network.Hops = _one_peer.hops
    """How many there are in turn: ceil(log2 m), ceil(log2(m - 1)) + 1, or floor(log2(m - 1)) + 1."""

    def build(self, m: int) -> network.Periodic:
        """The network of m nodes."""
        return network.one_peer_exponential(m, **fields(self))


@dataclass(frozen=True, kw_only=True)
class Matcha:
    """A network split into matchings, each active with a probability that makes them connect it best."""

    kind: ClassVar[str] = "matcha"
    base: Fixed = ErdosRenyi()  # noqa: RUF009 (frozen)
    """The undirected network that is split; its own weights are not used."""
    budget: float
    """Share of the matchings that are active in a round."""
    schedule: network.Schedule = _matcha.schedule
    """random: each matching with its probability; periodic: all of them every 1 / budget rounds."""

    def build(self, m: int) -> network.Matchings:
        """The network of m nodes."""
        return network.matcha(self.base.build(m), self.budget, schedule=self.schedule)


@dataclass(frozen=True, kw_only=True)
class Periodic:
    """Several draws of a random network in turn, one in every round."""

    kind: ClassVar[str] = "periodic"
    base: Seeded = ErdosRenyi()  # noqa: RUF009 (frozen)
    """The first of them; the others have the seeds that follow."""
    count: int = 10
    """How many there are."""

    def build(self, m: int) -> network.Periodic:
        """The network of m nodes."""
        return network.periodic(_draws(self.base, self.count, m))


@dataclass(frozen=True, kw_only=True)
class RandomChoice:
    """Several draws of a random network, one of them chosen at random in every round."""

    kind: ClassVar[str] = "random-choice"
    base: Seeded = ErdosRenyi()  # noqa: RUF009 (frozen)
    """The first of them; the others have the seeds that follow."""
    count: int = 10
    """How many there are."""

    def build(self, m: int) -> network.RandomChoice:
        """The network of m nodes."""
        return network.random_choice(_draws(self.base, self.count, m))


Drawn = RandomLinks | ErdosRenyiRounds | RandomNeighbours | RandomMatching  # anew in every round
Changing = Drawn | OnePeerExponential | Matcha | Periodic | RandomChoice


def _draws(base: Seeded, count: int, m: int) -> list[Static]:
    checks.whole(1, _MOST, "Networks that are drawn anew in every round need no storage: random-links.", count=count)
    return [replace(base, seed=base.seed + i).build(m) for i in range(count)]
