"""Push-sum with noise as loops over nodes, from Zhou, Xue and Chen's Algorithms 1 and 2, and the certified schedule.

W[t] is round t's mixing matrix [m, m], laplace[t] standard Laplace numbers [m, d] of all nodes, eta[t] what rates are
multiplied by; `gradient(i, w)` is node i's. A function returns the parameters after each round [rounds, m, n].
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq

from tests.reference.family import Gradient, mixed


@dataclass(frozen=True)
class Protocol:
    """The settings of Algorithm 1."""

    laplace: np.ndarray | None = None  # [rounds, m, d]; None: no noise
    b: float = 1.0
    rate: float = 1.0
    sensitivity: str = "real"
    schedule: np.ndarray | None = None  # [rounds], where it is certified
    constant: float = 0.78
    contraction: float = 0.55
    reading: str = "text"
    synchronised: Callable[[int], bool] = lambda t: False


def farthest(h: np.ndarray) -> float:
    """Definition 5: the largest l1 distance of two nodes' vectors."""
    return max(float(np.abs(one - other).sum()) for one, other in itertools.product(h, h))


class DPPS:
    """Algorithm 1: s, a and what Eq. 22 remembers."""

    def __init__(self, s: np.ndarray, settings: Protocol) -> None:
        self.s, self.a, self.settings = s.copy(), np.ones(len(s)), settings
        self.t, self.estimate, self.length = 0, np.zeros(len(s)), np.zeros(len(s))
        self.first = np.abs(s).sum(axis=1)

    @property
    def y(self) -> np.ndarray:
        return np.stack([s / a for s, a in zip(self.s, self.a)])

    def eq22(self, eps: np.ndarray) -> float:
        c, shrink = self.settings.constant, self.settings.contraction
        for i in range(len(eps)):
            step = np.abs(eps[i]).sum()
            if self.t == 0:
                begun = self.first[i] if self.settings.reading == "text" else 0
                self.estimate[i] = 2 * c * begun + 2 * c * step
            else:
                self.estimate[i] = shrink * self.estimate[i] + 2 * c * (step + shrink * self.length[i])
        largest = self.estimate.max()
        if self.settings.reading == "code":
            self.estimate[:] = largest
        return largest

    def round(self, W: np.ndarray, eps: np.ndarray, eta: float) -> None:
        told, h = self.settings, self.s + eps
        if told.laplace is not None:
            if told.sensitivity == "real":
                S = farthest(h)
            elif told.sensitivity == "eq22":
                S = self.eq22(eps)
            else:
                S = told.schedule[self.t]
            noise = told.rate * eta * told.laplace[self.t] * S / told.b
            h = h + noise
            self.length = np.abs(noise).sum(axis=1)
        if told.synchronised(self.t):
            self.estimate, self.length = np.zeros(len(h)), np.zeros(len(h))
        self.s, self.a = mixed(W, h), mixed(W, self.a[:, None])[:, 0]
        self.t += 1


def shortened(g: np.ndarray, clip: float | None) -> np.ndarray:
    """A gradient no longer than the clip in l1."""
    length = np.abs(g).sum()
    return g if clip is None or length <= clip else g * (clip / length)


def partpsp(
    gradient: Gradient,
    W: Sequence[np.ndarray],
    x: np.ndarray,
    d: int,
    protocol: Protocol,
    eta: np.ndarray,
    *,
    lr_shared: float,
    lr_local: float,
    clip: float | None,
) -> np.ndarray:
    """Algorithm 2: first the local parameters, then the shared ones where these have come to; all shared: SGP."""
    m = len(x)
    shared, local, course = DPPS(x[:, :d], protocol), x[:, d:].copy(), []
    for t, weights in enumerate(W):
        y, eps = shared.y, np.zeros((m, d))
        for i in range(m):
            local[i] = local[i] - lr_local * eta[t] * gradient(i, np.concatenate([y[i], local[i]]))[d:]
            g = gradient(i, np.concatenate([y[i], local[i]]))[:d]
            eps[i] = -lr_shared * eta[t] * shortened(g, clip)
        shared.round(weights, eps, eta[t])
        course.append(np.hstack([shared.y, local]))
    return np.stack(course)


def pedfl(
    gradient: Gradient,
    W: Sequence[np.ndarray],
    x: np.ndarray,
    protocol: Protocol,
    eta: np.ndarray,
    *,
    lr: float,
    clip: float | None,
) -> np.ndarray:
    """D-PSGD whose messages are noisy; what the protocol is told was added is the step before."""
    sums, step, course = DPPS(x, protocol), np.zeros_like(x), []
    for t, weights in enumerate(W):
        now = sums.s + step
        g = np.stack([shortened(gradient(i, now[i]), clip) for i in range(len(x))])
        sums.round(weights, step, eta[t])
        step = -lr * eta[t] * g
        course.append(sums.s + step)
    return np.stack(course)


def average_consensus(
    vectors: np.ndarray, W: Sequence[np.ndarray], protocol: Protocol, *, clip: float | None
) -> np.ndarray:
    """Push-sum of the nodes' vectors [m, n]."""
    sums, course = DPPS(np.zeros_like(vectors), protocol), []
    for t, weights in enumerate(W):
        eps = np.stack([shortened(v, clip) if t == 0 else 0 * v for v in vectors])
        sums.round(weights, eps, 1.0)
        course.append(sums.y)
    return np.stack(course)


def certified(
    W: Sequence[np.ndarray],
    bounds: np.ndarray,
    noise: np.ndarray,
    d: int,
    *,
    failure: float,
    start: float = 0.0,
    rounding: float = 0.0,
) -> np.ndarray:
    """S_t by its formula: all products P_{t,k} = W_{t-1} ... W_k, all pairs, all rounds k <= t."""
    m, schedule, steps, row_sum = len(W[0]), [], [], 1.0
    for t in range(len(bounds)):
        products = [np.eye(m)] * (t + 1)
        for k in range(t):
            for later in range(k, t):
                products[k] = W[later] @ products[k]
        chance = failure * 6 / (math.pi**2 * (t + 1) ** 2)
        goal = math.log((m + m * (m - 1) / 2) / chance) / d
        eta = brentq(lambda x, goal: x - math.log1p(x) - goal, 1e-12, 10 + 4 * goal, args=(goal,))
        spread = (1 + eta) * d * math.sqrt(2 / math.pi)

        exact = row_sum * (start + sum(bounds[: t + 1]))  # the longest that a node's vector may be without noise
        own = max(sum((noise[k] * schedule[k]) ** 2 * (products[k][i] ** 2).sum() for k in range(t)) for i in range(m))
        step = bounds[t] + rounding * (exact + spread * math.sqrt(2 * own))
        largest = 0.0
        for i, j in itertools.combinations(range(m), 2):
            c = [P[i] - P[j] for P in products]
            length = sum(e * np.abs(one).sum() for e, one in zip([*steps, step], c))
            begun = start * abs(products[0][i].sum() - products[0][j].sum())
            square = sum((noise[k] * schedule[k]) ** 2 * (c[k] ** 2).sum() for k in range(t))
            largest = max(largest, length + begun + spread * math.sqrt(2 * square))
        schedule.append(largest)
        steps.append(bounds[t] + rounding * (exact + spread * math.sqrt(2 * (own + (noise[t] * largest) ** 2))))
        row_sum = min(m, row_sum * max(1.0, W[t].sum(axis=1).max()))
    return np.array(schedule)
