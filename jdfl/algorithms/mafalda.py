"""MAFALDA-SGD: decentralized SGD whose noise is correlated over rounds, as its network needs it.

A. Bellet, E. Cyffers, D. Frey, R. Gaudel, D. Lerévérend, F. Taïani: Unified Privacy Guarantees for Decentralized
Learning via Matrix Factorization, 2025.

    x_i <- sum_j W_ij (x_j - lr (g_j(x_j) + noise_j)),   noise of all rounds of a node: C^-1 Z

Z is fresh Gaussian noise, and C [T, T] lower triangular, the same at all nodes. What is seen of a node tells as much as
C G + Z (S. Denisov et al.: Improved Differential Privacy for SGD via Optimal Private Linear Operators on Adaptive
Streams, 2022, for gradients that depend on what was seen before). C is made so that noise moves the parameters of all
rounds least, in the mean square: it minimizes tr(C^-T G C^-1) with G_st = sum_k tr(W^(k-s+1)' W^(k-t+1)) / m, for a
sensitivity of 1 of C in units of one gradient's.

A record takes part in all rounds; where `sampling` is "in order", in one of every b rounds of a pass. C has at most b
diagonals (`band`), so that the columns of a record's rounds are orthogonal (C. Choquette-Choo et al.: (Amplified)
Banded Matrix Factorization, 2023) and its sensitivity squared is the sum of their squared lengths, which is the same
for every place of a pass. With b = 1, C is diagonal: correlation gains nothing, only the noise's size changes. (With
X = C' C and x_t proportional to sqrt(G_tt), X^-1 G X^-1 is a multiple of a correlation matrix, as optimality asks.)

Missing neighbours: their weight goes where the network says; changing networks, for which C cannot be made, and absent
nodes are refused.

Axes: m nodes, n parameters, T rounds, p diagonals.
"""

from dataclasses import replace
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy.linalg import solve_triangular
from scipy.optimize import minimize

from jdfl.algorithms.algorithm import Algorithm
from jdfl.algorithms.gradients import Gradients
from jdfl.algorithms.round import Round
from jdfl.algorithms.statement import CORRELATED
from jdfl.base import struct
from jdfl.base.settings import Count, StepLength
from jdfl.network import Network
from jdfl.network.tables import to_scipy
from jdfl.privacy import Gaussian, GaussianEvent, GaussianSchedule, Guarantee
from jdfl.problems import Problem

_EXACT, _PROBES, _NUMBERS = 256, 32, 2**24  # nodes of exact traces, random vectors otherwise, and numbers at once


class State(NamedTuple):
    """What the next round needs."""

    x: Array  # [m, n] parameters
    hidden: Array  # [m, p - 1, n] minus the noise of the last rounds


@struct.dataclass
class MAFALDA(Algorithm):
    """D-PSGD that adapts first, whose noise partly cancels over rounds.

    C is made for `horizon` rounds; a run may have fewer, but no more. Its guarantee counts how often a record takes
    part, by passes "in order"; no other sampling makes it stronger. Raises ValueError (from `check`) for settings out
    of range, noise other than Gaussian, orders that change, and networks that are not fixed.
    """

    kind: ClassVar[str] = "mafalda"
    lr: StepLength = 0.1
    gradients: Gradients = Gradients()
    horizon: Count = struct.field(pytree_node=False, default=100)
    """Rounds that the correlation is made for, and most rounds of a run."""
    band: Count = struct.field(pytree_node=False, default=8)
    """Rounds over which noise is correlated, at most those of a pass."""
    title: ClassVar[str] = "MAFALDA-SGD"
    needs: ClassVar[dict[str, bool]] = {"fixed": True}

    def check(self, problem: Problem, network: Network) -> None:
        """Refuse noise that is not Gaussian, and passes whose order changes."""
        super().check(problem, network)
        noise, sampling = self.gradients.mechanism, self.gradients.sampling
        if noise is not None and not isinstance(noise, Gaussian):
            raise ValueError(f"Expected Gaussian noise for MAFALDA-SGD, which adds it up, got mechanism = {noise!r}.")
        if noise is not None and sampling == "epochs":
            raise ValueError(
                f"Expected rounds that a record takes part in to be known, got sampling = {sampling!r}. Use sampling = "
                "'in order', whose passes are alike."
            )

    def plan(self, problem: Problem, network: Network, steps: int) -> Array:
        """The rows of C [T, p], from the diagonal backwards; without noise none are needed, and p is 1."""
        if steps > self.horizon:
            raise ValueError(
                f"Expected steps <= horizon = {self.horizon}, which noise is correlated for, got steps = {steps}. Give "
                "a longer horizon."
            )
        if self.gradients.mechanism is None:
            return jnp.ones((steps, 1), problem.dtype)
        passes = int(np.min(self.gradients.passes(problem)))
        rows = optimal(workload(network, self.horizon), passes, min(self.band, passes, self.horizon))
        return jnp.asarray(rows[:steps], problem.dtype)

    def init(self, round: Round) -> State:
        """Start where the problem says; nothing is hidden."""
        x = round.problem.begin()
        return State(x, jnp.zeros((len(x), round.ready.shape[1] - 1, x.shape[1]), x.dtype))

    def step(self, state: State, round: Round) -> State:
        """One round."""
        x, hidden = state
        if self.gradients.mechanism is None:
            return State(round.mix(x - self.lr * self.gradients(x, round)), hidden)
        g, hidden = self.gradients.correlated(x, round, round.ready[round.k].astype(x.dtype), hidden)
        return State(round.mix(x - self.lr * g), hidden)

    def privacy(self, problem: Problem, plan: Any = None, steps: int | None = None) -> Guarantee:
        """What the noise of all rounds guarantees together, given the plan [T, p]."""
        told = super().privacy(problem, plan, steps)
        if plan is None or not isinstance(told.event, GaussianEvent):
            return told
        rows, kinds = np.asarray(plan, float), np.unique(passes := self.gradients.passes(problem)).tolist()
        most = np.max([sensitivity(rows, one) for one in kinds], axis=0)
        event = GaussianSchedule.of(most / told.event.noise_multiplier)
        told = replace(told, event=event, sampling=None, warnings=told.warnings if passes.min() == 1 else ())
        if told.reason != CORRELATED:
            return told
        return replace(told, claimed=True, reason=self.gradients.guarantee(problem).reason, remedy="")


def sensitivity(rows: np.ndarray, passes: int) -> np.ndarray:
    """The sensitivities [T] of the first 1, 2, ... rows of C [T, p], for records that take part every `passes` rounds.

    In units of one gradient's sensitivity; of the place in a pass for which that is most. A row shows a sum of changes,
    no longer than that of the entries' sizes, which all signs alike reach where no entry is negative.
    """
    rounds, back = np.indices(rows.shape)
    longest = np.zeros((len(rows), passes))
    np.add.at(longest, (rounds, (rounds - back) % passes), np.where(back <= rounds, np.abs(rows), 0.0))
    return np.sqrt(np.cumsum(longest**2, axis=0).max(axis=1))


def workload(network: Network, rounds: int) -> np.ndarray:
    """G [T, T]: the square by which noise of rounds s and t moves the parameters after all later ones, over m nodes.

    Traces are exact up to 256 nodes, and estimated by 32 random vectors of signs for more.
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
    """The rows [T, p] of the lower triangular C with p diagonals that minimizes tr(C^-T G C^-1) at sensitivity 1.

    Args:
        G: What noise is weighed by, G [T, T].
        passes: The rounds b of a pass: a record takes part in rounds i, i + b, ...
        band: The number of diagonals p, at most b.
    """
    return _optimal(G.tobytes(), len(G), passes, band)


@lru_cache(maxsize=16)
def _optimal(told: bytes, rounds: int, passes: int, band: int) -> np.ndarray:
    """`optimal` of the bytes of G: a run is planned several times."""
    G = np.frombuffer(told).reshape(rounds, rounds)
    j, down = np.indices((rounds, band))
    inside, turn = j + down < rounds, np.arange(rounds) % passes

    def over(values: np.ndarray) -> np.ndarray:
        return np.bincount(turn, values, passes)[turn]  # the sum over all rounds of the same place of a pass

    def columns(free: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """The columns of C [T, p]; their directions, the lengths of what these come from, and their own lengths."""
        column = np.where(inside, free[rounds:].reshape(rounds, band), 0.0)
        length = np.linalg.norm(column, axis=1, keepdims=True)
        share = np.exp(free[:rounds] - free[:rounds].max())
        share = np.sqrt(share / over(share))[:, None]  # of the squared length 1 of all rounds of one place
        return share * column / length, column / length, length, share

    def error(free: np.ndarray) -> tuple[float, np.ndarray]:
        """The logarithm of what is minimized, and its gradient."""
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
    column = columns(minimize(error, start, jac=True, method="L-BFGS-B").x)[0]
    t, back = np.indices((rounds, band))
    return np.where(back <= t, column[np.maximum(t - back, 0), back], 0.0)
