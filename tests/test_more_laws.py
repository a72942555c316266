"""`jdfl.testing` for codecs, networks and problems: sound ones pass, and every law is seen to fail."""

from dataclasses import replace
from typing import Any

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


@struct.dataclass
class SoundCodec(jdfl.RandomK):
    """Random entries, scaled to be right on average."""

    k: int | None = struct.field(pytree_node=False, default=20)
    scaled: bool = struct.field(pytree_node=False, default=True)


@struct.dataclass
class WrongType(SoundCodec):
    def decode(self, key: Array, payload: Any, wire: codecs.Wire) -> Array:
        return (8 * super().decode(key, payload, wire)).astype(jnp.int32)


@struct.dataclass
class OneBitMore(SoundCodec):
    def bits(self, n: int, sparsity: int | None = None) -> int:
        return super().bits(n, sparsity) + 8


@struct.dataclass
class Smuggles(jdfl.Sign):
    """Its layout writes signs; what it decodes is the vector itself."""

    def encode(self, key: Array, x: Array, wire: codecs.Wire) -> Any:
        return {"sign": x}

    def decode(self, key: Array, payload: Any, wire: codecs.Wire) -> Array:
        return payload["sign"].astype(wire.dtype)

    def layout(self, n: int, sparsity: int | None) -> Any:
        rounded = codecs.Dense("float16").layout(n, sparsity)
        (part,) = jax.tree.leaves(rounded)
        return {"sign": part}


@struct.dataclass
class DividesByZero(SoundCodec):
    def decode(self, key: Array, payload: Any, wire: codecs.Wire) -> Array:
        x = super().decode(key, payload, wire)
        length = jnp.linalg.norm(x, axis=1, keepdims=True)
        return x / length * length


@struct.dataclass
class Hides(SoundCodec):
    def encode(self, key: Array, x: Array, wire: codecs.Wire) -> Any:
        return super().encode(key, jnp.nan_to_num(x, posinf=0.0, neginf=0.0), wire)


@struct.dataclass
class Remembers(SoundCodec):
    calls = 0

    def encode(self, key: Array, x: Array, wire: codecs.Wire) -> Any:
        type(self).calls += 1
        return super().encode(key, x * type(self).calls, wire)


@struct.dataclass
class Mixes(SoundCodec):
    def decode(self, key: Array, payload: Any, wire: codecs.Wire) -> Array:
        x = super().decode(key, payload, wire)
        return x - jnp.mean(x, axis=0)


@struct.dataclass
class LooksAtTracers(SoundCodec):
    def decode(self, key: Array, payload: Any, wire: codecs.Wire) -> Array:
        x = super().decode(key, payload, wire)
        return x if isinstance(x, jax.core.Tracer) else 2 * x


@struct.dataclass
class Shortcut(jdfl.Dense):
    direct = True

    def arrived(self, key: Array, x: Array, wire: codecs.Wire) -> Array:
        return x + 1


@struct.dataclass
class Optimist(jdfl.Sparse):
    s: int | None = struct.field(pytree_node=False, default=5)

    def contraction(self, n: int, sparsity: int) -> float:
        return 0.9


@struct.dataclass
class Biased(SoundCodec):
    scaled: bool = struct.field(pytree_node=False, default=False)
    unbiased = True


CODECS: dict[str, Any] = {
    "what arrives is like what was sent": WrongType(),
    "bits are the packed length": OneBitMore(),
    "unpacked messages arrive alike": Smuggles(),
    "a zero vector arrives finite": DividesByZero(),
    "bad numbers are not hidden": Hides(),
    "messages depend on the key alone": Remembers(),
    "messages do not mix": Mixes(),
    "compiled messages are the same": LooksAtTracers(),
    "the shortcut arrives alike": Shortcut(),
    "the contraction holds": Optimist(),
    "an unbiased codec is right on average": Biased(),
}


@struct.dataclass
class Changed:
    """A ring whose graphs are changed by a function of the graph and the round."""

    how: Any = struct.field(pytree_node=False, default=None)
    largest_out_degree: int = struct.field(pytree_node=False, default=2)

    @property
    def m(self) -> int:
        return 6

    def at(self, k: Array, key: Array) -> Graph:
        graph = network.ring(6, format="padded").graph
        return graph if self.how is None else self.how(graph, k)


def repeats(graph: Graph, k: Array) -> Graph:
    return replace(graph, senders=graph.senders.at[2, 1].set(graph.senders[2, 0]))


def heavier(graph: Graph, k: Array) -> Graph:
    return replace(graph, self_weight=graph.self_weight.at[3].add(0.5))


def dirty(graph: Graph, k: Array) -> Graph:
    """Its padding weighs something, which dense formats do not see alike."""
    wide = network.pad(graph, 3)
    return replace(wide, weight=wide.weight.at[0, 2].set(0.25))


def sends_more(graph: Graph, k: Array) -> Graph:
    return replace(graph, out_degree=graph.out_degree.at[4].add(1))


@struct.dataclass
class Miscounts(Graph):
    """Its in-degrees count the node itself."""

    @property
    def in_degree(self) -> Array:
        return super().in_degree + 1


def parted(graph: Graph, k: Array) -> Graph:
    return network.from_edges([(0, 1), (1, 2), (3, 4), (4, 5)], 6, connected=False, format="padded").graph


def impure(graph: Graph, k: Array) -> Graph:
    drawn = jax.pure_callback(
        lambda: np.float32(np.random.default_rng().random()), jax.ShapeDtypeStruct((), jnp.float32)
    )
    return replace(graph, self_weight=graph.self_weight * drawn)


def another_inside(graph: Graph, k: Array) -> Graph:
    """Looks at how often it is traced."""
    TRACED.append(k)
    return replace(graph, self_weight=graph.self_weight + (len(TRACED) > 1))


TRACED: list[Any] = []
NETWORKS: dict[str, Any] = {
    "graphs are well formed": Changed(repeats),
    "rows or columns sum to one": Changed(heavier),
    "mixing multiplies by the matrix": Changed(dirty),
    "out degrees count the receivers": Changed(sends_more),
    "counts agree with the table": Changed(
        lambda graph, k: struct.dataclass(Miscounts)(
            **{name: getattr(graph, name) for name in graph.__dataclass_fields__}
        )
    ),
    "rounds follow from their key": Changed(impure),
    "traced rounds are the same": Changed(another_inside),
    "nodes are connected": Changed(parted),
}


def small() -> problems.LinearRegression:
    return testing.small_problem(padding=2)


def of(kind: type[Any]) -> Any:
    """The small problem as one of another class."""
    here = small()
    return kind(**{name: getattr(here, name) for name in here.__dataclass_fields__})


@struct.dataclass
class Reported(problems.LinearRegression):
    @property
    def n(self) -> Any:
        return float(testing.PARAMETERS)


@struct.dataclass
class OneValue(problems.LinearRegression):
    def values(self, w: Array) -> Array:
        return jnp.mean(super().values(w))


@struct.dataclass
class Sees(problems.LinearRegression):
    def values(self, w: Array) -> Array:
        return super().values(w) + jnp.sum(w)

    def gradients(self, w: Array) -> Array:
        return super().gradients(w)


@struct.dataclass
class Doubled(problems.LinearRegression):
    def gradient(self, w: Array, data: Any, weight: Array) -> Array:
        return 2 * super().gradient(w, data, weight)


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


@struct.dataclass
class CountsPadding(problems.LinearRegression):
    def value(self, w: Array, data: Any, weight: Array) -> Array:
        return jnp.mean(self.losses(w, data) * weight)


@struct.dataclass
class Halves(problems.LinearRegression):
    def example_gradients(self, w: Array, data: Any) -> Array:
        return 0.5 * super().example_gradients(w, data)


@struct.dataclass
class WrongSlopes(problems.LinearRegression):
    def spread(self, slopes: Array, data: Any) -> Array:
        return -super().spread(slopes, data)


@struct.dataclass
class ByPlace(problems.LinearRegression):
    def values(self, w: Array) -> Array:
        return super().values(w) * jnp.arange(1, self.m + 1)


PROBLEMS: dict[str, Any] = {
    "the data fit": Later(lambda: replace(small(), curvature=-small().curvature)),
    "the start fits": Later(of, Reported),
    "values are numbers of every node": Later(of, OneValue),
    "a node looks at its own parameters": Later(of, Sees),
    "gradients are those of the values": Later(of, Doubled),
    "gradients are the slope of the values": Later(of, Deceives),
    "padding changes nothing": Later(of, CountsPadding),
    "example gradients average to the gradient": Later(of, Halves),
    "slopes make the example gradients": Later(of, WrongSlopes),
    "relabelled nodes do the same": Later(of, ByPlace),
}


@pytest.mark.parametrize("law", testing.CODEC_LAWS)
def test_every_law_of_codecs_is_seen_to_fail(law):
    with pytest.raises(testing.LawBrokenError, match=f"{type(CODECS[law]).__name__} breaks the law {law!r}"):
        testing.check_codec(CODECS[law], law)


@pytest.mark.parametrize("law", testing.NETWORK_LAWS)
def test_every_law_of_networks_is_seen_to_fail(law):
    TRACED.clear()
    with pytest.raises(testing.LawBrokenError, match=f"Changed breaks the law {law!r}"):
        testing.check_network(NETWORKS[law], law)


@pytest.mark.parametrize("law", testing.PROBLEM_LAWS)
def test_every_law_of_problems_is_seen_to_fail(law):
    planted = PROBLEMS[law]()
    with pytest.raises(testing.LawBrokenError, match=f"{type(planted).__name__} breaks the law {law!r}"):
        testing.check_problem(planted, law)


@pytest.mark.parametrize("law", testing.CODEC_LAWS)
def test_sound_codecs_keep_every_law(law):
    for codec in (SoundCodec(), jdfl.Dense("float16"), jdfl.QSGD(levels=3)):
        testing.check_codec(codec, law)


@pytest.mark.parametrize("law", testing.NETWORK_LAWS)
def test_sound_networks_keep_every_law(law):
    inner = network.ring(6)
    for one in (Changed(), network.d_out(6, 3), network.random_matching(6), network.link_loss(inner, 0.3)):
        testing.check_network(one, law)


@pytest.mark.parametrize("law", testing.PROBLEM_LAWS)
def test_sound_problems_keep_every_law(law):
    testing.check_problem(small(), law)


def test_a_message_names_class_law_and_numbers():
    with pytest.raises(testing.LawBrokenError) as error:
        testing.check_codec(OneBitMore())
    text = str(error.value)
    assert text.startswith("OneBitMore breaks the law 'bits are the packed length': A message takes as many bytes")
    bits = OneBitMore().bits(49, 3)
    assert f"bytes of a message of {bits} bits: expected {-(-bits // 8)}, got {-(-bits // 8) - 1}" in text
    assert len(text.splitlines()) <= 14


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: testing.check_codec(jdfl.DPSGD()), "Expected a codec, got codec = "),
        (lambda: testing.check_codec(jdfl.Dense(), "be nice"), "law to be one of"),
        (lambda: testing.check_codec(jdfl.Dense(), "bits are the packed lenght"), "Did you mean 'bits are the packed"),
        (lambda: testing.check_network(jdfl.Dense()), "network to be a network"),
        (lambda: testing.check_problem(jdfl.Dense()), "Expected a problem, got problem = "),
        (lambda: testing.check_algorithm(jdfl.Dense()), "algorithm to be an algorithm"),
    ],
)
def test_other_objects_and_laws_are_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call()
