"""BEER, MoTEF and PORTER: gradient tracking that sends compressed differences to public copies of x and trackers.

H. Zhao, B. Li, Z. Li, P. Richtarik, Y. Chi: BEER: Fast O(1/T) Rate for Decentralized Nonconvex Optimization with
Communication Compression, 2022 (Algorithm 1); R. Islamov, Y. Gao, S. U. Stich: Near Optimal Decentralized Optimization
with Compression and Momentum Tracking, 2024 (MoTEF; its variance-reduced form is not here); B. Li, Y. Chi: Convergence
and Privacy of Decentralized Nonconvex Optimization with Gradient Clipping and Communication Compression, 2023
(PORTER-GC and PORTER-DP).

    x_i <- x_i + gamma sum_j W_ij (xhat_j - xhat_i) - lr v_i,               xhat_i <- xhat_i + C(x_i - xhat_i)
    v_i <- v_i + gamma sum_j W_ij (vhat_j - vhat_i) + e_i - (e_i before),   vhat_i <- vhat_i + C(v_i - vhat_i)
    BEER:     e_i = g_i(x_i)
    MoTEF:    e_i = (1 - momentum) (e_i before) + momentum g_i(x_i)
    PORTER:   e_i = tau / (tau + ||g_i(x_i)||) g_i(x_i)

C(...) is sent. Copies are mixed before they move. The average of the v_i is that of the e_i in every round, whatever C
loses, and all errors vanish together with the differences: with gradients of all examples BEER is exact for every C
with a contraction factor.

The run starts as in BEER's paper and its authors' code: v_i = e_i = g_i(x_i), which is not sent, so vhat_i = 0. Their
xhat_i begins at 0, too, and here at x_i, which all neighbours know. With `start="zero"` v_i = e_i = 0, and the second
line comes before the first, so that the first v is sent as well: then BEER is gradient tracking (`jdfl.DIGing`) with
exact messages and gamma = 1, and it is `jdfl.CPGT` without noise for every C. PORTER starts so by default.

MoTEF's `momentum` is the weight of the new gradient, lambda in the paper; 1 makes it BEER. A small one averages the
noise of minibatches over rounds, so that the error that they leave shrinks with the number of nodes although messages
are compressed. It starts as the authors' synthetic experiments do. Their code for logistic regression and neural
networks starts from v_i = g_i(x_i) and e_i = 0, from which v never has the average of e; it is left out.

The formula above is PORTER-GC, which clips the gradient of a node's batch. Its clipping is smooth: it shortens every
gradient, to less than tau. With tau = None it is BEER. PORTER-DP clips the gradient of every example and adds Gaussian
noise to their mean: `PORTER(tau=None, gradients=Gradients(clip=..., mechanism=Gaussian(...)))`. This clips to min(1,
clip / norm), whereas the paper's is smooth there, too; the sensitivity is the same. With both, noisy gradients are
clipped again, which reveals nothing more. Clipped gradients of different nodes need not cancel at the solution, so
PORTER is not exact.

Missing neighbours: refused, because every message builds on all earlier ones.
"""

from typing import ClassVar, Literal, NamedTuple

import jax.numpy as jnp
from jax import Array

from jdfl.algorithms.algorithm import FIXED_SYMMETRIC, Algorithm, Codes
from jdfl.algorithms.gradients import Gradients
from jdfl.algorithms.round import MODEL, TRACKER, Channel, Round
from jdfl.arrays import ops
from jdfl.base import struct
from jdfl.base.settings import Fraction, Positive, Provenance, StepSize
from jdfl.codecs import Codec, Sparse
from jdfl.network import Network
from jdfl.problems import Problem


class State(NamedTuple):
    x: Array  # [m, n] parameters
    v: Array  # [m, n] trackers of the average of e
    g: Array  # [m, n] last e, what is tracked
    x_hat: Array  # [m, n] public copies of x, the same at the node and at all its neighbours
    v_hat: Array  # [m, n] public copies of v


@struct.dataclass
class BEER(Algorithm):
    """BEER: compressed gradient tracking; exact with a constant step size whatever the messages lose.

    It takes any gradients, and any codec with a contraction factor; lossy ones need a small gamma. Raises ValueError
    (from `check`) for settings out of range, other codecs, and a network that is not fixed and undirected with
    symmetric doubly stochastic weights.
    """

    kind: ClassVar[str] = "beer"
    provenance: ClassVar[Provenance] = ("from memory", "authors' code read")
    lr: StepSize = 0.05
    gamma: Fraction = 0.5
    """Step size towards the neighbours' public copies, in (0, 1]."""
    gradients: Gradients = Gradients()
    codec: Codec = Sparse(share=0.3)
    start: Literal["gradient", "zero"] = struct.field(pytree_node=False, default="gradient")
    """Begin with the gradients as trackers, unsent (paper, authors' code), or with zero and send the first trackers."""
    title: ClassVar[str] = "BEER"
    exact: ClassVar[bool] = True
    tuned: ClassVar[tuple[str, ...]] = ("lr", "gamma")
    needs: ClassVar[dict[str, bool]] = FIXED_SYMMETRIC
    codes: ClassVar[Codes] = "contracting"
    channels: ClassVar[tuple[Channel, ...]] = (MODEL, TRACKER)

    def init(self, round: Round) -> State:
        x, zero = round.problem.initial_params(), jnp.zeros_like(round.problem.initial_params())
        g = zero if self.start == "zero" else self.estimate(x, None, round)
        return State(x, g, g, x, zero)

    def estimate(self, x: Array, last: Array | None, round: Round) -> Array:
        """Return what is tracked at x [m, n]: the gradients; `last` [m, n] is what was tracked before, if anything."""
        return self.gradients(x, round)

    def step(self, state: State, round: Round) -> State:
        x, v, g, x_hat, v_hat = state

        def moved() -> tuple[Array, Array]:
            new = x + self.gamma * round.pull(x_hat, None) - self.lr * v
            return new, round.publish(new, x_hat)

        if self.start == "gradient":
            x, x_hat = moved()
        new = self.estimate(x, g, round)
        v = v + self.gamma * round.pull(v_hat, None) + (new - g)
        v_hat = round.publish(v, v_hat, TRACKER)
        if self.start == "zero":
            x, x_hat = moved()
        return State(x, v, new, x_hat, v_hat)

    def visible(self, state: State) -> Array:
        """What others have seen [m, 2 n]: the public copies of x and v."""
        return jnp.concatenate([state.x_hat, state.v_hat], axis=1)


@struct.dataclass
class MoTEF(BEER):
    """MoTEF: compressed momentum tracking, for stochastic gradients.

    It takes any gradients, and any codec with a contraction factor. Raises ValueError (from `check`) as `BEER` does.
    """

    kind: ClassVar[str] = "motef"
    provenance: ClassVar[Provenance] = ("authors' code read",)
    momentum: Fraction = 0.2
    """Weight of the new gradient in the momentum, in (0, 1]; 1: no momentum."""
    title: ClassVar[str] = "MoTEF"
    exact: ClassVar[bool] = True

    def estimate(self, x: Array, last: Array | None, round: Round) -> Array:
        """Return the momentum m [m, n]; the first is the gradient."""
        g = self.gradients(x, round)
        return g if last is None else last + self.momentum * (g - last)


@struct.dataclass
class PORTER(BEER):
    """PORTER: compressed gradient tracking of clipped gradients, optionally private.

    It takes any gradients, and any codec with a contraction factor. Raises ValueError (from `check`) as `BEER` does.
    """

    kind: ClassVar[str] = "porter"
    provenance: ClassVar[Provenance] = ("from memory",)
    tau: Positive | None = 1.0
    """Threshold of the smooth clipping of every node's gradient; None: no smooth clipping."""
    start: Literal["gradient", "zero"] = struct.field(pytree_node=False, default="zero")
    title: ClassVar[str] = "PORTER"
    exact: ClassVar[bool] = False  # clipped gradients need not vanish together

    def minimises(self, problem: Problem, network: Network) -> str:
        """No mean of objectives where gradients are clipped."""
        return "" if self.tau is None else "no mean of the f_i: it ends where clipped gradients add up to zero"

    def estimate(self, x: Array, last: Array | None, round: Round) -> Array:
        """Return the clipped gradients [m, n]."""
        g = self.gradients(x, round)
        return g if self.tau is None else self.tau / (self.tau + ops.length(g, "l2")[:, None]) * g
