"""DO-ADP as a loop over nodes that keep their own copies of what they hear.

W is the mixing matrix [m, m]; `gradient(k, i, x)` is node i's noisy gradient in round k, `active` [rounds, m] who
wakes, `compress(z)` what arrives of z. Returns the parameters after each round [rounds, m, n].
"""

from collections.abc import Callable

import numpy as np

from tests.reference.compressed import Compress, Copies


def doadp(
    gradient: Callable[[int, int, np.ndarray], np.ndarray],
    active: np.ndarray,
    W: np.ndarray,
    x0: np.ndarray,
    compress: Compress,
    *,
    lr: float,
    gamma: float,
    beta: float,
    zero: bool,
    trigger: float | None = None,
) -> np.ndarray:
    """Huo, Liu, Ding, Johansson, Shi, Algorithm 1, from x0 [n]; `zero`: public copies start at zero, not at x0.

    With a `trigger` only messages whose norm exceeds it are sent.
    """
    m, n = len(W), len(x0)
    x, momentum, copies, course = np.tile(x0, (m, 1)), np.zeros((m, n)), Copies(W, n), []
    if not zero:
        for i in range(m):
            copies.receive(i, x0)
    for k, awake in enumerate(active):
        new = x.copy()
        for i in range(m):
            momentum[i] = beta * momentum[i]
            if awake[i]:
                momentum[i] = momentum[i] + gradient(k, i, x[i])
                new[i] = new[i] - lr * momentum[i]
            new[i] = new[i] + gamma * copies.pull(i)
        x = new
        for i, s in [(i, compress(x[i] - copies.own(i))) for i in np.flatnonzero(awake).tolist()]:
            if trigger is None or np.linalg.norm(s) > trigger:
                copies.receive(i, s)
        course.append(x)
    return np.stack(course)
