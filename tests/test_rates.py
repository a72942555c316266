"""Fitted linear rates: known curves, coverage, refusals, and the spectral radius of exact methods."""

import jax
import numpy as np
import pandas as pd
import pytest

import jdfl
from jdfl import linear_rate

K = np.arange(400.0)


def curve(values, every=1):
    return pd.DataFrame({"round": np.arange(len(values)) * every, "suboptimality": values})[:]


@pytest.mark.parametrize(
    "values",
    [
        0.9**K,
        5 * 0.8**K + 0.9**K,
        0.9**K + 1e-12,
        np.concatenate([np.ones(100), 0.9 ** K[:300]]),
        0.9**K * (1.5 + np.cos(0.7 * K)),
        np.where(K < 200, 0.9**K, 0),
        np.where(K < 5, 0, 0.9**K),
    ],
    ids=["pure", "transient", "floor", "flat start", "oscillating", "exactly zero", "zero at the start"],
)
def test_known_rates_are_in_their_intervals(values):
    rate = linear_rate(curve(values))
    assert rate.interval[0] - 1e-12 <= 0.9 <= rate.interval[1] + 1e-12
    assert rate.factor == pytest.approx(0.9, abs=2e-4)
    assert rate.interval[1] - rate.interval[0] < 2e-3


def test_rounds_between_records_count():
    assert linear_rate(curve(0.9 ** (5 * K[:60]), every=5)).factor == pytest.approx(0.9, rel=1e-9)


@pytest.mark.parametrize("correlation", [0.0, 0.5])
def test_intervals_cover(correlation):
    draw, covered = np.random.default_rng(0), 0
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


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (1 / (K + 1), "is sublinear"),
        (1 / (K + 1) ** 2, "is sublinear"),
        (1 / np.sqrt(K + 1), "is sublinear"),
        (np.exp(-np.sqrt(K)), "is sublinear"),
        (np.exp(-((K / 50) ** 2)), "in its transient"),
        (0.9**K + 0.2, "reached its noise floor"),
        (np.exp(np.random.default_rng(3).normal(size=400)), "holds 1|less than"),
        (np.ones(400), "less than one decade"),
        (np.full(400, np.nan), "finite values"),
        (0.1 ** K[:14], "records where a line"),
        (np.zeros(400), "fewer than 12"),
    ],
)
def test_curves_without_a_linear_rate_are_refused(values, words):
    with pytest.raises(ValueError, match=words):
        linear_rate(curve(values))


def test_wrong_arguments_are_refused():
    table = curve(0.9**K)
    for wrong in ({"metric": "accuracy"}, {"floor": -1.0}, {"confidence": 1.0}):
        with pytest.raises(ValueError, match=next(iter(wrong)) if "metric" not in wrong else "'accuracy'"):
            linear_rate(table, **wrong)


M, N = 6, 3


@pytest.fixture(scope="module")
def quadratic():
    """Strongly convex least squares on a ring, with W and the Hessians of all nodes as one matrix each."""
    draw = np.random.default_rng(0)
    A = [draw.normal(size=(12, N)) * [1, 1.5, 0.7] for _ in range(M)]
    b = [draw.normal(size=12) for _ in range(M)]
    H = np.zeros((M * N, M * N))
    for i in range(M):
        H[i * N : (i + 1) * N, i * N : (i + 1) * N] = A[i].T @ A[i] / 12
    W = np.zeros((M, M))
    for i in range(M):  # Metropolis on a ring: 1/3 everywhere
        W[i, [i - 1, i, (i + 1) % M]] = 1 / 3
    with jax.enable_x64(True):
        yield jdfl.problems.linear_regression(A, b, dtype="float64"), jdfl.network.ring(M), W, H


def radius(kind, W, H, lr):
    """The largest modulus of the eigenvalues of a round, without those of what it leaves as it is."""
    one = np.eye(M * N)
    W = np.kron(W, np.eye(N))
    half, none = (one + W) / 2, np.zeros_like(one)
    if kind == "DSGT":
        round = np.block([[W, -lr * W], [H @ (W - one), W - lr * H @ W]])
    elif kind == "EXTRA":
        round = np.block([[one + W - lr * H, lr * H - half], [one, none]])
    else:
        round = np.block([[half @ (2 * one - lr * H), half @ (lr * H - one)], [one, none]])
    values = np.linalg.eigvals(round)
    return np.abs(values[np.abs(values - 1) > 1e-6]).max()


@pytest.mark.parametrize(("kind", "share"), [("EXTRA", 0.5), ("NIDS", 0.9), ("ExactDiffusion", 0.9), ("DSGT", 0.3)])
def test_exact_methods_have_the_rate_of_their_spectral_radius(quadratic, kind, share):
    problem, network, W, H = quadratic
    lr = float(share / np.max(problem.curvature))
    rho = radius(kind, W, H, lr)
    steps = int(np.log(1e-9) / np.log(rho))
    names = ["suboptimality", "gradient_norm", "distance_to_optimum"]
    result = jdfl.run(getattr(jdfl, kind)(lr=lr), problem, network, steps=steps, metrics=names)
    for name in names:
        rate = linear_rate(result, name)
        expected = rho**2 if name == "suboptimality" else rho
        assert rate.interval[0] <= expected <= rate.interval[1], (name, rate, expected)
        assert rate.interval[1] - rate.interval[0] < 0.1 * (1 - expected)


@pytest.mark.parametrize("share", [0.05, 0.2])
def test_constant_step_sizes_of_d_psgd_level_off(quadratic, share):
    problem, network, _, _ = quadratic
    features = problem.data[0]
    noise = 0.3 * np.random.default_rng(2).normal(size=features.shape[:2])
    with jax.enable_x64(True):
        problem = problem.replace(data=(features, features @ np.array([3.0, 3.0, 3.0]) + noise))
        lr = float(share / np.max(problem.curvature))
        steps = int(120 / share)
        result = jdfl.run(jdfl.DPSGD(lr=lr), problem, network, steps=steps, metrics=["suboptimality"])
    rate = linear_rate(result)
    assert rate.floor == pytest.approx(result.final["suboptimality"], rel=0.02)
    assert rate.window[1] < 0.7 * steps
    values = result.history["suboptimality"].to_numpy()
    assert values[rate.window[1]] > 10 * rate.floor
