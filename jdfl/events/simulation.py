"""Runs of asynchronous methods.

Axes: m nodes, n parameters, r records.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from jdfl.base.streams import Keys
from jdfl.events.execution import execute, one_by_one
from jdfl.events.method import AsyncMethod, Instant, Tables
from jdfl.events.plan import Plan, planned
from jdfl.events.timeline import Events
from jdfl.network import Static, Timed
from jdfl.problems import Problem


class Simulated(NamedTuple):
    """What a run computed, and what happened in it."""

    params: np.ndarray  # [r, m, n] at every record
    tables: Tables  # at the end
    events: Events
    plans: list[Plan]  # of every window


def simulate(
    method: AsyncMethod,
    problem: Problem,
    network: Timed,
    *,
    key: Array,
    seconds: float,
    records: Sequence[float] = (),
    ordered: bool = False,
) -> Simulated:
    """Run an asynchronous method until a time.

    Args:
        method: The method.
        problem: What the nodes learn.
        network: A fixed network whose nodes take time, from `jdfl.network.timed`.
        key: The key [] of the run.
        seconds: The end, in simulated seconds.
        records: Times of records, rising: all events until then have happened, and none later. The end is one more.
        ordered: Execute one event after another, which gives the same and is slow.

    Raises:
        ValueError: For a network that changes, and gradients of examples that are chosen by the number of the round.
    """
    base = network.base
    if not isinstance(base, Static):
        raise ValueError(
            f"Expected a fixed network with times, got {network!r}. For example timed(ring(8), FixedTime(1))."
        )
    if method.gradients.sampling in ("epochs", "in order"):
        raise ValueError(
            f"Expected examples that do not depend on the number of a round, got sampling = "
            f"{method.gradients.sampling!r}. Events have no rounds; use 'replacement', 'subset' or 'poisson'."
        )
    keys = Keys.of(key)
    clock = network.in_run(keys.network, 0)
    events = method.events(base.graph, clock, keys.network, seconds)
    node = jnp.arange(problem.m, dtype=jnp.int32)
    prepared = method.prepared(problem, Instant.of(keys, node, jnp.zeros_like(node)))
    tables, given = method.tables(problem), (problem, prepared, keys)
    params, plans, first = list[np.ndarray](), list[Plan](), 0
    for second in (*records, seconds):
        window = events[first : events.until(second)]
        first += len(window)
        plan = one_by_one(window, len(method.kinds)) if ordered else planned(window, method.kinds)
        tables = execute(method, tables, given, plan, window)
        params.append(np.asarray(method.params(tables)))
        plans.append(plan)
    return Simulated(np.stack(params), tables, events, plans)
