"""The walk through a traced program: what keeps a bound, what spoils it, and what noise makes of either."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.extend.core import Primitive

from jdfl.privacy.flow import Flow, Label, bounded, released, sent


def leaks(function: Any, *labels: Label) -> dict[str, str]:
    """What leaks where the function's result is sent, of vectors [3] with these labels."""
    flow = Flow()
    flow.walk(jax.make_jaxpr(lambda *x: sent(function(*x), "out"))(*[jnp.ones(3)] * len(labels)), labels)
    return flow.leaks


_unknown = Primitive("test.unknown")
_unknown.def_abstract_eval(lambda x: x)

CLEANED = {
    "as it is": lambda x: x,
    "with something clean": lambda x: x + jnp.arange(3.0),
    "moved": lambda x: -jnp.flip(x)[1:],
    "chosen by something clean": lambda x: jnp.where(jnp.arange(3) > 1, x, 0.0),
    "within a loop": lambda x: lax.fori_loop(0, 3, lambda _, y: y + 1.0, x),
    "within a scan": lambda x: lax.scan(lambda y, one: (y + one, one), x, jnp.ones((2, 3)))[0],
    "row by row in a scan": lambda x: lax.scan(lambda y, one: (y + 1.0, (y, one)), 0.0, x)[1][1],
    "within jit": jax.jit(lambda x: x + 1.0),
    "within a branch of something clean": lambda x: lax.cond(jnp.bool_(True), lambda y: y, lambda y: y + 1.0, x),
}
SPOILED = {
    "scaled": lambda x: 10 * x,
    "with itself": lambda x: x + x,
    "something unknown": _unknown.bind,
    "sorted": jnp.sort,
    "added up": jnp.cumsum,
    "a choice by itself": lambda x: jnp.where(x > 0, 1.0, -1.0),
    "a place by itself": lambda x: jnp.arange(3.0)[x.astype(jnp.int32)],
    "a loop that ends by it": lambda x: lax.while_loop(lambda y: jnp.sum(y) < x[0], lambda y: y + 1, jnp.zeros(3)),
    "a loop whose turns it counts": lambda x: lax.fori_loop(0, x[0].astype(int), lambda _, y: y + 1, jnp.zeros(3)),
    "a branch by it": lambda x: lax.cond(x[0] > 0, lambda: jnp.ones(3), lambda: jnp.zeros(3)),
    "scaled within a loop": lambda x: lax.fori_loop(0, 3, lambda _, y: 2 * y, x),
    "grown in a scan": lambda x: lax.scan(lambda y, _: (y + x, None), jnp.zeros(3), length=4)[0],
    "stacked in a scan": lambda x: lax.scan(lambda y, _: (y, y + x), jnp.zeros(3), length=4)[1],
    "stacked from what a scan carries": lambda x: lax.scan(lambda y, _: (y, y), x, length=4)[1],
    "written into every row": lambda x: lax.fori_loop(0, 4, lambda t, y: y.at[t].set(x), jnp.zeros((4, 3))),
    "written beside itself": lambda x: jnp.zeros(6).at[:3].set(x).at[3:].set(x),
    "repeated": lambda x: jnp.tile(x, 2),
    "an entry taken several times": lambda x: x[jnp.array([0, 0, 0])],
    "entries of two bounded values": lambda x: jnp.where(jnp.arange(3) > 0, x, jnp.flip(x)),
}


@pytest.mark.parametrize("name", CLEANED)
def test_what_is_done_to_a_bounded_value_before_its_noise(name):
    function = CLEANED[name]
    assert leaks(lambda x: released(function(bounded(x))), Label.RAW) == {}
    assert "has no noise" in leaks(lambda x: function(bounded(x)), Label.RAW)["out"]
    assert "nothing bounds" in leaks(lambda x: released(function(x)), Label.RAW)["out"]


@pytest.mark.parametrize("name", SPOILED)
def test_what_spoils_a_bound(name):
    function = SPOILED[name]
    assert "nothing bounds" in leaks(lambda x: released(function(bounded(x))), Label.RAW)["out"]
    assert leaks(lambda x: function(released(bounded(x))), Label.RAW) == {}  # whatever is done after the noise
