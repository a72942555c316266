# pyright: reportAssignmentType=false, reportUnknownMemberType=false
"""Algorithms, with what travels on their wires and the noise that they add."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from jdfl import algorithms, privacy
from jdfl.config.codec import Codecs, OneBit
from jdfl.config.defaults import defaults, fields

_paper = defaults(algorithms.CEPS.paper)


def _known(multiplier: float | None) -> float:
    if multiplier is None:
        raise ValueError(
            "Expected a multiplier of the noise, got none. Give the mechanism's multiplier; a single run may have "
            "privacy.epsilon instead, and a comparison epsilon, to which the multiplier is then calibrated."
        )
    return multiplier


@dataclass(frozen=True, kw_only=True)
class Gaussian:
    """Gaussian noise on every entry of what is released."""

    kind: ClassVar[str] = "gaussian"
    multiplier: float | None = None
    """Standard deviation of the noise by the l2 sensitivity; None: the least for a run's or comparison's epsilon."""

    def build(self) -> privacy.Mechanism:
        """The mechanism; ValueError where the multiplier is not known."""
        return privacy.Gaussian(_known(self.multiplier))


@dataclass(frozen=True, kw_only=True)
class Laplace:
    """Laplace noise on every entry of what is released."""

    kind: ClassVar[str] = "laplace"
    multiplier: float | None = None
    """Scale of the noise by the l1 sensitivity; None: the least for a run's or comparison's epsilon."""

    def build(self) -> privacy.Mechanism:
        """The mechanism; ValueError where the multiplier is not known."""
        return privacy.Laplace(_known(self.multiplier))


@dataclass(frozen=True, kw_only=True)
class CEPS:
    """Sparse models, few communications, one-bit messages, optional noise."""

    kind: ClassVar[str] = "ceps"
    s: int = algorithms.CEPS.s
    """Nonzeros of every node's parameters."""
    rate: float = algorithms.CEPS.rate
    """Share of its neighbours that a node listens to when it communicates, in (0, 1]."""
    mu: float = algorithms.CEPS.mu
    """Proximal weight of the rounds between communications."""
    codec: Codecs = OneBit()  # noqa: RUF009 (frozen)
    """What travels on a wire."""
    mechanism: Gaussian | Laplace | None = None
    """Noise on what is released; none: exact messages."""
    clip: float | None = algorithms.CEPS.clip
    """Largest l2 norm of one example's gradient; it bounds what the noise is scaled by. None: as it is."""
    adjacency: Literal["replace-one", "add-remove"] = algorithms.CEPS.adjacency
    """What neighbouring data sets differ in: a record replaced, or there or not."""
    sensitivity: float | None = algorithms.CEPS.sensitivity
    """An assumed sensitivity instead of a clip, as in the paper; nothing enforces it."""
    sigma: float | None = algorithms.CEPS.sigma
    """A public constant instead of a sigma_i from every node's own data."""
    noise: Literal["kept", "literal"] = algorithms.CEPS.noise
    """kept: the noise stays in all that follows; literal: the paper's, which later rounds wash out."""
    periods: tuple[int, int] = algorithms.CEPS.periods
    """Shortest and longest period between communications; every node draws its own."""
    sigma_rule: Literal["paper", "half_n", "safe"] = algorithms.CEPS.sigma_rule
    """The d_i in the paper's constant sigma_i: a node's examples, or n / 2."""
    step_scale: float = algorithms.CEPS.step_scale
    """Steps this many times as long as by the rule (sigma_i divided by it)."""
    first: Literal["period", "zero"] = algorithms.CEPS.first
    """First round that communicates: that of the node's period, or round 0."""
    own: Literal["absent", "sampled", "always"] = algorithms.CEPS.own
    """Whether a node counts among its neighbours and is in its own average: never, when drawn, or always."""
    own_coded: bool = algorithms.CEPS.own_coded
    """A node's own share of the average goes through the codec too."""
    phi: Literal["sender", "receiver"] = algorithms.CEPS.phi
    """Whose codec a message uses."""
    block: int | None = algorithms.CEPS.block
    """Nodes worked on at a time; None: chosen by backend."""
    storage: Literal["dense", "sparse"] = algorithms.CEPS.storage
    """Whether parameters and messages lie in memory as n numbers or as s of them and their places."""

    def build(self) -> algorithms.CEPS:
        """The algorithm."""
        mechanism = None if self.mechanism is None else self.mechanism.build()
        parts: dict[str, Any] = {"codec": self.codec.build(), "mechanism": mechanism}
        return algorithms.CEPS(**fields(self) | parts)


@dataclass(frozen=True, kw_only=True)
class CEPSPaper:
    """CEPS word for word as in section V of its paper, to reproduce its tables; nothing here is private."""

    kind: ClassVar[str] = "ceps-paper"
    s: int = _paper.s
    """Nonzeros of every node's parameters."""
    rate: float = _paper.rate
    """Share of its neighbours that a node listens to when it communicates, in (0, 1]."""
    epsilon: float | None = _paper.epsilon
    """The number that the paper scales its noise by; None: no noise. It is no guarantee of this run."""
    one_bit: bool = _paper.one_bit
    """One-bit messages (1BCS) or dense ones (Perf)."""

    def build(self) -> algorithms.CEPS:
        """The algorithm."""
        return algorithms.CEPS.paper(**fields(self))
