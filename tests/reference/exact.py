"""The methods that reach the solution with constant steps, as plain loops over nodes, written from the papers.

`gradient(i, x)` is the gradient of f_i at x [n]; `W` [m, m] the mixing matrix, or a function k -> W of round k.
"""

from collections.abc import Callable

import numpy as np

from tests.reference.family import Gradient, mixed


def gradients(gradient: Gradient, x: np.ndarray) -> np.ndarray:
    """Every node's at its own row."""
    return np.stack([gradient(i, row) for i, row in enumerate(x)])


def dsgt(
    gradient: Gradient, W: Callable[[int], np.ndarray], start: np.ndarray, lr: float, rounds: int
) -> tuple[np.ndarray, np.ndarray]:
    """Gradient tracking: x and y [rounds, m, n] after every round."""
    x = start
    g = y = gradients(gradient, x)
    xs, ys = [], []
    for k in range(rounds):
        x = mixed(W(k), x - lr * y)
        new = gradients(gradient, x)
        y, g = mixed(W(k), y) + new - g, new
        xs.append(x)
        ys.append(y)
    return np.stack(xs), np.stack(ys)


def extra(gradient: Gradient, W: np.ndarray, start: np.ndarray, lr: float, rounds: int) -> np.ndarray:
    """EXTRA: x^1, x^2, ... [rounds, m, n]."""
    tilde = (np.eye(len(W)) + W) / 2
    before, x = start, mixed(W, start) - lr * gradients(gradient, start)
    xs = [x]
    for _ in range(rounds - 1):
        change = gradients(gradient, x) - gradients(gradient, before)
        before, x = x, x + mixed(W, x) - mixed(tilde, before) - lr * change
        xs.append(x)
    return np.stack(xs)


def nids(gradient: Gradient, W: np.ndarray, start: np.ndarray, lr: float, rounds: int) -> np.ndarray:
    """NIDS: x^2, x^3, ... [rounds, m, n]; x^1 needs no neighbours."""
    tilde = (np.eye(len(W)) + W) / 2
    before, x = start, start - lr * gradients(gradient, start)
    xs = []
    for _ in range(rounds):
        change = gradients(gradient, x) - gradients(gradient, before)
        before, x = x, mixed(tilde, 2 * x - before - lr * change)
        xs.append(x)
    return np.stack(xs)


def exact_diffusion(gradient: Gradient, W: np.ndarray, start: np.ndarray, lr: float, rounds: int) -> np.ndarray:
    """Exact diffusion: x_1, x_2, ... [rounds, m, n]."""
    bar = (np.eye(len(W)) + W) / 2
    x = psi_before = start
    xs = []
    for _ in range(rounds):
        psi = x - lr * gradients(gradient, x)
        phi = psi + x - psi_before
        x, psi_before = mixed(bar, phi), psi
        xs.append(x)
    return np.stack(xs)
