"""Careless and malicious handlers of events: each is refused, counted as often as it releases, or has no claim."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jdfl
from experiments.attack_worlds import NOISY, regression
from jdfl.algorithms.gradients import NOISE
from jdfl.algorithms.program import planned
from jdfl.base import struct
from jdfl.events import AsyncMethod, Kind, Touch, wakes
from jdfl.events.event import Notes
from tests.later import Later
from tests.refused import refused

NET = Later(lambda: jdfl.network.timed(jdfl.network.complete(2), jdfl.network.FixedTime(0.2)))


@struct.dataclass
class Waking(AsyncMethod):
    """Every node handles its own row and the other node's, again and again; `kept` [m, n] is not sent."""

    seen: Any = struct.field(pytree_node=False, default=None)
    shift: tuple[int, int] = struct.field(pytree_node=False, default=(2, 1))
    gradients: jdfl.Gradients = NOISY
    title = "Waking"
    kinds = (Kind("wake", (Touch("node", "rw"), Touch("kept", "rw", own=True), Touch("node", "rw"))),)

    def tables(self, round, sizes):
        return {"node": jnp.array(round.problem.initial_params()), "kept": jnp.zeros((round.m, round.problem.n))}

    def events(self, network, key, seconds):
        found, (column, by) = wakes(network, key, seconds), self.shift
        rows = np.repeat(found.actor[:, None], 3, axis=1).astype(np.int32)
        rows[:, column] = (found.actor + by) % 2
        return replace(found, rows=rows)

    def handle(self, kind, rows, event):
        made = self.seen(self, rows, event)
        made = made if isinstance(made, tuple) else (rows[0] - made,)
        return *made, *rows[len(made) :]


def g(a, x, e, **at):
    return a.gradients(x, e.at(**at))


def bare(a, x, e):
    return a.gradients.without_noise(x, e.at(turn=1))


def moved(name):
    """A gradient at an instant that the handler has changed."""
    still = lambda i: replace(i, **{name: 0 * getattr(i, name)})  # noqa: E731
    return lambda a, r, e: g(a, r[0], replace(e, instant=still(e.instant)))


def beside(other):
    """A noisy gradient less one far away, where the clipped gradient points the other way."""
    return lambda a, r, e: g(a, r[0], e) - other(a, r[0] + 1e9, e)


def cleared(a, r, e):
    first = g(a, r[0], e)
    e.notes.traces.clear()
    return first - g(a, r[0] + 1e9, e)


def last_noise(a, r, e):
    drawn = jax.vmap(lambda key: jax.random.normal(key, r[0].shape[1:]))(e.instant.keys(NOISE))
    return r[0] - g(a, r[0], e) - r[1], drawn


def repeated(e, count, a, x, **at):
    return e.at(**at).repeat(count, lambda here, y: y - a.gradients(y, here), x)


def correlated(a, r, e):
    """Noise that depends on that of earlier events."""
    return a.gradients.correlated(r[0], e.at(), jnp.array([1.0, 0.5]), jnp.zeros((len(r[0]), 1, r[0].shape[1])))[0]


def heavy(a, r, e):
    return g(a, r[0], replace(e, problem=replace(e.problem, weight=e.problem.weight.at[:, 0].mul(1e6))))


HANDLERS = {
    "one gradient": (5, lambda a, r, e: g(a, r[0], e)),
    "the actor and its own column": (10, lambda a, r, e: g(a, r[0], e) + g(a, r[0], e, column=0)),
    "three local steps": (15, lambda a, r, e: repeated(e, 3, a, r[0]) - r[0]),
    "what nobody else sees": (5, lambda a, r, e: (r[0] - g(a, r[0], e), bare(a, r[0], e))),
    "one turn twice": ("refused", beside(g)),
    "half a turn": ("refused", beside(lambda a, x, e: g(a, x, e, column=0, turn=0.5))),
    "a column from the end": ("refused", beside(lambda a, x, e: g(a, x, e, column=-1))),
    "local steps twice": ("refused", lambda a, r, e: repeated(e, 7, a, r[0]) - repeated(e, 2, a, r[0], turn=1)),
    "a message through a round": ("refused", lambda a, r, e: g(a, r[0], e) + r[0] - e.at(turn=1).mix(r[0])),
    "some rows": ("run", lambda a, r, e: (h := e.at()).each_of(h.node < 0, None, lambda i: a.gradients(r[0], i))),
    "one noise for all events": ("", moved("count")),
    "one noise for all nodes": ("", moved("node")),
    "the records of another node": ("", lambda a, r, e: g(a, r[0], replace(e, row=0 * e.row), column=0)),
    "weights of a handler": ("", heavy),
    "the same noise in other notes": ("", beside(lambda a, x, e: g(a, x, replace(e, notes=Notes())))),
    "notes cleared": ("", cleared),
    "no noise": ("", lambda a, r, e: bare(a, r[0], e)),
    "what was kept, an event later": ("", lambda a, r, e: (r[0] - g(a, r[0], e) + r[1], bare(a, r[0], e))),
    "noise taken away an event later": ("", last_noise),
    "correlated noise": ("", correlated),
    "the other node's row": ("", lambda a, r, e: (r[0] - g(a, r[0], e), r[1], r[2] - bare(a, r[0], e))),
    "a message without noise": ("", lambda a, r, e: g(a, r[0], e) + 0 * e.post(bare(a, r[0], e), 0)),
    "labels": ("", lambda a, r, e: g(a, r[0], e) + jnp.mean(e.problem.data[1])),
    "the curvature": ("", lambda a, r, e: g(a, r[0], e) * e.problem.curvature[e.node(None)][:, None]),
    "an own loop": ("", lambda a, r, e: jax.lax.fori_loop(0, 3, lambda t, y: y + g(a, r[0] + t * 1e9, e), r[0])),
    "a step by labels": ("", lambda a, r, e: jnp.where(jnp.mean(e.problem.data[1]) > 0, 0.0, g(a, r[0], e))),
}


def told(name):
    """The guarantee of a method with this handler; ValueError for one that is refused."""
    return planned(Waking(seen=HANDLERS[name][1]), regression(0), NET(), 1).privacy(regression(0))


@pytest.mark.parametrize("name", HANDLERS)
def test_what_is_said_of_a_handler(name):
    wanted = HANDLERS[name][0]
    if wanted == "refused":
        with refused():
            told(name)
    elif wanted == "run":
        with refused("each_of"):
            jdfl.run(Waking(seen=HANDLERS[name][1]), regression(0), NET(), steps=1)
    else:
        assert told(name).claimed == (wanted != ""), told(name).reason
        paths = jdfl.paths(Waking(seen=HANDLERS[name][1]), regression(0), NET())
        assert any(why for place, why in paths.items() if place.startswith("message")) == (wanted == "")


def test_releases_are_counted():
    for wanted, seen in HANDLERS.values():
        if isinstance(wanted, int):
            made = jdfl.run(Waking(seen=seen), regression(0), NET(), steps=1, metrics=[])
            assert made.releases.tolist() == [wanted, wanted]


def test_rows_that_are_said_to_be_other_rows_are_refused():
    """Rows of another node as one's own, and a node that meets itself."""
    for shift, named in (((1, 1), "kept"), ((2, 0), "node")):
        with refused(named, "wake"):
            jdfl.run(Waking(seen=HANDLERS["one gradient"][1], shift=shift), regression(0), NET(), steps=1)
