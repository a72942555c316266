"""What an algorithm is.

Implementing an algorithm
- Write one file in `jdfl/algorithms`: a frozen `flax.struct.dataclass` of hyper-parameters (floats are leaves, sizes
  and flags static fields), a State with the shapes of its arrays, and all methods of `Algorithm` below.
- `init` and `step` are pure and speak of all m nodes at once. All randomness comes from `round.key`; what belongs to
  one node comes from `ops.node_keys(round.key, PURPOSE, round.node)` with a PURPOSE of your own from 100 up.
- W x is `network.mix(round.graph, x)`. What arrives through a codec is `codecs.transmit(...)`, the codec having been
  through its `prepare` in yours; own rows and received ones are mixed with `graph.self_weight` and
  `network.gather_sum`.
- Return what the next step needs as State and what a person wants to know as Info: counts, never bits or losses.
- Add one line to `jdfl.algorithms.REGISTRY` and one row to the table of `tests/contract`; a class in
  `jdfl.config.algorithm` gives it flags on the command line.

Axes: m nodes, n parameters.
"""

from typing import Any, Protocol, Self

from flax import struct
from jax import Array

from jdfl.network.graph import Graph, Network
from jdfl.privacy import Guarantee
from jdfl.problems import Problem


@struct.dataclass
class Round:
    """What the runner tells an algorithm about one round."""

    k: Array  # int32 [] the round, from 0
    key: Array  # this round's randomness
    graph: Graph  # who hears whom in this round
    node: Array  # [m] int32 global ids of the nodes

    @property
    def m(self) -> int:
        """The number of nodes."""
        return self.node.shape[0]


@struct.dataclass
class Info:
    """What happened in one round, counted per node; the host multiplies by bits."""

    sent: dict[str, Array]  # channel -> int32 [m] messages that the node sent
    grads: Array  # int32 [m] gradients of its own loss, over all its examples
    releases: Array  # int32 [m] noisy functions of its data that others may come to see
    communications: Array  # int32 [m] 1 where the node combined what it received


class Algorithm(Protocol):
    """A decentralized algorithm: what the nodes do in one round."""

    def check(self, problem: Problem, network: Network) -> None:
        """Raise ValueError for settings that make no sense, on concrete values, before anything is compiled."""
        ...

    def prepare(self, problem: Problem, round: Round) -> Self:
        """The algorithm with its per-node constants filled in (pure, runs once under jit)."""
        ...

    def init(self, problem: Problem, round: Round) -> tuple[Any, Info]:
        """The state before round 0, and what it cost."""
        ...

    def step(self, state: Any, problem: Problem, round: Round) -> tuple[Any, Info]:
        """One round."""
        ...

    def params(self, state: Any) -> Array:
        """The nodes' parameters [m, n]."""
        ...

    def message_bits(self, problem: Problem) -> dict[str, int]:
        """Bits of one message on every channel."""
        ...

    def published_bytes(self, problem: Problem, rounds: int) -> float | None:
        """What the paper's own formula for transmitted data says; None where the paper has none."""
        ...

    def privacy(self, problem: Problem) -> Guarantee:
        """What may be said about privacy, and what enforces it."""
        ...
