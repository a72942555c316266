"""Mistyped commands, kinds, flags, words and arguments: the error suggests the right name, in one short line."""

import shlex
from collections.abc import Callable
from typing import Any

import pytest

import jdfl
from jdfl.base import suggest
from jdfl.cli import main
from jdfl.config import from_yaml

LINES = {  # what is typed, and what the error names
    "runn": "'run'",
    "--verison": "'--version'",
    "run --algorithm dpsgd": "'d-psgd'",
    "run --network link-loss --network.base rnig": "'ring'",
    "run --algorithm choco-sgd --algorithm.codec spars": "'sparse'",
    "run --algorithm d-psgd --algorithm.sampling in-order": "'in order'",
    "run --algorithm.learning-rate 0.1": "--algorithm.lr",
    "run --algorithm d-psgd --algorithm.mechanism laplace --algorithm.mechanism.sigma 3": "--algorithm.mechanism.mul",
    "run --lr 0.1": "--algorithm.lr",
    "run --metrics objectve": "'objective'",
    "run --problem classification --problem.data MNIST": "'mnist'",
    "run --track tensorbord": "'tensorboard'",
    "sweep --ovr algorithm.lr=0.1": "--over",
    "compare --algorithms ceps ceps-papr": "'ceps-paper'",
    "account --noise gauss": "'gaussian'",
    "data fetch mnits": "'mnist'",
    "completion bahs": "'bash'",
    "run --algorithm gradient-tracking": "'dsgt'",
    "run --privacy.eps 1": "--privacy.epsilon",
}


@pytest.fixture(autouse=True)
def apart(monkeypatch, tmp_path):
    """In an empty folder."""
    monkeypatch.chdir(tmp_path)


def test_the_command_line_suggests_the_right_name(capsys, tmp_path):
    for line, meant in LINES.items():
        assert main(shlex.split(line)) == 2
        err = capsys.readouterr().err
        assert err.startswith("jdfl: error: ")
        assert f"Did you mean {meant}" in err
        assert err.count("\n") == 1
        assert len(err) <= 320, "no list of all names beside a suggestion"
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


CALLS: dict[str, tuple[Callable[[], Any], str]] = {
    "jdfl.DPSDG": (lambda: getattr(jdfl, "DPSDG"), "jdfl.DPSGD"),  # noqa: B009
    "jdfl.network.erdos_reny": (lambda: getattr(jdfl.network, "erdos_reny"), "jdfl.network.erdos_renyi"),  # noqa: B009
    "DPSGD(learning_rate=)": (lambda: unknown(jdfl.DPSGD, learning_rate=0.1), "'lr'"),
    "ring(nodes=)": (lambda: unknown(jdfl.network.ring, weights="metropolis", nodes=3), "'m'"),
    "run(rounds=)": (lambda: unknown(jdfl.run, jdfl.DPSGD(), rounds=3), "'steps'"),
    "ring(weights=)": (lambda: unknown(jdfl.network.ring, 6, weights="metropolos"), "'metropolis'"),
    "classification(data=)": (lambda: jdfl.problems.classification("digit", m=4), "'digits'"),
    "YAML key": (lambda: from_yaml("stepz: 3"), "'steps'"),
    "YAML kind": (lambda: from_yaml("network: rign"), "'ring'"),
}


def unknown(call: Any, *args: Any, **named: Any) -> Any:
    """A call with an argument that a type checker would refuse."""
    return call(*args, **named)


def test_python_suggests_the_right_name():
    for call, meant in CALLS.values():
        with pytest.raises((AttributeError, TypeError, ValueError)) as found:
            call()
        assert f"Did you mean {meant}?" in str(found.value)
        assert len(str(found.value)) <= 320


def test_nothing_is_suggested_where_no_name_is_close(capsys):
    for line in ("walk", "run --bananas 3", "run --network moon", "run --metrics beauty", "--yes"):
        assert main(shlex.split(line)) == 2
        assert "Did you mean" not in capsys.readouterr().err


def test_a_flag_of_another_kind_names_that_kind(capsys):
    assert main(["run", "--network.degree", "3"]) == 2
    err = capsys.readouterr().err
    assert "Expected --network.degree with --network k-regular, k-in, watts-strogatz and" in err
    assert "got --network erdos-renyi" in err
    assert main(["run", "--algorithm", "ceps", "--algorithm.batch_size", "3"]) == 2
    assert "--algorithm.batch, a flag of --algorithm" in capsys.readouterr().err


def test_any_single_slip_is_found():
    """A letter left out, doubled, or exchanged with the next one."""
    names = ["d-psgd", "erdos-renyi", "algorithm", "consensus", "epsilon", "checkpoint-every", "nids"]
    for name in names[:-1]:
        plain = suggest.plain(name)
        slips = [plain[:i] + plain[i + 1 :] for i in range(len(plain))]
        slips += [plain[:i] + plain[i] + plain[i:] for i in range(len(plain))]
        slips += [plain[:i] + plain[i + 1] + plain[i] + plain[i + 2 :] for i in range(len(plain) - 1)]
        for slip in set(slips) - {suggest.plain(one) for one in names}:
            assert suggest.closest(slip, names) == name, slip


def test_right_arguments_stay_as_they_were():
    with pytest.raises(TypeError, match="missing"):
        unknown(jdfl.network.ring)
    assert jdfl.DPSGD(lr=0.5).replace(lr=0.25) == jdfl.DPSGD(lr=0.25)
