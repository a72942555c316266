"""`jdfl.observe`: what an observer with a limited view learns about each node, compared with the run's guarantee.

A view is A g + B z, with the data g of all releases and nodes, and unit noises z unknown to the observer. A change d of
the data of node u makes it a Gaussian shift, whose squared size in units of the noise is d^T M d with
M = A_u^T (B B^T)^+ A_u [P, P]; it is infinite where A_u shows something that B does not cover. This is exact for fixed
data, by linear algebra.

A. Bellet, E. Cyffers, D. Frey, R. Gaudel, D. Lerévérend, F. Taiani: Unified Privacy Guarantees for Decentralized
Learning via Matrix Factorization, 2025.

Axes: m nodes, P releases per node, R rows of a view.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import scipy.linalg
from jax import Array

from jdfl.algorithms.algorithm import Algorithm
from jdfl.algorithms.gradients import Gradients
from jdfl.base.arguments import checked
from jdfl.engine.accountant import account_plan
from jdfl.engine.spending import guarantee_of
from jdfl.engine.start import check_run
from jdfl.engine.stepping import paired
from jdfl.network import Network
from jdfl.observers.observer import Neighbour, Observer
from jdfl.observers.spread import Spread, spread
from jdfl.observers.watched import NoMapError
from jdfl.privacy import GaussianEvent, Guarantee, PrivacyReport, gaussian_epsilon
from jdfl.privacy.accounting import slips_paid
from jdfl.privacy.analytic import MOST_MU
from jdfl.privacy.report import Plain, upper
from jdfl.problems import Problem

_MOST_ROWS, _MOST_ENTRIES = 8000, 2**28  # of a view, whose square is stored, and of its coefficients
_ALL = "all messages"  # the observer for which the run's epsilon bounds what every other observer learns
_RANK = 1e-11  # of the largest singular value: smaller directions are taken for rounding errors
_CLEAR = 1e-4  # smallest pivot of rows that are clearly independent
_ROUNDS, _ENOUGH = 300, 1e-4  # of the search for the worst changes, and the gap at which it stops
_LEFT_OPEN = (
    "fixed gradients, no bound: gradients depend on what the observer does not see, which can amplify what it learns"
)


@dataclass(frozen=True)
class Exposure(Plain):
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
class Pairs(Plain):
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
        found = {"pairs": grouped.size()}
        for name in ("mu", "epsilon"):
            found |= {f"{name} {how}": grouped[name].agg(how) for how in ("min", "median", "max")}
        return pd.DataFrame(found).reset_index()

    def statement(self) -> str:
        """The findings in words, as Markdown list items, with a line for each distance."""
        sure = int(self.bound.sum())
        label = "a guarantee" if sure == len(self.bound) else f"a guarantee for {sure} of {len(self.bound)} observers"
        lines = [
            f"pairs of nodes: epsilon at delta = {self.delta:g}: minimum {upper(np.nanmin(self.epsilon))}, median "
            f"{upper(self.median)}, maximum {upper(np.nanmax(self.epsilon))}",
            label if sure else f"NO GUARANTEE: {_LEFT_OPEN}",
            f"the run's guarantee, against an observer of {self.claimed_against}: epsilon = "
            f"{upper(self.epsilon_claimed)}",
        ]
        for row in self.by_distance().to_dict("records"):
            found = ", ".join(f"{how} {upper(row[f'epsilon {how}'])}" for how in ("min", "median", "max"))
            lines.append(f"at distance {row['distance']:g}, {row['pairs']} pairs: epsilon {found}")
        return "".join(f"- {line}\n" for line in lines)


@checked
def observe_pairs(
    algorithm: Algorithm,
    problem: Problem,
    network: Network,
    *,
    steps: int,
    key: int | Array = 0,
    delta: float | None = None,
    sums: bool = False,
) -> Pairs:
    """What each node learns about each other one in a run of `steps` rounds: `observe` for every node.

    `algorithm`, `problem`, `network`, `steps`, `key` and `delta` are those of `observe`, as are the ValueErrors; with
    `sums` nodes see only secure sums of their neighbours' messages.
    """
    run = Observed.of(algorithm, problem, network, steps=steps, key=key, delta=delta)
    found = [run.by(Neighbour(node, sums)) for node in range(problem.m)]
    return Pairs(
        mu=np.stack([one.mu for one in found]),
        epsilon=np.stack([one.epsilon for one in found]),
        distance=run.spread.distances(),
        delta=found[0].delta,
        bound=np.array([one.bound for one in found]),
        epsilon_claimed=found[0].epsilon_claimed,
        claimed_against=found[0].claimed_against,
        releases=found[0].releases,
    )


@checked
def observe(
    algorithm: Algorithm,
    problem: Problem,
    network: Network,
    observer: Observer,
    *,
    steps: int,
    key: int | Array = 0,
    delta: float | None = None,
) -> Exposure:
    """What an observer learns about each node in a run of `steps` rounds; nothing is run.

    The observer's view is derived from the method's own step, with inputs in place of its noisy releases. It works for
    every method whose step is affine in its releases and treats the entries of a vector alike, such as D-PSGD, gradient
    tracking, EXTRA, local steps and push-sum, on any network.

    Results are exact for gradients that do not depend on what is released. For others they are a guarantee only if all
    gradients are taken at points that the observer can compute from what it has seen before. Observers with a limited
    view cannot, and what they do not see may amplify what they learn.

    Args:
        algorithm: The settings of the method, with Gaussian noise.
        problem: The nodes' data and losses, for m nodes.
        network: The communication network; random ones are those of the run with this key.
        observer: The observer: `jdfl.observers.Neighbour`, `Coalition`, `Everyone`, `FinalModels` or `Server`.
        steps: Rounds of the run, at least 1.
        key: The run's key.
        delta: As for `jdfl.account`.

    Raises:
        ValueError: Where the run has no guarantee at all, for an observer that the network does not have, and for a
            method whose step is not affine, with the reason.
    """
    return Observed.of(algorithm, problem, network, steps=steps, key=key, delta=delta).by(observer)


@dataclass(frozen=True)
class Observed:
    """A run that can be observed: its map from releases to messages, and its guarantee against everyone."""

    spread: Spread
    guarantee: Guarantee
    report: PrivacyReport
    passes: np.ndarray  # [m] rounds between two uses of a record; 1: it may be used in every round

    @classmethod
    def of(
        cls,
        algorithm: Algorithm,
        problem: Problem,
        network: Network,
        *,
        steps: int,
        key: int | Array,
        delta: float | None,
    ) -> "Observed":
        """The observed form of a run; ValueError where there is none."""
        network = paired(problem, network)
        report = account_plan(algorithm, problem, network, steps=steps, key=key, delta=delta)
        program = check_run(algorithm, problem, network, steps, 1, None)
        guarantee = guarantee_of(program, problem)
        try:
            if not isinstance(guarantee.event, GaussianEvent):
                raise NoMapError(f"its noise is {report.mechanism}, for which only everyone's epsilon is known")
            found, passes = spread(program, problem, network, steps, key), np.ones(problem.m, int)
        except NoMapError as error:
            raise ValueError(
                f"Expected a method whose messages are an affine map of its Gaussian releases, got "
                f"{type(program.algorithm).__name__}: {error}. What everyone learns is in jdfl.account."
            ) from error
        if guarantee.unit == "record" and found.rounds == list(range(steps)):  # one release and step per round
            passes = getattr(program.algorithm, "gradients", Gradients()).passes(problem)
        return cls(found, guarantee, report, passes)

    def by(self, observer: Observer) -> Exposure:
        """What an observer learns."""
        found, m = self.spread, self.spread.m
        unknown = np.ones(m, bool)
        unknown[list(observer.known(m))] = False
        wanted = observer.rows(found)
        if self.guarantee.local and any(place == found.final for place, _ in wanted):
            raise ValueError(
                f"Expected an observer of messages, got observer = {observer!r}: no guarantee covers the final "
                f"parameters ({self.guarantee.local})."
            )
        most = min(_MOST_ROWS, _MOST_ENTRIES // (m * len(found.inputs)))
        if len(wanted) > most:
            raise ValueError(
                f"Expected a view of at most {most} vectors in {found.steps} rounds of {m} nodes, got observer = "
                f"{observer!r}, who sees {len(wanted)}. Use fewer rounds or nodes."
            )
        rows = found.rows(wanted)
        mu = np.sqrt(self._largest(self.blocks(rows, unknown)))
        mu[~unknown] = np.nan
        bound, reason = self._bound(rows, unknown)
        epsilon, claimed = self._epsilons(mu), self.report.epsilon
        return Exposure(
            observer=observer.words(),
            mu=mu,
            epsilon=np.minimum(epsilon, claimed) if bound and self.report.observer == _ALL else epsilon,
            delta=self.report.delta,
            bound=bound,
            reason=reason,
            epsilon_claimed=claimed,
            claimed_against=self.report.observer,
            releases=self.releases,
            rows=len(wanted),
            unit=self.report.unit,
            adjacency=self.report.adjacency,
        )

    @property
    def releases(self) -> int:
        """The number of releases per node."""
        return sum(one is not None for one in self.spread.inputs)

    def blocks(self, rows: np.ndarray, unknown: np.ndarray) -> np.ndarray:
        """What a view of rows [R, P, m] reveals about each node [m, releases, releases].

        Its noise is that of the unknown nodes [m].
        """
        noise = (self.spread.noises(unknown).T @ rows.reshape(len(rows), -1).T).T
        return blocks(rows[:, [one is not None for one in self.spread.inputs]], noise)

    def _largest(self, M: np.ndarray) -> np.ndarray:
        """A bound [m] on what a view reveals about a record that is used in some of the rounds, from M [m, T, T]."""
        found = np.zeros(len(M))
        for length in np.unique(self.passes).tolist():
            nodes = np.flatnonzero(self.passes == length)
            for place in range(min(length, M.shape[1])):
                rounds = slice(place, None, length)
                found[nodes] = np.maximum(found[nodes], largest(M[nodes][:, rounds, rounds]))
        return found

    def _bound(self, rows: np.ndarray, unknown: np.ndarray) -> tuple[bool, str]:
        """Whether all gradients are taken at points that follow from what was seen before, with an explanation."""
        points: dict[int, list[int]] = {}
        for release, place in self.spread.points:
            points.setdefault(release, []).append(place)
        if not self.spread.fixed:
            return False, _LEFT_OPEN
        size, random = np.max(np.abs(rows), initial=0.0), np.random.default_rng(0)
        for release in (p for p, one in enumerate(self.spread.inputs) if one is not None):
            if release not in points:
                return False, _LEFT_OPEN
            wanted = self.spread.rows([(place, random.standard_normal(self.spread.m)) for place in points[release]])
            before = np.max(np.abs(rows[:, release:]), axis=(1, 2), initial=0.0) <= 1e-12 * size
            if not spans(_flat(rows[before], unknown), _flat(wanted, unknown)):
                return False, _LEFT_OPEN
        if not any(np.any(self.spread.rows([(place, np.ones(self.spread.m))])) for _, place in self.spread.points):
            return True, "what is released is fixed before anything is sent"
        return True, "all gradients are taken at points that the observer knows from what it has seen before"

    def _epsilons(self, mu: np.ndarray) -> np.ndarray:
        """The epsilons of shifts mu [m]; the tables of exact noise use up their part of delta."""
        event: Any = self.guarantee.event
        count, delta = self.releases * self.spread.m, self.report.delta

        def epsilon(mu: float) -> float:
            if not 0 < mu <= MOST_MU:
                return math.nan if math.isnan(mu) else math.inf if mu > 0 else 0.0
            return slips_paid(lambda _, left: {"": gaussian_epsilon(mu, left)}, event, count, delta)[""]

        different, place = np.unique(mu, return_inverse=True)
        return np.array([epsilon(one) for one in different.tolist()])[place]


def _flat(rows: np.ndarray, unknown: np.ndarray) -> np.ndarray:
    """The columns [R, N] of rows [R, P, m] that belong to unknown nodes [m]."""
    return rows[:, :, unknown].reshape(len(rows), rows.shape[1] * int(unknown.sum()))


def blocks(rows: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """What a view reveals about each node, M [m, P, P]; infinite where something is shown without noise."""
    count, releases, m = rows.shape
    white = _whitened(rows.reshape(count, releases * m), noise).reshape(-1, releases, m)
    with np.errstate(invalid="ignore"):
        return np.einsum("rpu,rtu->upt", white, white, optimize=True)


def _whitened(data: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """A view's data [R, D] in coordinates in which its noise [R, N] is white; infinite where data has no noise."""
    length = np.linalg.norm(noise, axis=1)
    bare = length <= _RANK * np.max(length, initial=0.0)
    shown = np.any(np.abs(data[bare]) > _RANK * np.max(np.abs(data), initial=0.0), axis=0)
    noise, data = (one[~bare] / length[~bare, None] for one in (noise, data))
    found = _solved(data, noise) if len(noise) else np.zeros((1, data.shape[1]))
    found[:, shown] = np.inf
    return found


def _solved(data: np.ndarray, noise: np.ndarray) -> np.ndarray:
    try:  # by far the fastest way, where rows are clearly independent
        low = scipy.linalg.cholesky(noise @ noise.T, lower=True, check_finite=False)
        if np.min(np.diag(low)) > _CLEAR:
            return scipy.linalg.solve_triangular(low, data, lower=True, check_finite=False)
    except scipy.linalg.LinAlgError:
        pass
    r = scipy.linalg.qr(noise.T, mode="r", check_finite=False)[0][: len(noise)]
    _, size, axes = scipy.linalg.svd(r)
    axes = axes[: len(size)]
    kept = axes[size > _RANK * size[0]]
    rest = data - kept.T @ (kept @ data)
    found = (kept @ data) / size[size > _RANK * size[0], None]
    found[:, np.linalg.norm(rest, axis=0) > 1e-7 * np.linalg.norm(data, axis=0)] = np.inf
    return found


def largest(M: np.ndarray) -> np.ndarray:
    """Upper bounds [m] on the sums of M_ts <d_t, d_s> over vectors of norm at most one, for M [m, P, P] >= 0.

    The bound is the sum of M where no entry is negative. Elsewhere a search finds the worst vectors. From them follows
    an upper bound sum y with diag(y) >= M (the dual of this semidefinite program); the smallest of it, the sum of |M|,
    and P times the largest eigenvalue is used.
    """
    found = np.full(len(M), np.inf)
    finite = np.flatnonzero(np.isfinite(M).all(axis=(1, 2)))
    M = M[finite]
    found[finite] = np.abs(M).sum(axis=(1, 2))
    signed = M.min(axis=(1, 2), initial=0.0) < -1e-12 * np.abs(M).max(axis=(1, 2), initial=0.0)
    if signed.any():
        found[finite[signed]] = np.minimum(found[finite[signed]], _signed(M[signed]))
    return found


def _signed(M: np.ndarray) -> np.ndarray:
    """Upper bounds [m] by the dual, for M [m, P, P] with negative entries."""
    count = M.shape[1]
    value, vector = np.linalg.eigh(M)
    most = count * value[:, -1]
    d = vector[:, :, -min(count, math.isqrt(2 * count) + 2) :] * np.sqrt(np.maximum(value[:, None, -1:], 0.0))
    d = d / np.maximum(np.linalg.norm(d, axis=2, keepdims=True), 1e-300)
    own = np.einsum("mtt->mt", M)
    for step in range(_ROUNDS):
        for t in range(count):
            pulled = np.einsum("ms,msk->mk", M[:, t], d) - own[:, t, None] * d[:, t]
            size = np.linalg.norm(pulled, axis=1, keepdims=True)
            d[:, t] = np.where(size > 0, pulled / np.maximum(size, 1e-300), d[:, t])
        if step % 10 < 9:
            continue
        y = np.linalg.norm(M @ d - own[:, :, None] * d, axis=2) + own
        missing = np.maximum(0.0, np.linalg.eigvalsh(M - y[:, :, None] * np.eye(count))[:, -1])
        most = np.minimum(most, y.sum(axis=1) + count * missing)
        if np.all(count * missing <= _ENOUGH * most):
            break
    return most


def spans(rows: np.ndarray, wanted: np.ndarray) -> bool:
    """Whether rows [R, N] span all rows of `wanted` [k, N]."""
    size = np.linalg.norm(wanted, axis=1)
    if not np.any(size > 0):
        return True
    basis = _whitened(rows, rows)  # orthonormal: in coordinates in which they are white
    rest = wanted - (wanted @ basis.T) @ basis
    return bool(np.all(np.linalg.norm(rest, axis=1) <= 1e-7 * size))
