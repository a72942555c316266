"""The walk through a traced program: what keeps a bound, what spoils it, and what noise makes of either."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.extend.core import Primitive

from jdfl.base import marking
from jdfl.base.streams import Stream
from jdfl.privacy.flow import RECORDS, Booking, Flow, Value, private

M, N = 4, 3
_NOISE = Stream("test.flow walk", "private")


class _Source:
    def fits(self, bound: Any) -> bool:
        return bound == "clip"


@pytest.fixture(autouse=True)
def _as_the_library(monkeypatch):
    monkeypatch.setattr(marking, "ours", lambda *_: True)  # whose marks alone count


def walked(function: Any, clip: bool = True, noise: bool = True) -> tuple[Flow, Booking]:
    """The walk of a message: a clipped value, changed by the function, with noise."""
    booking = Booking(_NOISE)

    def program(x: Any, key: Any) -> Any:
        g = marking.clipped(x, jnp.zeros_like(x), x, None, "clip", whole=False) if clip else x
        y = function(g)
        if noise:
            drawn = jax.random.normal(_NOISE.of(key), y.shape, y.dtype)
            y = marking.noisy(y + drawn, y, marking.scale(jnp.ones(()), None, _Source()), booking)
        return marking.sent(y, "out")

    flow = Flow()
    flow.walk(jax.make_jaxpr(program)(jnp.ones((M, N)), jax.random.key(0)), [RECORDS, private("private")])
    return flow, booking


_unknown = Primitive("add")  # a name does not make it an addition
_unknown.def_abstract_eval(lambda x: x)

CLEANED = {
    "as it is": lambda x: x,
    "with something clean": lambda x: x + jnp.ones((M, N)),
    "entries moved": lambda x: -jnp.flip(x, 1)[:, 1:],
    "chosen by something clean": lambda x: jnp.where(jnp.arange(3) > 1, x, 0.0),
    "within a scan": lambda x: lax.scan(lambda y, one: (y + one, one), x, jnp.ones((2, M, N)))[0],
    "within a branch of something clean": lambda x: lax.cond(jnp.bool_(True), lambda y: y, lambda y: y + 1.0, x),
}
SPOILED = {
    "scaled": lambda x: 10 * x,
    "with itself": lambda x: x + x,
    "something unknown": _unknown.bind,
    "sorted": jnp.sort,
    "rows moved": lambda x: jnp.flip(x, 0),
    "one row for all": lambda x: jnp.broadcast_to(x[:1], x.shape),
    "whole numbers": lambda x: x.astype(int).astype(x.dtype),
    "a choice by itself": lambda x: jnp.where(x > 0, 1.0, -1.0),
    "a loop that ends by it": lambda x: lax.while_loop(
        lambda y: jnp.sum(y) < x[0, 0], lambda y: y + 1, jnp.zeros((M, N))
    ),
    "a branch by it": lambda x: lax.cond(x[0, 0] > 0, lambda: jnp.ones((M, N)), lambda: jnp.zeros((M, N))),
    "grown in a scan": lambda x: lax.scan(lambda y, _: (y + x, None), jnp.zeros((M, N)), length=4)[0],
    "a callback": lambda x: jax.pure_callback(lambda y: y, x, x),
}


@pytest.mark.parametrize("name", CLEANED)
def test_what_is_done_to_a_bounded_value_before_its_noise(name):
    flow, booking = walked(CLEANED[name])
    assert (flow.leaks, flow.unproven, flow.fault([booking])) == ({}, {}, "")
    assert walked(CLEANED[name], noise=False)[0].leaks == {"out": "has no noise"}
    assert "nothing bounds" in walked(CLEANED[name], clip=False)[0].leaks["out"]


@pytest.mark.parametrize("name", SPOILED)
def test_what_spoils_a_bound(name):
    assert "nothing bounds" in walked(SPOILED[name])[0].leaks["out"]


def test_noise_counts_as_often_as_the_program_draws_it():
    flow, booking = walked(lambda x: x)
    twice = Flow()
    closed = jax.make_jaxpr(lambda x: lax.fori_loop(0, 2, lambda _, y: marking.noisy(y, y, 1.0, booking), x))
    twice.walk(closed(jnp.ones((M, N))), [Value(secrets=frozenset({("private", _NOISE.number)}))])
    assert not flow.fault([booking])
    assert "more often" in twice.fault([booking])
    assert "not booked" in flow.fault([])
    assert "not in the program" in Flow().fault([booking])
