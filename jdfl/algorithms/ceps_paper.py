"""Section V of the CEPS paper: presets, the constants sigma_i, the data volume, and settings that CEPS rejects.

Axes: m nodes, n parameters.
"""

import warnings
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from jdfl.algorithms.algorithm import refuse_late
from jdfl.algorithms.ceps_privacy import PAPER_DELTA
from jdfl.algorithms.requests import combined
from jdfl.base import checks
from jdfl.codecs import Codec, Dense, OneBit, RandomK, Sparse
from jdfl.devices import nodes
from jdfl.network import Graph, Network, refuse_synchronised
from jdfl.network.graph import round_of
from jdfl.network.properties import require
from jdfl.privacy import classical_gaussian
from jdfl.problems import Problem

MOST_STORED = 2**29  # values and positions: 4 GiB in float32
LONG_STEP = 10.0  # step size, in units of 1 / L_i, from which a warning is given; those of Table III are about 5 here


def preset(s: int, rate: float, epsilon: float | None, one_bit: bool) -> dict[str, Any]:
    """The settings of CEPS as in the paper, by name; see `CEPS.paper`."""
    return {
        "s": s,
        "rate": rate,
        "codec": OneBit(inverse="paper") if one_bit else Dense(),
        "mechanism": None if epsilon is None else classical_gaussian(epsilon, PAPER_DELTA),
        "sensitivity": None if epsilon is None else 0.1,
        "noise": "literal",
    }


def constants(algorithm: Any, problem: Problem, graph: Graph) -> Array:
    """The sigma_i [m] of CEPS on a problem with m nodes, each divided by `step_scale`.

    sigma_i is lambda_max(A_i^T A_i) / (m (2 r + 0.1) d_i) (section V.B), with d_i the number of examples ("paper") or n
    / 2 ("half_n"). Otherwise it is L_i / |N_i^k| on the `graph` ("safe"), or the given `sigma`.
    """
    sigma = algorithm.sigma
    if sigma is None:
        sigma = problem.curvature / (nodes.count(problem.m) * (2 * algorithm.rate + 0.1))  # lambda_max over examples
        if algorithm.sigma_rule == "half_n":
            sigma = sigma * jnp.sum(problem.weight, axis=1) / (problem.n / 2)
        if algorithm.sigma_rule == "safe":
            sigma = problem.curvature / combined(algorithm, graph).astype(problem.dtype)
    return jnp.broadcast_to(jnp.asarray(sigma, problem.dtype) / algorithm.step_scale, (problem.m,))


def check_ceps(algorithm: Any, problem: Problem, network: Network) -> None:
    """Raise ValueError for settings of CEPS that contradict each other, the number of nodes m or the network.

    Warns about the paper's sigma_i where nodes combine few of the m nodes.
    """
    m = problem.m
    refuse_synchronised(network, "CEPS")
    if algorithm.sensitivity is not None:
        shape = (m,) if np.ndim(algorithm.sensitivity) else ()
        checks.shape(shape, "Give one u_i per node, or one for all.", sensitivity=algorithm.sensitivity)
    degrees = np.asarray(round_of(network, 0).mask).sum(axis=1)
    if algorithm.own == "always" and degrees.max() and algorithm.rate * (degrees.max() + 1) <= 1:
        raise ValueError(
            f"Expected a rate above {1 / (degrees.max() + 1):.3g} with own = 'always', got rate = {algorithm.rate!r}. "
            "A node would only combine its own vector, and nothing would be sent."
        )
    low, high = algorithm.periods
    checks.whole(low, remedy="periods is (low, high).", high=high)
    if algorithm.period is not None:
        checks.shape((m,), "Give one period per node.", period=algorithm.period)
        if (
            not np.issubdtype(np.asarray(algorithm.period).dtype, np.integer)
            or np.min(np.asarray(algorithm.period)) < 1
        ):
            raise ValueError(f"Expected whole numbers period >= 1, got period = {algorithm.period!r}.")
    if algorithm.sigma is not None:
        shape = (m,) if np.ndim(algorithm.sigma) else ()
        checks.shape(shape, "Give one constant per node, or one for all.", sigma=algorithm.sigma)
    elif not np.all(np.asarray(problem.curvature) > 0):
        flat = int(np.argmin(np.asarray(problem.curvature)))
        raise ValueError(
            f"Expected a loss with a known positive curvature, got curvature 0 at node {flat}: all its features are "
            "zero, or, as for a neural network, no bound is known. Leave that node out, or give sigma."
        )
    sparse = algorithm.storage == "sparse"
    if algorithm.unselected == "stored":
        check_stored(algorithm, problem, network)
    if sparse and (algorithm.phi == "receiver" or not _few(algorithm.codec, algorithm.s)):
        raise ValueError(
            "Expected messages with at most s nonzeros that all receivers decode alike, with storage = 'sparse', got "
            f"codec = {algorithm.codec!r} and phi = {algorithm.phi!r}. Use storage = 'dense', or Dense(), Sparse() or "
            "OneBit() of the sender."
        )
    if algorithm.phi == "receiver" or algorithm.codec.pairwise or sparse:
        refuse_late("CEPS", network, "messages that all receivers decode alike, and storage = 'dense'")
    if algorithm.sigma is None and algorithm.sigma_rule != "safe":
        rate, scale = float(algorithm.rate), float(algorithm.step_scale)
        share = 1.0 if algorithm.unselected == "stored" else rate
        step = scale * m * (2 * rate + 0.1) / max(1.0, np.ceil(share * np.median(degrees)))
        if step > LONG_STEP:
            warnings.warn(
                f"The paper's sigma_i gives step sizes of about {step:.0f} / L_i here, because nodes combine few of "
                f'the m = {m} nodes; CEPS often diverges then. Use sigma_rule="safe", or a denser network.',
                checks.HintWarning,
                stacklevel=5,
            )


def check_stored(algorithm: Any, problem: Problem, network: Network) -> None:
    """Raise ValueError where the last z_j of every neighbour cannot be stored (section III-E)."""
    if algorithm.storage != "sparse" or algorithm.own == "sampled":
        raise ValueError(
            "Expected storage = 'sparse' and own = 'absent' or 'always' with unselected = 'stored', got storage = "
            f"{algorithm.storage!r} and own = {algorithm.own!r}. Stored messages are kept as s values and positions "
            "per link, and a node always knows its own vector."
        )
    require(network, "CEPS with unselected = 'stored'", fixed=True)
    slots = int(np.prod(round_of(network, 0).mask.shape))
    if slots * algorithm.s > MOST_STORED:
        raise ValueError(
            f"Expected at most {MOST_STORED:,} stored numbers with unselected = 'stored', got {slots * algorithm.s:,}: "
            f"s = {algorithm.s} for {slots:,} places in the neighbour table of {problem.m:,} nodes, which has as many "
            "for every node as the largest in-degree. Use a network with lower degrees, or unselected = 'absent'."
        )


def _few(codec: Codec, s: int) -> bool:
    """Whether a vector with s nonzeros is decoded to at most s nonzeros, the same at all receivers."""
    if isinstance(codec, OneBit):
        return not codec.pairwise and (codec.s is None or codec.s <= s)
    return isinstance(codec, Dense | Sparse | RandomK)


def published_bytes(algorithm: Any, problem: Problem, rounds: int, ready: Any) -> float | None:
    """`paper_volume` of CEPS for a number of rounds with the periods in `ready`; None for codecs not in the paper."""
    codec = algorithm.codec
    if not isinstance(codec, Dense | OneBit):
        return None
    d = None
    if isinstance(codec, OneBit):
        groups = codec.groups or (0,)
        d = float(np.mean([codec.of(group).bits(problem.n) - codec.norm_bits for group in groups]))
    drawn = algorithm.period if ready is None else ready.period
    period = sum(algorithm.periods) / 2 if drawn is None else float(np.mean(np.asarray(drawn)))
    return paper_volume(rounds, m=problem.m, n=problem.n, rate=float(algorithm.rate), period=period, d=d)


def paper_volume(rounds: float, *, m: int, n: int, rate: float, period: float = 12.5, d: float | None = None) -> float:
    """A formula that reproduces the "data transmission volume" of the CEPS paper (Table V), which gives none itself.

    rounds / period * r * m * (m / 2) messages of 4 n bytes each, or of d + 64 units for one-bit messages. It fits the
    dense rows of Table V. Its one-bit rows amount to 593 to 663 units per message, and d + 64 is 564; that these are
    bits which were added up as bytes is a guess (`python -m experiments.errata_checks`).
    """
    return rounds / period * rate * m * (m / 2) * (4 * n if d is None else d + 64)
