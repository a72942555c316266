"""The outcomes of runs that are lanes of one program, as the files of a job, so that they need not be made again.

outcomes.npz   the parameters, the last counters and the records of every run
outcomes.json  the types of these arrays, and the seconds
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from jdfl.engine import loop
from jdfl.engine.clock import Spent
from jdfl.store.jobs import Jobs, name_of

_COUNTERS = [one.name for one in fields(loop.Carry) if one.name not in ("state", "counts", "clock")]
_NAME = "outcomes"
Outcome = tuple[Any, loop.Carry, loop.Record, loop.Record]  # as `trials.executed` gives it


def outcomes(
    jobs: Jobs | None, about: Callable[[], Any], make: Callable[[], tuple[Sequence[Outcome], Spent]]
) -> tuple[Sequence[Outcome], Spent]:
    """What `make` returns, or what it has returned before where that is kept."""
    if jobs is None:
        return make()
    made: list[tuple[Sequence[Outcome], Spent]] = []

    def keep(folder: Path) -> None:
        made[:] = [make()]
        _write(folder, *made[0])

    place = jobs.done(name_of(about()), keep)
    return made[0] if made else _read(place)


def _write(folder: Path, made: Sequence[Outcome], spent: Spent) -> None:
    arrays = {f"{i}.{name}": array for i, one in enumerate(made) for name, array in _taken_apart(*one).items()}
    types = {name: array.dtype.name for name, array in arrays.items()}
    with (folder / f"{_NAME}.npz").open("wb") as file:
        flat: Any = {name: np.frombuffer(array.tobytes(), np.uint8) for name, array in arrays.items()}
        np.savez(file, **flat)
    shapes = {name: list(array.shape) for name, array in arrays.items()}
    told = {"runs": len(made), "types": types, "shapes": shapes, "spent": spent._asdict()}
    (folder / f"{_NAME}.json").write_text(json.dumps(told), encoding="utf-8")


def _read(folder: Path) -> tuple[list[Outcome], Spent]:
    told = json.loads((folder / f"{_NAME}.json").read_text(encoding="utf-8"))
    with np.load(folder / f"{_NAME}.npz", allow_pickle=False) as file:
        arrays = {
            name: file[name].view(jnp.dtype(told["types"][name])).reshape(told["shapes"][name]) for name in file.files
        }
    runs: list[dict[str, np.ndarray]] = [{} for _ in range(told["runs"])]
    for name, array in arrays.items():
        place, _, rest = name.partition(".")
        runs[int(place)][rest] = array
    return [_put_together(one) for one in runs], Spent(**told["spent"])


def _taken_apart(params: Any, carry: loop.Carry, first: loop.Record, rest: loop.Record) -> dict[str, np.ndarray]:
    """The arrays of an outcome by name; of the carry what a result is made of."""
    found: dict[str, Any] = {"params": params, **{f"carry.{name}": getattr(carry, name) for name in _COUNTERS}}
    found |= {f"clock.{i}": one for i, one in enumerate(carry.clock or ())}
    for when, record in (("first", first), ("rest", rest)):
        found[f"{when}.rounds"] = record.rounds
        for kind in ("metrics", "counts"):
            found |= {f"{when}.{kind}.{name}": one for name, one in getattr(record, kind).items()}
    return {name: np.asarray(one) for name, one in jax.device_get(found).items()}


def _put_together(arrays: dict[str, Any]) -> Outcome:
    """The inverse of `_taken_apart`."""

    def within(prefix: str) -> dict[str, Any]:
        return {name.removeprefix(prefix): one for name, one in arrays.items() if name.startswith(prefix)}

    first, rest = (
        loop.Record(arrays[f"{when}.rounds"], within(f"{when}.metrics."), within(f"{when}.counts."))
        for when in ("first", "rest")
    )
    clock: Any = tuple(within("clock.").values()) or None
    carry = loop.Carry(**within("carry."), state=None, counts=cast(Any, None), clock=clock)
    return jnp.asarray(arrays["params"]), carry, first, rest
