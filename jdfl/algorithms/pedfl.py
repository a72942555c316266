"""PEDFL as the DPPS paper compares with it: D-PSGD whose messages have Laplace noise.

    x_i <- sum_j W_ij (x_j + gamma_n Lap(0, S / b)) - lr g_i(x_i),   g_i clipped

S. Chen, Y. Wang, D. Yu, J. Ren, C. Xu, Y. Zheng: Privacy-Enhanced Decentralized Federated Learning at Dynamic Edge,
2023, was not at hand. This is a reading of what Y. Zhou, K. Xue, E. Chen say of it: "a decentralized federated learning
algorithm with differential privacy by Laplace mechanism". W's rows and columns sum to one. What is sent is that of DPPS
with the steps of the round before as perturbations, so that S comes from the same sources.

Missing neighbours: their weight goes where the network says, by default to the node's own row, and a node that hears
nobody takes its step alone. W must stay doubly stochastic, so that both ways of a link are missing together. What is
late (`network.delays`) is added when it arrives.

Axes: m nodes, n parameters.
"""

from dataclasses import replace
from typing import ClassVar

import jax.numpy as jnp
from jax import Array

from jdfl import struct
from jdfl.algorithms.dpps import DPPS, PushSum
from jdfl.algorithms.exchange import heard
from jdfl.algorithms.gradients import Exact, Gradients
from jdfl.algorithms.push_descent import (
    Milestone,
    check_steps,
    decays,
    private,
    sent_late,
    shared_gradient,
    step_bounds,
)
from jdfl.base import Info, Round, counts
from jdfl.network import Network, require
from jdfl.privacy import Guarantee
from jdfl.problems import Problem
from jdfl.settings import Positive


@struct.dataclass
class State:
    """What the next round needs."""

    mixed: PushSum  # what came of the last messages
    step: Array  # [m, n] what the node adds to it


@struct.dataclass
class PEDFL:
    """Decentralized SGD with Laplace noise on messages: what PartPSP is compared with.

    Noisy D-PSGD. Raises ValueError (from `check` and `plan`) for settings out of range.
    """

    kind: ClassVar[str] = "pedfl"
    lr: Positive = 0.1
    """Length of the steps."""
    gradients: Exact = Gradients(per="batch", norm="l1")
    """How nodes take gradients: of which examples, clipped, with which noise."""
    dpps: DPPS = DPPS()
    """Noise on messages."""
    milestones: tuple[Milestone, ...] = struct.field(pytree_node=False, default=())
    """Rounds from which all rates are lower."""
    decay: Positive = 0.1
    """What rates are multiplied by at every milestone."""
    tuned: ClassVar[tuple[str, ...]] = ("lr",)
    late: ClassVar[bool] = True
    planned: ClassVar[tuple[str, ...]] = ("dpps.schedule", "dpps.scales")  # what `plan` fills in

    def check(self, problem: Problem, network: Network) -> None:
        """Refuse settings out of range, naming them."""
        require(network, "PEDFL", doubly_stochastic=True)
        check_steps("PEDFL", self.gradients, self.dpps, problem, network)

    def plan(self, problem: Problem, network: Network, steps: int) -> "PEDFL":
        """With the schedule of noise, on the host before a run."""
        scales = decays(self.milestones, self.decay, steps)
        bounds = step_bounds(self.gradients, self.lr, scales, problem.n)
        if bounds is not None:
            bounds = sent_late(bounds)
        return replace(self, dpps=self.dpps.plan(network, bounds, scales, problem.n, problem.start))

    def prepare(self, problem: Problem, round: Round) -> "PEDFL":
        """Let the gradients prepare what they need."""
        return replace(self, gradients=self.gradients.prepare(problem, round))

    def init(self, problem: Problem, round: Round) -> tuple[State, Info]:
        """Start where the problem says."""
        x = problem.begin()
        return State(self.dpps.init(x, round), jnp.zeros_like(x)), counts(
            problem.m, dict.fromkeys(self.message_bits(problem), 0)
        )

    def step(self, state: State, problem: Problem, round: Round) -> tuple[State, Info]:
        """One round."""
        g = shared_gradient(self.gradients, self.params(state), problem, round)
        mixed = self.dpps.step(state.mixed, state.step, round)
        step = -self.lr * self.dpps.scale(round.k).astype(g.dtype) * g
        return State(mixed, step), counts(
            round.m,
            self.dpps.sent(round.graph),
            grads=1,
            releases=0 if self.dpps.b is None else 1,
            communications=heard(round.graph),
        )

    def params(self, state: State) -> Array:
        """The parameters x [m, n]."""
        return state.mixed.s + state.step

    def visible(self, state: State) -> Array:
        """What others see of a state [m, n]: messages, without the step that is still to be sent."""
        return state.mixed.shown

    def examples(self, problem: Problem) -> Array:
        """Those of a gradient."""
        return self.gradients.examples(problem)

    def message_bits(self, problem: Problem) -> dict[str, int]:
        """Those of the protocol."""
        return self.dpps.message_bits(problem.n, problem.dtype)

    def privacy(self, problem: Problem) -> Guarantee:
        """That of the protocol; the last step is not sent."""
        told = private(self.dpps, self.gradients, self.lr, problem.n, late=True)
        return (
            told
            if told.event is None
            else replace(told, local="they hold a last step that has not been sent and has no noise")
        )
