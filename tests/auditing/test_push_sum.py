"""Push-sum with noise under attack: messages hide what they are said to hide, and local parameters are not shown."""

import math
from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest

import jdfl
from experiments.privacy_audit import Quiet, Unclipped
from jdfl.algorithms.program import Program, planned
from jdfl.auditing import Audit, audit
from jdfl.auditing.observe import watched
from jdfl.base import struct
from tests.auditing.test_audit import NETWORK, PROBLEM, M, N

STEPS, RUNS, SHARE = 4, 12_000, 0.5
CLIPPED = jdfl.Gradients(clip=1.0, per="batch", norm="l1")
NOISY = jdfl.DPPS(b=SHARE, noise_rate=1.0)
ALONG = np.eye(N, dtype=np.float32)[[3, 11]].sum(axis=0)  # a parameter that is shared, and one that is local
PAIR = ((ALONG, 1e4), (ALONG, -1e4))


def attacked(algorithm: Any, problem: Any = None, **options: Any) -> Audit:
    return audit(
        algorithm, PROBLEM() if problem is None else problem, NETWORK(), **({"steps": STEPS, "runs": RUNS} | options)
    )


def passes(told: Audit, sends: int) -> None:
    """Not refuted, and not by the attack's weakness: the sum of so many messages is told apart as well as it can be."""
    best = SHARE * math.sqrt(sends / 2)  # Laplace noise of scale 1 / SHARE has sqrt(2) times that standard deviation
    assert told.claimed
    assert told.mu_accounted is None  # Laplace noise
    assert not told.violated
    assert told.epsilon_lower <= told.epsilon_accounted
    assert told.mu_low <= best
    assert 0.9 * best < told.mu_hat < 1.1 * best


@pytest.mark.rotated(2)
@pytest.mark.parametrize("kind", [jdfl.SGP, jdfl.PEDFL], ids=lambda kind: kind.__name__)
def test_steps_over_noisy_messages_pass(kind):
    """Over the complete network all distances are two steps, so that every message costs SHARE."""
    algorithm = kind(gradients=CLIPPED, dpps=NOISY)
    told, sends = attacked(algorithm), STEPS if kind is jdfl.SGP else STEPS - 1  # PEDFL's last step is not sent
    passes(told, sends)
    assert told.releases == STEPS
    pure = jdfl.account_plan(algorithm, PROBLEM(), NETWORK(), steps=STEPS).epsilon_pure
    assert (1 - 2e-4) * sends * SHARE < pure < (1 + 1e-5) * sends * SHARE  # distances allow for rounding


def test_average_consensus_tells_of_a_vector_once():
    told = attacked(jdfl.AverageConsensus(clip=5.0, dpps=NOISY), runs=4 * RUNS)  # of one message alone
    passes(told, 1)
    assert told.epsilon_accounted == pytest.approx(SHARE, rel=1e-3)


@struct.dataclass
class Bare(jdfl.PartPSP):
    """PartPSP that shows its local parameters."""

    def visible(self, state: Any) -> Any:
        """All parameters."""
        return self.params(state)


@pytest.mark.slow
def test_local_parameters_are_not_shown():
    """They are trained without noise: whoever saw them would tell the two worlds apart for certain."""
    algorithm, problem = jdfl.PartPSP(gradients=CLIPPED, dpps=NOISY), PROBLEM().replace(shared=8)
    told = attacked(algorithm, problem, canary=PAIR)
    passes(told, STEPS)
    assert attacked(Bare(gradients=CLIPPED, dpps=NOISY), problem, canary=PAIR, runs=4000).violated
    program = watched(planned(algorithm, problem, NETWORK(), 3))
    result = jdfl.run(program.algorithm, problem, NETWORK(), key=0, steps=2, metrics=[])
    shown = np.asarray(program.visible(result.state))
    assert shown.shape == (M, N)
    assert not shown[:, 8:].any()
    np.testing.assert_array_equal(shown[:, :8], result.state.shared.sent)
    assert np.asarray(result.params)[:, 8:].any()


def test_what_is_shown_are_the_messages():
    program = watched(planned(jdfl.PEDFL(gradients=CLIPPED, dpps=NOISY), PROBLEM(), NETWORK(), 3))
    result = jdfl.run(program.algorithm, PROBLEM(), NETWORK(), key=0, steps=3, metrics=[])
    W = np.asarray(jdfl.network.as_dense(NETWORK().graph))
    shown = np.asarray(program.visible(result.state))
    np.testing.assert_allclose(W @ shown, result.state.mixed.s, rtol=1e-4, atol=1e-4)
    assert watched(Program(jdfl.DPSGD())) == Program(jdfl.DPSGD())
    unwatched = jdfl.run(jdfl.SGP(gradients=CLIPPED, dpps=NOISY), PROBLEM(), NETWORK(), key=0, steps=3, metrics=[])
    assert jax.tree.leaves(unwatched.state.sent) == []


@pytest.mark.parametrize(
    "algorithm",
    [
        Unclipped(gradients=CLIPPED, dpps=NOISY),
        jdfl.SGP(gradients=CLIPPED, dpps=Quiet(b=SHARE, noise_rate=1.0)),
    ],
    ids=["unclipped", "a tenth of the noise"],
)
def test_less_than_is_reported_is_caught(algorithm):
    told = attacked(algorithm, runs=4000)
    assert not told.claimed  # a step or a protocol of a user's own proves nothing
    assert told.violated
    assert "VIOLATED" in told.statement()


@pytest.mark.parametrize("source", ["eq22", "real"])
def test_what_claims_nothing_is_not_audited(source):
    with pytest.raises(ValueError, match=r"noise to audit.*certified"):
        attacked(jdfl.SGP(gradients=CLIPPED, dpps=replace(NOISY, sensitivity=source)), runs=400)
