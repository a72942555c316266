"""Keys that the operating system draws: nothing that a run writes has them, and nobody resumes without their file."""

import json
import stat
from pathlib import Path

import jax
import numpy as np
import pytest

import jdfl
from jdfl.base.keys import key_data, key_in
from jdfl.cli import main
from tests.refused import refused

pytestmark = pytest.mark.usefixtures("undrawn")
FLAGS = ["--problem.m", "4", "--problem.n", "8", "--problem.s", "2", "--network", "ring", "--algorithm", "d-psgd"]


def holding(files, words):
    """The files that have a word of these, however it is written."""
    number = [np.uint32(w) for w in words]
    forms = [f for w in number for f in (str(w).encode(), f"{w:08x}".encode(), w.tobytes(), w.byteswap().tobytes())]
    return [path.name for path in files if path.is_file() and any(form in path.read_bytes() for form in forms)]


def words_of(path):
    told = path.read_text().strip()
    return [int(told[:8], 16), int(told[8:], 16)]


def test_the_file_is_made_once_and_only_its_owner_may_read_it(tmp_path, monkeypatch):
    path = tmp_path / "of the study" / "secret.key"
    key = jdfl.key_file(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert key_data(key) == words_of(path) == key_data(jdfl.key_file(path)) == key_data(key_in(path))
    assert key_data(jdfl.key_file(tmp_path / "other.key")) != key_data(key)
    assert words_of(path)[0] != 0  # which a seed's is; by chance once in 2^32
    monkeypatch.setattr(Path, "exists", lambda self: False)  # another that makes it at once has not seen it yet
    assert key_data(jdfl.key_file(path)) == words_of(path) == key_data(key)
    assert [one.name for one in path.parent.iterdir()] == ["secret.key"]


def test_a_file_that_holds_something_else_is_refused_and_left(tmp_path):
    for text in ("", "12", "x" * 16, "0123456789abcdef 0"):
        (path := tmp_path / "secret.key").write_text(text)
        with refused("16 hexadecimal digits"):
            jdfl.key_file(path)
        assert path.read_text() == text


def test_nothing_that_is_written_has_the_key_and_nobody_resumes_without_it(tmp_path, capsys):
    path, out = tmp_path / "secret.key", tmp_path / "runs"
    ledger = tmp_path / "ledger.json"
    jdfl.DataLedger.create(ledger, epsilon=50.0, delta=1e-5)
    flags = [*FLAGS, "--algorithm.clip", "1", "--algorithm.mechanism", "gaussian"]
    flags += ["--algorithm.mechanism.multiplier", "4", "--privacy.ledger", str(ledger), "--privacy.delta", "1e-5"]
    flags += ["--stop", "none", "--out", str(out), "--key-file", str(path), "--quiet", "--steps", "3"]
    assert main(["run", *flags, "--repeats", "2"]) == 0
    assert "keep it secret" in capsys.readouterr().err
    told = [json.loads(one.read_text())["settings"]["private key"] for one in out.rglob("provenance.json")]
    assert len({*told}) == jdfl.DataLedger(ledger).standing().runs == 2  # of their own
    (folder,) = out.glob("*seed1")
    assert main(["resume", str(folder), "--steps", "5", "--quiet"]) == 0
    folded = [word for seed in (0, 1) for word in key_data(jax.random.fold_in(key_in(path), seed))]
    assert holding([ledger, *out.rglob("*")], [*words_of(path), *folded]) == []
    path.rename(tmp_path / "away")
    assert main(["resume", str(folder), "--steps", "7", "--quiet"]) == 2
    assert "found no" in capsys.readouterr().err
    path.write_text("0123456789abcdef\n")
    path.chmod(0o600)
    assert main(["resume", str(folder), "--steps", "7", "--quiet"]) == 2
    assert "the key of the run" in capsys.readouterr().err
    studied = ["sweep", *FLAGS, "--over", "algorithm.lr=.1,.2", "--steps", "2", "--key-file", str(path)]
    assert main(studied) == 2  # studies have seeds
    assert "key_file" in capsys.readouterr().err


def test_noise_that_is_correlated_joins_a_ledger_once(tmp_path):
    ledger = jdfl.DataLedger.create(tmp_path / "ledger.json", epsilon=50.0, delta=1e-3)
    problem, network = jdfl.problems.example1(m=4, n=8, s=2, rows=(8, 8)), jdfl.network.ring(4)
    noisy = jdfl.Gradients(clip=1.0, mechanism=jdfl.Gaussian(4.0), batch=2, sampling="in order")
    algorithm = jdfl.MAFALDA(gradients=noisy, horizon=8, band=3)
    found = jdfl.run(algorithm, problem, network, steps=6, ledger=ledger).standing
    alone = jdfl.account_plan(algorithm, problem, network, steps=6, delta=1e-3).epsilon
    assert found.runs == 1
    assert found.epsilon == pytest.approx(alone, rel=1e-6)
