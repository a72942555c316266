"""Directed CEPS, our own method, against SGP: bytes on directed networks.

Example 1 of the CEPS paper on 32 nodes, without noise, on two directed networks: 4-out, whose nodes have four receivers
each, themselves included, and a random one, whose nodes differ in their numbers of receivers and therefore in their
push-sum weights.

A run ends when the objective at the mean of the models is at most f(w*) + 0.01. The table has the rounds, gradients and
bytes of all nodes until then, with the best of the step sizes for each method (fewest rounds, on average over seeds).
Then it has the objective of SGP when it has sent as many bytes, and as many rounds, as directed CEPS with one-bit
messages needs. SGP is not given s, as all the others are: the bytes of a message are what the codec saves, the rounds
what sparsity does. "no projection" is directed CEPS without H_s after a gradient step: its objective after 100 rounds
with the smallest step size, the largest float32 where the run diverged.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
from jax import Array

import jdfl
from experiments.ceps_stragglers import Size
from experiments.common import Made, Options, Row, bars, experiment, row
from jdfl import network as nw
from jdfl.base import struct

MARGIN, FEW = 0.01, 100  # the second is the number of rounds without projection
SPARSE, DENSE = (0.2, 0.4, 0.8), (0.04, 0.08, 0.16)  # step sizes of models with s nonzeros and with n
MOST = float(np.finfo(np.float32).max)  # stands for runs that diverged
ONE_BIT, SGP = "directed CEPS, one-bit", "SGP"


FULL, SMALL = Size(32, 1000, 10, (250, 750), 300), Size(8, 60, 4, (80, 120), 300)


@struct.dataclass
class Unprojected(jdfl.DirectedCEPS):
    """Directed CEPS without the projection after gradient steps."""

    def _descended(self, x: Array, a: Array, here: jdfl.Round) -> Array:
        return x - self.lr * self.gradients(self._model(x, a), here)


def methods(size: Size) -> dict[str, tuple[Any, tuple[float, ...]]]:
    d = None if size is FULL else 3 * size.n
    sparse = jdfl.Sparse(value="int8", index="enumerative")
    ours = jdfl.DirectedCEPS(s=size.s, codec=jdfl.OneBit(d=d))
    return {
        ONE_BIT: (ours, SPARSE),
        f"{ONE_BIT}, 5 local steps": (replace(ours, local_steps=5), SPARSE),
        "directed CEPS, sparse float32": (replace(ours, codec=jdfl.Sparse()), SPARSE),
        "directed CEPS, sparse int8": (replace(ours, codec=sparse), SPARSE),
        "directed CEPS, dense": (replace(ours, codec=jdfl.Dense()), SPARSE),
        SGP: (jdfl.SGP(), DENSE),
    }


def networks(size: Size) -> dict[str, nw.Static]:
    drawn = nw.erdos_renyi(size.m, 6 / size.m, directed=True, weights="out-degree", seed=1)
    return {"4-out": nw.d_out(size.m, 4), "random": drawn}


@lru_cache(3)
def problem(size: Size, seed: int) -> jdfl.problems.LinearRegression:
    return jdfl.problems.example1(size.m, size.n, size.s, size.rows, seed=seed)


def run(algorithm: Any, size: Size, net: Any, seed: int) -> jdfl.Result:
    data = problem(size, seed)
    stop = jdfl.objective_below(jdfl.problems.value_at_truth(data) + MARGIN)
    return jdfl.run(algorithm, data, net, key=seed, steps=size.steps, stop=stop, metrics=["objective"])


def best(algorithm: Any, rates: Sequence[float], size: Size, net: Any, seeds: int) -> tuple[float, list[jdfl.Result]]:
    """The step size that takes the fewest rounds on average, and its runs; runs that do not reach it count twice."""
    found = {lr: [run(replace(algorithm, lr=lr), size, net, seed) for seed in range(seeds)] for lr in rates}

    def cost(lr: float) -> float:
        return float(np.mean([one.rounds if one.ending == "stop rule" else 2 * size.steps for one in found[lr]]))

    lr = min(rates, key=cost)
    return lr, found[lr]


def at(history: pd.DataFrame, column: str, value: float) -> float:
    """The last objective recorded when a cost column is at most `value`."""
    return float(history["objective"][history[column] <= value].iloc[-1])


def told(case: str, lr: float, results: Sequence[jdfl.Result]) -> list[Row]:
    """The rows of a method; costs of runs that do not reach the objective are those of all their rounds."""
    found = {
        "reached": [float(one.ending == "stop rule") for one in results],
        "lr": [lr] * len(results),
        "rounds": [float(one.rounds) for one in results],
        "gradients per node": [one.totals.gradients / len(one.params) for one in results],
        "bytes per message": [sum(one.totals.message_bits.values()) / 8 for one in results],
        "MB": [one.totals.bytes / 1e6 for one in results],
    }
    return [row(case, name, None, values) for name, values in found.items()]


def without_projection(size: Size, net: Any, seeds: int) -> list[float]:
    """The objectives of `Unprojected` after 100 rounds [seeds]."""
    codec = jdfl.OneBit(d=None if size is FULL else 3 * size.n)
    algorithm = Unprojected(s=size.s, codec=codec, lr=SPARSE[0])
    given: Any = {"steps": FEW, "every": FEW, "metrics": ["objective"]}
    ended = [jdfl.run(algorithm, problem(size, seed), net, key=seed, **given) for seed in range(seeds)]
    return [float(np.nan_to_num(one.final["objective"], nan=MOST, posinf=MOST)) for one in ended]


def collect(size: Size, seeds: int) -> list[Row]:
    rows: list[Row] = []
    for place, net in networks(size).items():
        histories: dict[str, list[pd.DataFrame]] = {}
        for name, (algorithm, rates) in methods(size).items():
            lr, results = best(algorithm, rates, size, net, seeds)
            histories[name] = [one.history for one in results]
            rows += told(f"{place}, {name}", lr, results)
        for column in ("bytes", "round"):
            pairs = zip(histories[SGP], histories[ONE_BIT])
            values = [at(one, column, float(other[column].iloc[-1])) for one, other in pairs]
            rows.append(row(f"{place}, {SGP}", f"objective at equal {column.rstrip('s')}s", None, values))
        rows.append(row(f"{place}, no projection", "objective", None, without_projection(size, net, seeds)))
    return rows


@experiment(seeds=3)
def main(chosen: Options) -> Made:
    """All of it, or a small problem with `--quick`."""
    rows = collect(SMALL if chosen.quick else FULL, chosen.seeds)
    return Made({f"Until the objective is f(w*) + {MARGIN} (Example 1)": rows}, bars(rows, ["MB"], "MB of all nodes"))
