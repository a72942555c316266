"""What repeated rounds show: every family of tests sees a bug of its own, and none sees one where there is none."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest

import jdfl
from jdfl.algorithms.program import Program, planned
from jdfl.auditing.probe import Probe, amount_of, most_runs, probe
from jdfl.base.streams import Keys
from jdfl.engine import stepping
from jdfl.privacy import Gaussian
from tests.auditing.planted import BUGS, NETWORK, PLAIN, PROBLEM, SETTINGS, STEPS, M, Z, plant


def _pair(features: list[float]) -> Any:
    long = jnp.asarray(features, jnp.float32)
    return (long, jnp.float32(1e4)), (long, jnp.float32(-1e4))


def pairs() -> Any:
    return [_pair([1.0, 0.0, 0.0, 0.0]), _pair([0.5, -0.4, 0.3, 0.6])]


def _found(algorithm: Any, seed: int = 0, **how: bool) -> Probe:
    program = planned(algorithm, PROBLEM(), NETWORK(), STEPS)
    setting = stepping.setting(program, PROBLEM(), NETWORK(), None, jax.random.key(seed))
    keys = jax.vmap(Keys.of)(jax.random.split(jax.random.key(seed + 1), most_runs(PROBLEM(), STEPS)))
    return probe(setting, program.privacy(PROBLEM()), pairs(), keys, steps=STEPS, **how)


FAMILIES = [  # one each; test_planted.py has all bugs, in whole audits
    "noise times .95",
    "uniform noise",
    "noise shared by two nodes",
    "sizes shared by all nodes",
    "noise cut at 2.5 standard deviations",
    "releases not counted",
    "sensitivity off by two",
    "noise missing in one round",
    "last records instead of a Poisson sample",
    "keys of 16 bits",
]


@pytest.mark.rotated(3)
@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_sees_its_bug(name, monkeypatch, fresh):
    bug = BUGS[name]
    plant(bug, monkeypatch)
    assert bug.family in {one.family for one in _found(bug.audited).findings}


STEP = jdfl.Gradients(clip=1.0, per="batch", norm="l1")
MEAN = jdfl.Updates(clip=1.0, mechanism=Gaussian(Z), trust="central")
LEFT = (
    (jdfl.SGP(gradients=STEP, dpps=jdfl.DPPS(b=0.5, noise_rate=1.0)), "not added by a mechanism"),
    (jdfl.FedAvg(updates=MEAN), "share of the noise"),
    (jdfl.MAFALDA(gradients=PLAIN.replace(batch=1, sampling="in order"), horizon=STEPS, band=2), "a schedule"),
)
ALL = {  # with the least number of tests
    "all records": (SETTINGS["all"], 100),
    "samples": (SETTINGS["poisson"], 100),
    "noise that is mixed": (jdfl.DPSGD(order="adapt-then-combine", gradients=PLAIN), 8),
    "noise of links besides": (jdfl.DECOR(gradients=PLAIN, pairs=Z), 8),
}


@pytest.mark.rotated(2)
@pytest.mark.parametrize("name", ALL)
def test_nothing_fires_where_all_is_sound(name):
    algorithm, least = ALL[name]
    told = _found(algorithm)
    assert (told.findings, told.not_probed) == ((), "")
    assert told.tests >= least


def test_the_noise_of_several_releases_in_a_round_is_tested_as_a_whole(monkeypatch):
    assert amount_of(Program(SETTINGS["exact"]), 4) == SETTINGS["exact"].gradients.mechanism.scale(4) != Z
    for patched, families in (
        (amount_of, set()),
        (lambda *_: 1.3 * Z, {"residual scale"}),
    ):  # as if there had to be more
        monkeypatch.setattr("jdfl.auditing.probe.amount_of", patched)
        told = _found(jdfl.FedAvg(lr=0.02, local_steps=2, gradients=PLAIN), linkless=True)
        assert ({one.family for one in told.findings}, told.tests) == (families, STEPS * M)


def test_what_cannot_be_probed_says_why():
    for algorithm, words in LEFT:
        told = _found(algorithm)
        assert words in told.not_probed
        assert (told.tests, told.findings) == (0, ())
    setting = stepping.setting(Program(SETTINGS["all"]), PROBLEM(), NETWORK(), None, jax.random.key(0))
    none = jax.vmap(Keys.of)(jax.random.split(jax.random.key(0), 0))
    told = probe(setting, SETTINGS["all"].privacy(PROBLEM()), pairs(), none, steps=2**20)
    assert "too many to store" in told.not_probed
