"""What looks at records without noise leaves no epsilon, and what no noise covers is said to be so."""

import re

import numpy as np
import optax
import pytest

import jdfl
from jdfl import problems
from jdfl.config import PROBLEMS
from jdfl.engine.accountant import account, account_plan, calibrate
from jdfl.engine.spending import guarantee_of, unspent
from jdfl.privacy import DERIVED
from jdfl.results import folder as results
from tests.privacy.scene import DRAWN, NETWORK, NOISY, run
from tests.refused import refused


def test_preprocessing_leaves_no_epsilon_unless_all_of_it_is_public():
    derived = ("standardise", "holdout", "partition")
    problem, public = (
        problems.classification("breast_cancer", 4, partition="dirichlet", public=names) for names in ((), derived)
    )
    assert problem.derived == guarantee_of(NOISY, problem).derived == derived
    with refused("public", derived[0]):
        account_plan(NOISY, problem.declared(*derived[1:]), NETWORK(), steps=2)
    told = account_plan(NOISY, public, NETWORK(), steps=2)
    assert told.public == derived
    assert all(DERIVED[name] in told.statement() for name in derived)
    ledgers = [unspent(guarantee_of(NOISY, one), one) for one in (problem, public)]
    ledgers[0].check_same(ledgers[1])  # which speaks of noise alone
    assert ledgers[0].claimed


@pytest.mark.filterwarnings("ignore:The best lr", "ignore:Tuning chose")
def test_one_message_has_every_declaration_that_a_private_comparison_needs():
    """Its line is pasted, and the comparison runs; what was declared before stays."""
    X = np.random.default_rng(0).normal(size=(400, 3))
    problem = jdfl.from_arrays(X, X[:, 0] > 0, 4, standardise=True, partition="dirichlet").declared("stop")
    methods = {"a": jdfl.DPSGD(gradients=jdfl.Gradients(clip=1.0, mechanism=jdfl.Gaussian(1.0)))}
    how = {"steps": 2, "epsilon": 2.0, "trials": [0], "tuning": jdfl.Tuning(keys=(9,), extend=0)}
    with pytest.raises(ValueError, match="declared") as told:
        jdfl.compare(methods, problem, NETWORK(), **how)
    pasted = re.search(r"problem = (problem\.declared\(.*?\))", str(told.value))
    problem = eval(pasted[1], {"problem": problem})
    assert set(problem.public) == {"stop", "standardise", "holdout", "partition", "tuning", "curvature"}
    assert jdfl.compare(methods, problem, NETWORK(), **how).privacy["a"].epsilon <= 2.0


def test_all_names_may_be_declared_and_others_are_refused():
    assert DRAWN().declared(*DERIVED).public == tuple(DERIVED)
    with refused(*map(repr, DERIVED), public="everything"):
        DRAWN().declared("everything")
    assert PROBLEMS("classification", m=4, public="holdout, standardise").build().public == ("holdout", "standardise")


@pytest.mark.filterwarnings("ignore:Not tuned")
def test_a_stop_rule_on_data_leaves_no_epsilon_and_is_refused_where_one_is_asked_for():
    how = {"stop": jdfl.objective_below(-1.0), "every": 2}
    found = run(**how)
    with refused("stop rule"):
        account(found)
    # the noise is that of a run without the rule, so that one may go on as the other
    assert run(steps=4, every=2, resume=found).rounds == 4
    how = {"steps": 3, "stop": jdfl.objective_below(-1.0)}
    asked = how | {"epsilon": 1e6}
    for ask in (
        lambda on: account_plan(NOISY, on, NETWORK(), **how),
        lambda on: calibrate(NOISY, on, NETWORK(), **asked),
        lambda on: run(NOISY, on, callbacks=[jdfl.Budget(1e6)], **how),
        lambda on: jdfl.compare({"one": jdfl.Entry(NOISY, tune={})}, on, NETWORK(), trials=[0], **asked),
    ):
        with refused("stop rule", "--problem.public stop"):
            ask(DRAWN())
    assert account_plan(NOISY, DRAWN().declared("stop"), NETWORK(), **how).public == ("stop",)


LOCAL = jdfl.DPDO(epsilon=30.0, gradients=jdfl.Gradients(clip=1.0, per="batch"), c=0.1, q=0.5, p=0.9)
UPDATES = jdfl.DPSGD(lr=0.1, optimizer=optax.adam, updates=jdfl.Updates(clip=1.0, mechanism=jdfl.Gaussian(20.0)))


def test_the_end_of_a_private_run_depends_on_nothing_that_is_not_covered():
    features, targets = DRAWN().data
    huge = DRAWN().replace(data=(features, targets.at[0, 0].set(1e25)))  # its square, which adam keeps, is not finite
    found = [run(UPDATES, problem) for problem in (huge, huge.declared("stop"))]
    assert [(end.rounds, end.ending) for end in found] == [(2, "steps"), (1, "diverged")]
    with refused("stop rule"):
        account_plan(LOCAL, DRAWN(), NETWORK(), steps=2, stop=jdfl.consensus_below(1e-9))
    with refused("public = 'stop'", diverged_above=0.05):
        run(LOCAL, options=jdfl.Options(diverged_above=0.05))
    loud = run(options=jdfl.Options(diverged_above=1e-6))  # of what is released
    assert (loud.ending, account(loud).epsilon > 0) == ("diverged", True)


def test_a_callback_that_ends_a_run_leaves_no_epsilon():
    def enough(now):
        raise KeyboardInterrupt

    found = run(callbacks=[enough], options=jdfl.Options(chunk=1))
    assert (found.rounds, found.ending) == (1, "interrupted")
    with refused("callback"):
        account(found)


@pytest.mark.parametrize(("algorithm", "covered"), [(NOISY, True), (LOCAL, False)])
def test_saved_parameters_that_no_noise_covers_say_so(algorithm, covered, tmp_path):
    found = run(algorithm, every=2)
    told = account(found)
    results.begin_run(tmp_path, "")
    saved = results.end_run(tmp_path, found, delta=None, accounting="sound")
    assert (told.local == "") == covered
    for text in (told.statement(), (tmp_path / "summary.md").read_text()):
        assert ("saved parameters are not covered" not in text) == covered
        assert "void against an observer of the bits" in text
        assert "checkpoints, which hold the exact state" in text
        assert "node tables (nodes.csv, split.csv)" in text
    assert saved["privacy"]["outputs"]["parameters"].startswith("released" if covered else "local")
    exact = ("metrics", "tables of nodes", "state", "checkpoints")
    assert set(saved["privacy"]["outputs"]) == {"messages", "parameters", *exact}
    assert {saved["privacy"]["outputs"][name] for name in exact} == {"not covered"}
    with np.load(tmp_path / "params.npz") as arrays:
        assert ("coverage" not in arrays) == covered
