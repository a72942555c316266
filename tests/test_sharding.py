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
from tests.refused import refused
from tests.toy import Gossip

M = 13  # of nodes, which eight devices do not divide


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


def ends(problem, algorithm=None, net=None, meshes=(None, 8), steps=6, options=None, **given):
    """The results of one run on each number of devices."""
    algorithm, net, options = algorithm or Gossip(), net or network(), options or {}
    given = {"key": 0, "steps": steps} | given
    return [
        jdfl.run(algorithm, problem, net, options=jdfl.Options(devices=mesh, **options), **given) for mesh in meshes
    ]


@pytest.mark.rotated(115)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("row", TABLE, ids=str)
def test_eight_devices_give_the_same(row: Row):
    problem, algorithm = contract.make_problem(row, m=M), row.algorithm
    if np.ndim(getattr(algorithm, "period", None)):
        algorithm = replace(algorithm, period=jnp.resize(algorithm.period, (M,)))
    if isinstance(d := getattr(getattr(algorithm, "codec", None), "d", None), tuple):
        algorithm = replace(algorithm, codec=replace(algorithm.codec, d=np.resize(d, M)))
    same(*ends(problem, algorithm, steps=7, key=1, every=3))


@pytest.mark.filterwarnings("ignore:10 of 13 nodes")
def test_nodes_that_a_robust_rule_leaves_alone_are_the_same(problem):
    same(*ends(problem, jdfl.RobustDSGD(rule=jdfl.robust.TrimmedMean(b=1), lr=0.01)))


def test_neural_networks_give_the_same():
    draw = np.random.default_rng(0)
    images, labels = draw.integers(0, 256, (260, 4, 4, 1), np.uint8), draw.integers(0, 4, 260, np.int32)
    data = jdfl.problems.Dataset("noise", images[:200], labels[:200], images[200:], labels[200:])
    model = jdfl.models.mlp(shape=(4, 4, 1), classes=4, hidden=10)
    problem = jdfl.problems.neural_classification(data, M, model=model)
    same(*ends(problem, jdfl.DPSGD(lr=0.05), steps=3))


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
    assert own_data.data[0].rows.shape == (16, *whole.data[0].shape[1:])
    for name in ("weight", "curvature"):
        np.testing.assert_array_equal(getattr(own_data, name), getattr(whole, name))
    algorithm = jdfl.DPSGD(lr=0.1, gradients=jdfl.Gradients(clip=1.0))
    same(*ends(whole, algorithm, meshes=[None], steps=3), *ends(own_data, algorithm, meshes=[8], steps=3))


def test_data_of_some_nodes_go_to_their_devices_alone(own_data):
    for mesh in (None, 4):
        with refused("mesh"):
            ends(own_data, jdfl.DPSGD(lr=0.1), meshes=[mesh])
    with refused(TypeError, "nodes"):
        np.asarray(own_data.data[0])
    spoilt = own_data.data[0].rows.copy()
    spoilt[3, 1, 2] = np.nan
    bad = own_data.replace(data=(processes.Portion(spoilt, M), own_data.data[1]))
    with refused("node 3", "example 1"):
        ends(bad, jdfl.DPSGD(lr=0.1), meshes=[8])


NETWORKS = {
    "random neighbours": lambda: jdfl.network.random_neighbours(M, 3),
    "matching": lambda: jdfl.network.random_matching(M),
    "dense": lambda: jdfl.network.erdos_renyi(M, 0.6, format="dense"),
    "bcoo": lambda: jdfl.network.erdos_renyi(M, 0.4, format="bcoo"),
    "buckets": lambda: jdfl.network.barabasi_albert(M, 2, format="buckets"),
    "all in one round": lambda: jdfl.network.complete(M),
    "late messages": lambda: jdfl.network.delays(network(), 2),
    "nodes and links that fail for a while, in time": lambda: jdfl.network.outages(
        jdfl.network.bursty_loss(jdfl.network.timed(network(), slowness=jdfl.network.ParetoTime()), 0.1, 0.3), 0.1, 0.4
    ),
    "synchronised now and then": lambda: jdfl.network.synchronised(network(), 3),
}


@pytest.mark.rotated(4)
@pytest.mark.parametrize("kind", NETWORKS)
def test_every_network_gives_the_same(problem, kind):
    same(*ends(problem, jdfl.SGP(lr=0.05) if kind == "late messages" else None, NETWORKS[kind](), (None, 4)))


def test_the_number_of_devices_is_free_also_of_a_run_that_goes_on(problem):
    net = jdfl.network.link_loss(network(), 0.3)
    whole, spread = ends(problem, net=net, meshes=(None, 5), steps=9)
    same(whole, spread)
    (part,) = ends(problem, net=net, meshes=[5], steps=4)
    for mesh in (5, None):
        options = jdfl.Options(devices=mesh)
        near(jdfl.run(Gossip(), problem, net, steps=9, resume=part, options=options).params, whole.params)


def test_one_number_of_devices_gives_the_same_bits(problem):
    one, parts = (
        ends(problem, jdfl.DPSGD(lr=0.05), meshes=[4], steps=9, every=3, options={"chunk": chunk})[0]
        for chunk in (50, 3)
    )
    np.testing.assert_array_equal(parts.params, one.params)
    assert parts.history.equals(one.history)


@jax.tree_util.register_static
class Close:
    """A rule of one's own."""

    reads_data, reason = False, "it is close"

    def check(self):
        pass

    def __call__(self, view):
        return jnp.max(jnp.abs(view.w - jnp.mean(view.w, axis=0)[None])) < 0.5 * view.w.shape[0] / M


def spread(w, problem):
    return jnp.max(w) - jnp.min(w) + jnp.mean(problem.values(w)) + w.shape[0]


PRIVATE = jdfl.DPSGD(gradients=jdfl.Gradients(clip=1.0, mechanism=jdfl.Gaussian(4.0)))
ENDINGS = {
    "stop rule": (None, {"stop": jdfl.consensus_below(0.5)}),
    "own stop rule": (None, {"stop": Close(), "metrics": [spread]}),
    "budget": (PRIVATE, {"callbacks": [jdfl.Budget(2.0)]}),
    "diverged": (Gossip(fails=((2, 11), (2, 4))), {}),
    "diverged above": (jdfl.DPSGD(lr=1e6), {"options": {"diverged_above": 1e3}}),
}


@pytest.mark.rotated(3)
@pytest.mark.parametrize("ending", ENDINGS)
def test_runs_end_in_the_same_round_for_the_same_reason(problem, ending):
    algorithm, given = ENDINGS[ending]
    one, many = ends(problem, algorithm, steps=50, **given)
    assert one.ending in ending
    if one.ending == "diverged":
        assert many.diverged == one.diverged is not None
    else:
        same(one, many)


def test_a_mesh_or_a_list_of_devices_will_do_and_callbacks_see_the_nodes_alone(problem):
    devices, seen = jax.devices()[2:4], []
    mesh = jax.make_mesh((2, 1), ("a", "b"), devices=devices)
    told = [lambda shot: seen.append(shot.params().shape)]
    one, listed, meshed = ends(problem, meshes=(None, devices, mesh), steps=3, callbacks=told)
    same(one, listed)
    same(one, meshed)
    assert set(seen) == {(M, problem.n)}
    for count in (0, len(jax.devices()) + 1):
        with refused(devices=count):
            ends(problem, meshes=[count])


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


def test_a_halo_exchanges_what_is_needed():
    for made in (jdfl.network.ring(64), jdfl.network.circulant(64, (1, 2, 5)), jdfl.network.torus(64)):
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


def test_dense_networks_send_all_rows_and_nodes_come_first():
    graph = jdfl.network.complete(16).graph
    assert halo(np.asarray(graph.senders), np.asarray(graph.mask), 4) is None
    one, two = (jax.ShapeDtypeStruct((3, m), jnp.float32) for m in (4, 5))
    with refused("nodes first"):
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
