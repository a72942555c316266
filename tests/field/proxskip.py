"""ProxSkip."""

import jax
import numpy as np

import jdfl
from jdfl.algorithms.exact_diffusion import COIN
from tests.field.row import ROUNDS, Loop, Rounds, field


def loop(the: Loop) -> Rounds:
    """The form of the paper, with control variates h."""
    a, x = the.algorithm, the.start
    beta = a.p if a.beta is None else a.beta
    h = np.zeros_like(x)
    for k in range(ROUNDS):
        moved = x - a.lr * (the.gradients(x) - h)
        x = moved
        if jax.random.bernoulli(the.moment(k).stream(COIN), np.float32(a.p)):
            x = (1 - a.gamma) * moved + a.gamma * the.W @ moved
            h = h + beta / a.lr * (x - moved)
        yield x


_SKIPS = jdfl.ProxSkip(lr=0.05, p=0.4)
ROWS = (
    field(
        jdfl.ProxSkip(lr=0.05, p=1.0),
        loop,
        more=(_SKIPS, jdfl.ProxSkip(lr=0.05, p=0.4, beta=0.1)),
        reaches=_SKIPS,
        rounds=1000,
        same=((jdfl.ProxSkip(lr=0.05, p=1.0), jdfl.ExactDiffusion(lr=0.05)),),
    ),
)
