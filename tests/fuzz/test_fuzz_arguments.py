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
from tests.fuzz.judge import BegunError, begin, fuzz, judged, sizes, unclean

pytestmark = pytest.mark.filterwarnings("ignore")  # of odd settings, at length
OWN = {  # may be functions, whose errors are a person's own
    ("compare", "progress"),
    ("problems.neural_classification", "shared"),
}


def places() -> list[tuple[str, str]]:
    """Every argument of every function."""
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    signatures = {name: inspect.signature(function).parameters.values() for name, function in FUNCTIONS.items()}
    return [(name, one.name) for name, told in signatures.items() for one in told if one.kind not in kinds]


@pytest.fixture(autouse=True)
def begun(monkeypatch, tmp_path):
    """What begins a run raises `BegunError` instead."""

    monkeypatch.chdir(tmp_path)  # checkpoints of odd names
    monkeypatch.setattr(start, "require_memory", lambda *arguments: None)  # which takes long
    for name in ("start", "lanes"):
        monkeypatch.setattr(loop, name, begin)


def call(name: str, argument: str, value: Any) -> None:
    """The good call with one argument in exchange."""
    if (name, argument) not in OWN or not callable(value):
        names = set(inspect.signature(FUNCTIONS[name]).parameters)
        judged(lambda: FUNCTIONS[name](**{**GOOD[name], argument: value}), names, (name, argument, value))


LONG = re.compile(r"plann|calibrate|account|noise_mult|neural|classification|random_geo|erdos|floor|model|load|loss")
EACH = [name for name in FUNCTIONS if not LONG.search(name)]


def test_every_public_function_and_setting_is_fed():
    assert set(functions()) >= ELSEWHERE
    codecs_of = {value for name in codecs.__all__ if isinstance(value := getattr(codecs, name), type)}
    assert {*REGISTRY.values(), *codecs_of} - {codecs.Codec, codecs.Wire} <= {kind for kind, _, _ in SETTINGS.values()}


@pytest.mark.slow
def test_the_good_calls_are_good():
    for name in EACH:
        with contextlib.suppress(BegunError):
            FUNCTIONS[name](**GOOD[name])


@sizes(600, 20_000)
def test_any_argument(count):
    call("network.from_matrix", "W", {})  # which pandas was taken for
    some = [place for place in places() if count > 10_000 or place[0] in EACH]
    fuzz(count, st.tuples(st.sampled_from(some), st.sampled_from(odds())), lambda one: call(*one[0], one[1]))


def test_what_is_no_path_is_refused_by_name():
    readers = [getattr(problems, f"read_{name}") for name in ("cifar10", "idx", "leaf", "libsvm", "mnist", "qsar")]
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


def test_a_wrong_object_is_refused_at_all_doors():
    for door, use in DOORS.items():
        for wrong in ({"gradients": "x"}, {"gradients": jdfl.Gradients}, {"gradients": jdfl.Gradients(batch="x")}):
            with words.refused(ValueError, TypeError) as error:
                use(jdfl.DPSGD(**wrong))
            assert not unclean(ValueError(*error.value.args).with_traceback(error.tb)), door


@sizes(60, 5000)
def test_any_setting(count):
    """Every field of every algorithm, codec, mechanism and of its gradients."""
    rest = {"clip", "size for Sparse"}  # noise without a clip; a codec

    def check(one: tuple[tuple[str, str], Any]) -> None:
        (owner, field), value = one
        fields = {one.name for one in dataclasses.fields(SETTINGS[owner][0])}
        names = {field.rpartition(".")[2], *fields, *rest}
        judged(lambda: start.check_run(PLACES()[one[0]](value), PROBLEM(), RING(), 2, 1, None), names, one)

    some = [*GRADIENTS, *sorted(PLACES())]
    fuzz(count, st.tuples(st.sampled_from(some), st.sampled_from([*OBJECTS, *odds()])), check)
