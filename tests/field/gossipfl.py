"""GossipFL with two local steps."""

import jax
import numpy as np

import jdfl
from jdfl.algorithms import gossipfl
from tests.field.row import ROUNDS, Loop, M, N, Rounds, field


def loop(the: Loop) -> Rounds:
    """The six entries of a round are mixed, the others stay."""
    x = the.start
    for k in range(ROUNDS):
        for _ in range(2):
            x = x - the.algorithm.lr * the.gradients(x)
        order = np.asarray(jax.random.permutation(the.moment(k).stream(gossipfl._MASK), N))
        sent = [entry for entry in range(N) if order[entry] < 6]
        x = x.copy()
        x[:, sent] = the.W @ x[:, sent]
        assert x.shape == (M, N)
        yield x


_PARENT = jdfl.DPSGD(lr=0.05, order="adapt-then-combine")
ROWS = (
    field(
        jdfl.GossipFL(lr=0.05, share=0.3, local_steps=2),
        loop,
        bits=6 * 32,
        grads=2,
        same=((jdfl.GossipFL(lr=0.05, share=1.0), _PARENT),),
    ),
)
