"""What an observer with a limited view learns about each node, compared with the run's guarantee: `jdfl.observe`.

Axes: m nodes, P releases per node.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from jax import Array

from jdfl.algorithms.algorithm import Algorithm
from jdfl.algorithms.gradients import Gradients
from jdfl.algorithms.program import Program
from jdfl.base.arguments import checked
from jdfl.engine.accountant import account_plan
from jdfl.engine.spending import guarantee_of
from jdfl.engine.start import check_run
from jdfl.engine.stepping import paired
from jdfl.network import Network
from jdfl.observers import exposure
from jdfl.observers.observer import Neighbour, Observer
from jdfl.observers.result import LEFT_OPEN, Exposure, Pairs
from jdfl.observers.rounds import spread
from jdfl.observers.spread import Spread
from jdfl.observers.watched import NoMapError
from jdfl.privacy import Event, GaussianEvent, Guarantee, PrivacyReport, gaussian_epsilon
from jdfl.privacy.accounting import slips_paid
from jdfl.privacy.analytic import MOST_MU
from jdfl.problems import Problem

_MOST_ROWS, _MOST_ENTRIES = 8000, 2**28  # of a view, whose square is stored, and of its coefficients
_EVERY = Gradients()  # for methods that add noise to something else
_ALL = "all messages"  # the observer for which the run's epsilon bounds what every other observer learns


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

    Args:
        algorithm: As for `observe`.
        problem: As for `observe`.
        network: As for `observe`.
        steps: As for `observe`.
        key: As for `observe`.
        delta: As for `observe`.
        sums: Whether nodes see only secure sums of their neighbours' messages.

    Raises:
        ValueError: As for `observe`.
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
    run = Observed.of(algorithm, problem, network, steps=steps, key=key, delta=delta)
    return run.by(observer)


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
        if not isinstance(guarantee.event, GaussianEvent):
            _refuse(program, f"its noise is {report.mechanism}, for which only everyone's epsilon is known")
        try:
            found, passes = spread(program, problem, network, steps, key), np.ones(problem.m, int)
            if guarantee.unit == "record" and found.rounds == list(range(steps)):  # one release and step per round
                passes = getattr(program.algorithm, "gradients", _EVERY).passes(problem)
            return cls(found, guarantee, report, passes)
        except NoMapError as error:
            _refuse(program, str(error), error)
            raise

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
        return exposure.blocks(rows[:, [one is not None for one in self.spread.inputs]], noise)

    def _largest(self, M: np.ndarray) -> np.ndarray:
        """A bound [m] on what a view reveals about a record that is used in some of the rounds, from M [m, T, T]."""
        found = np.zeros(len(M))
        for length in np.unique(self.passes).tolist():
            nodes = np.flatnonzero(self.passes == length)
            for place in range(min(length, M.shape[1])):
                rounds = slice(place, None, length)
                found[nodes] = np.maximum(found[nodes], exposure.largest(M[nodes][:, rounds, rounds]))
        return found

    def _bound(self, rows: np.ndarray, unknown: np.ndarray) -> tuple[bool, str]:
        """Whether all gradients are taken at points that follow from what was seen before, with an explanation."""
        points: dict[int, list[int]] = {}
        for release, place in self.spread.points:
            points.setdefault(release, []).append(place)
        if not self.spread.fixed:
            return False, LEFT_OPEN
        size, random = np.max(np.abs(rows), initial=0.0), np.random.default_rng(0)
        for release in (p for p, one in enumerate(self.spread.inputs) if one is not None):
            if release not in points:
                return False, LEFT_OPEN
            wanted = self.spread.rows([(place, random.standard_normal(self.spread.m)) for place in points[release]])
            before = np.max(np.abs(rows[:, release:]), axis=(1, 2), initial=0.0) <= 1e-12 * size
            if not exposure.spans(exposure.flat(rows[before], unknown), exposure.flat(wanted, unknown)):
                return False, LEFT_OPEN
        if not any(np.any(self.spread.rows([(place, np.ones(self.spread.m))])) for _, place in self.spread.points):
            return True, "what is released is fixed before anything is sent"
        return True, "all gradients are taken at points that the observer knows from what it has seen before"

    def _epsilons(self, mu: np.ndarray) -> np.ndarray:
        """The epsilons of shifts mu [...]; the tables of exact noise use up their part of delta."""
        event: Any = self.guarantee.event
        count, delta = self.releases * self.spread.m, self.report.delta
        known = {float(one): _epsilon(float(one), event, count, delta) for one in np.unique(mu[~np.isnan(mu)])}
        return np.reshape([known.get(float(one), np.nan) for one in mu.ravel()], mu.shape)


def _epsilon(mu: float, event: Event, count: int, delta: float) -> float:
    def bounds(_: Event, left: float) -> dict[str, float]:
        return {"Gaussian": gaussian_epsilon(mu, left)}

    if not 0 < mu <= MOST_MU:
        return math.inf if mu > 0 else 0.0
    return slips_paid(bounds, event, count, delta)["Gaussian"]


def _refuse(program: Program, reason: str, cause: Exception | None = None) -> None:
    """ValueError for a method whose observers cannot be distinguished."""
    raise ValueError(
        f"Expected a method whose messages are an affine map of its Gaussian releases, got "
        f"{type(program.algorithm).__name__}: {reason}. What everyone learns is in jdfl.account."
    ) from cause
