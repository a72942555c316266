"""Nodes judged on their own test examples, and errors of regressions and scores, against plain NumPy."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

import jdfl

SIZES = (2, 9, 30, 1, 14, 6, 3)
M = len(SIZES)
_SUMS = ("", "_worst", "_tenth", "_std", "_pooled")


def data(seed: int = 0) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Features, targets and clients, whose names are not in sorted order."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((sum(SIZES), 3))
    names = [f"client {9 - i}" for i in range(M)]
    return (
        X,
        X @ [1.0, -1.0, 0.5] + rng.standard_normal(len(X)),
        [name for name, q in zip(names, SIZES) for _ in range(q)],
    )


def learned(task: str, split: Any) -> Any:
    """A problem whose nodes have test examples, of which one node has none."""
    X, y, clients = data()
    given: Any = {"clients": clients, "test_split": split, "test_fraction": 0.4}
    makers: dict[str, Any] = {
        "regression": lambda: jdfl.from_arrays(X, y, **given),
        "classification": lambda: jdfl.from_arrays(X, (y > 0).astype(int), **given),
        "loss": lambda: jdfl.from_loss(_squared, jnp.zeros(3), (X, y), predict=_product, task="regression", **given),
    }
    with pytest.warns(UserWarning, match="1 of 7 nodes"):
        return makers[task]()


def _squared(w: Any, example: Any) -> Any:
    return (example[0] @ w - example[1]) ** 2


def _product(w: Any, x: Any) -> Any:
    return x @ w


def summed_up(values: np.ndarray, counts: np.ndarray, measure: str) -> list[float]:
    """The five summaries by hand."""
    here, sign = counts > 0, 1 if measure == "accuracy" else -1
    v, q = values[here], counts[here]
    pooled = np.sqrt((v**2 * q).sum() / q.sum()) if measure == "rmse" else (v * q).sum() / q.sum()
    return [v.mean(), sign * (sign * v).min(), sign * np.quantile(sign * v, 0.1), v.std(), pooled]


@pytest.mark.parametrize("split", ["nodes", "last"])
@pytest.mark.parametrize("task", ["classification", "regression", "loss"])
@pytest.mark.parametrize("method", [jdfl.DPSGD, jdfl.LocalOnly])
def test_nodes_are_judged_on_their_own_examples(task, split, method):
    problem = learned(task, split)
    measures = ("loss", "accuracy" if task == "classification" else "rmse")
    run = jdfl.run(
        method(lr=0.1),
        problem,
        jdfl.network.ring(M),
        steps=9,
        every=9,
        key=1,
        metrics=[f"node_{one}{how}" for one in measures for how in _SUMS],
    )
    w = np.asarray(run.params, np.float64)
    w = np.broadcast_to(w.mean(axis=0), w.shape) if method is jdfl.DPSGD else w
    counts, found = np.asarray(problem.own_test.sizes), {one: np.full(M, np.nan) for one in measures}
    for i in np.flatnonzero(counts):
        A, b = (np.asarray(x, np.float64)[: counts[i]] for x in problem.own_test.local(int(i))[0])
        z = A @ w[i]
        found["loss"][i] = {
            "classification": np.logaddexp(0, z) - b * z,
            "loss": (z - b) ** 2,
            "regression": (z - b) ** 2 / 2,
        }[task].mean()
        found[measures[1]][i] = ((z > 0) == b).mean() if task == "classification" else np.sqrt(((z - b) ** 2).mean())
    for one in measures:
        np.testing.assert_allclose(
            [run.final[f"node_{one}{how}"] for how in _SUMS], summed_up(found[one], counts, one), rtol=2e-5, atol=1e-6
        )
        each = jdfl.per_node(run, problem, one)
        assert list(each.index) == list(problem.node_names)
        np.testing.assert_allclose(each, found[one], rtol=2e-5, atol=1e-6)


def test_nodes_are_judged_on_the_problem_of_the_run_alone():
    problem = learned("regression", "last")
    run = jdfl.run(jdfl.LocalOnly(lr=0.1), problem, jdfl.network.ring(M), steps=9, key=1)
    with pytest.raises(ValueError, match=r"trial\(key\)"):
        jdfl.per_node(run, learned("regression", "nodes"), "rmse")


@pytest.mark.parametrize("split", ["nodes", "last"])
def test_every_example_is_trained_on_or_tested_by_its_own_node(split):
    X, _, clients = data()
    problem = learned("regression", split)
    names = list(problem.node_names)
    for i, name in enumerate(names):
        rows = X[np.array(clients) == name]
        both = problem, problem.own_test
        train, test = (np.asarray(one.local(i)[0][0])[: int(one.sizes[i]), :3] for one in both)
        together = np.concatenate([train, test])
        np.testing.assert_allclose(np.sort(together, axis=0), np.sort(rows.astype(np.float32), axis=0))
        assert len(test) == (0 if len(rows) == 1 else max(1, round(0.4 * len(rows))))
        if split == "last":
            np.testing.assert_allclose(train, rows[: len(train)].astype(np.float32))


def test_devices_and_named_test_examples_give_the_same():
    X, y, clients = data()
    problem = learned("regression", "last")
    given: Any = {"steps": 4, "every": 4, "key": 1, "metrics": [f"node_rmse{how}" for how in _SUMS]}
    runs = [
        jdfl.run(jdfl.DPSGD(lr=0.1), problem, jdfl.network.ring(M), options=jdfl.Options(devices=d), **given)
        for d in (1, 3)
    ]
    np.testing.assert_allclose(runs[1].history, runs[0].history, rtol=1e-5)
    own = jdfl.from_arrays(X, y, clients=clients, test=(X + 0.1, y)).with_own_test(clients)
    assert own.own_test.sizes.tolist() == [clients.count(name) for name in own.node_names]
    for nodes in (["nobody"] * len(y), clients[1:], list(range(len(y)))):
        with pytest.raises(ValueError, match="test example"):
            own.with_own_test(nodes)


def test_errors_of_regressions_and_scores_are_those_of_numpy():
    X, y, clients = data()
    labels, far = (y > 0).astype(int), (X + 0.3, y)
    ring, how = jdfl.network.ring(M), dict[str, Any](steps=5, every=5, key=1)
    problem = jdfl.from_arrays(X, labels, clients=clients, test=(far[0], labels))
    run = jdfl.run(jdfl.DPSGD(lr=0.5), problem, ring, metrics=["auc", "calibration_error"], **how)
    w, (A, b) = np.asarray(run.params, np.float64).mean(axis=0), (np.asarray(x, np.float64) for x in problem.test)
    np.testing.assert_allclose(run.final["auc"], roc_auc_score(b, A @ w), rtol=1e-5)
    chance = 1 / (1 + np.exp(-A @ w))
    sure, right = np.maximum(chance, 1 - chance), (chance > 0.5) == b
    bins = [(sure >= k / 15) & (sure < (k + 1) / 15) for k in range(15)]
    gap = sum(abs(right[one].mean() - sure[one].mean()) * one.mean() for one in bins if one.any())
    np.testing.assert_allclose(run.final["calibration_error"], gap, rtol=1e-4)
    problem = jdfl.from_arrays(X, y, clients=clients, test=far)
    run = jdfl.run(jdfl.DPSGD(lr=0.1), problem, ring, metrics=["rmse", "mae"], **how)
    error = np.asarray(problem.test[0], np.float64) @ np.asarray(run.params, np.float64).mean(axis=0) - y
    np.testing.assert_allclose(
        [run.final["rmse"], run.final["mae"]], [np.sqrt((error**2).mean()), abs(error).mean()], rtol=1e-5
    )
    for metric in ("auc", "node_rmse", "node_accuracy"):
        with pytest.raises(ValueError, match=metric):
            jdfl.run(jdfl.DPSGD(lr=0.1), problem, ring, metrics=[metric], **how)
