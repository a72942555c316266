"""What the runner passes to an algorithm for a moment of a run, and the counts that it returns.

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
    """The context of the start of a run, or of one of its rounds."""

    k: Array  # int32 [] the round, from 0
    key: Array  # [] key of all draws of this round
    graph: Graph  # links and mixing weights of this round
    node: Array  # [m] int32 global ids of the nodes
    roots: Keys | None = None  # keys of the round under each root; None, outside a run: derived from `key`

    @property
    def m(self) -> int:
        """The number of nodes, or of this device's nodes where they are sharded over several devices."""
        return self.node.shape[0]

    def stream(self, stream: Stream) -> Array:
        """The key [] of a stream in this round, under the root that the stream was declared with.

        Raises ValueError for streams of networks, which are drawn from before there is a round.
        """
        if stream.root == "network":
            raise ValueError(
                f"Expected a stream whose root is not the network's, got {stream!r}: the graph is drawn already. "
                "Declare it as private, choice or shared."
            )
        return stream.of(getattr(self.roots or Keys.of(self.key), stream.root))

    def keys(self, stream: Stream, index: Array | int = 0) -> Array:
        """A stream's key for every node [m] in this round; `index` [] distinguishes several draws of one round."""
        return each(self.stream(stream), self.node, index)


@struct.dataclass
class Info:
    """The counts of one round, per node; the host multiplies them by bits.

    They are derived from what a step does through its `Round`; algorithms count nothing themselves. The runner adds
    them up between records, and the totals as exact whole numbers on the host.
    """

    sent: dict[str, Array]  # int32 [m] messages that the node sent, by channel
    grads: Array  # int32 [m] gradients of its own loss that the node evaluated
    releases: Array  # int32 [m] noisy functions of its data that others may see
    communications: Array  # int32 [m] 1 where the node received what it combines
    combined: Array  # int32 [m] the same, 0 where a robust rule has left its row as it was


def counts(
    m: int,
    sent: Mapping[str, Array | int],
    *,
    grads: Array | int = 0,
    releases: Array | int = 0,
    communications: Array | int = 0,
    combined: Array | int | None = None,
) -> Info:
    """An Info of m nodes from numbers that all nodes share, or arrays [m].

    Args:
        m: The number of nodes.
        sent: Messages that a node sent, by channel, each a number or sent [m].
        grads: Gradients of its own loss that a node evaluated, a number or grads [m].
        releases: Noisy functions of its data that others may see, a number or releases [m].
        communications: 1 where a node received what it combines, a number or communications [m].
        combined: The same, 0 where a robust rule has left its row as it was, or combined [m]; None: nowhere.
    """

    def each(count: Array | int) -> Array:
        return jnp.broadcast_to(jnp.asarray(count, jnp.int32), (m,))

    numbers = grads, releases, communications, communications if combined is None else combined
    return Info({channel: each(count) for channel, count in sent.items()}, *map(each, numbers))
