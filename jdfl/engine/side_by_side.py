"""Several runs of asynchronous methods at once: those that differ in their keys alone share their waves.

Axes: m nodes, n parameters.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from jax import Array

from jdfl.arrays.ops import from_limbs
from jdfl.engine.loop import Carry, Record
from jdfl.engine.metrics import Metric
from jdfl.engine.stepping import Setting
from jdfl.engine.waves import Run, Waves, advance
from jdfl.events.faults import links, with_times


def whole(
    settings: Sequence[Setting], steps: int, every: int, metrics: tuple[Metric, ...], batch: int
) -> list[tuple[Array, Carry, Record, Record]]:
    """Runs from start to end: parameters [m, n], counters, the record of the start, and the other records.

    Runs that differ in their keys alone go side by side, up to `batch` of them; those with codecs, which have constants
    of their runs, one after another. The counts of the records run on from the start.
    """
    found = list[tuple[Array, Carry, Record, Record]]()
    for some in _alike(settings, steps, metrics, batch):
        ends = advance([run for run, _ in some], steps, every, metrics)
        for (carry, later), (run, first) in zip(ends, some):
            begun = {name: from_limbs(np.asarray(part)) for name, part in first.counts.items()}
            later = replace(later, counts={name: part + begun[name] for name, part in later.counts.items()})
            params = run.setting.algorithm.params(carry.state)
            found.append((params, jax.device_get(replace(carry, state=None)), first, later))
    return found


def _alike(
    settings: Sequence[Setting], steps: int, metrics: tuple[Metric, ...], batch: int
) -> Iterator[list[tuple[Run, Record]]]:
    """Begun runs in groups that go side by side, with their records of the start."""
    group, common = list[tuple[Run, Record]](), None
    for setting in settings:
        waves = Waves(steps)
        program, carry, first = waves.start(setting, metrics)
        run = Run(waves, carry, replace(setting, algorithm=program))
        same = replace(program, plan=None, prepared=replace(program.prepared, own=None))  # these are table sizes
        shared = same, setting.problem, links(with_times(setting.network, program.algorithm.title))
        if group and (len(group) == batch or not _same(common, shared)):
            yield group
            group = []
        group, common = [*group, (run, jax.device_get(first))], shared
    yield group


def _same(one: Any, other: Any) -> bool:
    """Whether two trees are equal, bit for bit."""
    leaves, structure = jax.tree.flatten(one)
    others, structure_too = jax.tree.flatten(other)
    return structure == structure_too and all(
        mine is theirs or (np.shape(mine) == np.shape(theirs) and np.array_equal(np.asarray(mine), np.asarray(theirs)))
        for mine, theirs in zip(leaves, others)
    )
