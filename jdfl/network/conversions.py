"""Networks from edge lists, networkx graphs and matrices, and back to networkx. NumPy on the host."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

import networkx as nx
import numpy as np
import scipy.sparse as sp

from jdfl.base import checks
from jdfl.base.arguments import checked
from jdfl.base.names import Names, aligned, labelled, labels_of, names_of
from jdfl.base.settings import Count
from jdfl.network.graph import Graph, Network, Static
from jdfl.network.properties import centred, largest_modulus
from jdfl.network.tables import (
    Arcs,
    arcs,
    arcs_of,
    check_connected,
    graph_of,
    is_symmetric,
    linked,
    stochastic,
    sum_to_one,
)
from jdfl.network.weights import FormatChoice, Weights, build, table

_OTHER_WEIGHTS = "Or choose weights='metropolis', which ignores these values, or 'by-distance' for lengths."
_SUMS = (
    "Set W[i, i] to 1 minus the sum of the other weights of row i, or divide every row by its sum. For an adjacency "
    "matrix use jdfl.network.from_scipy(A), and for lengths from_scipy(D, weights='by-distance')."
)
_ENDS = (("source", "target"), ("from", "to"))  # columns that may be in any place
_SURELY = 1e-7  # below one; weights are stored as float32


@checked
def from_edges(
    edges: Any,
    m: Count | None = None,
    *,
    weights: Weights | Literal["given", "by-distance"] | Sequence[float] | None = None,
    directed: bool = False,
    format: FormatChoice = "auto",
    name: str = "network",
    connected: bool = True,
) -> Static:
    """The network of a list of edges. Repeats count once, loops are dropped.

    Args:
        edges: Names of nodes [e, 2], a list, an array or a table of two columns; a row (u, v) joins u and v. Whole
            numbers are 0 to m - 1 and nodes are in their order; text, and other whole numbers without m, give nodes in
            sorted order. A third column [e, 3] has a number for every link. Columns that are called source and target,
            or from and to, may be in any place.
        m: The number of nodes; None: one more than the largest number, or the number of different names.
        weights: Rule for the mixing weights; None: as given where there is a third column, otherwise metropolis, or
            uniform if directed. out-degree is for push-sum. "given" takes the third column as mixing weights, as
            `from_networkx` does, and "by-distance" as lengths > 0 in any unit (the formula is at the top of
            `jdfl/network/weights.py`): W_ij = s_ij / (1 + max(S_i, S_j)), with s_ij = 2 / (1 + d_ij / median d) and
            S_i = sum_j s_ij, which is symmetric and doubly stochastic. Or the mixing weights [e] themselves.
        directed: Node v receives from u, and u does not receive from v.
        connected: Refuse a network in several parts.

    Raises:
        ValueError: For numbers that are not whole ones from 0 to m - 1, another number of names than m, a network that
            is not connected, weights that a directed network cannot have, and two numbers for one link.
    """
    pairs, numbers = _columns(edges)
    if weights is not None and not isinstance(weights, str):
        checks.shape((len(pairs),), "Give one weight for every row of edges.", weights=weights)
        numbers, weights = np.asarray(weights), "given"
    if numbers is None and weights in ("given", "by-distance"):
        checks.refuse(
            "edges with a third column of numbers", "weights", weights, "Write a row (u, v, number) per edge."
        )
    if pairs.dtype.kind == "O" and all(_is_number(one) for one in pairs.flat):
        pairs = np.array(pairs.tolist())
    text = pairs.size > 0 and all(isinstance(one, str) for one in pairs.flat)
    if not text and not np.issubdtype(pairs.dtype, np.integer):
        raise ValueError(f"Expected edges of whole numbers, got dtype {pairs.dtype}. Number the nodes 0 .. m-1.")
    found, places = np.unique(pairs.astype(str) if text else pairs, return_inverse=True)
    gaps = pairs.dtype.kind in "iu" and m is None and connected and pairs.size > 0
    names: Names | None = None
    if text or (gaps and found[0] >= 0 and len(found) <= found[-1]):  # whose other numbers would be nodes without links
        names, pairs, m = names_of("edges", found, m), places.reshape(pairs.shape), len(found)
    if m is None:
        m = int(pairs.max()) + 1 if pairs.size else 0
    checks.integer(remedy="Pass m, the number of nodes.", m=m)
    outside = np.flatnonzero(((pairs < 0) | (pairs >= m)).any(axis=1))
    if outside.size:
        first = tuple(int(i) for i in pairs[outside[0]])
        raise ValueError(
            f"Expected node ids from 0 to {m - 1} (m = {m}), got edges[{outside[0]}] = {first} "
            f"({outside.size} such edges). Raise m, or number the nodes 0 .. m-1."
        )
    u, v = pairs.astype(np.int64).T
    nodes = range(m) if names is None else names
    if numbers is None:
        rule = cast(Weights | None, weights)
        return build(linked(u, v, m, directed), rule, format, name, connected=connected).named(nodes)
    graph: Any = nx.DiGraph() if directed else nx.Graph()
    graph.add_nodes_from(nodes)
    for i, j, number in zip(u.tolist(), v.tolist(), numbers.tolist()):
        one, other = nodes[i], nodes[j]
        if (known := graph.get_edge_data(one, other, {"weight": number})["weight"]) != number:
            raise ValueError(
                f"Expected one number for every link, got {known:g} and {number:g} between {one!r} and {other!r}. Give "
                "one of them, or directed=True for a number in each direction."
            )
        graph.add_edge(one, other, weight=number)
    return from_networkx(graph, weights=cast(Any, weights), format=format, name=name, connected=connected)


def _columns(edges: Any) -> tuple[np.ndarray, np.ndarray | None]:
    """The ends [e, 2] of the rows of a table, and the numbers [e] in its third column, if there is one."""
    edges = labelled(edges)
    for ends in _ENDS:
        if hasattr(edges, "columns") and set(ends) <= set(edges.columns):
            edges = edges[[*ends, *(one for one in edges.columns if one not in ends)]]
    checks.plain_array(edges=edges)
    listed = checks.is_a(edges, list | tuple) and any(checks.is_a(one, list | tuple) and one[2:] for one in edges[:1])
    rows = np.asarray(edges, object if listed else None)  # next to names, numbers would become text
    if rows.size == 0:
        rows = np.zeros((0, 2), np.int64)
    if rows.ndim != 2 or rows.shape[1] not in (2, 3):
        raise ValueError(
            f"Expected edges of shape (any, 2), or (any, 3) with a number for every link, got {rows.shape}. Pass one "
            "row (u, v) or (u, v, number) per edge; choose the columns of a table."
        )
    if rows.shape[1] == 2:
        return rows, None
    try:
        pairs, numbers = rows[:, :2], rows[:, 2].astype(float)
    except (TypeError, ValueError) as error:
        checks.refuse("numbers in the third column of edges", "edges", rows[:, 2], f"{checks.message(error)}.")
    checks.finite("They are the weights or the lengths of links.", **{"edges[:, 2]": numbers})
    whole = pairs.dtype.kind == "f" and bool(np.all(pairs % 1 == 0))  # in an array with fractions
    return pairs.astype(np.int64) if whole else pairs, numbers


@checked
def from_networkx(
    graph: "nx.Graph[Any]",
    *,
    weights: Weights | Literal["given", "by-distance"] | None = None,
    format: FormatChoice = "auto",
    name: str | None = None,
    connected: bool = True,
) -> Static:
    """The network of a networkx graph, whose nodes keep their names.

    Nodes are in the order of `graph.nodes`; where all names are whole numbers, in their order.

    An edge u -> v of a DiGraph means that v receives from u. If the edges carry the attribute `weight`, that of u -> v
    is W_vu, kept as by `from_matrix`; a loop is a node's own weight, and without any loop every node keeps the rest of
    its row. If all `weight` are 1, or no edge has one, the graph is a plain one, whose loops are ignored and whose
    parallel edges count once. `summary` says which weights are used.

    Args:
        graph: A Graph, DiGraph, MultiGraph or MultiDiGraph of networkx.
        weights: "given" keeps the weights of the edges, "by-distance" takes them as lengths, as `from_edges` does, and
            a rule ignores them; None: keep them if there are some.
        name: The network's name in messages and reports; None: the graph's own name.
        connected: As for `from_edges` and `from_matrix`.

    Raises:
        ValueError: For an object that is not a networkx graph, a `weight` that is not a number, weights on some edges
            only or on parallel edges, and as `from_edges` and `from_matrix`.
    """
    checks.able(("nodes", "edges", "is_directed"), "a networkx graph", "networkx.Graph(edges) makes one.", graph=graph)
    options: Any = {"format": format, "name": name or graph.name or "network", "connected": connected}
    values = [value for *_, value in cast(Any, graph).edges(data="weight")]
    plain = all(value is None for value in values) or all(_is_number(value) and value == 1 for value in values)
    nodes: list[Any] = list(graph)
    if all(isinstance(one, int | np.integer) and not isinstance(one, bool) for one in nodes):
        nodes = sorted(nodes)
    if weights in ("given", "by-distance") or (weights is None and not plain):
        return _valued(_numbers(graph, nodes), weights == "by-distance", nodes, **options)
    place = {node: i for i, node in enumerate(nodes)}
    edges = [(place[u], place[v]) for u, v in graph.edges()]
    made = from_edges(edges, len(graph), weights=weights, directed=graph.is_directed(), **options)
    return made.named(nodes)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def _numbers(graph: "nx.Graph[Any]", nodes: list[Any]) -> Any:
    """W [m, m] of a graph whose edges u -> v weigh W_vu."""
    for u, v, value in cast(Any, graph).edges(data="weight"):
        if not _is_number(value):
            found = "none" if value is None else repr(value)
            raise ValueError(
                f"Expected numbers as `weight` on every edge or on none, got {found} on the edge {(u, v)}. "
                f"{_OTHER_WEIGHTS}"
            )
        if graph.number_of_edges(u, v) > 1:
            raise ValueError(f"Expected one edge {(u, v)} with a weight, got parallel ones. {_OTHER_WEIGHTS}")
    if len(graph) == 0:
        return np.zeros((0, 0))
    return cast(Any, nx).to_scipy_sparse_array(graph, nodes, dtype=np.float64).T


def _valued(
    numbers: Any, lengths: bool, nodes: Names | list[Any] | None, format: FormatChoice, name: str, connected: bool
) -> Static:
    """The network of numbers [m, m] of links: lengths, or mixing weights, completed by own ones where all are zero."""
    W, links, _ = _entries("weight", numbers)
    if lengths:
        receiver, sender = W.tocoo().coords
        away = W.data[receiver != sender]
        if (short := float(np.min(numbers.data, initial=1.0))) <= 0:
            remedy = (
                "Give the length of every link in one unit, such as kilometres; leave out links that are not there."
            )
            checks.refuse("lengths > 0 with weights='by-distance'", "a length", short, remedy)
        if (odd := abs(W - W.T)).max() > 0:
            i, j = (int(one) for one in np.unravel_index(odd.argmax(), odd.shape))
            raise ValueError(
                f"Expected one length for both directions of a link with weights='by-distance', got {W[i, j]:g} and "
                f"{W[j, i]:g} between nodes {i} and {j}. Give the larger one twice, as numpy.maximum(D, D.T) does, or "
                "choose weights='uniform' for a directed network."
            )
        return build(links, "by-distance", format, name, connected=connected, lengths=away).named(nodes)
    if not W.diagonal().any():
        total = np.asarray(W.sum(axis=1))
        if W.nnz and W.data.min() >= 0 and total.max() > 2:  # own weights below -1 diverge
            i = int(np.argmax(total))
            raise ValueError(
                f"Expected mixing weights of links, whose sum at a node is at most 1, got {total[i]:.6g} at the node "
                f"{i if nodes is None else nodes[i]!r}: counts and distances are no mixing weights. Use "
                "weights='by-distance' for lengths, or weights='metropolis', which looks at the links alone."
            )
        W = W + sp.diags_array(1 - total)
    return from_matrix(W, format=format, name=name, connected=connected).named(nodes)


@checked
def from_scipy(
    adjacency: Any,
    *,
    weights: Weights | Literal["given", "by-distance"] | None = None,
    format: FormatChoice = "auto",
    name: str = "network",
    connected: bool = True,
) -> Static:
    """The network of an adjacency matrix A [m, m]: A[i, j] != 0 means that node i receives from node j.

    The diagonal is ignored. A matrix of mixing weights belongs to `from_matrix`, which keeps them.

    Args:
        adjacency: The matrix [m, m] of real numbers, SciPy sparse or dense; nodes of a DataFrame have the names of its
            rows, and its columns are put in their order.
        weights: Rule for the mixing weights; None: metropolis, or uniform if links run one way, and the matrix has to
            consist of zeros and ones. "by-distance" takes the entries as lengths, as `from_edges` does, and "given" as
            mixing weights; own ones on the diagonal may be left out.
        connected: Refuse a network in several parts.

    Raises:
        ValueError: For a matrix that is not square, real and finite or that is masked, for other values than 0 and 1
            without a rule for the weights, and as `from_edges`.
    """
    matrix, links, names = _entries("adjacency", adjacency)
    if weights in ("given", "by-distance"):
        return _valued(matrix, weights == "by-distance", names, format, name, connected)
    other = np.flatnonzero(matrix.data != 1)
    if weights is None and other.size:
        raise ValueError(
            f"Expected an adjacency matrix of zeros and ones, got {matrix.data[other[0]]:.6g} among its entries "
            f"({other.size} such entries). To keep them as mixing weights, use jdfl.network.from_matrix(W). "
            f"{_OTHER_WEIGHTS}"
        )
    return build(links, weights, format, name, connected=connected).named(names)


@checked
def from_matrix(W: Any, *, format: FormatChoice = "auto", name: str = "network", connected: bool = True) -> Static:
    """The network with the mixing matrix W [m, m], which is kept: node i weighs what it receives from j by W[i, j].

    Rows sum to one (row-stochastic), or columns (column-stochastic, for push-sum), or both (doubly stochastic), within
    1e-5; `summary` says which, and whether W is symmetric. Negative weights are accepted where repeated mixing still
    brings all nodes to agreement. W is stored as float32.

    Args:
        W: The matrix [m, m] of real numbers, SciPy sparse or dense, its diagonal included; nodes of a DataFrame have
            the names of its rows, and its columns are put in their order.
        connected: Refuse a matrix by which the nodes do not come to agreement: one with nodes that nothing arrives at,
            or with a second eigenvalue of modulus one or more. False keeps it, for one round among others.

    Raises:
        ValueError: For a matrix that is not square, real and finite or that is masked, whose rows and columns do not
            sum to one, or that is refused by `connected`.
    """
    matrix, links, names = _entries("W", W)
    if not stochastic(matrix, 0):
        sum_to_one(np.asarray(matrix.sum(axis=1)), _SUMS)
    entries = matrix.tocoo()
    weight = entries.data[entries.coords[0] != entries.coords[1]]
    if connected:
        check_connected(links, "Add links to W, or pass connected=False to keep it as it is.")
        _refuse_disagreement(matrix, links)
    return Static(table(links, weight, matrix.diagonal(), format), name, "given").named(names)


def _refuse_disagreement(matrix: Any, links: Arcs) -> None:
    """Refuse connected weights by which differences between nodes do not vanish: ValueError naming the eigenvalue."""
    lowest = float(matrix.data.min())
    if matrix.shape[0] == 1 or (lowest >= 0 and np.any(matrix.diagonal() > 0)):
        return
    if lowest >= 0:  # by Perron and Frobenius, others have modulus one if all cycles' lengths share a divisor
        if nx.is_aperiodic(nx.DiGraph(list(zip(links.sender.tolist(), links.receiver.tolist())))):
            return
        second = 1.0
    else:
        rows = matrix if stochastic(matrix, 1) else matrix.T.tocsr()
        second = largest_modulus(lambda x: centred(rows @ x), matrix.shape[0], symmetric=is_symmetric(rows))
    if second >= 1 - _SURELY:
        raise ValueError(
            f"Expected W whose second eigenvalue is below 1 in modulus, got |lambda_2| = {second:.6g}; the lowest "
            f"weight is {lowest:.6g}: differences between nodes would not vanish. Use weights >= 0, and lazily, "
            "(W + identity) / 2; or a rule of from_networkx, weights='metropolis' or 'by-distance'; or pass "
            "connected=False to keep it as it is."
        )


def _entries(name: str, given: Any) -> tuple[sp.csr_array, Arcs, Names | None]:
    """A square matrix of finite numbers [m, m] without stored zeros, its links, and the names of its nodes."""
    if isinstance(given, Graph | Static) or hasattr(given, "edges"):
        remedy = "jdfl.network.to_scipy gives the matrix of a network, jdfl.network.from_networkx takes its graphs."
        checks.refuse(f"{name} to be a matrix of numbers", name, given, remedy)
    given, names = labelled(given), None
    if not sp.issparse(given):
        if checks.is_a(given, Mapping):
            checks.refuse(f"{name} to be a matrix of numbers", name, given, "Make one with pandas.DataFrame(...).")
        checks.plain_array("Pass a matrix of numbers.", **{name: given})
        given = aligned(name, given, labels_of(given), f"the rows of {name}", axis=1)
        if (rows := labels_of(given)) is not None and type(rows).__name__ != "RangeIndex":
            order = np.argsort(rows.to_numpy()) if rows.dtype.kind in "iu" else np.arange(len(rows))
            given = given.iloc[order, order]
            names = names_of(f"{name}.index", given.index)
    found = given if sp.issparse(given) else np.asarray(given)
    checks.real("Pass a matrix of real numbers.", **{name: found})
    m = found.shape[0] if found.ndim else 0
    checks.shape((m, m), "Pass a square matrix with one row per node.", **{name: found})
    checks.integer(remedy="Pass at least one node.", m=m)
    matrix = sp.csr_array(found, dtype=np.float64)
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    entries = matrix.tocoo()
    receiver, sender = (np.asarray(axis, np.int64) for axis in entries.coords)
    bad = np.flatnonzero(~np.isfinite(entries.data))
    if bad.size:
        i = bad[0]
        raise ValueError(
            f"Expected finite numbers in {name}, got {name}[{receiver[i]}, {sender[i]}] = {entries.data[i]} "
            f"({bad.size} such entries). Replace them by weights, or by 0 for no link."
        )
    return matrix, arcs(receiver, sender, m), names


@checked
def to_networkx(network: Graph | Network) -> "nx.Graph[Any]":
    """The links of a fixed network as a networkx graph, without weights; its nodes have names, or are 0 .. m-1.

    Args:
        network: A fixed network, or the graph of one round.

    Returns:
        A Graph, or a DiGraph with an edge u -> v where v receives from u, if a link runs one way only.
    """
    graph = graph_of(network)
    links, names = arcs_of(graph), graph.names.names or range(graph.m)
    result: nx.Graph[Any] = nx.Graph() if links.symmetric else nx.DiGraph()
    result.add_nodes_from(names)
    result.add_edges_from((names[j], names[i]) for j, i in zip(links.sender.tolist(), links.receiver.tolist()))
    return result
