"""What functions, classes and objects hold is told, the same in every process, so that others are told apart."""

import functools
import subprocess
import sys
import threading
import types

import jax
import numpy as np
import optax
import pytest

import jdfl
from jdfl.base import struct
from jdfl.engine.provenance import fingerprint

SCALE = 2.0


def words(value):
    return fingerprint(np.float32, value=value)


def reads():
    return SCALE


def written(body, name="made"):
    """A function, or a class, from its source."""
    names = {"__name__": "somewhere", "struct": struct}
    exec(compile(body, "somewhere.py", "exec"), names)
    return names[name]


def reads_module():
    return own.inner.RATE  # noqa: F821 - a test puts it here


class Slots:
    __slots__ = ("a",)

    def __init__(self, a):
        self.a = a


class Plain:
    def __init__(self, a):
        self.a = a

    @functools.cached_property
    def late(self):
        return self.a

    def method(self):
        return self.a


def closing(a):
    return lambda x: x + a


def named(name):
    return lambda x: x if name == "a" else -x


def with_member(member, name="member"):
    return type("Made", (), {"__module__": __name__, name: member})()


def with_rule(scale):
    @jax.custom_vjp
    def made(x):
        return x

    made.defvjp(lambda x: (x, None), lambda _, g: (g * scale,))
    return made


def with_attribute(a):
    def made(x):
        return x + made.a

    made.a = a
    return made


class Rates(list):
    pass


def with_rate(rate):
    made = Rates([1])
    made.rate = rate
    return made


CLASS = "@struct.dataclass\nclass made:\n    a: float = 1.0\n    def step(self, x):\n        return x {} self.a\n"
PAIRS = {
    "closure": (closing(1), closing(1), closing(2)),
    "default": (*[written("def made(x, a=1): return a")] * 2, written("def made(x, a=2): return a")),
    "code": (*[written("def made(x): return x + 1") for _ in range(2)], written("def made(x): return x - 1")),
    "constants": (*[written("def made(x): return x in {1, 2}")] * 2, written("def made(x): return x in {1, 3}")),
    "inner code": (*[written("made = lambda: lambda: 1")] * 2, written("made = lambda: lambda: 2")),
    "class": (written(CLASS.format("+"))(), written(CLASS.format("+"))(), written(CLASS.format("-"))()),
    "partial": (functools.partial(closing, 1), functools.partial(closing, 1), functools.partial(closing, 2)),
    "method": (Plain(1).method, Plain(1).method, Plain(2).method),
    "object": (Plain(1), Plain(1), Plain(2)),
    "slots": (Slots(1), Slots(1), Slots(2)),
    "jit": (jax.jit(closing(1)), jax.jit(closing(1)), jax.jit(closing(2))),
    "optax": (optax.adam(0.1), optax.adam(0.1), optax.adam(0.2)),
    "what is called name": (named("a"), named("a"), named("b")),
    "partial of name": (*[functools.partial(named, name="a")] * 2, functools.partial(named, name="b")),
    "attribute name": (*[types.SimpleNamespace(name="a")] * 2, types.SimpleNamespace(name="b")),
    "member list": (with_member([1]), with_member([1]), with_member([2])),
    "member bases": (*[with_member(1, "bases")] * 2, with_member(2, "bases")),
    "member array": (with_member(np.ones(9)), with_member(np.ones(9)), with_member(np.zeros(9))),
    "member jit": (
        with_member(jax.jit(closing(1))),
        with_member(jax.jit(closing(1))),
        with_member(jax.jit(closing(2))),
    ),
    "classmethod": (*[with_member(classmethod(closing(1)))] * 2, with_member(classmethod(closing(2)))),
    "custom gradient": (with_rule(1), with_rule(1), with_rule(2)),
    "function's attribute": (with_attribute(1), with_attribute(1), with_attribute(2)),
    "list of one's own class": (with_rate(1), with_rate(1), with_rate(2)),
    "set": ({"a", "b"}, {"b", "a"}, {"a", "c"}),
    "pickled": (np.random.default_rng(0), np.random.default_rng(0), np.random.default_rng(1)),
}


@pytest.mark.parametrize("what", PAIRS)
def test_what_differs_is_told_apart_and_what_does_not_is_not(what):
    one, same, other = PAIRS[what]
    assert words(one) == words(same) != words(other)


def test_a_global_name_counts_by_its_value(monkeypatch):
    before = words(reads)
    assert words(reads) == before
    monkeypatch.setattr(sys.modules[__name__], "SCALE", 3.0)
    assert words(reads) != before


def test_a_class_given_as_text_counts_by_its_methods():
    def made(rate):
        names = {"__name__": "somewhere"}
        exec(f"class made:\n    def __call__(self, k):\n        return {rate}\n", names)
        return names["made"]()

    assert words(made(1)) == words(made(1)) != words(made(2))


def test_what_is_read_of_a_module_of_ones_own_counts(monkeypatch):
    own, inner = types.ModuleType("own"), types.ModuleType("own.inner")
    own.inner, inner.RATE, inner.OTHER = inner, 1.0, 1.0
    monkeypatch.setattr(sys.modules[__name__], "own", own, raising=False)
    before = words(reads_module)
    monkeypatch.setattr(inner, "OTHER", 2.0)
    assert words(reads_module) == before
    monkeypatch.setattr(inner, "RATE", 2.0)
    assert words(reads_module) != before


def test_what_problems_and_networks_are_called_does_not_count():
    network, problem = jdfl.network.ring(4), jdfl.problems.example1(m=4, n=6, s=2)
    lossy = jdfl.network.partial_communication(network, 0.5)
    for kind, value in {"network": network, "problem": problem}.items():
        assert fingerprint(np.float32, **{kind: value}) == fingerprint(np.float32, **{kind: value.replace(name="b")})
    renamed = lossy.replace(base=network.replace(name="b"))
    assert fingerprint(np.float32, network=lossy) == fingerprint(np.float32, network=renamed)


def test_what_is_computed_later_does_not_count():
    one, other = Plain(1), Plain(1)
    assert other.late == 1
    assert words(one) == words(other)


def test_what_nobody_can_look_into_is_like_nothing_else():
    one, other = threading.Lock(), threading.Lock()
    assert words(one) == words(one) != words(other)


def test_what_holds_itself_is_told():
    one = Plain(None)
    one.a = one
    assert words(one) == words(one) != words(Plain(None))


def test_another_process_tells_the_same():
    body = (
        "import optax, numpy as np; from jdfl.engine.provenance import fingerprint\n"
        "def made(x, kinds=('a',)): return x in {'b', 'c', 'd'} or optax.adam(kinds)\n"
        "print(fingerprint(np.float32, value=[made, set('abcdef'), optax.adamw(optax.cosine_decay_schedule(.1, 9))]))"
    )
    told = [
        subprocess.run(
            [sys.executable, "-c", body], env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True, text=True, check=True,
        ).stdout
        for seed in ("1", "2")
    ]  # fmt: skip
    assert told[0] == told[1]
