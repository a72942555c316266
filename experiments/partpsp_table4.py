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

import sys
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from matplotlib.figure import Figure
from rich import print as say

import jdfl
from experiments.common import Row, row, save, save_figure, show
from experiments.partpsp_common import NODES, SHARED, Task, method, networks, problem_of
from experiments.partpsp_paper import NETWORKS, SECONDS, Cell
from experiments.partpsp_tasks import chosen_rows, reduced, tasks

NAME = "partpsp_table4"
METHODS = {"SGP": None, "SGPDP": 3.0, "PartPSP-1": 3.0}  # b
ROUNDS = {"mlp": 720, "resnet": 720, "vit": 600}  # of the paper's runs: 12 epochs over 60,000 or 50,000 images
REPEATS = 3
MEASURED, QUICK = {"mlp": 120, "resnet": 12, "vit": 12}, 48  # multiples of the networks' periods and of 4
GIGABIT = 1e9


def full(model: str) -> jdfl.models.Model:
    """The paper's network."""
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
    """A row per network and method."""
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
        say(*(f"{one.case}, {one.column}: {one.mean:.4g}\n" for one in rows if f", {net}:" in one.case))
    return rows


def over(values: Sequence[float], others: Sequence[float]) -> list[float]:
    """Ratios, run by run."""
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


def draw(rows: Sequence[Row], path: str) -> None:
    """A panel per model: computation and communication stacked, the paper's total as crosses."""
    titles = list(dict.fromkeys(one.case.rpartition(", ")[0] for one in rows if one.column == "compute, s"))
    fig = Figure(figsize=(4.6 * len(titles), 4.6), layout="constrained")
    axes = fig.subplots(1, len(titles), squeeze=False)[0]
    for axis, title in zip(axes, titles):
        parts = {
            column: [one for one in rows if one.case.startswith(f"{title}, ") and one.column == column]
            for column in ("compute, s", "communication, s", "both, s")
        }
        labels = [one.case.removeprefix(f"{title}, ") for one in parts["compute, s"]]
        compute, talk = ([one.mean for one in parts[column]] for column in ("compute, s", "communication, s"))
        axis.bar(labels, compute, label="compute")
        axis.bar(labels, talk, bottom=compute, label="communication at 1 Gbps")
        if parts["both, s"]:
            axis.plot(labels, [one.paper for one in parts["both, s"]], "kx", label="paper")
        axis.set_xticks(range(len(labels)), labels, rotation=60, ha="right", fontsize=8)
        axis.set_title(title, fontsize=8)
    axes[0].set_ylabel("seconds of a run")
    fig.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=3, frameon=False)
    save_figure(fig, path)


def main(arguments: Sequence[str] | None = None) -> list[Row]:
    """Print the table and what grows with the degree, write the JSON and the figure."""
    given, models = chosen_rows(__doc__ or "", arguments)
    made: list[Row] = []
    for model in models:
        task = tasks(model, quick=given.quick)[0]
        rounds = QUICK if given.quick else ROUNDS[model] if not reduced(task) and model != "mlp" else MEASURED[model]
        rows = collect(model, task, NETWORKS, rounds, given.seeds)
        made += [*rows, *growth(model, task.title, rows)]
        save(made, given.out, NAME)
    show("Table IV: seconds of a run", made)
    for one in made:
        if one.column.startswith("from"):
            say(f"{one.case}, {one.column}: {one.paper:.4g} in the paper, {one.mean:.4g} for the bytes at 1 Gbps")
    draw(made, str(given.out / f"{NAME}.png"))
    return made


if __name__ == "__main__":
    main()
    sys.exit(0)
