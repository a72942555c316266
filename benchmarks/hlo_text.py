"""Compiled programs as text (XLA's HLO), read into computations and operations, with the lines that they come from.

An unknown type is an error: it would be counted as nothing.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

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
