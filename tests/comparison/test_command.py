"""`jdfl compare` in process, on tiny problems, and its configuration."""

import dataclasses
import inspect
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jdfl
from jdfl import config
from jdfl.cli import main, parse
from jdfl.config import from_yaml, to_yaml
from jdfl.lab import settings as compare
from jdfl.lab.entries import DEFAULT
from jdfl.lab.settings import CompareConfig, Entry, build
from tests.refused import each_refused, refused
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
    """In an empty folder, with the file that most tests use."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.yaml").write_text(SMALL)


@settings(max_examples=8)
@given(st.deferred(lambda: values(CompareConfig)))
def test_yaml_round_trip_is_exact(given: CompareConfig):
    assert from_yaml(to_yaml(given), CompareConfig) == given


def test_bad_yaml_names_the_place_and_the_value():
    for text, *words in (
        ("algorithms: ceps", "algorithms", "list", "'ceps'"),
        ("algorithms: [moon]", "algorithms[0].kind", "'moon'", "ceps", "entry"),
        ("algorithms: [{kind: entry}]", "algorithms[0].algorithm"),
        ("algorithms: [{kind: ceps, speed: 1}]", "algorithms[0].speed", "1"),
        ("by: moons", "by", "'moons'", "bytes"),
    ):
        with refused(*words):
            from_yaml(text, CompareConfig)


def test_what_is_built_is_what_was_said():
    start = from_yaml(SMALL, CompareConfig)
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
    start = from_yaml(SMALL + "redraw: null\n", CompareConfig)
    _, problem, network, _ = build(start)
    assert callable(problem)
    assert network.m == 4  # a complete network has nothing to draw
    one, other = problem(1), problem(2)
    assert one.m == other.m == 4
    assert not np.array_equal(one.data[0], other.data[0])
    np.testing.assert_array_equal(problem(1).data[0], one.data[0])
    random = dataclasses.replace(start, network=config.NETWORKS("erdos-renyi", p=0.6))
    *_, network, _ = build(random)
    assert len({np.asarray(network(seed).graph.mask).sum() for seed in range(8)}) > 1
    *_, network, _ = build(dataclasses.replace(random, redraw=("data",)))
    assert network.m == 4
    _, problem, _, _ = build(dataclasses.replace(start, redraw=()))
    assert problem.m == 4


def built(**changes):
    """What is built of the small file with some settings in exchange."""
    return build(dataclasses.replace(from_yaml(SMALL, CompareConfig), **changes))


def test_settings_that_make_no_sense():
    ceps = config.ALGORITHMS("ceps")
    for changes, *words in (
        ({"algorithms": ()}, "algorithms = ()", "--algorithms ceps"),
        ({"seeds": 0}, "seeds = 0"),
        ({"tuning_seeds": 0}, "tuning_seeds = 0"),
        ({"grids": ("lr",)}, "grids", "'lr'", "lr=0.05"),
        ({"grids": ("lr=0.1", "lr=0.2")}, "lr once in grids"),
        ({"algorithms": (Entry(algorithm=ceps, grids=("mu=1", "mu=2")),)}, "mu once in grids"),
        ({"also": ("bytes", "bytes=3")}, "bytes once in also"),
        ({"also": ("bytes=many",)}, "'bytes=many'"),
        ({"by": "stop", "budget": 3.0}, "budget = 3.0"),
        ({"algorithms": (Entry(algorithm=ceps, label="a"),) * 2}, "label = 'a'"),
    ):
        with refused(*words):
            built(**changes)


def test_what_tuning_goes_by_is_refused_where_there_is_none():
    values = {"by": "bytes", "budget": 5.0, "also": ("round=3",), "grids": ("lr=0.1",), "tuning_seeds": 9, "extend": 5}
    each_refused(built, *({name: value} for name, value in values.items()), tune=False)
    assert built(tune=False, stop=config.STOPS("consensus", tolerance=0.5), by="stop")[3]["tuning"] is None


def test_defaults_are_the_librarys_and_the_help_has_a_file_that_can_be_read(capsys):
    given = {name: p.default for name, p in inspect.signature(jdfl.Experiment).parameters.items()}
    here = CompareConfig()
    assert all(getattr(here, name) == given[name] for name in ("every", "measure", "stop", "batch"))
    assert (here.by, here.also, here.extend) == (DEFAULT[0], DEFAULT, jdfl.Tuning().extend)
    assert main(["compare", "--help"]) == 0
    example = capsys.readouterr().out.split("flags override it:\n")[1].split("\n\n")[0]
    assert len(from_yaml(example, CompareConfig).algorithms) == 3


def test_names_on_the_command_line_take_the_place_of_those_in_the_file():
    names = ["--algorithms", "ceps", "ceps-paper"]
    found, options = parse("compare", ["--config", "small.yaml", *names, "--steps", "9"])[1].values()
    assert found.algorithms == (config.ALGORITHMS("ceps"), config.ALGORITHMS("ceps-paper"))
    assert (found.steps, found.problem.n, options.config) == (9, 20, Path("small.yaml"))
    words = ["--network", "ring", "--config", "small.yaml", "--no-tune", "--by=bytes"]
    kept = parse("compare", words)[1]["config"]
    assert len(kept.algorithms) == 3
    assert (kept.network.kind, kept.tune, kept.by) == ("ring", False, "bytes")


def test_a_mistake_is_one_line_and_status_2_and_leaves_nothing(capsys, tmp_path):
    file = ["--config", "small.yaml"]
    for args, words in (
        ([], "algorithms = ()"),
        (["--config", "no.yaml"], "no.yaml"),
        ([*file, "--measure", "beauty"], "beauty"),
        (["--algorithms", "moon"], "moon"),
    ):
        assert main(["compare", *args]) == 2
        err = capsys.readouterr().err
        assert err.startswith("jdfl: error: ")
        assert words in err
        assert err.count("\n") == 1
        assert not list((tmp_path / "runs").glob("*"))


def test_every_kind_of_algorithm_can_be_named():
    for name, kind in compare.ALGORITHMS.kinds.items():
        needed = [f for f in dataclasses.fields(kind) if f.default is f.default_factory is dataclasses.MISSING]
        if needed:
            with refused("--config"):
                parse("compare", ["--algorithms", name])
        else:
            assert parse("compare", ["--algorithms", name])[1]["config"].algorithms == (kind(),)
