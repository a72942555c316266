"""Push-sum with unencoded messages and no noise of its own: the common part of DFedPGP and PrivSGP-VR.

Axes: m nodes, n parameters.
"""

from typing import Any, ClassVar

from jax import Array

from jdfl.algorithms.algorithm import Algorithm
from jdfl.algorithms.book import MODEL
from jdfl.network import Network
from jdfl.problems import Problem


class PushSums(Algorithm):
    """Methods whose state has the sums u, the push-sum weights a and the corrected parameters x, in this order."""

    needs: ClassVar[dict[str, bool]] = {"column_stochastic": True, "connected": True}
    columns: ClassVar[bool] = True

    def check(self, problem: Problem, network: Network) -> None:
        """Raise ValueError for settings and networks that the method cannot use, and where nothing is shared."""
        super().check(problem, network)
        if self.carried(problem) == 0:
            raise ValueError("Expected a shared part, got shared = 0. Use LocalOnly, or share some parameters.")

    def mass(self, state: Any) -> Array:
        """The push-sum weights a [m]."""
        return state.a

    def params(self, state: Any) -> Array:
        """The corrected parameters x [m, n]."""
        return state.x

    def visible(self, state: Any) -> Array:
        """What others see of a state: the sums of messages u."""
        return state.u

    def carried(self, problem: Problem) -> int:
        """The number of parameters that are sent."""
        return problem.n

    def message_bits(self, problem: Problem, codec: Any) -> dict[str, int]:
        """The sums, and one number more: the push-sum weight."""
        return {MODEL.name: 8 * problem.dtype.itemsize * (self.carried(problem) + 1)}
