"""DADMM, DLM and DiNNO: decentralized ADMM with one dual variable per node, and exact, linearised or local steps.

W. Shi, Q. Ling, K. Yuan, G. Wu, W. Yin: On the Linear Convergence of the ADMM in Decentralized Consensus Optimization,
2014 (DADMM); Q. Ling, W. Shi, G. Wu, A. Ribeiro: DLM: Decentralized Linearized Alternating Direction Method of
Multipliers, 2015; J. Yu, J. A. Vincent, M. Schwager: DiNNO: Distributed Neural Network Optimization for Multi-Robot
Collaborative Learning, 2022.

    a_i <- a_i + c sum_j (x_i - x_j)
    x_i <- argmin_w f_i(w) + <a_i, w> + c sum_j ||w - (x_i + x_j) / 2||^2                         (DADMM)
    x_i <- x_i - (g_i(x_i) + a_i + c sum_j (x_i - x_j)) / (2 c d_i + rho)                         (DLM)
    B times:  y_i <- y_i - lr (g_i(y_i) + a_i + c sum_j (2 y_i - x_i - x_j)),     from y_i = x_i
    x_i <- y_i                                                                                    (DiNNO)

Node i has d_i neighbours, over which the sums run, c is the penalty, and a_i starts from 0. DADMM computes the
minimiser by `inner` proximal gradient steps from x_i (see `admm.minimised`). With few steps it is inexact in every
round, but its limit stays the optimum. DLM is DADMM with one such step of size 1 / rho. With one step size for all
nodes instead of 1 / (2 c d_i + rho), as in the package decent-bench, DLM is `jdfl.DiNNO(local_steps=1)`. DADMM is
`jdfl.ADMM` with penalty 2 c and relaxation 1/2. The bracket of DiNNO is the gradient of what DADMM minimises. Its steps
may be those of an `optimizer` such as Adam, which starts afresh in every round, as by default in the paper's code. That
code can multiply c by a factor in every round, which is left out.

The papers update a_i after x_i; here it is done when the next round has sent x, which gives the same x.

Missing neighbours: refused, because corrections add up only over the same links.
"""

from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
from jax import Array

from jdfl.algorithms import admm, descent
from jdfl.algorithms.admm import OverLinks
from jdfl.algorithms.gradients import Exact, Gradients
from jdfl.algorithms.round import Round
from jdfl.base import struct
from jdfl.base.settings import Count, Positive, Provenance, StepSize


class State(NamedTuple):
    x: Array  # [m, n] parameters
    a: Array  # [m, n] dual variables, whose sum over the nodes is 0


class _Dual(OverLinks):
    """The common part: the state, and where it starts."""

    def init(self, round: Round) -> State:
        x = round.problem.initial_params()
        return State(x, jnp.zeros_like(x))


@struct.dataclass
class DADMM(_Dual):
    """DADMM: decentralized ADMM with one dual variable per node; exact with a constant penalty.

    Raises ValueError (from `check`) for networks that change or have one-way links.
    """

    kind: ClassVar[str] = "dadmm"
    provenance: ClassVar[Provenance] = ("from memory",)
    penalty: Positive = 0.25
    """Weight c of the constraint of a link."""
    lr: StepSize = 0.2
    """Step size of the inner steps."""
    inner: Count = struct.field(pytree_node=False, default=10)
    """Steps towards a node's minimiser; each shrinks the error by at least 1 + lr w, w being the quadratic weight."""
    gradients: Exact = Gradients()
    title: ClassVar[str] = "DADMM"
    exact: ClassVar[bool] = True
    tuned: ClassVar[tuple[str, ...]] = ("lr", "penalty")

    def step(self, state: State, round: Round) -> State:
        x, a = state
        apart, d = admm.differences(x, round), admm.degree(x, round)
        a = a - self.penalty * apart
        slope = self.penalty * (2 * d * x + apart) - a
        return State(admm.minimised(self, x, 2 * self.penalty * d, slope, round), a)


@struct.dataclass
class DLM(_Dual):
    """DLM: decentralized ADMM that takes one gradient step in place of a minimisation.

    It takes any gradients. Raises ValueError (from `check`) for networks that change or have one-way links.
    """

    kind: ClassVar[str] = "dlm"
    provenance: ClassVar[Provenance] = ("from memory", "other code read")
    penalty: Positive = 0.25
    """Weight c of the constraint of a link."""
    rho: Positive = 5.0
    """Weight of the distance from the last x; it must exceed half the largest curvature of an f_i."""
    gradients: Gradients = Gradients()
    title: ClassVar[str] = "DLM"
    exact: ClassVar[bool] = True
    tuned: ClassVar[tuple[str, ...]] = ("rho", "penalty")

    def step(self, state: State, round: Round) -> State:
        x, a = state
        apart, d = admm.differences(x, round), admm.degree(x, round)
        a = a - self.penalty * apart
        return State(x - (self.gradients(x, round) + a - self.penalty * apart) / (2 * self.penalty * d + self.rho), a)


@struct.dataclass
class DiNNO(_Dual):
    """DiNNO: decentralized ADMM with local optimizer steps; exact with plain steps and all examples.

    It takes any gradients and any optimizer. Raises ValueError (from `check`) for networks that change or have one-way
    links.
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

    def step(self, state: State, round: Round) -> State:
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
