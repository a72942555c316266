"""CEPS paper, Table I: the capabilities of the registered algorithms, found by inspecting and trying their classes.

`--quick` takes the paper's seven. A cell of the file is 1 or 0, the mean over --seeds tiny problems; the paper's value
is given for its seven. Classes that are registered later appear automatically.

How each capability is found, by inspecting a class and trying it on six nodes:

- Local updates: runs with the default fields, and with the fields that count steps or rounds between exchanges raised
  to 3; multiple where a node takes more steps, or gradients, than it communicates.
- Participation: partial where the algorithm accepts networks in which half the nodes participate in a round, or where
  halving one of its own shares halves its messages.
- Topology: dynamic where it accepts links redrawn in every round, none where the links make no difference.
- Compression: the codecs smaller than dense ones that it accepts, and what passes through them: differences, if
  messages shrink to zero while the parameters do not, else the model itself.
- Privacy: whether a form with noise claims a guarantee, with gradients clipped per example where possible.
"""

import dataclasses
import warnings
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table

import jdfl
from experiments.common import Made, Options, Row, bars, experiment, row
from jdfl import codecs, network
from jdfl.algorithms import REGISTRY
from jdfl.base import struct
from jdfl.codecs import Codec
from jdfl.problems import Problem, linear_regression

COLUMNS = (
    "local updates",
    "device participation",
    "communication topology",
    "information compression",
    "privacy protection",
)
M, N = 6, 20
STEPS = ("local_steps", "period", "periods")  # fields for the number of steps before an exchange
SHARES = ("rate", "fraction")  # fields for the share of nodes that send or participate
CODECS: dict[str, Codec] = {
    "Sparse": codecs.Sparse(share=0.25),
    "RandomK": codecs.RandomK(k=5),
    "QSGD": codecs.QSGD(levels=4),
    "Sign": codecs.Sign(),
    "LowRank": codecs.LowRank(),
    "OneBit": codecs.OneBit(d=40),
}
NETWORKS = {
    "fixed": network.complete(M),
    "changing": network.erdos_renyi_rounds(M, 0.7),
    "directed": network.erdos_renyi(M, 0.6, directed=True, seed=1),
    "half the nodes": network.node_participation(network.complete(M), count=M // 2),
    "some neighbours": network.partial_communication(network.complete(M), 0.5),
}


@dataclass(frozen=True)
class Cell:
    has: bool
    text: str
    reason: str = ""  # an explanation, where needed


@dataclass(frozen=True)
class Found:
    cells: dict[str, Cell]
    accepts: dict[str, bool]  # network -> whether `check` takes it

    @property
    def networks(self) -> str:
        return ", ".join(name for name, taken in self.accepts.items() if taken)


_lengths: list[float] = []  # norms of the vectors that the spy was given to send


@struct.dataclass
class _Spy(codecs.Sparse):
    """Exact messages whose norms are recorded in order."""

    @property
    def direct(self) -> bool:
        return False

    def encode(self, key: Any, x: Any, wire: Any) -> Any:
        jax.debug.callback(lambda length: _lengths.append(float(length)), jnp.max(jnp.linalg.norm(x, axis=1)))
        return super().encode(key, x, wire)


def look(kind: type, seed: int = 0) -> Found:
    """Everything about one class; the class must have defaults."""
    problem, algorithm = _problem(seed), kind()
    if "objective" in {one.name for one in dataclasses.fields(kind)}:  # what it accepts, whatever it minimises there
        algorithm = kind(objective="pi")
    accepts = {name: _takes(algorithm, problem, one) for name, one in NETWORKS.items()}
    where = NETWORKS[next((name for name, taken in accepts.items() if taken), "fixed")]
    if not _hears(algorithm, problem):
        accepts = dict.fromkeys(NETWORKS, False)
    dynamic = accepts["changing"]
    topology = "Dynamic Network" if dynamic else "Mixing Matrix" if any(accepts.values()) else "None"
    cells = (
        _local(algorithm, problem, where),
        _participation(algorithm, problem, where, accepts),
        Cell(dynamic, topology),
        _compression(algorithm, problem, where),
        _privacy(algorithm, problem, where),
    )
    return Found(dict(zip(COLUMNS, cells)), accepts)


@lru_cache
def _problem(seed: int) -> Problem:
    """Least squares, of curvature about 1."""
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((M, 30, N)) / 2
    return linear_regression(A, A @ rng.standard_normal(N))


def _takes(algorithm: Any, problem: Problem, where: Any) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            algorithm.check(problem, where)
        except ValueError:
            return False
    return True


def _run(algorithm: Any, problem: Problem, where: Any, steps: int) -> jdfl.Result:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return jdfl.run(algorithm, problem, where, key=0, steps=steps, every=steps, metrics=["consensus_error"])


def _hears(algorithm: Any, problem: Problem) -> bool:
    """Whether the links make a difference; assumed for algorithms that do not accept every network."""
    links = (NETWORKS["fixed"], network.ring(M))
    if not all(_takes(algorithm, problem, one) for one in (*links, *NETWORKS.values())):
        return True
    one, other = (np.asarray(_run(algorithm, problem, where, 20).params) for where in links)
    return not np.array_equal(one, other)


def _with(algorithm: Any, **values: Any) -> Any:
    """The algorithm with these fields, if it has them all."""
    names = {one.name for one in dataclasses.fields(algorithm)}
    return dataclasses.replace(algorithm, **values) if names >= set(values) else None


def _local(algorithm: Any, problem: Problem, where: Any) -> Cell:
    def multiple(one: Any) -> bool:
        result = _run(one, problem, where, 30)
        exchanges = max(1, int(result.communication_rounds.max()))
        local = result.totals.gradients / M
        return exchanges > 1 and max(local, result.rounds) >= 1.5 * exchanges

    if multiple(algorithm):
        return Cell(True, "Multiple")
    for name in STEPS:
        now = getattr(algorithm, name, None)
        raised = None if now is None else _with(algorithm, **{name: (3,) * len(now) if isinstance(now, tuple) else 3})
        if raised is not None and multiple(raised):
            return Cell(True, f"Single; Multiple with {name}")
    return Cell(False, "Single")


def _participation(algorithm: Any, problem: Problem, where: Any, accepts: dict[str, bool]) -> Cell:
    for name in SHARES:
        whole, half = (_with(algorithm, **{name: share}) for share in (1.0, 0.5))
        if whole is not None and _takes(half, problem, where):
            sent = [sum(_run(one, problem, where, 30).totals.messages.values()) for one in (whole, half)]
            if sent[1] < 0.75 * sent[0]:
                return Cell(True, f"Partial ({name})")
    by = [name for name in ("half the nodes", "some neighbours") if accepts[name]]
    return Cell(bool(by), f"Partial (network: {', '.join(by)})" if by else "Full")


def _compression(algorithm: Any, problem: Problem, where: Any) -> Cell:
    if _with(algorithm, codec=codecs.Dense()) is None:
        return Cell(False, "None")
    forms = {"": algorithm}  # flags may change what is sent
    forms |= {
        one.name: _with(algorithm, **{one.name: not getattr(algorithm, one.name)})
        for one in dataclasses.fields(algorithm)
        if isinstance(getattr(algorithm, one.name), bool)
    }
    said: dict[str, str] = {}  # what is sent -> by which form, and the codecs
    for flag, form in forms.items():
        spied = _with(form, codec=_Spy(share=1.0))
        taken = [name for name, codec in CODECS.items() if _takes(_with(form, codec=codec), problem, where)]
        if not taken or not _takes(spied, problem, where):
            continue
        what = "differences" if _shrinks(spied, problem, where) else "model"
        said.setdefault(what, (f" with {flag}" if flag else "") + f": {', '.join(taken)}")
    return Cell(bool(said), "; ".join(what + how for what, how in said.items()) or "None")


def _shrinks(spied: Any, problem: Problem, where: Any) -> bool:
    """Whether messages become small relative to the parameters."""
    _lengths.clear()
    result = _run(spied, problem, where, 200)
    jax.effects_barrier()
    return bool(_lengths) and _lengths[-1] < 0.1 * float(jnp.max(jnp.linalg.norm(result.params, axis=1)))


def _privacy(algorithm: Any, problem: Problem, where: Any) -> Cell:
    noise = jdfl.Gaussian(0.5)
    forms = [algorithm, _with(algorithm, gradients=jdfl.Gradients(clip=1.0, mechanism=noise))]
    forms.append(_with(algorithm, mechanism=noise, clip=1.0, sigma=1.0))  # a public constant, where nodes have one
    forms.append(_with(algorithm, mechanism=noise))
    said = [form.privacy(problem) for form in forms if form is not None and _takes(form, problem, where)]
    claimed = [one for one in said if one.claimed]
    if claimed:
        return Cell(True, f"Differential Privacy (per {claimed[0].unit}, {claimed[0].enforced_by})")
    noisy = [one for one in said if one.sensitivity is not None]
    return Cell(False, "Noise without a guarantee" if noisy else "None", noisy[0].reason if noisy else "")


# local updates, device participation, communication topology, information compression, privacy protection
PAPER = {
    "d-psgd": ("Single", "Full", "Mixing Matrix", "None", "None"),
    "dcd-psgd": ("Single", "Full", "Mixing Matrix", "Difference Compression", "None"),
    "dfedavgm": ("Multiple", "Full", "Mixing Matrix", "Quantization", "None"),
    "dfedsam": ("Single", "Full", "Mixing Matrix", "None", "None"),
    "matcha": ("Multiple", "Partial", "Dynamic Network", "None", "None"),
    "dsgt": ("Single", "Full", "Mixing Matrix", "None", "Differential Privacy"),  # as DP-DSGT
    "ceps": ("Multiple", "Partial", "Dynamic Network", "1BCS", "Differential Privacy"),
}
NO = ("Single", "Full", "Mixing Matrix", "None")
# Reasons why our cell differs from the paper's; differences that are only options here need none.
REASONS = {
    ("dfedsam", "local updates"): "its own paper takes K local steps per round, and that is the class's default",
    ("matcha", "local updates"): "its own paper takes one step per round, and that is the class's default",
    ("d-psgd", "device participation"): "any W is taken; the CEPS paper itself runs it so, as D-PSGD-PC",
    ("d-psgd", "communication topology"): "any W is taken; the CEPS paper itself runs it so, as D-PSGD-DN",
}


def agrees(column: str, paper: str, cell: Cell) -> bool:
    """Whether the paper's cell matches what was found; for local updates, what is found by default."""
    if column == "local updates":
        return cell.text.split(";")[0] == paper
    if column != "information compression":
        return cell.has == (paper not in NO)
    wanted = {"None": "", "Difference Compression": "differences", "Quantization": "QSGD", "1BCS": "OneBit"}[paper]
    return wanted in cell.text if wanted else not cell.has


Differing = tuple[str, str, str, Cell, str]  # algorithm, column, the paper's cell, ours, and the reason for it


def differing(found: dict[str, Found]) -> list[Differing]:
    """The paper's cells that differ from ours; without a reason where ours has only an option more."""
    return [
        (name, column, paper, cell, REASONS.get((name, column)) or cell.reason)
        for name, cells in PAPER.items()
        for column, paper in zip(COLUMNS, cells)
        if not agrees(column, paper, cell := found[name].cells[column])
    ]


def show(found: dict[str, Found]) -> None:
    """Print the table: every cell has ours, and below it the paper's where there is one."""
    table = Table(title="CEPS paper, Table I, as found", caption="paper's cell below ours", show_lines=True)
    for header in ("algorithm", *COLUMNS, "networks"):
        table.add_column(header)
    for name, one in found.items():
        paper = PAPER.get(name, ("",) * len(COLUMNS))
        cells = [one.cells[column].text + (f"\npaper: {said}" if said else "") for column, said in zip(COLUMNS, paper)]
        table.add_row(name, *cells, one.networks)
    console = Console()
    console.width = max(console.width, 200)
    console.print(table)


@experiment(seeds=1)
def main(chosen: Options) -> Made:
    """Every registered algorithm, or the paper's seven with `--quick`."""
    names = [*PAPER, *(name for name in REGISTRY if name not in PAPER and not chosen.quick)]
    trials = [{name: look(REGISTRY[name], seed) for name in names} for seed in range(chosen.seeds)]
    rows: list[Row] = []
    for name in names:
        for place, column in enumerate(COLUMNS):
            said = None if name not in PAPER else float(PAPER[name][place] not in NO)
            rows.append(row(name, column, said, [float(one[name].cells[column].has) for one in trials]))
        for column in trials[0][name].accepts:
            rows.append(row(name, f"network: {column}", None, [float(one[name].accepts[column]) for one in trials]))
    show(trials[0])
    others, cells = differing(trials[0]), len(PAPER) * len(COLUMNS)
    print("The paper's cells that differ from ours, without a reason where ours is only an option more:")
    for name, column, paper, cell, reason in others:
        print(f"  {name}, {column}: paper {paper}, here {cell.text}. {reason}")
    more = sum(not reason for *_, reason in others)
    numbers = {"cells": cells, "the same": cells - len(others)}
    numbers |= {"only options here": more, "with a reason": len(others) - more}
    counts = [row("the paper's cells", column, None, [number]) for column, number in numbers.items()]
    return Made({"The paper's cells": counts}, bars(rows, COLUMNS, "1: the algorithm has it"), rows)
