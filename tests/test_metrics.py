import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import jdfl
from jdfl.engine import metrics
from jdfl.engine.result import wilson
from tests.refused import refused
from tests.toy import M, N, regression

problem = regression()
truth = np.asarray(problem.truth, np.float64)
w = np.random.default_rng(0).standard_normal((M, N)).astype(np.float32)


compiled = functools.cache(lambda name: jax.jit(metrics.REGISTRY[name]))


def measure(name, w=w, problem=problem) -> float:
    value = compiled(name)(jnp.asarray(w), problem)
    assert value.shape == ()
    return float(value)


def loss(i: int, w) -> float:
    A, b = (np.asarray(leaf, np.float64)[i] for leaf in problem.data)
    return float(np.sum((A @ w - b) ** 2) / (2 * len(b)))


def test_regression_metrics_are_their_formulas():
    average = w.astype(np.float64).mean(axis=0)
    assert measure("objective") == pytest.approx(np.mean([loss(i, average) for i in range(M)]), rel=1e-5)
    assert measure("objective_local") == pytest.approx(np.mean([loss(i, w[i]) for i in range(M)]), rel=1e-5)
    assert measure("consensus_error") == pytest.approx(np.mean(np.sum((w - average) ** 2, axis=1)), rel=1e-5)
    assert measure("distance_to_truth") == pytest.approx(
        np.linalg.norm(average - truth) / np.linalg.norm(truth), rel=1e-5
    )  # fmt: skip


def test_support_recovery():
    for entries, share in (
        ({0: -3.0, 1: 0.1, 7: 0.2, 9: 5.0}, 1 / 3),  # the support is {0, 1, 2}, signs and sizes do not matter
        ({1: 2.0}, 1 / 3),  # zeros are not found, though they stand first among equals
        ({0: 1.0, 5: 1.0, 6: 1.0, 2: 1.0}, 2 / 3),  # of four equals the first three are taken: 0, 2, 5
        ({}, 0),
    ):
        w = np.zeros((M, N), np.float32)
        w[:, list(entries)] = list(entries.values())
        assert measure("support_recovery", w) == pytest.approx(share)
    assert np.isnan(measure("support_recovery", problem=problem.replace(truth=jnp.zeros_like(problem.truth))))


def classifier(labels, test, classes=None):
    """Three features, four examples at every node; `test` = (features, labels)."""
    features = np.random.default_rng(1).standard_normal((2, 4, 3)).astype(np.float32)
    parts = [(features[i], np.asarray(labels)) for i in range(2)]
    if classes is None:
        return jdfl.problems.logistic_regression(parts, test=test)
    return jdfl.problems.softmax_regression(parts, classes=classes, test=test)


def test_accuracies_of_more_classes_of_which_one_is_absent():
    draw = np.random.default_rng(3)
    features, labels = draw.standard_normal((60, 3)), draw.choice([0, 1, 3], size=60, p=[0.8, 0.1, 0.1])
    w = draw.standard_normal((2, 12)).astype(np.float32)
    problem = classifier([0, 1, 2, 3], (features, labels), classes=4)
    predicted = (features @ w.mean(axis=0).reshape(3, 4)).argmax(axis=1)
    assert (predicted == 2).any()
    assert measure("accuracy", w, problem) == pytest.approx(np.mean(predicted == labels))
    balanced = np.mean([np.mean(predicted[labels == c] == c) for c in np.unique(labels)])
    assert measure("balanced_accuracy", w, problem) == pytest.approx(balanced)


def test_one_class_alone_is_no_division_by_zero():
    problem = classifier([0, 1, 0, 1], (np.ones((3, 3)), np.array([1, 1, 1])))
    assert measure("balanced_accuracy", np.ones((2, 3), np.float32), problem) == 1
    assert measure("balanced_accuracy", -np.ones((2, 3), np.float32), problem) == 0


def test_defaults_are_what_the_problem_can_give():
    tested = classifier([0, 1, 0, 1], (np.ones((2, 3)), np.array([0, 1])))
    always = {"objective", "objective_local", "consensus_error"}
    assert {m.__name__ for m in metrics.default_metrics(problem)} == always | {"distance_to_truth", "support_recovery"}
    assert {m.__name__ for m in metrics.default_metrics(tested)} == always | {"accuracy", "balanced_accuracy"}
    assert {m.__name__ for m in metrics.default_metrics(tested.replace(test=None))} == always
    for any_problem in (problem, tested):
        chosen = metrics.default_metrics(any_problem)
        assert metrics.resolve([m.__name__ for m in chosen], any_problem) == chosen


def renamed(name):
    def metric(w, problem):
        return jnp.max(w)

    metric.__name__ = name
    return metric


def test_metrics_come_by_name_and_as_functions_and_others_are_refused():
    own = renamed("own")
    assert metrics.resolve(["consensus_error", own], problem) == (metrics.consensus_error, own)
    assert metrics.resolve([], problem) == ()
    assert metrics.resolve([max], problem) == (max,)  # whose signature is not known
    for asked, named in (
        (["consensuss"], "metrics = 'consensuss'"),
        ([own, renamed("own")], "'own' twice"),
        (["accuracy_own"], "'accuracy_own'"),
        ("objective", "['objective']"),
        *(([one], "function") for one in (3, int, lambda w: w)),
        (["test_loss"], "test examples"),
        ([renamed("bytes")], "'bytes'"),
    ):
        with refused(named):
            metrics.resolve(asked, problem)
    with refused("'distance_to_truth'"):
        metrics.resolve(["distance_to_truth"], problem.replace(truth=None))


def mixed(shared):
    """Two nodes, three classes with unequal labels, 40 test examples; `shared` of nine parameters in common."""
    draw = np.random.default_rng(4)
    parts = [(draw.standard_normal((4, 3)), np.array(own)) for own in ([0, 1, 1, 1], [2, 2, 0, 2])]
    test = draw.standard_normal((40, 3)), draw.choice(3, size=40, p=[0.6, 0.3, 0.1])
    problem = jdfl.problems.softmax_regression(parts, classes=3, penalty=0.0, test=test)
    return problem.replace(shared=shared), draw.standard_normal((2, 9)).astype(np.float32)


def judged(w, shared):
    """What every node is judged with: the average of the first `shared` parameters, its own of the others."""
    return [np.concatenate([w[:, :shared].mean(axis=0), row[shared:]]) for row in w]


@pytest.mark.parametrize("shared", [0, 4, None])
def test_metrics_where_some_parameters_stay_with_the_nodes(shared):
    problem, w = mixed(shared)
    count = 9 if shared is None else shared
    features, labels = (np.asarray(leaf) for leaf in problem.test)
    right = np.stack([(features @ own.reshape(3, 3)).argmax(axis=1) == labels for own in judged(w, count)])
    per_class = np.stack([right[:, labels == c].mean(axis=1) for c in range(3)], axis=1)  # [node, class]
    own = np.array([[0.25, 0.75, 0], [0.25, 0, 0.75]])  # of the nodes' labels
    assert measure("accuracy", w, problem) == pytest.approx(right.mean())
    assert measure("balanced_accuracy", w, problem) == pytest.approx(per_class.mean())
    assert measure("accuracy_own", w, problem) == pytest.approx((own * per_class).sum(axis=1).mean())
    agreeing = count or 9  # of models that have nothing in common, all parameters are compared
    distance = w[:, :agreeing] - w[:, :agreeing].mean(axis=0)
    assert measure("consensus_error", w, problem) == pytest.approx((distance**2).sum(axis=1).mean(), rel=1e-5, abs=1e-9)
    held = [float(problem.value(jnp.asarray(one), *problem.local(i))) for i, one in enumerate(judged(w, count))]
    assert measure("objective", w, problem) == pytest.approx(np.mean(held), rel=1e-5)
    np.testing.assert_allclose(metrics.personal(jnp.asarray(w), problem), judged(w, count), rtol=1e-6)
    few = problem.replace(test=tuple(jnp.asarray(leaf[labels != 1]) for leaf in (features, labels)))
    left = np.array([[1.0, 0, 0], [0.25, 0, 0.75]])  # of the nodes' labels where no test example has the second class
    assert measure("accuracy_own", w, few) == pytest.approx((left * per_class).sum(axis=1).mean())


def test_wilson_covers_the_accuracy():
    """Exact coverage by the binomial distribution, the textbook example, and its ends."""
    assert wilson(0.9, 100) == pytest.approx((0.8256, 0.9448), abs=1e-4)  # 90 of 100
    assert (wilson(0.0, 10)[0], wilson(1.0, 10)[1]) == pytest.approx((0, 1))
    assert wilson(1.0, 10)[0] == pytest.approx(10 / (10 + 1.959964**2), rel=1e-6)
    counts = np.arange(201)
    ends = np.array([wilson(k / 200, 200) for k in counts])
    covered = [stats.binom.pmf(counts, 200, p)[(ends[:, 0] <= p) & (p <= ends[:, 1])].sum() for p in (0.5, 0.8, 0.95)]
    assert np.mean(covered) == pytest.approx(0.95, abs=0.01)


def test_results_have_the_interval_of_their_accuracy():
    draw = np.random.default_rng(9)
    tested = classifier([0, 1, 0, 1], (draw.standard_normal((50, 3)), draw.integers(0, 2, 50)))
    network = jdfl.network.complete(2)
    result = jdfl.run(jdfl.DPSGD(lr=0.1), tested, network, steps=2)
    features, labels = (np.asarray(leaf) for leaf in tested.test)
    assert result.final["accuracy"] == pytest.approx(
        np.mean((features @ np.asarray(result.params).mean(axis=0) > 0) == labels)
    )
    assert result.intervals == {"accuracy": wilson(result.final["accuracy"], 50)}
    assert jdfl.run(jdfl.DPSGD(lr=0.1), tested.replace(shared=2), network, steps=2).intervals == {}


def test_models_of_one_s_own_are_evaluated_one_by_one_and_their_mean_by_name_alone():
    X, client = np.random.default_rng(2).normal(size=(160, 3)), np.arange(160) % 4
    labels = (X @ np.array([1.0, -2.0, 0.5]) > 0) ^ (client % 2 == 1)  # two nodes have the opposite ones
    problem = jdfl.from_arrays(X, labels.astype(int), clients=client)
    more = ["gradient_norm", "test_loss", "accuracy_own", "suboptimality", "distance_to_optimum", "accuracy_local"]
    asked = [*more, "objective", "objective_local", "accuracy", "balanced_accuracy", "consensus_error"]
    means = ["mean_model_objective", "mean_model_accuracy", "mean_model_test_loss"]
    network, stop = jdfl.network.complete(4), jdfl.consensus_below(1e-6)
    how = {"steps": 30, "every": 30, "metrics": [*asked, *means], "stop": stop}
    result = jdfl.run(jdfl.PENS(lr=0.5), problem, network, **how)
    assert result.ending == "steps"  # agreement is that of all parameters
    x, found = jnp.asarray(result.params), result.final
    alone = [problem.nodes(jnp.asarray([i])) for i in range(4)]
    for metric in ("objective", "accuracy", "balanced_accuracy", "test_loss", "accuracy_own", "accuracy_local"):
        each = [measure(metric, x[i : i + 1], alone[i]) for i in range(4)]
        assert found[metric] == pytest.approx(np.mean(each), rel=1e-5), metric
    assert found["objective_local"] == pytest.approx(found["objective"], rel=1e-6)
    best = jdfl.problems.solved(problem).optimum
    assert found["suboptimality"] == pytest.approx(found["objective"] - float(best.value), abs=1e-5)
    far = np.linalg.norm(np.asarray(x) - np.asarray(best.w), axis=1) / np.linalg.norm(best.w)
    assert found["distance_to_optimum"] == pytest.approx(far.mean(), rel=1e-4)
    for metric in ("objective", "accuracy", "test_loss"):
        assert found[f"mean_model_{metric}"] == pytest.approx(measure(metric, x, problem), rel=1e-5)
    assert found["accuracy_local"] > 0.55
    apart = np.asarray(x) - np.mean(np.asarray(x), axis=0)
    assert found["consensus_error"] == pytest.approx(np.sum(apart**2, axis=1).mean(), rel=1e-4)
    assert result.intervals == {}
    assert metrics.accuracy_local in metrics.default_metrics(problem, "models")
    assert jdfl.combined_by(jdfl.PENS(), jdfl.robust.Weighted()).personal == "models"
