"""Planted bugs that repeating a round shows; each names the family that must see it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jdfl
from jdfl.auditing.probe import fired, probe
from jdfl.privacy.mechanisms import Gaussian

M, N, Z = 3, 4, 4.0
NETWORK = jdfl.network.complete(M)


def _problem():
    rng = np.random.default_rng(0)
    return jdfl.problems.linear_regression(
        [rng.normal(size=(6, N)) for _ in range(M)], [rng.normal(size=6) for _ in range(M)]
    )


def _found(seed=0, runs=100):
    jax.clear_caches()
    gradients = jdfl.Gradients(clip=1.0, mechanism=jdfl.Gaussian(Z))
    example = (jnp.full((N,), 0.5, jnp.float32), jnp.float32(-1e4))
    keys = jax.random.split(jax.random.key(seed))
    return fired(
        probe(
            jdfl.DPSGD(lr=0.1, gradients=gradients),
            _problem(),
            NETWORK,
            *keys,
            example,
            steps=4,
            runs=runs,
            multiplier=Z,
        )
    )


def test_nothing_fires_where_all_is_sound():
    assert _found() == ()


def _noise(key, x):
    return jax.random.normal(key, x.shape, x.dtype)


BUGS = {
    "none": (lambda s, k, x, d: x, "residual scale"),
    "half": (lambda s, k, x, d: x + Z * d * _noise(k, x) / 2, "residual scale"),
    "tenth": (lambda s, k, x, d: x + Z * d * _noise(k, x) / 10, "residual scale"),
    "bare coordinate": (lambda s, k, x, d: x + Z * d * _noise(k, x).at[1].set(0), "residual scale"),
    "same key always": (lambda s, k, x, d: x + Z * d * _noise(jax.random.key(7), x), "residual covariance"),
    "uniform": (
        lambda s, k, x, d: x + Z * d * jax.random.uniform(k, x.shape, x.dtype, -(3**0.5), 3**0.5),
        "residual shape",
    ),
}


@pytest.mark.parametrize("name", list(BUGS))
def test_a_wrong_mechanism_is_seen(name, monkeypatch):
    add, family = BUGS[name]
    monkeypatch.setattr(Gaussian, "add", add)
    assert family in {one.family for one in _found()}


def test_a_sensitivity_off_by_two_is_seen(monkeypatch):
    right = jdfl.Gradients.sensitivities
    monkeypatch.setattr(jdfl.Gradients, "sensitivities", lambda self, problem: right(self, problem) / 2)
    assert {one.family for one in _found()} == {"sensitivity"}
