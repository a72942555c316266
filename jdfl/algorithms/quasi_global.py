"""Quasi-global momentum: nodes estimate the momentum of the whole network from how far their mixed parameters move.

T. Lin, S. P. Karimireddy, S. U. Stich, M. Jaggi: Quasi-Global Momentum: Accelerating Decentralized Deep Learning on
Heterogeneous Data, 2021.

    h_i = beta a_i + g_i(x_i),   x_i+ = sum_j W_ij (x_j - lr h_j),   a_i <- mu a_i + (1 - mu) (x_i - x_i+) / lr

This is QG-DSGDm (Algorithm 1), from a_i = 0. A step with `nesterov` is lr (g_i(x_i) + beta h_i). QG-Adam has

    h_i = (beta1 a_i + g_i(x_i)) / (1 - beta1^k),     v_i = (beta2 b_i + (1 - beta2) g_i(x_i)^2) / (1 - beta2^k)
    x_i+ = sum_j W_ij (x_j - lr h_j / (sqrt(v_j) + eps)),     d_i = (x_i - x_i+) / (||x_i - x_i+|| + eps)
    a_i <- beta1 a_i + (1 - beta1) d_i,     b_i <- beta2 b_i + (1 - beta2) d_i^2

in rounds k = 1, 2, ..., from a_i = b_i = 0; all operations are entry by entry. Local momentum follows a node's data
only. The differences x_i - x_i+ also contain what its neighbours did. With beta = 0 QG-DSGDm is D-PSGD in
adapt-then-combine form.

The paper's appendix may have (1 - beta1) g_i in h_i and does not divide by 1 - beta1^k and 1 - beta2^k. The d_i have
norm 1 and outweigh such small gradients: on least squares that form did not settle.

Missing neighbours: their weight goes where the network says, by default to the node itself, and a node that receives
nothing has momentum of its own. W must stay doubly stochastic, so both directions of a link fail together.
"""

from typing import ClassVar, NamedTuple

import jax.numpy as jnp
from jax import Array

from jdfl.algorithms.algorithm import Algorithm
from jdfl.algorithms.gradients import Gradients
from jdfl.algorithms.round import Round
from jdfl.arrays import ops
from jdfl.base import struct
from jdfl.base.settings import Momentum, Positive, Provenance, StepSize


class State(NamedTuple):
    x: Array  # [m, n] parameters
    a: Array  # [m, n] quasi-global momentum
    b: Array | None = None  # [m, n] quasi-global second moments, of QG-Adam


@struct.dataclass
class QGDSGDm(Algorithm):
    """QG-DSGDm: decentralized SGD with quasi-global momentum.

    It takes any gradients. Raises ValueError (from `check`) for networks whose W is not doubly stochastic.
    """

    kind: ClassVar[str] = "qg-dsgdm"
    provenance: ClassVar[Provenance] = ("authors' code read",)
    lr: StepSize = 0.02
    beta: Momentum = 0.9
    """Momentum of a step."""
    mu: Momentum = 0.9
    """Memory of the quasi-global momentum."""
    nesterov: bool = struct.field(pytree_node=False, default=False)
    """Take Nesterov's form of the step."""
    gradients: Gradients = Gradients()
    title: ClassVar[str] = "QG-DSGDm"
    divides_by_lr: ClassVar[bool] = True
    needs: ClassVar[dict[str, bool]] = {"doubly_stochastic": True}

    def init(self, round: Round) -> State:
        x = round.problem.initial_params()
        return State(x, jnp.zeros_like(x))

    def step(self, state: State, round: Round) -> State:
        x, a, _ = state
        g = self.gradients(x, round)
        h = self.beta * a + g
        new = round.mix(x - self.lr * (g + self.beta * h if self.nesterov else h))
        return State(new, self.mu * a + (1 - self.mu) * (x - new) / self.lr)


@struct.dataclass
class QGAdam(Algorithm):
    """QG-Adam: decentralized Adam with quasi-global first and second moments.

    It takes any gradients. Raises ValueError (from `check`) for networks whose W is not doubly stochastic.
    """

    kind: ClassVar[str] = "qg-adam"
    provenance: ClassVar[Provenance] = ("authors' code read",)
    lr: StepSize = 0.01
    beta1: Momentum = 0.9
    """Memory of the first moments."""
    beta2: Momentum = 0.99
    """Memory of the second moments."""
    eps: Positive = 1e-8
    """Added to roots of second moments, and to the norm of the difference of parameters."""
    gradients: Gradients = Gradients()
    title: ClassVar[str] = "QG-Adam"
    needs: ClassVar[dict[str, bool]] = {"doubly_stochastic": True}

    def init(self, round: Round) -> State:
        x = round.problem.initial_params()
        return State(x, jnp.zeros_like(x), jnp.zeros_like(x))

    def step(self, state: State, round: Round) -> State:
        x, a, b = state
        assert b is not None
        g = self.gradients(x, round)
        k = jnp.asarray(round.k + 1, x.dtype)
        h, v = self.beta1 * a + g, averaged(self.beta2, b, g * g)
        h, v = h / (1 - self.beta1**k), v / (1 - self.beta2**k)
        new = round.mix(x - self.lr * h / (jnp.sqrt(v) + self.eps))
        d = (x - new) / (ops.length(x - new, "l2") + self.eps)[:, None]
        return State(new, averaged(self.beta1, a, d), averaged(self.beta2, b, d * d))


def averaged(memory: Array | float, old: Array, new: Array) -> Array:
    """The moving average [m, n] after a `new` value [m, n]."""
    return memory * old + (1 - memory) * new
