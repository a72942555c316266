"""Objects of a wrong kind in every setting of every algorithm are refused by name before anything is traced."""

import dataclasses
import re
from collections.abc import Callable
from typing import Any
from unittest.mock import MagicMock

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import strategies as st

import jdfl
from jdfl import observers, testing
from jdfl.algorithms import REGISTRY
from jdfl.engine import loop, start
from tests.fuzz.calls import CLIPPED, NEEDED, PROBLEM, RING, SETTINGS, Odd, odds
from tests.fuzz.judge import fuzz, sizes, unclean
from tests.later import Later

pytestmark = pytest.mark.filterwarnings("ignore")  # of odd settings, at length


class Duck:
    """Something that has every attribute."""

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **named: self


class Raises:
    """Something whose attributes raise what they like."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)


class Unprintable:
    """Something that cannot be shown."""

    def __repr__(self) -> str:
        raise RuntimeError("no text")


OBJECTS: list[Any] = [
    *("x", "", 3, -1.5, float("nan"), True, None, b"x", 1j, {}, {"batch": 2}, [], [1], (), set(), range(3), Ellipsis),
    *(lambda w, round: w, len, type, jdfl, object(), Odd, Odd(), Duck(), Raises(), Unprintable(), MagicMock()),
    *(Exception("x"), NotImplemented, np.array(3.0), np.zeros(3), np.array(["a"]), np.str_("a"), np.ma.masked),
    *(jnp.zeros(3), jax.random.key(0), optax.sgd(0.1), optax.adam, jdfl.consensus_below(0.1), jdfl.DPPS()),
    *(jdfl.Gradients, jdfl.Gradients(), (jdfl.Gradients(),), [jdfl.Gradients()], {"gradients": jdfl.Gradients()}),
    *(jdfl.Updates, jdfl.Updates(clip=1.0), jdfl.Dense, jdfl.Dense(), jdfl.Sparse(), jdfl.DPSGD(), jdfl.FedAvg()),
    *(jdfl.Gaussian, jdfl.Gaussian(1.0), jdfl.Laplace(1.0), jdfl.ExactGaussian(1.0)),
]
Make = Callable[[Any], Any]


def places() -> dict[tuple[str, str], Make]:
    """Every field of every algorithm and other setting, and of the gradients and updates of every algorithm."""
    found: dict[tuple[str, str], Make] = {}
    for name, (kind, given, into) in SETTINGS.items():
        for one in dataclasses.fields(kind):
            found[name, one.name] = lambda value, kind=kind, given=given, into=into, field=one.name: into(
                kind(**{**given, field: value})
            )
    inner = {"gradients": (jdfl.Gradients, CLIPPED), "updates": (jdfl.Updates, {"clip": 1.0})}
    for name, kind in REGISTRY.items():
        for owner, (part, given) in inner.items():
            for one in dataclasses.fields(part) if owner in kind.__dataclass_fields__ else ():
                found[name, f"{owner}.{one.name}"] = (
                    lambda value, kind=kind, owner=owner, part=part, given=given, field=one.name: kind(
                        **NEEDED.get(kind, {}), **{owner: part(**{**given, field: value})}
                    )
                )
    return found


PLACES = Later(places)
GRADIENTS = [(name, "gradients") for name, kind in REGISTRY.items() if "gradients" in kind.__dataclass_fields__]
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


class BegunError(BaseException):
    """Nothing was refused."""


@pytest.fixture(autouse=True)
def begun(monkeypatch):
    """What begins a run raises `BegunError` instead."""

    def begin(*arguments: Any) -> None:
        raise BegunError

    monkeypatch.setattr(start, "require_memory", lambda *arguments: None)  # which takes long
    monkeypatch.setattr(loop, "start", begin)


def tried(place: tuple[str, str], value: Any, door: str = "run", *others: str) -> bool:
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


@pytest.mark.rotated(6)
@pytest.mark.parametrize("place", GRADIENTS, ids=lambda place: place[0])
def test_no_wrong_object_is_taken_as_gradients(place):
    taken = [value for value in OBJECTS if tried(place, value)]
    assert [type(value) for value in taken] == [jdfl.Gradients]


@sizes(50, 5000)
def test_wrong_objects_are_refused_at_all_doors(count):
    """Two of the doors know no network, and compare kinds only."""

    def doors(place: tuple[str, str], value: Any) -> None:
        if not tried(place, value):
            for door in DOORS:
                if door not in ("audit_bits", "privacy") or place in GRADIENTS:
                    tried(place, value, door)

    some = [*GRADIENTS, *sorted(PLACES())]
    fuzz(count, st.tuples(st.sampled_from(some), st.sampled_from(OBJECTS)), lambda one: doors(*one))


@sizes(300, 4000)
def test_any_object_in_any_setting(count):
    def check(one: tuple[tuple[str, str], tuple[bool, Any]]) -> None:
        place, (odd, value) = one
        fields = [field.name for field in dataclasses.fields(SETTINGS[place[0]][0])]
        tried(place, value, *(["check_run", *fields] if odd else []))

    values = [(False, one) for one in OBJECTS] + [(True, one) for one in odds()]
    fuzz(count, st.tuples(st.sampled_from(sorted(PLACES())), st.sampled_from(values)), check)


@pytest.mark.slow
@pytest.mark.parametrize("name", SETTINGS)
def test_every_object_in_every_setting(name):
    for place in PLACES():
        if place[0] == name:
            for value in OBJECTS:
                tried(place, value)


@pytest.mark.slow
def test_what_is_taken_runs(monkeypatch):
    """No object, numbers aside, passes the checks and fails inside."""
    taken = [
        (place, value)
        for place in PLACES()
        for value in OBJECTS
        if not isinstance(value, int | float | np.ndarray | jax.Array) and value is not None and tried(place, value)
    ]
    monkeypatch.undo()
    assert len(taken) > 100
    for place, value in taken:
        tried(place, value)
