"""What the walk through a traced step claims: noise that goes through the round on bounded data, and nothing else."""

from dataclasses import replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jdfl
from jdfl.algorithms import statement
from jdfl.algorithms.program import planned
from jdfl.algorithms.round import MODEL, Channel
from jdfl.base import struct
from jdfl.base.streams import Stream
from tests.auditing.planted import BUGS
from tests.auditing.planted import PROBLEM as AUDITED
from tests.contract.table import TABLE, Row
from tests.contract.test_contract import make_network, make_problem
from tests.later import Later
from tests.refused import refused

CLAIMED = {
    "DP-CEPS, clipped",
    "DP-DSGT, float16",
    "DP-CHOCO-SGD, combine-then-adapt, random 3",
    "DO-ADP, top 3",
    "DP-directed CEPS, top 3",
    "DP-IHT-D-PSGD, every second round",
    "D-PSGD, noisy updates of subsets",
    "DP-DFedSAM, Poisson samples",
    "SGPDP",
    "SGPDP, Lemma 2",
    "PartPSP, minibatches in turn",
    "PEDFL",
    "DP-DDA, strongly convex, two nodes at a time",
    "DP-DDA, samples, float16",
    "DPDO, noisy, in a ball",
    "CPGT, noisy, top 3",
    "average consensus",
    "DECOR",
    "MAFALDA-SGD, in passes",
    "Muffliato, private",
}
NOT_CLAIMED = {  # although they have noise
    "DP-CEPS, kept": "not clipped",
    "DP-CEPS-1BCS, literal": "not stored in u",
    "DP-D-PSGD, every third round, minibatches, Adam": "between two exchanges",
    "DP-DFedSAM-MGS": "between two exchanges",
    "SGPDP, Eq. 22": "Eq. 22",
    "PartPSP, true distances": "true distances",
}


NOISY = [row for row in TABLE if row.claimed or str(row) in CLAIMED | set(NOT_CLAIMED)]
SILENT = [row for row in TABLE if row not in NOISY]


@pytest.mark.rotated(3)
@pytest.mark.parametrize("row", [*NOISY, *SILENT[:6]], ids=str)
def test_what_every_method_claims(row: Row):
    told = planned(row.algorithm, make_problem(row), make_network(), 7).privacy(make_problem(row))
    assert told.claimed == (row in NOISY and str(row) not in NOT_CLAIMED), told.reason
    assert NOT_CLAIMED.get(str(row), "" if row in NOISY else "no noise is added") in told.reason


M, N = 4, 3
NOISE, FAINT_NOISE = Stream("test.flow", "private"), Stream("test.flow.faint", "private")
SECOND = Channel("second", Stream("test.flow.second", "shared"))
NETWORK = Later(jdfl.network.ring, M)
_A = np.random.default_rng(1).standard_normal((M, 6, N))
PROBLEM = Later(lambda: jdfl.problems.linear_regression(_A, _A @ np.ones(N)))
PRIVATE = jdfl.Gradients(clip=1.0, mechanism=jdfl.Gaussian(2.0))
FAINT = replace(PRIVATE, mechanism=jdfl.Gaussian(0.1))


@struct.dataclass
class Step(jdfl.Algorithm):
    """Steps along what `seen` makes of a node's data; some start from what `start` makes of them."""

    seen: Any = struct.field(pytree_node=False, default=lambda a, x, round: a.gradients(x, round))
    start: Any = struct.field(pytree_node=False, default=lambda a, round: round.problem.initial_params())
    gradients: jdfl.Gradients = PRIVATE
    codec: Any = jdfl.Dense()
    title: ClassVar[str] = "Step"
    channels: ClassVar[tuple[Channel, ...]] = (MODEL, SECOND)

    def init(self, round: jdfl.Round) -> Any:
        return self.start(self, round)

    def step(self, state: Any, round: jdfl.Round) -> Any:
        return round.mix(state) - 0.1 * self.seen(self, state, round)


class Unnamed(Step):
    """Does not name its second channel."""

    channels: ClassVar[tuple[Channel, ...]] = (MODEL,)


def bare(a, x, r):
    return a.gradients.without_noise(x, r)


def sizes(a, r):
    return a.gradients.sensitivities(r.problem)


def fainter(a, x, r):
    return r.noisy(FAINT.mechanism, bare(a, x, r), sizes(a, r), FAINT_NOISE, FAINT.guarantee)


def sending(second):
    """The step, after a second message."""

    def seen(a, x, r):
        r.deliver(second(a, x, r), SECOND)
        return a.gradients(x, r)

    return seen


def own_noise(a, x, r):
    return bare(a, x, r) + jax.random.normal(r.context.stream(NOISE), x.shape, x.dtype)


def unclipped(a, x, r):
    return r.noisy(a.gradients.mechanism, r.problem.gradients(x), sizes(a, r), NOISE, a.gradients.guarantee)


def signed(a, x, r):
    g = a.gradients(x, r)
    return jnp.where(r.problem.data[1][:, :1] > 0, g, -g)


def of_nothing(a, x, r):
    return r.noisy(jdfl.Gaussian(0.1), bare(a, x, r), sizes(a, r), FAINT_NOISE, NOISE)


_RAW = "'model'", "nothing bounds or hides"
PLANTED = {
    "noise that is drawn by oneself": (Step(own_noise), "no noise is added"),
    "a second message without noise": (Step(sending(bare)), "'second'", "has no noise"),
    "no clip": (Step(unclipped), *_RAW),
    "a sign by a record": (Step(signed), *_RAW),
    "a start from the data": (Step(start=lambda a, r: jnp.mean(r.problem.data[0], axis=1)), *_RAW),
    "a start with less noise": (Step(start=lambda a, r: FAINT(r.problem.initial_params(), r)), "start"),
    "two noises": (Step(sending(fainter)), "several streams"),
    "noise as part of nothing": (Step(sending(of_nothing)), "several streams"),
}


def test_what_is_sound_is_claimed():
    assert Step().privacy(PROBLEM()) == PRIVATE.guarantee(PROBLEM())
    with refused("noise", "second"):
        jdfl.account_plan(PLANTED["a second message without noise"][0], PROBLEM(), NETWORK(), steps=3)


@pytest.mark.parametrize("name", PLANTED)
def test_what_is_not_is_refused_with_a_reason_and_a_remedy(name):
    algorithm, *reasons = PLANTED[name]
    told = algorithm.privacy(PROBLEM())
    assert not told.claimed
    assert all(reason in told.reason for reason in reasons), told.reason
    assert told.remedy


def inside(a, x, r):
    return r.repeat(2, lambda here, y: y + a.gradients(y, here), x) + a.gradients(x, r)


@pytest.mark.parametrize(
    ("algorithm", "named"),
    [
        (Step(lambda a, x, r: a.gradients(x, r) - a.gradients(2 * x, r)), "gradients.noise"),
        (Step(inside), "gradients.noise"),  # of a local step, once more after it
        (Step(lambda a, x, r: FAINT(x, r) + a.gradients(x, r, look=1)), "gradients.noise"),  # other mechanisms
        (struct.dataclass(Unnamed)(sending(lambda a, x, r: x)), "second"),
    ],
)
def test_a_step_that_reuses_noise_or_sends_uncounted_messages_is_refused(algorithm, named):
    with refused(named):
        jdfl.run(algorithm, PROBLEM(), NETWORK(), key=0, steps=2)


SEEN = {
    "no noise",
    "the same key in all runs",
    "noise missing in one round",
    "noise shared by two nodes",
    "keys reused over rounds",
    "releases not counted",
}  # the others are inside of what is trusted: mechanisms, clips, keys, samples, what is counted


@pytest.mark.rotated(3)
@pytest.mark.parametrize("name", BUGS)
def test_bugs_for_the_audit_that_the_flow_of_data_shows(name, monkeypatch):
    bug = BUGS[name]
    for method, wrong in bug.patch.items():
        monkeypatch.setattr(bug.owner, method, wrong)
    assert bug.audited.privacy(AUDITED()).claimed == (name not in SEEN)


def test_what_a_round_keeps_is_followed_into_the_next():
    """Data that enter the state in a round leave two rounds later."""

    @struct.dataclass
    class Late(Step):
        """Keeps a gradient as it is for two rounds."""

        def init(self, round: jdfl.Round) -> Any:
            x = round.problem.initial_params()
            return x, jnp.zeros_like(x), jnp.zeros_like(x)

        def step(self, state: Any, round: jdfl.Round) -> Any:
            x, last, one = state
            return round.mix(x) - 0.1 * self.gradients(x, round) + last, one, round.problem.gradients(x)

    told = Late().privacy(PROBLEM())
    assert not told.claimed
    assert "nothing bounds" in told.reason


def test_a_method_without_noise_is_traced_once(monkeypatch):
    """What is remembered follows all settings, the code of the class and the problem; noise is always traced."""
    traces, traced = [], statement._traced
    monkeypatch.setattr(statement, "_traced", lambda *given: traces.append(given[0]) or traced(*given))
    monkeypatch.setattr(statement, "_noiseless", {})
    plain, noisy = jdfl.DPSGD(lr=0.1), jdfl.DPSGD(lr=0.1, gradients=PRIVATE)

    def new(algorithm, problem):
        before = len(traces)
        assert algorithm.privacy(problem).claimed == (algorithm is noisy)
        return len(traces) > before

    other, known = replace(plain, lr=0.2), replace(plain, lr=0.1)
    assert [new(one, PROBLEM()) for one in (plain, known, other, noisy, noisy)] == [True, False, True, True, True]
    assert new(plain, jdfl.problems.linear_regression(_A[:, :2], _A[:, :2] @ np.ones(N)))
    monkeypatch.setattr(jdfl.DPSGD, "step", lambda self, state, round: state)
    assert new(plain, PROBLEM())
