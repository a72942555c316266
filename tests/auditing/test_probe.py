"""What repeated rounds show: every family of tests sees a bug of its own, and none sees one where there is none."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import jdfl
from jdfl.algorithms.program import Program, planned
from jdfl.auditing.probe import Probe, most_runs, probe
from jdfl.base import struct
from jdfl.base.streams import Keys
from jdfl.engine import stepping
from jdfl.privacy import Gaussian
from tests.auditing.planted import BUGS, NETWORK, PLAIN, PROBLEM, SETTINGS, STEPS, Z, plant


def _pair(features: list[float]) -> Any:
    long = jnp.asarray(features, jnp.float32)
    return (long, jnp.float32(1e4)), (long, jnp.float32(-1e4))


def pairs() -> Any:
    return [_pair([1.0, 0.0, 0.0, 0.0]), _pair([0.5, -0.4, 0.3, 0.6])]


def _found(algorithm: Any, seed: int = 0) -> Probe:
    program = planned(algorithm, PROBLEM(), NETWORK(), STEPS)
    setting = stepping.setting(program, PROBLEM(), NETWORK(), None, jax.random.key(seed))
    keys = jax.vmap(Keys.of)(jax.random.split(jax.random.key(seed + 1), most_runs(PROBLEM(), STEPS)))
    return probe(setting, program.privacy(PROBLEM()), pairs(), keys, steps=STEPS)


def _sound(told: Probe, least: int = 8) -> None:
    assert (told.findings, told.not_probed) == ((), "")
    assert told.tests >= least


@pytest.mark.parametrize("name", ["all", "poisson"])
def test_nothing_fires_where_all_is_sound(name):
    _sound(_found(SETTINGS[name]), least=100)


FAMILIES = [  # one for every family; test_planted.py has all of them, in whole audits
    "noise times .95",
    "uniform noise",
    "noise shared by two nodes",
    "sizes shared by all nodes",
    "bfloat16 noise",
    "noise cut at 2.5 standard deviations",
    "releases not counted",
    "sensitivity off by two",
    "noise missing in one round",
    "last records instead of a Poisson sample",
    "keys of 16 bits",
    "half of the noise, mixed",
]


@pytest.mark.rotated(3)
@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_sees_its_bug(name, monkeypatch, fresh):
    bug = BUGS[name]
    plant(bug, monkeypatch)
    assert bug.family in {one.family for one in _found(bug.audited).findings}


@struct.dataclass
class Own:
    """Noise of one's own."""

    multiplier: Any = Z
    norm = "l2"

    def check(self) -> None:
        pass

    def add(self, key: Any, x: Any, sensitivity: Any) -> Any:
        return Gaussian(self.multiplier).add(key, x, sensitivity)

    def event(self) -> Any:
        return Gaussian(self.multiplier).event()


@struct.dataclass
class Counted(jdfl.DPSGD):
    """Counts a release that does not show."""

    def step(self, state: Any, round: Any) -> Any:
        new = jdfl.DPSGD.step(self, state, round)
        round.book.released(1)
        return new


STEP = jdfl.Gradients(clip=1.0, per="batch", norm="l1")
MEAN = jdfl.Updates(clip=1.0, mechanism=Gaussian(Z), trust="central")
LEFT = (
    (jdfl.SGP(gradients=STEP, dpps=jdfl.DPPS(b=0.5, noise_rate=1.0)), "not added by a mechanism"),
    (jdfl.FedAvg(updates=MEAN), "share of the noise"),
)
ALL = {
    "another mechanism": jdfl.DPSGD(gradients=replace(PLAIN, mechanism=Own())),
    "noise that is mixed": jdfl.DPSGD(order="adapt-then-combine", gradients=PLAIN),
    "many releases": Counted(gradients=PLAIN),
    "noise of links besides": jdfl.DECOR(gradients=PLAIN, pairs=Z),
}


@pytest.mark.rotated(4)
@pytest.mark.parametrize("name", ALL)
def test_mixed_messages_own_mechanisms_and_several_releases_are_probed(name):
    _sound(_found(ALL[name]))


def test_what_cannot_be_probed_says_why():
    for algorithm, words in LEFT:
        told = _found(algorithm)
        assert words in told.not_probed
        assert (told.tests, told.findings) == (0, ())
    assert most_runs(PROBLEM(), 2**20) == 0
    setting = stepping.setting(Program(SETTINGS["all"]), PROBLEM(), NETWORK(), None, jax.random.key(0))
    none = jax.vmap(Keys.of)(jax.random.split(jax.random.key(0), 0))
    told = probe(setting, SETTINGS["all"].privacy(PROBLEM()), pairs(), none, steps=2**20)
    assert "too many to store" in told.not_probed
