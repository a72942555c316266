"""SGP: stochastic gradient push, over directed networks, all parameters shared.

M. Assran, N. Loizou, N. Ballas, M. Rabbat: Stochastic Gradient Push for Distributed Deep Learning, 2019 (Algorithm 1).

    h_i = x_i - lr g_i(x_i / a_i),   x_i <- sum_j P_ij h_j,   a_i <- sum_j P_ij a_j

The columns of P sum to one. With `dpps=DPPS(b=...)` messages are noisy: SGPDP of the DPPS paper.

Missing neighbours: the columns of P must still sum to one, so that the sender keeps what does not arrive
(`weights="sender"`), and nothing of the sums of x and a is lost. What is late (`network.delays`) is added when it
arrives.

Axes: m nodes, n parameters.
"""

from dataclasses import replace
from typing import ClassVar

from jax import Array

from jdfl import struct
from jdfl.algorithms.dpps import DPPS, PushSum
from jdfl.algorithms.exchange import heard
from jdfl.algorithms.gradients import Exact, Gradients
from jdfl.algorithms.push_descent import Milestone, check_steps, decays, private, shared_gradient, step_bounds
from jdfl.base import Info, Round, counts
from jdfl.network import Network
from jdfl.privacy import Guarantee
from jdfl.problems import Problem
from jdfl.settings import Positive


@struct.dataclass
class SGP:
    """Stochastic gradient push: SGD over directed networks by push-sum.

    SGP, private where its protocol has noise. Raises ValueError (from `check` and `plan`) for bad settings.
    """

    kind: ClassVar[str] = "sgp"
    lr: Positive = 0.1
    """Length of the steps."""
    gradients: Exact = Gradients(per="batch", norm="l1")
    """How nodes take gradients: of which examples, clipped, with which noise."""
    dpps: DPPS = DPPS()
    """Noise on messages."""
    milestones: tuple[Milestone, ...] = struct.field(pytree_node=False, default=())
    """Rounds from which all rates are lower."""
    decay: Positive = 0.1
    """What rates are multiplied by at every milestone."""
    tuned: ClassVar[tuple[str, ...]] = ("lr",)
    late: ClassVar[bool] = True
    columns: ClassVar[bool] = True  # what W's sums to one run over
    planned: ClassVar[tuple[str, ...]] = ("dpps.schedule", "dpps.scales")  # what `plan` fills in

    def check(self, problem: Problem, network: Network) -> None:
        """Refuse settings out of range, naming them."""
        check_steps("SGP", self.gradients, self.dpps, problem, network)

    def plan(self, problem: Problem, network: Network, steps: int) -> "SGP":
        """With the schedule of noise, on the host before a run."""
        scales = decays(self.milestones, self.decay, steps)
        bounds = step_bounds(self.gradients, self.lr, scales, problem.n)
        return replace(self, dpps=self.dpps.plan(network, bounds, scales, problem.n, problem.start))

    def prepare(self, problem: Problem, round: Round) -> "SGP":
        """Let the gradients prepare what they need."""
        return replace(self, gradients=self.gradients.prepare(problem, round))

    def init(self, problem: Problem, round: Round) -> tuple[PushSum, Info]:
        """Start where the problem says."""
        nothing = dict.fromkeys(self.message_bits(problem), 0)
        return self.dpps.init(problem.begin(), round), counts(problem.m, nothing)

    def step(self, state: PushSum, problem: Problem, round: Round) -> tuple[PushSum, Info]:
        """One round."""
        g = shared_gradient(self.gradients, state.y, problem, round)
        state = self.dpps.step(state, -self.lr * self.dpps.scale(round.k).astype(g.dtype) * g, round)
        return state, counts(
            round.m,
            self.dpps.sent(round.graph),
            grads=1,
            releases=0 if self.dpps.b is None else 1,
            communications=heard(round.graph),
        )

    def params(self, state: PushSum) -> Array:
        """The corrected parameters x / a [m, n]."""
        return state.y

    def visible(self, state: PushSum) -> Array:
        """What others see of a state [m, n]: messages."""
        return state.shown

    def examples(self, problem: Problem) -> Array:
        """Those of a gradient."""
        return self.gradients.examples(problem)

    def message_bits(self, problem: Problem) -> dict[str, int]:
        """Those of the protocol."""
        return self.dpps.message_bits(problem.n, problem.dtype)

    def privacy(self, problem: Problem) -> Guarantee:
        """That of the protocol."""
        return private(self.dpps, self.gradients, self.lr, problem.n)
