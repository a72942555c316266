"""Comparisons at equal epsilon: enough noise for every seed, no more than that, and tables that tell what was spent."""

from dataclasses import replace

import numpy as np
import pytest

import jdfl
from jdfl.config import from_yaml
from jdfl.lab.entries import calibrated, plans
from jdfl.lab.settings import CompareConfig, build
from tests.later import Later
from tests.refused import refused
from tests.toy import terms

pytestmark = pytest.mark.filterwarnings("ignore:Not tuned", "ignore:The best")
KEYS, STEPS, DELTA = (0, 1, 2), 8, 1e-5
CLIPPED = jdfl.Gradients(clip=5.0, mechanism=jdfl.Gaussian(1.0))
PLAIN = jdfl.DPSGD(lr=0.05, gradients=CLIPPED)
NOISY = {
    "D-PSGD": PLAIN,
    "CEPS": jdfl.CEPS(s=2, sigma=4.0, clip=5.0, mechanism=jdfl.Gaussian(1.0), codec=jdfl.Dense()),
    "DO-ADP": jdfl.DOADP(gradients=CLIPPED),
}
OPTIONS = {"trials": KEYS, "steps": STEPS, "tuning": None, "metrics": ["objective"], "delta": DELTA}
PROBLEM = Later(lambda: jdfl.problems.example1(m=6, n=12, s=2).declared("tuning"))
NETWORK = Later(jdfl.network.ring, 6)


def compare(methods, **changes):
    return jdfl.compare(methods, PROBLEM(), NETWORK(), **OPTIONS | changes)


def shared(keys=KEYS, **more):
    return terms(PROBLEM(), NETWORK(), keys, STEPS, **more)


def test_the_noise_is_the_least_that_suffices_for_every_seed():
    given = shared(epsilon=4.0, delta=DELTA)
    asked = {"problem": PROBLEM(), "network": NETWORK(), "steps": STEPS, "delta": DELTA}
    for plan in plans({label: NOISY[label] for label in ("D-PSGD", "DO-ADP")}, shared()).values():
        found = calibrated(plan, given)
        told = [jdfl.account_plan(found, key=key, **asked).epsilon for key in KEYS]
        assert 3.99 < max(told) <= 4.0
        assert calibrated(plan, replace(given, epsilon=None)) is plan.algorithm
        if plan.algorithm is NOISY["DO-ADP"]:  # seeds that release less need less
            least = KEYS[told.index(min(told))]
            assert min(told) < max(told)
            own = replace(plan, trials=tuple(trial for trial in plan.trials if trial.key == least))
            alone = calibrated(own, shared((least,), epsilon=4.0, delta=DELTA))
            assert alone.gradients.mechanism.multiplier < found.gradients.mechanism.multiplier


def test_tables_tell_what_was_spent_and_who_stands_beside(undrawn, tmp_path):
    with pytest.warns(UserWarning, match=r"Noise not set for epsilon: exact\."):
        found = compare({"D-PSGD": PLAIN, "exact": jdfl.DPSGD(lr=0.05)}, epsilon=4.0)
    assert list(found.privacy) == ["D-PSGD"]
    assert 3.99 < found.privacy["D-PSGD"].epsilon <= 4.0
    assert "(4, 1e-05)-differential privacy for one record" in repr(found.privacy["D-PSGD"]).splitlines()[0]
    assert len(repr(found.privacy["D-PSGD"]).splitlines()) <= 12
    assert [row[3].text for row in found.grid().rows] == ["4", "none"]
    assert [row[4].mark for row in found.grid().rows] == ["best", ""]
    above = replace(found, privacy={"D-PSGD": replace(found.privacy["D-PSGD"], epsilon=4.00001)})
    assert above.grid().rows[0][3].text == "4.001"
    said = " ".join(found.table().split())
    assert "least for epsilon ≤ 4; not held to it: exact. Epsilon is that of a whole run" in said
    assert "delta = 1e-05" in said
    page = (found.save(tmp_path / "found") / "report.html").read_text()
    assert "least for epsilon ≤ 4" in page
    assert found.privacy["D-PSGD"].statement().splitlines()[0].removeprefix("- ")[:40] in page
    away = replace(found.privacy["D-PSGD"], adjacency="add-remove")  # another promise
    both = replace(found, privacy={"D-PSGD": found.privacy["D-PSGD"], "exact": away})
    assert not any(cell.mark for row in both.grid().rows for cell in row)
    said = " ".join(both.table().split())
    assert "Epsilons do not promise the same, so no method is ranked." in said
    assert "D-PSGD: for one record (replace-one) against an observer of all messages" in said
    given = replace(both, epsilon=None)  # equal rounds, epsilon beside them
    assert "Epsilons do not promise the same. D-PSGD" in " ".join(given.table().split())
    assert any(cell.mark for row in given.grid().rows for cell in row)


def test_the_worst_seed_is_told():
    found = compare({"DO-ADP": NOISY["DO-ADP"]})
    assert found.epsilon is None
    told = [jdfl.account(run, delta=DELTA).epsilon for run in found.results["DO-ADP"]]
    assert found.privacy["DO-ADP"].epsilon == max(told) > min(told)
    assert "Noise is the least" not in " ".join(found.table().split())
    assert "Epsilon is that of a whole run" in " ".join(found.table().split())


def test_tuning_runs_have_the_noise_too_and_are_not_in_epsilon():
    tune = jdfl.Tuning(keys=(70,), grids={"lr": [0.02, 0.05]}, extend=0)
    known = plans({"D-PSGD": PLAIN}, shared((0,), epsilon=0.5, delta=DELTA))["D-PSGD"].algorithm
    how = {"trials": (0,), "tuning": tune, "budget": {"round": None}}
    tuned = compare({"D-PSGD": PLAIN}, epsilon=0.5, **how)
    alone = compare({"D-PSGD": known}, **how)
    np.testing.assert_array_equal(tuned.tuning["mean"], alone.tuning["mean"])
    assert "Tuning looked at the same data, which is taken as public." in " ".join(tuned.table().split())
    (run,) = tuned.results["D-PSGD"]
    assert run.guarantee.public == ("tuning",)
    assert 0.49 < tuned.privacy["D-PSGD"].epsilon <= 0.5


def test_a_grid_from_the_curvature_leaves_no_epsilon_unless_that_is_public():
    """The default grid of lr is an exact function of the records; a grid that somebody gives is none."""
    tune = jdfl.Tuning(keys=(70,), extend=0)
    options = {**OPTIONS, "trials": (0,), "budget": {"round": None}, "tuning": tune}
    default = {"a": jdfl.DPSGD(gradients=CLIPPED)}
    remedies = ("problem.declared('curvature')", "--problem.public tuning,curvature", "tune={'lr'")
    with refused("curvature", *remedies):
        compare(default, **options, epsilon=1.0)
    hidden = compare(default, **options)
    (run,) = hidden.results["a"]
    assert (run.guarantee.claimed, run.guarantee.derived, hidden.privacy) == (False, ("curvature",), {})
    assert "unless curvature is declared public: a." in " ".join(hidden.table().split())
    known = jdfl.compare(default, PROBLEM().declared("curvature"), NETWORK(), epsilon=1.0, **options)
    assert known.results["a"][0].guarantee.public == ("tuning", "curvature")
    assert 0.99 < known.privacy["a"].epsilon <= 1.0
    units = plans(default | {"own unit": NOISY["CEPS"]}, shared((0,), tune=tune))
    assert [plan.derived for plan in units.values()] == [("tuning", "curvature"), ("tuning",)]


def test_what_cannot_be_promised_is_refused():
    assumed = jdfl.DPSGD(gradients=jdfl.Gradients(sensitivity=1.0, mechanism=jdfl.Gaussian(1.0)))
    for algorithm, given, *names in (
        (PLAIN, {"epsilon": 0.0}, "epsilon = 0.0"),
        (PLAIN, {"epsilon": 1.0, "delta": 0.5}, "methods['a']", "delta"),
        (PLAIN, {"delta": 0.5}, "methods['a']", "delta"),
        (NOISY["CEPS"].replace(noise="literal"), {"epsilon": 1.0}, "methods['a']", "noise"),
        (assumed, {"epsilon": 1.0}, "methods['a']", "clipped"),
    ):
        with refused(*names):
            compare({"a": algorithm}, **given)


def test_multipliers_may_be_left_out_of_a_file_with_an_epsilon():
    file = """
problem: {kind: example1, m: 6, n: 12, s: 2}
epsilon: 4.0
algorithms:
- {kind: d-psgd, clip: 5.0, mechanism: gaussian}
- {kind: dsgt, clip: 5.0, mechanism: {kind: laplace, multiplier: 3.0}}
"""
    entries, _, _, options = build(from_yaml(file, CompareConfig))
    assert (options["epsilon"], options["delta"]) == (4.0, None)
    assert entries["d-psgd"].algorithm.gradients.mechanism == jdfl.Gaussian(1.0)
    with refused("multiplier"):
        build(from_yaml(file.replace("epsilon: 4.0", ""), CompareConfig))
