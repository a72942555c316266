"""Edges of the codecs that lose something: sizes, keys, vectors of all kinds, damaged bytes, and CEPS with each."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jdfl
from jdfl.codecs import packing, round_trip
from tests.codecs.test_codecs import LOSSY, N, encode, first, key_of, prepare
from tests.refused import refused

lossy = pytest.mark.parametrize("codec", LOSSY.values(), ids=LOSSY)
_round_trip = jax.jit(round_trip)


def gaussian(b: int, n: int = N) -> jax.Array:
    return jnp.asarray(np.random.default_rng(4).standard_normal((b, n)), jnp.float32)


def test_a_share_is_rounded_up_and_not_by_its_last_digit():
    for n, share, size in ((100, 0.07, 7), (1000, 0.1, 100), (10, 1e-9, 1), (7, 0.5, 4), (3, 1, 3)):
        assert packing.share_of(n, share) == size
        assert jdfl.Sparse(share=share).size(n) == size


def test_every_leaf_sends_its_share():
    codec, x = LOSSY["sparse, leaves"], np.asarray(gaussian(3)) * np.repeat([1e-3, 1.0, 1e3], (30, 1, 19))
    wanted, first = np.zeros_like(x), 0
    for size, sent in zip((30, 1, 19), (3, 1, 2)):
        for row, one in zip(x[:, first : first + size], wanted[:, first : first + size]):
            top = np.argsort(-np.abs(row))[:sent]
            one[top] = row[top]
        first += size
    wire = prepare(codec)
    np.testing.assert_array_equal(_round_trip(wire, key_of(3), jnp.asarray(x, jnp.float32)), wanted.astype(np.float32))
    np.testing.assert_array_equal(
        codec.arrived(key_of(3), jnp.asarray(x, jnp.float32), wire), wanted.astype(np.float32)
    )
    assert codec.bits(N, None) == 6 * (32 + 6)


@given(st.integers(1, 500), st.integers(1, 2**15 - 1), st.randoms(use_true_random=False))
def test_digits_come_back_and_take_hardly_more_than_their_logarithm(n, levels, draw):
    base = 2 * levels + 1
    level, part = np.array([draw.randint(-levels, levels) for _ in range(n)]), packing.levels(n, levels, base)
    bits = part.write(level)
    assert len(bits) == part.bits <= 1.02 * n * np.log2(base) + 1
    np.testing.assert_array_equal(part.read(bits), level)


@lossy
def test_a_single_entry_arrives(codec):
    codec = codec.replace(k=1) if hasattr(codec, "k") and codec.k else codec
    codec = codec.replace(rank=1) if hasattr(codec, "rank") else codec
    codec = codec.replace(leaves=None) if hasattr(codec, "leaves") else codec
    codec.check(1, 1, 1)
    x = jnp.array([[-1.625]], jnp.float32)
    np.testing.assert_allclose(_round_trip(prepare(codec, 1, 1, 1), key_of(1), x), x, rtol=1e-6)


@pytest.mark.rotated(3)
@lossy
def test_messages_do_not_look_at_one_another_and_scale_with_the_vector(codec):
    """In a batch with a zero vector, a tiny and a huge one, each arrives as it does alone (bfloat16 too)."""
    ready, keys = prepare(codec), key_of(4)
    x = gaussian(4).at[3].set(2.0**90 * gaussian(4)[0]) * jnp.array([[1.0], [0.0], [2.0**-90], [1.0]], jnp.float32)
    together = np.asarray(_round_trip(ready, keys, x))
    assert not together[1].any()
    for i in range(4):
        alone = np.asarray(_round_trip(ready, keys[i : i + 1], x[i : i + 1]))[0]
        np.testing.assert_allclose(together[i], alone, rtol=1e-4, atol=1e-5 * np.abs(alone).max())
    large = np.asarray(_round_trip(ready, keys[:1], x[3:]))
    np.testing.assert_allclose(large / 2.0**90, together[:1], rtol=1e-4, atol=1e-5)


def test_matrices_of_low_rank_arrive_whole():
    draw = np.random.default_rng(0)
    left, right = draw.standard_normal((7, 2)), draw.standard_normal((2, 7))
    x = jnp.asarray(np.stack([left @ right, np.outer(left[:, 0], right[0]), np.zeros((7, 7))]), jnp.float32)
    arrived = _round_trip(prepare(jdfl.LowRank(rank=3), n=49), key_of(3), x.reshape(3, 49))
    np.testing.assert_allclose(arrived, x.reshape(3, 49), rtol=0, atol=1e-5)
    assert not np.asarray(arrived[2]).any()


@pytest.mark.parametrize("norm", ["l2", "max"])
def test_a_vector_whose_norm_is_zero_on_the_wire_has_no_levels(norm):
    with jax.enable_x64(True):
        payload = encode(prepare(jdfl.QSGD(levels=3, norm=norm)), jnp.full((1, N), 1e-60, jnp.float64))
    norm, level = payload
    assert float(norm[0]) == 0
    assert not np.asarray(level).any()


def test_damaged_quantised_messages_are_refused():
    codec = jdfl.QSGD(levels=3)
    data = codec.pack(first(encode(prepare(codec), gaussian(1))), N)
    with refused("words"):
        codec.unpack(data[:4] + b"\xff" * (len(data) - 5) + data[-1:], N)
    with refused("norm"):
        codec.unpack(data[:3] + bytes([data[3] | 128]) + data[4:], N)
    with refused("levels", "4"):
        codec.pack((np.float32(1), np.full(N, 4, np.int8)), N)


@pytest.mark.parametrize("name", ["random-k", "sign", "low-rank"])
def test_bytes_that_are_no_numbers_are_refused(name):
    codec = LOSSY[name]
    data = codec.pack(first(encode(prepare(codec), gaussian(1))), N)
    with refused("finite"):
        codec.unpack(b"\0\0\xc0\x7f" + data[4:], N)
    if name == "sign":
        with refused("scale"):
            codec.unpack(b"\0\0\x80\xbf" + data[4:], N)
        with refused("82 bits"):
            codec.unpack(data[:-1] + bytes([data[-1] | 1]), N)
