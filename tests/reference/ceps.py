"""CEPS (Sha, Zhou, Kong, Li; Algorithms 1 and 2) as plain loops over nodes, written from the paper.

What is random is handed in: who is chosen, the noise, the sensing matrices.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from tests.reference.gpsp import gpsp, keep_largest


def one_bit(
    w: np.ndarray,
    phi: np.ndarray,
    s: int,
    gamma: float = 5.0,
    exact: bool = False,
    side: np.ndarray | None = None,
    **decoder,
) -> np.ndarray:
    """Algorithm 2: what a receiver makes of w [n] sent through phi [d, n]; `exact` finds the scale first.

    With `side` [n], its own parameters, the decoder starts from their logarithm.
    """
    norm = np.linalg.norm(w)
    x = np.sign(w) * np.log1p(np.abs(w)) / np.log(gamma)
    if side is not None:
        decoder["start"] = np.sign(side) * np.log1p(np.abs(side)) / np.log(gamma)
    c = np.where(phi @ x > 0, 1.0, -1.0).astype(phi.dtype)
    v = gpsp(phi, c, s, **decoder)
    if norm == 0 or not v.any():
        return np.zeros_like(w)
    t = 1.0
    if exact:
        low, high = 0.0, np.log1p(norm) / np.log(gamma) / np.abs(v).max()
        for _ in range(100):
            t = (low + high) / 2
            if np.linalg.norm(gamma ** (t * np.abs(v)) - 1) < norm:
                low = t
            else:
                high = t
    v = np.sign(v) * (gamma ** (t * np.abs(v)) - 1)
    return norm / np.linalg.norm(v) * v


@dataclass
class Trace:
    """The course of a run."""

    w: list[np.ndarray] = field(default_factory=list)  # [m, n] after every round
    sent: np.ndarray | None = None  # [m] messages that each node sent


def ceps(
    gradient: Callable[[int, np.ndarray], np.ndarray],
    neighbours: Sequence[Sequence[int]],
    n: int,
    *,
    s: int,
    rate: float,
    mu: float,
    sigma: np.ndarray,
    period: np.ndarray,
    rounds: int,
    choose: Callable[[int, int, int], Sequence[int]],
    send: Callable[..., np.ndarray],
    noise: Callable[[int, int], np.ndarray] | None = None,
    kept: bool = False,
    dtype: type = np.float64,
    until: Callable[[np.ndarray, int], bool] | None = None,
    pairwise: bool = False,
    own_coded: bool = False,
    zero: bool = False,
) -> Trace:
    """Algorithm 1 on m nodes.

    `neighbours[i]` is N_i, with or without i. `choose(k, i, size)` draws N_i^k from it; `send(j, w_j)` is what arrives
    of node j's parameters, asked for once per sender and round, and a node knows its own exactly; `noise(k, i)` has
    k = -1 for the first u. `kept` stores the noise in u; `until(w, k)` ends the run after round k. With `pairwise` what
    arrives depends on the receiver: `send(j, w_j, i, w_i)`, asked for once per pair. With `own_coded` a node knows its
    own as others do; with `zero` nodes communicate in round 0 already.
    """
    m = len(neighbours)
    w = np.zeros((m, n), dtype)
    u = np.stack([-gradient(i, w[i]) for i in range(m)])
    if noise is not None and kept:
        u = u + np.stack([noise(-1, i) for i in range(m)])
    size = np.array([len(neighbours[i]) for i in range(m)], dtype)
    trace = Trace(sent=np.zeros(m, int))
    assert trace.sent is not None
    for k in range(rounds):
        new = np.empty_like(w)
        arrived: dict[int, np.ndarray] = {}
        for i in range(m):
            if (k > 0 or zero) and k % period[i] == 0:
                size[i] = np.ceil(np.round(rate * len(neighbours[i]), 6))
                total = np.zeros(n, dtype)
                for j in choose(k, i, int(size[i])):
                    if j == i and not own_coded:
                        total += w[i]
                        continue
                    trace.sent[j] += j != i
                    if pairwise:
                        total += send(j, w[j], i, w[i])
                        continue
                    if j not in arrived:
                        arrived[j] = send(j, w[j])
                    total += arrived[j]
                mean = total / size[i]
                u[i] = sigma[i] * size[i] * mean - gradient(i, mean)
                perturbed = u[i] if noise is None else u[i] + noise(k, i)
                if kept:
                    u[i] = perturbed
                new[i] = keep_largest(perturbed / (sigma[i] * size[i]), s)  # (3)
            else:
                new[i] = keep_largest((u[i] + mu * w[i]) / (sigma[i] * size[i] + mu), s)  # (4)
        w = new
        trace.w.append(w)
        if until is not None and until(w, k):
            break
    return trace
