"""Nodes over eight H100s that are not there: memory, what they exchange in a round and need, and 10^8 nodes.

Run `python -m benchmarks.together [--quick] [--out DIR]`; ten minutes.

The program that `jdfl.Options(devices=8)` runs is compiled for eight H100s (`benchmarks.shared`), and what one device
does in a round is counted: kernels, bytes in its memory, bytes that come from other devices by the kind of exchange.
That is compared with what the network says: every row of another device's nodes that the device's nodes receive, once.
The time is a model's (`benchmarks.roofline`), with NVLink at 450 GB/s each way; exchanges overlap with nothing. Nothing
has run on eight devices.

The plan for 10^8 nodes is derived in the same way: where a device's memory goes, rounds per second, and the smallest
number of H100s that have room.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks import aot, hlo, methods, roofline, shared
from benchmarks.aot import H100, Size
from benchmarks.common import Options, Row, benchmark, row
from benchmarks.methods import Method

NEEDS = ("jax_cuda13_plugin",)
RESULT = (
    "On a ring, 10^8 nodes with noise and 100 parameters take {10^8 nodes, D-PSGD, noise, batches of 1, eight nearest"
    " on a ring, n=100 q=1, 8 devices -> memory at its peak} GB on each GPU."
)
LIMIT = (
    "DSGT on the ring: all devices subtract the row of node 0, which makes differences exact near consensus. They "
    "gather a row of every device for it: little compared with other traffic, but as much as the few rows of this "
    "halo. CEPS exchanges the rows of all nodes of the halo, also of those that send nothing in a round."
)
DEVICES = 8
METHODS = (methods.PLAIN, methods.NOISY, methods.TRACKING, methods.PUSHING, methods.CHOCO, methods.WHOLE)
EVERYONE, PLANNED = 10**8, (100, 20)  # nodes, and numbers of parameters, of the plan
MOST = 64  # devices that are tried for it


@dataclass(frozen=True)
class Found:
    """One round on one of several devices."""

    round: roofline.Round
    needed: float  # bytes that the device's nodes need of others
    parts: dict[str, float]  # bytes of what is given, by what it is

    @property
    def ratio(self) -> float:
        """The bytes that come from other devices, over those that are needed."""
        return sum(self.round.cost.received.values()) / self.needed


def counted(method: Method, size: Size, kind: shared.Kind, devices: int = DEVICES) -> Found:
    """What a round does on one of several H100s.

    Args:
        method: The method.
        size: Nodes, parameters and examples.
        kind: The network.
        devices: How many devices share the nodes.

    Raises:
        UnknownError: For a program in which fewer bytes are counted than a device needs.
    """
    made = shared.compiled(H100, method.settings, size, kind, devices)
    channels = len(method.settings.channels)
    found = Found(roofline.counted(made.program, H100), 4.0 * size.n * channels * made.needed, made.parts)
    if found.ratio < 1:
        raise hlo.UnknownError(
            f"Expected {found.needed:.4g} bytes from other devices at least, counted {found.ratio:.3g} of them."
        )
    return found


def show(method: Method, size: Size, kind: shared.Kind) -> list[Row]:
    """The rows of a method on a network; the dearest kernels are printed."""
    found = counted(method, size, kind)
    cost = found.round.cost
    case = f"{method.name}, {kind.name}, m={size.m:,} n={size.n} q={size.q}, {DEVICES} devices"
    print(f"{case}:")
    for spent, one in roofline.dearest(cost, H100)[:5]:
        print(f"  {1e3 * spent:8.3f} ms  {one.times:g} x {one.bytes / 1e9:.3g} GB  {one.name}  {one.place}")
    return [
        row(case, "kernels a round", [cost.launches], ""),
        row(case, "moved in memory", [cost.bytes / 1e9], "GB"),
        row(case, "moved in memory / least without exchanges", [found.round.traffic], "x"),
        *(row(case, f"received by {name}", [came / 1e6], "MB") for name, came in cost.received.items()),
        row(case, "the halo's rows", [found.needed / 1e6], "MB"),
        row(case, "received / halo", [found.ratio], "x", "<= 1.1"),
        row(case, "memory at its peak", [found.round.program.peak / 1e9], "GB"),
        row(case, "rounds a second, by the model", [1 / found.round.seconds], "1/s"),
    ]


def plan(kind: shared.Kind, n: int) -> list[Row]:
    """Where memory goes with 10^8 nodes on eight H100s, and how many have room."""
    size = Size(EVERYONE, n, 1)
    found = counted(methods.NOISY, size, kind)
    program = found.round.program
    case = f"10^8 nodes, {methods.NOISY.name}, {kind.name}, n={n} q=1"
    here = f"{case}, {DEVICES} devices"
    parts = found.parts | {"temporary": program.temporary, "new results": program.results}
    return [
        *(row(here, f"memory: {name}", [part / 1e9], "GB") for name, part in parts.items()),
        row(here, "memory: received rows, in the temporary", [found.ratio * found.needed / 1e9], "GB"),
        row(here, "memory at its peak", [program.peak / 1e9], "GB", f"<= {H100.memory / 1e9:g}"),
        row(here, "received / halo", [found.ratio], "x", "<= 1.1"),
        row(here, "rounds a second, by the model", [1 / found.round.seconds], "1/s"),
        row(
            case,
            "H100s that have room",
            [fewest(kind, size, DEVICES * (found.parts["state"] + found.parts["data"]))],
            "",
        ),
    ]


def fewest(kind: shared.Kind, size: Size, given: float) -> int:
    """The smallest number of H100s that have room for a run of noisy D-PSGD.

    Args:
        kind: The network.
        size: Nodes, parameters and examples.
        given: Bytes of state and data on all devices together: no fewer devices are tried than have room for that.

    Raises:
        ValueError: Where none of up to 64 devices is enough.
    """
    for devices in range(max(1, math.ceil(given / H100.memory)), MOST + 1):
        peak = shared.compiled(H100, methods.NOISY.settings, size, kind, devices).program.peak
        print(f"  {devices} devices: {peak / 1e9:.3g} GB on each")
        if peak <= H100.memory:
            return devices
    raise ValueError(f"Expected at most {MOST} devices, got too little memory on as many.")


def _rows(quick: bool) -> Iterator[list[Row]]:
    kinds = shared.KINDS[:1] if quick else shared.KINDS
    for method in METHODS[:1] if quick else METHODS:
        for kind in kinds:
            yield show(method, methods.QUICK if quick else methods.MOST, kind)
    for n in () if quick else PLANNED:
        for kind in kinds:
            yield plan(kind, n)


@benchmark("Nodes over eight H100s")
def main(chosen: Options) -> list[Row]:
    aot.environment()
    try:
        H100.topology()
    except RuntimeError as error:
        raise SystemExit(str(error)) from error
    rows: list[Any] = [one for rows in _rows(chosen.quick) for one in rows]
    return rows


if __name__ == "__main__":
    main()
