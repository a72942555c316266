"""Kinds of problems and networks that every trial of a comparison redraws with its own seed."""

import dataclasses
from typing import Any, Literal

import jax

from jdfl.config import Kind
from jdfl.problems import Problem

_MOST_DATA = 2**31  # bytes of the problems of all trials, up to which data are redrawn by default


def redrawn_by_default(problem: Problem, trials: int) -> tuple[Literal["data", "network"], ...]:
    """What every trial redraws by default: data and network, but no data of more than 2 GiB in all trials."""
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(problem)) * trials
    return ("network",) if size > _MOST_DATA else ("data", "network")


def drawn(kind: Kind, redraw: bool, **given: int) -> Any:
    """What a kind builds, or a function that builds it with a trial's seed."""
    return (lambda seed: _with_seed(kind, seed).build(**given)) if redraw and _has_seed(kind) else kind.build(**given)


def _has_seed(kind: Kind) -> bool:
    parts = {field.name: getattr(kind, field.name) for field in dataclasses.fields(kind)}
    return "seed" in parts or any(isinstance(part, Kind) and _has_seed(part) for part in parts.values())


def _with_seed(kind: Kind, seed: int) -> Kind:
    """The kind with this seed, its own and those of its parts."""
    parts = {field.name: getattr(kind, field.name) for field in dataclasses.fields(kind)}
    changed: dict[str, Any] = {name: _with_seed(part, seed) for name, part in parts.items() if isinstance(part, Kind)}
    return dataclasses.replace(kind, **changed, **({"seed": seed} if "seed" in parts else {}))
