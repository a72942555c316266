"""`experiments.theory`: what a run lacks is named, and a bound is above what was measured."""

import json
import math
from functools import cache
from typing import Any

import numpy as np
import pytest

import jdfl
from experiments.theory import theory
from experiments.theory.__main__ import main as state
from experiments.theory.doadp import Convergence, gamma_of, spectrum
from experiments.theory.statement import NAMES
from experiments.theory.theorem import Theorem
from jdfl.cli import main
from jdfl.problems import solved
from tests.refused import refused

M, T = 8, 40
RANDOM = np.random.default_rng(0)
PARTS = [(x / np.linalg.norm(x, axis=1, keepdims=True), np.arange(12) % 2) for x in RANDOM.normal(size=(M, 12, 5))]


@cache
def logistic() -> Any:
    """A problem with rows of norm one and no penalty, whose gradients are at most 1 long."""
    return solved(jdfl.problems.logistic_regression(PARTS, penalty=0.0))


@cache
def regression() -> Any:
    return jdfl.problems.example1(m=M, n=20, s=3, rows=(8, 12), seed=0)


def of(name: str, algorithm: Any, problem: Any, network: Any, **how: Any) -> Theorem:
    (found,) = theory(algorithm, problem, network, theorem=name, **({"steps": T} | how)).theorems
    return found


def conditions(one: Theorem) -> dict[str, bool | None]:
    return {each.name: each.holds for each in one.conditions}


@cache
def ring() -> Any:
    return jdfl.network.ring(M, weights="laplacian")


@cache
def out(degree: int) -> Any:
    return jdfl.network.d_out(M, degree)


SOUND = jdfl.CEPS(s=3, rate=1.0, periods=(4, 4), first="zero", own="always", sigma=1.0)


# CEPS


def test_a_run_that_fits_ceps_theorem_1_lacks_only_c_and_zeta():
    found = of("ceps-1", SOUND, regression(), jdfl.network.complete(M))
    assert found.missing == ("c >= c_0",)
    assert {name for name, holds in conditions(found).items() if holds is None} == {"Assumption 2"}
    (c,) = (one for one in found.conditions if one.name == "c >= c_0")
    ell = float(np.max(np.asarray(regression().curvature)))
    assert c.limit == pytest.approx(math.log10(M))  # sigma t_i, with t_i = m
    assert c.value == pytest.approx(2 * math.log10(80 * M * math.sqrt(ell) * M**M), rel=1e-6)
    assert found.says["log10 of m^2 c_0 zeta^2 / c at least, from the start"] is not None
    assert found.says["log10 of the bound"] is None


def test_a_hypothesis_of_ceps_theorem_1_that_is_missing_is_named():
    for changed, network, missing in (
        ({"periods": (4, 5)}, jdfl.network.complete(M), "kappa_i = k_0"),
        ({"first": "period"}, jdfl.network.complete(M), "step 0"),
        ({"own": "absent"}, jdfl.network.complete(M), "i in N_i^k"),
        ({}, jdfl.network.star(M), "m_i = m_j"),
        ({"sigma": None}, jdfl.network.complete(M), "sigma_i = c / t_i"),
        ({"codec": jdfl.OneBit(d=60)}, jdfl.network.complete(M), "Assumption 3"),
    ):
        found = of("ceps-1", SOUND.replace(**changed), regression(), network)
        assert missing in found.missing
        assert "does not speak of this run: missing " in found.statement().splitlines()[0]
    assert conditions(of("ceps-1", SOUND, regression(), jdfl.network.complete(M)))["Assumption 4"] is True
    assert (
        conditions(of("ceps-1", SOUND.replace(rate=0.5), regression(), jdfl.network.complete(M)))["Assumption 4"]
        is None
    )


def test_ceps_theorems_2_and_3_are_those_of_the_preset_and_assumption_5_fails():
    algorithm = jdfl.CEPS.paper(3, epsilon=0.5, one_bit=False)
    second = of("ceps-2", algorithm, regression(), jdfl.network.complete(M))
    assert second.says["epsilon"] == pytest.approx(0.5)
    assert second.missing == ("Assumption 5", "step 0")
    third = of("ceps-3", algorithm, regression(), jdfl.network.complete(M), steps=45)
    assert third.says["delta"] is not None
    assert third.says["delta"] >= 1
    assert of("ceps-3", SOUND, regression(), jdfl.network.complete(M)).missing == ("noise",)


# DPPS and PartPSP


SGP = jdfl.SGP(lr=1e-4, dpps=jdfl.DPPS(b=2.0, sensitivity="eq22"))


def test_a_hypothesis_of_dpps_theorem_1_that_is_missing_is_named():
    for dpps, network, missing in (
        (SGP.dpps, out(2), ("Lemma 2",)),
        (SGP.dpps.replace(constant=60.0, contraction=0.9), out(2), ()),
        (SGP.dpps.replace(b=None), out(2), ("Lemma 2", "noise")),
        (SGP.dpps, jdfl.network.star(M, weights="out-degree"), ("Definition 1", "Lemma 2")),
    ):
        found = of("dpps-1", SGP.replace(dpps=dpps), logistic(), network)
        assert found.missing == missing
        assert found.says["epsilon of a round"] == (None if dpps.b is None else pytest.approx(2000))
    late = SGP.replace(milestones=(10,), decay=0.1)  # the smallest rate counts
    assert of("dpps-1", late, logistic(), out(2)).says["epsilon of a round"] == pytest.approx(20_000)


def test_dpps_theorem_1_with_a_public_bound_says_how_likely_it_fails_and_nothing_of_broadcasts():
    clipped = SGP.replace(gradients=jdfl.Gradients(per="batch", norm="l1", clip=1.0))
    public = clipped.replace(dpps=SGP.dpps.replace(sensitivity="lemma2", failure=1e-3))
    found = of("dpps-1", public, logistic(), out(2))
    assert found.holds
    assert found.says["probability that S is too small in some round"] == pytest.approx(1e-3)
    assert "broadcast" not in found.note
    other = of("dpps-1", clipped, logistic(), out(2))
    assert "broadcast" in other.note
    assert len(other.says) == 2


def test_partpsp_theorem_2_has_a_bound_but_for_sigma_g():
    found = of("dpps-2", SGP.replace(dpps=jdfl.DPPS()), logistic(), out(4))
    assert found.missing == ()
    assert {name for name, holds in conditions(found).items() if holds is None} == {"Assumption 3"}
    assert found.says["(F(0) - F*) / T"] is not None
    large = of("dpps-2", SGP.replace(lr=0.5, milestones=(3,)), logistic(), out(4))
    assert set(large.missing) >= {"gamma_s", "constant step sizes"}
    clipped = SGP.replace(gradients=jdfl.Gradients(per="batch", norm="l1", clip=1.0), dpps=jdfl.DPPS(b=2.0))
    found = conditions(of("dpps-2", clipped, logistic(), out(4)))
    assert (found["Assumption 2 (d)"], found["Assumption 4"]) == (None, True)


# DO-ADP


def doadp(**changed: Any) -> jdfl.DOADP:
    W = np.asarray(jdfl.network.as_dense(ring().graph), float)
    gamma = gamma_of(*spectrum(W), 0.8)
    return jdfl.DOADP(
        **{"lr": 0.2, "gamma": gamma, "p": 0.8, "codec": jdfl.Dense(), "gradients": jdfl.Gradients(batch=1, clip=1.0)}
        | changed
    )


def test_a_run_that_fits_do_adp_theorem_2_stays_below_its_bound():
    algorithm, problem = doadp(), logistic()
    run = jdfl.run(algorithm, problem, ring(), key=0, steps=200, every=1, metrics=["gradient_norm"])
    found = of("do-adp-2", algorithm, problem, ring(), steps=None, result=run)
    assert found.missing == ()
    assert {name for name, holds in conditions(found).items() if holds is None} == {"Assumption 1 (ii)"}
    bound, measured = found.says["bound"], next(iter(found.measured.values()))
    assert bound is not None
    assert measured < bound
    assert measured == pytest.approx(float(np.mean(run.history["gradient_norm"] ** 2)))
    W = np.asarray(jdfl.network.as_dense(ring().graph), float)
    rho, phi = spectrum(W)
    gap = math.log(2) - float(problem.optimum.value)
    smooth = float(np.max(np.asarray(problem.curvature)))
    at = Convergence(M, 5, 200, 0.8, 1.0, rho, phi, 0.2, float(algorithm.gamma), 0.15, smooth, 1.0, 1.0, 0.0, gap)
    assert bound == pytest.approx(sum(one or 0 for one in at.terms(0.2)), rel=1e-5)


def test_a_hypothesis_of_do_adp_theorem_2_that_is_missing_is_named():
    for changed, missing in (({"gamma": 0.9}, "gamma"), ({"lr": 30.0}, "alpha"), ({"codec": jdfl.LowRank()}, "Top_k")):
        assert missing in of("do-adp-2", doadp(**changed), logistic(), ring()).missing


def test_without_a_clip_assumption_2_is_unknown_and_with_a_penalty_it_fails():
    bare = of("do-adp-2", doadp(gradients=jdfl.Gradients(batch=1)), logistic(), ring())
    assert conditions(bare)["Assumption 2"] is None
    assert bare.says["bound"] is None
    assert conditions(of("do-adp-2", doadp(), logistic().replace(penalty=0.1), ring()))["Assumption 2"] is False


def test_do_adp_theorem_1_states_its_epsilon_or_what_is_missing():
    noisy = jdfl.Gradients(batch=1, clip=1.0, mechanism=jdfl.Gaussian(2.0))
    found = of("do-adp-1", doadp(gradients=noisy), logistic(), ring())
    theorem = doadp().theorem(logistic(), T)
    assert theorem is not None
    assert found.says["epsilon"] == pytest.approx(theorem.epsilon(4.0))
    assert "Assumption 2" in found.missing  # l2 clipping bounds no entry by G / sqrt(d)
    entries = jdfl.Gradients(batch=1, clip=0.5, norm="entries", mechanism=jdfl.Gaussian(2.0))
    assert "Assumption 2" not in of("do-adp-1", doadp(gradients=entries), logistic(), ring()).missing
    assert of("do-adp-1", doadp(), logistic(), ring()).missing == ("Assumption 2", "Algorithm 1")


# The front door


def test_all_eight_speak_of_some_run():
    runs = [(SOUND, regression(), jdfl.network.complete(M)), (SGP, logistic(), out(2)), (doadp(), logistic(), ring())]
    found = [one for run in runs for one in theory(*run, steps=T).theorems]
    assert tuple(one.name for one in found) == NAMES


def test_theorems_about_other_algorithms_and_runs_without_a_length_are_refused():
    for algorithm, theorem, named in (
        (jdfl.DPSGD(), None, "hypothesis"),
        (jdfl.DPSGD(), "ceps-1", "d-psgd"),
        (SGP, "ceps-1", "CEPS"),
        (jdfl.PEDFL(), "dpps-2", "PartPSP"),
        (SOUND, "do-adp-corollary-1", "DO-ADP"),
    ):
        with refused(named):
            theory(algorithm, logistic(), jdfl.network.complete(M), steps=T, theorem=theorem)
    with refused("steps", "result"):
        theory(SOUND, regression(), jdfl.network.complete(M))


def test_the_command_states_a_finished_run_and_a_planned_one(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    flags = ["--problem.m", "4", "--problem.n", "20", "--problem.s", "2", "--steps", "8"]
    flags += ["--algorithm", "do-adp", "--network", "ring", "--network.weights", "laplacian", "--stop", "none"]
    assert main(["run", *flags, "--metrics", "gradient_norm", "--folder", str(tmp_path / "one"), "--quiet"]) == 0
    capsys.readouterr()
    assert state([str(tmp_path / "one"), "--theorem", "do-adp-2"]) == 0
    out = capsys.readouterr().out
    assert "DO-ADP, Theorem 2 (do-adp-2): " in out
    assert "measured: mean ||grad f||^2 of" in out
    assert state([*flags, "--json"]) == 0
    assert list(json.loads(capsys.readouterr().out)) == ["do-adp-1", "do-adp-2", "do-adp-corollary-1"]
    assert state([str(tmp_path / "one"), "--theorem", "ceps-1"]) == 2
    assert "Algorithm 1 of the CEPS paper, is missing" in capsys.readouterr().err
    assert state([str(tmp_path / "one"), "--steps", "9"]) == 2
    assert "got other ones of steps" in capsys.readouterr().err
    assert state([str(tmp_path / "none")]) == 2


def test_rules_that_are_ours_are_no_hypotheses_of_the_papers():
    ring = jdfl.network.ring(6)
    problem = jdfl.problems.example1(m=6, n=20, s=3, rows=(20, 30), seed=0)
    ceps = jdfl.CEPS(s=3, storage="sparse", unselected="stored", codec=jdfl.Sparse())
    assert "(3)" in theory(ceps, problem, ring, steps=5, theorem="ceps-1").theorems[0].missing
    assert "(3)" not in theory(jdfl.CEPS(s=3), problem, ring, steps=5, theorem="ceps-1").theorems[0].missing
    held = jdfl.DOADP(trigger=0.1)
    for name in ("do-adp-2", "do-adp-corollary-1"):
        assert "(5d)" in theory(held, problem, ring, steps=5, theorem=name).theorems[0].missing
        assert "(5d)" not in theory(jdfl.DOADP(), problem, ring, steps=5, theorem=name).theorems[0].missing
