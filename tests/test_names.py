"""Names of nodes: networks and problems that have some are paired by them, at every door and through every wrapper."""

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import pandas as pd
import pytest

import jdfl
from jdfl import config
from jdfl import network as nw
from jdfl.config.families import edge_list_file
from jdfl.engine import loop, stepping
from jdfl.network.graph import round_of
from jdfl.network.ordering import in_order_of
from jdfl.observers import Everyone
from tests.refused import refused

NAMES = ("Oslo", "Bern", "Lima", "Cairo", "Quito")
LINKS = [("Oslo", "Bern"), ("Bern", "Lima"), ("Lima", "Cairo"), ("Cairo", "Quito"), ("Quito", "Oslo"), ("Oslo", "Lima")]
ORDER = [3, 0, 4, 2, 1]  # another one of the same nodes
OTHER = tuple(NAMES[i] for i in ORDER)
SLOW = dict(zip(NAMES, (1.0, 2.0, 3.0, 4.0, 5.0)))
METHOD = jdfl.DPSGD(lr=0.1)


def linked(names=NAMES, links=LINKS):
    graph = nx.Graph()
    graph.add_nodes_from(names)
    graph.add_edges_from(links)
    return nw.from_networkx(graph)


def vectors(names=NAMES):
    values = np.random.default_rng(0).normal(size=(len(names), 3))
    return jdfl.problems.averaging(values).named(names)


def same(one, other):
    return all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True))


CHAIN = [(3, 0), (0, 1), (1, 2)]


def test_links_between_numbers_are_one_network_by_whichever_door_they_come(tmp_path):
    W = pd.DataFrame(nw.to_scipy(nw.from_edges(CHAIN)).toarray())
    weighted = nx.Graph([(i, j, {"weight": W[i][j]}) for i, j in [*CHAIN, *((i, i) for i in (2, 0, 3, 1))]])
    (tmp_path / "links").write_text("\n".join(f"{u} {v}" for u, v in CHAIN))
    for found in (
        nw.from_edges(CHAIN[::-1]),
        nw.from_edges(np.array(CHAIN, object)),
        nw.from_edges(pd.DataFrame(CHAIN, columns=["u", "v"]).sample(frac=1, random_state=0)),
        nw.from_networkx(nx.Graph(CHAIN)),
        nw.from_networkx(weighted),
        nw.from_scipy((W > 0).astype(int).loc[[2, 0, 3, 1], [1, 3, 2, 0]]),
        nw.from_matrix(W.loc[[3, 1, 0, 2], [0, 2, 1, 3]]),
        nw.from_networkx(nw.to_networkx(nw.from_networkx(nx.Graph(CHAIN[::-1])))),
        edge_list_file(4, str(tmp_path / "links")),
    ):
        assert found.node_names == range(4)
        np.testing.assert_allclose(nw.to_scipy(found).toarray(), W, atol=1e-7)


def test_other_numbers_are_names_where_the_numbers_between_could_only_be_nodes_without_links():
    links = [(30, 4), (4, 100)]
    for found in (nw.from_edges(links), nw.from_networkx(nx.Graph(links))):
        assert found.node_names == (4, 30, 100)
        assert np.array_equal(nw.to_scipy(found).toarray() > 0, [[1, 1, 1], [1, 1, 0], [1, 0, 1]])
    assert nw.from_edges([(0, 1), (1, 3)], connected=False).m == 4
    with refused("components"):
        nw.from_edges([(0, 1), (1, 4)], 5)


# ---- wrappers ----

WRAPPERS = {
    "outages": lambda base: nw.outages(base, 0.4, 0.3),
    "membership": lambda base: nw.membership(base, joins={"Lima": 2}, leaves=pd.Series(range(3, 8), NAMES)[::-1]),
    "delays": lambda base: nw.delays(base, 2),
    "timed": lambda base: nw.timed(base, nw.ExponentialTime(), slowness=SLOW),
    "traced": lambda base: nw.timed(base, nw.time_trace({name: [x, 2 * x] for name, x in SLOW.items()}, cycle=True)),
    "synchronised": lambda base: nw.synchronised(base, 2),
    "laplacian": nw.laplacian,
    "matcha": lambda base: nw.matcha(base, 0.5),
    "periodic": lambda base: nw.periodic([base, linked(("Bern", "Quito", "Lima", "Oslo", "Cairo"), LINKS[:5])]),
    "random_choice": lambda base: nw.random_choice([base, linked(OTHER[::-1], LINKS[:5])]),
    "around one another": lambda base: nw.link_loss(nw.timed(base, slowness=pd.Series(SLOW)[::-1]), 0.3),
}  # fmt: skip


SEVERAL_GRAPHS = ("outages", "delays", "periodic", "random_choice", "around one another")  # which take long
TURNS = [pytest.param(one, marks=pytest.mark.rotated(3)) if one in SEVERAL_GRAPHS else one for one in WRAPPERS]


@pytest.mark.parametrize("wrapper", TURNS)
def test_names_survive_wrappers_with_everything_that_is_given_per_node(wrapper):
    one, other = (WRAPPERS[wrapper](linked(names)) for names in (NAMES, OTHER))
    assert (one.node_names, other.node_names) == (NAMES, OTHER)
    moved, again = in_order_of(other, NAMES), in_order_of(in_order_of(one, OTHER), NAMES)
    assert moved.node_names == NAMES
    if wrapper == "matcha":  # whose edge colouring depends on the order
        links = {(OTHER[i], OTHER[k]) for i, k in enumerate(other.partner[:, 0])}
        assert links == {(NAMES[i], NAMES[k]) for i, k in enumerate(moved.partner[:, 0])}
    else:
        assert same(moved, again)
        for t in range(3):  # outside a run rounds are drawn from the numbers of nodes
            assert np.allclose(*(nw.as_dense(round_of(net, t)) for net in (moved, again)), atol=1e-6)
    assert round_of(moved, 0).names.names == NAMES
    assert one.named(None).node_names is None
    assert one.named(OTHER).node_names == OTHER


def test_a_wrapper_of_ones_own_is_not_reordered_silently():
    @jdfl.base.struct.dataclass
    class Own(nw.LinkLoss):
        rates: jax.Array = None

    inside = nw.link_loss(linked(OTHER), 0.1)
    own = Own(inside.base, inside.p, False, "own", jnp.arange(5.0), name="mine")
    with refused("per_node=True"):
        in_order_of(own, NAMES)


# ---- every door where a problem and a network meet ----

NOISY = jdfl.DPSGD(lr=0.1, gradients=jdfl.Gradients(batch=1, clip=1.0, mechanism=jdfl.Gaussian(2.0)))
SHORT, ONE = {"steps": 2, "trials": 2, "tuning": None}, {"a": METHOD}
DOORS = (
    lambda p, n: jdfl.Experiment(problem=p, network=n, methods=ONE, **SHORT).run(progress=False),
    lambda p, n: jdfl.account_plan(NOISY, p, n, steps=2),
    lambda p, n: jdfl.audit(NOISY, p, n, steps=2, runs=100),
    lambda p, n: jdfl.audit_one_run(NOISY, p, n, steps=2),
    lambda p, n: jdfl.calibrate(NOISY, p, n, steps=2, epsilon=1.0),
    lambda p, n: jdfl.compare({"a": jdfl.Entry(METHOD, network=n)}, p, nw.ring(p.m), **SHORT, progress=False),
    lambda p, n: jdfl.observe(NOISY, p, n, Everyone(), steps=2),
    lambda p, n: jdfl.observe_pairs(NOISY, p, n, steps=2),
    lambda p, n: jdfl.paths(METHOD, p, n),
    lambda p, n: jdfl.planned_releases(NOISY, p, n, steps=2),
    lambda p, n: jdfl.repeat(METHOD, p, n, keys=[0, 1], steps=2),
    lambda p, n: jdfl.sweep(METHOD, p, n, over={"lr": [0.1, 0.2]}, steps=2),
    lambda p, n: jdfl.run(jdfl.events.ADPSGD(lr=0.1), p, nw.timed(n), steps=2),
)


def test_every_door_refuses_other_names():
    renamed = nw.from_networkx(nx.relabel_nodes(nw.to_networkx(linked(OTHER)), {"Lima": "Roma"}))
    for door in DOORS:
        with refused("'Lima' in the problem", "'Roma' in the network"):
            door(vectors(), renamed)


def test_runs_do_not_depend_on_the_order_of_a_networks_nodes(tmp_path):
    links, others = (nw.timed(nw.link_loss(linked(names), 0.3), slowness=SLOW) for names in (NAMES, OTHER))
    one = jdfl.run(METHOD, vectors(), links, steps=6, callbacks=[jdfl.Checkpoints(tmp_path, every=3)])
    other = jdfl.run(METHOD, vectors(), others, steps=6)
    assert np.allclose(one.params, other.params, atol=1e-6)
    assert np.array_equal(one.clock, other.clock)
    assert one.totals == other.totals
    assert one.node_names == other.node_names == NAMES
    again = jdfl.read_checkpoint(tmp_path, METHOD, vectors(), others)
    assert again.rounds == 6
    for before in (one, again):  # its rows are of these nodes, in this order
        assert jdfl.run(METHOD, vectors(), others, steps=7, resume=before).rounds == 7
        with refused("node_names"):
            jdfl.run(METHOD, vectors().named(NAMES[::-1]), others, steps=7, resume=before)
    one.save(tmp_path / "kept")
    assert (jdfl.load(tmp_path / "kept").node_names, jdfl.load(tmp_path / "kept").pairing) == (NAMES, "by name")


def test_hospitals_get_their_own_links_in_float64_by_hand():
    problem, network = vectors(), linked(OTHER)
    W = pd.DataFrame(nw.to_scipy(network).toarray(), OTHER, OTHER).loc[list(NAMES), list(NAMES)].to_numpy()
    v = np.asarray(problem.data[:, 0], np.float64)
    x = np.zeros_like(v)
    for _ in range(4):
        x = W @ x - 0.1 * (x - v)
    result = jdfl.run(METHOD, problem, network, steps=4)
    assert np.allclose(result.params, x, atol=1e-6)
    before = loop.start._cache_size(), loop.advance._cache_size()
    jdfl.run(METHOD, problem.named(range(5)), network.named(range(5)), steps=4)
    assert (loop.start._cache_size(), loop.advance._cache_size()) == before  # names compile nothing again
    for given in ((problem, network.named(None)), (problem.named(None), network)):
        assert stepping.paired(*given) is given[1]
        assert stepping.pairing(*given).startswith("by position")


def test_refusals_name_what_differs():
    numbers = vectors().named(list("01234")), linked().named(range(5))
    for said, door in (
        (("names", "4", "1"), lambda: nw.ring(4).named(["a"])),
        (("'a' 2 times",), lambda: nw.ring(4).named(["a", "b", "a", "c"])),
        (("names = 'abcd'",), lambda: nw.ring(4).named("abcd")),
        ((RuntimeError, "mistake"), lambda: stepping.check_paired(vectors(OTHER), linked())),
        (("names[1] = None",), lambda: vectors().named(["a", None, "b", "c", "d"])),
        (("text", "numbers"), lambda: jdfl.run(METHOD, *numbers, steps=1)),
        (("order",), lambda: stepping.paired(vectors(), nw.equi_rounds(5).named(OTHER))),  # has a fixed one
        (("'Roma' in joins",), lambda: nw.membership(linked(), joins={"Roma": 2})),
    ):
        with refused(*said):
            door()


def test_clients_name_the_nodes_and_a_selection_keeps_its_names():
    rng = np.random.default_rng(1)
    X, clients = rng.normal(size=(60, 2)), np.repeat([30, 4, 100], 20)
    problem = jdfl.from_arrays(X, X[:, 0] > 0, clients=clients, test_fraction=0)
    assert problem.node_names == (4, 30, 100)
    assert problem.nodes(np.array([2, 0])).node_names == (100, 4)
    assert problem.declared("stop").replace(test=None).node_names == (4, 30, 100)
    parts = {name: (X[clients == name], X[clients == name, 0] > 0) for name in (30, 4, 100)}
    given = jdfl.from_arrays(
        {name: one for name, (one, _) in parts.items()},
        {name: parts[name][1] for name in (100, 4, 30)},
        partition="given",
        test_fraction=0,
    )
    assert given.node_names == (30, 4, 100)
    assert np.array_equal(given.data[1][0], parts[30][1])


def test_clients_and_links_in_files_are_paired_by_name(tmp_path):
    (tmp_path / "links").write_text("\n".join(f"{u} {v}  # a road" for u, v in LINKS))
    network = edge_list_file(5, str(tmp_path / "links"))
    assert network.node_names == tuple(sorted(NAMES))
    (tmp_path / "clients").write_text("\n".join(np.resize(NAMES, 569)))
    asked = {"partition": "clients", "clients": str(tmp_path / "clients"), "test_fraction": 0.0}
    problem = config.PROBLEMS("classification", **asked, data="breast_cancer", m=5).build()
    assert stepping.pairing(problem, stepping.paired(problem, network)) == "by name"
