"""Compiled programs as text (XLA's HLO): which kernels one pass through them starts, and the bytes that these move.

Only what is in the text is counted: an operand of a kernel is read once, of a slice the sectors of memory that it
touches, of a gather the rows that it takes; a result is written once, of an update in place only the update. Loops
count as often as they turn. An unknown operation is an error: what is not understood would be counted as
nothing.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod

from benchmarks.collectives import NAMES, exchange
from benchmarks.hlo_text import Array, Computation, Operation, Source, UnknownError, branches, part

SECTOR = 32  # bytes that a memory access moves at least
_FREE = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "opt-barrier", "partition-id"}
_FREE |= {"replica-id", "copy-done", "slice-done", "async-done", "async-update", "get-dimension-size", "add-dependency"}
_MOVES = {"broadcast", "reshape", "transpose", "copy", "concatenate", "pad", "slice", "reverse", "iota", "gather"}
_MOVES |= {"dynamic-slice", "dynamic-update-slice", "copy-start", "bitcast-convert", "slice-start", "dynamic-reshape"}
_ALU = {"add", "subtract", "multiply", "divide", "remainder", "maximum", "minimum", "and", "or", "xor", "not", "negate"}
_ALU |= {"abs", "sign", "compare", "select", "clamp", "convert", "floor", "ceil", "round-nearest-even", "is-finite"}
_ALU |= {"shift-left", "shift-right-logical", "shift-right-arithmetic", "count-leading-zeros", "popcnt"}
_ALU |= {"exponential", "exponential-minus-one", "log", "log-plus-one", "sqrt", "rsqrt", "cbrt", "power", "tanh", "erf"}
_ALU |= {"sine", "cosine", "tan", "atan2", "logistic", "round-nearest-afz", "reduce-precision", "real", "imag"}
_SUMS = {"reduce", "reduce-window", "dot", "convolution", "scatter", "select-and-scatter", "sort", "map", "topk"}
_SUMS |= {"rng-bit-generator", "rng-get-and-update-state", "cholesky", "triangular-solve", "fft"}
_CALLS = {"fusion", "call", "async-start", "custom-call"}
_KNOWN = _FREE | _MOVES | _ALU | _SUMS | _CALLS | NAMES | {"while", "conditional"}
_STAGE = 12  # operations on an entry in one stage of a sorting network; an H200 took 44 ps for rows of 1,000
_DONE = re.compile(r".*-done$")


@dataclass(frozen=True)
class Kernel:
    """A kernel, as often as one round starts it."""

    name: str
    place: str  # where in jdfl it comes from
    times: float
    bytes: float  # that one start moves
    ints: float = 0.0  # operations of one start
    floats: float = 0.0
    collective: str = ""  # the kind of exchange, if it is one
    received: float = 0.0  # bytes that one start receives from other devices


@dataclass(frozen=True)
class Cost:
    """What one round costs."""

    kernels: tuple[Kernel, ...]
    syncs: float  # how often the host has to read a number before it goes on

    @property
    def launches(self) -> float:
        """How many kernels start."""
        return sum(one.times for one in self.kernels)

    @property
    def bytes(self) -> float:
        """How many bytes they move."""
        return sum(one.times * one.bytes for one in self.kernels)

    @property
    def received(self) -> dict[str, float]:
        """How many bytes come from other devices, by the kind of exchange."""
        kinds = sorted({one.collective for one in self.kernels} - {""})
        return {kind: sum(one.times * one.received for one in self.kernels if one.collective == kind) for kind in kinds}

    def __add__(self, other: "Cost") -> "Cost":
        """Both costs."""
        return Cost(self.kernels + other.kernels, self.syncs + other.syncs)

    def __mul__(self, times: float) -> "Cost":
        """The cost of several passes."""
        return Cost(tuple(replace(one, times=one.times * times) for one in self.kernels), self.syncs * times)


NOTHING = Cost((), 0.0)


class Text(Source):
    """A compiled program whose costs are counted.

    Args:
        text: What `compiled.as_text()` returned.
        cache: Bytes of an array that stays in the cache while rows of it are gathered again and again.
    """

    def __init__(self, text: str, cache: float) -> None:
        super().__init__(text)
        self._cache = cache
        self._known: dict[tuple[str, str], tuple[float, float]] = {}  # what `_parts` has found

    def cost(self, name: str, turns: Callable[[Operation], float], weigh: Callable[[Cost], float]) -> Cost:
        """What one pass through a computation costs.

        Args:
            name: The computation.
            turns: How often a loop turns whose number of turns depends on data.
            weigh: The time of a cost, by which the dearest branch is chosen.
        """
        total, computation = NOTHING, self.computations[name]
        for one in computation.operations.values():
            if one.opcode not in _KNOWN and not _DONE.match(one.opcode):
                raise UnknownError(f"Expected an operation that is known, got {one.opcode!r} in {name}: {one.more}")
            if one.opcode == "while":
                total += self._loop(computation, one, turns, weigh)
            elif one.opcode == "conditional":
                costs = [self.cost(branch, turns, weigh) for branch in branches(one)]
                total += max(costs, key=weigh) + Cost((), 1.0)
            elif one.opcode == "call" and one.called is not None:
                total += self.cost(one.called, turns, weigh)
            elif one.opcode not in _FREE and not _DONE.match(one.opcode) and "AllocateBuffer" not in one.more:
                total += Cost((self._kernel(computation, one),), 0.0)
        return total

    def _loop(
        self, here: Computation, one: Operation, turns: Callable[[Operation], float], weigh: Callable[[Cost], float]
    ) -> Cost:
        body, condition = (part(one, name) for name in ("body", "condition"))
        known = self.turns(here, one)
        count = turns(one) if known is None else known
        turn = self.cost(body, turns, weigh) * count
        if known is not None:
            return turn
        return turn + self.cost(condition, turns, weigh) * (count + 1) + Cost((), count + 1.0)

    def _kernel(self, computation: Computation, one: Operation) -> Kernel:
        operands = [computation.operations[name] for name in dict.fromkeys(one.operands)]
        does = self.computations[one.called].root if one.opcode == "async-start" and one.called else one
        if (found := exchange(does, operands)) is not None:
            return Kernel(one.name, self.place(one), 1.0, found.moved, collective=found.name, received=found.received)
        if one.opcode in ("fusion", "async-start") and one.called is not None:
            inner = self.computations[one.called]
            read = sum(self._read(inner, place.name) for place in inner.parameters)
            ints, floats = self._work(inner)
            moved = read + self._written(inner, inner.root)
        else:
            given = {item.name: replace(item, opcode="parameter", operands=(), root=False) for item in operands}
            alone = Computation(one.name, given | {one.name: replace(one, root=True)})
            moved = sum(self._read(alone, item.name) for item in operands) + self._written(alone, alone.root)
            if "/jdfl_one_round/" in one.label:  # its rows are operand 0, its senders 2, and its examples 5
                rows, senders, examples = (computation.operations[one.operands[place]] for place in (0, 2, 5))
                moved += 0.0 if rows.bytes <= self._cache else senders.result[0].dims[1] * rows.bytes
                moved -= examples.bytes * (1 - 1 / examples.result[0].dims[1])  # one of a node's examples is read
            ints, floats = self._operations(alone, one)
        return Kernel(one.name, self.place(one), 1.0, moved, ints, floats)

    def _read(self, computation: Computation, name: str) -> float:
        """The bytes of a value that its users read from memory: rows that are gathered, each time, the rest once."""
        once, again = self._parts(computation, name)
        whole = computation.operations[name].bytes
        return min(whole, once + again) if whole <= self._cache else min(whole, once) + again

    def _parts(self, computation: Computation, name: str) -> tuple[float, float]:
        """The bytes of a value that its users read, and those of rows that they gather."""
        if (found := self._known.get((computation.name, name))) is not None:
            return found
        value, once, again = computation.operations[name], 0.0, 0.0
        for user in computation.users[name]:
            for place in (place for place, operand in enumerate(user.operands) if operand == name):
                more = self._part(computation, value, user, place)
                once, again = once + more[0], again + more[1]
        found = self._known[computation.name, name] = min(once, value.bytes), again
        return found

    def _part(self, computation: Computation, value: Operation, user: Operation, place: int) -> tuple[float, float]:
        if user.opcode in ("bitcast", "reshape", "tuple", "get-tuple-element", "opt-barrier") and not user.root:
            return self._parts(computation, user.name)
        alike = user.opcode in _ALU and user.size == value.size
        if (alike or user.opcode == "concatenate") and not user.root:  # computed where it is read
            scale = value.bytes / max(user.bytes, 1.0)
            once, again = self._parts(computation, user.name)
            return scale * once, scale * again
        if user.opcode in ("fusion", "call") and user.called is not None:
            inner = self.computations[user.called]
            return self._parts(inner, inner.parameters[place].name)
        if user.opcode in ("slice", "slice-start"):
            return _touched(value.result[0], user), 0.0
        if user.opcode == "gather" and place == 0:
            return 0.0, _gathered(value.result[0], user)
        if user.opcode == "dynamic-slice" and place == 0:
            return user.bytes, 0.0
        if user.opcode in ("dynamic-update-slice", "scatter") and place == 0 and _in_place(computation, user):
            return 0.0, 0.0
        return value.bytes, 0.0

    def _written(self, computation: Computation, one: Operation) -> float:
        """The bytes of a result that reach memory."""
        if one.opcode == "tuple":
            return sum(self._written(computation, computation.operations[name]) for name in one.operands)
        if one.opcode in ("bitcast", "reshape") and one.operands:
            return self._written(computation, computation.operations[one.operands[0]])
        if one.opcode == "dynamic-update-slice":
            return computation.operations[one.operands[1]].bytes
        if one.opcode == "scatter":
            return 2 * computation.operations[one.operands[2]].bytes
        if one.opcode == "fusion" and one.called is not None:
            inner = self.computations[one.called]
            return self._written(inner, inner.root)
        if one.opcode == "parameter":
            return 0.0
        return one.bytes

    def _work(self, computation: Computation) -> tuple[float, float]:
        """The operations on whole numbers and on floats in a computation."""
        ints = floats = 0.0
        for one in computation.operations.values():
            more = self._operations(computation, one)
            ints, floats = ints + more[0], floats + more[1]
        return ints, floats

    def _operations(self, computation: Computation, one: Operation) -> tuple[float, float]:
        if one.opcode not in _KNOWN:
            raise UnknownError(f"Expected an operation that is known, got {one.opcode!r} in {computation.name}.")
        if one.opcode in ("fusion", "call") and one.called is not None:
            return self._work(self.computations[one.called])
        operands = [computation.operations[name] for name in one.operands if name in computation.operations]
        floating = any(array.floating for item in (*operands, one) for array in item.result)
        if one.opcode in _ALU:
            # A rotation is written as two shifts of one number and an or, and is one operation.
            free = one.opcode in ("shift-left", "shift-right-logical") and _rotates(computation, one)
            count = 0.0 if free else float(one.size)
        elif one.opcode == "dot" or (one.opcode == "custom-call" and ("gemm" in one.more or "matmul" in one.more)):
            count = 2.0 * one.result[0].size * _contracted(one, operands)
        elif one.opcode == "sort":  # a network, in registers and shared memory
            stages = math.ceil(math.log2(max(2, max(one.result[0].dims))))
            count, floating = _STAGE * one.result[0].size * stages * (stages + 1) / 2, False
        elif one.opcode in ("reduce", "reduce-window", "scatter", "map"):
            count = float(max([item.size for item in operands], default=0))
        else:
            count = 0.0
        return (0.0, count) if floating else (count, 0.0)


def _rotates(computation: Computation, one: Operation) -> bool:
    """Whether a shift is half of a rotation."""
    return any(
        user.opcode == "or"
        and {computation.operations[name].opcode for name in user.operands} == {"shift-left", "shift-right-logical"}
        for user in computation.users[one.name]
    )


def _contracted(one: Operation, operands: list[Operation]) -> int:
    """The number of products that are summed up for one entry of a product of matrices."""
    found = re.search(r'lhs_contracting_dim(?:s|ensions)"?[=:]\s*[\[{]"?([\d",]*)"?[\]}]', one.more)
    if not found:
        raise UnknownError(f"Expected the dimensions that {one.name} sums over, got {one.more[:300]}")
    places = [int(place) for place in re.findall(r"\d+", found[1])]
    return prod(operands[0].result[0].dims[place] for place in places)


def _in_place(computation: Computation, user: Operation) -> bool:
    """Whether an update is the result of its computation."""
    if user.root:
        return True
    return any(
        other.root
        if other.opcode == "tuple"
        else other.opcode in ("bitcast", "reshape") and _in_place(computation, other)
        for other in computation.users[user.name]
    )


def _touched(whole: Array, user: Operation) -> float:
    """The bytes that a slice touches: whole sectors, where it takes a part of short rows."""
    found = re.search(r"slice=\{([^}]*)\}", user.more)
    if not found or not whole.dims:
        return user.bytes
    parts = [tuple(map(int, taken.split(":"))) for taken in re.findall(r"\[([\d:]+)\]", found[1])]
    item, run, rows = whole.bytes / max(whole.size, 1), 1.0, 1.0
    whole_so_far = True
    for bounds, size in zip(reversed(parts), reversed(whole.dims)):
        taken, stride = bounds[1] - bounds[0], bounds[2] if len(bounds) > 2 else 1
        if whole_so_far:  # strided parts of a row touch all of it
            run *= taken
            whole_so_far = taken == size
        else:
            rows *= -(-taken // stride)
    # The row that holds the run: shorter rows than a sector share it with others.
    return min(whole.bytes, rows * max(run * item, SECTOR)) if rows > 1 else run * item


def _gathered(whole: Array, user: Operation) -> float:
    """The bytes that a gather takes: whole sectors of every row, and of single entries no more than there are.

    Entries of one row are gathered by threads that run together, so that the row comes from memory once.
    """
    found = re.search(r"slice_sizes=\{([\d,]*)\}", user.more)
    row = prod(int(size) for size in found[1].split(",") if size) if found else 1
    item = whole.bytes / max(whole.size, 1)
    taken = user.size / max(row, 1) * max(row * item, min(SECTOR, whole.bytes))
    return min(taken, whole.bytes) if row * item < SECTOR else taken
