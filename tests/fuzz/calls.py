"""A good call of every public function and setting, from which one argument at a time goes wrong."""

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any
from unittest.mock import MagicMock

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import optax
import pandas as pd
from scipy.sparse import csr_array

import jdfl
from jdfl import codecs, models, network, privacy, problems, robust
from jdfl.algorithms import REGISTRY
from jdfl.problems import partition
from tests.later import Later, Named

M = 4
MODULES = {"": jdfl} | {f"{one.__name__.rpartition('.')[2]}.": one for one in (codecs, models, network, privacy)}
MODULES |= {"partition.": partition, "problems.": problems, "robust.": robust}
RING = Later(network.ring, M)
PROBLEM = Later(problems.example1, m=M, n=6, s=2, rows=(5, 9))
RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((24, 3))
Y = np.arange(24) % 2
PARTS = [(X[i::M], Y[i::M]) for i in range(M)]
DATA = problems.Dataset("own", X, Y, None, None, "made here", False)
NOISY = jdfl.DPSGD(gradients=jdfl.Gradients(batch=2, clip=1.0, mechanism=jdfl.Gaussian(1.0)))
CLASSES = Later(lambda: problems.logistic_regression(PARTS))


def squared(params: Any, example: Any) -> Any:
    """A loss of a person's own."""
    return jnp.square(example[0] @ params - example[1])


USUAL: dict[str, Any] = {  # of arguments without a default, by name; what is `Later` is built
    "model": Later(lambda: models.mlp(shape=(3,), classes=2, hidden=4)),
    "networks": Later(lambda: [RING(), RING()]),
    "methods": {"a": jdfl.DPSGD()},
    "run": pd.DataFrame({"round": range(60), "suboptimality": [0.9**k for k in range(60)]}),
    "counts": np.eye(4, dtype=int),
}
USUAL |= {"algorithm": NOISY, "problem": PROBLEM, "network": RING, "base": RING, "graph": Later(lambda: RING().graph)}
USUAL |= {"steps": 2, "keys": [1], "over": {"lr": [0.1]}, "attack": robust.SignFlip(), "rule": robust.NNA()}
USUAL |= {"epsilon": 1.0, "delta": 1e-5, "releases": 3, "event": privacy.GaussianEvent(1.0), "mu": 1.0, "n": 5}
USUAL |= {
    "mechanism": jdfl.Gaussian(1.0),
    "multiplier": 1.0,
    "kind": "gaussian",
    "clipped_in": "l2",
    "measured_in": "l1",
}
USUAL |= {"m": M, "degree": 2, "d": 2, "links": 2, "p": 0.5, "radius": 0.9, "offsets": [1], "nodes": [1]}
USUAL |= {"to_bad": 0.1, "to_good": 0.2, "down": 0.1, "up": 0.2, "rate": 0.5, "bound": 2, "every": 2, "budget": 0.5}
USUAL |= {"method": "M-1", "purpose": "a schedule", "rounds": 2, "order": [1, 0, 2, 3], "seconds": np.ones((M, 3))}
USUAL |= {"edges": [(0, 1), (1, 2), (2, 3)], "W": np.full((M, M), 1 / M), "adjacency": np.ones((M, M)), "parts": PARTS}
USUAL |= {"X": X, "y": Y, "features": X, "labels": Y, "w": X[0], "vectors": X, "data": DATA, "name": "mlp"}
USUAL |= {
    "targets": [X[:, 0], X[:, 1]],
    "clients": Y,
    "sizes": [3, 4],
    "n_examples": 24,
    "alpha": 1.0,
    "fraction": 0.25,
}
USUAL |= {"index": [np.array([0]), np.array([1, 2])], "noise": 0.1, "rotations": 2}
USUAL |= {"loss": squared, "params": np.zeros(3), "partition": "iid", "tolerance": 0.1, "value": 0.1, "s": 2}
NEURAL = Later(lambda: models.mlp(shape=(3, 1, 1), classes=2, hidden=2))
OWN: dict[str, dict[str, Any]] = {  # beside these, or in their place
    "attacked": {"algorithm": jdfl.DPSGD()},
    "combined_by": {"algorithm": jdfl.DPSGD()},
    "paths": {"steps": 2},
    "calibrate": {"epsilon": 5.0},
    "classical_gaussian": {"epsilon": 0.5},
    "compare": {"steps": 2, "trials": [1], "metrics": ["objective"], "budget": {"round": None}}
    | {"tuning": jdfl.Tuning(keys=(7,), extend=0)},
    "floor": {"rounds": 2},
    "from_arrays": {"nodes": 2},
    "from_model": {"nodes": 2},
    "from_loss": {"data": (X, X[:, 0]), "nodes": 2, "test": None},
    "sweep": {"keys": [1]},
    "models.cnn": {"channels": (2, 2), "dense": 4},
    "models.cnn3": {"channels": (2, 2, 2)},
    "models.mlp": {"hidden": 4},
    "models.resnet18": {"width": 2},
    "models.vit": {"layers": 1, "heads": 1, "width": 4, "mlp": 4, "patch": 8},
    "network.barabasi_albert": {"m": 6},
    "network.watts_strogatz": {"m": 6},
    "network.base_graph": {"m": 6, "k": 2},
    "network.d_cliques": {"counts": np.eye(4, dtype=int)[[0, 1, 2, 3, 0, 1]], "size": 3},
    "network.de_bruijn": {"degree": 2},
    "network.equi_rounds": {"offsets": 3},
    "network.equi_static": {"m": 7, "offsets": 3},
    "network.erdos_renyi": {"p": 0.8},
    "network.from_edges": {"m": M},
    "network.from_networkx": {"graph": nx.cycle_graph(M)},
    "network.membership": {"joins": 1},
    "network.node_participation": {"p": 0.5},
    "network.pad": {"d": 5},
    "network.random_choice": {"probability": [0.5, 0.5]},
    "network.stl_fw": {"budget": 4},
    "network.timed": {"compute": network.FixedTime(1.0)},
    "network.torus": {"rows": 2},
    "partition.by_size": {"n_examples": 7},
    "privacy.central_multiplier": {"clients": 5},
    "privacy.epsilon_pure": {"event": privacy.LaplaceEvent(1.0)},
    "privacy.most_releases": {"epsilon": 5.0},
    "privacy.noise_multiplier": {"epsilon": 5.0},
    "problems.base_rate": {"problem": CLASSES},
    "problems.epsilon_like": {"n_examples": 20, "n_features": 9},
    "problems.realsim_like": {"n_examples": 20, "n_features": 9},
    "problems.example1": {"m": M, "n": 6, "s": 2, "rows": (5, 9)},
    "problems.linear_regression": {"features": [X, X]},
    "problems.natural": {"name": "hsb82", "stand_in": True},
    "problems.load": {"name": "breast_cancer"},
    "problems.neural_classification": {"m": 2, "model": NEURAL},
    "problems.sparse_logistic_regression": {"parts": [(csr_array(x), y) for x, y in PARTS]},
    "problems.suboptimality_floor": {"problem": Later(lambda: problems.solved(PROBLEM()))},
    "problems.value_at": {"w": np.zeros(6)},
}
ELSEWHERE = {  # whose arguments are arrays of a run, made by it alone, or finished runs, or that other tests feed
    *("codecs.each_row", "codecs.gpsp", "codecs.receive", "codecs.round_trip", "codecs.transmit"),
    *("network.adding", "network.averaging", "network.in_run", "network.as_dense", "network.mix"),
    *("network.sample_neighbours", "privacy.clipped", "privacy.factor", "privacy.exposing", "privacy.report"),
    *(
        "account",
        "audit",
        "load",
        "per_node",
        "read_checkpoint",
        "spent_together",
        "partition.client_names",
        "partition.generator",
    ),
    *("robust.check_combines", "audit_bits", "key_file", "audit_one_run", "observe", "observe_pairs"),
    *("models.from_nnx", "problems.sample_regression", "problems.read_cifar10", "problems.read_idx"),
    *("problems.read_libsvm", "problems.read_mnist", "problems.read_qsar", "problems.data_folder"),
    *("problems.read_leaf", "problems.read_clients", "network.topohub"),
}


def functions() -> dict[str, Callable[..., Any]]:
    """All public functions by their path; those that `jdfl` has itself are told there."""
    found: dict[str, Callable[..., Any]] = {}
    for path, module in MODULES.items():
        names = getattr(module, "__all__", None) or [name for name in vars(module) if not name.startswith("_")]
        for name in names:
            value = getattr(module, name)
            own = path != "partition." or getattr(value, "__module__", "") == module.__name__
            if inspect.isfunction(value) and own and value not in found.values():
                found[path + name] = value
    return found


FUNCTIONS = {name: one for name, one in functions().items() if name not in ELSEWHERE}


def good(name: str) -> dict[str, Any]:
    """Arguments that a function takes."""
    parameters = inspect.signature(FUNCTIONS[name]).parameters.values()
    needed = [
        one.name
        for one in parameters
        if one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
    ]
    given = {one: USUAL[one] for one in needed if one not in OWN.get(name, {})} | OWN.get(name, {})
    return {one: value() if isinstance(value, Later) else value for one, value in given.items()}


GOOD = Named({name: Later(good, name) for name in FUNCTIONS})
CLIPPED = {"clip": 1.0, "batch": 2}
NEEDED = {jdfl.IHT: {"s": 2}, jdfl.CEPS: {"s": 2}, jdfl.DirectedCEPS: {"s": 2}, jdfl.RandomK: {"share": 0.5}}
SETTINGS: dict[str, tuple[Any, dict[str, Any], Callable[[Any], Any]]] = {  # kind, good fields, an algorithm with it
    **{name: (kind, NEEDED.get(kind, {}), lambda made: made) for name, kind in REGISTRY.items()},
    **{
        f"codecs.{kind.__name__}": (kind, NEEDED.get(kind, {}), lambda made: jdfl.DPSGD(codec=made))
        for kind in (jdfl.Dense, jdfl.LowRank, jdfl.OneBit, jdfl.QSGD, jdfl.RandomK, jdfl.Sign, jdfl.Sparse)
    },
    "Gradients": (jdfl.Gradients, CLIPPED, lambda made: jdfl.DPSGD(gradients=made)),
    "Updates": (jdfl.Updates, {"clip": 1.0}, lambda made: jdfl.FedAvg(updates=made)),
    "DPPS": (jdfl.DPPS, {}, lambda made: jdfl.SGP(dpps=made)),
    **{
        kind.__name__: (
            kind,
            {"multiplier": 1.0},
            lambda made: jdfl.DPSGD(gradients=jdfl.Gradients(mechanism=made, **CLIPPED)),
        )
        for kind in (jdfl.Gaussian, jdfl.Laplace)
    },
}


class Odd:
    """Something that nothing takes."""


ODD: list[Any] = [
    *(np.nan, np.inf, -np.inf, -1, -1.0, 0, -0.0, 0.5, 1.5, 2.0, 1e300, 1e-320, 2**63, -(2**63), 10**30, True, False),
    *("", "x", "3", b"1", None, [], [1, 2], [None], (), (1,), {}, {"a": 1}, set(), 1j, range(3), object(), Odd, Odd()),
    *(np.float64(0.5), np.float32(np.nan), np.int64(3), np.uint8(200), np.bool_(True), np.complex64(1j), np.str_("a")),
    *(np.datetime64("2020-01-01"), np.timedelta64(3, "s"), np.array(3), np.array(0.5), np.array([1.0, 2.0])),
    *(np.zeros(0), np.zeros((2, 2)), np.array(["a"]), np.array([None], object), np.array([[1j]]), np.ma.masked),
    *(np.ma.masked_array([1.0, 2.0], [True, False]), Later(jnp.float32, 0.5), Later(jnp.array, [np.nan])),
    *(Later(jnp.int32, 2), jdfl.DPSGD, jdfl.DPSGD(), jdfl.Dense, jdfl.Dense(), jdfl.Gaussian(1.0), DATA, len),
    *(lambda: 0, nx.cycle_graph(3), nx.Graph(), [[1, 2], [3]], "l2", "gaussian"),
]


def odds() -> list[Any]:
    """`ODD`, a network and a problem."""
    built = [one() if isinstance(one, Later) else one for one in ODD]
    return [*built, RING(), [RING()], RING().graph, PROBLEM()]


class Duck:
    """Something that has every attribute."""

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **named: self


class Raises:
    """Something whose attributes raise what they like."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)


class Unprintable:
    """Something that cannot be shown."""

    def __repr__(self) -> str:
        raise RuntimeError("no text")


OBJECTS: list[Any] = [
    *("x", "", 3, -1.5, float("nan"), True, None, b"x", 1j, {}, {"batch": 2}, [], [1], (), set(), range(3), Ellipsis),
    *(lambda w, round: w, len, type, jdfl, object(), Odd, Odd(), Duck(), Raises(), Unprintable(), MagicMock()),
    *(Exception("x"), NotImplemented, np.array(3.0), np.zeros(3), np.array(["a"]), np.str_("a"), np.ma.masked),
    *(jnp.zeros(3), jax.random.key(0), optax.sgd(0.1), optax.adam, jdfl.consensus_below(0.1), jdfl.DPPS()),
    *(jdfl.Gradients, jdfl.Gradients(), (jdfl.Gradients(),), [jdfl.Gradients()], {"gradients": jdfl.Gradients()}),
    *(jdfl.Updates, jdfl.Updates(clip=1.0), jdfl.Dense, jdfl.Dense(), jdfl.Sparse(), jdfl.DPSGD(), jdfl.FedAvg()),
    *(jdfl.Gaussian, jdfl.Gaussian(1.0), jdfl.Laplace(1.0), jdfl.ExactGaussian(1.0)),
]
Make = Callable[[Any], Any]


def places() -> dict[tuple[str, str], Make]:
    """Every field of every algorithm and other setting, and of the gradients and updates of every algorithm."""
    found: dict[tuple[str, str], Make] = {}
    for name, (kind, given, into) in SETTINGS.items():
        for one in dataclasses.fields(kind):
            found[name, one.name] = lambda value, kind=kind, given=given, into=into, field=one.name: into(
                kind(**{**given, field: value})
            )
    inner = {"gradients": (jdfl.Gradients, CLIPPED), "updates": (jdfl.Updates, {"clip": 1.0})}
    for name, kind in REGISTRY.items():
        for owner, (part, given) in inner.items():
            for one in dataclasses.fields(part) if owner in kind.__dataclass_fields__ else ():
                found[name, f"{owner}.{one.name}"] = (
                    lambda value, kind=kind, owner=owner, part=part, given=given, field=one.name: kind(
                        **NEEDED.get(kind, {}), **{owner: part(**{**given, field: value})}
                    )
                )
    return found


PLACES = Later(places)
GRADIENTS = [(name, "gradients") for name, kind in REGISTRY.items() if "gradients" in kind.__dataclass_fields__]
