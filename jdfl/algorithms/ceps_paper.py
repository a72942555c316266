"""The CEPS paper: presets, constants sigma_i, data volume, settings that CEPS refuses, and Theorems 2 and 3.

Sha, Zhou, Kong, Li: Sparse Decentralized Federated Learning. With noise of variance rho_i = 2 ln(1.25
/ delta) u_i^2 / epsilon^2 (13) on gradients of at most u_i / 2 (Assumption 5), every step is said to be (epsilon,
delta)-differentially private (Theorem 2), and a communications are together

    (sqrt(2 a ln(1 / delta)) epsilon + a epsilon (e^epsilon - 1), (a + 1) delta)          (Theorem 3)

At the paper's delta = 0.5 the second number is (a + 1) / 2, which is 1 for one communication and larger for several.
Every algorithm satisfies a delta of one or more, including one that sends its data, so Theorem 3 then claims nothing.
Neither theorem holds for Algorithm 1 as printed: see `UNSOUND`.

Axes: m nodes, n parameters.
"""

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from jdfl.algorithms.algorithm import refuse_late
from jdfl.algorithms.requests import combined
from jdfl.base import checks
from jdfl.codecs import Codec, Dense, OneBit, RandomK, Sparse
from jdfl.devices import nodes
from jdfl.network import Graph, Network, refuse_synchronised
from jdfl.network.graph import round_of
from jdfl.network.properties import require
from jdfl.privacy import Gaussian, Guarantee, Published, classical_gaussian, exposing
from jdfl.problems import Problem

MOST_STORED = 2**29  # values and positions: 4 GiB in float32
_LONG_STEP = 10.0  # step size, in units of 1 / L_i, from which a warning is given; those of Table III are about 5 here


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
    degrees = np.asarray(round_of(network, 0).mask).sum(axis=1)
    if algorithm.own == "always" and degrees.max() and algorithm.rate * (degrees.max() + 1) <= 1:
        raise ValueError(
            f"Expected a rate above {1 / (degrees.max() + 1):.3g} with own = 'always', got rate = {algorithm.rate!r}. "
            "A node would only combine its own vector, and nothing would be sent."
        )
    low, high = algorithm.periods
    checks.integer(low, remedy="periods is (low, high).", high=high)
    if algorithm.period is not None:
        checks.shape((m,), "Give one period per node.", period=algorithm.period)
        if (
            not np.issubdtype(np.asarray(algorithm.period).dtype, np.integer)
            or np.min(np.asarray(algorithm.period)) < 1
        ):
            raise ValueError(f"Expected whole numbers period >= 1, got period = {algorithm.period!r}.")
    if algorithm.sigma is None and not np.all(np.asarray(problem.curvature) > 0):
        flat = int(np.argmin(np.asarray(problem.curvature)))
        raise ValueError(
            f"Expected a loss with a known positive curvature, got curvature 0 at node {flat}: all its features are "
            "zero, or, as for a neural network, no bound is known. Leave that node out, or give sigma."
        )
    sparse = algorithm.storage == "sparse"
    if algorithm.unselected == "stored":
        _check_stored(algorithm, problem, network)
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
        if step > _LONG_STEP:
            warnings.warn(
                f"The paper's sigma_i gives step sizes of about {step:.0f} / L_i here, because nodes combine few of "
                f'the m = {m} nodes; CEPS often diverges then. Use sigma_rule="safe", or a denser network.',
                checks.HintWarning,
                stacklevel=5,
            )


def _check_stored(algorithm: Any, problem: Problem, network: Network) -> None:
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


PAPER_DELTA = 0.5  # of its noise (section V)
STEP, RUN = "CEPS, Theorem 2, at delta = 0.5", "CEPS, Theorem 3"
UNSOUND = (
    "the paper's value is for one step, from a formula for epsilon <= 1; its delta allows anything in every second "
    "run, its sensitivity is assumed, its noise is not stored in u, and its first message has no noise"
)


def step_epsilon(multiplier: float, delta: float = PAPER_DELTA) -> float:
    """The epsilon of Theorem 2 at `delta` for a noise `multiplier`, its standard deviation over the sensitivity.

    Raises ValueError for a multiplier that is not positive.
    """
    checks.positive(multiplier=multiplier)
    return math.sqrt(2 * math.log(1.25 / delta)) / multiplier


def composed(epsilon: float, delta: float, communications: int) -> tuple[float, float]:
    """Epsilon and delta of Theorem 3 for a number a of communications.

    The delta is the theorem's (a + 1) `delta`, even where it is one or more.

    Args:
        epsilon: Epsilon of one communication, above 0.
        delta: Delta of one communication, in (0, 1].
        communications: The number a of communications, at least 1.

    Raises:
        ValueError: For an epsilon that is not positive, a delta outside (0, 1], or fewer than one communication.
    """
    checks.positive(epsilon=epsilon)
    checks.fraction("It is the delta of one step.", delta=delta)
    checks.integer(1, communications=communications)
    a = communications
    growth = math.expm1(epsilon) if epsilon < 700 else math.inf
    return math.sqrt(2 * a * math.log(1 / delta)) * epsilon + a * epsilon * growth, (a + 1) * delta


@dataclass(frozen=True)
class Theorem3:
    """`composed` for one step's `epsilon` and `delta`, as a function of the number of communications."""

    epsilon: float
    delta: float

    def __call__(self, communications: int) -> tuple[float, float]:
        """Epsilon and delta for a number of communications."""
        return composed(self.epsilon, self.delta, communications)


def guarantee(algorithm: Any) -> Callable[[Problem, int], Guarantee]:
    """The guarantee of CEPS's releases of u, as a function of the problem: claimed if clipped with noise kept.

    It also states what the paper's theorems would claim.
    """
    return partial(_guarantee, algorithm)


def _guarantee(algorithm: Any, problem: Problem, _: int) -> Guarantee:
    claim = algorithm.gradients.guarantee(problem)
    if algorithm.noise == "literal":
        reason = "the noise is not stored in u, so later messages lose it, and the first message has no noise"
        claim = replace(
            claim,
            claimed=False,
            reason=reason if claim.claimed else f"{claim.reason}; {reason}",
            remedy=f'{"" if claim.claimed else claim.remedy} Use noise="kept".'.strip(),
        )
    elif claim.claimed:
        reason = "every u is computed from clipped gradients and noisy, and w and messages from u"
        claim = replace(claim, reason=reason)
    if algorithm.sigma is None:
        # Computed from the node's local data without noise: give sigma, a public constant, or declare it public.
        claim = exposing(claim, ("curvature",), problem.public)
    if not isinstance(algorithm.mechanism, Gaussian):
        return claim
    epsilon = step_epsilon(float(algorithm.mechanism.multiplier))
    run = Theorem3(epsilon, PAPER_DELTA)
    return replace(claim, published=Published(epsilon, PAPER_DELTA, STEP, UNSOUND, run=run, run_source=RUN))
