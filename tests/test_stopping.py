import functools
from functools import partial

import jax.numpy as jnp
import numpy as np
import pytest

import jdfl
from jdfl.engine.stopping import View
from tests.refused import each_refused, refused
from tests.toy import M, N, problem


@functools.cache
def solved() -> np.ndarray:
    return np.broadcast_to(np.asarray(problem().truth), (M, N))


def view(w=None, rounds: int = 6, communications=None) -> View:
    talked = jnp.ones((M,), jnp.int32) if communications is None else jnp.asarray(communications, jnp.int32)
    return View(jnp.int32(rounds), solved() if w is None else w, talked, problem())


def moved(place, size: float):
    """The truth everywhere, but for one number."""
    w = solved().copy()
    w[place] += size
    return w


def apart(size: float):
    """Parameters with consensus error size^2 whose average is the truth."""
    return moved((0, 0), size * (M / 2) ** 0.5) + moved((1, 0), -size * (M / 2) ** 0.5) - solved()


def test_rules_fire_below_their_tolerances():
    for size, fires in ((0.0, True), (0.099, True), (0.101, False)):
        assert bool(jdfl.consensus_below(0.01)(view(apart(size)))) is fires
        assert bool(jdfl.consensus_below(0.001, per=10)(view(apart(size)))) is fires
    w = solved() + 0.1
    value = float(np.mean(np.asarray(problem().values_at(w[0]))))
    size = float(np.linalg.norm(np.mean(np.asarray(problem().gradients(w)), axis=0)))
    for rule, tolerance in ((jdfl.objective_below, value), (jdfl.gradient_below, size)):
        assert rule(tolerance * 1.001)(view(w))
        assert not rule(tolerance * 0.999)(view(w))


def test_consensus_waits_until_every_node_has_communicated():
    rule = jdfl.consensus_below(0.01)
    assert rule(view(communications=[1, 2, 3, 1, 1, 1]))
    assert not rule(view(communications=[1, 2, 3, 0, 1, 1]))
    later = jdfl.consensus_below(0.01, after=9)
    assert [bool(later(view(rounds=rounds))) for rounds in (8, 9, 10)] == [False, True, True]


@pytest.mark.parametrize("rule", [jdfl.objective_below(1.0, every=4), jdfl.gradient_below(1.0, every=4)])
def test_costly_rules_look_every_few_rounds(rule):
    assert [bool(rule(view(rounds=rounds))) for rounds in range(1, 9)] == [rounds % 4 == 0 for rounds in range(1, 9)]


def test_all_of_needs_all():
    yes, no = jdfl.objective_below(1.0), jdfl.objective_below(-1.0)
    assert jdfl.all_of(yes, yes)(view())
    assert not jdfl.all_of(yes, no)(view())
    assert not jdfl.all_of(no, yes)(view())


def test_no_rule_fires_on_parameters_that_are_not_finite():
    rules = [jdfl.consensus_below(1e30), jdfl.objective_below(1e30), jdfl.gradient_below(1e30)]
    for bad in (jnp.nan, jnp.inf):
        w = moved((2, 3), bad)
        assert not any(bool(rule(view(w))) for rule in [*rules, jdfl.all_of(*rules)])


def test_settings_that_make_no_sense_are_refused():
    for rule, *wrong in (
        (jdfl.consensus_below, {"tolerance": 0.0}, {"tolerance": float("nan")}),
        (partial(jdfl.consensus_below, 1.0), {"per": -1}, {"after": -2}, {"after": 2.5}),
        (jdfl.objective_below, {"value": float("inf")}),
        (partial(jdfl.objective_below, 1.0), {"every": 0}, {"every": True}),
        (lambda **given: jdfl.all_of(jdfl.objective_below(1.0), jdfl.gradient_below(**given)), {"tolerance": -1e-3}),
    ):
        each_refused(lambda rule=rule, **given: rule(**given).check(), *wrong)
    with refused("rule"):
        jdfl.all_of().check()
