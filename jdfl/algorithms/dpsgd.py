"""D-PSGD: decentralized parallel stochastic gradient descent.

X. Lian, C. Zhang, H. Zhang, C.-J. Hsieh, W. Zhang, J. Liu: Can Decentralized Algorithms Outperform Centralized
Algorithms? A Case Study for Decentralized Parallel Stochastic Gradient Descent, 2017 (Algorithm 1).

    k = 0, T, 2T, ...:  x_i <- sum_j W_ij x_j - lr g_i(x_i)
    otherwise:          x_i <- x_i - lr g_i(x_i)

T = `period` is 1 in the paper. Two baselines of the CEPS paper are this class on other networks: D-PSGD-DN on one that
is redrawn in every round (`network.erdos_renyi_rounds`), D-PSGD-PC on `network.partial_communication`.

W may be any matrix whose rows sum to one. Where its columns do too, the average moves by -lr times the mean gradient.

Missing neighbours: their weight goes where the network says, by default to the node itself, and a node that receives
nothing takes its step alone. Of delayed messages (`network.delays`) the newest is used.
"""

from typing import Any, ClassVar, Literal, NamedTuple

from jax import Array

from jdfl.algorithms import descent
from jdfl.algorithms.algorithm import Algorithm, Objective, refuse_late
from jdfl.algorithms.gradients import Gradients
from jdfl.algorithms.round import Round
from jdfl.algorithms.updates import Updates
from jdfl.base import struct
from jdfl.base.settings import Count, Provenance, StepSize
from jdfl.codecs import Codec, Dense
from jdfl.network import Network
from jdfl.problems import Problem


class State(NamedTuple):
    x: Array  # [m, n] parameters
    optimizer: Any  # state of the optimizer, leaves [m, ...]


@struct.dataclass
class DPSGD(Algorithm):
    """D-PSGD: average with in-neighbours, then take a local gradient step (combine-then-adapt).

    With a lossy codec it is inexact: nodes mix their own x with what they decode of the others'. Raises ValueError
    (from `check`) for settings out of range.
    """

    kind: ClassVar[str] = "d-psgd"
    provenance: ClassVar[Provenance] = ("from memory", "other code read")
    lr: StepSize = 0.1
    gradients: Gradients = Gradients()
    updates: Updates | None = None
    optimizer: descent.Optimizer = struct.field(pytree_node=False, default=None)
    codec: Codec = Dense()
    period: Count = struct.field(pytree_node=False, default=1)
    """Rounds between two exchanges of messages."""
    order: Literal["combine-then-adapt", "adapt-then-combine"] = struct.field(
        pytree_node=False, default="combine-then-adapt"
    )
    """Add the gradient step after mixing, or mix its result: x_i <- sum_j W_ij (x_j - lr g_j(x_j))."""
    objective: Objective = struct.field(pytree_node=False, default="mean")
    """Accept networks that preserve the mean of the nodes only, or all ("pi"), with the weights that they give."""
    title: ClassVar[str] = "D-PSGD"
    late: ClassVar[bool] = True

    def check(self, problem: Problem, network: Network) -> None:
        """Raise ValueError for settings out of range, and for delayed messages with rounds without exchange."""
        super().check(problem, network)
        if self.period > 1:
            refuse_late("D-PSGD", network, f"period = 1, got period = {self.period}")

    def init(self, round: Round) -> State:
        x = round.problem.initial_params()
        return State(x, descent.begin(self.optimizer, self.lr, x))

    def step(self, state: State, round: Round) -> State:
        round, (x, optimizer) = round.every(self.period), state
        move, optimizer = descent.update(self.optimizer, self.lr, self.gradients(x, round), optimizer, x)
        move = move if self.updates is None else self.updates(move, round)
        combined = round.mix(x) + move if self.order == "combine-then-adapt" else round.mix(x + move)
        if self._plain and descent.fits_one_kernel(self.gradients, x, round):
            combined = descent.mixed_and_descended(self.gradients, x, self.lr, round)
        return State(combined, optimizer)

    @property
    def _plain(self) -> bool:
        """Whether a step is W x minus lr times the gradient."""
        return self.optimizer is None and self.updates is None and self.order == "combine-then-adapt"
