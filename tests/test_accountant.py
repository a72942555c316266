"""Plans say what runs do, noise is as little as a target allows, and budgets end runs in time."""

from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np
import pytest

import jdfl
from jdfl.engine import accountant, stepping
from jdfl.engine.spending import records_of, release_limits
from jdfl.privacy import report
from jdfl.privacy.report import KEYS
from tests.refused import all_refused, each_refused, refused
from tests.toy import FEW, Gossip, network, problem

NOISY = jdfl.Gradients(clip=1.0, mechanism=jdfl.Gaussian(2.0))
DPSGD = jdfl.DPSGD(lr=0.02, gradients=NOISY)
CEPS = jdfl.CEPS(s=3, rate=0.5, periods=(2, 5), clip=5.0, mechanism=jdfl.Gaussian(2.0), sigma=1.0)
FEDAVG = jdfl.FedAvg(lr=0.02, local_steps=2, fraction=0.5, updates=jdfl.Updates(clip=0.1, mechanism=jdfl.Gaussian(2.0)))
DRAWN = {"CEPS": CEPS, "FedAvg": FEDAVG}  # where who releases is drawn
ALGORITHMS = {"D-PSGD": DPSGD, **DRAWN}
STEPS = 9


def go(algorithm: Any, steps: int = STEPS, **options: Any) -> jdfl.Result:
    budget = {name: options.pop(name) for name in ("epsilon", "delta") if name in options}
    given = {"key": 3, "metrics": FEW, "options": jdfl.Options(chunk=options.pop("chunk", 100)), **options}
    callbacks = [jdfl.Budget(**budget)] if budget else []
    return jdfl.run(algorithm, problem(), network(), steps=steps, callbacks=callbacks, **given)


def planned(algorithm: Any, steps: int = STEPS, key: int = 3) -> np.ndarray:
    return accountant.planned_releases(algorithm, problem(), network(), steps=steps, key=key)


def plan(algorithm: Any, **options: Any) -> jdfl.PrivacyReport:
    return jdfl.account_plan(algorithm, problem(), network(), **({"steps": STEPS, "key": 3} | options))


def gradients(**fields: Any) -> Any:
    return replace(DPSGD, gradients=replace(NOISY, **fields))


@cache
def done(name: str) -> jdfl.Result:
    """A run of one of the algorithms."""
    return go(ALGORITHMS[name])


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_plan_counts_and_says_what_its_run_does(name):
    algorithm, result = ALGORITHMS[name], done(name)
    told = jdfl.account(result)
    np.testing.assert_array_equal(planned(algorithm), result.releases)
    assert np.array_equal(planned(algorithm, key=4), result.releases) != (name in DRAWN)
    assert told == plan(algorithm)
    assert told == replace(
        report(algorithm.privacy(problem()), result.releases, records_of(problem())), key=KEYS["given"]
    )
    assert told.releases["most"] == result.releases.max() > 0
    other = jdfl.account(result, delta=1e-7, warnings=("heard in passing",))
    assert other.epsilon > told.epsilon
    assert other.warnings == (*told.warnings, "heard in passing")


def test_a_plan_knows_rounds_without_noise_and_keys_of_the_operating_system():
    silent = jdfl.DFedSAM(lr=0.02, local_steps=2, gradients=replace(NOISY, noisy="communicating"))
    np.testing.assert_array_equal(planned(silent, 4), go(silent, 4).releases)
    assert planned(jdfl.DPSGD(lr=0.02)).sum() == 0
    fresh = go(DPSGD, key=None)
    assert jdfl.account(fresh) == plan(DPSGD, key=None)
    assert jdfl.account(fresh).key == KEYS["operating system"]


def test_plans_of_all_lengths_are_one_program(compilations):
    assert planned(DPSGD, steps=1).tolist() == [1] * problem().m
    before = compilations()
    for steps in (2, 7, 10_000):
        assert planned(DPSGD, steps=steps).tolist() == [steps] * problem().m
    assert compilations() == before


CALIBRATED = {
    "gradients": (DPSGD, 1.0),
    "much": (DPSGD, 20.0),
    "updates": (FEDAVG, 1.0),
    "CEPS, Laplace": (replace(CEPS, mechanism=jdfl.Laplace(1.0)), 2.0),
    "Poisson samples": (gradients(batch=3, sampling="poisson", adjacency="add-remove"), 2.0),
    "subsets": (gradients(batch=2, sampling="subset"), 2.0),
}


@pytest.mark.rotated(6)
@pytest.mark.parametrize("name", CALIBRATED)
def test_noise_for_a_target_is_enough_and_not_too_much(name):
    algorithm, target = CALIBRATED[name]
    found = jdfl.calibrate(algorithm, problem(), network(), steps=STEPS, epsilon=target, key=3)
    told, place = plan(found), f"{accountant.noise_place(algorithm)}.multiplier"
    assert 0.999 * target < told.epsilon <= target
    assert told.noise_multiplier == np.float32(told.noise_multiplier)  # and a run in float32 has no less of it
    assert stepping.with_field(found, place, 1.0) == stepping.with_field(algorithm, place, 1.0)


def test_noise_is_for_the_delta_that_is_asked_for_whatever_it_was_before():
    target = {"steps": STEPS, "epsilon": 1.0, "delta": 1e-8, "key": 3}
    found = jdfl.calibrate(DPSGD, problem(), network(), **target)
    assert 0.999 < plan(found, delta=1e-8).epsilon <= 1.0
    assert plan(found).epsilon < 0.95
    assert jdfl.calibrate(gradients(mechanism=jdfl.Gaussian(0.01)), problem(), network(), **target) == found


def test_what_may_not_be_claimed_is_neither_a_target_nor_a_budget():
    calibrate = partial(jdfl.calibrate, problem=problem(), network=network(), steps=STEPS, epsilon=1.0)
    none, unclaimed = (
        (jdfl.DPSGD(), Gossip()),
        (gradients(clip=None, sensitivity=1.0), gradients(noisy="communicating")),
    )
    for word, algorithms in {"noise": none, "epsilon": unclaimed}.items():
        for algorithm in algorithms:
            with refused(word):
                calibrate(algorithm)
        with refused(word):
            go(algorithms[0], epsilon=1.0)
    wrong = [{"epsilon": one} for one in (0.0, -1.0, float("inf"))]
    each_refused(partial(calibrate, DPSGD), *wrong, {"delta": 0.03125}, {"delta": 0.0}, {"steps": 0})
    each_refused(partial(go, DPSGD), {"epsilon": 0.0}, {"delta": 0.5}, epsilon=1.0)
    all_refused((lambda: calibrate(jdfl.PartPSP()), "account_plan"), (lambda: go(CEPS, epsilon=0.1), "epsilon=0.1"))


@pytest.mark.rotated(3)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_budget_ends_the_run_before_it_is_exceeded(name):
    algorithm, steps = ALGORITHMS[name], 40
    budget = plan(algorithm, steps=7).epsilon * 1.001
    result = go(algorithm, steps, epsilon=budget, every=2)
    limits = release_limits(algorithm, problem(), epsilon=budget, delta=None)
    assert (result.ending, result.rounds < steps) == ("budget", True)
    assert f"round {result.rounds + 1} would release more than the privacy budget allows" in result.reason
    assert (result.releases <= limits).all()
    assert (planned(algorithm, result.rounds + 1) > limits).any()
    assert jdfl.account(result).epsilon <= budget < plan(algorithm, steps=result.rounds + 1).epsilon

    more = result.rounds + 3
    prefix, unbroken = (go(algorithm, rounds, every=2) for rounds in (result.rounds, more))
    onward = go(algorithm, more, every=2, resume=result, epsilon=10 * budget)
    for one, like in ((result, prefix), (onward, unbroken)):  # a program with a budget is another, and rounds otherwise
        np.testing.assert_allclose(one.params, like.params, rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(one.history, like.history, rtol=1e-5, atol=1e-7)
        assert (one.totals, one.releases.tolist()) == (like.totals, like.releases.tolist())
    again = go(algorithm, more, every=2, resume=result, epsilon=budget)
    assert (again.ending, again.rounds) == ("budget", result.rounds)
    assert again.history.equals(result.history)


def test_a_budget_ends_the_run_in_the_same_round_however_it_is_recorded_and_a_calibrated_run_spends_all():
    budget = plan(DPSGD, steps=7, delta=1e-8).epsilon
    for every, chunk in ((1, 100), (3, 1)):
        result = go(DPSGD, 20, epsilon=budget, delta=1e-8, every=every, chunk=chunk)
        assert (result.ending, result.rounds) == ("budget", 7)
        assert result.history["round"].tolist() == sorted({*range(0, 8, every), 7})
        assert result.releases.tolist() == [7] * problem().m
    assert go(DPSGD, 20, epsilon=budget).rounds > 7  # of the usual delta
    found = jdfl.calibrate(DPSGD, problem(), network(), steps=STEPS, epsilon=3.0, key=3)
    result, longer = go(found, epsilon=3.0), go(found, STEPS + 1, epsilon=3.0)
    assert (result.ending, longer.ending, longer.rounds) == ("steps", "budget", STEPS)
    assert 0.999 * 3.0 < jdfl.account(result).epsilon <= 3.0
    np.testing.assert_array_equal(longer.params, result.params)


def test_rules_that_end_a_run_are_warned_of():
    """What they look at is no message; one that reads data tells something also by going on, and leaves no epsilon."""
    agree = [jdfl.account(go(DPSGD, 3, stop=jdfl.consensus_below(value))).warnings for value in (1e9, 1e-9)]
    assert [len(one) for one in agree] == [1, 0]
    assert "all nodes' true parameters" in agree[0][0]
    learnt = jdfl.objective_below
    for rule in (learnt(1e-9), jdfl.all_of(jdfl.consensus_below(1e9), learnt(1e9))):
        with refused("stop rule"):
            plan(DPSGD, stop=rule)
    with refused("stop rule"):
        jdfl.account(go(DPSGD, 3, stop=learnt(1e-9)))


def test_a_sigma_of_the_nodes_own_leaves_no_epsilon_and_lanes_have_the_noise_of_their_own():
    own = replace(CEPS, sigma=None)
    for door in (partial(jdfl.account, replace(done("CEPS"), guarantee=own.privacy(problem()))), partial(plan, own)):
        with refused("epsilon", "sigma_i"):
            door()
    assert jdfl.account(done("CEPS")).public == plan(CEPS).public == ()
    over = {"gradients.mechanism.multiplier": [1.0, 4.0]}
    lanes = jdfl.sweep(DPSGD, problem(), network(), over=over, keys=[3], steps=4, metrics=FEW)
    for lane, multiplier in zip(lanes, (1.0, 4.0)):
        assert jdfl.account(lane) == plan(gradients(mechanism=jdfl.Gaussian(multiplier)), steps=4)


def test_what_has_no_noise_has_no_account():
    with refused("noise", "mechanism"):
        jdfl.account(replace(done("D-PSGD"), guarantee=jdfl.DPSGD().privacy(problem())))
    literal = replace(done("CEPS"), guarantee=replace(CEPS, noise="literal").privacy(problem()))
    with refused("epsilon"):
        jdfl.account(literal)
    told = jdfl.account(literal, accounting="paper")
    assert (told.sound, "NO GUARANTEE" in told.statement()) == (False, True)
