"""The algorithms, one paper in one file, and the table of them."""

from jdfl.algorithms.ceps import CEPS

REGISTRY = {
    "ceps": CEPS,
}

__all__ = ["CEPS", "REGISTRY"]
