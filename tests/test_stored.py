"""What is saved is what is loaded, bit for bit; what cannot be loaded is refused in words."""

import dataclasses
import json
import shutil
import warnings
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest

import jdfl
from jdfl.base.absent import Absent
from jdfl.cli import main
from tests.later import Later
from tests.refused import refused

PROBLEM = Later(jdfl.problems.example1, 4, 20, 2, (5, 9))
RING = Later(jdfl.network.ring, 4)
PRIVATE = jdfl.DPSGD(lr=0.05, gradients=jdfl.Gradients(clip=1.0, mechanism=jdfl.Gaussian(4.0)))
NOT_STORED = ("algorithm", "algorithms", "state", "key", "private_key", "ready", "computed", "data", "token")
pytestmark = pytest.mark.usefixtures("undrawn")


def same(one: Any, other: Any, where: str = "") -> None:
    """Whether two values are equal bit for bit, and of the same kinds."""
    if isinstance(one, np.ndarray | jax.Array | np.generic):
        one, other = np.asarray(one), np.asarray(other)
        assert (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes()), where
        return
    assert type(one) is type(other), where
    if isinstance(one, pd.DataFrame):
        pd.testing.assert_frame_equal(one, other, check_exact=True, obj=where)
    elif dataclasses.is_dataclass(one):
        for field in dataclasses.fields(one):
            if field.name not in NOT_STORED and (field.name, type(one).__name__) != ("run", "Published"):
                same(getattr(one, field.name), getattr(other, field.name), f"{where}.{field.name}")
    elif isinstance(one, dict | list | tuple):
        assert len(one) == len(other), where
        pairs = zip(one.items(), other.items()) if isinstance(one, dict) else zip(one, other)
        for i, (left, right) in enumerate(pairs):
            same(left, right, f"{where}[{i}]")
    else:
        assert one == other or (one != one and other != other), where


@pytest.fixture(scope="module")
def result() -> jdfl.Result:
    return jdfl.run(PRIVATE, PROBLEM(), RING(), key=0, steps=10)


@pytest.fixture(scope="module")
def saved(undrawn, result, tmp_path_factory) -> Path:
    """Its folder, which is not to be changed."""
    return result.save(tmp_path_factory.mktemp("saved") / "run")


@pytest.fixture(scope="module")
def compared() -> jdfl.Comparison:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return jdfl.compare(
            {"D-PSGD": jdfl.DPSGD(), "given": jdfl.Entry(jdfl.DPSGD(lr=0.02), tune={})},
            PROBLEM(),
            RING(),
            trials=2,
            steps=8,
            tuning=jdfl.Tuning(grids={"lr": [0.01, 0.05]}, extend=0),
        )


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_result_comes_back_bit_for_bit(result, tmp_path):
    timed = jdfl.network.timed(RING(), jdfl.network.ExponentialTime(1.0))
    diverged = jdfl.run(jdfl.DPSGD(lr=1e9), PROBLEM(), timed, steps=10)
    odd = {"": np.array([np.nan, -0.0]), "of": {"a": np.float32(0.1), "$": (2**200, ["é\n", None])}}
    secret = dataclasses.replace(result, labels=odd, key=(123456789, 987654321))
    for i, made in enumerate((secret, diverged)):
        folder = tmp_path / str(i)
        assert made.save(folder) == folder
        assert not any("987654321" in path.read_text() for path in folder.glob("*.json"))
        loaded = jdfl.load(folder)
        assert isinstance(loaded, jdfl.Result)
        same(made, loaded)
        assert repr(loaded) == repr(made)
        assert loaded._repr_html_().count("</tr>") == len(repr(made).splitlines())
        if made.guarantee.claimed:
            assert jdfl.account(loaded).epsilon == jdfl.account(made).epsilon
    assert main(["report", str(folder), "--out", str(tmp_path / "page.html")]) == 0
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert made.provenance.hash in made.report(tmp_path / "mine.html").read_text(encoding="utf-8")
    assert len(page) < 1.5e6
    assert made.provenance.hash in page
    loaded.save(tmp_path / "again")
    same(loaded, jdfl.load(tmp_path / "again"))


def test_what_is_not_stored_says_so_when_it_is_used(result, saved):
    loaded = jdfl.load(saved)
    shown = repr(loaded.algorithm), hasattr(loaded.algorithm, "lr"), hasattr(loaded.algorithm, "__len__")
    assert shown == (f"<not stored: the algorithm of {loaded.algorithm.described}>", False, False)
    with refused("jdfl.read_checkpoint"):
        jdfl.run(PRIVATE, PROBLEM(), RING(), steps=12, resume=loaded)
    checkpoint = jdfl.read_checkpoint(saved / "checkpoints", PRIVATE, PROBLEM(), RING())
    assert jdfl.run(PRIVATE, PROBLEM(), RING(), steps=12, resume=checkpoint).rounds == 12


def test_a_comparison_comes_back_bit_for_bit(compared, tmp_path):
    compared.save(tmp_path / "both")
    loaded = jdfl.load(tmp_path / "both")
    assert isinstance(loaded, jdfl.Comparison)
    same(compared, loaded)
    assert loaded.table("latex") == compared.table("latex")
    assert repr(loaded) == repr(compared)
    assert isinstance(loaded.algorithms["D-PSGD"], Absent)
    pd.testing.assert_frame_equal(loaded.at("bytes"), compared.at("bytes"), check_exact=True)
    assert loaded.report(tmp_path / "page.html").stat().st_size < 1.5e6


def test_runs_of_the_command_line_are_loaded(tmp_path):
    flags = ["--problem.m", "4", "--problem.n", "20", "--problem.s", "2", "--problem.rows", "5", "9"]
    flags += ["--network", "ring", "--algorithm", "d-psgd", "--stop", "none", "--steps", "10", "--quiet"]
    folder = tmp_path / "run"
    assert main(["run", *flags, "--folder", str(folder)]) == 0
    same(jdfl.load(folder).history, pd.read_parquet(folder / "metrics.parquet"))
    (folder / "summary.json").unlink()
    with pytest.raises(FileNotFoundError, match="jdfl resume"):
        jdfl.load(folder)


def test_nothing_is_replaced_unless_that_is_asked_for_and_what_is_no_data_is_refused(result, saved, tmp_path):
    with refused(FileExistsError, "overwrite=True"):
        result.save(saved)
    with pytest.raises(TypeError):
        dataclasses.replace(result, labels={"a": object()}).save(tmp_path / "other")
    assert list(tmp_path.iterdir()) == []


def edited(change):
    """Makes a folder's result.json another one."""

    def spoil(folder: Path) -> None:
        told = json.loads((folder / "result.json").read_text())
        change(told)
        (folder / "result.json").write_text(json.dumps(told))

    return spoil


SPOILT = {
    shutil.rmtree: FileNotFoundError,
    (lambda folder: (folder / "params.npz").unlink()): FileNotFoundError,
    (lambda folder: (folder / "result.npz").write_bytes(b"PK")): ValueError,
    (lambda folder: (folder / "result.npz").unlink()): FileNotFoundError,
    (lambda folder: (folder / "result.json").unlink()): FileNotFoundError,
    (lambda folder: (folder / "result.json").rename(folder / "study.yaml")): ValueError,
    edited(lambda told: told.update(format=99)): ValueError,
    edited(lambda told: told["value"].update({"$": "No"})): ValueError,
}


def test_folders_that_cannot_be_loaded_are_refused_by_name(saved, tmp_path):
    for i, (spoil, error) in enumerate(SPOILT.items()):
        folder = Path(shutil.copytree(saved, tmp_path / str(i)))
        spoil(folder)
        with pytest.raises(error) as caught:
            jdfl.load(folder)
        assert str(folder) in str(caught.value)
