"""Mixing weights and the padded table. NumPy on the host; only `table`, the last step, creates JAX arrays.

The rules for the mixing matrix W, where deg is the number of neighbours of a node:

    metropolis   W_ij = 1 / (1 + max(deg_i, deg_j))     symmetric, doubly stochastic
    laplacian    W = I - L / (1 + max_i deg_i)          symmetric, doubly stochastic; the maximum-degree rule
    uniform      W_ij = 1 / (1 + deg_i)                 rows sum to one; the average over a node and its in-neighbours
    out-degree   W_ij = 1 / (1 + out_j)                 columns sum to one; a node splits its row equally, for push-sum
    by-distance  W_ij = s_ij / (1 + max(S_i, S_j))      symmetric, doubly stochastic; for links of lengths d_ij > 0

With S_i = sum_j s_ij over the neighbours of i, and the similarity s_ij = 2 / (1 + d_ij / median d), which is 2 for near
neighbours, 1 at the median length and 0 far away. The unit of lengths does not matter, and equal lengths give the
metropolis weights: it is the rule of Metropolis and Hastings for a walk that proposes neighbours by similarity.

deg_i is the in-degree of i and out_j the out-degree of j; they differ only in directed networks. By default (None) an
undirected network has metropolis weights and a directed one uniform weights. A directed network can only have uniform
or out-degree weights.

Sources: L. Xiao, S. Boyd, "Fast linear iterations for distributed averaging", 2004 (maximum degree); L. Xiao, S. Boyd,
S. Lall, "A scheme for robust distributed sensor fusion based on average consensus", 2005 (Metropolis); S. Boyd,
P. Diaconis, L. Xiao, "Fastest mixing Markov chain on a graph", 2004 (Metropolis-Hastings); D. Kempe,
A. Dobra, J. Gehrke, "Gossip-based computation of aggregate information", 2003 (push-sum).
"""

from typing import Annotated, Literal

import jax
import numpy as np
from typing_extensions import Doc

from jdfl.base import checks
from jdfl.base.arguments import checked
from jdfl.base.backend import backend
from jdfl.base.settings import Bound
from jdfl.network.graph import Format, Graph, Static
from jdfl.network.sums import bucket_widths, group
from jdfl.network.tables import Arcs, arcs_of, called, check_connected

Weights = Literal["metropolis", "uniform", "laplacian", "out-degree"]
WeightRule = Annotated[
    Weights | None,
    Doc("Rule for the mixing weights; None: metropolis, or uniform if directed. out-degree is for push-sum."),
]
FormatChoice = Annotated[
    Literal["auto", "padded", "dense", "buckets"],
    Doc("How sums over neighbours are computed; auto looks at density, degrees and backend."),
]

DENSE_FROM = {"cpu": 0.5}  # density of W above which one matrix product is faster than gathers, per backend
DENSE_FROM_ACCELERATOR = 0.04
DENSE_UP_TO = 8192  # nodes; W is rebuilt in each round, 256 MiB at this size
BUCKETS_FROM = 2.5  # ratio of the padded table's work to that of buckets above which these win despite the reordering
MOST_SLOTS = 2**31  # of a table: 19 GB
_REMEDY = "Pass a connected graph, or connected=False to accept the network as it is."


def _mixing(links: Arcs, weights: Weights | Literal["by-distance"], lengths: np.ndarray | None) -> np.ndarray:
    """The weight [e] of each arc, by the rules at the top of this file; `lengths` [e] are for by-distance."""
    degree = np.bincount(links.receiver, minlength=links.m)
    if weights == "uniform":
        return 1 / (1 + degree[links.receiver])
    if weights == "out-degree":
        return 1 / (1 + np.bincount(links.sender, minlength=links.m)[links.sender])
    if not links.symmetric:
        raise ValueError(
            f"Expected weights = 'out-degree' or 'uniform' for a directed network, got weights = {weights!r}, which "
            "needs bidirectional links. Pass one of these two, or an undirected graph."
        )
    if weights == "metropolis":
        return 1 / (1 + np.maximum(degree[links.receiver], degree[links.sender]))
    if lengths is not None:
        similarity = 2 / (1 + lengths / (np.median(lengths) if lengths.size else 1.0))
        total = np.bincount(links.receiver, similarity, links.m)
        return similarity / (1 + np.maximum(total[links.receiver], total[links.sender]))
    return np.full(links.sender.size, 1 / (1 + degree.max()))


def _format(links: Arcs, degree: np.ndarray, d: int) -> Format:
    """Choose how `mix` multiplies: by density, size, backend and how much of a table with `d` slots is padding."""
    density = (links.sender.size + links.m) / links.m**2
    enough = DENSE_FROM.get(backend(), DENSE_FROM_ACCELERATOR)
    if links.m <= DENSE_UP_TO and density > enough:
        return "dense"
    slots = int(bucket_widths(degree, d).sum())
    return "buckets" if links.m * d > BUCKETS_FROM * (slots + links.m) else "padded"


def table(
    links: Arcs, weight: np.ndarray, own: np.ndarray | None, format: FormatChoice = "auto", *, columns: bool = False
) -> Graph:
    """Build the padded table of a network."""
    m, receiver, sender = links
    weight = weight.astype(np.float32)
    if own is None:
        own = 1 - np.bincount(sender if columns else receiver, weights=weight, minlength=m)
    degree = np.bincount(receiver, minlength=m)
    slot = np.arange(receiver.size) - (np.cumsum(degree) - degree)[receiver]
    d = max(1, int(degree.max()))
    if m * d > MOST_SLOTS:
        raise ValueError(
            f"Expected a table of at most 2^31 slots, got m = {m} rows of {d}, the largest number of neighbours: "
            f"{9e-9 * m * d:.0f} GB. Take fewer nodes, or a network without such hubs."
        )
    form = _format(links, degree, d) if format == "auto" else format
    senders = np.repeat(np.arange(m, dtype=np.int32)[:, None], d, axis=1)
    senders[receiver, slot] = sender
    weights = np.zeros((m, d), np.float32)
    weights[receiver, slot] = weight
    return Graph(
        senders=jax.device_put(senders),  # asarray would compile a program for every shape
        mask=jax.device_put(np.arange(d) < degree[:, None]),
        weight=jax.device_put(weights),
        self_weight=jax.device_put(np.array(own, np.float32)),
        out_degree=jax.device_put(np.bincount(sender, minlength=m).astype(np.int32)),
        format=form,
        buckets=group(degree, d) if form == "buckets" else None,
    )


def build(
    links: Arcs,
    weights: Weights | Literal["by-distance"] | None,
    format: FormatChoice,
    name: str,
    *,
    connected: bool = True,
    remedy: str = _REMEDY,
    lengths: np.ndarray | None = None,
) -> Static:
    """Build a fixed network from arcs: check connectivity, compute weights, build the table."""
    if connected:
        check_connected(links, remedy)
    rule = weights or ("metropolis" if links.symmetric else "uniform")
    return Static(table(links, _mixing(links, rule, lengths), None, format, columns=rule == "out-degree"), name, rule)


@checked
def laplacian(
    base: Static, iota: Annotated[float, Bound("(0, inf)")] | None = None, *, format: FormatChoice = "auto"
) -> Static:
    """Laplacian weights W = I - L / iota on a fixed undirected network: every link has weight 1 / iota.

    L is the graph Laplacian. W is symmetric and doubly stochastic, with positive own weights.

    Args:
        base: The network that supplies the links; its own weights are not used.
        iota: Larger than d_max, the largest degree. None: d_max + 1, as `weights="laplacian"` does.

    Raises:
        ValueError: For iota <= d_max, and for networks that change or are directed.
    """
    links = arcs_of(base.graph)
    if not links.symmetric:
        raise ValueError(
            f"Expected an undirected network, got {called(base)}, which has one-way links. Its Laplacian would "
            "not be symmetric."
        )
    most = int(np.bincount(links.receiver, minlength=links.m).max())
    iota = most + 1.0 if iota is None else iota
    if not iota > most:
        remedy = f"With less, a node's own weight would be negative or zero; {most + 1} is usual."
        checks.refuse(f"iota > d_max = {most}, the largest degree", "iota", iota, remedy)
    graph = table(links, np.full(len(links.receiver), 1 / float(iota)), None, format)
    return Static(graph, f"laplacian({called(base)}, iota={float(iota):g})").named(base.node_names)
