"""Laws of every codec: round trips, bits, bytes, shared randomness, zero vectors."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jdfl
from jdfl.arrays import ops
from jdfl.base import struct
from jdfl.base.arguments import settings
from jdfl.codecs import Codec, Wire, packing, round_trip, transmit
from jdfl.codecs.packing import floats

M, N, S = 4, 50, 3
NODE = jnp.arange(M, dtype=jnp.int32)
EXACT = {
    "dense": jdfl.Dense(),
    "sparse": jdfl.Sparse(),
    "sparse, enumerated": jdfl.Sparse(index="enumerative"),
}
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
    "one-bit, shared rademacher": jdfl.OneBit(d=80, ensemble="rademacher", shared=True),
    "one-bit, hadamard": jdfl.OneBit(d=80, ensemble="hadamard"),
    "one-bit, sparse": jdfl.OneBit(d=80, ensemble="sparse", density=0.5),
}
LOSSY = {
    "sparse, share": jdfl.Sparse(share=0.1),
    "random-k": jdfl.RandomK(k=7),
    "random-k scaled bfloat16": jdfl.RandomK(share=0.3, scaled=True, value="bfloat16"),
    "qsgd": jdfl.QSGD(levels=3),
    "qsgd max scaled": jdfl.QSGD(levels=300, norm="max", scaled=True),
    "sign": jdfl.Sign(),
    "low-rank": jdfl.LowRank(rank=2),
}
CODECS = EXACT | ROUNDED | ONE_BIT | LOSSY
codecs = pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
some = ("dense", "sparse int8", "one-bit", "one-bit, shared", "one-bit, hadamard", "random-k", "qsgd", "low-rank")
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


@codecs
def test_packed_messages_have_the_counted_length_and_come_back(codec):
    row = prepare(codec).rows(jnp.array([1]))
    for seed in range(3):
        x = sparse_rows(seed)[1:2]
        payload = encode(row, x)
        data = codec.pack(first(payload), N, S)
        assert len(data) == -(-codec.bits(N, S) // 8)
        back = codec.unpack(data, N, S)
        assert jax.tree.structure(back) == jax.tree.structure(payload)
        for one, other in zip(jax.tree.leaves(payload), jax.tree.leaves(back)):
            np.testing.assert_array_equal(np.asarray(one[0]), other)
        arrived = jax.tree.map(lambda leaf, like: jnp.asarray(leaf, like.dtype)[None], back, payload)
        np.testing.assert_array_equal(decode(row, arrived, x), decode(row, payload, x))
        for wrong in (data + b"\0", data[:-1], b""):
            with pytest.raises(ValueError, match="Expected a message of"):
                codec.unpack(wrong, N, S)


@pytest.mark.rotated(2)
@codecs
def test_zero_vector_comes_back_as_zero(codec):
    row = prepare(codec).rows(jnp.array([0]))
    np.testing.assert_array_equal(round_trip(row, key_of(1), jnp.zeros((1, N))), np.zeros((1, N)))


def test_sizes_are_those_of_the_paper_and_the_spec():
    assert jdfl.OneBit(d=500).bits(1000) / 8 == 70.5
    assert jdfl.OneBit().bits(1000) == 564
    assert jdfl.Sparse().bits(1000, 10) / 8 == jdfl.Sparse(s=10).bits(1000) / 8 == 52.5
    sizes = {"float32": 49.75, "float16": 29.75, "int8": 23.75, "int4": 18.75}
    for value, size in sizes.items():
        assert jdfl.Sparse(value=value, index="enumerative").bits(1000, 10) / 8 == size
        assert jdfl.Sparse(value=value).bits(1000, 10) / 8 == size + 2.75
    assert jdfl.OneBit(d=150).bits(1000) / 8 == 26.75
    assert jdfl.Dense("bfloat16").bits(1000) == jdfl.Dense("float16").bits(1000) == 16_000
    assert jdfl.Dense().bits(1000) == 32_000
    assert jdfl.Dense("float64").bits(1000) == 64_000
    with pytest.raises(ValueError, match="Expected s or share, got s = None and share = None"):
        jdfl.Sparse().bits(1000)


@given(st.integers(0, 2**31 - 1))
def test_exact_codecs_are_exact_on_sparse_vectors(seed):
    rows = sparse_rows(seed % 10_000)
    for codec in EXACT.values():
        np.testing.assert_array_equal(_transmit(prepare(codec), key_of(M), rows, jnp.ones(M, bool), 2), rows)


def test_sparse_keeps_the_largest_entries_of_a_dense_vector():
    x = jax.random.normal(jax.random.key(3), (N,))
    received = round_trip(prepare(jdfl.Sparse(s=5)), key_of(1), x[None])
    np.testing.assert_array_equal(received[0], ops.top_s(x, 5))


@pytest.mark.rotated(2)
@some_codecs
@given(wanted=st.lists(st.booleans(), min_size=M, max_size=M), lanes=st.sampled_from([1, 3]))
def test_transmit_codes_the_wanted_rows_and_them_alone(codec, wanted, lanes):
    rows, keys = sparse_rows(1), key_of(M)
    received = np.asarray(_transmit(prepare(codec), keys, rows, jnp.asarray(wanted), lanes))
    everything = np.asarray(_transmit(prepare(codec), keys, rows, jnp.ones(M, bool), 1))
    for i, asked in enumerate(wanted):
        if asked:
            np.testing.assert_allclose(received[i], everything[i], rtol=1e-4, atol=1e-5)
        elif not codec.free and not codec.direct:
            assert not received[i].any()


_transmit = jax.jit(transmit, static_argnums=4)


def test_one_bit_keeps_norm_and_signs_scale_with_the_vector():
    ready = prepare(jdfl.OneBit(d=80)).rows(jnp.array([2]))
    x = sparse_rows(4)[2:3]
    received = round_trip(ready, key_of(1), x)
    assert np.count_nonzero(received) <= S
    np.testing.assert_allclose(np.linalg.norm(received), np.linalg.norm(x), rtol=1e-5)
    norm, positive = encode(ready, x)
    same_norm, opposite = encode(ready, -x)
    np.testing.assert_array_equal(positive, ~np.asarray(opposite))  # no measurement of a Gaussian matrix is zero
    assert norm == same_norm


def test_exact_inverse_undoes_the_logarithm_and_the_papers_does_not():
    """Perfect decoding of v: the paper's inverse errs by a few per cent, the exact one not at all."""
    x = np.zeros(1000)
    draw = np.random.default_rng(0)
    x[:10] = draw.uniform(0.5, 2, 10)
    logarithm = np.log1p(x[:10]) / np.log(5)
    v = jnp.asarray(logarithm / np.linalg.norm(logarithm), jnp.float32)
    from jdfl.codecs.logarithm import exact_scale

    t = exact_scale(v[None], jnp.asarray(np.linalg.norm(x), jnp.float32)[None], jnp.array([5.0]))
    exact = np.expm1(float(t[0]) * np.asarray(v) * np.log(5))
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
        (jdfl.OneBit(ensemble="fourier"), "ensemble = 'fourier'"),
        (jdfl.OneBit(ensemble="sparse", density=0.0), "density = 0.0"),
        (jdfl.OneBit(shared=1.5), "shared = 1.5"),
        (jdfl.OneBit(shared=True, ensemble="hadamard"), "shared = True"),
        (jdfl.OneBit(d=8, ensemble="hadamard", matrix=np.zeros((M, N, 8))), "ensemble = 'hadamard'"),
        (jdfl.Sparse(value="int2"), "value = 'int2'"),
        (jdfl.Sparse(index="huffman"), "index = 'huffman'"),
        (jdfl.Dense("float8"), "precision = 'float8'"),
        (jdfl.Sparse(s=2, share=0.1), "got s = 2 and share = 0.1. Drop one"),
        (jdfl.Sparse(share=0.0), "share = 0.0"),
        (jdfl.Sparse(share=1.5), "share = 1.5"),
        (jdfl.RandomK(), "got k = None and share = None. Give one"),
        (jdfl.RandomK(k=2, share=0.1), "got k = 2 and share = 0.1. Drop one"),
        (jdfl.RandomK(k=51), "k = 51"),
        (jdfl.RandomK(share=float("nan")), "share = nan"),
        (jdfl.RandomK(k=3, value="int8"), "value = 'int8'"),
        (jdfl.RandomK(k=3, scaled="yes"), "scaled = 'yes'"),
        (jdfl.QSGD(levels=0), "levels = 0. levels: Number of positive levels"),
        (jdfl.QSGD(levels=2**15), "levels = 32768"),
        (jdfl.QSGD(norm="l1"), "norm = 'l1'"),
        (jdfl.QSGD(scaled=2), "scaled = 2"),
        (jdfl.LowRank(rank=0), "rank = 0"),
        (jdfl.LowRank(rank=8), "rank = 8. The 50 entries form a matrix of 7 by 8"),
        (jdfl.LowRank(height=51), "height = 51"),
    ],
)
def test_settings_out_of_range_are_refused_by_name(codec, word):
    def check(codec):
        settings(codec)
        codec.check(N, M, S)

    with pytest.raises(ValueError, match=word.replace(".", r"\.")):
        check(codec)


@given(st.lists(st.integers(0, 2**11 - 1), min_size=1, max_size=9), st.integers(11, 16))
def test_packed_integers_come_back(values, width):
    bits = packing.from_integers(np.array(values), width)
    assert packing.to_integers(packing.split(packing.join(bits), len(bits))[0], width).tolist() == values


def test_sensing_matrices_are_gaussian_and_every_node_has_its_own():
    matrix = np.asarray(prepare(jdfl.OneBit(d=80)).drawn.matrix)
    entries = matrix.reshape(M, -1)
    assert np.abs(np.corrcoef(entries) - np.eye(M)).max() < 5 / np.sqrt(entries.shape[1])
    assert np.abs(entries.mean(axis=1)).max() < 5 / np.sqrt(entries.shape[1])
    np.testing.assert_allclose((entries**2).mean(axis=1), 1.0, atol=5 * np.sqrt(2 / entries.shape[1]))
    np.testing.assert_allclose((entries**4).mean(axis=1), 3.0, atol=5 * np.sqrt(96 / entries.shape[1]))


@pytest.mark.slow
def test_what_is_received_is_what_was_packed_in_64_bits_too():
    with jax.enable_x64(True):
        x = jnp.asarray(np.asarray(sparse_rows(3)[:1], np.float64) / 3)
        for codec in (jdfl.OneBit(d=80, norm_bits=32), jdfl.OneBit(d=80), *(EXACT | ROUNDED | LOSSY).values()):
            row = codec.prepare(jax.random.key(1), NODE, N, S, jnp.float64).rows(jnp.array([0]))
            payload = codec.encode(key_of(1), x, row)
            back = codec.unpack(codec.pack(first(payload), N, S), N, S)
            for one, other in zip(jax.tree.leaves(payload), jax.tree.leaves(back)):
                np.testing.assert_array_equal(np.asarray(one[0]), np.asarray(other, np.asarray(one).dtype))
            assert round_trip(row, key_of(1), x).dtype == np.float64


@pytest.mark.parametrize("name", ROUNDED)
def test_rounding_is_the_types_own_and_survives_compilation(name):
    """Floats are numpy's own conversion, levels are off by half a step at most."""
    x = jnp.asarray(np.random.default_rng(2).standard_normal((M, N)), jnp.float32)
    codec = ROUNDED[name].replace(s=N) if hasattr(ROUNDED[name], "s") else ROUNDED[name]
    received = np.asarray(_transmit(prepare(codec), key_of(M), x, jnp.ones(M, bool), M))
    kind = name.split()[1]
    if kind.startswith("int"):
        step = np.abs(x).max(axis=1, keepdims=True) / {"int8": 127, "int4": 7}[kind]
        assert (np.abs(received - x) <= 0.5001 * step).all()
        assert len(np.unique(received[0] / step[0])) <= {"int8": 255, "int4": 15}[kind]
    else:
        np.testing.assert_array_equal(received, np.asarray(x).astype(jnp.dtype(kind)).astype(np.float32))
        assert not np.array_equal(received, x)


@pytest.mark.parametrize("name", ROUNDED)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_is_never_sent_as_a_number(name, bad):
    x = sparse_rows(0)[:1].at[0, 7].set(bad)
    row = prepare(ROUNDED[name])
    assert not np.isfinite(round_trip(row, key_of(1), x)).all()
    with pytest.raises(ValueError, match="finite"):
        ROUNDED[name].pack(first(encode(row, x)), N, S)


def test_int4_is_refused_for_more_entries_than_a_scale_can_serve():
    jdfl.Sparse(value="int4").check(2**20, 1, 2**16)
    with pytest.raises(ValueError, match=r"s <= 65536 with value = 'int4', got s = 65537"):
        jdfl.Sparse(value="int4").check(2**20, 1, 2**16 + 1)


def test_too_few_signs_and_sparse_matrices_are_warned_of():
    with pytest.warns(UserWarning, match=r"d = 200 signs GPSP recovers about 8\d% .* Use d >= 300"):
        jdfl.OneBit(d=200).check(1000, M, 10)
    with pytest.warns(UserWarning, match="60% of its measurements contain none"):
        jdfl.OneBit(ensemble="sparse").check(1000, M, 10)
    jdfl.OneBit(d=200, side=True).check(1000, M, 10)
    jdfl.OneBit(d=300).check(1000, M, 10)


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
        codec.check(N, M, S)


class Shifted(NamedTuple):
    """A message of the codec below."""

    value: Any
    node: Any


@struct.dataclass
class Drawn:
    """What it draws: a number for every node, and one for all."""

    shift: Any = struct.field(per_node=True)
    common: Any = None


@struct.dataclass
class Shifting(Codec):
    """A codec of one's own, whose ends share a number that they add and subtract, every node's own and all nodes'."""

    scale: float = 2.0

    def draw(self, key, node, n, dtype):
        return Drawn(jax.random.normal(key, node.shape, dtype), jnp.float32(3.0))

    def encode(self, key, x, wire):
        shift = wire.drawn.shift + wire.drawn.common
        return Shifted(self.scale * x + shift[:, None], wire.drawn.shift)

    def decode(self, key, payload, wire):
        return (payload.value - payload.node[:, None] - wire.drawn.common) / self.scale

    def layout(self, n, sparsity):
        return Shifted(floats(n), floats())


def test_a_codec_of_ones_own_is_settings_encode_decode_and_layout():
    codec, x = Shifting(), jnp.asarray(np.random.default_rng(0).standard_normal((M, N)), jnp.float32)
    wire = prepare(codec)
    np.testing.assert_array_equal(wire.rows(jnp.array([2, 0])).drawn.shift, wire.drawn.shift[jnp.array([2, 0])])
    np.testing.assert_allclose(_transmit(wire, key_of(M), x, jnp.ones(M, bool), 3), x, rtol=0, atol=1e-5)
    data = codec.pack(first(encode(wire, x)), N)
    assert 8 * len(data) == codec.bits(N) == 32 * (N + 1)
    np.testing.assert_array_equal(codec.unpack(data, N).value, encode(wire, x).value[0])
    assert (codec.unbiased, codec.pairwise, codec.contraction(N, S)) == (False, False, None)


@pytest.mark.parametrize("gamma", [4.0, jnp.linspace(3.0, 7.0, M)], ids=["one", "of every node"])
def test_numbers_of_nodes_reach_their_messages(gamma):
    """Settings with a row for every node are those of the senders in a block, as what is drawn is."""
    x = sparse_rows(6)
    wire = prepare(jdfl.OneBit(d=80, gamma=gamma))
    every = np.asarray(_transmit(wire, key_of(M), x, jnp.ones(M, bool), M))
    for i in range(M):
        own = jdfl.OneBit(d=80, gamma=float(np.broadcast_to(gamma, M)[i]), matrix=wire.drawn.matrix)
        alone = _transmit(prepare(own), key_of(M), x, jnp.arange(M) == i, 1)[i]
        np.testing.assert_allclose(every[i], alone, rtol=1e-4, atol=1e-5)


def test_fewer_messages_are_decoded_side_by_side_where_their_columns_are_many():
    codec = jdfl.OneBit(d=20_000)
    few, many = (codec.lanes(Wire(codec, 10**5, s, np.dtype("float32"))) for s in (10, 9_000))
    assert few > many == 1
