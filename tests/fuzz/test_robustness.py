"""A few attacks of `python -m tests.robustness`, and what such attacks have found, each by itself."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import MagicMock, Mock

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
from jdfl.store import jobs, manifest
from tests.comparison.test_goes_on import SMALL
from tests.fuzz.calls import GOOD, PROBLEM, RING, X
from tests.fuzz.judge import tried, unclean
from tests.fuzz.test_wrong_objects import Duck
from tests.later import Later
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


def test_bad_outcomes_are_counted_by_kind_and_can_be_repeated(capsys):
    tally = Tally(3, "calls")

    def attack(draw: Random) -> str:
        if draw.random() < 0.3:
            raise WrongError(draw.choice([SILENT, TRACEBACK]), "words")
        while draw.random() < 0.3:
            pass
        return "fine"

    def waits(draw: Random) -> str:
        while True:
            pass

    for number in range(40):
        tally.attack(number, attack, 5.0)
    tally.attack(40, waits, 0.05)
    told = tally.told()
    assert told["attacks"] == 41 == sum(told["outcomes"].values())
    assert told[HANG] == 1
    assert len(tally.bad) == told[HANG] + told[SILENT] + told[TRACEBACK] > 3
    assert tally.bad[-1].endswith("python -m tests.robustness --seed 3 --part calls --only 40")
    again = Tally(3, "calls")
    for line in tally.bad[:-1]:
        again.attack(int(line.rpartition(" ")[2]), attack, 5.0)
    assert again.bad == tally.bad[:-1]
    capsys.readouterr()
    assert added(None, told) == told
    twice = added(told, told | {"seeds": [4]})
    assert twice["attacks"] == 82
    assert twice["seeds"] == [3, 4]
    assert twice["outcomes"]["fine"] == 2 * told["outcomes"]["fine"]


# ---------------------------------------------------------------- folders


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A folder with a run, a sweep and a comparison that are finished, and others of the same kinds."""
    base = tmp_path_factory.mktemp("made")
    (base / "small.yaml").write_text(SMALL.replace("steps: 6", "steps: 3"))
    run = ["run", *TINY, *DPSGD, *GAUSSIAN, *NONE, "--steps", "4", "--quiet"]
    sweep = ["sweep", *TINY, *DPSGD, *NONE, "--steps", "2", "--quiet", "--over", "algorithm.lr=0.01,0.02"]
    compare = ["compare", "--config", str(base / "small.yaml"), "--quiet"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JDFL_CACHE", "0")
        for seed in ("0", "1"):
            for name, args in {"run": run, "sweep": sweep}.items():
                assert main([*args, "--seed", seed, "--folder", str(base / f"{name}{seed}")]) == 0
        assert main([*compare, "--folder", str(base / "comparison0")]) == 0
    return base


@pytest.fixture
def copied(made, tmp_path, monkeypatch) -> Callable[[str], Path]:
    """A function that copies one of these folders."""
    monkeypatch.setenv("JDFL_CACHE", "0")
    return lambda name: Path(shutil.copytree(made / name, tmp_path / name))


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
            with pytest.raises(ValueError, match=rf"Expected the files .* {file} was changed. Put it back"):
                read(folder)
        shutil.copyfile(made / "run0" / file, folder / file)
    read(folder)
    (folder / manifest.NAME).unlink()  # as of folders of earlier versions
    shutil.copyfile(made / "run1" / "params.npz", folder / "params.npz")
    read(folder)


def test_a_journal_that_is_damaged_after_the_last_checkpoint_is_not_taken_for_whole(made, copied, capsys):
    folder = copied("run0")
    for name in (manifest.NAME, "summary.json"):
        (folder / name).unlink()
    whole = (folder / "journal").read_bytes()
    for damaged in (whole + b"\0" * 40, whole[:-1]):
        (folder / "journal").write_bytes(damaged)
        assert main(["resume", str(folder), "--quiet"]) == 2
    assert "Remove " in capsys.readouterr().err
    shutil.rmtree(folder / "checkpoints" / "4")
    assert main(["resume", str(folder), "--quiet"]) == 0
    assert (folder / "journal").read_bytes() == (made / "run0" / "journal").read_bytes()


@pytest.mark.parametrize("damage", ["nodes.csv", "releases.csv", "config.yaml", "summary.json"])
def test_a_page_is_not_made_of_changed_tables(damage, copied, capsys):
    folder = copied("run0")
    assert main(["report", str(folder)]) == 0
    content = (folder / damage).read_text()
    for changed in (content.replace("1", "2", 1), None):
        (folder / damage).unlink() if changed is None else (folder / damage).write_text(changed)
        capsys.readouterr()
        assert main(["report", str(folder)]) == 2
        assert damage in capsys.readouterr().err


def test_a_page_is_not_made_of_changed_settings_of_a_run_that_was_cut_off(copied, capsys):
    folder = copied("run0")
    for name in (manifest.NAME, "summary.json"):
        (folder / name).unlink()
    assert main(["report", str(folder)]) == 0
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


def test_a_page_of_a_run_that_died_before_its_manifest_is_made_of_the_journal(copied):
    folder = copied("run0")
    (folder / manifest.NAME).unlink()
    (folder / "nodes.csv").write_text("round,node,shared\n4,0,123456\n")
    assert main(["report", str(folder)]) == 0
    page = (folder / "report.html").read_text()
    assert "123456" not in page
    assert "cut off" in page


@pytest.mark.parametrize("command", ["report", "export"])
def test_the_journal_of_another_run_is_not_shown_as_that_of_one_that_was_cut_off(command, made, copied, capsys):
    folder = copied("run0")
    for name in (manifest.NAME, "summary.json"):
        (folder / name).unlink()
    assert main([command, str(folder)]) == 0
    assert command == "report" or "has not ended: these are its records so far" in capsys.readouterr().err
    shutil.copyfile(made / "run1" / "journal", folder / "journal")
    assert main([command, str(folder)]) == 2
    assert "journal" in capsys.readouterr().err or command == "report"


def test_a_journal_without_a_record_has_no_page(copied, capsys):
    folder = copied("run0")
    for name in (manifest.NAME, "summary.json"):
        (folder / name).unlink()
    whole = (folder / "journal").read_bytes()
    for size in range(whole.index(b"\n") + 1, len(whole), 97):
        (folder / "journal").write_bytes(whole[:size])
        assert main(["report", str(folder)]) in (0, 2)
    assert "found none yet" in capsys.readouterr().err


def test_a_sweep_does_not_go_on_with_other_settings(made, copied, capsys):
    folder = copied("sweep0")
    assert main(["resume", str(folder), "--quiet"]) == 0
    whole = (folder / "study.yaml").read_text()
    for text in ((made / "sweep1" / "study.yaml").read_text(), whole.replace("0.02", "0.03"), whole[: len(whole) // 2]):
        (folder / "study.yaml").write_text(text)
        assert main(["resume", str(folder), "--quiet"]) == 2
    assert "other settings" in capsys.readouterr().err


def test_a_finished_comparison_is_shown_only_if_its_files_are_whole(copied, capsys):
    folder = copied("comparison0")
    assert main(["resume", str(folder), "--quiet"]) == 0
    lines = (folder / "equal_costs.csv").read_text().splitlines(keepends=True)
    (folder / "equal_costs.csv").write_text("".join([lines[0], *lines[:0:-1]]))
    assert main(["resume", str(folder), "--quiet"]) == 2
    assert "equal_costs.csv was changed" in capsys.readouterr().err


def test_a_comparison_that_was_cut_off_does_not_go_on_with_other_settings(copied, capsys):
    folder = copied("comparison0")
    origin = {"work": "comparison", "settings": "others", "versions": {}}
    (folder / manifest.NAME).unlink()
    for number, words in ((jobs._FORMAT, "other settings"), (1, "format 2 at .*, got 1. Use"), ("x", "got 'x'. Use")):
        (folder / "jobs.json").write_text(json.dumps({"format": number, **origin}))
        assert main(["resume", str(folder), "--quiet"]) == 2
        assert re.search(words, capsys.readouterr().err)


def test_damage_inside_what_is_compressed_is_refused_in_words(copied):
    folder = copied("comparison0")
    (folder / manifest.NAME).unlink()
    whole = (folder / "comparison.npz").read_bytes()
    for at in range(40, len(whole), 997):
        (folder / "comparison.npz").write_bytes(whole[:at] + bytes([whole[at] ^ 255]) + whole[at + 1 :])
        tried(lambda: jdfl.load(folder), at)


# ---------------------------------------------------------------- calls

RESULT = Later(lambda: jdfl.run(jdfl.DPSGD(), PROBLEM(), RING(), key=0, steps=2))
COMPARED = Later(lambda: jdfl.compare(**GOOD["compare"]))
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
    "noise_multiplier that is an array": lambda: privacy.epsilon(privacy.GaussianEvent(np.array(2.0)), 3, 1e-5),
    "n": lambda: privacy.stretch("l2", "l1", 10**400),
    "graph": lambda: network.from_networkx(Mock()),
    "network": lambda: network.check_weights(MagicMock(), "M-1"),
    "base": lambda: network.outages(MagicMock(), down=0.1, up=0.2),
    "edges": lambda: network.from_edges(MagicMock()),
    "features": lambda: problems.linear_regression(sp.eye_array(3), [X]),
    "vectors": lambda: problems.averaging(sp.csr_matrix((2, 2))),
    "w": lambda: problems.value_at(PROBLEM(), sp.eye_array(3)),
    "joins": lambda: network.membership(RING(), joins=Duck()),
    "leaves": lambda: network.membership(RING(), leaves=Mock()),
    "names": lambda: RING().named(Duck()),
    "names that are one text": lambda: RING().named("abcd"),
    "names without an order": lambda: PROBLEM().named({"a", "b", "c", "d"}),
    "parts": lambda: problems.logistic_regression(sp.eye_array(3)),
}


@pytest.mark.parametrize("about", FOUND)
def test_wrong_arguments_are_refused_by_name(about, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=rf"Expected .*\b{about.partition(' ')[0]}\b") as error:
        FOUND[about]()
    assert unclean(error.value) == ""


def test_numbers_of_other_kinds_are_taken():
    assert privacy.gaussian_epsilon(np.longdouble(1), 1e-5) == privacy.gaussian_epsilon(1.0, 1e-5)
    labels = jnp.arange(24) % 2
    np.testing.assert_array_equal(problems.holdout(X, labels, 0.25), problems.holdout(X, np.asarray(labels), 0.25))
