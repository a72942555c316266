"""The configuration: exact YAML, errors that name the place, and objects from every kind."""

import dataclasses
import inspect
from functools import cache
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import jdfl
from jdfl import config, runner
from jdfl.config import RunConfig, build, from_yaml, members, to_yaml
from jdfl.config.problem import DataName

TYPES = get_type_hints(RunConfig)
TINY = config.Example1(m=4, n=20, s=2, rows=(5, 9))
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
SCALARS = {int: st.integers(), float: st.floats(allow_nan=False), bool: st.booleans(), str: TEXT}


@cache
def instances(cls: Any) -> st.SearchStrategy[Any]:
    """Values of a dataclass, which may hold others of its own kind."""

    def found() -> st.SearchStrategy[Any]:
        types = get_type_hints(cls)
        return st.builds(cls, **{field.name: values(types[field.name]) for field in dataclasses.fields(cls)})

    return st.deferred(found)


def values(annotation: Any) -> st.SearchStrategy[Any]:
    """Values of any type that a configuration may hold."""
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


@given(values(RunConfig))
def test_yaml_round_trip_is_exact(run: RunConfig):
    assert from_yaml(to_yaml(run)) == run


def test_defaults_round_trip_and_missing_keys_take_them():
    assert from_yaml(to_yaml(RunConfig())) == RunConfig() == from_yaml("")
    assert from_yaml("steps: 3") == RunConfig(steps=3)
    assert from_yaml("network: ring").network == config.Ring()
    stop = from_yaml("stop: {kind: consensus, tolerance: 5e-3, per: 2}").stop
    assert stop == config.ConsensusStop(tolerance=0.005, per=2.0)
    assert from_yaml("stop: null").stop is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("stepz: 3", ["stepz", "3", "known", "steps"]),
        ("network: {kind: ring, p: 0.3}", ["network.p", "0.3", "ring", "weights"]),
        ("network: {kind: moon}", ["network.kind", "'moon'", "ring"]),
        ("network: 4", ["network", "4", "ring"]),
        ("network: {kind: [1]}", ["network.kind", "ring"]),
        ("network: circulant", ["network.offsets", "no default"]),
        ("steps: many", ["steps", "'many'", "whole number"]),
        ("steps: true", ["steps", "True", "whole number"]),
        ("algorithm: {rate: yes}", ["algorithm.rate", "yes", "number"]),
        ("algorithm: {codec: {norm_bits: 33}}", ["algorithm.codec.norm_bits", "33", "32, 64"]),
        ("algorithm: {codec: {norm_bits: 32.0}}", ["algorithm.codec.norm_bits", "32.0"]),
        ("problem: {rows: [1, 2, 3]}", ["problem.rows", "list of 2"]),
        ("problem: {rows: [1, x]}", ["problem.rows[1]", "'x'"]),
        ("metrics: objective", ["metrics", "list", "'objective'"]),
        ("steps: 1\nsteps: 2", ["steps", "twice"]),
        ("- 1", ["mapping", "[1]"]),
        ("a: [", ["YAML"]),
        ("steps: 2001-13-45", ["steps", "2001-13-45", "whole number"]),
        ("steps: " + "9" * 5000, ["YAML", "no int"]),
        ("problem: {noise: " + "9" * 400 + "}", ["problem.noise", "a number"]),
        ("[" * 2000, ["nested too deeply"]),
        ("steps: " + "x" * 300_000, ["at most", "characters"]),
        ("steps: {a: [" + "1, " * 90 + "]}", ["steps", "..."]),
    ],
)
def test_bad_yaml_names_the_place_and_the_value(text: str, words: list[str]):
    with pytest.raises(ValueError) as error:
        from_yaml(text)
    for word in words:
        assert word.lower() in str(error.value).lower()


MIRRORS = [
    (config.CEPS, jdfl.CEPS, {"period", "lengths"}),
    (config.OneBit, jdfl.OneBit, {"matrix", "order"}),
    (config.Dense, jdfl.Dense, set()),
    (config.Sparse, jdfl.Sparse, set()),
    (config.RandomK, jdfl.RandomK, set()),
    (config.QSGD, jdfl.QSGD, set()),
    (config.Sign, jdfl.Sign, set()),
    (config.LowRank, jdfl.LowRank, set()),
]


@pytest.mark.parametrize(("mirror", "original", "arrays"), MIRRORS)
def test_every_setting_of_the_library_is_in_the_configuration(mirror, original, arrays):
    here = {field.name: field for field in dataclasses.fields(mirror)}
    there = {field.name: field for field in dataclasses.fields(original)}
    assert set(here) == set(there) - arrays
    mine, theirs = get_type_hints(mirror), get_type_hints(original)
    for name in set(here) - {"codec", "mechanism"}:
        assert here[name].default == there[name].default
        assert theirs[name] in (Any, mine[name])


@pytest.mark.parametrize(
    ("mirror", "function", "left_out"),
    [
        (config.Example1, jdfl.problems.example1, set()),
        (config.Classification, jdfl.problems.classification, set()),
        (config.NeuralClassification, jdfl.problems.neural_classification, set()),
        (config.DOut, jdfl.network.d_out, {"m"}),
        (config.Synchronised, jdfl.network.synchronised, set()),
        (config.ErdosRenyi, jdfl.network.erdos_renyi, {"m"}),
        (config.Ring, jdfl.network.ring, {"m"}),
        (config.Circulant, jdfl.network.circulant, {"m"}),
        (config.Complete, jdfl.network.complete, {"m"}),
        (config.KRegular, jdfl.network.k_regular, {"m"}),
        (config.Torus, jdfl.network.torus, {"m"}),
        (config.Star, jdfl.network.star, {"m"}),
        (config.KIn, jdfl.network.k_in, {"m"}),
        (config.WattsStrogatz, jdfl.network.watts_strogatz, {"m"}),
        (config.BarabasiAlbert, jdfl.network.barabasi_albert, {"m"}),
        (config.RandomGeometric, jdfl.network.random_geometric, {"m"}),
        (config.RandomLinks, jdfl.network.random_links, set()),
        (config.ErdosRenyiRounds, jdfl.network.erdos_renyi_rounds, {"m"}),
        (config.Exponential, jdfl.network.exponential, {"m"}),
        (config.OnePeerExponential, jdfl.network.one_peer_exponential, {"m"}),
        (config.Matcha, jdfl.network.matcha, set()),
        (config.PartialCommunication, jdfl.network.partial_communication, set()),
        (config.LinkLoss, jdfl.network.link_loss, set()),
        (config.BurstyLoss, jdfl.network.bursty_loss, set()),
        (config.Outages, jdfl.network.outages, set()),
        (config.Membership, jdfl.network.membership, set()),
        (config.Delays, jdfl.network.delays, set()),
        (config.FixedTime, jdfl.network.FixedTime, set()),
        (config.ExponentialTime, jdfl.network.ExponentialTime, set()),
        (config.LogNormalTime, jdfl.network.LogNormalTime, set()),
        (config.ParetoTime, jdfl.network.ParetoTime, set()),
        (config.Laplacian, jdfl.network.laplacian, {"format"}),
        (config.NodeParticipation, jdfl.network.node_participation, set()),
        (config.RandomNeighbours, jdfl.network.random_neighbours, {"m"}),
        (config.RandomMatching, jdfl.network.random_matching, {"m"}),
        (config.CEPSPaper, jdfl.CEPS.paper, set()),
    ],
)
def test_every_argument_of_the_library_is_in_the_configuration(mirror, function, left_out):
    here = {field.name: field.default for field in dataclasses.fields(mirror)}
    there = {name: p.default for name, p in inspect.signature(function).parameters.items()}
    assert set(here) - {"public"} == set(there) - left_out - {"public"}  # declared of every problem, as text
    for name in set(here) - {"dtype", "public"}:
        assert there[name] is inspect.Parameter.empty or here[name] == there[name]


def test_every_argument_of_times_is_in_the_configuration():
    there = {name: p.default for name, p in inspect.signature(jdfl.network.timed).parameters.items()}
    here = config.Timed()
    assert {field.name for field in dataclasses.fields(here)} == set(there)
    for name in ("compute", "latency"):
        assert getattr(here, name).build() == there[name]
    assert (here.bandwidth, here.slowness, here.first) == (there["bandwidth"], there["slowness"], there["first"])
    built = config.Timed(slowness=config.ParetoTime(shape=3.0), first=True, bandwidth=2.0).build(5)
    assert built.slowness == jdfl.network.ParetoTime(shape=3.0)
    assert (built.first, float(built.bandwidth)) == (True, 2.0)


def defaults_of(cls: Any, *left_out: str) -> dict[str, Any]:
    """The default of every field of a dataclass that is a setting."""
    return {field.name: field.default for field in dataclasses.fields(cls) if field.name not in left_out}


ORACLE = defaults_of(jdfl.Gradients, "lengths", "order")


@pytest.mark.parametrize("mirror", members(config.family.Gossiping).values(), ids=lambda mirror: mirror.kind)
def test_every_setting_of_the_family_is_in_the_configuration(mirror):
    original = mirror.algorithm
    assert jdfl.algorithms.REGISTRY[mirror.kind] is original
    assert set(defaults_of(mirror)) == set(defaults_of(original, "gradients")) | set(ORACLE)
    assert mirror().build() == original()
    built = dataclasses.replace(mirror(), batch=3, clip=0.5, mechanism=config.Gaussian(multiplier=2.0)).build()
    assert built.gradients == jdfl.Gradients(batch=3, clip=0.5, mechanism=jdfl.Gaussian(2.0))


@pytest.mark.parametrize("mirror", members(config.private.Private).values(), ids=lambda mirror: mirror.kind)
def test_every_setting_of_private_methods_is_in_the_configuration(mirror):
    """What `plan` fills in is no setting; noise on messages leaves none for gradients."""
    original = mirror.algorithm
    assert jdfl.algorithms.REGISTRY[mirror.kind] is original
    settings = set(defaults_of(original, "gradients", "activity", *getattr(original, "planned", ())))
    noise = set() if mirror in (config.DOADP, config.DPDDA) else {"mechanism", "sensitivity", "adjacency", "noisy"}
    assert set(defaults_of(mirror)) == settings | (set(ORACLE) - noise)
    assert mirror().build() == original()


@pytest.mark.parametrize("mirror", members(config.push_sum.Pushing).values(), ids=lambda mirror: mirror.kind)
def test_every_setting_of_push_sum_is_in_the_configuration(mirror):
    """Noise is on messages, so that there is none on gradients."""
    original, noise = mirror.algorithm, {"mechanism", "sensitivity", "adjacency", "noisy"}
    assert jdfl.algorithms.REGISTRY[mirror.kind] is original
    oracle = set(ORACLE) - noise if "gradients" in defaults_of(original) else set()
    assert set(defaults_of(mirror)) == set(defaults_of(original, "gradients")) | oracle
    assert mirror().build() == original()
    told = {"b": 2.0, "noise_rate": 0.5, "sensitivity": "eq22", "constant": 0.9, "contraction": 0.8, "failure": 1e-9}
    built = dataclasses.replace(mirror(), clip=0.5, dpps=config.DPPS(**told, watch=True)).build()
    assert built.dpps == jdfl.DPPS(**told, watch=True)
    assert set(defaults_of(config.DPPS)) == set(defaults_of(jdfl.DPPS, "schedule", "scales"))
    if oracle:
        built = dataclasses.replace(mirror(), batch=3, sampling="epochs", milestones=(4, 9), decay=0.5).build()
        assert built.gradients == jdfl.Gradients(batch=3, sampling="epochs", per="batch", norm="l1")
        assert (built.milestones, built.decay) == ((4, 9), 0.5)


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
def test_noise_is_built_with_its_multiplier_or_calibrated(kind):
    mirror = {"gaussian": config.Gaussian, "laplace": config.Laplace}[kind]
    original = {"gaussian": jdfl.Gaussian, "laplace": jdfl.Laplace}[kind]
    assert mirror(multiplier=2.5).build() == original(2.5)
    with pytest.raises(ValueError, match=r"multiplier of the noise, got none\. Give the mechanism's multiplier"):
        mirror().build()
    algorithm = config.DPSGD(clip=1.0, mechanism=mirror())
    with pytest.raises(ValueError, match=r"multiplier.*privacy\.epsilon"):
        build(RunConfig(problem=TINY, algorithm=algorithm))
    spend = config.Privacy(epsilon=3.0, delta=1e-6)
    run = RunConfig(problem=TINY, network=config.Ring(), algorithm=algorithm, privacy=spend, steps=7)
    made, problem, network, _ = build(run)
    assert isinstance(made.gradients.mechanism, original)
    told = jdfl.account_plan(made, problem, network, steps=7, delta=1e-6)
    assert 2.99 < told.epsilon <= 3.0
    settled = config.settled(run, made)
    assert settled.algorithm.mechanism.multiplier == pytest.approx(float(made.gradients.mechanism.multiplier))
    assert config.settled(settled, made) == settled == from_yaml(config.to_yaml(settled))


def test_updates_of_the_configuration_are_the_librarys():
    mirror = config.Updates(clip=2.0, mechanism=config.Laplace(multiplier=3.0), norm="l1", trust="central")
    built = config.FedAvg(updates=mirror).build()
    assert built.updates == jdfl.Updates(clip=2.0, mechanism=jdfl.Laplace(3.0), norm="l1", trust="central")
    names = {field.name for field in dataclasses.fields(jdfl.Updates)}
    assert {field.name for field in dataclasses.fields(mirror)} == names
    calibrated = RunConfig(
        problem=TINY,
        network=config.Ring(),
        algorithm=config.DFedAvgM(updates=config.Updates(clip=1.0, mechanism=config.Gaussian())),
        privacy=config.Privacy(epsilon=2.0),
        steps=3,
    )
    found = config.settled(calibrated, build(calibrated)[0])
    assert found.algorithm.updates.mechanism.multiplier > 0


def test_noise_on_gradients_and_on_updates_is_refused_though_both_are_to_be_found():
    both = config.DPSGD(
        clip=1.0, mechanism=config.Gaussian(), updates=config.Updates(clip=1.0, mechanism=config.Laplace())
    )
    with pytest.raises(ValueError, match=r"gradients or on updates, got both"):
        build(RunConfig(problem=TINY, network=config.Ring(), algorithm=both, privacy=config.Privacy(epsilon=2.0)))


@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", get_args(config.family.Optimizer))
def test_every_optimizer_builds_and_steps(name):
    problem, ring = TINY.build(), jdfl.network.ring(4)
    result = jdfl.run(config.LocalOnly(optimizer=name, lr=0.01).build(), problem, ring, steps=2, metrics=[])
    assert np.abs(np.asarray(result.params)).sum() > 0


def test_names_agree_with_the_library():
    assert get_args(DataName) == jdfl.problems.NAMES
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
        "link-loss": {"base": config.RandomMatching(), "p": 0.9},
        "node-participation": {"count": 3},
        "bursty-loss": {"to_bad": 0.1, "to_good": 0.5},
        "outages": {"down": 0.1, "up": 0.5, "base": config.Timed(first=True)},
        "membership": {"joins": (0, 0, 3, 0), "leaves": (5,)},
        "delays": {"bound": 2},
    },
    "stop": {"objective": {"value": 0.1}, "gradient": {"tolerance": 0.1}},
    "problem": {"example1": dataclasses.asdict(TINY), "classification": {"m": 4}, "neural": {"m": 4}},
    "algorithm": {
        "ceps": {"s": 2, "mechanism": config.Gaussian(multiplier=1.0), "clip": 1.0},
        "ceps-paper": {"s": 2, "epsilon": 0.5},
        "choco-sgd": {"gamma": 1.0},
        "partpsp": {"clip": 1.0, "dpps": config.DPPS(b=1.0), "milestones": (1,)},
        "sgp": {"batch": 2, "sampling": "in order"},
    },
}


@pytest.mark.filterwarnings("ignore:With d = ")
@pytest.mark.parametrize(
    ("field", "kind"), [(f, k) for f in SMALL for k in members(TYPES[f])] + [("stop", None)], ids=str
)
def test_every_kind_builds(field, kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "links.txt").write_text("0 1\n1 2  # a comment\n\n2,3\n")
    value = None if kind is None else members(TYPES[field])[kind](**SMALL[field].get(kind, {}))
    method = {"algorithm": config.DPSGD()} if kind in ("synchronised", "neural") else {}  # what CEPS cannot do
    given = {field: value} | method
    algorithm, problem, network, stop = build(dataclasses.replace(RunConfig(problem=TINY), **given))
    assert problem.m == network.m == 4
    sparse = {"s": 2} if hasattr(algorithm, "s") else {}
    runner.check_run(algorithm.replace(**sparse), problem, network, 1, 1, stop)
    assert (stop is None) == ((field, kind) == ("stop", None) or not isinstance(algorithm, jdfl.CEPS))


def test_ceps_may_use_every_codec():
    assert get_type_hints(config.CEPS)["codec"] == config.Codecs
    assert set(members(config.Codecs)) == {"one-bit", "dense", "sparse", "random-k", "qsgd", "sign", "low-rank"}


@pytest.mark.parametrize("kind", members(config.Codecs))
def test_every_codec_builds(kind):
    codec = members(config.Codecs)[kind]()
    built = config.CEPS(codec=codec).build().codec
    assert type(built).__name__ == type(codec).__name__


def test_only_ceps_stops_by_itself():
    assert config.AutoStop().build(jdfl.CEPS(s=7)) == jdfl.consensus_below(5e-3, per=7.0)
    assert config.AutoStop().build(jdfl.DPSGD()) is None


def test_consensus_follows_the_sparsity_unless_told_otherwise():
    assert config.ConsensusStop().build(jdfl.CEPS(s=7)).per == 7
    assert config.ConsensusStop(per=2.0).build(jdfl.CEPS(s=7)).per == 2
    assert config.ConsensusStop().build(object()).per == 1


def test_a_matrix_file_is_a_network(tmp_path):
    path = tmp_path / "ring.npz"
    sp.save_npz(path, sp.csr_array(np.eye(4, k=1) + np.eye(4, k=-1)))
    assert config.EdgeListFile(path=str(path)).build(4).m == 4
    with pytest.raises(ValueError, match=r"adjacency of shape \(5, 5\), got \(4, 4\)"):
        config.EdgeListFile(path=str(path)).build(5)
    path.write_bytes(b"nothing")
    with pytest.raises(ValueError, match=r"SciPy sparse matrix in .*ring.npz"):
        config.EdgeListFile(path=str(path)).build(4)


def test_a_bad_network_file_is_named_with_its_line(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"network\.path"):
        config.EdgeListFile(path=str(tmp_path / "no")).build(4)
    path = tmp_path / "links"
    for line in ("0 x", "0 1 {}", "7"):
        path.write_text(f"0 1\n{line}\n")
        with pytest.raises(ValueError, match="line 2"):
            config.EdgeListFile(path=str(path)).build(4)
    path.write_text("0 1\n2 3\n")
    with pytest.raises(ValueError, match="connected"):
        config.EdgeListFile(path=str(path)).build(4)


def test_odd_files_and_numbers_are_told(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"file at problem\.clients, got '~nobody/there'\. Check the path"):
        config.Classification(partition="clients", clients="~nobody/there").build()
    with pytest.raises(ValueError, match=r"count >= 1 and <= 10000, got count = 2147483648"):
        config.Periodic(count=2**31).build(4)
