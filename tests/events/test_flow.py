"""What events of an asynchronous method may do: what counts as sent, and which rows and noises are refused."""

from dataclasses import replace
from typing import Any, ClassVar

import jax.numpy as jnp

import jdfl
from jdfl.base import struct
from jdfl.events import AsyncMethod, Event, Kind, Touch, meetings
from tests.events.scenes import NOISY, M, ran
from tests.refused import refused


@struct.dataclass
class Bare(AsyncMethod):
    """A planted mistake: it sends gradients as they are, next to noisy ones."""

    title: ClassVar[str] = "bare"
    kinds: ClassVar[tuple[Kind, ...]] = (Kind("meet", (Touch("node", "rw"), Touch("node", "rw"))),)
    by: str = struct.field(pytree_node=False, default="bare")

    def tables(self, round, sizes):
        return {"node": jnp.array(round.problem.begin())}

    def events(self, network, key, seconds):
        return meetings(network, key, seconds, columns=2)

    def handle(self, kind: str, rows: tuple[Any, ...], event: Event) -> tuple[Any, ...]:
        x, other = rows
        if self.by == "round":  # what it sends goes through a round
            return x - event.at().mix(x), other
        if self.by == "correlated":  # its noise depends on that of earlier events
            row, hidden = jnp.array([1.0, 0.5]), jnp.zeros((len(x), 1, x.shape[1]))
            return x - self.gradients.correlated(x, event.at(), row, hidden)[0], other
        noisy = self.gradients(x, event.at())
        if self.by == "twice":  # both gradients have the same noise
            return x - noisy - self.gradients(x, event.at()), other
        bare = noisy if self.by == "honest" else self.gradients.without_noise(x, event.at(turn=1))
        return x - 0.1 * noisy, other - 0.1 * event.send(bare, 1)


def test_what_is_sent_without_noise_has_no_guarantee():
    assert jdfl.account(ran(Bare(gradients=NOISY, by="honest"))).sound
    for by, named in (("bare", "model"), ("correlated", "correlated"), ("round", "model"), ("twice", "turn = 0")):
        with refused(named):
            jdfl.account(ran(Bare(gradients=NOISY, by=by)))


@struct.dataclass
class Silent(Bare):
    """A planted mistake: gradients without noise reach another node's row, and nothing marks them as sent."""

    kinds: ClassVar[tuple[Kind, ...]] = (
        Kind("meet", (Touch("node", "rw"), Touch("raw", "rw", own=True), Touch("node", "rw"))),
    )
    shift: tuple[int, int] = struct.field(pytree_node=False, default=(0, 0))

    def tables(self, round, sizes):
        x = jnp.array(round.problem.begin())
        return {"node": x, "raw": jnp.zeros_like(x)}

    def events(self, network, key, seconds):
        found = meetings(network, key, seconds, columns=3)
        column, by = self.shift
        if column:  # it says that rows of others are its own, or meets itself
            found.rows[:, column] = (found.rows[:, 0] + by) % M
        return found

    def handle(self, kind: str, rows: tuple[Any, ...], event: Event) -> tuple[Any, ...]:
        x, raw, other = rows
        noisy = x - 0.1 * self.gradients(x, event.at())
        bare = self.gradients.without_noise(x, event.at(turn=1))
        if self.by == "keeping":  # it stays in a row that nobody else sees
            return noisy, bare, other
        return (noisy, raw, other - bare) if self.by == "writing" else (noisy - bare, raw, other)


def test_what_another_node_may_see_counts_as_sent_whatever_is_marked():
    kept = Silent(gradients=NOISY, by="keeping")
    assert jdfl.account(ran(kept)).sound
    for by in ("writing", "reading"):  # by the partner now, or by whoever meets the node later
        with refused("node", "noise"):
            jdfl.account(ran(Silent(gradients=NOISY, by=by)))
    for shift, named in (((1, 1), "raw"), ((2, 0), "node")):
        with refused(named, "meet"):
            ran(replace(kept, shift=shift))
