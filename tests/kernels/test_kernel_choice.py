"""Runs that ask for kernels of our own: what they record, what they refuse, and that others do not change."""

import json
from functools import cache
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import jdfl
from jdfl import testing
from jdfl.base.backend import interpreted, kernels, target, with_kernels
from jdfl.cli import main
from jdfl.engine.own_kernels import form_of
from jdfl.engine.start import execution, started

CHOCO = jdfl.CHOCO(codec=jdfl.codecs.Sparse(3))
GOSSIP = jdfl.DPSGD(lr=0.1, gradients=jdfl.Gradients(batch=2))
WITH = jdfl.Options(kernels=True)


@cache
def problem():
    return testing.small_problem()


def run(algorithm=CHOCO, **how):
    given = {"steps": 4, "key": 3, "metrics": (), **how}
    return jdfl.run(algorithm, problem(), testing.small_network(), **given)


def with_kernels_of(algorithm=CHOCO, **how):
    with interpreted():
        return run(algorithm, **{"options": WITH, **how})


def test_a_run_asks_for_them_and_its_provenance_names_them():
    result, plain = with_kernels_of(), run()
    assert "top_s" in result.provenance.settings["kernels"].split(", ")
    assert result.provenance.hash != plain.provenance.hash
    np.testing.assert_allclose(result.params, plain.params, rtol=1e-5, atol=1e-7)
    np.testing.assert_array_equal(np.asarray(result.params) == 0, np.asarray(plain.params) == 0)
    assert result.sums == plain.sums
    for other in (plain, run()):  # neither program has taken the place of the other
        assert "kernels" not in other.provenance.settings
        np.testing.assert_array_equal(other.params, plain.params)


def test_where_none_fits_that_is_recorded():
    choco, problem, network = CHOCO, testing.small_problem(dtype=np.float32), testing.small_network()
    with interpreted():
        spread = jdfl.run(
            choco, problem, network, key=0, steps=2, metrics=(), options=jdfl.Options(kernels=True, devices=2)
        )
    assert spread.provenance.settings["kernels"] == "none"
    alone = with_kernels_of(jdfl.LocalOnly(gradients=jdfl.Gradients(clip=1.0)), steps=1)
    assert alone.provenance.settings["kernels"] == "none"


def test_a_backend_without_kernels_is_refused_before_the_run():
    words = r"Expected a GPU with options.kernels = True, got the backend 'cpu'. Leave kernels out"
    with pytest.raises(ValueError, match=words):
        run(options=WITH)
    assert form_of(False) is None
    with target("gpu"):
        assert form_of(True) == "compiled"


def test_a_saved_run_has_the_names(tmp_path):
    with_kernels_of().save(tmp_path / "run")
    told = json.loads((tmp_path / "run" / "provenance.json").read_text(encoding="utf-8"))
    assert "top_s" in told["settings"]["kernels"]


def test_a_run_goes_on_with_the_same_choice_alone():
    part, whole = with_kernels_of(steps=2), with_kernels_of(steps=4)
    np.testing.assert_array_equal(with_kernels_of(steps=4, resume=part).params, whole.params)
    with pytest.raises(ValueError, match=r"kernels: was .*top_s, is not asked for. Resume with .* kernels of that run"):
        run(steps=4, resume=part)
    with pytest.raises(ValueError, match=r"kernels: was not asked for, is .*top_s"):
        with_kernels_of(steps=4, resume=run(steps=2))


def test_a_ledger_reserves_another_run():
    plain, spread = jdfl.Options(), jdfl.Options(devices=2)
    assert execution(plain) == (None, "None")  # as it was when older ledgers were written
    assert len({execution(one) for one in (plain, spread, WITH)}) == 3


@pytest.mark.parametrize("first", [True, False])
def test_the_same_noise_with_another_rounding_is_refused(tmp_path, first):
    """What both release differs by rounding alone, which no noise hides."""
    private = jdfl.DPSGD(lr=0.1, gradients=jdfl.Gradients(clip=1.0, mechanism=jdfl.Gaussian(5.0)))
    ledger = jdfl.DataLedger.create(tmp_path / "ledger", epsilon=100.0, delta=1e-5)
    given = {"algorithm": private, "ledger": ledger}
    with_kernels_of(**given) if first else run(**given)
    with pytest.raises(ValueError, match=r"no other run in the ledger.*Give it another key"):
        run(**given) if first else with_kernels_of(**given)
    before = ledger.standing().epsilon
    run(**given, key=4) if first else with_kernels_of(**given, key=4)
    assert ledger.standing().epsilon > before


def test_code_outside_of_rounds_has_none():
    seen = []

    def metric(w, problem):
        seen.append(kernels())
        return jnp.sum(w)

    with interpreted():
        assert kernels() is None
        run(metrics=[metric], options=WITH)
    assert set(seen) == {None}
    with with_kernels("interpreted"):
        assert kernels() == "interpreted"


def test_only_runs_that_ask_are_traced_for_them(monkeypatch):
    monkeypatch.setattr("jdfl.engine.own_kernels.used", lambda _: pytest.fail("it was traced"))
    given = testing.small_problem(), testing.small_network()
    how = dict.fromkeys(("stop", "metrics", "resume"))
    start = started(GOSSIP, *given, key=0, steps=1, every=1, options=jdfl.Options(), **how)
    assert "kernels" not in start.provenance.settings


def test_the_command_line_has_the_choice(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    tiny = "--algorithm iht-d-psgd --algorithm.s 2 --steps 2 --problem.m 4 --problem.n 6 --problem.s 2 --quiet"
    assert main(["run", *tiny.split(), "--kernels"]) == 2
    assert "Expected a GPU with options.kernels = True" in capsys.readouterr().err
    assert not Path("runs").exists() or not list(Path("runs").iterdir())
    with interpreted():
        assert main(["run", *tiny.split(), "--kernels"]) == 0
        (file,) = Path("runs").glob("*/provenance.json")
        assert main(["verify", str(file.parent), "--kernels"]) == 0
        capsys.readouterr()
        main(["verify", str(file.parent)])
        assert "changed: kernels: was least_squares, top_s, is not asked for" in capsys.readouterr().out
        assert main(["resume", str(file.parent), "--steps", "3"]) == 2
        assert "kernels: was least_squares, top_s, is not asked for" in capsys.readouterr().err
        assert main(["resume", str(file.parent), "--steps", "3", "--kernels", "--quiet"]) == 0
    assert json.loads(file.read_text(encoding="utf-8"))["settings"]["kernels"].endswith("top_s")
