"""What an audit says, and `jdfl audit` in process."""

import json
import math
from dataclasses import replace

import jax
import pytest

from jdfl.auditing import Audit
from jdfl.auditing.judge import Finding
from jdfl.cli import audit as command
from tests.auditing.planted import BUGS, plant

FOUND = Audit(
    algorithm="DPSGD",
    runs=4000,
    releases=6,
    confidence=0.95,
    delta=1e-5,
    epsilon_accounted=2.5,
    mu_accounted=0.61,
    claimed=True,
    epsilon_lower=0.7,
    epsilon_most=5.6,
    mu_hat=0.58,
    mu_low=0.53,
    mu_high=0.63,
    auc=0.66,
    canary="at node 0, a record along feature 3 with opposite gradients",
    left_out=(),
    seconds=1.0,
)


def test_a_statement_says_what_an_audit_can_and_cannot_show():
    told = FOUND.statement()
    for words in ("not refuted", "epsilon >= 0.7", "(2.5, 1e-05) (claimed)", "can refute but not prove", "feature 3"):
        assert words in told
    assert "VIOLATED" not in told
    assert "warning" not in told
    assert "at most" not in told
    assert "(2.501, 1e-05) (claimed)" in replace(FOUND, epsilon_accounted=2.5001).statement()  # never below the bound


def test_a_statement_says_plainly_that_a_guarantee_does_not_hold():
    told = replace(FOUND, epsilon_lower=4.13, claimed=False).statement()
    assert "VIOLATED" in told
    assert "shows epsilon >= 4.13 at 95 % confidence" in told
    assert "not claimed: what would follow" in told


def test_a_statement_holds_what_a_paper_claims_against_the_attack():
    told = replace(FOUND, published=(1.0, 0.45), delta_lower=0.61)
    assert told.refutes_published
    assert "as published, REFUTED: epsilon = 1 at delta = 0.45; the attack shows delta >= 0.61" in told.statement()
    held = replace(told, delta_lower=0.4)
    assert not held.refutes_published
    assert "as published, not refuted" in held.statement()
    assert "as published" not in FOUND.statement()


def test_a_statement_says_when_the_runs_are_too_few_and_when_mu_is_too_large():
    assert "can show epsilon >= 5.6 at most" in replace(FOUND, epsilon_accounted=9.0).statement()
    assert "warning: mu is above" in replace(FOUND, mu_hat=0.8, mu_low=0.7, mu_high=0.9).statement()


def test_a_statement_names_what_was_measured_or_why_nothing_was():
    found = (Finding("leak", "another node moves by 1", 0.0, 1e-9), Finding("leak", "and another", 0.0, 1e-9))
    told = replace(FOUND, findings=found, tests=50)
    assert told.families == ("leak",)
    assert replace(told, epsilon_lower=4.0).families == ("attack", "leak")
    assert (FOUND.exit_status, told.exit_status) == (0, 3)
    assert "VIOLATED" in told.statement()
    assert "measurements disagree: leak" in told.statement()
    assert "shows epsilon" not in told.statement()
    assert "not probed: why" in replace(FOUND, not_probed="why").statement()
    assert replace(FOUND, not_probed="why", claimed=True).exit_status == 4  # a claim of which nothing was measured
    assert not replace(FOUND, not_probed="why", claimed=False).inconclusive
    few = replace(FOUND, not_probed="why", epsilon_accounted=9.0)
    assert few.inconclusive
    assert few.exit_status == 4
    assert "INCONCLUSIVE" in few.statement()
    assert not replace(few, not_probed="", tests=50).inconclusive


def test_a_statement_says_what_was_taken_as_public():
    told = replace(FOUND, left_out=("sigma_i is computed from data",)).statement()
    assert "not attacked, taken as public: sigma_i is computed from data" in told


def test_an_audit_is_plain_data():
    told = replace(FOUND, mu_hat=math.inf).as_dict()
    assert told["mu_hat"] is None
    assert json.loads(json.dumps(told, allow_nan=False)) == told | {"left_out": [], "findings": []}


SMALL = [
    *("--problem.m", "4", "--problem.n", "10", "--problem.s", "3", "--problem.rows", "8", "12"),
    *("--network", "complete", "--steps", "4", "--runs", "1000"),
]
NOISY = ["--algorithm.clip", "2", "--algorithm.mechanism", "gaussian", "--algorithm.mechanism.multiplier", "4"]


@pytest.fixture(autouse=True)
def apart(monkeypatch):
    """Without the cache."""
    monkeypatch.setenv("JDFL_CACHE", "0")


@pytest.mark.slow
def test_the_command_audits_the_run_of_its_flags(capsys):
    args = [*SMALL, "--algorithm", "d-psgd", *NOISY, "--node", "2", "--delta", "1e-4", "--json"]
    config, options = command.parse(args)
    assert (config.steps, options.runs, options.node, options.canary) == (4, 1000, 2, "aligned")
    assert command.audit(config, options) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["algorithm"], told["runs"], told["releases"], told["delta"]) == ("DPSGD", 1000, 4, 1e-4)
    assert "node 2" in told["canary"]
    assert not told["violated"]


def test_the_command_fails_where_a_report_is_refuted(capsys):
    args = [*SMALL, "--algorithm", "ceps-paper", "--algorithm.s", "3", "--algorithm.no-one-bit", "--algorithm.epsilon"]
    status = command.audit(*command.parse([*args, "2"]))
    assert status == 3
    assert "VIOLATED" in capsys.readouterr().out


def test_the_command_audits_one_run(capsys):
    args = [*SMALL, "--algorithm", "d-psgd", *NOISY, "--problem.n", "40", "--problem.rows", "30", "31", "--runs", "1"]
    assert command.audit(*command.parse([*args, "--canaries", "110", "--delta", "1e-3", "--json"])) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["algorithm"], told["canaries"], told["releases"], told["delta"]) == ("DPSGD", 110, 4, 1e-3)


def test_the_command_audits_bits(capsys):
    args = [*SMALL, "--algorithm", "d-psgd", *NOISY, "--algorithm.mechanism", "exact-gaussian", "--bits", "--json"]
    assert command.audit(*command.parse(args)) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["mechanism"], told["runs"], told["covered"]) == ("ExactGaussian", 1000, True)


@pytest.mark.slow
def test_the_command_says_when_its_runs_are_too_few(capsys):
    """An epsilon so large that no 1000 runs refute it, of noise that is measured in repeated rounds all the same."""
    little = [*NOISY[:-1], "0.2", "--algorithm.order", "adapt-then-combine"]
    assert command.audit(*command.parse([*SMALL, "--algorithm", "d-psgd", *little])) == 0
    told = capsys.readouterr().out
    assert "more are needed to refute" in told
    assert "tests of repeated rounds, 0 failed" in told


@pytest.mark.slow
def test_the_command_fails_where_a_bug_is_planted(monkeypatch, capsys):
    jax.clear_caches()
    bug = BUGS["noise times .95"]
    plant(bug, monkeypatch)
    assert command.audit(*command.parse([*SMALL, "--algorithm", "d-psgd", *NOISY, "--json"])) == 3
    told = json.loads(capsys.readouterr().out)
    assert bug.family in {one["family"] for one in told["findings"]}
    jax.clear_caches()


def test_the_command_refuses_what_has_no_noise():
    with pytest.raises(ValueError, match="noise to audit"):
        command.audit(*command.parse([*SMALL, "--algorithm", "d-psgd"]))


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--runs", "1", "--node", "2"], "one run, got node = 2"),
        (["--bits", "--canaries", "200"], "bits, got canaries = 200"),
        (["--canaries", "200"], "many runs, got canaries = 200"),
    ],
)
def test_settings_of_another_audit_are_refused(flags, words):
    with pytest.raises(ValueError, match=words):
        command.parse(flags)
