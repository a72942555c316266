"""What the scripts on unreliable networks read off records, and (slow) what their tables must show."""

import numpy as np
import pandas as pd
import pytest

import jdfl
from experiments import ceps_stragglers, unreliable


def records(seconds, objective):
    return pd.DataFrame(
        {
            "round": range(len(seconds)),
            "network_seconds": seconds,
            "objective": objective,
            "nodes_objective": objective,
            "messages": np.arange(len(seconds)) * 7,
        }
    )


def test_what_is_spent_until_the_objective_has_fallen():
    history = records([0.0, 2.0, 5.0, 6.0], [10.0, 4.0, 0.9, 0.5])
    assert ceps_stragglers.until(history, "network_seconds") == 5.0
    assert ceps_stragglers.until(history, "messages") == 14
    assert np.isnan(ceps_stragglers.until(history.iloc[:2], "round"))


def test_values_at_equal_seconds_are_those_of_the_last_record_before():
    quick, slow = records([1.0, 30.0, 31.0], [9.0, 8.0, 7.0]), records([40.0, 200.0, 300.0], [9.0, 3.0, 1.0])
    rows = {(one.case, one.column): one.mean for one in unreliable.at_seconds({"quick": [quick], "slow": [slow]})}
    assert unreliable.SECONDS == (30, 100, 300, 1000)
    assert [rows["quick", f"after {budget} s"] for budget in unreliable.SECONDS] == [8.0, 7.0, 7.0, 7.0]
    assert [rows["slow", f"after {budget} s"] for budget in unreliable.SECONDS] == [9.0, 9.0, 1.0, 1.0]
    assert rows["slow", "s per round"] == 150.0


def test_bursts_lose_as_much_as_single_losses():
    base = jdfl.network.ring(5)
    net = unreliable.lost(base, "D-PSGD", 0.3, bursts=True)
    assert float(net.to_bad / (net.to_bad + net.to_good)) == pytest.approx(0.3)
    assert float(1 / net.to_good) == pytest.approx(unreliable.BURST)
    assert (net.weights, unreliable.lost(base, "SGP", 0.3, bursts=False).weights) == ("own", "sender")
    assert unreliable.lost(base, "SGP", 0.0, bursts=False) is base


def test_who_refuses_lost_messages_is_found_by_asking():
    problem = jdfl.problems.example1(6, 20, 3, (8, 12))
    lossy = jdfl.network.link_loss(jdfl.network.ring(6), 0.1)
    found = set(unreliable.refused(problem, lossy))
    assert {"choco-sgd", "dcd-psgd", "extra", "nids", "do-adp", "fedavg"} <= found
    assert not {"ceps", "d-psgd", "dsgt", "iht-d-psgd", "local-only", "matcha"} & found


def test_the_verdict_sets_the_first_beside_a_random_few_seed_by_seed():
    def reaches(seconds):
        return records([0.0, seconds], [10.0, 0.5])

    histories = {("Pareto", "random fifth"): [reaches(50.0), reaches(9.0)]}
    histories["Pareto", "first fifth"] = [reaches(10.0), reaches(6.0)]
    assert ceps_stragglers.sooner(histories, "Pareto", "first fifth") == [5.0, 1.5]
    (told,) = ceps_stragglers.verdict(histories)
    assert told.startswith("Pareto times: the first fifth is 1.5 to 5 times as fast as a random fifth")
