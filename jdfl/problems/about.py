"""What a problem is in words: its short text and table, and the names of its classes and features.

Nothing here takes part in a computation.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from jdfl.base.names import Alike, Names

_WIDE = 60  # characters of a list of names


@dataclass(frozen=True, eq=False, repr=False)
class About(Alike):
    """Where the examples of a problem come from, and the names of its nodes."""

    task: str = ""  # such as "classification"
    partition: str = ""  # how the examples were split over the nodes
    classes: tuple[Any, ...] = ()  # the label of class 0, 1, ...
    features: tuple[str, ...] = ()  # names of columns
    nodes: Names | None = None  # names of nodes
    start: float | None = None  # checksum of the parameters that the problem was made with

    def __repr__(self) -> str:
        """A few words, since JAX prints it in messages about structures."""
        return f"About({self.task or self.partition})"


def named(names: Names) -> str:
    """Some names in one line, the first of them where there are many."""
    line = ""
    for i, name in enumerate(names):
        word = ("" if i == 0 else ", ") + str(name)
        if len(line) + len(word) > _WIDE:
            return f"{line}, ..." if line else f"{word[:_WIDE]} ..."
        line += word
    return line


def rows(problem: Any) -> Iterator[tuple[str, str]]:
    """Title and text of every line; what a problem lacks, as inside of a trace, has no line."""
    about: About = problem.about
    if about.task:
        yield "task", about.task
    with suppress(Exception):
        sizes = np.sum(np.asarray(problem.weight) > 0, axis=1)
        names = f": {named(about.nodes)}" if about.nodes else ""
        yield "nodes", f"{len(sizes):,}{names}"
        least, middle, most = sizes.min(), float(np.median(sizes)), sizes.max()
        spread = f"{least:,}" if least == most else f"{least:,} to {most:,}, median {middle:,.6g}"
        yield "examples per node", f"{spread}; {sizes.sum():,} in total"
    with suppress(Exception):
        shared = "" if problem.n_shared == problem.n else f", {problem.n_shared:,} of them shared"
        yield "parameters", f"{problem.n:,}{shared}"
    classes = len(about.classes) or getattr(problem, "classes", 0)
    if classes:
        yield "classes", f"{classes:,}" + (f": {named(about.classes)}" if about.classes else "")
    leaves = jax.tree.leaves(problem.test)
    yield "test examples", f"{np.shape(leaves[-1])[0]:,}" if leaves and np.shape(leaves[-1]) else "none"
    if about.partition:
        yield "data partition", about.partition
    with suppress(Exception):
        yield "type", str(problem.weight.dtype)
