"""What an audit says, and `jdfl audit` in process."""

import json
import math
from dataclasses import replace

from jdfl.auditing import Audit
from jdfl.auditing.judge import Finding
from jdfl.cli import parse
from tests.refused import refused

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
    for changes, words in (
        ({}, "can refute but not prove"),
        ({"epsilon_accounted": 2.5001}, "(2.501, 1e-05) (claimed)"),  # never below the bound
        ({"epsilon_accounted": 9.0}, "can show epsilon >= 5.6 at most"),
        ({"mu_low": 0.7}, "warning: mu is above"),
        ({"epsilon_lower": 4.13, "claimed": False}, "VIOLATED"),
        ({"left_out": ("sigma is computed",)}, "not attacked, taken as public: sigma is computed"),
        ({"published": (1.0, 0.45), "delta_lower": 0.61}, "as published, REFUTED: epsilon = 1 at delta = 0.45"),
    ):
        assert words in replace(FOUND, **changes).statement()


def test_what_was_measured_or_why_nothing_was_is_told_and_ends_the_command():
    found = (Finding("leak", "another node moves by 1", 0.0, 1e-9), Finding("leak", "and another", 0.0, 1e-9))
    told = replace(FOUND, findings=found, tests=50)
    assert told.families == ("leak",)
    assert replace(told, epsilon_lower=4.0).families == ("attack", "leak")
    assert (FOUND.exit_status, told.exit_status) == (0, 3)
    assert "measurements disagree: leak" in told.statement()
    assert "shows epsilon" not in told.statement()
    assert replace(FOUND, not_probed="why", claimed=True).exit_status == 4  # a claim of which nothing was measured
    assert not replace(FOUND, not_probed="why", claimed=False).inconclusive
    assert "INCONCLUSIVE" in replace(FOUND, not_probed="why", epsilon_accounted=9.0).statement()
    assert "nothing else was measured" in replace(FOUND, not_probed="why").statement()
    plain = replace(FOUND, mu_hat=math.inf).as_dict()
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain | {"mu_hat": None, "left_out": [], "findings": []}


SMALL = "--problem.m 4 --problem.n 10 --problem.s 3 --problem.rows 8 12 --network complete --steps 4 --runs 1000"
D_PSGD = f"{SMALL} --algorithm d-psgd"
NOISY = f"{D_PSGD} --algorithm.clip 2 --algorithm.mechanism gaussian --algorithm.mechanism.multiplier 4"


def audited(words):
    do, values = parse("audit", words)
    return do(**values)


def test_the_command_audits_runs_one_run_and_bits(capsys, tmp_path):
    """With the status of what is found: 3 where a claim is refuted; runs that are kept in a folder tell the same."""
    folder, found = tmp_path / "mine", []
    paper = "--algorithm ceps-paper --algorithm.s 3 --algorithm.no-one-bit --algorithm.epsilon 2"
    one_run = "--problem.n 40 --problem.rows 30 31 --runs 1 --canaries 110 --delta 1e-3"
    bits = "--algorithm.mechanism exact-gaussian --bits"
    for flags, status, wanted in (
        (f"{SMALL} {paper} --folder {folder}", 3, {"violated": True}),
        (f"{SMALL} {paper} --folder {folder}", 3, {}),
        (f"{NOISY} {one_run}", 0, {"algorithm": "DPSGD", "canaries": 110, "releases": 4, "delta": 1e-3}),
        (f"{NOISY} {bits}", 0, {"mechanism": "ExactGaussian", "runs": 1000, "covered": True}),
    ):
        assert audited([*flags.split(), "--json"]) == status
        found.append(json.loads(capsys.readouterr().out))
        assert found[-1] | wanted == found[-1]
    assert found[0] | {"seconds": found[1]["seconds"]} == found[1]
    assert json.loads((folder / "audit.json").read_text()) == found[1]


def test_what_has_no_noise_and_settings_of_another_audit_are_refused():
    with refused("noise to audit"):
        audited(D_PSGD.split())
    for flags, named in (
        (["--runs", "1", "--node", "2"], "node = 2"),
        (["--bits", "--canaries", "200"], "canaries = 200"),
        (["--canaries", "200"], "canaries = 200"),
        (["--runs", "1", "--folder", "mine"], "folder"),
    ):
        with refused(named):
            audited(flags)
    with refused(retry=2):
        audited([*NOISY.split(), "--retry", "2"])
