# pyright: reportAssignmentType=false, reportUnknownMemberType=false
"""What travels on a wire."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from jdfl import codecs
from jdfl.codecs.sensing import Ensemble
from jdfl.codecs.subsets import Index
from jdfl.config.defaults import fields


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
    """Entries in a message; None: by share, or the nonzeros of the algorithm."""
    value: Literal["float32", "float16", "bfloat16", "int8", "int4"] = codecs.Sparse.value
    """Type of the values; integers are levels of one scale."""
    index: Index = codecs.Sparse.index
    """How places are written: plain numbers, or the number of their subset, which is shortest."""
    share: float | None = codecs.Sparse.share
    """Share of the entries that is in a message, instead of s."""

    def build(self) -> codecs.Codec:
        """The codec."""
        return codecs.Sparse(**fields(self))


@dataclass(frozen=True, kw_only=True)
class RandomK:
    """Entries at random places, which both ends draw from the same key; give k or share."""

    kind: ClassVar[str] = "random-k"
    k: int | None = codecs.RandomK.k
    """Entries in a message."""
    share: float | None = codecs.RandomK.share
    """Share of the entries that is in a message, instead of k."""
    scaled: bool = codecs.RandomK.scaled
    """The receiver multiplies by n / k, so that messages are right on average."""
    value: Literal["float32", "float16", "bfloat16"] = codecs.RandomK.value
    """Type of the values."""

    def build(self) -> codecs.Codec:
        """The codec."""
        return codecs.RandomK(**fields(self))


@dataclass(frozen=True, kw_only=True)
class QSGD:
    """All entries, rounded at random to a few levels of the vector's norm."""

    kind: ClassVar[str] = "qsgd"
    levels: int = codecs.QSGD.levels
    """Levels above zero."""
    scaled: bool = codecs.QSGD.scaled
    """The receiver divides by 1 + omega, so that no message is worse than none; else it is right on average."""
    norm: Literal["l2", "max"] = codecs.QSGD.norm
    """What the levels are fractions of: the length of the vector, or its largest magnitude."""

    def build(self) -> codecs.Codec:
        """The codec."""
        return codecs.QSGD(**fields(self))


@dataclass(frozen=True, kw_only=True)
class Sign:
    """The signs of all entries and their mean magnitude."""

    kind: ClassVar[str] = "sign"

    def build(self) -> codecs.Codec:
        """The codec."""
        return codecs.Sign()


@dataclass(frozen=True, kw_only=True)
class LowRank:
    """The vector as a matrix of low rank, as in PowerSGD."""

    kind: ClassVar[str] = "low-rank"
    rank: int = codecs.LowRank.rank
    """Rank of the matrix that arrives."""
    height: int | None = codecs.LowRank.height
    """Rows of the matrix; None: about the square root of the number of parameters."""

    def build(self) -> codecs.Codec:
        """The codec."""
        return codecs.LowRank(**fields(self))


Codecs = OneBit | Dense | Sparse | RandomK | QSGD | Sign | LowRank
