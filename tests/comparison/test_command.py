"""`jdfl compare` in process, on tiny problems, and its configuration."""

import ast
import dataclasses
import inspect
import json
import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jdfl
from jdfl import config
from jdfl.cli import compare as command
from jdfl.cli import main
from jdfl.lab import folder
from jdfl.lab import settings as compare
from jdfl.lab.entries import DEFAULT
from jdfl.lab.settings import CompareConfig, Entry, Settings, build, from_yaml, to_yaml
from tests.test_config import values

SMALL = """
steps: 6
seeds: 2
problem: {m: 4, n: 20, s: 2, rows: [5, 9]}
network: complete
algorithms:
- kind: ceps
  s: 2
  codec: dense
  periods: [2, 3]
- kind: entry
  label: on a ring
  algorithm: {kind: ceps, s: 2, codec: dense, periods: [2, 3]}
  network: ring
  grids: ["step_scale=0.5,1,2"]
  steps: 4
- kind: entry
  algorithm: {kind: ceps, s: 2, codec: dense, periods: [2, 3]}
  grids: []
"""


@pytest.fixture(autouse=True)
def apart(monkeypatch, tmp_path):
    """In an empty folder, without the cache, with the file that most tests use."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JDFL_CACHE", "0")
    (tmp_path / "small.yaml").write_text(SMALL)


@given(st.deferred(lambda: values(CompareConfig)))
def test_yaml_round_trip_is_exact(given: CompareConfig):
    assert from_yaml(to_yaml(given)) == given


def test_kinds_may_be_bare_and_what_is_missing_takes_defaults():
    found = from_yaml("algorithms: [ceps, {kind: ceps, s: 3}, {kind: entry, algorithm: ceps-paper, label: x}]")
    assert found.algorithms == (
        config.ALGORITHMS("ceps"),
        config.ALGORITHMS("ceps", s=3),
        Entry(algorithm=config.ALGORITHMS("ceps-paper"), label="x"),
    )
    assert (found.steps, found.stop) == (CompareConfig().steps, None)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("algorithms: ceps", ["algorithms", "list", "'ceps'"]),
        ("algorithms: [moon]", ["algorithms[0].kind", "'moon'", "ceps", "entry"]),
        ("algorithms: [{kind: entry}]", ["algorithms[0].algorithm", "no default"]),
        ("algorithms: [{kind: ceps, speed: 1}]", ["algorithms[0].speed", "1"]),
        ("by: moons", ["by", "'moons'", "bytes"]),
    ],
)
def test_bad_yaml_names_the_place_and_the_value(text, words):
    with pytest.raises(ValueError) as error:
        from_yaml(text)
    for word in words:
        assert word in str(error.value)


def test_what_is_built_is_what_was_said():
    start = from_yaml(SMALL)
    given = dataclasses.replace(start, grids=("step_scale=1,2.5",), by="bytes", redraw=())
    entries, problem, network, options = build(given)
    assert list(entries) == ["ceps", "on a ring", "ceps-2"]
    assert (problem.m, network.m) == (4, 4)
    ring = entries["on a ring"]
    assert "ring" in ring.network.name
    assert (ring.tune, ring.steps) == ({"step_scale": [0.5, 1.0, 2.0]}, 4)
    assert entries["ceps-2"].tune == {}
    assert options["tuning"].grids == {"step_scale": [1.0, 2.5]}
    assert list(options["budget"]) == ["bytes", "round", "gradients"]
    assert not set(options["trials"]) & set(options["tuning"].keys)
    assert build(dataclasses.replace(start, tune=False))[3]["tuning"] is None
    stopped = dataclasses.replace(start, stop=config.STOPS("consensus", tolerance=0.5))
    assert build(stopped)[3]["stop"] == jdfl.consensus_below(0.5, per=2.0)


def test_every_trial_draws_data_and_network_anew_where_they_have_a_seed():
    start = from_yaml(SMALL + "redraw: null\n")
    _, problem, network, _ = build(start)
    assert callable(problem)
    assert network.m == 4  # a complete network has nothing to draw
    one, other = problem(1), problem(2)
    assert one.m == other.m == 4
    assert not np.array_equal(one.data[0], other.data[0])
    np.testing.assert_array_equal(problem(1).data[0], one.data[0])
    random = dataclasses.replace(
        start, network=config.NETWORKS("link-loss", p=0.1, base=config.NETWORKS("erdos-renyi", p=0.6))
    )
    *_, network, _ = build(random)
    graphs = [np.asarray(network(seed).base.graph.mask).sum() for seed in range(8)]
    assert len(set(graphs)) > 1
    *_, network, _ = build(dataclasses.replace(random, redraw=("data",)))
    assert network.m == 4
    _, problem, _, _ = build(dataclasses.replace(start, redraw=()))
    assert problem.m == 4


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"algorithms": ()}, ["algorithms = ()", "--algorithms ceps"]),
        ({"seeds": 0}, ["seeds = 0"]),
        ({"tuning_seeds": 0}, ["tuning_seeds = 0"]),
        ({"grids": ("lr",)}, ["grids", "'lr'", "lr=0.05"]),
        ({"grids": ("lr=x",)}, ["grids", "'lr=x'"]),
        ({"grids": ("lr=0.1", "lr=0.2")}, ["lr once in grids", "2 times"]),
        ({"algorithms": (Entry(algorithm=config.ALGORITHMS("ceps"), grids=("mu=1", "mu=2")),)}, ["mu once in grids"]),
        ({"also": ("bytes", "bytes=3")}, ["bytes once in also", "2 times"]),
        ({"algorithms": (Entry(algorithm=config.ALGORITHMS("ceps"), label="a"),) * 2}, ["label = 'a'", "twice"]),
    ],
    ids=["none", "seeds", "tuning", "bare", "text", "grid twice", "own grid twice", "amount twice", "label"],
)
def test_settings_that_make_no_sense(changes, words):
    with pytest.raises(ValueError) as error:
        build(dataclasses.replace(from_yaml(SMALL), **changes))
    for word in words:
        assert word in str(error.value)


@pytest.mark.parametrize(
    "change",
    [
        {"by": "bytes"},
        {"budget": 5.0},
        {"also": ("round=3",)},
        {"grids": ("lr=0.1",)},
        {"tuning_seeds": 9},
        {"extend": 5},
    ],
    ids=str,
)
def test_what_tuning_goes_by_is_refused_where_there_is_none(change):
    ((name, value),) = change.items()
    untuned = dataclasses.replace(from_yaml(SMALL), tune=False)
    with pytest.raises(ValueError, match=re.escape(f"got {name} = {value!r} and tune = False")):
        build(dataclasses.replace(untuned, **change))
    stopped = dataclasses.replace(untuned, stop=config.STOPS("consensus", tolerance=0.5))
    assert build(dataclasses.replace(stopped, by="stop"))[3]["tuning"] is None


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
def test_noise_without_its_multiplier_is_refused(kind):
    """A comparison has no budget that it could be found for."""
    mechanism = config.MECHANISMS
    known, unknown = (
        config.ALGORITHMS("d-psgd", clip=1.0, mechanism=mechanism(kind, multiplier=value)) for value in (2.0, None)
    )
    entries, *_ = build(dataclasses.replace(from_yaml(SMALL), algorithms=(known,)))
    assert entries["d-psgd"].algorithm.gradients.mechanism.multiplier == 2
    for one in (unknown, Entry(algorithm=unknown)):
        with pytest.raises(ValueError, match=r"Expected a multiplier of the noise, got none\. Give the mechanism's"):
            build(dataclasses.replace(from_yaml(SMALL), algorithms=(one,)))


def test_every_setting_has_a_sentence():
    for kind in (Settings, CompareConfig, Entry, command.Options):
        (body,) = ast.parse(inspect.getsource(kind)).body
        for setting, after in pairwise([*body.body, None]):
            if isinstance(setting, ast.AnnAssign) and setting.target.id != "kind":
                assert ast.literal_eval(after.value).endswith("."), setting.target.id


def test_defaults_are_the_librarys():
    given = {name: p.default for name, p in inspect.signature(jdfl.Experiment).parameters.items()}
    here = Settings()
    assert (here.every, here.measure, here.stop, here.batch) == tuple(
        given[name] for name in ("every", "measure", "stop", "batch")
    )
    assert (here.by, here.also, here.extend) == (DEFAULT[0], DEFAULT, jdfl.Tuning().extend)


def test_help_teaches(capsys):
    assert main(["compare", "--help"]) == 0
    text = capsys.readouterr().out
    for words in (
        "--algorithms",
        "ceps",
        "--no-tune",
        "--by",
        "--tuning-seeds",
        "--problem.m",
        "examples:",
        "exit status",
    ):
        assert words in text
    example = text.split("flags override it:\n")[1].split("\n\n")[0]
    assert main(["--help"]) == 0
    assert "compare" in capsys.readouterr().out
    kinds = example.replace("- d-psgd\n", "- ceps\n")  # any kind will do
    assert len(from_yaml(kinds).algorithms) == 3


def test_names_on_the_command_line_take_the_place_of_those_in_the_file():
    found, options = command.parse(["--config", "small.yaml", "--algorithms", "ceps", "ceps-paper", "--steps", "9"])
    assert found.algorithms == (config.ALGORITHMS("ceps"), config.ALGORITHMS("ceps-paper"))
    assert (found.steps, found.problem.n, options.config) == (9, 20, Path("small.yaml"))
    kept, _ = command.parse(["--network", "ring", "--config", "small.yaml", "--no-tune", "--by=bytes"])
    assert len(kept.algorithms) == 3
    assert (kept.network.kind, kept.tune, kept.by) == ("ring", False, "bytes")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The best", "default:Not tuned")
def test_a_comparison_from_end_to_end(capsys, tmp_path):
    assert main(["compare", "--config", "small.yaml", "--extend", "0", "--metrics", "objective"]) == 0
    shown = capsys.readouterr()
    (place,) = (tmp_path / "runs").iterdir()
    assert sorted(path.name for path in place.iterdir()) == sorted([*folder.FILES, "config.yaml"])
    assert (place / "table.txt").read_text() in shown.out
    assert "6 values" in shown.out  # of the default grid
    assert "3 values" in shown.out
    assert f"folder: runs/{place.name}" in shown.out
    assert "jdfl: warning: Not tuned: ceps-2" in shown.err
    stored = from_yaml((place / "config.yaml").read_text())
    assert stored == dataclasses.replace(from_yaml(SMALL), extend=0, metrics=("objective",))
    curves = pd.read_parquet(place / "curves.parquet")
    assert curves.groupby(["label", "seed"])["round"].max().unstack().to_numpy().tolist() == [[6, 6], [6, 6], [4, 4]]

    again = ["compare", "--config", str(place / "config.yaml"), "--json", "--out", "more"]
    assert main(again) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["algorithms"]["ceps"]["values"].keys() == {"step_scale"}
    assert told["algorithms"]["ceps"]["tuning_runs"] == 12
    assert told["algorithms"]["ceps-2"]["note"] == "not tuned"
    assert told["budget"] == 4
    pd.testing.assert_frame_equal(
        pd.read_parquet(Path(told["folder"]) / "curves.parquet").drop(columns="seconds"), curves.drop(columns="seconds")
    )


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--algorithms", "ceps", "--steps", "0"], "steps = 0"),
        ([], "algorithms = ()"),
        (["--config", "no.yaml"], "no.yaml"),
        (["--config", "small.yaml", "--measure", "beauty"], "beauty"),
        (["--config", "small.yaml", "--by", "stop"], "stop"),
        (["--config", "small.yaml", "--seed", "1000001"], "tuning.keys"),
        (["--config", "small.yaml", "--grids", "lr=1"], "grids = 'lr'"),
    ],
    ids=["steps", "none", "file", "measure", "stop", "seeds", "grid"],
)
def test_a_mistake_is_one_line_and_status_2_and_leaves_nothing(args, words, capsys, tmp_path):
    assert main(["compare", *args]) == 2
    err = capsys.readouterr().err
    assert err.startswith("jdfl: error: ")
    assert words in err
    assert err.count("\n") == 1
    assert not (tmp_path / "runs").exists() or list((tmp_path / "runs").iterdir()) == []


@pytest.mark.parametrize("args", [["--algorithms", "moon"], ["--network", "moon"], ["--by", "moons"]], ids=" ".join)
def test_a_wrong_flag_is_status_2(args, capsys):
    assert main(["compare", *args]) == 2
    assert args[1] in capsys.readouterr().err


def test_an_interruption_leaves_nothing_and_is_status_130(monkeypatch, tmp_path, capsys):
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(jdfl.Experiment, "made", interrupt)
    assert main(["compare", "--config", "small.yaml"]) == 130
    assert list((tmp_path / "runs").iterdir()) == []
    assert "interrupted; nothing is written" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_divergence_is_status_3(capsys):
    flags = ["--config", "small.yaml", "--algorithms", "ceps", "--metrics", "objective", "--grids", "step_scale=1e30"]
    assert main(["compare", *flags, "--steps", "40", "--quiet"]) == 3
    shown = capsys.readouterr()
    assert "has no results" in shown.err
    assert shown.out.startswith("runs/")


def test_every_kind_of_algorithm_can_be_named():
    for name, kind in compare.ALGORITHMS.kinds.items():
        needed = [f for f in dataclasses.fields(kind) if f.default is f.default_factory is dataclasses.MISSING]
        if needed:
            with pytest.raises(ValueError, match="--config"):
                compare.named((name,))
        else:
            assert compare.named((name,)) == (kind(),)
