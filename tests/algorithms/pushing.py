"""What the tests of push-sum share: networks with unequal masses, the noise of a run, and its course when planned."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jdfl
from jdfl.algorithms.dpps import _NOISE
from jdfl.base import streams
from jdfl.engine.start import check_run
from tests.algorithms.play import ROUNDS, M, course, matrices
from tests.later import Named
from tests.reference.push_sum import Protocol

KEY = 11
MILESTONES, DECAY = (8, 15), 0.5
_EDGES = [(i, (i + 1) % M) for i in range(M)] + [(1, 0), (2, 0), (3, 0), (4, 2), (0, 3), (5, 0)]


def uneven() -> jdfl.network.Static:
    """A directed network whose nodes send to 1, 2, 3 or 4 others, so that the masses a differ."""
    return jdfl.network.from_edges(_EDGES, M, directed=True, weights="out-degree")


NETWORKS = Named(
    {
        "uneven": uneven,
        "one peer": lambda: jdfl.network.one_peer_exponential(M, hops="paper"),
        "3-out, synchronised": lambda: jdfl.network.synchronised(jdfl.network.d_out(M, 3), 4),
        "uneven, synchronised": lambda: jdfl.network.synchronised(uneven(), 5),
    }
)


def meets(net: Any) -> Any:
    """Whether all nodes take the mean of all in round t."""
    return lambda t: hasattr(net, "every") and (t + 1) % int(net.every) == 0


def weights(net: Any, rounds: int = ROUNDS) -> list[np.ndarray]:
    """Every round's matrix [m, m] in float64; means are exact."""
    found = matrices(net, jax.random.key(KEY), rounds)
    return [np.full_like(W, 1 / len(W)) if meets(net)(t) else W for t, W in enumerate(found)]


@partial(jax.jit, static_argnames=("rounds", "m", "d"))
def laplace(key: Any, rounds: int, m: int, d: int) -> Any:
    """The Laplace numbers [rounds, m, d] that a run with this key draws."""

    def one(k: Any) -> Any:
        keys = _NOISE.keys(streams.Keys.of(key).at_round(k).private, jnp.arange(m))
        return jax.vmap(lambda key: jax.random.laplace(key, (d,), jnp.float64))(keys)

    return jax.vmap(one)(jnp.arange(rounds, dtype=jnp.int32))


def protocol(program: Any, net: Any, d: int) -> Protocol:
    """The loops' settings for those of a planned run."""
    dpps, certified = program.algorithm.dpps, program.plan.certified
    if dpps.b is None:
        return Protocol(synchronised=meets(net))
    return Protocol(
        laplace=np.asarray(laplace(jax.random.key(KEY), ROUNDS, net.m, d)),
        b=dpps.b,
        rate=dpps.noise_rate,
        sensitivity=dpps.sensitivity,
        schedule=None if certified is None else np.asarray(certified, float),
        constant=dpps.constant,
        contraction=dpps.contraction,
        reading=dpps.reading,
        synchronised=meets(net),
    )


def falling() -> np.ndarray:
    """What rates are multiplied by in every round."""
    return np.array([DECAY ** sum(t >= one for one in MILESTONES) for t in range(ROUNDS)])


def follow(algorithm: Any, problem: Any, net: Any, rounds: int = ROUNDS) -> Any:
    """The program of so many rounds, and what `course` gives of it."""
    program = check_run(algorithm, problem, net, rounds, 1, None)
    return program, course(program, problem, net, jax.random.key(KEY), rounds)
