"""Lemma 2 of the DPPS paper with constants that hold: the constants, the schedule made of them, and planted bugs."""

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

import jdfl
from jdfl import network as nw
from jdfl.algorithms.program import planned
from jdfl.network import matrices
from jdfl.privacy import sensitivity as module
from jdfl.privacy.sensitivity import lemma2, lemma2_constants
from tests.later import Named
from tests.privacy.test_sensitivity import CLIPPED, COURSES, FAILURE, PROBLEM, course
from tests.refused import refused

NETWORKS = Named(
    {
        "2-out": lambda: nw.d_out(10, 2),
        "2-out, synchronised": lambda: nw.synchronised(nw.d_out(8, 2), 4),
        "ring": lambda: nw.ring(5),
        "always": lambda: nw.synchronised(nw.d_out(4, 2), 1),
    }
)


def of(net, rounds):
    """The matrices of the first rounds."""
    W = matrices(net, rounds, "the law")
    return [W(t) for t in range(rounds)]


@pytest.mark.parametrize("name", NETWORKS)
def test_no_product_differs_by_more_than_the_constants_say(name):
    """From every first round, over 40 rounds; the smallest C is attained."""
    W = of(NETWORKS[name], 60)
    N = len(W[0])
    constant, contraction = lemma2_constants(W)
    assert 0 < contraction < 1
    shares = []
    for k in range(20):
        product = np.eye(N)
        for r in range(40):
            shares.append(np.abs(product - 1 / N).max() / (constant / N * contraction**r + 1e-15))
            product = W[k + r] @ product
    assert 0.999 < max(shares) <= 1


def test_the_constants_by_hand(monkeypatch):
    """One mean of all: 1 - 1/N at r = 0, and nothing later. A network that halves differences: lambda = 1/2."""
    assert lemma2_constants([np.full((4, 4), 0.25)])[0] == pytest.approx(4 * 0.75)
    half = 0.5 * np.eye(2) + 0.25
    constant, contraction = lemma2_constants([half])
    assert constant == pytest.approx(2 * 0.5, rel=1e-6)
    assert contraction == pytest.approx(0.5, abs=2e-3)
    assert lemma2_constants([np.eye(1)])[0] == 0
    monkeypatch.setattr(module, "MOST_WORK", 1e5)
    for W, *named in ((np.array([[1.5, -0.5], [-0.5, 1.5]]), "sum to one"), (np.eye(3), "N = 3", "synchronise")):
        with refused(*named):
            lemma2_constants([W])
    with refused("clip", "'lemma2'"):
        jdfl.run(jdfl.SGP(dpps=jdfl.DPPS(b=1.0, sensitivity="lemma2")), PROBLEM(), nw.d_out(6, 2), steps=3)


@hypothesis.settings(max_examples=6)
@given(name=st.sampled_from(["2-out", "2-out, synchronised"]), **COURSES)
@hypothesis.example(name="2-out", kind="halves", noise=0.0, start=5.0, falls=False, seed=0)
@hypothesis.example(name="2-out, synchronised", kind="halves", noise=0.03, start=0.0, falls=True, seed=0)  # a cycle
def test_the_schedule_is_never_below_the_true_distance(name, kind, noise, start, falls, seed):
    net = nw.d_out(10, 2) if name == "2-out" else nw.synchronised(nw.d_out(8, 2), 4)
    course(net, kind, min(noise, 2e-3) if name == "2-out" else noise, start, falls, seed, sensitivity="lemma2")


@pytest.mark.parametrize("name", ["2-out", "2-out, synchronised"])
def test_the_schedule_is_its_formula(name):
    """Sums over all rounds since the last mean, in the place of the recursion."""
    rounds, d, known = 17, 3, {"failure": FAILURE, "start": 3.0, "rounding": 1e-4}
    W = of(NETWORKS[name], rounds)
    N, (constant, contraction) = len(W[0]), lemma2_constants(W)
    bounds, noise = np.random.default_rng(0).uniform(0, 1, rounds), np.where(np.arange(rounds) < 9, 0.02, 0.002)
    found = lemma2(lambda t: W[t], bounds, noise, d, **known)
    means = [t for t in range(rounds) if np.allclose(W[t], 1 / N, rtol=0, atol=1e-12)]
    lengths, steps = [], []
    for t in range(rounds):
        reached = 3.0 + bounds[: t + 1].sum() + sum(lengths)
        first = max((k + 1 for k in means if k < t), default=0)
        past = sum(contraction ** (t - k) * (steps[k] + lengths[k]) for k in range(first, t))
        S = 2 * constant * (past + bounds[t] + 1e-4 * reached)
        assert found[t] == pytest.approx(S, rel=1e-9)
        eta = module._excess(np.log(N * (np.pi * (t + 1)) ** 2 / (6 * FAILURE)) / d)
        lengths.append((1 + eta) * d * noise[t] * S)
        steps.append(bounds[t] + 1e-4 * (reached + lengths[-1]))


def test_it_claims_what_certified_claims_with_its_own_schedule():
    net, steps = nw.d_out(6, 2), 5
    kinds = [jdfl.SGP(gradients=CLIPPED, dpps=jdfl.DPPS(b=40.0, sensitivity=one)) for one in ("certified", "lemma2")]
    programs = [planned(one, PROBLEM(), net, steps) for one in kinds]
    first, second = (program.privacy(PROBLEM()) for program in programs)
    assert second.claimed
    assert second.sensitivity == first.sensitivity
    ratio = np.asarray(programs[1].plan.certified, float) / np.asarray(programs[0].plan.certified, float)
    np.testing.assert_allclose(np.divide(second.event.multipliers, first.event.multipliers), ratio, rtol=1e-5)
    assert second.beside[0].event == first.beside[0].event  # b / gamma_n of a round
    assert second.beside[0].failure == 1e-6
