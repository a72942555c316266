"""What many right guesses in one run say of epsilon.

m records are each in one of two states by a fair secret coin, and a run is made of all of them. Whoever sees what it
releases guesses r of the m coins, and may choose which. Let every record be protected by (epsilon, delta), whatever the
states of the others, q = e^epsilon / (1 + e^epsilon), and W be the number of right guesses. Then

    P[W >= v] <= P[B_r >= v] + m delta / (1 + e^epsilon) * (1 / r) sum_{k < r} max_j P[B_k = j],

where B_k is binomial with k trials and chance q. So r guesses are worth r answers of a randomised response, and nothing
is lost for the number of records. The first term and the idea are those of T. Steinke, M. Nasr, M. Jagielski, "Privacy
auditing with one (1) training run", 2023 (Theorem 5.2); the term with delta is derived here, since theirs is larger
where epsilon is large.

Proof. Look at the coins one after another in any order, given what was released, t. Coin i is guessed rightly with a
chance K_i that depends on t and on the coins before it. With g(k, w) = P[w + B_k >= v], which is q g(k-1, w+1) +
(1-q) g(k-1, w), replacing the i-th guess by one of chance q changes P[W >= v] by the mean of (K_i - q) times a
difference g(k, w+1) - g(k, w) = P[B_k = v-1-w], where k guesses come after it. This is max_j P[B_k = j] times
max(0, K_i - q) at most, whose mean given t only grows if K_i knows all other coins (Jensen). It is then the chance of
one record between two worlds P and Q of what is released, and P <= e^epsilon Q + delta, both ways, gives a mean of
(1-q) delta at most. Over a random order of the coins k is uniform on 0, ..., r-1 for any t, which gives the sum.

Everything here is numpy on the host.
"""

import numpy as np
import scipy

_GRID = np.arange(0.0, 20.0, 0.005)  # epsilons that are tried


def lost(guesses: int, records: int, epsilon: np.ndarray, delta: float) -> np.ndarray:
    """The second term of the bound, for what delta lets through, for every epsilon [E]; it falls with epsilon.

    Args:
        guesses: How many were made, r, at most as many as there are records.
        records: How many coins there were, m.
        epsilon: What every record is protected by, epsilon [E] from 0.
        delta: The same, in [0, 1).
    """
    q = 1 / (1 + np.exp(-epsilon))
    start = np.unique(np.geomspace(1, guesses, 60).astype(int)) - 1  # of stretches of k: the largest falls with k
    k = start[:, None]
    highest = scipy.stats.binom.pmf(np.floor((k + 1) * q), k, q)
    return records * delta * (1 - q) * (np.diff([*start, guesses]) @ highest) / guesses


def chance(right: int, guesses: int, records: int, epsilon: np.ndarray, delta: float) -> np.ndarray:
    """The bound above of the chance of so many right guesses or more, for every epsilon [E].

    The arguments beside `right`, v, are those of `lost`.
    """
    q = 1 / (1 + np.exp(-epsilon))
    return scipy.stats.binom.sf(right - 1, guesses, q) + lost(guesses, records, epsilon, delta)


def epsilon_shown(right: int, guesses: int, records: int, delta: float, confidence: float) -> float:
    """The epsilon up to which all are excluded by so many right guesses, at this confidence; 0 where none is.

    What is protected by an epsilon is by any larger one: small ones, where delta alone would leave more than half of
    the error, are excluded by the least one that does not.

    Args:
        right: How many guesses are right.
        guesses: How many were made.
        records: How many coins there were.
        delta: That of the epsilon, in [0, 1).
        confidence: With which the bound holds, in (0, 1).
    """
    error = 1 - confidence
    tried = _GRID[lost(guesses, records, _GRID, delta) <= error / 2]
    likely = chance(right, guesses, records, tried, delta) >= error
    first = int(np.argmax(likely)) if likely.any() else len(tried)
    return float(tried[first - 1]) if first else 0.0


def right_guesses(scores: np.ndarray, coins: np.ndarray, low: int, high: int) -> int:
    """How many are right where the `low` smallest scores [m] are taken for 0 and the `high` largest for 1."""
    order = np.argsort(scores, kind="stable")
    return int((coins[order[:low]] == 0).sum() + (coins[order[len(order) - high :]] == 1).sum())
