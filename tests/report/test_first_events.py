"""A timeline shows the events of the first nodes as the run has them."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import jdfl
from jdfl import network as nw
from jdfl import testing
from jdfl.base.keys import typed_key
from jdfl.base.streams import Keys
from jdfl.cli import main
from jdfl.events import ADPSGD
from jdfl.events.timeline import Events
from jdfl.lab import charts, overview, watch
from jdfl.lab.watch import _first_events
from jdfl.network import in_run
from tests.events.scenes import CLOCKS, ROWS, simulated

MANY = 40


def ring(clock: str, m: int = MANY) -> nw.Timed:
    """A ring with a few links across."""
    links = [(i, (i + 1) % m) for i in range(m)] + [(i, (i + m // 2) % m) for i in range(0, m // 2, 3)]
    return nw.timed(nw.from_edges(links, m), **CLOCKS[clock])


def events_of(name: str, timed: nw.Timed, seconds: float, key: int = 2) -> Events:
    """All events of a run until a time, by the method itself; the size of messages plays no part in these networks."""
    keys = Keys.of(typed_key(key))
    return ROWS[name].method.events(in_run(timed, keys.network, 0), keys.network, seconds)


def told(table: pd.DataFrame, *names: str) -> list[tuple[float, ...]]:
    return sorted(zip(*(table[name].tolist() for name in names)))


@pytest.mark.rotated(9)
@pytest.mark.parametrize("clock", CLOCKS)
@pytest.mark.parametrize("name", ROWS)
def test_what_is_shown_are_the_events_of_the_first_nodes_until_the_last(name, clock):
    timed = ring(clock)
    shown = _first_events(ROWS[name].method, testing.small_problem(m=MANY), timed, 2)
    events = events_of(name, timed, shown["time"].iloc[-1])
    receives = events.kind == 1 if name == "AGP" else np.zeros(len(events), bool)
    nodes = np.where(receives, events.rows[:, 0], events.actor)  # a message is taken by its receiver
    rows = zip(events.time.tolist(), events.kind.tolist(), nodes.tolist())
    expected = [one for one in rows if one[2] < watch.NODES]  # in the order of events, also at equal times
    assert told(shown, "time", "kind", "node") == sorted(expected[: len(shown)])
    assert len(shown) == watch.PER_NODE * watch.NODES


@pytest.mark.rotated(3)
@pytest.mark.parametrize("name", ["AD-PSGD", "AGP", "FedAsync"])
def test_they_are_the_events_that_the_run_has(name):
    """Also where the size of messages decides on times, and where the network is in wrappers."""
    method, problem = ROWS[name].method, testing.small_problem()
    slow = nw.timed(testing.small_network(), bandwidth=2e3, **CLOCKS["slow nodes"])
    slow = nw.outages(slow, down=0.2, up=0.5) if name != "FedAsync" else slow
    run = simulated(method, problem, slow)
    shown = _first_events(method, problem, slow, 2)
    shown = shown[shown["time"] <= run.scheduler.events.time[-1]]
    events = run.scheduler.events[: len(shown)]
    assert shown["time"].tolist() == events.time.tolist()  # of all nodes, as they are few
    assert shown["kind"].tolist() == events.kind.tolist()


def test_the_length_follows_the_clocks_and_no_more_is_drawn_than_was_measured():
    """Whatever a period is: a run of long periods costs no more to draw."""
    problem, network = testing.small_problem(), testing.small_network()
    for scale in (1e-6, 1e6):
        clocks = {"compute": nw.ExponentialTime(scale), "latency": nw.FixedTime(scale / 5)}
        shown = _first_events(ADPSGD(), problem, nw.timed(network, **clocks), 2)
        assert 20 <= len(shown) < 1000
        assert scale < shown["time"].iloc[-1] < 40 * scale
    measured = np.random.default_rng(0).uniform(0.5, 1.5, (problem.m, 5)).astype(np.float32)
    few = _first_events(ADPSGD(), problem, nw.timed(network, nw.time_trace(measured)), 2)
    assert 20 <= len(few) <= 5 * problem.m
    (picture,) = charts.timeline(few, ["step"], "").pictures.values()
    assert "simulated seconds" in picture


TINY = ["--problem.m", "4", "--problem.n", "20", "--problem.s", "2", "--problem.rows", "5", "9", "--stop", "none"]
ASYNC = ["--algorithm", "ad-psgd", "--algorithm.lr", "0.01", "--network", "timed"]


def timeline(folder: Path) -> pd.DataFrame:
    """The events that the page of a run shows."""
    given: list[pd.DataFrame] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(charts, "timeline", lambda events, kinds, alt: given.append(events) or alt)
        overview.write_overview([folder], folder.parent / "page.html")
    (events,) = given
    return events


def test_a_resumed_run_has_one_timeline_and_after_a_budget_no_event_is_shown(undrawn, tmp_path):
    private = ["--algorithm.clip", "1", "--algorithm.mechanism", "gaussian", "--algorithm.mechanism.multiplier", "2"]
    limit = ["--privacy.epsilon", "4", "--privacy.delta", "1e-3", "--steps", "1"]
    run = ["run", *TINY, *ASYNC, *private, *limit, "--quiet", "--folder", str(folder := tmp_path / "cut")]
    assert main(run) == 0
    short = timeline(folder)
    assert main(["resume", str(folder), "--steps", "20", "--quiet"]) == 0
    result = jdfl.load(folder)
    assert isinstance(result, jdfl.Result)
    assert result.ending == "budget"
    shown = timeline(folder)
    pd.testing.assert_frame_equal(shown.iloc[: len(short)], short)
    assert 0 < short["time"].max() <= 1 < shown["time"].max() < result.clock[0]  # pyright: ignore[reportOptionalSubscript]
    assert len(shown) == result.totals.gradients
