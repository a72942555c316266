"""Directed CEPS: sparse models and one-bit messages over directed networks, by push-sum (our own method).

This method is in no paper. Nodes of CEPS request models from their neighbours, so links must run both ways; here nodes
only send. The parts are from CEPS (one-bit compressed sensing of sparse vectors: Sha, Zhou, Kong, Li), push-sum (A.
Nedic, A. Olshevsky, 2015; M. Assran, N. Loizou, N. Ballas, M. Rabbat, 2019), iterative hard thresholding (T.
Blumensath, M. E. Davies, 2009), and public copies (CHOCO-SGD; with push-sum: H. Taheri, A. Mokhtari, H. Hassani, R.
Pedarsani: Quantized Decentralized Stochastic Learning over Directed Graphs, 2020).

    w_i    =  H_s(x_i / a_i)                                                                     (the model)
    x_i    <- H_s(x_i - lr g_i(w_i))                                                             (`local_steps` times)
    q_i    =  C(H_s(x_i - xhat_i))                      (sent to all out-neighbours, together with the weight a_i)
    xhat_i <- xhat_i + q_i                              (at i and at all its out-neighbours)
    x_i    <- x_i + gamma (sum_j P_ij xhat_j - xhat_i),   a_i <- a_i + gamma (sum_j P_ij a_j - a_i)

H_s keeps the s entries of largest magnitude, C is `codec`, the columns of P sum to one, and a_i starts at 1.

Whatever the codec loses, mixing keeps the sums of x and a (the latter is m), and with s = n the sum of x moves by -lr
times the sum of the gradients. Both x and a are mixed by (1 - gamma) I + gamma P once the copies follow, so their
ratios agree between nodes. The step size of w_i is lr / a_i: where links are unevenly distributed, a falls below 1 at
nodes that receive little, and lr must be smaller.

Every gradient step ends with H_s. Without it, as in CHOCO-SGD, x_i collects the gradients of all n entries, which
messages of s entries cannot follow, and the run does not converge (`python -m experiments.directed_ceps`). With it one
message has nearly all of x_i - xhat_i, so gamma = 1 converges.

Missing neighbours: refused, because every message builds on all earlier ones; delayed messages are refused, too.
"""

from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
from jax import Array

from jdfl.algorithms.algorithm import Algorithm, Codes
from jdfl.algorithms.gradients import Gradients
from jdfl.algorithms.round import Round
from jdfl.arrays.ops import top_s
from jdfl.base import checks, struct
from jdfl.base.settings import Count, Fraction, Provenance, StepSize
from jdfl.codecs import Codec, OneBit
from jdfl.network import Network
from jdfl.problems import Problem


class State(NamedTuple):
    x: Array  # [m, n] sums of push-sum
    a: Array  # [m] push-sum weights
    hat: Array  # [m, n] public copies of x, the same at the node and at all its out-neighbours


@struct.dataclass
class DirectedCEPS(Algorithm):
    """Directed CEPS: our own method, with sparse models and one-bit messages over directed networks.

    It takes any gradients and any codec. With noisy clipped gradients it is private.

    Raises ValueError (from `check`) for a network that is not fixed, strongly connected, and column-stochastic.
    """

    kind: ClassVar[str] = "directed-ceps"
    provenance: ClassVar[Provenance] = ("no paper",)
    s: Count = struct.field(pytree_node=False, default=10)
    """Nonzeros of every node's model, and of what a message encodes."""
    lr: StepSize = 0.1
    gamma: Fraction = 1.0
    """Step size towards the in-neighbours' public copies, in (0, 1]."""
    gradients: Gradients = Gradients()
    codec: Codec = OneBit()
    local_steps: Count = struct.field(pytree_node=False, default=1)
    """Gradient steps before each exchange of messages."""
    title: ClassVar[str] = "directed CEPS"
    tuned: ClassVar[tuple[str, ...]] = ("lr", "gamma")
    needs: ClassVar[dict[str, bool]] = {"fixed": True, "column_stochastic": True, "connected": True}
    codes: ClassVar[Codes] = "differences"
    columns: ClassVar[bool] = True

    def check(self, problem: Problem, network: Network) -> None:
        """Raise ValueError for settings out of range, and for networks that the method cannot use."""
        checks.integer(1, problem.n, "s is the number of nonzeros kept of n parameters.", s=self.s)
        super().check(problem, network)

    def sparsity(self, problem: Problem) -> int:
        return self.s

    def message_bits(self, problem: Problem, codec: Any) -> dict[str, int]:
        """The codec's message, and one number of the parameters' type for the push-sum weight."""
        (channel,) = self.channels
        return {channel.name: codec.bits(problem.n, self.s) + 8 * problem.dtype.itemsize}

    def init(self, round: Round) -> State:
        x = round.problem.initial_params()
        return State(x, jnp.ones_like(x[:, 0]), x)

    def step(self, state: State, round: Round) -> State:
        x, a, hat = state
        x = round.repeat(self.local_steps, lambda here, x: self._descended(x, a, here), x)
        hat = round.publish(hat + top_s(x - hat, self.s), hat)
        x = x + self.gamma * (round.mix(hat, None) - hat)
        a = a + self.gamma * (round.mix(a[:, None], None)[:, 0] - a)  # sent with the messages: see `message_bits`
        return State(x, a, hat)

    def _descended(self, x: Array, a: Array, here: Round) -> Array:
        """The sums x [m, n] after a gradient step at the model, given the push-sum weights a [m]."""
        return top_s(x - self.lr * self.gradients(self._model(x, a), here), self.s)

    def _model(self, x: Array, a: Array) -> Array:
        """The models w [m, n]; uses the inverse, because XLA divides only in some programs."""
        return top_s(x * (1 / a)[:, None], self.s)

    def mass(self, state: State) -> Array:
        return state.a

    def params(self, state: State) -> Array:
        return self._model(state.x, state.a)

    def visible(self, state: State) -> Array:
        """The public copies [m, n]: the sums of all messages."""
        return state.hat
