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
from jdfl.devices import layout, processes
from jdfl.engine import stepping
from tests.contract import test_contract as contract
from tests.contract.table import GOSSIP, TABLE, Row
from tests.refused import refused
from tests.toy import Gossip

M = 13  # of nodes, which eight devices do not divide


@pytest.fixture(scope="module")
def problem():
    return contract.make_problem(GOSSIP, m=M)


def network(m: int = M) -> jdfl.network.Static:
    """A ring with two chords, of which one is long: degrees 2 to 4."""
    return jdfl.network.from_edges([*((i, (i + 1) % m) for i in range(m)), (0, 2), (0, 7)], m)


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


@pytest.fixture
def own_data(monkeypatch):
    """A problem of which this process, said to be one of two, has the data of its devices' nodes, which are all."""
    with monkeypatch.context() as patch:
        patch.setattr(jax, "process_count", lambda: 2)
        patch.setattr(processes.multihost_utils, "process_allgather", lambda x, tiled: x)
        return jdfl.problems.classification("breast_cancer", M)


def test_data_of_some_nodes_go_to_their_devices_alone(own_data):
    with refused("mesh"):
        ends(own_data, jdfl.DPSGD(lr=0.1), meshes=[None])
    with refused(TypeError, "nodes"):
        np.asarray(own_data.data[0])
    mesh, spoilt = layout.mesh_of(8, M), own_data.data[0].rows.copy()
    where = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*mesh.axis_names))
    np.testing.assert_array_equal(processes.spread(own_data.data[0], where), spoilt)
    spoilt[3, 1, 2] = np.nan
    bad = own_data.replace(data=(processes.Portion(spoilt, M), own_data.data[1]))
    with refused("node 3", "example 1"):
        ends(bad, jdfl.DPSGD(lr=0.1), meshes=[8])


def neural():
    """The noise of images by a small network, in which nodes learn on a ring."""
    draw = np.random.default_rng(0)
    images, labels = draw.integers(0, 256, (60, 4, 4, 1), np.uint8), draw.integers(0, 4, 60, np.int32)
    data = jdfl.problems.Dataset("noise", images[:50], labels[:50], images[50:], labels[50:])
    return jdfl.problems.neural_classification(data, M, model=jdfl.models.mlp(shape=(4, 4, 1), classes=4, hidden=5))


NETWORKS = {
    "neural": network,
    "matching": lambda: jdfl.network.random_matching(M),
    "buckets": lambda: jdfl.network.barabasi_albert(M, 2, format="buckets"),
    "all in one round": lambda: jdfl.network.complete(M),
    "late messages": lambda: jdfl.network.delays(network(), 2),
    "nodes and links that fail for a while, in time": lambda: jdfl.network.bursty_loss(
        jdfl.network.outages(jdfl.network.timed(network(), slowness=jdfl.network.ParetoTime()), 0.1, 0.4), 0.1, 0.3
    ),
    "synchronised now and then": lambda: jdfl.network.synchronised(network(), 3),
}


@pytest.mark.rotated(9)
@pytest.mark.parametrize("kind", NETWORKS)
def test_every_network_and_problem_gives_the_same(problem, kind):
    algorithm = {"late messages": jdfl.SGP(lr=0.05), "neural": jdfl.DPSGD(lr=0.05)}.get(kind)
    same(*ends(neural() if kind == "neural" else problem, algorithm, NETWORKS[kind](), steps=6))


def test_the_number_of_devices_is_free_also_of_a_run_that_goes_on_and_chunks_are_free(problem):
    net = jdfl.network.link_loss(network(), 0.3)
    whole, spread = ends(problem, net=net, steps=9)
    same(whole, spread)
    (part,) = ends(problem, net=net, meshes=[8], steps=4)
    for mesh, check, expected in ((8, np.testing.assert_array_equal, spread), (None, near, whole)):
        options = jdfl.Options(devices=mesh)
        check(jdfl.run(Gossip(), problem, net, steps=9, resume=part, options=options).params, expected.params)


def spread(w, problem):
    """A metric of one's own, which sees all nodes."""
    return jnp.max(w) - jnp.min(w) + jnp.mean(problem.values(w)) + w.shape[0]


PRIVATE = jdfl.DPSGD(gradients=jdfl.Gradients(clip=1.0, mechanism=jdfl.Gaussian(4.0)))
ENDINGS = {
    "stop rule": (None, {"stop": jdfl.consensus_below(0.5), "metrics": [spread]}),
    "budget": (PRIVATE, {"callbacks": [jdfl.Budget(2.0)]}),
    "diverged": (Gossip(fails=((2, 11), (2, 4))), {}),
    "diverged above": (jdfl.DPSGD(lr=1e6), {"options": {"diverged_above": 1e3}}),
}


@pytest.mark.rotated(4)
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
    same(*ends(problem, meshes=(devices, mesh), steps=3, callbacks=told, stop=jdfl.all_of(jdfl.consensus_below(1e-9))))
    assert set(seen) == {(M, problem.n)}
    assert (layout.simulate(3), len(jax.devices())) == (None, 8)  # too late: JAX computes already
    for count in (0, len(jax.devices()) + 1):
        with refused(devices=count):
            ends(problem, meshes=[count])


def test_mixing_and_reductions_alone_communicate():
    """One exchange with either side of a ring, and what the loop reduces; nothing that XLA added."""
    problem, program = contract.make_problem(GOSSIP, m=16), Program(jdfl.DPSGD())
    setting = stepping.setting(program, problem, jdfl.network.ring(16), None, jax.random.key(0))
    text = volume.compiled(setting, layout.mesh_of(8, 16))
    found = [one for one in re.findall(r"= \S+ ([a-z-]+)\(", text) if one in volume.COLLECTIVES]
    assert found.count("collective-permute") == 2
    assert set(found) <= {"collective-permute", "all-reduce"}


def test_a_halo_exchanges_what_is_needed():
    sent, needed = volume.exchanged(jdfl.network.circulant(64, (1, 2, 5)), 8)
    assert needed <= sent <= 1.15 * needed


def test_rows_are_found_by_what_the_fields_say():
    algorithm = jdfl.CEPS(period=jnp.full((M,), 3, jnp.int32), sigma=0.5, codec=jdfl.OneBit(gamma=jnp.full((M,), 5.0)))
    flags = jdfl.base.struct.per_node(algorithm)
    assert (flags.period, flags.sigma, flags.codec.gamma, flags.mu) == (True, False, True, False)
    for shared in (False, True):
        wire = jdfl.OneBit(shared=shared).prepare(jax.random.key(0), jnp.arange(M), 20, 3, jnp.float32)
        assert jdfl.base.struct.per_node({"wire": wire, "other": 1.0})["wire"].drawn.matrix is (not shared)
