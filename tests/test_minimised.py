"""What a method minimises on a network: the mean of the nodes' objectives, unless it refuses or names another one."""

import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jdfl
from jdfl import events, robust
from jdfl import network as nw
from jdfl.algorithms import REGISTRY
from jdfl.engine.start import check_run
from tests.later import Later
from tests.refused import refused
from tests.toy import Gossip

M, N = 5, 3
draw = np.random.default_rng(0)
A, b = draw.normal(size=(M, 6, N)), draw.normal(size=(M, 6)) + 3 * np.arange(M)[:, None]
PROBLEM = Later(jdfl.problems.linear_regression, A, b)
EDGES = [(0, 1), (0, 2), (0, 3), (3, 4), (2, 3)]
ARCS = [(0, 1), (1, 2), (2, 0), (2, 3), (3, 4), (4, 0), (0, 3)]
SLOW = np.array([1.0, 1.0, 3.0, 1.0, 2.0])


def uneven(weights: Any = None) -> nw.Static:
    return nw.from_edges(EDGES, M, weights=weights)


def arcs(weights: Any = None) -> nw.Static:
    return nw.from_edges(ARCS, M, directed=True, weights=weights)


NETWORKS: dict[str, Callable[[], Any]] = {
    "undirected": uneven,
    "arcs of out-degrees": lambda: arcs("out-degree"),
    "periodic": lambda: nw.periodic([nw.ring(M), nw.star(M, weights="uniform")]),
    "choice": lambda: nw.random_choice([nw.ring(M), nw.star(M, weights="uniform")]),
    "part": lambda: nw.partial_communication(uneven(), 0.5),
    "loss each way": lambda: nw.link_loss(uneven(), 0.3, directed=True),
    "synchronised": lambda: nw.synchronised(uneven("uniform"), 3),
    "own": lambda: nw.from_matrix(np.array([[0.7, 0.3, 0], [0.1, 0.7, 0.2], [0, 0.3, 0.7]])),
}


def minimiser(pi: Any) -> np.ndarray:
    """The minimiser [n] of sum_i pi_i f_i, in float64."""
    pi = np.asarray(pi, np.float64)
    return np.linalg.solve(np.einsum("i,ija,ijb->ab", pi, A, A), np.einsum("i,ija,ij->a", pi, A, b))


def averaged(network: Any) -> tuple[np.ndarray, np.ndarray]:
    """The mean sums [m] of the columns of W over drawn rounds of drawn runs, and their standard errors."""

    def sums(k: Any) -> Any:
        return nw.as_dense(nw.in_run(network, jax.random.key(k), 0).at(k, jax.random.key(k + 9999))).sum(axis=0)

    found = np.asarray(jax.lax.map(sums, jnp.arange(240)), np.float64)
    return found.mean(axis=0), found.std(axis=0) / np.sqrt(len(found))


@pytest.mark.rotated(4)
@pytest.mark.parametrize("name", list(NETWORKS))
def test_every_method_refuses_a_network_or_names_its_objective_or_keeps_the_mean_on_average(name):
    network = NETWORKS[name]()
    problem = PROBLEM().nodes(jnp.arange(network.m))
    mean, error = averaged(network)
    keeps = bool(np.all(np.abs(mean - 1) <= 5 * error + 1e-3))
    silent, accepted = [], []
    own: Any = [jdfl.combined_by(jdfl.DPSGD(), robust.Weighted()), jdfl.RobustDSGD(rule=robust.Weighted())]
    registered = [kind(**({"s": N} if "s" in kind.__dataclass_fields__ else {})) for kind in REGISTRY.values()]
    for method in registered + own:
        if method.needs.get("doubly_stochastic") or not method.mixes or method.columns:
            continue  # whose rounds are all held to what they need
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                check_run(method, problem, network, 5, 1, None)
        except ValueError:
            continue
        if not method.minimises(problem, network):
            (accepted if keeps else silent).append(method.title)
    assert not silent
    assert ("D-PSGD" in accepted) == (keeps and name != "arcs of out-degrees")


ROWS: dict[str, tuple[Any, Callable[[], Any]]] = {
    "D-PSGD": (jdfl.DPSGD(objective="pi"), NETWORKS["periodic"]),
    "SGP": (jdfl.SGP(), NETWORKS["arcs of out-degrees"]),
    "AD-PSGD": (events.ADPSGD(), lambda: nw.timed(uneven(), nw.ExponentialTime(1.0), slowness=SLOW)),
    "SWIFT": (events.SWIFT(), lambda: nw.timed(uneven(), nw.ExponentialTime(1.0), slowness=SLOW)),
}


@pytest.mark.parametrize("name", list(ROWS))
def test_small_steps_end_at_the_minimiser_of_what_is_named(name):
    algorithm, make = ROWS[name]
    network, how = make(), {"steps": 1500, "every": 1500}
    runs = jdfl.sweep(algorithm, PROBLEM(), network, keys=[0], over={"lr": [0.04, 0.02]}, metrics=[], **how)
    x, half = (np.asarray(one.params, np.float64).mean(axis=0) for one in runs)
    pi = algorithm.node_weights(PROBLEM(), network)
    assert (pi is None) == (runs[0].minimises == "")
    equal, named = minimiser(np.full(M, 1 / M)), minimiser(np.full(M, 1 / M) if pi is None else pi)
    limit = 2 * half - x  # without the part of the bias that is linear in the step size
    assert np.linalg.norm(limit - named) < 0.06 * np.linalg.norm(equal), (limit, named, equal)
    if pi is not None:
        assert np.linalg.norm(limit - named) < 0.5 * np.linalg.norm(equal - named)


def test_a_refusal_names_the_weights_and_what_to_do_and_the_result_names_the_objective():
    W = np.asarray(nw.as_dense(arcs().graph), np.float64)
    np.testing.assert_allclose(nw.node_weights(arcs()), np.linalg.matrix_power(W, 200)[0], rtol=1e-5)
    with refused("D-PSGD", "pi", "DPSGD(objective='pi')"):
        jdfl.run(jdfl.DPSGD(), PROBLEM(), arcs(), steps=2)
    result = jdfl.run(jdfl.DPSGD(objective="pi"), PROBLEM(), arcs(), steps=2)
    assert result.minimises.startswith("sum_i pi_i f_i with pi from")
    assert jdfl.DPSGD().minimises(PROBLEM(), uneven()) == ""
    star = nw.timed(nw.star(M), nw.ExponentialTime(1.0))  # a leaf meets the hub, which chooses one of four
    np.testing.assert_allclose(events.SwarmSGD().node_weights(PROBLEM(), star), np.array([5, *(M - 1) * [1.25]]) / 10)
    assert Gossip().minimises(PROBLEM(), arcs()).startswith("sum_i pi_i f_i")  # it checks nothing


def test_methods_that_never_minimise_the_mean_say_so():
    owner = np.repeat(np.arange(M), [10, 8, 6, 4, 2])
    data = jdfl.from_arrays(A.reshape(-1, N), b.ravel(), clients=owner, test_fraction=0.0)
    given = {"problem": data, "network": uneven()}
    assert "pi from" in jdfl.FedAvg(weighting="examples").minimises(**given)
    assert jdfl.FedAvg().minimises(**given) == ""
    for method in (jdfl.PENS(), jdfl.LocalOnly(), jdfl.DADAM(), jdfl.PORTER(), jdfl.CEPS(s=2), jdfl.RobustDSGD()):
        assert method.minimises(**given) != "", method.title
    leaving = nw.membership(uneven(), leaves=[9, 9, 9, 9, 3])
    assert "nodes that are there" in jdfl.DPSGD().minimises(data, leaving)
