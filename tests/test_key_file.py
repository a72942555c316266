"""Keys that the operating system draws: nothing that a run writes has them, and nobody resumes without their file."""

import itertools
import stat
from pathlib import Path

import jax
import numpy as np
import pytest

import jdfl
from jdfl.base.keys import key_data, key_in
from jdfl.cli import main

FLAGS = ["--problem.m", "4", "--problem.n", "8", "--problem.s", "2", "--network", "ring", "--algorithm", "d-psgd"]


def spelt(words):
    """Ways in which a word may be written."""
    forms = (
        (str(w).encode(), f"{w:08x}".encode(), np.uint32(w).tobytes(), np.uint32(w).byteswap().tobytes()) for w in words
    )
    return list(itertools.chain.from_iterable(forms))


def holding(folder, words):
    """The files that have a word of these."""
    files = [path for path in Path(folder).rglob("*") if path.is_file()]
    assert len(files) > 5
    return [path.name for path in files if any(form in path.read_bytes() for form in spelt(words))]


def words_of(path):
    told = path.read_text().strip()
    return [int(told[:8], 16), int(told[8:], 16)]


def test_the_file_is_made_once_and_only_its_owner_may_read_it(tmp_path):
    path = tmp_path / "of the study" / "secret.key"
    key = jdfl.key_file(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert key_data(key) == words_of(path) == key_data(jdfl.key_file(path)) == key_data(key_in(path))
    assert key_data(jdfl.key_file(tmp_path / "other.key")) != key_data(key)
    assert words_of(path)[0] != 0  # which a seed's is; by chance once in 2^32


def test_of_two_who_make_it_at_once_both_have_the_key_of_one(tmp_path, monkeypatch):
    path = tmp_path / "secret.key"
    first = key_data(jdfl.key_file(path))
    monkeypatch.setattr(Path, "exists", lambda self: False)  # the other has not seen it yet
    assert key_data(jdfl.key_file(path)) == first == words_of(path)
    assert [one.name for one in tmp_path.iterdir()] == ["secret.key"]


@pytest.mark.parametrize("text", ["", "12", "x" * 16, "0123456789abcdef 0"])
def test_a_file_that_holds_something_else_is_refused_and_left(tmp_path, text):
    path = tmp_path / "secret.key"
    path.write_text(text)
    with pytest.raises(ValueError, match="16 hexadecimal digits"):
        jdfl.key_file(path)
    assert path.read_text() == text


def test_nothing_that_is_written_has_the_key(tmp_path, capsys):
    path, out = tmp_path / "secret.key", tmp_path / "runs"
    flags = [*FLAGS, "--out", str(out), "--key-file", str(path), "--quiet"]
    assert main(["run", *flags, "--steps", "3"]) == 0
    assert "keep it secret" in capsys.readouterr().err
    folded = key_data(jax.random.fold_in(key_in(path), 0))
    assert holding(out, [*words_of(path), *folded]) == []
    assert main(["run", *FLAGS, "--out", str(out / "seeded"), "--seed", "123456789", "--steps", "3", "--quiet"]) == 0
    assert "config.yaml" in holding(out / "seeded", [123456789])  # the search finds what is there
    (folder,) = (one for one in out.iterdir() if one.name != "seeded")
    again = main(["resume", str(folder), "--steps", "5", "--quiet"])
    assert (again, holding(folder, folded)) == (0, [])
    path.rename(tmp_path / "away")
    assert main(["resume", str(folder), "--steps", "7", "--quiet"]) == 2
    assert "found no" in capsys.readouterr().err
    (tmp_path / "other.key").write_text("0123456789abcdef\n")
    (tmp_path / "other.key").rename(path)
    assert main(["resume", str(folder), "--steps", "7", "--quiet"]) == 2
    assert "Expected the key of the run" in capsys.readouterr().err


def test_repeats_have_keys_of_their_own(tmp_path):
    path, out = tmp_path / "secret.key", tmp_path / "runs"
    assert (
        main(["run", *FLAGS, "--out", str(out), "--key-file", str(path), "--steps", "1", "--repeats", "2", "--quiet"])
        == 0
    )
    keys = {told["settings"]["private key"] for told in _provenances(out)}
    assert len(keys) == 2


def _provenances(out):
    import json

    return [json.loads(path.read_text()) for path in out.rglob("provenance.json")]


def test_studies_have_seeds(tmp_path, capsys):
    assert (
        main(["sweep", *FLAGS, "--over", "algorithm.lr=.1,.2", "--steps", "2", "--key-file", str(tmp_path / "k")]) == 2
    )
    assert "key_file" in capsys.readouterr().err


def test_the_ledger_of_the_data_has_no_key_either(tmp_path):
    path, ledger = tmp_path / "secret.key", tmp_path / "ledger.json"
    jdfl.DataLedger.create(ledger, epsilon=50.0, delta=1e-5)
    noisy = ["--algorithm.clip", "1", "--algorithm.mechanism", "gaussian", "--algorithm.mechanism.multiplier", "4"]
    flags = [*FLAGS, *noisy, "--stop", "none", "--out", str(tmp_path / "runs"), "--quiet", "--steps", "2"]
    flags += ["--privacy.ledger", str(ledger), "--privacy.delta", "1e-5"]
    assert main(["run", *flags, "--key-file", str(path), "--repeats", "2"]) == 0
    assert jdfl.DataLedger(ledger).standing().runs == 2
    folded = [word for seed in (0, 1) for word in key_data(jax.random.fold_in(key_in(path), seed))]
    told = ledger.read_bytes()
    assert not any(form in told for form in spelt([*words_of(path), *folded]))


def test_noise_that_is_correlated_joins_a_ledger_once(tmp_path):
    ledger = jdfl.DataLedger.create(tmp_path / "ledger.json", epsilon=50.0, delta=1e-3)
    problem, network = jdfl.problems.example1(m=4, n=8, s=2, rows=(8, 8)), jdfl.network.ring(4)
    noisy = jdfl.Gradients(clip=1.0, mechanism=jdfl.Gaussian(4.0), batch=2, sampling="in order")
    algorithm = jdfl.MAFALDA(gradients=noisy, horizon=8, band=3)
    found = jdfl.run(algorithm, problem, network, steps=6, ledger=ledger).standing
    alone = jdfl.account_plan(algorithm, problem, network, steps=6, delta=1e-3).epsilon
    assert found.runs == 1
    assert found.epsilon == pytest.approx(alone, rel=1e-6)
