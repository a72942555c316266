"""What section V of the CEPS paper sets (presets, constants sigma_i, volume), and settings that CEPS cannot have.

Axes: m nodes, n parameters.
"""

import warnings
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from jdfl.algorithms.ceps_theorems import PAPER_DELTA
from jdfl.algorithms.codes import refuse_late
from jdfl.algorithms.requests import sizes
from jdfl.base import checks
from jdfl.codecs import Codec, Dense, OneBit, RandomK, Sparse
from jdfl.devices import nodes
from jdfl.network import Graph, Network, refuse_synchronised
from jdfl.network.graph import round_of
from jdfl.privacy import classical_gaussian
from jdfl.problems import Problem

LONG_STEP = 10.0  # steps, in units of 1 / L_i, from which a warning is given; Table III's are about 5 here


def preset(s: int, rate: float, epsilon: float | None, one_bit: bool) -> dict[str, Any]:
    """The settings of a CEPS that are the paper's word for word, by name; see `CEPS.paper`."""
    return {
        "s": s,
        "rate": rate,
        "codec": OneBit(inverse="paper") if one_bit else Dense(),
        "mechanism": None if epsilon is None else classical_gaussian(epsilon, PAPER_DELTA),
        "sensitivity": None if epsilon is None else 0.1,
        "noise": "literal",
    }


def constants(algorithm: Any, problem: Problem, graph: Graph) -> Array:
    """The sigma_i [m] of a CEPS on a problem of m nodes, each divided by `step_scale`.

    sigma_i is lambda_max(A_i^T A_i) / (m (2 r + 0.1) d_i) (section V.B) with d_i the number of samples ("paper") or
    n / 2 ("half_n"), or L_i / |N_i^k| on the `graph` ("safe"), or the given `sigma`.
    """
    sigma = algorithm.sigma
    if sigma is None:
        sigma = problem.curvature / (nodes.count(problem.m) * (2 * algorithm.rate + 0.1))  # lambda_max over samples
        if algorithm.sigma_rule == "half_n":
            sigma = sigma * jnp.sum(problem.weight, axis=1) / (problem.n / 2)
        if algorithm.sigma_rule == "safe":
            sigma = problem.curvature / sizes(algorithm, graph)[1].astype(problem.dtype)
    return jnp.broadcast_to(jnp.asarray(sigma, problem.dtype) / algorithm.step_scale, (problem.m,))


def check_ceps(algorithm: Any, problem: Problem, network: Network) -> None:
    """Refuse what relates the settings of a CEPS to one another, to m nodes and to the network: ValueError.

    Warns of the paper's sigma_i where few of the m nodes are combined.
    """
    m = problem.m
    refuse_synchronised(network, "CEPS")
    degrees = np.asarray(round_of(network, 0).mask).sum(axis=1)
    if algorithm.own == "always" and degrees.max() and algorithm.rate * (degrees.max() + 1) <= 1:
        raise ValueError(
            f"Expected a rate above {1 / (degrees.max() + 1):.3g} with own = 'always', got rate = {algorithm.rate!r}. "
            "A node would only ever listen to itself, and nothing would be sent."
        )
    low, high = algorithm.periods
    checks.whole(low, remedy="periods is (low, high).", high=high)
    if algorithm.period is not None:
        checks.shape((m,), "One period for every node.", period=algorithm.period)
        if (
            not np.issubdtype(np.asarray(algorithm.period).dtype, np.integer)
            or np.min(np.asarray(algorithm.period)) < 1
        ):
            raise ValueError(f"Expected whole numbers period >= 1, got period = {algorithm.period!r}.")
    if algorithm.sigma is not None:
        shape = (m,) if np.ndim(algorithm.sigma) else ()
        checks.shape(shape, "One constant for every node, or for all.", sigma=algorithm.sigma)
    elif not np.all(np.asarray(problem.curvature) > 0):
        flat = int(np.argmin(np.asarray(problem.curvature)))
        raise ValueError(
            f"Expected a loss whose curvature is known and positive, got curvature 0 at node {flat}: all its "
            "features are zero, or, as for a neural network, there is no bound. Leave that node out, or give sigma."
        )
    sparse = algorithm.storage == "sparse"
    if sparse and (algorithm.phi == "receiver" or not _few(algorithm.codec, algorithm.s)):
        raise ValueError(
            "Expected messages of at most s nonzeros, the same for all receivers, with storage = 'sparse', got "
            f"codec = {algorithm.codec!r} and phi = {algorithm.phi!r}. Use storage = 'dense', or Dense(), Sparse() or "
            "OneBit() of the sender."
        )
    if algorithm.phi == "receiver" or algorithm.codec.pairwise or sparse:
        refuse_late("CEPS", network, "messages that mean the same to all receivers, and storage = 'dense'")
    if algorithm.sigma is None and algorithm.sigma_rule != "safe":
        rate, scale = float(algorithm.rate), float(algorithm.step_scale)
        step = scale * m * (2 * rate + 0.1) / max(1.0, np.ceil(rate * np.median(degrees)))
        if step > LONG_STEP:
            warnings.warn(
                f"The paper's sigma_i makes steps of about {step:.0f} / L_i here, since nodes combine few of the "
                f'm = {m} nodes; CEPS often diverges so. Use sigma_rule="safe", or a denser network.',
                stacklevel=5,
            )


def _few(codec: Codec, s: int) -> bool:
    """Whether at most s nonzeros arrive of s, the same at all receivers."""
    if isinstance(codec, OneBit):
        return not codec.pairwise and (codec.s is None or codec.s <= s)
    return isinstance(codec, Dense | Sparse | RandomK)


def published_bytes(algorithm: Any, problem: Problem, rounds: int, ready: Any) -> float | None:
    """`paper_volume` of so many rounds of a CEPS with the periods of `ready`; None for codecs that are not its own."""
    codec = algorithm.codec
    if not isinstance(codec, Dense | OneBit):
        return None
    d = codec.bits(problem.n) - codec.norm_bits if isinstance(codec, OneBit) else None
    drawn = algorithm.period if ready is None else ready.period
    period = sum(algorithm.periods) / 2 if drawn is None else float(np.mean(np.asarray(drawn)))
    return paper_volume(rounds, m=problem.m, n=problem.n, rate=float(algorithm.rate), period=period, d=d)


def paper_volume(rounds: float, *, m: int, n: int, rate: float, period: float = 12.5, d: int | None = None) -> float:
    """A formula for the CEPS paper's "data transmission volume" (Table V), whose own rule the paper does not give.

    rounds / period * r * m * (m / 2) messages, of 4 n bytes each, or for one-bit messages of d + 64 units. It fits the
    dense rows of Table V. Its one-bit rows come to 593 to 663 units a message and d + 64 is 564: that they are bits
    which were added up as bytes is a guess (`python -m experiments.errata_checks`).

    Args:
        rounds: How many rounds there are; fractions count, too.
        m: The number of nodes.
        n: The number of parameters of a node.
        rate: The share r of nodes that are combined, in (0, 1].
        period: Rounds between two communications of a node, in the mean.
        d: The bits of a one-bit message, its norm left out; None: dense messages.
    """
    return rounds / period * rate * m * (m / 2) * (4 * n if d is None else d + 64)
