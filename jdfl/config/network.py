"""Networks: who hears whom. The number of nodes is the problem's."""

import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import scipy.sparse as sp

from jdfl import checks, network
from jdfl.config.defaults import defaults, fields
from jdfl.network import FormatChoice, Static, Weights

_erdos_renyi = defaults(network.erdos_renyi)
_k_regular = defaults(network.k_regular)


@dataclass(frozen=True, kw_only=True)
class _Links:
    weights: Weights = _erdos_renyi.weights
    """Rule for the mixing weights."""
    format: FormatChoice = _erdos_renyi.format
    """How sums over neighbours are computed; auto looks at density and backend."""


@dataclass(frozen=True, kw_only=True)
class ErdosRenyi(_Links):
    """Every link is there with probability p, redrawn until the network is connected."""

    kind: ClassVar[str] = "erdos-renyi"
    p: float = _erdos_renyi.p
    """Probability of a link."""
    seed: int = _erdos_renyi.seed
    """Seed of the links."""
    tries: int = _erdos_renyi.tries
    """Most draws until one is connected."""
    connected: bool = _erdos_renyi.connected
    """Refuse a network in several parts."""

    def build(self, m: int) -> Static:
        """The network of m nodes."""
        return network.erdos_renyi(m, **fields(self))


@dataclass(frozen=True, kw_only=True)
class Ring(_Links):
    """A cycle: each node hears the one before and the one after it."""

    kind: ClassVar[str] = "ring"

    def build(self, m: int) -> Static:
        """The network of m nodes."""
        return network.ring(m, **fields(self))


@dataclass(frozen=True, kw_only=True)
class Circulant(_Links):
    """Node i hears i + o and i - o (mod m) for every offset o."""

    kind: ClassVar[str] = "circulant"
    offsets: tuple[int, ...]
    """The offsets, each from 1 to m // 2."""
    connected: bool = _erdos_renyi.connected
    """Refuse a network in several parts."""

    def build(self, m: int) -> Static:
        """The network of m nodes."""
        return network.circulant(m, **fields(self))


@dataclass(frozen=True, kw_only=True)
class Complete(_Links):
    """Every node hears every other one."""

    kind: ClassVar[str] = "complete"

    def build(self, m: int) -> Static:
        """The network of m nodes."""
        return network.complete(m, **fields(self))


@dataclass(frozen=True, kw_only=True)
class KRegular(_Links):
    """A connected random network in which every node hears `degree` others."""

    kind: ClassVar[str] = "k-regular"
    degree: int
    """Neighbours of a node."""
    seed: int = _k_regular.seed
    """Seed of the links."""
    tries: int = _k_regular.tries
    """Most draws until one is connected."""

    def build(self, m: int) -> Static:
        """The network of m nodes."""
        return network.k_regular(m, **fields(self))


@dataclass(frozen=True, kw_only=True)
class EdgeListFile(_Links):
    """A network from a file: one link `u v` per line (nodes from 0), or a SciPy sparse matrix saved as .npz."""

    kind: ClassVar[str] = "edge-list-file"
    path: str
    """The file. In a matrix a nonzero entry (i, j) means that i hears j; its values are not used."""
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
            adjacency = sp.load_npz(path)
        except (ValueError, OSError, KeyError, zipfile.BadZipFile) as error:
            raise ValueError(
                f"Expected a SciPy sparse matrix in {path}: {error}. Save it by scipy.sparse.save_npz."
            ) from error
        checks.shape((m, m), "It must have a row and a column for each of the problem's nodes.", adjacency=adjacency)
        return network.from_scipy(adjacency, **options)


def _edges(path: Path) -> list[tuple[int, int]]:
    """The pairs of an edge list; blank lines and what follows a # are skipped."""
    edges = []
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), start=1):
        words = line.partition("#")[0].replace(",", " ").split()
        if words:
            try:
                u, v = map(int, words)
            except ValueError:
                raise ValueError(
                    f"Expected two whole numbers `u v` in {path}, line {number}, got {line.strip()!r}."
                ) from None
            edges.append((u, v))
    return edges
