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
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import jdfl
from jdfl.base.absent import Absent
from jdfl.cli import main
from jdfl.lab.stored import read_value, write_value
from tests.later import Later
from tests.refused import refused

PROBLEM = Later(jdfl.problems.example1, 4, 20, 2, (5, 9))
RING = Later(jdfl.network.ring, 4)
PRIVATE = jdfl.DPSGD(lr=0.05, gradients=jdfl.Gradients(clip=1.0, mechanism=jdfl.Gaussian(4.0)))
NOT_STORED = ("algorithm", "algorithms", "state", "key", "private_key", "ready", "computed", "data", "token")
pytestmark = pytest.mark.usefixtures("undrawn")


def same(one: Any, other: Any, where: str = "") -> None:
    """Whether two values are equal bit for bit, and of the same kinds."""
    if isinstance(one, pd.DataFrame):
        pd.testing.assert_frame_equal(one, other, check_exact=True, obj=where)
    elif isinstance(one, np.ndarray | jax.Array | np.generic):
        one, other = np.asarray(one), np.asarray(other)
        assert (one.dtype, one.shape) == (other.dtype, other.shape), where
        assert one.tobytes() == other.tobytes(), where
    elif dataclasses.is_dataclass(one):
        assert type(one) is type(other), where
        for field in dataclasses.fields(one):
            if field.name not in NOT_STORED and (field.name, type(one).__name__) != ("run", "Published"):
                same(getattr(one, field.name), getattr(other, field.name), f"{where}.{field.name}")
    elif isinstance(one, dict):
        assert list(one) == list(other), where
        for name in one:
            same(one[name], other[name], f"{where}[{name!r}]")
    elif isinstance(one, list | tuple):
        assert (type(one), len(one)) == (type(other), len(other)), where
        for i, (left, right) in enumerate(zip(one, other)):
            same(left, right, f"{where}[{i}]")
    else:
        assert type(one) is type(other), where
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
            {"D-PSGD": jdfl.DPSGD(), "given": jdfl.Entry(jdfl.EXTRA(), tune={})},
            PROBLEM(),
            RING(),
            trials=2,
            steps=8,
            tuning=jdfl.Tuning(grids={"lr": [0.01, 0.05]}, extend=0),
        )


SEEN = [
    (jdfl.CEPS(s=2, codec=jdfl.OneBit(d=40), mechanism=jdfl.Gaussian(0.5), sensitivity=0.1, periods=(2, 3)), RING),
    (jdfl.DPSGD(lr=1e9), Later(lambda: jdfl.network.timed(RING(), jdfl.network.ExponentialTime(1.0)))),  # it diverges
]


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_result_comes_back_bit_for_bit(result, tmp_path):
    others = (jdfl.run(algorithm, PROBLEM(), network(), steps=10) for algorithm, network in SEEN)
    for i, made in enumerate((result, *others)):
        folder = tmp_path / str(i)
        assert made.save(folder) == folder
        loaded = jdfl.load(folder)
        assert isinstance(loaded, jdfl.Result)
        same(made, loaded)
        assert repr(loaded) == repr(made)
        assert loaded.final == made.final
        if made.guarantee.claimed:
            assert jdfl.account(loaded).epsilon == jdfl.account(made).epsilon
        loaded.save(tmp_path / f"again-{i}")
        same(loaded, jdfl.load(tmp_path / f"again-{i}"))
        loaded.plot()
        assert main(["report", str(folder), "--out", str(tmp_path / "page.html")]) == 0
        page = (tmp_path / "page.html").read_text(encoding="utf-8")
        assert len(page) < 1.5e6
        assert made.provenance.hash in page


def test_the_key_is_not_written(result, tmp_path):
    secret = dataclasses.replace(result, key=(123456789, 987654321))
    secret.save(tmp_path / "run")
    for path in (tmp_path / "run").glob("*.json"):
        assert "123456789" not in path.read_text()
        assert "987654321" not in path.read_text()


def test_what_is_not_stored_says_so_when_it_is_used(result, saved):
    loaded = jdfl.load(saved)
    assert isinstance(loaded, jdfl.Result)
    assert "DPSGD" in repr(loaded.algorithm)
    with pytest.raises(AttributeError):
        loaded.algorithm.lr  # noqa: B018
    with refused("jdfl.read_checkpoint"):
        jdfl.run(PRIVATE, PROBLEM(), RING(), steps=12, resume=loaded)
    checkpoint = jdfl.read_checkpoint(saved / "checkpoints", PRIVATE, PROBLEM(), RING())
    onward = jdfl.run(PRIVATE, PROBLEM(), RING(), steps=12, resume=checkpoint)
    same(onward.history, jdfl.run(PRIVATE, PROBLEM(), RING(), key=0, steps=12).history)


def test_a_comparison_comes_back_bit_for_bit(compared, tmp_path):
    compared.save(tmp_path / "both")
    loaded = jdfl.load(tmp_path / "both")
    assert isinstance(loaded, jdfl.Comparison)
    same(compared, loaded)
    assert loaded.table("latex") == compared.table("latex")
    assert loaded.provenance == compared.provenance
    assert repr(loaded) == repr(compared)
    assert isinstance(loaded.algorithms["D-PSGD"], Absent)
    pd.testing.assert_frame_equal(loaded.at("bytes"), compared.at("bytes"), check_exact=True)
    loaded.plot(["round", "bytes"])
    loaded.save(tmp_path / "again")
    assert loaded.report(tmp_path / "page.html").stat().st_size < 1.5e6


def test_runs_of_the_command_line_are_loaded(tmp_path):
    flags = ["--problem.m", "4", "--problem.n", "20", "--problem.s", "2", "--problem.rows", "5", "9"]
    flags += ["--network", "ring", "--algorithm", "d-psgd", "--stop", "none", "--steps", "6", "--quiet"]
    folder = tmp_path / "run"
    assert main(["run", *flags, "--folder", str(folder)]) == 0
    loaded = jdfl.load(folder)
    assert isinstance(loaded, jdfl.Result)
    same(loaded.history, pd.read_parquet(folder / "metrics.parquet"))
    assert loaded.totals.bytes == json.loads((folder / "summary.json").read_text())["bytes"]
    (folder / "summary.json").unlink()
    with pytest.raises(FileNotFoundError, match="jdfl resume"):
        jdfl.load(folder)


def test_nothing_is_replaced_unless_that_is_asked_for(result, tmp_path):
    result.save(tmp_path / "run")
    (tmp_path / "run" / "notes.txt").write_text("mine")
    with refused(FileExistsError, "overwrite=True"):
        result.save(tmp_path / "run")
    result.save(tmp_path / "run", overwrite=True)
    assert not (tmp_path / "run" / "notes.txt").exists()
    with pytest.raises(TypeError):
        dataclasses.replace(result, labels={"a": object()}).save(tmp_path / "other")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def edited(change):
    """Makes a folder's result.json another one."""

    def spoil(folder: Path) -> None:
        told = json.loads((folder / "result.json").read_text())
        change(told)
        (folder / "result.json").write_text(json.dumps(told))

    return spoil


SPOILT = {
    shutil.rmtree: FileNotFoundError,
    (lambda folder: (shutil.rmtree(folder), folder.mkdir())): FileNotFoundError,
    (lambda folder: (folder / "result.npz").unlink()): FileNotFoundError,
    (lambda folder: (folder / "params.npz").unlink()): FileNotFoundError,
    (lambda folder: (folder / "result.json").unlink()): ValueError,
    (lambda folder: (folder / "result.npz").write_bytes(b"PK")): ValueError,
    (lambda folder: (folder / "result.json").write_text("{")): ValueError,
    (lambda folder: (folder / "result.json").rename(folder / "study.yaml")): ValueError,
    edited(lambda told: told.update(format=99)): ValueError,
    edited(lambda told: told.pop("results")): ValueError,
    edited(lambda told: told["value"].update({"$": "No"})): ValueError,
}


def test_folders_that_cannot_be_loaded_are_refused_by_name(saved, tmp_path):
    for i, (spoil, error) in enumerate(SPOILT.items()):
        folder = Path(shutil.copytree(saved, tmp_path / str(i)))
        spoil(folder)
        with pytest.raises(error) as caught:
            jdfl.load(folder)
        assert str(folder) in str(caught.value)


SINGLE = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
ARRAYS = st.lists(st.floats(), max_size=4).map(np.array) | st.builds(np.float32, st.floats(width=32))
PLAIN = st.recursive(
    SINGLE | ARRAYS | st.lists(st.integers(-9, 9), max_size=4).map(lambda one: np.array(one, np.int16)),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=3)
    ),
    max_leaves=10,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=20)
@given(labels=st.dictionaries(st.text(), PLAIN, max_size=4), values=st.lists(st.floats(), min_size=1, max_size=5))
def test_any_labels_and_numbers_come_back(result, tmp_path, labels, values):
    history = pd.DataFrame({"round": range(len(values)), "objective": values})
    made = dataclasses.replace(result, labels=labels, history=history, sums={"huge": 2**200})
    write_value(tmp_path, "result", made)
    same(made, read_value(tmp_path, "result"))
