"""What observers learn, as values: of one observer, and of all pairs of nodes.

Axes: m nodes.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from jdfl.privacy.relation import plain, upper

LEFT_OPEN = (
    "fixed gradients, no bound: gradients depend on what the observer does not see, which can amplify what it learns"
)


@dataclass(frozen=True)
class Exposure:
    """What an observer learns about every node in a run.

    `mu` is the size of the Gaussian shift that the worst change of a node's data makes in what the observer sees, which
    optimal attacks reach where data are fixed. With `bound` it is a guarantee, else `epsilon_claimed` alone is one,
    that of the whole run; both are about the `unit` and `adjacency` of the run's report.
    """

    observer: str  # in words
    mu: np.ndarray  # [m]; NaN for the observer's own nodes
    epsilon: np.ndarray  # [m] at delta
    delta: float
    bound: bool  # whether mu bounds what the observer learns, however gradients depend on what is released
    reason: str  # why it does or does not
    epsilon_claimed: float  # which the run guarantees, of the worst node
    claimed_against: str  # the observer whom that holds against, mostly of all messages
    releases: int  # of a node
    rows: int  # vectors that the observer sees
    unit: str
    adjacency: str

    @property
    def seen(self) -> np.ndarray:
        """The nodes [m] bool about whom there is something to learn: all but the observer's own."""
        return ~np.isnan(self.mu)

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON; what is not finite is None."""
        return plain({name: _listed(value) for name, value in asdict(self).items()})

    def statement(self) -> str:
        """The findings in words, as Markdown list items."""
        mu, epsilon = self.mu[self.seen], self.epsilon[self.seen]
        worst = int(np.nanargmax(self.mu))
        lines = [
            f"observer: {self.observer}; {self.rows} vectors are seen",
            f"epsilon of nodes at delta = {self.delta:g}: least {upper(epsilon.min())}, median "
            f"{upper(np.median(epsilon))}, worst {upper(epsilon.max())} (node {worst}); mu {mu.min():.4g}, "
            f"{np.median(mu):.4g}, {mu.max():.4g}",
            f"{'a guarantee' if self.bound else 'NO GUARANTEE'}: {self.reason}",
            f"the guarantee of the run, against an observer of {self.claimed_against}: epsilon = "
            f"{upper(self.epsilon_claimed)}",
            f"protected: {self.unit}, {self.adjacency}; sampling of examples is not counted for this observer",
        ]
        return "".join(f"- {line}\n" for line in lines)


@dataclass(frozen=True)
class Pairs:
    """What every node as an observer learns about every other one, and the `distance` between them.

    A node makes so many `releases`; the run's own guarantee is against the observer `claimed_against`.
    """

    mu: np.ndarray  # [m, m] of observer and observed, as for `Exposure`; NaN for oneself
    epsilon: np.ndarray  # [m, m]
    distance: np.ndarray  # [m, m] in links, from the observed to the observer; inf: no way
    delta: float
    bound: np.ndarray  # [m] bool observers for whom it is a guarantee
    epsilon_claimed: float  # which the run guarantees
    claimed_against: str
    releases: int

    @property
    def median(self) -> float:
        """The median of epsilon over all pairs of nodes."""
        return float(np.nanmedian(self.epsilon))

    def by_distance(self) -> pd.DataFrame:
        """A row for every distance: pairs at it, and the least, median and largest mu and epsilon."""
        pair = ~np.isnan(self.mu)
        table = pd.DataFrame({name: getattr(self, name)[pair] for name in ("distance", "mu", "epsilon")})
        grouped = table.groupby("distance")
        found = pd.DataFrame({"pairs": grouped.size()})
        for name in ("mu", "epsilon"):
            for how in ("min", "median", "max"):
                found[f"{name} {how}"] = grouped[name].agg(how)
        return found.reset_index()

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON; what is not finite is None."""
        return plain({name: _listed(value) for name, value in asdict(self).items()})

    def statement(self) -> str:
        """The findings in words, as Markdown list items, and a line for every distance."""
        sure = int(self.bound.sum())
        label = "a guarantee" if sure == len(self.bound) else f"a guarantee for {sure} of {len(self.bound)} observers"
        lines = [
            f"pairs of nodes: epsilon at delta = {self.delta:g}: least {upper(np.nanmin(self.epsilon))}, median "
            f"{upper(self.median)}, worst {upper(np.nanmax(self.epsilon))}",
            label if sure else f"NO GUARANTEE: {LEFT_OPEN}",
            f"the guarantee of the run, against an observer of {self.claimed_against}: epsilon = "
            f"{upper(self.epsilon_claimed)}",
        ]
        for row in self.by_distance().to_dict("records"):
            found = ", ".join(f"{how} {upper(row[f'epsilon {how}'])}" for how in ("min", "median", "max"))
            lines.append(f"at distance {row['distance']:g}, {row['pairs']} pairs: epsilon {found}")
        return "".join(f"- {line}\n" for line in lines)


def _listed(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value
