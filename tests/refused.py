"""What a refusal must say: the argument, its value, and a sentence; not which words."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest


@contextmanager
def refused(*named: str | type[Exception], **values: Any) -> Iterator[pytest.ExceptionInfo[Exception]]:
    """The block raises a ValueError (or the class among `named`): a sentence with each name and each `name = value`."""
    kinds = tuple(name for name in named if isinstance(name, type)) or (ValueError,)
    with pytest.raises(kinds) as caught:
        yield caught
    said = str(caught.value)
    wanted = [name for name in named if isinstance(name, str)] + [
        f"{name} = {value!r}" for name, value in values.items()
    ]
    if missing := [name for name in wanted if not re.search(rf"(?<!\w){re.escape(name)}(?!\w)", said)]:
        pytest.fail(f"The refusal does not name {missing}: {said}")
    if not said[:1].isupper() or (said.rstrip()[-1:] not in ".!?)`" and "://" not in said.split()[-1]):
        pytest.fail(f"The refusal is not a sentence: {said}")


def each_refused(door: Callable[..., Any], *wrong: dict[str, Any], **right: Any) -> None:
    """Each of `wrong`, with the other arguments `right`, is refused by `door`, which names argument and value."""
    for row in wrong:
        with refused(**row):
            door(**(right | row))


def all_refused(*rows: tuple[Any, ...]) -> None:
    """The first of each row, when it is called, is refused; `refused` has the rest of the row."""
    for call, *named in rows:
        with refused(*named):
            call()
