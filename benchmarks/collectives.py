"""What one start of a collective operation moves: in the device's memory, and over its links from other devices."""

import re
from typing import NamedTuple

from benchmarks.hlo_text import Operation, UnknownError

_PARTS = {  # what a device of d receives from others, and what it has then, over what it gives
    "all-gather": lambda d: (d - 1.0, float(d)),
    "all-reduce": lambda d: (2 * (d - 1) / d, 1.0),  # in a ring: sums of parts go round, then the parts
    "all-to-all": lambda d: ((d - 1) / d, 1.0),
    "collective-permute": lambda d: (1.0, 1.0),
    "reduce-scatter": lambda d: ((d - 1) / d, 1.0 / d),
}
NAMES = {*_PARTS, *(f"{name}-start" for name in _PARTS)}


class Exchange(NamedTuple):
    """One start of a collective operation on a device."""

    name: str
    moved: float  # bytes that it reads and writes in memory
    received: float  # bytes that come from other devices, where the most come


def exchange(one: Operation, operands: list[Operation]) -> Exchange | None:
    """What an operation exchanges; None for one that is no collective operation.

    Args:
        one: The operation.
        operands: What it reads.

    Raises:
        UnknownError: For a collective operation whose devices are not in the text.
    """
    name, given = one.opcode.removesuffix("-start"), sum(item.bytes for item in operands)
    if name not in _PARTS:
        return None
    received, held = _PARTS[name](1 if name == "collective-permute" else _devices(one))
    return Exchange(name, given * (1 + held), given * received)


def _devices(one: Operation) -> int:
    """How many devices take part together."""
    if found := re.search(r"replica_groups=\{\{([\d,]+)\}", one.more):
        return found[1].count(",") + 1
    if found := re.search(r"replica_groups=\[\d+,(\d+)\]", one.more):
        return int(found[1])
    raise UnknownError(f"Expected the devices of {one.name}, got {one.more[:300]}")
