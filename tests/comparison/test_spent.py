"""Comparisons at equal epsilon: enough noise for every seed, no more than that, and tables that tell what was spent."""

from dataclasses import replace

import numpy as np
import optax
import pytest

import jdfl
from jdfl.lab.entries import calibrated, plans
from jdfl.lab.settings import build, from_yaml
from jdfl.problems import Problem
from tests.toy import terms

pytestmark = pytest.mark.filterwarnings("ignore:Not tuned", "ignore:The best")
KEYS, STEPS, DELTA = (0, 1, 2), 8, 1e-5
CLIPPED = jdfl.Gradients(clip=5.0, mechanism=jdfl.Gaussian(1.0))
NOISY = {
    "D-PSGD": jdfl.DPSGD(lr=0.05, gradients=CLIPPED),
    "CEPS": jdfl.CEPS(s=2, sigma=4.0, clip=5.0, mechanism=jdfl.Gaussian(1.0), codec=jdfl.Dense()),
    "DO-ADP": jdfl.DOADP(gradients=CLIPPED),
}
OPTIONS = {"trials": KEYS, "steps": STEPS, "tuning": None, "metrics": ["objective"]}


@pytest.fixture(scope="module")
def problem() -> Problem:
    return jdfl.problems.example1(m=6, n=12, s=2).declared("tuning")


@pytest.fixture(scope="module")
def network() -> jdfl.network.Network:
    return jdfl.network.ring(6)


def by_plan(entries, problem, network):
    return plans(entries, terms(problem, network, KEYS, STEPS))


def over(plan, keys):
    """The plan in trials with these keys alone."""
    return replace(plan, trials=tuple(trial for trial in plan.trials if trial.key in keys))


@pytest.mark.rotated(3)
@pytest.mark.parametrize("label", NOISY)
def test_the_noise_is_the_least_that_suffices_for_every_seed(label, problem, network):
    plan = by_plan(NOISY, problem, network)[label]
    given = terms(problem, network, KEYS, STEPS, epsilon=4.0, delta=DELTA)
    found = calibrated(plan, given)
    asked = {"problem": problem, "network": network, "steps": STEPS, "delta": DELTA}
    told = [jdfl.account_plan(found, key=key, **asked).epsilon for key in KEYS]
    assert 3.99 < max(told) <= 4.0
    assert calibrated(plan, replace(given, epsilon=None)) is plan.algorithm


def test_seeds_that_release_less_need_less(problem, network):
    """The first seed alone would leave another one above the target."""
    plan = by_plan(NOISY, problem, network)["DO-ADP"]
    most = {
        key: jdfl.account_plan(plan.algorithm, problem, network, steps=STEPS, key=key).releases["most"] for key in KEYS
    }
    least = min(most, key=most.__getitem__)
    assert most[least] < max(most.values())
    alone, all_of_them = (
        calibrated(over(plan, keys), terms(problem, network, keys, STEPS, epsilon=4.0, delta=DELTA))
        for keys in ((least,), KEYS)
    )
    assert alone.gradients.mechanism.multiplier < all_of_them.gradients.mechanism.multiplier


def test_tables_tell_what_was_spent_and_who_stands_beside(problem, network, tmp_path):
    entries = {"D-PSGD": NOISY["D-PSGD"], "exact": jdfl.DPSGD(lr=0.05)}
    with pytest.warns(UserWarning, match=r"Noise not set for epsilon: exact\."):
        found = jdfl.compare(entries, problem, network, epsilon=4.0, delta=DELTA, **OPTIONS)
    assert list(found.privacy) == ["D-PSGD"]
    assert 3.99 < found.privacy["D-PSGD"].epsilon <= 4.0
    assert [row[3].text for row in found.grid().rows] == ["4", "none"]
    assert [row[4].mark for row in found.grid().rows] == ["best", ""]
    above = replace(found, privacy={"D-PSGD": replace(found.privacy["D-PSGD"], epsilon=4.00001)})
    assert above.grid().rows[0][3].text == "4.001"
    said = found.table()
    assert "least for epsilon ≤ 4; not held to it: exact. Epsilon is that of a whole run" in said
    assert "delta = 1e-05" in said
    page = (found.save(tmp_path / "found") / "report.html").read_text()
    assert "least for epsilon ≤ 4" in page
    assert found.privacy["D-PSGD"].statement().splitlines()[0].removeprefix("- ")[:40] in page


@pytest.mark.slow
def test_epsilons_of_other_promises_are_not_ranked(problem, network):
    removed = jdfl.DPSGD(lr=0.05, gradients=replace(CLIPPED, adjacency="add-remove"))
    nodes = jdfl.FedAvg(lr=0.05, updates=jdfl.Updates(clip=1.0, mechanism=jdfl.Gaussian(1.0)))
    entries = {"replaced": NOISY["D-PSGD"], "removed": removed, "nodes": nodes}
    found = jdfl.compare(entries, problem, network, epsilon=4.0, delta=DELTA, **OPTIONS)
    assert not any(cell.mark for row in found.grid().rows for cell in row)
    said = found.table()
    assert "Epsilons do not promise the same, so no method is ranked." in said
    for label, who in {"replaced": "one record (replace-one)", "nodes": "a whole node's data (replace-one)"}.items():
        assert f"{label}: for {who} against an observer of all messages" in said
    given = jdfl.compare(entries, problem, network, **OPTIONS)  # equal rounds, epsilon beside them
    assert "Epsilons do not promise the same. replaced" in given.table()
    assert any(cell.mark for row in given.grid().rows for cell in row)


def test_the_worst_seed_is_told(problem, network):
    found = jdfl.compare({"DO-ADP": NOISY["DO-ADP"]}, problem, network, **OPTIONS)
    assert found.epsilon is None
    told = [jdfl.account(run).epsilon for run in found.results["DO-ADP"]]
    assert found.privacy["DO-ADP"].epsilon == max(told) > min(told)
    assert "Noise is the least" not in found.table()
    assert "Epsilon is that of a whole run" in found.table()


def test_tuning_runs_have_the_noise_too_and_are_not_in_epsilon(problem, network):
    tune = jdfl.Tuning(keys=(70,), grids={"lr": [0.02, 0.05]}, extend=0)
    options = {**OPTIONS, "trials": (0,), "tuning": tune}
    entries = {"D-PSGD": NOISY["D-PSGD"]}
    known = plans(entries, terms(problem, network, (0,), STEPS, epsilon=0.5, delta=DELTA))["D-PSGD"].algorithm
    tuned = jdfl.compare(entries, problem, network, epsilon=0.5, delta=DELTA, **options)
    alone = jdfl.compare({"D-PSGD": known}, problem, network, **options)
    np.testing.assert_array_equal(tuned.tuning["mean"], alone.tuning["mean"])
    assert "Tuning looked at the same data, which is taken as public." in tuned.table()


def test_a_grid_from_the_curvature_leaves_no_epsilon_unless_that_is_public(problem, network):
    """The default grid of lr is an exact function of the records; a grid that somebody gives is none."""
    tune = jdfl.Tuning(keys=(70,), extend=0)
    options = {**OPTIONS, "trials": (0,), "budget": {"round": None}, "tuning": tune, "delta": DELTA}
    default, own = {"a": jdfl.DPSGD(gradients=CLIPPED)}, {"a": jdfl.Entry(NOISY["D-PSGD"], tune={"lr": [0.02, 0.05]})}
    with pytest.raises(ValueError, match="curvature") as error:
        jdfl.compare(default, problem, network, epsilon=1.0, **options)
    for remedy in ("problem.declared('tuning', 'curvature')", "--problem.public tuning,curvature", "tune={'lr'"):
        assert remedy in str(error.value)
    hidden = jdfl.compare(default, problem, network, **options)
    (run,) = hidden.results["a"]
    assert (run.guarantee.claimed, run.guarantee.derived, hidden.privacy) == (False, ("curvature",), {})
    assert "unless curvature is declared public: a." in hidden.table()
    known = jdfl.compare(default, problem.declared("tuning", "curvature"), network, epsilon=1.0, **options)
    assert known.results["a"][0].guarantee.public == ("tuning", "curvature")
    given = jdfl.compare(own, problem, network, epsilon=1.0, **options)
    assert given.results["a"][0].guarantee.public == ("tuning",)
    assert all(0.99 < found.privacy["a"].epsilon <= 1.0 for found in (known, given))


def test_default_grids_in_other_units_need_no_curvature(problem, network):
    """Around the present value, or of a step that is scaled already."""
    entries = {"own unit": NOISY["CEPS"], "rate of its own": jdfl.DPSGD(lr=0.1, optimizer=optax.sgd, gradients=CLIPPED)}
    made = plans(entries, terms(problem, network, (0,), STEPS, tune=jdfl.Tuning(keys=(70,))))
    assert {plan.derived for plan in made.values()} == {("tuning",)}
    lr = plans({"a": jdfl.DPSGD()}, terms(problem, network, (0,), STEPS, tune=jdfl.Tuning(keys=(70,))))["a"]
    assert lr.derived == ("tuning", "curvature")


@pytest.mark.parametrize(
    ("algorithm", "given", "words"),
    [
        (NOISY["D-PSGD"], {"epsilon": 0.0}, ["epsilon", "0.0"]),
        (NOISY["D-PSGD"], {"epsilon": 1.0, "delta": 0.5}, ["methods['a']", "delta"]),
        (NOISY["D-PSGD"], {"delta": 0.5}, ["methods['a']", "delta"]),
        (NOISY["CEPS"].replace(noise="literal"), {"epsilon": 1.0}, ["methods['a']", "noise"]),
        (
            jdfl.DPSGD(gradients=jdfl.Gradients(sensitivity=1.0, mechanism=jdfl.Gaussian(1.0))),
            {"epsilon": 1.0},
            ["methods['a']", "not clipped"],
        ),
    ],
    ids=["zero", "delta", "delta alone", "literal", "assumed"],
)
def test_what_cannot_be_promised_is_refused(algorithm, given, words, problem, network):
    with pytest.raises(ValueError) as error:
        jdfl.compare({"a": algorithm}, problem, network, **{**OPTIONS, **given})
    for word in words:
        assert word in str(error.value)


FILE = """
problem: {kind: example1, m: 6, n: 12, s: 2}
epsilon: 4.0
algorithms:
- {kind: d-psgd, clip: 5.0, mechanism: gaussian}
- {kind: dsgt, clip: 5.0, mechanism: {kind: laplace, multiplier: 3.0}}
"""


def test_multipliers_may_be_left_out_of_a_file_with_an_epsilon():
    entries, _, _, options = build(from_yaml(FILE))
    assert (options["epsilon"], options["delta"]) == (4.0, None)
    assert entries["d-psgd"].algorithm.gradients.mechanism == jdfl.Gaussian(1.0)
    with pytest.raises(ValueError, match="Expected a multiplier of the noise, got none"):
        build(from_yaml(FILE.replace("epsilon: 4.0", "")))
