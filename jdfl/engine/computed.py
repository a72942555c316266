"""What a run computes, in one digest: that of its traced programs, whatever names their functions and variables have.

It says whether work that is kept or resumed is still the same work. No key depends on it.
"""

import hashlib
import re
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, Var

from jdfl.algorithms.program import Program, planned
from jdfl.algorithms.round import Round
from jdfl.algorithms.statement import some_moment
from jdfl.base import marking
from jdfl.network.graph import Network
from jdfl.problems import Problem

COMPUTED = "what is computed"  # the setting of a provenance that records the digest
_NAMES = ("name", "debug_info", "jvp_jaxpr_fun", "jvp_jaxpr_thunk", "fwd", "fwd_jaxpr_thunk", "bwd")  # change nothing
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def computed(program: Program, problem: Problem, network: Network, others: Sequence[Any] = ()) -> str:
    """The digest of a program's start and rounds on a problem, of the network's graphs, and of `others`.

    Settings and data are arguments of what is traced, so that their values do not enter; constants of functions do.
    `others` are functions of (parameters [m, n], problem), such as metrics.
    """
    if jax.tree.leaves(program.plan):  # whose shapes may follow the number of rounds, which a resumed run may change
        program = planned(program.algorithm, problem, network, 1)
    method, plan, data, links = jax.tree.map(_shape, (program.algorithm, program.plan, problem, network))

    def round(algorithm: Any, plan: Any, problem: Problem) -> Round:
        moment = some_moment(problem)
        return Round(moment=moment, problem=problem, prepared=algorithm.prepared(problem, moment, plan))

    def begin(algorithm: Any, plan: Any, problem: Problem) -> Any:
        return algorithm.init(round(algorithm, plan, problem))

    def advance(state: Any, algorithm: Any, plan: Any, problem: Problem) -> Any:
        new = algorithm.traced_step(state, round(algorithm, plan, problem))
        return new, algorithm.params(new)

    def links_of(network: Network) -> Any:
        return network.at(jnp.int32(0), jax.random.key(0))

    started, state = jax.make_jaxpr(begin, return_shape=True)(method, plan, data)
    going, (_, params) = jax.make_jaxpr(advance, return_shape=True)(state, method, plan, data)
    value = jax.make_jaxpr(lambda problem, w: problem.values(w))(data, params)
    made = [started, going, value, jax.make_jaxpr(links_of)(links)]
    total = hashlib.sha256()
    for one in [*made, *(jax.make_jaxpr(function)(params, data) for function in others)]:
        _write(total, one)
    return total.hexdigest()[:16]


def _shape(leaf: Any) -> Any:
    """The shape and type of an array, for tracing."""
    return jax.ShapeDtypeStruct(jnp.shape(leaf), jnp.result_type(leaf), weak_type=isinstance(leaf, float | int))


def _write(total: Any, program: ClosedJaxpr) -> None:
    for const in program.consts:
        x: Any = jax.random.key_data(const) if jnp.issubdtype(const.dtype, jax.dtypes.prng_key) else const
        total.update(np.ascontiguousarray(np.asarray(x)).tobytes())
    for word in _words(program.jaxpr):
        total.update(f"{word}\n".encode())


def _words(jaxpr: Jaxpr) -> Iterator[str]:
    """The equations of a program, with its variables numbered in their order."""
    number: dict[Var, int] = {}

    def named(one: Any) -> str:
        if isinstance(one, Literal):
            return f"{one.val!r}:{one.aval}"
        return f"{number.setdefault(one, len(number))}:{one.aval}"

    yield " ".join(named(one) for one in (*jaxpr.constvars, *jaxpr.invars))
    for equation in jaxpr.eqns:
        before = " ".join(map(named, equation.invars))
        yield f"{equation.primitive.name} {before} -> {' '.join(map(named, equation.outvars))}"
        for name, value in sorted(equation.params.items()):
            if name not in _NAMES and equation.primitive not in marking.MARKS:
                yield from _parameter(name, value)
    yield " ".join(map(named, jaxpr.outvars))


def _parameter(name: str, value: Any) -> Iterator[str]:
    """A parameter of an operation; programs in it as they are."""
    if isinstance(value, ClosedJaxpr):
        for const in value.consts:
            yield f"{name} {hashlib.sha256(np.ascontiguousarray(np.asarray(const)).tobytes()).hexdigest()}"
        yield from _words(value.jaxpr)
    elif isinstance(value, Jaxpr):
        yield from _words(value)
    elif isinstance(value, tuple | list):
        for one in value:
            yield from _parameter(name, one)
    elif callable(value):
        yield f"{name} {getattr(value, '__qualname__', type(value).__qualname__)}"
    else:
        yield f"{name} {_ADDRESS.sub('', repr(value))}"
