"""Noise, and the event that it adds to a node's record of releases.

A mechanism scales its noise by a sensitivity: the most that what is released may change, in the norm that the noise
goes by, when the data are replaced by neighbouring ones. What neighbouring means is said by whoever bounds the change.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Literal, Protocol

import jax
import numpy as np
from jax import Array

from jdfl.base import checks, struct
from jdfl.base.arguments import checked, settings
from jdfl.base.settings import As, Positive

Norm = Literal["l1", "l2", "linf"]


@dataclass(frozen=True)
class GaussianEvent:
    """One release with Gaussian noise of `noise_multiplier` times the l2 sensitivity.

    It is what accountants compose: the pair N(0, z^2) and N(1, z^2) for a multiplier z. What neighbouring data sets
    are, and what bounds the sensitivity, is for a `Guarantee` to say.
    """

    noise_multiplier: float
    slip: float = field(default=0.0, repr=False)  # how far off it is in total variation; every delta pays for it
    kind: ClassVar[Literal["gaussian"]] = "gaussian"

    def shift(self, releases: int | np.ndarray) -> Any:
        """The mu of so many releases [...] together, a number or an array: they are as one with noise of 1 / mu.

        The pair of all of them is N(0, 1) and N(mu, 1), which is what an attack on Gaussian noise can reach at best.
        """
        return np.sqrt(releases) / self.noise_multiplier


@dataclass(frozen=True)
class GaussianSchedule(GaussianEvent):
    """Successive releases with Gaussian noise that tell different amounts, such as noise that is correlated over time.

    As releases that are alike it has the least `noise_multiplier` with which none of its beginnings would tell less.
    `of` makes it. Raises ValueError for an empty schedule, and for a mu that is not positive, finite or falls.
    """

    mu: tuple[float, ...] = ()  # [k] of the first 1, 2, ... releases together

    def __post_init__(self) -> None:
        mu = np.asarray(self.mu, float)
        if not mu.size or not np.all((mu > 0) & np.isfinite(mu)) or np.any(np.diff(mu) < 0):
            raise ValueError(
                f"Expected mu of at least one release, positive, finite and not falling, got mu = {self.mu!r}."
            )

    @classmethod
    def of(cls, mu: Sequence[float] | np.ndarray) -> "GaussianSchedule":
        """The schedule in which the first 1, 2, ... releases together have these mu [k]."""
        told = np.asarray(mu, float)
        least = np.min(np.sqrt(np.arange(1, len(told) + 1)) / told) if told.size and np.all(told > 0) else math.nan
        return cls(float(least), mu=tuple(told.tolist()))

    def __repr__(self) -> str:
        return f"GaussianSchedule of {len(self.mu)} releases, mu {self.mu[0]:.6g} to {self.mu[-1]:.6g}"

    def shift(self, releases: int | np.ndarray) -> Any:
        """The mu of the first releases [...] together, so many, a number or an array; 0 for none."""
        return np.concatenate([[0.0], self.mu])[releases]


@dataclass(frozen=True)
class LaplaceEvent:
    """One release with Laplace noise of scale `noise_multiplier` times the l1 sensitivity.

    It is what accountants compose; by itself it is (1 / noise_multiplier, 0)-differentially private. For noise that
    differs from release to release there is `LaplaceSchedule`.
    """

    noise_multiplier: float
    kind: ClassVar[Literal["laplace"]] = "laplace"


@dataclass(frozen=True, repr=False)
class LaplaceSchedule:
    """Successive releases with Laplace noise, each of a scale of its own in units of the l1 sensitivity.

    A number of releases is that of the first ones. Raises ValueError for an empty schedule, and for a multiplier that
    is not positive.
    """

    multipliers: tuple[float, ...]  # [k] in the order of release
    kind: ClassVar[Literal["laplace"]] = "laplace"

    def __post_init__(self) -> None:
        told = tuple(float(z) for z in self.multipliers)
        if not told:
            raise ValueError("Expected multipliers of at least one release, got multipliers = ().")
        bad = next((i for i, z in enumerate(told) if not 0 < z < math.inf), None)
        if bad is not None:
            raise ValueError(
                f"Expected multipliers > 0 and finite, got multipliers[{bad}] = {told[bad]!r}. A release without noise "
                "has no epsilon; one that is not made is left out."
            )
        object.__setattr__(self, "multipliers", told)

    def __repr__(self) -> str:
        some = self.multipliers if len(self.multipliers) < 5 else self.multipliers[:3]
        rest = len(self.multipliers) - len(some)
        told = ", ".join(f"{z:.6g}" for z in some) + (f", and {rest} more" if rest else "")
        return f"LaplaceSchedule(multipliers=({told}))"

    @property
    def noise_multiplier(self) -> float:
        """The smallest of the multipliers, that of the release which tells most.

        It is for places that show one number. Accounting takes every release with its own multiplier, so that the
        epsilon of the schedule is no more than if all had this one.
        """
        return min(self.multipliers)


Event = GaussianEvent | LaplaceEvent | LaplaceSchedule


class Mechanism(Protocol):
    """Adds noise scaled by a sensitivity, and names the event that an accountant composes.

    `Gaussian` and `Laplace` are mechanisms; one of your own has these methods, and an event of `jdfl.privacy.Event`. It
    bounds nothing itself: what it is given has to be clipped before, in `norm` or in another one with `stretch`.
    """

    norm: ClassVar[Norm]  # in which the sensitivity is measured

    def check(self) -> None:
        """Raise ValueError if the settings make no sense.

        `check_mechanism` calls it on the host, before a run is compiled. Settings that would leave no noise, such as a
        multiplier of 0, have to be refused: they have no epsilon.
        """
        ...

    def add(self, key: Array, x: Array, sensitivity: Any) -> Array:
        """The vector x [n] with noise.

        A pure function under jit, and under vmap over nodes.

        Args:
            key: The key [] that all noise comes from, which is used once.
            x: The vector x [n], clipped before.
            sensitivity: The most that neighbouring data change x, a number [] in the mechanism's norm, by which noise
                is scaled.
        """
        ...

    def event(self) -> Event:
        """What one release adds (on the host).

        The event says how much noise there is in units of the sensitivity, as a plain number, and so does not depend on
        data or nodes. Ledgers, reports and budgets are computed from it alone.
        """
        ...


def event_of(mechanism: Mechanism, n: int) -> Event:
    """What one release of vectors of n entries adds: `mechanism.event()`, with its slip where it says one."""
    event, slip = mechanism.event(), getattr(mechanism, "slip", None)
    return event if slip is None else replace(event, slip=slip(n))


def is_exact(mechanism: Any) -> bool:
    """Whether a mechanism's noise holds for every bit of what is released, so that rounding has to be counted."""
    return getattr(mechanism, "exact", False)


def known(multiplier: float | None) -> float:
    """The multiplier of a mechanism as it is written; ValueError for none, which something has to be found for."""
    if multiplier is None:
        raise ValueError(
            "Expected a multiplier of the noise, got none. Give the mechanism's multiplier; a single run may have "
            "privacy.epsilon instead, and a comparison epsilon, to which the multiplier is then calibrated."
        )
    return multiplier


@struct.dataclass
class Gaussian:
    """Gaussian noise on every entry of what is released.

    N(0, (multiplier * sensitivity)^2) on every entry, for an l2 sensitivity.

    C. Dwork, A. Roth, "The algorithmic foundations of differential privacy", 2014; what it guarantees is computed by
    `jdfl.privacy.epsilon`, not by their bound.
    """

    kind: ClassVar[str] = "gaussian"
    multiplier: Annotated[Positive, As(float | None, known, None)]
    """Standard deviation of the noise by the l2 sensitivity; None: the least for a run's or comparison's epsilon."""
    norm: ClassVar[Norm] = "l2"

    def check(self) -> None:
        """Refuse a multiplier that is not one positive number.

        The ValueError names it and says what it is for. An array is refused, too, for all nodes have the same noise in
        units of their sensitivities, which may differ.
        """
        settings(self)

    def add(self, key: Array, x: Array, sensitivity: Any) -> Array:
        """The vector x [n] with noise of standard deviation multiplier * sensitivity.

        Every entry has noise of its own, in the type of x. `sensitivity` is one number [] in l2, of the whole vector; x
        is not clipped here. A sensitivity of 0 adds nothing.
        """
        return x + self.multiplier * sensitivity * jax.random.normal(key, x.shape, x.dtype)

    def event(self) -> GaussianEvent:
        """One release of this noise, for accounting: a `GaussianEvent` with the multiplier as a plain float.

        `jdfl.privacy.epsilon` makes an epsilon of it for a number of releases. It cannot be asked for while a
        multiplier is traced by JAX, as in a sweep.
        """
        return GaussianEvent(float(self.multiplier))


@struct.dataclass
class Laplace:
    """Laplace noise on every entry of what is released.

    Laplace noise of scale multiplier * sensitivity on every entry, for an l1 sensitivity: (1 / multiplier, 0)-DP.

    C. Dwork, F. McSherry, K. Nissim, A. Smith, "Calibrating noise to sensitivity in private data analysis", 2006.
    """

    kind: ClassVar[str] = "laplace"
    multiplier: Annotated[Positive, As(float | None, known, None)]
    """Scale of the noise by the l1 sensitivity; None: the least for a run's or comparison's epsilon."""
    norm: ClassVar[Norm] = "l1"

    def check(self) -> None:
        """Refuse a multiplier that is not one positive number.

        The ValueError names it and says what it is for. An array is refused, too, for all nodes have the same noise in
        units of their sensitivities, which may differ.
        """
        settings(self)

    def add(self, key: Array, x: Array, sensitivity: Any) -> Array:
        """The vector x [n] with noise of scale multiplier * sensitivity (standard deviation sqrt(2) times that).

        Every entry has noise of its own, in the type of x. `sensitivity` is one number [] in l1, of the whole vector; x
        is not clipped here. A sensitivity of 0 adds nothing.
        """
        return x + self.multiplier * sensitivity * jax.random.laplace(key, x.shape, x.dtype)

    def event(self) -> LaplaceEvent:
        """One release of this noise, for accounting: a `LaplaceEvent` with the multiplier as a plain float.

        `jdfl.privacy.epsilon` makes an epsilon of it for a number of releases, and `epsilon_pure` one at delta = 0. It
        cannot be asked for while a multiplier is traced by JAX, as in a sweep.
        """
        return LaplaceEvent(float(self.multiplier))


@checked
def check_mechanism(mechanism: Any) -> None:
    """ValueError for what is no noise mechanism, and for one whose settings make no sense.

    A mechanism has `add`, `event` and `norm`, and its own `check` looks at its settings. Algorithms call it for theirs
    before a run; None, which stands for no noise in settings, is refused here.
    """
    remedy = "Use Gaussian(multiplier) or Laplace(multiplier), or None for no noise."
    checks.able(("add", "event", "norm"), "a noise mechanism", remedy, mechanism=mechanism)
    mechanism.check()
