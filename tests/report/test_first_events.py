"""A timeline shows the events of some nodes as the run has them, and what these nodes send each other."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

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
from jdfl.lab.watch import of_run
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


def by_hand(name: str, events: Events, timed: nw.Timed) -> tuple[list[int], list[tuple[Any, ...]]]:
    """The node of every event, and who sends what to whom, from the papers: (sent, node, arrives, to)."""
    graph: Any = timed.base.graph  # pyright: ignore[reportAttributeAccessIssue]
    senders, mask = np.asarray(graph.senders), np.asarray(graph.mask)
    nodes, sent, last, used = list[int](), list[tuple[Any, ...]](), dict[Any, Any](), set[Any]()
    for t, kind, actor, rows in zip(*(one.tolist() for one in (events.time, events.kind, events.actor, events.rows))):
        node = rows[0] if (name, kind) == ("AGP", 1) else actor
        nodes.append(node)
        if name in ("AD-PSGD", "SwarmSGD", "randomized gossip") and rows[-1] >= 0:
            sent.append((t, actor, t, rows[-1]))
        reads = []
        if name == "AGP" and kind == 1:
            reads = [rows[1]]
        elif name == "SWIFT":
            reads = [row for row in rows[2:] if row >= 0]
        elif name in ("CHOCO", "DO-ADP"):
            reads = senders[actor][mask[actor]].tolist()
        elif "walk" in name:
            reads = [rows[0]]
        for row in reads:
            place, *before = last.get(row, (0, 0, node))
            if before[1] != node and (place, node) not in used:
                used.add((place, node))
                sent.append((*before, t, node))
        written = {"AGP": rows[-1] if kind == 0 else -1, "SWIFT": rows[1], "CHOCO": actor, "DO-ADP": actor}
        row = rows[0] if "walk" in name else written.get(name, -1)
        if row >= 0:
            last[row] = len(nodes), t, node
    return nodes, sent


def told(table: pd.DataFrame, *names: str) -> list[tuple[Any, ...]]:
    return sorted(zip(*(table[name].tolist() for name in names)))


@pytest.mark.rotated(9)
@pytest.mark.parametrize("clock", CLOCKS)
@pytest.mark.parametrize("name", ROWS)
def test_what_is_shown_are_the_events_of_these_nodes_until_the_last_and_their_messages(name, clock):
    timed = ring(clock)
    shown = of_run(ROWS[name].method, testing.small_problem(m=MANY), timed, 2)
    end = shown.events["time"].iloc[-1]
    events = events_of(name, timed, end)
    nodes, sent = by_hand(name, events, timed)
    assert len(shown.nodes) <= watch.NODES
    expected = [one for one in zip(events.time.tolist(), nodes, events.kind.tolist()) if one[1] in shown.nodes]
    assert told(shown.events, "time", "node", "kind") == sorted(expected)
    assert len(expected) >= watch.PER_NODE * len(shown.nodes)
    assert shown.events["every"].tolist() == [events.until(t) for t in shown.events["time"]]
    among = [one for one in sent if {one[1], one[3]} <= set(shown.nodes)]
    assert told(shown.messages, "sent", "node", "arrives", "to") == sorted(among)
    assert among or name.startswith("Fed")


@pytest.mark.rotated(3)
@pytest.mark.parametrize("name", ["AD-PSGD", "AGP", "FedAsync"])
def test_they_are_the_events_that_the_run_has(name):
    """Also where the size of messages decides on times, and where the network is in wrappers."""
    method, problem = ROWS[name].method, testing.small_problem()
    slow = nw.timed(testing.small_network(), bandwidth=2e3, **CLOCKS["slow nodes"])
    slow = nw.outages(slow, down=0.2, up=0.5) if name != "FedAsync" else slow
    run = simulated(method, problem, slow)
    shown = of_run(method, problem, slow, 2).until(run.scheduler.events.time[-1])
    events = run.scheduler.events[: run.scheduler.events.until(shown.events["time"].iloc[-1])]
    assert shown.events["time"].tolist() == events.time.tolist()  # of all nodes, as they are few
    assert shown.events["kind"].tolist() == events.kind.tolist()


def test_slow_and_fast_nodes_are_shown_with_neighbours_and_all_their_events_and_messages_are_in_the_chart():
    timed = ring("slow nodes")
    shown = of_run(ADPSGD(), testing.small_problem(m=MANY), timed, 2)
    count = np.bincount(events_of("AD-PSGD", timed, 1e3).actor)
    assert int(count.argmax()) == shown.nodes[-1]
    assert (count[shown.nodes] < np.median(count)).any()
    chart = charts.timeline(shown)
    at = chart.data["nodes"]
    assert [at[lane] for _, lane, _ in chart.data["events"]] == shown.events["node"].tolist()
    assert [t for t, _, _ in chart.data["events"]] == pytest.approx(shown.events["time"].tolist(), rel=1e-6)
    assert [kind for *_, kind in chart.data["events"]] == shown.events["kind"].tolist()
    sent = [(start, at[giver], end, at[taker]) for start, giver, end, taker in chart.data["messages"]]
    assert sent
    for one, other in zip(sent, shown.messages[["sent", "node", "arrives", "to"]].to_numpy().tolist(), strict=True):
        assert one == pytest.approx(tuple(other), rel=1e-6)
    none = shown.until(1e-9)
    assert none.nodes == []
    assert "none" in charts.timeline(none).alt


def test_the_length_follows_the_clocks_and_no_more_is_drawn_than_was_measured():
    """Whatever a period is: a run of long periods costs no more to draw."""
    problem, network = testing.small_problem(), testing.small_network()
    for scale in (1e-6, 1e6):
        clocks = {"compute": nw.ExponentialTime(scale), "latency": nw.FixedTime(scale / 5)}
        shown = of_run(ADPSGD(), problem, nw.timed(network, **clocks), 2)
        assert 20 <= shown.events["every"].iloc[-1] < 1000
        assert scale < shown.events["time"].iloc[-1] < 40 * scale
    measured = np.random.default_rng(0).uniform(0.5, 1.5, (problem.m, 5)).astype(np.float32)
    few = of_run(ADPSGD(), problem, nw.timed(network, nw.time_trace(measured)), 2)
    assert 20 <= len(few.events) <= 5 * problem.m


TINY = ["--problem.m", "4", "--problem.n", "20", "--problem.s", "2", "--problem.rows", "5", "9", "--stop", "none"]
ASYNC = ["--algorithm", "ad-psgd", "--algorithm.lr", "0.01", "--network", "timed"]


def timelines(page: Path) -> list[dict[str, Any]]:
    """The data of the timelines of a page."""
    text = page.read_text(encoding="utf-8")
    found = re.findall(r'data-kind="timeline".*?<script type="application/json">(.*?)</script>', text, re.DOTALL)
    return [json.loads(data) for data in found]


def test_a_resumed_run_has_one_timeline_and_after_a_budget_no_event_is_shown(undrawn, tmp_path):
    private = ["--algorithm.clip", "1", "--algorithm.mechanism", "gaussian", "--algorithm.mechanism.multiplier", "2"]
    limit = ["--privacy.epsilon", "4", "--privacy.delta", "1e-3", "--steps", "1"]
    run = ["run", *TINY, *ASYNC, *private, *limit, "--quiet", "--folder", str(folder := tmp_path / "cut")]
    assert main(run) == 0
    (short,) = timelines(overview.write_overview([folder], tmp_path / "page.html"))
    assert main(["resume", str(folder), "--steps", "20", "--quiet"]) == 0
    result = jdfl.load(folder)
    assert isinstance(result, jdfl.Result)
    assert result.ending == "budget"
    (shown,) = timelines(overview.write_overview([folder], tmp_path / "page.html"))
    before, after = ([(t, one["nodes"][lane]) for t, lane, _ in one["events"]] for one in (short, shown))
    assert after[: len(before)] == before
    assert 0 < max(t for t, _ in before) <= 1 < max(t for t, _ in after) < result.clock[0]  # pyright: ignore[reportOptionalSubscript]
    assert len(after) == result.totals.gradients


@pytest.mark.filterwarnings("ignore:Not tuned")
def test_a_comparison_has_the_timelines_of_its_asynchronous_methods(undrawn, tmp_path):
    problem, timed = testing.small_problem(), nw.timed(testing.small_network(), **CLOCKS["slow nodes"])
    methods = {"pairs": ADPSGD(lr=0.02), "rounds": jdfl.DPSGD(lr=0.02)}
    found = jdfl.compare(methods, problem, timed, steps=2, trials=[5], tuning=None, metrics=["objective"])
    assert list(found.timelines) == ["pairs"]
    own = of_run(methods["pairs"], problem, timed, 5).until(2.0)
    pd.testing.assert_frame_equal(found.timelines["pairs"].events, own.events)
    again = jdfl.load(found.save(tmp_path / "saved"))
    assert isinstance(again, jdfl.Comparison)
    pd.testing.assert_frame_equal(again.timelines["pairs"].messages, own.messages)
    assert replace(again.timelines["pairs"], events=None, messages=None) == replace(own, events=None, messages=None)
    assert timelines(tmp_path / "saved" / "report.html") == [charts.timeline(own).data]
