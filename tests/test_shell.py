"""Completion of commands, flags, kinds and values in the shell; timings of rounds."""

import contextlib
import io
import json
import shlex
import shutil
import subprocess

import pytest

from jdfl.cli import _COMMANDS, _functions, main
from jdfl.cli.flags import HelpAsked
from jdfl.config import ALGORITHMS

needs_bash = pytest.mark.skipif(shutil.which("bash") is None, reason="no bash on the PATH")


@pytest.fixture(scope="module")
def bash() -> str:
    """The script for bash."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        assert main(["completion", "bash"]) == 0
    return printed.getvalue()


def completed(script: str, *lines: str) -> list[list[str]]:
    """What bash offers for the last of the words of each line, which may be empty."""
    asked = [script]
    for line in lines:
        words = line.split(" ")
        asked.append(f"COMP_WORDS=(jdfl {shlex.join(words)}); COMP_CWORD={len(words)}; _jdfl; echo ${{COMPREPLY[*]@Q}}")
    found = subprocess.run(["bash"], input="\n".join(asked), capture_output=True, text=True, check=True, timeout=60)
    assert found.stderr == ""
    return [shlex.split(one) for one in found.stdout.splitlines()]


def flags_of(command: str, *words: str) -> set[str]:
    """The flags of a command with the kinds on the line."""
    with pytest.raises(HelpAsked) as found:
        _functions(command)[0]([*words, "--help"])
    return {name for flag in found.value.listed for name in flag.names}


CHOSEN = [
    "",
    " --algorithm=d-psgd",
    " --algorithm = d-psgd",  # as bash splits the line
    " --algorithm d-psgd --algorithm.mechanism gaussian --steps 3",
    " --problem classification --network k-regular",
    " --network link-loss --network.base random-links --network.base.base watts-strogatz",
    " --network timed --network.compute pareto --stop none",
    " --stop objective --algorithm choco-sgd --algorithm.codec low-rank",
]


@needs_bash
def test_only_the_flags_of_the_kinds_on_the_line_are_offered(bash):
    lines = list(_COMMANDS)
    lines += [command + words for words in CHOSEN[1:] for command in ("run", "sweep")]
    for line, offered in zip(lines, completed(bash, *(f"{line} --" for line in lines)), strict=True):
        assert set(offered) == flags_of(*line.replace(" = ", "=").split()), line
        assert len(offered) == len(set(offered)), line
    kinds = [f"run --algorithm {kind}" for kind in ALGORITHMS.sources]
    for line, offered in zip(kinds, completed(bash, *(f"{line} --algorithm." for line in kinds)), strict=True):
        assert set(offered) == {one for one in flags_of(*line.split()) if one.startswith("--algorithm.")}, line


@needs_bash
def test_commands_kinds_and_values_are_completed(bash, tmp_path):
    (tmp_path / "folder").mkdir()
    expected = {
        "ver": ["verify"],
        "run --repe": ["--repeats"],
        "run --network tor": ["torus"],
        "account --noise l": ["laplace"],
        "compare --gri": ["--grids"],
        f"report {tmp_path}/fol": [f"{tmp_path}/folder"],
        "run --algorithm d-psgd --algorithm.sampling in": ["in\\ order"],
        "run --algorithm d-psgd --algorithm.norm l": ["l1", "l2", "linf"],
        "run --algorithm ceps --algorithm.norm l": [],
        "run --algorithm.codec on": ["one-bit"],
        "run --network link-loss --network.base k-": ["k-regular", "k-in"],
        "run --network.weights = met": ["metropolis"],
        "run --stop n": ["none"],
        "run --problem classification --problem.data dig": ["digits"],
        "run --metrics objective accuracy_": ["accuracy_own", "accuracy_local"],
        "run --track tensorboard w": ["wandb"],
        "run --privacy.accounting ": ["sound", "paper"],
    }
    assert dict(zip(expected, completed(bash, *expected), strict=True)) == expected
    (commands,) = completed(bash, "")
    assert set(commands) >= {*_COMMANDS, "list", "completion"}


def test_zsh_gets_the_same_and_another_shell_is_refused(bash, capsys):
    assert main(["completion", "zsh"]) == 0
    out = capsys.readouterr().out
    assert out.endswith(bash)
    assert "bashcompinit" in out
    for args in ([], ["fish"], ["bash", "zsh"]):
        assert main(["completion", *args]) == 2
        assert "jdfl completion bash" in capsys.readouterr().err


def test_bench_tells_times_and_the_limit_and_refuses_rounds_that_a_run_does_not_make(capsys, monkeypatch):
    monkeypatch.setenv("JDFL_CACHE", "0")
    tiny = ["--problem.m", "4", "--problem.n", "20", "--problem.s", "2", "--problem.rows", "5", "9"]
    flags = ["bench", *tiny, "--network", "ring", "--algorithm", "d-psgd"]
    assert main([*flags, "--rounds", "8", "--repeats", "3", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    each = told["seconds_per_round"]
    assert 0 < each["least"] <= each["median"] <= each["most"]
    assert told["rounds_per_second"] == pytest.approx(1 / each["median"])
    least = sum(told["least_bytes_per_round"].values())
    assert told["times_the_limit"] == pytest.approx(each["median"] * told["copy_bytes_per_second"] / least)
    assert told["compile_seconds"] > 0
    assert main([*flags, "--algorithm.lr", "1e30", "--rounds", "50"]) == 2
    assert "--rounds" in capsys.readouterr().err
    assert main(["bench", "--repeats", "0"]) == 2
