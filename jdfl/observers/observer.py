"""Observers: which messages an observer sees, and whose noise it knows.

Axes: m nodes, T rounds.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

from jdfl.base import checks
from jdfl.observers.spread import Spread

Row = tuple[int, np.ndarray]  # a place, and the weights [m] of the nodes there


class Observer(Protocol):
    """Sees some of what leaves the nodes, and knows the data and noise of some nodes."""

    def known(self, m: int) -> Sequence[int]:
        """The nodes whose data and noise it knows; ValueError for nodes that do not exist."""
        ...

    def rows(self, spread: Spread) -> list[Row]:
        """The rows that it sees, in the order of the program."""
        ...

    def words(self) -> str:
        """A description of the observer."""
        ...


class _Nodes:
    """Nodes of the network that observe, together if they are several, and know their own data and noise."""

    sums: bool

    @property
    def members(self) -> list[int]:
        """Their ids."""
        raise NotImplementedError

    def known(self, m: int) -> Sequence[int]:
        """Its own nodes."""
        for node in self.members:
            checks.integer(0, m - 1, "Observers are nodes of the network.", node=node)
        if not 0 < len(self.members) < m:
            raise ValueError(
                f"Expected a coalition of some of the {m} nodes, got {len(self.members)} of them. It needs at least 1 "
                "member, and at least one node must be left to observe."
            )
        return self.members

    def rows(self, spread: Spread) -> list[Row]:
        """The messages that reach them."""
        found: list[Row] = []
        for index, place in enumerate(spread.places):
            if place.to == "one":
                found += [(index, _one(node, spread.m)) for node in self.members if spread.by[index, node]]
                continue
            weights = [self._weights(spread, place.round, node) * spread.by[index] for node in self.members]
            if self.sums:
                found += [(index, weight) for weight in weights if weight.any()]
            else:
                found += [(index, _one(node, spread.m)) for node in np.flatnonzero(np.any(weights, axis=0))]
        return found

    def _weights(self, spread: Spread, k: int, node: int) -> np.ndarray:
        """The weights [m] of others' messages at a node in round k; 1 where it sees each one."""
        found, k = np.zeros(spread.m), max(k, 0)
        if spread.everyone[k]:
            found[:] = 1.0
        else:
            heard = spread.heard[k, node]
            found[spread.senders[k, node][heard]] = spread.weight[k, node][heard] if self.sums else 1.0
        found[node] = 0.0
        return found

    def words(self) -> str:
        """A description of the observer."""
        names = ", ".join(map(str, self.members))
        what = f"node {names}" if len(self.members) == 1 else f"nodes {names} together"
        return f"{what}, seeing secure sums of neighbours' messages" if self.sums else what


@dataclass(frozen=True)
class Neighbour(_Nodes):
    """One node of the network, which sees what its in-neighbours send, and knows its own data and noise.

    With `sums` it learns no more in a round than the weighted sum of their messages, as from secure aggregation.
    """

    kind: ClassVar[str] = "neighbour"
    node: int
    """Node id."""
    sums: bool = False
    """Whether it sees only a secure sum of its neighbours' messages."""

    @property
    def members(self) -> list[int]:
        """The node."""
        return [self.node]


@dataclass(frozen=True)
class Coalition(_Nodes):
    """Nodes that share everything that their in-neighbours send them and that they know themselves.

    With `sums` each of them learns no more in a round than the weighted sum of what its neighbours send.
    """

    kind: ClassVar[str] = "coalition"
    nodes: tuple[int, ...]
    """Node ids."""
    sums: bool = False
    """Whether each sees only a secure sum of its neighbours' messages."""

    @property
    def members(self) -> list[int]:
        """The nodes."""
        return sorted(set(self.nodes))


@dataclass(frozen=True)
class Everyone:
    """An outside observer that reads all messages, such as an eavesdropper; it knows no node's noise."""

    kind: ClassVar[str] = "everyone"

    def known(self, m: int) -> Sequence[int]:
        """Nobody."""
        return ()

    def rows(self, spread: Spread) -> list[Row]:
        """All messages."""
        return [(int(index), _one(node, spread.m)) for index, node in np.argwhere(spread.by)]

    def words(self) -> str:
        """A description of the observer."""
        return "everyone, seeing all messages"


@dataclass(frozen=True)
class FinalModels:
    """An observer who gets only the final parameters, of all nodes or of some of them."""

    kind: ClassVar[str] = "final-models"
    nodes: tuple[int, ...] | None = None
    """The nodes whose parameters are published; None: all nodes."""

    def known(self, m: int) -> Sequence[int]:
        """Nobody."""
        for node in self.nodes or ():
            checks.integer(0, m - 1, "They are ids of the network's nodes.", node=node)
        return ()

    def rows(self, spread: Spread) -> list[Row]:
        """The parameters after the last round."""
        nodes = range(spread.m) if self.nodes is None else sorted(set(self.nodes))
        return [(spread.final, _one(node, spread.m)) for node in nodes]

    def words(self) -> str:
        """A description of the observer."""
        return "everyone, seeing the final models" + ("" if self.nodes is None else f" of {self.nodes}")


@dataclass(frozen=True)
class Server:
    """The server of a method that has one: it sees what every client sends, or only secure sums over clients."""

    kind: ClassVar[str] = "server"
    sums: bool = False
    """Whether it sees only a secure sum over the clients of a round."""

    def known(self, m: int) -> Sequence[int]:
        """No node."""
        return ()

    def rows(self, spread: Spread) -> list[Row]:
        """The messages between clients and server."""
        found: list[Row] = []
        for index, place in enumerate(spread.places):
            if place.to == "one" and self.sums:
                found.append((index, spread.by[index].astype(float)))
            elif place.to == "one":
                found += [(index, _one(node, spread.m)) for node in np.flatnonzero(spread.by[index])]
        if not found:
            raise ValueError(
                "Expected a method with a server, such as jdfl.FedAvg, got observer = Server() for one without: its "
                "nodes send to their neighbours."
            )
        return found

    def words(self) -> str:
        """A description of the observer."""
        return "the server, seeing secure sums over clients" if self.sums else "the server, seeing all client messages"


def _one(node: Any, m: int) -> np.ndarray:
    found = np.zeros(m)
    found[node] = 1.0
    return found
