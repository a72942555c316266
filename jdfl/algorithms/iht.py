"""IHT-D-PSGD: D-PSGD whose every step ends with iterative hard thresholding, the fair sparse baseline for CEPS.

    k = 0, T, 2T, ...:  x_i <- P_s(sum_j W_ij x_j - lr g_i(x_i))
    otherwise:          x_i <- P_s(x_i - lr g_i(x_i))

P_s keeps the s entries largest in magnitude (T. Blumensath, M. E. Davies: Iterative hard thresholding for compressed
sensing, 2009), W x - lr g(x) is D-PSGD (Lian et al., 2017). The messages have s entries, so that sparse ones lose
nothing. With s = n and dense messages it is D-PSGD.

Missing neighbours: their weight goes where the network says, by default to the node's own row, and a node that hears
nobody takes its step alone.

Axes: m nodes, n parameters.
"""

from dataclasses import replace
from typing import ClassVar

import jax.numpy as jnp
from jax import Array

from jdfl import checks, ops, struct
from jdfl.algorithms.exchange import CODEC, check_codec, exchange_every, heard
from jdfl.algorithms.gradients import Gradients
from jdfl.base import Info, Round, counts
from jdfl.codecs import Codec, Sparse
from jdfl.network.graph import Network
from jdfl.privacy import Guarantee
from jdfl.problems import Problem
from jdfl.settings import Count, Positive


@struct.dataclass
class IHT:
    """D-PSGD that keeps the s largest entries: the sparse baseline for CEPS.

    IHT-D-PSGD. Its state is x [m, n]. Raises ValueError (from `check`) for settings out of range.
    """

    kind: ClassVar[str] = "iht-d-psgd"
    s: Count = struct.field(pytree_node=False, default=10)
    """Nonzeros of every node's parameters."""
    lr: Positive = 0.1
    """Length of the steps."""
    gradients: Gradients = Gradients()
    """How nodes take gradients: of which examples, clipped, with which noise."""
    codec: Codec = Sparse()
    """What travels on a wire."""
    period: Count = struct.field(pytree_node=False, default=1)
    """Rounds from one exchange of messages to the next."""
    tuned: ClassVar[tuple[str, ...]] = ("lr",)

    def check(self, problem: Problem, network: Network) -> None:
        """Refuse settings out of range, naming them."""
        checks.whole(1, problem.n, "s is the number of nonzeros kept of n parameters.", s=self.s)
        self.gradients.check(problem)
        check_codec("IHT-D-PSGD", self.codec, problem.n, problem.m, self.s, direct=True)

    def prepare(self, problem: Problem, round: Round) -> "IHT":
        """Let the codec draw what it shares, and the gradients prepare what they need."""
        codec = self.codec.prepare(round.stream(CODEC), round.node, problem.n, self.s, problem.dtype)
        return replace(self, gradients=self.gradients.prepare(problem, round), codec=codec)

    def init(self, problem: Problem, round: Round) -> tuple[Array, Info]:
        """Start where the problem says."""
        return problem.begin(), counts(problem.m, {"model": 0})

    def step(self, x: Array, problem: Problem, round: Round) -> tuple[Array, Info]:
        """One round."""
        talks = round.k % self.period == 0
        g = self.gradients(x, problem, round, communicating=talks)
        mixed = exchange_every(self.period, self.codec, x, round)
        once = talks.astype(jnp.int32)
        return ops.top_s(mixed - self.lr * g, self.s), counts(
            round.m,
            {"model": once * round.graph.out_degree},
            grads=1,
            releases=self.gradients.releases(1, once),
            communications=once * heard(round.graph),
        )

    def params(self, state: Array) -> Array:
        """The parameters x: the `state` [m, n] itself."""
        return state

    def examples(self, problem: Problem) -> Array:
        """Those of a gradient."""
        return self.gradients.examples(problem)

    def message_bits(self, problem: Problem) -> dict[str, int]:
        """One channel, the codec's size."""
        return {"model": self.codec.bits(problem.n)}

    def privacy(self, problem: Problem) -> Guarantee:
        """That of the gradients: everything else is computed from them and from messages."""
        return self.gradients.guarantee(problem)
