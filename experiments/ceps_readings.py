"""The effect of every reading of the CEPS paper's baselines.

A reading changes one thing of the settings of `experiments.ceps_baselines`: the weights, momentum, rho, which gradients
are noisy, whether a node's own row counts, and where noise enters the exchange. "study" is a NumPy study's.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jdfl
from experiments.ceps_baselines import (
    EPSILONS,
    MARGIN,
    METHODS,
    PERIOD,
    STUDY,
    TABLE4,
    Path,
    Setting,
    cells,
    follow,
    gradients,
    setting,
)
from experiments.ceps_table3 import Case, network_of
from experiments.common import Made, Options, Row, bars, experiment
from jdfl.network.graph import Network
from jdfl.problems import Problem


def readings(problem: Problem, base: Network, bare: Network, epsilon: float) -> dict[tuple[str, str], Setting]:
    """By method and reading; `bare` is `base` with uniform weights."""

    def of(method: str, over: Network = base, **more: Any) -> Setting:
        return setting(method, problem, over, epsilon=epsilon, rate=0.2, **more)

    found = {(method, "default"): of(method) for method in METHODS}
    found["D-PSGD", "uniform weights"] = of("D-PSGD", bare)
    found["D-PSGD-DN", "uniform weights"] = of("D-PSGD-DN", weights="uniform")
    found["D-PSGD-PC", "without the own row"] = of("D-PSGD-PC", own=False)
    for theta in (0.5, 0.9):
        found["DFedAvgM", f"momentum {theta:g}"] = of("DFedAvgM", theta=theta)
    found["DFedSAM", "rho = .1"] = of("DFedSAM", rho=0.1)
    for method in METHODS[:-1]:
        found[method, "all gradients noisy"] = of(method, gradients=gradients(epsilon, "always"))
    for method in ("D-PSGD", "D-PSGD-PC"):
        plain = found[method, "default"]
        exact = jdfl.DPSGD(
            lr=plain.algorithm.lr,
            gradients=gradients(epsilon),
            period=PERIOD,
            order="adapt-then-combine",
            objective="pi",
        )
        found[method, "noise mixed at once"] = Setting(exact, plain.network, False)
        late = replace(exact, order="combine-then-adapt")
        found[method, "evaluated after the noisy step"] = Setting(late, plain.network, False)
    return found


def collect(seeds: int, epsilons: Sequence[float], m: int = 64) -> list[Row]:
    """All readings over all seeds, including the one that counts an exchange of zeros."""
    paths: dict[tuple[str, str, float], list[Path]] = {}
    targets = []
    for seed in range(seeds):
        problem = jdfl.problems.example1(m=m, seed=seed)
        targets.append(jdfl.problems.value_at_truth(problem) + MARGIN)
        base = network_of(Case(m, 1, 0.2, *((0, 0, 0, 0),) * 3), seed)
        uniform = jdfl.network.erdos_renyi(m, 0.45, seed=seed, weights="uniform")
        bare = replace(uniform, graph=jdfl.network.pad(uniform.graph, m - 1))
        for epsilon in epsilons:
            for (method, words), given in readings(problem, base, bare, epsilon).items():
                found = follow(given, problem, seed)
                paths.setdefault((method, words, epsilon), []).append(found)
                if words == "noise mixed at once":
                    zeros = follow(given, problem, seed, start=True)
                    paths.setdefault((method, "noise mixed at once, round 0 counts", epsilon), []).append(zeros)
    rows = []
    for (method, words, epsilon), some in sorted(paths.items(), key=lambda one: METHODS.index(one[0][0])):
        paper, study = TABLE4.get((method, epsilon)), STUDY.get((method, epsilon))
        name = f"{method} eps={epsilon:g}: {words}"
        rows += cells(name, some, 0.0025 / epsilon, targets, paper=paper, study=study)
    return rows


@experiment(seeds=2)
def main(chosen: Options) -> Made:
    """All readings at all epsilons, or on 16 nodes at one epsilon with `--quick`."""
    rows = collect(1, (2.0,), 16) if chosen.quick else collect(chosen.seeds, EPSILONS)
    fig = bars(rows, ["rounds"], "iterations to agreement", marks="rounds, study")
    return Made({"Baselines on Example 1, r = 0.2, by reading": rows}, fig)
