"""Composition of releases, with dp-accounting and bounds of its own, and calibration of noise to a target.

Releases with Gaussian noise that use all records are together one such release, whose epsilon has a closed form. Other
totals come from privacy loss distributions (PLD), and Renyi differential privacy (RDP) is a second opinion. For Laplace
noise, `jdfl.privacy.bounds` adds the pure epsilons, since dp-accounting has no delta = 0, and composes noise that
differs from release to release.

Events are relative to the sensitivity under the neighbouring relation in use, so without sampling an event is the same
pair of distributions under every relation. dp-accounting doubles the sensitivity of an event under REPLACE_ONE when it
composes PLDs but not when it composes RDP; nothing here relies on either.

With sampling the relation matters:

- Under add-remove and Poisson sampling with rate r the pair is N(0) and (1 - r) N(0) + r N(1): dp-accounting has it,
  and for Gaussian noise `jdfl.privacy.bounds` integrates it as well.
- Under replace-one, `jdfl.privacy.bounds` bounds the privacy profile of one sample, with a proof, and states how
  loose the bound is. Poisson sampling requires that omitting a record changes half as much as replacing it, as in sums
  of clipped gradients.
- Under both, an adversary who is also given the samples that contain the record sees a binomial number of Gaussian
  releases.

The smallest of all bounds is used, and `epsilons` names them.
"""

import logging
import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any, Literal

import numpy as np

from jdfl.base import checks
from jdfl.base.arguments import checked
from jdfl.privacy import bounds
from jdfl.privacy.analytic import bisected, check_delta, check_target, gaussian_epsilon, participating_epsilon
from jdfl.privacy.exact import LEVELS
from jdfl.privacy.guarantee import Adjacency
from jdfl.privacy.mechanisms import (
    Event,
    GaussianEvent,
    GaussianSchedule,
    LaplaceEvent,
    LaplaceSchedule,
    check_event,
)

_LEAST_DELTA = 1e-18  # below it dp-accounting's truncation is not negligible
_MOST_LOSS = 500.0  # of one release: above it e^loss overflows, and no PLDs of samples are built


@dataclass(frozen=True)
class Sampled:
    """Every release uses a fresh random sample of the records, kept secret from all others.

    `kind` "poisson": each record with probability batch / records, independently; "subset": `batch` distinct records.
    """

    kind: Literal["poisson", "subset"]
    batch: int  # expected or exact size
    records: int  # size of the pool
    looks: int = 1  # releases per sample

    @property
    def rate(self) -> float:
        """The probability that a record is in the sample, batch / records."""
        return self.batch / self.records

    def check(self) -> None:
        """Refuse invalid sizes: ValueError naming them."""
        checks.one_of(("poisson", "subset"), kind=self.kind)
        checks.integer(1, records=self.records, looks=self.looks)
        checks.integer(1, self.records, "It is the number of records drawn from all of them.", batch=self.batch)


@checked
def epsilon(
    event: Event, releases: int, delta: float, *, sampled: Sampled | None = None, adjacency: Adjacency = "replace-one"
) -> float:
    """The epsilon at `delta` of a number of releases together: the smallest of `epsilons`; 0 for no releases.

    Args:
        event: One release; its multiplier is relative to the sensitivity under `adjacency`.
        releases: Number of releases, >= 0.
        delta: In (0, 1).
        sampled: How each release samples the records that it uses; None: it uses all of them.
        adjacency: What neighbouring datasets differ in: a record that is replaced, or one that is present or absent.

    Raises ValueError for a delta outside (0, 1), and for subsets under add-remove, whose size would reveal the record.
    """
    return min(epsilons(event, releases, delta, sampled=sampled, adjacency=adjacency).values())


@checked
def epsilons(
    event: Event, releases: int, delta: float, *, sampled: Sampled | None = None, adjacency: Adjacency = "replace-one"
) -> dict[str, float]:
    """Every proven upper bound on epsilon at `delta`, by the name of its method; each of them holds.

    Names: RDP; for Gaussian noise, closed form (without sampling), numerical integration (Poisson samples under
    add-remove) and participations (as if the adversary knew which samples hold the record); for Laplace noise, the sum
    of pure epsilons; PLD for both, but for Gaussian noise only with sampling, where there is also all records (as if
    samples held everything). Inapplicable ones are left out. Raises ValueError like `epsilon`.
    """
    check_releases(event, releases, sampled, adjacency)
    check_delta(delta)

    return _found(_ALL, event, releases, delta, sampled, adjacency)


@checked
def epsilon_rdp(
    event: Event, releases: int, delta: float, *, sampled: Sampled | None = None, adjacency: Adjacency = "replace-one"
) -> float | None:
    """The bound by RDP alone; None where dp-accounting has none, as for Poisson samples under replace-one.

    Arguments and ValueErrors are those of `epsilon`, which uses this bound wherever it is the smallest.
    """
    check_releases(event, releases, sampled, adjacency)
    check_delta(delta)
    return _found((_renyi,), event, releases, delta, sampled, adjacency).get("RDP")


@checked
def epsilon_pure(event: Event, releases: int, *, sampled: Sampled | None = None) -> float | None:
    """The sum of the releases' epsilons at delta = 0; None for Gaussian noise, which has none.

    A release with Laplace noise has 1 / noise_multiplier, or less if amplified by sampling. For many releases,
    `epsilon` at some delta > 0 is far smaller. `sampled` and the ValueErrors are as for `epsilon`.
    """
    check_releases(event, releases, sampled, "replace-one")
    if isinstance(event, GaussianEvent):
        return None
    everything = bounds.pure_epsilon(event, releases)
    if sampled is None or sampled.rate == 1 or releases == 0:
        return everything
    looks = min(releases, sampled.looks)
    one = np.logaddexp(math.log1p(-sampled.rate), math.log(sampled.rate) + looks / event.noise_multiplier)
    return min(everything, math.ceil(releases / sampled.looks) * float(one))


def slips_paid(
    bounds: Callable[[Event, float], dict[str, float]], event: Event, releases: int, delta: float
) -> dict[str, float]:
    """The results of `bounds` for an event and a delta, after subtracting from delta the slips of its releases.

    Exact noise from tables slips: its probabilities differ slightly from its event's.
    """
    if not isinstance(event, GaussianEvent) or not event.slip:
        return bounds(event, delta)
    exact = replace(event, slip=0.0)
    without = bounds(exact, delta)
    least = min(without.values(), default=0.0)
    left = left_after_slips(event, releases, delta, least)
    if left <= 0:
        return dict.fromkeys(without, math.inf)
    return {name: one if one <= least + math.log(2) else math.inf for name, one in bounds(exact, left).items()}


def left_after_slips(event: Event, releases: int, delta: float, bound: float) -> float:
    """What is left of delta after the slips of the releases, at an epsilon up to `bound` + ln 2.

    A release whose probabilities differ by t in total variation has delta + (1 + e^epsilon) t in place of delta.
    """
    slip = getattr(event, "slip", 0.0)
    return delta - 2 * (1 + math.exp(min(bound, 700.0))) * releases * slip if slip else delta


def delta_for_noise(event: Event, releases: int, delta: float, epsilon: float) -> float:
    """The delta available to the noise at an epsilon, such that with the slips of all releases `delta` holds.

    ValueError where nothing is left. More noise than the event's may slip four times as much (`exact.LEVELS`).
    """
    most = replace(event, slip=LEVELS * event.slip) if isinstance(event, GaussianEvent) else event
    if (left := left_after_slips(most, releases, delta, epsilon)) > 0:
        return left
    raise ValueError(
        f"Expected an epsilon below {epsilon:g} for {releases} releases of exact noise at delta = {delta:g}: the error "
        "of its tables would use delta up. Use a smaller epsilon, a larger delta, or Gaussian."
    )


def check_releases(event: Event, releases: int, sampled: Sampled | None, adjacency: Adjacency) -> None:
    """Refuse releases that cannot be accounted for: ValueError naming the reason."""
    check_event(event)
    checks.integer(0, releases=releases)
    checks.one_of(("replace-one", "add-remove"), adjacency=adjacency)
    if (planned := scheduled(event)) is not None and releases > planned:
        raise ValueError(
            f"Expected at most the {planned} releases that the noise is scheduled for, got releases = {releases}. "
            "The noise of later ones is undefined; make the schedule longer, or release less often."
        )
    if sampled is not None:
        sampled.check()
        if planned is not None:
            raise ValueError(
                f"Expected sampled = None with noise that follows a schedule, got sampled = {sampled!r}. Amplification "
                "by sampling is only accounted for where all releases have the same noise."
            )
        if sampled.kind == "subset" and adjacency == "add-remove":
            raise ValueError(
                "Expected adjacency = 'replace-one' with samples of a fixed size, got adjacency = 'add-remove'. Use "
                "Poisson sampling, or protect against a record that is replaced."
            )


def scheduled(event: Event | None) -> int | None:
    """The number of releases that noise is scheduled for; None for noise that is the same in all."""
    if isinstance(event, GaussianSchedule):
        return len(event.mu)
    return len(event.multipliers) if isinstance(event, LaplaceSchedule) else None


def _found(
    kinds: Sequence[Callable[..., dict[str, float]]],
    event: Event,
    releases: int,
    delta: float,
    sampled: Sampled | None,
    adjacency: Adjacency,
) -> dict[str, float]:
    """All bounds of these kinds, by name, with the slips of all releases paid for."""

    def every(event: Event, delta: float) -> dict[str, float]:
        named: dict[str, float] = {}
        for kind in kinds:
            named |= kind(event, releases, delta, sampled, adjacency)
        return named

    return slips_paid(every, event, releases, delta)


@lru_cache(maxsize=4096)
def _quick(
    event: Event, releases: int, delta: float, sampled: Sampled | None, adjacency: Adjacency
) -> dict[str, float]:
    """The bounds that are fast to compute, from which a search starts."""
    if releases == 0:
        return {"PLD": 0.0}
    found = _all_epsilons(event, releases, delta)
    if sampled is not None:  # a sample reveals no more than all records
        found = {**_sampled_epsilons(event, releases, delta, sampled, adjacency), "all records": min(found.values())}
        if (pure := epsilon_pure(event, releases, sampled=sampled)) is not None:
            found["the sum of pure epsilons"] = pure
    return found


@lru_cache(maxsize=4096)
def _slow(event: Event, releases: int, delta: float, sampled: Sampled | None, adjacency: Adjacency) -> dict[str, float]:
    if releases == 0:
        return {}
    found = _renyi(event, releases, delta, sampled, adjacency)
    if sampled is not None and sampled.rate < 1 and isinstance(event, GaussianEvent) and adjacency == "add-remove":
        steps, z = _samples(event, releases, sampled)
        found["numerical integration"] = bounds.upper_bound(z, sampled.rate, steps, delta)
    return found


def _renyi(
    event: Event, releases: int, delta: float, sampled: Sampled | None, adjacency: Adjacency
) -> dict[str, float]:
    if releases == 0:
        return {"RDP": 0.0}
    if sampled is None and not isinstance(event, GaussianEvent):
        return {"RDP": bounds.laplace_renyi(event, releases, delta)}
    dp, (count, z) = _dp(), _samples(event, releases, sampled)
    one = dp.GaussianDpEvent(z) if isinstance(event, GaussianEvent) else dp.LaplaceDpEvent(z)
    relation = dp.NeighboringRelation.ADD_OR_REMOVE_ONE
    if sampled is not None:
        if adjacency == "add-remove":
            one = dp.PoissonSampledDpEvent(sampled.rate, one)
        elif sampled.kind == "subset":
            relation = dp.NeighboringRelation.REPLACE_ONE  # RDP does not double the sensitivity: it is replace-one's
            one = dp.SampledWithoutReplacementDpEvent(sampled.records, sampled.batch, one)
        else:
            return {}
    accountant = dp.rdp.RdpAccountant(neighboring_relation=relation)
    if not accountant.supports(one):
        return {}
    return {"RDP": float(accountant.compose(one, count).get_epsilon(delta))}


def _samples(event: Event, releases: int, sampled: Sampled | None) -> tuple[int, float]:
    """The number of samples, and the multiplier of one release equivalent to all releases from a sample."""
    if isinstance(event, GaussianSchedule):
        return 1, 1 / float(event.shift(releases))
    if sampled is None:
        return releases, event.noise_multiplier
    looks = min(releases, sampled.looks)
    less = math.sqrt(looks) if isinstance(event, GaussianEvent) else looks
    return math.ceil(releases / sampled.looks), event.noise_multiplier / less


def _all_epsilons(event: Event, releases: int, delta: float) -> dict[str, float]:
    if isinstance(event, GaussianEvent):  # together they are one release with the sum of the squared shifts
        return {"closed form": gaussian_epsilon(float(event.shift(releases)), delta)}
    return bounds.laplace_epsilons(_dp().pld.privacy_loss_distribution, event, releases, delta)


def _sampled_epsilons(
    event: Event, releases: int, delta: float, sampled: Sampled, adjacency: Adjacency
) -> dict[str, float]:
    """Bounds for releases that use a fresh sample each, or where a few releases share one."""
    (steps, z), rate = _samples(event, releases, sampled), sampled.rate
    gaussian = isinstance(event, GaussianEvent)
    found = {"participations": participating_epsilon(z, rate, steps, delta)} if gaussian else {}
    # The loss of a record that is in the sample exceeds this with negligible probability.
    largest = (0.5 + 9.5 * z) / z**2 if gaussian else 1 / z
    if largest > _MOST_LOSS or delta < _LEAST_DELTA:
        return found
    pld, most = _dp().pld.privacy_loss_distribution, math.log1p(rate * math.expm1(largest))
    square = min(rate**2 * math.expm1(min(1 / z**2, 600.0)), rate * largest**2)  # approximate, of one step's loss
    grid = max(bounds.resolved(math.sqrt(steps * square) + steps * square / 2), most / 2**16)
    if adjacency == "add-remove":
        make = pld.from_gaussian_mechanism if gaussian else pld.from_laplace_mechanism
        one = make(z, value_discretization_interval=grid, sampling_prob=rate)
    else:
        top = max(1, math.ceil(most / grid))
        one = bounds.replaced_losses(event.kind, z, rate, most / top, top, poisson=sampled.kind == "poisson")
    found["PLD"] = float((one if steps == 1 else one.self_compose(steps)).get_epsilon_for_delta(delta))
    return found


_QUICK, _ALL = (_quick,), (_quick, _slow)


@cache
def _dp() -> Any:
    """dp-accounting, imported on first use: it takes half a second."""
    import dp_accounting

    # It warns about orders that do not converge and leaves them out: the bound from the others holds.
    logging.getLogger("absl").addFilter(lambda record: "rdp_privacy_accountant" not in record.pathname)
    return dp_accounting


@checked
def noise_multiplier(
    kind: Literal["gaussian", "laplace"],
    epsilon: float,
    delta: float,
    releases: int,
    *,
    sampled: Sampled | None = None,
    adjacency: Adjacency = "replace-one",
) -> float:
    """The smallest noise, in units of the sensitivity, with which `releases` releases are (epsilon, delta)-DP together.

    `epsilon` of the result is at most the target; a relative 1e-4 less noise would exceed it. `kind` is "gaussian", for
    an l2 sensitivity, or "laplace", for an l1 sensitivity; `epsilon` is from 1e-100 to 1e100. `delta` in (0, 1),
    `releases` >= 1, `sampled` and `adjacency` are as for `jdfl.privacy.epsilon`, as are the ValueErrors.
    """
    checks.one_of(("gaussian", "laplace"), kind=kind)
    check_target(epsilon, delta)
    checks.integer(1, releases=releases)
    if not 1e-100 <= epsilon <= 1e100:
        checks.refuse("epsilon from 1e-100 to 1e100", "epsilon", epsilon)
    make = GaussianEvent if kind == "gaussian" else LaplaceEvent
    terms = releases, delta, sampled, adjacency

    def quick(x: float) -> bool:  # x is the logarithm of the multiplier
        return min(_found(_QUICK, make(math.exp(x)), *terms).values()) <= epsilon

    def enough(x: float) -> bool:
        return quick(x) or min(_found(_ALL, make(math.exp(x)), *terms).values()) <= epsilon

    check_releases(make(1.0), releases, sampled, adjacency)
    high = least_enough(quick, math.log(releases) / 2 - math.log(epsilon), 1.0)
    return math.exp(least_enough(enough, high))


def least_enough(enough: Callable[[float], bool], guess: float, step: float = 2e-5) -> float:
    """The smallest number that is enough, to within 2e-5 from above; all larger numbers are enough too."""
    low, high, further = guess, guess, step
    while not enough(high):
        low, high, further = high, high + further, 2 * further
    while low == high or enough(low):
        high, low, step = min(high, low), low - step, 2 * step
    return bisected(lambda x: not enough(x), low, high, absolute=2e-5)[1]


@checked
def most_releases(
    event: Event,
    epsilon: float,
    delta: float,
    *,
    sampled: Sampled | None = None,
    adjacency: Adjacency = "replace-one",
    most: int = 2**30,
) -> int:
    """The largest number of releases that together stay within (epsilon, delta); 0 if a single one exceeds it.

    It is at most `most`, and the length of a schedule. `epsilon` is above 0; `event`, `delta` in (0, 1), `sampled` and
    `adjacency` are as for `jdfl.privacy.epsilon`, as are the ValueErrors.
    """
    check_releases(event, 1, sampled, adjacency)
    check_target(epsilon, delta)
    if (planned := scheduled(event)) is not None:
        most = min(most, planned)

    def within(kinds: Any) -> Callable[[int], bool]:
        return lambda releases: min(_found(kinds, event, releases, delta, sampled, adjacency).values()) <= epsilon

    return _last(within(_ALL), _last(within(_QUICK), 0, most), most)


def _last(fits: Callable[[int], bool], low: int, most: int) -> int:
    """The largest number up to `most` that fits, starting from one that does."""
    step = 1
    while low < most and fits(min(low + step, most)):
        low, step = min(low + step, most), 2 * step
    return low + bisect_left(range(low + 1, min(low + step, most + 1)), True, key=lambda releases: not fits(releases))
