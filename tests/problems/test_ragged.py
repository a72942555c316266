"""Nodes of very different sizes: runs are those on padded examples, which are not stored."""

from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given

import jdfl
from jdfl.algorithms.gradients import sample
from jdfl.engine.booking import intents
from jdfl.problems import ragged
from tests.contract.table import TABLE, Row
from tests.contract.test_contract import on
from tests.field.row import exactly

SIZES = (40, 3, 5, 17, 3, 4)
M, N = len(SIZES), 20
SAMPLINGS = ("replacement", "subset", "poisson", "epochs")
_ROWS = [row for row in TABLE if isinstance(getattr(row.algorithm, "gradients", None), jdfl.Gradients)]
SAMPLED = list({row.name: row for row in reversed(_ROWS)}.values())  # one for every method

pytestmark = pytest.mark.filterwarnings("ignore:.* keep their own rows")


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ragged, "_FIXED", 0)  # what a block costs, which small problems do not save


@cache
def uneven(sizes: tuple[int, ...] = SIZES, shared: int | None = None, seed: int = 0) -> Any:
    """A regression of nodes with these numbers of examples, in blocks."""
    with jax.ensure_compile_time_eval():
        rng = np.random.default_rng(seed)
        A = [rng.standard_normal((size, N)) for size in sizes]
        b = [one @ np.arange(N) / N + rng.standard_normal(len(one)) for one in A]
        problem = replace(jdfl.problems.linear_regression(A, b), shared=shared)
        assert problem.blocks.stored < len(sizes) * max(sizes) / 1.5
        return problem


def same(algorithm: Any, row: Row) -> None:
    """Require that both forms of the data give the same play."""
    problem = uneven(shared=row.shared)
    cases = (jdfl.testing.Case(exactly(algorithm), one) for one in (problem, problem.padded()))
    (_, here, counts), (_, there, padded) = (case.play(network=on(row)) for case in cases)
    np.testing.assert_allclose(here, there, rtol=1e-11, atol=1e-12)
    jax.tree.map(np.testing.assert_array_equal, counts, padded)
    assert np.abs(here[-1] - here[0]).max() > 1e-6


@pytest.mark.parametrize("row", [pytest.param(row, marks=pytest.mark.rotated(16)) for row in TABLE], ids=str)
def test_a_method_in_blocks_is_the_method(row):
    same(row.algorithm, row)


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("row", [pytest.param(row, marks=pytest.mark.rotated(32)) for row in SAMPLED], ids=str)
def test_batches_in_blocks_are_the_same_examples(row, sampling):
    gradients = replace(row.algorithm.gradients, batch=2, sampling=sampling)
    try:
        algorithm = replace(row.algorithm, gradients=gradients)
        algorithm.check(uneven(shared=row.shared), on(row))
    except (TypeError, ValueError):  # the method takes no batches, or not these
        pytest.skip("the method refuses this sampling")
    same(algorithm, row)


@pytest.mark.parametrize("sampling", ["replacement", "subset", "poisson"])
@pytest.mark.parametrize("padded", [False, True])
def test_every_example_is_drawn_as_often_as_its_rate_says(sampling, padded):
    problem, times = uneven().padded() if padded else uneven(), 4000
    features = jnp.where(problem.weight > 0, problem.padded().data[0][:, :, 0], jnp.nan)

    def drawn(key: Any) -> Any:
        here: Any = SimpleNamespace(problem=problem, local_step=0, keys=lambda *_: jax.random.split(key, M))
        data, weight, _ = sample(here, sampling, 2)
        if sampling == "poisson":
            return (problem.weight > 0) & ((weight if padded else problem.blocks.padded(weight)) > 0)
        return (data[0][:, :, None, 0] == features[:, None]).sum(axis=1)

    found = jax.jit(jax.vmap(drawn))(jax.random.split(jax.random.key(7), times)).astype(float).mean(axis=0)
    for i, size in enumerate(SIZES):
        assert not found[i, size:].any()
        np.testing.assert_allclose(found[i, :size], 2 / size, atol=5 * np.sqrt(2 / size / times))


def learned(form: str, sizes: tuple[int, ...] = SIZES, seed: int = 0) -> Any:
    """A classification of nodes with these numbers of examples."""
    rng = np.random.default_rng(seed)
    X, clients = rng.standard_normal((sum(sizes), 3)), np.repeat(np.arange(len(sizes)), sizes)
    y = (X @ [1.0, -1.0, 0.5] + rng.standard_normal(len(X)) > 0).astype(int) + (form == "softmax") * (X[:, 0] > 1)
    if form in ("logistic", "softmax"):
        return jdfl.from_arrays(X, y, clients=clients, test=(X[:9] + 1e-3, y[:9]))
    if form == "model":
        return jdfl.from_model("mlp", X, y, clients=clients, test=(X[:9] + 1e-3, y[:9]))
    params = {"w": jnp.zeros(3), "b": jnp.zeros(())}
    given: dict[str, Any] = {
        "nodes_at_once": 1 if form == "one by one" else None,
        "task": "classification",
        "test": (X[:9] + 1e-3, y[:9]),
        "clients": clients,
    }
    return jdfl.from_loss(
        lambda p, e: jax.nn.softplus(_score(p, e[0]) * (1.0 - 2 * e[1])), params, (X, y), predict=_score, **given
    )


def _score(p: Any, x: Any) -> Any:
    return x @ p["w"] + p["b"]


@pytest.mark.parametrize("form", ["logistic", "softmax", "loss", "one by one", "model"])
def test_metrics_and_resumed_runs_are_those_of_padded_examples(form):
    problem, ring = learned(form), jdfl.network.ring(M)
    assert problem.blocks is not None
    private = jdfl.Gradients(clip=0.5, mechanism=jdfl.Gaussian(1.0))
    metrics = ["objective", "objective_local", "gradient_norm", "accuracy_own", "accuracy_local", "test_loss"]
    given: Any = {"steps": 6, "every": 3, "key": 2, "metrics": metrics}
    algorithm = jdfl.DPSGD(lr=0.1, gradients=private)
    here, there = (jdfl.run(algorithm, one, ring, **given) for one in (problem, problem.padded()))
    np.testing.assert_allclose(here.history, there.history, rtol=2e-4, atol=1e-5)
    np.testing.assert_allclose(here.params, there.params, rtol=1e-4, atol=1e-5)
    assert here.totals == there.totals
    assert here.guarantee == there.guarantee
    assert here.guarantee.claimed
    cut = jdfl.run(algorithm, problem, ring, **given, callbacks=[lambda now: "enough"], options=jdfl.Options(chunk=3))
    np.testing.assert_array_equal(jdfl.run(algorithm, problem, ring, **given, resume=cut).params, here.params)


@pytest.mark.parametrize("sampling", ["all", "replacement", "subset", "poisson"])
def test_a_record_is_as_safe_in_blocks(sampling):
    batch: dict[str, Any] = {} if sampling == "all" else {"batch": 1, "sampling": sampling}
    gradients, problem = jdfl.Gradients(clip=0.5, mechanism=jdfl.Gaussian(1.0), **batch), uneven()
    np.testing.assert_array_equal(gradients.sensitivities(problem), gradients.sensitivities(problem.padded()))
    algorithm = jdfl.DPSGD(lr=0.1, gradients=gradients)
    ring = jdfl.network.ring(M)
    runs = [jdfl.run(algorithm, one, ring, steps=5, key=1) for one in (problem, problem.padded())]
    one, other = (jdfl.account(run, delta=1e-5) for run in runs)
    assert one.epsilon == other.epsilon > 0
    assert str(one) == str(other)
    given: Any = {"keys": [1], "steps": 5}
    booked = [next(iter(intents(algorithm, some, ring, None, **given))) for some in (problem, problem.padded())]
    assert booked[0].data == booked[1].data  # a ledger knows that these are the same records


def test_several_devices_have_blocks_of_their_own_nodes():
    problem, ring = uneven((3, 60, 5, 4, 17, 3, 3, 50, 4, 6, 5)), jdfl.network.ring(11)
    algorithm = jdfl.DPSGD(lr=0.05, gradients=jdfl.Gradients(batch=3, sampling="subset"))
    given: Any = {"steps": 6, "every": 3, "key": 2}
    one, four = (jdfl.run(algorithm, problem, ring, options=jdfl.Options(devices=d), **given) for d in (1, 4))
    np.testing.assert_allclose(four.params, one.params, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(
        four.history.drop(columns="seconds", errors="ignore"),
        one.history.drop(columns="seconds", errors="ignore"),
        rtol=1e-4,
        atol=1e-5,
    )
    assert four.totals == one.totals


def test_trials_with_other_sizes_are_lanes_of_one_program(compilations):
    problems = [uneven(sizes, seed=k) for k, sizes in enumerate([SIZES, (4, 33, 5, 3, 3, 21), (3, 3, 4, 12, 50, 4)])]
    trials = [jdfl.engine.trials.Trial(k, one, jdfl.network.ring(M)) for k, one in enumerate(problems)]
    algorithm = jdfl.DPSGD(lr=0.05, gradients=jdfl.Gradients(batch=3))
    found = list(jdfl.engine.batch.across(algorithm, trials, over={}, steps=6, every=6))
    for trial, run in zip(trials, found):
        alone = jdfl.run(algorithm, trial.problem, trial.network, steps=6, every=6, key=trial.key)
        np.testing.assert_allclose(run.params, alone.params, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(run.final["objective"], alone.final["objective"], rtol=1e-4)


def test_padding_is_finite_where_zeros_are_not():
    rng = np.random.default_rng(0)
    positive = [np.exp(rng.standard_normal((size, 1))).astype(np.float32) for size in SIZES]
    problem = jdfl.from_loss(
        lambda w, x: jnp.square(jnp.log(x[0]) - w[0]), jnp.zeros(1), positive, test=1.01 * np.concatenate(positive)
    ).with_own_test(np.repeat(np.arange(M), SIZES))
    given: Any = {"steps": 5, "key": 1, "metrics": ["objective", "node_loss"]}
    for method in (jdfl.DPSGD(lr=0.1), jdfl.DOADP(lr=0.1), jdfl.events.ADPSGD(lr=0.1)):
        net = jdfl.network.ring(M)
        net = jdfl.network.timed(net) if method.asynchronous else net
        here, there = (jdfl.run(method, one, net, **given) for one in (problem, problem.padded()))
        np.testing.assert_allclose(here.params, there.params, rtol=1e-4, atol=1e-5)
        assert np.isfinite(here.final["node_loss"])
        np.testing.assert_allclose(here.final["node_loss"], there.final["node_loss"], rtol=1e-4)


def test_weights_decide_what_is_drawn_and_liars_flip_their_labels():
    problem = uneven()
    weight = problem.weight.at[:, 0].set(0)  # no node's first example counts
    less, times = replace(problem, weight=weight), 200
    for sampling in ("replacement", "subset"):
        keys = jax.random.split(jax.random.key(0), (times, M))
        drawn = [_drawn(less, sampling, key)[0] for key in keys[:20]]
        assert all((one > 0).all() for one in drawn)
    with pytest.raises(ValueError, match="padded"):
        jdfl.run(jdfl.DPSGD(), replace(problem, weight=jnp.ones_like(weight)), jdfl.network.ring(M), steps=1)
    attacked = jdfl.attacked(jdfl.RobustDSGD(lr=0.1, rule=jdfl.robust.TrimmedMean(b=1)), jdfl.robust.LabelFlip(), [0])
    net = jdfl.network.complete(M)
    here, there = (jdfl.run(attacked, one, net, steps=4, key=1) for one in (problem, problem.padded()))
    np.testing.assert_allclose(here.params, there.params, rtol=1e-4, atol=1e-5)


def _drawn(problem: Any, sampling: Any, keys: Any) -> Any:
    here: Any = SimpleNamespace(problem=problem, local_step=0, keys=lambda *_: keys)
    data, weight, _ = sample(here, sampling, 2)
    return weight, data


@given(st.lists(st.integers(1, 3000), min_size=1, max_size=60), st.integers(1, 50), st.integers(1, 3))
def test_blocks_have_every_node_once_and_cost_the_least(sizes, numbers, groups):
    rng = np.random.default_rng(len(sizes))
    every = np.stack([rng.permutation(sizes) for _ in range(groups)])
    widths = ragged.widths_of(np.sort(every[0]), numbers)
    assert (widths[-1], list(widths)) == (max(sizes), sorted(set(widths)))
    blocks = ragged.blocks_of(every, numbers)
    if blocks is None:
        assert len(widths) == 1
        return
    for row, one in zip(every, blocks):
        assert sorted(np.concatenate(one.nodes)) == list(range(len(sizes)))
        np.testing.assert_array_equal(np.concatenate(one.nodes)[one.place], np.arange(len(sizes)))
        for nodes, width, narrower in zip(one.nodes, one.widths, (0, *one.widths)):
            assert ((row[nodes] <= width) & (row[nodes] > narrower)).all()
    cheap, each = blocks[0].stored, 0.05 * sum(sizes)
    for cut in sorted(set(sizes))[:-1]:  # no other two blocks are cheaper
        below = int((np.array(sizes) <= cut).sum())
        assert cheap + each * len(widths) <= below * cut + (len(sizes) - below) * max(sizes) + 2 * each + 1e-6


def test_natural_sizes_are_cut_and_equal_ones_are_not(monkeypatch):
    monkeypatch.undo()  # what a block costs is that of users
    sizes = np.random.default_rng(0).lognormal(np.log(50), 0.75, 1128).astype(int).clip(10)
    (blocks,) = ragged.blocks_of(sizes[None], 27)
    assert blocks.stored < 1.6 * sizes.sum() < sizes.size * sizes.max() / 4
    for few in (sizes[:20], np.full(1128, 60), 60 + sizes // 20):
        assert ragged.blocks_of(few[None], 27) is None


def test_a_nodes_examples_are_those_that_it_was_given():
    rng = np.random.default_rng(1)
    A, b = [rng.standard_normal((size, N)).astype(np.float32) for size in SIZES], [np.ones(size) for size in SIZES]
    problem = jdfl.problems.linear_regression(A, b)
    for i in (2, jnp.int32(0), np.array([3, 5])):
        data, weight = problem.local(i)
        other, _ = problem.padded().local(i)
        jax.tree.map(np.testing.assert_array_equal, data, other)
        assert data[0].shape[-2] == weight.shape[-1] == max(SIZES)
    np.testing.assert_array_equal(problem.local(1)[0][0][:3], A[1])
    np.testing.assert_array_equal(problem.padded().data[0][4, :3], A[4])
    for read in (lambda: np.asarray(problem.data[0]), lambda: problem.data[0][0]):
        with pytest.raises(TypeError, match="padded"):
            read()
    assert problem.weight.shape == (M, max(SIZES)) == problem.data[0].shape[:2]


def test_mistakes_in_ragged_data_have_their_place():
    A, b = [np.ones((size, N)) for size in SIZES], [np.ones(size) for size in SIZES]
    problem = jdfl.problems.linear_regression(A, b)
    parts = list(problem.data[0].parts)
    parts[-1] = parts[-1].at[0, 7, 2].set(jnp.nan)
    broken = replace(problem, data=(ragged.Ragged(tuple(parts)), problem.data[1]))
    with pytest.raises(ValueError, match="node 0, example 7"):
        jdfl.run(jdfl.DPSGD(lr=0.1), broken, jdfl.network.ring(M), steps=1)
    with pytest.raises(ValueError, match="blocks"):
        jdfl.run(jdfl.DPSGD(lr=0.1), replace(problem, blocks=None), jdfl.network.ring(M), steps=1)
