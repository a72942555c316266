"""What observers learn, as values: for one observer, and for all pairs of nodes.

Axes: m nodes.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from jdfl.privacy.report import plain, upper

LEFT_OPEN = (
    "fixed gradients, no bound: gradients depend on what the observer does not see, which can amplify what it learns"
)


@dataclass(frozen=True)
class Exposure:
    """What an observer learns about each node in a run.

    `mu` is the Gaussian shift that the worst change of a node's data causes in what the observer sees; optimal attacks
    achieve it where data are fixed. If `bound` is true it is a guarantee; otherwise only `epsilon_claimed` is one, that
    of the whole run. Both refer to the `unit` and `adjacency` of the run's report.
    """

    observer: str  # in words
    mu: np.ndarray  # [m]; NaN for the observer's own nodes
    epsilon: np.ndarray  # [m] at delta
    delta: float
    bound: bool  # whether mu bounds what the observer learns, however gradients depend on releases
    reason: str  # why it does or does not
    epsilon_claimed: float  # the run's guarantee, for the worst node
    claimed_against: str  # the observer of that guarantee, usually of all messages
    releases: int  # per node
    rows: int  # vectors that the observer sees
    unit: str
    adjacency: str

    @property
    def seen(self) -> np.ndarray:
        """The nodes [m] bool that the observer learns about: all but its own."""
        return ~np.isnan(self.mu)

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON; numbers that are not finite become None."""
        return plain({name: _listed(value) for name, value in asdict(self).items()})

    def statement(self) -> str:
        """The findings in words, as Markdown list items."""
        mu, epsilon = self.mu[self.seen], self.epsilon[self.seen]
        worst = int(np.nanargmax(self.mu))
        lines = [
            f"observer: {self.observer}; {self.rows} vectors are seen",
            f"epsilon per node at delta = {self.delta:g}: minimum {upper(epsilon.min())}, median "
            f"{upper(np.median(epsilon))}, maximum {upper(epsilon.max())} (node {worst}); mu {mu.min():.4g}, "
            f"{np.median(mu):.4g}, {mu.max():.4g}",
            f"{'a guarantee' if self.bound else 'NO GUARANTEE'}: {self.reason}",
            f"the run's guarantee, against an observer of {self.claimed_against}: epsilon = "
            f"{upper(self.epsilon_claimed)}",
            f"protected: {self.unit}, {self.adjacency}; sampling of examples is not counted for this observer",
        ]
        return "".join(f"- {line}\n" for line in lines)


@dataclass(frozen=True)
class Pairs:
    """What each node, as an observer, learns about each other one, and the `distance` between them.

    Each node makes `releases` releases; the run's own guarantee is against the observer `claimed_against`.
    """

    mu: np.ndarray  # [m, m] by observer and observed, as for `Exposure`; NaN on the diagonal
    epsilon: np.ndarray  # [m, m]
    distance: np.ndarray  # [m, m] in links, from the observed to the observer; inf: unreachable
    delta: float
    bound: np.ndarray  # [m] bool observers for which it is a guarantee
    epsilon_claimed: float  # the run's guarantee
    claimed_against: str
    releases: int

    @property
    def median(self) -> float:
        """The median of epsilon over all pairs of nodes."""
        return float(np.nanmedian(self.epsilon))

    def by_distance(self) -> pd.DataFrame:
        """One row per distance: the number of pairs, and the minimum, median and maximum of mu and epsilon."""
        pair = ~np.isnan(self.mu)
        table = pd.DataFrame({name: getattr(self, name)[pair] for name in ("distance", "mu", "epsilon")})
        grouped = table.groupby("distance")
        found = pd.DataFrame({"pairs": grouped.size()})
        for name in ("mu", "epsilon"):
            for how in ("min", "median", "max"):
                found[f"{name} {how}"] = grouped[name].agg(how)
        return found.reset_index()

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON; numbers that are not finite become None."""
        return plain({name: _listed(value) for name, value in asdict(self).items()})

    def statement(self) -> str:
        """The findings in words, as Markdown list items, with a line for each distance."""
        sure = int(self.bound.sum())
        label = "a guarantee" if sure == len(self.bound) else f"a guarantee for {sure} of {len(self.bound)} observers"
        lines = [
            f"pairs of nodes: epsilon at delta = {self.delta:g}: minimum {upper(np.nanmin(self.epsilon))}, median "
            f"{upper(self.median)}, maximum {upper(np.nanmax(self.epsilon))}",
            label if sure else f"NO GUARANTEE: {LEFT_OPEN}",
            f"the run's guarantee, against an observer of {self.claimed_against}: epsilon = "
            f"{upper(self.epsilon_claimed)}",
        ]
        for row in self.by_distance().to_dict("records"):
            found = ", ".join(f"{how} {upper(row[f'epsilon {how}'])}" for how in ("min", "median", "max"))
            lines.append(f"at distance {row['distance']:g}, {row['pairs']} pairs: epsilon {found}")
        return "".join(f"- {line}\n" for line in lines)


def _listed(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value
