"""What several runs on the same data cost together: their total is that of one long run, and tables tell it."""

import json
from dataclasses import replace

import numpy as np
import pytest

import jdfl
from jdfl.cli import main
from jdfl.engine.accountant import account, ledger_of_run, spent_together
from jdfl.privacy import GaussianEvent, LaplaceEvent, Sampled, Sampling, epsilon, gaussian_epsilon
from jdfl.privacy.ledger import Ledger, compact, total_epsilon
from jdfl.privacy.report import Together
from jdfl.results.summary import summary
from tests.privacy.scene import DELTA, DRAWN, NETWORK, NOISY, run
from tests.refused import refused

LOUDER = replace(NOISY, gradients=replace(NOISY.gradients, mechanism=jdfl.Gaussian(8.0)))


def ledger(z, releases, *, noise=GaussianEvent, batch=None, looks=1, records=100, **fields):
    sampling = None if batch is None else Sampling("poisson", batch, looks)
    m = len(releases)
    given = {"unit": "record", "observer": "all messages", "claimed": True} | fields
    return Ledger(noise(z), "add-remove", sampling, np.array(releases), np.full(m, records), **given)


def test_gaussian_runs_are_one_whose_inverse_variances_add_up():
    found = total_epsilon([ledger(2.0, [3, 1]), ledger(5.0, [0, 10])], DELTA)
    assert found == gaussian_epsilon(np.sqrt(max(3 / 4, 1 / 4 + 10 / 25)), DELTA)
    # the most exposed node of all runs, not the sum of those of each
    assert total_epsilon([ledger(2.0, [3, 0]), ledger(2.0, [0, 3])], DELTA) == gaussian_epsilon(np.sqrt(3 / 4), DELTA)


def test_sampled_runs_that_are_alike_are_one_long_run():
    found = total_epsilon([ledger(1.0, [20], batch=5), ledger(1.0, [30], batch=5)], DELTA)
    sampled = Sampled("poisson", 5, 100)
    assert found == epsilon(GaussianEvent(1.0), 50, DELTA, sampled=sampled, adjacency="add-remove")
    # three looks at two samples of two looks each use up both of them, in each run
    both = total_epsilon([ledger(1.0, [3], batch=5, looks=2)] * 2, DELTA)
    looks = replace(sampled, looks=2)
    assert both == epsilon(GaussianEvent(1.0), 8, DELTA, sampled=looks, adjacency="add-remove")


def test_runs_that_are_not_alike_share_delta():
    ledgers = [ledger(1.0, [20], batch=5), ledger(3.0, [4], noise=LaplaceEvent), ledger(9.0, [2])]
    assert total_epsilon(ledgers, DELTA) == pytest.approx(sum(total_epsilon([one], DELTA / 3) for one in ledgers))
    assert total_epsilon(ledgers, DELTA) > max(total_epsilon([one], DELTA) for one in ledgers)


def test_failures_add_up_and_other_splits_count_at_the_most_exposed_node():
    runs = [ledger(2.0, [3], failure=4e-6)] * 2
    assert total_epsilon(runs, DELTA) == gaussian_epsilon(np.sqrt(6 / 4), DELTA - 8e-6)
    assert total_epsilon(runs * 2, DELTA) == np.inf
    assert "no epsilon together at delta = 1e-05" in Together.of(runs * 2, DELTA).statement()
    assert Together.of(runs * 2, DELTA).as_dict()["epsilon"] is None
    runs = [ledger(2.0, [3, 1]), ledger(2.0, [1, 2, 5])]
    assert total_epsilon(runs, DELTA) == gaussian_epsilon(np.sqrt(8 / 4), DELTA)
    one = compact(ledger(1.0, [3, 9], batch=5))
    assert (one.releases.tolist(), one.records.tolist()) == ([9], [100])
    assert Ledger.from_dict(json.loads(json.dumps(one.as_dict()))).releases.tolist() == [9]


def test_what_does_not_add_up_is_refused():
    with refused("ledgers[1]"):
        total_epsilon([ledger(1.0, [1]), ledger(1.0, [1], claimed=False)], DELTA)
    pair = [ledger(1.0, [1]), ledger(1.0, [1], unit="node")]
    with refused("node", "record"):
        total_epsilon(pair, DELTA)
    mixed = Together.of(pair, DELTA)
    assert (mixed.runs, mixed.epsilon, mixed.as_dict()["epsilon"]) == (2, None, None)
    assert "do not protect the same" in mixed.statement()
    assert Together.of([None, None], DELTA) is None
    assert "share a private key" in replace(mixed, shared=2).statement()
    assert Together.of([ledger(1.0, [1]), None], DELTA).silent == 1


def test_seeds_of_a_run_add_up_and_copies_count_once():
    runs = [run(steps=1, key=key) for key in (0, 1)]
    assert spent_together(runs)[0] == pytest.approx(gaussian_epsilon(np.sqrt(2) / 5, account(runs[0]).delta), rel=1e-3)
    one = spent_together(runs[:1])
    assert spent_together([runs[0], runs[0]]) == one
    assert one[0] == pytest.approx(account(runs[0]).epsilon, rel=1e-3)
    kept = summary(runs[0])["privacy"]["ledger"]
    assert Ledger.from_dict(kept).releases.tolist() == [int(ledger_of_run(runs[0]).releases.max())]
    with refused("stop rule"):  # after a round: that told of data
        spent_together([runs[0], run(stop=jdfl.objective_below(1e9))])
    with refused("no noise"):
        spent_together([*runs, run(jdfl.DPSGD(), steps=1)])


def test_nodes_of_other_splits_do_not_add_up():
    hidden = jdfl.FedAvg(lr=0.05, updates=jdfl.Updates(clip=1.0, mechanism=jdfl.Gaussian(5.0)))
    features, targets = DRAWN().data
    runs = [run(hidden, problem, steps=1) for problem in (DRAWN(), DRAWN().replace(data=(-features, targets)))]
    with refused("same data", "nodes"):
        spent_together(runs)
    assert spent_together(runs[:1])[0] > 0


def test_what_is_tuned_has_no_epsilon():
    entries = {"tuned": jdfl.Entry(NOISY, tune={"lr": [0.01, 0.02]}), "given": jdfl.Entry(LOUDER, tune={})}
    how = {"trials": [0], "steps": 1, "metrics": ["objective"], "tuning": jdfl.Tuning(keys=(5,), extend=0)}
    how |= {"budget": {"round": None}}
    with pytest.warns(UserWarning, match="lies|edge|tuned|grid"):
        hidden = jdfl.compare(entries, DRAWN(), NETWORK(), **how)
    assert set(hidden.privacy) == {"given"}
    assert {one.guarantee.derived for one in hidden.results["tuned"]} == {("tuning",)}
    assert (hidden.together.runs, hidden.together.silent) == (1, 1)
    assert hidden.together.statement() in " ".join(hidden.table().split())
    assert hidden.together.epsilon == pytest.approx(spent_together(hidden.results["given"])[0])


def test_a_record_may_be_at_the_most_exposed_node_of_every_trial():
    """In data that every trial redraws a node's releases in one trial say nothing of its records in the others."""
    uneven = [ledger(2.0, [3, 0]), ledger(2.0, [0, 3])]
    assert Together.of(uneven, DELTA).epsilon == gaussian_epsilon(np.sqrt(3 / 4), DELTA)
    assert Together.of(uneven, DELTA, same_data=False).epsilon == gaussian_epsilon(np.sqrt(6 / 4), DELTA)
    nodes = [ledger(1.0, [1, 3], unit="node"), ledger(1.0, [3, 1], unit="node")]
    assert Together.of(nodes, DELTA).epsilon > 0
    assert Together.of(nodes, DELTA, same_data=False).epsilon is None

    def drawn(seed):
        return jdfl.problems.example1(m=4, n=12, s=2, rows=(8, 12), seed=seed)

    wakes_at_random = jdfl.DOADP(gradients=jdfl.Gradients(clip=1.0, mechanism=jdfl.Gaussian(5.0)))
    how = {"trials": 2, "steps": 9, "tuning": None, "metrics": ["objective"]}
    with pytest.warns(UserWarning, match="Not tuned"):
        found = jdfl.compare({"a": wakes_at_random}, drawn, NETWORK(), **how)
    ledgers = [ledger_of_run(run) for run in found.results["a"]]
    assert found.together.epsilon == pytest.approx(spent_together(found.results["a"])[0])
    assert Together.of(ledgers, found.together.delta).epsilon < found.together.epsilon


def test_a_study_tells_its_sum(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    flags = "--problem.m 4 --problem.n 12 --problem.s 2 --problem.rows 8 12 --stop none --algorithm d-psgd --steps 2"
    flags += " --algorithm.mechanism gaussian --algorithm.clip 1 --algorithm.mechanism.multiplier 5"
    assert main(["sweep", *flags.split(), "--over", "algorithm.lr=0.01,0.02", "--seeds", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["together"]
    expected = gaussian_epsilon(np.sqrt(4 * 2 / 25), found["delta"])
    assert (found["runs"], found["epsilon"]) == (4, pytest.approx(expected, rel=1e-6))
    (folder,) = (tmp_path / "runs").iterdir()
    assert Together(4, 0, expected, found["delta"]).statement("of all 2 points") in (folder / "table.md").read_text()
    assert "cost (1.001, 1e-05) together" in Together(2, 0, 1.0001, DELTA).statement()  # never below the bound
