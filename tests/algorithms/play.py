"""What the tests of the family share: a small problem, and the course of an algorithm on it in float64."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jdfl
from jdfl.algorithms.program import Program, planned
from jdfl.algorithms.round import Prepared, RoundContext
from jdfl.base import streams
from jdfl.engine import loop, stepping

M, N, ROUNDS = 7, 12, 100


def example(dtype: Any = np.float64, **fields: Any) -> jdfl.problems.LinearRegression:
    """Least squares whose nodes have unequal numbers of examples."""
    return jdfl.problems.example1(**({"m": M, "n": N, "s": 4, "rows": (8, 20), "seed": 3, "dtype": dtype} | fields))


def network() -> jdfl.network.Static:
    """A connected graph with unequal degrees and symmetric weights."""
    return jdfl.network.erdos_renyi(M, 0.5, seed=2)


def gradient_of(problem: Any) -> Any:
    """grad f_i(w) in numpy, for least squares."""
    A, b = (np.asarray(leaf) for leaf in problem.data)
    weight = np.asarray(problem.weight)
    return lambda i, w: A[i].T @ (weight[i] * (A[i] @ w - b[i])) / weight[i].sum()


def keyed(key: Any) -> Any:
    """A key as it is, or that of a number."""
    return key if isinstance(key, jax.Array) else jax.random.key(key)


def matrices(net: Any, key: Any, rounds: int = ROUNDS) -> np.ndarray:
    """The mixing matrices [rounds, m, m] that a run with this key sees, in float64."""
    return np.asarray(_matrices(stepping.nameless(net), keyed(key), rounds), np.float64)


@partial(jax.jit, static_argnames=("rounds",))
def _matrices(net: Any, key: Any, rounds: int) -> Any:
    def one(k: Any) -> Any:
        return jdfl.network.as_dense(net.at(k, streams.Keys.of(key).at_round(k).network))

    return jax.vmap(one)(jnp.arange(rounds, dtype=jnp.int32))


@partial(jax.jit, static_argnames=("rounds",))
def _course(setting: Any, rounds: int) -> Any:
    setting, carry, _ = loop._start(setting, ())

    def one(state: Any, k: Any) -> Any:
        state, info = stepping.step(setting, state, stepping.sample_round(setting, k))
        return state, (setting.program.params(state), state, info)

    _, (params, states, infos) = jax.lax.scan(one, carry.state, jnp.arange(rounds, dtype=jnp.int32))
    return params, carry.state, states, infos


def course(algorithm: Any, problem: Any, net: Any, key: Any = 11, rounds: int = ROUNDS) -> Any:
    """Parameters [rounds, m, n], the state at the start, all later states and infos, as `jdfl.run` would have them.

    What is private is drawn from `key` alone (`round_of`), not from settings and data.
    """
    keys = streams.Keys.of(keyed(key))
    program = algorithm if isinstance(algorithm, Program) else planned(algorithm, problem, net, rounds)
    return jax.device_get(_course(stepping.setting(program, problem, net, None, keys), rounds))


def round_of(key: Any, k: Any, graph: Any, node: Any) -> RoundContext:
    """The moment of round k of a `course` with this key, on this graph."""
    now = streams.Keys.of(keyed(key)).at_round(k)
    return RoundContext(k, now.run, graph, node, now)


def direct(
    context: RoundContext, problem: Any, gradients: Any = None, *, wire: Any = None, ready: Any = None
) -> jdfl.Round:
    """A round for calls of gradients, updates, codecs and protocols without an algorithm, with a trace of its own."""
    known = None if gradients is None else gradients.prepare(problem, context)
    return jdfl.Round(context=context, problem=problem, prepared=Prepared(known, wire, ready))
