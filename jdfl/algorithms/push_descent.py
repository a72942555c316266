"""Gradient steps over push-sum: what PartPSP, SGP and PEDFL share.

Every node's step is bounded in l1 by the clip, which is applied last of all, regulariser and all; that is what the
protocol's schedule of noise, and what is told of privacy, rest on.

Axes: m nodes, d shared parameters, T rounds.
"""

from dataclasses import replace
from typing import Annotated

import numpy as np
from jax import Array

from jdfl.algorithms.dpps import DPPS
from jdfl.algorithms.gradients import Gradients
from jdfl.base import Round
from jdfl.network import Network
from jdfl.privacy import Guarantee, clipped, stretch
from jdfl.problems import Problem
from jdfl.settings import Bound

Milestone = Annotated[int, Bound("[1, 2147483647]")]  # the round from which rates are lower


def decays(milestones: tuple[int, ...], factor: float | Array, rounds: int) -> np.ndarray:
    """What rates are multiplied by in every round [T]: by `factor` once more from each of the `milestones` on."""
    past = np.sum(np.arange(rounds)[:, None] >= np.asarray(milestones, int).reshape(1, -1), axis=1)
    return float(factor) ** past


def exact(gradients: Gradients) -> Gradients:
    """The same gradients as they are."""
    return replace(gradients, clip=None)


def oracle(gradients: Gradients) -> Gradients:
    """The gradients before the last clip: of clipped examples, where examples are clipped, and else as they are."""
    return exact(gradients) if gradients.per == "batch" else gradients


def bounded(gradients: Gradients, g: Array) -> Array:
    """Gradients g [m, d], regulariser and all, no longer than the clip."""
    return g if gradients.clip is None else clipped(g, gradients.norm, gradients.clip)


def shared_gradient(gradients: Gradients, w: Array, problem: Problem, round: Round, part: slice | None = None) -> Array:
    """The gradients [m, d] at w [m, n] that push-sum carries; `part` is the shared one."""
    return bounded(gradients, oracle(gradients)(w, problem, round, part=part))


def check_steps(
    method: str,
    gradients: Gradients,
    dpps: DPPS,
    problem: Problem,
    network: Network,
) -> None:
    """ValueError for settings of gradient steps over the protocol that do not fit one another or the network."""
    gradients.check(problem)
    if gradients.mechanism is not None:
        raise ValueError(
            f"Expected gradients without noise for {method}, whose protocol adds it to messages, got mechanism = "
            f"{gradients.mechanism!r}. Give dpps=DPPS(b=...) instead."
        )
    dpps.check(method, network)


def step_bounds(gradients: Gradients, lr: float | Array, scales: np.ndarray, d: int) -> np.ndarray | None:
    """The largest l1 length of a perturbation -lr scale g [T], by `scales` [T]; None where nothing bounds it."""
    if gradients.clip is None:
        return None
    return float(lr) * scales * stretch(gradients.norm, "l1", d) * float(gradients.clip)


def private(dpps: DPPS, gradients: Gradients, lr: float | Array, d: int, *, late: bool = False) -> Guarantee:
    """The guarantee of clipped gradient steps over the protocol, which are sent at once or (`late`) a round after."""
    scales = np.zeros(0) if dpps.scales is None else np.asarray(dpps.scales, float)
    bounds = step_bounds(gradients, lr, scales, d)
    if bounds is not None and late:
        bounds = sent_late(bounds)
    clip = "" if gradients.clip is None else f"{float(gradients.clip):g}"
    return dpps.guarantee(bounds, f"{gradients.norm} clipping of every node's shared gradient to {clip}")


def sent_late(bounds: np.ndarray) -> np.ndarray:
    """The `bounds` [T] of steps that are sent in the round after theirs."""
    return np.append(0.0, bounds)[:-1]
