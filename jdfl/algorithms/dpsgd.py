"""D-PSGD: decentralized parallel stochastic gradient descent.

X. Lian, C. Zhang, H. Zhang, C.-J. Hsieh, W. Zhang, J. Liu: Can Decentralized Algorithms Outperform Centralized
Algorithms? A Case Study for Decentralized Parallel Stochastic Gradient Descent, 2017 (Algorithm 1).

    k = 0, T, 2T, ...:  x_i <- sum_j W_ij x_j - lr g_i(x_i)
    otherwise:          x_i <- x_i - lr g_i(x_i)

T = `period` is 1 in the paper. Two forms that the CEPS paper compares with are this class on other networks:
D-PSGD-DN on one that is drawn anew (`network.erdos_renyi_rounds`), D-PSGD-PC on `network.partial_communication`.

W may be any matrix whose rows sum to one. Where its columns do too, the average moves by lr times the mean gradient.

Missing neighbours: their weight goes where the network says, by default to the node's own row, and a node that hears
nobody takes its step alone. Of late messages (`network.delays`) it takes the newest.

Axes: m nodes, n parameters.
"""

from typing import Any, ClassVar, Literal, NamedTuple

from jax import Array

from jdfl.algorithms import descent
from jdfl.algorithms.algorithm import Algorithm
from jdfl.algorithms.codes import refuse_late
from jdfl.algorithms.gradients import Gradients
from jdfl.algorithms.round import Round
from jdfl.algorithms.updates import Updates
from jdfl.base import struct
from jdfl.base.settings import Count, StepLength
from jdfl.codecs import Codec, Dense
from jdfl.network import Network
from jdfl.problems import Problem


class State(NamedTuple):
    """What the next round needs."""

    x: Array  # [m, n] parameters
    optimizer: Any  # the optimizer's, leaves [m, ...]


@struct.dataclass
class DPSGD(Algorithm):
    """Decentralized SGD: mix with the neighbours, step down the own gradient.

    A codec that loses something makes it inexact: the nodes mix their own x with what arrives of the others'.
    Raises ValueError (from `check`) for settings out of range.
    """

    kind: ClassVar[str] = "d-psgd"
    lr: StepLength = 0.1
    gradients: Gradients = Gradients()
    updates: Updates | None = None
    optimizer: descent.Optimizer = struct.field(pytree_node=False, default=None)
    codec: Codec = Dense()
    period: Count = struct.field(pytree_node=False, default=1)
    """Rounds from one exchange of messages to the next."""
    order: Literal["mix first", "adapt first"] = struct.field(pytree_node=False, default="mix first")
    """Mix and step from where the node was, or mix what steps have made: x_i <- sum_j W_ij (x_j - lr g_j(x_j))."""
    title: ClassVar[str] = "D-PSGD"
    late: ClassVar[bool] = True

    def check(self, problem: Problem, network: Network) -> None:
        """Refuse late messages beside rounds without exchange, and settings out of range, naming them."""
        super().check(problem, network)
        if self.period > 1:
            refuse_late("D-PSGD", network, f"period = 1, got period = {self.period}")

    def init(self, round: Round) -> State:
        """Start where the problem says."""
        x = round.problem.begin()
        return State(x, descent.begin(self.optimizer, self.lr, x))

    def step(self, state: State, round: Round) -> State:
        """One round."""
        round, (x, optimizer) = round.every(self.period), state
        move, optimizer = descent.update(self.optimizer, self.lr, self.gradients(x, round), optimizer, x)
        move = move if self.updates is None else self.updates(move, round)
        return State(round.mix(x) + move if self.order == "mix first" else round.mix(x + move), optimizer)
