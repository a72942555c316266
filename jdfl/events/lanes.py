"""Several runs at once: their tables are one below the other, and their events are one list, merged by time.

Rows of different runs are different rows, so that waves hold events of all runs. What a run computes does not depend on
the others.

Axes: L runs (lanes), E events of all of them, C columns of rows, m nodes of each.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jdfl.events.timeline import Events
from jdfl.events.touches import NOTHING, Kind, by_column

Tables = Mapping[str, Any]


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
