"""The one-bit decoder: the reference loop, its quality, and laws."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jdfl
from jdfl.codecs import gpsp
from jdfl.codecs.gpsp import working_sparsity
from jdfl.codecs.sensing import Stored
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
    cases = {(500, 10): 12, (500, 5): 6, (500, 50): 75, (2100, 10): 10, (500, 4): 4, (500, 100): 100, (1500, 20): 40}
    for (d, s), working in cases.items():
        assert working_sparsity(1000, d, s) == reference.working_sparsity(1000, d, s) == working


def test_sparse_matrices_have_their_share_of_entries_and_unit_variance():
    codec = jdfl.OneBit(d=200, ensemble="sparse", density=0.1)
    matrix = np.asarray(codec.prepare(jax.random.key(0), jnp.arange(2), 300, 5, jnp.float32).drawn.matrix)
    assert np.mean(matrix != 0) == pytest.approx(0.1, abs=0.005)  # 6 standard deviations
    assert np.mean(matrix**2) == pytest.approx(1, abs=0.07)
