"""What the laws need to know of a registered algorithm."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Consensus = Callable[[Any, Any, Any], Any]  # (prepared algorithm, problem, w [n]) -> state with all nodes at w
Count = Callable[[Any, np.ndarray, int], dict[str, Any]]  # (prepared, adjacency, rounds) -> sent by channel, counts [m]


@dataclass(frozen=True)
class Row:
    """What the laws need to know of an algorithm."""

    name: str  # its key in REGISTRY
    algorithm: Any
    exact: Any  # the algorithm without noise and with messages that arrive as they are
    message_bits: dict[str, int]  # by hand, for n = 20
    nonzeros: int  # most nonzeros of a node's parameters
    consensus_state: Consensus | None  # None: the state of `init` where all nodes begin at w
    count: Count
    swept: str  # a float field that changes the result
    label: str = ""
    shared: int | None = None  # leading parameters that the problem has in common; None: all
    claimed: bool = False  # whether its noise gives a guarantee; see tests/privacy/test_flow.py, too

    def __str__(self) -> str:
        """Its test id."""
        return self.label or self.name
