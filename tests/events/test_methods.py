"""Asynchronous methods: the loops of their papers, counts by hand, and what changes nothing: waves, records, lanes."""

from dataclasses import replace
from functools import cache
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
from jdfl.events import ADPSGD, AGP, REGISTRY, SWIFT, AsyncCHOCO, AsyncDOADP
from jdfl.events import plan as plans
from jdfl.events.event import Instant
from jdfl.events.faults import links, with_times
from jdfl.events.timeline import Events
from tests.events.loops import check_plan
from tests.events.scenes import (
    CLOCKS,
    FAULTS,
    PERIODS,
    ROWS,
    VARIANTS,
    M,
    borne,
    by_loop,
    drawn,
    equal,
    most,
    network,
    ran,
    simulated,
    wide,
)
from tests.refused import refused

Scene = tuple[str, str, str | None]  # clock, graph and fault


def test_every_method_has_a_row():
    assert {type(row.method) for row in ROWS.values()} == set(REGISTRY.values())


@cache
def played(name: str, scene: Scene) -> tuple[jdfl.Result, np.ndarray]:
    """A run in float64, and its parameters."""
    with jax.enable_x64(True):
        result = ran(ROWS[name].method, network(*scene), wide(testing.small_problem()))
        return result, np.asarray(result.params)


def check_loop(name: str, scene: Scene) -> None:
    with jax.enable_x64(True):
        expected = by_loop(ROWS[name], wide(testing.small_problem()), network(*scene))
    np.testing.assert_allclose(played(name, scene)[1], expected, rtol=1e-12, atol=1e-12)
    assert np.abs(expected).max() > 1e-2


@pytest.mark.parametrize("name", ROWS)
def test_a_method_is_the_loop_of_its_paper(name):
    """Where nodes compute at different speeds, and where all events of a round have the same time."""
    check_loop(name, ("slow nodes", "small", None))
    check_loop(name, ("equal", "cut off", None))


@pytest.mark.parametrize("name", [name for name in ROWS if borne(name)])
def test_a_method_with_faults_is_the_loop_of_its_paper(name):
    check_loop(name, ("pareto", "cut off", most(name)))


@pytest.mark.slow
@pytest.mark.parametrize("clock", CLOCKS)
@pytest.mark.parametrize(("name", "fault"), [(name, fault) for name in ROWS for fault in [None, *borne(name)]])
def test_a_method_is_the_loop_of_its_paper_with_every_clock_and_fault(name, fault, clock):
    check_loop(name, (clock, "small", fault))


def by_hand(name: str, events: Events, degree: np.ndarray) -> dict[str, np.ndarray]:
    """What every node does, from the papers: messages, gradients, and how often it combines."""
    sent, grads, combined = (np.zeros(M, int) for _ in range(3))
    steps = getattr(ROWS[name].method, "local_steps", 1)
    for kind, i, rows in zip(events.kind, events.actor, events.rows):
        if name in ("AD-PSGD", "SwarmSGD", "randomized gossip"):
            j = rows[2 if name == "AD-PSGD" else 1] if kind == 0 else -1
            grads[i] += 0 if name == "randomized gossip" or kind == 1 else steps
            sent[[i, j if j >= 0 else -2 - j]] += j != -1
            if j >= 0:
                combined[[i, j]] += 1
                grads[j] += steps if name == "SwarmSGD" else 0
        elif name in ("SWIFT", "CHOCO", "DO-ADP") or (name == "AGP" and kind == 0):
            grads[i] += 1
            combined[i] += 1
            sent[i] += rows[2] != -1 if name == "AGP" else degree[i]
        elif "walk" in name:
            grads[i] += 1
            sent[i] += rows[1] >= 0
            combined[rows[1]] += rows[1] >= 0
        elif name.startswith("Fed"):
            grads[i] += steps if kind == 0 else 0
            sent[i] += 1  # up, and down
            combined[i] += kind == 1
    return {"sent": sent, "grads": grads, "communications": combined}


@pytest.mark.parametrize("name", ROWS)
def test_counts_are_those_made_by_hand(name):
    scene = ("pareto", "cut off", most(name)) if borne(name) else ("equal", "cut off", None)
    (result, _), timed = played(name, scene), network(*scene)
    expected = by_hand(name, drawn(ROWS[name].method, timed), np.asarray(links(with_times(timed, "")).out_degree))
    assert sum(result.totals.messages.values()) == expected["sent"].sum()
    assert result.totals.gradients == expected["grads"].sum() + (M if name == "randomized gossip" else 0)
    assert result.totals.examples == testing.EXAMPLES * result.totals.gradients
    np.testing.assert_array_equal(result.communication_rounds, expected["communications"])
    assert result.totals.releases == 0
    np.testing.assert_array_equal(result.clock, float(PERIODS))


@pytest.mark.rotated(9)
@pytest.mark.parametrize("name", VARIANTS)
def test_records_and_waves_change_nothing(name, monkeypatch):
    """Windows end at records, and hold events one after another or at once; a shorter run begins a longer one."""
    method, problem, timed = VARIANTS[name], testing.small_problem(), network("slow nodes", fault=most(name))
    params, chunks = list[np.ndarray](), {"options": jdfl.Options(chunk=5), "problem": problem}
    result = ran(method, timed, callbacks=[lambda now: params.append(np.asarray(now.params()))], **chunks)
    short = ran(method, timed, steps=5, **chunks)
    np.testing.assert_array_equal(params[0], short.params)
    longer = ran(method, timed, resume=short, **chunks)
    np.testing.assert_array_equal(longer.params, result.params)
    assert longer.history.equals(result.history)
    for every in (3, PERIODS):
        found = simulated(method, problem, timed, every=every)
        equal(found.state, result.state)
    events = found.scheduler.events
    check_plan(plans.planned(events, method.kinds), events, method.kinds)

    def planned(events, kinds):
        return plans.arranged(events, np.arange(1, len(events) + 1, dtype=np.int32), len(kinds), plans.WIDTHS[:1])

    monkeypatch.setattr(waves, "planned", planned)
    equal(simulated(method, problem, timed).state, result.state)


def alike(found: Any, single: Any) -> None:
    np.testing.assert_array_equal(found.params, single.params)
    assert found.history.equals(single.history)
    assert found.totals == single.totals
    np.testing.assert_array_equal(found.releases, single.releases)


_FIRST = "randomized gossip"  # the one whose start evaluates gradients


@pytest.mark.parametrize(
    "name", [_FIRST, *(pytest.param(name, marks=pytest.mark.rotated(9)) for name in VARIANTS if name != _FIRST)]
)
def test_seeds_side_by_side_are_single_runs_bit_for_bit(name, monkeypatch):
    method, problem, timed = VARIANTS[name], testing.small_problem(), network("slow nodes", fault=most(name))
    how: dict[str, Any] = {"steps": 6, "every": 4, "metrics": ["objective"], "stop": jdfl.objective_below(0.7)}
    together, number = waves.advance, list[int]()
    monkeypatch.setattr(waves, "advance", lambda runs, *rest: number.append(len(runs)) or together(runs, *rest))
    made = jdfl.repeat(method, problem, timed, keys=[2, 7, 3], **how)
    assert number == ([1, 1, 1] if hasattr(method, "gamma") else [3])  # codecs have keys of their run
    for seed, found in zip((2, 7, 3), made, strict=True):
        alike(found, jdfl.run(method, problem, timed, key=seed, **how))


@pytest.mark.rotated(4)
@pytest.mark.parametrize("name", ["AD-PSGD", "AGP, noise", "SWIFT", "FedBuff"])
def test_points_are_single_runs_bit_for_bit(name):
    method, timed, problem = VARIANTS[name], network("slow nodes"), testing.small_problem()
    how: dict[str, Any] = {"steps": PERIODS, "every": 5, "metrics": ["objective"]}
    for found in jdfl.sweep(method, problem, timed, over={"lr": [0.01, 0.002]}, keys=[2], **how):
        alike(found, jdfl.run(replace(method, lr=found.labels["lr"]), problem, timed, key=found.run_key, **how))


def test_push_sum_keeps_its_mass():
    """Nothing is lost on the way: the weights of nodes, mailboxes and messages are m together, and so are the sums."""
    with jax.enable_x64(True):
        problem = wide(testing.small_problem()).replace(start=jnp.arange(20.0))
        found = simulated(AGP(lr=1e-30), problem, network("slow nodes", fault="both"))
    events, way = found.scheduler.events, np.ones(len(found.state["slot"][1]), bool)
    for kind, slot, other in zip(events.kind, events.rows[:, 2], events.rows[:, 1]):
        if max(slot if kind == 0 else other, -1) >= 0:
            way[slot if kind == 0 else other] = kind == 0
    sent = {slot for slot in events.rows[events.kind == 0, 2].tolist() if slot >= 0}
    held = way & np.isin(np.arange(len(way)), list(sent))
    for place, total in ((1, float(M)), (0, M * np.arange(20.0))):
        parts = [found.state[name][place] for name in ("node", "mailbox")] + [found.state["slot"][place][held]]
        np.testing.assert_allclose(sum(part.sum(axis=0) for part in parts), total, rtol=1e-14, atol=1e-20)


def test_draws_follow_the_node_and_its_count():
    keys, stream = Keys.of(jax.random.key(5)), Stream.again("tests.events", "private")

    def of(node: list[int], count: list[int], kind: int = 0) -> list[list[int]]:
        instant = Instant.of(keys, jnp.array(node, jnp.int32), jnp.array(count, jnp.int32), kind)
        return jax.random.key_data(instant.keys(stream)).tolist()

    assert of([3, 1], [0, 2]) == of([1, 3], [2, 0])[::-1]
    assert len({tuple(one) for kind in (0, 1) for one in of([3, 3, 1, 2], [0, 1, 0, 0], kind)}) == 8


def test_every_gradient_has_noise_of_its_own():
    """With huge noise and a clip that leaves nothing else, steps of a node are its noise: no two are the same."""
    method = ADPSGD(lr=1.0, gradients=jdfl.Gradients(clip=1e-6, mechanism=jdfl.Gaussian(1e6)))
    alone = nw.timed(nw.from_edges([], M, connected=False), nw.FixedTime(1.0))
    params: list[np.ndarray] = [np.zeros((M, testing.PARAMETERS))]
    callbacks = [lambda now: params.append(np.asarray(now.params()))]
    ran(method, alone, steps=8, options=jdfl.Options(chunk=1), callbacks=callbacks)
    steps = np.diff(np.stack(params), axis=0).reshape(-1, testing.PARAMETERS)
    size = np.linalg.norm(steps, axis=1)
    assert size.min() > 0.1
    assert np.abs(steps @ steps.T / np.outer(size, size) - np.eye(len(steps))).max() < 0.9


def test_networks_settings_and_faults_that_events_have_no_use_for_are_refused():
    clock, ring = nw.FixedTime(1.0), nw.timed(nw.ring(M), nw.FixedTime(1.0))
    one_way, batches = nw.timed(nw.exponential(M), clock), jdfl.Gradients(batch=2, sampling="epochs")
    plain = ADPSGD()
    cases: list[Any] = [(method, one_way) for method in (AsyncCHOCO(), AsyncDOADP(codec=jdfl.Dense()), plain, SWIFT())]
    cases += [(plain, net) for net in (nw.timed(nw.random_matching(M), clock), nw.timed(nw.ring(M), clock, first=True))]
    cases += [(plain, nw.node_participation(ring, 0.5)), (plain, nw.bursty_loss(ring, 0.1, 0.5))]
    cases += [(row.method, ring.base) for row in ROWS.values()]  # no times
    cases += [(plain.replace(gradients=batches), ring, "sampling"), (plain.replace(period=0.0), ring, "period")]
    cases += [(plain.replace(gradients=jdfl.Gradients(noisy="communicating")), ring, "noisy")]
    faulty = {fault: network(fault=fault) for fault in FAULTS}
    cases += [(row.method, faulty[one]) for name, row in ROWS.items() for one in {*FAULTS} - {*borne(name)}]
    cases += [(AGP(), nw.link_loss(ring, 0.1)), (plain, nw.link_loss(ring, 0.1, directed=True))]
    cases += [(plain, nw.link_loss(ring, 0.1, weights="rescale"))]
    cases += [(SWIFT(), nw.outages(ring, 0.1, 0.5, weights="rescale"))]
    for method, net, *named in cases:
        with refused(*(named or [method.title])):
            ran(method, net, steps=2)
