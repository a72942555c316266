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
SOUND = jdfl.CEPS(s=3, rate=1.0, periods=(4, 4), first="zero", own="always", sigma=1.0)
SGP = jdfl.SGP(lr=1e-4, dpps=jdfl.DPPS(b=2.0, sensitivity="eq22"))
LATE = SGP.replace(milestones=(10,), decay=0.1)
CLIPPED = SGP.replace(gradients=jdfl.Gradients(per="batch", norm="l1", clip=1.0))
NOISY = jdfl.Gradients(batch=1, clip=1.0, mechanism=jdfl.Gaussian(2.0))


@cache
def world(kind: type) -> tuple[Any, Any]:
    """A problem and a network as the theorems about a method assume; gradients of the logistic one are at most 1."""
    if kind is jdfl.CEPS:
        return jdfl.problems.example1(m=M, n=20, s=3, rows=(8, 12), seed=0), jdfl.network.complete(M)
    if kind is jdfl.DOADP:
        return world(jdfl.SGP)[0], jdfl.network.ring(M, weights="laplacian")
    return solved(jdfl.problems.logistic_regression(PARTS, penalty=0.0)), jdfl.network.d_out(M, 2)


def of(name: str, algorithm: Any, problem: Any = None, network: Any = None, **how: Any) -> Theorem:
    usual = world(type(algorithm))
    given = usual[0] if problem is None else problem, usual[1] if network is None else network
    (found,) = theory(algorithm, *given, theorem=name, **({"steps": T} | how)).theorems
    return found


def conditions(one: Theorem) -> dict[str, bool | None]:
    return {each.name: each.holds for each in one.conditions}


def unknown(one: Theorem) -> set[str]:
    return {name for name, holds in conditions(one).items() if holds is None}


@cache
def links() -> tuple[float, float]:
    return spectrum(np.asarray(jdfl.network.as_dense(world(jdfl.DOADP)[1].graph), float))


def doadp(**changed: Any) -> jdfl.DOADP:
    fits = {"lr": 0.2, "gamma": gamma_of(*links(), 0.8), "p": 0.8, "codec": jdfl.Dense()}
    return jdfl.DOADP(**fits | {"gradients": jdfl.Gradients(batch=1, clip=1.0)} | changed)


def test_a_hypothesis_that_is_missing_is_named():
    star = jdfl.network.star(M, weights="out-degree")
    for name, algorithm, network, missing in (
        ("ceps-1", SOUND.replace(periods=(4, 5)), None, "kappa_i = k_0"),
        ("ceps-1", SOUND.replace(first="period"), None, "step 0"),
        ("ceps-1", SOUND.replace(own="absent"), None, "i in N_i^k"),
        ("ceps-1", SOUND.replace(sigma=None), None, "sigma_i = c / t_i"),
        ("ceps-1", SOUND.replace(codec=jdfl.OneBit(d=60)), None, "Assumption 3"),
        ("ceps-1", SOUND.replace(storage="sparse", unselected="stored", codec=jdfl.Sparse()), None, "(3)"),
        ("ceps-1", SOUND, jdfl.network.star(M), "m_i = m_j"),
        ("ceps-3", SOUND, None, "noise"),
        ("dpps-1", SGP, None, "Lemma 2"),
        ("dpps-1", SGP.replace(dpps=SGP.dpps.replace(b=None)), None, "noise"),
        ("dpps-1", SGP, star, "Definition 1"),
        ("dpps-2", SGP.replace(lr=0.5), None, "gamma_s"),
        ("dpps-2", LATE, None, "constant step sizes"),
        ("do-adp-1", doadp(), None, "Algorithm 1"),
        ("do-adp-1", doadp(gradients=NOISY), None, "Assumption 2"),  # l2 clipping bounds no entry by G / sqrt(d)
        ("do-adp-2", doadp(gamma=0.9), None, "gamma"),
        ("do-adp-2", doadp(lr=30.0), None, "alpha"),
        ("do-adp-2", doadp(codec=jdfl.LowRank()), None, "Top_k"),
        ("do-adp-corollary-1", doadp(trigger=0.1), None, "(5d)"),
    ):
        found = of(name, algorithm, network=network)
        assert missing in found.missing
        assert "does not speak of this run: missing " in found.statement().splitlines()[0]


def test_a_run_that_fits_ceps_theorem_1_lacks_only_c_and_zeta():
    found = of("ceps-1", SOUND)
    assert found.missing == ("c >= c_0",)
    assert unknown(found) == {"Assumption 2"}
    (c,) = (one for one in found.conditions if one.name == "c >= c_0")
    ell = float(np.max(np.asarray(world(jdfl.CEPS)[0].curvature)))
    assert c.limit == pytest.approx(math.log10(M))  # sigma t_i, with t_i = m
    assert c.value == pytest.approx(2 * math.log10(80 * M * math.sqrt(ell) * M**M), rel=1e-6)
    assert found.says["log10 of m^2 c_0 zeta^2 / c at least, from the start"] is not None
    assert found.says["log10 of the bound"] is None
    assert "Assumption 4" in unknown(of("ceps-1", SOUND.replace(rate=0.5)))


def test_ceps_theorems_2_and_3_are_those_of_the_preset_and_assumption_5_fails():
    algorithm = jdfl.CEPS.paper(3, epsilon=0.5, one_bit=False)
    second = of("ceps-2", algorithm)
    assert second.says["epsilon"] == pytest.approx(0.5)
    assert second.missing == ("Assumption 5", "step 0")
    third = of("ceps-3", algorithm, steps=45)
    assert third.says["delta"] is not None
    assert third.says["delta"] >= 1


def test_dpps_theorem_1_states_its_epsilon_and_how_likely_a_public_bound_fails():
    known = of("dpps-1", SGP.replace(dpps=SGP.dpps.replace(constant=60.0, contraction=0.9)))
    assert known.missing == ()
    assert known.says["epsilon of a round"] == pytest.approx(2000)
    assert of("dpps-1", LATE).says["epsilon of a round"] == pytest.approx(20_000)  # the smallest rate counts
    public = of("dpps-1", CLIPPED.replace(dpps=SGP.dpps.replace(sensitivity="lemma2", failure=1e-3)))
    assert public.holds
    assert public.says["probability that S is too small in some round"] == pytest.approx(1e-3)
    assert ("broadcast" in public.note, "broadcast" in of("dpps-1", CLIPPED).note) == (False, True)


def test_partpsp_theorem_2_has_a_bound_but_for_sigma_g():
    found = of("dpps-2", SGP.replace(dpps=jdfl.DPPS()), network=jdfl.network.d_out(M, 4))
    assert found.missing == ()
    assert unknown(found) == {"Assumption 3"}
    assert found.says["(F(0) - F*) / T"] is not None
    clipped = conditions(of("dpps-2", CLIPPED.replace(dpps=jdfl.DPPS(b=2.0))))
    assert (clipped["Assumption 2 (d)"], clipped["Assumption 4"]) == (None, True)


def test_a_run_that_fits_do_adp_theorem_2_stays_below_its_bound():
    algorithm, (problem, network) = doadp(), world(jdfl.DOADP)
    run = jdfl.run(algorithm, problem, network, key=0, steps=200, every=1, metrics=["gradient_norm"])
    found = of("do-adp-2", algorithm, steps=None, result=run)
    assert found.missing == ()
    assert unknown(found) == {"Assumption 1 (ii)"}
    bound, measured = found.says["bound"], next(iter(found.measured.values()))
    assert bound is not None
    assert measured < bound
    assert measured == pytest.approx(float(np.mean(run.history["gradient_norm"] ** 2)))
    gap = math.log(2) - float(problem.optimum.value)
    smooth = float(np.max(np.asarray(problem.curvature)))
    at = Convergence(M, 5, 200, 0.8, 1.0, *links(), 0.2, float(algorithm.gamma), 0.15, smooth, 1.0, 1.0, 0.0, gap)
    assert bound == pytest.approx(sum(one or 0 for one in at.terms(0.2)), rel=1e-5)
    bare = of("do-adp-2", doadp(gradients=jdfl.Gradients(batch=1)))
    assert (conditions(bare)["Assumption 2"], bare.says["bound"]) == (None, None)
    assert conditions(of("do-adp-2", algorithm, problem.replace(penalty=0.1)))["Assumption 2"] is False


def test_do_adp_theorem_1_states_its_epsilon():
    theorem = doadp().theorem(world(jdfl.DOADP)[0], T)
    assert theorem is not None
    assert of("do-adp-1", doadp(gradients=NOISY)).says["epsilon"] == pytest.approx(theorem.epsilon(4.0))
    entries = jdfl.Gradients(batch=1, clip=0.5, norm="entries", mechanism=jdfl.Gaussian(2.0))
    assert "Assumption 2" not in of("do-adp-1", doadp(gradients=entries)).missing


def test_all_eight_speak_of_some_run_and_others_are_refused():
    found = [one for each in (SOUND, SGP, doadp()) for one in theory(each, *world(type(each)), steps=T).theorems]
    assert tuple(one.name for one in found) == NAMES
    for algorithm, theorem, named in (
        (jdfl.DPSGD(), None, "hypothesis"),
        (jdfl.DPSGD(), "ceps-1", "d-psgd"),
        (SGP, "ceps-1", "CEPS"),
        (jdfl.PEDFL(), "dpps-2", "PartPSP"),
        (SOUND, "do-adp-corollary-1", "DO-ADP"),
    ):
        with refused(named):
            of(theorem, algorithm)
    with refused("steps", "result"):
        of("ceps-1", SOUND, steps=None)


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
    for wrong, said in ((["--theorem", "ceps-1"], "Algorithm 1 of the CEPS paper"), (["--steps", "9"], "of steps")):
        assert state([str(tmp_path / "one"), *wrong]) == 2
        assert said in capsys.readouterr().err
