"""Decentralized Adam: DADAM, whose nodes scale steps by their own second moments, and AMSGrad with agreed ones.

P. Nazari, D. A. Tarzanagh, G. Michailidis: DADAM: A Consensus-based Distributed Adaptive Gradient Method for Online
Optimization, 2019, without its projection; X. Chen, B. Karimi, W. Zhao, P. Li: On the Convergence of Decentralized
Adaptive Gradient Methods, 2021 (decentralized AMSGrad).

    m_i <- beta1 m_i + (1 - beta1) g_i(x_i),         v_i <- beta2 v_i + (1 - beta2) g_i(x_i)^2
    t_i <- beta3 t_i + (1 - beta3) max(t_i, v_i),    x_i <- sum_j W_ij x_j - lr m_i / (sqrt(t_i) + eps)     (DADAM)
    t_i+ = max(t_i, v_i),   w_i = sum_j W_ij u_j,    x_i <- sum_j W_ij x_j - lr m_i / sqrt(max(w_i, eps))   (AMSGrad)
    u_i <- w_i + t_i+ - t_i,                         t_i <- t_i+

Operations are entry by entry. Both start from m_i = v_i = 0, DADAM from t_i = 0, AMSGrad from t_i = u_i = eps. Nodes
with different t_i weigh their gradients differently: DADAM may converge to a point where the average gradient is not
zero, as the second paper shows. The u_i of AMSGrad track the average of the t_i, so nodes use nearly the same scale.

The paper has no eps; DADAM's is that of the authors' code. The code also corrects the bias of m and v, and divides by
the root of the corrected v in place of t.

Missing neighbours: their weight goes where the network says, by default to the node itself, and a node that receives
nothing takes its step alone. W must stay doubly stochastic, so both directions of a link fail together.
"""

from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
from jax import Array

from jdfl.algorithms.algorithm import Algorithm
from jdfl.algorithms.gradients import Gradients
from jdfl.algorithms.quasi_global import averaged
from jdfl.algorithms.round import MODEL, TRACKER, Channel, Round
from jdfl.base import struct
from jdfl.base.settings import Momentum, Positive, Provenance, StepSize
from jdfl.network import Network
from jdfl.problems import Problem


class State(NamedTuple):
    x: Array  # [m, n] parameters
    first: Array  # [m, n] first moments
    v: Array  # [m, n] second moments
    t: Array  # [m, n] largest second moments
    u: Array | None = None  # [m, n] trackers of the average of t, of AMSGrad


@struct.dataclass
class DADAM(Algorithm):
    """DADAM: decentralized Adam with second moments of every node's own.

    It takes any gradients. Raises ValueError (from `check`) for networks whose W is not doubly stochastic.
    """

    kind: ClassVar[str] = "dadam"
    provenance: ClassVar[Provenance] = ("from memory", "authors' code read")
    lr: StepSize = 0.01
    beta1: Momentum = 0.9
    """Memory of the first moments."""
    beta2: Momentum = 0.99
    """Memory of the second moments."""
    beta3: Momentum = 0.9
    """Memory of the largest second moments; 0: those of AMSGrad."""
    eps: Positive = 1e-8
    """Added to roots of second moments."""
    gradients: Gradients = Gradients()
    title: ClassVar[str] = "DADAM"
    needs: ClassVar[dict[str, bool]] = {"doubly_stochastic": True}

    def minimises(self, problem: Problem, network: Network) -> str:
        """No mean of objectives: every node scales its gradients by their own size."""
        return "no mean of the f_i: it ends where gradients that every node scales by their own size add up to zero"

    def init(self, round: Round) -> State:
        x = round.problem.initial_params()
        return State(x, *(jnp.zeros_like(x),) * 3)

    def step(self, state: State, round: Round) -> State:
        x, t = state.x, state.t
        first, v = _moments(self, state, round)
        t = averaged(self.beta3, t, jnp.maximum(t, v))
        return State(round.mix(x) - self.lr * first / (jnp.sqrt(t) + self.eps), first, v, t)


@struct.dataclass
class DAMSGrad(Algorithm):
    """decentralized AMSGrad: adaptive steps whose second moments the nodes agree on.

    It takes any gradients. Raises ValueError (from `check`) for networks whose W is not doubly stochastic.
    """

    kind: ClassVar[str] = "d-amsgrad"
    provenance: ClassVar[Provenance] = ("from memory", "authors' code read")
    lr: StepSize = 0.01
    beta1: Momentum = 0.9
    """Memory of the first moments."""
    beta2: Momentum = 0.99
    """Memory of the second moments."""
    eps: Positive = 1e-3
    """Initial second moments, and the smallest that scale a step."""
    gradients: Gradients = Gradients()
    title: ClassVar[str] = "decentralized AMSGrad"
    needs: ClassVar[dict[str, bool]] = {"doubly_stochastic": True}
    channels: ClassVar[tuple[Channel, ...]] = (MODEL, TRACKER)

    def init(self, round: Round) -> State:
        x = round.problem.initial_params()
        zero, eps = jnp.zeros_like(x), jnp.full_like(x, self.eps)
        return State(x, zero, zero, eps, eps)

    def step(self, state: State, round: Round) -> State:
        assert state.u is not None
        first, v = _moments(self, state, round)
        t, w = jnp.maximum(state.t, v), state.u + round.pull(state.u, TRACKER)
        x = round.mix(state.x) - self.lr * first / jnp.sqrt(jnp.maximum(w, self.eps))
        return State(x, first, v, t, w + t - state.t)


def _moments(of: Any, state: State, round: Round) -> tuple[Array, Array]:
    """The next first and second moments [m, n]."""
    g = of.gradients(state.x, round)
    return averaged(of.beta1, state.first, g), averaged(of.beta2, state.v, g * g)
