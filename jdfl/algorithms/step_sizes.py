"""Step sizes of EXTRA, NIDS and exact diffusion, which accumulate every round's (W - I) x.

Axes: m nodes, n parameters.
"""

import warnings
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as spla

from jdfl.algorithms.algorithm import FIXED_SYMMETRIC, Algorithm
from jdfl.algorithms.gradients import Gradients
from jdfl.base import checks
from jdfl.base.schedules import Largest
from jdfl.network.graph import Network
from jdfl.network.tables import to_scipy
from jdfl.problems import LinearRegression, Problem

_DENSE_UP_TO = 1000  # nodes up to which all eigenvalues of a dense matrix are computed
_FLAT = 1e-200  # replaces a curvature of zero


class AddingUp(Algorithm):
    """The common part of EXTRA, NIDS and exact diffusion: corrections for a fixed W, and bounds on the step size."""

    needs: ClassVar[dict[str, bool]] = FIXED_SYMMETRIC
    exact: ClassVar[bool] = True
    lr: Any
    gradients: Gradients

    def check(self, problem: Problem, network: Network) -> None:
        """Raise ValueError for settings and networks that do not fit, and step sizes that diverge; warn otherwise.

        Proven to converge, for convex f_i with curvature at most L: lr < (1 + lambda_min(W)) / L for EXTRA, lr < 2 / L
        for the others. Larger step sizes may converge. Proven to diverge, for least squares with gradients of all
        examples (see the methods' files): lr > (5 + 3 W_ii) / (4 L_i) at some node i for EXTRA, lr > (3 + 2 / (1 +
        lambda_min(W))) / (2 L) for the others. Clipped gradients belong to another function, for which there is no
        bound. Of a
        schedule the largest value is compared, and is never refused: what is proven is about constant step sizes.
        """
        super().check(problem, network)
        if self.gradients.clip is not None:
            return
        lr = float(self.lr)
        local = np.maximum(np.asarray(problem.curvature, float), _FLAT)  # L_i without the regulariser
        largest, lowest = local.max() + regulariser_curvature(problem), 1 + lowest_eigenvalue(network)
        if self.title == "EXTRA":
            name, safe = "(1 + lambda_min(W)) / L", lowest / largest
            limit, fatal = "min_i (5 + 3 W_ii) / (4 L_i)", np.min((5 + 3 * to_scipy(network).diagonal()) / (4 * local))
        else:
            name, safe = "2 / L", 2 / largest
            limit, fatal = "(3 + 2 / (1 + lambda_min(W))) / (2 L)", (3 + 2 / max(lowest, 1e-6)) / (2 * local.max())
        constant = self.gradients.batch is None and not isinstance(self.lr, Largest)
        if lr > fatal and constant and isinstance(problem, LinearRegression):
            raise ValueError(
                f"Expected lr <= {limit} = {fatal:.3g}, beyond which {self.title} diverges on least squares, got lr = "
                f"{lr!r}. Give lr < {name} = {safe:.3g}, for which it converges."
            )
        if lr >= safe:
            warnings.warn(
                f"{self.title} is only known to converge for lr < {name} = {safe:.3g}, L being the largest curvature "
                f"of a node, got lr = {lr!r}. Use a smaller step size if it diverges.",
                checks.HintWarning,
                stacklevel=5,
            )


def lowest_eigenvalue(network: Network) -> float:
    """lambda_min(W) of a fixed network with symmetric doubly stochastic W (on the host)."""
    stored: Any = to_scipy(network)
    W = stored + sp.diags_array(1 - np.asarray(stored.sum(axis=1)))  # removes the float32 rounding of the diagonal
    m = int(W.shape[0])
    if m <= _DENSE_UP_TO:
        return float(np.linalg.eigvalsh(W.toarray())[0])
    solve: Any = spla.eigsh  # annotated too narrowly: tol is a float
    start = np.random.default_rng(0).standard_normal(m)
    try:
        return float(solve(W, k=1, which="SA", v0=start, tol=1e-4, return_eigenvectors=False)[0])
    except spla.ArpackNoConvergence:
        return float(2 * W.diagonal().min() - 1)  # Gershgorin's bound


def regulariser_curvature(problem: Problem) -> float:
    """The factor c of a regulariser c ||w||^2 / 2."""
    ones = jnp.ones((problem.n,), problem.dtype)
    slope = jax.grad(problem.regulariser)
    return float(jnp.linalg.norm(slope(ones) - slope(jnp.zeros_like(ones)))) / float(np.sqrt(problem.n))
