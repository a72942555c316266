"""Runs over several devices: the same but for rounding, exchanged are rows that are needed, mistakes are refused."""

import re
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import jdfl
from benchmarks import sharding as volume
from jdfl.algorithms.program import Program
from jdfl.devices import layout, nodes, processes
from jdfl.engine import placement, stepping
from jdfl.network.halo import halo
from tests.contract import test_contract as contract
from tests.contract.table import GOSSIP, TABLE, Row
from tests.toy import Gossip

pytestmark = pytest.mark.optimized

M = 13  # of nodes, which eight devices do not divide
SOON = {"FedAvg", "SGPDP"}  # the others are slow
ROWS = [pytest.param(row, marks=() if str(row) in SOON else pytest.mark.slow) for row in TABLE]
KINDS = ("links that fail", "dense")


def name(row) -> str:
    return str(row)


@pytest.fixture
def problem():
    return contract.make_problem(GOSSIP, m=M)


def network(m: int = M) -> jdfl.network.Static:
    """A ring with two chords: degrees 2 to 4."""
    return jdfl.network.from_edges([*((i, (i + 1) % m) for i in range(m)), (0, 2), (0, 3)], m)


def near(one, many, size=None) -> None:
    """Two arrays: whole numbers and flags are equal, floats within 1e-6 of `size`, which is that of the largest."""
    one, many = np.asarray(one), np.asarray(many)
    if not np.issubdtype(one.dtype, np.floating):
        np.testing.assert_array_equal(many, one)
        return
    size = np.max(np.abs(one), initial=0, where=np.isfinite(one)) if size is None else size
    np.testing.assert_allclose(many, one, rtol=1e-6, atol=1e-6 * size)


def same_history(one: pd.DataFrame, many: pd.DataFrame, params: np.ndarray) -> None:
    """Two tables of what was recorded: counts are equal, floats but for rounding, of parameters such as `params`."""
    assert list(one.columns) == list(many.columns)
    for name in one.columns.drop("consensus_error", errors="ignore"):
        near(one[name], many[name])
    if "consensus_error" in one:  # a squared distance of parameters
        distances = (np.sqrt(table["consensus_error"]) for table in (one, many))
        near(*distances, np.max(np.linalg.norm(params, axis=1)))


def same(one: jdfl.Result, many: jdfl.Result) -> None:
    """Two results: counts, choices, endings and ledgers are equal, floats but for rounding."""
    near(one.params, many.params)
    jax.tree.map(near, one.state, many.state)
    same_history(one.history, many.history, one.params)
    assert one.totals == many.totals
    assert (one.rounds, one.ending, one.diverged) == (many.rounds, many.ending, many.diverged)
    np.testing.assert_array_equal(one.releases, many.releases)
    np.testing.assert_array_equal(one.communication_rounds, many.communication_rounds)


@pytest.mark.parametrize(
    "other",
    [{"round": [0, 2]}, {"objective": [1.0, 0.50001]}, {"consensus_error": [0.0, 1.1e-11]}],
    ids=str,
)
def test_more_than_rounding_is_seen(other):
    table = pd.DataFrame({"round": [0, 1], "objective": [1.0, 0.5], "consensus_error": [0.0, 0.0]})
    params = np.ones((3, 4))  # rows of length 2
    same_history(table, table.assign(objective=table["objective"] * (1 + 5e-7), consensus_error=[0.0, 1e-12]), params)
    with pytest.raises(AssertionError):
        same_history(table, table.assign(**other), params)


@pytest.mark.rotated(3)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("row", ROWS, ids=name)
def test_eight_devices_give_the_same(row: Row):
    problem, algorithm = contract.make_problem(row, m=M), row.algorithm
    if np.ndim(getattr(algorithm, "period", None)):
        algorithm = replace(algorithm, period=jnp.resize(algorithm.period, (M,)))
    if isinstance(d := getattr(getattr(algorithm, "codec", None), "d", None), tuple):
        algorithm = replace(algorithm, codec=replace(algorithm.codec, d=np.resize(d, M)))
    one, many = (
        jdfl.run(algorithm, problem, network(), key=1, steps=7, every=3, options=jdfl.Options(devices=mesh))
        for mesh in (None, 8)
    )
    same(one, many)


@pytest.mark.slow
@pytest.mark.parametrize(
    "algorithm",
    [
        jdfl.DPSGD(lr=0.01, gradients=jdfl.Gradients(batch=16, clip=1.0, mechanism=jdfl.Gaussian(1.0))),
        jdfl.DPSGD(lr=0.01),
        jdfl.DOADP(lr=0.01, gamma=0.3),
        jdfl.CEPS(s=20, sigma_rule="safe", codec=jdfl.OneBit(), periods=(2, 3)),
        jdfl.DFedSAM(lr=0.01),
    ],
    ids=lambda algorithm: type(algorithm).__name__,
)
@pytest.mark.parametrize(("n", "q"), [(1000, 100), (3001, 37)])
def test_long_rows_give_the_same(algorithm, n, q):
    draw = np.random.default_rng(0)
    features = draw.standard_normal((M, q, n), np.float32) / np.float32(np.sqrt(n))
    truth = np.where(np.arange(n) < 20, 1.0, 0.0).astype(np.float32)
    problem = jdfl.problems.linear_regression(features, features @ truth, truth=truth)
    one, many = (
        jdfl.run(algorithm, problem, network(), key=0, steps=5, every=2, options=jdfl.Options(devices=mesh))
        for mesh in (None, 8)
    )
    same(one, many)


@pytest.mark.parametrize("m", [pytest.param(8, marks=pytest.mark.slow), M])
def test_neural_networks_give_the_same(m):
    draw = np.random.default_rng(0)
    images, labels = draw.integers(0, 256, (260, 8, 8, 1), np.uint8), draw.integers(0, 4, 260, np.int32)
    data = jdfl.problems.Dataset("noise", images[:200], labels[:200], images[200:], labels[200:])
    model = jdfl.models.mlp(shape=(8, 8, 1), classes=4, hidden=50)
    problem = jdfl.problems.neural_classification(data, m, model=model)
    one, many = (
        jdfl.run(jdfl.DPSGD(lr=0.05), problem, network(m), key=0, steps=5, options=jdfl.Options(devices=mesh))
        for mesh in (None, 8)
    )
    same(one, many)


@pytest.fixture
def own_data(monkeypatch):
    """A problem of which this process, said to be one of two, has the data of its devices' nodes, which are all."""
    with monkeypatch.context() as patch:
        patch.setattr(jax, "process_count", lambda: 2)
        patch.setattr(processes.multihost_utils, "process_allgather", lambda x, tiled: x)
        return jdfl.problems.classification("breast_cancer", M)


@pytest.mark.slow
def test_a_process_that_has_the_data_of_its_own_nodes_places_them(own_data):
    whole = jdfl.problems.classification("breast_cancer", M)
    assert isinstance(own_data.data[0], processes.Portion)
    assert own_data.data[0].rows.shape == (16, *whole.data[0].shape[1:])
    for name in ("weight", "curvature"):
        np.testing.assert_array_equal(getattr(own_data, name), getattr(whole, name))
    algorithm = jdfl.DPSGD(lr=0.1, gradients=jdfl.Gradients(clip=1.0))
    one = jdfl.run(algorithm, whole, network(), key=0, steps=3)
    same(one, jdfl.run(algorithm, own_data, network(), key=0, steps=3, options=jdfl.Options(devices=8)))


def test_data_of_some_nodes_go_to_their_devices_alone(own_data):
    for mesh in (None, 4):
        with pytest.raises(ValueError, match=r"data of its own nodes: use mesh = jax\.devices\(\)"):
            jdfl.run(jdfl.DPSGD(lr=0.1), own_data, network(), key=0, steps=3, options=jdfl.Options(devices=mesh))
    with pytest.raises(TypeError, match="this process's nodes only"):
        np.asarray(own_data.data[0])
    spoilt = own_data.data[0].rows.copy()
    spoilt[3, 1, 2] = np.nan
    bad = own_data.replace(data=(processes.Portion(spoilt, M), own_data.data[1]))
    with pytest.raises(ValueError, match=r"nan at node 3, example 1"):
        jdfl.run(jdfl.DPSGD(lr=0.1), bad, network(), key=0, steps=3, options=jdfl.Options(devices=8))


@pytest.mark.rotated(2)
@pytest.mark.parametrize("devices", [1, 5])
def test_the_number_of_devices_is_free(problem, devices):
    one, many = (
        jdfl.run(Gossip(), problem, network(), key=0, steps=6, options=jdfl.Options(devices=mesh))
        for mesh in (None, devices)
    )
    same(one, many)


NETWORKS = {
    "random neighbours": lambda: jdfl.network.random_neighbours(M, 3),
    "matching": lambda: jdfl.network.random_matching(M),
    "dense": lambda: jdfl.network.erdos_renyi(M, 0.6, format="dense"),
    "bcoo": lambda: jdfl.network.erdos_renyi(M, 0.4, format="bcoo"),
    "buckets": lambda: jdfl.network.barabasi_albert(M, 2, format="buckets"),
    "all in one round": lambda: jdfl.network.complete(M),
    "links that fail": lambda: jdfl.network.link_loss(network(), 0.3),
    "nodes and links that fail for a while, in time": lambda: jdfl.network.outages(
        jdfl.network.bursty_loss(jdfl.network.timed(network(), slowness=jdfl.network.ParetoTime()), 0.1, 0.3), 0.1, 0.4
    ),
    "synchronised now and then": lambda: jdfl.network.synchronised(network(), 3),
}


@pytest.mark.rotated(2)
@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=() if kind in KINDS else pytest.mark.slow) for kind in NETWORKS]
)
def test_every_network_gives_the_same(problem, kind):
    one, many = (
        jdfl.run(Gossip(), problem, NETWORKS[kind](), key=0, steps=6, options=jdfl.Options(devices=mesh))
        for mesh in (None, 4)
    )
    same(one, many)


@pytest.mark.rotated(2)
@pytest.mark.parametrize("algorithm", [jdfl.DPSGD(lr=0.05), jdfl.SGP(lr=0.05)], ids=["D-PSGD", "SGP"])
def test_late_messages_give_the_same(problem, algorithm):
    net = jdfl.network.delays(network(), 2)
    one, many = (
        jdfl.run(algorithm, problem, net, key=0, steps=6, options=jdfl.Options(devices=mesh)) for mesh in (None, 4)
    )
    same(one, many)


def test_a_run_goes_on_with_other_devices(problem):
    whole = jdfl.run(Gossip(), problem, network(), key=0, steps=9, options=jdfl.Options(devices=8))
    part = jdfl.run(Gossip(), problem, network(), key=0, steps=4, options=jdfl.Options(devices=3))
    for mesh in (5, None):
        near(
            jdfl.run(Gossip(), problem, network(), steps=9, resume=part, options=jdfl.Options(devices=mesh)).params,
            whole.params,
        )


def test_one_number_of_devices_gives_the_same_bits(problem):
    one, more, parts = (
        jdfl.run(
            jdfl.DPSGD(lr=0.05),
            problem,
            network(),
            key=0,
            steps=9,
            every=3,
            options=jdfl.Options(devices=4, chunk=chunk),
        )
        for chunk in (50, 50, 3)
    )
    for other in (more, parts):
        np.testing.assert_array_equal(other.params, one.params)
        assert other.history.equals(one.history)


@pytest.mark.slow
def test_stop_rules_and_budgets_end_in_the_same_round(problem):
    rule = jdfl.consensus_below(0.5)
    ends = [
        jdfl.run(Gossip(), problem, network(), key=0, steps=50, stop=rule, options=jdfl.Options(devices=mesh))
        for mesh in (None, 8)
    ]
    assert ends[0].ending == "stop rule"
    same(*ends)
    private = jdfl.DPSGD(gradients=jdfl.Gradients(clip=1.0, mechanism=jdfl.Gaussian(4.0)))
    ends = [
        jdfl.run(
            private,
            problem,
            network(),
            key=0,
            steps=50,
            callbacks=[jdfl.Budget(2.0)],
            options=jdfl.Options(devices=mesh),
        )
        for mesh in (None, 8)
    ]
    assert ends[0].ending == "budget"
    same(*ends)


@pytest.mark.slow
def test_rules_and_metrics_of_ones_own_see_all_nodes(problem):
    def spread(w, problem):
        return jnp.max(w) - jnp.min(w) + jnp.mean(problem.values(w)) + w.shape[0]

    class Rule:
        reads_data, reason = False, "it is close"

        def check(self):
            pass

        def __call__(self, view):
            return jnp.max(jnp.abs(view.w - jnp.mean(view.w, axis=0)[None])) < 0.5 * view.w.shape[0] / M

    jax.tree_util.register_static(Rule)
    rule = Rule()
    told = {"metrics": [spread], "stop": rule, "steps": 40}
    ends = [jdfl.run(Gossip(), problem, network(), options=jdfl.Options(devices=mesh), **told) for mesh in (None, 8)]
    assert ends[0].ending == "stop rule"
    same(*ends)


@pytest.mark.slow
def test_the_first_node_that_fails_is_named(problem):
    algorithm = Gossip(fails=((2, 11), (2, 4)))
    ends = [
        jdfl.run(algorithm, problem, network(), key=0, steps=5, options=jdfl.Options(devices=mesh))
        for mesh in (None, 8)
    ]
    assert ends[1].diverged == ends[0].diverged == (3, 4)


def test_what_is_too_large_ends_a_run(problem):
    ends = [
        jdfl.run(
            jdfl.DPSGD(lr=1e6),
            problem,
            network(),
            key=0,
            steps=5,
            options=jdfl.Options(devices=mesh, diverged_above=1e3),
        )
        for mesh in (None, 8)
    ]
    assert ends[1].diverged == ends[0].diverged is not None


def test_callbacks_see_the_nodes_alone(problem):
    seen = []
    jdfl.run(
        Gossip(),
        problem,
        network(),
        key=0,
        steps=2,
        callbacks=[lambda shot: seen.append(shot.params().shape)],
        options=jdfl.Options(devices=8),
    )
    assert seen[-1] == (M, problem.n)


def test_more_devices_than_there_are_are_refused(problem):
    here = len(jax.devices())
    with pytest.raises(ValueError, match=rf"devices = {here + 1}.*JAX_NUM_CPU_DEVICES={here + 1}"):
        jdfl.run(Gossip(), problem, network(), key=0, steps=1, options=jdfl.Options(devices=here + 1))
    with pytest.raises(ValueError, match="devices = 0"):
        jdfl.run(Gossip(), problem, network(), key=0, steps=1, options=jdfl.Options(devices=0))


def test_a_mesh_or_a_list_of_devices_will_do(problem):
    devices = jax.devices()[2:4]
    mesh = jax.make_mesh((2, 1), ("a", "b"), devices=devices)
    results = [
        jdfl.run(Gossip(), problem, network(), key=0, steps=3, options=jdfl.Options(devices=where))
        for where in (None, devices, mesh)
    ]
    same(results[0], results[1])
    same(results[0], results[2])


def compiled(problem, network, devices: int = 8, algorithm=None) -> str:
    """What XLA makes of a chunk of rounds."""
    setting = stepping.setting(Program(algorithm or jdfl.DPSGD()), problem, network, None, jax.random.key(0))
    return volume.compiled(setting, layout.mesh_of(devices, problem.m))


def test_mixing_and_reductions_alone_communicate():
    """One exchange with either side of a ring, and what the loop reduces; nothing that XLA added."""
    text = compiled(contract.make_problem(GOSSIP, m=16), jdfl.network.ring(16))
    found = [one for one in re.findall(r"= \S+ ([a-z-]+)\(", text) if one in volume.COLLECTIVES]
    assert found.count("collective-permute") == 2
    assert set(found) <= {"collective-permute", "all-reduce"}


@pytest.mark.parametrize(
    "make",
    [lambda: jdfl.network.ring(64), lambda: jdfl.network.circulant(64, (1, 2, 5)), lambda: jdfl.network.torus(64)],
)
def test_a_halo_exchanges_what_is_needed(make):
    made = make()
    sent, needed = volume.exchanged(made, 8)
    assert needed <= sent <= 1.15 * needed


def test_a_halo_brings_every_neighbour():
    graph = jdfl.network.circulant(60, (1, 7)).graph
    devices, m = 6, 10
    found = halo(np.asarray(graph.senders), np.asarray(graph.mask), devices)
    assert found is not None
    plan, local = found
    ids = np.arange(60)
    for device in range(devices):
        parts = [ids[device * m : (device + 1) * m]]
        for rows, hop, pairs in zip(plan.rows, plan.hops, plan.pairs):
            source = (device - hop) % devices
            own = np.asarray(rows).reshape(devices, -1)[source]
            parts.append(ids[source * m + own] if (source, device) in pairs else np.full(len(own), -1))
        received = np.concatenate(parts)
        here = slice(device * m, (device + 1) * m)
        np.testing.assert_array_equal(received[local[here]], np.asarray(graph.senders)[here])


def test_dense_networks_send_all_rows():
    graph = jdfl.network.complete(16).graph
    assert halo(np.asarray(graph.senders), np.asarray(graph.mask), 4) is None


def test_an_array_without_the_nodes_first_is_refused():
    one, two = (jax.eval_shape(lambda x: x.T, jax.ShapeDtypeStruct((m, 3), jnp.float32)) for m in (4, 5))
    with pytest.raises(ValueError, match="Put the nodes first"):
        nodes.rows_in([one], [two])


def test_rows_are_found_by_what_the_fields_say():
    algorithm = jdfl.CEPS(period=jnp.full((M,), 3, jnp.int32), sigma=0.5, codec=jdfl.OneBit(gamma=jnp.full((M,), 5.0)))
    flags = jdfl.base.struct.per_node(algorithm)
    assert flags.period is True
    assert flags.sigma is False
    assert flags.codec.gamma is True
    assert flags.mu is False
    for shared in (False, True):
        wire = jdfl.OneBit(shared=shared).prepare(jax.random.key(0), jnp.arange(M), 20, 3, jnp.float32)
        assert jdfl.base.struct.per_node({"wire": wire, "other": 1.0})["wire"].drawn.matrix is (not shared)
    assert placement.Sliced(jdfl.network.random_matching(M)).m == M
    assert nodes.share() is None
