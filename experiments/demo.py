"""An overview in a minute: CEPS, all four variants, on its paper's Example 1 and on a real dataset.

Run `python -m experiments.demo [--quick] [--seeds N] [--out DIR]`. Prints a table with the paper's numbers and ours and
writes DIR/demo.json, DIR/demo.png and the page DIR/demo.html. The real data is QSAR oral toxicity where JDFL_DATA names
a folder that has it, otherwise scikit-learn's breast_cancer, which is always available.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd

import jdfl
from experiments.ceps_table3 import CASES, VARIANTS, collect, run_variant, verdict
from experiments.common import (
    Options,
    Row,
    compile_sooner,
    html_table,
    options,
    origin,
    row,
    save,
    save_figure,
    show,
)
from jdfl.lab import charts, drawing
from jdfl.lab.bands import Bands
from jdfl.lab.curves import AXES
from jdfl.lab.page import Chart, Section, page
from jdfl.lab.results import tables
from jdfl.lab.watch import Watch
from jdfl.problems import base_rate, sparse_optimum

NAME = "demo"
WATCHED = "NoDP-1BCS"


def real_problem(seed: int, quick: bool) -> tuple[jdfl.problems.Problem, int, int]:
    """A logistic regression on real data, the sparsity to learn with, and the signs of a one-bit message."""
    folder = os.environ.get("JDFL_DATA")
    if folder and not quick and (Path(folder) / "qsar_oral_toxicity").is_dir():
        return jdfl.problems.classification("qsar", 32, seed=seed), 50, 1024
    return jdfl.problems.classification("breast_cancer", 16, seed=seed), 10, 120


def real_data(seeds: int, quick: bool) -> tuple[list[Row], dict[str, pd.DataFrame]]:
    """CEPS without noise on real data, with the base rate and a centralised sparse optimum for reference."""
    histories: dict[str, pd.DataFrame] = {}
    found: dict[str, list[jdfl.Result]] = {}
    lines: dict[str, list[float]] = {"always the base rate": [], "centralised, same sparsity": []}
    name = ""
    for seed in range(seeds):
        problem, s, d = real_problem(seed, quick)
        name = problem.name
        lines["always the base rate"].append(base_rate(problem))
        lines["centralised, same sparsity"].append(sparse_optimum(problem, s).value)
        network = jdfl.network.erdos_renyi(problem.m, 0.45, seed=seed)
        network = replace(network, graph=jdfl.network.pad(network.graph, problem.m - 1))
        for label, codec in {
            "NoDP-1BCS": jdfl.OneBit(d=d),
            "NoDP-sparse": jdfl.Sparse(),
            "NoDP-Perf": jdfl.Dense(),
        }.items():
            algorithm = jdfl.CEPS(s=s, rate=0.2, codec=codec)
            result = jdfl.run(
                algorithm, problem, network, key=seed, steps=300, every=10, options=jdfl.Options(chunk=300)
            )
            found.setdefault(label, []).append(result)
            histories.setdefault(label, result.history)
    rows: list[Row] = []
    for label, results in found.items():
        case = f"{name} {label}"
        for column in ("objective", "balanced_accuracy"):
            rows.append(row(case, column.replace("_", " "), None, [result.final[column] for result in results]))
        rows.append(row(case, "true kB", None, [result.totals.bytes / 1e3 for result in results]))
        rows.append(
            row(case, "bytes per message", None, [r.totals.bits / 8 / sum(r.totals.messages.values()) for r in results])
        )
    rows += [row(f"{name} {label}", "objective", None, values) for label, values in lines.items()]
    return rows, histories


def example1_histories(quick: bool) -> tuple[dict[str, pd.DataFrame], dict[str, pd.DataFrame]]:
    """One seed of every variant, recorded in every round, and the tables of the nodes of one."""
    problem = jdfl.problems.example1(m=CASES[0].m, seed=0)
    found, of_nodes = {}, {}
    for variant in VARIANTS[:2] if quick else VARIANTS:
        with TemporaryDirectory() as folder:
            store = jdfl.Checkpoints(folder)
            watching = [Watch(store, problem), store] if variant == WATCHED else []
            found[variant] = run_variant(CASES[0], variant, 0, problem, every=1, callbacks=watching).history
            of_nodes |= tables(folder) if watching else {}
    return found, of_nodes


def lines(histories: Mapping[str, pd.DataFrame], metrics: Sequence[str], m: int) -> Chart:
    """One run of every variant, against an axis that the reader selects."""
    runs = [run.assign(label=label, seed=0, ending="steps") for label, run in histories.items()]
    table = pd.concat(runs, ignore_index=True)
    table["communications"] /= m
    axes = [name for name in ("round", "communications", "bytes", "gradients") if name in table]
    return charts.curves(Bands(table, axes, metrics), AXES, f"{', '.join(metrics)} against {', '.join(axes)}")


def write_page(
    chosen: Options,
    example: Sequence[Row],
    example_runs: Mapping[str, pd.DataFrame],
    real: Sequence[Row],
    real_runs: Mapping[str, pd.DataFrame],
    of_nodes: Mapping[str, pd.DataFrame],
) -> Path:
    """DIR/demo.html: tables, curves and the network in one file."""
    nodes, links, split = (of_nodes[name] for name in ("nodes", "links", "split"))
    real_m = real_problem(0, chosen.quick)[0].m
    return page(
        chosen.out / f"{NAME}.html",
        "jdfl: CEPS on Example 1 and on real data",
        [
            Section(
                "Example 1, paper and ours",
                [
                    "Four variants of CEPS (Sha, Zhou, Kong, Li; Table III, first column). A run ends when the nodes "
                    "agree, by the paper's rule. 'study' is an independent numpy re-implementation. The variants with "
                    "DP use the paper's noise, which does not make them private; no guarantee is claimed.",
                    html_table(example),
                ],
            ),
            Section(
                "Example 1, one seed",
                [
                    "Choose the metric, and the cost to plot it against.",
                    lines(example_runs, ("objective", "objective_local", "support_recovery"), CASES[0].m),
                ],
            ),
            Section(
                f"The network of {WATCHED}",
                [
                    "Nodes are coloured by their current value; a small node has combined no messages since the "
                    "previous moment.",
                    charts.network(nodes, links, f"A network of {CASES[0].m} nodes"),
                    "Examples of the nodes:",
                    charts.bars(split["node"].tolist(), {"examples": split["examples"].tolist()}, "node", "examples",
                                "Examples of every node"),
                ],
            ),
            Section(
                "Real data",
                [
                    "CEPS without noise, 300 rounds. The objective of always predicting the base rate and that of a "
                    "centralised solver with the same number of nonzeros are shown for reference.",
                    html_table(real),
                    lines(real_runs, ("objective", "objective_local", "balanced_accuracy", "consensus_error"), real_m),
                ],
            ),
        ],
        f"Provenance {origin().hash}.",
    )  # fmt: skip


def draw(histories: Mapping[str, pd.DataFrame], path: Path) -> None:
    """The objective of all runs against rounds and against bytes."""
    panels: dict[str, pd.DataFrame] = {}
    for x in ("round", "bytes"):
        frames: list[pd.DataFrame] = []
        for label, history in histories.items():
            value = history["objective"]
            frame = {"label": label, "x": history[x], "mean": value, "low": value, "high": value}
            frames.append(pd.DataFrame(frame))
        panels[AXES[x]] = pd.concat(frames, ignore_index=True)
    fig, _ = drawing.lines(panels, {label: label for label in histories}, "objective", width="page")
    save_figure(fig, path)


def main(arguments: Sequence[str] | None = None) -> list[Row]:
    """Both parts, the figures and the page."""
    chosen = options("CEPS in a minute", seeds=3, arguments=arguments)
    print(f"Example 1: 32 nodes, 4 variants, {chosen.seeds} seeds ...", flush=True)
    example = collect(CASES[:1], chosen.seeds)
    show("Example 1 (CEPS paper, Table III, first column)", example)
    print(verdict(example))
    print("Real data ...", flush=True)
    real, histories = real_data(1 if chosen.quick else chosen.seeds, chosen.quick)
    show("Real data, 300 rounds", real)
    one_seed, of_nodes = example1_histories(chosen.quick)
    save([*example, *real], chosen.out, NAME)
    draw(one_seed, chosen.out / f"{NAME}.png")
    draw(histories, chosen.out / f"{NAME}_real.png")
    print(f"figure:  {(chosen.out / NAME).resolve()}.png")
    print(f"report:  {write_page(chosen, example, one_seed, real, histories, of_nodes).resolve()}")
    return [*example, *real]


if __name__ == "__main__":
    compile_sooner(os.environ)
    main(sys.argv[1:])
