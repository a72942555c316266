"""An audit in parts: the same numbers as in one piece, parts that are done stay, and others are made."""

import json
from pathlib import Path
from typing import Any

import pytest

import jdfl
from jdfl.auditing.result import Audit
from jdfl.cli import main
from jdfl.store.jobs import Jobs

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


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the parts that are made."""
    found: list[str] = []
    usual = Jobs._made

    def noted(self: Jobs, name: str, make: Any) -> Path:
        place = usual(self, name, make)
        found.append(name)
        return place

    monkeypatch.setattr(Jobs, "_made", noted)
    return found


@pytest.mark.slow
def test_the_numbers_are_those_of_one_piece(tmp_path: Path, made: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    whole = numbers(audited())
    folder = tmp_path / "audit"
    with monkeypatch.context() as patch:
        usual = Jobs.done

        def cut(self: Jobs, name: str, make: Any) -> Path:
            if len(made) == 9:
                raise KeyboardInterrupt
            return usual(self, name, make)

        patch.setattr(Jobs, "done", cut)
        with pytest.raises(KeyboardInterrupt):
            audited(folder=folder)
    assert len(made) == 9
    assert numbers(audited(folder=folder)) == whole
    parts = len(made)
    assert 10 < parts <= 20
    assert len(set(made)) == parts
    assert numbers(audited(folder=folder)) == whole
    assert len(made) == parts  # all were there


@pytest.mark.slow
@pytest.mark.parametrize("changed", [{"steps": 4}, {"node": 1}, {"key": 1}], ids=str)
def test_another_audit_takes_none_of_them(tmp_path: Path, made: list[str], changed: dict[str, int]) -> None:
    """Planted: were it left out of the names, the features of other runs would be taken."""
    audited(folder=tmp_path / "audit")
    before = len(made)
    assert numbers(audited(folder=tmp_path / "audit", **changed)) == numbers(audited(**changed))
    assert len(made) > before
    assert len(set(made)) == len(made)


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
