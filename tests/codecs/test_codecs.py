"""Laws of every codec: round trips, bits, bytes, shared randomness, zero vectors."""

from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jdfl
from jdfl.base.arguments import settings
from jdfl.codecs import transmit
from tests.refused import refused

M, N, S = 4, 50, 3
EXACT = {"dense": jdfl.Dense(), "sparse": jdfl.Sparse(), "sparse, enumerated": jdfl.Sparse(index="enumerative")}
ROUNDED = {
    "dense float16": jdfl.Dense("float16"),
    "dense bfloat16": jdfl.Dense("bfloat16"),
    "sparse float16": jdfl.Sparse(value="float16"),
    "sparse bfloat16": jdfl.Sparse(value="bfloat16", index="enumerative"),
    "sparse int8": jdfl.Sparse(value="int8", index="enumerative"),
    "sparse int4": jdfl.Sparse(value="int4"),
}
ONE_BIT = {
    "one-bit": jdfl.OneBit(d=80),
    "one-bit, 32-bit norm": jdfl.OneBit(d=81, norm_bits=32, inverse="paper"),
    "one-bit, shared": jdfl.OneBit(d=80, shared=True),
    "one-bit, rademacher": jdfl.OneBit(d=80, ensemble="rademacher"),
}
LOSSY = {
    "sparse, share": jdfl.Sparse(share=0.1),
    "sparse, leaves": jdfl.Sparse(share=0.1, leaves=(30, 1, 19)),
    "random-k": jdfl.RandomK(k=7),
    "random-k scaled bfloat16": jdfl.RandomK(share=0.3, scaled=True, value="bfloat16"),
    "qsgd": jdfl.QSGD(levels=3),
    "qsgd max scaled": jdfl.QSGD(levels=300, norm="max", scaled=True),
    "sign": jdfl.Sign(),
    "low-rank": jdfl.LowRank(rank=2),
}
CODECS = EXACT | ROUNDED | ONE_BIT | LOSSY
codecs = pytest.mark.parametrize("name", CODECS)
some = ("sparse int8", "one-bit", "one-bit, shared", "random-k")
some_codecs = pytest.mark.parametrize("codec", [CODECS[name] for name in some], ids=some)


@partial(jax.jit, static_argnames=("n", "s", "m"))
def prepare(codec, n=N, s=S, m=M):
    return codec.prepare(jax.random.key(1), jnp.arange(m, dtype=jnp.int32), n, s, jnp.float32)


def sparse_rows(seed: int, m=M, n=N, s=S) -> jax.Array:
    draw = np.random.default_rng(seed)
    rows = np.zeros((m, n), np.float32)
    for i in range(m):
        rows[i, draw.choice(n, s, replace=False)] = draw.uniform(0.5, 2, s) * draw.choice([-1, 1], s)
    return jnp.asarray(rows)


def key_of(b: int) -> jax.Array:
    return jax.random.split(jax.random.key(0), b)


@jax.jit
def encode(wire, x):
    return wire.codec.encode(key_of(x.shape[0]), x, wire)


@jax.jit
def decode(wire, payload, x):
    return wire.codec.decode(key_of(x.shape[0]), payload, wire)


def first(payload):
    return jax.tree.map(lambda leaf: leaf[0], payload)


@jax.jit
def _sent(codec, x):
    wire = codec.prepare(jax.random.key(1), jnp.arange(M, dtype=jnp.int32), N, S, jnp.float32)
    wire = wire.rows(jnp.ones(len(x), jnp.int32))
    payload = codec.encode(key_of(len(x)), x, wire)
    return payload, codec.decode(key_of(len(x)), payload, wire)


BAD = (np.nan, np.inf, -np.inf)


@cache
def sent(name: str) -> tuple[np.ndarray, Any, np.ndarray]:
    """Two sparse vectors, zeros, and vectors with an entry that is not finite [6, n]; their messages; what arrives."""
    x = np.array([sparse_rows(0)[1], 0.3 * sparse_rows(1)[1], *np.zeros((4, N))], np.float32)
    x[3:, 7] = BAD
    payload, arrived = jax.device_get(_sent(CODECS[name], x))
    return x, payload, arrived


@codecs
def test_packed_messages_have_the_counted_length_and_come_back(name):
    codec = CODECS[name]
    x, payload, arrived = sent(name)
    for i in range(3):
        message = jax.tree.map(lambda leaf, i=i: leaf[i], payload)
        data = codec.pack(message, N, S)
        assert len(data) == -(-codec.bits(N, S) // 8)
        back = codec.unpack(data, N, S)
        assert jax.tree.structure(back) == jax.tree.structure(message)
        jax.tree.map(np.testing.assert_array_equal, message, back)
    for wrong in (data + b"\0", data[:-1], b""):
        with refused("message"):
            codec.unpack(wrong, N, S)
    np.testing.assert_array_equal(arrived[2], x[2])
    if name in EXACT:
        np.testing.assert_array_equal(arrived[:3], x[:3])


@codecs
def test_what_is_not_finite_stays_visible_and_is_no_message(name):
    _, payload, arrived = sent(name)
    for i in (3, 4, 5):
        assert not np.isfinite(arrived[i]).all()
        with refused("finite"):
            CODECS[name].pack(jax.tree.map(lambda leaf, i=i: leaf[i], payload), N, S)


def test_sizes_are_those_of_the_paper_and_the_spec():
    assert jdfl.OneBit().bits(1000) == 564
    assert jdfl.Sparse().bits(1000, 10) / 8 == jdfl.Sparse(s=10).bits(1000) / 8 == 52.5
    sizes = {"float32": 49.75, "float16": 29.75, "int8": 23.75, "int4": 18.75}
    for value, size in sizes.items():
        assert jdfl.Sparse(value=value, index="enumerative").bits(1000, 10) / 8 == size
        assert jdfl.Sparse(value=value).bits(1000, 10) / 8 == size + 2.75
    assert [jdfl.Dense(value).bits(1000) for value in ("bfloat16", "float32", "float64")] == [16_000, 32_000, 64_000]
    with refused(s=None, share=None):
        jdfl.Sparse().bits(1000)
    assert jdfl.RandomK(k=100, value="bfloat16").bits(1000) == 1600
    assert jdfl.Sparse(share=0.1).bits(1000) == 100 * 42
    assert [jdfl.Sparse(s=10).bits(n) for n in (1024, 1025)] == [420, 430]
    assert jdfl.Sign().bits(1000) == 1032
    assert jdfl.LowRank(rank=2).bits(1000) == 32 * 2 * (31 + 33)
    assert jdfl.LowRank(height=10).bits(1000) == 32 * 110
    # log2 3, 5 and 9: 1.585, 2.322, 3.170
    assert [jdfl.QSGD(levels).bits(1000) - 32 for levels in (1, 2, 4)] == [1587, 2334, 3177]


@pytest.mark.rotated(2)
@some_codecs
@given(wanted=st.lists(st.booleans(), min_size=M, max_size=M))
def test_transmit_codes_the_wanted_rows_and_them_alone(codec, wanted):
    wire, rows, keys = prepare(codec), sparse_rows(1), key_of(M)
    received, everything = (
        np.asarray(_transmit(wire, keys, rows, asked, 3)) for asked in (np.array(wanted), np.ones(M, bool))
    )
    np.testing.assert_allclose(received[wanted], everything[wanted], rtol=1e-4, atol=1e-5)
    assert codec.free or codec.direct or not received[~np.array(wanted)].any()


_transmit = jax.jit(transmit, static_argnums=4)


def test_one_bit_keeps_norm_and_signs_scale_with_the_vector():
    wire = prepare(jdfl.OneBit(d=80)).rows(jnp.array([2, 2]))
    x = sparse_rows(4)[2:3] * np.array([[1.0], [-1.0]], np.float32)
    norm, positive = payload = encode(wire, x)
    received = np.asarray(decode(wire, payload, x))
    assert np.count_nonzero(received[0]) <= S
    np.testing.assert_allclose(np.linalg.norm(received, axis=1), np.linalg.norm(x, axis=1), rtol=1e-5)
    np.testing.assert_allclose(received[1], -received[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(positive[0], ~np.asarray(positive[1]))  # no Gaussian measurement is zero
    assert norm[0] == norm[1]


REFUSED = [
    (jdfl.OneBit(d=2.5), "d = 2.5"),
    (jdfl.OneBit(norm_bits=16), "norm_bits = 16"),
    (jdfl.OneBit(d=10, flips=11), "flips = 11"),
    (jdfl.OneBit(shared=True, ensemble="hadamard"), "shared = True"),
    (jdfl.OneBit(d=8, gamma=np.full(M + 1, 5.0)), "gamma", "shape"),
    (jdfl.Sparse(value="int2"), "value = 'int2'"),
    (jdfl.Sparse(s=2, share=0.1), "s = 2", "share = 0.1"),
    (jdfl.Sparse(share=0.1, leaves=(30, 19)), "leaves = (30, 19) (sum 49)"),
    (jdfl.Sparse(s=5, leaves=(30, 20)), "share = None", "leaves = (30, 20)"),
    (jdfl.RandomK(), "k = None", "share = None"),
    (jdfl.RandomK(k=51), "k = 51"),
    (jdfl.RandomK(k=3, value="int8"), "value = 'int8'"),
    (jdfl.QSGD(levels=2**15), "levels = 32768"),
    (jdfl.LowRank(rank=8), "rank = 8", "7 by 8"),
    (jdfl.LowRank(height=51), "height = 51"),
]


@pytest.mark.parametrize(("codec", "named"), [(codec, named) for codec, *named in REFUSED], ids=str)
def test_settings_that_cannot_be_are_refused(codec, named):
    with refused(*named):
        settings(codec)
        codec.check(N, M, S)


def test_sensing_matrices_are_gaussian_and_every_node_has_its_own():
    matrix = np.asarray(prepare(jdfl.OneBit(d=80)).drawn.matrix)
    entries = matrix.reshape(M, -1)
    assert np.abs(np.corrcoef(entries) - np.eye(M)).max() < 5 / np.sqrt(entries.shape[1])
    assert np.abs(entries.mean(axis=1)).max() < 5 / np.sqrt(entries.shape[1])
    np.testing.assert_allclose((entries**2).mean(axis=1), 1.0, atol=5 * np.sqrt(2 / entries.shape[1]))
    np.testing.assert_allclose((entries**4).mean(axis=1), 3.0, atol=5 * np.sqrt(96 / entries.shape[1]))


@pytest.mark.parametrize("name", ROUNDED)
def test_rounding_is_the_types_own_and_survives_compilation(name):
    """Floats are numpy's own conversion, levels are off by half a step at most, and the largest entry by nothing."""
    x, _, received = sent(name)
    x, received, kind = x[:2], received[:2], name.split()[1]
    if kind.startswith("int"):
        step = np.abs(x).max(axis=1, keepdims=True) / {"int8": 127, "int4": 7}[kind]
        assert (np.abs(received - x) <= 0.5001 * step).all()
        np.testing.assert_allclose(np.abs(received).max(axis=1), np.abs(x).max(axis=1), rtol=1e-6)  # a level itself
    else:
        np.testing.assert_array_equal(received, x.astype(jnp.dtype(kind)).astype(np.float32))
        assert not np.array_equal(received, x)


def test_too_few_signs_and_sparse_matrices_are_warned_of():
    with pytest.warns(UserWarning, match="d = 200 .* d >= 300"):
        jdfl.OneBit(d=200).check(1000, M, 10)
    with pytest.warns(UserWarning, match="60% of its measurements"):
        jdfl.OneBit(ensemble="sparse").check(1000, M, 10)
    jdfl.OneBit(d=300).check(1000, M, 10)
