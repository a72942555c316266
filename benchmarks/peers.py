"""The cost of a round of D-PSGD in jdfl and in two other libraries, decent-bench and gossipy.

Run `python -m benchmarks.peers [--quick] [--out DIR]`; the other libraries are the optional dependency "peers", and one
that is not installed is skipped. All do the same work: least squares with full gradients, the same data, network,
weights, step size and rounds, from zero. Their results are compared with jdfl's first, and a difference is an error.

decent-bench uses combine-then-adapt and gossipy adapt-then-combine, and each is compared with jdfl in its own order.
Their implementations, and gossipy's other method, which is timed only, are described in benchmarks/peer_decent_bench.py
and benchmarks/peer_gossipy.py. Set-up and compilation are not timed. By default each uses one thread per core; on a
busy machine the others are faster with one, so they are timed with one as well, and jdfl, always with all, is compared
with the faster. With `taskset -c 0` in front, all have one. BLAS threads keep spinning for a while after their work,
which had slowed the next library by up to two fifths; therefore each starts on an idle machine.

Axes: m nodes, q examples per node, n parameters.
"""

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from types import ModuleType
from typing import Literal, Protocol

import jax
import numpy as np
from threadpoolctl import ThreadpoolController

import jdfl
from benchmarks.common import Options, Row, benchmark, interleaved, ratios, rounds_of, row
from jdfl.network import as_dense

RESULT = (
    "With 128 nodes, decent-bench in float64 takes {m=128 n=1000 q=500 -> decent-bench, float64 / jdfl, "
    "combine-then-adapt} and gossipy {m=128 n=1000 q=500 -> gossipy / jdfl, adapt-then-combine} times as long as "
    "jdfl."
)
LIMIT = (
    "A round reads the features twice, and jdfl reads them about as fast as memory allows (`dpsgd_overhead`). "
    "decent-bench reads half as much again in float32 and three times as much in float64, which it normally uses; the "
    "rest is its overhead. Six times its speed would need the features to be read once. XLA on CPU does not fuse the "
    "two products; by blocks of rows or nodes that a cache holds a round had 0.7 to 1.0 of the speed, at most 1.1 "
    "where half of the data are in the cache anyway; row by row a tenth."
)
REST = 0.3  # seconds
LR = 1e-2
DEGREE = 8
CHECKED, TOLERANCE = 20, 1e-4  # rounds after which parameters are compared, and their largest relative difference

Order = Literal["combine-then-adapt", "adapt-then-combine"]


class AtWork(Protocol):
    """Another library with the data, during a run."""

    def advance(self, rounds: int) -> None:
        """Run a number of rounds."""
        ...

    def parameters(self) -> np.ndarray:
        """[m, n], where they equal jdfl's."""
        ...


@dataclass(frozen=True)
class Peer:
    """A package; its module here has SAME, its variants of D-PSGD, and OTHER, which are other methods."""

    package: str
    module: str
    order: Order  # of its D-PSGD
    goal: str  # for each of its variants over jdfl, at real sizes
    below: str  # the package that it computes with
    install: str


PEERS = (
    Peer(
        "decent-bench",
        "benchmarks.peer_decent_bench",
        "combine-then-adapt",
        ">= 6",
        "numpy",
        "with Python 3.13 or newer",
    ),
    Peer(
        "gossipy-dfl", "benchmarks.peer_gossipy", "adapt-then-combine", ">= 10", "torch", "with PyTorch and torchvision"
    ),
)


@dataclass(frozen=True)
class Work:
    """The task given to all libraries; nodes start at zero."""

    A: np.ndarray  # [m, q, n] features
    b: np.ndarray  # [m, q] targets
    network: jdfl.network.Static
    lr: float = LR

    @property
    def W(self) -> np.ndarray:
        """The mixing matrix [m, m]."""
        return np.asarray(as_dense(self.network.graph))

    @property
    def case(self) -> str:
        """Its size."""
        m, q, n = self.A.shape
        return f"m={m} n={n} q={q}"

    def jdfl(self, order: Order, rounds: int) -> Callable[[], jax.Array]:
        """A function that runs `rounds` rounds and returns the parameters [m, n]."""
        problem = jdfl.problems.linear_regression(self.A, self.b)
        algorithm = jdfl.DPSGD(lr=self.lr, order=order)
        work = rounds_of(algorithm, problem, self.network, rounds)
        return lambda: work().x


def work_of(m: int, q: int, n: int, degree: int = DEGREE) -> Work:
    """Random least squares over a regular network, whose Metropolis weights are 1 / (degree + 1)."""
    draw = np.random.default_rng(0)
    A = draw.standard_normal((m, q, n), np.float32)
    b = draw.standard_normal((m, q), np.float32)
    return Work(A, b, jdfl.network.k_regular(m, degree, weights="metropolis", format="padded"))


def installed(peers: Sequence[Peer] = PEERS) -> dict[Peer, ModuleType]:
    """The modules of the other libraries; those not installed are reported and left out."""
    found = {}
    for peer in peers:
        try:
            found[peer] = importlib.import_module(peer.module)
        except ImportError as missing:
            print(f"{peer.package} is not installed: skipped ({missing}; pip install 'jdfl[peers]', {peer.install}).")
    return found


def apart(ours: np.ndarray, theirs: np.ndarray) -> float:
    """The largest difference of parameters [m, n] over the largest parameter."""
    return float(np.abs(ours - theirs).max() / np.abs(ours).max())


def check(name: str, peer: AtWork, work: Work, order: Order) -> Row:
    """The difference between jdfl and another library after some rounds; ValueError where it is too large."""
    peer.advance(CHECKED)
    found = apart(np.asarray(work.jdfl(order, CHECKED)()), peer.parameters())
    if not found <= TOLERANCE:
        raise ValueError(f"Expected {name} within {TOLERANCE:g} of jdfl after {CHECKED} rounds, got {found:.3g}.")
    return row(work.case, f"{name}: difference after {CHECKED} rounds", [found], "relative", f"<= {TOLERANCE:g}")


def figures(work: Work, modules: dict[Peer, ModuleType], rounds: int, repeats: int) -> list[Row]:
    """Differences, milliseconds of a round in every way, interleaved, and the others' times over jdfl's."""
    rows, ways, held = [], {}, []
    for peer, module in modules.items():
        base = f"jdfl, {peer.order}"
        ways[base] = work.jdfl(peer.order, rounds)
        for name, make in (module.SAME | module.OTHER).items():
            at_work = make(work.A, work.b, work.W, work.lr)
            if name in module.SAME:
                rows.append(check(name, at_work, work, peer.order))
            alone = f"{name}, one thread"
            ways[name] = partial(at_work.advance, rounds)
            ways[alone] = one_thread(ways[name])
            held.append((base, (name, alone), peer.goal if name in module.SAME else ""))
    seconds = interleaved(ways, repeats, REST)
    for name, times in seconds.items():
        rows.append(row(work.case, f"a round, {name}", [1e3 * s / rounds for s in times], "ms"))
    for base, names, goal in held:
        best = min(names, key=lambda name: float(np.median(seconds[name])))
        rows.append(row(work.case, f"{best} / {base}", ratios(seconds[best], seconds[base]), "x", goal))
    return rows


def one_thread(advance: Callable[[], None]) -> Callable[[], None]:
    """The same work with one thread for BLAS and OpenMP."""
    controller = ThreadpoolController()

    def work() -> None:
        with controller.limit(limits=1):
            advance()

    return work


@benchmark("D-PSGD on least squares, full gradients", goals=False)
def main(chosen: Options) -> list[Row]:
    """All figures; none where no other library is installed."""
    modules = installed()
    if not modules:
        return []
    names = dict.fromkeys(("jax", *(name for peer in modules for name in (peer.below, peer.package))))
    versions = ", ".join(f"{name} {version(name)}" for name in names)
    threads = max(pool["num_threads"] for pool in ThreadpoolController().info())
    rows = []
    for m, q, n in [(16, 50, 100)] if chosen.quick else [(32, 500, 1000), (128, 500, 1000)]:
        rows += figures(work_of(m, q, n), modules, 2 if chosen.quick else 10, 2 if chosen.quick else 7)
    print(f"D-PSGD on least squares, full gradients; threads: {threads}, or one where it says so; {versions}")
    return rows


if __name__ == "__main__":
    main()
