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
from jdfl import codecs, network, observers, problems, testing
from jdfl.algorithms import REGISTRY
from jdfl.engine import loop, start
from tests import refused as words
from tests.fuzz.calls import (
    ELSEWHERE,
    FUNCTIONS,
    GOOD,
    GRADIENTS,
    OBJECTS,
    PLACES,
    PROBLEM,
    RING,
    SETTINGS,
    X,
    Y,
    functions,
    odds,
)
from tests.fuzz.judge import fuzz, sizes, unclean

pytestmark = pytest.mark.filterwarnings("ignore")  # of odd settings, at length
RELATIONS = ("components", "examples", "nodes", "node", "bases", "data")  # what several arguments make together
OWN = {  # may be functions, whose errors are a person's own
    ("compare", "progress"),
    ("problems.neural_classification", "shared"),
}
MINIMA = ("problems.optimum", "problems.sparse_optimum")  # say by RuntimeError that none was found


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


DOORS: dict[str, Callable[[Any], Any]] = {
    "run": lambda made: jdfl.run(made, PROBLEM(), RING(), steps=1),
    "check_run": lambda made: start.check_run(made, PROBLEM(), RING(), 2, 1, None),
    "account_plan": lambda made: jdfl.account_plan(made, PROBLEM(), RING(), steps=2),
    "planned_releases": lambda made: jdfl.planned_releases(made, PROBLEM(), RING(), steps=2),
    "calibrate": lambda made: jdfl.calibrate(made, PROBLEM(), RING(), steps=2, epsilon=3.0),
    "paths": lambda made: jdfl.paths(made, PROBLEM(), RING()),
    "observe": lambda made: jdfl.observe(made, PROBLEM(), RING(), observers.Everyone(), steps=2),
    "audit": lambda made: jdfl.audit(made, PROBLEM(), RING(), steps=1, runs=100),
    "audit_bits": lambda made: jdfl.audit_bits(made, PROBLEM(), runs=100),
    "audit_one_run": lambda made: jdfl.audit_one_run(made, PROBLEM(), RING(), steps=1),
    "check_algorithm": testing.check_algorithm,
    "check": lambda made: made.check(PROBLEM(), RING()),
    "privacy": lambda made: made.privacy(PROBLEM()),
}


BEGIN = ("observe", "audit", "audit_one_run", "check_algorithm")


def objected(place: tuple[str, str], value: Any, door: str = "run", *others: str) -> bool:
    """Whether the object is taken; AssertionError where it is refused without words, or by a run without its name."""
    try:
        DOORS[door](PLACES()[place](value))
    except BegunError:
        return True
    except Exception as error:
        wrong = unclean(ValueError(*error.args).with_traceback(error.__traceback__))
        if not isinstance(error, ValueError | TypeError):
            wrong = f"a {type(error).__name__}"
        known = (place[1].rpartition(".")[2], "clip", "size for Sparse", *others)  # noise without a clip; a codec
        if (
            not wrong
            and door in ("run", "check_run")
            and not any(re.search(rf"\b{re.escape(name)}\b", str(error)) for name in known)
        ):
            wrong = "it does not name the field"
        if wrong:
            raise AssertionError(f"{wrong}: {error!r:.300} of {type(value).__name__} as {place} in {door}") from error
        return False
    return True


@sizes(150, 5000)
def test_wrong_objects_are_refused_at_all_doors(count):
    """Two of the doors know no network, and compare kinds only."""

    def check(one: tuple[tuple[str, str], tuple[bool, Any]]) -> None:
        place, (odd, value) = one
        fields = [field.name for field in dataclasses.fields(SETTINGS[place[0]][0])]
        if not objected(place, value, *(["check_run", *fields] if odd else [])) and not odd:
            for door in DOORS:
                if door not in ("audit_bits", "privacy") or place in GRADIENTS:
                    assert not objected(place, value, door) or door not in BEGIN, (place, value, door)

    values = [(False, one) for one in OBJECTS] + [(True, one) for one in odds()]
    some = [*GRADIENTS, *sorted(PLACES())]
    fuzz(count, st.tuples(st.sampled_from(some), st.sampled_from(values)), check)
