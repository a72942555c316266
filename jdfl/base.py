"""What an algorithm is.

Implementing an algorithm
- Write one file in `jdfl/algorithms`: a frozen `jdfl.struct.dataclass` of hyper-parameters (floats are leaves, sizes
  and flags static fields), a State with the shapes of its arrays, and all methods of `Algorithm` below.
- `init` and `step` are pure and speak of all m nodes at once. All randomness comes from `round.keys(STREAM)`, a key
  for every node, with a `jdfl.Stream("my_method.noise", "private")` of your own for each thing that is drawn: "private"
  is what no receiver may compute (noise, batches), "choice" who takes part, "shared" what sender and receiver know.
- What is said of all nodes, such as a mean, comes from `jdfl.nodes`, and their number is `nodes.count(round.m)`: on
  several devices a step sees the rows of one. Constants that a person gives for every node are fields with
  `struct.field(per_node=True)`; every array of the State has the nodes as its first axis, or nothing to do with them.
- W x is `network.mix(round.graph, x)`. What arrives through a codec is `codecs.transmit(...)`, the codec having been
  through its `prepare` in yours; own rows and received ones, `graph.gathered(x)`, are mixed with `graph.self_weight`
  and `network.gather_sum`.
- A neighbour may be missing in a round: go by `round.graph`, whose weights say what then happens. Nodes that are away
  for a round are computed as the others, and the runner puts back their rows of the State and counts nothing.
- Return what the next step needs as State and what a person wants to know as Info: counts, never bits or losses.
- Gradients from all examples or a few, clipped or noisy, are `jdfl.Gradients`, noise on a node's work of a round is
  `jdfl.Updates`; both say what may be claimed. Count every noisy function of data in Info.releases.
- Mixing through a codec is `algorithms.exchange`, steps by optax `algorithms.descent`.
- Add one line to `jdfl.algorithms.REGISTRY` and one row to the table of `tests/contract`; a class in
  `jdfl.config.family` gives it flags on the command line.

Axes: m nodes, of all or of one device, n parameters.
"""

from collections.abc import Mapping
from typing import Any, Protocol, Self

import jax.numpy as jnp
from jax import Array

from jdfl import struct
from jdfl.network.graph import Graph, Network
from jdfl.privacy import Guarantee
from jdfl.problems import Problem
from jdfl.streams import Keys, Stream, each


@struct.dataclass
class Round:
    """What the runner tells an algorithm about one round."""

    k: Array  # int32 [] the round, from 0
    key: Array  # [] what this round draws comes from
    graph: Graph  # who hears whom in this round
    node: Array  # [m] int32 global ids of the nodes
    roots: Keys | None = None  # the keys of the round under each root; None, outside a run: they follow from `key`

    @property
    def m(self) -> int:
        """The number of nodes, of those on this device where they lie on several."""
        return self.node.shape[0]

    def stream(self, stream: Stream) -> Array:
        """The key [] of a stream in this round, under the root that the stream is declared with.

        Raises ValueError for streams of networks, which draw before there is a round.
        """
        if stream.root == "network":
            raise ValueError(
                f"Expected a stream with another root than the network's, got {stream!r}: the graph is drawn already. "
                "Declare it as private, choice or shared."
            )
        return stream.of(getattr(self.roots or Keys.of(self.key), stream.root))

    def keys(self, stream: Stream, index: Array | int = 0) -> Array:
        """The key of every node [m] in this round, of a stream; `index` [] tells several draws of one round apart."""
        return each(self.stream(stream), self.node, index)


@struct.dataclass
class Info:
    """What happened in one round, counted per node; the host multiplies by bits."""

    sent: dict[str, Array]  # int32 [m] messages that the node sent, by channel
    grads: Array  # int32 [m] gradients of its own loss that the node evaluated
    releases: Array  # int32 [m] noisy functions of its data that others may come to see
    communications: Array  # int32 [m] 1 where the node combined what it received


def counts(
    m: int,
    sent: Mapping[str, Array | int],
    *,
    grads: Array | int = 0,
    releases: Array | int = 0,
    communications: Array | int = 0,
) -> Info:
    """An Info of m nodes from numbers that all nodes share, or arrays [m].

    They are its fields: `sent` [m] by channel, `grads` [m], `releases` [m], `communications` [m].
    """

    def each(count: Array | int) -> Array:
        return jnp.broadcast_to(jnp.asarray(count, jnp.int32), (m,))

    return Info(
        {channel: each(count) for channel, count in sent.items()}, each(grads), each(releases), each(communications)
    )


class Algorithm(Protocol):
    """A decentralized algorithm: what the nodes do in one round.

    It may also have these ClassVars: `tuned` with the names of the float fields that a comparison tunes; `uneven`, true
    where rounds differ in how much there is to compute; `columns`, true where it is W's columns that must sum to one,
    not its rows, as in push-sum; `planned` with the dotted fields that `plan` fills in; `late`, true where it takes
    messages of earlier rounds (`network.delays`), which others are refused; `noise_by`, how to set its noise, where
    that is no multiplier of a mechanism. And these methods:

    - `plan(problem, network, steps) -> Self`, on the host before a run: what follows from the network and the number of
      rounds, such as a schedule of noise. More rounds must give the same beginning.
    - `published_multiplier(problem, epsilon) -> float`, the noise that its paper asks for, in units of the sensitivity.
    - `published_bytes(problem, rounds) -> float | None`, a formula for the data volume in its paper's tables.
    - `waits(round) -> Array` bool [m, d], the slots that nodes wait for on a network with times, where it is not all.
    - `held(state) -> Array` [m, k], numbers that are all finite where the parameters are, where these are not stored as
      [m, n].
    - `visible(state) -> Array` [m, k], what others may have seen of every node after a round, where that is more than
      its parameters: what `jdfl.audit` attacks; k is a multiple of n.
    """

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

    def examples(self, problem: Problem) -> Array:
        """How many examples one gradient of every node looks at [m] int32."""
        ...

    def message_bits(self, problem: Problem) -> dict[str, int]:
        """Bits of one message on every channel."""
        ...

    def privacy(self, problem: Problem) -> Guarantee:
        """What may be said about privacy, and what enforces it."""
        ...
