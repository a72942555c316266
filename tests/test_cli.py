"""The command line in process, on tiny problems; the exit status and what is left on disk."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import jdfl
from jdfl.cli import audit as audit_command
from jdfl.cli import main
from jdfl.cli import run as run_command
from jdfl.config import (
    ALGORITHMS,
    NETWORKS,
    RunConfig,
    from_yaml,
    to_yaml,
)
from jdfl.config.kinds import shown
from jdfl.engine.progress import Progress
from jdfl.engine.result import Snapshot
from jdfl.lab.results import read_run
from jdfl.problems import NAMES

pytestmark = pytest.mark.filterwarnings("ignore:With d = ")  # so few signs recover little, which is beside the point
TINY = ["--problem.m", "4", "--problem.n", "20", "--problem.s", "2", "--problem.rows", "5", "9", "--algorithm.s", "2"]
TINY += ["--algorithm.periods", "2", "3", "--network", "complete", "--steps", "6"]


@pytest.fixture(autouse=True)
def apart(monkeypatch, tmp_path):
    """In an empty folder, without the cache and without data."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JDFL_CACHE", "0")
    monkeypatch.delenv("JDFL_DATA", raising=False)


def folders(base: Path) -> list[Path]:
    return sorted((base / "runs").iterdir()) if (base / "runs").exists() else []


def test_version_help_and_list(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"jdfl {jdfl.__version__}\n"
    assert main([]) == main(["--help"]) == main(["list", "--help"]) == 0
    assert "jdfl run" in capsys.readouterr().out
    assert main(["list"]) == 0
    text = capsys.readouterr().out
    for name in (
        "ceps",
        "example1",
        "qsar",
        "JDFL_DATA",
        "erdos-renyi",
        "one-bit",
        "consensus_error",
        "balanced_accuracy",
    ):
        assert name in text


def test_list_says_where_data_is(capsys, tmp_path, monkeypatch):
    (tmp_path / "libsvm").mkdir()
    (tmp_path / "libsvm" / "w8a.bz2").touch()
    monkeypatch.setenv("JDFL_DATA", str(tmp_path))
    main(["list"])
    text = capsys.readouterr().out
    assert f"found: {tmp_path / 'libsvm' / 'w8a.bz2'}" in text
    assert text.count("not found") == len(NAMES) - 5  # w8a, two generated, two of scikit-learn


def test_help_explains_the_settings_of_the_chosen_kinds(capsys):
    assert main(["run", "--help"]) == 0
    text = capsys.readouterr().out
    assert "--steps INT" in text
    assert "k-regular" in text
    assert "--network.p" not in text
    assert "examples:" in text
    assert main(["run", "--network", "k-regular", "--algorithm=ceps-paper", "--help"]) == 0
    text = capsys.readouterr().out
    assert "--network.degree" in text
    assert "--algorithm.one-bit" in text
    assert "--network.p " not in text
    assert "--algorithm.codec" not in text


def test_a_run_writes_its_folder_and_shows_its_summary(capsys, tmp_path):
    assert main(["run", *TINY, "--out", "runs"]) == 0
    shown = capsys.readouterr()
    (folder,) = folders(tmp_path)
    run = read_run(folder)
    assert (folder / "figure.png").exists()
    assert run.summary["rounds"] <= 6
    assert "no guarantee is claimed" in shown.out
    assert str(folder.name) in shown.out
    assert "epsilon" not in shown.out.lower()
    assert shown.err == ""
    config = from_yaml(run.config_yaml)
    assert (config.problem.m, config.steps, config.network.kind) == (4, 6, "complete")


def test_a_run_repeats_from_its_own_configuration(capsys, tmp_path):
    assert main(["run", *TINY, "--seed", "3", "--quiet"]) == 0
    (first,) = folders(tmp_path)
    assert capsys.readouterr().out.strip() == str(first.relative_to(tmp_path))
    again = ["run", "--config", str(first / "config.yaml"), "--quiet"]
    assert main([*again, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["metrics"] == read_run(first).summary["metrics"]
    assert main([*again, "--steps", "4", "--network", "ring", "--algorithm.codec=dense", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    config = from_yaml(read_run(Path(told["folder"])).config_yaml)
    assert (config.steps, config.network.kind, config.seed, config.problem.n) == (4, "ring", 3, 20)
    assert config.algorithm.codec.kind == "dense"


PUSH = ["--problem.m", "4", "--problem.n", "6", "--problem.s", "2", "--problem.rows", "5", "9", "--steps", "3"]
PUSH += ["--network", "complete", "--algorithm", "sgp", "--algorithm.clip", "1", "--algorithm.dpps.b", "0.5"]


def test_noise_on_messages_has_its_settings():
    args = [*PUSH, "--algorithm.batch", "2", "--algorithm.sampling", "in order", "--algorithm.milestones", "4", "9"]
    config, _ = run_command.parse([*args, "--algorithm.dpps.noise-rate", "0.1", "--algorithm.dpps.sensitivity", "real"])
    assert config.algorithm == ALGORITHMS(
        "sgp",
        clip=1.0,
        batch=2,
        sampling="in order",
        milestones=(4, 9),
        dpps=shown(jdfl.DPPS(b=0.5, noise_rate=0.1, sensitivity="real")),
    )
    assert from_yaml(to_yaml(config)) == config
    args = ["--algorithm", "partpsp", "--algorithm.lr-shared", "0.2", "--algorithm.lr-local", "0.3"]
    assert run_command.parse(args)[0].algorithm == ALGORITHMS("partpsp", lr_shared=0.2, lr_local=0.3)


@pytest.mark.rotated(2)
@pytest.mark.parametrize("source", ["certified", "eq22"])
def test_push_sum_tells_an_epsilon_of_a_certified_schedule_alone(source, capsys, tmp_path):
    args = [*PUSH, "--algorithm.dpps.sensitivity", source, "--algorithm.dpps.noise-rate", "1"]
    assert main(["run", *args]) == 0
    shown = capsys.readouterr().out
    (folder,) = folders(tmp_path)
    assert (read_run(folder).summary["privacy"]["report"] is None) == (source == "eq22")
    assert ("epsilon" in shown.lower()) == (source == "certified")
    if source == "eq22":
        assert "noise is scaled by Eq. 22" in shown
        assert main(["account", *args]) == 2
        assert "certified" in capsys.readouterr().err


def test_kinds_and_their_settings_come_in_any_order():
    args = ["--network.degree", "2", "--steps=7", "--stop", "none", "--network", "k-regular"]
    config, _ = run_command.parse(args)
    assert config == RunConfig(steps=7, stop=None, network=NETWORKS("k-regular", degree=2))
    config, _ = run_command.parse(["--algorithm.mechanism", "gaussian", "--algorithm.mechanism.multiplier", "2"])
    assert config.algorithm.mechanism.multiplier == 2.0


def test_networks_in_networks_have_their_kinds_and_settings():
    args = "--network matcha --network.base k-regular --network.budget 0.5 --network.base.degree 2"
    config, _ = run_command.parse(args.split())
    assert config.network == NETWORKS("matcha", base=NETWORKS("k-regular", degree=2), budget=0.5)
    args = ["--network=link-loss", "--network.base=random-links", "--network.base.base=ring", "--network.base.p=0.5"]
    config, _ = run_command.parse([*args, "--network.p=0.1"])
    assert config.network == NETWORKS("link-loss", base=NETWORKS("random-links", base=NETWORKS("ring"), p=0.5), p=0.1)
    config, _ = run_command.parse(["--network", "node-participation", "--network.count", "3"])
    assert config.network == NETWORKS("node-participation", count=3)


@pytest.mark.slow
def test_repeats_have_seeds_of_their_own(capsys, tmp_path):
    assert main(["run", *TINY, "--seed", "5", "--repeats", "2", "--json", "--metrics", "objective"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [from_yaml(read_run(Path(one["folder"])).config_yaml).seed for one in told] == [5, 6]
    assert list(told[0]["metrics"]) == ["objective"]
    assert told[0]["metrics"] != told[1]["metrics"]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["walk"], "walk"),
        (["list", "all"], "all"),
        (["run", *TINY, "--algorithm.s", "21"], "s = 21"),
        (["run", *TINY, "--algorithm.rate", "1.5"], "rate = 1.5"),
        (["run", *TINY, "--steps", "0"], "steps = 0"),
        (["run", *TINY, "--repeats", "0"], "repeats = 0"),
        (["run", *TINY, "--seed", "4294967295", "--repeats", "2"], "seed = 4294967295"),
        (["run", *TINY, "--metrics", "beauty"], "beauty"),
        (["run", *TINY, "--network", "edge-list-file", "--network.path", "no"], "network.path"),
        (["run", "--problem", "classification", "--problem.data", "qsar"], "JDFL_DATA"),
        (["run", "--config", "no.yaml"], "no.yaml"),
        (["run", "--config", "bad.yaml"], "stepz"),
        (["run", *TINY, "--out", "bad.yaml"], "bad.yaml"),
    ],
)
def test_a_mistake_is_one_line_and_status_2(args, words, capsys, tmp_path):
    (tmp_path / "bad.yaml").write_text("stepz: 1\n")
    assert main(args) == 2
    err = capsys.readouterr().err
    assert err.startswith("jdfl: error: ")
    assert words in err
    assert err.count("\n") == 1
    assert folders(tmp_path) == []


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--network", "moon"], "moon"),
        (["--network.q", "1"], "--network.q"),
        (["--steps", "x"], "--steps"),
        (["--network", "k-regular"], "--network.degree"),
        (["--algorithm", "ceps-paper", "--algorithm.codec", "dense"], "--algorithm.codec"),
    ],
)
def test_a_wrong_flag_is_status_2(args, words, capsys):
    assert main(["run", *args]) == 2
    assert words in capsys.readouterr().err


def test_traceback_on_demand(monkeypatch):
    monkeypatch.setenv("JDFL_TRACEBACK", "1")
    with pytest.raises(ValueError, match="walk"):
        main(["walk"])


def test_a_run_that_diverges_is_kept_and_status_3(capsys, tmp_path):
    noise = ["--algorithm.mechanism", "gaussian", "--algorithm.mechanism.multiplier", "1e30"]
    assert main(["run", *TINY, *noise, "--algorithm.sensitivity", "1e30"]) == 3
    assert re.search(r"node \d has a number that is not finite in \w+ after round", capsys.readouterr().err)
    (folder,) = folders(tmp_path)
    assert read_run(folder).summary["ending"] == "diverged"


def test_an_interrupted_run_is_kept_and_status_130(capsys, tmp_path, monkeypatch):
    def interrupt(self: Progress, snapshot: Snapshot) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Progress, "__call__", interrupt)
    assert main(["run", *TINY, "--chunk", "2", "--repeats", "3", "--stop", "none"]) == 130
    (folder,) = folders(tmp_path)
    assert read_run(folder).summary["rounds"] == 2
    assert "interrupted" in capsys.readouterr().err


def test_an_interruption_before_the_first_round_leaves_nothing(capsys, tmp_path, monkeypatch):
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(jdfl, "run", interrupt)
    assert main(["run", *TINY]) == 130
    assert folders(tmp_path) == []
    assert capsys.readouterr().err == "jdfl: interrupted; only runs with a checkpoint are kept\n"


@pytest.mark.parametrize(("command", "work"), [("account", "account_plan"), ("audit", "attacked")])
def test_what_writes_nothing_says_so_when_it_is_interrupted(command, work, capsys, tmp_path, monkeypatch):
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(jdfl if command == "account" else audit_command, work, interrupt)
    assert main([command, *TINY]) == 130
    assert list(tmp_path.iterdir()) == []
    assert capsys.readouterr().err == "jdfl: interrupted; nothing is written\n"


def test_python_m_jdfl():
    here = str(Path(jdfl.__file__).parents[1])
    command, env = [sys.executable, "-m", "jdfl", "--version"], {**os.environ, "PYTHONPATH": here}
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, f"jdfl {jdfl.__version__}\n")


@pytest.mark.slow
@pytest.mark.filterwarnings("default:The paper's sigma_i")
def test_warnings_are_one_line(capsys):
    flags = "--problem.m 24 --problem.n 20 --problem.s 3 --problem.rows 8 9 --network ring --stop none --steps 2 "
    flags += "--algorithm.codec dense"
    assert main(["run", *flags.split()]) == 0
    assert capsys.readouterr().err.startswith(
        "jdfl: warning: The paper's sigma_i gives step sizes of about 12 / L_i here"
    )
