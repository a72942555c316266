"""Theorem 1 of the DO-ADP paper: its claim about privacy. On the host.

W. Huo, C. Liu, K. Ding, K. H. Johansson, L. Shi: Decentralized Optimization with Amplified Privacy via Efficient
Communication. For T rounds, nodes with q records that are active with probability p and use one record per round,
gradients whose entries are at most G / sqrt(d), and messages of k of d entries,

    sigma^2 >= 160 k p^2 T log(1.25 / delta_0) G^2 / (q^2 d epsilon^2)
    epsilon in (0, 1],   T >= q^2 epsilon^2 / (4 p^2)

is said to make all messages (epsilon, delta)-differentially private "for some constant delta". The delta of its proof
is

    delta = 1 - (1 - delta') (1 - p delta_0)^T,   delta' = sqrt(sum of epsilon'_t^2) = epsilon / sqrt(5)

at the smallest noise: about 0.0045 at epsilon = 0.01, and 0.45 at epsilon = 1, whatever delta_0. (With its own lemma on
subsampling the second factor would have p delta_0 / q; we take the larger delta, which claims less.)

As printed, "for some constant delta in (0, 1]", the theorem claims nothing: every algorithm satisfies delta = 1. What
fails is the delta of its proof, and with it the factors k / d and p^2 in the variance of the noise: see `UNSOUND`.
"""

import math
from dataclasses import dataclass
from typing import Annotated

from jdfl.base import checks
from jdfl.base.arguments import settings
from jdfl.base.settings import Bound, Count

SOURCE = "W. Huo et al., Theorem 1"
UNSOUND = (
    "a message's k entries are chosen from the data and the others are sent later, so the sensitivity is not "
    "sqrt(k / d) of the whole; all observers see who is active, so p amplifies nothing"
)


@dataclass(frozen=True)
class Theorem1:
    """The theorem for one setting; ValueError for settings out of range."""

    p: Annotated[float, Bound("(0, 1]")]
    """Probability that a node is active in a round, in (0, 1]."""
    share: Annotated[float, Bound("(0, 1]")]
    """k / d, the fraction of its entries that a node sends, in (0, 1]."""
    steps: Count
    """T, the number of rounds."""
    records: Count
    """q, the number of examples of the smallest node."""
    clip: Annotated[float, Bound("(0, inf)")]
    """G, the largest l2 norm of an example's gradient."""
    delta0: Annotated[float, Bound("(0, 1]")] = 1e-6
    """delta_0, the delta of a single release, in (0, 1]."""

    def __post_init__(self) -> None:
        settings(self)

    def sigma(self, epsilon: float) -> float:
        """The smallest noise for `epsilon`, a standard deviation per entry (7). ValueError for epsilon > 1."""
        checks.positive(epsilon=epsilon)
        if epsilon > 1:
            raise ValueError(
                f"Expected epsilon in (0, 1], the range of Theorem 1, got epsilon = {epsilon!r}. Give a smaller one, "
                "or use jdfl.calibrate, which is sound for every epsilon."
            )
        return self._product() / epsilon

    def epsilon(self, sigma: float) -> float:
        """The theorem's claim for noise of standard deviation `sigma`; above 1 it claims nothing."""
        checks.positive(sigma=sigma)
        return self._product() / sigma

    def delta(self, epsilon: float) -> float:
        """The delta at the end of its proof, for the smallest noise for `epsilon`."""
        checks.positive(epsilon=epsilon)
        left = max(0.0, 1 - epsilon / math.sqrt(5))
        return 1 - left * math.exp(self.steps * math.log1p(-self.p * min(self.delta0, 1 - 1e-16)))

    def multiplier(self, epsilon: float) -> float:
        """`sigma(epsilon)` in units of 2 G, the effect of replacing a record: the multiplier of jdfl's mechanisms."""
        return self.sigma(epsilon) / (2 * self.clip)

    def least(self, epsilon: float) -> float:
        """The least number of rounds for `epsilon`, q^2 epsilon^2 / (4 p^2)."""
        return (self.records * epsilon / (2 * self.p)) ** 2

    def conditions(self, epsilon: float) -> tuple[str, ...]:
        """The conditions of the theorem for `epsilon`, with numbers, and whether they hold."""
        asked = self.asked(epsilon)
        return tuple(f"{text}: {'holds' if holds else 'DOES NOT HOLD'}" for _, text, holds, _ in asked)

    def asked(self, epsilon: float) -> tuple[tuple[str, str, bool, str], ...]:
        """The name of every condition for `epsilon`, its text with numbers, whether it holds, and what it needs."""
        least = self.least(epsilon)
        rounds = f"T = {self.steps} >= q^2 epsilon^2 / (4 p^2) = {least:.6g}"
        return (
            ("epsilon", f"epsilon = {epsilon:.4g} in (0, 1]", 0 < epsilon <= 1, "more noise"),
            ("T", rounds, self.steps >= least, "more rounds, or more noise"),
            ("p", f"p = {self.p:g} >= 1/2", self.p >= 0.5, "nodes that are active more often"),
        )

    def _product(self) -> float:
        """The product of sigma and epsilon, which is constant in the theorem."""
        square = 160 * self.share * self.p**2 * self.steps * math.log(1.25 / self.delta0)
        return math.sqrt(square) * self.clip / self.records
