"""LED: local exact diffusion, several gradient steps per exchange with a correction that all of them share.

S. A. Alghunaim: Local Exact-Diffusion for Decentralized Optimization and Learning, 2023.

    tau times:  phi_i <- phi_i - lr g_i(phi_i) - beta y_i,     from phi_i = x_i
    x_i <- sum_j Wb_ij phi_j,     y_i <- y_i + phi_i - x_i,     Wb = I - gamma (I - W)

from y_i = 0; tau is `local_steps`. The y_i sum to zero, so nodes stay in consensus at an x with lr g_i(x) = -beta y_i,
where the average gradient is zero: the method is exact. With tau = beta = 1 and gamma = 1/2 it is exact diffusion.

The paper and the package decent-bench have gamma = 1. The gamma is ours, for W with negative eigenvalues: without
gradients, a mode of Wb with eigenvalue l decays if 0 < tau beta (1 - l) < 2 (1 + l), hence for gamma = 1/2 if tau beta
< 2.

Missing neighbours: refused, because corrections add up only if W stays the same.

Axes: m nodes, n parameters.
"""

from typing import ClassVar, NamedTuple

import jax.numpy as jnp
from jax import Array

from jdfl.algorithms.algorithm import FIXED_SYMMETRIC, Algorithm
from jdfl.algorithms.gradients import Gradients
from jdfl.algorithms.round import Round
from jdfl.base import struct
from jdfl.base.settings import Count, Fraction, Positive, Provenance, StepSize


class State(NamedTuple):
    """What a round passes to the next."""

    x: Array  # [m, n] parameters
    y: Array  # [m, n] corrections: what mixing has taken away so far


@struct.dataclass
class LED(Algorithm):
    """LED: local exact diffusion; exact with a constant step size and any number of local steps.

    It takes any gradients. Raises ValueError (from `check`) for settings out of range and for networks that are not
    fixed and undirected with symmetric doubly stochastic weights.
    """

    kind: ClassVar[str] = "led"
    provenance: ClassVar[Provenance] = ("from memory", "other code read")
    lr: StepSize = 0.02
    beta: Positive = 0.2
    """Step size of the correction in every local step."""
    gamma: Fraction = 0.5
    """Part of the mixing step that is taken: 1 mixes with W, 1/2 with (I + W) / 2."""
    local_steps: Count = struct.field(pytree_node=False, default=5)
    """Gradient steps before each exchange of messages."""
    gradients: Gradients = Gradients()
    title: ClassVar[str] = "LED"
    exact: ClassVar[bool] = True
    tuned: ClassVar[tuple[str, ...]] = ("lr", "beta")
    needs: ClassVar[dict[str, bool]] = FIXED_SYMMETRIC

    def init(self, round: Round) -> State:
        """Start from the problem's initial parameters."""
        x = round.problem.begin()
        return State(x, jnp.zeros_like(x))

    def step(self, state: State, round: Round) -> State:
        """One round."""
        x, y = state

        def local(here: Round, phi: Array) -> Array:
            return phi - self.lr * self.gradients(phi, here) - self.beta * y

        phi = round.repeat(self.local_steps, local, x)
        pulled = self.gamma * round.pull(phi)  # (Wb - I) phi
        return State(phi + pulled, y - pulled)
