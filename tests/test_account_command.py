"""`jdfl account`: the numbers of releases, plans and finished runs, and private runs that are resumed."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import jdfl
from jdfl.cli import main
from jdfl.config import from_yaml
from jdfl.lab.results import read_run
from jdfl.privacy import GaussianEvent, most_releases
from jdfl.privacy.report import KEYS
from jdfl.store import manifest

SMALL = "--problem.m 4 --problem.n 20 --problem.s 2 --problem.rows 5 9 --network complete --stop none --steps 6"
CEPS = f"{SMALL} --algorithm.s 2 --algorithm.periods 2 3 --algorithm.codec dense --algorithm.clip 5 --algorithm.sigma 1"
GAUSSIAN = "--algorithm.mechanism gaussian"
DPSGD = f"{SMALL} --algorithm d-psgd --algorithm.lr 0.01 --algorithm.clip 1 {GAUSSIAN}"


@pytest.fixture(autouse=True)
def apart(monkeypatch, tmp_path):
    """In an empty folder, without the cache and without data."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JDFL_CACHE", "0")
    monkeypatch.delenv("JDFL_DATA", raising=False)


@pytest.fixture
def tell(capsys):
    """A function that runs a command with --json and returns what it prints."""

    def told(command: str) -> Any:
        assert main([*command.split(), "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    return told


@pytest.fixture
def refuse(capsys):
    """A function that returns the complaint of a command."""

    def complaint(command: str) -> str:
        assert main(command.split()) == 2
        shown = capsys.readouterr()
        assert (shown.out, shown.err.count("\n")) == ("", 1)
        return shown.err

    return complaint


# ---------------------------------------------------------------- releases


def test_three_releases(tell, capsys):
    told = tell("account --releases 3 --multiplier 6.46")
    assert told["epsilon"] == pytest.approx(1.0, abs=0.005)
    assert told["epsilon of one release"] < told["epsilon"] < told["epsilon by RDP"]
    assert main(["account", "--releases", "3", "--multiplier", "6.46"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert f"epsilon: {told['epsilon']}" in lines
    assert not any("None" in line or "sampling" in line for line in lines)


def test_the_noise_that_three_releases_need(tell):
    told = tell("account --releases 3 --epsilon 1")
    assert told["multiplier"] == pytest.approx(6.46, abs=0.02)
    assert 0.999 < told["epsilon"] <= 1
    less = tell("account --releases 3 --epsilon 1 --delta 1e-3")
    assert less["multiplier"] < told["multiplier"]


def test_laplace_noise_adds_up_plainly(tell):
    told = tell("account --releases 3 --multiplier 6 --noise laplace")
    assert told["epsilon at delta = 0"] == pytest.approx(0.5)
    assert told["epsilon"] <= 0.5


def test_exact_noise_pays_for_its_tables(tell):
    given = "account --releases 3 --noise exact-gaussian --entries 1000"
    plain, exact = tell("account --releases 3 --multiplier 6.46"), tell(f"{given} --multiplier 6.46")
    assert plain["epsilon"] < exact["epsilon"] < plain["epsilon"] * (1 + 1e-6)
    assert tell(f"{given} --multiplier 6.46")["epsilon"] < tell(f"{given}000 --multiplier 6.46")["epsilon"]
    least = tell(f"{given} --epsilon 1")
    assert 0.999 < least["epsilon"] <= 1


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("--noise exact-gaussian", "entries = None"),
        ("--entries 5", "entries = 5"),
        ("--noise laplace --entries 5", "5"),
    ],
)
def test_the_length_of_vectors_is_for_exact_noise(flags, words, refuse):
    assert words in refuse(f"account --releases 3 --multiplier 2 {flags}")


OBSERVED = f"account {DPSGD} --algorithm.mechanism.multiplier 4 --problem.m 6 --network ring"


def test_what_one_node_learns_is_told(tell, capsys):
    told = tell(f"{OBSERVED} --observer neighbour --nodes 0")
    assert told["mu"][0] is None
    assert min(told["mu"][1], told["mu"][5]) > told["mu"][3] > 0
    assert told["bound"] is False
    assert told["epsilon"][1] < told["epsilon_claimed"] == tell(OBSERVED)["epsilon"]
    less = tell(f"{OBSERVED} --observer neighbour --nodes 0 --sums")
    assert less["mu"][1] < told["mu"][1]
    assert main([*OBSERVED.split(), "--observer", "everyone"]) == 0
    assert "- a guarantee: all gradients" in capsys.readouterr().out


def test_pairs_are_drawn(tell, tmp_path):
    told = tell(f"{OBSERVED} --observer pairs --figure {tmp_path / 'pairs.png'}")
    assert np.shape(told["mu"]) == (6, 6)
    with Image.open(tmp_path / "pairs.png") as drawn:
        assert drawn.size[0] > 1000


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("--observer neighbour", "nodes = ()"),
        ("--observer neighbour --nodes 1 2", "nodes = (1, 2)"),
        ("--observer everyone --nodes 1", "observer = 'everyone'"),
        ("--observer final-models --sums", "observer = 'final-models'"),
        ("--observer everyone --figure a.png", "--observer pairs"),
        ("--nodes 1", "observer = None"),
        ("--observer neighbour --nodes 6", "node = 6"),
        ("--observer coalition --nodes 0 1 2 3 4 5", "6 of them"),
        ("--observer server", "with a server"),
        ("--observer everyone --stop gradient --stop.tolerance 1e-3", "a stop rule"),
    ],
)
def test_observers_that_make_no_sense_are_refused(flags, words, refuse):
    assert words in refuse(f"{OBSERVED} {flags}")


def test_a_finished_run_has_no_observer_of_its_own(refuse):
    assert "--releases" in refuse("account --releases 3 --multiplier 2 --observer everyone")


@pytest.mark.parametrize("kind", ["poisson", "subset"])
def test_samples_hide(tell, kind):
    options = f"account --releases 100 --multiplier 2 --sampling {kind} --batch 10 --records 1000"
    told = tell(options)
    assert told["epsilon"] < 0.1 * told["epsilon without sampling"]
    assert told["sampling"] == f"{kind} of 10 among 1000 records"
    if kind == "poisson":
        assert tell(f"{options} --adjacency add-remove")["epsilon"] != told["epsilon"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--releases 3", "Expected --multiplier or --epsilon with --releases, got multiplier = None"),
        ("--releases 3 --multiplier 1 --epsilon 1", "got multiplier = 1.0 and epsilon = 1.0"),
        ("--releases 0 --multiplier 1", "releases = 0"),
        ("--releases 3 --multiplier -1", "noise_multiplier = -1.0"),
        ("--releases 3 --epsilon 0", "epsilon = 0.0"),
        ("--releases 3 --multiplier 1 --delta 1", "delta = 1.0"),
        ("--releases 3 --multiplier 1 --sampling poisson", "Samples need --batch and --records"),
        ("--releases 3 --multiplier 1 --sampling poisson --batch 9 --records 8", "batch = 9"),
        ("--releases 3 --multiplier 1 --sampling subset --batch 2 --records 8 --adjacency add-remove", "replace-one"),
        ("--delta 1e-6", "Expected --delta with --releases only, got delta = 1e-06. A run has its own"),
        ("--delta 1e-5", "Expected --delta with --releases only, got delta = 1e-05. A run has its own"),
        ("--sampling=none", "--sampling with --releases only"),
        (
            "--releases 3 --multiplier 1 --batch 9 --records 90",
            "--sampling with --batch and --records, got batch = 9",
        ),
        ("--releases 3 --multiplier 1 --delta .1 --sampling poisson --batch 2 --records 10", "delta < 1 / records"),
        ("--epsilon 2", "--epsilon with --releases only"),
        ("--multiplier 2 --run none", "none/config.yaml"),
        (f"{SMALL} --algorithm d-psgd", "no noise is added"),
        (DPSGD, "Expected a multiplier of the noise, got none"),
        (f"{DPSGD} --privacy.epsilon 0", "epsilon = 0.0"),
        (f"{DPSGD} --privacy.epsilon 1 --privacy.delta 0.5", "delta < 1 / records"),
    ],
)
def test_mistakes_are_told(refuse, options, words):
    assert words in refuse(f"account {options}")


# ---------------------------------------------------------------- plans


@pytest.mark.rotated(2)
@pytest.mark.parametrize("flags", [f"{CEPS} {GAUSSIAN}", DPSGD], ids=["ceps", "d-psgd"])
def test_a_plan_is_what_the_run_says_afterwards(tell, capsys, tmp_path, flags):
    flags += " --algorithm.mechanism.multiplier 3 --seed 7"
    plan = tell(f"account {flags}")
    told = tell(f"run {flags}")
    assert plan == told["privacy"]["report"]
    folder = Path(told["folder"])
    assert read_run(folder).summary["privacy"]["report"] == plan
    assert tell(f"account --run {folder}") == plan
    assert main(["account", "--run", str(folder)]) == 0
    assert capsys.readouterr().out == told["privacy"]["statement"]

    other = tell(f"account --run {folder} --privacy.delta 1e-7")
    assert other["delta"] == 1e-7
    assert other["epsilon"] > plan["epsilon"]
    assert main(["account", "--run", str(folder), "--algorithm.mechanism.multiplier", "30"]) == 2
    assert "Expected the noise of the run" in capsys.readouterr().err
    assert main(["account", "--run", str(folder), "--epsilon", "1"]) == 2
    shutil.rmtree(folder / "checkpoints")
    assert main(["account", "--run", str(folder)]) == 2
    assert "found none. Give the folder" in capsys.readouterr().err


def test_a_finished_run_is_accounted_for_as_it_was_made(tell, refuse):
    folder = Path(tell(f"run {DPSGD} --algorithm.mechanism.multiplier 3")["folder"])
    for flags, name in (
        ("--algorithm.clip 5", "algorithm"),
        ("--steps 2", "steps"),
        ("--seed 8", "seed"),
        ("--privacy.epsilon 1", "privacy"),
    ):
        assert f"got other ones of {name}." in refuse(f"account --run {folder} {flags}")
    file = folder / "config.yaml"
    settings = file.read_text().partition("#")[0]
    file.write_text(manifest.signed(settings.replace("clip: 1.0", "clip: 2.0")))
    assert "clip: was 1.0, is 2.0" in refuse(f"account --run {folder}")


def test_a_plan_that_its_budget_would_end_is_refused(tell, refuse):
    plan = f"account {DPSGD} --algorithm.mechanism.multiplier 3"
    spent = tell(plan)["epsilon"]
    assert tell(f"{plan} --privacy.epsilon {spent + 0.1}")["epsilon"] == spent
    assert "it would end before" in refuse(f"{plan} --privacy.epsilon {spent - 0.1}")


@pytest.mark.parametrize("flags", ["--privacy.delta 1e-6", "--algorithm.clip 3", "--steps 9", "--run runs/x"])
def test_releases_alone_are_refused_beside_a_run(refuse, tmp_path, flags):
    (tmp_path / "runs" / "x").mkdir(parents=True)
    (tmp_path / "runs" / "x" / "config.yaml").write_text("{}")
    assert "without settings of a run" in refuse(f"account --releases 3 --multiplier 6 {flags}")


def test_warnings_of_a_run_are_kept_in_its_folder(tell):
    flags = f"{DPSGD} --algorithm.mechanism.multiplier 3 --stop consensus --stop.tolerance 1e9"
    told = tell(f"run {flags}")
    assert told["ending"] == "stop rule"
    (warning,) = told["privacy"]["report"]["warnings"]
    assert "stop rule" in warning
    assert tell(f"account --run {told['folder']}") == told["privacy"]["report"]
    assert tell(f"account {flags}")["key"] == told["privacy"]["report"]["key"] == KEYS["operating system"]


def test_a_stop_rule_on_data_leaves_a_run_without_an_epsilon(tell):
    told = tell(f"run {DPSGD} --algorithm.mechanism.multiplier 3 --stop objective --stop.value 1e9")
    assert told["ending"] == "stop rule"
    assert told["privacy"]["report"] is None


def test_the_papers_number_is_no_guarantee(refuse, tell, capsys):
    paper = f"{SMALL} --algorithm ceps-paper --algorithm.s 2 --algorithm.epsilon 2 --algorithm.no-one-bit"
    for public in ("", " --problem.public curvature"):
        why = refuse(f"account {paper}{public}")
        assert "No epsilon can be given: gradients are not clipped" in why
        assert "the noise is not stored in u" in why
    assert main(f"account {paper} --privacy.accounting paper".split()) == 0
    text = capsys.readouterr().out
    assert "NO GUARANTEE" in text.splitlines()[0]
    assert "as published, unsound: epsilon = 2 at delta = 0.5" in text
    assert tell(f"account {paper} --privacy.accounting paper")["sound"] is False


@pytest.mark.parametrize(
    "run",
    [
        f"{SMALL} --algorithm ceps-paper --algorithm.s 2 --algorithm.epsilon 2",
        f"{DPSGD} --algorithm.mechanism.multiplier 3",
    ],
)
@pytest.mark.parametrize("command", ["account", "run"])
def test_an_epsilon_that_would_decide_nothing_is_refused(refuse, command, run):
    assert "got privacy.epsilon = 1." in refuse(f"{command} {run} --privacy.accounting paper --privacy.epsilon 1")
    assert not Path("runs").exists()


# ---------------------------------------------------------------- private runs


@pytest.mark.rotated(2)
@pytest.mark.parametrize("flags", [f"{CEPS} {GAUSSIAN} --seed 7", f"{DPSGD} --seed 7"], ids=["ceps", "d-psgd"])
def test_a_calibrated_run_keeps_its_noise_and_goes_on(tell, flags):
    assert tell(f"account {flags} --privacy.epsilon 2")["epsilon"] == pytest.approx(2, rel=1e-3)
    first = tell(f"run {flags} --privacy.epsilon 2")
    report = first["privacy"]["report"]
    assert (first["ending"], first["rounds"]) == ("steps", 6)
    assert 0.999 * 2 < report["epsilon"] <= 2
    config = from_yaml(read_run(Path(first["folder"])).config_yaml)
    assert config.algorithm.mechanism.multiplier == report["noise_multiplier"]
    assert config.privacy.epsilon == 2

    spent = tell(f"resume {first['folder']} --steps 12")
    assert spent["ending"] == "budget"
    assert spent["privacy"]["report"]["epsilon"] <= 2
    longer = tell(f"resume {first['folder']} --steps 12 --privacy.epsilon 10")
    told = longer["privacy"]["report"]
    assert (longer["ending"], longer["rounds"]) == ("steps", 12)
    assert told["noise_multiplier"] == report["noise_multiplier"]
    assert 2 < told["epsilon"] < 10
    whole = tell(f"run --config {first['folder']}/config.yaml --steps 12 --privacy.epsilon 10")
    assert whole["metrics"] == longer["metrics"]
    assert whole["privacy"] == longer["privacy"]
    histories = [read_run(Path(one["folder"])).history for one in (whole, longer)]
    assert histories[0].equals(histories[1])


def test_a_budget_that_is_spent_is_told_and_written(capsys, tmp_path):
    flags = f"{DPSGD} --algorithm.mechanism.multiplier 3 --privacy.epsilon 2"
    rounds = most_releases(GaussianEvent(3.0), 2.0, 1e-5)  # one release of every node in a round
    assert 0 < rounds < 6
    assert main(["run", *flags.split()]) == 0
    shown = capsys.readouterr()
    assert f"jdfl: round {rounds + 1} would release more than the privacy budget allows" in shown.err
    assert "(budget)" in shown.out
    (folder,) = (tmp_path / "runs").iterdir()
    told = read_run(folder).summary
    assert (told["ending"], told["rounds"]) == ("budget", rounds)
    assert told["privacy"]["report"]["epsilon"] <= 2


def test_a_delta_without_a_budget_is_the_reports(tell):
    told = tell(f"run {DPSGD} --algorithm.mechanism.multiplier 3 --privacy.delta 1e-7")
    assert (told["ending"], told["rounds"]) == ("steps", 6)
    assert told["privacy"]["report"]["delta"] == 1e-7


def test_what_cannot_be_reported_is_refused_before_the_run(refuse, tmp_path, monkeypatch):
    monkeypatch.setattr(jdfl, "run", lambda *_, **__: pytest.fail("it ran"))
    assert "delta < 1 / records" in refuse(f"run {DPSGD} --algorithm.mechanism.multiplier 3 --privacy.delta 0.5")
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("", "--steps above the 6 rounds that are done, got 6"),
        ("--steps 5", "steps >= 6"),
        ("--steps 9 --seed 5", "got seed = 5. Leave out --seed"),
        ("--steps 9 --key-file other", "got key_file = 'other'. Leave out --key-file"),
        ("--steps 9 --algorithm.mechanism.multiplier 4", "Expected the noise of the run"),
        ("--steps 9 --algorithm.lr 0.02", "algorithm.lr: was 0.01, is 0.02"),
        ("--steps 9 --network ring", "network.graph.senders: was int32[4, 3]"),
        ("--steps 9 --problem.n 21", "float32[4, 21]"),
        ("--steps 9 --every 2 --algorithm nids", "Expected"),
    ],
    ids=["none", "fewer", "seed", "key file", "noise", "step length", "network", "shapes", "method"],
)
def test_a_run_is_not_resumed_as_another(refuse, before, options, words):
    def content() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in before.rglob("*") if path.is_file()}

    whole = content()
    assert words in refuse(f"resume {before} {options}")
    assert content() == whole
    assert [path.name for path in before.parent.iterdir()] == [before.name]
    assert not Path("runs").exists()


@pytest.fixture(scope="module")
def before(tmp_path_factory):
    """The folder of a private run."""
    out = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JDFL_CACHE", "0")
        flags = f"run {DPSGD} --algorithm.mechanism.multiplier 3 --quiet --out {out}"
        assert main(flags.split()) == 0
    (folder,) = out.iterdir()
    return folder


def test_what_cannot_be_resumed_is_told(refuse):
    assert "none/config.yaml" in refuse("resume none --steps 9")
    assert "Expected the folder of a run" in refuse("resume --steps 9")
