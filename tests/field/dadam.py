"""DADAM and decentralized AMSGrad."""

import numpy as np

import jdfl
from tests.field.row import ROUNDS, Loop, Rounds, field


def dadam(the: Loop) -> Rounds:
    """With the moments of all nodes at once, mixing as a product of matrices."""
    a, x = the.algorithm, the.start
    first, second, top = np.zeros((3, *x.shape))
    for _ in range(ROUNDS):
        g = the.gradients(x)
        first = a.beta1 * first + (1 - a.beta1) * g
        second = a.beta2 * second + (1 - a.beta2) * g**2
        top = a.beta3 * top + (1 - a.beta3) * np.maximum(top, second)
        x = the.W @ x - a.lr * first / (np.sqrt(top) + a.eps)
        yield x


def amsgrad(the: Loop) -> Rounds:
    """The lines of the algorithm, whose tracker has half rounds."""
    a, x = the.algorithm, the.start
    first, second = np.zeros((2, *x.shape))
    top, half = np.full((2, *x.shape), a.eps)
    for _ in range(ROUNDS):
        g = the.gradients(x)
        first = a.beta1 * first + (1 - a.beta1) * g
        second = a.beta2 * second + (1 - a.beta2) * g**2
        before, top = top, np.where(second > top, second, top)
        tracked = the.W @ half
        x = the.W @ x - a.lr * first / np.sqrt(np.where(tracked < a.eps, a.eps, tracked))
        half = tracked - before + top
        yield x


ROWS = (
    field(
        jdfl.DADAM(),
        dadam,
        more=(jdfl.DADAM(lr=0.05, beta2=0.5),),  # whose second moments also decrease
        exact={"eps": 1.0},
    ),
    field(
        jdfl.DAMSGrad(),
        amsgrad,
        more=(jdfl.DAMSGrad(lr=0.05, beta2=0.5),),
        channels=("model", "tracker"),
        exact={"eps": 1.0},
    ),
)
