"""Audits of algorithms: what is private passes and is nearly attained, what is not is caught."""

import math
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jdfl
from jdfl.algorithms.program import Program
from jdfl.auditing import Audit, audit
from jdfl.auditing.canary import Limit, designed
from jdfl.auditing.observe import observe
from jdfl.auditing.run import check_features
from jdfl.base.keys import typed_key
from jdfl.base.streams import Keys
from jdfl.engine import stepping
from tests.auditing.planted import _A, _B, BUGS, FIXED, NETWORK, PLAIN, PROBLEM, STEPS, M, N, Z, plant
from tests.later import Later
from tests.refused import each_refused, refused

NOISY = jdfl.DPSGD(lr=0.1, gradients=PLAIN)
MEANS = {"lr": 0.02, "local_steps": 2, "gradients": PLAIN}


def _ceps(**fields: Any) -> jdfl.CEPS:
    noise = {"mechanism": jdfl.Gaussian(2.5), "clip": 3.0}
    period = jnp.full((M,), 2, jnp.int32)
    return jdfl.CEPS(**({"s": 2, "rate": 1.0, "codec": jdfl.Dense(), "sigma": 1.0, "period": period} | noise | fields))


def _audit(algorithm: Any = NOISY, **options: Any) -> Audit:
    return audit(algorithm, PROBLEM(), NETWORK(), **({"steps": STEPS, "runs": 8000} | options))


def _passes(told: Audit, least: float) -> None:
    assert told.claimed
    assert told.mu_accounted is not None
    assert not told.violated
    assert told.epsilon_lower <= told.epsilon_accounted
    assert told.mu_low <= told.mu_accounted
    assert told.mu_hat >= least * told.mu_accounted


def _pair(entry: int, label: float) -> Any:
    return tuple((np.eye(1, N, entry, dtype=np.float32)[0], sign * label) for sign in (1, -1))


WHOLE = jdfl.DPSGD(lr=0.1, updates=jdfl.Updates(clip=0.1, mechanism=jdfl.Gaussian(Z)))
PASS = {  # with the releases, and the least share of the mu that is accounted for
    "all records": (NOISY, {}, 4, 0.85),
    "add-remove": (jdfl.DPSGD(lr=0.1, gradients=replace(PLAIN, adjacency="add-remove")), {}, 4, 0.85),
    "a server": (jdfl.FedAvg(**MEANS), {"steps": 3}, 6, 0.3),  # averages have the noise of all
    "kept CEPS": (Later(_ceps), {"steps": 5}, 3, 0.85),  # at the start, in round 2 and in round 4
    "a pair of one's own": (WHOLE, {"canary": _pair(2, 1e4)}, 4, 0.8),
}


@pytest.mark.rotated(5)
@pytest.mark.parametrize("name", PASS)
def test_what_is_private_passes(name):
    algorithm, options, releases, least = PASS[name]
    told = _audit(algorithm() if callable(algorithm) else algorithm, **options)
    assert told.releases == releases
    _passes(told, least)
    if least == 0.3:
        assert told.mu_hat < 1.3 * told.mu_accounted / math.sqrt(M)


def test_noise_that_is_less_than_reported_is_caught(monkeypatch, fresh):
    plant(BUGS["a third of the noise"], monkeypatch)
    told = _audit(runs=4000)
    assert (told.claimed, told.violated) == (True, True)
    assert told.mu_hat > 2 * told.mu_accounted
    assert {"attack", "residual scale"} <= set(told.families)


@pytest.mark.slow
@pytest.mark.parametrize("fields", [{"noise": "literal"}, {"clip": None, "sensitivity": 0.4}], ids=lambda one: min(one))
def test_ceps_whose_noise_hides_nothing_is_caught(fields):
    told = _audit(_ceps(**fields), steps=5, runs=4000)
    assert (told.claimed, told.violated) == (False, True)
    assert told.epsilon_lower > told.epsilon_accounted


def test_the_runs_are_those_of_the_library_in_batches_of_any_size_at_the_looks_that_are_taken():
    """Own parameters, W times parameters and the neighbours' mean, of a network that is drawn anew in every round."""
    network, several, steps, node = jdfl.network.erdos_renyi_rounds(M, 0.7), jax.random.split(typed_key(5), 4), 4, 2
    algorithm = jdfl.DPSGD(lr=0.1, gradients=replace(PLAIN, batch=2, sampling="subset"))
    run = jdfl.run(algorithm, PROBLEM(), network, key=several[0], steps=steps, metrics=[])
    eye, program = jnp.eye(N, dtype=PROBLEM().dtype), Program(algorithm)
    setting = stepping.setting(program, PROBLEM(), network, None, several[0])
    keys = jax.vmap(Keys.of)(several)
    given = {"setting": setting, "directions": eye, "node": jnp.int32(node), "keys": keys, "steps": steps}
    (seen, releases), (batched, _) = (observe(**given, batch=batch) for batch in (4, 2))
    np.testing.assert_allclose(seen, batched, rtol=1e-5, atol=1e-6)
    assert len(np.unique(np.asarray(seen)[:, -1, 0])) == 4
    some, same = observe(**given, batch=4, looks=2)
    np.testing.assert_allclose(some, seen[:, [0, 2, 4]], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(same, releases)
    own, mixed, mean = np.split(np.asarray(seen)[0], 3, axis=1)
    assert seen.shape == (4, steps + 1, 3 * N)
    np.testing.assert_allclose(own[-1], run.params[node], rtol=1e-6)
    assert int(releases[0]) == run.releases[node]
    graph = network.at(jnp.int32(steps - 1), setting.keys.at_round(steps - 1).network)
    row = np.asarray(jdfl.network.as_dense(graph))[node]
    np.testing.assert_allclose(mixed[-1], row @ np.asarray(run.params), rtol=1e-3, atol=1e-4)
    heard = np.asarray(graph.senders)[node][np.asarray(graph.mask)[node]]
    np.testing.assert_allclose(mean[-1], np.asarray(run.params)[heard].mean(axis=0), rtol=1e-3, atol=1e-4)


def test_mistakes_are_refused_early():
    right = {"algorithm": NOISY, "problem": PROBLEM(), "network": NETWORK(), "steps": 3}
    wrong = {"runs": 50}, {"node": M}, {"canary": "huge"}, {"canary": 3}, {"confidence": 1.0}, {"delta": 0.5}
    wrong += {"batch": 0}, {"steps": 0}, {"fitted": 0.0}, {"fitted": 1.0}, {"looks": 0}, {"looks": 8}
    each_refused(audit, *wrong, **right)
    short, alike = ((np.zeros(N), 1.0), (np.zeros(N + 1), 1.0)), _pair(2, 0.0)
    for options, *named in (
        ({"algorithm": jdfl.DPSGD()}, "no noise is added", "mechanism"),
        ({"canary": short}, "canary[1]", f"({N + 1},)"),
        ({"canary": (np.zeros(N), np.zeros(N))}, "canary[0]"),
        ({"canary": alike}, "changes nothing"),
        ({"network": jdfl.network.ring(M + 2)}, f"network.m = {M + 2}"),
    ):
        with refused(*named):
            audit(**(right | options))
    with pytest.warns(UserWarning, match="100 runs"):
        check_features([np.zeros((50, 30))] * 2)
    with refused("finite", "1 of 100"):
        check_features([np.zeros((50, 3)), np.diag([np.inf] + 49 * [0.0])])


def test_a_designed_pair_of_labelled_records_is_as_far_apart_as_clipping_allows():
    problem = jdfl.problems.softmax_regression(list(zip(_A, (_B > 0).astype(int))), classes=2)
    points, limit = np.zeros((1, problem.n), np.float32), Limit.of(NOISY)
    pair, _ = designed(problem, "aligned", np.eye(1, problem.n, 3)[0], points, limit, False, FIXED())
    g = np.asarray(limit(problem.example_gradients(points[0], tuple(map(jnp.stack, zip(*pair))))))
    assert np.linalg.norm(g[0] - g[1]) == pytest.approx(2 * limit.clip, rel=1e-3)


@pytest.mark.slow
def test_an_audit_in_parts_has_the_numbers_of_one_piece_and_takes_no_parts_of_another(tmp_path):
    for changed in ({}, {}, {"steps": 3}, {"node": 1}, {"key": 1}):
        how = {"runs": 500, "batch": 20} | changed
        parts, whole = (_audit(**how, folder=folder) for folder in (tmp_path / "audit", None))
        assert replace(parts, seconds=0.0) == replace(whole, seconds=0.0)
