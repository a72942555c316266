"""Pieces of events on the device: rows are gathered, computed together, and written back into donated tables.

Axes: E events, P pieces, b events of a piece, C columns of rows.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jdfl.algorithms.sending import Prepared
from jdfl.base.streams import Keys
from jdfl.events.method import AsyncMethod, Happening, Instant, Tables
from jdfl.events.plan import WIDTHS, Plan, arranged
from jdfl.events.timeline import Events
from jdfl.problems import Problem


def execute(
    method: AsyncMethod, tables: Tables, given: tuple[Problem, Prepared, Keys], plan: Plan, events: Events
) -> Tables:
    """The tables after the events of a plan; those before are given up.

    Args:
        method: The method.
        tables: Its tables.
        given: The problem, what the method has prepared, and the keys of the run.
        plan: The plan of the events.
        events: The events, in the order of time.
    """
    ordered = events[plan.order]
    columns = tuple(_steady(one) for one in (ordered.actor, ordered.count, ordered.rows))
    pieces = _steady(plan.start), _steady(plan.size)
    for kind, width, first, last in plan.runs():
        tables = _run(method, dict(tables), given, pieces, columns, first, last, kind=kind, width=width)
    return tables


def one_by_one(events: Events, kinds: int) -> Plan:
    """The plan that executes one event after another, which defines what every other plan must give."""
    return arranged(events, np.arange(1, len(events) + 1, dtype=np.int32), kinds, WIDTHS[:1])


def _steady(column: np.ndarray) -> Array:
    """The rows of a column, filled up to a power of two, so that few programs serve all numbers."""
    size = 1 << max(10, (len(column) - 1).bit_length())
    return jnp.asarray(np.concatenate([column, np.zeros((size - len(column), *column.shape[1:]), column.dtype)]))


@partial(jax.jit, static_argnames=("kind", "width"), donate_argnums=(1,))
def _run(
    method: AsyncMethod,
    tables: dict[str, Any],
    given: tuple[Problem, Prepared, Keys],
    pieces: tuple[Array, Array],
    columns: tuple[Array, Array, Array],
    first: int,
    last: int,
    *,
    kind: int,
    width: int,
) -> dict[str, Any]:
    """The tables after the pieces from `first` to before `last`, all of one kind and width."""
    problem, prepared, keys = given
    actor, count, rows = columns
    touches = method.kinds[kind].touches

    def piece(p: Array, tables: dict[str, Any]) -> dict[str, Any]:
        place = pieces[0][p] + jnp.arange(width, dtype=jnp.int32)
        there = place < pieces[0][p] + pieces[1][p]
        row = rows.at[place].get(mode="clip")[:, : len(touches)]
        present = there[:, None] & (row >= 0)
        row = jnp.where(present, row, 0)
        node = actor.at[place].get(mode="clip")
        instant = Instant.of(keys, node, count.at[place].get(mode="clip"))
        taken = tuple(
            jax.tree.map(lambda leaf, c=c: leaf[row[:, c]], tables[touch.table]) for c, touch in enumerate(touches)
        )
        made = method.handle(method.kinds[kind].name, taken, Happening(problem, prepared, instant, row, present))
        for c, (touch, new) in enumerate(zip(touches, made, strict=True)):
            if touch.mode != "r":
                tables = tables | {touch.table: _written(tables[touch.table], new, present[:, c], row[:, c])}
        return tables

    return lax.fori_loop(first, last, piece, tables)


def _written(table: Any, new: Any, present: Array, row: Array) -> Any:
    """The table with new rows; those of events that are not there are dropped."""

    def write(leaf: Array, value: Array) -> Array:
        return leaf.at[jnp.where(present, row, leaf.shape[0])].set(value.astype(leaf.dtype), mode="drop")

    return jax.tree.map(write, table, new)
