"""Exact noise: its tables, its levels, its grid, what it claims, and what it refuses."""

import math
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import jdfl
from jdfl import privacy, testing
from jdfl.algorithms.program import planned
from jdfl.base.keys import typed_key
from jdfl.privacy import ExactGaussian, Gaussian, GaussianEvent, Ledger, exact
from jdfl.privacy.accounting import delta_for_noise, slips_paid
from jdfl.privacy.ledger import total_epsilon
from tests.later import Later
from tests.refused import refused

KEY = Later(typed_key, 3)
LEVEL = 64, 100
CLIPPED = jdfl.Gradients(clip=1.0, mechanism=ExactGaussian(2.0))


def probabilities(sd: float, most: int) -> np.ndarray:
    """Those of a discrete Gaussian at -most, ..., most."""
    found = np.exp(-np.square(np.arange(-most, most + 1)) / (2 * sd**2))
    return found / found.sum()


@pytest.mark.parametrize("sd", LEVEL)
def test_cells_give_every_weight_exactly(sd):
    """As whole numbers: what is below the threshold of a cell is its own, the rest its alias's."""
    weights, off = exact.weights(sd)
    assert sum(weights) == 2**64
    assert off <= exact.SLIP
    given_to = [0] * 2048
    for cell, (high, low) in enumerate(zip(*exact.table(sd))):
        alias, threshold = int(high) >> 21, ((int(high) & (2**21 - 1)) << 32) + int(low)
        given_to[cell] += threshold
        given_to[alias] += 2**53 - threshold
    assert given_to == weights
    np.testing.assert_allclose(np.array(weights) / 2**64, probabilities(sd, 1024)[:-1], rtol=1e-9, atol=2.0**-64)


@pytest.mark.parametrize("sd", LEVEL)
def test_a_number_is_its_cells_own_below_the_threshold_and_anothers_from_it(monkeypatch, sd):
    high, low = (part.astype(np.int64) for part in exact.table(sd))
    threshold = ((high & (2**21 - 1)) << 32) + low
    for off, own in ((-1, True), (0, False)):
        limit = threshold + off
        fits = (limit >= 0) & (limit < 2**53)
        drawn = (np.arange(2048) << 21) + (limit >> 32), limit & 0xFFFFFFFF
        blocks = [jnp.asarray(one[fits].astype(np.uint32)) for one in drawn]
        monkeypatch.setattr(exact, "words", lambda *_, blocks=blocks: blocks)
        expected = np.arange(2048) if own else high >> 21
        np.testing.assert_array_equal(exact.level(KEY(), int(fits.sum()), sd) + 1024, expected[fits])


@pytest.mark.parametrize("sd", LEVEL)
def test_draws_follow_a_discrete_gaussian(sd):
    """By the mean squares of the numbers of draws, in standard deviations, where a hundred or more are expected."""
    drawn = np.asarray(jax.jit(partial(exact.level, n=2**20, sd=sd))(KEY()))
    assert np.abs(drawn).max() <= 1024
    found = np.bincount(drawn + 1024, minlength=2049)
    for spread, most in ((sd, 4), (1.02 * sd, np.inf)):  # what is off by two in a hundred is seen
        expected = probabilities(spread, 1024) * len(drawn)
        squares = (np.square(found - expected) / np.maximum(expected, 1))[expected >= 100]
        off = (squares.mean() - 1) * math.sqrt(len(squares) / 2)
        assert abs(off) < 4 if most == 4 else off > 10


@given(
    arrays.arrays(np.float32, 6, elements=st.floats(-50, 50, width=32)),
    arrays.arrays(np.float32, 6, elements=st.floats(-1, 1, width=32)),
    st.floats(0.05, 20),
)
def test_what_noise_is_added_to_moves_no_further_than_it_hides(x, change, multiplier):
    """In steps of the grid, neighbours differ by the noise's spread over the multiplier at most."""
    seen, D = [], 1.0 + 200 * float(np.finfo(np.float32).eps)  # what callers count for rounding
    change = change / max(1.0, float(np.linalg.norm(change.astype(np.float64))) * (1 + 1e-6))
    mechanism = ExactGaussian(multiplier)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact, "discrete_gaussian", lambda key, n, levels: jnp.zeros(n, jnp.int32))
        rounded = exact._rounded
        patch.setattr(exact, "_rounded", lambda *x: seen.append(np.asarray(rounded(*x), np.float64)) or rounded(*x))
        for one in (x, (x.astype(np.float64) + change).astype(np.float32)):
            mechanism.add(KEY(), jnp.asarray(one), D + 6 * float(np.spacing(np.float32(51))))
    levels = mechanism.levels(6)
    assert np.linalg.norm(seen[0] - seen[1]) * multiplier <= math.sqrt(exact.spread(levels) ** 2 - 4)


def test_levels_add_up_to_one_discrete_gaussian():
    """N_1 + 32 N_2, in the place of a longer table."""
    one, two = probabilities(64, 20 * 64), probabilities(100, 10 * 100)
    spaced = np.zeros((len(two) - 1) * 32 + 1)
    spaced[::32] = two
    found = np.convolve(one, spaced)
    assert exact.spread(2) == math.hypot(64, 32 * 100)
    assert np.abs(found - probabilities(exact.spread(2), len(found) // 2)).sum() < 2e-12


def test_noise_has_the_spread_that_it_says_on_one_grid_whatever_it_is_added_to():
    mechanism, n = ExactGaussian(2.0), 2**18
    noisy = np.asarray(jax.jit(mechanism.add)(KEY(), jnp.zeros(n), 0.5), np.float64)
    scale = mechanism.scale(n)
    assert abs(noisy.std() / (0.5 * scale) - 1) < 4 / math.sqrt(2 * n)
    assert 2.0 < scale < 2.0 * 1.0102
    # The bits of floating-point noise depend on what it is added to; these are whole numbers times gamma.
    mechanism, n = ExactGaussian(50.0), 12
    add = jax.jit(jax.vmap(mechanism.add, (0, None, None)))
    keys = jax.random.split(KEY(), 500)
    worlds = [np.asarray(add(keys, jnp.full(n, value), 1.0)) for value in (0.0, 1 / math.sqrt(n))]
    levels = mechanism.levels(n)
    step = 50.0 / (math.sqrt(exact.spread(levels) ** 2 - 4) - 50.0 * math.sqrt(n)) * (1 + 2.0**-20)
    for world in worlds:
        whole = np.round(world / np.float32(step)).astype(np.float32)
        np.testing.assert_array_equal(whole * np.float32(step), world)
    for sensitivity in (np.nan, 0.0, 1e-44, 1e-36):
        assert np.isnan(ExactGaussian(1.0).add(KEY(), jnp.arange(5.0) / 3, jnp.float32(sensitivity))).all()


@pytest.mark.parametrize("kind", [jdfl.DPSGD, jdfl.DSGT])
def test_a_release_may_slip_in_every_level_of_every_number(kind):
    problem = testing.small_problem()
    told = planned(kind(lr=0.1, gradients=CLIPPED), problem, testing.small_network(), 5).privacy(problem)
    assert told.claimed
    assert told.event == GaussianEvent(2.0, exact.SLIP * 2 * problem.n)


def planned_for(mechanism):
    """The report of five rounds, which is that of a run."""
    algorithm = jdfl.DPSGD(lr=0.01, gradients=replace(CLIPPED, mechanism=mechanism))
    return jdfl.account_plan(algorithm, testing.small_problem(), testing.small_network(), steps=5, delta=1e-3)


def test_epsilon_is_that_of_continuous_noise_and_little_more():
    here, there = map(planned_for, (ExactGaussian(2.0), Gaussian(2.0)))
    assert there.epsilon < here.epsilon < there.epsilon * (1 + 1e-6)
    assert there.epsilon_rdp < here.epsilon_rdp < there.epsilon_rdp * (1 + 1e-6)
    assert there.sensitivity < here.sensitivity < there.sensitivity * (1 + 1e-4)
    assert "void against an observer of the bits" in there.statement()
    assert "void" not in here.statement()


@settings(max_examples=6)
@given(st.floats(-60, -20), st.integers(1, 1000), st.floats(-6, -2))
def test_slips_are_paid_for_by_delta(slip, releases, delta):
    """delta >= delta' + (1 + e^epsilon) slips, with epsilon that of delta' and less noise than is there never."""
    slip, delta = 2.0**slip, 10.0**delta
    plain, off = GaussianEvent(4 * math.sqrt(releases)), GaussianEvent(4 * math.sqrt(releases), slip)
    here, there = (privacy.epsilon(one, releases, delta) for one in (off, plain))
    assert here >= there
    if math.isfinite(here):
        left = delta - (1 + math.exp(here)) * releases * slip
        assert left > 0
        assert privacy.epsilon(plain, releases, left) <= here + 1e-12
    else:
        assert 4 * (1 + math.exp(there)) * releases * slip > delta / 2


def test_slips_of_several_runs_add_up():
    def ledger(slip):
        counts = np.array([100]), np.array([50])
        return Ledger(GaussianEvent(40.0, slip), "replace-one", None, *counts, "record", "all messages", True)

    plain, off, much = ([ledger(slip)] * 3 for slip in (0.0, 1e-12, 1e-6))
    assert total_epsilon(plain, 1e-5) < total_epsilon(off, 1e-5) < math.inf == total_epsilon(much, 1e-5)
    assert Ledger.from_dict(ledger(1e-12).as_dict()).event.slip == 1e-12
    assert slips_paid(lambda *_: {"RDP": 1.0}, GaussianEvent(1.0, 1e-7), 100, 1e-5) == {"RDP": math.inf}
    with refused("exact noise"):
        delta_for_noise(GaussianEvent(1.0, 1e-12), 1000, 1e-6, 30.0)


@pytest.mark.parametrize("q", [40, 700])
def test_float_sums_of_neighbours_are_no_further_apart_than_is_counted(q):
    """All gradients are as long as the clip allows and point the same way: their sum is long beside a change of one."""
    draw = np.random.default_rng(q)
    A, b = draw.standard_normal((1, q, 6)).astype(np.float32), np.full((1, q), -1e3, np.float32)
    A = np.abs(A)
    found = []
    for sign in (-1, 1):
        b[0, 0] = 1e3 * sign
        problem = jdfl.problems.linear_regression(A, b)
        given = jnp.zeros((1, 6)), problem.data, problem.weight, problem.weight.sum(axis=1)
        found.append(np.asarray(jax.jit(partial(CLIPPED.parted, problem))(*given)[0], np.float64))
    kinds = [replace(CLIPPED, mechanism=one(1.0)) for one in (ExactGaussian, Gaussian)]
    D, plain = (float(one.sensitivities(problem)[0]) for one in kinds)
    apart = np.linalg.norm(found[0] - found[1])
    assert 0.99 * plain < apart <= D


def test_exact_noise_that_would_not_be_is_refused():
    for gradients, named in (
        (jdfl.Gradients(sensitivity=1.0, mechanism=ExactGaussian(1.0)), "clip"),
        (replace(CLIPPED, noisy="communicating"), "noisy"),
        (replace(CLIPPED, mechanism=ExactGaussian(1e5)), "entries"),
        (replace(CLIPPED, mechanism=ExactGaussian(-1.0)), "multiplier"),
    ):
        with refused(named):
            jdfl.run(jdfl.DPSGD(gradients=gradients), testing.small_problem(), testing.small_network(), steps=1)
    with refused(trust="local"):
        jdfl.Updates(clip=1.0, mechanism=ExactGaussian(1.0), trust="central").check(jdfl.Gradients())
    problem = jdfl.problems.linear_regression(np.ones((2, 9000, 3)), np.ones((2, 9000)))
    with refused("9000", "float64", "batch"):  # sums that rounding moves too far
        CLIPPED.check(problem)
    replace(CLIPPED, batch=100, sampling="subset").check(problem)
