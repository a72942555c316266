"""The largest distance between the nodes' messages of a round: observed, estimated as published, and bounded.

Perturbed push-sum sends s_i + eps_i + gamma n_i, with Laplace noise n_i of scale S / b per entry, S being the largest
l1 distance between two nodes' s_i + eps_i (Y. Zhou, K. Xue, E. Chen: Differentially Private Perturbed Push-Sum Protocol
and Its Application in Non-Convex Optimization, Definition 5). The guarantee depends on where S comes from:

- `real` uses all nodes' true vectors: an oracle.
- `published` is the paper's Eq. 22, with constants C' and lambda. Lemma 2 says that for some constants it is an upper
  bound. Its proof cancels a matrix row (Eq. 13 to 14), and with the constants of the paper's experiments the distances
  exceed it. It is a bound with C' = N C and lambda where every entry of W_{t-1} ... W_k (for k = t the identity)
  differs from 1/N by at most C lambda^(t-k), N being the number of nodes: `python -m
  experiments.lemma2_counterexample`.
- `lemma2` is Eq. 22 with these constants (`lemma2_constants`), without the start, which all nodes share, and with
  bounds on ||eps_k||_1 and ||n_k||_1 instead of their values: public before the run, like `certified`, but looser.
- `certified` is public before the run and holds with probability 1 - failure over all rounds together. With the mixing
  matrices W_t and P_{t,k} = W_{t-1} ... W_k, messages of round t are sum_k P_{t,k} (eps_k + gamma_k n_k), where
  ||eps_k||_1 <= e_k is enforced by clipping. For two nodes i, j and c_k = row i minus row j of P_{t,k},

      S_t = max_ij sum_{k<=t} e_k ||c_k||_1 + (1 + eta_t) d sqrt(2/pi) sqrt(2 sum_{k<t} (gamma_k S_k / b)^2 ||c_k||_2^2)

  bounds the distance. An entry of the noise term is symmetric with a log-concave density, so its absolute value is
  below an exponential variable of the same mean in the convex order, and the mean is at most sqrt(2/pi) standard
  deviations. Chernoff's bound for d of them gives eta_t - ln(1 + eta_t) = ln((m + pairs) / failure_t) / d, with
  failure_t = failure 6 / (pi (t+1))^2, which sums to `failure` over any number of rounds.

Axes: m nodes, d entries of a vector, T rounds, K earlier rounds whose contributions still differ between nodes.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy
from jax import Array, lax

from jdfl.arrays import ops
from jdfl.base import checks
from jdfl.base.backend import backend

MOST_WORK = 2e10  # numbers that a schedule may process
SAME = 1e-10  # the unshared part of a round's contribution below which the round is no longer tracked
MOST = 1e18  # of a schedule, in float32
_NUMBERS, _NUMBERS_ELSEWHERE = 2**16, 2**26  # that `real` processes at a time, on a CPU and on other devices
_HOPS = 64  # that other devices compare at a time
_STOCHASTIC, _CONTRACTED = 1e-6, 1e-6  # deviations of sums from 1, and of a product of matrices from 1/N


def real(x: Array) -> Array:
    """max_ij ||x_i - x_j||_1 [] over the rows of x [m, d].

    Every pair is compared once: rows j and j + 1, then j and j + 2, ..., up to m // 2. Entries are processed in pieces
    that fit a CPU's cache, and summed by a product with ones, which is faster there than a sum.
    """
    m, d = x.shape
    most = _NUMBERS if backend() == "cpu" else _NUMBERS_ELSEWHERE
    pieces = -(-m * d // most)
    size = -(-d // pieces)
    cut = jnp.pad(x, ((0, 0), (0, pieces * size - d))).reshape(m, pieces, size)
    ones = jnp.ones((size,), x.dtype)

    def lengths(piece: Array, hop: Array) -> Array:
        apart = jnp.abs(piece - lax.dynamic_slice_in_dim(jnp.concatenate([piece, piece]), hop, m))
        return jnp.dot(apart, ones, precision=ops.HIGHEST)

    if pieces == 1:  # no sums over pieces, so no array of all pairs
        together = 1 if backend() == "cpu" else _HOPS

        def longest(turn: Array, found: Array) -> Array:
            hops = turn * together + jnp.arange(1, together + 1, dtype=jnp.int32)  # beyond m // 2 are pairs again
            return jnp.maximum(found, jnp.max(jax.vmap(partial(lengths, cut[:, 0]))(hops % m), axis=0))

        return jnp.max(lax.fori_loop(0, -(-(m // 2) // together), longest, jnp.zeros((m,), x.dtype)))

    def add(total: Array, piece: Array) -> tuple[Array, None]:
        return total + lax.map(partial(lengths, piece), jnp.arange(1, m // 2 + 1, dtype=jnp.int32)), None

    start = jnp.zeros((m // 2, m), x.dtype)
    return jnp.max(lax.scan(add, start, jnp.swapaxes(cut, 0, 1))[0], initial=0.0)


def published(
    before: Array, noise: Array, step: Array, start: Array, first: Array, *, constant: Any, contraction: Any
) -> Array:
    """The paper's S_i [m] (Eq. 22), which is a bound or not depending on the constants."""
    begun = 2 * constant * (start + step)
    return jnp.where(first, begun, contraction * before + 2 * constant * (step + contraction * noise))


def certified(
    mixing: Callable[[int], np.ndarray],
    bounds: np.ndarray,
    noise: np.ndarray,
    d: int,
    *,
    failure: float,
    start: float = 0.0,
    rounding: float = 0.0,
) -> np.ndarray:
    """The certified schedule S_t [T].

    Args:
        mixing: W_t ([m, m]) of round t, whose columns sum to one.
        bounds ([T]): e_t, the enforced bound on ||eps_t||_1.
        noise ([T]): gamma_t / b, 0 for none.
        d: Entries of a vector.
        failure: The probability that a distance exceeds the schedule in any round, in (0, 1).
        start: The l1 norm of the vector that all nodes start with, which matters where rows of W do not sum to one.
        rounding: Rounding error per round, as a multiple of the norm that a node's vector may have reached by then.

    Raises ValueError for a network too large to be tracked, and for noise that grows without bound.
    """
    checks.positive(failure=failure)
    follower = _Products(mixing, len(bounds))
    m, schedule, total = follower.m, np.zeros(len(bounds)), start
    for t, bound in enumerate(bounds):
        length, square = follower.distances()
        chance = failure * 6 / (math.pi * (t + 1)) ** 2
        vectors = m * (m + 1) / 2  # distances between two nodes, and the nodes' own
        sums = (1 + _excess(math.log(vectors / chance) / d)) * d * math.sqrt(4 / math.pi)
        total += bound
        added = follower.square()
        step = bound + rounding * (follower.row_sum * total + sums * math.sqrt(added))
        apart = length + 2 * step * (m > 1) + start * follower.unequal() + sums * np.sqrt(square)
        schedule[t] = _limited(float(np.max(apart)), t)
        scale = noise[t] * schedule[t]
        step = bound + rounding * (follower.row_sum * total + sums * math.sqrt(added + scale**2))
        follower.advance(t, step, scale)
    return schedule


def lemma2(
    mixing: Callable[[int], np.ndarray],
    bounds: np.ndarray,
    noise: np.ndarray,
    d: int,
    *,
    failure: float,
    start: float = 0.0,
    rounding: float = 0.0,
) -> np.ndarray:
    """The schedule S_t [T] of Lemma 2 with the constants of `lemma2_constants`; arguments as those of `certified`.

    S_t = 2 C' (e_t + sum_{k<t} lambda^(t-k) (e_k + L_k)), where L_k bounds the l1 norms of all nodes' noise of round k,
    and rounds before a mean of all nodes do not count. The norm of a node's d Laplace numbers of scale z exceeds
    (1 + eta) d z with probability exp(-d (eta - ln(1 + eta))) at most.

    Raises ValueError for matrices whose rows or columns do not sum to one, and for noise that grows without bound.
    """
    checks.positive(failure=failure)
    every = [mixing(t) for t in range(max(len(bounds), 1))]
    constant, contraction = lemma2_constants(every)
    m, schedule, earlier, total = len(every[0]), np.zeros(len(bounds)), 0.0, start
    for t, bound in enumerate(bounds):
        total += bound
        schedule[t] = _limited(2 * constant * (earlier + bound + rounding * total), t)
        chance = failure * 6 / (math.pi * (t + 1)) ** 2
        length = (1 + _excess(math.log(m / chance) / d)) * d * noise[t] * schedule[t]
        total += length
        alike = bool(np.all(np.abs(every[t] - 1 / m) < SAME))
        earlier = 0.0 if alike else contraction * (earlier + bound + rounding * total + length)
    return schedule


def lemma2_constants(matrices: Sequence[np.ndarray]) -> tuple[float, float]:
    """C' = N C and lambda with which Lemma 2 of the DPPS paper holds on a network, at all rounds k <= t.

    Every entry of W_{t-1} ... W_k, which for k = t is the identity, differs from 1/N by at most C lambda^(t-k). Of all
    such pairs it is the one with the smallest C / (1 - lambda). Products are followed until the largest absolute row
    sum of their difference to 1/N is r < 1e-6, after R rounds; lambda^R >= r covers all longer ones.

    Args:
        matrices: W_0, W_1, ... ([N, N]), whose rows and columns sum to one, and which repeat after the last.

    Raises ValueError for other matrices, for networks on which the nodes do not come to agree, and for too many nodes.
    """
    every, N = [np.asarray(W, float) for W in matrices], len(matrices[0])
    if any(np.abs(W.sum(axis=axis) - 1).max() > _STOCHASTIC or W.min() < 0 for W in every for axis in (0, 1)):
        raise ValueError(
            "Expected a network whose rows and columns sum to one for Lemma 2, got one whose do not: its distances do "
            'not fall. Use sensitivity = "certified", or equal out- and in-degrees.'
        )
    period = next(p for p in range(1, len(every) + 1) if all(one is two for one, two in zip(every[p:], every)))
    products, largest, left, r = np.stack([np.eye(N)] * period), [], MOST_WORK, 0
    while True:
        apart = np.abs(products - 1 / N)
        largest.append(float(apart.max()))
        row_sum, left = float(apart.sum(axis=2).max()), left - period * N**3
        if row_sum < _CONTRACTED:
            break
        if left < 0:
            raise ValueError(
                f"Expected a connected network of fewer nodes for Lemma 2, got N = {N}, which do not agree after {r} "
                'rounds. Use sensitivity = "certified", or synchronise.'
            )
        products = np.stack([every[(k + r) % period] @ products[k] for k in range(period)])
        r += 1
    least = row_sum ** (1 / r) if row_sum > 0 and r > 0 else 0.0
    contraction = np.linspace(max(least, 1e-3), 1.0, 2000)[:-1]
    length = np.arange(r + 1)[np.array(largest) > 0]
    if not len(length):  # a single node
        return 0.0, float(contraction[0])
    logs = np.log(np.array(largest)[length]) - length * np.log(contraction)[:, None]
    C = np.exp(logs.max(axis=1)) * (1 + 1e-9)
    best = int(np.argmin(C / (1 - contraction)))
    return N * float(C[best]), float(contraction[best])


def _limited(S: float, t: int) -> float:
    if S > MOST:
        raise ValueError(
            f"Expected a schedule of noise below {MOST:g}, got {S:.3g} in round {t}: noise drives the nodes apart, "
            "which in turn increases the noise. Synchronise more often, share fewer parameters, use a network with "
            "more neighbours, a smaller noise rate or a larger b."
        )
    return S


def _excess(x: float) -> float:
    """The eta > 0 with eta - ln(1 + eta) = x."""
    found: Any = scipy.optimize.brentq(lambda eta: eta - math.log1p(eta) - x, 0.0, 2 * x + 2 * math.sqrt(x) + 1e-12)
    return float(found)


class _Products:
    """The rows of P_{t,k}, for every relevant k, and what was enforced and added in round k."""

    def __init__(self, mixing: Callable[[int], np.ndarray], rounds: int) -> None:
        # Where every W_t is circulant, so are their products: row 0 determines all others, and pairs (0, j) stand for
        # all. Mixing makes P_{t,k} the product a r^T of the masses a and a row r that all nodes share, plus some D
        # whose absolute column sums decrease. From SAME on, the norms of r and a bound on D represent the round.
        # Where rows of W sum to one, a is 1 and r distinguishes no nodes.
        self.mixing = mixing
        known = {id(W): W for W in map(mixing, range(max(rounds, 1)))}
        self.m = len(mixing(0))
        self.circulant = all(_circulant(W) for W in known.values())
        self.rows = np.zeros((0, 1 if self.circulant else self.m, self.m))
        self.bound, self.scale = np.zeros(0), np.zeros(0)
        self.shared_length = self.shared_square = 0.0  # of r, over rounds that are no longer tracked
        self.kept_length = self.kept_square = 0.0  # of D, over the same rounds
        self.mass = np.ones(self.m)  # a, the row sums of P_{t,0}
        self.row_sum = 1.0  # upper bound on the row sums of any P_{t,k}
        self.left = MOST_WORK

    def distances(self) -> tuple[np.ndarray, np.ndarray]:
        """sum_k e_k ||c_k||_1 and sum_k scale_k^2 ||c_k||_2^2 over pairs, arrays of one shape."""
        first = 1 if self.circulant else self.m
        unequal = np.broadcast_to(self.unequal(), (first, self.m))
        length = unequal * self.shared_length + self.kept_length
        square = np.square(unequal * math.sqrt(self.shared_square) + math.sqrt(self.kept_square))
        self.left -= len(self.rows) * first * self.m**2
        if self.left < 0:
            raise ValueError(
                f"Expected a network of fewer nodes for a certified schedule, got m = {self.m}: all pairs of nodes are "
                "tracked through all rounds. Use a circulant network, such as jdfl.network.d_out, synchronise, or "
                "use fewer nodes or rounds."
            )
        for rows, bound, scale in zip(self.rows, self.bound, self.scale):
            every = _shifted(rows[0]) if self.circulant else rows
            for i in range(first):
                apart = np.abs(every[i] - every)
                length[i] += bound * apart.sum(axis=1)
                square[i] += scale**2 * np.square(apart).sum(axis=1)
        return length, square

    def square(self) -> float:
        """The largest value over nodes of sum_k scale_k^2 ||row of P_{t,k}||_2^2."""
        followed = np.einsum("k,kij->i", self.scale**2, self.rows**2)
        kept = self.mass * math.sqrt(self.shared_square) + math.sqrt(self.kept_square)
        return float(np.max(followed + kept**2))

    def unequal(self) -> np.ndarray | float:
        """|a_i - a_j| over pairs."""
        return 0.0 if self.circulant else np.abs(self.mass[:, None] - self.mass[None])

    def advance(self, t: int, bound: float, scale: float) -> None:
        """Mix what there was with W_t, and append the contribution of round t."""
        W = self.mixing(t)
        self.mass = W @ self.mass
        self.row_sum = min(float(self.m), self.row_sum * max(1.0, float(W.sum(axis=1).max())))
        grown = max(1.0, float(W.sum(axis=0).max()))  # 1 up to rounding
        self.kept_length, self.kept_square = self.kept_length * grown, self.kept_square * grown**2
        identity = np.eye(self.m)[None, : self.rows.shape[1]]
        self.rows = np.concatenate([self.rows, identity])
        self.bound, self.scale = np.append(self.bound, bound), np.append(self.scale, scale)
        self.rows = self.rows @ W if self.circulant else np.einsum("il,klj->kij", W, self.rows, optimize=True)
        self._keep_what_agrees()

    def _keep_what_agrees(self) -> None:
        """Drop the rounds for which hardly more than r is left, and keep bounds on them."""
        if self.circulant:
            shared = np.full((len(self.rows), self.m), 1 / self.m)
            left = self.m * (self.rows.max(axis=(1, 2)) - self.rows.min(axis=(1, 2)))  # >= ||c||_1
        else:
            shared = self.rows.sum(axis=1) / self.mass.sum()
            left = np.abs(self.rows - self.mass[None, :, None] * shared[:, None]).sum(axis=(1, 2))
        agree = left < SAME
        if agree.any():
            shared, left, bound, scale = shared[agree], left[agree], self.bound[agree], self.scale[agree]
            self.shared_length += float(bound @ np.abs(shared).sum(axis=1))
            self.shared_square += float(np.square(scale) @ np.square(shared).sum(axis=1))
            self.kept_length += float(bound @ left)
            self.kept_square += float(np.square(scale * left).sum())
            self.rows, self.bound, self.scale = self.rows[~agree], self.bound[~agree], self.scale[~agree]


def _circulant(W: np.ndarray) -> bool:
    return bool(np.array_equal(W, _shifted(W[0])))


def _shifted(row: np.ndarray) -> np.ndarray:
    """The circulant matrix of its row 0."""
    place = np.arange(row.size)
    return row[(place[None] - place[:, None]) % row.size]
