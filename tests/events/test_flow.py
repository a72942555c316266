"""What events of an asynchronous method may do: what counts as sent, and which rows and noises are refused."""

from dataclasses import replace
from typing import Any, ClassVar

import jax.numpy as jnp
import pytest

import jdfl
from jdfl.base import struct
from jdfl.events import AsyncMethod, Event, Kind, Touch, meetings
from tests.events.scenes import NOISY, M, ran


@struct.dataclass
class Bare(AsyncMethod):
    """A planted mistake: it sends gradients as they are, next to noisy ones."""

    title: ClassVar[str] = "bare"
    kinds: ClassVar[tuple[Kind, ...]] = (Kind("meet", (Touch("node", "rw"), Touch("node", "rw"))),)
    honest: bool = struct.field(pytree_node=False, default=False)

    def tables(self, round, sizes):
        return {"node": jnp.array(round.problem.begin())}

    def events(self, network, key, seconds):
        return meetings(network, key, seconds, columns=2)

    def handle(self, kind: str, rows: tuple[Any, ...], event: Event) -> tuple[Any, ...]:
        x, other = rows
        noisy = self.gradients(x, event.at())
        bare = noisy if self.honest else self.gradients.without_noise(x, event.at(turn=1))
        return x - 0.1 * noisy, other - 0.1 * event.send(bare, 1)


def test_what_is_sent_without_noise_has_no_guarantee():
    honest, bare = (Bare(gradients=NOISY, honest=one) for one in (True, False))
    assert jdfl.account(ran(honest)).sound
    with pytest.raises(ValueError, match="what is sent on the channel 'model' has no noise"):
        jdfl.account(ran(bare))


@struct.dataclass
class Silent(Bare):
    """A planted mistake: gradients without noise reach another node's row, and nothing marks them as sent."""

    kinds: ClassVar[tuple[Kind, ...]] = (
        Kind("meet", (Touch("node", "rw"), Touch("raw", "rw", own=True), Touch("node", "rw"))),
    )
    by: str = struct.field(pytree_node=False, default="writing")

    def tables(self, round, sizes):
        x = jnp.array(round.problem.begin())
        return {"node": x, "raw": jnp.zeros_like(x)}

    def events(self, network, key, seconds):
        return meetings(network, key, seconds, columns=3)

    def handle(self, kind: str, rows: tuple[Any, ...], event: Event) -> tuple[Any, ...]:
        x, raw, other = rows
        noisy = x - 0.1 * self.gradients(x, event.at())
        bare = self.gradients.without_noise(x, event.at(turn=1))
        if self.by == "keeping":  # it stays in a row that nobody else sees
            return noisy, bare, other
        return (noisy, raw, other - bare) if self.by == "writing" else (noisy - bare, raw, other)


def test_what_another_node_may_see_counts_as_sent_whatever_is_marked():
    assert jdfl.account(ran(Silent(gradients=NOISY, by="keeping"))).sound
    for by in ("writing", "reading"):  # by the partner now, or by whoever meets the node later
        with pytest.raises(ValueError, match=r"what is sent on the channel 'table node' has no noise"):
            jdfl.account(ran(Silent(gradients=NOISY, by=by)))


def test_rows_that_are_not_what_a_method_says_are_refused():
    @struct.dataclass
    class Others(Silent):
        """It says that rows of others are its own, or meets itself."""

        def events(self, network, key, seconds):
            found = meetings(network, key, seconds, columns=3)
            rows = found.rows.copy()
            rows[:, 1 if self.by == "writing" else 2] = (rows[:, 0] + (self.by == "writing")) % M
            return replace(found, rows=rows)

    with pytest.raises(ValueError, match="the actor's own row of the table 'raw' in every event 'meet'"):
        ran(Others(gradients=NOISY))
    with pytest.raises(ValueError, match="different rows of the table 'node' in an event 'meet', got one twice"):
        ran(Others(gradients=NOISY, by="keeping"))


def test_correlated_noise_is_not_claimed_and_rounds_of_events_send_nothing():
    @struct.dataclass
    class Correlated(Bare):
        """Its noise depends on that of earlier events; or it sends through a round."""

        def handle(self, kind: str, rows: tuple[Any, ...], event: Event) -> tuple[Any, ...]:
            x, other = rows
            round = event.at()
            if not self.honest:
                return x - round.mix(x), other
            row, hidden = jnp.array([1.0, 0.5]), jnp.zeros((len(x), 1, x.shape[1]))
            return x - self.gradients.correlated(x, round, row, hidden)[0], other

    with pytest.raises(ValueError, match="noise is correlated over rounds"):
        jdfl.account(ran(Correlated(gradients=NOISY, honest=True)))
    with pytest.raises(ValueError, match=r"messages of an event through its send.* got one on model"):
        ran(Correlated(gradients=NOISY, honest=False))


def test_one_round_of_an_event_has_noise_once():
    @struct.dataclass
    class Twice(Bare):
        """A planted mistake: both gradients have the same noise."""

        def handle(self, kind: str, rows: tuple[Any, ...], event: Event) -> tuple[Any, ...]:
            x, other = rows
            return x - self.gradients(x, event.at()) - self.gradients(x, event.at()), other

    with pytest.raises(ValueError, match="a turn of its own for every round of an event, got turn = 0 twice"):
        ran(Twice(gradients=NOISY))
