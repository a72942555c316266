"""Arguments of every public function and fields of every setting: what is odd is taken, or refused by its name."""

import contextlib
import dataclasses
import inspect
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

import jdfl
from jdfl import codecs, network, problems
from jdfl.algorithms import REGISTRY
from jdfl.engine import loop, start
from tests.fuzz.calls import ELSEWHERE, GOOD, PROBLEM, RING, X, Y, functions, odds
from tests.fuzz.judge import fuzz, sizes, unclean
from tests.later import Later

pytestmark = pytest.mark.filterwarnings("ignore")  # of odd settings, at length
FUNCTIONS = Later(functions)
RELATIONS = ("components", "examples", "nodes", "node", "bases", "data")  # what several arguments make together
OWN = {
    ("compare", "progress"),
    ("problems.neural_classification", "shared"),
}  # may be functions, whose errors are a person's own
MINIMA = ("problems.optimum", "problems.sparse_optimum")  # say by RuntimeError that none was found


def places() -> list[tuple[str, str]]:
    """Every argument of every function."""
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    signatures = {name: inspect.signature(FUNCTIONS()[name]).parameters.values() for name in GOOD}
    return [(name, one.name) for name, told in signatures.items() for one in told if one.kind not in kinds]


def refused(error: Exception, names: set[str], what: object) -> None:
    """AssertionError unless the error is one of jdfl's, in words, that names one of these."""
    as_value = ValueError(*error.args).with_traceback(error.__traceback__)
    wrong = unclean(as_value if isinstance(error, TypeError) else error)
    named = any(re.search(rf"\b{re.escape(name)}\b", str(error)) for name in {*names, *RELATIONS})
    if wrong or not named:
        raise AssertionError(f"{wrong or 'it names no argument'}: {error!r:.400} of {what!r:.300}") from error


def call(name: str, argument: str, value: Any) -> None:
    """The good call with one argument in exchange."""
    function = FUNCTIONS()[name]
    if (name, argument) in OWN and callable(value):
        return
    try:
        function(**{**GOOD[name], argument: value})
    except Exception as error:
        if name in MINIMA and isinstance(error, RuntimeError):
            return
        refused(error, set(inspect.signature(function).parameters), (name, argument, value))


def test_every_public_function_is_fed_or_said_to_be_elsewhere():
    assert set(FUNCTIONS()) == set(GOOD) | set(ELSEWHERE)
    assert not set(GOOD) & set(ELSEWHERE)


SLOW = re.compile(
    r"run|sweep|repeat|compare|plann|calibrate|account|noise_mult|neural|problems.classification|random_geo|erdos"
)


@pytest.mark.parametrize("name", GOOD)
def test_the_good_calls_are_good(name):
    FUNCTIONS()[name](**GOOD[name])


@sizes(1500, 20_000)
def test_any_argument(count):
    quick = [place for place in places() if count > 10_000 or not SLOW.search(place[0])]
    fuzz(
        count,
        st.tuples(st.sampled_from(quick), st.sampled_from(odds())),
        lambda one: call(one[0][0], one[0][1], one[1]),
    )


RUNS = ("compare", "repeat", "run", "sweep")


class BegunError(BaseException):
    """Nothing was refused."""


@pytest.fixture
def begun(monkeypatch, tmp_path):
    """What begins a run raises `BegunError` instead."""

    def begin(*arguments: Any) -> None:
        raise BegunError

    monkeypatch.chdir(tmp_path)  # checkpoints of odd names
    monkeypatch.setattr(start, "require_memory", lambda *arguments: None)  # which takes long
    for name in ("start", "lanes"):
        monkeypatch.setattr(loop, name, begin)


@pytest.mark.rotated(2)
@pytest.mark.parametrize("name", RUNS)
@pytest.mark.usefixtures("begun")
def test_every_odd_argument_of_a_run_is_refused_before_it_begins(name):
    with pytest.raises(BegunError):
        FUNCTIONS()[name](**GOOD[name])
    for place in places():
        if place[0] == name:
            for value in odds():
                with contextlib.suppress(BegunError):
                    call(*place, value)


@pytest.mark.rotated(2)
@pytest.mark.parametrize("kind", [jdfl.Entry, jdfl.Tuning, jdfl.Experiment])
@pytest.mark.usefixtures("begun")
def test_every_odd_field_of_a_comparison_is_refused_before_it_begins(kind):
    given = GOOD["compare"]
    for field in dataclasses.fields(kind):
        for value in odds():
            if kind is jdfl.Entry:
                odd = {"methods": {"a": kind(**{"algorithm": jdfl.DPSGD(), field.name: value})}}
            elif kind is jdfl.Experiment:
                odd = {field.name: value}
            else:
                odd = {"tuning": dataclasses.replace(given["tuning"], **{field.name: value})}
            try:
                jdfl.compare(**{**given, **odd})
            except BegunError:
                continue
            except Exception as error:
                refused(error, {field.name, "methods", "grid", "seed", "trials"}, (kind, field.name, value))


def test_what_is_no_run_is_refused_by_name():
    """What was taken, or failed inside, before arguments of runs were held against their annotations."""
    wrong = {
        "run": {"callbacks": [1], "resume": "x", "options": {"chunk": 3}, "metrics": [lambda: 0]},
        "compare": {
            "problem": None,
            "network": 3,
            "trials": np.array(3.5),
            "metrics": {},
            "measure": lambda: 0,
            "batch": True,
        }
        | {"batch": True, "delta": -1, "epsilon": [], "progress": "x"},
        "repeat": {"keys": np.array(3.5), "problem": "x", "steps": 2.5},
        "sweep": {"batch": "x", "metrics": -1, "stop": 3},
    }
    for name, arguments in wrong.items():
        for argument, value in arguments.items():
            with pytest.raises(ValueError, match=rf"Expected .*\b{argument}\b"):
                FUNCTIONS()[name](**{**GOOD[name], argument: value})
    for field, value in {"grids": None, "extend": 10**30, "keys": 3}.items():
        with pytest.raises(ValueError, match=rf"Expected .*\b{field}\b"):
            jdfl.compare(**{**GOOD["compare"], "tuning": jdfl.Tuning(**{field: value})})


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in GOOD if name not in RUNS])
def test_every_odd_value_in_every_argument(name):
    for place in places():
        if place[0] == name:
            for value in odds():
                call(*place, value)


CLIPPED = {"clip": 1.0, "batch": 2}
NEEDED = {jdfl.IHT: {"s": 2}, jdfl.CEPS: {"s": 2}, jdfl.DirectedCEPS: {"s": 2}, jdfl.RandomK: {"share": 0.5}}
SETTINGS: dict[str, tuple[Any, dict[str, Any], Callable[[Any], Any]]] = {
    **{name: (kind, NEEDED.get(kind, {}), lambda made: made) for name, kind in REGISTRY.items()},
    **{
        f"codecs.{kind.__name__}": (kind, NEEDED.get(kind, {}), lambda made: jdfl.DPSGD(codec=made))
        for kind in (jdfl.Dense, jdfl.LowRank, jdfl.OneBit, jdfl.QSGD, jdfl.RandomK, jdfl.Sign, jdfl.Sparse)
    },
    "Gradients": (jdfl.Gradients, CLIPPED, lambda made: jdfl.DPSGD(gradients=made)),
    "Updates": (jdfl.Updates, {"clip": 1.0}, lambda made: jdfl.FedAvg(updates=made)),
    "DPPS": (jdfl.DPPS, {}, lambda made: jdfl.SGP(dpps=made)),
    **{
        kind.__name__: (
            kind,
            {"multiplier": 1.0},
            lambda made: jdfl.DPSGD(gradients=jdfl.Gradients(mechanism=made, clip=1.0, batch=2)),
        )
        for kind in (jdfl.Gaussian, jdfl.Laplace)
    },
}
STOPS = (jdfl.consensus_below(1.0), jdfl.gradient_below(1.0), jdfl.objective_below(1.0))
TIMES = (network.ExponentialTime, network.FixedTime, network.LogNormalTime, network.ParetoTime)


def trials() -> list[tuple[str, str]]:
    """Every field of every setting."""
    return [(name, one.name) for name, (kind, _, _) in SETTINGS.items() for one in dataclasses.fields(kind)]


def setting(name: str, field: str, value: Any) -> None:
    """A run's checks with one field in exchange."""
    kind, given, into = SETTINGS[name]
    try:
        start.check_run(into(kind(**{**given, field: value})), PROBLEM(), RING(), 2, 1, None)
    except Exception as error:
        refused(error, {one.name for one in dataclasses.fields(kind)}, (name, field, value))


def test_every_public_setting_is_fed():
    codecs_of = {value for name in codecs.__all__ if isinstance(value := getattr(codecs, name), type)}
    codecs_of -= {codecs.Codec, codecs.Wire}
    assert {*REGISTRY.values(), *codecs_of} <= {kind for kind, _, _ in SETTINGS.values()}


@sizes(300, 4000)
def test_any_setting(count):
    fuzz(
        count,
        st.tuples(st.sampled_from(trials()), st.sampled_from(odds())),
        lambda one: setting(one[0][0], one[0][1], one[1]),
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", SETTINGS)
def test_every_odd_value_in_every_setting(name):
    for place in trials():
        if place[0] == name:
            for value in odds():
                setting(*place, value)


@pytest.mark.slow
@pytest.mark.parametrize("rule", STOPS, ids=lambda rule: type(rule).__name__)
def test_stop_rules(rule):
    for field in dataclasses.fields(rule):
        for value in odds():
            odd = dataclasses.replace(rule, **{field.name: value})
            try:
                start.check_run(jdfl.DPSGD(), PROBLEM(), RING(), 2, 1, odd)
            except Exception as error:
                refused(error, {field.name}, (rule, field.name, value))


@pytest.mark.parametrize("kind", TIMES)
def test_times(kind):
    for field in dataclasses.fields(kind):
        for value in odds():
            try:
                network.timed(RING(), kind(**{field.name: value}))
            except Exception as error:
                refused(error, {field.name}, (kind, field.name, value))


READERS = ("read_cifar10", "read_idx", "read_libsvm", "read_mnist", "read_qsar")


@pytest.mark.parametrize("read", [*(getattr(problems, name) for name in READERS), jdfl.read_checkpoint])
def test_what_is_no_path_is_refused_by_name(read):
    (name, *_) = inspect.signature(read).parameters
    rest = () if read is not jdfl.read_checkpoint else (jdfl.DPSGD(), PROBLEM(), RING())
    for value in odds():
        if not isinstance(value, str):
            with pytest.raises(ValueError, match=rf"Expected {name} to be (text|a path)") as error:
                read(value, *rest)
            assert not unclean(error.value)


@pytest.mark.parametrize("bad", [-1, 0.5, 10**9, np.inf])
def test_labels_that_number_no_classes_are_not_held_out(bad):
    labels = np.where(np.arange(24) == 3, bad, Y)
    with pytest.raises(ValueError, match=r"labels.* from 0, .*labels\[3\] = "):
        problems.holdout(X, labels, 0.25)


def test_yardsticks_of_data_that_is_not_finite_are_refused():
    odd = [X[:12].copy(), X[12:].copy()]
    odd[1][2, 1] = np.nan
    regression = problems.linear_regression(odd, [X[:12, 0], X[12:, 0]])
    classes = problems.logistic_regression([(x, y) for x, y in zip(odd, (Y[:12], Y[12:]))])
    for problem in (regression, classes):
        for ask in (
            lambda problem: problems.optimum(problem),
            lambda problem: problems.sparse_optimum(problem, 1),
            lambda problem: problems.value_at(problem, np.zeros(3)),
        ):
            with pytest.raises(ValueError, match=r"finite numbers in features.*node 1"):
                ask(problem)


@pytest.mark.parametrize("rounds", [-3, 0])
def test_matrices_are_asked_for_of_some_rounds(rounds):
    with pytest.raises(ValueError, match="rounds"):
        network.matrices(RING(), rounds, "a schedule")


def test_without_the_check_of_kinds_the_judge_objects(monkeypatch):
    """The planted bug: the function as it is without `checked`."""
    for name, argument, value in (("network.bucketed", "graph", 3), ("network.circulant", "offsets", 0.5)):
        call(name, argument, value)
        monkeypatch.setitem(FUNCTIONS(), name, inspect.unwrap(FUNCTIONS()[name]))
        with pytest.raises(AssertionError):
            call(name, argument, value)
