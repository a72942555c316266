"""MAFALDA-SGD: decentralized SGD with noise that is correlated over rounds and optimized for the network.

A. Bellet, E. Cyffers, D. Frey, R. Gaudel, D. Lerévérend, F. Taïani: Unified Privacy Guarantees for Decentralized
Learning via Matrix Factorization, 2025.

    x_i <- sum_j W_ij (x_j - lr (g_j(x_j) + noise_j)),   noise of all rounds of a node: C^-1 Z

Z is fresh Gaussian noise, and C [T, T] is lower triangular and the same at all nodes. What is seen of a node reveals as
much as C G + Z (S. Denisov et al.: Improved Differential Privacy for SGD via Optimal Private Linear Operators on
Adaptive Streams, 2022, for gradients that depend on earlier outputs). C minimizes the mean squared effect of the noise
on the parameters over all rounds, tr(C^-T G C^-1) with G_st = sum_k tr(W^(k-s+1)' W^(k-t+1)) / m, subject to a
sensitivity of 1 in units of one gradient's sensitivity.

A record takes part in all rounds, or with `sampling` "in order" in one of every b rounds of a pass. C then has at most
b diagonals (`band`), so the columns of a record's rounds are orthogonal (C. Choquette-Choo et al.: (Amplified) Banded
Matrix Factorization, 2023). Its squared sensitivity is the sum of their squared norms, which is the same for every
position in a pass. With b = 1, C is diagonal: correlation gains nothing, and only the size of the noise changes. (With
X = C' C and x_t proportional to sqrt(G_tt), X^-1 G X^-1 is a multiple of a correlation matrix, as optimality requires.)

Missing neighbours: their weight goes where the network says; changing networks, for which C cannot be computed, and
absent nodes are refused.

Axes: m nodes, n parameters, T rounds, p diagonals.
"""

from dataclasses import replace
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np
import scipy
from jax import Array
from scipy.linalg import solve_triangular

from jdfl.algorithms.algorithm import Algorithm, Objective
from jdfl.algorithms.gradients import Gradients
from jdfl.algorithms.round import Round
from jdfl.algorithms.statement import CORRELATED
from jdfl.base import struct
from jdfl.base.settings import Count, Provenance, StepSize
from jdfl.network import Network
from jdfl.network.tables import to_scipy
from jdfl.privacy import Gaussian, GaussianEvent, GaussianSchedule, Guarantee
from jdfl.problems import Problem

_EXACT, _PROBES, _NUMBERS = 256, 32, 2**24  # nodes with exact traces, random vectors otherwise, numbers at a time


class State(NamedTuple):
    x: Array  # [m, n] parameters
    hidden: Array  # [m, p - 1, n] negative noise of the last rounds


@struct.dataclass
class MAFALDA(Algorithm):
    """MAFALDA-SGD: adapt-then-combine D-PSGD with noise that partly cancels over rounds.

    C is computed for `horizon` rounds; a run may have fewer, but no more. Its guarantee counts how often a record takes
    part, given passes "in order"; no other sampling amplifies privacy. Raises ValueError (from `check`) for noise other
    than Gaussian, orders that change, and networks that are not fixed.
    """

    kind: ClassVar[str] = "mafalda"
    provenance: ClassVar[Provenance] = ("from memory",)
    lr: StepSize = 0.1
    gradients: Gradients = Gradients()
    horizon: Count = struct.field(pytree_node=False, default=100)
    """Rounds that the correlation is computed for, the maximum number of rounds of a run."""
    band: Count = struct.field(pytree_node=False, default=8)
    """Rounds over which noise is correlated, at most the rounds of a pass."""
    objective: Objective = struct.field(pytree_node=False, default="mean")
    """Accept networks that preserve the mean of the nodes only, or all ("pi"), with the weights that they give."""
    title: ClassVar[str] = "MAFALDA-SGD"
    needs: ClassVar[dict[str, bool]] = {"fixed": True}

    def check(self, problem: Problem, network: Network) -> None:
        """Raise ValueError for noise that is not Gaussian, and for passes whose order changes."""
        super().check(problem, network)
        noise, sampling = self.gradients.mechanism, self.gradients.sampling
        if noise is not None and not isinstance(noise, Gaussian):
            raise ValueError(f"Expected Gaussian noise for MAFALDA-SGD, which adds it up, got mechanism = {noise!r}.")
        if noise is not None and sampling == "epochs":
            raise ValueError(
                f"Expected known rounds in which a record takes part, got sampling = {sampling!r}. Use sampling = "
                "'in order', whose passes are all in the same order."
            )

    def plan(self, problem: Problem, network: Network, steps: int) -> Array:
        """The rows of C [T, p], from the diagonal backwards; p is 1 without noise."""
        if steps > self.horizon:
            raise ValueError(
                f"Expected steps <= horizon = {self.horizon}, the rounds that the noise is correlated for, got steps = "
                f"{steps}. Give a larger horizon."
            )
        if self.gradients.mechanism is None:
            return jnp.ones((steps, 1), problem.dtype)
        passes = int(np.min(self.gradients.passes(problem)))
        rows = optimal(workload(network, self.horizon), passes, min(self.band, passes, self.horizon))
        return jnp.asarray(rows[:steps], problem.dtype)

    def init(self, round: Round) -> State:
        x = round.problem.initial_params()
        return State(x, jnp.zeros((len(x), round.ready.shape[1] - 1, x.shape[1]), x.dtype))

    def step(self, state: State, round: Round) -> State:
        x, hidden = state
        if self.gradients.mechanism is None:
            return State(round.mix(x - self.lr * self.gradients(x, round)), hidden)
        g, hidden = self.gradients.correlated(x, round, round.ready[round.k].astype(x.dtype), hidden)
        return State(round.mix(x - self.lr * g), hidden)

    def privacy(self, problem: Problem, plan: Any = None, steps: int | None = None) -> Guarantee:
        """What the noise of all rounds guarantees together under the plan [T, p]."""
        claim = super().privacy(problem, plan, steps)
        if plan is None or not isinstance(claim.event, GaussianEvent):
            return claim
        rows, kinds = np.asarray(plan, float), np.unique(passes := self.gradients.passes(problem)).tolist()
        most = np.max([sensitivity(rows, one) for one in kinds], axis=0)
        event = GaussianSchedule.of(most / claim.event.noise_multiplier)
        claim = replace(claim, event=event, sampling=None, warnings=claim.warnings if passes.min() == 1 else ())
        if claim.reason != CORRELATED:
            return claim
        return replace(claim, claimed=True, reason=self.gradients.guarantee(problem).reason, remedy="")


def sensitivity(rows: np.ndarray, passes: int) -> np.ndarray:
    """The sensitivities [T] of the first 1, 2, ... rows of C [T, p], for records that take part every `passes` rounds.

    They are in units of one gradient's sensitivity, for the worst position in a pass. A row reveals a sum of changes
    whose norm is at most the sum of the entries' absolute values. Changes of equal sign attain it where no entry is
    negative.
    """
    rounds, back = np.indices(rows.shape)
    longest = np.zeros((len(rows), passes))
    np.add.at(longest, (rounds, (rounds - back) % passes), np.where(back <= rounds, np.abs(rows), 0.0))
    return np.sqrt(np.cumsum(longest**2, axis=0).max(axis=1))


def workload(network: Network, rounds: int) -> np.ndarray:
    """G [T, T]: the joint effect of the noise of rounds s and t on all later parameters, averaged over m nodes.

    Traces are exact up to 256 nodes, and estimated with 32 random sign vectors beyond.
    """
    W, random = to_scipy(network), np.random.default_rng(0)
    m = W.shape[0]
    probes = np.eye(m) if m <= _EXACT else random.choice([-1.0, 1.0], (m, _PROBES)) / np.sqrt(_PROBES)
    products, width = np.zeros((rounds, rounds)), max(1, _NUMBERS // (rounds * m))
    for start in range(0, probes.shape[1], width):
        powers = [W @ probes[:, start : start + width]]
        while len(powers) < rounds:
            powers.append(W @ powers[-1])
        flat = np.reshape(powers, (rounds, -1))
        products += flat @ flat.T / m
    G = np.zeros((rounds, rounds))
    for lag in range(rounds):
        place, sums = np.arange(rounds - lag), np.cumsum(np.diagonal(products, -lag))
        G[place, place + lag] = G[place + lag, place] = sums[::-1]
    return G


def optimal(G: np.ndarray, passes: int, band: int) -> np.ndarray:
    """The rows [T, p] of the lower triangular C with p diagonals that minimizes tr(C^-T G C^-1) at sensitivity 1."""
    return _optimal(G.tobytes(), len(G), passes, band)


@lru_cache(maxsize=16)
def _optimal(content: bytes, rounds: int, passes: int, band: int) -> np.ndarray:
    """`optimal` for the bytes of G, cached because a run is planned several times."""
    G = np.frombuffer(content).reshape(rounds, rounds)
    j, down = np.indices((rounds, band))
    inside, turn = j + down < rounds, np.arange(rounds) % passes

    def over(values: np.ndarray) -> np.ndarray:
        return np.bincount(turn, values, passes)[turn]  # the sum over all rounds at the same position of a pass

    def columns(free: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """The columns of C [T, p]; their directions, the norms before normalisation, and their own norms."""
        column = np.where(inside, free[rounds:].reshape(rounds, band), 0.0)
        length = np.linalg.norm(column, axis=1, keepdims=True)
        share = np.exp(free[:rounds] - free[:rounds].max())
        share = np.sqrt(share / over(share))[:, None]  # the rounds of one position share a squared norm of 1
        return share * column / length, column / length, length, share

    def error(free: np.ndarray) -> tuple[float, np.ndarray]:
        """The logarithm of the objective, and its gradient."""
        column, along, length, share = columns(free)
        C = np.zeros((2 * rounds, rounds))
        C[j + down, j] = column
        inverse = solve_triangular(C[:rounds], np.eye(rounds), lower=True)
        weighed = G @ inverse
        value = float(np.sum(inverse * weighed))
        by = np.zeros((2 * rounds, rounds))
        by[:rounds] = -2 / value * inverse.T @ weighed @ inverse.T
        slope = np.where(inside, by[j + down, j], 0.0)
        radial = np.sum(slope * along, axis=1, keepdims=True)
        half = (share * radial)[:, 0] / 2
        shares, turned = half - share[:, 0] ** 2 * over(half), share / length * (slope - radial * along)
        return np.log(value), np.concatenate([shares, turned.ravel()])

    start = np.concatenate([np.log(np.diag(G)) / 2, np.eye(1, band).repeat(rounds, axis=0).ravel()])
    column = columns(scipy.optimize.minimize(error, start, jac=True, method="L-BFGS-B").x)[0]
    t, back = np.indices((rounds, band))
    return np.where(back <= t, column[np.maximum(t - back, 0), back], 0.0)
