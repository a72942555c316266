"""Asynchronous methods: waves give what one event after another gives, and that is the loop of the paper."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jdfl
from jdfl import network as nw
from jdfl import testing
from jdfl.base.streams import Keys, Stream
from jdfl.events import plan as plans
from jdfl.events.ad_psgd import ADPSGD
from jdfl.events.execution import execute
from jdfl.events.gossip import RandomizedGossip
from jdfl.events.method import AsyncMethod, Instant
from jdfl.events.simulation import Simulated, simulate
from jdfl.events.swarm_sgd import SwarmSGD
from tests.later import Named

M, SECONDS = testing.NODES, 14.0  # about 84 events, so that all runs share their programs
NOISY = jdfl.Gradients(clip=1.0, mechanism=jdfl.Gaussian(0.1))
Loop = Callable[[Any, np.ndarray, list[tuple[int, int]], Any], None]


def of_gossip(how: Any, x: np.ndarray, meetings: list[tuple[int, int]], gradient: Any) -> None:
    for i, j in meetings:
        x[i] = x[j] = (x[i] + x[j]) / 2


def of_ad_psgd(how: Any, x: np.ndarray, meetings: list[tuple[int, int]], gradient: Any) -> None:
    snapshot = x.copy()
    for i, j in meetings:
        g = gradient(i, snapshot[i])
        x[i] = x[j] = (x[i] + x[j]) / 2
        x[i] = x[i] - how.lr * g
        snapshot[i] = x[i]


def of_swarm(how: Any, x: np.ndarray, meetings: list[tuple[int, int]], gradient: Any) -> None:
    for i, j in meetings:
        for node in (i, j):
            for _ in range(how.local_steps):
                x[node] = x[node] - how.lr * gradient(node, x[node])
        x[i] = x[j] = (x[i] + x[j]) / 2


METHODS: dict[str, tuple[AsyncMethod, Loop]] = {
    "gossip": (RandomizedGossip(), of_gossip),
    "AD-PSGD": (ADPSGD(lr=0.05), of_ad_psgd),
    "SwarmSGD": (SwarmSGD(lr=0.05, local_steps=2), of_swarm),
}
VARIANTS: dict[str, AsyncMethod] = {
    **{name: method for name, (method, _) in METHODS.items()},
    "AD-PSGD, batches": ADPSGD(lr=0.05, gradients=jdfl.Gradients(batch=3)),
    "AD-PSGD, noise": ADPSGD(lr=0.05, gradients=NOISY),
    "SwarmSGD, noise": SwarmSGD(lr=0.05, gradients=NOISY),
}
CLOCKS = Named(
    {
        "exponential": nw.ExponentialTime(1.0),
        "equal": nw.FixedTime(1.0),
        "pareto": nw.ParetoTime(0.5, 1.5),
        "slow nodes": nw.ExponentialTime(1.0),
    }
)
GRAPHS: dict[str, Callable[[], nw.Static]] = {
    "small": testing.small_network,
    "star": lambda: nw.star(M),
    "complete": lambda: nw.complete(M),
}


def network(clock: str = "exponential", graph: str = "small") -> nw.Timed:
    slowness = nw.LogNormalTime(1.0, 1.0) if clock == "slow nodes" else None
    return nw.timed(GRAPHS[graph](), CLOCKS[clock], slowness=slowness)


def ran(method: AsyncMethod, problem: Any = None, clock: str = "exponential", graph: str = "small", **given: Any):
    given = {"key": jax.random.key(2), "seconds": SECONDS} | given
    return simulate(method, problem or testing.small_problem(), network(clock, graph), **given)


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("clock", CLOCKS)
@pytest.mark.parametrize("name", VARIANTS)
def test_waves_give_what_one_event_after_another_gives(name, clock, graph):
    method = VARIANTS[name]
    waves, ordered = (ran(method, clock=clock, graph=graph, ordered=one) for one in (False, True))
    plans.check(waves.plans[0], waves.events, method.kinds)
    assert len(waves.events) > 20
    for one, other in zip(jax.tree.leaves(waves.tables), jax.tree.leaves(ordered.tables), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("clock", CLOCKS)
@pytest.mark.parametrize("name", METHODS)
def test_a_method_is_the_loop_of_its_paper(name, clock):
    method, loop = METHODS[name]
    with jax.enable_x64(True):
        wide = jax.tree.map(
            lambda x: x.astype(float) if jnp.issubdtype(x.dtype, jnp.floating) else x, testing.small_problem()
        )
        found = ran(method, wide, clock)
        x = np.array(method.tables(wide)["node"])
    features, targets = (np.asarray(leaf, np.float64) for leaf in wide.data)

    def gradient(i: int, w: np.ndarray) -> np.ndarray:
        return features[i].T @ (features[i] @ w - targets[i]) / len(targets[i])

    loop(method, x, found.events.rows[:, [0, -1]].tolist(), gradient)
    np.testing.assert_allclose(found.params[-1], x, rtol=1e-12, atol=1e-12)
    assert np.abs(x).max() > 1e-2


def parts_equal(whole: Simulated, other: Simulated) -> None:
    np.testing.assert_array_equal(whole.params[-1], other.params[-1])


@pytest.mark.parametrize("name", VARIANTS)
def test_records_change_nothing(name):
    """Windows end at records; what happens in them is the same, and a shorter run is a record of a longer one."""
    method = VARIANTS[name]
    whole, parts, short = ran(method), ran(method, records=[3.0, 3.0, 9.5]), ran(method, seconds=9.5)
    parts_equal(whole, parts)
    np.testing.assert_array_equal(parts.params[2], short.params[-1])
    np.testing.assert_array_equal(parts.params[0], parts.params[1])


@pytest.mark.parametrize("widths", [(8,), (8, 16, 32)])
def test_widths_of_pieces_change_nothing(widths, monkeypatch):
    method = ADPSGD(lr=0.05, gradients=NOISY)
    whole = ran(method, graph="complete")
    planned = plans.planned
    monkeypatch.setattr("jdfl.events.simulation.planned", lambda events, kinds: planned(events, kinds, widths))
    parts_equal(whole, ran(method, graph="complete"))


def test_gossip_keeps_the_mean():
    with jax.enable_x64(True):
        wide = jax.tree.map(
            lambda x: x.astype(float) if jnp.issubdtype(x.dtype, jnp.floating) else x, testing.small_problem()
        )
        start = np.asarray(RandomizedGossip().tables(wide)["node"])
        found = ran(RandomizedGossip(), wide, records=[5.0])
    for params in found.params:
        np.testing.assert_allclose(
            params.mean(axis=0), start.mean(axis=0), rtol=0, atol=1e-15 * np.abs(start).max() * M
        )
    spread = [np.ptp(x, axis=0).max() for x in (start, *found.params)]
    assert spread[2] < 0.2 * spread[1] < 0.2 * spread[0]


def test_rows_that_are_not_declared_are_not_read(monkeypatch):
    """Snapshots are poisoned while their nodes finish nothing: the others do not read them."""
    method, given = ADPSGD(lr=0.05), {"clock": "slow nodes", "records": [13.0]}
    whole = ran(method, **given)

    def poisoned(method, tables, *others):
        apart = np.setdiff1d(np.arange(M), others[-1].actor)
        assert len(apart)
        return execute(method, dict(tables) | {"snapshot": tables["snapshot"].at[apart].set(np.nan)}, *others)

    assert len(set(whole.events[: whole.events.until(13.0)].actor)) == M
    calls = iter([execute, poisoned])
    monkeypatch.setattr("jdfl.events.simulation.execute", lambda *given: next(calls)(*given))
    found = ran(method, **given)
    np.testing.assert_array_equal(found.params, whole.params)
    assert np.isnan(np.asarray(found.tables["snapshot"])).any()


def test_a_planted_wave_too_early_changes_the_result(monkeypatch):
    method = ADPSGD(lr=0.05)
    whole = ran(method)
    levels = plans.levels

    def early(events, kinds):
        found = levels(events, kinds)
        found[found > 20] -= 1  # at first all models are the same
        return found

    monkeypatch.setattr(plans, "levels", early)
    assert not np.array_equal(whole.params, ran(method).params)


def test_draws_follow_the_node_and_its_count():
    keys, stream = Keys.of(jax.random.key(5)), Stream.again("tests.events", "private")

    def drawn(node: list[int], count: list[int]) -> list[list[int]]:
        instant = Instant.of(keys, jnp.array(node, jnp.int32), jnp.array(count, jnp.int32))
        return jax.random.key_data(instant.keys(stream)).tolist()

    assert drawn([3, 1], [0, 2]) == drawn([1, 3], [2, 0])[::-1]
    assert len({tuple(one) for one in drawn([3, 3, 1, 2], [0, 1, 0, 0])}) == 4


def test_every_event_has_noise_of_its_own():
    """With huge noise and a clip that leaves nothing else, steps of a node are its noise: no two are the same."""
    method = ADPSGD(lr=1.0, gradients=jdfl.Gradients(clip=1e-6, mechanism=jdfl.Gaussian(1e6)))
    seconds = [float(t) for t in np.arange(1, 8)]
    alone = nw.timed(nw.from_edges([], M, connected=False), nw.FixedTime(1.0))
    found = simulate(method, testing.small_problem(), alone, key=jax.random.key(2), seconds=8.5, records=seconds)
    steps = np.diff(np.concatenate([np.zeros((1, M, testing.PARAMETERS)), found.params[:-1]]), axis=0).reshape(-1, 20)
    size = np.linalg.norm(steps, axis=1)
    assert size.min() > 0.1
    alike = np.abs(steps @ steps.T / np.outer(size, size) - np.eye(len(steps)))
    assert alike.max() < 0.9


@pytest.mark.parametrize("sampling", ["epochs", "in order"])
def test_examples_by_the_number_of_a_round_are_refused(sampling):
    with pytest.raises(ValueError, match=r"sampling = '.*Events have no rounds"):
        ran(ADPSGD(gradients=jdfl.Gradients(batch=2, sampling=sampling)))


def test_a_network_that_changes_is_refused():
    with pytest.raises(ValueError, match="Expected a fixed network with times"):
        simulate(
            ADPSGD(),
            testing.small_problem(),
            nw.timed(nw.random_matching(M), nw.FixedTime(1.0)),
            key=jax.random.key(0),
            seconds=1.0,
        )
