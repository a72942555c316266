"""Audits of asynchronous methods: they observe the runs that the engine makes, and see noise that is too small."""

from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest

import jdfl
from jdfl import network as nw
from jdfl.algorithms.program import planned
from jdfl.auditing import observe
from jdfl.base.streams import Keys
from jdfl.engine import stepping
from jdfl.engine.waves import Waves
from jdfl.events import ADPSGD, AGP, SWIFT, AsyncMethod
from tests.auditing.planted import NETWORK, PROBLEM

NOISY = jdfl.Gradients(clip=1.0, mechanism=jdfl.Gaussian(2.0))
METHODS: dict[str, AsyncMethod] = {
    "AD-PSGD": ADPSGD(lr=0.1, gradients=NOISY),
    "AGP": AGP(lr=0.1, gradients=NOISY),
    "SWIFT": SWIFT(lr=0.1, gradients=NOISY),
}


def network() -> nw.Timed:
    return nw.timed(NETWORK(), nw.ParetoTime(0.7, 3.0))


@pytest.mark.rotated(3)
@pytest.mark.parametrize("name", METHODS)
def test_what_is_observed_is_what_runs_show(name):
    """With the same private keys and the same events the engine has the same models, period by period."""
    method, problem = METHODS[name], PROBLEM()
    program = planned(method, problem, network(), 4)
    keys: Any = jax.vmap(Keys.of)(jax.random.split(jax.random.key(3), 3))
    public = Keys.of(jax.random.key(9))
    setting = stepping.setting(program, problem, network(), None, public)
    seen, releases = observe._played(setting, keys, 1, range(5), lambda here, tables: observe._params(here, tables))
    for lane in (0, 2):
        own = replace(jax.tree.map(lambda leaf: leaf[lane], keys), network=public.network)  # noqa: B023
        alone = replace(setting, keys=own)
        for end in range(1, 5):
            waves = Waves(4)
            here, carry, _ = waves.start(alone, ())
            carry, _ = waves.advance(carry, replace(alone, program=here), end, end, 1, ())
            np.testing.assert_array_equal(seen[end][lane], here.params(carry.state))
        assert releases[lane] == carry.releases[1] > 0


def test_noise_that_is_too_small_is_seen(monkeypatch, fresh):
    def add(self, key, x, sensitivity):
        return x + 0.05 * self.multiplier * sensitivity * jax.random.normal(key, x.shape, x.dtype)

    monkeypatch.setattr(jdfl.Gaussian, "add", add)
    method = replace(METHODS["SWIFT"], gradients=replace(NOISY, mechanism=jdfl.Gaussian(6.0)))
    found = jdfl.audit(method, PROBLEM(), network(), steps=3, runs=600, key=1, node=1)
    assert found.not_probed == "it has no rounds that could be repeated"
    assert found.releases >= 2
    assert found.violated
    assert found.epsilon_lower > found.epsilon_accounted
