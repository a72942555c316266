"""Noise mechanisms, and the events that they add to a node's record of releases.

A mechanism scales its noise by a sensitivity: the largest change of what is released, in the norm of the noise, between
neighbouring datasets. Which datasets are neighbouring is defined where the change is bounded.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Literal, Protocol, get_args

import jax
import numpy as np
from jax import Array

from jdfl.base import checks, struct
from jdfl.base.arguments import checked, settings
from jdfl.base.settings import As, Positive

_MOST_NOISE = 1e100  # its square is a number, too
Norm = Literal["l1", "l2", "linf"]


@dataclass(frozen=True)
class GaussianEvent:
    """One release with Gaussian noise of `noise_multiplier` times the l2 sensitivity.

    Accountants compose it as the pair N(0, z^2) and N(1, z^2) for a multiplier z.
    """

    noise_multiplier: float
    slip: float = field(default=0.0, repr=False)  # total-variation distance from it; subtracted from every delta
    kind: ClassVar[Literal["gaussian"]] = "gaussian"

    def shift(self, releases: int | np.ndarray) -> Any:
        """The mu of `releases` [...] releases together, a number or an array: equivalent to one with noise 1 / mu."""
        return np.sqrt(np.asarray(releases, float)) / self.noise_multiplier


@dataclass(frozen=True)
class GaussianSchedule(GaussianEvent):
    """Successive Gaussian releases of unequal information, such as noise that is correlated over time.

    Its `noise_multiplier` is the smallest that, used for equal releases, bounds every prefix of the schedule. `of`
    creates it. Raises ValueError for an empty schedule, and for a mu that is not positive, not finite or decreasing.
    """

    mu: tuple[float, ...] = ()  # [k] of the first 1, 2, ... releases together

    def __post_init__(self) -> None:
        mu = np.asarray(self.mu, float)
        if not mu.size or not np.all((mu > 0) & np.isfinite(mu)) or np.any(np.diff(mu) < 0):
            raise ValueError(
                f"Expected mu of at least one release, positive, finite and not decreasing, got mu = {self.mu!r}."
            )

    @classmethod
    def of(cls, mu: Sequence[float] | np.ndarray) -> "GaussianSchedule":
        """The schedule in which the first 1, 2, ... releases together have these mu [k]."""
        mus = np.asarray(mu, float)
        least = np.min(np.sqrt(np.arange(1, len(mus) + 1)) / mus) if mus.size and np.all(mus > 0) else math.nan
        return cls(float(least), mu=tuple(mus.tolist()))

    def __repr__(self) -> str:
        return f"GaussianSchedule of {len(self.mu)} releases, mu {self.mu[0]:.6g} to {self.mu[-1]:.6g}"

    def shift(self, releases: int | np.ndarray) -> Any:
        """The mu of the first `releases` [...] releases together, a number or an array; 0 for none."""
        return np.concatenate([[0.0], self.mu])[releases]


@dataclass(frozen=True)
class LaplaceEvent:
    """One release with Laplace noise of scale `noise_multiplier` times the l1 sensitivity.

    By itself it is (1 / noise_multiplier, 0)-differentially private.
    """

    noise_multiplier: float
    kind: ClassVar[Literal["laplace"]] = "laplace"


@dataclass(frozen=True, repr=False)
class LaplaceSchedule:
    """Successive releases with Laplace noise, each with its own scale in units of the l1 sensitivity.

    A number of releases refers to the first ones. Raises ValueError for an empty schedule, and for a multiplier that is
    not positive.
    """

    multipliers: tuple[float, ...]  # [k] in the order of release
    kind: ClassVar[Literal["laplace"]] = "laplace"

    def __post_init__(self) -> None:
        numbers = tuple(float(z) for z in self.multipliers)
        if not numbers:
            raise ValueError("Expected multipliers of at least one release, got multipliers = ().")
        for i, z in enumerate(numbers):
            if not 0 < z < math.inf:
                raise ValueError(
                    f"Expected multipliers > 0 and finite, got multipliers[{i}] = {z!r}. A release without noise has "
                    "no epsilon; leave out a release that is not made."
                )
        object.__setattr__(self, "multipliers", numbers)

    def __repr__(self) -> str:
        some = self.multipliers if len(self.multipliers) < 5 else self.multipliers[:3]
        rest = len(self.multipliers) - len(some)
        text = ", ".join(f"{z:.6g}" for z in some) + (f", and {rest} more" if rest else "")
        return f"LaplaceSchedule(multipliers=({text}))"

    @property
    def noise_multiplier(self) -> float:
        """The smallest of the multipliers, that of the release that reveals most."""
        return min(self.multipliers)


Event = GaussianEvent | LaplaceEvent | LaplaceSchedule


class Mechanism(Protocol):
    """Adds noise scaled by a sensitivity, and names the event that an accountant composes.

    `Gaussian` and `Laplace` are mechanisms; your own needs these methods, and an event of `jdfl.privacy.Event`. A
    mechanism bounds nothing itself: its input must be clipped before, in `norm` or in another norm with `stretch`.
    """

    norm: ClassVar[Norm]  # in which the sensitivity is measured

    def check(self) -> None:
        """Raise ValueError for invalid settings, such as a multiplier of 0: without noise there is no epsilon."""
        ...

    def add(self, key: Array, x: Array, sensitivity: Any) -> Array:
        """The vector x [n], already clipped, with noise: a pure function under jit, and under vmap over nodes.

        All noise is drawn from the `key` [], which is used once, and scaled by the `sensitivity` []: the largest change
        of x between neighbouring datasets in the mechanism's norm.
        """
        ...

    def event(self) -> Event:
        """One release, as the accountant sees it (on the host).

        It gives the amount of noise in units of the sensitivity, as a plain number that does not depend on data or
        nodes.
        """
        ...


def event_of(mechanism: Mechanism, n: int) -> Event:
    """One release of vectors of n entries: `mechanism.event()`, with the mechanism's slip if it has one."""
    event, slip = mechanism.event(), getattr(mechanism, "slip", None)
    return event if slip is None else replace(event, slip=slip(n))


def is_exact(mechanism: Any) -> bool:
    """Whether a mechanism's guarantee holds for every bit of what is released, so that rounding has to be counted."""
    return getattr(mechanism, "exact", False)


def known(multiplier: float | None) -> float:
    """The multiplier of a mechanism; ValueError for None, which stands for one that is still to be calibrated."""
    if multiplier is None:
        raise ValueError(
            "Expected a multiplier of the noise, got none. Give the mechanism's multiplier; alternatively set "
            "privacy.epsilon for a single run, or epsilon for a comparison, and the multiplier is calibrated to it."
        )
    return multiplier


class _Scaled:
    def check(self) -> None:
        """Refuse a multiplier that is not a single positive number: ValueError naming it."""
        settings(self)


@struct.dataclass
class Gaussian(_Scaled):
    """Gaussian noise N(0, (multiplier * sensitivity)^2) on every entry, for an l2 sensitivity.

    `jdfl.privacy.epsilon` computes its guarantee, not the bound in the book that introduced it: C. Dwork, A. Roth, "The
    algorithmic foundations of differential privacy", 2014.
    """

    kind: ClassVar[str] = "gaussian"
    multiplier: Annotated[Positive, As(float | None, known, None)]
    """Standard deviation of the noise / l2 sensitivity; None: calibrated to the epsilon of a run or comparison."""
    norm: ClassVar[Norm] = "l2"

    def add(self, key: Array, x: Array, sensitivity: Any) -> Array:
        """The vector x [n] with independent noise of standard deviation multiplier * sensitivity on its entries."""
        return x + self.multiplier * sensitivity * jax.random.normal(key, x.shape, x.dtype)

    def event(self) -> GaussianEvent:
        """One release of this noise, for accounting; not available while JAX traces the multiplier, as in a sweep."""
        return GaussianEvent(float(self.multiplier))


@struct.dataclass
class Laplace(_Scaled):
    """Laplace noise of scale multiplier * sensitivity on every entry, for an l1 sensitivity: (1 / multiplier, 0)-DP.

    C. Dwork, F. McSherry, K. Nissim, A. Smith, "Calibrating noise to sensitivity in private data analysis", 2006.
    """

    kind: ClassVar[str] = "laplace"
    multiplier: Annotated[Positive, As(float | None, known, None)]
    """Scale of the noise / l1 sensitivity; None: calibrated to the epsilon of a run or comparison."""
    norm: ClassVar[Norm] = "l1"

    def add(self, key: Array, x: Array, sensitivity: Any) -> Array:
        """The vector x [n] with independent noise of scale multiplier * sensitivity on its entries."""
        return x + self.multiplier * sensitivity * jax.random.laplace(key, x.shape, x.dtype)

    def event(self) -> LaplaceEvent:
        """One release of this noise, for accounting; not available while JAX traces the multiplier, as in a sweep."""
        return LaplaceEvent(float(self.multiplier))


def check_event(event: Event) -> None:
    """Refuse an event whose noise is no number that can be computed with: ValueError naming it."""
    for name in ("noise_multiplier", "slip"):
        if not checks.is_a(value := getattr(event, name, 0.0), int | float | np.number) or isinstance(value, bool):
            checks.refuse("a number", name, value, f"Make it one: float({name}).")
    checks.positive(noise_multiplier=event.noise_multiplier)
    if event.noise_multiplier > _MOST_NOISE:
        checks.refuse(f"noise_multiplier <= {_MOST_NOISE:g}", "noise_multiplier", event.noise_multiplier)
    checks.not_negative("It is a distance of distributions.", slip=getattr(event, "slip", 0.0))


@checked
def check_mechanism(mechanism: Any) -> None:
    """Refuse an object that is not a noise mechanism, None included, or one with invalid settings: ValueError."""
    remedy = "Use Gaussian(multiplier) or Laplace(multiplier), or None for no noise."
    checks.able(("add", "event", "norm"), "a noise mechanism", remedy, mechanism=mechanism)
    checks.one_of(get_args(Norm), remedy, **{"mechanism.norm": mechanism.norm})
    mechanism.check()
