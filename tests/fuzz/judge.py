"""What may come of bad input: a result, or an error that jdfl itself raises, in words, with what was expected."""

import os
import re
import sysconfig
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import jdfl

LONGEST = 1500  # characters of a message
SLOWEST = 60.0  # seconds of one input
_PACKAGE = str(Path(jdfl.__file__).parent) + os.sep
_STANDARD = sysconfig.get_path("stdlib") + os.sep
_WORDS = ("Expected ", "Unknown ", "Could not ")


def unclean(error: BaseException) -> str:
    """What is wrong with an error; nothing if it is as promised."""
    if not isinstance(error, ValueError | OSError):
        return f"{type(error).__name__} is none of the errors that are promised"
    frames = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    while frames and isinstance(error, OSError) and error.filename and _standard(frames[-1]):
        frames.pop()  # the system's own words, which name the file
    if not frames or not frames[-1].startswith(_PACKAGE):
        return f"raised in {frames[-1] if frames else 'no file'}"
    text = str(error)
    if isinstance(error, OSError) and error.filename:
        return ""
    if not any(word in text for word in _WORDS):
        return "it does not say what was expected"
    if len(text) > LONGEST:
        return f"its message has {len(text)} characters"
    return ""


def tried(call: Callable[[], Any], what: object) -> Any:
    """What `call` returns, or the clean error that it raises; AssertionError, with the input, for anything else."""
    begun, found = time.monotonic(), None
    try:
        found = call()
    except Exception as error:
        wrong = unclean(error)
        if wrong:
            raise AssertionError(f"{wrong}: {type(error).__name__}: {str(error)[:300]!r} of {what!r:.600}") from error
        found = error
    spent = time.monotonic() - begun
    assert spent < SLOWEST, f"{spent:.0f} seconds for {what!r:.600}"
    return found


class BegunError(BaseException):
    """Nothing was refused, and work that is not done here would begin."""


def begin(*_: Any, **__: Any) -> None:
    """In the place of work that is not done here."""
    raise BegunError


REFUSED, TAKEN, BEGINS = "refused by name", "taken", "taken, and a run would begin"
RELATIONS = ("components", "examples", "nodes", "node", "bases", "data")  # what several arguments make together
MINIMA = ("problems.optimum", "problems.sparse_optimum")  # say by RuntimeError that none was found


def judged(make: Callable[[], Any], names: set[str], what: tuple[Any, ...]) -> str:
    """What comes of it; AssertionError for an error that is none of jdfl's, in words, that names one of these."""
    try:
        make()
    except BegunError:
        return BEGINS
    except Exception as error:
        if (what[0] in MINIMA and isinstance(error, RuntimeError)) or (isinstance(error, OSError) and error.filename):
            return REFUSED
        as_value = ValueError(*error.args).with_traceback(error.__traceback__)
        wrong = unclean(as_value if isinstance(error, TypeError) else error)
        if not any(re.search(rf"\b{re.escape(name)}\b", str(error)) for name in {*names, *RELATIONS}):
            wrong = wrong or "it names no argument"
        if wrong:
            raise AssertionError(f"{wrong}: {error!r:.400} of {what!r:.300}") from error
        return REFUSED
    return TAKEN


def sizes(quick: int, slow: int) -> pytest.MarkDecorator:
    """A test's argument `count`: few inputs every time, many when slow tests are run."""
    many = pytest.param(slow, id=f"{slow}", marks=pytest.mark.slow)
    return pytest.mark.parametrize("count", [pytest.param(quick, id=f"{quick}"), many])


def fuzz(count: int, strategy: st.SearchStrategy[Any], check: Callable[[Any], object]) -> None:
    """`check` of so many values, the same ones every time."""

    @settings(
        max_examples=count,
        derandomize=True,
        deadline=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def each(value: Any) -> None:
        check(value)

    each()


def _standard(file: str) -> bool:
    return file.startswith(_STANDARD) and "site-packages" not in file
