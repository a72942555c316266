"""DCD-PSGD: decentralized SGD that sends compressed differences.

H. Tang, S. Gan, C. Zhang, T. Zhang, J. Liu: Communication Compression for Decentralized Training, 2018 (Algorithm 1).

    h_i =  sum_j W_ij x_j - lr g_i(x_i)
    q_i =  C(h_i - x_i)                  (sent to all neighbours)
    x_i <- x_i + q_i                     (at i and at all its neighbours)

C is `codec`. A node moves by what it sends and by nothing else, so its neighbours know x exactly as long as every
message reaches them: the network must be fixed. What C loses is lost, not kept for later as by CHOCO-SGD; the average
of the nodes moves by the average of C(h - x), which is -lr times the average gradient in expectation if C is unbiased,
and only up to what C loses if it is not. Exact messages give D-PSGD.

The paper takes C unbiased and proves convergence while alpha = sup ||C(z) - z|| / ||z|| keeps (1 - rho)^2 > 4 mu^2
alpha^2, rho being the second largest |eigenvalue| of W and mu the largest |eigenvalue - 1| (from memory): alpha < 0.02
on a ring of 16 nodes. Measured on a quadratic with rings, a star and a complete network, top-k and random-k messages
that are biased but contract reached D-PSGD's fixed point down to 10 % of the entries; random-k messages scaled to be
unbiased diverged at 30 % on all, and at 50 % on one.

Missing neighbours: refused, since every message builds on all those before it.

Axes: m nodes, n parameters.
"""

import warnings
from dataclasses import replace
from typing import ClassVar

import jax.numpy as jnp
from jax import Array

from jdfl import struct
from jdfl.algorithms.consequences import consequence
from jdfl.algorithms.exchange import CODEC, check_codec, heard, received
from jdfl.algorithms.gradients import Gradients
from jdfl.base import Info, Round, counts
from jdfl.codecs import Codec, Dense
from jdfl.network.graph import Network, mix
from jdfl.network.requirements import require
from jdfl.privacy import Guarantee
from jdfl.problems import Problem
from jdfl.settings import Positive


def check_replicas(method: str, codec: Codec, problem: Problem, network: Network) -> None:
    """Refuse codecs and networks with which no neighbour can follow x by compressed differences.

    Warns about a codec that is unbiased and may do worse than nothing.
    """
    check_codec(method, codec, problem.n, problem.m, problem.n)
    contracts = codec.contraction(problem.n, problem.n) is not None
    if not contracts and not codec.unbiased:
        raise ValueError(
            f"Expected a codec of {method} that is unbiased, E C(z) = z, or contracts, E ||C(z) - z||^2 < ||z||^2, for "
            f"every z, got codec = {codec!r}, for which neither is known. Use Dense('float16'), or Sparse(share=0.1)."
        )
    require(network, method, fixed=True, undirected=True, doubly_stochastic=True, symmetric_weights=True)
    if not contracts:
        warnings.warn(
            f"The variance of {codec!r} may exceed what it sends, and what {method} loses is never made up for: it may "
            f"diverge.{consequence(method, codec)} Use a codec that contracts, such as Sparse(share=0.1), or "
            "CHOCO-SGD.",
            stacklevel=3,
        )


@struct.dataclass
class State:
    """What the next round needs."""

    x: Array  # [m, n] parameters, the same at the node and at all its neighbours


@struct.dataclass
class DCD:
    """D-PSGD that sends compressed differences to exact replicas.

    DCD-PSGD with any gradients, and a codec that is unbiased or contracts.

    Raises ValueError (from `check`) for settings out of range, other codecs, and a network that is not fixed and
    undirected with symmetric doubly stochastic weights. Warns for a codec that may do worse than nothing.
    """

    kind: ClassVar[str] = "dcd-psgd"
    lr: Positive = 0.1
    """Length of the steps."""
    gradients: Gradients = Gradients()
    """How nodes take gradients: of which examples, clipped, with which noise."""
    codec: Codec = Dense()
    """What travels on a wire."""
    tuned: ClassVar[tuple[str, ...]] = ("lr",)

    def check(self, problem: Problem, network: Network) -> None:
        """Refuse settings, codecs and networks that the method cannot have, naming them."""
        self.gradients.check(problem)
        check_replicas("DCD-PSGD", self.codec, problem, network)

    def prepare(self, problem: Problem, round: Round) -> "DCD":
        """Let the codec draw what it shares, and the gradients prepare what they need."""
        codec = self.codec.prepare(round.stream(CODEC), round.node, problem.n, problem.n, problem.dtype)
        return replace(self, gradients=self.gradients.prepare(problem, round), codec=codec)

    def init(self, problem: Problem, round: Round) -> tuple[State, Info]:
        """Start where the problem says, which all neighbours know."""
        return State(problem.begin()), counts(problem.m, {"model": 0})

    def step(self, state: State, problem: Problem, round: Round) -> tuple[State, Info]:
        """One round."""
        x, graph = state.x, round.graph
        h = mix(graph, x) - self.lr * self.gradients(x, problem, round)
        x = x + received(self.codec, h - x, round, jnp.ones((round.m,), jnp.bool_))
        done = counts(
            round.m,
            {"model": graph.out_degree},
            grads=1,
            releases=self.gradients.releases(1, 1),
            communications=heard(graph),
        )
        return State(x), done

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
