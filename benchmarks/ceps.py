"""CEPS: compared with a plain NumPy loop and with communication work for all nodes, and the cost of compilation.

Run `python -m benchmarks.ceps [--quick] [--out DIR]`; about four minutes on two cores.
"""

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, fields, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

import jdfl
from benchmarks.common import Options, Row, benchmark, interleaved, ratios, row
from benchmarks.decoding import sparse_rows
from benchmarks.machine import read_sum
from jdfl.algorithms import MODEL, requests
from jdfl.algorithms import ceps as module
from jdfl.algorithms.program import Program
from jdfl.arrays import ops
from jdfl.arrays.ops import dense
from jdfl.base import struct
from jdfl.codecs import gpsp, transmit
from jdfl.codecs.sensing import Stored
from jdfl.engine import loop, stepping
from jdfl.network.graph import gather_sum
from tests.reference.ceps import ceps as reference
from tests.reference.ceps import one_bit

RESULT = (
    "A run of DP-1BCS with 128 nodes takes {DP-1BCS m=128 n=1000 -> Phi per sender, all rounds} s; a NumPy loop in "
    "float64 takes {DP-1BCS m=128 n=1000 -> numpy float64 / Phi per sender} times as long."
)
LIMIT = (
    "Of 1.3 s with a warm cache JAX spends 0.5 tracing and 0.5 lowering the programs, both in Python and not cached; "
    "XLA loads its compiled code in 0.4. On a faster machine the total was 0.7."
)
S, RATE, EPSILON = 10, 0.2, 0.5


@dataclass(frozen=True)
class Setup:
    """Example 1 with its network."""

    problem: jdfl.problems.LinearRegression
    network: jdfl.network.Static


def setup(m: int, n: int) -> Setup:
    return Setup(
        jdfl.problems.example1(m=m, n=n, s=S, rows=(n // 4, 3 * n // 4)), jdfl.network.erdos_renyi(m, 0.45, seed=0)
    )


def whole_run(algorithm: Any, here: Setup, rounds: int, stop: Any = None) -> tuple[Any, Any]:
    """A function that runs only the rounds: matrices are drawn and programs compiled beforehand."""
    setting = stepping.setting(Program(algorithm), here.problem, here.network, stop, jax.random.key(0))
    prepared, carry, _ = loop.start(setting, ())
    setting = replace(setting, program=prepared)

    def work() -> Any:
        fresh = jax.tree.map(jnp.copy, carry)
        return loop.advance(fresh, setting, jnp.int32(rounds), rounds, 1, ())[0]

    return work, setting


class NumpyRun:
    """The reference loop on the same data, matrices, periods and constants; its random choices are NumPy's."""

    def __init__(self, here: Setup, setting: Any, dtype: type) -> None:
        A, b = (np.asarray(leaf) for leaf in here.problem.data)
        rows = np.asarray(here.problem.weight).sum(axis=1).astype(int)
        self.A = [A[i, :count].astype(dtype) for i, count in enumerate(rows)]
        self.b = [b[i, :count].astype(dtype) for i, count in enumerate(rows)]
        graph = here.network.graph
        self.neighbours = [
            list(map(int, row[mask])) for row, mask in zip(np.asarray(graph.senders), np.asarray(graph.mask))
        ]
        stored = setting.program.prepared.wire.drawn
        self.phi = np.ascontiguousarray(np.swapaxes(np.asarray(stored.matrix), 1, 2)).astype(dtype)
        self.sigma = np.asarray(setting.program.ready.sigma).astype(dtype)
        self.period = np.asarray(setting.program.ready.period)
        settings = setting.program.algorithm
        self.scale = float(settings.mechanism.multiplier) * float(settings.sensitivity)
        self.dtype, self.n = dtype, here.problem.n

    def __call__(self) -> np.ndarray:
        """A whole run; the last parameters [m, n]."""
        draw = np.random.default_rng(0)

        def gradient(i: int, w: np.ndarray) -> np.ndarray:
            return self.A[i].T @ (self.A[i] @ w - self.b[i]) / len(self.b[i])

        trace = reference(
            gradient,
            self.neighbours,
            self.n,
            s=S,
            rate=RATE,
            mu=0.1,
            sigma=self.sigma,
            period=self.period,
            rounds=200,
            choose=lambda k, i, size: draw.choice(self.neighbours[i], size, replace=False).tolist(),
            send=lambda j, w: one_bit(w, self.phi[j], S, cap=12),
            noise=lambda k, i: (self.scale * draw.standard_normal(self.n)).astype(self.dtype),
            dtype=self.dtype,
            until=self.agree,
        )
        self.rounds = len(trace.w)
        return trace.w[-1]

    def agree(self, w: np.ndarray, k: int) -> bool:
        """The paper's stop rule; every node has communicated after round 15."""
        return k >= 15 and ((w - w.mean(axis=0)) ** 2).sum() / (S * len(w)) <= 0.0025 / EPSILON


@struct.dataclass
class Masked(jdfl.CEPS):
    """The same rounds with the communication work done by all nodes in every round, and mostly discarded."""

    def step(self, state: module.State, round: jdfl.Round) -> module.State:
        """Rounds (3) and (4) for every node, then a choice."""
        ready: module.Ready = round.ready
        w, u, sigma = dense(state.w), state.u, ready.sigma[:, None]
        talks = (round.k % ready.period == 0) & (round.k > 0)
        graph = round.graph
        chosen = requests.slots(self, jnp.ones_like(talks), round)
        m_i = requests.sizes(self, graph)[1].astype(w.dtype)[:, None]
        wbar = gather_sum(graph.senders, chosen, w) / m_i  # all nodes have neighbours
        new_u = sigma * m_i * wbar - round.problem.gradients(wbar)
        alone = ops.top_s((u + self.mu * w) / (sigma * state.count[:, None] + self.mu), self.s)
        together = ops.top_s(new_u / (sigma * m_i), self.s)
        pick = talks[:, None]
        count = talks.astype(jnp.int32)
        asked = jnp.zeros((round.m,), jnp.int32).at[graph.senders].add((chosen & pick).astype(jnp.int32))
        round.trace.send(MODEL, asked, count)
        round.trace.grads = count
        return module.State(
            jnp.where(pick, together, alone), jnp.where(pick, new_u, u), jnp.where(talks, m_i[:, 0], state.count)
        )


def against_numpy(m: int, n: int, repeats: int) -> list[Row]:
    """A whole run with a Gaussian matrix per sender, a shared one, and none, compared with one NumPy loop."""
    here, stop = setup(m, n), jdfl.consensus_below(0.0025 / EPSILON, per=S)
    paper = jdfl.CEPS.paper(S, rate=RATE, epsilon=EPSILON)
    kinds = {"Phi per sender": {}, "shared Phi": {"shared": True}, "double Hadamard": {"ensemble": "hadamard"}}
    runs, settings = {}, {}
    for kind, choice in kinds.items():
        codec = jdfl.OneBit(inverse="paper", **choice)
        runs[kind], settings[kind] = whole_run(replace(paper, codec=codec), here, 200, stop)
    double, single = (NumpyRun(here, settings["Phi per sender"], dtype) for dtype in (np.float64, np.float32))
    seconds = interleaved(runs | {"numpy float64": double, "numpy float32": single}, repeats)
    case = f"DP-1BCS m={m} n={n}"
    rows = [row(case, f"{name}, all rounds", times, "s") for name, times in seconds.items()]
    for kind, goal in zip(kinds, (">= 1.5", ">= 6", ">= 6")):
        rows.append(row(case, f"numpy float64 / {kind}", ratios(seconds["numpy float64"], seconds[kind]), "x", goal))
        rows.append(row(case, f"numpy float32 / {kind}", ratios(seconds["numpy float32"], seconds[kind]), "x"))
        rows.append(Row(case, f"rounds, {kind}", int(runs[kind]().rounds), ""))
        rows.append(Row(case, f"sensing matrices, {kind}", _stored(settings[kind]) / 1e6, "MB"))
    return [*rows, Row(case, "rounds, numpy (its own draws)", double.rounds, "")]


def _stored(setting: Any) -> int:
    """Bytes of sensing matrices, or of what replaces them."""
    return sum(leaf.nbytes for leaf in jax.tree.leaves(setting.program.prepared.wire.drawn))


def against_masked(m: int, n: int, repeats: int, rounds: int = 60) -> list[Row]:
    here = setup(m, n)
    algorithm = jdfl.CEPS.paper(S, rate=RATE, one_bit=False)
    masked = Masked(**{one.name: getattr(algorithm, one.name) for one in fields(algorithm)})
    blocks, setting = whole_run(algorithm, here, rounds)
    everything, _ = whole_run(masked, here, rounds)
    same = np.allclose(blocks().state.w, everything().state.w, rtol=1e-5, atol=1e-6)
    seconds = interleaved({"blocks": blocks, "masked": everything}, repeats)
    period = np.asarray(setting.program.ready.period)
    share = np.mean([(k % period == 0).mean() for k in range(1, rounds)])
    case = f"CEPS-Perf m={m} n={n}"
    return [
        row(case, f"communicating nodes only, {rounds} rounds", seconds["blocks"], "s"),
        row(case, f"all nodes masked, {rounds} rounds", seconds["masked"], "s"),
        row(case, "communicating / masked", ratios(seconds["blocks"], seconds["masked"]), "x", "<= 0.3"),
        Row(case, "share of nodes that communicate in a round", float(share), ""),
        Row(case, "both end at the same parameters", float(same), "", ">= 1", same),
    ]


def decoder(n: int, d: int, repeats: int, count: int = 64) -> list[Row]:
    """Quality and time of decoding, and the rate of reading Phi compared with that of a plain sum."""
    rows = sparse_rows(count, n)
    key, node = jax.random.key(0), jnp.arange(count, dtype=jnp.int32)
    wire = jdfl.OneBit(d=d, inverse="paper").prepare(key, node, n, S, jnp.float32)
    received = jax.jit(transmit)(wire, jax.random.split(key, count), rows, rows[:, 0] < 9)
    received = np.asarray(received)
    recovered = ((received != 0) & (rows != 0)).sum(axis=1) / S
    error = np.linalg.norm(received - rows, axis=1) / np.linalg.norm(rows, axis=1)
    here = jnp.asarray(wire.drawn.matrix)
    c = jnp.where(jnp.einsum("ind,in->id", here, rows) > 0, 1.0, -1.0)

    @jax.jit
    def decode(phi: Array, c: Array) -> Any:
        groups = phi.reshape(-1, 4, n, d), c.reshape(-1, 4, d)
        return jax.lax.map(lambda group: gpsp(Stored(group[0]), group[1], S, n), groups)

    found = decode(here, c)
    passes = float(jnp.sum(jnp.max(found.iterations, axis=1)) * 4)
    seconds = interleaved({"decode": lambda: decode(here, c), "sum": lambda: read_sum(here)}, repeats)
    rate = [passes * n * d * 4 / time / 1e9 for time in seconds["decode"]]
    plain = [here.nbytes / time / 1e9 for time in seconds["sum"]]
    case = f"GPSP n={n} d={d} s={S}"
    return [
        Row(case, "support recovered", float(recovered.mean()), "", ">= 0.99", bool(recovered.mean() >= 0.99)),
        Row(case, "relative error", float(error.mean()), "", "<= 0.08", bool(error.mean() <= 0.08)),
        Row(case, "one message", wire.codec.bits(n) / 8, "bytes"),
        row(case, "one decoding, 4 at a time", [1e3 * time / count for time in seconds["decode"]], "ms"),
        Row(case, "iterations of a decoding", float(jnp.mean(found.iterations)), ""),
        row(case, "Phi read", rate, "GB/s"),
        row(case, "Phi read / plain sum over all Phi", ratios(rate, plain), "x"),
    ]


_ONE_RUN = """
import json, jdfl
result = jdfl.run(
    jdfl.CEPS.paper(10, epsilon=0.5), jdfl.problems.example1(m={m}, n={n}), jdfl.network.erdos_renyi({m}), steps=200,
    stop=jdfl.consensus_below(0.005, per=10), metrics=["objective"], every=10)
print(json.dumps(result.compile_seconds))
"""


def compiling(m: int, n: int, repeats: int) -> list[Row]:
    """Fresh processes with an empty and with a filled compilation cache."""
    cold, warm = [], []
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as cache:
            environment = os.environ | {
                "JAX_COMPILATION_CACHE_DIR": cache,
                "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
                "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
            }
            for times in (cold, warm):
                command = [sys.executable, "-c", _ONE_RUN.format(m=m, n=n)]
                done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
                times.append(json.loads(done.stdout.splitlines()[-1]))
    case = f"DP-1BCS m={m} n={n}"
    return [
        row(case, "tracing and compiling, cold", cold, "s", "< 10"),
        row(case, "tracing and compiling, warm cache", warm, "s", "< 1"),
    ]


@benchmark("CEPS", goals=False)
def main(chosen: Options) -> list[Row]:
    if chosen.quick:
        sizes, repeats = {"numpy": (8, 100), "masked": (16, 100), "decoder": (100, 50), "compile": (8, 100)}, 2
    else:
        sizes, repeats = {"numpy": (128, 1000), "masked": (512, 1000), "decoder": (1000, 500), "compile": (32, 1000)}, 5
    return [
        *compiling(*sizes["compile"], 1 if chosen.quick else 3),
        *decoder(*sizes["decoder"], repeats),
        *against_numpy(*sizes["numpy"], repeats),
        *against_masked(*sizes["masked"], repeats),
    ]


if __name__ == "__main__":
    main()
