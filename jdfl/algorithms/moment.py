"""What the runner tells an algorithm about a moment of a run, and what it hears of it.

Axes: m nodes, of all or of one device.
"""

from collections.abc import Mapping

import jax.numpy as jnp
from jax import Array

from jdfl.base import struct
from jdfl.base.streams import Keys, Stream, each
from jdfl.network.graph import Graph


@struct.dataclass
class Moment:
    """What the runner tells about the moment before a run, or about a round of it."""

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
    """What happened in one round, counted per node; the host multiplies by bits.

    It is made of what a step does through its `Round`: an algorithm counts nothing itself. The runner adds it up from
    record to record, and the totals beyond as exact whole numbers on the host.
    """

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

    Args:
        m: The number of nodes.
        sent: Messages that a node sent, by channel, each a number or sent [m].
        grads: Gradients of its own loss that a node evaluated, a number or grads [m].
        releases: Noisy functions of its data that others may come to see, a number or releases [m].
        communications: 1 where a node combined what it received, a number or communications [m].
    """

    def each(count: Array | int) -> Array:
        return jnp.broadcast_to(jnp.asarray(count, jnp.int32), (m,))

    return Info(
        {channel: each(count) for channel, count in sent.items()}, each(grads), each(releases), each(communications)
    )
