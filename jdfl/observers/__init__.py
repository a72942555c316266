"""What observers with a limited view learn about each node, derived from a method's own step."""

from jdfl.observers.observe import Exposure, Pairs, observe, observe_pairs
from jdfl.observers.observer import Coalition, Everyone, FinalModels, Neighbour, Observer, Server

__all__ = [
    "Coalition",
    "Everyone",
    "Exposure",
    "FinalModels",
    "Neighbour",
    "Observer",
    "Pairs",
    "Server",
    "observe",
    "observe_pairs",
]
