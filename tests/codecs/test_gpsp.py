"""The one-bit decoder: the reference loop, its quality, and laws."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jdfl
from jdfl.codecs import gpsp, transmit
from jdfl.codecs.gpsp import working_sparsity
from jdfl.codecs.sensing import Shared, Stored
from tests.reference import gpsp as reference


def instance(seed: int, n: int, d: int, s: int):
    draw = np.random.default_rng(seed)
    x = np.zeros(n)
    x[draw.choice(n, s, replace=False)] = draw.uniform(0.5, 2, s) * draw.choice([-1, 1], s)
    phi = draw.standard_normal((d, n))
    return x / np.linalg.norm(x), phi, np.where(phi @ x > 0, 1.0, -1.0)


decode = jax.jit(gpsp, static_argnames=("s", "n", "flips", "cap"))


def dense(found, n: int) -> np.ndarray:
    """The vectors [b, n] behind a decoding."""
    x = np.zeros((len(found.support), n))
    np.put_along_axis(x, np.asarray(found.support), np.asarray(found.value), axis=1)
    return x


@pytest.mark.rotated(2)
@pytest.mark.parametrize(
    ("n", "d", "s", "flips", "started"),
    [(60, 50, 4, 0, False), (60, 50, 4, 3, True), (300, 120, 2, 0, True), (30, 80, 3, 3, False)],
)
def test_agrees_with_the_reference_loop(n, d, s, flips, started):
    """Eight messages side by side, the last of which go on alone, as eight plain loops."""
    with jax.enable_x64(True):
        truth, phis, signs = zip(*(instance(seed, n, d, s) for seed in range(8)))
        noise = np.random.default_rng(0).standard_normal((8, n)) * (np.arange(8)[:, None] % 4) / 20
        starts = np.stack(truth) + noise
        starts[3] = 0
        found = decode(
            Stored(jnp.asarray(np.stack(phis)).transpose(0, 2, 1)),
            jnp.asarray(np.stack(signs)),
            s,
            n,
            flips=flips,
            start=jnp.asarray(starts) if started else None,
        )
        for i in range(8):
            expected, iterations = reference.gpsp(
                phis[i], signs[i], s, flips=flips, cap=12, start=starts[i] if started else None, return_iterations=True
            )
            np.testing.assert_allclose(dense(found, n)[i], expected, rtol=0, atol=1e-9)
            assert int(found.iterations[i]) == iterations


def test_messages_do_not_look_at_one_another():
    """One shared matrix, sixteen messages: together, and in another order, and one by one."""
    with jax.enable_x64(True):
        n, d, s = 60, 50, 4
        _, phi, _ = instance(0, n, d, s)
        x = np.stack([instance(seed, n, d, s)[0] for seed in range(16)])
        c = np.where(x @ phi.T > 0, 1.0, -1.0)
        together = dense(decode(Shared(jnp.asarray(phi.T)), jnp.asarray(c), s, n), n)
        turned = dense(decode(Shared(jnp.asarray(phi.T)), jnp.asarray(c[::-1].copy()), s, n), n)
        np.testing.assert_allclose(turned[::-1], together, atol=1e-9)
        for i in range(0, 16, 5):
            alone = dense(decode(Shared(jnp.asarray(phi.T)), jnp.asarray(c[i : i + 1]), s, n), n)
            np.testing.assert_allclose(alone[0], together[i], atol=1e-9)


def test_a_start_makes_few_signs_enough():
    """A quarter of the signs that GPSP needs from nothing, and a start that is off by a fifth."""
    n, d, s = 1000, 150, 10
    truth, phis, signs = (np.stack(part) for part in zip(*(instance(seed, n, d, s) for seed in range(12))))
    off = np.random.default_rng(1).standard_normal((12, n)) * (truth != 0) / np.sqrt(s) / 5
    phi_t = jnp.asarray(phis.transpose(0, 2, 1), jnp.float32)
    recovered = []
    for start in (np.zeros_like(truth), truth + off):  # zeros are no start
        found = decode(Stored(phi_t), jnp.asarray(signs, jnp.float32), s, n, start=jnp.asarray(start, jnp.float32))
        recovered.append(((dense(found, n) != 0) & (truth != 0)).sum() / (12 * s))
    assert recovered[0] < 0.8
    assert recovered[1] > 0.93


def test_working_sparsity_is_the_authors_rule():
    cases = [
        (1000, 500, 10),
        (1000, 500, 5),
        (1000, 500, 50),
        (1000, 2100, 10),
        (1000, 500, 4),
        (1000, 500, 100),
        (1000, 1500, 20),
    ]
    assert [working_sparsity(*case) for case in cases] == [12, 6, 75, 10, 4, 100, 40]
    assert [reference.working_sparsity(*case) for case in cases] == [12, 6, 75, 10, 4, 100, 40]


@jax.jit
def arrived(codec, rows, key):
    m, n = rows.shape
    node = jnp.arange(m, dtype=jnp.int32)
    return transmit(codec.prepare(key, node, n, 10, rows.dtype), jax.random.split(key, m), rows, jnp.ones(m, bool))


def quality(codec) -> tuple[float, float, float]:
    """Support recovered, relative error and cosine at n = 1000, s = 10, over 3 x 64 vectors as in Example 1."""
    recovered, errors, cosines = [], [], []
    for seed in range(3):
        draw = np.random.default_rng(seed)
        rows = np.zeros((64, 1000), np.float32)
        for i in range(64):
            rows[i, draw.choice(1000, 10, replace=False)] = draw.uniform(0.5, 2, 10) * draw.choice([-1, 1], 10)
        received = np.asarray(arrived(codec, jnp.asarray(rows), jax.random.key(seed)))
        length = np.linalg.norm(rows, axis=1)
        recovered.append(((received != 0) & (rows != 0)).sum() / 640)
        errors.append(np.linalg.norm(received - rows, axis=1) / length)
        cosines.append((received * rows).sum(axis=1) / np.linalg.norm(received, axis=1) / length)
    return float(np.mean(recovered)), float(np.mean(errors)), float(np.mean(cosines))


@pytest.mark.slow
def test_quality_at_the_papers_size():
    """d = 500: Algorithm 2 word for word, the exact inverse, and matrices that need no storage."""
    recovered, error, cosine = quality(jdfl.OneBit(d=500, inverse="paper"))
    assert recovered >= 0.99
    assert error <= 0.08
    recovered, error, gaussian = quality(jdfl.OneBit(d=500))
    assert recovered >= 0.99
    assert error <= 0.065
    for other in ({"ensemble": "hadamard"}, {"shared": True}):
        recovered, error, cosine = quality(jdfl.OneBit(d=500, **other))
        assert recovered >= 0.99
        assert abs(cosine - gaussian) <= 0.02
    recovered, error, _ = quality(jdfl.OneBit(d=500, ensemble="sparse", density=0.05))  # 5 per cent of nonzeros
    assert recovered < 0.85
    assert error > 0.4
    assert quality(jdfl.OneBit(d=500, ensemble="sparse", density=0.0005))[0] < 0.1  # as the paper's text has


def test_sparse_matrices_have_their_share_of_entries_and_unit_variance():
    codec = jdfl.OneBit(d=200, ensemble="sparse", density=0.1)
    matrix = np.asarray(codec.prepare(jax.random.key(0), jnp.arange(2), 300, 5, jnp.float32).drawn.matrix)
    assert np.mean(matrix != 0) == pytest.approx(0.1, abs=0.005)  # 6 standard deviations
    assert np.mean(matrix**2) == pytest.approx(1, abs=0.07)
