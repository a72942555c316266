"""DFedAvgM: decentralized federated averaging with momentum.

T. Sun, D. Li, B. Wang: Decentralized Federated Averaging, 2022 (arXiv 2104.11375; Algorithms 1 and 2).

    K times:  y_i+ = y_i - lr g_i(y_i) + theta (y_i - y_i-),   from y_i- = y_i = x_i
    x_i <- sum_j W_ij y_j

y_i- is the point before y_i: momentum is reset in every round. The y_j go through `codec`; a node mixes its own y
unencoded.

In Algorithm 2, the quantised form, the nodes send Q(y - x) instead, Q being `codec`. We could not look up how the paper
mixes these. sum_j W_ij (x_j + Q(y_j - x_j)) needs x_j, which node i cannot derive from the messages it receives, and
with x_i + sum_j W_ij Q(y_j - x_j) nodes with different data never reach consensus. With `quantised` the nodes implement
the first reading with the information they have: all keep xhat_j, the decoded state of y_j so far, and receive the
difference from it,

    q_j = Q(y_j - xhat_j);   xhat_j <- xhat_j + q_j;   x_i <- sum_j W_ij xhat_j.

With exact messages it is the plain form. What Q loses is lost for good: the average moves by the local steps in
expectation if Q is unbiased, and approximately so otherwise. Every message must reach all neighbours, hence a fixed
network.

Missing neighbours: their weight goes where the network says, by default to the node itself, and a node that receives
nothing keeps its y. Of delayed messages (`network.delays`) the newest is used. The quantised form is refused.
"""

from typing import ClassVar, NamedTuple

from jax import Array

from jdfl.algorithms.algorithm import FIXED_SYMMETRIC, Algorithm, Codes, Objective
from jdfl.algorithms.gradients import Gradients
from jdfl.algorithms.round import Round
from jdfl.algorithms.updates import Updates, released
from jdfl.base import struct
from jdfl.base.settings import Count, Momentum, Provenance, StepSize
from jdfl.codecs import Codec, Dense


class State(NamedTuple):
    x: Array  # [m, n] parameters after mixing
    hat: Array | None  # [m, n] public copies of y, if quantised


@struct.dataclass
class DFedAvgM(Algorithm):
    """DFedAvgM: local steps with momentum, then mixing; optionally quantised with public copies.

    It takes any gradients and codec. The plain form takes any network. The quantised form raises ValueError (from
    `check`) for a codec that is neither unbiased nor has a contraction factor, and for a network that is not fixed and
    undirected with symmetric doubly stochastic weights. It then warns, like DCD-PSGD, about a codec whose error may
    exceed the vector.
    """

    kind: ClassVar[str] = "dfedavgm"
    provenance: ClassVar[Provenance] = ("from memory",)
    lr: StepSize = 0.1
    theta: Momentum = 0.9
    """Momentum of the local steps, reset in every round."""
    local_steps: Count = struct.field(pytree_node=False, default=5)
    """Gradient steps before each exchange of messages."""
    gradients: Gradients = Gradients()
    updates: Updates | None = None
    codec: Codec = Dense()
    quantised: bool = struct.field(pytree_node=False, default=False)
    """Send differences from public copies instead of the parameters."""
    objective: Objective = struct.field(pytree_node=False, default="mean")
    """Accept networks that preserve the mean of the nodes only, or all ("pi"), with the weights that they give."""
    late: ClassVar[bool] = True

    @property
    def title(self) -> str:
        return "quantised DFedAvgM" if self.quantised else "DFedAvgM"

    @property
    def codes(self) -> Codes:
        return "replicas" if self.quantised else "models"

    @property
    def needs(self) -> dict[str, bool]:
        """Requirements on the network: the quantised form needs one on which all copies stay identical."""
        return FIXED_SYMMETRIC if self.quantised else {}

    def init(self, round: Round) -> State:
        x = round.problem.initial_params()
        return State(x, x if self.quantised else None)

    def step(self, state: State, round: Round) -> State:
        x, hat = state

        def local(here: Round, carry: tuple[Array, Array]) -> tuple[Array, Array]:
            y, before = carry
            return y - self.lr * self.gradients(y, here) + self.theta * (y - before), y

        y, _ = round.repeat(self.local_steps, local, (x, x))
        y = released(self.updates, x, y, round)
        if hat is None:
            return State(round.mix(y), None)
        hat = round.publish(y, hat)
        return State(round.mix(hat, None), hat)
