"""Settings of the right type and of any size: what is built, checked and run ends in a result or in a clean error."""

import functools
from typing import Any, Literal, get_type_hints

import pytest
from hypothesis import strategies as st

import jdfl
from jdfl import config
from jdfl.algorithms.program import planned
from jdfl.config import RunConfig, build
from jdfl.engine import start
from jdfl.engine.accountant import check_account
from jdfl.lab.summary import summary
from jdfl.problems import Problem
from tests.fuzz.judge import fuzz, sizes, tried
from tests.fuzz.strategies import configs, kinds, values

pytestmark = pytest.mark.filterwarnings("ignore")  # of odd settings, at length
TYPES: Any = get_type_hints(RunConfig, include_extras=True)
M = 4
TINY = config.PROBLEMS("example1", m=M, n=6, s=2, rows=(5, 9))
PROBLEMS = (TINY, config.PROBLEMS("example1", m=1, n=1, s=1, rows=(1, 1)), config.PROBLEMS("classification", m=M))
SIZES: Any = {
    "steps": Literal[-1, 0, 1, 2, 3],
    "every": int,
    "chunk": int,
    "seed": int,
    "diverged_above": float,
}
NETWORKS = (
    config.NETWORKS("complete"),
    config.NETWORKS("ring"),
    config.NETWORKS("exponential"),
    config.NETWORKS("random-links", p=0.5),
    config.NETWORKS("synchronised", every=2),
    config.NETWORKS("star", weights="out-degree"),
)


@functools.cache
def built(problem: Any) -> Problem:
    return problem.build()


@pytest.mark.parametrize("name", config.PROBLEMS.sources)
@sizes(3, 30)
def test_any_problem(name, count):
    quick = {"model": "mlp"} if name == "neural" else {}
    fuzz(count, configs(config.PROBLEMS.kinds[name], **quick), lambda given: tried(given.build, given))


@pytest.mark.parametrize("name", config.NETWORKS.sources)
@sizes(12, 150)
def test_any_network(name, count):
    def check(given: tuple[int, Any]) -> None:
        tried(lambda: given[1].build(m=given[0]), given)

    fuzz(count, st.tuples(st.sampled_from([1, 2, M]), configs(config.NETWORKS.kinds[name])), check)


@pytest.mark.parametrize("name", config.ALGORITHMS.sources)
@sizes(12, 200)
def test_any_algorithm_is_checked(name, count):
    problem, network = built(TINY), NETWORKS[0].build(m=M)

    def check(given: Any) -> None:
        tried(lambda: start.check_run(given.build(), problem, network, 2, 1, None), given)

    fuzz(count, configs(config.ALGORITHMS.kinds[name]), check)


@st.composite
def runs(draw: st.DrawFn) -> RunConfig:
    """Short runs of anything on small problems."""
    kind = draw(st.sampled_from(kinds(TYPES["algorithm"])))
    changed = draw(st.sampled_from([*SIZES, "privacy", "stop", None]))
    odd: dict[str, Any] = {"steps": 2, "stop": None}
    if changed in SIZES:
        odd[changed] = draw(values(SIZES[changed]))
    elif changed == "privacy":
        odd["privacy"] = draw(configs(config.Privacy))
    elif changed == "stop":
        odd["stop"] = draw(st.one_of(*map(configs, kinds(TYPES["stop"]))))
    return RunConfig(
        problem=draw(st.sampled_from(PROBLEMS)),
        network=draw(st.sampled_from(NETWORKS)),
        algorithm=draw(configs(kind, changed=2)),
        **odd,
    )


def made(given: RunConfig) -> jdfl.Result:
    """The run that a configuration describes, with what is told of it."""
    algorithm, problem, network, stop = build(given)
    spend, chunk = given.privacy, {} if given.chunk is None else {"chunk": given.chunk}
    how = {"every": given.every, "options": jdfl.Options(**chunk, diverged_above=given.diverged_above)}
    start.check_settings(algorithm, problem, network)
    check_account(
        planned(algorithm, problem, network, given.steps),
        problem,
        delta=spend.delta,
        accounting=spend.accounting,
    )
    result = jdfl.run(algorithm, problem, network, key=given.seed, steps=given.steps, stop=stop, **how)
    assert result.rounds <= given.steps
    assert len(result.history) >= 1
    summary(result, delta=spend.delta, accounting=spend.accounting)
    return result


@sizes(3, 150)
def test_any_run(count):
    fuzz(count, runs(), lambda given: tried(lambda: made(given), given))
