"""Completion of commands, flags, kinds and values in the shell."""

import shlex
import shutil
import subprocess

import pytest

from jdfl.cli import NAMES, flags_of, main


def completed(script: str, *lines: str) -> list[list[str]]:
    """What bash offers for the last of the words of each line, which may be empty."""
    asked = [script]
    for line in lines:
        words = line.split(" ")
        asked.append(f"COMP_WORDS=(jdfl {shlex.join(words)}); COMP_CWORD={len(words)}; _jdfl; echo ${{COMPREPLY[*]@Q}}")
    found = subprocess.run(["bash"], input="\n".join(asked), capture_output=True, text=True, check=True, timeout=60)
    assert found.stderr == ""
    return [shlex.split(one) for one in found.stdout.splitlines()]


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash on the PATH")
def test_commands_flags_of_the_kinds_on_the_line_and_values_are_completed(capsys):
    assert main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    lines = [
        *NAMES,
        "run --algorithm = d-psgd",  # as bash splits the line
        "run --network link-loss --network.base random-links --network.base.base watts-strogatz",
        "run --stop objective --algorithm choco-sgd --algorithm.codec low-rank",
    ]
    for line, offered in zip(lines, completed(script, *(f"{line} --" for line in lines)), strict=True):
        listed = flags_of(*line.replace(" = ", "=").split())
        assert sorted(offered) == sorted({name for flag in listed for name in flag.names}), line
    expected = {
        "ver": ["verify"],
        "run --repe": ["--repeats"],
        "run --algorithm d-psgd --algorithm.sampling in": ["in\\ order"],
        "run --algorithm d-psgd --algorithm.norm l": ["l1", "l2", "linf"],
        "run --algorithm ceps --algorithm.norm l": [],
        "run --network link-loss --network.base k-": ["k-regular", "k-in"],
        "run --problem classification --problem.data dig": ["digits"],
        "run --metrics objective accuracy_": ["accuracy_own", "accuracy_local"],
    }
    assert dict(zip(expected, completed(script, *expected), strict=True)) == expected
    assert main(["completion", "zsh"]) == 0
    assert capsys.readouterr().out.endswith(script)
    assert main(["completion", "fish"]) == main(["completion"]) == 2
