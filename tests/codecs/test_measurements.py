"""One-bit messages whose number of signs is the sender's own, against messages of that many signs."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jdfl
from jdfl import config, testing
from jdfl.base.arguments import settings
from jdfl.cli import parse
from jdfl.codecs import round_trip
from jdfl.codecs.gpsp import working_sparsity
from jdfl.codecs.sensing import Stored
from tests.refused import refused

M, N, S = 6, 200, 6
SIGNS = (90, 160, 30, 160, 450, 121)  # for which GPSP works with different numbers of entries
KINDS = {
    "hadamard": {"ensemble": "hadamard"},
    "paper's inverse, no ridge": {"inverse": "paper", "eta": 0.0},
    "margins, flips": {"margin": np.linspace(0.01, 0.3, M), "flips": 5},
    "side": {"side": True, "flips": 3},
}
kinds = pytest.mark.parametrize("kind", KINDS)
trip = jax.jit(round_trip)


def vectors(seed: int = 0) -> jax.Array:
    draw = np.random.default_rng(seed)
    x = np.zeros((M, N))
    for row in x:
        row[draw.choice(N, S, replace=False)] = 3 * draw.standard_normal(S)
    return jnp.asarray(x)


def prepared(codec, m=M):
    codec.check(N, m, S)
    return codec.prepare(jax.random.key(1), jnp.arange(m, dtype=jnp.int32), N, S, jnp.float64)


@jax.jit
def rows_of(keys, wire):
    """Phi^T [m, n, d] of the messages, as the codec multiplies by it."""
    phi = wire.codec._sensing(keys, wire)
    return jax.vmap(lambda row: phi.measure(jnp.broadcast_to(row, (M, N))), out_axes=1)(jnp.eye(N))


@jax.jit
def encode(keys, x, wire):
    return wire.codec.encode(keys, x, wire)


@pytest.mark.rotated(2)
@pytest.mark.filterwarnings("ignore")
@kinds
def test_a_node_sends_and_decodes_as_with_its_rows_alone(kind):
    with jax.enable_x64(True):
        given = KINDS[kind]
        codec, x = jdfl.OneBit(d=SIGNS, **given), vectors()
        wire, keys = prepared(codec), jax.random.split(jax.random.key(2), M)
        side = x + 0.1 if codec.side else None
        norm, signs = encode(keys, x, wire)
        found, phi = trip(wire, keys, x, side), rows_of(keys, wire)
        i, d, one = 1, SIGNS[1], slice(1, 2)
        settled = {name: np.asarray(value)[i] if np.ndim(value) else value for name, value in given.items()}
        own = jdfl.OneBit(d=d, **settled | {"ensemble": "gaussian"})
        alone = replace(prepared(own, 1), drawn=Stored(phi[one, :, :d]))
        own_norm, own_signs = encode(keys[one], x[one], alone)
        np.testing.assert_array_equal(norm[one], own_norm)
        np.testing.assert_array_equal(signs[one, :d], own_signs)
        assert not signs[i, d:].any()
        expected = trip(alone, keys[one], x[one], None if side is None else side[one])[0]
        np.testing.assert_allclose(found[i], expected, rtol=0, atol=1e-9 * np.abs(expected).max())


@pytest.mark.filterwarnings("ignore")
def test_packed_messages_have_the_signs_of_the_sender():
    assert len({working_sparsity(N, d, S) for d in SIGNS}) > 2
    codec = jdfl.OneBit(d=SIGNS, norm_bits=32, ensemble="hadamard")
    wire, keys, x = prepared(codec), jax.random.split(jax.random.key(2), M), vectors()
    messages = jax.device_get(encode(keys, x, wire))
    back = []
    for i, d in enumerate(SIGNS):
        own, message = codec.of(codec.groups[i]), jax.tree.map(lambda leaf, i=i: leaf[i], messages)
        assert own.bits(N) == d + 32 == jdfl.OneBit(d=d, norm_bits=32).bits(N)
        data = own.pack(message, N)
        assert len(data) == -(-(d + 32) // 8)
        back.append(own.unpack(data, N))
        assert back[-1][1].shape == (max(SIGNS),)
        np.testing.assert_array_equal(back[-1][1], message[1])
        if d < max(SIGNS):
            full = message[0], np.ones(max(SIGNS), bool)
            with refused(f"{d} signs"):
                own.pack(full, N)
    for one, other in zip(messages, jax.tree.map(lambda *leaves: np.stack(leaves), *back)):
        np.testing.assert_array_equal(one, other)


def test_messages_of_several_sizes_have_no_single_one():
    codec = jdfl.OneBit(d=SIGNS)
    for ask in (codec.bits, lambda n: codec.layout(n, S), lambda n: codec.pack((np.ones(()), np.ones(450, bool)), n)):
        with refused("d", str(SIGNS)):
            ask(N)


@pytest.mark.rotated(6)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("law", testing.CODEC_LAWS)
def test_laws(law):
    testing.check_codec(jdfl.OneBit(d=(80, 60, 91, 60), ensemble="hadamard"), law)


def test_wrong_numbers_are_refused_by_name():
    for given, *named in (
        ({"d": SIGNS[:-1]}, "d", "shape"),
        ({"d": [1, 2, 0, 4, 5, 6]}, "d[2] = 0"),
        ({"d": [1, 2, True, 4, 5, 6]}, "d", "whole"),
        ({"d": np.full((2, 3), 80)}, "d", "whole"),
        ({"d": "80"}, "d = '80'"),
        ({"d": SIGNS, "shared": True}, "d", "shared = True"),
        ({"d": SIGNS, "flips": 31}, "flips = 31"),
    ):
        with refused(*named):
            settings(jdfl.OneBit(**given))
            jdfl.OneBit(**given).check(N, M, S)
    with pytest.warns(UserWarning, match="d = 30"):  # of the node that recovers least
        jdfl.OneBit(d=SIGNS).check(N, M, S)


def test_yaml_and_flags_take_a_number_or_a_list():
    for written, d in (("[80, 60]", (80, 60)), ("80", 80)):
        read = config.from_yaml(f"algorithm: {{kind: ceps, codec: {{kind: one-bit, d: {written}}}}}")
        words = ["--algorithm.codec", "one-bit", "--algorithm.codec.d", *written.strip("[]").split(", ")]
        given = parse("run", words)[1]["config"]
        for codec in (read.algorithm.codec, given.algorithm.codec):
            assert codec.build() == jdfl.OneBit(d=d)
