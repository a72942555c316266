"""A few attacks of `python -m tests.robustness`, and what such attacks have found, each by itself."""

import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import MagicMock

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp

import jdfl
from jdfl import network, privacy, problems
from jdfl.cli import main
from jdfl.lab.results import export, read_run
from jdfl.store import manifest
from tests.comparison.test_tables import made as made_up
from tests.fuzz.calls import GOOD, PROBLEM, RING, X
from tests.fuzz.judge import unclean
from tests.fuzz.test_wrong_objects import Duck
from tests.later import Later
from tests.refused import refused
from tests.robustness.__main__ import added, attacked
from tests.robustness.outcomes import HANG, SILENT, TRACEBACK, Tally, WrongError
from tests.test_killed_runs import DPSGD, GAUSSIAN, NONE, TINY

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.slow
@pytest.mark.parametrize(("part", "count"), [("folders", 25), ("calls", 150), ("inputs", 60)])
def test_nothing_bad_comes_of_some_attacks(part, count):
    tally, _ = attacked(part, 0, range(count), few=True)
    assert tally.bad == []
    assert tally.counts.total() == count
    assert len(tally.counts) > 1


def test_bad_outcomes_are_counted_by_kind_and_can_be_repeated():
    def attack(draw: Random) -> str:
        if draw.random() < 0.3:
            raise WrongError(draw.choice([SILENT, TRACEBACK]), "words")
        return "fine"

    def waits(draw: Random) -> str:
        while True:
            pass

    tally, again = Tally(3, "calls"), Tally(3, "calls")
    for number in range(40):
        tally.attack(number, attack, 5.0)
    tally.attack(40, waits, 0.05)
    told = tally.told()
    assert told["attacks"] == 41 == sum(told["outcomes"].values())
    assert len(tally.bad) == told[HANG] + told[SILENT] + told[TRACEBACK] > 3
    assert tally.bad[-1].endswith("python -m tests.robustness --seed 3 --part calls --only 40")
    for line in tally.bad[:-1]:
        again.attack(int(line.rpartition(" ")[2]), attack, 5.0)
    assert again.bad == tally.bad[:-1]
    twice = added(added(None, told), told | {"seeds": [4]})
    assert (twice["attacks"], twice["seeds"]) == (82, [3, 4])
    assert twice["outcomes"]["fine"] == 2 * told["outcomes"]["fine"]


# ---------------------------------------------------------------- folders


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A folder with two runs and a sweep that are finished."""
    base = tmp_path_factory.mktemp("made")
    run = ["run", *TINY, *DPSGD, *GAUSSIAN, *NONE, "--steps", "4", "--quiet", "--folder"]
    sweep = ["sweep", *TINY, *DPSGD, *NONE, "--steps", "2", "--quiet", "--over", "algorithm.lr=0.01,0.02", "--folder"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JDFL_CACHE", "0")
        for args in ([*run, "run0"], [*run, "run1", "--seed", "1"], [*sweep, "sweep0"]):
            patch.chdir(base)
            assert main(args) == 0
    return base


@pytest.fixture
def copied(made, tmp_path, monkeypatch) -> Callable[..., Path]:
    """A function that copies one of these folders, without some files."""
    monkeypatch.setenv("JDFL_CACHE", "0")

    def copy(name: str, *without: str) -> Path:
        folder = Path(shutil.copytree(made / name, tmp_path / name))
        for file in without:
            (folder / file).unlink()
        return folder

    return copy


CUT = (manifest.NAME, "summary.json")  # which a run that was cut off has not written yet
READERS: dict[str, tuple[Callable[[Path], Any], list[str]]] = {
    "load": (jdfl.load, ["result.json", "result.npz", "params.npz", "metrics.parquet"]),
    "read_run": (read_run, ["summary.json", "environment.json", "params.npz", "metrics.parquet", "config.yaml"]),
    "export": (export, ["journal"]),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_files_of_another_run_are_not_read_as_those_of_this_one(name, made, copied):
    read, files = READERS[name]
    folder = copied("run0")
    for file in files:
        shutil.copyfile(made / "run1" / file, folder / file)
        if (folder / file).read_bytes() != (made / "run0" / file).read_bytes():
            with refused(file):
                read(folder)
        shutil.copyfile(made / "run0" / file, folder / file)
    read(folder)
    (folder / manifest.NAME).unlink()  # as of folders of earlier versions
    shutil.copyfile(made / "run1" / "params.npz", folder / "params.npz")
    read(folder)


def test_a_journal_that_is_damaged_after_the_last_checkpoint_is_not_taken_for_whole(made, copied, capsys):
    folder = copied("run0", *CUT)
    whole = (folder / "journal").read_bytes()
    for damaged in (whole + b"\0" * 40, whole[:-1]):
        (folder / "journal").write_bytes(damaged)
        assert main(["resume", str(folder), "--quiet"]) == 2
    assert "Remove " in capsys.readouterr().err
    shutil.rmtree(folder / "checkpoints" / "4")
    assert main(["resume", str(folder), "--quiet"]) == 0
    assert (folder / "journal").read_bytes() == (made / "run0" / "journal").read_bytes()


def test_a_page_is_not_made_of_changed_tables(copied, capsys):
    folder = copied("run0")
    assert main(["report", str(folder)]) == 0
    assert "Timeline" not in (folder / "report.html").read_text()  # which only asynchronous methods have
    assert not (folder / "timeline.csv").exists()
    for name in ("nodes.csv", "releases.csv", "config.yaml", "summary.json"):
        content = (folder / name).read_text()
        (folder / name).write_text(content.replace("1", "2", 1))
        assert main(["report", str(folder)]) == 2
        assert name in capsys.readouterr().err
        (folder / name).unlink()
        assert main(["report", str(folder)]) == 2
        assert name in capsys.readouterr().err
        (folder / name).write_text(content)


def test_a_page_of_a_run_that_was_cut_off_is_made_of_its_journal_and_of_unchanged_settings(made, copied, capsys):
    folder = copied("run0", *CUT)
    (folder / "nodes.csv").write_text("round,node,shared\n4,0,123456\n")
    assert main(["report", str(folder)]) == 0
    page = (folder / "report.html").read_text()
    assert "123456" not in page
    assert "cut off" in page
    text = (folder / "config.yaml").read_text()
    for changed in (text[: text.index("algorithm")], f"{text}\n", text[:-1]):
        (folder / "config.yaml").write_text(changed)
        assert main(["report", str(folder)]) == 2
    assert "config.yaml as it was written" in capsys.readouterr().err
    (folder / "config.yaml").write_text(text)
    where = (folder / "environment.json").read_text()
    (folder / "environment.json").write_text(where.replace(jdfl.__version__, "9.9.9"))
    assert main(["report", str(folder)]) == 0
    assert "9.9.9" not in (folder / "report.html").read_text()
    whole = (folder / "journal").read_bytes()
    for size in range(whole.index(b"\n") + 1, len(whole), len(whole) // 8):
        (folder / "journal").write_bytes(whole[:size])
        assert main(["report", str(folder)]) in (0, 2)
    assert "found none yet" in capsys.readouterr().err
    (folder / "journal").write_bytes(whole)
    assert main(["export", str(folder)]) == 0
    assert "has not ended: these are its records so far" in capsys.readouterr().err
    shutil.copyfile(made / "run1" / "journal", folder / "journal")  # of another run
    for command in ("report", "export"):
        assert main([command, str(folder)]) == 2
    assert "journal" in capsys.readouterr().err


def test_a_sweep_does_not_go_on_with_other_settings(copied, capsys):
    folder = copied("sweep0")
    assert main(["resume", str(folder), "--quiet"]) == 0
    whole = (folder / "study.yaml").read_text()
    for text in (whole.replace("seed: 0", "seed: 1"), whole.replace("0.02", "0.03"), whole[: len(whole) // 2]):
        assert text != whole
        (folder / "study.yaml").write_text(text)
        assert main(["resume", str(folder), "--quiet"]) == 2
    assert "other settings" in capsys.readouterr().err


# ---------------------------------------------------------------- calls

COMPARED = Later(made_up, {"a": [1.0, 2.0], "b": [1.5, 2.0]})
RESULT = Later(lambda: COMPARED().results["a"][0])
EVENT = privacy.GaussianEvent(1.0, slip=[])
FOUND: dict[str, Callable[[], Any]] = {
    "path": lambda: RESULT().report(3),
    "folder": lambda: RESULT().save(type),
    "y": lambda: RESULT().plot(y=3),
    "path of a comparison": lambda: COMPARED().report(b"x"),
    "NUL in a folder": lambda: COMPARED().save("\0"),
    "ax": lambda: COMPARED().plot(ax=jax.random.key(0)),
    "label": lambda: COMPARED().runs("none"),
    "label of mark": lambda: COMPARED().mark(np.zeros(2)),
    "label of note": lambda: COMPARED().note([]),
    "x": lambda: COMPARED().view("x"),
    "x of tuned_at": lambda: COMPARED().tuned_at(sp.eye_array(3)),
    "value": lambda: COMPARED().differences(value=np.ones(2)),
    "metrics": lambda: COMPARED().table(metrics=1j),
    "metrics that are unknown": lambda: COMPARED().grid(metrics=np.full(3, np.nan)),
    "retry": lambda: jdfl.compare(**GOOD["compare"], retry=np.zeros(3)),
    "labels of methods": lambda: jdfl.compare(**{**GOOD["compare"], "methods": {1: jdfl.DPSGD()}}),
    "minutes": lambda: jdfl.Checkpoints("x", minutes=nx.Graph()),
    "slip": lambda: privacy.epsilon(EVENT, 3, 1e-5),
    "noise_multiplier": lambda: privacy.epsilon(privacy.GaussianEvent(1e300), 3, 1e-5),
    "noise_multiplier of Laplace noise": lambda: privacy.epsilon(privacy.LaplaceEvent(MagicMock()), 3, 1e-5),
    "n": lambda: privacy.stretch("l2", "l1", 10**400),
    "network": lambda: network.check_weights(MagicMock(), "M-1"),
    "edges": lambda: network.from_edges(MagicMock()),
    "features": lambda: problems.linear_regression(sp.eye_array(3), [X]),
    "vectors": lambda: problems.averaging(sp.csr_matrix((2, 2))),
    "joins": lambda: network.membership(RING(), joins=Duck()),
    "names": lambda: RING().named(Duck()),
    "names that are one text": lambda: RING().named("abcd"),
    "names without an order": lambda: PROBLEM().named({"a", "b", "c", "d"}),
}


def test_wrong_arguments_are_refused_by_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for about, call in FOUND.items():
        with refused(about.partition(" ")[0]) as error:
            call()
        assert unclean(error.value) == "", about


def test_numbers_of_other_kinds_are_taken():
    assert privacy.gaussian_epsilon(np.longdouble(1), 1e-5) == privacy.gaussian_epsilon(1.0, 1e-5)
    labels = jnp.arange(24) % 2
    np.testing.assert_array_equal(problems.holdout(X, labels, 0.25), problems.holdout(X, np.asarray(labels), 0.25))
