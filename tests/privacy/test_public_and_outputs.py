"""What looks at records without noise leaves no epsilon, and what no noise covers is said to be so."""

import json
from dataclasses import replace

import jax
import numpy as np
import optax
import pytest

import jdfl
from jdfl import problems
from jdfl.cli import main
from jdfl.config import PROBLEMS
from jdfl.engine.accountant import account, account_plan, calibrate
from jdfl.engine.spending import guarantee_of, unspent
from jdfl.lab import results
from jdfl.lab.summary import summary
from jdfl.privacy import DERIVED
from tests.later import Later

NETWORK = Later(jdfl.network.ring, 4)
DRAWN = Later(problems.example1, m=4, n=8, s=2, rows=(5, 8))
NOISY = jdfl.DPSGD(lr=0.01, gradients=jdfl.Gradients(clip=1.0, mechanism=jdfl.Gaussian(4.0)))
CEPS = jdfl.CEPS(s=2, clip=5.0, mechanism=jdfl.Gaussian(4.0))


def cancer(**how):
    return problems.classification("breast_cancer", 4, **how)


@pytest.mark.parametrize(
    ("how", "derived"),
    [
        ({}, ("standardise", "holdout")),
        ({"test_fraction": 0}, ("standardise",)),
        ({"partition": "shards", "test_fraction": 0}, ("standardise", "partition")),
        ({"partition": "dirichlet"}, ("standardise", "holdout", "partition")),
    ],
)
def test_preprocessing_leaves_no_epsilon_unless_all_of_it_is_public(how, derived):
    problem = cancer(**how)
    assert problem.derived == derived
    assert guarantee_of(NOISY, problem).derived == derived
    with pytest.raises(ValueError, match=f"No epsilon can be given: .*public = '{','.join(derived)}'"):
        account_plan(NOISY, problem, NETWORK(), steps=2)
    with pytest.raises(ValueError, match="No epsilon can be given"):
        account_plan(NOISY, problem.declared(*derived[1:]), NETWORK(), steps=2)
    told = account_plan(NOISY, cancer(**how, public=derived), NETWORK(), steps=2)
    assert told.public == derived
    assert all(DERIVED[name] in told.statement() for name in derived)


def test_names_that_are_not_known_are_refused():
    with pytest.raises(ValueError, match="public"):
        DRAWN().declared("everything")
    with pytest.raises(ValueError, match="public"):
        PROBLEMS("classification", m=4, public="holdouts").build()
    assert PROBLEMS("classification", m=4, public="holdout, standardise").build().public == ("holdout", "standardise")


def test_curvature_of_the_nodes_leaves_no_epsilon():
    with pytest.raises(ValueError, match=r"No epsilon can be given: .*curvature"):
        account_plan(CEPS, DRAWN(), NETWORK(), steps=2)
    own = account_plan(CEPS, DRAWN().declared("curvature"), NETWORK(), steps=2)
    given = account_plan(replace(CEPS, sigma=1.0), DRAWN(), NETWORK(), steps=2)
    assert (own.epsilon, own.public, given.public) == (given.epsilon, ("curvature",), ())


def test_a_stop_rule_on_data_leaves_no_epsilon():
    how = {"steps": 3, "stop": jdfl.objective_below(-1.0), "every": 3}
    found = jdfl.run(NOISY, DRAWN(), NETWORK(), **how)
    with pytest.raises(ValueError, match=r"No epsilon can be given: .*stop rule"):
        account(found)
    assert account(jdfl.run(NOISY, DRAWN().declared("stop"), NETWORK(), **how)).public == ("stop",)
    # the noise is that of a run without the rule, so that one may go on as the other
    assert jdfl.run(NOISY, DRAWN(), NETWORK(), steps=4, every=3, resume=found).rounds == 4


@pytest.mark.filterwarnings("ignore:Not tuned")
def test_a_stop_rule_on_data_is_refused_before_there_is_a_run():
    how = {"steps": 3, "stop": jdfl.objective_below(-1.0)}
    asked = how | {"epsilon": 1e6}
    for ask in (
        lambda on: account_plan(NOISY, on, NETWORK(), **how),
        lambda on: calibrate(NOISY, on, NETWORK(), **asked),
        lambda on: jdfl.run(NOISY, on, NETWORK(), callbacks=[jdfl.Budget(1e6)], **how),
        lambda on: jdfl.compare({"one": jdfl.Entry(NOISY, tune={})}, on, NETWORK(), trials=[0], **asked),
    ):
        with pytest.raises(ValueError, match=r"stop rule.*--problem.public stop"):
            ask(DRAWN())
        ask(DRAWN().declared("stop"))


def test_the_ledger_speaks_of_noise_alone():
    hidden, public = cancer(), cancer(public=("standardise", "holdout"))
    ledgers = [unspent(guarantee_of(NOISY, problem), problem) for problem in (hidden, public)]
    ledgers[0].check_same(ledgers[1])
    assert ledgers[0].claimed


PEDFL = jdfl.PEDFL(
    lr=0.02,
    gradients=jdfl.Gradients(clip=1.0, per="batch", norm="l1"),
    dpps=jdfl.DPPS(b=1.0, noise_rate=1e-3),
)
DPDO = jdfl.DPDO(epsilon=30.0, gradients=jdfl.Gradients(clip=1.0, per="batch"))


LOCAL = DPDO.replace(c=0.1, q=0.5, p=0.9)
UPDATES = jdfl.DPSGD(lr=0.1, optimizer=optax.adam, updates=jdfl.Updates(clip=1.0, mechanism=jdfl.Gaussian(20.0)))


def test_a_stop_rule_on_parameters_that_are_not_covered_leaves_no_epsilon():
    how = {"steps": 2, "stop": jdfl.consensus_below(1e-9)}
    account(jdfl.run(NOISY, DRAWN(), NETWORK(), **how))  # looks at what is released
    with pytest.raises(ValueError, match=r"No epsilon can be given: .*stop rule"):
        account(jdfl.run(LOCAL, DRAWN(), NETWORK(), **how))
    with pytest.raises(ValueError, match=r"No epsilon can be given: .*stop rule"):
        account_plan(LOCAL, DRAWN(), NETWORK(), **how)


def test_the_end_of_a_private_run_depends_on_nothing_that_is_not_covered():
    features, targets = DRAWN().data
    huge = DRAWN().replace(data=(features, targets.at[0, 0].set(1e25)))  # its square, which adam keeps, is not finite
    ends = {
        name: jdfl.run(UPDATES, problem, NETWORK(), steps=3, metrics=[])
        for name, problem in {"one": DRAWN(), "other": huge, "public": huge.declared("stop")}.items()
    }
    assert {name: (end.rounds, end.ending) for name, end in ends.items()} == {
        "one": (3, "steps"),
        "other": (3, "steps"),
        "public": (1, "diverged"),
    }
    assert account(ends["one"], delta=1e-3).epsilon == account(ends["other"], delta=1e-3).epsilon
    with pytest.raises(ValueError, match=r"diverged_above = 0.05.*public = 'stop'"):
        jdfl.run(LOCAL, DRAWN(), NETWORK(), steps=1, options=jdfl.Options(diverged_above=0.05))
    loud = jdfl.run(
        NOISY, DRAWN(), NETWORK(), steps=3, metrics=[], options=jdfl.Options(diverged_above=1e-6)
    )  # of what is released
    assert (loud.ending, account(loud).epsilon > 0) == ("diverged", True)
    lanes = jdfl.sweep(UPDATES, huge, NETWORK(), over={"lr": [0.1]}, steps=3, metrics=[])
    assert (lanes[0].rounds, lanes[0].ending) == (3, "steps")


def test_a_callback_that_ends_a_run_leaves_no_epsilon():
    def enough(now):
        if now.row["objective"] < 1e9:
            raise KeyboardInterrupt

    found = jdfl.run(NOISY, DRAWN(), NETWORK(), steps=3, callbacks=[enough], options=jdfl.Options(chunk=1))
    assert (found.rounds, found.ending) == (1, "interrupted")
    with pytest.raises(ValueError, match=r"No epsilon can be given: .*callback"):
        account(found)


@pytest.mark.parametrize(("algorithm", "covered"), [(NOISY, True), (PEDFL, False), (DPDO, False)])
def test_saved_parameters_that_no_noise_covers_say_so(algorithm, covered, tmp_path):
    found = jdfl.run(algorithm, DRAWN(), NETWORK(), steps=2, every=2)
    told = account(found)
    results.begin_run(tmp_path, "")
    saved = results.end_run(tmp_path, found, delta=None, accounting="sound")
    words = "saved parameters are not covered"
    assert (told.local == "") == covered
    assert (words not in told.statement()) == covered
    assert (words not in (tmp_path / "summary.md").read_text()) == covered
    assert saved["privacy"]["outputs"]["parameters"].startswith("released" if covered else "local")
    exact = ("metrics", "tables of nodes", "state", "checkpoints")
    assert set(saved["privacy"]["outputs"]) == {"messages", "parameters", *exact}
    assert {saved["privacy"]["outputs"][name] for name in exact} == {"not covered"}
    with np.load(tmp_path / "params.npz") as arrays:
        assert ("coverage" not in arrays) == covered


def test_every_statement_names_the_arithmetic_and_the_metrics():
    told = summary(jdfl.run(NOISY, DRAWN(), NETWORK(), steps=1))["privacy"]["statement"]
    assert told.count("real arithmetic") == 1
    assert "void against an observer of the bits" in told
    assert "exact objectives" in told
    assert "checkpoints, which hold the exact state" in told
    assert "node tables (nodes.csv, split.csv)" in told


def test_a_checkpoint_holds_what_no_noise_covers(tmp_path):
    """The momentum of noise in updates is that of exact gradients."""
    noisy = jdfl.Updates(clip=1.0, mechanism=jdfl.Gaussian(4.0))
    algorithm = jdfl.DPSGD(lr=0.1, optimizer=lambda lr: optax.sgd(lr, momentum=0.9), updates=noisy)
    found = jdfl.run(algorithm, DRAWN(), NETWORK(), steps=1)
    assert account(found).local == ""
    folder = results.write_run(tmp_path / "run", found)
    state = jdfl.read_checkpoint(folder, algorithm, DRAWN(), NETWORK()).state
    (momentum,) = jax.tree.leaves(state.optimizer)
    np.testing.assert_allclose(momentum, DRAWN().gradients(DRAWN().begin()), rtol=1e-5)
    assert json.loads((folder / "summary.json").read_text())["privacy"]["outputs"]["checkpoints"] == "not covered"


def test_all_names_may_be_declared_and_are_told_by_the_help(capsys):
    assert DRAWN().declared(*DERIVED).public == tuple(DERIVED)
    with pytest.raises(ValueError, match="'tuning', 'stop', got public = 'rate'"):
        DRAWN().declared("rate")
    assert main(["run", "--problem.public", "--help"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert all(name in told for name in DERIVED)
