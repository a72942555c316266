"""Names of nodes, and labels of rows and columns: read, compared and aligned. Host only.

Axes: m nodes.
"""

import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import numpy as np

from jdfl.base import checks

Names: TypeAlias = tuple[Any, ...] | range
_SHOWN = 5  # labels in a message


class Alike:
    """Words for people: all values of a class are equal, so that they never compile a program again.

    The equality of an object that holds them must never rest on them.
    """

    def __eq__(self, other: object) -> bool:
        """Whether the other one is of this class."""
        return type(other) is type(self)

    def __hash__(self) -> int:
        """The same for all."""
        return hash(type(self))


@dataclass(frozen=True, eq=False)
class NodeNames(Alike):
    """The names of the nodes of a graph."""

    names: Names | None = None

    def __repr__(self) -> str:
        """A few words, since JAX prints it in messages about structures."""
        return "NodeNames()" if self.names is None else f"NodeNames({shown(self.names)})"


def names_of(argument: str, given: Any, m: int | None = None) -> Names:
    """Different names of m nodes as Python's values, a range where they are 0 .. m-1 in this order; else ValueError."""
    if isinstance(given, range) and given == range(len(given)) and m in (None, len(given)):
        return given
    if isinstance(given, str | bytes | set | frozenset) or not hasattr(type(given), "__iter__"):
        checks.refuse(f"{argument} to be a list of names", argument, given, "Their order is that of the nodes.")
    labels: list[Any] = cast(Any, given).tolist() if hasattr(given, "tolist") else list(given)
    found = tuple(map(_name, labels))
    if m is not None and len(found) != m:
        raise ValueError(f"Expected {m} names in {argument}, one for every node, got {len(found)}.")
    for i, one in enumerate(found):
        if one is None or one != one or isinstance(one, list | dict | set):
            raise ValueError(f"Expected names of nodes in {argument}, got {argument}[{i}] = {checks.text(one)}.")
    if len(set(found)) < len(found):
        twice, times = Counter(found).most_common(1)[0]
        raise ValueError(
            f"Expected a different name for every node in {argument}, got {twice!r} {times} times. Rename one, or join "
            "the examples of both."
        )
    numbers = all(type(one) is int for one in found) and found == tuple(range(len(found)))
    return range(len(found)) if numbers else found


def _name(one: Any) -> Any:
    """A label as text, a whole number, or what a file can hold of it."""
    one = _plain(one)
    if isinstance(one, float) and one.is_integer():
        return int(one)
    return one if one is None or isinstance(one, str | int | float | tuple | list | dict | set) else str(one)


def _plain(one: Any) -> Any:
    return one.item() if isinstance(one, np.generic) else one


def shown(labels: Any) -> str:
    """Some labels in a message."""
    some = [repr(_plain(one)) for one in list(labels[:_SHOWN])]
    return ", ".join(some) + (f", ... ({len(labels)} in all)" if len(labels) > _SHOWN else "")


def order_of(want: Names, own: Names, words: tuple[str, str]) -> np.ndarray | None:
    """The places [m] in `own` of the names in `want`; None where both have one order, ValueError for other names."""
    if want == own:
        return None
    place, wanted = {name: i for i, name in enumerate(own)}, set(want)
    alone = [name for name in want if name not in place], [name for name in own if name not in wanted]
    if not any(alone):
        return np.array([place[name] for name in want], np.int64)
    parts = [f"{shown(some)} in the {word} alone" for some, word in zip(alone, words) if some]
    remedy = f"Rename nodes, or pair them by position: {words[1]}.named({words[0]}.node_names)."
    if set(map(str, want)) == set(map(str, own)):
        remedy = "They are text in one and numbers in the other: convert one of them, for example with astype(str)."
    raise ValueError(
        f"Expected the same names of nodes in the {words[0]} and the {words[1]}, got {' and '.join(parts)}. {remedy}"
    )


def labelled(value: Any) -> Any:
    """A table of another library as one of pandas, with its names of columns; any other value as it is."""
    columns = getattr(value, "columns", None)
    if hasattr(value, "to_pandas") and np.ndim(value) in (1, 2):
        return value.to_pandas()
    if isinstance(columns, list | tuple) and not hasattr(value, "iloc") and np.shape(value)[1:] == (len(columns),):
        import pandas as pd

        return pd.DataFrame(np.asarray(value), columns=columns)
    return value


def unlabelled(value: Any) -> Any:
    """A table of pandas as an array; any other value as it is."""
    value = labelled(value)
    return value if isinstance(value, Mapping) or labels_of(value) is None else value.to_numpy()


def labels_of(value: Any, axis: int = 0) -> Any:
    """The index (0) or the columns (1) of an object of pandas, the keys of a mapping; None for what has no labels."""
    if isinstance(value, Mapping):
        return None if axis else _index(value)
    value = labelled(value)
    if "pandas" not in sys.modules or not hasattr(value, "iloc"):
        return None
    found = getattr(value, ("index", "columns")[axis], None)
    return found if isinstance(found, sys.modules["pandas"].Index) else None


def names_in(argument: str, value: Any) -> Names | None:
    """The names of nodes in the index or keys of a table; None for one without, or whose index pandas has counted."""
    index = labels_of(value)
    return None if index is None or type(index).__name__ == "RangeIndex" else names_of(argument, index)


def _index(labels: Any) -> Any:
    import pandas as pd

    return pd.Index(np.arange(len(labels)) if isinstance(labels, range) else list(labels), tupleize_cols=False)


def _counted(index: Any) -> bool:
    """Whether an index is 0, 1, 2, ... as pandas gives it to rows or columns without labels."""
    return type(index).__name__ == "RangeIndex" and (index.start, index.step) == (0, 1)


def aligned(name: str, value: Any, labels: Any, source: str, *, axis: int = 0) -> Any:
    """The value with its rows (axis 0) or columns (1) in the order of `labels`; ValueError for other labels.

    A value without labels stays as it is, and so does one whose labels pandas has counted. A mapping becomes the list
    of its values.
    """
    value = labelled(value)
    own = labels_of(value, axis)
    if own is None or labels is None:
        return value
    want = labels if hasattr(labels, "get_indexer") else _index(labels)
    if len(own) == len(want) and own.equals(want):
        return list(value.values()) if isinstance(value, Mapping) else value
    line, drop = ("rows", f"use {name}.reset_index(drop=True)") if axis == 0 else ("columns", f"use {name}.to_numpy()")
    if isinstance(value, Mapping):
        line, drop = "keys", "give a list in this order"
    counted = _counted(own) or _counted(want)
    for index, where in ((own, name), (want, source)):
        if not index.is_unique and not counted:
            twice = index[index.duplicated()][0]
            raise ValueError(
                f"Expected different labels of the {line} of {where} to put {name} in the order of {source}, got "
                f"{twice!r} several times. Make them unique, or {drop}."
            )
    extra, missing = own.difference(want, sort=False), want.difference(own, sort=False)
    same = not (len(extra) or len(missing)) and len(own) == len(want)
    if counted:
        if same:
            raise ValueError(
                f"Expected the {line} of {name} in the order of {source}, got the same labels in another order. Labels "
                "0, 1, 2, ... may be pandas' default, so that it is not clear which order is meant. Put both in one "
                f"order by .loc, or {drop}."
            )
        return value
    if not same:
        pairs = ((extra, f"in {name} alone"), (missing, "missing"))
        parts = [f"{shown(some)} {where}" for some, where in pairs if len(some)]
        raise ValueError(
            f"Expected the {line} of {name} with the labels of {source}, got {' and '.join(parts)}. Give the same "
            f"labels in both, or {drop}."
        )
    if isinstance(value, Mapping):
        return [value[one] for one in want]
    place = own.get_indexer(want)
    return value.iloc[place] if axis == 0 else value.iloc[:, place]
