"""What the laws need to know of a registered algorithm, and how a row says it by hand."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

import jdfl
from jdfl.algorithms import REGISTRY

ROUNDS = 13  # of the plays in which messages, gradients and releases are counted
Consensus = Callable[[Any, Any], Any]  # (prepared algorithm, problem) -> state with all nodes at its truth
Count = Callable[[Any, np.ndarray, int], dict[str, Any]]  # (prepared, adjacency, rounds) -> sent by channel, counts [m]


@dataclass(frozen=True)
class Row:
    """What the laws need to know of an algorithm."""

    name: str  # its key in REGISTRY
    algorithm: Any
    exact: Any  # the algorithm with hardly any noise, and messages that arrive as they are
    message_bits: dict[str, int]  # by hand, for n = 20
    count: Count
    nonzeros: int = 20  # most nonzeros of a node's parameters
    swept: str = "lr"  # a float field that changes the result
    label: str = ""
    shared: int | None = None  # leading parameters that the problem has in common; None: all
    consensus_state: Consensus | None = None  # None: the state of `init` where all nodes begin at the truth
    claimed: bool = False  # whether its noise gives a guarantee; see tests/privacy/test_flow.py, too

    def __str__(self) -> str:
        """Its test id."""
        return self.label or self.name


def counted(
    bits: dict[str, int], grads: int, talks: int = ROUNDS, releases: int | None = None, others: int = 0
) -> Count:
    """Of every node in 13 rounds: gradients, messages to each neighbour, and releases; None: one for every gradient.

    Where `others` is one, a number goes to every other node in every round.
    """

    def count(program: Any, adjacency: np.ndarray, rounds: int) -> dict[str, Any]:
        assert rounds == ROUNDS
        m = len(adjacency)
        noisy = getattr(getattr(program.algorithm, "gradients", None), "mechanism", None) is not None
        sent = dict.fromkeys(bits, talks * (adjacency != 0).sum(axis=0))
        return {
            "sent": sent | ({"sensitivity": np.full(m, (m - 1) * rounds)} if others else {}),
            "communications": np.full(m, talks),
            "grads": np.full(m, grads),
            "releases": np.full(m, grads * noisy if releases is None else releases),
        }

    return count


def row(
    algorithm: Any,
    label: str = "",
    *,
    bits: int | dict[str, int] = 640,
    grads: int = ROUNDS,
    talks: int = ROUNDS,
    releases: int | None = None,
    exact: dict[str, Any] | None = None,
    kind: type[Row] = Row,
    count: Count | None = None,
    **given: Any,
) -> Any:
    """The row of a method.

    Args:
        algorithm: Its settings, on which all laws are tried.
        label: The id of the row; empty: the title of the method.
        bits: The size of a message, of the channel "model" or by channel.
        grads: The gradients of a node in 13 rounds.
        talks: How often a node sends to every neighbour, on every channel, in 13 rounds.
        releases: What a node releases in 13 rounds; None: every gradient that has noise.
        exact: The settings in which the exact method differs, besides the size of gradients' noise and the codec.
        kind: The class of the row.
        count: Counts by hand where they are others.
        given: Other fields of the row.
    """
    has, gradients = {one.name for one in fields(algorithm)}, getattr(algorithm, "gradients", None)
    quiet: dict[str, Any] = {"codec": jdfl.Dense()} if hasattr(algorithm, "codec") else {}
    if gradients is not None and gradients.mechanism is not None:  # a number: the same program
        quiet["gradients"] = replace(gradients, mechanism=replace(gradients.mechanism, multiplier=1e-12))
    quiet = {name: value for name, value in (quiet | (exact or {})).items() if name in has}
    sizes = bits if isinstance(bits, dict) else {"model": bits}
    return kind(
        name=next(name for name, kind in REGISTRY.items() if type(algorithm) is kind),
        algorithm=algorithm,
        exact=replace(algorithm, **quiet),
        message_bits=sizes,
        count=count or counted(sizes, grads, talks, releases),
        label=label or algorithm.title,
        **given,
    )
