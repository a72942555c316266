"""Laws of every codec: round trips, bits, bytes, shared randomness, zero vectors."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jdfl
from jdfl import ops
from jdfl.codecs import packing, round_trip, transmit
from jdfl.codecs.base import node_codec

M, N, S = 4, 50, 3
NODE = jnp.arange(M, dtype=jnp.int32)
CODECS = {
    "dense": jdfl.Dense(),
    "sparse": jdfl.Sparse(),
    "one-bit": jdfl.OneBit(d=80),
    "one-bit, 32-bit norm": jdfl.OneBit(d=81, norm_bits=32, inverse="paper"),
}
codecs = pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)


@partial(jax.jit, static_argnames=("n", "s", "m"))
def prepare(codec, n=N, s=S, m=M):
    return codec.prepare(jax.random.key(1), jnp.arange(m, dtype=jnp.int32), n, s, jnp.float32)


def sparse_rows(seed: int, m=M, n=N, s=S) -> jax.Array:
    draw = np.random.default_rng(seed)
    rows = np.zeros((m, n), np.float32)
    for i in range(m):
        rows[i, draw.choice(n, s, replace=False)] = draw.uniform(0.5, 2, s) * draw.choice([-1, 1], s)
    return jnp.asarray(rows)


@jax.jit
def encode(codec, x):
    return codec.encode(jax.random.key(0), x)


@codecs
def test_packed_messages_have_the_counted_length_and_come_back(codec):
    ready = prepare(codec)
    for seed in range(3):
        payload = encode(node_codec(ready, 1), sparse_rows(seed)[1])
        data = ready.pack(payload, N)
        assert len(data) == -(-ready.bits(N) // 8)
        back = ready.unpack(data, N)
        for one, other in zip(jax.tree.leaves(payload), jax.tree.leaves(back)):
            np.testing.assert_array_equal(np.asarray(one), other)
        received = (
            ready.replace().decode(jax.random.key(0), jax.tree.map(jnp.asarray, payload), N) if ready.free else None
        )
        if received is not None:
            np.testing.assert_array_equal(received, sparse_rows(seed)[1])
        with pytest.raises(ValueError, match="Expected a message of"):
            ready.unpack(data + b"\0", N)


@codecs
def test_zero_vector_comes_back_as_zero(codec):
    ready = prepare(codec)
    np.testing.assert_array_equal(round_trip(node_codec(ready, 0), jax.random.key(0), jnp.zeros(N)), np.zeros(N))


def test_sizes_are_those_of_the_paper_and_the_spec():
    assert prepare(jdfl.OneBit(d=500), 1000, 10, 1).bits(1000) / 8 == 70.5
    assert prepare(jdfl.OneBit(), 1000, 10, 1).bits(1000) == 564
    assert prepare(jdfl.Sparse(), 1000, 10, 1).bits(1000) / 8 == 52.5
    assert jdfl.Dense().bits(1000) == 32_000
    assert jdfl.Dense("float64").bits(1000) == 64_000


@given(st.integers(0, 2**31 - 1))
def test_exact_codecs_are_exact_on_sparse_vectors(seed):
    rows = sparse_rows(seed % 10_000)
    ready = prepare(jdfl.Sparse())
    received = transmit(ready, ops.node_keys(jax.random.key(0), 0, NODE), rows, jnp.ones(M, bool), 2)
    np.testing.assert_array_equal(received, rows)


def test_sparse_keeps_the_largest_entries_of_a_dense_vector():
    x = jax.random.normal(jax.random.key(3), (N,))
    received = round_trip(prepare(jdfl.Sparse(s=5)), jax.random.key(0), x)
    np.testing.assert_array_equal(received, ops.top_s(x, 5))


@codecs
@given(wanted=st.lists(st.booleans(), min_size=M, max_size=M), lanes=st.sampled_from([1, 3]))
def test_transmit_codes_the_wanted_rows_and_them_alone(codec, wanted, lanes):
    rows, keys = sparse_rows(1), ops.node_keys(jax.random.key(0), 0, NODE)
    received = np.asarray(_transmit(prepare(codec), keys, rows, jnp.asarray(wanted), lanes))
    everything = np.asarray(_transmit(prepare(codec), keys, rows, jnp.ones(M, bool), 1))
    for i, asked in enumerate(wanted):
        if asked:
            np.testing.assert_allclose(received[i], everything[i], rtol=1e-4, atol=1e-5)
        elif not codec.free:
            assert not received[i].any()


_transmit = jax.jit(transmit, static_argnums=4)


def test_one_bit_keeps_norm_and_signs_scale_with_the_vector():
    ready = node_codec(prepare(jdfl.OneBit(d=80)), 2)
    x = sparse_rows(4)[2]
    received = round_trip(ready, jax.random.key(0), x)
    assert np.count_nonzero(received) <= S
    np.testing.assert_allclose(np.linalg.norm(received), np.linalg.norm(x), rtol=1e-5)
    positive, norm = encode(ready, x)
    opposite, same_norm = encode(ready, -x)
    np.testing.assert_array_equal(positive, ~np.asarray(opposite))  # no measurement of a Gaussian matrix is zero
    assert norm == same_norm


def test_exact_inverse_undoes_the_logarithm_and_the_papers_does_not():
    """Perfect decoding of v: the paper's inverse errs by a few per cent, the exact one not at all."""
    x = np.zeros(1000)
    draw = np.random.default_rng(0)
    x[:10] = draw.uniform(0.5, 2, 10)
    logarithm = np.log1p(x[:10]) / np.log(5)
    v = jnp.asarray(logarithm / np.linalg.norm(logarithm), jnp.float32)
    from jdfl.codecs.one_bit import _exact_scale

    t = _exact_scale(v, jnp.float32(np.linalg.norm(x)), jnp.float32(5.0))
    exact = np.expm1(float(t) * np.asarray(v) * np.log(5))
    np.testing.assert_allclose(exact, x[:10], rtol=1e-4)
    rough = np.expm1(np.asarray(v) * np.log(5))
    rough *= np.linalg.norm(x) / np.linalg.norm(rough)
    error = np.linalg.norm(rough - x[:10]) / np.linalg.norm(x)
    assert 0.02 < error < 0.06


@pytest.mark.parametrize(
    ("codec", "word"),
    [
        (jdfl.OneBit(d=0), "d = 0"),
        (jdfl.OneBit(d=2.5), "d = 2.5"),
        (jdfl.OneBit(s=51), "s = 51"),
        (jdfl.OneBit(gamma=1.0), "gamma = 1.0"),
        (jdfl.OneBit(margin=0.0), "margin = 0.0"),
        (jdfl.OneBit(eta=-1.0), "eta = -1.0"),
        (jdfl.OneBit(inverse="best"), "inverse = 'best'"),
        (jdfl.OneBit(norm_bits=16), "norm_bits = 16"),
        (jdfl.OneBit(cap=0), "cap = 0"),
        (jdfl.OneBit(d=10, flips=11), "flips = 11"),
        (jdfl.Sparse(s=0), "s = 0"),
        (jdfl.Dense("float16"), "precision = 'float16'"),
    ],
)
def test_settings_out_of_range_are_refused_by_name(codec, word):
    with pytest.raises(ValueError, match=word.replace(".", r"\.")):
        codec.check(N, M)


@given(st.lists(st.integers(0, 2**11 - 1), min_size=1, max_size=9), st.integers(11, 16))
def test_packed_integers_come_back(values, width):
    bits = packing.from_integers(np.array(values), width)
    assert packing.to_integers(packing.split(packing.join(bits), len(bits))[0], width).tolist() == values


def test_sensing_matrices_are_gaussian_and_every_node_has_its_own():
    matrix = np.asarray(prepare(jdfl.OneBit(d=80)).matrix)
    entries = matrix.reshape(M, -1)
    assert np.abs(np.corrcoef(entries) - np.eye(M)).max() < 5 / np.sqrt(entries.shape[1])
    assert np.abs(entries.mean(axis=1)).max() < 5 / np.sqrt(entries.shape[1])
    np.testing.assert_allclose((entries**2).mean(axis=1), 1.0, atol=5 * np.sqrt(2 / entries.shape[1]))
    np.testing.assert_allclose((entries**4).mean(axis=1), 3.0, atol=5 * np.sqrt(96 / entries.shape[1]))


def test_what_is_received_is_what_was_packed_in_64_bits_too():
    with jax.enable_x64(True):
        x = jnp.asarray(np.asarray(sparse_rows(3)[0], np.float64) / 3)
        for codec in (jdfl.OneBit(d=80, norm_bits=32), jdfl.OneBit(d=80), jdfl.Sparse(), jdfl.Dense()):
            ready = codec.prepare(jax.random.key(1), NODE, N, S, jnp.float64)
            payload = node_codec(ready, jnp.int32(0)).encode(jax.random.key(0), x)
            back = ready.unpack(ready.pack(payload, N), N)
            for one, other in zip(jax.tree.leaves(payload), jax.tree.leaves(back)):
                np.testing.assert_array_equal(np.asarray(one), np.asarray(other, np.asarray(one).dtype))


@pytest.mark.parametrize(
    ("codec", "word"),
    [
        (jdfl.OneBit(d=8, matrix=np.zeros((1, N, 8))), "matrix of shape"),
        (jdfl.OneBit(d=8, matrix=np.full((M, N, 8), np.nan)), "finite numbers in matrix"),
        (jdfl.OneBit(d=8, gamma=np.full(M + 1, 5.0)), "gamma of shape"),
        (jdfl.OneBit(d=8, margin=np.full(M + 1, 0.1)), "margin of shape"),
    ],
)
def test_arrays_that_do_not_fit_the_nodes_are_refused(codec, word):
    with pytest.raises(ValueError, match=word):
        codec.check(N, M)
