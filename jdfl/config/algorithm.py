"""Algorithms, with what travels on their wires and the noise that they add."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from jdfl import algorithms, codecs, privacy
from jdfl.codecs.sensing import Ensemble
from jdfl.codecs.subsets import Index
from jdfl.config.defaults import defaults, fields

_paper = defaults(algorithms.CEPS.paper)


@dataclass(frozen=True, kw_only=True)
class OneBit:
    """One sign per measurement and one norm; the receiver decodes by GPSP."""

    kind: ClassVar[str] = "one-bit"
    d: int | None = codecs.OneBit.d
    """Number of measurements, one bit each; None: n // 2."""
    s: int | None = codecs.OneBit.s
    """Nonzeros that the decoder looks for; None: those of the algorithm."""
    gamma: float = codecs.OneBit.gamma
    """Base of the logarithm that evens out the magnitudes, > 1."""
    inverse: Literal["exact", "paper"] = codecs.OneBit.inverse
    """How the logarithm is undone: at the right scale, or as the paper's Algorithm 2 prints it."""
    ensemble: Ensemble = codecs.OneBit.ensemble
    """How sensing matrices are made: gaussian is stored, rademacher and hadamard come from keys, sparse fails."""
    shared: bool = codecs.OneBit.shared
    """One sensing matrix for all nodes instead of one for each."""
    density: float = codecs.OneBit.density
    """Share of nonzeros of sparse sensing matrices."""
    side: bool = codecs.OneBit.side
    """The decoder starts from the receiver's own parameters, so that d may be much smaller."""
    flips: int = codecs.OneBit.flips
    """Signs that the decoder may take for wrong."""
    margin: float = codecs.OneBit.margin
    """The decoder's margin (GPSP's e)."""
    eta: float = codecs.OneBit.eta
    """The decoder's ridge."""
    cap: int = codecs.OneBit.cap
    """Most iterations of the decoder."""
    norm_bits: Literal[32, 64] = codecs.OneBit.norm_bits
    """Bits of the norm."""

    def build(self) -> codecs.Codec:
        """The codec."""
        return codecs.OneBit(**fields(self))


@dataclass(frozen=True, kw_only=True)
class Dense:
    """The whole vector, every entry as one float."""

    kind: ClassVar[str] = "dense"
    precision: Literal["float32", "float64", "float16", "bfloat16"] = codecs.Dense.precision
    """Type of the floats."""

    def build(self) -> codecs.Codec:
        """The codec."""
        return codecs.Dense(**fields(self))


@dataclass(frozen=True, kw_only=True)
class Sparse:
    """The largest entries: their places and their values."""

    kind: ClassVar[str] = "sparse"
    s: int | None = codecs.Sparse.s
    """Entries in a message; None: the nonzeros of the algorithm."""
    value: Literal["float32", "float16", "bfloat16", "int8", "int4"] = codecs.Sparse.value
    """Type of the values; integers are levels of one scale."""
    index: Index = codecs.Sparse.index
    """How places are written: plain numbers, or the number of their subset, which is shortest."""

    def build(self) -> codecs.Codec:
        """The codec."""
        return codecs.Sparse(**fields(self))


@dataclass(frozen=True, kw_only=True)
class Gaussian:
    """Gaussian noise on every entry of what is released."""

    kind: ClassVar[str] = "gaussian"
    multiplier: float
    """Standard deviation of the noise in units of the sensitivity."""

    def build(self) -> privacy.Mechanism:
        """The mechanism."""
        return privacy.Gaussian(**fields(self))


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
    codec: OneBit | Dense | Sparse = OneBit()
    """What travels on a wire."""
    mechanism: Gaussian | None = None
    """Noise on what is released; none: exact messages."""
    sensitivity: float = algorithms.CEPS.sensitivity
    """Assumed l2 sensitivity that scales the noise; nothing enforces it."""
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

    def build(self) -> algorithms.CEPS:
        """The algorithm."""
        mechanism = None if self.mechanism is None else self.mechanism.build()
        return algorithms.CEPS(**fields(self) | {"codec": self.codec.build(), "mechanism": mechanism})


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
