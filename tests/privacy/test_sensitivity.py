"""Distances between messages: the published estimate and its counterexample, the certified schedule and its laws."""

import math
from typing import Any

import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jdfl
from jdfl import network as nw
from jdfl.algorithms.program import planned
from jdfl.algorithms.round import RoundContext
from jdfl.network import matrices
from jdfl.privacy import NO_NOISE
from jdfl.privacy import sensitivity as module
from jdfl.privacy.sensitivity import certified
from jdfl.results.summary import summary, summary_text
from tests.algorithms.play import direct
from tests.later import Later, Named
from tests.reference import push_sum as reference
from tests.reference.push_sum import farthest
from tests.refused import refused

T = 24
FAILURE = 1e-6


def uneven(m: int) -> nw.Static:
    """A directed ring with shortcuts from node 0 to every second node: out-degrees differ, and masses with them."""
    edges = [((i + 1) % m, i) for i in range(m)] + [(i, 0) for i in range(2, m, 2)]
    return nw.from_edges(edges, m, directed=True, weights="out-degree")


NETWORKS = Named(
    {
        "2-out": lambda: nw.d_out(10, 2),
        "3-out, synchronised": lambda: nw.synchronised(nw.d_out(8, 3), 4),
        "uneven": lambda: uneven(8),
        "uneven, synchronised": lambda: nw.synchronised(uneven(6), 5),
        "late": lambda: nw.periodic([nw.complete(6)] * 9 + [uneven(6)]),
        "two nodes": lambda: uneven(2),
        "always": lambda: nw.synchronised(nw.d_out(4, 2), 1),
    }
)


@jax.jit
def distances(dpps: jdfl.DPPS, schedule: Any, net: Any, s: Any, eps: Any, key: Any, chasing: Any) -> Any:
    """True distances and S [T, 2] of planned rounds with perturbations eps [T, m, d].

    With `chasing` every node goes away from the others' mean instead, along the entry in which it is farthest.
    """

    def round_of(k: Any) -> Any:
        context = RoundContext(k, jax.random.fold_in(key, k), net.at(k, key), jnp.arange(net.m, dtype=jnp.int32))
        return direct(context, None, ready=schedule)

    def one(state: Any, given: Any) -> Any:
        k, step = given
        away = state.s - jnp.mean(state.s, axis=0, keepdims=True)
        place = jnp.argmax(jnp.abs(away), axis=1)
        sign = jnp.sign(jnp.take_along_axis(away, place[:, None], axis=1))
        outward = sign * jax.nn.one_hot(place, s.shape[1], dtype=s.dtype)
        length = jnp.sum(jnp.abs(step), axis=1, keepdims=True)
        step = jnp.where(chasing, length * outward, step)
        return dpps.step(state, step, round_of(k), lambda problem, looks: NO_NOISE), None

    start = dpps.init(s, round_of(jnp.int32(0)))
    state, _ = jax.lax.scan(one, start, (jnp.arange(len(eps), dtype=jnp.int32), eps))
    return state.seen


def halves(m: int, d: int, rounds: int) -> Any:
    """One half of the nodes goes up by 1 along entry 0, the other half down, in every round."""
    sign = np.where(np.arange(m) < m // 2, 1.0, -1.0)
    return np.broadcast_to(sign[None, :, None] * np.eye(1, d)[None], (rounds, m, d))


def test_the_published_estimate_is_no_bound():
    """2-out, ten nodes, C' = .78 and lambda = .55 as in the paper's experiments; noise of next to no length."""
    net, eps = nw.d_out(10, 2), jnp.asarray(halves(10, 1, 5), jnp.float32)
    dpps = jdfl.DPPS(b=1.0, noise_rate=1e-30, sensitivity="eq22", watch=True)
    schedule = dpps.plan(net, None, np.ones(5), 1)
    seen = np.asarray(distances(dpps, schedule, net, jnp.zeros((10, 1)), eps, jax.random.key(0), jnp.bool_(False)))
    np.testing.assert_allclose(seen[:, 0], [2, 4, 6, 8, 10], rtol=1e-6)
    assert np.round(seen[:, 1].astype(float), 2).tolist() == [1.56, 2.42, 2.89, 3.15, 3.29]
    bound = dpps.replace(sensitivity="certified").plan(net, np.ones(5), np.ones(5), 1).certified
    assert (np.asarray(bound) >= seen[:, 0]).all()
    np.testing.assert_allclose(bound, [2, 4, 6, 8, 10], rtol=1e-5)  # attained, but for what is allowed for rounding


def attack(kind: str, m: int, d: int, bounds: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    """Perturbations [T, m, d] of l1 length exactly the bounds."""
    eps = halves(m, d, len(bounds)).copy()
    if kind == "signs":  # another half in every round, another entry for every node
        eps = draw.choice([-1.0, 1.0], (T, m, 1)) * np.eye(d)[draw.integers(0, d, (T, m))]
    elif kind == "skewed":
        eps = draw.exponential(size=(T, m, d)) ** 3 * draw.choice([-1.0, 1.0], (1, m, d))
    elif kind == "one node":
        eps = np.where(np.arange(m)[None, :, None] == 0, -1.0, 1.0) * np.eye(1, d)[None] + 0 * eps
    return eps / np.abs(eps).sum(axis=2, keepdims=True) * bounds[:, None, None] * (1 - 1e-6)


def course(net: Any, kind: str, noise: float, start: float, falls: bool, seed: int, **how: Any) -> np.ndarray:
    """True distances and S [T, 2] of a run with the schedule of its settings."""
    draw, d = np.random.default_rng(seed), 4
    scales = np.where(np.arange(T) >= T // 2, 0.1, 1.0) if falls else np.ones(T)
    bounds = 0.5 * scales
    dpps = jdfl.DPPS(b=1.0, noise_rate=noise or 1e-30, watch=True, failure=FAILURE, **how)
    common = jnp.asarray(start * draw.dirichlet(np.ones(d)), jnp.float32)
    schedule = dpps.plan(net, bounds, scales, d, common)
    s = jnp.broadcast_to(common[None], (net.m, d))
    given = (s, jnp.asarray(attack(kind, net.m, d, bounds, draw), jnp.float32), jax.random.key(seed))
    seen = np.asarray(distances(dpps, schedule, net, *given, jnp.bool_(kind == "chasing")), float)
    np.testing.assert_array_equal(seen[:, 1], schedule.certified)
    assert np.isfinite(seen).all()
    assert (seen[:, 0] <= seen[:, 1]).all()
    return seen


COURSES = {
    "kind": st.sampled_from(["halves", "signs", "skewed", "one node", "chasing"]),
    "noise": st.sampled_from([0.0, 1e-3, 0.03]),
    "start": st.sampled_from([0.0, 5.0]),
    "falls": st.booleans(),
    "seed": st.integers(0, 2**20),
}


@hypothesis.settings(max_examples=12)
@given(name=st.sampled_from(["2-out", "uneven", "uneven, synchronised", "late"]), **COURSES)
@hypothesis.example(name="uneven, synchronised", kind="one node", noise=0.03, start=0.0, falls=False, seed=0)
@hypothesis.example(name="late", kind="one node", noise=0.1, start=0.0, falls=False, seed=0)
@hypothesis.example(name="always", kind="halves", noise=0.03, start=0.0, falls=False, seed=0)
@hypothesis.example(name="two nodes", kind="chasing", noise=0.03, start=5.0, falls=True, seed=0)
def test_the_certified_schedule_is_never_below_the_true_distance(name, kind, noise, start, falls, seed):
    seen = course(NETWORKS[name], kind, noise, start, falls, seed)
    if kind in ("halves", "one node"):  # attained before there is noise
        assert seen[0, 0] >= 0.999 * seen[0, 1]


@pytest.mark.parametrize("name", ["2-out", "3-out, synchronised", "uneven", "late", "always"])
def test_the_schedule_is_its_formula(monkeypatch, name):
    """Whatever is known of circulant products, and of rounds that hardly tell nodes apart any more."""
    monkeypatch.setattr(module, "SAME", 1e-7)
    net, rounds = NETWORKS[name], 30
    bounds = np.random.default_rng(0).uniform(0, 1, rounds)
    noise = np.where(np.arange(rounds) < 20, 0.02, 0.002)
    W = matrices(net, rounds, "a schedule")
    for start in (0.0, 3.0):
        known = {"failure": FAILURE, "start": start, "rounding": 1e-3}
        found = certified(W, bounds, noise, 3, **known)
        plain = reference.certified([W(t) for t in range(rounds)], bounds, noise, 3, **known)
        assert (found >= plain * (1 - 1e-12)).all()
        np.testing.assert_allclose(found, plain, rtol=1e-6)
        few = certified(W, bounds[:7], noise[:7], 3, **known)  # which does not depend on how long it goes on
        np.testing.assert_allclose(few, found[:7], rtol=1e-6)


def test_distances_the_estimate_and_the_tail_by_hand(monkeypatch):
    x = np.random.default_rng(1).standard_normal((9, 40)).astype(np.float32)
    for device, most in (("cpu", 2**16), ("gpu", 0), ("cpu", 100)):  # pairs of rows whole, several together, in pieces
        monkeypatch.setattr(jax, "default_backend", lambda device=device: device)
        monkeypatch.setattr(module, "_NUMBERS", most)
        assert float(module.real(jnp.asarray(x))) == pytest.approx(farthest(x), rel=1e-6)
    for past in (1e-4, 3.0, 40.0):
        eta = module._excess(past)
        assert eta - math.log1p(eta) == pytest.approx(past, rel=1e-9)
    told = {"constant": 0.5, "contraction": 0.25}
    one = [jnp.asarray(v, jnp.float32) for v in ([2.0, 0.0], [4.0, 8.0], [1.0, 3.0], [10.0, 20.0])]
    np.testing.assert_allclose(module.published(*one, jnp.bool_(True), **told), [11.0, 23.0])
    np.testing.assert_allclose(module.published(*one, jnp.bool_(False), **told), [0.5 + 1 + 1, 0 + 3 + 2])


PROBLEM = Later(jdfl.problems.example1, m=6, n=4, s=2, rows=(5, 9))
CLIPPED = jdfl.Gradients(clip=1.0, per="batch", norm="l1")


def test_what_cannot_be_planned_is_refused(monkeypatch):
    random = nw.random_links(uneven(6), 0.5, weights="out-degree")
    for algorithm, net, *named in (
        (jdfl.SGP(dpps=jdfl.DPPS(b=1.0)), uneven(6), "clip"),
        (jdfl.SGP(gradients=CLIPPED, dpps=jdfl.DPPS(b=1.0)), random, "random links", "d_out"),
        (jdfl.SGP(gradients=CLIPPED, dpps=jdfl.DPPS(b=1e-9, noise_rate=1.0)), uneven(6), "1e+18", "noise"),
    ):
        with refused(*named):
            jdfl.run(algorithm, PROBLEM(), net, key=0, steps=30)
    monkeypatch.setattr(module, "MOST_WORK", 300.0)  # networks that are too large to follow
    with refused("circulant", m=6):
        jdfl.SGP(gradients=CLIPPED, dpps=jdfl.DPPS(b=1.0, noise_rate=1e-3)).plan(PROBLEM(), uneven(6), 30)


def test_a_certified_plan_names_both_relations_and_adds_its_schedule_up():
    net, steps, delta = uneven(6), 5, 1e-3
    dpps = jdfl.DPPS(b=40.0, noise_rate=1.0, failure=1e-6)
    algorithm, problem = jdfl.PartPSP(gradients=CLIPPED, dpps=dpps, milestones=(3,)), PROBLEM().replace(shared=2)
    told = jdfl.account_plan(algorithm, problem, net, steps=steps, delta=delta)
    scales = np.where(np.arange(steps) >= 3, 0.1, 1.0)
    schedule = np.asarray(planned(algorithm, problem, net, steps).plan.certified, float)
    z = tuple((scales * schedule / 40 / (2 * 0.1 * scales)).tolist())
    assert (told.unit, told.observer, told.sensitivity) == ("node", "all messages", pytest.approx(0.2))
    assert told.epsilon_pure == pytest.approx(sum(1 / one for one in z), rel=1e-5)
    assert told.epsilon == pytest.approx(jdfl.privacy.epsilon(jdfl.privacy.LaplaceSchedule(z), steps, delta), rel=1e-5)
    (other,) = told.beside
    assert (other["unit"], other["failure"]) == ("node-swap", 1e-6)
    swap = jdfl.privacy.LaplaceSchedule(tuple((scales / 40).tolist()))
    assert other["epsilon"] == pytest.approx(jdfl.privacy.epsilon(swap, steps, delta - 1e-6), rel=1e-5)


@pytest.mark.parametrize("algorithm", [jdfl.PEDFL, jdfl.AverageConsensus], ids=lambda kind: kind.__name__)
def test_rounds_that_send_nothing_new_cost_nothing(algorithm):
    """PEDFL sends a step in the round after it, average consensus its vector in the first round alone."""
    dpps, net = jdfl.DPPS(b=1.0, noise_rate=0.5), nw.d_out(6, 2)
    clip = {"clip": 3.0} if algorithm is jdfl.AverageConsensus else {"gradients": CLIPPED}
    program = planned(algorithm(dpps=dpps, **clip), PROBLEM(), net, 4)
    event = program.privacy(PROBLEM()).event
    counts = np.array(event.multipliers) < 1e9
    assert counts.tolist() == ([True] + 3 * [False] if "clip" in clip else [False] + 3 * [True])
    S = np.asarray(program.plan.certified, float)
    by_hand = 0.5 * S / (6.0 if "clip" in clip else 0.2)
    np.testing.assert_allclose(np.array(event.multipliers)[counts], by_hand[counts], rtol=1e-6)


def test_no_epsilon_for_what_is_no_bound():
    guess, real = (jdfl.SGP(gradients=CLIPPED, dpps=jdfl.DPPS(b=1.0, sensitivity=one)) for one in ("eq22", "real"))
    result = jdfl.run(guess, PROBLEM(), uneven(6), metrics=[], steps=2, key=0)
    assert (result.guarantee.event, result.guarantee.claimed) == (None, False)
    for accounting in ("sound", "paper"):
        with refused("certified"):
            jdfl.account(result, accounting=accounting)
        with refused("certified"):
            jdfl.account_plan(real, PROBLEM(), uneven(6), accounting=accounting, steps=2)
        told = summary(result, accounting=accounting)
        assert told["privacy"]["report"] is None
        assert "epsilon" not in summary_text(told).lower()
