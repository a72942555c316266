"""Properties of networks on the host before a run: connectivity, eigenvalues, growth, and what methods need.

The disagreement of rows x is x - J x, where all entries of J are 1 / m. Where rows of W sum to one, a round multiplies
its expected square by at most || E[W^T (I - J) W] ||, as in "MATCHA" (see `matching`). Rounds known in advance repeat
after p of them; over one period x - J x is multiplied by prod_k (I - J) W_k.

Axes: m nodes.
"""

import itertools
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg as la
import scipy.sparse as sp
import scipy.sparse.linalg as spla
from jax import Array, lax

from jdfl.base.arguments import checked
from jdfl.base.display import Described
from jdfl.network.combining import PartialCommunication, Synchronised
from jdfl.network.faults import BurstyLoss, LinkLoss, NodeParticipation, Outages
from jdfl.network.graph import Format, Graph, Network, Static, round_of
from jdfl.network.late import Delays
from jdfl.network.links import in_run
from jdfl.network.matching import Matchings, mean_square, moments
from jdfl.network.sequences import Periodic, RandomChoice, graphs_of, inmost, period_of
from jdfl.network.tables import (
    TOLERANCE,
    Arcs,
    arcs,
    arcs_of,
    called,
    check_graph,
    components,
    graph_of,
    is_symmetric,
    kind_of,
    refuse_synchronised,
    stochastic,
    synchronised_now,
    to_scipy,
)
from jdfl.network.timing import Timed
from jdfl.network.weights import table

Stochastic = Literal["doubly", "row", "column", "neither"]

DENSE_UP_TO = 1500  # nodes; up to here the gap is found from all eigenvalues of a dense matrix
DIAMETER_UP_TO = 2000  # nodes
EXACT_UP_TO = 300  # nodes; up to here all eigenvalues of products and mean squares of W are computed
_RESTARTS = 30  # of the Krylov methods
_BASIS = 40  # vectors between restarts
_PRODUCTS = 200  # with a vector, from whose growth the spectral radius is known where these do not converge

_CHECKED = 3  # rounds of a changing network that are checked
_OWN_ROUNDS = 1000  # rounds of one defined outside jdfl, whose sums of weights are checked
_OWN_SLOTS = 2**25  # of the tables of these rounds
_drawn: dict[int, tuple[Any, np.ndarray | None]] = {}  # what was found of networks that were drawn from
_STEPS = 100_000  # of the iteration for the weights of nodes

_DRAWN = 200  # rounds from which a mean is estimated, half of them to find the direction of fastest growth
_LEAST_DRAWN = 8  # rounds of a large network
_STORED = 2**26  # entries of the matrices of these rounds, 800 MB
_TOWARDS = 30  # products of the power method that finds that direction
_SURE = 3.0  # standard errors

_PROPERTIES: tuple[tuple[Callable[[Arcs, Any], bool], str], ...] = (  # tests of arcs and W, and their error messages
    (
        lambda links, W: links.symmetric,
        "an undirected network for {method}, whose nodes reply to their in-neighbours, got {network}, which has "
        "one-way links{when}. Use an undirected one, such as jdfl.network.erdos_renyi(m).",
    ),
    (
        lambda links, W: stochastic(W, 0) and stochastic(W, 1),
        "doubly stochastic weights for {method}, which relies on mixing to preserve the mean of nodes, got {network}, "
        "which has rows or columns of weights that do not sum to one{when}. Use weights='metropolis' on an undirected "
        "network, such as jdfl.network.erdos_renyi(m).",
    ),
    (
        lambda links, W: stochastic(W, 0),
        "column-stochastic weights for {method}, which relies on mixing to preserve the sum over nodes, got {network}, "
        "which has columns of weights that do not sum to one{when}. Use weights='out-degree', or "
        "jdfl.network.d_out(m, d).",
    ),
    (
        lambda links, W: bool(abs(W - W.T).max() <= TOLERANCE),
        "symmetric weights for {method}, which needs W_ij = W_ji on each link, got {network}, which has weights W with "
        "W_ij != W_ji{when}. Use weights='metropolis' on an undirected network, such as jdfl.network.erdos_renyi(m).",
    ),
)


@dataclass(frozen=True, repr=False)
class Summary(Described):
    """The result of `summary`, which is shown in a few lines."""

    name: str
    nodes: int  # m
    edges: int  # undirected links, or arcs if directed
    directed: bool
    degree_min: int  # in-degree, excluding the node itself
    degree_mean: float  # average in-degree
    degree_max: int  # largest in-degree
    density: float  # arcs / (m (m - 1))
    padding_ratio: float  # share of the table's slots that are padding
    connected: bool  # strongly, if directed
    diameter: int | None  # None: not connected, or too large to compute
    stochastic: Stochastic  # whether rows, columns, both or neither of W sum to one
    symmetric: bool  # whether W = W^T
    spectral_gap: float | None  # None: did not converge
    rule: str | None  # name of the weights, or "given" for those of a given matrix or edge list; None: unknown
    format: Format
    mix_slots: int  # slots that one `mix` in this format reads

    def _described(self) -> tuple[str, list[tuple[str, str]]]:
        if self.diameter is None:
            diameter = f"not computed above {DIAMETER_UP_TO} nodes" if self.connected else "infinite"
        else:
            diameter = str(self.diameter)
        stochastic = "not stochastic" if self.stochastic == "neither" else f"{self.stochastic}-stochastic"
        stochastic = stochastic.replace("doubly-", "doubly ")
        gap = "not computed (no convergence)" if self.spectral_gap is None else f"{self.spectral_gap:.4g}"
        stochastic = stochastic if self.symmetric else f"{stochastic}, not symmetric"
        rule = "" if self.rule is None else f"{self.rule}, "
        links = "directed arcs" if self.directed else "links"
        slots = [("", f"mixing reads {self.mix_slots:,} slots")] if self.format == "buckets" else []
        return self.name, [
            ("nodes", f"{self.nodes:,}"),
            ("edges", f"{self.edges:,} {links} (density {self.density:.3g})"),
            ("degree", f"min {self.degree_min}, mean {self.degree_mean:.4g}, max {self.degree_max}"),
            ("connected", f"{'yes' if self.connected else 'NO'}, diameter {diameter}"),
            ("weights", f"{rule}{stochastic}, spectral gap {gap}"),
            ("format", f"{self.format}, {self.padding_ratio:.1%} of the table is padding"),
            *slots,
        ]


@checked
def summary(network: Graph | Network) -> Summary:
    """Size, degrees, connectivity, mixing weights with their spectral gap, and storage of a fixed network.

    The diameter is computed up to 2000 nodes.

    Args:
        network: A fixed network, or the graph of one round; `ValueError` for one that changes from round to round.

    Returns:
        Counts of nodes, links, neighbours and slots, shares in [0, 1], and the result of `spectral_gap`.
    """
    graph = graph_of(network)
    links = arcs_of(graph)
    if synchronised_now(graph):
        graph = table(links, np.full(links.sender.size, 1 / graph.m), None, "padded")
    degree = np.bincount(links.receiver, minlength=graph.m)
    directed, connected = not links.symmetric, components(links)[0] == 1
    try:
        gap = spectral_gap(graph)
    except ArithmeticError:
        gap = None
    arcs = links.sender.size
    W: Any = to_scipy(graph)
    rows, columns = stochastic(W, 1), stochastic(W, 0)
    slots = graph.m**2 if graph.format == "dense" else graph.senders.size
    if graph.format == "buckets" and graph.buckets is not None:
        slots = graph.buckets.slots
    return Summary(
        name=called(network),
        nodes=graph.m,
        edges=arcs if directed else arcs // 2,
        directed=directed,
        degree_min=int(degree.min()),
        degree_mean=float(degree.mean()),
        degree_max=int(degree.max()),
        density=arcs / max(1, graph.m * (graph.m - 1)),
        padding_ratio=1 - arcs / graph.senders.size,
        connected=connected,
        diameter=_diameter(links) if connected and graph.m <= DIAMETER_UP_TO else None,
        stochastic="doubly" if rows and columns else "row" if rows else "column" if columns else "neither",
        symmetric=bool(abs(W - W.T).max() <= TOLERANCE),
        spectral_gap=gap,
        rule=network.rule if isinstance(network, Static) else None,
        format=graph.format,
        mix_slots=slots,
    )


def _diameter(links: Arcs) -> int:
    """The diameter of a connected network, by about 2 log2(diameter) products of 0/1 matrices, whatever its density."""

    def times(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return (a @ b > 0).astype(np.float32)

    if links.m == 1:
        return 0
    reach = np.eye(links.m, dtype=np.float32)
    reach[links.receiver, links.sender] = 1
    powers = [reach]  # powers[k]: reachable within 2^k steps
    while not powers[-1].all():
        powers.append(times(powers[-1], powers[-1]))
    length, within = 0, np.eye(links.m, dtype=np.float32)  # the longest walk length that does not reach every node
    for k in reversed(range(len(powers) - 1)):
        further = times(within, powers[k])
        if not further.all():
            length, within = length + 2**k, further
    return length + 1


@checked
def spectral_gap(network: Graph | Network) -> float:
    """The spectral gap of W, one minus its second largest eigenvalue in modulus: larger means faster consensus.

    A single node has gap 1, a disconnected network gap 0.

    Args:
        network: A fixed network, or the graph of one round, with W [m, m].

    Returns:
        A dimensionless number from 0, where nodes never agree, to 1, where they agree in one round; negative if W
        expands.

    Raises:
        ValueError: For a network that changes from round to round.
        ArithmeticError: If the iteration for a large asymmetric W does not converge.
    """
    stored: Any = to_scipy(graph_of(network))
    m = int(stored.shape[0])
    if m == 1:
        return 1.0
    rows_sum = stochastic(stored, 1)
    # The float32 rounding of the diagonal would hide small gaps.
    W = stored + sp.diags_array(1 - np.asarray(stored.sum(axis=1))) if rows_sum else stored
    symmetric = is_symmetric(W)
    if m <= DENSE_UP_TO:
        dense: np.ndarray = W.toarray()
        values = np.linalg.eigvalsh(dense) if symmetric else np.linalg.eigvals(dense)
        second = np.sort(np.abs(values))[-2]
    else:
        second = _second_symmetric(W) if symmetric and rows_sum else _second(W)
    return float(1 - second)


def _start(m: int) -> np.ndarray:
    """The start vector of the Krylov methods."""
    return np.random.default_rng(0).standard_normal(m)


def _second_symmetric(W: Any) -> float:
    """The second eigenvalue in modulus of a symmetric W whose rows sum to one, so that W 1 = 1 can be deflated."""
    m = int(W.shape[0])
    start, one = _start(m), np.ones((m, 1))
    rest = spla.aslinearoperator(W) - spla.aslinearoperator(one) @ spla.aslinearoperator(one.T / m)
    try:
        return float(abs(spla.eigsh(rest, k=1, v0=start, maxiter=_RESTARTS, return_eigenvectors=False)[0]))
    except spla.ArpackNoConvergence:
        # Slow convergence means a small gap, hence a network with small cuts, whose factorisation has little fill-in.
        near: Any = partial(spla.eigsh, W, v0=start, return_eigenvectors=False)
        top, bottom = near(k=2, sigma=1 + 1e-9), near(k=1, sigma=-1 - 1e-9, tol=1e-3)
        return float(max(abs(top.min()), abs(bottom[0])))


def _second(W: Any) -> float:
    try:
        values = spla.eigs(W, k=2, v0=_start(int(W.shape[0])), ncv=_BASIS, maxiter=_RESTARTS, return_eigenvectors=False)
    except spla.ArpackNoConvergence as error:
        raise ArithmeticError(
            f"The second eigenvalue of the asymmetric mixing matrix (m = {W.shape[0]}) did not converge in {_RESTARTS} "
            "restarts; its spectral gap is probably very small."
        ) from error
    return float(np.abs(values).min())


def centred(x: Any) -> np.ndarray:
    """Rows [m] or [m, n] minus their mean."""
    rows: np.ndarray = np.asarray(x)
    return rows - rows.mean(axis=0)


def largest_modulus(product: Callable[[np.ndarray], np.ndarray], m: int, *, symmetric: bool) -> float:
    """The spectral radius on centred vectors of a matrix [m, m], given as a function that multiplies by it.

    It is exact up to 300 nodes, and has a relative error below 1e-3 where the Krylov methods converge. Otherwise it is
    the mean growth of a vector in the last 100 of 200 products, a lower bound where the matrix is normal.
    """
    if m == 1:
        return 0.0
    if m <= EXACT_UP_TO:
        dense = product(centred(np.eye(m)))
        return float(np.max(np.abs(la.eigvalsh(dense) if symmetric else la.eigvals(dense))))
    library: Any = spla
    linear = library.LinearOperator((m, m), matvec=product, matmat=product, dtype=np.float64)
    v = centred(_start(m))
    try:
        find = partial(library.eigsh if symmetric else library.eigs, linear, k=1, ncv=min(m, _BASIS), tol=1e-3)
        found = find(v0=v, maxiter=_RESTARTS, return_eigenvectors=False)
        return float(np.abs(found).max())
    except spla.ArpackError:  # the iteration does not converge, or nothing is left of the vector
        growth = list[float]()
    for _ in range(_PRODUCTS):
        v = product(v / np.linalg.norm(v))
        growth.append(float(np.linalg.norm(v)))
        if growth[-1] == 0:
            return 0.0
    return float(np.exp(np.mean(np.log(growth[_PRODUCTS // 2 :]))))


def spectral_radius(graphs: Sequence[Graph]) -> float:
    """The spectral radius of the product of (I - J) W over the graphs in turn, as `largest_modulus` finds it."""
    matrices: list[Any] = [to_scipy(graph) for graph in graphs]
    symmetric = len(matrices) == 1 and is_symmetric(matrices[0])
    return largest_modulus(lambda x: reduce(lambda y, W: centred(W @ y), matrices, x), graphs[0].m, symmetric=symmetric)


def mean_growth(network: Network) -> tuple[float, float | None]:
    """The expected growth of the squared disagreement in a round, or in a period of a periodic network inside wrappers,
    and its standard error; None: it is no estimate.

    || E[W^T (I - J) W] ||, exact for matchings, by `largest_modulus` for random choices, and estimated for other
    networks: the disagreement with the largest mean growth is found on one half of the rounds, and its growth measured
    on the other half.
    """
    while isinstance(network, Timed):  # which has the weights of its base
        network = network.base
    if isinstance(network, Matchings):
        p = np.asarray(network.p, np.float64)
        return mean_square(float(network.alpha), *moments(p, np.asarray(network.partner))), None
    if isinstance(network, RandomChoice):
        chance = np.asarray(network.probability, np.float64)
        chosen = [(p / chance.sum(), to_scipy(network.turn(j))) for j, p in enumerate(chance.tolist()) if p > 0]
        return largest_modulus(partial(_squared, chosen), network.m, symmetric=True), None
    period = period_of(inmost(network, PartialCommunication)) or 1
    drawn, entries = list[Any](), 0
    for k in range(0, _DRAWN * period, period):
        rounds: list[Any] = [to_scipy(round_of(network, t)) for t in range(k, k + period)]
        drawn.append(reduce(lambda earlier, W: W @ earlier, rounds))
        entries += drawn[-1].nnz
        if entries > _STORED and len(drawn) >= _LEAST_DRAWN:
            break
    v = centred(np.random.default_rng(0).standard_normal(network.m))
    for _ in range(_TOWARDS):
        v = _squared([(1.0, W) for W in drawn[::2]], v / (np.linalg.norm(v) or 1.0))
    v = v / (np.linalg.norm(v) or 1.0)
    found = np.array([np.sum(centred(W @ v) ** 2) for W in drawn[1::2]])
    return float(found.mean()), float(found.std(ddof=1) / np.sqrt(found.size))


def _squared(matrices: list[tuple[float, Any]], x: np.ndarray) -> np.ndarray:
    """(I - J) sum_c p_c W_c^T (I - J) W_c x for probabilities p_c and matrices W_c."""
    return centred(sum(chance * (W.T @ centred(W @ x)) for chance, W in matrices))


@checked
def require(
    network: Network,
    method: str,
    *,
    fixed: bool = False,
    undirected: bool = False,
    doubly_stochastic: bool = False,
    column_stochastic: bool = False,
    symmetric_weights: bool = False,
    connected: bool = False,
    table: bool = False,
) -> None:
    """Refuse a network that lacks a property that a method needs.

    Links and weights are tested on the graph, weights to within 1e-5. For a periodic network or a random choice every
    graph is tested; for other changing networks, those of the first three rounds, so a rare exception may pass.

    Args:
        fixed: The same neighbours in every round and no lost message, which only a `Static` network guarantees.
        undirected: Every link runs both ways.
        doubly_stochastic: Rows and columns of W sum to one.
        column_stochastic: Columns of W sum to one.
        symmetric_weights: W = W^T.
        connected: The links of all rounds of a fixed or periodic network together form a strongly connected graph. For
            wrappers the innermost network is tested; networks that are redrawn in each round are not tested; one with
            synchronised rounds counts as connected.
        table: No synchronised rounds, in which W is not what the table of neighbours says.

    Raises:
        ValueError: It names the method, the property, why it is needed, the network, and one that has it.
    """
    if fixed and not isinstance(network, Static):
        raise ValueError(
            f"Expected a fixed network for {method}, which builds on everything that the same neighbours sent in "
            f"earlier rounds, so that no message may be lost, got {called(network)}, which may change from round to "
            "round. Use a fixed one, such as jdfl.network.erdos_renyi(m), or D-PSGD, which takes any network."
        )
    if table:
        refuse_synchronised(network, method)
    inner = inmost(network)
    if connected and isinstance(inner, Static | Periodic) and kind_of(network).synchronised is None:
        rounds = [arcs_of(graph) for _, graph in graphs_of(inner, 1)]
        receiver, sender = (np.concatenate([getattr(links, end) for links in rounds]) for end in ("receiver", "sender"))
        count, largest = components(arcs(receiver, sender, network.m))
        if count > 1:
            raise ValueError(
                f"Expected a strongly connected network for {method}, in which information from each node reaches all "
                f"others, got {called(network)}, whose links form {count} components, the largest with {largest} of "
                f"{network.m} nodes. Use a connected one, such as jdfl.network.d_out(m, 2) or "
                "jdfl.network.one_peer_exponential(m)."
            )
    asked = (undirected, doubly_stochastic, column_stochastic, symmetric_weights)
    for which, graph in graphs_of(network, _CHECKED) if any(asked) else ():
        links, W, when = arcs_of(graph), to_scipy(graph), f" ({which})" if which else ""
        for holds, refusal in itertools.compress(_PROPERTIES, asked):
            if not holds(links, W):
                raise ValueError(f"Expected {refusal.format(method=method, network=called(network), when=when)}")


@checked
def check_weights(network: Network, method: str, *, columns: bool = False, mixes: bool = True) -> None:
    """Check the graphs of a network before a run: `check_graph`, and that mixing does not expand.

    Checked are all graphs of fixed and periodic networks and of random choices, and one round of a network that is
    redrawn in each round. Of one defined outside jdfl, whose period is unknown, three rounds are checked, and the sums
    of the weights in the first 1000 (fewer where m times the slots exceeds 33,000).

    Where a method mixes, negative weights are accepted only if differences between nodes do not grow; with nonnegative
    weights whose rows sum to one they never do. Single rounds may expand. For fixed and periodic networks, no
    eigenvalue of the product of W - J over a period may exceed one in modulus (within 1e-5; J: all entries 1 / m). This
    is exact up to 300 nodes; beyond, products of W with vectors decide, so a factor that exceeds one by less than 0.001
    may pass (by less than 0.02 where W is not symmetric). For networks with random weights, the mean over rounds must
    satisfy || E[W^T W] - J || < 1: computed for random choices and MATCHA's matchings; others in which negative weights
    were seen are refused if the mean of 100 rounds, or of 100 periods, exceeds one by three standard errors (of 4 at
    least, where 200 matrices have more than 2^26 entries).

    Args:
        columns: Require columns of W that sum to one, for push-sum; negative weights are then refused, since the
            push-sum weights of nodes could vanish.
        mixes: Whether the method multiplies by W.

    Raises:
        ValueError: It says which graph fails, and how.
    """
    inner = inmost(network, PartialCommunication)  # which has its own weights
    lowest, where = 0.0, called(network)
    if isinstance(inner, Matchings):  # a node may be linked to all its neighbours in one round
        alpha = float(inner.alpha)
        lowest = min(alpha, 1 - alpha * inner.largest_out_degree)
    elif isinstance(inner, Static | Periodic | RandomChoice) and inner is not network:
        lowest = min(_lowest(graph) for _, graph in graphs_of(inner, 1))
    graphs = graphs_of(network, 1)
    if _foreign(network):
        graphs = itertools.chain(graphs_of(network, _CHECKED), _suspected(network, columns))
    for which, graph in graphs:
        here = f"{called(network)}, {which}" if which else called(network)
        try:
            check_graph(graph, columns=columns)
        except ValueError as error:
            if which in ("", "round 0"):
                raise
            raise ValueError(f"{error} This is {here}.") from error
        least = _lowest(graph)
        if least < lowest:
            lowest, where = least, here
    if lowest >= -TOLERANCE:
        return
    if columns:
        raise ValueError(
            f"Expected weights >= 0 for {method}, whose push-sum weights could otherwise vanish, got {lowest:.6g} "
            f"in {where}. Use weights='out-degree', or jdfl.network.d_out(m, d)."
        )
    if mixes:
        _refuse_growth(network, method, lowest)


def _refuse_growth(network: Network, method: str, lowest: float) -> None:
    """Refuse a network in which differences between nodes grow, on average if it is random: ValueError."""
    if isinstance(network, Static | Periodic):
        graphs = [graph for _, graph in graphs_of(network, 1)]
        radius, p = spectral_radius(graphs), len(graphs)
        if radius <= 1 + TOLERANCE:
            return
        what, often = ("W", "round") if p == 1 else (f"the product of W over its {p} rounds", "period")
        raise ValueError(
            f"Expected mixing for {method} that does not expand, with every eigenvalue of {what} at most 1 in modulus, "
            f"got {radius:.6g} in {called(network)}, whose lowest weight is {lowest:.6g}: differences between nodes "
            f"would grow by that factor in each {often}. Use weights >= 0, or weights='metropolis' on undirected links."
        )
    growth, error = mean_growth(network)
    if growth < 1 if error is None else growth - _SURE * error <= 1:
        return
    about = "" if error is None else f" (estimated, +- {error:.2g})"
    raise ValueError(
        f"Expected a network for {method} whose rounds contract on average, || E[W^T W] - J || < 1, got "
        f"{growth:.6g}{about} in {called(network)}, with weights down to {lowest:.6g}: squared differences "
        "between nodes would change by that factor in a round. Use weights >= 0, or jdfl.network.matcha(base, "
        "budget), which chooses its alpha so that they shrink."
    )


def nonnegative(network: Network) -> bool:
    """Whether a network defined outside jdfl had no negative weight in the rounds that `check_weights` looked at.

    False for networks of jdfl: it has looked at all their graphs, or at those that they are made from.
    """
    return _foreign(network) and bool(np.min(_looked_at(network, False)[1]) >= -TOLERANCE)


def _foreign(network: Network) -> bool:
    """Whether a network, or the one inside its wrappers, is defined outside jdfl."""
    return not type(inmost(network, PartialCommunication)).__module__.startswith("jdfl.")


def _lowest(graph: Graph) -> float:
    return min(float(np.min(np.asarray(weight))) for weight in (graph.weight, graph.self_weight))


def _suspected(network: Network, columns: bool) -> Iterator[tuple[str, Graph]]:
    """The rounds of a network defined outside jdfl whose weights do not sum to one, and that with the lowest weight."""
    off, least = _looked_at(network, columns)
    for k in [*np.flatnonzero(~(off <= TOLERANCE)).tolist(), int(np.argmin(least))]:
        yield f"round {k}", round_of(network, k)


def _looked_at(network: Network, columns: bool) -> tuple[np.ndarray, np.ndarray]:
    """`_sums` of the rounds of a network defined outside jdfl that are looked at before a run."""
    slots = kind_of(network).senders.size
    off, least = _sums(network, int(np.clip(_OWN_SLOTS // slots, _CHECKED, _OWN_ROUNDS)), columns)
    return np.asarray(off), np.asarray(least)


@partial(jax.jit, static_argnames=("rounds", "columns"))
def _sums(network: Network, rounds: int, columns: bool) -> tuple[Array, Array]:
    """How far the rows or columns of W are from sums of one, and the lowest weight, in every round [rounds] from 0."""

    def one(k: Array) -> tuple[Array, Array]:
        graph = network.at(k, jax.random.key(k))
        weight, own = graph.weight, graph.self_weight
        total = own.at[graph.senders].add(weight) if columns else own + jnp.sum(weight, axis=1)
        off = jnp.max(jnp.abs(total - 1))
        off = off if graph.synchronised is None else jnp.where(graph.synchronised, 0, off)
        return off, jnp.minimum(jnp.min(weight), jnp.min(own))

    return lax.map(one, jnp.arange(rounds, dtype=jnp.int32))


@checked
def node_weights(network: Network) -> np.ndarray | None:
    """The weights pi [m] of the nodes in what averaging by W and small gradient steps minimise: sum_i pi_i f_i.

    None: all are equal, or no difference was found. With columns of W that sum to one, the mean over nodes moves by the
    mean gradient, and pi_i = 1 / m. Otherwise pi' is the limit of (1/m) 1' W_k ... W_t, averaged over t: of a fixed W
    the left eigenvector of eigenvalue one. Of random networks it suffices that columns sum to one on average over
    rounds: where three rounds do not settle it, and no wrapper is known to keep it, up to 256 rounds are drawn. A
    difference counts from 0.001 on, and from five standard errors.

    Args:
        network: Any network whose rows of W sum to one.
    """
    if all(stochastic(to_scipy(graph), 0) for _, graph in graphs_of(network, _CHECKED)):
        return None
    if isinstance(network, Static | Periodic):
        rounds = [to_scipy(graph) for _, graph in graphs_of(network, 1)]
        pi = np.full(network.m, 1 / network.m)
        turns = [pi]
        for _ in range(_STEPS):  # half of every step is left out, so that nothing oscillates; rows sum to one nearly
            turns = list(itertools.accumulate(reversed(rounds), lambda pi, W: pi @ W, initial=pi))
            pi, before = (pi + turns[-1]) / np.sum(pi + turns[-1]), pi
            if np.max(np.abs(pi - before)) < 1e-13:
                break
        pi = np.mean(turns[1:], axis=0)
        return pi if np.max(np.abs(network.m * pi - 1)) > 1e-3 else None
    if _keeps_means(network) and node_weights(network.base) is None:  # pyright: ignore[reportAttributeAccessIssue]
        return None
    if (known := _drawn.get(id(network))) and known[0]() is network:
        return known[1]
    count = int(np.clip(_OWN_SLOTS // kind_of(network).senders.size, _CHECKED, 256))
    mean, error, pi = (np.asarray(one, np.float64) for one in _column_sums(network, count))
    found = pi / pi.sum() if np.any(np.abs(mean - 1) > 5 * error + 1e-3) else None
    _drawn[id(network)] = weakref.ref(network), found
    return found


def weighed(pi: Any) -> str:
    """A sum of objectives with weights pi [m] in words, with the smallest and the largest weight."""
    pi = np.asarray(pi, np.float64)
    low, high = int(np.argmin(pi)), int(np.argmax(pi))
    return (
        f"sum_i pi_i f_i with pi from {pi[low]:.3g} (node {low}) to {pi[high]:.3g} (node {high}), not the mean of the "
        f"f_i, in which each has {1 / len(pi):.3g}"
    )


def _keeps_means(network: Network) -> bool:
    """Whether a wrapper leaves the mean of its base's W doubly stochastic: what is missing goes to the receiver."""
    own = isinstance(network, LinkLoss | BurstyLoss | NodeParticipation | Outages) and network.weights == "own"
    return own or isinstance(network, Delays | Synchronised) or (isinstance(network, Timed) and not network.first)


@partial(jax.jit, static_argnames="rounds")
def _column_sums(network: Network, rounds: int) -> tuple[Array, Array, Array]:
    """The mean sums of the columns of W over rounds of as many runs, their standard errors, and pi, all [m]."""
    m = network.m

    def one(carry: tuple[Array, Array, Array, Array], k: Array) -> tuple[tuple[Array, Array, Array, Array], None]:
        graph = in_run(network, jax.random.key(k), 0).at(k, jax.random.key(k + rounds))

        def columns(x: Array) -> Array:
            found = (graph.self_weight * x).at[graph.senders].add(graph.weight * x[:, None])
            together = graph.synchronised
            return found if together is None else jnp.where(together, jnp.full_like(x, jnp.mean(x)), found)

        first, second, pi, total = carry
        off = columns(jnp.ones(m)) - 1
        pi = columns(pi)
        return (first + off, second + off**2, pi, total + jnp.where(2 * k >= rounds, pi, 0)), None

    zero = jnp.zeros(m)
    (first, second, _, total), _ = lax.scan(
        one, (zero, zero, jnp.full(m, 1 / m), zero), jnp.arange(rounds, dtype=jnp.int32)
    )
    mean = first / rounds
    return mean + 1, jnp.sqrt(jnp.maximum(second / rounds - mean**2, 0) / rounds), total
