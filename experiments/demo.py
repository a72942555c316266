"""An overview in half a minute: CEPS, all four variants, on its paper's Example 1 and on real data.

Prints tables with the paper's numbers and ours, and writes them with a figure and the page DIR/demo.html, whose charts
have all metrics against all costs. The real data is breast_cancer, which is part of scikit-learn, on 16 nodes, without
noise. The "optimum" has as many nonzeros as the models. The variants with DP add the paper's noise, for which jdfl
claims no privacy (docs/errata.md says why). Bands are 95 % confidence intervals. `--quick` leaves out the variants with
whole vectors.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import jax.numpy as jnp
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

import jdfl
from experiments.ceps_table3 import CASES, VARIANTS, measured, network_of, run_variant
from experiments.common import Made, Options, Row, compile_sooner, experiment, html_table, origin, row
from jdfl.lab import charts, drawing
from jdfl.lab.curves import AXES, BAND, band, long_form
from jdfl.lab.drawing import Picture
from jdfl.lab.page import Chart, Section, page
from jdfl.problems import Problem, base_rate, sparse_optimum, value_at_truth

CASE, ROUNDS = CASES[0], 300  # the second on real data, as the next three
NODES, SPARSITY, SEEDS = 16, 10, 3
MESSAGES = {"one-bit": jdfl.OneBit(d=120), "whole vectors": jdfl.Dense()}
DISTANCE = "above the optimum"
NEXT = (  # commands to try
    "choose --directed",
    "run --algorithm choco-sgd --network torus --steps 60",
    "account --releases 100 --multiplier 60 --delta 1e-5",
)
_TITLES = AXES | {"kB": "kB sent by all nodes"}


@dataclass(frozen=True)
class Found:
    """Runs of one problem by variant, a run per seed."""

    runs: Mapping[str, Sequence[jdfl.Result]]
    problems: Sequence[Problem]
    least: Sequence[float]  # objectives of the best sparse parameters, seed by seed

    def curves(self) -> pd.DataFrame:
        """The records of all runs below one another, with kB and the distance to the optimum."""
        some = [(name, [replace(one, labels={"seed": k}) for k, one in enumerate(r)]) for name, r in self.runs.items()]
        table = pd.concat([long_form(*one) for one in some], ignore_index=True)
        least = np.asarray(self.least)[table["seed"].to_numpy(int)]
        return table.assign(kB=table["bytes"] / 1e3, **{DISTANCE: table["objective"] - least})

    def chart(self, metrics: Sequence[str], title: str) -> Chart:
        """All runs with bands, against a cost that the reader selects."""
        table = self.curves()
        axes = [one for one in ("kB", "round", "communications", "gradients") if one in table]
        return charts.curves((((x, y), band(table, x, y)) for y in metrics for x in axes), _TITLES, title)

    def rows(self, columns: Sequence[str]) -> list[Row]:
        """The last records."""
        last = self.curves().groupby(["label", "seed"], sort=False).last()
        return [row(name, one, None, last.loc[name, one].tolist()) for name in self.runs for one in columns]


def example1(variants: Sequence[str], seeds: int) -> Found:
    """The chosen variants on Example 1, recorded in every round."""
    problems = [jdfl.problems.example1(m=CASE.m, seed=seed) for seed in range(seeds)]
    runs: dict[str, list[jdfl.Result]] = {}
    for variant in variants:
        print(f"Example 1, {variant}", flush=True)
        runs[variant] = [run_variant(CASE, variant, seed, one, every=1) for seed, one in enumerate(problems)]
    print("the optimum of Example 1", flush=True)
    return Found(runs, problems, [sparse_optimum(one, SPARSITY).value for one in problems])


def real_data(seeds: int) -> Found:
    """CEPS without noise on breast_cancer, with messages of two kinds."""
    problems = [jdfl.problems.classification("breast_cancer", NODES, seed=seed) for seed in range(seeds)]
    runs: dict[str, list[jdfl.Result]] = {}
    for label, codec in MESSAGES.items():
        print(f"real data, {label}", flush=True)
        algorithm, options = jdfl.CEPS(s=SPARSITY, rate=0.2, codec=codec), jdfl.Options(chunk=ROUNDS)
        for seed, problem in enumerate(problems):
            given = problem, network_of(replace(CASE, m=NODES), seed)
            result = jdfl.run(algorithm, *given, key=seed, steps=ROUNDS, every=10, options=options)
            runs.setdefault(label, []).append(result)
    print("the optimum of the real data", flush=True)
    return Found(runs, problems, [sparse_optimum(one, SPARSITY).value for one in problems])


def nodes_of(found: Found, variant: str) -> Chart:
    """The network of the first seed: what every node communicated, and the value of its own loss at its parameters."""
    run, graph = found.runs[variant][0], network_of(CASE, 0).graph
    values = np.asarray(found.problems[0].values(jnp.asarray(run.params)))
    nodes = pd.DataFrame(
        {"round": run.rounds, "node": range(CASE.m), "communications": run.communication_rounds, "value": values}
    )
    node, slot = np.nonzero(np.asarray(graph.mask))
    links = pd.DataFrame({"round": run.rounds, "node": node, "hears": np.asarray(graph.senders)[node, slot]})
    return charts.network(nodes, links, f"A network of {CASE.m} nodes")


def draw(found: Mapping[str, Found]) -> Figure:
    """The distance to the optimum against kB, on generated and on real data."""
    sheet = Picture(figsize=(drawing.WIDTHS["page"], 3.0), layout="constrained")
    for axis, (title, one) in zip(sheet.subplots(1, 2), found.items()):
        names = {label: label for label in one.runs}
        means = band(one.curves(), "kB", DISTANCE)
        drawing.lines({_TITLES["kB"]: means}, names, DISTANCE, band=BAND, ax=axis)
        axis.set_title(title, fontsize=7)
        axis.legend(fontsize=7)
        drawing.plain(axis)
    return sheet


if __name__ == "__main__":
    compile_sooner(os.environ)


@experiment()
def main(chosen: Options) -> Made:
    """Run both, and write the page as well."""
    variants = [one for one in VARIANTS if one.endswith("1BCS")] if chosen.quick else list(VARIANTS)
    example, real = example1(variants, chosen.seeds), real_data(min(chosen.seeds, SEEDS))
    paper = measured(CASE, example.runs, [value_at_truth(one) for one in example.problems])
    paper = [replace(one, case=one.case.split()[-1]) for one in paper if one.column in ("rounds", "objective")]
    balanced = real.rows(("objective", DISTANCE, "balanced_accuracy", "kB"))
    balanced.append(row("always the base rate", "objective", None, [base_rate(one) for one in real.problems]))
    tables = {
        f"Example 1, {CASE.m} nodes: Table III of the paper": paper,
        f"Example 1, {CASE.m} nodes: to the end of the runs": example.rows((DISTANCE, "kB")),
        f"breast_cancer, {NODES} nodes, {ROUNDS} rounds": balanced,
    }
    metrics = DISTANCE, "objective_local", "support_recovery"
    first, second, third = ([title, html_table(rows)] for title, rows in tables.items())
    path = page(
        chosen.out / "demo.html",
        "jdfl: CEPS on Example 1 and on real data",
        [
            Section("Example 1", [*first, *second, example.chart(metrics, "Example 1")]),
            Section("Real data", [*third, real.chart((DISTANCE, "balanced_accuracy", "consensus_error"), "real data")]),
            Section(f"The network of {variants[0]}, first seed", [nodes_of(example, variants[0])]),
        ],
        f"Provenance {origin().hash}.",
    )
    print("page:", path, "\nnext, for example:", *(f"jdfl {words}" for words in NEXT), sep="\n  ")
    return Made(tables, draw({"Example 1": example, "breast_cancer": real}))
