"""Products of mixing matrices, round by round, and how far the rows of two nodes in them are apart.

The certified schedule of `jdfl.privacy.sensitivity` follows P_{t,k} = W_{t-1} ... W_k for every round k whose
contributions still differ between nodes.

Axes: m nodes, K earlier rounds whose contributions still differ between nodes.
"""

import math
from collections.abc import Callable

import numpy as np

MOST_WORK = 2e10  # numbers that a schedule may process
SAME = 1e-10  # the unshared part of a round's contribution below which the round is no longer tracked


class Follower:
    """The rows of P_{t,k}, for every relevant k, and what was enforced and added in round k.

    Where every W_t is circulant, so are their products: row 0 determines all others, and pairs (0, j) represent all.

    Mixing makes P_{t,k} the product a r^T of the masses a and a row r that all nodes share, plus a difference D whose
    absolute column sums decrease: mixing by columns that sum to one never increases them. From SAME on, the norms of r
    and a bound on D represent the round. Where rows of W sum to one, a is 1 and r distinguishes no nodes.
    """

    def __init__(self, mixing: Callable[[int], np.ndarray], rounds: int) -> None:
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
