"""An audit in parts: the same numbers as in one piece, parts that are done stay, and others are made."""

import json
from pathlib import Path
from typing import Any

import pytest

import jdfl
from jdfl.auditing.result import Audit
from jdfl.cli import main

NOISY = jdfl.Gradients(clip=1.0, mechanism=jdfl.Gaussian(multiplier=2.0))
FLAGS = "--problem.m 4 --problem.n 20 --problem.s 2 --problem.rows 5 9 --network ring --steps 3 --runs 200"
FLAGS += " --algorithm d-psgd --algorithm.clip 1 --algorithm.mechanism gaussian --algorithm.mechanism.multiplier 2"
AUDIT = ["audit", *FLAGS.split()]


def audited(**more: Any) -> Audit:
    problem = jdfl.problems.example1(m=4, n=20, s=2, rows=(5, 9))
    how: dict[str, Any] = {"steps": 3, "runs": 500, "batch": 20} | more
    return jdfl.audit(jdfl.DPSGD(lr=0.05, gradients=NOISY), problem, jdfl.network.ring(4), **how)


def numbers(audit: Audit) -> dict[str, Any]:
    return {name: value for name, value in audit.as_dict().items() if name != "seconds"}


@pytest.mark.slow
def test_the_numbers_are_those_of_one_piece_and_another_audit_takes_none_of_the_parts(tmp_path: Path) -> None:
    for changed in ({}, {}, {"steps": 4}, {"node": 1}, {"key": 1}):
        assert numbers(audited(folder=tmp_path / "audit", **changed)) == numbers(audited(**changed))


@pytest.mark.filterwarnings("ignore")
def test_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JDFL_CACHE", "0")
    found = []
    for _ in range(2):
        assert main([*AUDIT, "--json", "--folder", "mine"]) in (0, 4)
        found.append(json.loads(capsys.readouterr().out))
    assert json.loads(Path("mine", "audit.json").read_text()) == found[-1]
    first, other = [{name: value for name, value in one.items() if name != "seconds"} for one in found]
    assert first == other
    assert main([*AUDIT, "--runs", "1", "--folder", "mine"]) == 2
    assert "folder" in capsys.readouterr().err
    assert main([*AUDIT, "--retry", "2"]) == 2
    assert "retry = 2" in capsys.readouterr().err
