"""Networks that change from round to round by choosing among given graphs, or among the links of one.

Every sequence is a frozen pytree with `m`, `name`, `at(k, key)` for traced k, and `largest_out_degree`, the most nodes
that can hear one node in any round.

Axes: m nodes, d slots of the table, p graphs.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jdfl import checks, struct
from jdfl.arguments import checked
from jdfl.network.arcs import arcs_of, graph_of, refuse_synchronised
from jdfl.network.families import circulant, complete, exponential_offsets
from jdfl.network.graph import Graph, Network, Static
from jdfl.network.links import equal_shares, link_uniform
from jdfl.network.tables import pad
from jdfl.network.weights import Weights
from jdfl.streams import Stream

_LINK = Stream("network.links", "network")
Hops = Literal["minimal", "paper", "code"]


@struct.dataclass
class Periodic:
    """Graph k mod p in round k."""

    graphs: Graph  # every array with p in front
    name: str = struct.field(pytree_node=False, default="network")

    @property
    def m(self) -> int:
        """The number of nodes."""
        return self.graphs.senders.shape[1]

    def at(self, k: Array, key: Array) -> Graph:
        """The graph whose turn it is."""
        return _pick(self.graphs, k % self.graphs.senders.shape[0])

    @property
    def largest_out_degree(self) -> int:
        """The most nodes that hear one node in any round (on the host)."""
        return int(np.max(np.asarray(self.graphs.out_degree)))


@struct.dataclass
class RandomChoice:
    """One of p graphs, drawn anew in every round."""

    graphs: Graph  # every array with p in front
    probability: Array  # [p] float32
    name: str = struct.field(pytree_node=False, default="network")

    @property
    def m(self) -> int:
        """The number of nodes."""
        return self.graphs.senders.shape[1]

    def at(self, k: Array, key: Array) -> Graph:
        """The graph that this round's key draws."""
        return _pick(self.graphs, jax.random.choice(key, self.probability.shape[0], p=self.probability))

    @property
    def largest_out_degree(self) -> int:
        """The most nodes that hear one node in any round (on the host)."""
        return int(np.max(np.asarray(self.graphs.out_degree)))


@struct.dataclass
class RandomLinks:
    """Every link of a graph up with one probability in every round, weights by the links that are up."""

    graph: Graph
    p: Array  # float32 [] probability that a link is up
    weights: Weights = struct.field(pytree_node=False)
    directed: bool = struct.field(pytree_node=False)  # whether the two ways of a link are drawn apart
    name: str = struct.field(pytree_node=False, default="network")

    @property
    def m(self) -> int:
        """The number of nodes."""
        return self.graph.m

    def at(self, k: Array, key: Array) -> Graph:
        """The links that are up. Both ends of a link draw with the same key, so nothing is stored or sent for it."""
        graph, m = self.graph, self.m
        receiver = jnp.arange(m, dtype=jnp.int32)[:, None]
        up = graph.mask & (link_uniform(key, _LINK, graph, directed=self.directed) < self.p)
        senders = jnp.where(up, graph.senders, receiver)
        degree = jnp.sum(up, axis=1, dtype=jnp.int32)
        sent = jnp.zeros((m,), jnp.int32).at[senders].add(up.astype(jnp.int32)) if self.directed else degree
        if self.weights == "out-degree":
            share, own = equal_shares(sent)
            weight = jnp.where(up, share[senders], 0)
        else:
            weight = jnp.where(up, 1 / (1 + self._larger(degree, senders)), 0).astype(jnp.float32)
            own = 1 - jnp.sum(weight, axis=1)
        return replace(
            graph,
            senders=senders,
            mask=up,
            weight=weight,
            self_weight=own,
            out_degree=sent,
        )

    def _larger(self, degree: Array, senders: Array) -> Array:
        """The in-degree [m, d] or [m, 1] that a weight is made of, as a float."""
        degree = degree.astype(jnp.float32)
        if self.weights == "metropolis":
            return jnp.maximum(degree[:, None], degree[senders])
        return degree[:, None] if self.weights == "uniform" else jnp.max(degree)[None, None]

    @property
    def largest_out_degree(self) -> int:
        """The most nodes that can hear one node in a round (on the host)."""
        return int(np.max(np.asarray(self.graph.out_degree)))


def _pick(graphs: Graph, place: Array) -> Graph:
    return jax.tree.map(lambda leaf: leaf[place], graphs)


@checked
def periodic(networks: Sequence[Graph | Network]) -> Periodic:
    """The given fixed networks in turn: network k mod p in round k.

    Their tables are padded to the widest one; formats that differ, and buckets, give way to "padded". Raises
    `ValueError` for no networks, for different numbers of nodes, and for a network that itself changes.
    """
    graphs, names = _stacked(networks)
    return Periodic(graphs, f"periodic({names})")


@checked
def random_choice(
    networks: Sequence[Graph | Network], probability: Sequence[float] | np.ndarray | None = None
) -> RandomChoice:
    """One of the given fixed networks in every round, drawn with `probability` [p] (None: all alike).

    Tables and formats as for `periodic`. Raises `ValueError` as `periodic`, and for probabilities that are negative or
    do not sum to one.
    """
    graphs, names = _stacked(networks)
    p = graphs.senders.shape[0]
    chance = np.full(p, 1 / p) if probability is None else np.asarray(probability)
    checks.shape((p,), "Give one probability per network.", probability=chance)
    checks.not_negative(probability=chance)
    if abs(chance.sum() - 1) > 1e-6:
        raise ValueError(f"Expected a probability that sums to 1, got probability = {chance}. Divide it by its sum.")
    return RandomChoice(graphs, jnp.asarray(chance, jnp.float32), f"random choice({names})")


def _table_of(network: Graph | Network) -> Graph:
    """The one graph of a fixed network, refused where its table is not all there is to it."""
    graph = graph_of(network)
    refuse_synchronised(graph, "a network that chooses among graphs or their links")
    return graph


def _stacked(networks: Sequence[Graph | Network]) -> tuple[Graph, str]:
    """The graphs as one with p in front of every array, and their names in a few words."""
    if not checks.is_a(networks, Sequence):
        raise ValueError(f"Expected a list of networks, got networks of type {type(networks).__name__}. Give a list.")
    graphs = [_table_of(network) for network in networks]
    if not graphs:
        raise ValueError(f"Expected at least one network, got networks = {networks!r}.")
    for i, graph in enumerate(graphs):
        if graph.m != graphs[0].m:
            raise ValueError(
                f"Expected networks of the same size, got m = {graph.m} in networks[{i}] and m = {graphs[0].m} in "
                "networks[0]. Build all for the same number of nodes m."
            )
    d = max(graph.senders.shape[1] for graph in graphs)
    formats = {graph.format for graph in graphs} - {"buckets"}
    form = formats.pop() if len(formats) == 1 and all(graph.format in formats for graph in graphs) else "padded"
    alike = [replace(pad(graph, d), format=form, buckets=None) for graph in graphs]
    names = [network.name if isinstance(network, Static) else "graph" for network in networks]
    shown = ", ".join(names) if len(names) <= 2 else f"{len(names)} networks, {names[0]}, ..., {names[-1]}"
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *alike), shown


@checked
def random_links(base: Graph | Network, p: float, *, weights: Weights | None = None) -> RandomLinks:
    """Every link of `base` is up with probability `p`, drawn anew in every round and for every link.

    Both directions of a link go together, unless the base is directed. `weights` (None: as `from_edges`) are computed
    from the links that are up; the base's own are not used. With `base=complete(m)` this is an Erdos-Renyi network
    drawn anew in every round. A round costs what all links of the base cost. A round's network need not be connected,
    and a node may hear nobody: it then keeps its own row.

    Raises `ValueError` for p outside (0, 1], weights that a directed network cannot have, and a base that changes.
    """
    graph = _table_of(base)
    checks.fraction(p=p)
    checks.shape((), "It is one number for all links.", p=p)
    checks.one_of([*get_args(Weights), None], weights=weights)
    directed = not arcs_of(graph).symmetric
    if directed and weights not in ("uniform", "out-degree", None):
        raise ValueError(
            f"Expected weights = 'out-degree' or 'uniform' with a directed base, got weights = {weights!r}, which "
            "needs every link to run both ways. Pass one of these two, or an undirected base."
        )
    rule: Weights = weights or ("uniform" if directed else "metropolis")
    name = f"random links(p={p:g}) of {base.name if isinstance(base, Static) else 'graph'}"
    return RandomLinks(graph, jnp.float32(p), rule, directed, name)


@checked
def erdos_renyi_rounds(m: int, p: float = 0.45, *, weights: Weights | None = None) -> RandomLinks:
    """G(m, p) drawn anew in every round, connected or not: `random_links` of the complete network.

    A round costs what all m (m - 1) / 2 links cost. `weights` are as for `random_links`. The CEPS paper's
    D-PSGD-DN runs on it (section V).
    """
    drawn = random_links(complete(m), p, weights=weights)
    return replace(drawn, name=f"Erdos-Renyi rounds(m={m}, p={p:g})")


@checked
def one_peer_exponential(m: int, *, hops: Hops = "minimal") -> Periodic:
    """Node i sends to node i + 2^(k mod tau) alone in round k, so that it hears i - 2^(k mod tau); means of the two.

    B. Ying, K. Yuan, Y. Chen, H. Hu, P. Pan, W. Yin, "Exponential graph is provably efficient for decentralized deep
    training", 2021. Directed and doubly stochastic. Ids are mod m, and `hops` says how many there are in turn:

        minimal   tau = ceil(log2 m)                  every power of two below m
        paper     tau = ceil(log2(m - 1)) + 1         as the paper of DPPS and PartPSP has it: 5 for m = 10
        code      tau = floor(log2(m - 1)) + 1        as its published code has it: 4 for m = 10, always the minimal one

    Where m is a power of two, tau rounds give everyone the mean of all exactly; the paper's last hop is then m itself
    (but for m = 2), and all are alone in that round. One node hears nobody. Raises `ValueError` for other `hops`.
    """
    checks.one_of(get_args(Hops), hops=hops)
    offsets = exponential_offsets(m)
    if hops == "paper" and m > 1:
        tau = int(m - 2).bit_length() + 1
        offsets = [2**t % m for t in range(tau)]
    turns = [circulant(m, [offset] if offset else [], directed=True, connected=False) for offset in offsets]
    name = f"one-peer exponential(m={m}{'' if hops == 'minimal' else f', hops={hops}'})"
    return replace(periodic(turns or [circulant(m, [])]), name=name)
