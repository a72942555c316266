"""What methods of push-sum share: gradient steps over the protocol of PartPSP, SGP and PEDFL, and sums without it.

The clip bounds every node's step in l1. It is applied last, after the regulariser; the protocol's noise schedule and
the privacy statement rest on it.

Axes: m nodes, d shared parameters, T rounds.
"""

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from jax import Array

from jdfl.algorithms.algorithm import Algorithm
from jdfl.algorithms.dpps import DPPS, PushSum, Schedule
from jdfl.algorithms.gradients import Gradients
from jdfl.algorithms.round import MODEL, Channel, Round
from jdfl.base import marking, schedules
from jdfl.network import Network
from jdfl.privacy import Guarantee, clipped, stretch
from jdfl.problems import Problem


def decays(milestones: tuple[int, ...], factor: float | Array, rounds: int) -> np.ndarray:
    """The factors on the rates in every round [T]: one more `factor` [] from each of the `milestones` on."""
    past = np.sum(np.arange(rounds)[:, None] >= np.asarray(milestones, int).reshape(1, -1), axis=1)
    return float(factor) ** past


def exact(gradients: Gradients) -> Gradients:
    """The same gradients without noise."""
    return replace(gradients, clip=None)


def oracle(gradients: Gradients) -> Gradients:
    """The gradients before the last clip: per-example clipping stays, any other is removed."""
    return exact(gradients) if gradients.per == "batch" else gradients


def _shortened(gradients: Gradients, g: Array) -> Array:
    short, bound = clipped(g, gradients.norm, gradients.clip), replace(gradients, per="batch").bound  # pyright: ignore
    return marking.clipped(short, g, None, None, bound, whole=True)


def shortened(gradients: Gradients, g: Array) -> Array:
    """Gradients g [m, d], including the regulariser, clipped."""
    return g if gradients.clip is None else _shortened(gradients, g)


def shared_gradient(gradients: Gradients, w: Array, round: Round, part: slice | None = None) -> Array:
    """The gradients [m, d] at w [m, n] that push-sum sends; `part` selects the shared parameters."""
    return shortened(gradients, oracle(gradients)(w, round, part=part))


class OverPushSum(Algorithm):
    """The common part of methods over push-sum: noise schedule, messages and guarantee.

    They have the fields `dpps`, `gradients`, `milestones` and `decay`. `rate` names the field with the step size;
    `carried_over` marks methods that send a step one round later.
    """

    late: ClassVar[bool] = True
    columns: ClassVar[bool] = True
    rate: ClassVar[str] = "lr"
    carried_over: ClassVar[bool] = False
    dpps: DPPS
    gradients: Gradients
    milestones: tuple[int, ...]
    decay: Any

    @property
    def channels(self) -> tuple[Channel, ...]:
        return self.dpps.channels

    def check(self, problem: Problem, network: Network) -> None:
        """Raise ValueError for settings of the steps and the protocol out of range."""
        super().check(problem, network)
        if self.gradients.mechanism is not None:
            raise ValueError(
                f"Expected gradients without noise for {self.title}, whose protocol adds it to messages, got mechanism "
                f"= {self.gradients.mechanism!r}. Give dpps=DPPS(b=...) instead."
            )
        self.dpps.check(self.title, network)

    def plan(self, problem: Problem, network: Network, steps: int) -> Schedule:
        scales, d = decays(self.milestones, self.decay, steps), self.carried(problem)
        start = None if problem.start is None else problem.start[:d]
        rates = schedules.bounds(getattr(self, self.rate), steps)
        return self.dpps.plan(network, self._bounds(scales, rates, d), scales, d, start)._replace(rates=rates)

    def carried(self, problem: Problem) -> int:
        """The number of parameters that the protocol sends."""
        return problem.n

    def message_bits(self, problem: Problem, codec: Any) -> dict[str, int]:
        return self.dpps.message_bits(self.carried(problem), problem.dtype)

    def pushed(self, state: PushSum, eps: Array, round: Round) -> PushSum:
        """One round of the protocol with perturbations eps [m, d]."""
        schedule = round.ready

        def claim(problem: Problem, _: int) -> Guarantee:
            bounds = self._bounds(np.asarray(schedule.scales, float), schedule.rates, self.carried(problem))
            clip = "" if self.gradients.clip is None else f"{float(self.gradients.clip):g}"
            clipping = f"{self.gradients.norm} clipping of every node's shared gradient to {clip}"
            return self.dpps.guarantee(schedule, bounds, clipping)

        eps = eps if self.gradients.clip is None else marking.bounded(eps)  # by the clip, which is applied last
        return self.dpps.step(state, eps, round, claim)

    def _bounds(self, scales: np.ndarray, rates: Array | None, d: int) -> np.ndarray | None:
        """The largest l1 norm of a perturbation in every round [T]; None where nothing bounds it."""
        if self.gradients.clip is None:
            return None
        rate = float(getattr(self, self.rate)) if rates is None else np.asarray(rates, float)
        clip = float(self.gradients.clip)
        bounds = rate * scales * stretch(self.gradients.norm, "l1", d) * clip
        return np.append(0.0, bounds)[:-1] if self.carried_over else bounds


class PushSums(Algorithm):
    """The common part of DFedPGP and PrivSGP-VR: unencoded messages without noise of their own.

    Their states have the sums u, the push-sum weights a and the corrected parameters x, in this order.
    """

    needs: ClassVar[dict[str, bool]] = {"column_stochastic": True, "connected": True}
    columns: ClassVar[bool] = True

    def check(self, problem: Problem, network: Network) -> None:
        """Raise ValueError for settings and networks that the method cannot use, and where nothing is shared."""
        super().check(problem, network)
        if self.carried(problem) == 0:
            raise ValueError("Expected a shared part, got shared = 0. Use LocalOnly, or share some parameters.")

    def mass(self, state: Any) -> Array:
        return state.a

    def params(self, state: Any) -> Array:
        return state.x

    def visible(self, state: Any) -> Array:
        """What others see of a state: the sums of messages u."""
        return state.u

    def carried(self, problem: Problem) -> int:
        """The number of parameters that are sent."""
        return problem.n

    def message_bits(self, problem: Problem, codec: Any) -> dict[str, int]:
        """The sums, and one number more: the push-sum weight."""
        return {MODEL.name: 8 * problem.dtype.itemsize * (self.carried(problem) + 1)}
