"""DFedAvgM: decentralized federated averaging with momentum.

T. Sun, D. Li, B. Wang: Decentralized Federated Averaging, 2022 (arXiv 2104.11375; Algorithms 1 and 2).

    K times:  y_i+ = y_i - lr g_i(y_i) + theta (y_i - y_i-),   from y_i- = y_i = x_i
    x_i <- sum_j W_ij y_j

y_i- is the point before y_i: momentum starts anew in every round. The y_j go through `codec`; a node mixes its own y as
it is.

In Algorithm 2, the quantised form, the nodes send Q(y - x) instead, Q being `codec`. How the paper mixes these could
not be looked up, and of two readings none will do: sum_j W_ij (x_j + Q(y_j - x_j)) needs x_j, a sum over the neighbours
of node j, which node i cannot know from what it hears; and x_i + sum_j W_ij Q(y_j - x_j) makes x - x_0 W times the sum
of all messages, mixed only once however many rounds there are, so that nodes with different data never agree (on least
squares they came to rest at minima of their own, or diverged where W has negative eigenvalues). With `quantised` the
nodes do what the first asks for by what they can know: all keep xhat_j, what was heard of y_j so far, and hear the
difference to it,

    q_j = Q(y_j - xhat_j);   xhat_j <- xhat_j + q_j;   x_i <- sum_j W_ij xhat_j.

Exact messages make it the plain form. What Q loses is lost: the average moves by the local steps in expectation if Q is
unbiased, and only up to what Q loses if not. Every message must reach all neighbours, hence a fixed network.

Missing neighbours: their weight goes where the network says, by default to the node's own row, and a node that hears
nobody keeps its y. Of late messages (`network.delays`) it takes the newest. The quantised form is refused.

Axes: m nodes, n parameters.
"""

from typing import ClassVar, NamedTuple

from jax import Array

from jdfl.algorithms.algorithm import Algorithm
from jdfl.algorithms.codes import Codes
from jdfl.algorithms.gradients import Gradients
from jdfl.algorithms.round import Round
from jdfl.algorithms.step_lengths import FIXED_SYMMETRIC
from jdfl.algorithms.updates import Updates, released
from jdfl.base import struct
from jdfl.base.settings import Count, Momentum, StepLength
from jdfl.codecs import Codec, Dense


class State(NamedTuple):
    """What the next round needs."""

    x: Array  # [m, n] parameters after mixing
    hat: Array | None  # [m, n] what all neighbours know of y, if quantised


@struct.dataclass
class DFedAvgM(Algorithm):
    """Local steps with momentum, then mixing; quantised with public copies.

    DFedAvgM with any gradients and codec, plain or quantised.

    The plain form takes any network. Raises ValueError (from `check`) for settings out of range; if quantised also for
    a codec that is neither unbiased nor contracts, and a network that is not fixed and undirected with symmetric doubly
    stochastic weights. Warns then, as DCD-PSGD, of a codec that may do worse than nothing.
    """

    kind: ClassVar[str] = "dfedavgm"
    lr: StepLength = 0.1
    theta: Momentum = 0.9
    """Momentum of the local steps, which starts anew in every round."""
    local_steps: Count = struct.field(pytree_node=False, default=5)
    """Gradient steps before each exchange of messages."""
    gradients: Gradients = Gradients()
    updates: Updates | None = None
    codec: Codec = Dense()
    quantised: bool = struct.field(pytree_node=False, default=False)
    """Send differences to public copies instead of the parameters."""
    late: ClassVar[bool] = True

    @property
    def title(self) -> str:
        """The method's name in messages."""
        return "quantised DFedAvgM" if self.quantised else "DFedAvgM"

    @property
    def codes(self) -> Codes:
        """What goes through the codec."""
        return "replicas" if self.quantised else "models"

    @property
    def needs(self) -> dict[str, bool]:
        """What it asks of a network: the quantised form, one on which all copies stay the same."""
        return FIXED_SYMMETRIC if self.quantised else {}

    def init(self, round: Round) -> State:
        """Start from x = xhat where the problem says, which all neighbours know."""
        x = round.problem.begin()
        return State(x, x if self.quantised else None)

    def step(self, state: State, round: Round) -> State:
        """One round."""
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
