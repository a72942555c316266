"""DiNNO: decentralized ADMM whose nodes take several optimizer steps on their augmented Lagrangians.

J. Yu, J. A. Vincent, M. Schwager: DiNNO: Distributed Neural Network Optimization for Multi-Robot Collaborative
Learning, 2022. With d_i neighbours of node i and penalty rho:

    p_i <- p_i + rho sum_j (x_i - x_j),     h_i = sum_j (x_i + x_j)
    B times:  y_i <- y_i - lr (g_i(y_i) + p_i + rho (2 d_i y_i - h_i)),     from y_i = x_i
    x_i <- y_i

from p_i = 0. The bracket is the gradient of f_i(y) + <p_i, y> + rho sum_j ||y - (x_i + x_j) / 2||^2. The steps may be
those of an `optimizer` such as Adam, which starts afresh in every round, as by default in the paper's code. Exact
minimisers make it `jdfl.DADMM`, and one plain step the DLM of the package decent-bench. The paper's code can multiply
rho by a factor in every round, which is left out.

Missing neighbours: refused, because corrections add up only over the same links.

Axes: m nodes, n parameters.
"""

from typing import Any, ClassVar

import jax.numpy as jnp
from jax import Array

from jdfl.algorithms import admm, descent
from jdfl.algorithms.admm import OverLinks
from jdfl.algorithms.dadmm import State
from jdfl.algorithms.gradients import Gradients
from jdfl.algorithms.round import Round
from jdfl.base import struct
from jdfl.base.settings import Count, Positive, Provenance, StepSize


@struct.dataclass
class DiNNO(OverLinks):
    """DiNNO: decentralized ADMM with local optimizer steps; exact with plain steps and all examples.

    It takes any gradients and any optimizer. Raises ValueError (from `check`) for settings out of range and for
    networks that change or have one-way links.
    """

    kind: ClassVar[str] = "dinno"
    provenance: ClassVar[Provenance] = ("authors' code read",)
    lr: StepSize = 0.1
    penalty: Positive = 0.25
    """Weight rho of the constraint of a link."""
    local_steps: Count = struct.field(pytree_node=False, default=5)
    """Optimizer steps B in a round."""
    gradients: Gradients = Gradients()
    optimizer: descent.Optimizer = struct.field(pytree_node=False, default=None)
    title: ClassVar[str] = "DiNNO"
    exact: ClassVar[bool] = True
    tuned: ClassVar[tuple[str, ...]] = ("lr", "penalty")

    def init(self, round: Round) -> State:
        """Start from the initial parameters x and dual variables 0."""
        x = round.problem.begin()
        return State(x, jnp.zeros_like(x))

    def step(self, state: State, round: Round) -> State:
        """One round."""
        x, p = state
        apart, d = admm.differences(x, round), admm.degree(x, round)
        p = p - self.penalty * apart
        slope = self.penalty * (2 * d * x + apart) - p  # rho h - p

        def local(here: Round, carry: tuple[Array, Any]) -> tuple[Array, Any]:
            y, optimizer = carry
            g = self.gradients(y, here) + 2 * self.penalty * d * y - slope
            move, optimizer = descent.update(self.optimizer, self.lr, g, optimizer, y)
            return y + move, optimizer

        y, _ = round.repeat(self.local_steps, local, (x, descent.begin(self.optimizer, self.lr, x)))
        return State(y, p)
