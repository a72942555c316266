"""DPDO: projected gradient steps and Laplace noise that both decay, with one epsilon for any number of rounds.

Z. Huang, S. Mitra, N. Vaidya: Differentially Private Distributed Optimization, 2015 (arXiv 1401.2596).

    y_i =  x_i + w_i,   w_i Laplace noise of scale b_t on every entry        (sent to all neighbours)
    z_i =  sum_j W_ij y_j                                                    (the node's own noisy y_i among them)
    x_i <- Proj_X(z_i - c q^t grad f_i(z_i)),                b_t = B p^t,    0 < q < p < 1

X is the l2 ball of radius `radius` around zero, or the whole space. W is doubly stochastic and may change.

The analysis compares two datasets that differ in one node's whole local loss, given all messages. Then the z_i are
equal in both, and x_i differs by one step only. Gradients of l2 norm at most G put it at most 2 G c q^t apart in l2,
which a projection does not increase, and sqrt(n) times that in l1. The message of round t + 1 therefore spends a pure
epsilon of 2 G sqrt(n) c q^t / b_{t+1}; the message of round 0, x_0 plus noise, reveals nothing. Summed over infinitely
many rounds that is 2 G sqrt(n) c / (B (p - q)), which equals `epsilon` for

    B = 2 G sqrt(n) c / (epsilon (p - q)).

For gradients clipped in another norm, or without a projection, the corresponding norm ratio replaces sqrt(n). The clip
enforces the bound G on a node's whole gradient, including the regulariser. The last x_i is never sent, and nothing is
claimed for it. B, which was derived here, was not compared with the paper's constant.

Missing neighbours: their weight goes where the network says, by default to the node itself, and a node that receives
nothing takes its step alone. W must stay doubly stochastic, so both directions of a link fail together.

Axes: m nodes, n parameters, T rounds.
"""

import math
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from jdfl.algorithms.algorithm import UNSENT_STEP, Algorithm
from jdfl.algorithms.gradients import Exact, Gradients
from jdfl.algorithms.push_descent import shared_gradient
from jdfl.algorithms.round import Round
from jdfl.arrays import ops
from jdfl.base import struct
from jdfl.base.marking import bounded
from jdfl.base.settings import Fraction, Positive, Provenance
from jdfl.base.streams import Stream
from jdfl.codecs import Codec, Dense
from jdfl.network.graph import Network
from jdfl.privacy import NO_NOISE, Guarantee, Laplace, LaplaceSchedule, stretch
from jdfl.problems import Problem

_NOISE = Stream("dpdo.noise", "private")
_NOTHING = 1e30  # largest multiplier of a message; also used where the data do not change the message
_SLACK = 1 + 1e-12  # factor on the noise: what rounding may add to a sum of epsilons


class State(NamedTuple):
    """What a round passes to the next, and what others have seen."""

    x: Array  # [m, n] parameters
    sent: Array  # [m, n] messages of the last round


class Plan(NamedTuple):
    """The public schedules of a run."""

    lengths: Array  # [T] c q^t
    noise: Array | None  # [T] b_t


@struct.dataclass
class DPDO(Algorithm):
    """DPDO: projected gradient steps with decaying Laplace noise on messages, one epsilon for any number of rounds.

    It takes any gradients without noise.

    Raises ValueError (from `check` and `plan`) for noise without a clip, noise on gradients, and networks whose W is
    not doubly stochastic. Steps that are too small for the parameters' type, or whose noise would be, are skipped.
    """

    kind: ClassVar[str] = "dpdo"
    provenance: ClassVar[Provenance] = ("abstract only", "from memory")
    c: Positive = 0.1
    """First step size."""
    q: Fraction = 0.99
    """Factor by which step sizes decay from round to round, in (0, 1]."""
    p: Fraction = 0.995
    """Factor by which noise decays from round to round, in (q, 1)."""
    radius: Positive | None = None
    """Radius of the ball that parameters are projected to; None: no projection."""
    epsilon: Positive | None = None
    """Pure epsilon of all rounds together, for a node's whole data; None: no noise."""
    gradients: Exact = Gradients(per="batch")
    codec: Codec = Dense()
    unsent: ClassVar[str] = UNSENT_STEP
    noise_by: ClassVar[str] = "Give epsilon, which all rounds spend together."
    title: ClassVar[str] = "DPDO"
    tuned: ClassVar[tuple[str, ...]] = ("c",)
    needs: ClassVar[dict[str, bool]] = {"doubly_stochastic": True}

    def check(self, problem: Problem, network: Network) -> None:
        super().check(problem, network)
        check_gradients("DPDO", self.gradients, "epsilon")
        if self.epsilon is not None:
            self._check_noise()

    def _check_noise(self) -> None:
        if not float(self.q) < float(self.p) < 1:
            raise ValueError(
                f"Expected q < p < 1 for noise, got q = {self.q!r} and p = {self.p!r}. For a finite epsilon over all "
                "rounds, noise must decay, and step sizes must decay faster."
            )
        if self.gradients.clip is None:
            raise ValueError(
                f"Expected a clip for noise with epsilon = {self.epsilon!r}, got clip = None: nothing bounds what a "
                'node adds in a round. Use Gradients(clip=..., per="batch"), or epsilon=None for a run without noise.'
            )

    def plan(self, problem: Problem, network: Network, steps: int) -> Plan:
        """The step sizes and noise scales of all rounds, on the host before a run."""
        t, dtype = np.arange(int(steps) + 1), np.dtype(problem.dtype)
        lengths = _downwards(float(self.c) * np.exp(t * math.log(float(self.q))), dtype)[:-1]
        if self.epsilon is None:
            return Plan(jnp.asarray(lengths), None)
        first = self._change(problem.n) * float(self.c) / (float(self.epsilon) * (float(self.p) - float(self.q)))
        noise = upwards(_SLACK * first * np.exp(t * math.log(float(self.p))), dtype)
        if not np.isfinite(noise[0]):
            raise ValueError(
                f"Expected noise within the range of {dtype.name}, got a first scale of {first:.3g}. Give a larger "
                "epsilon, a smaller c or clip, or a q further below p."
            )
        lengths = np.where(noise[1:] < np.finfo(dtype).tiny, 0, lengths)  # a device rounds such small noise to zero
        return Plan(jnp.asarray(lengths), jnp.asarray(noise[:-1]))

    def init(self, round: Round) -> State:
        x = round.problem.initial_params()
        return State(x, x)

    def step(self, state: State, round: Round) -> State:
        plan: Plan = round.ready
        y = state.x
        if plan.noise is not None:
            y = round.noisy(Laplace(at(plan.noise, round.k)), y, 1.0, _NOISE, partial(self._guarantee, plan))
        z = round.mix(y)
        x = z - at(plan.lengths, round.k) * shared_gradient(self.gradients, z, round)
        x = self._projected(x)
        return State(x if self.gradients.clip is None else bounded(x), y)  # a clipped step from public vectors

    def _projected(self, x: Array) -> Array:
        """The nearest points of X [m, n]; values that are not finite stay so."""
        if self.radius is None:
            return x
        long = ops.length(x, "l2")
        return x * jnp.where(long > self.radius, self.radius / long, 1.0)[:, None]

    def _change(self, n: int) -> float:
        """The largest l1 change of a message under other data, for step size 1."""
        norm, clip = self.gradients.norm, self.gradients.clip
        assert clip is not None  # noise needs one
        longer = stretch(norm, "l1", n) if self.radius is None else stretch(norm, "l2", n) * stretch("l2", "l1", n)
        return 2 * float(clip) * longer

    def visible(self, state: State) -> Array:
        """What others see of a state [m, n]: the last messages, without the step that is yet to be sent."""
        return state.sent

    def _guarantee(self, plan: Plan, problem: Problem, _: int) -> Guarantee:
        """The guarantee of all messages for one node's whole local loss, replaced by another; pure where delta is 0."""
        if self.gradients.clip is None:
            return unclaimed()
        noise, change = np.asarray(plan.noise, float), self._change(problem.n) * np.asarray(plan.lengths, float)
        change = np.append(0.0, change)[:-1]  # a step is sent one round later
        multipliers = np.where(change > noise / _NOTHING, noise / np.where(change > 0, change, 1), _NOTHING)
        return Guarantee(
            unit="node",
            adjacency="replace-one",
            observer="all messages",
            sensitivity=self._change(problem.n) * float(self.c),
            enforced_by=f"{self.gradients.norm} clipping of every node's gradient to {float(self.gradients.clip):g}, "
            "and the public step sizes",
            claimed=True,
            reason="every message is noisy by a public schedule, and gradients are evaluated at functions of messages",
            event=LaplaceSchedule(tuple(multipliers.tolist())),
            warnings=faint(noise, change, np.dtype(problem.dtype)),
        )


def _downwards(x: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """The numbers rounded down to a narrower type; zero where they are too small to keep all digits."""
    found = x.astype(dtype)
    found = np.where(found.astype(float) > x, np.nextafter(found, dtype.type(0)), found)
    return np.where(found < np.finfo(dtype).tiny, dtype.type(0), found)


def check_gradients(method: str, gradients: Gradients, place: str) -> None:
    """Raise ValueError for noise on gradients as well as on messages, whose noise is set at `place`."""
    if gradients.mechanism is not None:
        raise ValueError(
            f"Expected gradients without noise for {method}, which adds it to messages, got mechanism = "
            f"{gradients.mechanism!r}. Give {place} instead."
        )


def at(schedule: Array, k: Array) -> Array:
    """Row k of a schedule [T, ...]; the last row beyond its end."""
    return schedule[jnp.minimum(k, schedule.shape[0] - 1)]


def upwards(x: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """The numbers x [...] rounded up to a narrower type; infinite beyond its range."""
    with np.errstate(over="ignore"):
        found = x.astype(dtype)
    return np.where(found.astype(float) < x, np.nextafter(found, dtype.type(np.inf)), found)


def unclaimed() -> Guarantee:
    """The guarantee of noisy messages where nothing bounds them."""
    reason = "gradients are not clipped, so nothing bounds what a node's data change in a message"
    return replace(NO_NOISE, observer="all messages", reason=reason, remedy='Use Gradients(clip=..., per="batch").')


def faint(noise: np.ndarray, change: np.ndarray, dtype: np.dtype[Any]) -> tuple[str, ...]:
    """A warning where the noise [..., T] of messages with change [..., T] > 0 is below their rounding."""
    lost = np.flatnonzero(np.any((change > 0) & (noise < np.finfo(dtype).eps), axis=tuple(range(noise.ndim - 1))))
    if not lost.size:
        return ()
    return (
        f"from round {lost[0]} on the noise is below the rounding of {dtype.name} for numbers around 1, and rounding "
        "itself may reveal data; run fewer rounds, or use noise that decays more slowly",
    )
