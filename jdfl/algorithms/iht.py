"""IHT-D-PSGD: D-PSGD with iterative hard thresholding after every step, a sparse baseline for CEPS.

    k = 0, T, 2T, ...:  x_i <- P_s(sum_j W_ij x_j - lr g_i(x_i))
    otherwise:          x_i <- P_s(x_i - lr g_i(x_i))

P_s keeps the s entries of largest magnitude (T. Blumensath, M. E. Davies: Iterative hard thresholding for compressed
sensing, 2009), and W x - lr g(x) is D-PSGD (Lian et al., 2017). Messages have s nonzeros, so sparse codecs lose
nothing. With s = n and dense messages it is D-PSGD.

Missing neighbours: their weight goes where the network says, by default to the node itself, and a node that receives
nothing takes its step alone.
"""

from typing import ClassVar

from jax import Array

from jdfl.algorithms.algorithm import Algorithm, Objective
from jdfl.algorithms.gradients import Gradients
from jdfl.algorithms.round import Round
from jdfl.arrays import ops
from jdfl.base import checks, struct
from jdfl.base.settings import Count, Provenance, StepSize
from jdfl.codecs import Codec, Sparse
from jdfl.network.graph import Network
from jdfl.problems import Problem


@struct.dataclass
class IHT(Algorithm):
    """IHT-D-PSGD: D-PSGD that keeps the s largest entries after every step; the sparse baseline for CEPS.

    Its state is x [m, n].
    """

    kind: ClassVar[str] = "iht-d-psgd"
    provenance: ClassVar[Provenance] = ("no paper",)
    s: Count = struct.field(pytree_node=False, default=10)
    """Nonzeros of every node's parameters."""
    lr: StepSize = 0.1
    gradients: Gradients = Gradients()
    codec: Codec = Sparse()
    period: Count = struct.field(pytree_node=False, default=1)
    """Rounds between two exchanges of messages."""
    objective: Objective = struct.field(pytree_node=False, default="mean")
    """Accept networks that preserve the mean of the nodes only, or all ("pi"), with the weights that they give."""
    title: ClassVar[str] = "IHT-D-PSGD"

    def check(self, problem: Problem, network: Network) -> None:
        checks.integer(1, problem.n, "s is the number of nonzeros kept of n parameters.", s=self.s)
        super().check(problem, network)

    def sparsity(self, problem: Problem) -> int:
        return self.s

    def step(self, x: Array, round: Round) -> Array:
        round = round.every(self.period)
        g = self.gradients(x, round)
        return ops.top_s(round.mix(x) - self.lr * g, self.s)
