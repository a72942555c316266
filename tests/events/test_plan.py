"""Plans of events: levels are what their definition says, pieces hold every event once, and a bad plan is caught."""

from itertools import pairwise
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jdfl.events import plan as plans
from jdfl.events.timeline import Events, Kind, Touch
from tests.events.loops import check_plan
from tests.refused import refused

ROWS = 5
KINDS = (
    Kind("meet", (Touch("node", "rw"), Touch("node", "rw"))),
    Kind("send", (Touch("node", "r"), Touch("slot", "w"))),
    Kind("arrive", (Touch("slot", "r"), Touch("slot", "r"), Touch("node", "rw"))),
)


def events_of(chosen: list[tuple[int, list[int]]], kinds=KINDS) -> Events:
    """Events of these kinds and rows, one a second."""
    columns = max(len(kind.touches) for kind in kinds)
    rows = np.full((len(chosen), columns), -1, np.int32)
    for i, (kind, some) in enumerate(chosen):
        rows[i, : len(kinds[kind].touches)] = some[: len(kinds[kind].touches)]
    number = np.array([kind for kind, _ in chosen], np.int32)
    place = np.arange(len(chosen), dtype=np.int32)
    return Events(place.astype(float), number, place, place, rows, 0 * place)


def some_events(kinds=KINDS):
    """Random events: three different rows, or none."""
    rows = st.lists(st.integers(-1, ROWS - 1), min_size=3, max_size=3)
    fine = rows.filter(lambda some: all(a != b or a < 0 for a, b in [*pairwise(some), (some[0], some[2])]))
    return st.lists(st.tuples(st.integers(0, len(kinds) - 1), fine), max_size=40).map(lambda c: events_of(c, kinds))


def touched(events: Events, e: int, kinds) -> tuple[set, set]:
    """The rows that an event touches, and those that it writes."""
    both = zip(kinds[events.kind[e]].touches, events.rows[e])
    named = [(touch, (touch.table, int(row))) for touch, row in both if row >= 0]
    return {row for _, row in named}, {row for touch, row in named if "w" in touch.mode}


def longest(events: Events, kinds, steps) -> list[int]:
    """The steps of the longest chain of conflicts up to each event, one event after another."""
    found = list[int]()
    for e in range(len(events)):
        touches, writes = touched(events, e, kinds)
        earlier = ((f, *touched(events, f, kinds)) for f in range(e))
        before = [found[f] for f, at, wrote in earlier if wrote & touches or at & writes]
        found.append(max(before, default=0) + steps[e])
    return found


@given(some_events(), st.integers(0, 39))
def test_levels_are_one_more_than_those_of_all_earlier_conflicts(events, at):
    found = plans.levels(events, KINDS)
    assert found.tolist() == longest(events, KINDS, [1] * len(events))
    check_plan(plans.arranged(events, found, len(KINDS)), events, KINDS)
    if len(late := np.flatnonzero(found > 1)):  # an event a wave early is caught
        found[late[at % len(late)]] -= 1
        with refused("row"):
            check_plan(plans.arranged(events, found, len(KINDS)), events, KINDS)


CHEAP = tuple(kind._replace(costly=kind.name == "send") for kind in KINDS)


@given(some_events(CHEAP))
def test_many_costly_events_are_run_at_once_and_none_too_early(events):
    found = plans.planned(events, CHEAP)
    check_plan(found, events, CHEAP)
    assert np.unique(found.level).tolist() == list(range(1, found.waves + 1))
    costly = np.array([CHEAP[kind].costly for kind in events.kind], bool)
    depth = longest(events, CHEAP, costly)  # costly events in the longest chain of conflicts up to this one
    assert len(set(found.level[costly])) == len({depth[e] for e in np.flatnonzero(costly)})


@pytest.mark.parametrize("kinds", [KINDS, KINDS[:1], CHEAP])
@settings(max_examples=150)
@given(data=st.data(), size=st.integers(1, 16), deepest=st.sampled_from([0, 2, 40, 40, 40]))
def test_levels_of_blocks_are_those_of_one_event_after_another(kinds, data, size, deepest):
    """However many events a block has; only chains that are longer than `deepest` are left to the loop."""
    events = data.draw(some_events(kinds))
    steps = np.array([kinds[kind].costly for kind in events.kind], np.int32)
    expected, loop = plans.levels(events, kinds, steps), mock.Mock(wraps=plans._of_each)  # few rows: the loop
    with mock.patch.multiple(plans, _FEWEST=0, _LEAST=size, _DEEPEST=deepest, _of_each=loop):
        assert plans.levels(events, kinds, steps).tolist() == expected.tolist()
    assert loop.called <= (deepest < 40)


@given(st.lists(st.integers(1, 6), max_size=200), st.sampled_from([(8,), (2, 8), (8, 64), (1, 2, 4, 16)]))
def test_pieces_hold_every_event_once_in_the_order_of_levels(levels, widths):
    level = np.array(levels, np.int32)
    draw = np.random.default_rng(len(levels))
    events = events_of([(int(kind), [-1, -1, -1]) for kind in draw.integers(0, 3, len(levels))])
    plan = plans.arranged(events, level, len(KINDS), widths)
    held = [plan.order[a : a + b] for a, b in zip(plan.start, plan.size)]
    assert sorted(np.concatenate([np.zeros(0, int), *held]).tolist()) == list(range(len(levels)))
    for some, kind, width in zip(held, plan.kind, plan.width):
        assert width in widths
        assert 0 < len(some) <= width
        assert 2 * len(some) >= width or width == min(widths)
        assert set(events.kind[some]) == {kind}
        assert len(set(level[some])) == 1
        assert (np.diff(some) > 0).all()
    assert (np.diff([level[some[0]] for some in held]) >= 0).all()
    runs = plan.runs()
    assert [piece for *_, a, b in runs for piece in range(a, b)] == list(range(len(held)))
    assert all(one[:2] != other[:2] for one, other in pairwise(runs))
    for kind, width, a, b in runs:
        assert set(plan.kind[a:b]) == {kind}
        assert set(plan.width[a:b]) == {width}
