"""MATCHA: a network decomposed into matchings, each activated in a round with its own probability.

J. Wang, A. K. Sahu, Z. Yang, G. Joshi, S. Kar, "MATCHA: Speeding up decentralized SGD via matching decomposition
sampling", 2019. With L_j the Laplacian of matching j, B_j = 1 with probability p_j in round k, Lbar = sum_j p_j L_j:

    W       = I - alpha sum_j B_j L_j
    p       maximises lambda_2(Lbar) subject to sum_j p_j <= budget M, 0 <= p_j <= 1
    alpha   minimises rho = || E[W^T W] - J ||,  E[W^T W] = I - 2 alpha Lbar + alpha^2 (Lbar^2 + 2 Ltilde),
            Ltilde = sum_j p_j (1 - p_j) L_j                                        (J: all entries 1 / m)

The matchings are a proper edge colouring of the network with at most one colour more than the largest degree (J. Misra,
D. Gries, "A constructive proof of Vizing's theorem", 1992; the bound is V. G. Vizing's, 1964), in O(m e) steps on the
host for m nodes and e edges.

Axes: m nodes, M matchings.
"""

from collections.abc import Iterator
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy
import scipy.linalg as la
from jax import Array

from jdfl.base import struct
from jdfl.base.arguments import checked
from jdfl.base.names import NodeNames
from jdfl.base.settings import Bound
from jdfl.base.streams import Stream
from jdfl.network.graph import Format, Graph, Network, Shown, Static
from jdfl.network.links import ids
from jdfl.network.tables import arcs_of, called, components, graph_of

_ACTIVE = Stream("network.active matchings", "network")
TOLERANCE = 1e-5  # relative gap between the connectivity found and its upper bound
_MOST_STEPS = 300  # Newton steps at most; 20 to 40 are typical
_FASTER = 8.0  # factor by which the weight of t grows from one centring to the next


@struct.dataclass
class Matchings(Shown):
    """A network decomposed into matchings, some of them active in a round. W is always symmetric, doubly stochastic."""

    partner: Array  # [m, M] int32 partner of node i in matching j; itself if unmatched
    p: Array  # [M] float32 activation probability of each matching
    alpha: Array  # float32 [] weight of an active link
    rho: float  # bound on the factor by which a round changes the expected squared disagreement
    connectivity: float  # lambda_2(sum_j p_j L_j)
    connectivity_bound: float  # upper bound on it for any probabilities within the budget
    format: Format = struct.field(pytree_node=False, default="padded")  # how `mix` multiplies
    name: str = struct.field(pytree_node=False, default="network")
    names: NodeNames = struct.field(pytree_node=False, default=NodeNames())

    @property
    def m(self) -> int:
        return self.partner.shape[0]

    def at(self, k: Array, key: Array) -> Graph:
        """The matchings active in round k [], one slot each; all nodes share the key, so agreeing costs no messages."""
        active = jax.random.uniform(_ACTIVE.of(key), self.p.shape, jnp.float32) < self.p
        node = ids(self.m)[:, None]
        up = active[None] & (self.partner != node)
        weight = jnp.where(up, self.alpha, 0).astype(jnp.float32)
        own, sent = 1 - jnp.sum(weight, axis=1), jnp.sum(up, axis=1, dtype=jnp.int32)
        return Graph(jnp.where(up, self.partner, node), up, weight, own, sent, self.format)

    @property
    def _met(self) -> np.ndarray:
        """Whether node i has a partner in matching j: bool [m, M] (on the host)."""
        return np.asarray(self.partner) != np.arange(self.m)[:, None]

    @property
    def expected_edges(self) -> float:
        """Expected number of active links per round (on the host)."""
        return float(np.asarray(self.p, np.float64) @ self._met.sum(axis=0) / 2)

    @property
    def largest_out_degree(self) -> int:
        """The largest possible number of receivers of a node in a round: its degree in the base (on the host)."""
        return int(self._met.sum(axis=1).max())


class _Colouring:
    """An edge colouring in progress: at[i][c] is the other end of node i's edge with colour c."""

    def __init__(self, m: int, colours: int) -> None:
        self.at: list[dict[int, int]] = [{} for _ in range(m)]
        self.colours = range(colours)

    def free(self, i: int) -> Iterator[int]:
        """The colours not used by any edge of node i."""
        return (c for c in self.colours if c not in self.at[i])

    def fan(self, u: int, v: int) -> tuple[list[int], int]:
        """A fan of u from v on, in which each edge to u has a colour free at its predecessor; and its last colour."""
        fan = [v]
        while True:
            following, colour = None, -1
            for colour in self.free(fan[-1]):
                if colour not in self.at[u]:
                    return fan, colour
                if self.at[u][colour] not in fan:
                    following = self.at[u][colour]
            if following is None:  # no neighbour can extend it, and no colour is free at both ends
                return fan, colour
            fan.append(following)

    def invert(self, u: int, c: int, d: int) -> None:
        """Swap the colours c and d along the path of these colours that starts at u, where c is free."""
        path, colour = [u], d
        while colour in self.at[path[-1]]:
            path.append(self.at[path[-1]][colour])
            colour = c + d - colour
        for i in path:
            self.at[i] = {{c: d, d: c}.get(one, one): other for one, other in self.at[i].items()}

    def add(self, u: int, v: int) -> None:
        """Colour the edge u - v: each edge of the fan takes the colour of the next one."""
        fan, d = self.fan(u, v)
        if d in self.at[u]:
            self.invert(u, next(self.free(u)), d)
        last = next(i for i, x in enumerate(fan) if d not in self.at[x])  # the shortest prefix that is still a fan
        colour_of = {other: colour for colour, other in self.at[u].items()}
        moved = [colour_of[x] for x in fan[1 : last + 1]]
        for x, colour in zip(fan[1:], moved):
            del self.at[x][colour]
        for x, colour in zip(fan, [*moved, d]):
            self.at[u][colour], self.at[x][colour] = x, u


@checked
def matchings(base: Graph | Network) -> np.ndarray:
    """Decompose a fixed undirected network into matchings: each link is in exactly one of the M <= Delta + 1 matchings.

    Args:
        base: The network; Delta is its largest degree.

    Returns:
        partner [m, M] int32, the partner of node i in matching j, or i itself.

    Raises:
        ValueError: For a network that changes or is directed.
    """
    links = arcs_of(graph_of(base))
    if not links.symmetric:
        raise ValueError(
            f"Expected an undirected base, got {called(base)}, which is directed: its links do not form matchings. Use "
            "an undirected one, such as jdfl.network.erdos_renyi(m)."
        )
    degree = np.bincount(links.receiver, minlength=links.m)
    colouring = _Colouring(links.m, int(degree.max()) + 1)
    for i, j in zip(links.receiver.tolist(), links.sender.tolist()):
        if i < j:
            colouring.add(i, j)
    used = sorted({colour for own in colouring.at for colour in own})
    return np.array([[own.get(colour, i) for colour in used] for i, own in enumerate(colouring.at)], np.int32)


@checked
def matcha(base: Annotated[Graph | Network, Static], budget: Annotated[float, Bound("[1e-9, 1]")]) -> Matchings:
    """MATCHA: a network decomposed into matchings, each activated with a probability that maximises connectivity.

    The probabilities are within a relative 1e-5 of the best connectivity (`connectivity_bound` certifies it), and alpha
    minimises rho = || E[W^T W] - J ||. The work grows as m^3 M: a tenth of a second for 64 nodes and 40 matchings, ten
    seconds for 300 nodes and 116. Matchings differ in size; `expected_edges` gives the mean cost of a round. Own
    weights 1 - alpha (active links of a node) may be negative.

    Args:
        base: The undirected, connected network to decompose; its own weights are not used.
        budget: Expected share of matchings active in a round, from 1e-9 to 1; 1 uses the whole base in every round,
            with the best alpha. The paper's baseline P-DecenSGD, which uses it in every k-th round, is `jdfl.DPSGD`
            with `period` = k on that network.

    Raises:
        ValueError: For a budget out of range, and a base that changes, is directed, is not connected or has one node.
    """
    partner = matchings(base)
    graph, m = graph_of(base), partner.shape[0]
    parts = components(arcs_of(graph))[0]
    if m == 1 or parts > 1:
        found = "one node" if m == 1 else f"{parts} components"
        raise ValueError(f"Expected a connected base of two nodes or more, got {called(base)} with {found}.")
    chosen = activation(partner, float(budget))
    alpha, rho = mixing_step(chosen.p, partner)
    return Matchings(
        partner=jnp.asarray(partner),
        p=jnp.asarray(chosen.p, jnp.float32),
        alpha=jnp.asarray(alpha, jnp.float32),
        rho=rho,
        connectivity=chosen.connectivity,
        connectivity_bound=chosen.bound,
        format="padded" if graph.format == "buckets" else graph.format,
        name=f"MATCHA(budget={budget:g}) of {called(base)}",
        names=graph.names,
    )


class Activation(NamedTuple):
    """Activation probabilities of the matchings, with the connectivity they achieve and a certified upper bound."""

    p: np.ndarray  # [M]
    connectivity: float  # lambda_2(sum p_j L_j)
    bound: float  # upper bound on the connectivity of any probabilities within the budget


def laplacian(weight: np.ndarray, partner: np.ndarray) -> np.ndarray:
    """The weighted sum of the matchings' Laplacians, sum_j weight_j L_j [m, m]."""
    m, count = partner.shape
    result = np.zeros((m, m))
    np.subtract.at(result, (np.repeat(np.arange(len(partner)), count), partner.ravel()), np.tile(weight, m))
    np.fill_diagonal(result, 0)
    np.fill_diagonal(result, -result.sum(axis=1))
    return result


def _eigenvalue(X: np.ndarray, place: int) -> float:
    """The eigenvalue at index `place`, from 0 in ascending order, of a symmetric X [m, m]."""
    return float(la.eigvalsh(X, subset_by_index=(place, place))[0])


def _inner(X: np.ndarray, partner: np.ndarray) -> np.ndarray:
    """<X, L_j> [M] for a symmetric X [m, m]."""
    return np.sum(np.diagonal(X)[:, None] - X[np.arange(X.shape[0])[:, None], partner], axis=0)


class _Barrier:
    """-weight t - log det(Lbar - t I) - sum log p - sum log(1 - p) - log(most - sum p), Lbar on zero-sum vectors."""

    def __init__(self, partner: np.ndarray, most: float, weight: float) -> None:
        self.partner, self.most, self.weight = partner, most, weight
        self.m, self.count = partner.shape

    def factor(self, p: np.ndarray, t: float) -> np.ndarray | None:
        """The Cholesky factor of Lbar - t (I - J) + J; None outside the domain."""
        if p.min() <= 0 or p.max() >= 1 or p.sum() >= self.most:
            return None
        try:
            return la.cholesky(laplacian(p, self.partner) - t * np.eye(self.m) + (1 + t) / self.m)
        except la.LinAlgError:
            return None

    def value(self, p: np.ndarray, t: float) -> float:
        factor = self.factor(p, t)
        if factor is None:
            return np.inf
        rest = np.sum(np.log(p) + np.log1p(-p)) + np.log(self.most - p.sum())
        return -self.weight * t - 2 * float(np.sum(np.log(np.diagonal(factor)))) - float(rest)

    def step(self, p: np.ndarray, X: np.ndarray) -> tuple[np.ndarray, float]:
        """The Newton step [M + 1] in (p, t) and its decrement, where X = (Lbar - t I)^-1 on zero-sum vectors."""
        slack = self.most - p.sum()
        gradient = np.append(-_inner(X, self.partner) - 1 / p + 1 / (1 - p) + 1 / slack, np.trace(X) - self.weight)
        hessian = np.empty((self.count + 1, self.count + 1))
        for j in range(self.count):
            one = np.flatnonzero(self.partner[:, j] > np.arange(len(self.partner)))
            rows = X[one] - X[self.partner[one, j]]
            hessian[j:-1, j] = hessian[j, j:-1] = _inner(rows.T @ rows, self.partner[:, j:])
        hessian[:-1, :-1] += np.diag(p**-2 + (1 - p) ** -2) + slack**-2
        hessian[:-1, -1] = hessian[-1, :-1] = -_inner(X @ X, self.partner)
        hessian[-1, -1] = np.sum(X**2)
        scale = np.sqrt(np.diagonal(hessian))
        step = -np.linalg.solve(hessian / np.outer(scale, scale), gradient / scale) / scale
        return step, float(np.sqrt(max(0.0, -gradient @ step)))

    def length(self, p: np.ndarray, t: float, step: np.ndarray, decrement: float) -> float:
        """The fraction of the Newton step to take; the fraction 1 / (1 + decrement) never leaves the domain."""
        if decrement <= 0.25:
            return 1.0
        start, length, safe = self.value(p, t), 1.0, 1 / (1 + decrement)
        while length > safe:
            lower = self.value(p + length * step[:-1], t + length * step[-1])
            if lower <= start - 0.1 * length * decrement**2:
                return length
            length *= 0.7
        return safe


def _largest(X: np.ndarray, partner: np.ndarray, most: float) -> float:
    """The largest <X, sum p_j L_j> / tr X within the budget: matchings are filled in decreasing order of <X, L_j>."""
    worth = np.sort(_inner(X, partner))[::-1]
    whole = int(most)
    return float((worth[:whole].sum() + (most - whole) * worth[whole : whole + 1].sum()) / np.trace(X))


def activation(partner: np.ndarray, budget: float) -> Activation:
    """Optimal activation probabilities for the matchings of a connected network, with a bound that certifies them.

    A barrier method (S. Boyd, L. Vandenberghe, "Convex optimization", 2004, section 11.6) maximises t subject to
    t <= lambda_2(Lbar): Newton's method for increasing weights of t, until connectivity and bound differ by less than
    `TOLERANCE`. For any X >= 0 with X 1 = 0, the largest <X, Lbar> / tr X is an upper bound; the barrier's own X makes
    it tight, and tighter at the end of a Newton step. A step costs M sums of m / 2 outer products of vectors [m].
    """
    m, count = partner.shape
    most = budget * count
    if budget == 1:
        found = _eigenvalue(laplacian(np.ones(int(count)), partner), 1)
        return Activation(np.ones(count), found, found)
    p = np.full(count, 0.9 * budget)
    t = 0.5 * _eigenvalue(laplacian(p, partner), 1)
    barrier = _Barrier(partner, most, (m + 2 * count) / t)
    best, best_p, bound = 0.0, p, np.inf
    for _ in range(_MOST_STEPS):
        factor = barrier.factor(p, t)
        if factor is None:
            break  # the limit of double precision
        X = la.cho_solve((factor, False), np.eye(m)) - 1 / m
        step, decrement = barrier.step(p, X)
        bound = min(bound, _largest(X, partner, most))
        if decrement < 1:  # so X stays positive semidefinite after the step
            change = laplacian(step[:-1], partner) - step[-1] * np.eye(m)
            bound = min(bound, _largest(X - X @ change @ X, partner, most))
        full = p + (1 - p) * (most - p.sum()) / (count - p.sum())
        found = _eigenvalue(laplacian(full, partner), 1)
        if found > best:
            best, best_p = found, full
        if best >= (1 - TOLERANCE) * bound:
            break
        length = barrier.length(p, t, step, decrement)
        p, t = p + length * step[:-1], t + length * step[-1]
        if decrement < 0.5:
            barrier.weight *= _FASTER
    return Activation(best_p, best, max(bound, best))


def moments(p: np.ndarray, partner: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Lbar and Lbar^2 + 2 Ltilde, both [m, m], for activation probabilities p [M] of the matchings partner [m, M]."""
    L = laplacian(p, partner)
    return L, L @ L + 2 * laplacian(p * (1 - p), partner)


def mean_square(alpha: float, L: np.ndarray, square: np.ndarray) -> float:
    """|| E[W^T W] - J || for the mixing step alpha, given Lbar and Lbar^2 + 2 Ltilde [m, m]."""
    m = L.shape[0]
    return _eigenvalue(np.eye(m) - 1 / m - 2 * alpha * L + alpha**2 * square, m - 1)


def mixing_step(p: np.ndarray, partner: np.ndarray) -> tuple[float, float]:
    """The mixing step alpha that minimises rho, and that rho: a one-dimensional convex minimisation.

    The published semidefinite program has the same solution. Each unit vector v gives a parabola in alpha whose minimum
    is at v^T Lbar v / v^T (Lbar^2 + 2 Ltilde) v <= 1 / lambda_2(Lbar); the minimum of their maximum obeys this bound
    too.
    """
    L, square = moments(p, partner)
    furthest = 1 / _eigenvalue(L, 1)
    if np.all(p == 1):  # || I - alpha L - J ||^2 is least where both ends of the spectrum are equally far from zero
        alpha = 2 / (1 / furthest + _eigenvalue(L, L.shape[0] - 1))
    else:
        options: Any = {"bounds": (0, furthest), "method": "bounded", "options": {"xatol": 1e-9 * furthest}}
        alpha = float(scipy.optimize.minimize_scalar(lambda one: mean_square(one, L, square), **options).x)
    return alpha, max(0.0, mean_square(alpha, L, square))
