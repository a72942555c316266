"""What functions, classes and objects hold is told, the same in every process, so that others are told apart."""

import functools
import subprocess
import sys
import threading

import jax
import numpy as np
import optax
import pytest

from jdfl import struct
from jdfl.provenance import fingerprint

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
        "import optax, numpy as np; from jdfl.provenance import fingerprint\n"
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
