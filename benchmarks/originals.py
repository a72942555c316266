"""Iterates and time of the methods of decent-bench, run by its own code, compared with jdfl's.

Run `python -m benchmarks.originals [--quick] [--out DIR]`; decent-bench is the optional dependency "peers".

Iterates: least squares in float64 from zero, gradients of all examples, on a network whose nodes have 2 or 3 neighbours
and whose weights, 1/4, are exact in float32; both have the same W. Nothing random is left: each method that draws has
all examples in a batch and its probabilities are 1. From zero the links' variables of ADMM, ATG and LT-ADMM, which
start from rho x in jdfl and from 0 or x in decent-bench, are equal as well. Where a method begins with a round that
jdfl has in its start, or that only sends messages, decent-bench is given one round more (`begun`).

A pair agrees, or `why` states the difference, and a run in which just this is changed agrees: on jdfl's side (`mended`)
or in how agents of decent-bench read messages (`copied`). Its DLM has one step size for all nodes and is compared with
jdfl's DiNNO with one local step, which has one, too; on regular networks this is jdfl's DLM. Its GT-SAGA follows the
paper of 2022, jdfl's that of 2020 (see `jdfl.algorithms.variance_reduced`).

Time: as in `peers`, random least squares on a regular network. decent-bench is in float64, which it normally uses, with
all threads for BLAS and with one; the faster counts. jdfl is in float32, its default. Set-up, also decent-bench's A'A,
and compilation are not timed. Before each is timed, agreeing methods without random batches must have nearly the same
parameters. Those with variance reduction are timed with batches of 10 examples, of their own random choice, and GT-VR
with a probability of 0.1.

Axes: m nodes, q examples per node, n parameters.
"""

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from typing import Any

import jax
import numpy as np

import jdfl
from benchmarks.common import Options, Row, benchmark, interleaved, ratios, rounds_of, row
from benchmarks.peers import DEGREE, REST, TOLERANCE, Work, apart, one_thread, work_of
from jdfl.algorithms.round import TRACKER, Round
from jdfl.algorithms.variance_reduced import State
from jdfl.base import struct

NEEDS = ("decent_bench",)
RESULT = (
    "jdfl takes {ATC, m=128 n=1000 q=500 -> jdfl / decent-bench} of decent-bench's time for adapt-then-combine D-PSGD"
    " and {LT_ADMM_VR, m=128 n=1000 q=500 -> jdfl / decent-bench} for LT-ADMM-VR."
)
LIMIT = (
    "The machine was shared with other work while this was measured. Part of jdfl's lead is float32: D-PSGD of "
    "decent-bench takes 0.6 of its usual time in it (`peers`). decent-bench's gradient of all examples is one product "
    "with a stored A'A, for a batch A'A is formed each time; its proximal operator is exact, where jdfl takes 15 steps."
)
LR, LOCAL, RHO = 0.05, 5, 0.25
ROUNDS, SAME, GOAL = 30, "<= 1e-09", "<= 0.5"
EDGES = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 6), (6, 7), (7, 0), (0, 4), (2, 6)]
IN_PLACE = "its agents add messages up in place, in an array that all receivers of a broadcast share"


@dataclass(frozen=True)
class Scale:
    """What differs between the comparison of iterates and that of times."""

    batch: int | None  # examples of a gradient, where a method draws them; None: all
    inner: int  # steps with which jdfl approximates a proximal operator, which decent-bench has in closed form
    chance: float  # of a gradient of all examples in a round of GT-VR

    @property
    def gradients(self) -> jdfl.Gradients:
        """Jdfl's gradients of these batches."""
        return jdfl.Gradients(batch=self.batch)


EXACT, TIMED = Scale(None, 60, 1.0), Scale(10, 15, 0.1)


@dataclass(frozen=True)
class Pair:
    """A method of decent-bench and jdfl's."""

    name: str  # of decent-bench's class
    ours: Callable[[Scale], Any]  # jdfl's method
    settings: Callable[[Scale], dict[str, Any]] = lambda _: {"step_size": LR}  # of decent-bench's
    begun: int = 0  # rounds of decent-bench before jdfl's first
    per: int = 1  # rounds of jdfl in one of decent-bench
    why: str = ""  # they differ
    mended: Callable[[Scale], Any] | None = None  # jdfl's method without that difference
    copied: bool = False  # agents of decent-bench that read copies of messages are without it
    draws: bool = False  # examples


@struct.dataclass
class MixedFirst(jdfl.GTSAGA):
    """GT-SAGA whose trackers are mixed once before the first step."""

    def init(self, round: Round) -> State:
        """Start from y = W g(x)."""
        state = super().init(round)
        return state._replace(y=state.y + round.pull(state.y, TRACKER))


def _links(**more: Any) -> Callable[[Scale], dict[str, Any]]:
    """Settings of methods with multipliers."""
    return lambda _: {"step_size": LR, "penalty": RHO, **more}


def _local(**more: Any) -> Callable[[Scale], dict[str, Any]]:
    """Settings of methods with local steps."""
    return lambda _: {"step_size": LR, "num_local_steps": LOCAL, **more}


TRAINED: dict[str, Any] = {"beta": 0.04, "penalty": RHO, "relaxation": 0.6}
TRAINING = _local(aux_step_size=0.04, penalty=RHO, relaxation=0.6)
ATC: Any = "adapt-then-combine"

PAIRS = (
    Pair("DGD", lambda _: jdfl.DPSGD(lr=LR)),
    Pair("ATC", lambda _: jdfl.DPSGD(lr=LR, order=ATC)),
    Pair("EXTRA", lambda _: jdfl.EXTRA(lr=LR)),
    Pair("NIDS", lambda _: jdfl.NIDS(lr=LR), begun=1),
    Pair("ED", lambda _: jdfl.ExactDiffusion(lr=LR)),
    Pair("ATC_Tracking", lambda _: jdfl.DSGT(lr=LR)),
    Pair("AugDGM", lambda _: jdfl.DIGing(lr=LR, order=ATC)),
    Pair("SimpleGT", lambda _: jdfl.SimpleGT(lr=LR)),
    Pair("WangElia", lambda _: jdfl.WangElia(lr=LR)),
    Pair("KGT", lambda _: jdfl.KGT(lr=LR, outer=0.5, local_steps=LOCAL), _local(aux_step_size=0.5)),
    Pair("LED", lambda _: jdfl.LED(lr=LR, beta=0.05, gamma=1.0, local_steps=LOCAL), _local(aux_step_size=0.05)),
    Pair(
        "ProxSkip",
        lambda _: jdfl.ProxSkip(lr=LR, p=1.0, beta=0.5, gamma=1 / 3),
        lambda _: {"step_size": LR, "aux_step_size": 0.5, "comm_probability": 1, "chi": 1.5},
    ),
    Pair(
        "ADMM",
        lambda s: jdfl.ADMM(penalty=1.0, relaxation=0.6, lr=0.2, inner=s.inner),
        lambda _: {"penalty": 1.0, "relaxation": 0.6},
    ),
    Pair(
        "DLM",
        lambda _: jdfl.DiNNO(lr=LR, penalty=RHO, local_steps=1),
        _links(),
        begun=1,
        why=IN_PLACE,
        copied=True,
    ),
    Pair(
        "ATG",
        lambda _: jdfl.ATG(penalty=RHO, relaxation=0.9, gamma=0.5, delta=0.1),
        lambda _: {"penalty": RHO, "relaxation": 0.9, "gamma": 0.5, "delta": 0.1},
    ),
    Pair(
        "DiNNO",
        lambda _: jdfl.DiNNO(lr=LR, penalty=RHO, local_steps=LOCAL),
        _links(num_local_steps=LOCAL),
        why=IN_PLACE + ", twice in a round",
        copied=True,
    ),
    Pair("LT_ADMM", lambda _: jdfl.LTADMM(lr=LR, local_steps=LOCAL, **TRAINED), TRAINING),
    Pair(
        "LT_ADMM_VR",
        lambda s: jdfl.LTADMMVR(lr=LR, local_steps=LOCAL, **TRAINED, kept=True, batch=s.batch or 20),
        TRAINING,
        draws=True,
    ),
    Pair(
        "GT_SAGA",
        lambda s: jdfl.GTSAGA(lr=LR, batch=s.batch or 20, order=ATC),
        why="its trackers start as W g, those of jdfl as g",
        mended=lambda s: MixedFirst(lr=LR, batch=s.batch or 20, order=ATC),
        draws=True,
    ),
    Pair(
        "GT_SARAH",
        lambda s: jdfl.GTSARAH(lr=LR, period=LOCAL + 1, gradients=s.gradients),
        _local(),
        per=LOCAL + 1,
        draws=True,
    ),
    Pair(
        "GT_VR",
        lambda s: jdfl.GTSVRG(lr=LR, probability=s.chance, order=ATC, gradients=s.gradients),
        lambda s: {"step_size": LR, "snapshot_prob": s.chance},
        draws=True,
    ),
)


def small() -> Work:
    """The task of the comparison of iterates."""
    draw = np.random.default_rng(0)
    A, b = draw.standard_normal((8, 20, 10)), draw.standard_normal((8, 20))
    return Work(A, b, jdfl.network.from_edges(EDGES, weights="laplacian"))


def trajectory(algorithm: Any, work: Work, rounds: int) -> np.ndarray:
    """Jdfl's parameters [m, n] after some rounds in float64."""
    with jax.enable_x64(True):
        if hasattr(algorithm, "codec"):
            algorithm = replace(algorithm, codec=jdfl.codecs.Dense("float64"))
        problem = jdfl.problems.linear_regression(work.A, work.b, dtype=np.float64)
        return np.asarray(rounds_of(algorithm, problem, work.network, rounds)().x)


def found_by(module: Any, pair: Pair, work: Work, copied: bool) -> np.ndarray:
    """decent-bench's parameters [m, n] after `ROUNDS` rounds, beyond those that it begins with."""
    theirs = module.original(pair.name, pair.settings(EXACT), module.costs_of(work.A, work.b), work.W, copied)
    theirs.advance(ROUNDS + pair.begun)
    return theirs.parameters()


Original = Callable[[Pair, Work, bool], np.ndarray]


def compared(pair: Pair, work: Work, original: Original) -> list[Row]:
    """The difference of iterates; with that of a run without what `why` states, if they differ."""
    rounds, case, measure = ROUNDS * pair.per, f"{pair.name}, {work.case}", f"difference after {ROUNDS} rounds"
    ours, theirs = trajectory(pair.ours(EXACT), work, rounds), original(pair, work, False)
    plain = partial(row, case, values=[apart(ours, theirs)], unit="relative")
    if not pair.why:
        return [plain(measure, goal=SAME)]
    if pair.mended is not None:
        ours = trajectory(pair.mended(EXACT), work, rounds)
    if pair.copied:
        theirs = original(pair, work, True)
    alike = row(case, f"{measure}, without that", [apart(ours, theirs)], "relative", SAME)
    return [plain(f"{measure}; {pair.why}"), alike]


def timed(pair: Pair, work: Work, problem: Any, theirs: Any, rounds: int, repeats: int) -> list[Row]:
    """Milliseconds of a round of both, interleaved, and jdfl's time over decent-bench's."""
    ours = rounds_of(pair.ours(TIMED), problem, work.network, rounds * pair.per)
    theirs.advance(rounds + pair.begun)
    found = apart(np.asarray(ours().x), theirs.parameters())
    if not (pair.why or pair.draws or found <= TOLERANCE):
        raise ValueError(f"Expected {pair.name} within {TOLERANCE:g} of jdfl after {rounds} rounds, got {found:.3g}.")
    advance = partial(theirs.advance, rounds)
    ways = {"jdfl": ours, "decent-bench": advance, "decent-bench, one thread": one_thread(advance)}
    seconds = interleaved(ways, repeats, REST)
    _, *others = ways
    best = min(others, key=lambda name: float(np.median(seconds[name])))
    case, names = f"{pair.name}, {work.case}", ("jdfl", best)
    rows = [row(case, f"a round, {name}", [1e3 * s / rounds for s in seconds[name]], "ms") for name in names]
    return [*rows, row(case, "jdfl / decent-bench", ratios(seconds["jdfl"], seconds[best]), "x", GOAL)]


def times(pairs: Sequence[Pair], work: Work, module: Any, rounds: int, repeats: int) -> list[Row]:
    """Those of all pairs; methods that draw examples come last, as their agents have costs of their own."""
    problem, rows = jdfl.problems.linear_regression(work.A, work.b), []
    for draws in (False, True):
        costs = module.costs_of(work.A.astype(np.float64), work.b.astype(np.float64), TIMED.batch if draws else None)
        for pair in pairs:
            if pair.draws == draws:
                theirs = module.original(pair.name, pair.settings(TIMED), costs, work.W)
                rows += timed(pair, work, problem, theirs, rounds, repeats)
                print(f"{rows[-1].case}: {rows[-1].value:.3g}", flush=True)
    return rows


@benchmark("Least squares; jdfl in float32 and decent-bench in float64 where they are timed")
def main(chosen: Options) -> list[Row]:
    """All figures."""
    module = importlib.import_module("benchmarks.peer_decent_bench")
    work = small()
    rows = [one for pair in PAIRS for one in compared(pair, work, partial(found_by, module))]
    m, q, n = (16, 50, 100) if chosen.quick else (128, 500, 1000)
    more = times(PAIRS, work_of(m, q, n, DEGREE), module, 2, 2 if chosen.quick else 3)
    if chosen.quick:
        more = [replace(one, goal="", met=None) for one in more]  # goals are for real sizes
    versions = ", ".join(f"{name} {version(name)}" for name in ("jax", "numpy", "decent-bench"))
    print(f"Least squares; jdfl in float32 and decent-bench in float64 where they are timed; {versions}")
    return rows + more


if __name__ == "__main__":
    main()
