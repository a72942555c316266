"""Codecs: dense, sparse, random entries, quantised, signs, low rank, and one-bit with its decoder."""

from jdfl.codecs.base import Codec, Wire, each_row, receive, round_trip, transmit
from jdfl.codecs.gpsp import gpsp
from jdfl.codecs.low_rank import LowRank
from jdfl.codecs.one_bit import OneBit
from jdfl.codecs.quantised import QSGD, Dense, Sign
from jdfl.codecs.sparse import RandomK, Sparse

__all__ = [
    "QSGD",
    "Codec",
    "Dense",
    "LowRank",
    "OneBit",
    "RandomK",
    "Sign",
    "Sparse",
    "Wire",
    "each_row",
    "gpsp",
    "receive",
    "round_trip",
    "transmit",
]
