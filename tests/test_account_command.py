"""`jdfl account`: the numbers of releases, plans and finished runs, and private runs that are resumed."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jdfl
from jdfl.cli import main
from jdfl.config import from_yaml
from jdfl.results.folder import read_run
from jdfl.store import manifest

SMALL = "--problem.m 4 --problem.n 20 --problem.s 2 --problem.rows 5 9 --network complete --stop none --steps 6"
DPSGD = f"{SMALL} --algorithm d-psgd --algorithm.lr 0.01 --algorithm.clip 1 --algorithm.mechanism gaussian"
NOISY = f"{DPSGD} --algorithm.mechanism.multiplier 3"
PAPER = f"{SMALL} --algorithm ceps-paper --algorithm.s 2 --algorithm.epsilon 2 --algorithm.no-one-bit"
OBSERVED = f"account {NOISY} --problem.m 6 --network ring"
pytestmark = pytest.mark.usefixtures("undrawn")


@pytest.fixture(autouse=True)
def apart(monkeypatch, tmp_path):
    """In an empty folder, without data."""
    monkeypatch.chdir(tmp_path)
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
    """A function that looks for words in the complaint of a command, which does nothing."""

    def refused(command: str, *words: str) -> None:
        before = sorted(Path().rglob("*"))
        assert main(command.split()) == 2
        shown = capsys.readouterr()
        assert (shown.out, shown.err.count("\n")) == ("", 1)
        assert [word for word in words if word not in shown.err] == [], shown.err
        assert sorted(Path().rglob("*")) == before

    return refused


@pytest.fixture(scope="module")
def before(undrawn, tmp_path_factory):
    """The folder of a private run."""
    out = tmp_path_factory.mktemp("runs")
    assert main(f"run {NOISY} --quiet --out {out}".split()) == 0
    (folder,) = out.iterdir()
    return folder


def test_gaussian_and_laplace_noise_add_up_and_exact_noise_pays_for_its_tables(tell):
    told = tell("account --releases 3 --multiplier 6.46")
    assert told["epsilon"] == pytest.approx(1.0, abs=0.005)
    assert told["epsilon of one release"] < told["epsilon"] < told["epsilon by RDP"]
    needed = tell("account --releases 3 --epsilon 1")
    assert needed["multiplier"] == pytest.approx(6.46, abs=0.02)
    assert 0.999 < needed["epsilon"] <= 1
    assert tell("account --releases 3 --epsilon 1 --delta 1e-3")["multiplier"] < needed["multiplier"]
    laplace = tell("account --releases 3 --multiplier 6 --noise laplace")
    assert laplace["epsilon at delta = 0"] == pytest.approx(0.5)
    assert laplace["epsilon"] <= 0.5
    exact = [f" --noise exact-gaussian --entries {n}" for n in (1_000, 1_000_000)]
    plain, few, many = (tell(f"account --releases 3 --multiplier 6.46{more}")["epsilon"] for more in ("", *exact))
    assert plain < few < many
    assert few < plain * (1 + 1e-6)
    assert 0.999 < tell(f"account --releases 3 --epsilon 1{exact[0]}")["epsilon"] <= 1


def test_samples_hide(tell):
    options = "account --releases 100 --multiplier 2 --sampling poisson --batch 10 --records 1000"
    told = tell(options)
    assert told["epsilon"] < 0.1 * told["epsilon without sampling"]
    assert tell(f"{options} --adjacency add-remove")["epsilon"] != told["epsilon"]


MISTAKES = {
    "--releases 3 --multiplier 1 --epsilon 1": "epsilon = 1.0",
    "--releases 3 --multiplier 2 --noise exact-gaussian": "entries = None",
    "--releases 3 --multiplier 1 --sampling poisson": "--records",
    "--releases 3 --multiplier 1 --delta .1 --sampling poisson --batch 2 --records 10": "delta < 1 / records",
    "--releases 3 --multiplier 6 --run runs/x": "without settings of a run",
    "--releases 3 --multiplier 1 --entries 5": "entries = 5",
    "--releases 3 --multiplier 1 --batch 5": "batch = 5",
    "--ledger a.json --new-ledger b.json": "a.json and b.json",
    "--ledger a.json --steps 9": "the settings of a run",
    "--new-ledger b.json": "epsilon = None",
    "--sampling=none": "--sampling with --releases only",
    "--epsilon 2": "--epsilon with --releases only",
    f"{SMALL} --algorithm d-psgd": "no noise is added",
    DPSGD: "multiplier",
    f"{PAPER} --privacy.accounting paper --privacy.epsilon 1": "privacy.epsilon = 1.",
    PAPER: "No epsilon can be given: gradients are not clipped",
    f"{PAPER} --problem.public curvature": "the noise is not stored in u",
}


def test_mistakes_are_told(refuse, tmp_path):
    (tmp_path / "runs" / "x").mkdir(parents=True)
    (tmp_path / "runs" / "x" / "config.yaml").write_text("{}")
    for options, words in MISTAKES.items():
        refuse(f"account {options}", words)


def test_what_one_node_learns_is_told(tell):
    told = tell(f"{OBSERVED} --observer neighbour --nodes 0")
    assert told["mu"][0] is None
    assert min(told["mu"][1], told["mu"][5]) > told["mu"][3] > 0
    assert told["bound"] is False
    assert told["epsilon"][1] < told["epsilon_claimed"]
    pairs = tell(f"{OBSERVED} --observer pairs --sums --figure pairs.png")
    assert np.shape(pairs["mu"]) == (6, 6)
    assert pairs["mu"][0][1] < told["mu"][1]
    assert Path("pairs.png").is_file()


def test_observers_that_make_no_sense_are_refused(refuse):
    for flags, words in {
        "--observer neighbour": "nodes = ()",
        "--observer everyone --nodes 1": "observer = 'everyone'",
        "--observer final-models --sums": "observer = 'final-models'",
        "--nodes 1": "observer = None",
        "--observer server": "with a server",
        "--observer everyone --releases 3": "--releases",
        "--observer everyone --figure a.png": "observer = 'everyone'",
        "--observer everyone --stop gradient --stop.tolerance 1e-3": "a stop rule",
    }.items():
        refuse(f"{OBSERVED} {flags}", words)


def test_a_plan_is_what_the_run_says_afterwards(tell, refuse, capsys, before):
    plan, summary = tell(f"account {NOISY}"), read_run(before).summary["privacy"]
    assert plan == summary["report"] == tell(f"account --run {before}")
    assert main(["account", "--run", str(before)]) == 0
    assert capsys.readouterr().out.split() == summary["statement"].split()
    other = tell(f"account --run {before} --privacy.delta 1e-7")
    assert other["delta"] == 1e-7
    assert other["epsilon"] > plan["epsilon"]
    within = f"account {NOISY} --privacy.epsilon"
    assert tell(f"{within} {plan['epsilon'] + 0.1}")["epsilon"] == plan["epsilon"]
    refuse(f"{within} {plan['epsilon'] - 0.1}", "it would end before")
    book = tell("account --new-ledger book.json --epsilon 9 --delta 1e-6")
    assert book == tell("account --ledger book.json")
    told = tell(f"account {NOISY} --privacy.delta 1e-6 --privacy.ledger book.json")
    assert told["data_ledger"] == book | {"with_this_run": pytest.approx(told["epsilon"], rel=1e-3)}


def test_a_finished_run_is_accounted_for_as_it_was_made(refuse, before, tmp_path):
    folder = Path(shutil.copytree(before, tmp_path / "run"))
    for flags, words in {"--algorithm.mechanism.multiplier 30": "the noise of the run", "--seed 8": "seed"}.items():
        refuse(f"account --run {folder} {flags}", words)
    file = folder / "config.yaml"
    settings = file.read_text().partition("#")[0]
    file.write_text(manifest.signed(settings.replace("clip: 1.0", "clip: 2.0")))
    refuse(f"account --run {folder}", "clip: was 1.0, is 2.0")
    shutil.rmtree(folder / "checkpoints")
    refuse(f"account --run {folder}", "found none")


def test_a_calibrated_run_keeps_its_noise_and_goes_on_until_its_budget_is_spent(tell, capsys):
    first = tell(f"run {DPSGD} --seed 7 --privacy.epsilon 2 --privacy.delta 1e-7")
    noise = first["privacy"]["report"]["noise_multiplier"]
    assert (first["ending"], first["rounds"]) == ("steps", 6)
    assert 0.999 * 2 < first["privacy"]["report"]["epsilon"] <= 2
    config = from_yaml(read_run(Path(first["folder"])).config_yaml)
    assert (config.algorithm.mechanism.multiplier, config.privacy.epsilon) == (noise, 2)
    assert main(f"resume {first['folder']} --steps 12".split()) == 0
    shown = capsys.readouterr()
    assert "round 7" in shown.err
    assert "(budget)" in shown.out
    spent = read_run(Path(first["folder"])).summary
    assert (spent["ending"], spent["rounds"], spent["privacy"]["report"]["delta"]) == ("budget", 6, 1e-7)
    assert spent["privacy"]["report"]["epsilon"] <= 2
    longer = tell(f"resume {first['folder']} --steps 12 --privacy.epsilon 10")
    assert (longer["ending"], longer["rounds"]) == ("steps", 12)
    assert longer["privacy"]["report"]["noise_multiplier"] == noise
    assert 2 < longer["privacy"]["report"]["epsilon"] < 10


def test_what_cannot_be_reported_is_refused_before_the_run(refuse, monkeypatch):
    monkeypatch.setattr(jdfl, "run", lambda *_, **__: pytest.fail("it ran"))
    refuse(f"run {NOISY} --privacy.delta 0.5", "delta < 1 / records")


def test_a_run_is_not_resumed_as_another(refuse, before):
    whole = {path: path.read_bytes() for path in before.rglob("*") if path.is_file()}
    for options, words in {
        "": "got 6",
        "--steps 9 --seed 5": "seed = 5",
        "--steps 9 --key-file other": "key_file = 'other'",
        "--steps 9 --algorithm.mechanism.multiplier 4": "the noise of the run",
        "--steps 9 --problem.n 21": "float32[4, 21]",
    }.items():
        refuse(f"resume {before} {options}", words)
    assert {path: path.read_bytes() for path in before.rglob("*") if path.is_file()} == whole
    refuse("resume none --steps 9", "none/config.yaml")
    refuse("resume --steps 9", "the folder of a run")
