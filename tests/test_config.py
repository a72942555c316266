"""The configuration: exact YAML, errors that name the place, and objects from every kind."""

import dataclasses
import inspect
from functools import cache
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import jdfl
from jdfl import config
from jdfl.algorithms import descent
from jdfl.base.arguments import options_of
from jdfl.config import RunConfig, build, families, from_yaml, to_yaml
from jdfl.config.kinds import members
from jdfl.engine import runner
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
    "network: circulant": ("network.offsets", "no default"),
    "steps: true": ("steps", "True", "whole number"),
    "algorithm: {rate: yes}": ("algorithm.rate", "yes", "number"),
    "algorithm: {codec: {norm_bits: 32.0}}": ("algorithm.codec.norm_bits", "32.0", "32, 64"),
    "problem: {rows: [1, 2, 3]}": ("problem.rows", "list of 2"),
    "metrics: objective": ("metrics", "list", "'objective'"),
    "steps: 1\nsteps: 2": ("steps", "twice"),
    "a: [": ("YAML",),
    "problem: {noise: " + "9" * 400 + "}": ("problem.noise", "a number"),
    "[" * 2000: ("nested too deeply",),
    "steps: " + "x" * 300_000: ("at most", "characters"),
}


def test_bad_yaml_names_the_place_and_the_value():
    for text, words in BAD.items():
        with pytest.raises(ValueError) as error:
            from_yaml(text)
        assert [word for word in words if word.lower() not in str(error.value).lower()] == [], text


@pytest.mark.parametrize("place", ["gradients", "updates"])
def test_noise_is_built_with_its_multiplier_or_calibrated(place):
    kind, original = {"gradients": ("gaussian", jdfl.Gaussian), "updates": ("laplace", jdfl.Laplace)}[place]
    noise = families.MECHANISMS(kind)
    assert families.MECHANISMS(kind, multiplier=2.5).build() == original(2.5)
    with refused("multiplier"):
        noise.build()
    given = {"clip": 1.0, "mechanism": noise}
    own = given if place == "gradients" else {"updates": families.UPDATES("clipped", **given)}
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
    both = config.ALGORITHMS("d-psgd", **given, updates=families.UPDATES("clipped", **given))
    with refused("gradients", "updates"):
        build(dataclasses.replace(run, algorithm=both))


NEEDED = {
    "circulant": {"offsets": (1,)},
    **{name: {"degree": 2} for name in ("k-in", "k-regular", "watts-strogatz", "random-neighbours")},
    "barabasi-albert": {"links": 1},
    "random-geometric": {"radius": 0.8, "spread": 0.5},
    **{name: {"p": 0.5} for name in ("random-links", "link-loss")},
    "matcha": {"budget": 0.5},
    "partial-communication": {"rate": 0.5},
    "bursty-loss": {"to_bad": 0.1, "to_good": 0.5},
    "node-participation": {"count": 3},
    "outages": {"down": 0.1, "up": 0.5},
    "membership": {"joins": (0, 0, 3, 0), "leaves": (5,)},
    "delays": {"bound": 2},
}


def test_every_kind_builds_what_it_is_of():
    for family in (config.ALGORITHMS, families.CODECS):
        for kind, source in family.sources.items():
            assert isinstance(family(kind).build(), source if isinstance(source, type) else jdfl.CEPS), kind
    for kind in config.NETWORKS.sources.keys() - {"edge-list-file"}:
        assert config.NETWORKS(kind, **NEEDED.get(kind, {})).build(m=4).m == 4, kind
    for name, optimizer in descent.OPTIMIZERS.items():
        assert config.ALGORITHMS("local-only", optimizer=name).build().optimizer is optimizer
    assert set(jdfl.algorithms.REGISTRY) <= set(members(TYPES["algorithm"]))
    assert RunConfig().every == inspect.signature(runner.run).parameters["every"].default


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
