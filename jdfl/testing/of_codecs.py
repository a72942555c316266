"""The laws that every codec keeps.

Axes: m senders, b messages, n entries of a vector.
"""
# pyright: reportUnusedFunction=false

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jdfl.base import arguments
from jdfl.codecs import Codec, Wire, round_trip
from jdfl.testing.law import close, hold, laws_in, leaves_equal, require, same

_SENDERS = 4
_DRAWS = 1500  # messages per estimated mean
_PACKED = (0, 4, 8, 11)  # vectors whose messages are packed
_SURE = 6.0  # standard errors
_FLOAT32 = 1e-5  # rounding, relative to the largest entry
_trip = jax.jit(round_trip)
_encode = jax.jit(lambda wire, key, x: wire.codec.encode(key, x, wire))
_decode = jax.jit(lambda wire, key, payload: wire.codec.decode(key, payload, wire))


@dataclass(frozen=True)
class _CodecCase:
    """A codec, and the vectors that it is tried on."""

    codec: Codec
    n: int = 49
    sparsity: int = 3

    @cached_property
    def wire(self) -> Wire:
        """The wire of four senders."""
        ids = jnp.arange(_SENDERS, dtype=jnp.int32)
        return self.codec.prepare(jax.random.key(1), ids, self.n, self.sparsity, jnp.float32)

    @property
    def written(self) -> bool:
        """Whether the codec says how a message is written; one without a layout has `bits` alone."""
        return type(self.codec).layout is not Codec.layout

    @cached_property
    def vectors(self) -> Array:
        """Vectors [12, n]: Gaussian entries, heavy tails, equal entries, a single one, few that are not zero."""
        draw = np.random.default_rng(7)
        normal = draw.standard_normal((4, self.n))
        sparse = np.where(np.arange(self.n) < self.sparsity, normal, 0)
        tails = np.sign(normal[:2]) * np.abs(normal[:2]) ** 4
        single = np.eye(self.n)[:1] * 3
        return jnp.asarray(np.concatenate([normal, sparse, tails, np.ones((1, self.n)), single]), jnp.float32)

    def sent(self, x: Array, key: int = 2) -> tuple[Wire, Array, Array]:
        """Wire, keys and vectors of one message for each of some vectors x [b, n]."""
        rows = jnp.arange(len(x)) % _SENDERS
        return self.wire.rows(rows), jax.random.split(jax.random.key(key), len(x)), x

    def arrives(self, x: Array, key: int = 2) -> np.ndarray:
        """What receivers make [b, n] of some vectors."""
        return np.asarray(_trip(*self.sent(x, key)))

    def draws(self) -> np.ndarray:
        """What arrives of every vector in many messages [vectors, draws, n], in float64."""
        x = jnp.repeat(self.vectors, _DRAWS, axis=0)
        return self.arrives(x).astype(np.float64).reshape(len(self.vectors), _DRAWS, self.n)

    def messages(self) -> list[tuple[Codec, Any]]:
        """The messages for some of the vectors, on the host, each with the codec for its bytes."""
        found = jax.device_get(_encode(*self.sent(self.vectors)))
        groups = self.codec.groups or (0,) * _SENDERS
        return [(self.codec.of(groups[i % _SENDERS]), jax.tree.map(lambda leaf, i=i: leaf[i], found)) for i in _PACKED]


def _what_arrives_is_like_what_was_sent(case: _CodecCase) -> None:
    """What arrives has the shape and the float type of the vectors, and is finite."""
    wire, keys, x = case.sent(case.vectors)
    found = _decode(wire, keys, _encode(wire, keys, x))
    same("shape of what arrives", found.shape, x.shape)
    require(jnp.issubdtype(found.dtype, jnp.floating), f"floating-point numbers: expected, got {found.dtype}")
    require(jnp.isfinite(found).all(), f"finite numbers: expected, got {int((~jnp.isfinite(found)).sum())} others")


def _bits_are_the_packed_length(case: _CodecCase) -> None:
    """A message takes as many bytes as its bits say, its arrays are those of the layout, and unpacking restores it."""
    n, s = case.n, case.sparsity
    for group in sorted(set(case.codec.groups or (0,))):
        bits: Any = case.codec.of(group).bits(n, s)
        require(isinstance(bits, int) and bits >= 0, f"bits: expected a Python int from 0, got {bits!r}")
    if not case.written:
        return
    for codec, message in case.messages():
        bits = codec.bits(n, s)
        same("arrays of a message", len(jax.tree.leaves(message)), len(jax.tree.leaves(codec.layout(n, s))))
        data = codec.pack(message, n, s)
        same(f"bytes of a message of {bits} bits", len(data), -(-bits // 8))
        leaves_equal("message after packing", jax.tree.leaves(codec.unpack(data, n, s)), jax.tree.leaves(message))


def _unpacked_messages_arrive_alike(case: _CodecCase) -> None:
    """What arrives follows from the bytes of the message and from common randomness, and from nothing else."""
    if not case.written:
        return
    n, s = case.n, case.sparsity
    wire, keys, _ = case.sent(case.vectors)
    messages, rows = case.messages(), jnp.asarray(_PACKED)
    packed = [codec.unpack(codec.pack(one, n, s), n, s) for codec, one in messages]
    wire, keys = wire.rows(rows), keys[rows]
    sent = [one for _, one in messages]
    here, there = (jax.tree.map(lambda *leaves: jnp.stack(leaves), *parts) for parts in (sent, packed))
    close("what arrives of the bytes", _decode(wire, keys, there), _decode(wire, keys, here))


def _a_zero_vector_arrives_finite(case: _CodecCase) -> None:
    """The zero vector arrives as finite numbers, and as zero where the codec contracts."""
    found = case.arrives(jnp.zeros_like(case.vectors))
    require(np.isfinite(found).all(), f"finite numbers: expected, got {int((~np.isfinite(found)).sum())} others")
    if case.codec.contraction(case.n, case.sparsity) is not None:
        close("what arrives of zeros", found, np.zeros_like(found))


def _bad_numbers_are_not_hidden(case: _CodecCase) -> None:
    """NaN or infinity in a vector does not arrive as finite numbers alone, so that a diverged run is noticed."""
    for bad in (np.nan, np.inf):
        x = case.vectors.at[:, 0].set(bad)
        hidden = np.isfinite(case.arrives(x)).all(axis=1)
        require(
            not hidden.any(),
            f"{bad} in vector {hidden.argmax()}: expected to be noticed, got finite numbers",
        )


def _messages_depend_on_the_key_alone(case: _CodecCase) -> None:
    """The same vectors with the same keys are the same messages: a codec has neither state nor its own randomness."""
    wire, keys, x = case.sent(case.vectors)
    first, second = (jax.tree.leaves(case.codec.encode(keys, x, wire)) for _ in range(2))  # not compiled
    leaves_equal("messages", second, first)
    close("what arrives", case.arrives(case.vectors), case.arrives(case.vectors))


def _messages_do_not_mix(case: _CodecCase) -> None:
    """A decoded vector does not depend on the vectors that are coded together with it."""
    whole = case.arrives(case.vectors)
    for i in (0, len(whole) - 1):
        others = 10 - 3 * case.vectors
        close(f"vector {i} among others", case.arrives(others.at[i].set(case.vectors[i]))[i], whole[i])


def _compiled_messages_are_the_same(case: _CodecCase) -> None:
    """Coding inside jax.jit and jax.vmap gives what it gives outside."""
    wire, keys, x = case.sent(case.vectors)
    eager, tolerance = round_trip(wire, keys, x), {"rtol": _FLOAT32, "atol": _FLOAT32}
    close("jax.jit", _trip(wire, keys, x), eager, **tolerance)
    stacked = jax.jit(jax.vmap(round_trip, (None, 0, 0)))(wire, jnp.stack([keys, keys]), jnp.stack([x, x]))
    close("jax.vmap", stacked[1], eager, **tolerance)


def _the_shortcut_arrives_alike(case: _CodecCase) -> None:
    """Where the codec is `direct`, `arrived` gives what decoding the messages gives."""
    if case.codec.direct:
        wire, keys, x = case.sent(case.vectors)
        close("arrived", jax.jit(case.codec.arrived)(keys, x, wire), _trip(wire, keys, x))


def _the_contraction_holds(case: _CodecCase) -> None:
    """E ||C(x) - x||^2 <= (1 - delta) ||x||^2 with the delta of `contraction`, within six standard errors."""
    delta = case.codec.contraction(case.n, case.sparsity)
    if delta is None:
        return
    require(0 < delta <= 1, f"contraction: expected a number in (0, 1], got {delta}")
    x = np.asarray(case.vectors, np.float64)
    errors = np.sum((case.draws() - x[:, None]) ** 2, axis=2) / np.sum(x**2, axis=1)[:, None]
    mean, doubt = errors.mean(axis=1), _SURE * errors.std(axis=1) / np.sqrt(_DRAWS)
    worst = int(np.argmax(mean - doubt))
    require(
        mean[worst] <= (1 - delta) + doubt[worst] + _FLOAT32,
        f"mean of ||C(x) - x||^2 / ||x||^2: expected at most 1 - delta = {1 - delta:.6g}, got {mean[worst]:.6g} "
        f"+- {doubt[worst]:.2g} for vector {worst}",
    )


def _an_unbiased_codec_is_right_on_average(case: _CodecCase) -> None:
    """Where the codec is `unbiased`, E C(x) = x in every entry, but for one codec in a billion."""
    if not case.codec.unbiased:
        return
    x, found = np.asarray(case.vectors, np.float64), case.draws()
    log, span = np.log(4e9), np.ptp(found, axis=1).max(axis=1, keepdims=True)
    room = np.sqrt(2 * found.var(axis=1, ddof=1) * log / _DRAWS)  # the empirical Bernstein bound (Maurer, Pontil, 2009)
    room += 7 * span * log / (3 * (_DRAWS - 1)) + _FLOAT32 * np.abs(x).max(axis=1, keepdims=True)
    off = np.abs(found.mean(axis=1) - x) / np.maximum(room, np.finfo(float).tiny)
    i, j = np.unravel_index(int(np.argmax(off)), off.shape)
    require(
        off[i, j] <= 1,
        f"mean of what arrives of entry {j} of vector {i}: expected {x[i, j]:.6g}, got {found[i, :, j].mean():.6g} "
        f"+- {room[i, j]:.2g}",
    )


CODEC_LAWS = laws_in(globals())
"""The laws of codecs by their names."""


def check_codec(codec: Codec, law: str | None = None, *, n: int = 49, sparsity: int = 3) -> None:
    """Try one law, or all of them, on a codec.

    Args:
        codec: The settings of a class that inherits from `jdfl.codecs.Codec`.
        law: A name in `CODEC_LAWS`; None: all, one after another.
        n: Entries of the vectors that are sent, from 2.
        sparsity: How many entries of some of them are not zero, from 1 to n.

    Raises:
        LawBrokenError: For the first law that does not hold.
        ValueError: For an unknown law, an object that is no codec, and settings that the codec refuses.
    """
    remedy = "It inherits from jdfl.codecs.Codec: see docs/own-codec.md."
    arguments.inherits("codec", codec, Codec, "a codec", remedy)
    codec.check(n, _SENDERS, sparsity)
    hold(CODEC_LAWS, _CodecCase(codec, n, sparsity), codec, law)
