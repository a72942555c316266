"""Mistyped commands, kinds, flags, words and arguments: the error suggests the right name, in one short line."""

import difflib
import shlex
from collections.abc import Callable
from typing import Any

import pytest

import jdfl
from jdfl.base import checks, suggest
from jdfl.cli import main
from jdfl.config import from_yaml

LINES = [  # what is typed, and what the error names
    ("runn", "'run'"),
    ("comapre", "'compare'"),
    ("swep", "'sweep'"),
    ("verfiy", "'verify'"),
    ("acount", "'account'"),
    ("Report", "'report'"),
    ("ls", "'list'"),
    ("--verison", "'--version'"),
    ("run --algorithm dpsgd", "'d-psgd'"),
    ("run --algorithm DCD_PSGD", "'dcd-psgd'"),
    ("run --algorithm choco", "'choco-sgd'"),
    ("run --algorithm muffilato", "'muffliato'"),
    ("run --algorithm=exact_difusion", "'exact-diffusion'"),
    ("run --network erdos_renyi", "'erdos-renyi'"),
    ("run --network watts", "'watts-strogatz'"),
    ("run --network Torus", "'torus'"),
    ("run --network link-loss --network.base rnig", "'ring'"),
    ("run --problem clasification", "'classification'"),
    ("run --stop consenus", "'consensus'"),
    ("run --algorithm choco-sgd --algorithm.codec spars", "'sparse'"),
    ("run --algorithm d-psgd --algorithm.mechanism gausian", "'gaussian'"),
    ("run --algorithm d-psgd --algorithm.sampling in-order", "'in order'"),
    ("run --network ring --network.weights metropolos", "'metropolis'"),
    ("run --algorithm.learning-rate 0.1", "--algorithm.lr"),
    ("run --algorithm d-psgd --algorithm.step-size 0.1", "--algorithm.lr"),
    ("run --algorithm d-psgd --algorithm.batch-size 3", "--algorithm.batch"),
    (
        "run --algorithm d-psgd --algorithm.mechanism laplace --algorithm.mechanism.sigma 3",
        "--algorithm.mechanism.mul",
    ),
    ("run --lr 0.1", "--algorithm.lr"),
    ("run --problem.nodes 8", "--problem.m"),
    ("run --nodes 8", "--problem.m"),
    ("run --num-clients 8", "--problem.m"),
    ("run --step 10", "--steps"),
    ("run --rounds 10", "--steps"),
    ("run --max_iter 10", "--steps"),
    ("run --epochs=10", "--steps"),
    ("run --seeds 3", "--seed"),
    ("run --eps 3", "--privacy.epsilon"),
    ("run --topology ring", "--network"),
    ("run --graph ring", "--network"),
    ("run --compressor sparse", "--algorithm.codec"),
    ("run --network.neighbours 3", "--network.degree"),
    ("run --otu here", "--out"),
    ("run --ouptut here", "--out"),
    ("run --checkpoint-evry 3", "--checkpoint-every"),
    ("run --device 2", "--devices"),
    ("run --metric objective", "--metrics"),
    ("run --metrics objectve", "'objective'"),
    ("run --metrics balanced-accuracy", "'balanced_accuracy'"),
    ("run --problem classification --problem.data diigts", "'digits'"),
    ("run --problem classification --problem.data MNIST", "'mnist'"),
    ("run --track tensorbord", "'tensorboard'"),
    ("sweep --ovr algorithm.lr=0.1", "--over"),
    ("sweep --randon 3", "--random"),
    ("compare --algorithms dpsgd ceps", "'d-psgd'"),
    ("compare --algorithms ceps ceps-papr", "'ceps-paper'"),
    ("compare --budgte 3", "--budget"),
    ("audit --canary alligned", "'aligned'"),
    ("audit --confidense 0.9", "--confidence"),
    ("account --releses 3", "--releases"),
    ("account --noise gauss", "'gaussian'"),
    ("report --titel x", "--title"),
    ("data ftech", "'fetch'"),
    ("data fetch mnits", "'mnist'"),
    ("completion bahs", "'bash'"),
    ("run --num_epochs 3", "--steps"),
    ("run --algorithm gradient-tracking", "'dsgt'"),
    ("run --network smallworld", "'watts-strogatz'"),
    ("run --algorithm choco-sgd --algorithm.codec topk", "'sparse'"),
    ("resum x", "'resume'"),
    ("benhc", "'bench'"),
    ("run --algorithm Fed_Avg", "'fedavg'"),
    ("run --problem neurl", "'neural'"),
    ("run --outdir x", "--out"),
    ("run --privacy.eps 1", "--privacy.epsilon"),
    ("run --algorithm choco-sgd --algorithm.compression sign", "--algorithm.codec"),
    ("compare --metrc objective", "--metrics"),
    ("sweep --radnom 2", "--random"),
]


@pytest.mark.parametrize(("line", "meant"), LINES, ids=[line for line, _ in LINES])
def test_the_command_line_suggests_the_right_name(line, meant, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(shlex.split(line)) == 2
    err = capsys.readouterr().err
    assert err.startswith("jdfl: error: ")
    assert f"Did you mean {meant}" in err
    assert err.count("\n") == 1
    assert len(err) <= 320, "no list of all names beside a suggestion"
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


CALLS: dict[str, tuple[Callable[[], Any], str]] = {
    "jdfl.DPSDG": (lambda: getattr(jdfl, "DPSDG"), "jdfl.DPSGD"),  # noqa: B009
    "jdfl.DCDPSGD": (lambda: getattr(jdfl, "DCDPSGD"), "jdfl.DCD"),  # noqa: B009
    "jdfl.ChocoSGD": (lambda: getattr(jdfl, "ChocoSGD"), "jdfl.CHOCO"),  # noqa: B009
    "jdfl.ceps": (lambda: getattr(jdfl, "ceps"), "jdfl.CEPS"),  # noqa: B009
    "jdfl.networks": (lambda: getattr(jdfl, "networks"), "jdfl.network"),  # noqa: B009
    "jdfl.network.erdos_reny": (lambda: getattr(jdfl.network, "erdos_reny"), "jdfl.network.erdos_renyi"),  # noqa: B009
    "jdfl.problems.clasification": (
        lambda: getattr(jdfl.problems, "clasification"),  # noqa: B009
        "jdfl.problems.classification",
    ),
    "DPSGD(learning_rate=)": (lambda: unknown(jdfl.DPSGD, learning_rate=0.1), "'lr'"),
    "CHOCO(compressor=)": (lambda: unknown(jdfl.CHOCO, compressor=jdfl.Sign()), "'codec'"),
    "Sparse(shar=)": (lambda: unknown(jdfl.Sparse, shar=0.1), "'share'"),
    "Gaussian(noise_multiplier=)": (lambda: unknown(jdfl.Gaussian, noise_multiplier=2.0), "'multiplier'"),
    "ring(nodes=)": (lambda: unknown(jdfl.network.ring, nodes=3), "'m'"),
    "erdos_renyi(prob=)": (lambda: unknown(jdfl.network.erdos_renyi, 8, prob=0.3), "'p'"),
    "example1(num_nodes=)": (lambda: unknown(jdfl.problems.example1, num_nodes=3), "'m'"),
    "run(rounds=)": (lambda: unknown(jdfl.run, jdfl.DPSGD(), rounds=3), "'steps'"),
    "run(iterations=)": (lambda: unknown(jdfl.run, jdfl.DPSGD(), iterations=3), "'steps'"),
    "run(seed=)": (lambda: unknown(jdfl.run, jdfl.DPSGD(), seed=3), "'key'"),
    "run(metric=)": (lambda: unknown(jdfl.run, jdfl.DPSGD(), metric=["objective"]), "'metrics'"),
    "ring(weights=)": (lambda: unknown(jdfl.network.ring, 6, weights="metropolos"), "'metropolis'"),
    "classification(partition=)": (
        lambda: jdfl.problems.classification("digits", m=4, partition="dirichelt"),
        "'dirichlet'",
    ),
    "classification(data=)": (lambda: jdfl.problems.classification("digit", m=4), "'digits'"),
    "YAML key": (lambda: from_yaml("stepz: 3"), "'steps'"),
    "YAML key of a kind": (lambda: from_yaml("algorithm: {kind: d-psgd, learning_rate: 0.1}"), "'lr'"),
    "YAML kind": (lambda: from_yaml("network: rign"), "'ring'"),
    "YAML word": (lambda: from_yaml("network: {kind: ring, weights: uniforn}"), "'uniform'"),
}


def unknown(call: Any, *args: Any, **named: Any) -> Any:
    """A call with an argument that a type checker would refuse."""
    return call(*args, **named)


@pytest.mark.parametrize("name", CALLS)
def test_python_suggests_the_right_name(name):
    call, meant = CALLS[name]
    with pytest.raises((AttributeError, TypeError, ValueError)) as found:
        call()
    text = str(found.value)
    assert f"Did you mean {meant}?" in text
    assert len(text) <= 320


@pytest.mark.parametrize("line", ["walk", "run --bananas 3", "run --network moon", "run --metrics beauty", "--yes"])
def test_nothing_is_suggested_where_no_name_is_close(line, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(shlex.split(line)) == 2
    assert "Did you mean" not in capsys.readouterr().err


def test_a_flag_of_another_kind_names_that_kind(capsys):
    assert main(["run", "--network.degree", "3"]) == 2
    err = capsys.readouterr().err
    assert "Expected --network.degree with --network k-regular, k-in, watts-strogatz and" in err
    assert main(["run", "--algorithm", "ceps", "--algorithm.batch_size", "3"]) == 2
    assert "--algorithm.batch, a flag of --algorithm" in capsys.readouterr().err


def test_long_lists_are_left_out_only_where_a_name_is_suggested():
    names = [f"{letter}-name" for letter in "abcdefghijklmnop"]
    with pytest.raises(ValueError, match=r"one of 16 names, got kind = 'aname'\. Did you mean 'a-name'\?$"):
        checks.one_of(names, kind="aname")
    with pytest.raises(ValueError, match="'p-name', got kind = 'zzz'"):
        checks.one_of(names, kind="zzz")


@pytest.mark.parametrize("name", ["d-psgd", "erdos-renyi", "algorithm", "consensus", "epsilon", "checkpoint-every"])
def test_any_single_slip_is_found(name):
    """A letter left out, doubled, or exchanged with the next one."""
    names = ["d-psgd", "erdos-renyi", "algorithm", "consensus", "epsilon", "checkpoint-every", "nids"]
    plain = suggest.plain(name)
    slips = [plain[:i] + plain[i + 1 :] for i in range(len(plain))]
    slips += [plain[:i] + plain[i] + plain[i:] for i in range(len(plain))]
    slips += [plain[:i] + plain[i + 1] + plain[i] + plain[i + 2 :] for i in range(len(plain) - 1)]
    for slip in set(slips) - {suggest.plain(one) for one in names}:
        assert suggest.closest(slip, names) == name, slip


def test_the_table_is_not_what_difflib_alone_finds(monkeypatch):
    """Words of other libraries are no slips: without their table nothing is found."""
    known = ["batch", "clip", "lr"]
    assert difflib.get_close_matches("learning-rate", known) == []
    assert suggest.closest("learning-rate", known) == "lr"
    monkeypatch.setattr(suggest, "SYNONYMS", {})
    assert suggest.closest("learning-rate", known) is None


def test_arguments_that_are_there_stay_as_they_were():
    with pytest.raises(TypeError, match="missing"):
        unknown(jdfl.network.ring)
    assert jdfl.DPSGD(lr=0.5).replace(lr=0.25) == jdfl.DPSGD(lr=0.25)
