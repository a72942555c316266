"""Every registered method on one problem: how far it gets in equal rounds, how fast, and at what cost.

Least squares whose nodes have solutions of their own, strongly convex at every node, over one Erdos-Renyi graph with
Metropolis weights. Messages are exact, gradients use all examples, nothing is private. Every method is tuned in the
same way: seven step sizes, powers of two around 1 / L, L being the largest curvature of a node's loss, and two more
where the best is at an end. Where there is no step size, its first setting that is tuned has powers of two around its
default. The next one has its default and an eighth of it, all others their defaults. Tuning trials are not reported. A
method that refuses this network has another one of the same size, which its note names.

Every method also has a row for each property that `jdfl choose` knows, 1 where it has it. The suboptimality is that of
the average of the nodes' parameters, in units of what doing nothing has; the rate is its factor per round, on average
until it is less than twice what it ends at, or 1e-10. Personal methods learn a model per node, and are not after this
average. The page DIR/every_method.html has all curves, DIR/every_method.png those of the best methods.
"""

import os
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import fields, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

import jdfl
from experiments.common import Made, Options, Row, compile_sooner, experiment, row
from jdfl.algorithms import REGISTRY
from jdfl.engine.start import check_run, check_settings
from jdfl.lab import choosing
from jdfl.lab.choosing import PROPERTIES

NAME = "every_method"
NO_LEARNERS = ("average-consensus",)  # which averages one gradient of every node
TUNING = 1_000_001
POWERS = range(-4, 3)  # of two, times 1 / L


class Size(NamedTuple):
    m: int
    n: int
    q: int
    steps: int


FULL, SMALL = Size(32, 50, 200, 500), Size(8, 10, 40, 100)


def problem_of(size: Size, seed: int) -> jdfl.problems.LinearRegression:
    draw = np.random.default_rng(seed)
    A = draw.standard_normal((size.m, size.q, size.n))
    w = 1 + draw.standard_normal((size.m, size.n))
    return jdfl.problems.linear_regression(A, np.einsum("iqn,in->iq", A, w) + draw.standard_normal((size.m, size.q)))


# Methods for compressed messages, which send everything here, so that their rates are those of the method alone.
DENSE = ("beer", "cedas", "choco-sgd", "cpgt", "dcd-psgd", "deepsqueeze", "directed-ceps", "ecd-psgd", "lead", "motef")
DENSE += ("porter",)


def networks_of(m: int) -> list[Any]:
    """The network of all, and others for methods that refuse it."""
    usual = jdfl.network.erdos_renyi(m, 0.4, seed=0)
    tree = jdfl.network.from_edges([(i, (i - 1) // 2) for i in range(1, m)], m, name=f"binary tree(m={m})")
    return [usual, tree, jdfl.network.matcha(usual, 0.5), jdfl.network.d_out(m, 3)]


def accepted(kind: type, problem: jdfl.problems.LinearRegression, steps: int) -> tuple[Any, Any]:
    """The method with its defaults, all parameters where it asks for a number of nonzeros, and the first network."""
    has = {one.name for one in fields(kind)}
    sparse = {"s": problem.n} if "s" in has else {}
    sparse |= {"codec": jdfl.Dense()} if "s" in has or kind in map(REGISTRY.get, DENSE) else {}
    algorithm = kind(**sparse, **({"horizon": steps} if "horizon" in has else {}))
    *others, last = networks_of(problem.m)
    for network in others:
        with suppress(ValueError):
            check_run(algorithm, problem, network, steps, 1, None)
            return algorithm, network
    check_run(algorithm, problem, last, steps, 1, None)
    return algorithm, last


def grid(algorithm: Any, problem: jdfl.problems.LinearRegression, network: Any) -> dict[str, list[float]]:
    """What is tried of the method's first two tuned settings, without values that it refuses; empty without any."""
    if not algorithm.tuned:
        return {}
    name = "lr" if "lr" in algorithm.tuned else algorithm.tuned[0]
    middle = 1 / float(np.max(np.asarray(problem.curvature))) if name.startswith("lr") else getattr(algorithm, name)
    around = {name: [middle * 2.0**power for power in POWERS]}
    for other in [one for one in algorithm.tuned if one != name][:1]:
        around[other] = [getattr(algorithm, other) / 8, getattr(algorithm, other)]

    def accepts(name: str, value: float) -> bool:
        try:  # some methods refuse values with which they diverge
            check_settings(replace(algorithm, **{name: value}), problem, network)
        except ValueError:
            return False
        return True

    return {name: [one for one in values if accepts(name, one)] for name, values in around.items()}


def compare(size: Size, seeds: int, names: Sequence[str] = ()) -> jdfl.Comparison:
    """All methods, or those named, tuned and run on the same trials."""
    start = problem_of(size, TUNING)
    methods: dict[str, jdfl.Entry] = {}
    for name in names or [one for one in REGISTRY if one not in NO_LEARNERS]:
        algorithm, network = accepted(REGISTRY[name], start, size.steps)
        methods[name] = jdfl.Entry(algorithm, network, tune=grid(algorithm, start, network))
    return jdfl.compare(
        methods,
        lambda seed: problem_of(size, seed),
        networks_of(size.m)[0],
        steps=size.steps,
        trials=seeds,
        budget={"round": size.steps},
        tuning=jdfl.Tuning(keys=(TUNING,), extend=2),
        measure="suboptimality",
        metrics=["suboptimality", "consensus_error"],
        batch=1,
    )


def rows_of(found: jdfl.Comparison, m: int) -> list[Row]:
    """The numbers of every method: where it ends, how fast it goes, and what a round costs a node."""
    rows: list[Row] = []
    for name in found.results:
        runs = found.runs(name)
        if not runs:
            continue
        first = [float(one.history["suboptimality"].iloc[0]) for one in runs]
        last = [float(one.final["suboptimality"]) for one in runs]
        each = [m * one.rounds for one in runs]
        rows += [
            row(name, "suboptimality", None, [max(0.0, b) / a for a, b in zip(first, last)]),
            row(name, "consensus error", None, [float(one.final["consensus_error"]) for one in runs]),
            row(name, "bytes a round", None, [one.totals.bytes / k for one, k in zip(runs, each)]),
            row(name, "gradients a round", None, [one.totals.gradients / k for one, k in zip(runs, each)]),
        ]
        rows.append(row(name, "rate", None, [rate(one.history) for one in runs]))
    return rows


def rate(history: pd.DataFrame) -> float:
    """The factor per round of the suboptimality, until it is less than twice its last value or 1e-10 of its first."""
    values, rounds = np.maximum(history["suboptimality"].to_numpy(), 1e-300), history["round"].to_numpy()
    near = int(np.argmax(values <= max(2 * values[-1], 1e-10 * values[0])))
    return float((values[near] / values[0]) ** (1 / rounds[near])) if near else 1.0


def properties() -> list[Row]:
    """What `jdfl choose` finds of every method: 1 where it has a property."""
    return [
        row(one.name, f"has {name}", None, [float(one.fits)]) for name in PROPERTIES for one in choosing.choose(name)
    ]


if __name__ == "__main__":
    compile_sooner(os.environ)


@experiment(seeds=3)
def main(chosen: Options) -> Made:
    """Compare all methods; a smaller problem with `--quick`."""
    size = SMALL if chosen.quick else FULL
    with warnings.catch_warnings():  # of step sizes that are tried
        warnings.simplefilter("ignore")
        found = compare(size, chosen.seeds)
    for name in found.algorithms:
        print(f"{name}: {found.note(name)}")
    print("written:", found.report(chosen.out / f"{NAME}.html"))
    figure, _ = found.plot("round", "suboptimality", width="page")
    figure.savefig(chosen.out / f"{NAME}.png")
    return Made({"All methods on one problem": rows_of(found, size.m) + properties()})
