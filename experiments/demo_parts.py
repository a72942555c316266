"""The parts of `experiments.demo`: its runs, its sentences, its tables, its figure and its page."""

import io
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pandas as pd
from rich import box
from rich.console import Console
from rich.table import Table

import jdfl
from experiments import ledger
from experiments.ceps_table3 import CASES, VARIANTS, measured, network_of, run_variant
from experiments.common import Options, Row, compile_sooner, options, origin, row, save, save_figure
from jdfl.base.terminal import Heartbeat
from jdfl.lab import charts, drawing, page
from jdfl.lab.curves import AXES, BAND, band, long_form
from jdfl.lab.drawing import Picture
from jdfl.lab.page import Chart, Code, Fold, Section
from jdfl.problems import base_rate, sparse_optimum, value_at

COLUMNS = 80  # of the output
CASE = CASES[0]
NODES, SPARSITY, ROUNDS, SEEDS = 16, 10, 300, 3  # on real data
MESSAGES = {"one-bit": jdfl.OneBit(d=120), "whole vectors": jdfl.Dense()}
REFERENCES = ("all data in one place", "always the base rate")
STATEMENT = "table-3-one-bit"  # of the paper, in the ledger
DISTANCE = "distance to the optimum"
_AMOUNTS = ("kB", "round", "communications", "gradients")
_TITLES = AXES | {"kB": "kB sent by all nodes"}


@dataclass(frozen=True)
class Found:
    """Runs of one problem by variant, a run per seed, and objectives to compare with, seed by seed."""

    runs: Mapping[str, Sequence[jdfl.Result]]
    least: Sequence[float]  # that is known, with as many nonzeros
    other: Sequence[float]  # of the generating parameters, or of predicting the base rate
    problem: jdfl.problems.Problem  # of the first seed

    def mean(self, variant: str, column: str) -> float:
        """The mean over seeds of the last value of a metric, or of DISTANCE, `round` or `kB`."""
        last = self.curves(variant).groupby("seed").last()
        return float(last[column].mean())

    def curves(self, *variants: str) -> pd.DataFrame:
        """The records of all runs below one another, with kB and the distance to the optimum."""
        frames: list[pd.DataFrame] = []
        for variant in variants or self.runs:
            results = [replace(one, labels={"seed": seed}) for seed, one in enumerate(self.runs[variant])]
            frames.append(long_form(variant, results))
        table = pd.concat(frames, ignore_index=True)
        least = np.asarray(self.least)[table["seed"].to_numpy(int)]
        return table.assign(kB=table["bytes"] / 1e3, **{DISTANCE: table["objective"] - least})


def demo(name: str, beat: Heartbeat, arguments: Sequence[str], sooner: bool) -> list[Row]:
    """Everything that `experiments.demo` does, under its name; returns the rows of its table."""
    if sooner:
        compile_sooner(os.environ)
    chosen = options("CEPS in half a minute", seeds=5, arguments=arguments)
    variants = [one for one in VARIANTS if one.endswith("1BCS")] if chosen.quick else list(VARIANTS)
    example, real = example1(variants, chosen.seeds, beat), real_data(min(chosen.seeds, SEEDS), beat)
    rows = [*rows_of_example(example), *rows_of_real(real)]
    beat.say("drawing")
    said = sentences(example, real)
    draw(example, real, chosen.out / f"{name}.png")
    save(rows, chosen.out, name)
    write_page(chosen, name, said, example, real, rows)
    shown = (
        *(f"{number}. {text}" for number, text in enumerate(said, 1)),
        table(
            f"Example 1, {CASE.m} nodes: ours, and the paper's in brackets", HEADS, cells1(example), caption1(example)
        ),
        table(f"Real data, {NODES} nodes, {ROUNDS} rounds, mean of {len(real.least)} seeds", HEADS2, cells2(real), ""),
        NOTE,
        ending(chosen, name),
    )
    beat.print("\n\n".join(printed(text).strip("\n") for text in shown))
    return rows


def example1(variants: Sequence[str], seeds: int, beat: Heartbeat) -> Found:
    """The chosen variants on Example 1, recorded in every round."""
    beat.say(f"drawing the data of Example 1, {seeds} seeds")
    problems = [jdfl.problems.example1(m=CASE.m, seed=seed) for seed in range(seeds)]
    runs: dict[str, list[jdfl.Result]] = {}
    for number, variant in enumerate(variants, 1):
        for seed, problem in enumerate(problems):
            what = "compiling" if not seed else f"seed {seed + 1} of {seeds}"
            beat.say(f"Example 1, {variant} ({number} of {len(variants)}): {what}")
            runs.setdefault(variant, []).append(run_variant(CASE, variant, seed, problem, every=1))
    beat.say("the optimum of Example 1")
    truths = [jdfl.problems.value_at_truth(one) for one in problems]
    return Found(runs, [least_value(one) for one in problems], truths, problems[0])


def least_value(problem: jdfl.problems.LinearRegression) -> float:
    """The least mean_i f_i of parameters with the support of the truth, by least squares over the data of all nodes."""
    w = np.zeros(problem.n)
    support = np.flatnonzero(np.asarray(problem.truth))
    X, y, c = (np.concatenate(parts) for parts in zip(*problem.host_examples()))
    root = np.sqrt(np.asarray(c, float))
    w[support] = np.linalg.lstsq(root[:, None] * np.asarray(X, float)[:, support], root * y, rcond=None)[0]
    return value_at(problem, w)


def real_data(seeds: int, beat: Heartbeat) -> Found:
    """CEPS without noise on breast_cancer, with messages of two kinds."""
    runs: dict[str, list[jdfl.Result]] = {}
    problems = [jdfl.problems.classification("breast_cancer", NODES, seed=seed) for seed in range(seeds)]
    for seed, problem in enumerate(problems):
        network = jdfl.network.erdos_renyi(NODES, 0.45, seed=seed)
        network = replace(network, graph=jdfl.network.pad(network.graph, NODES - 1))
        for label, codec in MESSAGES.items():
            beat.say(f"real data, {label}: {'compiling' if not seed else f'seed {seed + 1} of {seeds}'}")
            algorithm = jdfl.CEPS(s=SPARSITY, rate=0.2, codec=codec)
            run = jdfl.run(
                algorithm, problem, network, key=seed, steps=ROUNDS, every=10, options=jdfl.Options(chunk=ROUNDS)
            )
            runs.setdefault(label, []).append(run)
    beat.say("the optimum of the real data")
    least = [sparse_optimum(one, SPARSITY).value for one in problems]
    return Found(runs, least, [base_rate(one) for one in problems], problems[0])


def rows_of_example(example: Found) -> list[Row]:
    """All numbers of Example 1, with the paper's."""
    rows = measured(CASE, example.runs, example.other)
    for variant in example.runs:
        distances = example.curves(variant).groupby("seed").last()[DISTANCE]
        rows.append(row(f"{CASE} {variant}", DISTANCE, None, distances.tolist()))
    return rows


def rows_of_real(real: Found) -> list[Row]:
    """All numbers on real data, with what all data in one place and the base rate reach."""
    rows: list[Row] = []
    for label in real.runs:
        last = real.curves(label).groupby("seed").last()
        rows += [
            row(f"breast_cancer, {label}", column.replace("_", " "), None, last[column].tolist())
            for column in ("objective", DISTANCE, "balanced_accuracy", "kB")
        ]
    pairs = zip(REFERENCES, (real.least, real.other))
    return rows + [row(f"breast_cancer, {name}", "objective", None, values) for name, values in pairs]


def sentences(example: Found, real: Found) -> tuple[str, str, str]:
    """What was run and found, on generated and on real data, and what the paper has."""
    seeds = len(example.least)
    one_bit, whole = (mean_of(example, kind) for kind in ("1BCS", "Perf"))
    ran = (
        f"{CASE.m} nodes without a server learnt a sparse model from their own data, by sending messages to their "
        f"neighbours: CEPS in {len(example.runs)} variants on Example 1 of its paper, {seeds} seeds each, "
        f"and {NODES} nodes on the real data breast_cancer."
    )
    bits, dense = (f"{real.mean(label, 'kB'):.1f} kB" for label in MESSAGES)
    accuracy, other = (f"{real.mean(label, 'balanced_accuracy'):.3f}" for label in MESSAGES)
    against = (
        f" where whole vectors took {whole['kB']:,.0f} kB and ended {whole[DISTANCE]:.4f} above it" if whole else ""
    )
    found = (
        f"One-bit messages took {one_bit['kB']:.1f} kB and ended {one_bit[DISTANCE]:.4f} above the optimum{against}; "
        f"on the real data they took {bits} instead of {dense}, for a balanced accuracy of {accuracy} and {other}."
    )
    rounds = {one: example.mean(one, "round") for one in example.runs}
    theirs = dict[str, int](zip(VARIANTS, CASE.rounds))
    objectives = {one: example.mean(one, "objective") for one in example.runs}
    apart = max(abs(objectives[one] - dict[str, float](zip(VARIANTS, CASE.objective))[one]) for one in example.runs)
    (said,) = (one.quotation for one in ledger.papers()["ceps"].claims if one.id == STATEMENT)
    paper = [theirs[one] for one in rounds]
    beside = (
        f'The paper says of these variants (Table III) that "{said}": ours differ by at most '
        f"{spread(objectives.values()):.4f} and {spread(rounds.values()):.1f} rounds from each other, and by at most "
        f"{apart:.4f} from its objectives, but they take {min(rounds.values()):.1f} to {max(rounds.values()):.1f} "
        f"rounds where it has {min(paper)} to {max(paper)}."
    )
    return ran, found, beside


def mean_of(example: Found, kind: str) -> dict[str, float]:
    """The kB sent and the distance to the optimum of all variants of one kind; nothing where none was run."""
    mine = [variant for variant in example.runs if variant.endswith(kind)]
    return {name: float(np.mean([example.mean(one, name) for one in mine])) for name in ("kB", DISTANCE) if mine}


def spread(values: Iterable[float]) -> float:
    """The largest less the smallest."""
    return float(np.ptp(list(values)))


HEADS = ("variant", "rounds", "objective", DISTANCE, "kB sent")


def cells1(example: Found) -> list[list[str]]:
    """The small table of Example 1: ours, and the paper's number in brackets."""
    lines: list[list[str]] = []
    for place, variant in enumerate(VARIANTS):
        if variant in example.runs:
            formula = np.mean([run.published_bytes or np.nan for run in example.runs[variant]]) / 1e3
            lines.append([
                variant,
                f"{example.mean(variant, 'round'):.1f} ({CASE.rounds[place]})",
                f"{example.mean(variant, 'objective'):.4f} ({CASE.objective[place]})",
                f"{example.mean(variant, DISTANCE):.4f}",
                f"{example.mean(variant, 'kB'):,.1f} ({formula:,.0f})",
            ])  # fmt: skip
    return lines


def caption1(example: Found) -> str:
    """What the numbers of the small table are."""
    return (
        f"Ours: mean of {len(example.least)} seeds (Table III of the paper, which has no distance). kB sent: packed "
        "messages of all nodes (a formula that fits the volumes in the paper's Table V)."
    )


HEADS2 = ("real data", "objective", DISTANCE, "balanced accuracy", "kB sent")


def cells2(real: Found) -> list[list[str]]:
    """The small table of the real data."""
    lines = [
        [
            label,
            f"{real.mean(label, 'objective'):.4f}",
            f"{real.mean(label, DISTANCE):.4f}",
            f"{real.mean(label, 'balanced_accuracy'):.3f}",
            f"{real.mean(label, 'kB'):,.1f}",
        ]
        for label in real.runs
    ]
    pairs = zip(REFERENCES, (np.mean(real.least), np.mean(real.other)))
    return lines + [[name, f"{value:.4f}", f"{value - np.mean(real.least):.4f}", "", ""] for name, value in pairs]


def table(title: str, heads: Sequence[str], cells: Sequence[Sequence[str]], caption: str) -> Table:
    """A table for the terminal, numbers to the right."""
    made = Table(title=title, caption=caption, box=box.SIMPLE_HEAD, title_justify="left", caption_justify="left")
    for head in heads:
        made.add_column(head, justify="right" if made.columns else "left", no_wrap=not made.columns)
    for line in cells:
        made.add_row(*line)
    return made


def printed(what: Table | str) -> str:
    """A table or a paragraph, in lines of at most COLUMNS characters."""
    console = Console(file=io.StringIO(), width=COLUMNS, markup=False, highlight=False, emoji=False)
    console.print(what)
    assert isinstance(console.file, io.StringIO)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines())


NOTE = (
    "The variants with DP add the paper's noise, for which jdfl claims no privacy (docs/errata.md says why). The bands "
    "are 95 % confidence intervals."
)


def ending(chosen: Options, name: str) -> str:
    """Where everything is, and three commands to try."""
    files = {"page": "html", "figure": "png", "numbers": "json"}
    lines = [f"{what + ':':9}{chosen.out / name}.{kind}" for what, kind in files.items()]
    return "\n".join([*lines, "", "next: three commands to try", *(f"  {executable()} {words}" for words in COMMANDS)])


COMMANDS = (
    "choose --directed",
    "run --algorithm choco-sgd --network torus --steps 60",
    "account --releases 100 --multiplier 60 --delta 1e-5",
)


def executable() -> str:
    """The command of the environment in the folder in which the demo runs, or of the one that is active."""
    beside = Path(sys.executable).parent / "jdfl"
    inside = beside.is_file() and beside.is_relative_to(Path.cwd())
    return str(beside.relative_to(Path.cwd())) if inside else "jdfl"


def curves(found: Found, metrics: Sequence[str]) -> list[Chart | Fold]:
    """All runs with bands, by the first metric, and by the others folded."""
    table = found.curves()
    amounts = [one for one in _AMOUNTS if one in table][:2]
    drawn = [
        charts.curves([((x, y), band(table, x, y)) for x in amounts], _TITLES, y, [*found.runs], BAND) for y in metrics
    ]
    return [drawn[0], *(Fold(y.replace("_", " "), [one]) for y, one in zip(metrics[1:], drawn[1:]))]


def nodes_of(found: Found, variant: str) -> Chart:
    """The network of the first seed: what every node communicated, and the value of its own loss at its parameters."""
    run = found.runs[variant][0]
    values = np.asarray(found.problem.values(jnp.asarray(run.params)))
    nodes = pd.DataFrame(
        {"round": run.rounds, "node": range(CASE.m), "communications": run.communication_rounds, "value": values}
    )
    graph = network_of(CASE, 0).graph
    node, slot = np.nonzero(np.asarray(graph.mask))
    links = pd.DataFrame({"round": run.rounds, "node": node, "hears": np.asarray(graph.senders)[node, slot]})
    return charts.network(nodes, links, f"A network of {CASE.m} nodes")


def draw(example: Found, real: Found, path: Path) -> None:
    """The distance to the optimum against kB, on generated and on real data, on one sheet."""
    sheet = Picture(figsize=(drawing.WIDTHS["page"], 3.0), layout="constrained")
    for axis, found, title in zip(sheet.subplots(1, 2), (example, real), ("Example 1", "breast_cancer")):
        means = band(found.curves(), "kB", DISTANCE)
        names = {label: label for label in found.runs}
        drawing.lines({_TITLES["kB"]: means}, names, DISTANCE, band=BAND, ax=axis)
        axis.set_title(f"{title} (bands: 95 % confidence intervals)", fontsize=7)
        place: Any = {"loc": "lower left", "bbox_to_anchor": (0.46, 0)} if found is example else {"loc": "upper right"}
        axis.legend(fontsize=7, **place)  # between the pairs of lines
        drawing.plain(axis)
    save_figure(sheet, path)


def write_page(
    chosen: Options, name: str, said: Sequence[str], example: Found, real: Found, rows: Sequence[Row]
) -> Path:
    """DIR/NAME.html: what was found, the two tables, the figure, the network, and all numbers folded."""
    every = [
        [one.case, one.column, "" if one.paper is None else f"{one.paper:g}", f"{one.mean:.5g}", f"{one.sd:.2g}"]
        for one in rows
    ]
    first = next(iter(example.runs))
    return page.page(
        chosen.out / f"{name}.html",
        "jdfl: CEPS on Example 1 and on real data",
        [
            Section("What was found", [*said, page.Table(HEADS, cells1(example)), caption1(example), NOTE]),
            Section(
                "The distance to the optimum",
                curves(example, (DISTANCE, "objective_local", "support_recovery")),
            ),
            Section(
                "Real data",
                [
                    f"CEPS without noise on breast_cancer, {NODES} nodes, {ROUNDS} rounds.",
                    page.Table(HEADS2, cells2(real)),
                    *curves(real, (DISTANCE, "balanced_accuracy", "consensus_error")),
                ],
            ),
            Section(
                f"The network of {first}, first seed",
                [
                    "Nodes are coloured by their communications, or by the value of their own loss.",
                    nodes_of(example, first),
                ],
            ),
            Section(
                "Details",
                [
                    Fold(f"All {len(rows)} numbers", [page.Table(["case", "number", "paper", "mean", "sd"], every)]),
                ],
            ),
            Section("Next: three commands to try", [Code("\n".join(f"jdfl {words}" for words in COMMANDS))]),
        ],
        f"Provenance {origin().hash}.",
    )
