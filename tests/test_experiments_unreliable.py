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
