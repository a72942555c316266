"""Arguments of every public function: what is odd is taken, or refused by its name before anything begins."""

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
from tests import refused as words
from tests.fuzz.calls import ELSEWHERE, FUNCTIONS, GOOD, PROBLEM, RING, SETTINGS, STOPS, X, Y, functions, odds
from tests.fuzz.judge import fuzz, sizes, unclean

pytestmark = pytest.mark.filterwarnings("ignore")  # of odd settings, at length
RELATIONS = ("components", "examples", "nodes", "node", "bases", "data")  # what several arguments make together
OWN = {  # may be functions, whose errors are a person's own
    ("compare", "progress"),
    ("problems.neural_classification", "shared"),
}
MINIMA = ("problems.optimum", "problems.sparse_optimum")  # say by RuntimeError that none was found
TIMES = (network.ExponentialTime, network.FixedTime, network.LogNormalTime, network.ParetoTime)


def places() -> list[tuple[str, str]]:
    """Every argument of every function."""
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    signatures = {name: inspect.signature(function).parameters.values() for name, function in FUNCTIONS.items()}
    return [(name, one.name) for name, told in signatures.items() for one in told if one.kind not in kinds]


class BegunError(BaseException):
    """Nothing was refused."""


@pytest.fixture(autouse=True)
def begun(monkeypatch, tmp_path):
    """What begins a run raises `BegunError` instead."""

    def begin(*arguments: Any) -> None:
        raise BegunError

    monkeypatch.chdir(tmp_path)  # checkpoints of odd names
    monkeypatch.setattr(start, "require_memory", lambda *arguments: None)  # which takes long
    for name in ("start", "lanes"):
        monkeypatch.setattr(loop, name, begin)


def judged(make: Callable[[], Any], names: set[str], what: object) -> None:
    """AssertionError unless this is taken, or refused by an error of jdfl's, in words, that names one of these."""
    try:
        with contextlib.suppress(BegunError):
            make()
    except Exception as error:
        if isinstance(what, tuple) and what[0] in MINIMA and isinstance(error, RuntimeError):
            return
        as_value = ValueError(*error.args).with_traceback(error.__traceback__)
        wrong = unclean(as_value if isinstance(error, TypeError) else error)
        if not any(re.search(rf"\b{re.escape(name)}\b", str(error)) for name in {*names, *RELATIONS}):
            wrong = wrong or "it names no argument"
        if wrong:
            raise AssertionError(f"{wrong}: {error!r:.400} of {what!r:.300}") from error


def call(name: str, argument: str, value: Any) -> None:
    """The good call with one argument in exchange."""
    if (name, argument) not in OWN or not callable(value):
        names = set(inspect.signature(FUNCTIONS[name]).parameters)
        judged(lambda: FUNCTIONS[name](**{**GOOD[name], argument: value}), names, (name, argument, value))


LONG = re.compile(r"plann|calibrate|account|noise_mult|neural|classification|random_geo|erdos|floor|model|load|loss")
EACH = [name for name in FUNCTIONS if not LONG.search(name)]


def test_every_public_function_and_setting_is_fed_and_the_good_calls_are_good():
    assert set(functions()) >= ELSEWHERE
    codecs_of = {value for name in codecs.__all__ if isinstance(value := getattr(codecs, name), type)}
    assert {*REGISTRY.values(), *codecs_of} - {codecs.Codec, codecs.Wire} <= {kind for kind, _, _ in SETTINGS.values()}
    for name in EACH:
        with contextlib.suppress(BegunError):
            FUNCTIONS[name](**GOOD[name])


@sizes(900, 20_000)
def test_any_argument(count):
    some = [place for place in places() if count > 10_000 or place[0] in EACH]
    fuzz(count, st.tuples(st.sampled_from(some), st.sampled_from(odds())), lambda one: call(*one[0], one[1]))


@pytest.mark.slow
@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_odd_value_in_every_argument(name):
    with contextlib.suppress(BegunError):
        FUNCTIONS[name](**GOOD[name])
    for place in places():
        for value in odds() if place[0] == name else ():
            call(*place, value)


def compared(kind: type, field: str, value: Any) -> Any:
    """A comparison with one field of itself, of its only method or of its tuning in exchange."""
    odd = {field: value}
    if kind is jdfl.Entry:
        odd = {"methods": {"a": jdfl.Entry(**{"algorithm": jdfl.DPSGD(), field: value})}}
    elif kind is jdfl.Tuning:
        odd = {"tuning": dataclasses.replace(GOOD["compare"]["tuning"], **odd)}
    return jdfl.compare(**{**GOOD["compare"], **odd})


@sizes(80, 3000)
def test_any_field_of_a_comparison(count):
    fields = [
        (kind, one.name) for kind in (jdfl.Entry, jdfl.Tuning, jdfl.Experiment) for one in dataclasses.fields(kind)
    ]
    names = {"methods", "grid", "seed", "trials"}
    strategy = st.tuples(st.sampled_from(fields), st.sampled_from(odds()))
    fuzz(count, strategy, lambda one: judged(lambda: compared(*one[0], one[1]), {one[0][1], *names}, one))


def test_what_is_no_run_is_refused_by_name():
    """What was taken, or failed inside, before arguments of runs were held against their annotations."""
    compare: dict[str, Any] = {"problem": None, "network": 3, "trials": np.array(3.5), "metrics": {}, "progress": "x"}
    compare |= {"measure": lambda: 0, "batch": True, "delta": -1, "epsilon": []}
    wrong = {
        "run": {"callbacks": [1], "resume": "x", "options": {"chunk": 3}, "metrics": [lambda: 0]},
        "compare": compare,
        "repeat": {"keys": np.array(3.5), "problem": "x", "steps": 2.5},
        "sweep": {"batch": "x", "metrics": -1, "stop": 3},
    }
    for name, arguments in wrong.items():
        for argument, value in arguments.items():
            with words.refused(argument):
                FUNCTIONS[name](**{**GOOD[name], argument: value})
    for field, value in {"grids": None, "extend": 10**30, "keys": 3}.items():
        with words.refused(field):
            compared(jdfl.Tuning, field, value)


@pytest.mark.parametrize("of", ["stop rules", "times"])
def test_odd_stop_rules_and_times(of):
    def taken(given: Any) -> None:
        if of == "times":
            network.timed(RING(), given())
        else:
            start.check_run(jdfl.DPSGD(), PROBLEM(), RING(), 2, 1, given())

    for one in TIMES if of == "times" else STOPS:
        for field in dataclasses.fields(one):
            for value in odds()[:: 1 if of == "times" else 4]:
                odd = {field.name: value}
                make = lambda one=one, odd=odd: one(**odd) if of == "times" else dataclasses.replace(one, **odd)  # noqa: E731
                judged(lambda make=make: taken(make), {field.name}, (one, odd))


def test_what_is_no_path_is_refused_by_name():
    readers = [getattr(problems, f"read_{name}") for name in ("cifar10", "idx", "libsvm", "mnist", "qsar")]
    for read in (*readers, jdfl.read_checkpoint):
        (name, *_) = inspect.signature(read).parameters
        rest = () if read is not jdfl.read_checkpoint else (jdfl.DPSGD(), PROBLEM(), RING())
        for value in odds():
            if not isinstance(value, str):
                with words.refused(name) as error:
                    read(value, *rest)
                assert not unclean(error.value)


def test_data_that_has_no_minimum_is_refused():
    for bad in (-1, 0.5, 10**9, np.inf):
        with words.refused("labels", "labels[3]"):
            problems.holdout(X, np.where(np.arange(24) == 3, bad, Y), 0.25)
    odd = [X[:12].copy(), X[12:].copy()]
    odd[1][2, 1] = np.nan
    regression = problems.linear_regression(odd, [X[:12, 0], X[12:, 0]])
    classes = problems.logistic_regression([(x, y) for x, y in zip(odd, (Y[:12], Y[12:]))])
    asked = {"optimum": (), "sparse_optimum": (1,), "value_at": (np.zeros(3),)}
    for problem in (regression, classes):
        for name, more in asked.items():
            with words.refused("features", "node 1"):
                getattr(problems, name)(problem, *more)
    words.each_refused(network.matrices, {"rounds": -3}, {"rounds": 0}, network=RING(), purpose="a schedule")
