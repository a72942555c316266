"""A fair comparison: CEPS, a comparable sparse baseline and dense methods, tuned alike, at equal cost.

Two problems over 32 nodes: Example 1 of the CEPS paper, whose truth has the s = 10 nonzeros that CEPS and IHT-D-PSGD
are given, and softmax regression on digits, whose solution is dense. No noise. "top 5 %" is the sparse message of
methods with dense models (int8 values, enumerated positions): on D-PSGD it is naive, and labelled so.

At every budget all step sizes are tuned for that budget, on data of a separate seed, by the objective of the nodes' own
models, and the reported runs use these step sizes. Every reported seed has its own data and network; a step size with
which a method is known to diverge there is made smaller by 5 % until it is not. A value is that of the last record
within the budget, blank where it only pays for the initial one; runs that ended earlier keep their
last value, with the share of the budget that they used. On
digits methods with sparse models run longer, since their rounds cost little; budgets in rounds do not let them use
that.
"""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jax import Array

import jdfl
from experiments.common import Made, Options, Row, experiment, number, row
from jdfl.engine import metrics
from jdfl.lab.curves import last_within, metrics_of
from jdfl.problems import Problem, optimum, sparse_optimum, value_at_truth

Cells = dict[tuple[str, str, str], np.ndarray]  # (metric, budget, label) -> values by seed


@dataclass(frozen=True)
class Setting:
    """One problem and its budgets."""

    problem: str
    m: int
    steps: int
    longer: int  # factor on the rounds of methods that send sparse models
    shares: tuple[float, ...]  # budgets in bytes, as shares of a round of dense messages to all neighbours
    rounds: tuple[int, ...]
    communications: tuple[int, ...]
    gradients: tuple[int, ...]  # evaluations per node
    n: int = 1000  # of Example 1
    s: int = 10
    examples: tuple[int, int] = (250, 750)  # smallest and largest number per node, for Example 1
    wider: tuple[int, ...] = ()  # other numbers of nonzeros for sparse models

    def draw(self, seed: int) -> Problem:
        if self.problem == "example1":
            return jdfl.problems.example1(m=self.m, n=self.n, s=self.s, rows=self.examples, seed=seed)
        return jdfl.problems.classification(self.problem, self.m, seed=seed)

    def network(self, seed: int) -> jdfl.network.Static:
        """Erdos-Renyi, padded and with one name, so that all seeds share one compilation."""
        drawn = jdfl.network.erdos_renyi(self.m, 0.45, seed=seed)
        return replace(drawn, graph=jdfl.network.pad(drawn.graph, self.m - 1), name="Erdos-Renyi(0.45)")


def budgets(setting: Setting, seeds: Sequence[int]) -> Iterator[tuple[str, str, float]]:
    """The budgets' names, columns and amounts, over all nodes together where that applies."""
    n = setting.draw(0).n
    links = float(np.mean([2 * jdfl.network.summary(setting.network(seed)).edges for seed in seeds]))
    for part in setting.shares:
        amount = part * links * 4 * n
        yield f"{number(amount / 1e3)} kB", "bytes", amount
    for k in setting.rounds:
        yield f"{k} rounds", "round", float(k)
    for k in setting.communications:
        yield f"{k} communications", "communications", float(k)
    for k in setting.gradients:
        yield f"{k} gradients per node", "gradients", float(k * setting.m)


def values_of(setting: Setting, found: jdfl.Comparison) -> Cells:
    """Every algorithm at every budget, with what was tuned for it; none where a seed diverged or paid for no round.

    An algorithm for which all step sizes gave the same result is left out: its choice is meaningless.
    """
    cells: Cells = {}
    for name, column, amount in budgets(setting, found.seeds):
        view = found.view(column, amount)
        known = view.curves[~view.curves["label"].isin([label for label, how in view.tuned.items() if how.alike])]
        runs = {label: [run for _, run in one.groupby("seed")] for label, one in known.groupby("label", sort=False)}
        for label, one in runs.items():
            records = [record for run in one if (record := last_within(run, column, amount)) is not None]
            if len(records) == len(found.seeds):
                for metric in ("round", *metrics_of(found.curves)):
                    cells[metric, name, str(label)] = np.array([record[metric] for record in records], float)
    return cells


def rows_of(setting: Setting, cells: Cells, metric: str) -> list[Row]:
    """The rows of one metric: a case per algorithm, a column per budget."""
    return [
        row(f"{setting.problem} {label}", f"{metric} at {name}", None, values.tolist())
        for (one, name, label), values in cells.items()
        if one == metric
    ]


def lines(setting: Setting, seeds: int) -> list[Row]:
    """The values for all data in one place, and for the truth."""
    found: dict[str, list[float]] = {}

    def note(column: str, value: float) -> None:
        found.setdefault(column, []).append(value)

    for seed in range(seeds):
        problem = setting.draw(seed)
        best = optimum(problem, tolerance=1e-3)
        note("objective, dense minimiser", best.value)
        if problem.truth is None:
            continue
        truth = np.asarray(problem.truth, np.float64)
        sparse = sparse_optimum(problem, setting.s)
        note("objective, sparse minimiser", sparse.value)
        note("objective, truth", value_at_truth(problem))
        for column, w in (("distance, dense minimiser", best.w), ("distance, sparse minimiser", sparse.w)):
            assert w is not None  # of what was solved here
            note(column, float(np.linalg.norm(w - truth) / np.linalg.norm(truth)))
    return [row(f"{setting.problem}, all data in one place", column, None, values) for column, values in found.items()]


NAME = "fair_comparison"
TUNING_SEED = 1_000  # of the data, the network and the draws for tuning
TOP = jdfl.Sparse(share=0.05, value="int8", index="enumerative")
QUANTISED = jdfl.QSGD(levels=16, norm="max")
INT8 = jdfl.Sparse(value="int8", index="enumerative")
EXACT = jdfl.Sparse(index="enumerative")
QUICK = ("CEPS, int8", "IHT-D-PSGD, int8", "D-PSGD", "LocalOnly")
DENSE_TRUTH = (  # methods compared on digits, without naive messages
    "CEPS, one-bit (1BCS)",
    "CEPS, int8",
    "IHT-D-PSGD, int8",
    "D-PSGD",
    "CHOCO-SGD, top 5 %",
    "DFedAvgM, quantised, QSGD",
    "MATCHA, half the links",
    "DSGT",
    "LocalOnly",
    "FedAvg",
)


FULL = (
    Setting("example1", 32, 50, 1, (0.01, 6.0, 30.0), (20, 50), (5, 30), (10, 50)),
    Setting("digits", 32, 100, 5, (0.1, 10.0, 80.0), (50, 100), (10, 100), (25, 100), wider=(64,)),
)
SMALL = (
    Setting("example1", 8, 40, 1, (0.1, 10.0), (40,), (5,), (10,), 100, 4, (50, 100)),
    Setting("digits", 8, 40, 2, (0.3, 10.0), (40,), (5,), (10,)),
)
EVERY = 5  # rounds from one record to the next


def nodes_objective(w: Array, problem: Problem) -> Array:
    """mean_i f(w_i), f = mean_j f_j: every node's own model evaluated on all data. Disagreement increases it."""
    return jnp.mean(jax.vmap(problem.values_at)(w))


def nodes_distance(w: Array, problem: Problem) -> Array:
    """mean_i ||w_i - w*|| / ||w*||."""
    return jnp.mean(jax.vmap(lambda one: metrics.distance_to_truth(one[None], problem))(w))


def nodes_support(w: Array, problem: Problem) -> Array:
    """The mean share of the true support among a node's largest entries."""
    return jnp.mean(jax.vmap(lambda one: metrics.support_recovery(one[None], problem))(w))


def nodes_error(w: Array, problem: Problem) -> Array:
    """The mean share of test examples that a node's own model classifies wrongly."""
    if problem.personal:  # whose accuracy is that of every node's own model already
        return 1 - metrics.accuracy(w, problem)
    return 1 - jnp.mean(jax.vmap(lambda one: metrics.accuracy(one[None], problem))(w))


def entries(setting: Setting, seed: int, quick: bool) -> dict[str, jdfl.Entry]:
    s, long = setting.s, setting.steps * setting.longer
    matched = jdfl.network.matcha(setting.network(seed), 0.5)
    gamma = {"gamma": (0.1, 0.2, 0.4)}
    found: dict[str, Any] = {
        "CEPS, dense (Perf)": jdfl.CEPS(s=s),
        "CEPS, one-bit (1BCS)": jdfl.Entry(jdfl.CEPS(s=s, codec=jdfl.OneBit(d=500)), steps=long),
        "CEPS, int8": jdfl.Entry(jdfl.CEPS(s=s, codec=INT8), steps=long),
        "IHT-D-PSGD, float32": jdfl.Entry(jdfl.IHT(s=s, codec=EXACT), steps=long),
        "IHT-D-PSGD, int8": jdfl.Entry(jdfl.IHT(s=s, codec=INT8), steps=long),
        "IHT-D-PSGD, int8, every 5th round": jdfl.Entry(jdfl.IHT(s=s, codec=INT8, period=5), steps=long),
        "D-PSGD": jdfl.DPSGD(),
        "D-PSGD, top 5 % (naive)": jdfl.DPSGD(codec=TOP),
        "CHOCO-SGD, top 5 %": jdfl.Entry(jdfl.CHOCO(codec=TOP), tune=_rates(setting) | gamma),
        "CHOCO-SGD, QSGD": jdfl.Entry(jdfl.CHOCO(codec=QUANTISED), tune=_rates(setting) | {"gamma": (0.2, 0.5, 1.0)}),
        "DCD-PSGD, top 5 %": jdfl.DCD(codec=TOP),
        "DFedAvgM": jdfl.DFedAvgM(),
        "DFedAvgM, quantised, QSGD": jdfl.DFedAvgM(quantised=True, codec=QUANTISED),
        "DFedSAM": jdfl.DFedSAM(),
        "MATCHA, half the links": jdfl.Entry(jdfl.MATCHA(), network=matched),
        "DSGT": jdfl.DSGT(),
        "DSGT, top 5 %": jdfl.DSGT(codec=TOP),
        "NIDS": jdfl.NIDS(),
        "LocalOnly": jdfl.LocalOnly(),
        "FedAvg": jdfl.FedAvg(),
    }
    chosen = QUICK if quick else found if setting.problem == "example1" else DENSE_TRUTH
    found = {label: found[label] for label in chosen}
    for wide in setting.wider:
        found[f"CEPS, int8, s = {wide}"] = jdfl.Entry(jdfl.CEPS(s=wide, codec=INT8), steps=long)
        found[f"IHT-D-PSGD, int8, s = {wide}"] = jdfl.Entry(jdfl.IHT(s=wide, codec=INT8), steps=long)
    return {label: one if isinstance(one, jdfl.Entry) else jdfl.Entry(one) for label, one in found.items()}


def _rates(setting: Setting) -> dict[str, tuple[float, ...]]:
    """Learning rates for a grid with another tuned field, fewer of them."""
    steepest = float(np.max(np.asarray(setting.draw(TUNING_SEED).curvature)))
    return {"lr": tuple(2.0**k / steepest for k in range(-3, 2))}


def compare(setting: Setting, seeds: int, quick: bool) -> jdfl.Comparison:
    """Tune for every budget, then run every seed on its own data and network; a view for each budget."""
    problem = setting.draw(TUNING_SEED)
    known = (nodes_error,) if problem.truth is None else (nodes_distance, nodes_support)
    shared: dict[str, Any] = {
        "steps": setting.steps,
        "longer": 1,  # runs that end before a budget are marked
        "every": EVERY,
        "metrics": [nodes_objective, *known, "objective", "consensus_error"],
        "measure": nodes_objective,
        "batch": 8,
    }
    amounts: dict[str, list[float]] = {}
    for _, column, amount in budgets(setting, range(seeds)):
        amounts.setdefault(column, []).append(amount)
    extend = 0 if quick else 1
    tune = jdfl.Tuning(keys=(TUNING_SEED,), extend=extend)
    with warnings.catch_warnings():  # the notes of the tables repeat them
        warnings.simplefilter("ignore")
        first = entries(setting, TUNING_SEED, quick)
        tuned = jdfl.compare(
            first, problem, setting.network(TUNING_SEED), trials=[0], budget=amounts, tuning=tune, **shared
        )
        views = (tuned, *tuned.views)
        chosen = {
            _point(view, label): view.algorithms[label]
            for view in views
            for label in view.results
            if view.results[label]
        }
        parts: list[jdfl.Comparison] = []
        for seed in range(seeds):
            drawn = entries(setting, seed, quick)
            here, graph = setting.draw(seed), setting.network(seed)
            at = {
                str(point): replace(drawn[point[0]], algorithm=accepted(one, here, graph), tune=None)
                for point, one in chosen.items()
            }
            parts.append(jdfl.compare(at, here, graph, trials=[seed], tuning=None, **shared))
    first, *others = (_reported(view, parts, seeds) for view in views)
    return replace(first, views=tuple(others))


def accepted(algorithm: Any, problem: Problem, network: jdfl.network.Static) -> Any:
    """The algorithm, with a step size that is smaller by 5 % until the problem does not refuse it."""
    while True:
        try:
            algorithm.check(problem, network)
        except ValueError as error:
            if not str(error).startswith("Expected lr <= "):
                raise
            algorithm = replace(algorithm, lr=float(algorithm.lr) * 0.95)
        else:
            return algorithm


def _point(view: jdfl.Comparison, label: str) -> tuple[Any, ...]:
    """An algorithm with the values that were chosen for it."""
    return label, *view.tuned[label].values.items()


def _reported(view: jdfl.Comparison, parts: Sequence[jdfl.Comparison], seeds: int) -> jdfl.Comparison:
    """The methods tuned at one budget, with the runs of all seeds."""
    names = {label: str(_point(view, label)) for label in view.results if view.results[label]}
    runs = {
        label: [part.results[names[label]][0] for part in parts] if label in names else [] for label in view.results
    }
    frames = [
        part.curves[part.curves["label"] == name].assign(label=label) for part in parts for label, name in names.items()
    ]
    curves = pd.concat(frames, ignore_index=True) if frames else view.curves.iloc[:0]
    return replace(view, results=runs, curves=curves, seeds=tuple(range(seeds)), views=())


@experiment()
def main(chosen: Options) -> Made:
    """Both problems, or small ones with few algorithms with `--quick`."""
    tables: dict[str, list[Row]] = {}
    for setting in SMALL if chosen.quick else FULL:
        found = compare(setting, chosen.seeds, chosen.quick)
        cells = values_of(setting, found)
        for metric in dict.fromkeys(metric for metric, _, _ in cells):
            tables[f"{setting.problem}: {metric.replace('_', ' ')} within a budget"] = rows_of(setting, cells, metric)
        tables[f"{setting.problem}, all data in one place"] = lines(setting, chosen.seeds)
        for view in (found, *found.views):
            print(f"Tuning: {view.criterion}.", *(f"  {label}: {view.note(label)}" for label in view.tuned), sep="\n")
        figure = chosen.out / f"{NAME}{'' if setting.problem == 'example1' else '_' + setting.problem}.png"
        axes = ("bytes", "round", "communications", "gradients")
        fig, _ = found.plot(axes, "nodes_objective", width="page")
        fig.savefig(figure)
    return Made(tables)
