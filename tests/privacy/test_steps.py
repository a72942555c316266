"""Careless and malicious steps of a user: each is refused, counted as it is, or rests on a word that is told."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import jdfl
from experiments.attack_steps import STEPS, Step, algorithm, outcome
from experiments.attack_worlds import ALONE, NOISY, regression
from jdfl.engine.spending import guarantee_of


@pytest.mark.rotated(3)
@pytest.mark.parametrize("name", STEPS)
def test_what_is_said_of_a_step(name):
    told, why = outcome(name)
    assert told == STEPS[name][0], why
    assert (told == "counted") == (why == "")


def test_paths_agree_with_the_guarantee_and_counts_are_those_of_the_releases():
    for name in ("the tutorial's step", "a tenth of the sensitivity", "noise drawn again"):
        told = jdfl.paths(algorithm(name), regression(0), ALONE, steps=2)["message model"]
        assert (told == "") == (STEPS[name][0] == "counted")
    # A node that is not selected releases nothing, and local steps are counted one by one.
    for name, each in (("three local steps", [3, 3]), ("one node at a time", [1, 0])):
        made = jdfl.run(algorithm(name), regression(0), ALONE, steps=1, metrics=[])
        assert made.releases.tolist() == each


def test_what_has_to_be_declared_is_told_in_one_message():
    problem: Any = regression(0)
    held = jnp.asarray(np.arange(16.0).reshape(2, 8))

    def seen(a: Any, x: Any, r: Any) -> Any:
        return a.gradients(x, r) * r.problem.curvature[:, None] + 0 * held

    told = guarantee_of(Step(seen), problem.replace(start=jnp.arange(8.0), derived=("holdout",)))
    assert told.derived == ("curvature", "constants", "holdout", "start")
    assert all(name in told.remedy for name in told.derived)
    public = problem.replace(start=jnp.arange(8.0), derived=("holdout",)).declared(*told.derived)
    assert guarantee_of(Step(seen), public).claimed
    assert guarantee_of(jdfl.DPSGD(gradients=NOISY), problem.replace(start=jnp.ones(8))).claimed  # equal entries


def test_a_loss_that_reads_other_records_has_no_guarantee():
    problem: Any = regression(0)
    labels = problem.data[1]

    def closing(w: Any, example: Any) -> Any:
        return (example[0] @ w - example[1]) ** 2 + jnp.sum(w) * jnp.mean(labels)

    data = np.asarray(problem.data[0]).reshape(-1, 8), np.asarray(labels).reshape(-1)
    own = jdfl.problems.from_loss(closing, jnp.arange(8.0), data, nodes=2)
    assert guarantee_of(jdfl.DPSGD(gradients=NOISY), own).derived == ("constants",)
    honest = jdfl.problems.from_loss(lambda w, one: (one[0] @ w - one[1]) ** 2, jnp.arange(8.0), data, nodes=2)
    assert guarantee_of(jdfl.DPSGD(gradients=NOISY), honest).claimed
