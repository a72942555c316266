"""What the shell is told: completion of commands, flags and kinds; timings of rounds."""

import contextlib
import io
import json
import shutil
import subprocess

import pytest

from jdfl.cli import _COMMANDS, main


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


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash on the PATH")
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
