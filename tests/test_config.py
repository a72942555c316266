"""The configuration: exact YAML, errors that name the place, and objects from every kind."""

import dataclasses
import inspect
from functools import cache
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import jdfl
from jdfl import config
from jdfl.algorithms import descent
from jdfl.base.arguments import options_of
from jdfl.config import RunConfig, build, from_yaml, members, to_yaml
from jdfl.config.kinds import shown
from jdfl.engine import runner, start
from tests.refused import refused

TYPES = get_type_hints(RunConfig, include_extras=True)
TINY = config.PROBLEMS("example1", m=4, n=20, s=2, rows=(5, 9))
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
SCALARS = {int: st.integers(), float: st.floats(allow_nan=False), bool: st.booleans(), str: TEXT}


@cache
def instances(cls: Any) -> st.SearchStrategy[Any]:
    """Values of a dataclass, which may hold others of its own kind."""

    def found() -> st.SearchStrategy[Any]:
        types = get_type_hints(cls, include_extras=True)
        return st.builds(cls, **{field.name: values(types[field.name]) for field in dataclasses.fields(cls)})

    return st.deferred(found)


def values(annotation: Any) -> st.SearchStrategy[Any]:
    """Values of any type that a configuration may hold."""
    if choices := members(annotation):
        absent = [st.none()] if type(None) in options_of(annotation) else []
        return st.one_of(*map(instances, choices.values()), *absent)
    if get_origin(annotation) is Annotated:
        return values(annotation.__origin__)
    if dataclasses.is_dataclass(annotation):
        return instances(annotation)
    if annotation in SCALARS:
        return SCALARS[annotation]
    if annotation is type(None):
        return st.none()
    options = get_args(annotation)
    if getattr(annotation, "__origin__", None) is tuple:
        if options[-1] is Ellipsis:
            return st.lists(values(options[0]), max_size=3).map(tuple)
        return st.tuples(*map(values, options))
    if get_origin(annotation) in (Union, UnionType):
        return st.one_of(*map(values, options))
    return st.sampled_from(options)  # Literal


@given(st.deferred(lambda: values(RunConfig)))
def test_yaml_round_trip_is_exact(run: RunConfig):
    assert from_yaml(to_yaml(run)) == run


def test_defaults_round_trip_and_missing_keys_take_them():
    assert from_yaml(to_yaml(RunConfig())) == RunConfig() == from_yaml("")
    assert from_yaml("steps: 3") == RunConfig(steps=3)
    assert from_yaml("network: ring").network == config.NETWORKS("ring")
    stop = from_yaml("stop: {kind: consensus, tolerance: 5e-3, per: 2}").stop
    assert stop == config.STOPS("consensus", tolerance=0.005, per=2.0)
    assert from_yaml("stop: null").stop is None


BAD = {
    "stepz: 3": ("stepz", "3", "known", "steps"),
    "network: {kind: ring, p: 0.3}": ("network.p", "0.3", "ring", "weights"),
    "network: {kind: moon}": ("network.kind", "'moon'", "ring"),
    "network: 4": ("network", "4", "ring"),
    "network: {kind: [1]}": ("network.kind", "ring"),
    "network: circulant": ("network.offsets", "no default"),
    "steps: many": ("steps", "'many'", "whole number"),
    "steps: true": ("steps", "True", "whole number"),
    "algorithm: {rate: yes}": ("algorithm.rate", "yes", "number"),
    "algorithm: {codec: {norm_bits: 32.0}}": ("algorithm.codec.norm_bits", "32.0", "32, 64"),
    "problem: {rows: [1, 2, 3]}": ("problem.rows", "list of 2"),
    "problem: {rows: [1, x]}": ("problem.rows[1]", "'x'"),
    "metrics: objective": ("metrics", "list", "'objective'"),
    "steps: 1\nsteps: 2": ("steps", "twice"),
    "- 1": ("mapping", "[1]"),
    "a: [": ("YAML",),
    "steps: 2001-13-45": ("steps", "2001-13-45", "whole number"),
    "steps: " + "9" * 5000: ("YAML", "no int"),
    "problem: {noise: " + "9" * 400 + "}": ("problem.noise", "a number"),
    "[" * 2000: ("nested too deeply",),
    "steps: " + "x" * 300_000: ("at most", "characters"),
    "steps: {a: [" + "1, " * 90 + "]}": ("steps", "..."),
}


def test_bad_yaml_names_the_place_and_the_value():
    for text, words in BAD.items():
        with pytest.raises(ValueError) as error:
            from_yaml(text)
        assert [word for word in words if word.lower() not in str(error.value).lower()] == [], text


@pytest.mark.parametrize("place", ["gradients", "updates"])
def test_noise_is_built_with_its_multiplier_or_calibrated(place):
    kind, original = {"gradients": ("gaussian", jdfl.Gaussian), "updates": ("laplace", jdfl.Laplace)}[place]
    noise = config.MECHANISMS(kind)
    assert config.MECHANISMS(kind, multiplier=2.5).build() == original(2.5)
    with refused("multiplier"):
        noise.build()
    given = {"clip": 1.0, "mechanism": noise}
    own = given if place == "gradients" else {"updates": config.UPDATES("clipped", **given)}
    algorithm = config.ALGORITHMS("d-psgd", **own)
    run = RunConfig(problem=TINY, network=config.NETWORKS("ring"), algorithm=algorithm, steps=7)
    with refused("multiplier", "privacy.epsilon"):
        build(run)
    run = dataclasses.replace(run, privacy=config.Privacy(epsilon=3.0, delta=1e-6))
    made, problem, network, _ = build(run)
    mechanism = getattr(made, place).mechanism
    assert isinstance(mechanism, original)
    assert 2.99 < jdfl.account_plan(made, problem, network, steps=7, delta=1e-6).epsilon <= 3.0
    settled = config.settled(run, made)
    found = settled.algorithm if place == "gradients" else settled.algorithm.updates
    assert found.mechanism.multiplier == pytest.approx(float(mechanism.multiplier))
    assert config.settled(settled, made) == settled == from_yaml(to_yaml(settled))
    both = config.ALGORITHMS("d-psgd", **given, updates=config.UPDATES("clipped", **given))
    with refused("gradients", "updates"):
        build(dataclasses.replace(run, algorithm=both))


def test_updates_of_the_configuration_are_the_librarys():
    noise = config.MECHANISMS("laplace", multiplier=3.0)
    mirror = config.UPDATES("clipped", clip=2.0, mechanism=noise, norm="l1", trust="central")
    built = config.ALGORITHMS("fedavg", updates=mirror).build()
    assert built.updates == jdfl.Updates(clip=2.0, mechanism=jdfl.Laplace(3.0), norm="l1", trust="central")
    names = {field.name for field in dataclasses.fields(jdfl.Updates)}
    assert {field.name for field in dataclasses.fields(mirror)} == names


def test_every_optimizer_builds():
    for name, optimizer in descent.OPTIMIZERS.items():
        assert config.ALGORITHMS("local-only", optimizer=name).build().optimizer is optimizer
        if optimizer is not None:
            assert jax.eval_shape(optimizer(0.01).init, jnp.ones(3)) is not None


def test_names_agree_with_the_library():
    assert set(jdfl.algorithms.REGISTRY) <= set(members(TYPES["algorithm"]))
    assert RunConfig().every == inspect.signature(runner.run).parameters["every"].default


SMALL = {
    "network": {
        "circulant": {"offsets": (1,)},
        "k-regular": {"degree": 3},
        "k-in": {"degree": 2},
        "watts-strogatz": {"degree": 2},
        "barabasi-albert": {"links": 1},
        "random-geometric": {"radius": 0.8, "spread": 0.5},
        "random-links": {"p": 0.5},
        "random-neighbours": {"degree": 2},
        "edge-list-file": {"path": "links.txt"},
        "matcha": {"budget": 0.5},
        "partial-communication": {"rate": 0.5},
        "link-loss": {"base": config.NETWORKS("random-matching"), "p": 0.9},
        "node-participation": {"count": 3},
        "bursty-loss": {"to_bad": 0.1, "to_good": 0.5},
        "outages": {"down": 0.1, "up": 0.5, "base": config.NETWORKS("timed", first=True)},
        "membership": {"joins": (0, 0, 3, 0), "leaves": (5,)},
        "delays": {"bound": 2},
    },
    "stop": {"objective": {"value": 0.1}, "gradient": {"tolerance": 0.1}},
    "problem": {"example1": dataclasses.asdict(TINY), "classification": {"m": 4}, "neural": {"m": 4}},
    "algorithm": {
        "ceps": {"s": 2, "mechanism": config.MECHANISMS("gaussian", multiplier=1.0), "clip": 1.0},
        "ceps-paper": {"s": 2, "epsilon": 0.5},
        "partpsp": {"clip": 1.0, "dpps": shown(jdfl.DPPS(b=1.0)), "milestones": (1,)},
        "sgp": {"batch": 2, "sampling": "in order"},
    },
}

FAMILIES = {name: getattr(config, f"{name.upper()}S") for name in SMALL}


@pytest.mark.rotated(3)
@pytest.mark.filterwarnings("ignore:With d = ")
@pytest.mark.parametrize(
    ("field", "kind"), [(f, kind) for f, one in FAMILIES.items() for kind in one.sources] + [("stop", None)], ids=str
)
def test_every_kind_builds(field, kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "links.txt").write_text("0 1\n1 2  # a comment\n\n2,3\n")
    value = None if kind is None else FAMILIES[field](kind, **SMALL[field].get(kind, {}))
    method = (
        {"algorithm": config.ALGORITHMS("d-psgd")} if kind in ("synchronised", "neural") else {}
    )  # what CEPS cannot do
    if kind in jdfl.events.REGISTRY:
        method = {"network": config.NETWORKS("timed")}
    given = {field: value} | method
    algorithm, problem, network, stop = build(dataclasses.replace(RunConfig(problem=TINY), **given))
    assert problem.m == network.m == 4
    sparse = {"s": 2} if hasattr(algorithm, "s") else {}
    start.check_run(algorithm.replace(**sparse), problem, network, 1, 1, stop)
    assert (stop is None) == ((field, kind) == ("stop", None) or not isinstance(algorithm, jdfl.CEPS))


def test_every_codec_builds_and_ceps_may_use_each():
    codec = get_type_hints(type(config.ALGORITHMS("ceps")), include_extras=True)["codec"]
    assert set(members(codec)) == {"one-bit", "dense", "sparse", "random-k", "qsgd", "sign", "low-rank"}
    for kind, source in config.CODECS.sources.items():
        assert type(config.ALGORITHMS("ceps", codec=config.CODECS(kind)).build().codec) is source


def test_only_ceps_stops_by_itself_and_consensus_follows_its_sparsity_unless_told_otherwise():
    ceps = jdfl.CEPS(s=7)
    assert config.STOPS("auto").build(algorithm=ceps) == jdfl.consensus_below(5e-3, per=7.0)
    assert config.STOPS("auto").build(algorithm=jdfl.DPSGD()) is None
    assert config.STOPS("consensus").build(algorithm=ceps).per == 7
    assert config.STOPS("consensus", per=2.0).build(algorithm=ceps).per == 2
    assert config.STOPS("consensus").build(algorithm=object()).per == 1


def test_a_matrix_file_is_a_network_and_a_bad_file_is_named_with_its_line(tmp_path):
    path = tmp_path / "ring.npz"
    sp.save_npz(path, sp.csr_array(np.eye(4, k=1) + np.eye(4, k=-1)))
    network = config.NETWORKS("edge-list-file", path=str(path))
    assert network.build(m=4).m == 4
    with refused("adjacency", "(5, 5)", "(4, 4)"):
        network.build(m=5)
    path.write_bytes(b"nothing")
    with refused("SciPy sparse matrix", str(path)):
        network.build(m=4)
    links = tmp_path / "links"
    network = config.NETWORKS("edge-list-file", path=str(links))
    with refused(FileNotFoundError, "network.path"):
        network.build(m=4)
    for line, words in {"0 x": "line 2", "0 1 {}": "line 2", "7": "line 2", "2 3": "connected"}.items():
        links.write_text(f"0 1\n{line}\n")
        with refused(words):
            network.build(m=4)


def test_odd_files_and_numbers_are_told():
    with refused(FileNotFoundError, "problem.clients", "'~nobody/there'"):
        config.PROBLEMS("classification", partition="clients", clients="~nobody/there").build()
    with refused("<= 10000", count=2**31):
        config.NETWORKS("periodic", count=2**31).build(m=4)
