"""DPPS paper, Table IV: the time that runs of SGP, SGPDP and PartPSP-1 spend on computation and communication.

Run `python -m experiments.partpsp_table4 [--quick] [--seeds N] [--out DIR] [--rows mlp,resnet,vit]`. b = 3 and S of
Eq. 22, so that the scalars that nodes broadcast are counted, too.

    compute = seconds of some rounds here, scaled to the whole run, the smallest of three; all ten nodes on one machine
    communication = 8 bytes / (nodes * 1e9): each node sends what the run counted, one message after another, at 1 Gbps

Where a model is "reduced" because there is no accelerator, its compute seconds are those of the small network, while
the communication is that of the full one: the messages that the run counted, times the full one's size. The paper's
seconds are for other hardware: only ratios are comparable, and the cost of additional messages, which does not depend
on hardware. Seeds repeat the measurement, methods in turn. Two minutes on two cores for the perceptron.
"""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp

import jdfl
from experiments.common import Made, Options, Row, bars, experiment, row
from experiments.partpsp_common import (
    FLAGS,
    NODES,
    SHARED,
    Task,
    chosen_rows,
    method,
    networks,
    problem_of,
    reduced,
    tasks,
)
from experiments.partpsp_paper import NETWORKS, SECONDS, Cell

METHODS = {"SGP": None, "SGPDP": 3.0, "PartPSP-1": 3.0}  # b
ROUNDS = {"mlp": 720, "resnet": 720, "vit": 600}  # of the paper's runs: 12 epochs over 60,000 or 50,000 images
REPEATS = 3
MEASURED, QUICK = {"mlp": 120, "resnet": 12, "vit": 12}, 48  # multiples of the networks' periods and of 4
GIGABIT = 1e9


def full(model: str) -> jdfl.models.Model:
    return {"mlp": jdfl.models.mlp, "resnet": jdfl.models.resnet18, "vit": jdfl.models.vit}[model]()


def measure(model: str, task: Task, net: str, name: str, rounds: int, seed: int) -> tuple[float, float]:
    """Compute seconds and communication seconds of the whole run."""
    kind = "SGPDP" if name == "SGP" else name
    problem = problem_of(task, SHARED[kind])
    dpps = jdfl.DPPS(b=METHODS[name], sensitivity="eq22")
    algorithm = method(kind, task, problem, dpps)
    given: dict[str, Any] = {"steps": rounds, "every": rounds, "key": seed, "metrics": ["consensus_error"]}
    again = [jdfl.run(algorithm, problem, networks()[net], **given) for _ in range(REPEATS)]
    result = min(again, key=lambda one: one.seconds)
    times, bits = ROUNDS[model] / rounds, result.totals.message_bits
    if reduced(task):
        d = full(model).split(SHARED[kind]).n_shared
        bits = dpps.message_bits(d, jnp.float32)
    sent = sum(count * bits[channel] for channel, count in result.totals.messages.items())
    return result.seconds * times, sent * times / (NODES * GIGABIT)


def collect(model: str, task: Task, nets: Sequence[str], rounds: int, seeds: int) -> list[Row]:
    rows = []
    for net in nets:
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in METHODS}
        for seed in range(seeds):
            for name, found in times.items():
                found.append(measure(model, task, net, name, rounds, seed))
        for name, b in METHODS.items():
            case, paper = f"{task.title}, {net}: {name}", SECONDS[Cell(model, net, name, b)]
            compute, talk = zip(*times[name])
            first_compute, first_talk = zip(*times["SGP"])
            rows += [row(case, "compute, s", None, compute), row(case, "communication, s", None, talk)]
            both, first = ([sum(pair) for pair in times[one]] for one in (name, "SGP"))
            ratio = paper / SECONDS[Cell(model, net, "SGP")]
            if reduced(task):
                rows.append(row(case, "ratio, communication", ratio, over(talk, first_talk)))
                rows.append(row(case, "ratio, compute", None, over(compute, first_compute)))
            else:
                rows += [row(case, "both, s", paper, both), row(case, "both / SGP", ratio, over(both, first))]
    return rows


def over(values: Sequence[float], others: Sequence[float]) -> list[float]:
    return [value / other for value, other in zip(values, others)]


def growth(model: str, title: str, rows: Sequence[Row]) -> list[Row]:
    """The increase of the paper's seconds with the degree, and that of the bytes at 1 Gbps."""
    talk = {one.case.removeprefix(f"{title}, "): one.mean for one in rows if one.column == "communication, s"}
    found = []
    for name, b in METHODS.items():
        if all(f"{net}: {name}" in talk for net in ("4-Out", "8-Out")):
            paper = SECONDS[Cell(model, "8-Out", name, b)] - SECONDS[Cell(model, "4-Out", name, b)]
            ours = talk[f"8-Out: {name}"] - talk[f"4-Out: {name}"]
            found.append(row(f"{title}: {name}", "from 4-Out to 8-Out, s", paper, [ours]))
    return found


@experiment(seeds=1, flags=FLAGS)
def main(chosen: Options) -> Made:
    rows: list[Row] = []
    for model in chosen_rows(chosen):
        task = tasks(model, quick=chosen.quick)[0]
        rounds = QUICK if chosen.quick else ROUNDS[model] if not reduced(task) and model != "mlp" else MEASURED[model]
        mine = collect(model, task, NETWORKS, rounds, chosen.seeds)
        rows += [*mine, *growth(model, task.title, mine)]
    fig = bars(rows, ["compute, s", "communication, s", "both, s"], "seconds of a run")
    return Made({"Table IV: seconds of a run": rows}, fig)
