"""Push-sum with noise under attack: messages hide what they are said to hide, and local parameters are not shown."""

import math
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
from tests.auditing.planted import NETWORK, PROBLEM, STEPS, M, N
from tests.refused import refused

SHARE = 0.5
CLIPPED = jdfl.Gradients(clip=1.0, per="batch", norm="l1")
NOISY = jdfl.DPPS(b=SHARE, noise_rate=1.0)
ALONG = np.eye(N, dtype=np.float32)[[0, 3]].sum(axis=0)  # a parameter that is shared, and one that is local
PAIR = ((ALONG, 1e4), (ALONG, -1e4))


def attacked(algorithm: Any, problem: Any = None, **options: Any) -> Audit:
    given = {"steps": STEPS, "runs": 12_000} | options
    return audit(algorithm, PROBLEM() if problem is None else problem, NETWORK(), **given)


def passes(told: Audit, sends: int) -> None:
    """Not refuted, and not by the attack's weakness: the sum of so many messages is told apart as well as it can be."""
    best = SHARE * math.sqrt(sends / 2)  # Laplace noise of scale 1 / SHARE has sqrt(2) times that standard deviation
    assert (told.claimed, told.violated, told.mu_accounted) == (True, False, None)  # Laplace noise
    assert told.epsilon_lower <= told.epsilon_accounted
    assert told.mu_low <= best
    assert 0.85 * best < told.mu_hat < 1.15 * best


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


@pytest.mark.slow
def test_average_consensus_tells_of_a_vector_once():
    told = attacked(jdfl.AverageConsensus(clip=5.0, dpps=NOISY), runs=48_000)  # of one message alone
    passes(told, 1)
    assert told.epsilon_accounted == pytest.approx(SHARE, rel=1e-3)


@struct.dataclass
class Bare(jdfl.PartPSP):
    """PartPSP that shows its local parameters."""

    def visible(self, state: Any) -> Any:
        return self.params(state)


@pytest.mark.slow
def test_who_sees_local_parameters_tells_the_worlds_apart():
    """They are trained without noise, and are not shown."""
    algorithm, problem = jdfl.PartPSP(gradients=CLIPPED, dpps=NOISY), PROBLEM().replace(shared=2)
    passes(attacked(algorithm, problem, canary=PAIR), STEPS)
    assert attacked(Bare(gradients=CLIPPED, dpps=NOISY), problem, canary=PAIR, runs=4000).violated


def shown(algorithm, problem):
    program = watched(planned(algorithm, problem, NETWORK(), 3))
    result = jdfl.run(program.algorithm, problem, NETWORK(), key=0, steps=3, metrics=[])
    return result, np.asarray(program.visible(result.state))


def test_what_is_shown_are_the_messages():
    result, messages = shown(jdfl.PEDFL(gradients=CLIPPED, dpps=NOISY), PROBLEM())
    W = np.asarray(jdfl.network.as_dense(NETWORK().graph))
    np.testing.assert_allclose(W @ messages, result.state.mixed.s, rtol=1e-4, atol=1e-4)
    result, messages = shown(jdfl.PartPSP(gradients=CLIPPED, dpps=NOISY), PROBLEM().replace(shared=2))
    assert messages.shape == (M, N)
    np.testing.assert_array_equal(messages[:, :2], result.state.shared.sent)
    assert not messages[:, 2:].any()
    assert np.asarray(result.params)[:, 2:].any()
    assert watched(Program(jdfl.DPSGD())) == Program(jdfl.DPSGD())
    unwatched = jdfl.run(jdfl.SGP(gradients=CLIPPED, dpps=NOISY), PROBLEM(), NETWORK(), key=0, steps=1, metrics=[])
    assert jax.tree.leaves(unwatched.state.sent) == []


@pytest.mark.rotated(2)
@pytest.mark.parametrize(
    "algorithm",
    [Unclipped(gradients=CLIPPED, dpps=NOISY), jdfl.SGP(gradients=CLIPPED, dpps=Quiet(b=SHARE, noise_rate=1.0))],
    ids=["unclipped", "a tenth of the noise"],
)
def test_less_than_is_reported_is_caught(algorithm):
    told = attacked(algorithm, runs=4000)
    assert (told.claimed, told.violated) == (False, True)  # a step or a protocol of a user's own proves nothing


def test_what_claims_nothing_is_not_audited():
    for source in ("eq22", "real"):
        with refused("certified"):
            attacked(jdfl.SGP(gradients=CLIPPED, dpps=NOISY.replace(sensitivity=source)), runs=400)
