"""All methods on unreliable networks: against the share of lost messages, and against simulated time.

Example 1 of the CEPS paper, with equal numbers of rows per node, on one Erdos-Renyi graph, without noise; every seed
has its own data and faults. Step sizes are half of 1 / L, L being the largest curvature of a node's loss (a tenth for
momentum), and are not tuned: each method is compared with itself, on networks that get worse.

Loss: both directions of a link are lost together, independently in every round, or in bursts of ten rounds on average
(Gilbert-Elliott) with the same share. The weight of a missing message goes to the node's own row; with push-sum the
sender keeps it. The table has the objective of the nodes' own models on all data after the last round.

Time: gradients take Pareto times, some nodes are permanently slow, messages take a tenth of a second and 1 MB/s. Every
round waits for all neighbours, or (for methods that accept any row weights) for the first half to respond. The table
has the same objective after equal simulated seconds; a node that has finished its rounds keeps its value.

Methods that refuse such networks have no row: those that build on every earlier message, and FedAvg, whose clients have
no neighbours.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

import jdfl
from experiments.ceps_stragglers import Size
from experiments.common import Made, Options, Row, bars, experiment, row
from experiments.fair_comparison import nodes_objective
from jdfl import network as nw

BURST = 10.0  # rounds
SHARES = (0.1, 0.3, 0.6)
SECONDS = (30, 100, 300, 1000)
SLOWNESS = nw.LogNormalTime(1.0, 1.0)  # of 32 nodes, the slowest is about eight times as slow as the median
PUSH = ("SGP", "PartPSP")
ANY_ROWS = ("CEPS", "CEPS, int8", "IHT-D-PSGD", "D-PSGD", "DFedAvgM", "DFedSAM")
INT8 = jdfl.Sparse(value="int8", index="enumerative")


FULL, SMALL = Size(32, 500, 10, (500, 500), 200), Size(8, 40, 3, (40, 40), 60)


def methods(problem: jdfl.problems.Problem, s: int) -> dict[str, Any]:
    """The methods that accept networks with missing messages, whose weights need not preserve the mean of the nodes."""
    lr = 0.5 / float(np.max(np.asarray(problem.curvature)))
    return {
        "CEPS": jdfl.CEPS(s=s, sigma_rule="safe"),
        "CEPS, int8": jdfl.CEPS(s=s, sigma_rule="safe", codec=INT8),
        "IHT-D-PSGD": jdfl.IHT(s=s, lr=lr, objective="pi"),
        "D-PSGD": jdfl.DPSGD(lr=lr, objective="pi"),
        "DFedAvgM": jdfl.DFedAvgM(lr=lr / 5, objective="pi"),
        "DFedSAM": jdfl.DFedSAM(lr=lr, objective="pi"),
        "MATCHA": jdfl.MATCHA(lr=lr),
        "DSGT": jdfl.DSGT(lr=lr / 5),
        "SGP": jdfl.SGP(lr=lr),
        "PartPSP": jdfl.PartPSP(lr_shared=lr, gradients=jdfl.Gradients()),
        "LocalOnly": jdfl.LocalOnly(lr=lr),
    }


def base(size: Size) -> Any:
    return nw.erdos_renyi(size.m, 0.5)


def lost(whole: Any, method: str, share: float, *, bursts: bool) -> Any:
    """The network that loses a share of all messages."""
    weights = "sender" if method in PUSH else "own"
    if share == 0:
        return whole
    if bursts:
        return nw.bursty_loss(whole, share / (1 - share) / BURST, 1 / BURST, weights=weights)
    return nw.link_loss(whole, share, weights=weights)


def timed(whole: Any, *, first: bool) -> Any:
    """The network with simulated times, waiting for all neighbours or for the first half to respond."""
    slow = nw.timed(
        whole,
        nw.ParetoTime(1.0, 2.0),
        latency=nw.FixedTime(0.1),
        bandwidth=8e6,
        slowness=SLOWNESS,
        first=first,
    )
    return nw.partial_communication(slow, 0.5) if first else slow


def run(size: Size, method: str, network: Any, seed: int) -> pd.DataFrame:
    problem = jdfl.problems.example1(size.m, size.n, size.s, size.rows, seed=seed)
    algorithm = methods(problem, size.s)[method]
    result = jdfl.run(algorithm, problem, network, key=seed, steps=size.steps, every=5, metrics=[nodes_objective])
    return result.history


def losses(size: Size, chosen: Sequence[str], seeds: int) -> list[Row]:
    """The final objective of every method, by the share of lost messages and the kind of loss."""
    rows = []
    for method in chosen:
        for share in (0.0, *SHARES):
            for bursts in (False, True) if share else (False,):
                column = f"{share:.0%} lost" + (", bursts" if bursts else "")
                net = lost(base(size), method, share, bursts=bursts)
                histories = [run(size, method, net, seed) for seed in range(seeds)]
                ends = [float(_numbers(one, "nodes_objective")[-1]) for one in histories]
                rows.append(row(method, column, None, ends))
    return rows


def times(size: Size, chosen: Sequence[str], seeds: int) -> dict[str, list[pd.DataFrame]]:
    """The records by method and the neighbours it waits for, with simulated seconds."""
    found = {}
    for method in chosen:
        for first in (False, True) if method in ANY_ROWS else (False,):
            label = f"{method}, first half" if first else method
            net = timed(base(size), first=first)
            found[label] = [run(size, method, net, seed) for seed in range(seeds)]
    return found


def at_seconds(found: dict[str, list[pd.DataFrame]]) -> list[Row]:
    """The objective after equal simulated seconds; a run that has finished all rounds keeps its value."""
    rows = []
    for label, runs in found.items():
        for budget in SECONDS:
            rows.append(row(label, f"after {budget} s", None, [_at(one, budget) for one in runs]))
        rounds = [_numbers(one, "network_seconds")[-1] / _numbers(one, "round")[-1] for one in runs]
        rows.append(row(label, "s per round", None, rounds))
    return rows


def _numbers(history: pd.DataFrame, column: str) -> np.ndarray:
    return history[column].to_numpy(float)


def _at(history: pd.DataFrame, seconds: float) -> float:
    """The objective after `seconds`, which before the first record is that of the start."""
    done = int(np.sum(_numbers(history, "network_seconds") <= seconds))
    return float(_numbers(history, "nodes_objective")[max(done, 1) - 1])


@experiment(seeds=3)
def main(chosen: Options) -> Made:
    """All methods, or two on a small problem with `--quick`."""
    size = SMALL if chosen.quick else FULL
    problem = jdfl.problems.example1(size.m, size.n, size.s, size.rows)
    names = ("CEPS", "SGP") if chosen.quick else tuple(methods(problem, size.s))
    rows = losses(size, names, chosen.seeds)
    timed = at_seconds(times(size, names, chosen.seeds))
    tables = {"Objective of the nodes' own models under message loss": rows, "The same at equal simulated time": timed}
    return Made(
        tables, bars(rows, list(dict.fromkeys(one.column for one in rows)), "objective of the nodes' own models")
    )
