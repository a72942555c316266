"""`jdfl.testing`: what is sound passes, and every law is seen to fail."""

import itertools
from dataclasses import replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

import jdfl
from jdfl import codecs, network, problems, testing
from jdfl.base import struct
from jdfl.network import Graph
from tests.later import Later
from tests.refused import each_refused, refused


def planted(base: type[Any], **changes: Any) -> type[Any]:
    """A class like another one: functions change what methods of their names return, all else is put into it."""

    def changed(name: str, change: Any) -> Any:
        return lambda self, *given: change(getattr(base, name)(self, *given), *given)

    made = {name: changed(name, one) if callable(one) else one for name, one in changes.items()}
    return struct.dataclass(type(f"Planted{base.__name__}", (base,), made))


def divided(x: Array, *_: Any) -> Array:
    length = jnp.linalg.norm(x, axis=1, keepdims=True)
    return x / length * length


CALLS = itertools.count(1)
CODECS: dict[str, Any] = {
    "what arrives is like what was sent": planted(jdfl.Dense, decode=lambda x, *_: (8 * x).astype(jnp.int32))(),
    "bits are the packed length": planted(jdfl.Dense, bits=lambda bits, *_: bits + 8)(),
    "unpacked messages arrive alike": planted(
        jdfl.Dense, layout=lambda _, n, sparsity: codecs.Dense("float16").layout(n, sparsity)
    )(),
    "a zero vector arrives finite": planted(jdfl.Dense, decode=divided)(),
    "bad numbers are not hidden": planted(jdfl.Dense, decode=lambda x, *_: jnp.nan_to_num(x, posinf=0.0, neginf=0.0))(),
    "messages depend on the key alone": planted(jdfl.Dense, encode=lambda x, *_: x * next(CALLS))(),
    "messages do not mix": planted(jdfl.Dense, decode=lambda x, *_: x - jnp.mean(x, axis=0))(),
    "compiled messages are the same": planted(
        jdfl.Dense, decode=lambda x, *_: x if isinstance(x, jax.core.Tracer) else 2 * x
    )(),
    "the shortcut arrives alike": planted(jdfl.Dense, direct=True, arrived=lambda x, *_: x + 1)(),
    "the contraction holds": planted(jdfl.Sparse, contraction=lambda *_: 0.9)(s=5),
    "an unbiased codec is right on average": planted(jdfl.RandomK, unbiased=True)(k=20),
}


@struct.dataclass
class Changed:
    """A ring whose graphs are changed by a function of the graph."""

    how: Any = struct.field(pytree_node=False, default=None)
    largest_out_degree: int = struct.field(pytree_node=False, default=2)

    @property
    def m(self) -> int:
        return 6

    def at(self, k: Array, key: Array) -> Graph:
        graph = network.ring(6, format="padded").graph
        return graph if self.how is None else self.how(graph)


def dirty(graph: Graph) -> Graph:
    """Its padding weighs something, which dense formats do not see alike."""
    wide = network.pad(graph, 3)
    return replace(wide, weight=wide.weight.at[0, 2].set(0.25))


Miscounts = planted(Graph, in_degree=property(lambda self: jnp.sum(self.mask, axis=1, dtype=jnp.int32) + 1))


def impure(graph: Graph) -> Graph:
    drawn = jax.pure_callback(lambda: np.float32(next(CALLS)), jax.ShapeDtypeStruct((), jnp.float32))
    return replace(graph, self_weight=graph.self_weight / drawn)


def another_inside(graph: Graph) -> Graph:
    """Looks at how often it is traced."""
    TRACED.append(graph)
    return replace(graph, self_weight=graph.self_weight + (len(TRACED) > 1))


TRACED: list[Any] = []
PARTED = [(0, 1), (1, 2), (3, 4), (4, 5)]
NETWORKS: dict[str, Any] = {
    "graphs are well formed": lambda one: replace(one, senders=one.senders.at[2, 1].set(one.senders[2, 0])),
    "rows or columns sum to one": lambda one: replace(one, self_weight=one.self_weight.at[3].add(0.5)),
    "mixing multiplies by the matrix": dirty,
    "out degrees count the receivers": lambda one: replace(one, out_degree=one.out_degree.at[4].add(1)),
    "counts agree with the table": lambda one: Miscounts(**vars(one)),
    "rounds follow from their key": impure,
    "traced rounds are the same": another_inside,
    "nodes are connected": lambda _: network.from_edges(PARTED, 6, connected=False, format="padded").graph,
}


small = Later(testing.small_problem, padding=2)


def of(kind: type[Any]) -> Any:
    """The small problem as one of another class."""
    here = small()
    return kind(**{name: getattr(here, name) for name in here.__dataclass_fields__})


def other(**changes: Any) -> Later:
    return Later(of, planted(problems.LinearRegression, **changes))


@jax.custom_jvp
def deceiving(x: Array) -> Array:
    return x


@deceiving.defjvp
def _(primals: Any, tangents: Any) -> Any:
    return primals[0], 3 * tangents[0]


@struct.dataclass
class Deceives(problems.LinearRegression):
    """Its values and its gradients agree in JAX, since the derivative that it gives is wrong in both."""

    def value(self, w: Array, data: Any, weight: Array) -> Array:
        return deceiving(super().value(w, data, weight))

    def gradient(self, w: Array, data: Any, weight: Array) -> Array:
        return jax.grad(self.value)(w, data, weight)


PROBLEMS: dict[str, Any] = {
    "the data fit": Later(lambda: replace(small(), curvature=-small().curvature)),
    "the start fits": other(n=property(lambda _: float(testing.PARAMETERS))),
    "values are numbers of every node": other(values=lambda value, *_: jnp.mean(value)),
    "a node looks at its own parameters": other(
        values=lambda value, w: value + jnp.sum(w), gradients=lambda gradient, *_: gradient
    ),
    "gradients are those of the values": other(gradient=lambda gradient, *_: 2 * gradient),
    "gradients are the slope of the values": Later(of, Deceives),
    "padding changes nothing": other(value=lambda value, w, data, weight: value * jnp.mean(weight)),
    "example gradients average to the gradient": other(example_gradients=lambda gradient, *_: 0.5 * gradient),
    "slopes make the example gradients": other(spread=lambda gradient, *_: -gradient),
    "relabelled nodes do the same": other(values=lambda value, *_: value * jnp.arange(1.0, len(value) + 1)),
}


PRIVATE = jdfl.Gradients(clip=1.0, mechanism=jdfl.Gaussian(2.0))


@struct.dataclass
class Sound(jdfl.Algorithm):
    """Decentralized gradient descent, with noise where its gradients have some."""

    lr: float = 0.02
    gradients: jdfl.Gradients = jdfl.Gradients()
    title: ClassVar[str] = "Sound"

    def init(self, round: jdfl.Round) -> Any:
        return round.problem.initial_params()

    def step(self, state: Any, round: jdfl.Round) -> Any:
        return round.mix(state) - self.lr * self.gradients(state, round)


def counted(new: Any, _: Any, round: jdfl.Round) -> Any:
    """Counts on the host how often it has been called."""
    shape = jax.ShapeDtypeStruct((), np.float32)
    return new + jax.pure_callback(lambda _: np.float32(next(CALLS)), shape, round.k, vmap_method="sequential")


@struct.dataclass
class Boasts(Sound):
    """Claims what its step does not do."""

    gradients: jdfl.Gradients = PRIVATE

    def privacy(self, problem: Any, plan: Any = None, steps: int | None = None) -> Any:
        return self.gradients.guarantee(problem)

    def step(self, state: Any, round: jdfl.Round) -> Any:
        return round.mix(state) - self.lr * round.problem.gradients(state)


@struct.dataclass
class Compiled(Sound):
    """Its step length is a part of the program."""

    lr: float = struct.field(pytree_node=False, default=0.02)


HostState = planted(Sound, step=counted)
ALGORITHMS = {
    "chunks change nothing": HostState,
    "resumed runs are the same": HostState,
    "runs side by side equal single runs": HostState,
    "plans begin alike": planted(Sound, plan=lambda _, problem, network, T: np.full(T, 1 / T, np.float32)),
    "one program for all values": Compiled,
    "relabelled nodes do the same": planted(  # it takes the places of nodes for their ids
        Sound, step=lambda new, _, round: new + jnp.arange(round.m, dtype=new.dtype)[:, None]
    ),
    "padding changes nothing": planted(Sound, step=lambda new, _, round: new / round.graph.mask.shape[1]),
    "runs stay finite": planted(
        Sound, step=lambda new, _, round: new * jnp.where(round.k > 20, 1e30, 1.0).astype(new.dtype)
    ),
    "bits are those of the messages": planted(Sound, message_bits=lambda *_: {}),
    "claims rest on noise": Boasts,
}


def broken(check: Any, planted: Any, law: str) -> None:
    with pytest.raises(testing.LawBrokenError) as error:
        check(planted, law)
    assert str(error.value).startswith(f"{type(planted).__name__} breaks the law {law!r}: ")


@pytest.mark.slow
def test_an_algorithm_of_somebody_else_keeps_all_laws():
    testing.check_algorithm(Sound(gradients=PRIVATE))


@pytest.mark.parametrize("law", testing.LAWS)
def test_every_law_of_algorithms_is_seen_to_fail(law):
    with pytest.raises((AssertionError, KeyError, ValueError)):  # a run may refuse it before the law can
        testing.check_algorithm(ALGORITHMS[law](), law)


@pytest.mark.parametrize("law", testing.CODEC_LAWS)
def test_every_law_of_codecs_is_seen_to_fail(law):
    broken(testing.check_codec, CODECS[law], law)


@pytest.mark.parametrize("law", testing.NETWORK_LAWS)
def test_every_law_of_networks_is_seen_to_fail(law):
    TRACED.clear()
    broken(testing.check_network, Changed(NETWORKS[law]), law)


@pytest.mark.parametrize("law", testing.PROBLEM_LAWS)
def test_every_law_of_problems_is_seen_to_fail(law):
    broken(testing.check_problem, PROBLEMS[law](), law)


def test_what_is_sound_keeps_every_law():
    testing.check_codec(jdfl.RandomK(k=20, scaled=True), "an unbiased codec is right on average")
    testing.check_codec(jdfl.Dense())
    testing.check_network(network.link_loss(network.ring(6), 0.3))
    testing.check_network(network.synchronised(Changed(), 1))
    testing.check_network(Changed(NETWORKS["nodes are connected"]), "nodes are connected", connected=False)
    testing.check_network(network.random_neighbours(6, 2, weights="out-degree"), "rows or columns sum to one")
    testing.check_problem(small())
    for law in ("a node looks at its own parameters", "slopes make the example gradients"):  # of one node, without any
        testing.check_problem(problems.averaging(np.ones((1, 3))), law)


def test_other_objects_and_laws_are_refused():
    for name in ("codec", "network", "problem", "algorithm"):
        each_refused(getattr(testing, f"check_{name}"), {name: 3})
    with refused("'bits are the packed length'", law="bits are the packed lenght"):
        testing.check_codec(jdfl.Dense(), "bits are the packed lenght")
    with refused(law="be nice"):
        testing.check_algorithm(Sound(), law="be nice")
    with refused("network"):
        testing.check_algorithm(Sound(), network=jdfl.network.one_peer_exponential(6))
