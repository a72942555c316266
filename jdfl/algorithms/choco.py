"""CHOCO-SGD: decentralized SGD with compressed differences to public copies.

A. Koloskova, S. U. Stich, M. Jaggi: Decentralized Stochastic Optimization and Gossip Algorithms with Compressed
Communication, 2019 (Algorithm 2); A. Koloskova, T. Lin, S. U. Stich, M. Jaggi: Decentralized Deep Learning with
Arbitrary Communication Compression, 2020 (Algorithm 1).

    h_i    =  x_i - lr g_i(x_i)
    q_i    =  C(h_i - xhat_i)                              (sent to all neighbours)
    xhat_i <- xhat_i + q_i                                 (at i and at all its neighbours)
    x_i    <- h_i + gamma sum_j W_ij (xhat_j - xhat_i)

C is `codec`, gamma the step towards the neighbours. That is the order of 2019: nodes mix what they have just heard, so
that exact messages and gamma = 1 give D-PSGD with `order="adapt first"`. `order="mix first"` is the order of 2020,

    x_i <- h_i + gamma sum_j W_ij (xhat_j - xhat_i);   q_i = C(x_i - xhat_i);   xhat_i <- xhat_i + q_i,

in which a message may travel while the next gradient is computed; exact messages and gamma = 1 give D-PSGD as it was
published. The orders are from memory of the papers. `local_steps` gradient steps, of any optimizer, may come before an
exchange; the papers take one of plain SGD.

Nodes keep the copies xhat_j of their neighbours, which are the same everywhere as long as every message reaches every
neighbour: one row per node is enough here, and the network must be fixed. The average of the nodes moves by lr times
the average gradient, and by nothing else, whatever the codec loses.

The papers prove convergence for gamma up to `safe_gamma(network, delta)`, delta being the codec's contraction: a very
careful number (3e-5 on a ring of 16 nodes that send the largest 10 %, where 0.3 still converges).

Missing neighbours: refused, since every message builds on all those before it.

Axes: m nodes, n parameters.
"""

import warnings
from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np
from jax import Array

from jdfl import checks, struct
from jdfl.algorithms import descent
from jdfl.algorithms.consequences import consequence
from jdfl.algorithms.exchange import CODEC, check_codec, heard, received
from jdfl.algorithms.gradients import Gradients
from jdfl.base import Info, Round, counts
from jdfl.codecs import Codec, Dense, LowRank, RandomK, Sparse
from jdfl.network.graph import Network, mix
from jdfl.network.requirements import require
from jdfl.network.tables import to_scipy
from jdfl.privacy import Guarantee
from jdfl.problems import Problem
from jdfl.settings import Count, Fraction, Positive

_TIGHT = (Sparse, RandomK, LowRank)  # codecs that do little better than their contraction says, round after round
_NEVER_DIVERGED = 1.7  # gamma over their contraction, in all trials of averaging


@struct.dataclass
class State:
    """What the next round needs."""

    x: Array  # [m, n] parameters
    hat: Array  # [m, n] public copies of them, the same at the node and at all its neighbours
    optimizer: Any  # the optimizer's, leaves [m, ...]


@struct.dataclass
class CHOCO:
    """Decentralized SGD with compressed differences to public copies and any codec that contracts.

    CHOCO-SGD with any gradients, optimizer and codec that contracts.

    Raises ValueError (from `check`) for settings out of range, a codec without a contraction, and a network that is not
    fixed and undirected with symmetric doubly stochastic weights. Warns where gamma is large for a codec that leaves
    things out: plain averaging on rings, a star and a complete network of 5 to 16 nodes, with top-k and random-k
    messages of 10 to 50 %, always converged up to gamma = 1.7 delta, and diverged in 1 of 8 cases at 2 delta and in
    most from 3 delta on. (`Sign` and `QSGD`, whose delta is a worst case, converged there with gamma = 1.)
    """

    kind: ClassVar[str] = "choco-sgd"
    lr: Positive = 0.1
    """Length of the steps."""
    gamma: Fraction = 0.1
    """Step towards the neighbours' public copies, in (0, 1]."""
    gradients: Gradients = Gradients()
    """How nodes take gradients: of which examples, clipped, with which noise."""
    optimizer: descent.Optimizer = struct.field(pytree_node=False, default=None)
    """An optax optimizer, or a function that makes one of `lr`; None: plain gradient steps."""
    codec: Codec = Dense()
    """What travels on a wire."""
    local_steps: Count = struct.field(pytree_node=False, default=1)
    """Gradient steps before each exchange of messages."""
    order: Literal["adapt first", "mix first"] = struct.field(pytree_node=False, default="adapt first")
    """Mix the copies that were just heard (2019), or those of the round before (2020)."""
    tuned: ClassVar[tuple[str, ...]] = ("lr", "gamma")

    def check(self, problem: Problem, network: Network) -> None:
        """Refuse settings, codecs and networks that the method cannot have, naming them."""
        descent.check_optimizer(self.optimizer)
        self.gradients.check(problem)
        check_codec("CHOCO-SGD", self.codec, problem.n, problem.m, problem.n)
        delta = self.codec.contraction(problem.n, problem.n)
        if delta is None:
            raise ValueError(
                "Expected a codec of CHOCO-SGD that contracts, E ||C(x) - x||^2 <= (1 - delta) ||x||^2 for every x and "
                f"a delta > 0, got codec = {self.codec!r}, for which no delta is known. Use Sparse(share=0.1), or "
                "Dense()."
            )
        require(network, "CHOCO-SGD", fixed=True, undirected=True, doubly_stochastic=True, symmetric_weights=True)
        warn_of_gamma("CHOCO-SGD", self.codec, float(self.gamma), delta)

    def prepare(self, problem: Problem, round: Round) -> "CHOCO":
        """Let the codec draw what it shares, and the gradients prepare what they need."""
        codec = self.codec.prepare(round.stream(CODEC), round.node, problem.n, problem.n, problem.dtype)
        return replace(self, gradients=self.gradients.prepare(problem, round), codec=codec)

    def init(self, problem: Problem, round: Round) -> tuple[State, Info]:
        """Start from x = xhat where the problem says, which all neighbours know."""
        x = problem.begin()
        state = State(x, x, descent.begin(self.optimizer, self.lr, x))
        return state, counts(problem.m, {"model": 0})

    def step(self, state: State, problem: Problem, round: Round) -> tuple[State, Info]:
        """One round."""
        h, optimizer = descent.local_steps(
            self.local_steps, self.gradients, self.optimizer, self.lr, state.x, state.optimizer, problem, round
        )
        if self.order == "adapt first":
            hat = self._published(h, state.hat, round)
            x = h + self.gamma * (mix(round.graph, hat) - hat)
        else:
            x = h + self.gamma * (mix(round.graph, state.hat) - state.hat)
            hat = self._published(x, state.hat, round)
        done = counts(
            round.m,
            {"model": round.graph.out_degree},
            grads=self.local_steps,
            releases=self.gradients.releases(self.local_steps, 1),
            communications=heard(round.graph),
        )
        return State(x, hat, optimizer), done

    def _published(self, x: Array, hat: Array, round: Round) -> Array:
        """The public copies [m, n] after q = C(x - hat) was sent."""
        return hat + received(self.codec, x - hat, round, round.graph.out_degree > 0)

    def params(self, state: State) -> Array:
        """The parameters x [m, n]."""
        return state.x

    def examples(self, problem: Problem) -> Array:
        """Those of a gradient."""
        return self.gradients.examples(problem)

    def message_bits(self, problem: Problem) -> dict[str, int]:
        """One channel, the codec's size."""
        return {"model": self.codec.bits(problem.n)}

    def privacy(self, problem: Problem) -> Guarantee:
        """That of the gradients: everything else is computed from them and from messages."""
        return self.gradients.guarantee(problem)


def warn_of_gamma(method: str, codec: Codec, gamma: float, delta: float) -> None:
    """Warn of a step towards public copies that is long for messages with the contraction delta."""
    if isinstance(codec, _TIGHT) and gamma > _NEVER_DIVERGED * delta:
        warnings.warn(
            f"gamma = {gamma:g} is large for messages whose contraction is delta = {delta:.3g}: the public copies may "
            f"run away from the parameters.{consequence(method, codec)} Try gamma <= {delta:.3g}, or send more.",
            stacklevel=3,
        )


def safe_gamma(network: Network, delta: float) -> float:
    """The gamma up to which the papers prove that averaging with a delta-contractive codec converges (on the host).

        gamma = rho^2 delta / (16 rho + rho^2 + 4 beta^2 + 2 rho beta^2 - 8 rho delta)

    rho is the spectral gap of W and beta = ||I - W||_2 (2019, Theorem 2; the formula is from memory). With exact
    messages (delta = 1) it is 1 instead, where averaging is plain. Eigenvalues take m^3 operations. Raises ValueError
    for delta outside (0, 1], and for networks that CHOCO-SGD refuses or that are not connected.
    """
    checks.fraction(delta=delta)
    require(network, "CHOCO-SGD", fixed=True, undirected=True, doubly_stochastic=True, symmetric_weights=True)
    if delta == 1:
        return 1.0
    W: Any = to_scipy(network)
    values = np.linalg.eigvalsh(W.toarray())
    rho = 1 - float(np.max(np.abs(values[:-1]), initial=0))
    if rho < 1e-6:
        raise ValueError(
            f"Expected a network whose nodes come to agree, got a spectral gap of {rho:.1g}. Use a connected one, with "
            "weights of its own on every node."
        )
    beta = 1 - float(values[0])
    return rho**2 * delta / (16 * rho + rho**2 + 4 * beta**2 + 2 * rho * beta**2 - 8 * rho * delta)
