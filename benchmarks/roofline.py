"""Compiled programs for an H100 or a TPU v5e, without one: kernels, traffic, memory, and the time of a model.

Run `python -m benchmarks.roofline [--quick] [--out DIR]`, or with more arguments:

    python -m benchmarks.roofline                                  the table of methods and sizes, for an H100
    python -m benchmarks.roofline "D-PSGD" --size 10000000 100 1   one method, with its dearest kernels
    python -m benchmarks.roofline --target v5e
    python -m benchmarks.roofline "D-PSGD" --size 4096 1000 500 --kernels   with kernels of jdfl's own
    python -m benchmarks.roofline --registered [--record]          every row of the contract's table, or named ones

Rounds are compiled (`benchmarks.aot`) and their kernels counted (`benchmarks.hlo`): how many start in a round, the
bytes that they move, over the least that a round has to move (`benchmarks.floors`), and the memory at its peak, over
state, data and network. The time is a model's: a kernel takes as long as its bytes or its operations, and a few
microseconds at least; a loop or branch that depends on data makes the host wait.

Every registered method is held to the counts in benchmarks/aot.json, which --record writes for a target; more
than 5 % above them is an error, unless JAX has another version.

A loop over nodes that work turns as often as these fill its blocks; how often other loops turn that depend on data is
in `TURNS`, as it was seen on a CPU for many rows at once: a loop of them all turns until the last row is done. A loop
that is not there is an error.
"""

import argparse
import json
import math
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import jax

from benchmarks import aot, floors, hlo, methods
from benchmarks.common import FOLDER, Row, report, row
from benchmarks.methods import Method
from jdfl import testing

NEEDS = ("jax_cuda13_plugin",)
RESULT = (
    "On an H100, D-PSGD with ten million nodes moves {D-PSGD, m=10,000,000 n=100 q=1 -> traffic / least} times the "
    "least bytes."
)
LIMIT = (
    "DO-ADP: its momentum is written before the step that reads it, and the finished copies are read once more for the "
    "check that they are finite; an optimization barrier before the selection costs as much as it saves, and with "
    "kernels of jdfl's own it is 2.01 and 2.06. CEPS with sparse messages, ten million nodes: arrays of one number per "
    "node are a tenth of its traffic, and decoded rows have a place of their own; 3.93 and a peak of 1.82 with own "
    "kernels. One-bit messages: the number of iterations is the largest that is allowed, 12, as some "
    "of 55,000 messages that are decoded together need it; products with the columns of the support take a third of "
    "the time, whether they are formed once or three times, or with the signs as one more row. Kernels of jdfl's own "
    "count as the bytes that they move: their operations are not in the text of a program. Noise takes one number from "
    "a block of two words; two normal numbers of each halve its operations, but are an array in memory then, 1.2 "
    "times the bytes of a round. In one kernel such a round reads nothing twice, but "
    "whether the new parameters are finite is a pass of its own, a twelfth of the traffic."
)
RECORD, SLACK = FOLDER / "aot.json", 1.05
NODES, FEW = 60_000, ("CEPS-1BCS, d per node",)
REACHED = 0.9  # of the bandwidth
TURNS = {  # of loops that depend on data, by the function that has them
    "_search": 12.0,
    "permuted": 9.0,  # of seven examples
    "_Problem.solved": 12.0,
    "_Problem.iterate": 1.0,
}


@dataclass(frozen=True)
class Round:
    """One round of a program on a target."""

    cost: hlo.Cost
    seconds: float
    program: aot.Program

    @property
    def traffic(self) -> float:
        """The bytes that it moves over the least."""
        return self.cost.bytes / self.program.needed.total

    @property
    def peak(self) -> float:
        """The memory at its peak over what is given: state, data and network."""
        return self.program.peak / self.program.arguments


def seconds(cost: hlo.Cost, target: aot.Target) -> float:
    """The model's time of a cost."""
    return sum(one.times * _of(one, target) for one in cost.kernels) + target.sync * cost.syncs


def dearest(cost: hlo.Cost, target: aot.Target) -> list[tuple[float, hlo.Kernel]]:
    """The kernels with their time in a round, the dearest first."""
    return sorted(((one.times * _of(one, target), one) for one in cost.kernels), key=lambda found: -found[0])


def _of(kernel: hlo.Kernel, target: aot.Target) -> float:
    work = kernel.ints / target.ints + kernel.floats / target.floats
    link = kernel.received / (REACHED * target.link)
    return max(target.launch, kernel.bytes / (REACHED * target.bandwidth), work, link)


def counted(program: aot.Program, target: aot.Target) -> Round:
    """One round of a compiled program.

    Raises:
        UnknownError: For a program without a loop over rounds, or with one whose number of turns is not known.
    """
    text = hlo.Text(program.text, target.cache)

    def weigh(cost: hlo.Cost) -> float:
        return seconds(cost, target)

    def turns(loop: hlo.Operation) -> float:
        return _turns(text, loop, program)

    rounds = [
        one
        for here, one in text.loops()
        if text.turns(here, one) is None and _function(text.place(one)) == "_advance.stretch"
    ]
    if len(rounds) != 1:
        raise hlo.UnknownError(f"Expected one loop over rounds, got {len(rounds)}.")
    parts = [text.cost(hlo.part(rounds[0], name), turns, weigh) for name in ("body", "condition")]
    cost = (parts[0] + parts[1] + hlo.Cost((), 1.0)) * (1 / program.rounds)
    return Round(cost, weigh(cost), program)


def _function(place: str) -> str:
    return place.rpartition(" in ")[2].replace(".<locals>", "")


def _turns(text: hlo.Text, loop: hlo.Operation, program: aot.Program) -> float:
    """How often a loop turns in a round."""
    chain = [_function(place) for place in text.chain(loop)]
    for place, name in enumerate(chain):
        if name == "for_rows":
            talking = program.per_node.senders if "transmit" in chain[place:] else program.per_node.combining
            block = int(re.findall(r"blocks_of_(\d+)", loop.label)[-1])
            return math.ceil(talking * program.m / block)
        if name in TURNS:
            return TURNS[name]
        if name == "_advance.stretch":
            break
    raise hlo.UnknownError(f"Expected a number of turns in TURNS for the loop in {' < '.join(chain[:4])}, got none.")


def show(method: Method, size: aot.Size, target: aot.Target, kernels: bool = False) -> list[Row]:
    """Compile and count the rounds of a method; print a line and the dearest kernels."""
    try:
        program = aot.compiled(target, method.settings, size, kernels)
    except aot.TooLargeError as error:
        print(f"{method.name}: {error}")
        return []
    found = counted(program, target)
    case = f"{method.name}, m={size.m:,} n={size.n} q={size.q}{', own kernels' if kernels else ''}"
    cost = found.cost
    print(
        f"{case}: {cost.launches:,.0f} launches, {cost.syncs:,.0f} waits, {cost.bytes / 1e9:.3g} GB, "
        f"{found.traffic:.2f} of the floor, peak {found.peak:.2f}, {1 / found.seconds:.3g} rounds/s"
    )
    for spent, one in dearest(cost, target)[:5]:
        print(f"  {1e3 * spent:8.3f} ms  {one.times:g} x {one.bytes / 1e9:.3g} GB  {one.name}  {one.place}")
    goals = _goals(method, size, found) if target is aot.H100 else {}
    if kernels and (method.name, size) in methods.KERNELS:
        goals["traffic / least"] = f"<= {methods.KERNELS[method.name, size]}"
    if kernels and (method.name, size) in methods.FASTER:
        goals["rounds a second, by the model"] = f">= {methods.FASTER[method.name, size]}"
    measured = {
        "kernels a round": (cost.launches, ""),
        "waits for the host a round": (cost.syncs, ""),
        "traffic / least": (found.traffic, "x"),
        "memory at its peak / given": (found.peak, "x"),
        "rounds a second, by the model": (1 / found.seconds, "1/s"),
    }
    return [row(case, name, [value], unit, goals.get(name, "")) for name, (value, unit) in measured.items()]


def _goals(method: Method, size: aot.Size, found: Round) -> dict[str, str]:
    """What is to be reached on an H100: the peak is what is given, the state once more, and a tenth."""
    most = 1.05 if size == methods.FULL else 1.1 * (1 + found.program.state / found.program.arguments)
    goals = {"kernels a round": f"<= {method.kernels}", "memory at its peak / given": f"<= {most:.3g}"}
    if method.traffic is not None:
        goals["waits for the host a round"] = "<= 20"
    if method.traffic is not None and size in (methods.MANY, methods.MOST):
        goals["traffic / least"] = f"<= {method.traffic}"
    if (method.name, size) in methods.SPEED:
        goals["rounds a second, by the model"] = f">= {methods.SPEED[method.name, size]}"
    return goals


@dataclass(frozen=True)
class Counts:
    """What is recorded of a registered method's round."""

    kernels: float
    waits: float
    bytes: float
    peak: float  # over what is given

    def worse(self, before: "Counts") -> list[str]:
        """What has grown by more than 5 %, in words."""
        found = ((name, getattr(self, name), getattr(before, name)) for name in ("kernels", "waits", "bytes", "peak"))
        return [f"{name} {old:.4g} -> {new:.4g}" for name, new, old in found if new > SLACK * old]


def registered(target: aot.Target, names: Sequence[str] = ()) -> Iterator[tuple[str, Round]]:
    """A round of every row of the contract's table, or of the named ones, with many nodes, on a target.

    Rows with settings for each of the few nodes are compiled for these.
    """
    from tests.contract.table import TABLE

    if strange := sorted(set(names) - {str(line) for line in TABLE}):
        raise SystemExit(f"Expected rows from {', '.join(map(str, TABLE))}, got {', '.join(strange)}.")

    graph = testing.small_network()
    graph = replace(graph, graph=replace(graph.graph, format="padded"))  # many nodes have no dense matrix
    for line in TABLE:
        if names and str(line) not in names:
            continue
        problem = testing.small_problem(shared=line.shared)
        each = floors.counts(line.algorithm, problem, graph, 24)
        many = {} if str(line) in FEW else {problem.m: NODES}
        yield str(line), counted(aot.scaled(target, line.algorithm, problem, graph, each, many, 24), target)


def held(target: aot.Target, names: Sequence[str], record: bool) -> list[str]:
    """What has become worse in rounds of registered methods, or nothing and a new record of them."""
    known = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.is_file() else {}
    before = known.get(target.name, {"jax": jax.__version__, "methods": {}})
    made, faults = dict[str, Any](before["methods"] if names else {}), list[str]()
    for name, found in registered(target, names):
        cost = found.cost
        now = Counts(cost.launches, cost.syncs, cost.bytes, found.peak)
        made[name] = {key: float(f"{value:.4g}") for key, value in asdict(now).items()}
        old = before["methods"].get(name)
        worse = now.worse(Counts(**old)) if old else [] if record else ["no record"]
        places = ", ".join(f"{one.name} ({one.place})" for _, one in dearest(cost, target)[:3])
        print(
            f"{name}: {cost.launches:.4g} kernels, {cost.syncs:.4g} waits, {cost.bytes / 1e9:.4g} GB", *worse, sep="; "
        )
        faults += [f"{name}: {', '.join(worse)}; dearest: {places}"] if worse else []
    if record:
        known[target.name] = {"jax": jax.__version__, "nodes": NODES, "methods": made}
        RECORD.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        return []
    return faults if before["jax"] == jax.__version__ else []


def main(arguments: Sequence[str] | None = None) -> list[Row]:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("methods", nargs="*", help="names of methods; all, if none")
    parser.add_argument(
        "--size", nargs=3, type=int, action="append", metavar=("M", "N", "Q"), help="several are allowed"
    )
    parser.add_argument("--target", choices=sorted(aot.TARGETS), default="h100")
    parser.add_argument("--kernels", action="store_true", help="with kernels of jdfl's own (jdfl.Options)")
    parser.add_argument("--quick", action="store_true", help="one method, few nodes")
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder for the JSON")
    parser.add_argument("--registered", action="store_true", help="all registered methods, against their record")
    parser.add_argument("--record", action="store_true", help="with --registered: record what is counted")
    given = parser.parse_args(arguments)
    aot.environment()
    target = aot.TARGETS[given.target]
    try:
        target.topology()
    except RuntimeError as error:
        parser.error(str(error))
    if given.registered:
        if faults := held(target, given.methods, given.record):
            raise SystemExit("\n".join(faults))
        return []
    known = {method.name: method for method in methods.METHODS}
    if strange := sorted(set(given.methods) - set(known)):
        parser.error(f"Expected methods from {', '.join(known)}, got {', '.join(strange)}.")
    sizes = [aot.Size(*one) for one in given.size or ([methods.QUICK] if given.quick else methods.SIZES)]
    chosen = [known[name] for name in given.methods] or ([methods.PLAIN] if given.quick else methods.METHODS)
    pairs = [(method, size, given.kernels) for method in chosen for size in sizes if size.q >= method.fewest]
    if not (given.methods or given.size or given.quick or given.kernels) and target is aot.H100:
        pairs += [(known[name], size, True) for name, size in methods.KERNELS]
    rows = [one for method, size, kernels in pairs for one in show(method, size, target, kernels)]
    if not rows:
        raise SystemExit(2)
    given.out.mkdir(parents=True, exist_ok=True)
    report(target.name, rows, given.out, "roofline", given.quick)
    return rows


if __name__ == "__main__":
    main(sys.argv[1:])
