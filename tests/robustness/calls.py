"""Wrong arguments: every public function and class refuses them by name, or takes them."""

import contextlib
import dataclasses
import inspect
import itertools
import shutil
import traceback
from collections.abc import Callable, Iterable
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import scipy.sparse as sp

import jdfl
from jdfl import observers
from jdfl.engine import loop, start
from tests.fuzz import calls as fuzz_calls
from tests.fuzz.calls import GOOD, OBJECTS, PLACES, PROBLEM, RING, SETTINGS, Odd, functions, odds
from tests.fuzz.judge import TAKEN, begin, judged
from tests.fuzz.test_fuzz_arguments import OWN
from tests.robustness.outcomes import SILENT, TRACEBACK, WrongError

THEIRS = "an error that the argument itself raises"
OBJECT = object()
NOTHING: list[Any] = [Odd, Odd(), OBJECT]  # which nothing takes, but what takes anything
MORE: list[Any] = [10**400, -(10**30), 2**32, 1e-300, Fraction(1, 3), bytearray(b"x"), np.float64(np.inf), np.int8(-1)]
MORE += [jax.random.PRNGKey(0), jnp.zeros((2, 0)), jnp.array(True), np.zeros((1, 1, 1, 1)), np, slice(3), [[[]]], {3}]
MORE += [np.full(3, np.nan), np.void(b"x"), np.zeros(2, [("a", "<f8")]), np.array([[1], [2, 3]], object), iter([1])]
MORE += [pd.Series([1.0, None]), pd.DataFrame({"a": [1, "x"]}), pd.NA, pd.Timestamp(0), pd.Categorical(["a", "b"])]
MORE += [sp.eye_array(3), [[1.0], "x"], {"a": np.zeros(2)}, Path("x"), "\0", "é" * 2000, " ", "../x", itertools.count()]
OF_COMPARISONS: dict[str, dict[str, Any]] = {
    **{name: {"x": "round"} for name in ("at", "view", "tuned_at")},
    **{name: {} for name in ("values", "differences", "table", "grid", "plot")},
    **{name: {"label": "a"} for name in ("mark", "note", "runs")},
    "report": {"path": "page.html"},
}
Call = tuple[Callable[..., Any], dict[str, Any], set[str]]  # a function, its good arguments, names that count as named


def calls(folder: Path) -> dict[str, Callable[[], Call]]:
    """Good calls of public functions, settings and methods by their names; `folder` is that of a run."""
    result, compared = jdfl.load(folder), jdfl.compare(**GOOD["compare"])
    plan = {"algorithm": jdfl.DPSGD(), "problem": PROBLEM(), "network": RING(), "steps": 2}
    known: dict[str, Callable[..., Call]] = {
        name: lambda name=name, one=one: (one, GOOD[name], set()) for name, one in functions().items() if name in GOOD
    }
    for name, (kind, given, into) in SETTINGS.items():
        made = _into(lambda one, into=into: _check(into(one)), kind)
        known[f"setting {name}"] = lambda made=made, kind=kind, given=given: (made, _fields(kind, given), set())
    more: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
        "load": (jdfl.load, {"folder": folder}),
        "read_checkpoint": (jdfl.read_checkpoint, {"folder": folder} | {name: plan[name] for name in list(plan)[:3]}),
        "account": (jdfl.account, {"result": result, "delta": 1e-5}),
        "spent_together": (jdfl.spent_together, {"results": [result]}),
        "observe": (jdfl.observe, plan | {"observer": observers.Everyone(), "steps": 1}),
        "Deadline": (jdfl.Deadline, {"seconds": 1.0}),
        "Checkpoints": (jdfl.Checkpoints, {"folder": "x", "every": None, "minutes": None}),
        "Result.save": (_saved(result), {"folder": "saved"}),
        "Result.report": (result.report, {"path": "page.html"}),
        "Options": (_into(lambda one: jdfl.run(**plan, options=one), jdfl.Options), _fields(jdfl.Options, {})),
        "Tuning": (
            _into(lambda one: jdfl.compare(**GOOD["compare"] | {"tuning": one}), jdfl.Tuning),
            _fields(jdfl.Tuning, {"keys": (7,), "extend": 0}),
        ),
        "Entry": (
            _into(lambda one: jdfl.compare(**GOOD["compare"] | {"methods": {"a": one}}), jdfl.Entry),
            _fields(jdfl.Entry, {"algorithm": jdfl.DPSGD()}),
        ),
        "Experiment": (_into(lambda one: one.run(), jdfl.Experiment), GOOD["compare"]),
        "Result.plot": (result.plot, {}),
        **{f"Comparison.{name}": (getattr(compared, name), given) for name, given in OF_COMPARISONS.items()},
        "Comparison.save": (_saved(compared), {"folder": "saved"}),
    }
    return known | {name: lambda one=one: (*one, set(one[1])) for name, one in more.items()}


def _fields(kind: Any, given: dict[str, Any]) -> dict[str, Any]:
    """The good fields of a class: those given, and defaults."""
    usual = {one.name: one.default for one in dataclasses.fields(kind) if one.init}
    return {name: value for name, value in usual.items() if value is not dataclasses.MISSING} | given


def _into(use: Callable[[Any], Any], kind: Any) -> Callable[..., Any]:
    """What takes the fields of a class, and uses the object that they make."""
    return lambda **given: use(kind(**given))


def _check(algorithm: Any) -> None:
    start.check_run(algorithm, PROBLEM(), RING(), 2, 1, None)


def _saved(result: Any) -> Callable[..., Any]:
    """`Result.save` into a folder that is not there yet."""

    def save(**given: Any) -> Any:
        shutil.rmtree("saved", ignore_errors=True)
        return result.save(**given)

    return save


def changed(known: dict[str, Callable[[], Call]], values: list[Any], draw: Random) -> str:
    """One call with one or two wrong arguments."""
    if draw.random() < 0.15:
        place, value = draw.choice(sorted(PLACES())), draw.choice(values)
        call = lambda **given: _check(PLACES()[place](*given.values()))  # noqa: E731
        return outcome(str(place), call, {place[1].rpartition(".")[2]: value}, APART)
    name = draw.choice(list(known))
    function, good, names = known[name]()
    parameters = inspect.signature(function).parameters.values()
    free = [one.name for one in parameters if one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL)] or sorted(good)
    chosen = draw.sample(free, min(len(free), 1 if draw.random() < 0.7 else 2))
    wrong = {argument: draw.choice(values) for argument in chosen}
    if any((name, argument) in OWN and callable(value) for argument, value in wrong.items()):
        return TAKEN
    real = draw.random() < 0.1 and not set(wrong) & LONG
    with contextlib.ExitStack() as stack:
        if not real:
            stack.enter_context(mock.patch.object(start, "require_memory"))  # which takes long
            for begins in ("start", "lanes"):
                stack.enter_context(mock.patch.object(loop, begins, begin))
        return outcome(name, lambda **given: function(**good | given), wrong, {*free, *names, *good, *APART})


LONG = {"steps", "keys", "trials", "tuning", "budget", "over", "chunk", "every", "problem", "methods", "batch"}
APART = {"clip", "size for Sparse", "grid", "grids", "seed", "label"}  # named where they are what is wrong
LATER = {"all_of", "consensus_below", "gradient_below", "objective_below"}  # refused when a run begins


def outcome(name: str, call: Callable[..., Any], wrong: dict[str, Any], names: Iterable[str]) -> str:
    """What comes of a call with these arguments in exchange; WrongError for what must not."""
    what = f"{name}({', '.join(f'{argument}={_shown(value)}' for argument, value in wrong.items())})"
    try:
        found = judged(lambda: call(**wrong), {*wrong, *names}, (name, what))
    except AssertionError as error:
        if traceback.extract_tb(error.__cause__.__traceback__)[-1].filename == fuzz_calls.__file__:
            return THEIRS  # of the object that was given
        raise WrongError(TRACEBACK, str(error)) from error
    if found == TAKEN and name not in LATER and any(value is one for value in wrong.values() for one in NOTHING):
        raise WrongError(SILENT, f"it was taken: {what}")
    return found


def _shown(value: Any) -> str:
    try:
        return f"{type(value).__name__} {value!r:.80}"
    except Exception:
        return type(value).__name__


def attacks(few: bool = False) -> Callable[[Random], str]:
    """An attack by a call; the run whose folder is read is made in the current folder."""
    jdfl.run(jdfl.DPSGD(), PROBLEM(), RING(), key=0, steps=2).save("whole")
    jdfl.run(jdfl.DPSGD(), PROBLEM(), RING(), key=0, steps=2, callbacks=[jdfl.Checkpoints("kept")])
    known, values = calls(Path("whole")), [*odds(), *OBJECTS, *MORE, *NOTHING]  # many are right somewhere
    return lambda draw: changed(known, values, draw)
