"""Wire formats: dense, sparse, and one-bit with its decoder."""

from jdfl.codecs.base import Codec, receive, round_trip, transmit
from jdfl.codecs.dense import Dense
from jdfl.codecs.frame import seal, unseal
from jdfl.codecs.gpsp import gpsp
from jdfl.codecs.one_bit import OneBit
from jdfl.codecs.sparse import Sparse

__all__ = ["Codec", "Dense", "OneBit", "Sparse", "gpsp", "receive", "round_trip", "seal", "transmit", "unseal"]
