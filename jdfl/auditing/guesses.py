"""What the number of correct guesses in one run proves about epsilon.

m records are each in one of two states, decided by a fair secret coin, and a run uses all of them. An adversary sees
what it releases and guesses r of the m coins, which it may choose. Let every record be protected by (epsilon, delta),
whatever the states of the others, q = e^epsilon / (1 + e^epsilon), and W be the number of correct guesses. Then

    P[W >= v] <= P[B_r >= v] + m delta / (1 + e^epsilon) * (1 / r) sum_{k < r} max_j P[B_k = j],

where B_k is binomial with k trials and probability q. So r guesses are worth r answers of a randomised response, and
nothing is lost for the number of records. The first term and the idea are those of T. Steinke, M. Nasr, M. Jagielski,
"Privacy auditing with one (1) training run", 2023 (Theorem 5.2); the term with delta is derived here, since theirs is
larger where epsilon is large.

Proof. Reveal the coins one after another in any order, given the release t. Coin i is guessed correctly with a
probability K_i that depends on t and on the coins before it. With g(k, w) = P[w + B_k >= v], which is q g(k-1, w+1) +
(1-q) g(k-1, w), replacing the i-th guess by one of probability q changes P[W >= v] by the mean of (K_i - q) times a
difference g(k, w+1) - g(k, w) = P[B_k = v-1-w], where k guesses come after it. This is at most max_j P[B_k = j] times
max(0, K_i - q), whose mean given t only grows if K_i knows all other coins (Jensen). It is then the probability for
one record between two worlds P and Q of the release, and P <= e^epsilon Q + delta, in both directions, gives a mean of
at most (1-q) delta. Over a random order of the coins k is uniform on 0, ..., r-1 for any t, which gives the sum.

Everything here is NumPy on the host.
"""

import numpy as np
import scipy

_GRID = np.arange(0.0, 20.0, 0.005)  # epsilons that are tried


def lost(guesses: int, records: int, epsilon: np.ndarray, delta: float) -> np.ndarray:
    """The second term of the bound, which accounts for delta, for every epsilon [E]; it decreases with epsilon."""
    q = 1 / (1 + np.exp(-epsilon))
    start = np.unique(np.geomspace(1, guesses, 60).astype(int)) - 1  # of ranges of k: the largest decreases with k
    k = start[:, None]
    highest = scipy.stats.binom.pmf(np.floor((k + 1) * q), k, q)
    return records * delta * (1 - q) * (np.diff([*start, guesses]) @ highest) / guesses


def chance(right: int, guesses: int, records: int, epsilon: np.ndarray, delta: float) -> np.ndarray:
    """The bound above on the probability of at least `right` correct guesses, for every epsilon [E].

    The other arguments are those of `lost`.
    """
    q = 1 / (1 + np.exp(-epsilon))
    return scipy.stats.binom.sf(right - 1, guesses, q) + lost(guesses, records, epsilon, delta)


def epsilon_shown(right: int, guesses: int, records: int, delta: float, confidence: float) -> float:
    """The largest epsilon excluded by this number of correct guesses, at this confidence; 0 where none is.

    A record protected by some epsilon is protected by any larger one. Small epsilons, for which delta alone would use
    more than half of the error, are therefore excluded together with the smallest one for which it does not.
    """
    error = 1 - confidence
    tried = _GRID[lost(guesses, records, _GRID, delta) <= error / 2]
    likely = chance(right, guesses, records, tried, delta) >= error
    first = int(np.argmax(likely)) if likely.any() else len(tried)
    return float(tried[first - 1]) if first else 0.0


def right_guesses(scores: np.ndarray, coins: np.ndarray, low: int, high: int) -> int:
    """The number of correct guesses if the `low` smallest scores [m] are guessed 0 and the `high` largest 1."""
    order = np.argsort(scores, kind="stable")
    return int((coins[order[:low]] == 0).sum() + (coins[order[len(order) - high :]] == 1).sum())
