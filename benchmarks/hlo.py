"""Compiled programs as text (XLA's HLO): which kernels one pass through them starts, and the bytes that these move.

Only what is in the text is counted: an operand of a kernel is read once, of a slice the sectors of memory that it
touches, of a gather the rows that it takes; a result is written once, of an update in place only the update. Loops
count as often as they turn. An unknown operation is an error: what is not understood would be counted as
nothing.
"""

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from typing import NamedTuple

_BITS = {"pred": 8, "s4": 4, "u4": 4, "s8": 8, "u8": 8, "s16": 16, "u16": 16, "f16": 16, "bf16": 16, "s32": 32}
_BITS |= {"u32": 32, "f32": 32, "s64": 64, "u64": 64, "f64": 64, "c64": 64, "c128": 128, "token": 0}
_LINE = re.compile(r"^\s+(ROOT )?%(\S+) = ")
_SHAPE = re.compile(r"(\w+)\[([^\]]*)\]")
_CALLED = re.compile(r"(?:calls|to_apply|called_computations)=\{?%([\w.\-]+)")


class UnknownError(ValueError):
    """Something in a program that is not understood, and would not be counted."""


@dataclass(frozen=True)
class Array:
    """The type and shape of an array."""

    dtype: str
    dims: tuple[int, ...]

    @property
    def size(self) -> int:
        """Its number of entries."""
        return prod(self.dims)

    @property
    def bytes(self) -> float:
        """Its size in memory."""
        return self.size * _BITS[self.dtype] / 8

    @property
    def floating(self) -> bool:
        """Whether its entries are floats."""
        return self.dtype[0] in "fbc"


@dataclass(frozen=True)
class Operation:
    """One instruction."""

    name: str
    root: bool
    opcode: str
    result: tuple[Array, ...]
    operands: tuple[str, ...]
    inside: str  # what is between the parentheses
    more: str  # what follows them

    @property
    def bytes(self) -> float:
        """The bytes of its result."""
        return sum(array.bytes for array in self.result)

    @property
    def size(self) -> int:
        """The number of entries of its result."""
        return sum(array.size for array in self.result)

    @property
    def called(self) -> str | None:
        """The computation that it applies."""
        found = _CALLED.search(self.more)
        return found and found[1]

    @property
    def frame(self) -> int:
        """The number of its stack frame; 0 if it has none."""
        found = re.search(r"stack_frame_id=(\d+)", self.more)
        return int(found[1]) if found else 0

    @property
    def label(self) -> str:
        """The scopes of the function that it comes from, as JAX names them."""
        found = re.search(r'op_name="([^"]*)"', self.more)
        return found[1] if found else ""


@dataclass(frozen=True)
class Computation:
    """Instructions in order."""

    name: str
    operations: dict[str, Operation] = field(default_factory=dict)

    @cached_property
    def root(self) -> Operation:
        """The instruction with the result."""
        return next(one for one in self.operations.values() if one.root)

    @cached_property
    def users(self) -> dict[str, list[Operation]]:
        """Who reads the result of each instruction."""
        found: dict[str, list[Operation]] = {name: [] for name in self.operations}
        for one in self.operations.values():
            for name in dict.fromkeys(one.operands):
                found[name].append(one)
        return found

    def number(self, name: str) -> int | None:
        """The whole number that an instruction is, if it is a constant or a copy of one."""
        one = self._copied(name)
        return int(one.inside) if one.opcode == "constant" and re.fullmatch(r"-?\d+", one.inside) else None

    def place(self, name: str) -> int | None:
        """Which part of the computation's parameter an instruction is, if it is one or a copy of one."""
        one = self._copied(name)
        if one.opcode != "get-tuple-element" or self.operations[one.operands[0]].opcode != "parameter":
            return None
        found = re.search(r"index=(\d+)", one.more)
        return int(found[1]) if found else None

    def _copied(self, name: str) -> Operation:
        """The instruction that an instruction copies, possibly through other copies; itself if it copies none."""
        one = self.operations[name]
        return self._copied(one.operands[0]) if one.opcode in ("copy", "bitcast") else one

    @cached_property
    def parameters(self) -> list[Operation]:
        """Its parameters in order."""
        found = [one for one in self.operations.values() if one.opcode == "parameter"]
        return sorted(found, key=lambda one: int(one.inside))


class Source:
    """The computations of a compiled program.

    Args:
        text: What `compiled.as_text()` returned.
    """

    def __init__(self, text: str) -> None:
        self._frames = _tables(text)
        self.computations: dict[str, Computation] = {}
        self.entry = ""
        here: Computation | None = None
        for line in text.splitlines():
            if (found := re.match(r"(ENTRY )?%([\w.\-]+) \(.*\{$", line)) is not None:
                here = self.computations[found[2]] = Computation(found[2])
                self.entry = found[2] if found[1] else self.entry
            elif here is not None and (found := _LINE.match(line)) is not None:
                here.operations[found[2]] = _operation(bool(found[1]), found[2], line[found.end() :])
            elif line.startswith("}"):
                here = None

    def place(self, one: Operation) -> str:
        """The innermost line of source that an instruction comes from, FILE:LINE in FUNCTION."""
        return next(iter(self.chain(one)), "unknown")

    def chain(self, one: Operation) -> list[str]:
        """All lines of source that an instruction comes from, the innermost first."""
        found, frame = [], one.frame
        while frame in self._frames:
            words, frame = self._frames[frame]
            found.append(words)
        return found

    def turns(self, here: Computation, loop: Operation) -> int | None:
        """How often a loop turns, where that does not depend on data.

        Compilers for GPUs write the number down. Elsewhere it follows from a loop as JAX makes it: a whole number is
        counted up from one constant, while it is less than another.

        Args:
            here: The computation with the loop.
            loop: The loop.
        """
        if (found := re.search(r'"known_trip_count":\{"n":"(\d+)"', loop.more)) is not None:
            return int(found[1])
        condition, body = (self.computations[part(loop, name)] for name in ("condition", "body"))
        test, given, made = condition.root, here.operations[loop.operands[0]], body.root
        if test.opcode != "compare" or "direction=LT" not in test.more or {given.opcode, made.opcode} != {"tuple"}:
            return None
        place, last = condition.place(test.operands[0]), condition.number(test.operands[1])
        if place is None or last is None:
            return None
        first, more = here.number(given.operands[place]), body.operations[made.operands[place]]
        if first is None or more.opcode != "add" or body.place(more.operands[0]) != place:
            return None
        step = body.number(more.operands[1])
        return max(0, -((first - last) // step)) if step and step > 0 else None

    def loops(self) -> Iterator[tuple[Computation, Operation]]:
        """All loops."""
        for computation in self.computations.values():
            for one in computation.operations.values():
                if one.opcode == "while":
                    yield computation, one


def _operation(root: bool, name: str, rest: str) -> Operation:
    end = _balanced(rest, 0) if rest.startswith("(") else rest.index(" ")
    shape, rest = rest[:end], rest[end:].lstrip()
    opcode, _, after = rest.partition("(")
    close = _balanced("(" + after, 0)
    inside, more = ("(" + after)[1 : close - 1], ("(" + after)[close:]
    arrays = []
    for dtype, dims in _SHAPE.findall(re.sub(r"/\*.*?\*/", "", shape)):
        if dtype not in _BITS:
            raise UnknownError(f"Expected a type that is known, got {dtype!r} in {name} = {shape}")
        arrays.append(Array(dtype, tuple(int(size.lstrip("<=")) for size in dims.split(",") if size)))
    operands = tuple(re.findall(r"%([\w.\-]+)", inside)) if opcode not in ("parameter", "constant") else ()
    return Operation(name, root, opcode, tuple(arrays), operands, inside, more)


def _balanced(text: str, start: int) -> int:
    """The end of the parenthesis that opens at `start`."""
    depth = 0
    for place in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[place], 0)
        if not depth:
            return place + 1
    raise UnknownError(f"Expected a closed parenthesis, got {text[:200]!r}.")


def part(one: Operation, name: str) -> str:
    """The computation that is a part of a loop or branch."""
    found = re.search(rf"{name}=%([\w.\-]+)", one.more)
    if not found:
        raise UnknownError(f"Expected the {name} of {one.name}, got {one.more[:200]}")
    return found[1]


def branches(one: Operation) -> list[str]:
    """The computations of a branch, one of them is run."""
    found = re.search(r"branch_computations=\{([^}]*)\}", one.more)
    if found:
        return re.findall(r"%([\w.\-]+)", found[1])
    return [part(one, "true_computation"), part(one, "false_computation")]


def _tables(text: str) -> dict[int, tuple[str, int]]:
    """By number of a stack frame its line, FILE:LINE in FUNCTION, and the number of its caller's frame; 0: none."""

    def table(title: str, line: str) -> dict[int, tuple[str, ...]]:
        found = re.search(rf"^{title}\n(.*?)\n\n", text, re.MULTILINE | re.DOTALL)
        rows = re.findall(line, found[1], re.MULTILINE) if found else []
        return {int(row[0]): tuple(row[1:]) for row in rows}

    files, functions = table("FileNames", r'^(\d+) "(.*)"$'), table("FunctionNames", r'^(\d+) "(.*)"$')
    places = table("FileLocations", r"^(\d+) \{file_name_id=(\d+) function_name_id=(\d+) line=(\d+)")
    frames = table("StackFrames", r"^(\d+) \{file_location_id=(\d+) parent_frame_id=(\d+)")
    found = {}
    for frame, (place, parent) in frames.items():
        file, function, line = places[int(place)]
        name = "/".join(files[int(file)][0].split("/")[-2:])
        found[frame] = f"{name}:{line} in {functions[int(function)][0]}", int(parent) - 1
    return found


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
