"""RobustDSGD: decentralized SGD whose nodes combine what they receive by a robust rule instead of W.

C. Fang, Z. Yang, W. U. Bajwa: BRIDGE: Byzantine-Resilient Decentralized Gradient Descent, 2022; L. He, S. P.
Karimireddy, M. Jaggi: Byzantine-Robust Decentralized Learning via ClippedGossip, 2022 (with momentum).

    u_i <- beta u_i + g_i(x_i),         y_i <- x_i - lr u_i,         x_i <- rule(y_i, y_j of the in-neighbours j)

The run starts from u_i = 0. The rules are those of `jdfl.robust`. Without momentum u_i is the gradient. He et al. weigh
the gradient with 1 - beta. In BRIDGE nodes combine x and then add the gradient step; here the step is part of what they
combine, as in the later papers. With `jdfl.robust.Weighted()` it is D-PSGD in its order adapt-then-combine.

Missing neighbours: a rule reads what has arrived, as if the others were no neighbours in this round, and the weights of
rules that have some go where the network says.
"""

from typing import ClassVar, NamedTuple

import numpy as np
from jax import Array

from jdfl.algorithms.algorithm import Algorithm, Objective
from jdfl.algorithms.gradients import Gradients
from jdfl.algorithms.round import Round
from jdfl.base import struct
from jdfl.base.settings import Momentum, Provenance, StepSize
from jdfl.network import Network, refuse_synchronised
from jdfl.problems import Problem
from jdfl.robust import ClippedGossip, Rule, check_combines


class State(NamedTuple):
    x: Array  # [m, n] parameters
    u: Array  # [m, n] momentum


@struct.dataclass
class RobustDSGD(Algorithm):
    """Robust D-SGD: a local gradient step with momentum, then a robust rule over the in-neighbours' models.

    It is inexact: a rule that bounds the influence of attackers also moves the average of honest nodes. Raises
    ValueError (from `check`) for settings out of range and for synchronised rounds.
    """

    kind: ClassVar[str] = "robust-d-psgd"
    provenance: ClassVar[Provenance] = ("from memory",)
    lr: StepSize = 0.1
    rule: Rule = ClippedGossip()
    """How a node combines its model with those that it receives."""
    beta: Momentum = 0.0
    """Momentum of the gradients."""
    gradients: Gradients = Gradients()
    objective: Objective = struct.field(pytree_node=False, default="mean")
    """Accept networks that preserve the mean of the nodes only, or all ("pi"), with the weights that they give."""
    title: ClassVar[str] = "Robust D-SGD"

    def check(self, problem: Problem, network: Network) -> None:
        """Raise ValueError for settings out of range, and for synchronised rounds."""
        super().check(problem, network)
        refuse_synchronised(network, self.title)
        check_combines(network, self.rule, self.title)

    def node_weights(self, problem: Problem, network: Network) -> np.ndarray | None:
        """The weights that W gives the nodes, where it is the rule; other rules do not multiply by it."""
        return None if self.rule.minimises else super().node_weights(problem, network)

    def minimises(self, problem: Problem, network: Network) -> str:
        """What the rule leaves of the nodes' objectives."""
        return self.rule.minimises or super().minimises(problem, network)

    def init(self, round: Round) -> State:
        x = round.problem.initial_params()
        return State(x, 0 * x)

    def step(self, state: State, round: Round) -> State:
        x, u = state
        u = self.beta * u + self.gradients(x, round)
        return State(round.by(self.rule).mix(x - self.lr * u), u)
