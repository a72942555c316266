"""Plans say what runs do, noise is as little as a target allows, and budgets end runs in time."""

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jdfl
from jdfl.algorithms.program import Program
from jdfl.engine import accountant, loop, stepping
from jdfl.engine.spending import records_of, release_limits
from jdfl.privacy import report
from jdfl.privacy.report import KEYS
from tests.toy import FEW, Gossip, network, problem, run

NOISY = jdfl.Gradients(clip=1.0, mechanism=jdfl.Gaussian(2.0))
DPSGD = jdfl.DPSGD(lr=0.02, gradients=NOISY)
CEPS = jdfl.CEPS(s=3, rate=0.5, periods=(2, 5), clip=5.0, mechanism=jdfl.Gaussian(2.0), sigma=1.0)
FEDAVG = jdfl.FedAvg(lr=0.02, local_steps=2, fraction=0.5, updates=jdfl.Updates(clip=0.1, mechanism=jdfl.Gaussian(2.0)))
ALGORITHMS = {
    "DP-D-PSGD": DPSGD,
    "DP-CEPS": CEPS,
    "FedAvg, half of the clients": FEDAVG,
    "DP-DFedSAM": jdfl.DFedSAM(lr=0.02, local_steps=2, gradients=replace(NOISY, noisy="communicating")),
    "D-PSGD": jdfl.DPSGD(lr=0.02),
}
STEPS = 9


def go(algorithm: Any, steps: int = STEPS, **options: Any) -> jdfl.Result:
    budget = {name: options.pop(name) for name in ("epsilon", "delta") if name in options}
    given = {"key": 3, "metrics": FEW, "options": jdfl.Options(chunk=options.pop("chunk", 100)), **options}
    callbacks = [jdfl.Budget(**budget)] if budget else []
    return jdfl.run(algorithm, problem, network, steps=steps, callbacks=callbacks, **given)


def planned(algorithm: Any, steps: int = STEPS, key: int = 3) -> np.ndarray:
    return accountant.planned_releases(algorithm, problem, network, steps=steps, key=key)


def plan(algorithm: Any, **options: Any) -> jdfl.PrivacyReport:
    return jdfl.account_plan(algorithm, problem, network, **({"steps": STEPS, "key": 3} | options))


# ---------------------------------------------------------------- plans


@pytest.mark.rotated(2)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_plan_counts_what_a_run_releases(name):
    algorithm = ALGORITHMS[name]
    counts = [planned(algorithm, key=key) for key in (3, 4)]
    for key, count in zip((3, 4), counts):
        np.testing.assert_array_equal(count, go(algorithm, key=key).releases)
    drawn = name in ("DP-CEPS", "FedAvg, half of the clients")  # who releases is drawn
    assert np.array_equal(*counts) != drawn
    assert (counts[0].sum() > 0) == (name != "D-PSGD")


@pytest.mark.parametrize("name", ["DP-D-PSGD", "DP-CEPS", "FedAvg, half of the clients"])
def test_a_plan_is_counted_without_the_work(name):
    """Its program neither reads the examples nor multiplies matrices."""
    setting = stepping.setting(Program(ALGORITHMS[name]), problem, network, None, jax.random.key(0))
    compiled = loop.releases.lower(setting, jnp.int32(1000)).compile()
    data = sum(leaf.nbytes for leaf in jax.tree.leaves(problem.data))
    assert compiled.memory_analysis().argument_size_in_bytes < data / 10
    assert " dot(" not in compiled.as_text()
    if name == "DP-D-PSGD":  # the sign of work is there in a run
        program, carry, _ = loop.start(setting, ())
        setting = setting.replace(algorithm=program)
        work = loop.advance.lower(carry, setting, jnp.int32(1000), 1, 100, ()).compile()
        assert work.memory_analysis().argument_size_in_bytes > data
        assert " dot(" in work.as_text()


def test_plans_of_all_lengths_are_one_program(compilations):
    assert planned(DPSGD, steps=1).tolist() == [1] * problem.m
    before = compilations()
    for steps in (2, 7, 10_000):
        assert planned(DPSGD, steps=steps).tolist() == [steps] * problem.m
    assert compilations() == before


@pytest.mark.parametrize("name", ["DP-D-PSGD", "DP-CEPS", "FedAvg, half of the clients"])
def test_a_plan_says_what_its_run_says(name):
    algorithm = ALGORITHMS[name]
    result = go(algorithm)
    told = jdfl.account(result)
    assert told == plan(algorithm)
    assert told == replace(report(algorithm.privacy(problem), result.releases, records_of(problem)), key=KEYS["given"])
    assert told.releases["most"] == result.releases.max()
    if name == "DP-D-PSGD":
        assert (
            jdfl.account(go(algorithm, key=None))
            == plan(algorithm, key=None)
            == replace(told, key=KEYS["operating system"])
        )
        assert plan(algorithm, key=result.run_key) == told
    other = jdfl.account(result, delta=1e-7, warnings=("heard in passing",))
    assert other.epsilon > told.epsilon
    assert other.warnings == (*told.warnings, "heard in passing")


# ---------------------------------------------------------------- noise for a target


def gradients(**fields: Any) -> Any:
    return replace(DPSGD, gradients=replace(NOISY, **fields))


CALIBRATED = {
    "gradients": (DPSGD, 1.0),
    "gradients, much": (DPSGD, 20.0),
    "updates": (FEDAVG, 1.0),
    "CEPS": (CEPS, 2.0),
    "CEPS, Laplace": (replace(CEPS, mechanism=jdfl.Laplace(1.0)), 2.0),
    "Poisson samples": (gradients(batch=3, sampling="poisson", adjacency="add-remove"), 2.0),
    "subsets": (gradients(batch=2, sampling="subset"), 2.0),
}


@pytest.mark.rotated(3)
@pytest.mark.parametrize("name", CALIBRATED)
def test_noise_for_a_target_is_enough_and_not_too_much(name):
    algorithm, target = CALIBRATED[name]
    found = jdfl.calibrate(algorithm, problem, network, steps=STEPS, epsilon=target, key=3)
    told = plan(found)
    assert 0.999 * target < told.epsilon <= target
    assert told.noise_multiplier == np.float32(told.noise_multiplier)  # and a run in float32 has no less of it
    place = accountant.noise_place(algorithm)
    assert stepping.with_field(found, f"{place}.multiplier", 1.0) == stepping.with_field(
        algorithm, f"{place}.multiplier", 1.0
    )
    other = jdfl.calibrate(stepping.with_field(algorithm, f"{place}.multiplier", 0.01), problem, network,
                           steps=STEPS, epsilon=target, key=3)  # fmt: skip
    assert plan(other).noise_multiplier == told.noise_multiplier  # whatever it was before


def test_noise_is_for_the_delta_that_is_asked_for():
    found = jdfl.calibrate(DPSGD, problem, network, steps=STEPS, epsilon=1.0, delta=1e-8, key=3)
    assert 0.999 < plan(found, delta=1e-8).epsilon <= 1.0
    assert plan(found).epsilon < 0.95


@pytest.mark.parametrize(
    ("algorithm", "options", "words"),
    [
        (jdfl.DPSGD(), {}, "Expected an algorithm with noise, got DPSGD without. Give it a mechanism"),
        (jdfl.CEPS(s=3, sigma=1.0), {}, "got CEPS without"),
        (Gossip(), {}, "got Gossip without"),
        (gradients(clip=None, sensitivity=1.0), {}, "No epsilon can be given: gradients are not clipped"),
        (replace(CEPS, noise="literal"), {}, "No epsilon can be given: the noise is not stored in u"),
        (gradients(noisy="communicating"), {}, "No epsilon can be given"),
        (DPSGD, {"epsilon": 0.0}, "epsilon > 0 and finite, got epsilon = 0.0"),
        (DPSGD, {"epsilon": -1.0}, "epsilon = -1.0"),
        (DPSGD, {"epsilon": float("inf")}, "epsilon = inf"),
        (DPSGD, {"delta": 1 / 48}, "delta < 1 / records = 0.0208"),
        (DPSGD, {"delta": 0.0}, "delta"),
        (DPSGD, {"steps": 0}, "steps = 0"),
    ],
    ids=["none", "CEPS", "toy", "not-clipped", "literal", "silent", "zero", "negative", "inf", "delta", "no-delta",
         "steps"],
)  # fmt: skip
def test_noise_for_nothing_that_may_be_claimed_is_refused(algorithm, options, words):
    with pytest.raises(ValueError, match=words):
        jdfl.calibrate(algorithm, problem, network, **({"steps": STEPS, "epsilon": 1.0} | options))


# ---------------------------------------------------------------- budgets


@pytest.mark.rotated(3)
@pytest.mark.parametrize("name", ["DP-D-PSGD", "DP-CEPS", "FedAvg, half of the clients"])
def test_a_budget_ends_the_run_before_it_is_exceeded(name):
    algorithm, steps = ALGORITHMS[name], 40
    budget = plan(algorithm, steps=7).epsilon * 1.001
    result = go(algorithm, steps, epsilon=budget, every=2)
    limits = release_limits(algorithm, problem, epsilon=budget, delta=None)
    assert (result.ending, result.rounds < steps) == ("budget", True)
    assert f"round {result.rounds + 1} would release more than the privacy budget allows" in result.reason
    assert (result.releases <= limits).all()
    assert (planned(algorithm, result.rounds + 1) > limits).any()
    assert jdfl.account(result).epsilon <= budget < plan(algorithm, steps=result.rounds + 1).epsilon
    prefix = go(algorithm, result.rounds, every=2)
    # The program of a run with a budget is another one, and rounds otherwise.
    same = partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-7)
    same(result.params, prefix.params)
    for leaf, like in zip(jax.tree.leaves(result.state), jax.tree.leaves(prefix.state), strict=True):
        same(leaf, like)
    same(result.history, prefix.history)
    assert result.totals == prefix.totals
    np.testing.assert_array_equal(result.releases, prefix.releases)

    more = result.rounds + 3
    unbroken = go(algorithm, more, every=2)
    for onward in (go(algorithm, more, every=2, resume=result),
                   go(algorithm, more, every=2, resume=result, epsilon=10 * budget)):  # fmt: skip
        same(onward.params, unbroken.params)
        same(onward.history, unbroken.history)
        assert (onward.totals, onward.ending) == (unbroken.totals, "steps")
    again = go(algorithm, more, every=2, resume=result, epsilon=budget)
    assert (again.ending, again.rounds) == ("budget", result.rounds)
    assert again.history.equals(result.history)


@pytest.mark.parametrize(("every", "chunk"), [(1, 1), (3, 100), (5, 2)])
def test_a_budget_ends_the_run_in_the_same_round_however_it_is_recorded(every, chunk):
    budget = plan(DPSGD, steps=7).epsilon
    result = go(DPSGD, 20, epsilon=budget, every=every, chunk=chunk)
    assert (result.ending, result.rounds) == ("budget", 7)
    assert result.history["round"].tolist() == sorted({*range(0, 8, every), 7})
    assert result.releases.tolist() == [7] * problem.m


def test_a_calibrated_run_spends_all_and_no_more():
    found = jdfl.calibrate(DPSGD, problem, network, steps=STEPS, epsilon=3.0, key=3)
    result = go(found, epsilon=3.0)
    assert result.ending == "steps"
    assert 0.999 * 3.0 < jdfl.account(result).epsilon <= 3.0
    longer = go(found, STEPS + 1, epsilon=3.0)
    assert (longer.ending, longer.rounds) == ("budget", STEPS)
    np.testing.assert_array_equal(longer.params, result.params)


def test_a_budget_has_the_delta_that_is_asked_for():
    budget = plan(DPSGD, steps=7, delta=1e-8).epsilon
    assert go(DPSGD, 20, epsilon=budget, delta=1e-8).rounds == 7
    assert go(DPSGD, 20, epsilon=budget).rounds > 7


@pytest.mark.parametrize(
    ("algorithm", "options", "words"),
    [
        (CEPS, {"epsilon": 0.1}, "budget for the 1 releases of node 0 before the first round, got "
         r"Budget\(epsilon=0.1, delta=None\), which allows 0"),
        (jdfl.DPSGD(lr=0.02), {"epsilon": 1.0}, "Expected an algorithm with noise for a privacy report, got none"),
        (replace(CEPS, noise="literal"), {"epsilon": 1.0}, "No epsilon can be given.*Use noise=\"kept\""),
        (gradients(clip=None, sensitivity=1.0), {"epsilon": 1.0}, "No epsilon can be given.*Give clip"),
        (DPSGD, {"epsilon": 0.0}, "epsilon"),
        (DPSGD, {"epsilon": 1.0, "delta": 0.5}, "delta < 1 / records"),
    ],
    ids=["spent", "no-noise", "literal", "not-clipped", "zero", "delta"],
)  # fmt: skip
def test_budgets_that_make_no_sense_are_refused(algorithm, options, words):
    with pytest.raises(ValueError, match=words):
        go(algorithm, **options)


def test_a_budget_below_one_release_in_a_round_ends_before_it():
    result = go(DPSGD, epsilon=0.1)
    assert (result.ending, result.rounds, result.totals.releases) == ("budget", 0, 0)
    assert result.history["round"].tolist() == [0]
    assert jdfl.account(result).epsilon == 0


# ---------------------------------------------------------------- warnings


def test_rules_that_end_a_run_are_warned_of():
    """What they look at is no message; one that reads data tells something also by going on, and leaves no epsilon."""
    agree = [jdfl.account(go(DPSGD, 3, stop=jdfl.consensus_below(value))).warnings for value in (1e9, 1e-9)]
    assert [len(one) for one in agree] == [1, 0]
    assert "all nodes' true parameters" in agree[0][0]
    learnt = jdfl.objective_below
    for rule in (learnt(1e9), learnt(1e-9), jdfl.all_of(jdfl.consensus_below(1e9), learnt(1e9))):
        with pytest.raises(ValueError, match="a stop rule or a callback uses more"):
            jdfl.account(go(DPSGD, 3, stop=rule))


def test_a_sigma_of_the_nodes_own_leaves_no_epsilon():
    own = replace(CEPS, sigma=None)
    (lane,) = jdfl.repeat(own, problem, network, keys=[3], steps=4, metrics=FEW)
    for found in (go(own, 4), lane):
        with pytest.raises(ValueError, match=r"No epsilon can be given: .*sigma_i"):
            jdfl.account(found)
    with pytest.raises(ValueError, match=r"No epsilon can be given: .*sigma_i"):
        plan(own, steps=4)
    for told in (jdfl.account(go(CEPS, 4)), plan(CEPS, steps=4)):
        assert told.public == ()


def test_lanes_have_the_noise_of_their_own():
    over = {"gradients.mechanism.multiplier": [1.0, 4.0]}
    lanes = jdfl.sweep(DPSGD, problem, network, over=over, keys=[3], steps=4, metrics=FEW)
    for lane, multiplier in zip(lanes, (1.0, 4.0)):
        alone = gradients(mechanism=jdfl.Gaussian(multiplier))
        assert jdfl.account(lane) == plan(alone, steps=4)


def test_what_has_no_noise_has_no_account():
    with pytest.raises(ValueError, match=r"got none: no noise is added\. Give a mechanism"):
        jdfl.account(run())
    literal = replace(go(CEPS, 4), guarantee=replace(CEPS, noise="literal").privacy(problem))
    with pytest.raises(ValueError, match="No epsilon can be given"):
        jdfl.account(literal)
    told = jdfl.account(literal, accounting="paper")
    assert (told.sound, "NO GUARANTEE" in told.statement()) == (False, True)
