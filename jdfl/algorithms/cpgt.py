"""CPGT: gradient tracking whose noisy parameters and trackers are sent as compressed differences to public copies.

A. Xie, X. Yi, X. Wang, M. Cao, X. Ren: Compressed Differentially Private Distributed Optimization with Linear
Convergence, 2023 (arXiv 2304.01779).

    xhat_i <- xhat_i + C(x_i + v_i - xhat_i),   yhat_i <- yhat_i + C(y_i + w_i - yhat_i)       (C(...) is sent)
    x_i    <- x_i + gamma sum_j W_ij (xhat_j - xhat_i) - lr y_i
    y_i    <- y_i + gamma sum_j W_ij (yhat_j - yhat_i) + g_i(new x_i) - g_i(old x_i)

from x_i = xhat_i, yhat_i = 0 and y_i = g_i(x_i). In round k the entries of v_i and w_i are Laplace noise of scale
`noise_x` decay^k and `noise_y` decay^k; C is `codec`. W is symmetric and doubly stochastic, so that the average of the
y_i is that of the g_i in every round, whatever noise and codec do. With exact messages, no noise and gamma = 1 it is
gradient tracking that combines, then adapts: x <- W x - lr y, y <- W y + g(new x) - g(old x) (A. Nedic, A. Olshevsky,
W. Shi: Achieving Geometric Convergence for Distributed Optimization over Time-Varying Graphs, 2017).

Of the paper only the abstract was at hand: the order above is a reading. x and y of a round move by copies that were
just heard, and copies by all that was sent; copies might be mixed before they move, or move by a share of what is sent.

What is told of privacy was derived here. Two worlds that differ in one node's whole cost are compared given all
messages, and so all copies. With gradients no longer than G in l2, regulariser and all, the node's y is apart by
g_i alone, at most 2 G, and x_i by lr times the sum of these over k rounds, at most 2 G lr k. With sqrt(n) between l2
and l1 the two messages of round k together spend a pure epsilon of

    2 G sqrt(n) (lr k / (noise_x decay^k) + 1 / (noise_y decay^k)).

Under this relation no decay makes that sum finite without end: `calibrated` divides an epsilon over so many rounds, and
rounds beyond these spend more. The last x_i and y_i are never sent, and nothing is claimed of them.

Missing neighbours: refused, since every message builds on all those before it.

Axes: m nodes, n parameters, T rounds.
"""

from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from jdfl.algorithms.algorithm import Algorithm
from jdfl.algorithms.book import MODEL, TRACKER, Channel
from jdfl.algorithms.codes import Codes
from jdfl.algorithms.gradients import Exact, Gradients
from jdfl.algorithms.noisy_messages import at, check_gradients, faint, unclaimed, upwards
from jdfl.algorithms.push_descent import shared_gradient
from jdfl.algorithms.round import Round
from jdfl.algorithms.step_lengths import FIXED_SYMMETRIC
from jdfl.base import checks, struct
from jdfl.base.settings import Fraction, Positive, StepLength
from jdfl.base.streams import Stream
from jdfl.codecs import Codec, Dense
from jdfl.network.graph import Network
from jdfl.privacy import Guarantee, Laplace, LaplaceSchedule, stretch
from jdfl.privacy.flow import bounded
from jdfl.problems import Problem

_NOISE_X, _NOISE_Y = Stream("cpgt.noise of x", "private"), Stream("cpgt.noise of y", "private")
_SLACK = 1 + 1e-12  # of noise: what rounding may add to a sum of epsilons


class State(NamedTuple):
    """What the next round needs."""

    x: Array  # [m, n] parameters
    y: Array  # [m, n] trackers of the average gradient
    g: Array  # [m, n] last gradients
    x_hat: Array  # [m, n] public copies of x, the same at the node and at all its neighbours
    y_hat: Array  # [m, n] public copies of y


class Plan(NamedTuple):
    """The public schedules of a run's noise."""

    x: Array | None  # [T] scales of the noise on parameters; None: no noise
    y: Array | None  # [T] and on trackers


@struct.dataclass
class CPGT(Algorithm):
    """Gradient tracking whose noisy messages are compressed differences to public copies.

    The method with any gradients that need no noise of their own and any codec that contracts.

    Raises ValueError (from `check` and `plan`) for settings out of range, noise on one of the messages only or on
    gradients, a codec without a contraction, and a network that is not fixed and undirected with symmetric doubly
    stochastic weights. gamma has to be small for a codec that leaves things out: least squares on a ring of 7 nodes
    that sent the largest 10 % converged with gamma = 0.3 and diverged with 0.5.
    """

    kind: ClassVar[str] = "cpgt"
    lr: StepLength = 0.05
    gamma: Fraction = 0.5
    """Step towards the neighbours' public copies, in (0, 1]."""
    noise_x: Positive | None = None
    """Scale of the first Laplace noise on parameters; None: no noise."""
    noise_y: Positive | None = None
    """Scale of the first Laplace noise on trackers; None: no noise."""
    decay: Fraction = 1.0
    """By which noise fades from round to round, in (0, 1]."""
    gradients: Exact = Gradients(per="batch")
    codec: Codec = Dense()
    noise_by: ClassVar[str] = "Use jdfl.algorithms.cpgt.calibrated."
    unsent: ClassVar[str] = "they hold a last step, and a tracked gradient, that have not been sent and have no noise"
    title: ClassVar[str] = "CPGT"
    tuned: ClassVar[tuple[str, ...]] = ("lr", "gamma")
    needs: ClassVar[dict[str, bool]] = FIXED_SYMMETRIC
    codes: ClassVar[Codes] = "contracting"
    channels: ClassVar[tuple[Channel, ...]] = (MODEL, TRACKER)

    def check(self, problem: Problem, network: Network) -> None:
        """Refuse settings, codecs and networks that the method cannot have, naming them."""
        if (self.noise_x is None) != (self.noise_y is None):
            raise ValueError(
                f"Expected noise on both messages or on none, got noise_x = {checks.shown(self.noise_x)} and noise_y = "
                f"{checks.shown(self.noise_y)}. Either tells of the gradients: give both, or use "
                "jdfl.algorithms.cpgt.calibrated."
            )
        check_gradients("CPGT", self.gradients, "noise_x and noise_y")
        super().check(problem, network)

    def plan(self, problem: Problem, network: Network, steps: int) -> Plan:
        """The scales of all rounds' noise, on the host before a run."""
        if self.noise_x is None or self.noise_y is None:
            return Plan(None, None)
        dtype, first = np.dtype(problem.dtype), np.array([[float(self.noise_x)], [float(self.noise_y)]])
        scales = upwards(first * _fading(self.decay, steps), dtype)
        lost = np.flatnonzero((scales < np.finfo(dtype).tiny).any(axis=0))
        if lost.size:
            raise ValueError(
                f"Expected noise that {dtype.name} can hold in all {steps} rounds, got decay = {self.decay!r}, by "
                f"which it is zero from round {lost[0]} on. Give a decay closer to 1, or make fewer rounds."
            )
        return Plan(*jnp.asarray(scales))

    def init(self, round: Round) -> State:
        """Start from x = xhat where the problem says, which all neighbours know, and y = g(x), which nobody does."""
        x = round.problem.begin()
        g = shared_gradient(self.gradients, x, round)
        return State(x, g, g, x, jnp.zeros_like(x))

    def step(self, state: State, round: Round) -> State:
        """One round."""
        x, y, g, x_hat, y_hat = state
        sent_x, sent_y, plan = x, y, round.ready
        if plan.x is not None:
            told = partial(self._guarantee, plan)  # a release is both messages of a round
            sent_x = round.noisy(Laplace(at(plan.x, round.k)), x, 1.0, _NOISE_X, told)
            sent_y = round.noisy(Laplace(at(plan.y, round.k)), y, 1.0, _NOISE_Y, _NOISE_X)
        x_hat = round.publish(sent_x, x_hat)
        y_hat = round.publish(sent_y, y_hat, TRACKER)
        x = x + self.gamma * round.pull(x_hat, None) - self.lr * y
        new = shared_gradient(self.gradients, x, round)
        y = y + self.gamma * round.pull(y_hat, None) + (new - g)
        if self.gradients.clip is not None:  # see `changes`
            x, y = bounded(x), bounded(y)
        return State(x, y, new, x_hat, y_hat)

    def visible(self, state: State) -> Array:
        """What others have seen [m, 2 n]: the public copies of x and y."""
        return jnp.concatenate([state.x_hat, state.y_hat], axis=1)

    def _guarantee(self, plan: Plan, problem: Problem, _: int) -> Guarantee:
        """That of all messages for a whole node's cost, replaced by another."""
        if self.gradients.clip is None:
            return unclaimed(self.gradients)
        scales = np.stack([np.asarray(one, float) for one in plan])
        change = changes(self, problem, scales.shape[1])
        return Guarantee(
            unit="node",
            adjacency="replace-one",
            observer="all messages",
            sensitivity=float(change.max()),
            enforced_by=f"{self.gradients.norm} clipping of every node's gradient to {float(self.gradients.clip):g}, "
            "and the public length and number of the steps",
            claimed=True,
            reason="both messages of a round are noisy by a public schedule, and all else follows from messages",
            event=LaplaceSchedule(tuple((1 / (change / scales).sum(axis=0)).tolist())),
            warnings=faint(scales, change, np.dtype(problem.dtype)),
        )


def changes(algorithm: CPGT, problem: Problem, steps: int) -> np.ndarray:
    """The most that other data of a node change its x and y in l1 [2, T], given all messages (on the host).

    Raises ValueError where gradients have no clip.
    """
    clip, norm = algorithm.gradients.clip, algorithm.gradients.norm
    if clip is None:
        raise ValueError(
            "Expected a clip for noise, got clip = None: nothing bounds what a node's data change in a message. Use "
            'Gradients(clip=..., per="batch").'
        )
    gradient = 2 * float(clip) * stretch(norm, "l1", problem.n)
    lr = float(upwards(np.asarray(float(algorithm.lr)), np.dtype(problem.dtype)))  # no less than a device's
    return gradient * np.stack([lr * np.arange(steps), np.ones(steps)])


def calibrated(algorithm: CPGT, problem: Problem, steps: int, epsilon: float) -> CPGT:
    """The algorithm with the noise for a pure epsilon of `steps` rounds together, and with its own decay and lr.

    Half of epsilon goes to the parameters and half to the trackers. With decay = 1 all messages of trackers spend the
    same; those of parameters spend more and more, as what they may tell grows. Fewer rounds spend less, more rounds
    more.

    Args:
        algorithm: The settings, whose gradients have a clip; noise that it has already is replaced.
        problem: The nodes' data and losses, by which the l1 length of gradients and the type of numbers are known.
        steps: The number of rounds, at least 1.
        epsilon: What all of them together may spend, above 0, for a whole node's data replaced.

    Raises:
        ValueError: For settings out of range, gradients without a clip, and a decay for which the noise of the first
            round would have to be infinite.
    """
    checks.positive("It is what all rounds together may spend.", epsilon=epsilon)
    checks.whole(1, steps=steps)
    checks.fraction("Noise fades by it from round to round; 1 keeps it.", decay=algorithm.decay)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        spent = (changes(algorithm, problem, steps) / _fading(algorithm.decay, steps)).sum(axis=1)
    if not np.all(spent < float(np.finfo(np.dtype(problem.dtype)).max) / 4 * float(epsilon)):
        raise ValueError(
            f"Expected noise within the range of {np.dtype(problem.dtype).name} over {steps} rounds, got decay = "
            f"{algorithm.decay!r}. Give a decay closer to 1, or make fewer rounds."
        )
    noise_x, noise_y = (_SLACK * 2 * spent / float(epsilon)).tolist()
    return replace(algorithm, noise_x=noise_x or noise_y, noise_y=noise_y)  # x of a single round tells nothing


def _fading(decay: Any, steps: int) -> np.ndarray:
    """What the first scales are multiplied by in every round [T]."""
    return np.exp(np.arange(steps) * np.log(float(decay)))
