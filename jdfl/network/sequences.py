"""Networks that choose one of several given graphs in each round, and matrices of rounds that are known in advance.

Axes: m nodes, d slots of the table, p graphs.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jdfl.base import checks, struct
from jdfl.base.arguments import checked
from jdfl.base.names import NodeNames, order_of
from jdfl.base.settings import Count, Nodes
from jdfl.network.combining import Synchronised
from jdfl.network.families import circulant, exponential_offsets
from jdfl.network.graph import Graph, Network, OfTables, Static, as_dense, round_of
from jdfl.network.tables import called, graph_of, pad, refuse_synchronised, relabel, synchronised_now

Hops = Literal["minimal", "paper", "code"]

_MOST_ENTRIES = 2**28  # of all mixing matrices of a period


class _Choosing(OfTables):
    """One of p graphs in each round."""

    graphs: Any

    @property
    def size(self) -> int:
        """The number p of graphs."""
        return int(self.graphs.senders.shape[0])

    def turn(self, place: Array | int) -> Graph:
        """The graph at index [] from 0 to p - 1."""
        return jax.tree.map(lambda leaf: leaf[place], self.graphs)


@struct.dataclass
class Periodic(_Choosing):
    """A periodic sequence of graphs: graph k mod p in round k."""

    graphs: Graph  # every array with a leading axis p
    name: str = struct.field(pytree_node=False, default="network")

    def at(self, k: Array, key: Array) -> Graph:
        return self.turn(k % self.size)


@struct.dataclass
class RandomChoice(_Choosing):
    """One of p graphs, drawn independently in each round."""

    graphs: Graph  # every array with a leading axis p
    probability: Array  # [p] float32
    name: str = struct.field(pytree_node=False, default="network")

    def at(self, k: Array, key: Array) -> Graph:
        return self.turn(jax.random.choice(key, self.size, p=self.probability))


@checked
def periodic(networks: Sequence[Graph | Network]) -> Periodic:
    """Cycle through the given fixed networks: network k mod p in round k.

    Args:
        networks: The networks or graphs [p], all with the same number of nodes. Their tables are padded to the widest
            one; the format becomes "padded" unless all share one other than "buckets". Where they have names of nodes,
            all get the order of the first.

    Raises:
        ValueError: For no networks, for different numbers of nodes, and for a network that itself changes.
    """
    graphs, names = _stacked(networks)
    return Periodic(graphs, f"periodic({names})")


@checked
def random_choice(
    networks: Sequence[Graph | Network], probability: Sequence[float] | np.ndarray | None = None
) -> RandomChoice:
    """Draw one of the given fixed networks at random in each round.

    Args:
        networks: The networks or graphs [p], as for `periodic`.
        probability: The probability of each network, `probability` [p] that sum to one; None: equal.

    Raises:
        ValueError: As `periodic`, and for probabilities that are negative or do not sum to one.
    """
    graphs, names = _stacked(networks)
    p = graphs.senders.shape[0]
    chance = np.full(p, 1 / p) if probability is None else np.asarray(probability)
    checks.shape((p,), "Give one probability per network.", probability=chance if probability is None else probability)
    checks.not_negative(probability=chance)
    if abs(chance.sum() - 1) > 1e-6:
        raise ValueError(f"Expected a probability that sums to 1, got probability = {chance}. Divide it by its sum.")
    return RandomChoice(graphs, jnp.asarray(chance, jnp.float32), f"random choice({names})")


def table_of(network: Graph | Network) -> Graph:
    """The graph of a fixed network; refused where its table does not describe it completely."""
    graph = graph_of(network)
    refuse_synchronised(graph, "a network that chooses among graphs or their links")
    return graph


def _stacked(networks: Sequence[Graph | Network]) -> tuple[Graph, str]:
    """The graphs stacked along a leading axis p, and a short description of them."""
    graphs = [table_of(network) for network in networks]
    named = [graph.names.names for graph in graphs if graph.names.names is not None]
    if named and len({graph.m for graph in graphs}) == 1:
        orders = [order_of(named[0], graph.names.names or named[0], ("first network", "others")) for graph in graphs]
        graphs = [graph if order is None else relabel(graph, order) for graph, order in zip(graphs, orders)]
        graphs = [replace(graph, names=NodeNames(named[0])) for graph in graphs]
    if not graphs:
        raise ValueError(f"Expected at least one network, got networks = {networks!r}.")
    for i, graph in enumerate(graphs):
        if graph.m != graphs[0].m:
            raise ValueError(
                f"Expected networks of the same size, got m = {graph.m} in networks[{i}] and m = {graphs[0].m} in "
                "networks[0]. Build all for the same number of nodes m."
            )
    d = max(graph.senders.shape[1] for graph in graphs)
    formats = {graph.format for graph in graphs}
    form = graphs[0].format if len(formats) == 1 and "buckets" not in formats else "padded"
    alike = [replace(pad(graph, d), format=form, buckets=None) for graph in graphs]
    names = [network.name if isinstance(network, Static) else "graph" for network in networks]
    shown = ", ".join(names) if len(names) <= 2 else f"{len(names)} networks, {names[0]}, ..., {names[-1]}"
    return jax.tree.map(lambda *leaves: jax.device_put(np.stack(leaves)), *alike), shown


@checked
def one_peer_exponential(m: Nodes, *, hops: Hops = "minimal") -> Periodic:
    """One-peer exponential graph: in round k, node i sends only to node i + 2^(k mod tau), and each takes a mean of
    two.

    B. Ying, K. Yuan, Y. Chen, H. Hu, P. Pan, W. Yin, "Exponential graph is provably efficient for decentralized deep
    training", 2021. Directed and doubly stochastic; node ids are mod m. `hops` sets the period:

        minimal   tau = ceil(log2 m)                  every power of two below m
        paper     tau = ceil(log2(m - 1)) + 1         in the paper of DPPS and PartPSP: 5 for m = 10
        code      tau = floor(log2(m - 1)) + 1        in its published code: 4 for m = 10, always the minimal one

    Where m is a power of two, every node has the exact global mean after tau rounds. The paper's last hop is then m
    itself (except for m = 2), a round without communication. A single node has no in-neighbours.

    Args:
        hops: Which period to use: ceil(log2 m), ceil(log2(m - 1)) + 1, or floor(log2(m - 1)) + 1.
    """
    offsets = exponential_offsets(m)
    if hops == "paper" and m > 1:
        offsets = [2**t % m for t in range(int(m - 2).bit_length() + 1)]
    turns = [circulant(m, [offset] if offset else [], directed=True, connected=False) for offset in offsets]
    name = f"one-peer exponential(m={m}{'' if hops == 'minimal' else f', hops={hops}'})"
    return replace(periodic(turns or [circulant(m, [])]), name=name)


@checked
def period_of(network: Graph | Network) -> int | None:
    """The period of a network in rounds; None for one that is random.

    Args:
        network: Any network, or a graph.
    """
    if isinstance(network, Synchronised):
        inner = period_of(network.base)
        return None if inner is None else math.lcm(inner, int(network.every))
    if isinstance(network, Periodic):
        return network.size
    return 1 if isinstance(network, Graph | Static) else None


def inmost(network: Any, *last: type) -> Any:
    """The innermost network of nested wrappers."""
    while hasattr(network, "base") and not isinstance(network, last):
        network = network.base
    return network


def graphs_of(network: Network, rounds: int) -> Iterator[tuple[str, Graph]]:
    """The graphs of a network, each with a label: all that it has, if they are known, or those of some rounds."""
    inner: Any = inmost(network)
    if isinstance(network, Static):
        yield "", network.graph
        return
    if isinstance(network, Synchronised):  # whose period, with that of the base, may be long
        last = int(network.every) - 1
        for which, graph in graphs_of(network.base, rounds):
            yield f"{which} of its base" if which else "its base", graph
        yield f"round {last}", round_of(network, last)
        return
    if isinstance(inner, RandomChoice):
        for j in np.flatnonzero(np.asarray(inner.probability) > 0).tolist():
            yield f"its choice {j}", inner.turn(j)
        if network is inner:
            return
    if isinstance(inner, Periodic):
        rounds = max(rounds if network is not inner else 1, inner.size)
    for k in range(rounds):
        yield f"round {k}", round_of(network, k)


@checked
def matrices(network: Network, rounds: Count, purpose: str) -> Callable[[int], np.ndarray]:
    """The mixing matrices of a network that is known before the run: W_t [m, m] float64 of round t, on the host.

    Args:
        network: A fixed or periodic network, synchronised or not.
        rounds: Number of initial rounds needed, from 1.
        purpose: What the matrices are for, as named in the message.

    Raises:
        ValueError: For a random network, whose matrices are not known before the run, and for matrices that exceed the
            memory limit.
    """
    m, period = network.m, period_of(network)
    if period is None:
        raise ValueError(
            f"Expected a network that is known before the run for {purpose}, got {called(network)}, which is random. "
            "Use a fixed or a periodic one, such as jdfl.network.d_out."
        )
    count = min(period, rounds)
    if count * m**2 > _MOST_ENTRIES:
        raise ValueError(
            f"Expected at most {_MOST_ENTRIES} entries of mixing matrices for {purpose}, got {count} rounds of "
            f"{m} x {m}. Use fewer nodes, or a network with a shorter period."
        )
    known: dict[bytes, np.ndarray] = {}
    found: list[np.ndarray] = []
    for t in range(count):
        graph = round_of(network, t)
        W = np.full((m, m), 1 / m) if synchronised_now(graph) else np.asarray(as_dense(graph), np.float64)
        found.append(known.setdefault(W.tobytes(), W))
    return lambda t: found[t % period]
