"""The methods of the field: the loops of their papers, where they end, what they track, and which others they equal."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jdfl
from jdfl import testing
from jdfl.algorithms import REGISTRY
from jdfl.algorithms.program import Program, planned
from jdfl.algorithms.round import RoundContext
from jdfl.engine import stepping
from tests.field import ROWS
from tests.field.row import M, exactly, network, problem
from tests.later import Later


def strong() -> jdfl.problems.LinearRegression:
    """Least squares with more examples than parameters at every node, and a solution of its own at every node."""
    draw = np.random.default_rng(11)
    A = draw.standard_normal((M, 40, 10))
    return jdfl.problems.linear_regression(A, A @ np.ones(10) + draw.standard_normal((M, 40)))


STRONG = Later(strong)


def played(algorithm: Any, on: Any = network, shared: int | None = None) -> np.ndarray:
    """Parameters [13, m, n] after every round, with messages that are exact in float64."""
    return np.asarray(testing.Case(exactly(algorithm), problem(shared)).play(network=on())[1])


@partial(jax.jit, static_argnames=("rounds",))
def course(program: Program, problem: Any, net: Any, rounds: int) -> Any:
    """Parameters [rounds, m, n] and the last state."""

    def at(k: jax.Array) -> RoundContext:
        key = jax.random.fold_in(jax.random.key(5), k)
        return RoundContext(k, key, net.at(k, key), jnp.arange(M, dtype=jnp.int32))

    program = program.prepare(problem, at(jnp.int32(0)))
    state, _ = program.init(problem, at(jnp.int32(0)))

    def one(state: Any, k: jax.Array) -> Any:
        state = program.step(state, problem, at(k))[0]
        return state, program.params(state)

    state, params = jax.lax.scan(one, state, jnp.arange(rounds, dtype=jnp.int32))
    return params, state


def long(algorithm: Any, rounds: int, on: Any = network) -> Any:
    with jax.enable_x64(True):
        wide = jax.tree.map(lambda x: x.astype(float) if jnp.issubdtype(x.dtype, jnp.floating) else x, STRONG())
        program = planned(exactly(algorithm), wide, on(), rounds)
        return jax.device_get(course(program, stepping.nameless(wide), stepping.nameless(on()), rounds))


def best() -> np.ndarray:
    """Where the average of the gradients is zero [n]."""
    A, b = (np.asarray(leaf, np.float64) for leaf in STRONG().data)
    return np.linalg.solve(np.einsum("iqn,iqp->np", A, A), np.einsum("iqn,iq->n", A, b))


FORMER = (  # exact methods that have no row here
    jdfl.DSGT(lr=0.05),
    jdfl.EXTRA(lr=0.05),
    jdfl.NIDS(lr=0.05),
    jdfl.ExactDiffusion(lr=0.05),
    jdfl.CPGT(lr=0.04, gamma=0.5),
)
REACHING = [
    *(pytest.param(one, 1000, network, id=one.title) for one in FORMER),
    *(
        pytest.param(row.reaches, row.rounds, row.on, id=str(row), marks=pytest.mark.rotated(3))
        for row in ROWS
        if row.reaches is not None
    ),
]


def test_the_exact_methods_are_those_that_reach_the_optimum():
    shown = {type(one.values[0]) for one in REACHING}
    assert {kind for kind in REGISTRY.values() if kind.exact} == shown


@pytest.mark.parametrize(("algorithm", "rounds", "on"), REACHING)
def test_an_exact_method_reaches_the_optimum_at_a_linear_rate(algorithm: Any, rounds: int, on: Any):
    params, _ = long(algorithm, rounds, on)
    away = np.abs(params - best()).max(axis=(1, 2))
    assert away[-1] < 1e-8
    while_far = away > 1e-9  # above its floor, every tenth of the rounds is a step of the same ratio
    steps = away[while_far][:: max(1, while_far.sum() // 10)]
    assert (steps[1:] < steps[:-1]).all()


PAIRS = [pytest.param(one, other, id=f"{row}: {other.title}") for row in ROWS for one, other in row.same]


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_a_method_without_its_idea_is_another_one(one: Any, other: Any):
    np.testing.assert_allclose(played(one), played(other), rtol=1e-9, atol=1e-10)


def test_every_file_of_a_method_is_one_of_a_registered_class():
    modules = {kind.__module__.rpartition(".")[2] for kind in REGISTRY.values()}
    assert {row.module for row in ROWS} <= modules
