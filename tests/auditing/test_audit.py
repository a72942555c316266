"""Audits of algorithms: what is private passes and is nearly attained, what is not is caught."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jdfl
from jdfl.algorithms.program import Program
from jdfl.auditing import Audit, audit
from jdfl.auditing.observe import observe
from jdfl.base import struct
from jdfl.base.keys import typed_key
from jdfl.base.streams import Keys
from jdfl.engine import stepping
from tests.later import Later

M, N, Q = 4, 64, 80
RUNS = 16_000
NETWORK = Later(jdfl.network.complete, M)


def _problem() -> jdfl.problems.LinearRegression:
    """Least squares with two large coefficients, at features that are longer than the others."""
    rng, truth = np.random.default_rng(0), np.zeros(N)
    truth[[3, 11]] = 4.0, -3.0
    A = rng.standard_normal((M, Q, N)) * np.where(truth != 0, 1.0, 0.2)
    b = A @ truth + 0.1 * rng.standard_normal((M, Q))
    return jdfl.problems.linear_regression(A, b)


PROBLEM = Later(_problem)


def _ceps(**fields: Any) -> jdfl.CEPS:
    period = jnp.full((M,), 2, jnp.int32)
    noise = {"mechanism": jdfl.Gaussian(2.5), "clip": 3.0}
    return jdfl.CEPS(**({"s": 2, "rate": 1.0, "codec": jdfl.Dense(), "sigma": 1.0, "period": period} | noise | fields))


def _noisy(multiplier: float = 4.0, **fields: Any) -> jdfl.Gradients:
    return jdfl.Gradients(**({"clip": 2.0, "mechanism": jdfl.Gaussian(multiplier)} | fields))


def _audit(algorithm: Any, steps: int, **options: Any) -> Audit:
    return audit(algorithm, PROBLEM(), NETWORK(), **({"steps": steps, "runs": RUNS} | options))


def _passes(told: Audit, least: float, verdict: str = "not refuted") -> None:
    assert told.claimed
    assert told.mu_accounted is not None
    assert not told.violated
    assert told.epsilon_lower <= told.epsilon_accounted
    assert told.mu_low <= told.mu_accounted
    assert told.mu_hat >= least * told.mu_accounted
    assert verdict in told.statement()


@pytest.mark.slow
def test_ceps_with_kept_noise_passes_and_is_nearly_attained():
    aligned = _audit(_ceps(), 5)
    assert aligned.releases == 3  # at the start, in round 2 and in round 4
    assert np.isclose(aligned.mu_accounted, math.sqrt(3) / 2.5)
    _passes(aligned, 0.85)
    assert aligned.epsilon_lower > 0.5
    assert "feature 3" in aligned.canary
    at_random = _audit(_ceps(), 5, canary="random")
    assert at_random.epsilon_accounted == aligned.epsilon_accounted
    assert at_random.mu_hat < 0.2
    assert not at_random.violated


@pytest.mark.slow
def test_literal_ceps_is_caught():
    told = _audit(_ceps(noise="literal"), 5, runs=4000)
    assert not told.claimed
    assert told.auc > 0.999
    assert told.violated
    assert told.epsilon_lower > told.epsilon_accounted
    assert "VIOLATED" in told.statement()


@pytest.mark.slow
def test_ceps_without_clipping_is_caught_by_an_extreme_label():
    """Labels as in the data, on a record as long as the data's longest; noise as if 0.4 were the sensitivity."""
    told = _audit(_ceps(clip=None, sensitivity=0.4), 5, runs=4000)
    assert not told.claimed
    assert told.violated


@pytest.mark.rotated(2)
@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
def test_d_psgd_passes_and_is_nearly_attained(adjacency):
    told = _audit(jdfl.DPSGD(lr=0.1, gradients=_noisy(adjacency=adjacency)), 6)
    assert told.releases == 6
    _passes(told, 0.85)
    assert ("present or absent" in told.canary) == (adjacency == "add-remove")


@struct.dataclass
class ThirdOfTheNoise:
    """A mechanism that adds a third of what it reports."""

    multiplier: Any = 4.0
    norm = "l2"

    def check(self) -> None:
        """Nothing to refuse."""

    def add(self, key: Any, x: Any, sensitivity: Any) -> Any:
        """Too little noise."""
        return jdfl.Gaussian(self.multiplier / 3).add(key, x, sensitivity)

    def event(self) -> Any:
        """What it pretends."""
        return jdfl.Gaussian(self.multiplier).event()


def test_noise_that_is_less_than_reported_is_caught():
    told = _audit(jdfl.DPSGD(lr=0.1, gradients=_noisy(mechanism=ThirdOfTheNoise())), 6)
    assert told.claimed
    assert told.violated
    assert told.mu_hat > 2 * told.mu_accounted


@struct.dataclass
class PlainDSGT(jdfl.DSGT):
    """DSGT that is seen through its models alone."""

    def visible(self, state: Any) -> Any:
        """Models."""
        return state.x


@struct.dataclass
class ShownDSGT(jdfl.DSGT):
    """DSGT that says what its messages reveal."""

    def visible(self, state: Any) -> Any:
        """Models and trackers."""
        return jnp.concatenate([state.x, state.y], axis=1)


@pytest.mark.slow
def test_what_an_algorithm_shows_is_looked_at():
    """The tracker of DSGT is sent, and holds the gradient before mixing has blurred it."""
    plain = _audit(PlainDSGT(lr=0.05, gradients=_noisy()), 4, runs=8000)
    shown = _audit(ShownDSGT(lr=0.05, gradients=_noisy()), 4, runs=8000)
    _passes(plain, 0.2, "INCONCLUSIVE")  # models are mixed, so that the noise of one node cannot be told in them
    assert plain.exit_status == 4
    _passes(shown, 0.8)
    assert shown.mu_hat > 1.3 * plain.mu_hat


# Their parameters are averages, so that a node's noise and canary come with the noise of the M - 1 others.
@pytest.mark.rotated(2)
@pytest.mark.parametrize(
    "algorithm",
    [
        jdfl.DFedAvgM(lr=0.02, theta=0.5, local_steps=2, gradients=_noisy()),
        jdfl.FedAvg(lr=0.02, local_steps=2, gradients=_noisy()),
    ],
    ids=lambda algorithm: type(algorithm).__name__,
)
def test_averages_pass_with_the_noise_of_all(algorithm):
    told = _audit(algorithm, 3, runs=8000)
    assert told.releases == 6
    _passes(told, 0.3)
    assert told.mu_hat < 1.3 * told.mu_accounted / math.sqrt(M)


@pytest.mark.slow
def test_classifiers_get_records_of_their_own():
    rng = np.random.default_rng(1)
    features = rng.standard_normal((M, 40, 6))
    labels = (features[..., 0] > 0).astype(int)
    problem = jdfl.problems.softmax_regression(list(zip(features, labels)), classes=3)
    algorithm = jdfl.DPSGD(lr=0.3, gradients=_noisy(clip=1.0))
    _passes(audit(algorithm, problem, NETWORK(), steps=4, runs=8000), 0.7)


@pytest.mark.slow
def test_a_pair_of_ones_own_and_whole_nodes():
    """With updates clipped, all the node's records are the canary; the pair pulls feature 5 either way."""
    away = np.zeros(N, np.float32)
    away[5] = 1.0
    algorithm = jdfl.DPSGD(lr=0.1, updates=jdfl.Updates(clip=0.1, mechanism=jdfl.Gaussian(4.0)))
    pair = ((away, 1e4), (away, -1e4))
    told = _audit(algorithm, 4, canary=pair, runs=8000)
    assert "in all its records, the given pair" in told.canary
    _passes(told, 0.8)
    alike = jax.tree.map(np.asarray, (pair[0], pair[0]))
    with pytest.raises(ValueError, match="changes nothing"):
        _audit(algorithm, 4, canary=alike)


def test_the_runs_are_those_of_the_library():
    """Own parameters, W times parameters and the neighbours' mean, of a network that is drawn anew in every round."""
    network, key, steps, node = jdfl.network.erdos_renyi_rounds(M, 0.7), jax.random.key(5), 6, 2
    algorithm = jdfl.DPSGD(lr=0.1, gradients=_noisy(batch=8, sampling="subset"))
    run = jdfl.run(algorithm, PROBLEM(), network, key=key, steps=steps, metrics=[])
    eye, program = jnp.eye(N, dtype=PROBLEM().dtype), Program(algorithm)
    setting = stepping.setting(program, PROBLEM(), network, None, typed_key(key))
    keys = jax.tree.map(lambda leaf: leaf[None], setting.keys)
    seen, releases = observe(setting, eye, jnp.int32(node), keys, steps=steps, batch=1)
    own, mixed, mean = np.split(np.asarray(seen)[0], 3, axis=1)
    assert seen.shape == (1, steps + 1, 3 * N)
    np.testing.assert_array_equal(own[-1], run.params[node])
    assert int(releases[0]) == run.releases[node]
    graph = network.at(jnp.int32(steps - 1), setting.keys.at_round(steps - 1).network)
    row = np.asarray(jdfl.network.as_dense(graph))[node]
    np.testing.assert_allclose(mixed[-1], row @ np.asarray(run.params), rtol=1e-3, atol=1e-4)
    heard = np.asarray(graph.senders)[node][np.asarray(graph.mask)[node]]
    np.testing.assert_allclose(mean[-1], np.asarray(run.params)[heard].mean(axis=0), rtol=1e-3, atol=1e-4)


def test_batches_change_nothing_and_keys_everything():
    algorithm = jdfl.DPSGD(lr=0.1, gradients=_noisy())
    keys = jax.random.split(jax.random.key(1), 7)
    direction, public = jnp.zeros((1, N), PROBLEM().dtype).at[0, 3].set(1.0), jax.random.key(2)
    fixed = (
        stepping.setting(Program(algorithm), PROBLEM(), NETWORK(), None, public),
        direction,
        jnp.int32(0),
        jax.vmap(Keys.of)(keys),
    )
    one, _ = observe(*fixed, steps=3, batch=1)
    three, _ = observe(*fixed, steps=3, batch=3)
    np.testing.assert_allclose(one, three, rtol=1e-5, atol=1e-6)
    assert len(np.unique(np.asarray(one)[:, -1, 0])) == 7


_PRIVATE = jdfl.DPSGD(lr=0.1, gradients=_noisy())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"algorithm": jdfl.DPSGD()}, ["noise", "no noise is added", "Give a mechanism"]),
        ({"runs": 50}, ["runs >= 100", "50"]),
        ({"node": M}, ["node", f"<= {M - 1}"]),
        ({"canary": "huge"}, ["canary", "'aligned', 'random'", "'huge'"]),
        ({"canary": 3}, ["canary", "pair of examples", "3"]),
        ({"canary": ((np.zeros(N), 1.0), (np.zeros(N + 1), 1.0))}, ["canary[1]", f"({N},)", f"({N + 1},)"]),
        ({"canary": (np.zeros(N), np.zeros(N))}, ["canary[0]", "structure"]),
        ({"confidence": 1.0}, ["confidence < 1", "1.0"]),
        ({"delta": 0.5}, ["delta <", "0.5"]),
        ({"batch": 0}, ["batch >= 1", "0"]),
        ({"steps": 0}, ["steps >= 1", "0"]),
        (Later(lambda: {"network": jdfl.network.ring(M + 1)}), ["network.m = 5", "problem.m = 4"]),
    ],
    ids=["noise", "runs", "node", "name", "pair", "shape", "structure", "confidence", "delta", "batch", "steps", "m"],
)
def test_mistakes_are_refused_early(options, words):
    given = {"algorithm": _PRIVATE, "problem": PROBLEM(), "network": NETWORK(), "steps": 3} | options
    with pytest.raises(ValueError) as error:
        audit(**given)
    for word in words:
        assert word in str(error.value)


@struct.dataclass
class Odd(jdfl.DPSGD):
    """Shows something that is no block of n numbers."""

    def visible(self, state: Any) -> Any:
        """One number short."""
        return state.x[:, :-1]


@struct.dataclass
class Cubes(jdfl.problems.Problem):
    """|<a, w> - b|^3, for which nobody has designed a record."""

    @property
    def n(self) -> int:
        """One parameter per feature."""
        return self.data[0].shape[-1]

    def loss(self, w: Any, example: Any) -> Any:
        """Of one example."""
        return jnp.abs(example[0] @ w - example[1]) ** 3


@pytest.mark.slow
def test_other_problems_need_a_pair():
    problem = Cubes(PROBLEM().data, PROBLEM().weight, PROBLEM().curvature)
    with pytest.raises(ValueError, match=r"a pair of examples for Cubes, got canary = 'aligned'"):
        audit(_PRIVATE, problem, NETWORK(), steps=2, runs=400)
    long = np.zeros(N, np.float32)
    long[7] = 1.0
    told = audit(_PRIVATE, problem, NETWORK(), steps=2, runs=RUNS, canary=((long, 50.0), (long, -50.0)))
    _passes(told, 0.7)


def test_odd_views_are_refused_and_few_runs_warned_of():
    with pytest.raises(ValueError, match=r"Odd.visible\(state\) of shape \(m, k\)"):
        audit(Odd(lr=0.1, gradients=_noisy()), PROBLEM(), NETWORK(), steps=3)
    with pytest.warns(UserWarning, match="weights and 100 runs"):
        audit(_PRIVATE, PROBLEM(), NETWORK(), steps=3, runs=100)


@pytest.mark.slow
def test_a_run_may_be_looked_at_now_and_then():
    algorithm, directions = jdfl.DPSGD(gradients=_noisy()), jnp.eye(2, N)
    keys, node = jax.vmap(Keys.of)(jax.random.split(jax.random.key(0), 2)), jnp.int32(0)
    setting = stepping.setting(Program(algorithm), PROBLEM(), NETWORK(), None, jax.random.key(1))

    def seen(looks: int) -> Any:
        return observe(setting, directions, node, keys, steps=7, batch=2, looks=looks)

    (every, releases), (some, same) = seen(7), seen(2)
    assert every.shape[1] == 8
    np.testing.assert_allclose(some, every[:, [0, 4, 7]], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(same, releases)
    for fitted in (0.0, 0.1, 0.95):
        with pytest.raises(ValueError, match=f"fitted.*got fitted = {fitted}"):
            _audit(algorithm, 7, fitted=fitted, runs=100)
    for looks in (0, 8):
        with pytest.raises(ValueError, match=f"looks.*got looks = {looks}"):
            _audit(algorithm, 7, looks=looks, runs=100)
