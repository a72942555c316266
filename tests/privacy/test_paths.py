"""Every output of a run, and how records come to it: read from the traced programs of any method."""

from typing import Any

import jax.numpy as jnp
import pytest

import jdfl
from jdfl.algorithms.program import planned
from jdfl.base import struct
from tests.contract.table import TABLE, Row
from tests.contract.test_contract import make_network, make_problem
from tests.later import Later
from tests.refused import refused

NETWORK = Later(jdfl.network.ring, 4)
PROBLEM = Later(jdfl.problems.example1, m=4, n=6, s=2, rows=(5, 8))
PRIVATE = jdfl.Gradients(clip=1.0, mechanism=jdfl.Gaussian(2.0))


@struct.dataclass
class Ahead(jdfl.Algorithm):
    """Sends what is noisy, and goes a step further by itself, without noise: its kinds differ in where."""

    gradients: jdfl.Gradients = PRIVATE
    where: str = struct.field(pytree_node=False, default="nowhere")
    title = "Ahead"

    def init(self, round: jdfl.Round) -> Any:
        x = round.problem.initial_params()
        return x, x + 0

    def step(self, state: Any, round: jdfl.Round) -> Any:
        x, _ = state
        bare = self.gradients.without_noise(x, round)
        x = round.mix(x) - 0.1 * self.gradients(x, round)
        return x, bare if self.where == "state" else x + 0

    def params(self, state: Any) -> Any:
        return state[0]


def scaled(w: Any, problem: Any) -> Any:
    """Looks at parameters alone."""
    return jnp.sum(w) / problem.n


def labelled(w: Any, problem: Any) -> Any:
    """Looks at one label."""
    return jnp.sum(w) + problem.data[1][0, 0]


def found(algorithm, problem=None, **options):
    return jdfl.paths(algorithm, problem or PROBLEM(), NETWORK(), **options)


def test_what_is_computed_from_releases_is_covered_and_what_looks_at_records_is_not():
    told = found(Ahead(), metrics=[scaled, labelled, "consensus_error", "objective"])
    covered = {output for output, why in told.items() if not why}
    named = {"message model", "parameters", "metric scaled", "metric consensus_error", "state [0]", "state [1]"}
    assert covered == named
    assert {"metric labelled", "metric objective", "nodes.csv", "split.csv"} == set(told) - covered
    assert set(found(jdfl.DPSGD()).values()) == {"depends on records that nothing bounds or hides"}
    with refused("accuracy"):
        found(Ahead(), metrics=["accuracy"])


def test_a_step_without_noise_is_seen_where_it_is_kept():
    kept = found(Ahead(where="state"), metrics=["consensus_error"])
    assert (kept["state [0]"], kept["parameters"], kept["metric consensus_error"]) == ("", "", "")
    assert kept["state [1]"] == "has no noise"
    told = planned(Ahead(where="state"), PROBLEM(), NETWORK(), 3).privacy(PROBLEM())
    assert (told.claimed, told.local) == (True, "")


@pytest.mark.parametrize("row", [row for row in TABLE if getattr(row.algorithm, "unsent", "")], ids=str)
def test_what_methods_say_of_their_parameters_follows_from_the_program(row: Row):
    """`unsent` has the words for it, and nothing but the words."""
    assert jdfl.paths(row.algorithm, make_problem(row), make_network(), steps=7)["parameters"]
    told = planned(row.algorithm, make_problem(row), make_network(), 7).privacy(make_problem(row))
    assert not told.claimed or told.local == row.algorithm.unsent
