"""DO-ADP whose active nodes send only what exceeds a trigger: the update, its counts, its laws and its guarantee."""

from dataclasses import replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jdfl
from jdfl.algorithms.program import planned
from tests.algorithms.play import N, course, example, matrices, network
from tests.algorithms.test_doadp import KEY, NOISY, TOP, drawn, shortened, top_in_float32
from tests.reference.doadp import doadp as reference

LEVEL = 0.15  # of the trigger


def started(**changes: Any) -> tuple[jdfl.DOADP, Any, Any]:
    """A method with a trigger, its problem in float64, and its course."""
    x0 = np.linspace(-1, 1, N)
    problem = replace(example(np.float64), start=jnp.asarray(x0))
    given: dict[str, Any] = {"lr": 0.05, "gamma": 0.4, "beta": 0.3, "p": 0.7, "gradients": NOISY}
    given |= {"codec": jdfl.Sparse(s=TOP), "trigger": LEVEL}
    algorithm = jdfl.DOADP(**(given | changes))
    return algorithm, problem, course(algorithm, problem, network(), KEY)


def test_agrees_with_a_loop_over_nodes_that_send_what_exceeds_it():
    with jax.enable_x64(True):
        _, problem, (params, first, states, infos) = started()
        features, target, noise = drawn(NOISY, problem)
        W = matrices(network(), KEY)[0]
    awake = np.asarray(infos.grads).astype(bool)

    def gradient(k, i, x):
        a = features[k, i]
        return shortened(a * (a @ x - target[k, i]), "l2") + noise[k, i]

    rule = {"lr": 0.05, "gamma": 0.4, "beta": 0.3, "zero": False}
    x0 = np.linspace(-1, 1, N)
    expected = reference(gradient, awake, W, x0, top_in_float32, trigger=LEVEL, **rule)
    np.testing.assert_allclose(params, expected, rtol=1e-9, atol=1e-9)
    always = reference(gradient, awake, W, x0, top_in_float32, **rule)
    assert np.abs(always - expected).max() > 0.01
    hats = np.concatenate([first.hat[None], states.hat])
    sends = (hats[1:] != hats[:-1]).any(axis=2)
    degree = np.asarray(network().graph.out_degree)
    np.testing.assert_array_equal(infos.sent["model"], sends * degree)  # bytes are those of messages that were sent
    assert not (sends & ~awake).any()
    assert 0.1 < sends.sum() / awake.sum() < 0.9
    np.testing.assert_array_equal(infos.releases, awake)  # what is held back was released all the same
    np.testing.assert_allclose(np.linalg.norm(hats[1:] - hats[:-1], axis=2)[sends].min(), LEVEL, rtol=0.2)


def test_whole_messages_keep_copies_within_the_trigger():
    with jax.enable_x64(True):
        *_, (params, _, states, _) = started(p=1.0, codec=jdfl.Dense("float64"))
    apart = np.linalg.norm(params - states.hat, axis=2)
    assert apart.max() <= LEVEL
    assert apart.max() > LEVEL / 2


def test_a_trigger_that_everything_exceeds_changes_no_bit():
    problem = example(np.float32)
    for p in (1.0, 0.6):
        plain = jdfl.DOADP(lr=0.05, p=p, gradients=NOISY, codec=jdfl.Sparse(s=TOP))
        runs = [course(one, problem, network()) for one in (plain, replace(plain, trigger=1e-30))]
        np.testing.assert_array_equal(runs[0][0], runs[1][0])
        np.testing.assert_array_equal(runs[0][3].sent["model"], runs[1][3].sent["model"])


def test_fewer_messages_reach_nearly_the_same():
    problem = example(np.float32)
    plain = jdfl.DOADP(lr=0.05, gamma=0.4, p=1.0, gradients=jdfl.Gradients(), codec=jdfl.Sparse(s=TOP))
    found = [
        jdfl.run(one, problem, network(), key=0, steps=300, metrics=["objective"])
        for one in (plain, replace(plain, trigger=0.02))
    ]
    assert found[1].totals.bytes < 0.6 * found[0].totals.bytes
    assert found[1].final["objective"] < 1.02 * found[0].final["objective"]


def test_the_guarantee_is_the_same_as_without_and_theorem_1_is_silent():
    problem = example(np.float32)
    plain = jdfl.DOADP(gradients=NOISY, codec=jdfl.Sparse(s=TOP))
    told, before = (
        jdfl.account_plan(one, problem, network(), steps=40) for one in (replace(plain, trigger=LEVEL), plain)
    )
    assert told.epsilon == before.epsilon < np.inf
    assert before.published is not None
    assert told.published is None
    with pytest.raises(ValueError, match="trigger=None"):
        jdfl.calibrate(replace(plain, trigger=LEVEL), problem, network(), steps=40, epsilon=0.5, accounting="paper")


@jdfl.base.struct.dataclass
class Eager(jdfl.DOADP):
    """Its nodes send where their gradient before the noise is long; nothing follows from these messages."""

    title: ClassVar[str] = "Eager"

    def step(self, state: Any, round: Any) -> Any:
        """One round."""
        new = super().step(state, round)
        bare = replace(self.gradients, mechanism=None)(state.x, round)
        round.publish(new.x, new.hat, by=jnp.linalg.norm(bare, axis=1) > LEVEL)
        return new


@jdfl.base.struct.dataclass
class Choosy(jdfl.DOADP):
    """What it sends has noise; how much a message must differ is the length of its gradient before the noise."""

    title: ClassVar[str] = "Choosy"

    def step(self, state: Any, round: Any) -> Any:
        """One round."""
        bare = replace(self.gradients, mechanism=None)(state.x, round)
        x = state.x - self.lr * self.gradients(state.x, round)
        hat = round.publish(x, state.hat, over=jnp.linalg.norm(bare, axis=1))
        return state._replace(x=x, hat=hat)


def test_a_threshold_that_reads_records_gets_no_epsilon():
    problem = example(np.float32)
    leaks = planned(Choosy(gradients=NOISY), problem, network(), 7).privacy(problem)
    assert not leaks.claimed
    assert "depends on records" in leaks.reason


def test_a_threshold_that_reads_records_is_a_path_to_what_is_sent():
    found = jdfl.paths(Choosy(gradients=NOISY), example(np.float32), network(), steps=3)
    assert "depends on records" in found["message model"]


def test_a_decision_on_what_has_no_noise_gets_no_epsilon():
    problem = example(np.float32)
    fine = planned(jdfl.DOADP(gradients=NOISY, trigger=LEVEL), problem, network(), 7).privacy(problem)
    leaks = planned(Eager(gradients=NOISY), problem, network(), 7).privacy(problem)
    assert fine.claimed
    assert not leaks.claimed
    assert "depends on records" in leaks.reason


def test_when_messages_are_sent_tells_no_more_than_is_accounted_for():
    problem = jdfl.problems.linear_regression(np.zeros((2, 1, 4)), np.zeros((2, 1)))
    row = np.full(4, 0.5, np.float32)
    algorithm = jdfl.DOADP(
        lr=0.5, gamma=0.4, p=1.0, gradients=jdfl.Gradients(batch=1, clip=1.0, mechanism=jdfl.Gaussian(2.0)),
        codec=jdfl.Dense(), trigger=3.0,
    )  # fmt: skip
    told = jdfl.audit(
        algorithm, problem, jdfl.network.laplacian(jdfl.network.complete(2)), steps=5, runs=600,
        canary=((row, np.float32(1e3)), (row, np.float32(-1e3))), delta=1e-3,
    )  # fmt: skip
    assert told.claimed
    assert not told.violated
    assert told.mu_low > 0.3  # it does see something
