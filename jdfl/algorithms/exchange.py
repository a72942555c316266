"""Mixing through a codec: what leaves a node is a message, what stays with it is exact.

Axes: m nodes, n parameters, d slots of the neighbour table.
"""

import warnings
from dataclasses import replace

import jax
import jax.numpy as jnp
from jax import Array

from jdfl import checks, ops
from jdfl.algorithms.consequences import consequence
from jdfl.base import Round
from jdfl.codecs import Codec, Dense, Sparse, transmit
from jdfl.network.arcs import called
from jdfl.network.graph import Graph, Network, mix
from jdfl.network.late import Past
from jdfl.streams import Stream

CODEC = Stream("codec", "shared")  # what a codec draws once, for a whole run
MODEL = Stream("message.model", "shared")  # what sender and receiver of a message draw alike
TRACKER = Stream("message.tracker", "shared")  # of a second message beside it
_NEARLY_ALL = 0.99  # of the squared length of a model: what short floats keep
_PARTS = ("encode", "decode", "rows", "lanes", "free", "bits", "pairwise")


def check_codec(method: str, codec: Codec, n: int, m: int, sparsity: int, *, direct: bool = False) -> None:
    """ValueError for what is no codec, settings that make no sense, and decoders that need the receiver's parameters.

    `sparsity` is how many of a vector's entries may be nonzero. With `direct` the models themselves are coded, without
    differences or error feedback: then every codec is warned of that may change them by more than a rounding.
    """
    checks.able(_PARTS, "a codec", "Use Dense() or Sparse().", codec=codec)
    codec.check(n, m, sparsity)
    if codec.pairwise:
        raise ValueError(
            f"Expected a codec of {method} whose messages mean the same to every receiver, got codec = {codec!r}. Use "
            "Dense(), Sparse(), or OneBit(side=False)."
        )
    if direct and _kept(codec, n, sparsity) < _NEARLY_ALL:
        warnings.warn(
            f"{method} sends its models through codec = {codec!r}, which changes them in every round: it needs "
            f"differences or error feedback.{consequence(method, codec)} Use CHOCO-SGD, which sends differences, or "
            "Dense('bfloat16'); Sparse(s=...) only if the models are that sparse.",
            stacklevel=3,
        )


def _kept(codec: Codec, n: int, sparsity: int) -> float:
    """The share of ||x||^2 that arrives at worst of vectors x [n] with so many nonzeros; 0 where nothing is known."""
    if isinstance(codec, Sparse) and codec.size(n, sparsity) >= sparsity:
        return replace(codec, s=sparsity, share=None).contraction(sparsity, sparsity)  # zeros arrive as they are
    return codec.contraction(n, sparsity) or 0.0


def exact(codec: Codec, x: Array) -> bool:
    """Whether vectors of the type of x [m, n] arrive as they are."""
    return isinstance(codec, Dense) and codec.precision == x.dtype.name


def received(codec: Codec, x: Array, round: Round, wanted: Array, stream: Stream = MODEL, index: int = 0) -> Array:
    """What receivers make of the rows of x [m, n] that are `wanted` [m].

    `stream` is what messages of this kind draw from, `index` tells those of one round apart.
    """
    return transmit(codec, round.keys(stream, index), x, wanted)


def exchange(codec: Codec, x: Array, round: Round, index: int = 0) -> Array:
    """W x for rows x [m, n], the rows of others being what arrives of them; in synchronised rounds too.

    `index` tells several exchanges of one round apart.
    """
    graph = round.graph
    if exact(codec, x):
        return mix(graph, x)
    z = received(codec, x, round, graph.out_degree > 0, MODEL, index)
    return mix(graph, z) + graph.self_weight.astype(x.dtype)[:, None] * (x - z)


def exchange_every(period: int, codec: Codec, x: Array, round: Round) -> Array:
    """`exchange` of x [m, n] in the rounds 0, period, 2 period, ...; x as it is in those between."""
    if period == 1:
        return exchange(codec, x, round)
    return ops.skipped_unless(round.k % period == 0, exchange, x, codec, x, round)


def exchange_late(codec: Codec, x: Array, round: Round, past: Past | None) -> tuple[Array, Past | None]:
    """`exchange` of x [m, n] where messages may be late, and the `past` that receivers keep; None where they are not.

    All messages are coded, since one that nobody asks for in this round may be the answer to a later one.
    """
    if past is None:
        return exchange(codec, x, round), None
    z = x if exact(codec, x) else received(codec, x, round, jnp.ones((round.m,), jnp.bool_))
    past = past.after(z, round.k)
    return past.mix(round.graph, x, round.k), past


def refuse_late(method: str, network: Network, needed: str) -> None:
    """Refuse late messages, which `method` takes only if it has what is `needed`: ValueError."""
    if jax.eval_shape(network.at, jnp.int32(0), jax.random.key(0)).late is not None:
        raise ValueError(
            f"Expected a network for {method} whose messages are not late, got {called(network)}. Late messages need "
            f"{needed}."
        )


def heard(graph: Graph) -> Array:
    """[m] int32: 1 where a node hears somebody in this round."""
    return (graph.in_degree > 0).astype(jnp.int32)
