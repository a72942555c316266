"""Networks: who hears whom. The number of nodes is the problem's."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import scipy.sparse as sp

from jdfl import checks, network
from jdfl.config.defaults import defaults, fields
from jdfl.network import FormatChoice, Static, Weights

_erdos_renyi = defaults(network.erdos_renyi)
_torus = defaults(network.torus)
_watts_strogatz = defaults(network.watts_strogatz)
_random_geometric = defaults(network.random_geometric)


@dataclass(frozen=True, kw_only=True)
class _Links:
    weights: Weights | None = _erdos_renyi.weights
    """Rule for the mixing weights; None: metropolis, or uniform if links run one way. out-degree is for push-sum."""
    format: FormatChoice = _erdos_renyi.format
    """How sums over neighbours are computed; auto looks at density, degrees and backend."""


@dataclass(frozen=True, kw_only=True)
class _Drawn(_Links):
    seed: int = _erdos_renyi.seed
    """Seed of the links."""
    tries: int = _erdos_renyi.tries
    """Most draws until one is connected."""


@dataclass(frozen=True, kw_only=True)
class ErdosRenyi(_Drawn):
    """Every link is there with probability p, redrawn until the network is connected."""

    kind: ClassVar[str] = "erdos-renyi"
    p: float = _erdos_renyi.p
    """Probability of a link."""
    directed: bool = _erdos_renyi.directed
    """Draw every direction of a link apart."""
    connected: bool = _erdos_renyi.connected
    """Refuse a network in several parts."""

    def build(self, m: int) -> Static:
        """The network of m nodes."""
        return network.erdos_renyi(m, **fields(self))


@dataclass(frozen=True, kw_only=True)
class Ring(_Links):
    """A cycle: each node hears the one before and the one after it."""

    kind: ClassVar[str] = "ring"
    directed: bool = _erdos_renyi.directed
    """Hear the one before only."""

    def build(self, m: int) -> Static:
        """The network of m nodes."""
        return network.ring(m, **fields(self))


@dataclass(frozen=True, kw_only=True)
class Circulant(_Links):
    """Node i hears i - o and i + o (mod m) for every offset o."""

    kind: ClassVar[str] = "circulant"
    offsets: tuple[int, ...]
    """The offsets, each from 1 to m // 2; to m - 1 if directed."""
    directed: bool = _erdos_renyi.directed
    """Hear i - o only."""
    connected: bool = _erdos_renyi.connected
    """Refuse a network in several parts."""

    def build(self, m: int) -> Static:
        """The network of m nodes."""
        return network.circulant(m, **fields(self))


@dataclass(frozen=True, kw_only=True)
class Exponential:
    """Node i hears i - 1, i - 2, i - 4, ... (mod m), with uniform weights."""

    kind: ClassVar[str] = "exponential"
    format: FormatChoice = _erdos_renyi.format
    """How sums over neighbours are computed; auto looks at density, degrees and backend."""

    def build(self, m: int) -> Static:
        """The network of m nodes."""
        return network.exponential(m, **fields(self))


@dataclass(frozen=True, kw_only=True)
class DOut:
    """Node i sends to i, i + 1, ..., i + d - 1 (mod m), itself among them, with weight 1 / d each."""

    kind: ClassVar[str] = "d-out"
    d: int = 4
    """Nodes that a node sends to, itself among them."""
    format: FormatChoice = _erdos_renyi.format
    """How sums over neighbours are computed; auto looks at density, degrees and backend."""

    def build(self, m: int) -> Static:
        """The network of m nodes."""
        return network.d_out(m, **fields(self))


@dataclass(frozen=True, kw_only=True)
class Complete(_Links):
    """Every node hears every other one."""

    kind: ClassVar[str] = "complete"

    def build(self, m: int) -> Static:
        """The network of m nodes."""
        return network.complete(m, **fields(self))


@dataclass(frozen=True, kw_only=True)
class Torus(_Links):
    """A grid whose opposite sides touch: each node hears the one above, below, left and right."""

    kind: ClassVar[str] = "torus"
    rows: int | None = _torus.rows
    """Rows of the grid, a divisor of m; None: as square as m allows."""
    directed: bool = _torus.directed
    """Hear the ones above and left only."""

    def build(self, m: int) -> Static:
        """The network of m nodes."""
        return network.torus(m, **fields(self))


@dataclass(frozen=True, kw_only=True)
class Star(_Links):
    """Node 0 and each other node hear one another."""

    kind: ClassVar[str] = "star"

    def build(self, m: int) -> Static:
        """The network of m nodes."""
        return network.star(m, **fields(self))


@dataclass(frozen=True, kw_only=True)
class KRegular(_Drawn):
    """A connected random network in which every node hears `degree` others, both ways."""

    kind: ClassVar[str] = "k-regular"
    degree: int
    """Neighbours of a node."""

    def build(self, m: int) -> Static:
        """The network of m nodes."""
        return network.k_regular(m, **fields(self))


@dataclass(frozen=True, kw_only=True)
class KIn(_Drawn):
    """A directed network in which every node hears `degree` others chosen at random."""

    kind: ClassVar[str] = "k-in"
    degree: int
    """Nodes that a node hears."""
    connected: bool = _erdos_renyi.connected
    """Refuse a network that is not strongly connected."""

    def build(self, m: int) -> Static:
        """The network of m nodes."""
        return network.k_in(m, **fields(self))


@dataclass(frozen=True, kw_only=True)
class WattsStrogatz(_Drawn):
    """A small world: a ring of `degree` nearest neighbours whose links are moved with probability p."""

    kind: ClassVar[str] = "watts-strogatz"
    degree: int
    """Neighbours of a node before links are moved, an even number."""
    p: float = _watts_strogatz.p
    """Probability that a link is moved."""

    def build(self, m: int) -> Static:
        """The network of m nodes."""
        return network.watts_strogatz(m, **fields(self))


@dataclass(frozen=True, kw_only=True)
class BarabasiAlbert(_Links):
    """A network with hubs: nodes come one by one and join earlier ones, the likelier the more links these have."""

    kind: ClassVar[str] = "barabasi-albert"
    links: int
    """Links that a new node makes."""
    seed: int = _erdos_renyi.seed
    """Seed of the links."""

    def build(self, m: int) -> Static:
        """The network of m nodes."""
        return network.barabasi_albert(m, **fields(self))


@dataclass(frozen=True, kw_only=True)
class RandomGeometric(_Drawn):
    """Nodes at random places in the unit square hear those in whose range they lie."""

    kind: ClassVar[str] = "random-geometric"
    radius: float
    """The range of a node."""
    spread: float = _random_geometric.spread
    """Ranges differ by up to this share of the radius, which makes the network directed."""
    connected: bool = _erdos_renyi.connected
    """Refuse a network in several parts."""

    def build(self, m: int) -> Static:
        """The network of m nodes."""
        return network.random_geometric(m, **fields(self))


@dataclass(frozen=True, kw_only=True)
class EdgeListFile(_Links):
    """A network from a file: one link `u v` per line (nodes from 0), or a SciPy sparse matrix saved as .npz."""

    kind: ClassVar[str] = "edge-list-file"
    path: str
    """The file. In a matrix a nonzero entry (i, j) means that i hears j; without `weights`, values other than
    0 and 1 are the mixing matrix itself."""
    directed: bool = False
    """Edge list: v hears u, and u does not hear v."""
    connected: bool = _erdos_renyi.connected
    """Refuse a network in several parts."""

    def build(self, m: int) -> Static:
        """The network of m nodes; FileNotFoundError and ValueError name the file (and its line)."""
        path = Path(self.path)
        options: dict[str, Any] = {"weights": self.weights, "format": self.format, "connected": self.connected}
        options["name"] = path.name
        if not path.is_file():
            raise FileNotFoundError(f"Expected a file at network.path, got {self.path!r}. Check the path.")
        if path.suffix != ".npz":
            return network.from_edges(_edges(path), m, directed=self.directed, **options)
        try:
            with path.open("rb") as file:
                adjacency = sp.load_npz(file)
        except Exception as error:  # damaged directories, heads and streams each fail in ways of their own
            raise ValueError(
                f"Expected a SciPy sparse matrix in {path}: {checks.said(error)}. Save it by scipy.sparse.save_npz."
            ) from error
        checks.shape((m, m), "It must have a row and a column for each of the problem's nodes.", adjacency=adjacency)
        return network.from_scipy(adjacency, **options)


def _edges(path: Path) -> list[tuple[int, int]]:
    """The pairs of an edge list; blank lines and what follows a # are skipped."""
    edges: list[tuple[int, int]] = []
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), start=1):
        words = line.partition("#")[0].replace(",", " ").split()
        if words:
            try:
                u, v = map(int, words)
            except ValueError:
                raise ValueError(
                    f"Expected two whole numbers `u v` in {path}, line {number}, got {line.strip()[:80]!r}."
                ) from None
            edges.append((u, v))
    return edges
