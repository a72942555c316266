"""CPGT: gradient tracking whose noisy parameters and trackers are sent as compressed differences to public copies.

A. Xie, X. Yi, X. Wang, M. Cao, X. Ren: Compressed Differentially Private Distributed Optimization with Linear
Convergence, 2023 (arXiv 2304.01779).

    xhat_i <- xhat_i + C(x_i + v_i - xhat_i),   yhat_i <- yhat_i + C(y_i + w_i - yhat_i)       (C(...) is sent)
    x_i    <- x_i + gamma sum_j W_ij (xhat_j - xhat_i) - lr y_i
    y_i    <- y_i + gamma sum_j W_ij (yhat_j - yhat_i) + g_i(new x_i) - g_i(old x_i)

The run starts from x_i = xhat_i, yhat_i = 0 and y_i = g_i(x_i). In round k the entries of v_i and w_i are Laplace noise
of scale `noise_x` decay^k and `noise_y` decay^k; C is `codec`. W is symmetric and doubly stochastic, so the average of
the y_i equals the average of the g_i in every round, whatever noise and codec do. With exact messages, no noise and
gamma = 1 it is gradient tracking in combine-then-adapt form: x <- W x - lr y, y <- W y + g(new x) - g(old x) (A. Nedic,
A. Olshevsky, W. Shi: Achieving Geometric Convergence for Distributed Optimization over Time-Varying Graphs, 2017).

The order above is our reading. Here x and y move by the copies that have just been received, and copies move by
everything that was sent. The paper may mix copies before they move, or move them by a fraction of what is sent.

The privacy analysis is our own. It compares two datasets that differ in one node's whole local loss, given all messages
and therefore all copies. If gradients have l2 norm at most G, including the regulariser, then the node's y differs by
g_i alone, at most 2 G, and x_i by lr times the sum of these over k rounds, at most 2 G lr k (with a schedule 2 G times
the sum of the step sizes of these rounds). With the factor sqrt(n) between l2 and l1, the two messages of round k
together spend a pure epsilon of

    2 G sqrt(n) (lr k / (noise_x decay^k) + 1 / (noise_y decay^k)).

Under this adjacency relation no decay makes the infinite sum finite: `calibrated` divides an epsilon over a number of
rounds, and rounds beyond these spend more. The last x_i and y_i are never sent, and nothing is claimed for them.

Missing neighbours: refused, because every message builds on all earlier ones.

Axes: m nodes, n parameters, T rounds.
"""

from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from jdfl.algorithms.algorithm import FIXED_SYMMETRIC, Algorithm, Codes
from jdfl.algorithms.dpdo import at, check_gradients, faint, unclaimed, upwards
from jdfl.algorithms.gradients import Exact, Gradients
from jdfl.algorithms.push_descent import shared_gradient
from jdfl.algorithms.round import MODEL, TRACKER, Channel, Round
from jdfl.base import checks, schedules, struct
from jdfl.base.marking import bounded
from jdfl.base.settings import Fraction, Positive, Provenance, StepSize
from jdfl.base.streams import Stream
from jdfl.codecs import Codec, Sparse
from jdfl.network.graph import Network
from jdfl.privacy import Guarantee, Laplace, LaplaceSchedule, stretch
from jdfl.problems import Problem

_NOISE_X, _NOISE_Y = Stream("cpgt.noise of x", "private"), Stream("cpgt.noise of y", "private")
_SLACK = 1 + 1e-12  # factor on the noise: what rounding may add to a sum of epsilons


class State(NamedTuple):
    x: Array  # [m, n] parameters
    y: Array  # [m, n] trackers of the average gradient
    g: Array  # [m, n] last gradients
    x_hat: Array  # [m, n] public copies of x, the same at the node and at all its neighbours
    y_hat: Array  # [m, n] public copies of y


class Plan(NamedTuple):
    """The public noise schedules of a run."""

    x: Array | None  # [T] scales of the noise on parameters; None: no noise
    y: Array | None  # [T] scales of the noise on trackers
    rates: Array | None = None  # [T] bounds on step sizes that follow a schedule


@struct.dataclass
class CPGT(Algorithm):
    """CPGT: gradient tracking with Laplace noise that sends compressed differences to public copies.

    It takes any gradients without noise and any codec with a contraction factor.

    Raises ValueError (from `check` and `plan`) for noise on only one of the messages or on gradients, a codec without a
    contraction factor, and a network that is not fixed and undirected with symmetric doubly stochastic weights. Lossy
    codecs need a small gamma: least squares on a ring of 7 nodes that sent the largest 10 % converged with gamma = 0.3
    and diverged with 0.5.
    """

    kind: ClassVar[str] = "cpgt"
    provenance: ClassVar[Provenance] = ("abstract only",)
    lr: StepSize = 0.05
    gamma: Fraction = 0.5
    """Step size towards the neighbours' public copies, in (0, 1]."""
    noise_x: Positive | None = None
    """Scale of the first Laplace noise on parameters; None: no noise."""
    noise_y: Positive | None = None
    """Scale of the first Laplace noise on trackers; None: no noise."""
    decay: Fraction = 1.0
    """Factor by which the noise decays from round to round, in (0, 1]."""
    gradients: Exact = Gradients(per="batch")
    codec: Codec = Sparse(share=0.3)
    noise_by: ClassVar[str] = "Use jdfl.algorithms.cpgt.calibrated."
    unsent: ClassVar[str] = "they hold a last step and a tracked gradient that have not been sent and have no noise"
    title: ClassVar[str] = "CPGT"
    exact: ClassVar[bool] = True
    tuned: ClassVar[tuple[str, ...]] = ("lr", "gamma")
    needs: ClassVar[dict[str, bool]] = FIXED_SYMMETRIC
    codes: ClassVar[Codes] = "contracting"
    channels: ClassVar[tuple[Channel, ...]] = (MODEL, TRACKER)

    def check(self, problem: Problem, network: Network) -> None:
        super().check(problem, network)
        if (self.noise_x is None) != (self.noise_y is None):
            raise ValueError(
                f"Expected noise on both messages or on neither, got noise_x = {checks.text(self.noise_x)} and "
                f"noise_y = {checks.text(self.noise_y)}. Either message depends on the gradients: give both, or use "
                "jdfl.algorithms.cpgt.calibrated."
            )
        check_gradients("CPGT", self.gradients, "noise_x and noise_y")

    def plan(self, problem: Problem, network: Network, steps: int) -> Plan:
        """The noise scales of all rounds, on the host before a run."""
        if self.noise_x is None or self.noise_y is None:
            return Plan(None, None)
        dtype, first = np.dtype(problem.dtype), np.array([[float(self.noise_x)], [float(self.noise_y)]])
        scales = upwards(first * _fading(self.decay, steps), dtype)
        lost = np.flatnonzero((scales < np.finfo(dtype).tiny).any(axis=0))
        if lost.size:
            raise ValueError(
                f"Expected noise that {dtype.name} can represent in all {steps} rounds, got decay = {self.decay!r}, "
                f"with which it is zero from round {lost[0]} on. Give a decay closer to 1, or run fewer rounds."
            )
        x, y = jnp.asarray(scales)
        return Plan(x, y, schedules.bounds(self.lr, steps))

    def init(self, round: Round) -> State:
        x = round.problem.initial_params()
        g = shared_gradient(self.gradients, x, round)
        return State(x, g, g, x, jnp.zeros_like(x))

    def step(self, state: State, round: Round) -> State:
        x, y, g, x_hat, y_hat = state
        sent_x, sent_y, plan = x, y, round.ready
        if plan.x is not None:
            claim = partial(self._guarantee, plan)  # a release is both messages of a round
            sent_x = round.noisy(Laplace(at(plan.x, round.k)), x, 1.0, _NOISE_X, claim)
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
        """The guarantee of all messages for one node's whole local loss, replaced by another."""
        if self.gradients.clip is None:
            return unclaimed()
        scales = np.stack([np.asarray(one, float) for one in plan[:2]])
        change = changes(self, problem, scales.shape[1], plan.rates)
        return Guarantee(
            unit="node",
            adjacency="replace-one",
            observer="all messages",
            sensitivity=float(change.max()),
            enforced_by=f"{self.gradients.norm} clipping of every node's gradient to {float(self.gradients.clip):g}, "
            "and the public step size and number of rounds",
            claimed=True,
            reason="both messages of a round are noisy by a public schedule, and everything else follows from messages",
            event=LaplaceSchedule(tuple((1 / (change / scales).sum(axis=0)).tolist())),
            warnings=faint(scales, change, np.dtype(problem.dtype)),
        )


def changes(algorithm: CPGT, problem: Problem, steps: int, rates: Array | None = None) -> np.ndarray:
    """The largest l1 change of a node's x and y [2, T] under other local data, given all messages (on the host).

    `rates` [T] are bounds on step sizes that follow a schedule; None: those of the algorithm. Raises ValueError where
    gradients have no clip.
    """
    clip, norm = algorithm.gradients.clip, algorithm.gradients.norm
    if clip is None:
        raise ValueError(
            "Expected a clip for noise, got clip = None: nothing bounds how much a node's data change a message. Use "
            'Gradients(clip=..., per="batch").'
        )
    gradient = 2 * float(clip) * stretch(norm, "l1", problem.n)
    rates = schedules.bounds(algorithm.lr, steps) if rates is None else rates
    if rates is None:
        lr = float(upwards(np.asarray(float(algorithm.lr)), np.dtype(problem.dtype)))  # at least the device's value
        return gradient * np.stack([lr * np.arange(steps), np.ones(steps)])
    return gradient * np.stack([np.append(0.0, np.cumsum(np.asarray(rates, float))[:-1]), np.ones(steps)])


def calibrated(algorithm: CPGT, problem: Problem, steps: int, epsilon: float) -> CPGT:
    """The algorithm with noise for a pure epsilon over `steps` rounds together, with unchanged decay and lr.

    Half of epsilon goes to the parameters and half to the trackers. With decay = 1 all tracker messages spend the same;
    parameter messages spend more in later rounds, because they depend on more gradients. Fewer rounds spend less, more
    rounds more.
    """
    checks.positive("It is the total over all rounds.", epsilon=epsilon)
    checks.integer(1, steps=steps)
    checks.fraction("Noise is multiplied by it from round to round; 1 keeps it constant.", decay=algorithm.decay)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        spent = (changes(algorithm, problem, steps) / _fading(algorithm.decay, steps)).sum(axis=1)
    if not np.all(spent < float(np.finfo(np.dtype(problem.dtype)).max) / 4 * float(epsilon)):
        raise ValueError(
            f"Expected noise within the range of {np.dtype(problem.dtype).name} over {steps} rounds, got decay = "
            f"{algorithm.decay!r}. Give a decay closer to 1, or run fewer rounds."
        )
    noise_x, noise_y = (_SLACK * 2 * spent / float(epsilon)).tolist()
    return replace(algorithm, noise_x=noise_x or noise_y, noise_y=noise_y)  # x of a single round reveals nothing


def _fading(decay: Any, steps: int) -> np.ndarray:
    """The factors on the first scales in every round [T]."""
    return np.exp(np.arange(steps) * np.log(float(decay)))
