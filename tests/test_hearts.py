"""Second tests of what everything rests on, each from a definition."""

import math
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jdfl
from jdfl import network as nw
from jdfl import testing
from jdfl.algorithms.round import RoundContext
from jdfl.base import struct
from jdfl.codecs import transmit
from jdfl.engine.accountant import account, ledger_of_run, spent_together
from jdfl.events import ADPSGD, AGP, FedAsync, RandomWalkSGD
from jdfl.privacy import GaussianSchedule, LaplaceEvent, LaplaceSchedule, Sampled, epsilon_pure, most_releases
from jdfl.privacy.analytic import gaussian_epsilon
from jdfl.problems import linear_regression, partition
from tests.algorithms.play import direct
from tests.later import Later

KEY = Later(jax.random.key, 7)
PROBLEM, RING = Later(testing.small_problem), Later(nw.ring, testing.NODES)
NOISY = jdfl.Gradients(clip=1.0, mechanism=jdfl.Gaussian(5.0))


def play(method: Any, steps: int = 5, problem: Any = None, network: Any = None, **how: Any) -> jdfl.Result:
    how = {"metrics": [], "options": jdfl.Options(chunk=4)} | how  # however many steps, one program
    return jdfl.run(method, problem or PROBLEM(), network or RING(), steps=steps, **how)


def near(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found, np.broadcast_to(expected, np.shape(found)), rtol=1e-4, atol=1e-5)


def matrix(network: Any) -> np.ndarray:
    return np.asarray(nw.to_scipy(network).toarray(), float)


# Pure epsilon of samples with several looks


def of_looks(looks: int, multiplier: float) -> float:
    """The largest log-ratio of looks with Laplace noise at one sample of a quarter: all outputs far to one side."""
    return math.log(0.75 + 0.25 * math.exp(looks / multiplier))


def test_the_last_looks_at_a_sample_are_paid_for() -> None:
    """An output whose ratio is known exactly: a claim below it is false."""
    for releases in (1, 3, 5):
        attained = releases // 2 * of_looks(2, 1.5) + releases % 2 * of_looks(1, 1.5)
        found = epsilon_pure(LaplaceEvent(1.5), releases, sampled=Sampled("poisson", 5, 20, looks=2))
        assert found is not None
        assert found >= attained * (1 - 1e-12)


def test_pure_epsilon_is_that_of_all_samples_begun() -> None:
    sampled, event = Sampled("poisson", 5, 20, looks=3), LaplaceEvent(4.0)
    found = [epsilon_pure(event, releases, sampled=sampled) for releases in range(8)]
    one = of_looks(3, 4.0)
    expected = [0, of_looks(1, 4.0), of_looks(2, 4.0), one, 2 * one, 2 * one, 2 * one, 3 * one]
    assert found == pytest.approx([min(k / 4, value) for k, value in enumerate(expected)])


# Codecs


def sent(codec: Any, x: np.ndarray) -> np.ndarray:
    """What receivers decode of rows x [b, n]."""

    @jax.jit
    def arrived(x: jax.Array) -> Any:
        wire = codec.prepare(KEY(), jnp.arange(len(x)), x.shape[1], x.shape[1], x.dtype)
        return transmit(wire, jax.random.split(KEY(), len(x)), x, jnp.ones(len(x), bool))

    return np.asarray(arrived(x))


def test_scaled_random_entries_arrive_n_over_k_times_as_large() -> None:
    x = np.random.default_rng(1).standard_normal((4, 12), np.float32)
    found = sent(jdfl.RandomK(k=3, scaled=True), x)
    assert (np.count_nonzero(found, axis=1) == 3).all()
    near(found[found != 0], 4 * x[found != 0])


def test_scaled_random_entries_are_right_on_average() -> None:
    x = np.tile(np.array([[1.0, -2.0, 3.0, 0.5]], np.float32), (4000, 1))
    mean, error = sent(jdfl.RandomK(k=2, scaled=True), x).mean(axis=0), np.abs(x[0]) / np.sqrt(4000)
    assert (np.abs(mean - x[0]) < 5 * error).all()


def test_the_largest_level_and_a_vector_of_one_magnitude_arrive_with_their_signs() -> None:
    for levels in (1, 127, 128, 300):
        near(sent(jdfl.QSGD(levels, norm="max"), x := np.array([[-3.0, 0.0, 3.0, 0.0]], np.float32)), x)
    near(sent(jdfl.Sign(), x := np.array([[2.0, -2.0, 2.0, 2.0, -2.0]], np.float32)), x)
    near(sent(jdfl.Sign(), np.array([[3.0, 0.0, -2.0, 0.0, 0.0]], np.float32)), [[1.0, 1.0, -1.0, 1.0, 1.0]])


def test_rounded_entries_are_off_by_less_than_a_level() -> None:
    x = np.random.default_rng(2).standard_normal((3, 500), np.float32)
    x[:, 0] = 4.0
    for levels in (127, 128):
        off = np.abs(sent(jdfl.QSGD(levels, norm="max"), x) - x)
        assert 0.5 < off.max() / np.abs(x).max() * levels <= 1 + 1e-5
        assert off[:, 0].max() < 1e-5


# The regulariser, once


@cache
def ridge() -> Any:
    """Linear regression with a penalty that is as large as its loss."""
    draw = np.random.default_rng(3)
    A, b = draw.standard_normal((3, 5, 4), np.float32), draw.standard_normal((3, 5), np.float32)
    made = linear_regression(list(A), list(b))
    return jdfl.from_loss(lambda w, one: (one[0] @ w - one[1]) ** 2 / 2, jnp.ones(4), made.data, test=None, penalty=0.7)


def clipped(clip: float) -> Any:
    return play(jdfl.DPSGD(lr=0.1, gradients=jdfl.Gradients(clip=clip, per="batch")), 4, ridge(), nw.ring(3)).params


def loop(clip: float) -> np.ndarray:
    """What `clipped` is to find: only what the data say is clipped."""
    A, b = (np.asarray(leaf, float) for leaf in ridge().data)
    w, W = np.ones((3, 4)), matrix(nw.ring(3))
    for _ in range(4):
        g = np.stack([A[i].T @ (A[i] @ w[i] - b[i]) / 5 for i in range(3)])
        g *= np.minimum(1, clip / np.linalg.norm(g, axis=1))[:, None]
        w = W @ w - 0.1 * (g + 0.7 * w)
    return w


def test_a_clip_of_batches_that_never_binds_changes_nothing() -> None:
    near(clipped(1e6), loop(1e6))


def test_a_clip_of_batches_bounds_the_data_and_adds_the_penalty_once() -> None:
    near(clipped(0.3), loop(0.3))


def test_a_sample_has_the_whole_penalty_whatever_was_drawn() -> None:
    problem, w = ridge(), np.arange(4.0)
    one = jax.tree.map(lambda leaf: np.asarray(leaf)[0], problem.data)
    A, b = (np.asarray(leaf, float) for leaf in one)
    plain = jax.jit(partial(jdfl.Gradients(batch=2, sampling="poisson").plain, problem))
    for chosen in ([0, 0, 0, 0, 0], [1, 0, 1, 1, 0]):
        mask = np.array(chosen, np.float32)
        near(plain(w.astype(np.float32), one, mask, np.float32(2)), (A * mask[:, None]).T @ (A @ w - b) / 2 + 0.7 * w)


def test_the_penalty_of_a_sample_does_not_vary() -> None:
    """The data fit exactly at the start, so that the penalty is all that is left."""
    A = np.asarray(ridge().data[0])
    method = jdfl.LocalOnly(lr=0.1, gradients=jdfl.Gradients(batch=2, sampling="poisson"))
    near(play(method, 1, ridge().replace(data=(A, A.sum(axis=2))), nw.ring(3)).params, 0.93)


# Steps, counts, mixing


def slopes(w: np.ndarray) -> np.ndarray:
    """The gradients [m, n] of all nodes in float64."""
    A, b = (np.asarray(leaf, float) for leaf in PROBLEM().data)
    return np.stack([A[i].T @ (A[i] @ w[i] - b[i]) / len(b[i]) for i in range(len(w))])


def test_gradient_descent_and_tracking_are_their_formulas() -> None:
    W, lr = matrix(RING()), 0.02
    x = begin = np.asarray(PROBLEM().initial_params(), float)
    for _ in range(5):
        x = W @ x - lr * slopes(x)
    near(play(jdfl.DPSGD(lr=lr)).params, x)
    x, y = begin, slopes(begin)
    for _ in range(5):
        new = W @ (x - lr * y)
        x, y = new, W @ y + slopes(new) - slopes(x)
    near(play(jdfl.DSGT(lr=lr)).params, x)


def test_messages_bytes_gradients_and_releases_are_those_of_a_round() -> None:
    m, n = PROBLEM().m, PROBLEM().n
    result = play(jdfl.DPSGD(lr=0.01, gradients=NOISY), every=2)
    told = result.history[["round", "messages", "bytes", "gradients", "examples", "releases"]].to_numpy().tolist()
    assert told == [[k, 2 * m * k, 8 * m * n * k, m * k, 8 * m * k, m * k] for k in (0, 2, 4, 5)]


def test_mixing_is_the_product_with_the_weights() -> None:
    W = np.zeros((5, 5))
    for i, j, weight in ((0, 1, 0.25), (1, 2, 0.3), (2, 0, 0.125), (3, 0, 0.2)):
        W[i, j] = W[j, i] = weight
    W += np.diag(1 - W.sum(axis=1))
    x = np.random.default_rng(5).standard_normal((5, 3), np.float32)
    for how in ("dense", "padded", "buckets"):
        near(jax.jit(nw.mix)(nw.from_matrix(W, format=how, connected=False).graph, x), W @ x)


def pooled(sizes: list[int]) -> tuple[Any, np.ndarray, np.ndarray]:
    """A regression whose nodes have so many of the examples, and all of them."""
    draw = np.random.default_rng(11)
    A, b = draw.standard_normal((sum(sizes), 3), np.float32), draw.standard_normal(sum(sizes)).astype(np.float32)
    ends = np.cumsum(sizes)[:-1]
    return linear_regression(np.split(A, ends), np.split(b, ends)), A.astype(float), b.astype(float)


@cache
def alike() -> tuple[Any, Any]:
    """Four nodes with the same six examples, and the gradient [n] of each."""
    _, A, b = pooled([6])
    return linear_regression([A] * 4, [b] * 4), lambda x: A.T @ (A @ x - b) / 6


def test_nodes_that_are_alike_or_together_have_the_data_do_what_one_would() -> None:
    problem, A, b = pooled([2, 6, 1])
    x = np.asarray(problem.initial_params(), float)[0]
    for _ in range(3):
        x = x - 0.1 * A.T @ (A @ x - b) / 9
    near(play(jdfl.FedAvg(lr=0.1, local_steps=1, weighting="examples"), 3, problem, nw.ring(3)).params, x)
    problem, slope = alike()
    x, a = np.asarray(problem.initial_params(), float)[0], 0.0
    for _ in range(4):
        h = 0.5 * a + slope(x)
        x, a = x - 0.1 * h, 0.7 * a + 0.3 * h  # (x - x+) / lr is h
    near(play(jdfl.QGDSGDm(lr=0.1, beta=0.5, mu=0.7), 4, problem, nw.complete(4)).params, x)
    x = np.asarray(problem.initial_params(), float)[0]
    for k in range(4):
        x = x - (0.1 if k < 2 else 0.01) * slope(x)
    near(play(jdfl.SGP(lr=0.1, milestones=(2,), decay=0.1), 4, problem, nw.complete(4)).params, x)


@pytest.mark.filterwarnings("ignore:D-PSGD sends its models")
def test_nodes_keep_their_own_row_whole_though_they_send_a_part_of_it() -> None:
    """From zero a first round makes every node's row its target, of which the second sends the largest entry."""
    b = np.array([[1.0, -5.0, 2.0, 0.5, 3.0], [9.0, 1.0, 1.0, 1.0, 1.0], [0.0, 0.0, 8.0, 0.0, 0.0]], np.float32)
    problem, net = linear_regression([np.eye(5, dtype=np.float32)] * 3, list(b)), nw.star(3)
    W, sent = matrix(net), np.where(np.abs(b) == np.abs(b).max(axis=1)[:, None], b, 0)
    own = np.diag(np.diag(W))
    near(play(jdfl.DPSGD(lr=5.0, codec=jdfl.Sparse(s=1)), 2, problem, net).params, own @ b + (W - own) @ sent)


# Where runs stop and go on


def test_a_rule_stops_in_the_first_round_in_which_it_holds_and_a_resumed_run_is_the_whole_one() -> None:
    method = jdfl.DPSGD(lr=0.02)
    how = {"metrics": ["objective"], "every": 4, "options": jdfl.Options(chunk=24)}  # several records a chunk
    whole = play(method, 24, **how)
    assert whole.totals.gradients == 24 * PROBLEM().m
    falling = play(method, 24, metrics=["objective"]).history["objective"].to_numpy()
    stop = jdfl.objective_below(float(falling[11:13].mean()))
    found = play(method, 24, stop=stop)
    assert (found.rounds, found.ending) == (12, "stop rule")
    again = play(method, 24, resume=play(method, 10, **how), **how)
    np.testing.assert_array_equal(again.params, whole.params)
    assert again.history.equals(whole.history)
    assert again.history["round"].tolist() == list(range(0, 25, 4))
    assert again.totals == whole.totals


def test_a_costly_rule_ends_a_run_in_a_round_of_its_own_and_never_before_it_holds() -> None:
    slope = play(jdfl.DPSGD(lr=0.02), 40, metrics=["gradient_norm"]).history["gradient_norm"].to_numpy()
    found = play(jdfl.DPSGD(lr=0.02), 40, stop=jdfl.gradient_below(float(slope[10]), every=4))
    assert (found.rounds, found.ending) == (12, "stop rule")


# Samples and noise of every local step


UNIT = jdfl.Gradients(sensitivity=1.0, mechanism=jdfl.Gaussian(1.0))


def begun(gradients: jdfl.Gradients) -> Any:
    """The first round of a method with such gradients."""
    context = RoundContext(jnp.int32(0), KEY(), RING().graph, jnp.arange(PROBLEM().m, dtype=jnp.int32))
    return direct(context, PROBLEM(), gradients)


def drawn(gradients: jdfl.Gradients) -> np.ndarray:
    """The gradients [6, 2, m, n] at zero of two times three nested local steps, each looked at twice."""
    shape = PROBLEM().m, PROBLEM().n

    def step(here: Any, found: jax.Array) -> jax.Array:
        for look in range(2):
            one = gradients(jnp.zeros(shape), here, look=look)
            found = lax.dynamic_update_index_in_dim(found, one, 2 * here.local_step + look, 0)
        return found

    @jax.jit
    def nested() -> jax.Array:
        return begun(gradients).repeat(2, lambda here, found: here.repeat(3, step, found), jnp.zeros((12, *shape)))

    return np.asarray(nested()).reshape(6, 2, *shape)


def test_every_local_step_and_look_has_noise_of_its_own_however_loops_are_nested() -> None:
    assert len(np.unique(drawn(UNIT).reshape(12, -1)[:, 0])) == 12


def test_every_local_step_has_examples_of_its_own_however_loops_are_nested() -> None:
    few = drawn(jdfl.Gradients(batch=2))
    np.testing.assert_array_equal(few[:, 0], few[:, 1])  # both looks are at the same ones
    assert len(np.unique(few[:, 0].reshape(6, -1).sum(axis=1))) == 6


# What is released


def test_two_looks_of_a_round_are_two_releases() -> None:
    @jax.jit
    def released() -> Any:
        round = begun(UNIT)
        for look in range(2):
            UNIT(jnp.zeros((PROBLEM().m, PROBLEM().n)), round, look=look)
        return round.trace.releases

    assert released() == 2


@struct.dataclass
class Twice(jdfl.Algorithm):
    """Steps along noisy gradients that look at the data twice."""

    gradients: jdfl.Gradients = NOISY
    title = "Twice"

    def init(self, round: jdfl.Round) -> jax.Array:
        return round.problem.initial_params()

    def step(self, w: jax.Array, round: jdfl.Round) -> jax.Array:
        return round.mix(w) - 0.1 * (self.gradients(w, round) + self.gradients(w, round, look=1))


def test_all_releases_of_a_run_count() -> None:
    found = play(Twice())
    assert ledger_of_run(found).releases.tolist() == [10] * PROBLEM().m
    assert found.totals.releases == 10 * PROBLEM().m


def test_no_more_fits_than_is_planned() -> None:
    assert most_releases(LaplaceSchedule((1e6, 1e6, 1e6)), 100.0, 1e-5) == 3
    assert most_releases(GaussianSchedule.of([1e-6] * 4), 100.0, 1e-5) == 4


FOUR = jdfl.Budget(gaussian_epsilon(math.sqrt(4) / 5, 1e-5) * 1.0001, delta=1e-5)


def test_a_budget_ends_a_run_before_the_first_node_exceeds_it() -> None:
    """Nodes wake at random, so that one has used up its four releases while others have not."""
    found = play(jdfl.DOADP(gradients=NOISY), 40, key=3, callbacks=[FOUR])
    releases = ledger_of_run(found).releases
    assert (found.ending, releases.max(), releases.min() < 4) == ("budget", 4, True)
    assert ledger_of_run(play(jdfl.DOADP(gradients=NOISY), found.rounds + 1, key=3)).releases.max() == 5


def test_a_budget_ends_a_run_when_the_most_talkative_node_has_used_it_up() -> None:
    """Of the nodes of CEPS one exchanges in every round, and another in every third."""
    method = jdfl.CEPS(s=3, rate=1.0, periods=(1, 3), clip=1.0, mechanism=jdfl.Gaussian(5.0))
    found = play(method, 20, PROBLEM().declared("curvature"), callbacks=[FOUR])
    released = ledger_of_run(found).releases
    assert (found.ending, released.max(), released.min() < 4) == ("budget", 4, True)


def test_runs_together_cost_what_their_most_exposed_node_released_in_all() -> None:
    runs = [play(jdfl.DOADP(gradients=NOISY), 9, key=key) for key in (0, 1)]
    released = sum(np.asarray(ledger_of_run(run).releases) for run in runs)
    assert released.min() < released.max()
    assert spent_together(runs)[0] == pytest.approx(gaussian_epsilon(math.sqrt(released.max()) / 5, 1e-5), rel=1e-6)


def test_runs_of_different_noise_have_a_part_of_delta_each() -> None:
    sampled = jdfl.Gradients(batch=2, sampling="poisson", clip=1.0, mechanism=jdfl.Gaussian(4.0))
    runs = [play(jdfl.DPSGD(gradients=one), 4, every=2) for one in (NOISY, sampled)]
    parts = [account(run, delta=5e-6).epsilon for run in runs]
    assert spent_together(runs, delta=1e-5)[0] == pytest.approx(sum(parts), rel=1e-6)
    assert sum(parts) > sum(account(run, delta=1e-5).epsilon for run in runs) * 1.01


# Faults, shards, trust


def test_a_message_that_has_come_stays() -> None:
    """What a receiver uses is at most one round older a round later."""
    net = nw.delays(nw.ring(5), 3, 0.7)

    @jax.jit
    @jax.vmap
    def age(k: jax.Array) -> jax.Array:
        late = net.at(k, KEY()).late
        return jnp.where(late.come, late.age, 9)

    ages = np.asarray(age(np.arange(60, dtype=np.int32)))
    assert (ages[1:] <= np.minimum(ages[:-1] + 1, 9)).all()
    assert (ages[4:] <= 3).all()


def test_nodes_with_two_shards_have_few_classes_and_all_examples_are_dealt() -> None:
    labels = np.random.default_rng(1).integers(0, 6, 240)
    parts = partition.shards(labels, 12, shards_per_node=2, seed=4)
    assert max(len(np.unique(labels[part])) for part in parts) <= 4
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(240))


def test_what_a_node_trusts_shrinks_with_the_rounds() -> None:
    """From the second round on nobody is near enough, however near nodes are."""
    rule = jdfl.robust.BALANCE(gamma=10.0, kappa=30.0, horizon=1)
    assert 1 <= play(jdfl.combined_by(jdfl.DPSGD(lr=0.02), rule), 8).communication_rounds.max() <= 2


# What is chosen


def chosen(measure: str, *start: float, scale: float = 1.0) -> float:
    """The step size of D-PSGD that is tuned, from `start`, where the second feature, times `scale`, tells the class."""
    x = np.random.default_rng(2).standard_normal((testing.NODES, 30, 2)).astype(np.float32)
    parts = [(one * np.float32(scale), (one[:, 1] > 0).astype(int)) for one in x]
    problem = jdfl.problems.logistic_regression(parts, test=parts[0])
    problem = problem.replace(start=np.array(start, np.float32), truth=np.array([0, 1], np.float32))
    entry = jdfl.Entry(jdfl.DPSGD(), tune={"lr": [0.1, 0.2, 4.0]})
    how: dict[str, Any] = {"tuning": jdfl.Tuning(keys=(5,), extend=0), "trials": 1, "steps": 4, "every": 4}
    how["metrics"] = ["objective", "accuracy", "support_recovery"]  # one program, whatever the measure is
    return jdfl.compare({"a": entry}, problem, RING(), measure=measure, **how).tuned["a"].values["lr"]


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_of_equally_small_values_the_middle_is_the_best() -> None:
    assert chosen("objective", 0.0, 0.0, scale=0.0) == 0.2


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_largest_accuracy_is_the_best() -> None:
    """From parameters that answer all questions wrong only a large step gets anywhere within four rounds."""
    assert chosen("accuracy", 0.0, -2.0) == 4.0


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_most_of_a_support_is_the_best() -> None:
    """The first entry is large at the start, and only a large step makes the true one larger within four rounds."""
    assert chosen("support_recovery", 0.9, 0.0) == 4.0


# Events


def test_a_walk_leaves_the_hub_of_a_star_always_and_a_leaf_seldom() -> None:
    node, moved = walks()
    assert moved[node == 0].all()
    assert moved[node > 0].mean() == pytest.approx(1 / 8, abs=0.02)


def test_a_walk_visits_all_nodes_of_a_star_equally_often() -> None:
    node, _ = walks()
    assert np.bincount(node, minlength=9) / len(node) == pytest.approx(np.full(9, 1 / 9), abs=0.03)


@cache
def walks() -> tuple[np.ndarray, np.ndarray]:
    """The nodes at which walks over a star were in turn, and whether they moved on; node 0 is the hub."""
    net = nw.timed(nw.star(9), nw.FixedTime(1.0)).in_run(KEY(), 0)
    found = RandomWalkSGD(tokens=20).events(net, KEY(), 400.0)
    return found.actor, found.rows[:, 1] >= 0


def test_a_gradient_is_taken_where_the_last_exchange_of_its_node_ended() -> None:
    """Where nodes agree in what they want, they get there; gradients of the first parameters would lead past it."""
    problem, _ = alike()
    net = nw.timed(nw.complete(4), nw.FixedTime(1.0))
    found = play(ADPSGD(lr=0.1), 400, problem, net, every=100, metrics=["gradient_norm"]).history["gradient_norm"]
    assert found.iloc[-1] < 1e-3 * found.iloc[0]


def test_events_of_equal_times_are_in_the_order_of_their_kinds() -> None:
    """All clocks tick together, so that events of several kinds happen at once."""
    for method in (AGP(), FedAsync()):
        found = method.events(nw.timed(nw.ring(6), nw.FixedTime(1.0)).in_run(KEY(), 0), KEY(), 6.0)
        rows = np.stack([found.time, found.kind, found.actor, found.count], axis=1).tolist()
        assert rows == sorted(rows)
        assert rows != sorted(rows, key=lambda row: (row[0], row[2], row[1], row[3]))
