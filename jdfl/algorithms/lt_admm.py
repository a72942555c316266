"""LT-ADMM: relaxed ADMM whose nodes take several gradient steps between two exchanges.

X. Ren, N. Bastianello, K. H. Johansson, T. Parisini: Communication-Efficient Stochastic Distributed Learning, 2026.
With d_i neighbours of node i, penalty rho and relaxation alpha:

    tau times:  y_i <- y_i - lr g_i(y_i) - beta (rho d_i x_i - sum_j z_ij),     from y_i = x_i
    x_i  <- y_i
    z_ij <- (1 - alpha) z_ij - alpha (z_ji - 2 rho x_j)

The second term stays the same in all steps of a round. `jdfl.DiNNO` computes it at y_i instead; with one local step, lr
= beta and alpha = 1/2 both are the same, for half the penalty. The z_ij are kept as two sums per node (see
`augmented`), and only x is sent. The run starts from z_ij = x_i, as in the package decent-bench, by one of the authors;
with `start="consensus"` from z_ij = rho x_i, which keep parameters that agree where they are. Both are the same where
the initial parameters are zero. With gradients that are clipped and noisy it is LT-ADMM-DP of the same group, as far as
summaries of that paper say.

Missing neighbours: refused, because both nodes of a link must know what the other one has received.

Axes: m nodes, n parameters.
"""

from typing import ClassVar, Literal

from jax import Array

from jdfl.algorithms import augmented
from jdfl.algorithms.admm import State
from jdfl.algorithms.augmented import LinkSums, OverLinks, Relaxation
from jdfl.algorithms.gradients import Gradients
from jdfl.algorithms.round import Round
from jdfl.base import struct
from jdfl.base.settings import Count, Positive, Provenance, StepSize


@struct.dataclass
class LocalTraining(OverLinks):
    """The settings of LT-ADMM, and what its steps share whatever their gradients are."""

    lr: StepSize = 0.1
    beta: Positive = 0.1
    """Step size along the constraints."""
    penalty: Positive = 0.5
    """Weight rho of the constraint of a link."""
    relaxation: Relaxation = 0.5
    """Weight alpha of the new values of the links' variables."""
    local_steps: Count = struct.field(pytree_node=False, default=5)
    """Gradient steps tau before each exchange of messages."""
    start: Literal["parameters", "consensus"] = struct.field(pytree_node=False, default="parameters")
    """Begin with links z_ij = x_i (an author's code), or with rho x_i."""
    tuned: ClassVar[tuple[str, ...]] = ("lr", "beta")

    def links(self, x: Array, round: Round) -> LinkSums:
        """The first variables of the links, as sums, for initial parameters x [m, n]."""
        return augmented.consensus(x, 1 if self.start == "parameters" else self.penalty, round)

    def towards(self, x: Array, z: LinkSums, round: Round) -> Array:
        """What a local step subtracts [m, n] because of the constraints: beta (rho d_i x_i - sum_j z_ij)."""
        return self.beta * (self.penalty * augmented.degree(x, round) * x - z.own)


@struct.dataclass
class LTADMM(LocalTraining):
    """LT-ADMM: relaxed ADMM with local gradient steps; exact with gradients of all examples.

    It takes any gradients. Raises ValueError (from `check`) for settings out of range and for networks that change or
    have one-way links.
    """

    kind: ClassVar[str] = "lt-admm"
    provenance: ClassVar[Provenance] = ("authors' code read",)
    gradients: Gradients = Gradients()
    title: ClassVar[str] = "LT-ADMM"
    exact: ClassVar[bool] = True

    def init(self, round: Round) -> State:
        """Start from the initial parameters x."""
        x = round.problem.begin()
        return State(x, self.links(x, round))

    def step(self, state: State, round: Round) -> State:
        """One round."""
        x, z = state
        away = self.towards(x, z, round)

        def local(here: Round, y: Array) -> Array:
            return y - self.lr * self.gradients(y, here) - away

        x = round.repeat(self.local_steps, local, x)
        return State(x, augmented.exchanged(z, x, self.penalty, self.relaxation, round))
