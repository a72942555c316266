"""Runs side by side have the networks of runs alone: faults, delays and times of every kind, seed by seed."""

import numpy as np
import pytest

import jdfl
from jdfl import network as nw
from tests.later import Later, Named
from tests.toy import Gossip, M, problem

SEEDS, STEPS = [3, 8], 14
BASE = Later(nw.erdos_renyi, M)
BURSTY = Later(lambda: nw.bursty_loss(BASE(), 0.3, 0.2))
KINDS = Named(
    {
        "fixed": BASE,
        "periodic": lambda: nw.one_peer_exponential(M),
        "choice": lambda: nw.random_choice([BASE(), nw.ring(M)]),
        "links": lambda: nw.random_links(BASE(), 0.5),
        "neighbours": lambda: nw.random_neighbours(M, 2),
        "pairs": lambda: nw.random_matching(M),
        "offsets": lambda: nw.equi_rounds(M),
        "matchings": lambda: nw.matcha(BASE(), 0.5),
        "partial": lambda: nw.partial_communication(BASE(), 0.5),
        "synchronised": lambda: nw.synchronised(nw.random_links(BASE(), 0.5), 3),
        "loss": lambda: nw.link_loss(BASE(), 0.4),
        "bursts": BURSTY,
        "bursts each way": lambda: nw.bursty_loss(BASE(), 0.3, 0.2, good=0.1, bad=0.8, directed=True, weights="sender"),
        "bursts in bursts": lambda: nw.bursty_loss(BURSTY(), 0.2, 0.3),
        "participation": lambda: nw.node_participation(BASE(), 0.5),
        "outages": lambda: nw.bursty_loss(nw.outages(BASE(), 0.3, 0.4), 0.3, 0.2),
        "membership": lambda: nw.membership(BASE(), joins=[0, 0, 0, 3, 4, 5], leaves=[9] + [20] * 5),
        "delays": lambda: nw.bursty_loss(nw.delays(BASE(), 3), 0.3, 0.2),
        "times": lambda: nw.timed(BURSTY(), nw.ExponentialTime(1.0), latency=nw.ParetoTime(1.0, 2.5)),
    }
)
OTHERS = {"delays": jdfl.DPSGD(lr=0.05), "bursts each way": jdfl.SGP(lr=0.05)}  # take what the toy does not


@pytest.mark.rotated(16)
@pytest.mark.parametrize("kind", KINDS)
def test_a_repeated_run_is_the_run_of_its_seed(kind):
    algorithm = OTHERS.get(kind, Gossip(mechanism=jdfl.Gaussian(0.1)))
    options = {"steps": STEPS, "every": STEPS, "metrics": ["consensus_error"]}
    lanes = jdfl.repeat(algorithm, problem(), KINDS[kind], keys=SEEDS, batch=2, **options)
    for lane, seed in zip(lanes, SEEDS, strict=True):
        alone = jdfl.run(algorithm, problem(), KINDS[kind], key=seed, **options)
        assert lane.totals == alone.totals
        np.testing.assert_array_equal(lane.communication_rounds, alone.communication_rounds)
        np.testing.assert_allclose(lane.params, alone.params, rtol=1e-5, atol=1e-5)
        if "seconds" in alone.history:
            np.testing.assert_allclose(lane.history["seconds"], alone.history["seconds"], rtol=1e-5)
    assert not np.allclose(lanes[0].params, lanes[1].params, atol=1e-2)
