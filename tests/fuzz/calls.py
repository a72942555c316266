"""A good call of every public function, from which one argument at a time goes wrong."""

import inspect
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import networkx as nx
import numpy as np
import pandas as pd
from scipy.sparse import csr_array

import jdfl
from jdfl import codecs, models, network, privacy, problems, robust
from jdfl.problems import partition
from tests.later import Later, Named

M = 4
MODULES = {
    "": jdfl,
    "codecs.": codecs,
    "models.": models,
    "network.": network,
    "partition.": partition,
    "privacy.": privacy,
    "problems.": problems,
    "robust.": robust,
}
RING = Later(network.ring, M)
PROBLEM = Later(problems.example1, m=M, n=6, s=2, rows=(5, 9))
RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((24, 3))
Y = np.arange(24) % 2
PARTS = [(X[i::M], Y[i::M]) for i in range(M)]
DATA = problems.Dataset("own", X, Y, None, None, "made here", False)
NOISY = jdfl.DPSGD(gradients=jdfl.Gradients(batch=2, clip=1.0, mechanism=jdfl.Gaussian(1.0)))
BASE = Later(lambda: {"base": RING()})
PLAN = Later(lambda: {"algorithm": NOISY, "problem": PROBLEM(), "network": RING(), "steps": 2})
EVENT = {"event": privacy.GaussianEvent(1.0), "releases": 3, "delta": 1e-5}


def squared(params: Any, example: Any) -> Any:
    """A loss of a person's own."""
    return jnp.square(example[0] @ params - example[1])


GOOD = Named(
    {
        "all_of": {},
        "account_plan": PLAN,
        "paths": PLAN,
        "attacked": {"algorithm": jdfl.DPSGD(), "attack": robust.SignFlip(), "nodes": [1]},
        "combined_by": {"algorithm": jdfl.DPSGD(), "rule": robust.NNA()},
        "analytic_gaussian": {"epsilon": 1.0, "delta": 1e-5, "releases": 2},
        "calibrate": lambda: PLAN() | {"epsilon": 5.0},
        "compare": lambda: {
            **{name: PLAN()[name] for name in ("problem", "network", "steps")},
            "methods": {"a": jdfl.DPSGD()},
            "trials": [1],
            "metrics": ["objective"],
            "budget": {"round": None},
            "tuning": jdfl.Tuning(keys=(7,), extend=0),
        },
        "classical_gaussian": {"epsilon": 0.5, "delta": 1e-5},
        "consensus_below": {"tolerance": 0.1},
        "from_arrays": {"X": X, "y": Y, "nodes": 2},
        "from_loss": lambda: {"loss": squared, "params": np.zeros(3), "data": (X, X[:, 0]), "nodes": 2, "test": None},
        "from_model": lambda: {"model": models.mlp(shape=(3,), classes=2, hidden=4), "X": X, "y": Y, "nodes": 2},
        "gradient_below": {"tolerance": 0.1},
        "objective_below": {"value": 0.1},
        "floor": lambda: {"algorithm": NOISY, "problem": PROBLEM(), "network": RING(), "rounds": 2},
        "linear_rate": lambda: {
            "run": pd.DataFrame({"round": range(60), "suboptimality": [0.9**k for k in range(60)]})
        },
        "planned_releases": PLAN,
        "repeat": lambda: PLAN() | {"keys": [1]},
        "run": PLAN,
        "sweep": lambda: PLAN() | {"keys": [1], "over": {"lr": [0.1]}},
        "models.build": {"name": "mlp"},
        "models.cnn": {"channels": (2, 2), "dense": 4},
        "models.cnn3": {"channels": (2, 2, 2)},
        "models.mlp": {"hidden": 4},
        "models.resnet18": {"width": 2},
        "models.vit": {"layers": 1, "heads": 1, "width": 4, "mlp": 4, "patch": 8},
        "network.barabasi_albert": {"m": 6, "links": 2},
        "network.base_graph": {"m": 6, "k": 2},
        "network.bucketed": lambda: {"graph": RING().graph},
        "network.bursty_loss": lambda: BASE() | {"to_bad": 0.1, "to_good": 0.2},
        "network.check_graph": lambda: {"graph": RING().graph},
        "network.check_weights": lambda: {"network": RING(), "method": "M-1"},
        "network.circulant": {"m": M, "offsets": [1]},
        "network.complete": {"m": M},
        "network.d_cliques": {"counts": np.eye(4, dtype=int)[[0, 1, 2, 3, 0, 1]], "size": 3},
        "network.d_out": {"m": M, "d": 2},
        "network.de_bruijn": {"m": M, "degree": 2},
        "network.delays": lambda: BASE() | {"bound": 2},
        "network.equi_rounds": {"m": M, "offsets": 3},
        "network.equi_static": {"m": 7, "offsets": 3},
        "network.erdos_renyi": {"m": M, "p": 0.8},
        "network.erdos_renyi_rounds": {"m": M},
        "network.exponential": {"m": M},
        "network.from_edges": {"edges": [(0, 1), (1, 2), (2, 3)], "m": M},
        "network.from_networkx": {"graph": nx.cycle_graph(M)},
        "network.from_matrix": {"W": np.full((M, M), 1 / M)},
        "network.from_scipy": {"adjacency": np.ones((M, M))},
        "network.hyper_hypercube": {"m": M, "k": 1},
        "network.k_in": {"m": M, "degree": 2},
        "network.k_regular": {"m": M, "degree": 2},
        "network.laplacian": BASE,
        "network.link_loss": lambda: BASE() | {"p": 0.2},
        "network.matcha": lambda: BASE() | {"budget": 0.5},
        "network.matchings": BASE,
        "network.matrices": lambda: {"network": RING(), "rounds": 2, "purpose": "a schedule"},
        "network.membership": lambda: BASE() | {"joins": 1},
        "network.narrow_order": lambda: {"network": RING()},
        "network.node_participation": lambda: BASE() | {"p": 0.5},
        "network.one_peer_exponential": {"m": M},
        "network.outages": lambda: BASE() | {"down": 0.1, "up": 0.2},
        "network.pad": lambda: {"graph": RING().graph, "d": 5},
        "network.partial_communication": lambda: BASE() | {"rate": 0.5},
        "network.period_of": lambda: {"network": RING()},
        "network.periodic": lambda: {"networks": [RING()]},
        "network.random_choice": lambda: {"networks": [RING(), RING()], "probability": [0.5, 0.5]},
        "network.random_geometric": {"m": M, "radius": 0.9},
        "network.random_links": lambda: BASE() | {"p": 0.5},
        "network.random_matching": {"m": M},
        "network.random_neighbours": {"m": M, "degree": 2},
        "network.refuse_synchronised": lambda: {"network": RING(), "method": "M-1"},
        "network.relabel": lambda: {"graph": RING().graph, "order": [1, 0, 2, 3]},
        "network.require": lambda: {"network": RING(), "method": "M-1"},
        "network.ring": {"m": M},
        "network.spectral_gap": lambda: {"network": RING()},
        "network.star": {"m": M},
        "network.stl_fw": {"counts": np.eye(4, dtype=int), "budget": 4},
        "network.summary": lambda: {"network": RING()},
        "network.node_weights": lambda: {"network": RING()},
        "network.synchronised": lambda: BASE() | {"every": 2},
        "network.time_trace": lambda: {"seconds": np.ones((M, 3))},
        "network.timed": lambda: BASE() | {"compute": network.FixedTime(1.0)},
        "network.to_networkx": lambda: {"network": RING()},
        "network.to_scipy": lambda: {"network": RING()},
        "network.torus": {"m": M, "rows": 2},
        "network.watts_strogatz": {"m": 6, "degree": 2},
        "partition.by_client": {"clients": Y},
        "partition.by_size": {"sizes": [3, 4], "n_examples": 7},
        "partition.dirichlet": {"labels": Y, "m": 2, "alpha": 1.0},
        "partition.drawn": {"partition": "iid", "labels": Y, "m": 2},
        "partition.iid": {"n_examples": 24, "m": 2},
        "partition.shards": {"labels": Y, "m": 2},
        "privacy.central_multiplier": {"multiplier": 1.0, "clients": 5},
        "privacy.check_mechanism": {"mechanism": jdfl.Gaussian(1.0)},
        "privacy.epsilon": EVENT,
        "privacy.epsilon_pure": {"event": privacy.LaplaceEvent(1.0), "releases": 3},
        "privacy.epsilon_rdp": EVENT,
        "privacy.epsilons": EVENT,
        "privacy.gaussian_delta": {"mu": 1.0, "epsilon": 1.0},
        "privacy.gaussian_epsilon": {"mu": 1.0, "delta": 1e-5},
        "privacy.most_releases": {"event": privacy.GaussianEvent(1.0), "epsilon": 5.0, "delta": 1e-5},
        "privacy.noise_multiplier": {"kind": "gaussian", "epsilon": 5.0, "delta": 1e-5, "releases": 3},
        "privacy.stretch": {"clipped_in": "l2", "measured_in": "l1", "n": 5},
        "robust.check_honest": lambda: {"network": RING(), "nodes": [1]},
        "robust.weak_nodes": lambda: {"graph": RING().graph, "nodes": [1], "rule": robust.NNA()},
        "problems.averaging": {"vectors": X},
        "problems.base_rate": lambda: {"problem": problems.logistic_regression(PARTS)},
        "problems.certified_radius": {"w": X[0], "features": X, "labels": np.arange(len(X)) % 2},
        "problems.check_problem": lambda: {"problem": PROBLEM()},
        "problems.classification": {"data": DATA, "m": 2},
        "problems.epsilon_like": {"n_examples": 20, "n_features": 9},
        "problems.example1": {"m": M, "n": 6, "s": 2, "rows": (5, 9)},
        "problems.holdout": {"features": X, "labels": Y, "fraction": 0.25},
        "problems.linear_regression": {"features": [X, X], "targets": [X[:, 0], X[:, 1]]},
        "problems.load": {"name": "breast_cancer"},
        "problems.logistic_regression": {"parts": PARTS},
        "problems.neural_classification": lambda: {
            "data": DATA,
            "m": 2,
            "model": models.mlp(shape=(3, 1, 1), classes=2, hidden=2),
        },
        "problems.optimum": lambda: {"problem": PROBLEM()},
        "problems.realsim_like": {"n_examples": 20, "n_features": 9, "words": 3.0},
        "problems.softmax_regression": {"parts": PARTS},
        "problems.sparse_logistic_regression": {"parts": [(csr_array(x), y) for x, y in PARTS]},
        "problems.solved": lambda: {"problem": PROBLEM()},
        "problems.suboptimality_floor": lambda: {"problem": problems.solved(PROBLEM())},
        "problems.sparse_optimum": lambda: {"problem": PROBLEM(), "s": 2},
        "problems.value_at": lambda: {"problem": PROBLEM(), "w": np.zeros(6)},
        "problems.value_at_truth": lambda: {"problem": PROBLEM()},
    }
)
ELSEWHERE = {  # functions whose arguments are arrays of a run, made by it alone, or that other tests feed
    **dict.fromkeys(("codecs.each_row", "codecs.gpsp", "codecs.receive", "codecs.round_trip"), "inside a run"),
    **dict.fromkeys(("codecs.seal", "codecs.transmit", "codecs.unseal"), "inside a run"),
    **dict.fromkeys(("network.adding", "network.averaging"), "inside a run"),
    **dict.fromkeys(("network.advanced", "network.gather_sum", "network.in_run", "network.known"), "inside a run"),
    **dict.fromkeys(
        ("network.as_bcoo", "network.as_dense", "network.mix", "network.sample_neighbours"), "inside a run"
    ),
    **dict.fromkeys(("privacy.clipped", "privacy.factor", "privacy.exposing", "privacy.report"), "inside a run"),
    **dict.fromkeys(("account", "audit", "load", "read_checkpoint", "spent_together"), "of finished runs, or many"),
    **dict.fromkeys(("partition.client_names", "robust.check_combines"), "inside a run, or a problem"),
    "audit_bits": "test_bits",
    "key_file": "test_key_file",
    "audit_one_run": "test_one_run",
    **dict.fromkeys(("observe", "observe_pairs"), "test_observe"),
    **dict.fromkeys(("models.from_nnx", "problems.drawn_regression"), "of a person's own functions"),
    **dict.fromkeys(("problems.read_cifar10", "problems.read_idx", "problems.read_libsvm"), "test_fuzz_files"),
    **dict.fromkeys(("problems.read_mnist", "problems.read_qsar", "problems.data_folder"), "test_fuzz_files"),
    "partition.generator": "inside",
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


class Odd:
    """Something that nothing takes."""


ODD: list[Any] = [
    *(np.nan, np.inf, -np.inf, -1, -1.0, 0, -0.0, 0.5, 1.5, 2.0, 1e300, 1e-320, 2**63, -(2**63), 10**30, True, False),
    *("", "x", "3", b"1", None, [], [1, 2], [None], (), (1,), {}, {"a": 1}, set(), 1j, range(3), object(), Odd, Odd()),
    *(np.float64(0.5), np.float32(np.nan), np.int64(3), np.uint8(200), np.bool_(True), np.complex64(1j), np.str_("a")),
    *(np.datetime64("2020-01-01"), np.timedelta64(3, "s"), np.array(3), np.array(0.5), np.array([1.0, 2.0])),
    *(np.zeros(0), np.zeros((2, 2)), np.array(["a"]), np.array([None], object), np.array([[1j]]), np.ma.masked),
    *(np.ma.masked_array([1.0, 2.0], [True, False]), jnp.float32(0.5), jnp.array([np.nan]), jnp.int32(2)),
    *(jdfl.DPSGD, jdfl.DPSGD(), jdfl.Dense, jdfl.Dense(), jdfl.Gaussian(1.0), DATA, len),
    *(lambda: 0, nx.cycle_graph(3), nx.Graph(), [[1, 2], [3]], "l2", "gaussian"),
]


def odds() -> list[Any]:
    """`ODD`, a network and a problem."""
    return [*ODD, RING(), [RING()], RING().graph, PROBLEM()]
