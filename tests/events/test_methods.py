"""Asynchronous methods: waves give what one event after another gives, and that is the loop of the paper."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jdfl
from jdfl import network as nw
from jdfl import testing
from jdfl.base.streams import Keys, Stream
from jdfl.engine import waves
from jdfl.events import ADPSGD, AGP, REGISTRY, SWIFT, AsyncCHOCO, AsyncDOADP, RandomizedGossip
from jdfl.events import plan as plans
from jdfl.events.event import Instant
from tests.events.scenes import (
    CLOCKS,
    FAULTS,
    PERIODS,
    ROWS,
    VARIANTS,
    M,
    borne,
    by_loop,
    equal,
    network,
    simulated,
    wide,
)
from tests.refused import refused


def ordered(monkeypatch) -> None:
    """From here on events are executed one after another."""

    def planned(events, kinds):
        return plans.arranged(events, np.arange(1, len(events) + 1, dtype=np.int32), len(kinds), plans.WIDTHS[:1])

    monkeypatch.setattr(waves, "planned", planned)


def test_every_method_has_a_row():
    assert {type(row.method) for row in ROWS.values()} == set(REGISTRY.values())


@pytest.mark.rotated(4)
@pytest.mark.parametrize("name", VARIANTS)
def test_waves_give_what_one_event_after_another_gives(name, monkeypatch):
    method, problem, planned = VARIANTS[name], testing.small_problem(), waves.planned
    scenes = [("slow nodes", "complete", None), ("pareto", "small", (borne(name) or [None])[-1])]
    for clock, graph, fault in scenes:
        timed = network(clock, graph, fault)
        monkeypatch.setattr(waves, "planned", planned)
        found = simulated(method, problem, timed)
        events = found.scheduler.events
        assert len(events) > 5
        plans.check(plans.planned(events, method.kinds), events, method.kinds)
        ordered(monkeypatch)
        equal(found.state, simulated(method, problem, timed).state)


@pytest.mark.parametrize("name", ROWS)
def test_a_method_is_the_loop_of_its_paper(name):
    """Where nodes compute at different speeds, and where all events of a round have the same time."""
    for clock, graph in (("slow nodes", "small"), ("equal", "cut off")):
        with jax.enable_x64(True):
            problem, timed = wide(testing.small_problem()), network(clock, graph)
            found = simulated(ROWS[name].method, problem, timed).params
            expected = by_loop(ROWS[name], problem, timed)
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
        assert np.abs(expected).max() > 1e-2


@pytest.mark.parametrize("name", [name for name in ROWS if borne(name)])
def test_a_method_with_faults_is_the_loop_of_its_paper(name):
    with jax.enable_x64(True):
        problem, timed = wide(testing.small_problem()), network("pareto", fault=borne(name)[-1])
        found = simulated(ROWS[name].method, problem, timed).params
        np.testing.assert_allclose(found, by_loop(ROWS[name], problem, timed), rtol=1e-12, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("clock", CLOCKS)
@pytest.mark.parametrize(("name", "fault"), [(name, fault) for name in ROWS for fault in [None, *borne(name)]])
def test_a_method_is_the_loop_of_its_paper_with_every_clock_and_fault(name, fault, clock):
    with jax.enable_x64(True):
        problem, timed = wide(testing.small_problem()), network(clock, fault=fault)
        found = simulated(ROWS[name].method, problem, timed).params
        np.testing.assert_allclose(found, by_loop(ROWS[name], problem, timed), rtol=1e-12, atol=1e-12)


@pytest.mark.rotated(6)
@pytest.mark.parametrize("name", VARIANTS)
def test_records_change_nothing(name):
    """Windows end at records; what happens in them is the same, and a shorter run begins a longer one."""
    method, problem = VARIANTS[name], testing.small_problem()
    timed = network("slow nodes", fault=(borne(name) or [None])[-1])
    params = list[np.ndarray]()
    given = {"key": 2, "steps": PERIODS, "metrics": [], "options": jdfl.Options(chunk=5)}
    result = jdfl.run(method, problem, timed, callbacks=[lambda now: params.append(np.asarray(now.params()))], **given)
    for every in (3, PERIODS):
        equal(result.state, simulated(method, problem, timed, every=every).state)
    short = jdfl.run(method, problem, timed, **given | {"steps": 5})
    np.testing.assert_array_equal(params[0], short.params)
    longer = jdfl.run(method, problem, timed, **given, resume=short)
    np.testing.assert_array_equal(longer.params, result.params)
    assert longer.history.equals(result.history)


def test_gossip_keeps_the_mean():
    with jax.enable_x64(True):
        problem = wide(testing.small_problem())
        start = np.stack(list(problem.each(problem.gradient, problem.begin(), problem.data, problem.weight)))
        found = [simulated(RandomizedGossip(), problem, network(), steps=steps).params for steps in (5, PERIODS)]
    for params in found:
        np.testing.assert_allclose(params.mean(axis=0), start.mean(axis=0), rtol=0, atol=1e-14 * np.abs(start).max())
    spread = [np.ptp(x, axis=0).max() for x in (start, *found)]
    assert spread[2] < 0.2 * spread[1] < 0.2 * spread[0]


@pytest.mark.parametrize(("clock", "fault"), [("pareto", None), ("slow nodes", "both")])
def test_push_sum_keeps_its_mass(clock, fault):
    """Nothing is lost on the way: the weights of nodes, mailboxes and messages are m together, and so are the sums."""
    with jax.enable_x64(True):
        problem = wide(testing.small_problem()).replace(start=jnp.arange(20.0))
        found = simulated(AGP(lr=1e-30), problem, network(clock, fault=fault))
    events, way = found.scheduler.events, np.ones(len(found.state["slot"][1]), bool)
    for kind, slot, other in zip(events.kind, events.rows[:, 2], events.rows[:, 1]):
        if max(slot if kind == 0 else other, -1) >= 0:
            way[slot if kind == 0 else other] = kind == 0
    sent = {slot for slot in events.rows[events.kind == 0, 2].tolist() if slot >= 0}
    held = way & np.isin(np.arange(len(way)), list(sent))
    for place, total in ((1, float(M)), (0, M * np.arange(20.0))):
        parts = [found.state[name][place] for name in ("node", "mailbox")] + [found.state["slot"][place][held]]
        np.testing.assert_allclose(sum(part.sum(axis=0) for part in parts), total, rtol=1e-14, atol=1e-20)


def test_equal_clocks_make_swift_the_synchronous_method():
    """All nodes wake together and see what was sent before: W x - lr g(x) of D-PSGD."""
    W = 0.5 * np.eye(M) + 0.25 * (np.roll(np.eye(M), 1, axis=1) + np.roll(np.eye(M), -1, axis=1))  # exact in float32
    base, how = nw.from_matrix(W), {"key": 1, "steps": 9, "metrics": []}
    with jax.enable_x64(True):
        problem = wide(testing.small_problem())
        found = jdfl.run(SWIFT(lr=0.05), problem, nw.timed(base, nw.FixedTime(1.0)), **how)
        expected = jdfl.run(jdfl.DPSGD(lr=0.05, codec=jdfl.Dense("float64")), problem, base, **how)
    np.testing.assert_allclose(found.params, expected.params, rtol=1e-12, atol=1e-14)


def test_draws_follow_the_node_and_its_count():
    keys, stream = Keys.of(jax.random.key(5)), Stream.again("tests.events", "private")

    def drawn(node: list[int], count: list[int], kind: int = 0) -> list[list[int]]:
        instant = Instant.of(keys, jnp.array(node, jnp.int32), jnp.array(count, jnp.int32), kind)
        return jax.random.key_data(instant.keys(stream)).tolist()

    assert drawn([3, 1], [0, 2]) == drawn([1, 3], [2, 0])[::-1]
    assert len({tuple(one) for kind in (0, 1) for one in drawn([3, 3, 1, 2], [0, 1, 0, 0], kind)}) == 8


def test_every_gradient_has_noise_of_its_own():
    """With huge noise and a clip that leaves nothing else, steps of a node are its noise: no two are the same."""
    method = ADPSGD(lr=1.0, gradients=jdfl.Gradients(clip=1e-6, mechanism=jdfl.Gaussian(1e6)))
    alone = nw.timed(nw.from_edges([], M, connected=False), nw.FixedTime(1.0))
    params: list[np.ndarray] = [np.zeros((M, testing.PARAMETERS))]
    given: dict[str, Any] = {"key": 2, "steps": 8, "metrics": [], "options": jdfl.Options(chunk=1)}
    given["callbacks"] = [lambda now: params.append(np.asarray(now.params()))]
    jdfl.run(method, testing.small_problem(), alone, **given)
    steps = np.diff(np.stack(params), axis=0).reshape(-1, testing.PARAMETERS)
    size = np.linalg.norm(steps, axis=1)
    assert size.min() > 0.1
    assert np.abs(steps @ steps.T / np.outer(size, size) - np.eye(len(steps))).max() < 0.9


def test_networks_and_settings_that_events_have_no_use_for_are_refused():
    problem, clock = testing.small_problem(), nw.FixedTime(1.0)
    ring, batches = nw.timed(nw.ring(M), clock), jdfl.Gradients(batch=2, sampling="epochs")
    nets = [nw.ring(M), nw.timed(nw.random_matching(M), clock), nw.node_participation(ring, 0.5)]
    nets += [nw.timed(nw.bursty_loss(nw.ring(M), 0.1, 0.5), clock), nw.timed(nw.ring(M), clock, first=True)]
    for method in (AsyncCHOCO(), AsyncDOADP(codec=jdfl.Dense()), ADPSGD(), AGP(), SWIFT()):
        one_way = [] if isinstance(method, AGP) else [nw.timed(nw.exponential(M), clock)]
        cases: list[Any] = [(method, net, method.title) for net in nets + one_way]
        cases += [(replace(method, gradients=batches), ring, "sampling"), (replace(method, period=0.0), ring, "period")]
        cases += [(replace(method, gradients=jdfl.Gradients(noisy="communicating")), ring, "noisy")]
        for one, net, named in cases:
            with refused(named):
                jdfl.run(one, problem, net, steps=2)


def test_faults_that_a_method_does_not_bear_are_refused():
    problem, ring = testing.small_problem(), nw.timed(nw.ring(M))
    cases: list[Any] = [
        (row.method, network(fault=one)) for name, row in ROWS.items() for one in {*FAULTS} - {*borne(name)}
    ]
    cases += [(AGP(), nw.link_loss(ring, 0.1)), (ADPSGD(), nw.link_loss(ring, 0.1, directed=True))]
    cases += [(ADPSGD(), nw.bursty_loss(ring, 0.1, 0.5)), (ADPSGD(), nw.link_loss(ring, 0.1, weights="rescale"))]
    cases += [(SWIFT(), nw.outages(ring, 0.1, 0.5, weights="rescale"))]
    for method, net in cases:
        with refused(method.title):
            jdfl.run(method, problem, net, steps=2)
