"""Fitted linear rates: known curves, coverage, refusals."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from jdfl import linear_rate
from tests import toy
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
        (np.exp(-((K[:90] / 30) ** 2)), "faster"),
        (0.5 ** K[:13], "7 records"),
        (np.exp(3 * np.random.default_rng(2).normal(size=24)), "clearly"),
        (0.9**K + 0.2, "floor"),
        (np.exp(np.random.default_rng(3).normal(size=400)), "suboptimality"),
        (np.ones(400), "decade"),
        (np.full(400, np.nan), "finite"),
        (np.zeros(400), "fewer than 12"),
    ):
        with refused("suboptimality", word):
            linear_rate(curve(values))
    each_refused(linear_rate, {"run": 3}, {"metric": "a"}, {"floor": -1.0}, {"confidence": 1.0}, run=curve(0.9**K))


def test_results_have_the_rate_of_the_metric_that_is_named():
    history = curve(0.9**K).assign(gradient_norm=0.8**K)
    result = replace(toy.run(steps=1), history=history)
    for name, factor in (("suboptimality", 0.9), ("gradient_norm", 0.8)):
        assert linear_rate(result, name).factor == pytest.approx(factor, rel=1e-6)
