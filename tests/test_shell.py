"""Completion of commands, flags, kinds and values in the shell; timings of rounds."""

import contextlib
import io
import json
import shutil
import subprocess

import pytest

from jdfl.cli import _COMMANDS, _functions, main
from jdfl.cli.flags import HelpAsked
from jdfl.config import ALGORITHMS


@pytest.fixture(scope="module")
def bash() -> str:
    """The script for bash."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        assert main(["completion", "bash"]) == 0
    return printed.getvalue()


def completed(script: str, *words: str) -> list[str]:
    """What bash offers for the last of the words."""
    line = " ".join(f"'{word}'" for word in words)
    asked = f"{script}\nCOMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _jdfl; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    found = subprocess.run(["bash", "-c", asked], capture_output=True, text=True, check=True, timeout=30)
    assert found.stderr == ""
    return found.stdout.split()


needs_bash = pytest.mark.skipif(shutil.which("bash") is None, reason="no bash on the PATH")


@needs_bash
def test_bash_completes_commands_flags_and_kinds(bash, tmp_path):
    assert set(completed(bash, "jdfl", "")) >= {*_COMMANDS, "list", "completion"}
    assert completed(bash, "jdfl", "ver") == ["verify"]
    assert completed(bash, "jdfl", "run", "--repe") == ["--repeats"]
    assert completed(bash, "jdfl", "run", "--network", "tor") == ["torus"]
    assert {"ceps", "d-psgd", "do-adp"} <= set(completed(bash, "jdfl", "sweep", "--algorithm", ""))
    assert completed(bash, "jdfl", "account", "--noise", "l") == ["laplace"]
    assert completed(bash, "jdfl", "compare", "--gri") == ["--grids"]
    (tmp_path / "folder").mkdir()
    assert completed(bash, "jdfl", "report", f"{tmp_path}/fol") == [f"{tmp_path}/folder"]


def flags_of(command: str, *words: str) -> set[str]:
    """The flags of a command with the kinds on the line."""
    with pytest.raises(HelpAsked) as found:
        _functions(command)[0]([*words, "--help"])
    return {name for flag in found.value.listed for name in flag.names}


CHOSEN = [
    "",
    "--algorithm d-psgd",
    "--algorithm=d-psgd",
    "--algorithm = d-psgd",  # as bash splits the line
    "--algorithm d-psgd --algorithm.mechanism gaussian --steps 3",
    "--problem classification --network k-regular",
    "--network link-loss --network.base random-links --network.base.base watts-strogatz",
    "--network timed --network.compute pareto --stop none",
    "--stop objective --algorithm choco-sgd --algorithm.codec low-rank",
]


@needs_bash
@pytest.mark.parametrize(
    ("command", "line"),
    [
        (command, line)
        for command in _COMMANDS
        for line in CHOSEN
        if not line or (command not in ("report", "data") and not (command == "compare" and "--algorithm" in line))
    ],
)
def test_only_the_flags_of_the_kinds_on_the_line_are_offered(bash, command, line):
    offered = completed(bash, "jdfl", command, *line.split(), "--")
    assert set(offered) == flags_of(command, *line.replace(" = ", "=").split())
    assert len(offered) == len(set(offered))


@needs_bash
def test_every_kind_has_its_own_flags(bash):
    found = {}
    for kind in ALGORITHMS.sources:
        offered = completed(bash, "jdfl", "run", "--algorithm", kind, "--algorithm.")
        assert set(offered) == {one for one in flags_of("run", "--algorithm", kind) if one.startswith("--algorithm.")}
        found[kind] = offered
    assert "--algorithm.sigma-rule" in found["ceps"]
    assert "--algorithm.sigma-rule" not in found["d-psgd"]


@needs_bash
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["--algorithm", "d-psgd", "--algorithm.sampling", "in"], ["in\\", "order"]),
        (["--algorithm", "d-psgd", "--algorithm.norm", "l"], ["l1", "l2", "linf"]),
        (["--algorithm", "ceps", "--algorithm.norm", "l"], []),
        (["--algorithm.codec", "on"], ["one-bit"]),
        (["--algorithm", "d-psgd", "--algorithm.mechanism", "g"], ["gaussian"]),
        (["--network", "link-loss", "--network.base", "k-"], ["k-regular", "k-in"]),
        (["--network", "ring", "--network.weights", "met"], ["metropolis"]),
        (["--network.weights", "=", "met"], ["metropolis"]),
        (["--stop", "obj"], ["objective"]),
        (["--stop", "n"], ["none"]),
        (["--problem", "classification", "--problem.data", "dig"], ["digits"]),
        (["--problem", "classification", "--problem.partition", "dir"], ["dirichlet"]),
        (["--metrics", "objective", "accuracy_"], ["accuracy_own", "accuracy_local"]),
        (["--track", "tensorboard", "w"], ["wandb"]),
        (["--privacy.accounting", ""], ["sound", "paper"]),
    ],
    ids=" ".join,
)
def test_values_are_completed(bash, words, offered):
    assert completed(bash, "jdfl", "run", *words) == offered


@needs_bash
def test_completion_takes_no_time(bash, tmp_path):
    """The script holds all that it offers: no Python runs while a person types."""
    (tmp_path / "jdfl.bash").write_text(bash)
    asked = f"source {tmp_path}/jdfl.bash; PATH=; COMP_WORDS=(jdfl run --network timed --algorithm d-psgd --);"
    asked += " COMP_CWORD=6; time (for i in 1 2 3 4 5 6 7 8 9 10; do _jdfl; done); echo ${#COMPREPLY[@]}"
    told = subprocess.run(["bash", "-c", f"TIMEFORMAT=%R; {asked}"], capture_output=True, text=True, check=True)
    assert float(told.stderr) < 1.0, "ten times, a tenth of a second each"


def test_zsh_gets_the_same_after_its_own_preparation(bash, capsys):
    assert main(["completion", "zsh"]) == 0
    out = capsys.readouterr().out
    assert out.endswith(bash)
    assert "bashcompinit" in out


@pytest.mark.parametrize("args", [[], ["fish"], ["bash", "zsh"]])
def test_another_shell_is_refused(args, capsys):
    assert main(["completion", *args]) == 2
    assert "jdfl completion bash" in capsys.readouterr().err


TINY = ["--problem.m", "4", "--problem.n", "20", "--problem.s", "2", "--problem.rows", "5", "9", "--network", "ring"]


@pytest.mark.slow
def test_bench_tells_times_and_the_limit(capsys, monkeypatch):
    monkeypatch.setenv("JDFL_CACHE", "0")
    flags = ["bench", *TINY, "--algorithm", "d-psgd", "--rounds", "8", "--repeats", "3"]
    assert main([*flags, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    each = told["seconds_per_round"]
    assert 0 < each["least"] <= each["median"] <= each["most"]
    assert told["rounds_per_second"] == pytest.approx(1 / each["median"])
    assert told["times_the_limit"] == pytest.approx(each["median"] * told["copy_bytes_per_second"] / (2 * 4 * 20 * 4))
    assert told["compile_seconds"] > 0
    assert main(flags) == 0
    assert "rounds/s" in capsys.readouterr().out


def test_bench_refuses_rounds_that_a_run_does_not_make(capsys, monkeypatch):
    monkeypatch.setenv("JDFL_CACHE", "0")
    assert main(["bench", *TINY, "--algorithm", "d-psgd", "--algorithm.lr", "1e30", "--rounds", "50"]) == 2
    assert "Give fewer --rounds" in capsys.readouterr().err
    assert main(["bench", "--repeats", "0"]) == 2
