"""Push-sum with noise under attack: messages hide what they are said to hide, and local parameters are not shown."""

import math
from typing import Any

import numpy as np
import pytest

import jdfl
from experiments.privacy_audit import Quiet, Unclipped
from jdfl.algorithms.program import Program, planned
from jdfl.auditing import Audit, audit
from jdfl.auditing.observe import watched
from tests.auditing.planted import NETWORK, PROBLEM, STEPS, M, N

SHARE = 0.5
CLIPPED = jdfl.Gradients(clip=1.0, per="batch", norm="l1")
NOISY = jdfl.DPPS(b=SHARE, noise_rate=1.0)


def attacked(algorithm: Any, runs: int = 12_000) -> Audit:
    return audit(algorithm, PROBLEM(), NETWORK(), steps=STEPS, runs=runs)


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


@pytest.mark.rotated(2)
@pytest.mark.parametrize(
    "algorithm",
    [Unclipped(gradients=CLIPPED, dpps=NOISY), jdfl.SGP(gradients=CLIPPED, dpps=Quiet(b=SHARE, noise_rate=1.0))],
    ids=["unclipped", "a tenth of the noise"],
)
def test_less_than_is_reported_is_caught(algorithm):
    told = attacked(algorithm, runs=4000)
    assert (told.claimed, told.violated) == (False, True)  # a step or a protocol of a user's own proves nothing
