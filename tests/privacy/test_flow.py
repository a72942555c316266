"""What the walk through a traced step claims: noise that goes through the round on bounded data, and nothing else."""

from dataclasses import replace
from itertools import combinations
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jdfl
from jdfl.algorithms import statement
from jdfl.algorithms.book import MODEL, Channel
from jdfl.algorithms.program import planned
from jdfl.base import struct
from jdfl.base.streams import Stream
from tests.auditing.planted import BUGS
from tests.contract.table import TABLE, Row
from tests.contract.test_contract import make_network, make_problem
from tests.later import Later

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


@pytest.mark.parametrize("row", TABLE, ids=str)
def test_what_every_method_claims(row: Row):
    told = planned(row.algorithm, make_problem(row), make_network(), 7).privacy(make_problem(row))
    assert told.claimed == (row.claimed or str(row) in CLAIMED), told.reason
    if not told.claimed:
        assert NOT_CLAIMED.get(str(row), "no noise is added") in told.reason or told == jdfl.privacy.NOTHING_SENT


def test_the_methods_that_claim_are_in_the_table():
    assert {str(row) for row in TABLE} > CLAIMED | set(NOT_CLAIMED)


# ---------------------------------------------------------------- planted, each refused with a reason

M, N = 4, 3
_NOISE, SECOND = Stream("test.flow", "private"), Channel("second", Stream("test.flow.second", "shared"))
NETWORK = Later(jdfl.network.ring, M)
_draw = np.random.default_rng(1)
_A = _draw.standard_normal((M, 6, N))
PROBLEM = Later(lambda: jdfl.problems.linear_regression(_A, _A @ np.ones(N)))
PRIVATE = jdfl.Gradients(clip=1.0, mechanism=jdfl.Gaussian(2.0))


@struct.dataclass
class Sound(jdfl.Algorithm):
    """Steps of clipped and noisy gradients from what arrives; its kinds differ in what is sent."""

    lr: float = 0.1
    gradients: jdfl.Gradients = PRIVATE
    codec: Any = jdfl.Dense()
    title: ClassVar[str] = "Sound"
    channels: ClassVar[tuple[Channel, ...]] = (MODEL, SECOND)

    def init(self, round: jdfl.Round) -> Any:
        """Start where the problem says."""
        return round.problem.begin()

    def step(self, state: Any, round: jdfl.Round) -> Any:
        """One round."""
        return round.mix(state) - self.lr * self.noisy(state, round)

    def noisy(self, x: Any, round: jdfl.Round) -> Any:
        """What a node learns [m, n]."""
        return self.gradients(x, round)

    def added(self, g: Any, scale: Any, round: jdfl.Round) -> Any:
        """Noise of a scale on g [m, n]."""
        return round.noisy(self.gradients.mechanism, g, scale, _NOISE, self.gradients.guarantee)


class OwnNoise(Sound):
    """Draws its noise itself."""

    def noisy(self, x: Any, round: jdfl.Round) -> Any:
        """Nothing of it is written down."""
        g = self.gradients.without_noise(x, round)
        return g + jax.random.normal(round.moment.stream(_NOISE), g.shape, g.dtype)


class SecondBare(Sound):
    """Sends a second gradient, which is clipped and has no noise."""

    def step(self, state: Any, round: jdfl.Round) -> Any:
        """One round."""
        round.deliver(self.gradients.without_noise(state, round), SECOND)
        return super().step(state, round)


class SecondAdded(Sound):
    """Adds a second gradient, without noise, to the first."""

    def noisy(self, x: Any, round: jdfl.Round) -> Any:
        """Both."""
        return self.gradients(x, round) + self.gradients.without_noise(x, round)


class Longer(Sound):
    """Scales after the clip and before the noise."""

    def noisy(self, x: Any, round: jdfl.Round) -> Any:
        """Ten times what the noise is for."""
        g = 10 * self.gradients.without_noise(x, round)
        return self.added(g, self.gradients.sensitivities(round.problem), round)


class TwoClips(Sound):
    """Adds two clipped gradients, whose sum has no clip, before the noise."""

    def noisy(self, x: Any, round: jdfl.Round) -> Any:
        """Twice as long as the noise is for."""
        g = self.gradients.without_noise(x, round) + self.gradients.without_noise(2 * x, round)
        return self.added(g, self.gradients.sensitivities(round.problem), round)


class Unclipped(Sound):
    """Gives noise to a gradient as it is."""

    def noisy(self, x: Any, round: jdfl.Round) -> Any:
        """Noise for a clip that is not there."""
        return self.added(round.problem.gradients(x), self.gradients.sensitivities(round.problem), round)


class Repeated(Sound):
    """Spreads one clipped number over all entries, each of which is as long."""

    def noisy(self, x: Any, round: jdfl.Round) -> Any:
        """Longer by the root of n."""
        g = jnp.broadcast_to(self.gradients.without_noise(x, round)[:, :1], x.shape)
        return self.added(g, self.gradients.sensitivities(round.problem), round)


class Stacked(Sound):
    """Puts two clipped vectors side by side, and noise for one of them on both."""

    def noisy(self, x: Any, round: jdfl.Round) -> Any:
        """Longer by the root of 2."""
        g = self.gradients.without_noise(x, round)
        both = self.added(jnp.concatenate([g, g], axis=1), self.gradients.sensitivities(round.problem), round)
        return both[:, : x.shape[1]] + both[:, x.shape[1] :]


class Signed(Sound):
    """A record says which sign a message has."""

    def noisy(self, x: Any, round: jdfl.Round) -> Any:
        """One of two noisy gradients."""
        g = self.gradients(x, round)
        return jnp.where(round.problem.data[1][:, :1] > 0, g, -g)


class Scaled(Sound):
    """The largest label says how large the noise is."""

    def noisy(self, x: Any, round: jdfl.Round) -> Any:
        """The scale tells of the label."""
        scale = jnp.max(jnp.abs(round.problem.data[1]), axis=1)
        return self.added(self.gradients.without_noise(x, round), scale, round)


class Remembered(Sound):
    """Starts from its data, and sends that a round later."""

    def init(self, round: jdfl.Round) -> Any:
        """The mean of the node's records."""
        return jnp.mean(round.problem.data[0], axis=1)


_BARE, _RAW, _NONE = "has no noise", "nothing bounds or hides", "no noise is added"
PLANTED = {
    OwnNoise: _NONE,
    SecondBare: _BARE,
    SecondAdded: _RAW,
    Longer: _RAW,
    TwoClips: _RAW,
    Unclipped: _RAW,
    Repeated: _RAW,
    Stacked: _RAW,
    Signed: _RAW,
    Scaled: _RAW,
    Remembered: _RAW,
}


def test_what_is_sound_is_claimed():
    assert Sound().privacy(PROBLEM()).claimed
    assert Sound().privacy(PROBLEM()) == PRIVATE.guarantee(PROBLEM())


@pytest.mark.parametrize("kind", PLANTED, ids=lambda kind: kind.__name__)
def test_what_is_not_is_refused_with_a_reason(kind):
    algorithm = struct.dataclass(kind)()
    told = algorithm.privacy(PROBLEM())
    assert not told.claimed
    assert PLANTED[kind] in told.reason
    if kind is not OwnNoise:
        assert ("'second'" if kind is SecondBare else "'model'") in told.reason
        assert told.remedy
    with pytest.raises(ValueError, match="noise"):
        jdfl.account_plan(algorithm, PROBLEM(), NETWORK(), steps=3)


_FAINT = Stream("test.flow.faint", "private")


class TwoNoises(Sound):
    """Adds a second message with noise of its own, of which nobody has said how much the two reveal together."""

    def step(self, state: Any, round: jdfl.Round) -> Any:
        """One round."""
        g, scale = self.gradients.without_noise(state, round), self.gradients.sensitivities(round.problem)
        faint = replace(self.gradients, mechanism=jdfl.Gaussian(0.1))
        round.deliver(round.noisy(faint.mechanism, g, scale, _FAINT, faint.guarantee), SECOND)
        return super().step(state, round)


class PartOfNothing(Sound):
    """Says that its noise is part of a release that there is not."""

    def step(self, state: Any, round: jdfl.Round) -> Any:
        """One round."""
        g, scale = self.gradients.without_noise(state, round), self.gradients.sensitivities(round.problem)
        round.deliver(round.noisy(jdfl.Gaussian(0.1), g, scale, _FAINT, _NOISE), SECOND)
        return super().step(state, round)


class PartOfLess(Sound):
    """Its second noise is in every local step, the release that is said to cover it in none."""

    def noisy(self, x: Any, round: jdfl.Round) -> Any:
        """The first is drawn once."""

        def one(here: jdfl.Round, y: Any) -> Any:
            return y + here.noisy(jdfl.Gaussian(0.1), jnp.zeros_like(y), jnp.ones(M), _FAINT, _NOISE)

        g, scale = self.gradients.without_noise(x, round), self.gradients.sensitivities(round.problem)
        return self.added(round.repeat(2, one, jnp.zeros_like(x)) + g, scale, round)


class OtherStart(Sound):
    """Starts from a gradient with less noise than those of its rounds."""

    def init(self, round: jdfl.Round) -> Any:
        """One step."""
        faint = replace(self.gradients, mechanism=jdfl.Gaussian(0.1))
        return faint(round.problem.begin(), round)


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (TwoNoises, "several streams"),
        (PartOfNothing, "several streams"),
        (PartOfLess, "several streams"),
        (OtherStart, "start"),
    ],
)
def test_noise_that_the_guarantee_leaves_out_takes_the_claim_away(kind, why):
    told = struct.dataclass(kind)().privacy(PROBLEM())
    assert not told.claimed
    assert why in told.reason
    assert told.remedy


class SameNoise(Sound):
    """Draws the noise of two releases from the same keys."""

    def noisy(self, x: Any, round: jdfl.Round) -> Any:
        """Their difference has no noise."""
        return self.gradients(x, round) - self.gradients(2 * x, round)


class SameNoiseInside(Sound):
    """Draws the noise of a local step once more after it."""

    def noisy(self, x: Any, round: jdfl.Round) -> Any:
        """Their difference has no noise."""
        return round.repeat(2, lambda here, y: y + self.gradients(y, here), x) + self.gradients(x, round)


class OtherClip(Sound):
    """Two looks with other mechanisms, of which a ledger would have the last."""

    def noisy(self, x: Any, round: jdfl.Round) -> Any:
        """The first has hardly any noise."""
        faint = replace(self.gradients, mechanism=jdfl.Gaussian(0.1))
        return faint(x, round) + self.gradients(x, round, look=1)


class Unnamed(Sound):
    """Sends on a channel that it does not name."""

    channels: ClassVar[tuple[Channel, ...]] = (MODEL,)

    def step(self, state: Any, round: jdfl.Round) -> Any:
        """One round."""
        round.deliver(state, SECOND)
        return super().step(state, round)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (SameNoise, "gradients.noise"),
        (SameNoiseInside, "gradients.noise"),
        (OtherClip, "gradients.noise"),
        (Unnamed, "second"),
    ],
)
def test_a_step_that_reuses_noise_or_sends_uncounted_messages_is_refused(kind, name):
    with pytest.raises(ValueError, match=name):
        jdfl.run(struct.dataclass(kind)(), PROBLEM(), NETWORK(), key=0, steps=2)


def test_local_steps_have_noise_of_their_own():
    drawn: list[Any] = []

    @struct.dataclass
    class Local(Sound):
        """Adds noise in two local steps of two each."""

        def noisy(self, x: Any, round: jdfl.Round) -> Any:
            """The noise of all four."""

            def one(here: jdfl.Round, noise: Any) -> Any:
                new = self.added(jnp.zeros_like(x), jnp.ones(M), here)
                return noise.at[here.local_step].set(new)

            def twice(here: jdfl.Round, noise: Any) -> Any:
                return here.repeat(2, one, noise)

            noise = round.repeat(2, twice, jnp.zeros((4, *x.shape), x.dtype))
            jax.debug.callback(drawn.append, noise)
            return noise[0]

    jdfl.run(Local(), PROBLEM(), NETWORK(), key=0, steps=1)
    jax.effects_barrier()
    assert all(np.all(one != other) for one, other in combinations(drawn[0], 2))


SEEN = {
    "no noise",
    "the same key in all runs",
    "the same noise on updates in all rounds",
    "noise not fresh in a second message",
    "two releases counted as one",
    "noise missing in one round",
    "noise missing at even rounds",
    "noise missing at one node",
    "noise missing now and then",
    "noise shared by two nodes",
    "keys reused over rounds",
    "noise added before clipping",
    "noise that depends on the data",
    "noise cancelled a round later",
    "clip skipped for updates",
    "a neighbour's gradient relayed",
    "a bias by the labels",
    "releases not counted",
}  # the others are inside of what is trusted: mechanisms, clips, keys, samples, what is counted


@pytest.mark.parametrize("name", BUGS)
def test_bugs_for_the_audit_that_the_flow_of_data_shows(name, monkeypatch):
    from tests.auditing.planted import PROBLEM

    bug = BUGS[name]
    for method, wrong in bug.patch.items():
        monkeypatch.setattr(bug.owner, method, wrong)
    assert bug.audited.privacy(PROBLEM()).claimed == (name not in SEEN)


def test_what_a_round_keeps_is_followed_into_the_next():
    """Data that enter the state in a round leave a round later, or two."""

    @struct.dataclass
    class Late(Sound):
        """Keeps a gradient as it is for two rounds."""

        def init(self, round: jdfl.Round) -> Any:
            """Nothing is kept."""
            x = round.problem.begin()
            return x, jnp.zeros_like(x), jnp.zeros_like(x)

        def step(self, state: Any, round: jdfl.Round) -> Any:
            """One round."""
            x, last, one = state
            new = round.mix(x) - self.lr * self.gradients(x, round) + last
            return new, one, round.problem.gradients(x)

    told = Late().privacy(PROBLEM())
    assert not told.claimed
    assert "nothing bounds" in told.reason


def test_a_method_without_noise_is_traced_once(monkeypatch):
    """What is remembered follows all settings, the code of the class and the problem; noise is always traced."""
    traces: list[object] = []
    traced = statement._traced

    def counted(*given):
        traces.append(given[0])
        return traced(*given)

    monkeypatch.setattr(statement, "_traced", counted)
    monkeypatch.setattr(statement, "_noiseless", {})
    plain, problem = jdfl.DPSGD(lr=0.1), make_problem(TABLE[0])
    noisy = replace(plain, gradients=jdfl.Gradients(clip=1.0, mechanism=jdfl.Gaussian(1.0)))

    def new(algorithm, problem=problem):
        before = len(traces)
        said = planned(algorithm, problem, make_network(), 7).privacy(problem)
        assert said.claimed == (algorithm is noisy)
        return len(traces) - before

    assert new(plain)
    assert not new(replace(plain, lr=0.1))
    assert new(replace(plain, lr=0.2))
    assert new(noisy)
    assert new(noisy)
    assert new(replace(plain, codec=jdfl.Dense("float16")))
    assert new(plain, make_problem(TABLE[0], m=4))
    monkeypatch.setattr(jdfl.DPSGD, "step", lambda self, state, round: state)
    assert new(plain)
