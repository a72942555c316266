"""Pieces of events on the device: rows are gathered, computed together, and written back into donated tables.

Several runs at once are lanes: their tables are one below the other, and their events are one list, merged by time.
Rows of different runs are different rows, so that waves hold events of all runs, and what a run computes does not
depend on the others.

Axes: m nodes, E events, P pieces, b events of a piece, C columns of rows, d slots of the table of in-neighbours, L
lanes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jdfl.algorithms.round import Prepared, Round
from jdfl.base import schedules, struct
from jdfl.base.marking import sent
from jdfl.base.streams import Keys
from jdfl.events.event import Event, Instant, Neighbours, Notes
from jdfl.events.plan import Plan
from jdfl.events.timeline import NOTHING, Events, Kind, Touch, by_column
from jdfl.problems import Problem

if TYPE_CHECKING:
    from jdfl.events.method import AsyncMethod

Tables = Mapping[str, Any]  # trees with leaves [rows, ...], and under "happened" how many events have happened, []


@struct.dataclass
class Given:
    """What all events of a run are computed with."""

    problem: Problem
    prepared: Prepared
    keys: Keys  # of the run, or with a leading axis of several
    weight: Array  # [m, d] weights of the links


def execute(
    method: "AsyncMethod", tables: Tables, given: Given, plan: Plan, events: Events, lane: np.ndarray | None = None
) -> Tables:
    """The tables after the events of a plan; those before are given up."""
    ordered = events[plan.order]
    own = None if lane is None else _steady(lane[plan.order])
    columns = (*(_steady(one) for one in (ordered.actor, ordered.count, ordered.rows, ordered.data)), own)
    pieces = _steady(plan.start), _steady(plan.size)
    for kind, width, first, last in plan.runs():
        tables = _run(method, dict(tables), given, pieces, columns, first, last, kind=kind, width=width)
    return tables


def _steady(column: np.ndarray) -> Array:
    """The rows of a column, filled up to a power of two, so that few programs serve all numbers."""
    size = 1 << max(10, (len(column) - 1).bit_length())
    filled = np.zeros((size, *column.shape[1:]), column.dtype)
    filled[: len(column)] = column
    return jax.device_put(filled)  # asarray would compile a program for every shape


@partial(jax.jit, static_argnames=("kind", "width"), donate_argnums=(1,))
def _run(
    method: "AsyncMethod",
    tables: dict[str, Any],
    given: Given,
    pieces: tuple[Array, Array],
    columns: tuple[Array, Array, Array, Array, Array | None],
    first: int,
    last: int,
    *,
    kind: int,
    width: int,
) -> dict[str, Any]:
    """The tables after the pieces from `first` to before `last`, all of one kind and width."""
    actor, count, rows, data, lane = columns

    def piece(p: Array, tables: dict[str, Any]) -> dict[str, Any]:
        place = pieces[0][p] + jnp.arange(width, dtype=jnp.int32)
        there = place < pieces[0][p] + pieces[1][p]
        row = rows.at[place].get(mode="clip")
        present = there[:, None] & (row >= 0)
        node = actor.at[place].get(mode="clip")
        run = None if lane is None else lane.at[place].get(mode="clip")
        instant = Instant.of(given.keys, node, count.at[place].get(mode="clip"), kind, run)
        known = jnp.where(present, row, 0), present, data.at[place].get(mode="clip")
        return happen(method, tables, kind, Event(given.problem, given.prepared, instant, *known), given.weight[node])

    return lax.fori_loop(first, last, piece, tables)


def happen(method: "AsyncMethod", tables: dict[str, Any], kind: int, event: Event, weight: Array) -> dict[str, Any]:
    """The tables after events of one kind that touch different rows, or only read the same."""
    what, (row, present) = method.kinds[kind], (event.row, event.present)
    count: Any = event.instant.count
    method = schedules.at(method, lambda one: jax.vmap(one)(count)[:, None].astype(event.problem.dtype))  # [b, 1]

    def taken(c: int) -> Any:
        touch = what.touches[c]
        if touch.table == NOTHING:
            return None
        if touch.many:
            return Neighbours(_seen(touch, tables[touch.table]), row[:, c:], present[:, c:], weight)
        return _seen(touch, jax.tree.map(lambda leaf: leaf[row[:, c]], tables[touch.table]))

    made = method.handle(what.name, tuple(taken(c) for c in range(len(what.touches))), event)
    for c, (touch, new) in enumerate(zip(what.touches, made, strict=True)):
        if touch.mode != "r":
            table = _written(tables[touch.table], _seen(touch, new), present[:, c], row[:, c])
            tables = tables | {touch.table: table}
    return tables


def _seen(touch: Touch, rows: Any) -> Any:
    """The rows, marked as sent where they may be another node's: a guarantee must not rest on what a handler marks."""
    if touch.own:
        return rows
    return jax.tree.map(lambda leaf: sent(leaf, f"table {touch.table}"), rows)


def of_every_node(method: "AsyncMethod", tables: dict[str, Any], kind: int, round: Round, notes: Notes) -> Event:
    """One event of a kind at every node at once, whose other rows are those of the next nodes; for statements."""
    touches, graph, columns = method.kinds[kind].touches, round.graph, list[Array]()
    for c, touch in enumerate(touches):
        if touch.many:
            columns += list(graph.senders.T)
        else:
            turn = sum(touch.table == other.table for other in touches[:c])
            rows = round.m if touch.table == NOTHING else jax.tree.leaves(tables[touch.table])[0].shape[0]
            columns.append((round.node + turn) % rows)
    row = jnp.stack(columns, axis=1).astype(jnp.int32)
    keys = Keys.of(round.context.key) if round.context.roots is None else round.context.roots
    instant = Instant.of(keys, round.node, jnp.zeros_like(round.node), kind)
    return Event(round.problem, round.prepared, instant, row, row >= 0, row[:, 0] * 0, notes)


def _written(table: Any, new: Any, present: Array, row: Array) -> Any:
    """The table with new rows; those of events that are not there are dropped."""

    def write(leaf: Array, value: Array) -> Array:
        return leaf.at[jnp.where(present, row, leaf.shape[0])].set(value.astype(leaf.dtype), mode="drop")

    return jax.tree.map(write, table, new)


def merged(parts: Sequence[Events], kinds: Sequence[Kind], heights: Mapping[str, int]) -> tuple[Events, np.ndarray]:
    """The events of several runs in the order of time, with the rows of stacked tables, and their lanes [E] int32."""
    lane = np.repeat(np.arange(len(parts), dtype=np.int32), [len(one) for one in parts])
    joined: Any = {
        one.name: np.concatenate([getattr(part, one.name) for part in parts])
        for one in fields(Events)
        if one.name != "sizes"
    }
    whole = Events(**joined)
    for number, kind in enumerate(kinds):
        height = np.array([heights[touch.table] for touch in by_column(kind, whole.rows.shape[1])], np.int32)
        here = (whole.kind == number)[:, None] & (np.arange(whole.rows.shape[1]) < len(height)) & (whole.rows >= 0)
        wide = np.resize(height, whole.rows.shape[1])
        whole.rows[...] = np.where(here, whole.rows + lane[:, None] * wide, whole.rows)
    order = np.argsort(whole.time, kind="stable")  # of equal times those of one run keep their order
    return whole[order], lane[order]


def stacked(parts: Sequence[Tables], m: int) -> tuple[dict[str, Any], dict[str, int]]:
    """The tables of several runs with m nodes, one below the other, and how many rows of each belong to one run.

    Tables of messages are as long as the longest; the number of rows under `NOTHING` is that of the nodes.
    """
    found, heights = dict[str, Any](), {NOTHING: m}
    for name in parts[0]:
        high = max(jax.tree.leaves(part[name])[0].shape[0] for part in parts)

        def longer(leaf: jax.Array, high: int = high) -> jax.Array:
            return jnp.concatenate([leaf, jnp.zeros((high - leaf.shape[0], *leaf.shape[1:]), leaf.dtype)])

        found[name] = jax.tree.map(
            lambda *leaves: jnp.concatenate(leaves), *(jax.tree.map(longer, part[name]) for part in parts)
        )
        heights[name] = high
    return found, heights


def heights_of(tables: Tables, m: int) -> dict[str, int]:
    """The number of rows of every table of runs with m nodes, from tables with a leading axis of runs."""
    return {NOTHING: m} | {name: jax.tree.leaves(table)[0].shape[1] for name, table in tables.items()}


def apart(tables: Tables, lanes: int) -> list[dict[str, Any]]:
    """The tables of every run, from those of several runs one below the other."""

    def lane(leaf: jax.Array, i: int) -> jax.Array:
        return leaf.reshape(lanes, -1, *leaf.shape[1:])[i]

    return [jax.tree.map(partial(lane, i=i), dict(tables)) for i in range(lanes)]
