"""Runs that ask for kernels of our own: what they record, what they refuse, and that others do not change."""

import json
from contextlib import nullcontext
from functools import cache, partial
from pathlib import Path

import numpy as np
import pytest

import jdfl
from jdfl import testing
from jdfl.base.backend import interpreted, target
from jdfl.cli import main
from jdfl.engine.start import form_of
from tests.refused import refused

CHOCO = jdfl.CHOCO(codec=jdfl.codecs.Sparse(3))
GOSSIP = jdfl.DPSGD(lr=0.1, gradients=jdfl.Gradients(batch=2))
WITH = jdfl.Options(kernels=True)


@cache
def problem():
    return testing.small_problem()


@cache
def run(algorithm=CHOCO, kernels=False, **how):
    """A run of four rounds, without kernels or with those of the interpreter."""
    given = {"steps": 4, "key": 3, "metrics": (), **how}
    with interpreted() if kernels else nullcontext():
        options = jdfl.Options(kernels=kernels)
        return jdfl.run(algorithm, problem(), testing.small_network(), options=options, **given)


def test_a_run_asks_for_them_and_its_provenance_names_them(tmp_path):
    result, plain = run(kernels=True), run()
    assert "top_s" in result.provenance.settings["kernels"].split(", ")
    assert result.provenance.hash != plain.provenance.hash
    result.save(tmp_path / "run")
    assert "top_s" in (tmp_path / "run" / "provenance.json").read_text(encoding="utf-8")
    np.testing.assert_allclose(result.params, plain.params, rtol=1e-5, atol=1e-7)
    np.testing.assert_array_equal(np.asarray(result.params) == 0, np.asarray(plain.params) == 0)
    assert result.sums == plain.sums
    for other in (plain, run.__wrapped__()):  # neither program has taken the place of the other
        assert "kernels" not in other.provenance.settings
        np.testing.assert_array_equal(other.params, plain.params)


def test_kernels_need_a_backend_and_a_run_goes_on_with_the_same_choice_alone():
    with refused("GPU", "options.kernels = True", "'cpu'"):
        jdfl.run(CHOCO, problem(), testing.small_network(), steps=1, options=WITH)
    assert form_of(False) is None
    with target("gpu"):
        assert form_of(True) == "compiled"
    part, whole = run(kernels=True, steps=2), run(kernels=True)
    np.testing.assert_array_equal(run.__wrapped__(kernels=True, resume=part).params, whole.params)
    with refused("kernels", "is not asked for"):
        run.__wrapped__(resume=part)
    with refused("kernels", "was not asked for"):
        run.__wrapped__(kernels=True, resume=run(steps=2))


@pytest.mark.rotated(2)
@pytest.mark.parametrize("first", [True, False])
def test_the_same_noise_with_another_rounding_is_refused(tmp_path, first):
    """What both release differs by rounding alone, which no noise hides."""
    private = jdfl.DPSGD(lr=0.1, gradients=jdfl.Gradients(clip=1.0, mechanism=jdfl.Gaussian(5.0)))
    ledger = jdfl.DataLedger.create(tmp_path / "ledger", epsilon=100.0, delta=1e-5)
    one = partial(run.__wrapped__, private, ledger=ledger)
    one(kernels=first)
    with refused("run", "ledger", "key"):
        one(kernels=not first)
    before = ledger.standing().epsilon
    one(kernels=not first, key=4)
    assert ledger.standing().epsilon > before


def test_the_command_line_has_the_choice(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    tiny = "--algorithm iht-d-psgd --algorithm.s 2 --steps 2 --problem.m 4 --problem.n 6 --problem.s 2 --quiet"
    assert main(["run", *tiny.split(), "--kernels"]) == 2
    assert "Expected a GPU with options.kernels = True" in capsys.readouterr().err
    with interpreted():
        assert main(["run", *tiny.split(), "--kernels"]) == 0
        (file,) = Path("runs").glob("*/provenance.json")
        assert main(["verify", str(file.parent), "--kernels"]) == 0
    assert json.loads(file.read_text(encoding="utf-8"))["settings"]["kernels"].endswith("top_s")
