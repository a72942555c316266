"""Methods that send compressed differences, as loops over nodes that keep their own copies of what they hear.

W is the mixing matrix [m, m] of a fixed network, `gradient(i, x)` node i's, `compress(z)` what arrives of z. Everything
starts at zero; every function returns the parameters after each round [rounds, m, n].
"""

from collections.abc import Callable

import numpy as np

from tests.reference.gpsp import keep_largest

Gradient = Callable[[int, np.ndarray], np.ndarray]
Compress = Callable[[np.ndarray], np.ndarray]


def exactly(z: np.ndarray) -> np.ndarray:
    """Nothing is lost."""
    return z.copy()


def top(k: int) -> Compress:
    """The k entries largest in magnitude."""
    return lambda z: keep_largest(z, k)


class Copies:
    """What every node holds of itself and of its neighbours, kept by messages alone."""

    def __init__(self, W: np.ndarray, n: int) -> None:
        self.W = W
        self.held = [{j: np.zeros(n) for j in np.flatnonzero(W[i])} for i in range(len(W))]

    def receive(self, sender: int, q: np.ndarray) -> None:
        """The sender's difference reaches everybody who holds a copy of it."""
        for i in range(len(self.W)):
            if sender in self.held[i]:
                self.held[i][sender] = self.held[i][sender] + q

    def own(self, i: int) -> np.ndarray:
        return self.held[i][i]

    def mean(self, i: int) -> np.ndarray:
        """sum_j W_ij of node i's copies."""
        return sum((self.W[i, j] * copy for j, copy in self.held[i].items()), np.zeros_like(self.own(i)))

    def pull(self, i: int) -> np.ndarray:
        """sum_j W_ij (copy of j - copy of i), the row of W summing to one."""
        return self.mean(i) - self.own(i)


def choco(
    gradient: Gradient,
    W: np.ndarray,
    n: int,
    rounds: int,
    compress: Compress,
    *,
    lr: float,
    gamma: float,
    local_steps: int = 1,
    mix_first: bool = False,
) -> np.ndarray:
    """Koloskova, Stich, Jaggi (2019), Algorithm 2; `mix_first` is the order of Koloskova, Lin, Stich, Jaggi (2020)."""
    m = len(W)
    x, copies, course = np.zeros((m, n)), Copies(W, n), []
    for _ in range(rounds):
        h = x.copy()
        for i in range(m):
            for _ in range(local_steps):
                h[i] = h[i] - lr * gradient(i, h[i])
        if mix_first:
            x = np.stack([h[i] + gamma * copies.pull(i) for i in range(m)])
            h = x
        for i, q in enumerate([compress(h[i] - copies.own(i)) for i in range(m)]):
            copies.receive(i, q)
        if not mix_first:
            x = np.stack([h[i] + gamma * copies.pull(i) for i in range(m)])
        course.append(x)
    return np.stack(course)


def directed_ceps(
    gradient: Gradient,
    P: np.ndarray,
    n: int,
    rounds: int,
    compress: Compress,
    *,
    s: int,
    lr: float,
    gamma: float,
    local_steps: int = 1,
) -> np.ndarray:
    """The formulas of `jdfl.algorithms.directed_ceps`, which are in no paper: the models w [rounds, m, n].

    P has columns that sum to one. A message has the compressed difference and the sender's push-sum weight, which its
    receivers multiply by P_ij.
    """
    m = len(P)
    x, a, copies, course = np.zeros((m, n)), np.ones(m), Copies(P, n), []
    for _ in range(rounds):
        for i in range(m):
            for _ in range(local_steps):
                x[i] = keep_largest(x[i] - lr * gradient(i, keep_largest(x[i] / a[i], s)), s)
        messages = [(compress(keep_largest(x[i] - copies.own(i), s)), float(a[i])) for i in range(m)]
        for i, (q, _) in enumerate(messages):
            copies.receive(i, q)
        for i in range(m):
            heard = sum(P[i, j] * messages[j][1] for j in range(m) if j != i)
            x[i] = x[i] + gamma * (copies.mean(i) - copies.own(i))
            a[i] = a[i] + gamma * (heard + P[i, i] * a[i] - a[i])
        course.append(np.stack([keep_largest(x[i] / a[i], s) for i in range(m)]))
    return np.stack(course)


def dcd(gradient: Gradient, W: np.ndarray, n: int, rounds: int, compress: Compress, *, lr: float) -> np.ndarray:
    """Tang, Gan, Zhang, Zhang, Liu (2018), Algorithm 1."""
    m = len(W)
    x, copies, course = np.zeros((m, n)), Copies(W, n), []
    for _ in range(rounds):
        q = [compress(copies.mean(i) - lr * gradient(i, x[i]) - x[i]) for i in range(m)]
        x = np.stack([x[i] + q[i] for i in range(m)])
        for i in range(m):
            copies.receive(i, q[i])
        course.append(x)
    return np.stack(course)


def dfedavgm(
    gradient: Gradient,
    W: np.ndarray,
    n: int,
    rounds: int,
    compress: Compress,
    *,
    lr: float,
    theta: float,
    local_steps: int,
    quantised: bool,
) -> np.ndarray:
    """Sun, Li, Wang (2022), Algorithm 1; quantised as `jdfl.algorithms.dfedavgm` reads Algorithm 2."""
    m = len(W)
    x, copies, course = np.zeros((m, n)), Copies(W, n), []
    for _ in range(rounds):
        y = x.copy()
        for i in range(m):
            momentum = np.zeros(n)
            for _ in range(local_steps):
                momentum = theta * momentum - lr * gradient(i, y[i])
                y[i] = y[i] + momentum
        if quantised:
            for i, q in enumerate([compress(y[i] - copies.own(i)) for i in range(m)]):
                copies.receive(i, q)
            x = np.stack([copies.mean(i) for i in range(m)])
        else:
            arrived = [compress(y[i]) for i in range(m)]
            x = np.stack([sum(W[i, j] * (y[i] if i == j else arrived[j]) for j in range(m)) for i in range(m)])
        course.append(x)
    return np.stack(course)
