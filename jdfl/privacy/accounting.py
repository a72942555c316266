"""Composition of releases, with dp-accounting (which `replaced` imports too) and bounds of its own.

Privacy loss distributions (PLD) give the totals, Renyi differential privacy (RDP) a second opinion. For Laplace noise,
`jdfl.privacy.laplace` adds the pure epsilons, since dp-accounting has no delta = 0, and composes noise that differs
from release to release.

Events are relative to the sensitivity under the neighbouring relation in use, so without sampling an event is the same
pair of distributions under every relation. dp-accounting doubles the sensitivity of an event under REPLACE_ONE when it
composes PLDs but not when it composes RDP; nothing here relies on either.

With sampling the relation matters:

- Under add-remove and Poisson sampling with rate r the pair is N(0) and (1 - r) N(0) + r N(1): dp-accounting has it,
  and for Gaussian noise `jdfl.privacy.numerical` integrates it as well.
- Under replace-one, `jdfl.privacy.replaced` bounds the privacy profile of one sample, with a proof, and states how
  loose the bound is. Poisson sampling requires that omitting a record changes half as much as replacing it, as in sums
  of clipped gradients.
- Under both, an adversary who is also given the samples that contain the record sees a binomial number of Gaussian
  releases.

The smallest of all bounds is used, and `epsilons` names them.
"""

import logging
import math
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, Literal

import numpy as np

from jdfl.base import checks
from jdfl.base.arguments import checked
from jdfl.privacy import laplace, numerical, replaced
from jdfl.privacy.analytic import check_delta, gaussian_epsilon, participating_epsilon
from jdfl.privacy.laplace import resolved
from jdfl.privacy.mechanisms import Event, GaussianEvent, GaussianSchedule, LaplaceSchedule, check_event
from jdfl.privacy.slips import paid

Adjacency = Literal["replace-one", "add-remove"]
_MOST_MU = 20.0  # above it e^epsilon overflows, and the closed form, computed in logarithms, takes over
_LEAST_DELTA = 1e-18  # below it dp-accounting's truncation is not negligible, and the closed form takes over, too
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
        """The probability that a record is in the sample, batch / records.

        At 1 a subset holds everything and nothing is gained; the smaller the rate, the smaller the epsilon of a
        release. Sizes that pass `check` have a rate of at most 1.
        """
        return self.batch / self.records

    def check(self) -> None:
        """Refuse invalid sizes: ValueError naming them.

        The kind must be "poisson" or "subset", records and looks integers from 1, and batch an integer from 1 to the
        number of records. `jdfl.privacy.epsilon` and everything else that accounts for a sampled event call it.
        """
        checks.one_of(("poisson", "subset"), kind=self.kind)
        checks.whole(1, records=self.records, looks=self.looks)
        checks.whole(1, self.records, "It is the number of records drawn from all of them.", batch=self.batch)


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

    Names: PLD and RDP; for Gaussian noise, numerical integration (Poisson samples under add-remove), participations (as
    if the adversary knew which samples hold the record) and closed form (where mu or delta exceed the resolution of
    PLDs); for Laplace noise, the sum of pure epsilons. With sampling also all records (as if samples held everything).
    Inapplicable ones are left out. Raises ValueError like `epsilon`.
    """
    check_releases(event, releases, sampled, adjacency)
    check_delta(delta)

    def found(event: Event, delta: float) -> dict[str, float]:
        key = event, releases, delta, sampled, adjacency
        return {**_quick(*key), **_slow(*key)}

    return paid(found, event, releases, delta)


def quick_epsilon(event: Event, releases: int, delta: float, sampled: Sampled | None, adjacency: Adjacency) -> float:
    """The smallest of the bounds that are fast to compute: the starting point of a search for `epsilon`."""

    def found(event: Event, delta: float) -> dict[str, float]:
        return _quick(event, releases, delta, sampled, adjacency)

    return min(paid(found, event, releases, delta).values())


@checked
def epsilon_rdp(
    event: Event, releases: int, delta: float, *, sampled: Sampled | None = None, adjacency: Adjacency = "replace-one"
) -> float | None:
    """The same by RDP, which is looser or equal; None where dp-accounting has no bound for this event.

    All arguments are those of `epsilon`, which uses this bound wherever it is the smallest. It serves as a second
    opinion, and for comparison with papers that account by Renyi differential privacy. There is none for Poisson
    samples under replace-one. Raises ValueError like `epsilon`.
    """
    check_releases(event, releases, sampled, adjacency)
    check_delta(delta)
    if _renyi(event, releases, delta, sampled, adjacency) is None:
        return None

    def found(event: Event, delta: float) -> dict[str, float]:
        return {"RDP": _renyi(event, releases, delta, sampled, adjacency) or 0.0}

    return paid(found, event, releases, delta)["RDP"]


def _renyi(event: Event, releases: int, delta: float, sampled: Sampled | None, adjacency: Adjacency) -> float | None:
    if releases == 0:
        return 0.0
    if sampled is None and not isinstance(event, GaussianEvent):
        return laplace.renyi_epsilon(event, releases, delta)
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
            return None
    accountant = dp.rdp.RdpAccountant(neighboring_relation=relation)
    if not accountant.supports(one):
        return None
    return float(accountant.compose(one, count).get_epsilon(delta))


@checked
def epsilon_pure(event: Event, releases: int, *, sampled: Sampled | None = None) -> float | None:
    """The sum of the releases' epsilons at delta = 0; None for Gaussian noise, which has none.

    A release with Laplace noise has 1 / noise_multiplier, or less if amplified by sampling. For many releases,
    `epsilon` at some delta > 0 is far smaller. `sampled` and the ValueErrors are as for `epsilon`.
    """
    check_releases(event, releases, sampled, "replace-one")
    if isinstance(event, GaussianEvent):
        return None
    everything = laplace.pure_epsilon(event, releases)
    if sampled is None or sampled.rate == 1 or releases == 0:
        return everything
    looks = min(releases, sampled.looks)
    one = np.logaddexp(math.log1p(-sampled.rate), math.log(sampled.rate) + looks / event.noise_multiplier)
    return min(everything, math.ceil(releases / sampled.looks) * float(one))


def check_releases(event: Event, releases: int, sampled: Sampled | None, adjacency: Adjacency) -> None:
    """Refuse releases that cannot be accounted for: ValueError naming the reason."""
    check_event(event)
    checks.whole(0, releases=releases)
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


@lru_cache(maxsize=4096)
def _quick(
    event: Event, releases: int, delta: float, sampled: Sampled | None, adjacency: Adjacency
) -> dict[str, float]:
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
    rdp = _renyi(event, releases, delta, sampled, adjacency)
    found = {} if rdp is None else {"RDP": rdp}
    if sampled is not None and sampled.rate < 1 and isinstance(event, GaussianEvent) and adjacency == "add-remove":
        steps, z = _samples(event, releases, sampled)
        found["numerical integration"] = numerical.upper_bound(z, sampled.rate, steps, delta)
    return found


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
    """Bounds for releases that use all records."""
    pld = _dp().pld.privacy_loss_distribution
    if isinstance(event, GaussianEvent):
        mu = float(event.shift(releases))
        if mu > _MOST_MU or delta < _LEAST_DELTA:
            return {"closed form": gaussian_epsilon(mu, delta)}
        one = pld.from_gaussian_mechanism(1 / mu, value_discretization_interval=resolved(mu))
        return {"PLD": float(one.get_epsilon_for_delta(delta))}
    return laplace.epsilons(pld, event, releases, delta)


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
    grid = max(resolved(math.sqrt(steps * square) + steps * square / 2), most / 2**16)
    if adjacency == "add-remove":
        make = pld.from_gaussian_mechanism if gaussian else pld.from_laplace_mechanism
        one = make(z, value_discretization_interval=grid, sampling_prob=rate)
    else:
        top = max(1, math.ceil(most / grid))
        one = replaced.losses(event.kind, z, rate, most / top, top, poisson=sampled.kind == "poisson")
    found["PLD"] = float((one if steps == 1 else one.self_compose(steps)).get_epsilon_for_delta(delta))
    return found


@cache
def _dp() -> Any:
    """dp-accounting, imported on first use: it takes half a second."""
    import dp_accounting

    # It warns about orders that do not converge and leaves them out: the bound from the others holds.
    logging.getLogger("absl").addFilter(lambda record: "rdp_privacy_accountant" not in record.pathname)
    return dp_accounting
