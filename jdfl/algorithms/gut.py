"""GUT: global update tracking, which lessens the bias of D-PSGD with one message per round.

S. A. Aketi, A. Hashemi, K. Roy: Global Update Tracking: A Decentralized Learning Algorithm for Heterogeneous Data,
2023, without momentum.

    d_i = g_i(x_i) - sum_j W_ij (x_j - x_i) / lr
    y_i <- d_i + mu (sum_j W_ij (y_j - (x_j- - x_i-) / lr) - d_i-)
    x_i <- x_i - lr y_i

The run starts from y_i = d_i- = 0, where - marks the last round. d_i is the update of D-PSGD; with mu = 0 this method
is D-PSGD. The terms with x- cancel. With y_i and g_i- from the last round

    v_i = x_i - mu lr y_i,     y_i <- g_i(x_i) + mu (y_i - g_i-) - sum_j W_ij (v_j - v_i) / lr

so one message v_j per link is enough. In the authors' code nodes keep copies of their neighbours' x and send changes of
x. The average of the y_i is that of the gradients. At rest lr (1 - mu) g_i = sum_j W_ij (x_j - x_i): the method is not
exact, and its bias is about 1 - mu times that of D-PSGD with the same step size. Without gradients a mode of W with
eigenvalue w is stable if w > -1 / (1 + 2 mu), so a large mu needs a W without strongly negative eigenvalues.

The authors' training code evaluates gradients at sum_j W_ij x_j.

Missing neighbours: their weight goes where the network says. W must stay doubly stochastic, so both directions of a
link fail together.
"""

from typing import ClassVar

import jax.numpy as jnp

from jdfl.algorithms.algorithm import Algorithm
from jdfl.algorithms.dsgt import State
from jdfl.algorithms.gradients import Gradients
from jdfl.algorithms.round import Round
from jdfl.base import struct
from jdfl.base.settings import Momentum, Provenance, StepSize


@struct.dataclass
class GUT(Algorithm):
    """GUT: D-PSGD whose updates track the average update; less biased, but not exact.

    It takes any gradients. Raises ValueError (from `check`) for networks whose W is not doubly stochastic.
    """

    kind: ClassVar[str] = "gut"
    provenance: ClassVar[Provenance] = ("authors' code read",)
    lr: StepSize = 0.1
    mu: Momentum = 0.5
    """Share of the tracked update of the neighbours; 0 is D-PSGD."""
    gradients: Gradients = Gradients()
    title: ClassVar[str] = "GUT"
    divides_by_lr: ClassVar[bool] = True
    needs: ClassVar[dict[str, bool]] = {"doubly_stochastic": True}

    def init(self, round: Round) -> State:
        x = round.problem.initial_params()
        return State(x, jnp.zeros_like(x), jnp.zeros_like(x))

    def step(self, state: State, round: Round) -> State:
        x, y, last = state
        g = self.gradients(x, round)
        y = g + self.mu * (y - last) - round.pull(x - self.mu * self.lr * y) / self.lr
        return State(x - self.lr * y, y, g)
