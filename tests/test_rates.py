"""Fitted linear rates: known curves, coverage, refusals, and the spectral radius of exact methods."""

import jax
import numpy as np
import pandas as pd
import pytest
from scipy.linalg import block_diag

import jdfl
from jdfl import linear_rate
from tests.refused import each_refused, refused

K = np.arange(400.0)


def curve(values, every=1):
    return pd.DataFrame({"round": np.arange(len(values)) * every, "suboptimality": values})


KNOWN = {
    "transient": 5 * 0.8**K + 0.9**K,
    "floor": 0.9**K + 1e-12,
    "oscillating": 0.9**K * (1.5 + np.cos(0.7 * K)),
    "exactly zero": np.where(K < 200, 0.9**K, 0),
}


def test_known_rates_are_in_their_intervals():
    for name, values in KNOWN.items():
        rate = linear_rate(curve(values))
        assert rate.interval[0] - 1e-12 <= 0.9 <= rate.interval[1] + 1e-12, name
        assert rate.factor == pytest.approx(0.9, abs=2e-4), name
    assert linear_rate(curve(0.9 ** (5 * K[:60]), every=5)).factor == pytest.approx(0.9, rel=1e-9)


def test_intervals_cover():
    draw, covered, correlation = np.random.default_rng(0), 0, 0.5
    for _ in range(300):
        noise = draw.normal(size=400)
        for k in range(1, 400):
            noise[k] += correlation * noise[k - 1]
        low, high = linear_rate(curve(0.95**K * np.exp(0.2 * noise))).interval
        covered += low <= 0.95 <= high
    assert 0.91 <= covered / 300 <= 0.99


def test_the_level_of_a_curve_is_found():
    noise = np.exp(0.5 * np.random.default_rng(1).normal(size=400))
    rate = linear_rate(curve(0.9**K + 1e-6 * noise))
    assert rate.floor == pytest.approx(1e-6, rel=0.2)
    assert rate.interval[0] <= 0.9 <= rate.interval[1]
    assert linear_rate(curve(0.9**K)).floor is None
    assert "levels off at 9" in str(rate)
    assert linear_rate(curve(0.9**K), floor=1e-10).window[1] <= 219


def test_curves_without_a_linear_rate_are_refused_with_the_reason():
    for values, word in (
        (1 / (K + 1), "sublinear"),
        (np.exp(-np.sqrt(K)), "sublinear"),
        (0.9**K + 0.2, "floor"),
        (np.exp(np.random.default_rng(3).normal(size=400)), "suboptimality"),
        (np.ones(400), "decade"),
        (np.full(400, np.nan), "finite"),
        (np.zeros(400), "fewer than 12"),
    ):
        with refused("suboptimality", word):
            linear_rate(curve(values))
    each_refused(linear_rate, {"metric": "accuracy"}, {"floor": -1.0}, {"confidence": 1.0}, run=curve(0.9**K))


def test_extra_has_the_rate_of_its_spectral_radius():
    """On strongly convex least squares on a ring, with W and the Hessians of all nodes as one matrix each."""
    draw, M, N = np.random.default_rng(0), 6, 3
    A, b = draw.normal(size=(M, 12, N)) * [1, 1.5, 0.7], draw.normal(size=(M, 12))
    H = block_diag(*(A[i].T @ A[i] / 12 for i in range(M)))
    W = sum(np.roll(np.eye(M), shift, axis=1) for shift in (-1, 0, 1)) / 3  # Metropolis
    with jax.enable_x64(True):
        problem = jdfl.problems.linear_regression(list(A), list(b), dtype="float64")
        lr = 0.5 / float(np.max(problem.curvature))
    one, W = np.eye(M * N), np.kron(W, np.eye(N))
    values = np.linalg.eigvals(np.block([[one + W - lr * H, lr * H - (one + W) / 2], [one, 0 * one]]))
    rho = np.abs(values[np.abs(values - 1) > 1e-6]).max()  # without those of what a round leaves as it is
    names = ["suboptimality", "gradient_norm", "distance_to_optimum"]
    steps = int(np.log(1e-9) / np.log(rho))
    with jax.enable_x64(True):
        result = jdfl.run(jdfl.EXTRA(lr=lr), problem, jdfl.network.ring(M), steps=steps, metrics=names)
    for name in names:
        rate = linear_rate(result, name)
        expected = rho**2 if name == "suboptimality" else rho
        assert rate.interval[0] <= expected <= rate.interval[1], (name, rate, expected)
        assert rate.interval[1] - rate.interval[0] < 0.1 * (1 - expected)
