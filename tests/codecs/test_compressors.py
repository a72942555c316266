"""Edges of the codecs that lose something: sizes, keys, vectors of all kinds, damaged bytes, and CEPS with each."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jdfl
from jdfl.codecs import radix, round_trip, subsets
from tests.codecs.test_codecs import LOSSY, N, encode, first, key_of, prepare

lossy = pytest.mark.parametrize("codec", LOSSY.values(), ids=LOSSY)
_round_trip = jax.jit(round_trip)


def gaussian(b: int, n: int = N) -> jax.Array:
    return jnp.asarray(np.random.default_rng(4).standard_normal((b, n)), jnp.float32)


def test_sizes_are_those_of_the_formulas():
    assert jdfl.RandomK(share=0.1).bits(1000) == 3200
    assert jdfl.RandomK(k=100, value="bfloat16").bits(1000) == 1600
    assert jdfl.Sparse(share=0.1).bits(1000) == 100 * 42
    assert jdfl.Sign().bits(1000) == 1032
    assert jdfl.LowRank(rank=2).bits(1000) == 32 * 2 * (31 + 33)
    assert jdfl.LowRank(height=10).bits(1000) == 32 * 110
    assert jdfl.QSGD(levels=127).bits(1000) == 8032
    assert [jdfl.QSGD(levels).bits(1000) - 32 for levels in (1, 2, 4)] == [
        1587,
        2334,
        3177,
    ]  # log2 3, 5 and 9: 1.585, 2.322, 3.170


@pytest.mark.parametrize(
    ("n", "share", "size"), [(100, 0.07, 7), (1000, 0.1, 100), (10, 1e-9, 1), (7, 0.5, 4), (3, 1, 3)]
)
def test_a_share_is_rounded_up_and_not_by_its_last_digit(n, share, size):
    assert subsets.size(n, share) == size
    assert jdfl.Sparse(share=share).size(n) == size


@given(st.integers(1, 500), st.integers(1, 2**15 - 1), st.randoms(use_true_random=False))
def test_digits_come_back_and_take_hardly_more_than_their_logarithm(n, levels, draw):
    base = 2 * levels + 1
    level, part = np.array([draw.randint(-levels, levels) for _ in range(n)]), radix.levels(n, levels, base)
    bits = part.write(level)
    assert len(bits) == part.bits <= 1.02 * n * np.log2(base) + 1
    np.testing.assert_array_equal(part.read(bits), level)


def test_no_base_wastes_two_per_cent():
    for base in range(3, 2**16, 2):
        digits, bits = radix.word(base)
        assert bits <= min(63, 1.02 * digits * np.log2(base))


@lossy
def test_a_single_entry_arrives(codec):
    codec = codec.replace(k=1) if hasattr(codec, "k") and codec.k else codec
    codec = codec.replace(rank=1) if hasattr(codec, "rank") else codec
    codec.check(1, 1, 1)
    x = jnp.array([[-1.625]], jnp.float32)
    np.testing.assert_allclose(_round_trip(prepare(codec, 1, 1, 1), key_of(1), x), x, rtol=1e-6)


@pytest.mark.parametrize(
    "codec",
    [jdfl.Sparse(share=1.0), jdfl.RandomK(k=N), jdfl.RandomK(share=1.0, scaled=True), jdfl.LowRank(rank=7)],
    ids=["sparse", "random-k", "random-k scaled", "low-rank"],
)
def test_full_size_loses_nothing(codec):
    assert codec.contraction(N, 3) == 1
    x = gaussian(3)
    tolerance = 1e-5 if isinstance(codec, jdfl.LowRank) else 0
    np.testing.assert_allclose(_round_trip(prepare(codec), key_of(3), x), x, rtol=0, atol=tolerance)


@lossy
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_stays_visible_and_is_no_message(codec, bad):
    ready = prepare(codec)
    x = gaussian(3).at[1, 20].set(bad)
    arrived = np.asarray(_round_trip(ready, key_of(3), x))
    assert np.isfinite(arrived).all(axis=1).tolist() == [True, False, True]
    payload = jax.tree.map(lambda leaf: leaf[1], encode(ready, x))
    with pytest.raises(ValueError, match="finite"):
        codec.pack(payload, N)


@lossy
def test_messages_do_not_look_at_one_another(codec):
    """In a batch with a zero vector, a tiny and a huge one, each arrives as it does alone."""
    ready, keys = prepare(codec), key_of(4)
    x = gaussian(4) * jnp.array([[1.0], [0.0], [1e-30], [1e30]], jnp.float32)
    together = np.asarray(_round_trip(ready, keys, x))
    assert not together[1].any()
    for i in range(4):
        alone = np.asarray(_round_trip(ready, keys[i : i + 1], x[i : i + 1]))[0]
        np.testing.assert_allclose(together[i], alone, rtol=1e-4, atol=1e-5 * np.abs(alone).max())


@lossy
def test_messages_scale_with_the_vector(codec):
    """What arrives of c x is c times what arrives of x, for c far from 1 too (bfloat16 has float32's range)."""
    ready, x = prepare(codec), gaussian(1)
    arrived = np.asarray(_round_trip(ready, key_of(1), x))
    for power in (-90, -1, 90):
        scaled = np.asarray(_round_trip(ready, key_of(1), x * 2.0**power))
        np.testing.assert_allclose(scaled / 2.0**power, arrived, rtol=1e-4, atol=1e-5)


def test_random_places_are_distinct_even_and_agreed_on():
    codec, draws = jdfl.RandomK(k=7), 4000
    keys = jax.random.split(jax.random.key(0), draws)
    places = np.asarray(jax.jit(codec._places, static_argnums=1)(keys, N))
    assert (np.diff(places, axis=1) > 0).all()
    share = np.bincount(places.ravel(), minlength=N) / draws
    assert np.abs(share - 7 / N).max() < 6 * np.sqrt(7 / N * (1 - 7 / N) / draws)
    x = gaussian(1)
    wire = prepare(codec)
    payload = codec.encode(keys[:1], x, wire)
    found, other = (codec.decode(key, payload, wire) for key in (keys[:1], keys[1:2]))
    assert np.isin(found, [0, *np.asarray(x[0])]).all()
    assert not np.array_equal(other, found)


@pytest.mark.parametrize("name", ["qsgd", "sign", "low-rank"])
def test_these_receivers_need_no_key(name):
    x, keys, wire = gaussian(2), key_of(2), prepare(LOSSY[name])
    payload = encode(wire, x)
    here, there = (np.asarray(wire.codec.decode(one, payload, wire)) for one in (keys, keys[::-1]))
    np.testing.assert_array_equal(here, there)


def test_matrices_of_low_rank_arrive_whole():
    draw = np.random.default_rng(0)
    left, right = draw.standard_normal((7, 2)), draw.standard_normal((2, 7))
    x = jnp.asarray(np.stack([left @ right, np.outer(left[:, 0], right[0]), np.zeros((7, 7))]), jnp.float32)
    arrived = _round_trip(prepare(jdfl.LowRank(rank=3), n=49), key_of(3), x.reshape(3, 49))
    np.testing.assert_allclose(arrived, x.reshape(3, 49), rtol=0, atol=1e-5)
    assert not np.asarray(arrived[2]).any()


@lossy
def test_float64_parameters_arrive_as_float32_ones_do(codec):
    x = np.asarray(gaussian(2), np.float64)
    with jax.enable_x64(True):
        ready = codec.prepare(jax.random.key(1), jnp.arange(2, dtype=jnp.int32), N, 3, jnp.float64)
        arrived = _round_trip(ready, key_of(2), jnp.asarray(x))
    assert arrived.dtype == np.float64
    like = _round_trip(prepare(codec, m=2), key_of(2), jnp.asarray(x, jnp.float32))
    np.testing.assert_allclose(arrived, like, rtol=0, atol=1e-5 * np.abs(x).max())


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
    with pytest.raises(ValueError, match=r"words below 7\^\d+"):
        codec.unpack(data[:4] + b"\xff" * (len(data) - 5) + data[-1:], N)
    with pytest.raises(ValueError, match="norm >= 0"):
        codec.unpack(data[:3] + bytes([data[3] | 128]) + data[4:], N)
    with pytest.raises(ValueError, match="levels from -3 to 3, got 4"):
        codec.pack((np.float32(1), np.full(N, 4, np.int8)), N)


@pytest.mark.parametrize("name", ["random-k", "sign", "low-rank"])
def test_bytes_that_are_no_numbers_are_refused(name):
    codec = LOSSY[name]
    data = codec.pack(first(encode(prepare(codec), gaussian(1))), N)
    with pytest.raises(ValueError, match="finite"):
        codec.unpack(b"\0\0\xc0\x7f" + data[4:], N)
    if name == "sign":
        with pytest.raises(ValueError, match="scale >= 0"):
            codec.unpack(b"\0\0\x80\xbf" + data[4:], N)
        with pytest.raises(ValueError, match="zeros after the 82 bits"):
            codec.unpack(data[:-1] + bytes([data[-1] | 1]), N)


_problem = partial(jdfl.problems.example1, m=4, n=20, s=2, rows=(5, 9))


@pytest.mark.rotated(4)
@pytest.mark.parametrize("name", ["random-k", "qsgd", "sign", "low-rank"])
def test_ceps_runs_with_each_and_its_bytes_are_counted(name):
    problem, codec = _problem(), LOSSY[name]
    algorithm = jdfl.CEPS(s=2, rate=1.0, codec=codec, periods=(1, 2), sigma_rule="safe")
    result = jdfl.run(algorithm, problem, jdfl.network.ring(4), steps=4)
    assert np.isfinite(np.asarray(result.params)).all()
    assert algorithm.message_bits(problem, codec) == {"model": codec.bits(20)}
