"""(W - I) x from differences alone, and the step lengths of the methods that add it up.

EXTRA, NIDS and exact diffusion add every round's (W - I) x to what they did before, so that what its rounding leaves
over adds up too. Taken as W x - x it is off by a share 1e-8 to 1e-7 of x: the diagonal of W is a float32, and so may
the parameters be. Over 100,000 rounds that has moved EXTRA by more than the solution's own length in float32. Taken
from differences its error is a share of what the nodes disagree about, and vanishes with it.

Axes: m nodes, n parameters.
"""

import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as spla
from jax import Array

from jdfl.algorithms.exchange import MODEL, exact, received
from jdfl.algorithms.gradients import Gradients
from jdfl.base import Round
from jdfl.codecs import Codec
from jdfl.devices import nodes
from jdfl.network.graph import Network, mix
from jdfl.network.requirements import require
from jdfl.network.tables import to_scipy
from jdfl.problems import LinearRegression, Problem
from jdfl.streams import Stream

_DENSE_UP_TO = 1000  # nodes: all eigenvalues of a dense matrix
_FLAT = 1e-200  # stands for a curvature of zero


def pull(codec: Codec, x: Array, round: Round, stream: Stream = MODEL) -> Array:
    """sum_j W_ij (z_j - z_i) [m, n], z being what arrives of the rows x [m, n].

    `stream` is what messages of this kind draw from. A node counts with what its neighbours receive of it, not with its
    own x. Where W is doubly stochastic the rows therefore sum to zero, whatever the codec loses.
    """
    graph = round.graph
    z = x if exact(codec, x) else received(codec, x, round, (graph.out_degree > 0) | (graph.in_degree > 0), stream)
    # The same for all nodes, which changes no difference: near agreement nothing is left to round.
    z = z - nodes.first(z)[None]
    total = graph.self_weight.astype(x.dtype) + jnp.sum(graph.weight.astype(x.dtype), axis=1)  # 1, up to its rounding
    if graph.synchronised is not None:
        total = jnp.where(graph.synchronised, 1, total)
    return mix(graph, z) - total[:, None] * z


def check_network(network: Network, method: str) -> None:
    """Refuse networks that change, have links that run one way, or have a W other than its transpose."""
    require(network, method, fixed=True, undirected=True, doubly_stochastic=True, symmetric_weights=True)


def lowest_eigenvalue(network: Network) -> float:
    """lambda_min(W) of a fixed network with symmetric doubly stochastic W (on the host)."""
    stored: Any = to_scipy(network)
    W = stored + sp.diags_array(1 - np.asarray(stored.sum(axis=1)))  # without the float32 rounding of the diagonal
    m = int(W.shape[0])
    if m <= _DENSE_UP_TO:
        return float(np.linalg.eigvalsh(W.toarray())[0])
    solve: Any = spla.eigsh  # annotated too narrowly: tol is a float
    start = np.random.default_rng(0).standard_normal(m)
    try:
        return float(solve(W, k=1, which="SA", v0=start, tol=1e-4, return_eigenvectors=False)[0])
    except spla.ArpackNoConvergence:
        return float(2 * W.diagonal().min() - 1)  # Gershgorin's bound


def check_step(method: str, lr: Any, gradients: Gradients, problem: Problem, network: Network) -> None:
    """Warn of steps with which EXTRA, NIDS or exact diffusion may not converge; ValueError for those that diverge.

    Proven to converge, for convex f_i of curvature L at most: lr < (1 + lambda_min(W)) / L for EXTRA, lr < 2 / L for
    the others. Longer steps may converge. Proven to diverge, for least squares with gradients of all examples (see the
    methods' files): lr > (5 + 3 W_ii) / (4 L_i) at some node i for EXTRA, lr > (3 + 2 / (1 + lambda_min(W))) / (2 L)
    for the others. Clipped gradients are those of another function, for which there is no bound.
    """
    if gradients.clip is not None:
        return
    lr, local = float(lr), np.maximum(np.asarray(problem.curvature, float), _FLAT)  # L_i without the regulariser
    largest, lowest = local.max() + _regulariser_curvature(problem), 1 + lowest_eigenvalue(network)
    if method == "EXTRA":
        name, safe = "(1 + lambda_min(W)) / L", lowest / largest
        limit, fatal = "min_i (5 + 3 W_ii) / (4 L_i)", np.min((5 + 3 * to_scipy(network).diagonal()) / (4 * local))
    else:
        name, safe = "2 / L", 2 / largest
        limit, fatal = "(3 + 2 / (1 + lambda_min(W))) / (2 L)", (3 + 2 / max(lowest, 1e-6)) / (2 * local.max())
    if lr > fatal and gradients.batch is None and isinstance(problem, LinearRegression):
        raise ValueError(
            f"Expected lr <= {limit} = {fatal:.3g}, beyond which {method} diverges on least squares, got lr = {lr!r}. "
            f"Give lr < {name} = {safe:.3g}, for which it converges."
        )
    if lr >= safe:
        warnings.warn(
            f"{method} is only known to converge for lr < {name} = {safe:.3g}, L being the largest curvature of a "
            f"node, got lr = {lr!r}. Give a shorter step if it diverges.",
            stacklevel=5,
        )


def _regulariser_curvature(problem: Problem) -> float:
    """The factor c of a regulariser c ||w||^2 / 2."""
    ones = jnp.ones((problem.n,), problem.dtype)
    slope = jax.grad(problem.regulariser)
    return float(jnp.linalg.norm(slope(ones) - slope(jnp.zeros_like(ones)))) / float(np.sqrt(problem.n))
