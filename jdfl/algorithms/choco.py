"""CHOCO-SGD: decentralized SGD with compressed differences to public copies.

A. Koloskova, S. U. Stich, M. Jaggi: Decentralized Stochastic Optimization and Gossip Algorithms with Compressed
Communication, 2019 (Algorithm 2); A. Koloskova, T. Lin, S. U. Stich, M. Jaggi: Decentralized Deep Learning with
Arbitrary Communication Compression, 2020 (Algorithm 1).

    h_i    =  x_i - lr g_i(x_i)
    q_i    =  C(h_i - xhat_i)                              (sent to all neighbours)
    xhat_i <- xhat_i + q_i                                 (at i and at all its neighbours)
    x_i    <- h_i + gamma sum_j W_ij (xhat_j - xhat_i)

C is `codec` and gamma the step size towards the public copies. This is the order of 2019: nodes mix the copies they
have just updated, so with exact messages and gamma = 1 it is D-PSGD with `order="adapt-then-combine"`.
`order="combine-then-adapt"` is the order of 2020,

    x_i <- h_i + gamma sum_j W_ij (xhat_j - xhat_i);   q_i = C(x_i - xhat_i);   xhat_i <- xhat_i + q_i,

in which a message can travel while the next gradient is computed; with exact messages and gamma = 1 it is D-PSGD as
published. An exchange may follow several gradient steps (`local_steps`) of any optimizer; the papers take one of plain
SGD.

Nodes keep the public copies xhat_j of their neighbours. These are identical everywhere as long as every message reaches
every neighbour, so one row per node suffices here and the network must be fixed. The average of the nodes moves by -lr
times the average gradient, whatever the codec loses.

The papers prove convergence for gamma up to a bound (2019, Theorem 2) that is very conservative: 3e-5 on a ring of 16
nodes that send the largest 10 %, where 0.3 still converges.

Missing neighbours: refused, because every message builds on all earlier ones.
"""

import warnings
from typing import Any, ClassVar, Literal, NamedTuple

from jax import Array

from jdfl.algorithms import descent
from jdfl.algorithms.algorithm import FIXED_SYMMETRIC, Algorithm, Codes
from jdfl.algorithms.gradients import Gradients
from jdfl.algorithms.round import Round
from jdfl.base import checks, struct
from jdfl.base.settings import Count, Fraction, Provenance, StepSize
from jdfl.codecs import Codec, LowRank, RandomK, Sparse
from jdfl.network.graph import Network
from jdfl.problems import Problem

_TIGHT = (Sparse, RandomK, LowRank)  # codecs that do little better than their contraction factor in every round
_NEVER_DIVERGED = 1.7  # gamma over the contraction factor, in all trials of averaging


class State(NamedTuple):
    x: Array  # [m, n] parameters
    hat: Array  # [m, n] public copies of x, the same at the node and at all its neighbours
    optimizer: Any  # state of the optimizer, leaves [m, ...]


@struct.dataclass
class CHOCO(Algorithm):
    """CHOCO-SGD: decentralized SGD that sends compressed differences to public copies.

    It takes any gradients, any optimizer, and any codec with a contraction factor.

    Raises ValueError (from `check`) for a codec without a contraction factor, and a network that is not fixed and
    undirected with symmetric doubly stochastic weights. Warns where gamma is large for the codec. Plain averaging on
    rings, a star and a complete network of 5 to 16 nodes, with top-k and random-k messages of 10 to 50 %, always
    converged up to gamma = 1.7 delta. It diverged in 1 of 8 cases at 2 delta and in most cases from 3 delta on. (`Sign`
    and `QSGD`, whose delta is a worst case, converged there with gamma = 1.)
    """

    kind: ClassVar[str] = "choco-sgd"
    provenance: ClassVar[Provenance] = ("from memory",)
    lr: StepSize = 0.1
    gamma: Fraction = 0.1
    """Step size towards the neighbours' public copies, in (0, 1]."""
    gradients: Gradients = Gradients()
    optimizer: descent.Optimizer = struct.field(pytree_node=False, default=None)
    codec: Codec = Sparse(share=0.1)
    local_steps: Count = struct.field(pytree_node=False, default=1)
    """Gradient steps before each exchange of messages."""
    order: Literal["adapt-then-combine", "combine-then-adapt"] = struct.field(
        pytree_node=False, default="adapt-then-combine"
    )
    """Mix the public copies after this round's update (2019), or those of the round before (2020)."""
    title: ClassVar[str] = "CHOCO-SGD"
    tuned: ClassVar[tuple[str, ...]] = ("lr", "gamma")
    needs: ClassVar[dict[str, bool]] = FIXED_SYMMETRIC
    codes: ClassVar[Codes] = "contracting"

    def check(self, problem: Problem, network: Network) -> None:
        super().check(problem, network)
        delta = self.codec.contraction(problem.n, problem.n)
        assert delta is not None  # a codec with a contraction factor
        warn_of_gamma(self.codec, float(self.gamma), delta)

    def init(self, round: Round) -> State:
        x = round.problem.initial_params()
        return State(x, x, descent.begin(self.optimizer, self.lr, x))

    def step(self, state: State, round: Round) -> State:
        h, optimizer = descent.local_steps(self, state.x, state.optimizer, round)
        if self.order == "adapt-then-combine":
            hat = round.publish(h, state.hat)
            x = h + self.gamma * (round.mix(hat, None) - hat)
        else:
            x = h + self.gamma * (round.mix(state.hat, None) - state.hat)
            hat = round.publish(x, state.hat)
        return State(x, hat, optimizer)


def warn_of_gamma(codec: Codec, gamma: float, delta: float) -> None:
    """Warn about a step size towards public copies that is large for messages with the contraction factor delta."""
    if isinstance(codec, _TIGHT) and gamma > _NEVER_DIVERGED * delta:
        warnings.warn(
            f"gamma = {gamma:g} is large for messages with contraction factor delta = {delta:.3g}: the public copies "
            f"may diverge from the parameters. Try gamma <= {delta:.3g}, or send more.",
            checks.HintWarning,
            stacklevel=3,
        )
