"""Averages, counts and shares that the three papers state, computed again from their own tables and settings.

Nothing is trained.

- DPPS paper, section V-D: wins of each method in Table II, and relative improvements of the average accuracy.
- DPPS paper, Appendix II: average decreases of accuracy in Table III and of accuracy and time in Table IV, as the ratio
  of sums, which is the only reading of "average decrease" under which they come out.
- CEPS paper, section V-D: the volume of CEPS-1BCS in Table V, compared with that of every other method there, and the
  numbers that it gives twice, for one setting of Tables III, IV and V.
- DO-ADP paper, section VI: the noise at p = .8 and k / d = .3 relative to that at 1 and 1, by its Remark 1, where the
  text says that it is reduced by 24 %; and how often accuracy increases from column to column of its Table II.
"""

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from experiments.ceps_baselines import TABLE4
from experiments.ceps_table3 import AGAIN, VARIANTS
from experiments.ceps_table3 import CASES as TABLE3
from experiments.ceps_table4 import PAPER as TABLE4_CEPS
from experiments.ceps_table5 import BASELINES, VOLUMES
from experiments.ceps_table5 import CASES as TABLE5
from experiments.common import Made, Options, Row, bars, experiment, row
from experiments.doadp_figure4_table2 import PAPER as TABLE2
from experiments.partpsp_paper import ACCURACY, ESTIMATED, MODELS, NETWORKS, SECONDS

METHODS = ("PartPSP-1", "PartPSP-2", "SGPDP", "PEDFL")
LEVELS = (1.0, 2.0, 3.0)


def accuracies(method: str, levels: Sequence[float | None], models: Sequence[str] = MODELS) -> np.ndarray:
    """Table II's accuracies [models x networks x levels] of a method, per cent."""
    return np.array([ACCURACY[model, net, method, b] for model in models for net in NETWORKS for b in levels])


def seconds(method: str, level: float | None, models: Sequence[str] = MODELS) -> np.ndarray:
    """Table IV's seconds [models x networks] of a method."""
    return np.array([SECONDS[model, net, method, level] for model in models for net in NETWORKS])


def less(before: np.ndarray, after: np.ndarray) -> float:
    """The decrease of a sum, per cent."""
    return 100 * float(1 - after.sum() / before.sum())


def dpps() -> list[Row]:
    """The counts and averages of the DPPS paper."""
    rows: list[Row] = []

    def add(case: str, column: str, paper: float, value: float) -> None:
        rows.append(row(f"DPPS {case}", column, paper, [value]))

    private = {method: accuracies(method, LEVELS) for method in METHODS}
    plain = {method: accuracies(method, [None]) for method in METHODS}
    best, first = (np.array(list(one.values())).argmax(axis=0) for one in (private, plain))
    for place, (method, wins) in enumerate(zip(METHODS, (33, 1, 0, 2), strict=True)):
        add(f"Table II, {method}", "wins with noise, of 36", wins, float(np.sum(best == place)))
    for place, (method, wins) in enumerate(zip(METHODS[:3], (4, 3, 5), strict=True)):
        add(f"Table II, {method}", "wins without noise, of 12", wins, float(np.sum(first == place)))
    for method, wins in (("PartPSP-1", 34), ("PartPSP-2", 25)):
        ahead = float(np.sum(private[method] > private["PEDFL"]))
        add(f"Table II, {method}", "better than PEDFL, of 36", wins, ahead)
    for one, other, told in (
        ("PartPSP-1", "PartPSP-2", 42.11),
        ("PartPSP-1", "SGPDP", 61.08),
        ("PartPSP-2", "SGPDP", 13.35),
    ):
        gain = 100 * (private[one].mean() / private[other].mean() - 1)
        add(f"Table II, {one} over {other}", "relative improvement, %", told, float(gain))
    for model, told in (("mlp", 7.76), ("resnet", 0.41), ("all", 3.93)):
        pairs = np.array([pair for (name, _, _), pair in ESTIMATED.items() if model in (name, "all")])
        add(f"Table III, {model}", "decrease of accuracy, %", told, less(pairs[:, 0], pairs[:, 1]))
        add(f"Table III, {model}", "decrease of accuracy, points", told, float((pairs[:, 0] - pairs[:, 1]).mean()))
    add("Table IV, SGPDP", "increase of time, %", 16.58, -less(seconds("SGP", None), seconds("SGPDP", 3.0)))
    for models, told in ((("mlp",), 8.16), (("resnet", "vit"), -83.15)):
        change = -less(seconds("SGP", None, models), seconds("PartPSP-1", 3.0, models))
        add(f"Table IV, PartPSP-1, {' and '.join(models)}", "increase of time, %", told, change)
    for method, told in (("SGPDP", 41.17), ("PartPSP-1", 8.94)):
        found = less(accuracies("SGPDP", [None]), accuracies(method, [3.0]))
        add(f"Table IV, {method}", "decrease of accuracy, %", told, found)
    return rows


def ceps() -> list[Row]:
    """The shares of Table V of the CEPS paper, and the numbers that it gives twice."""
    rows = []
    volumes = {
        (case.rate, name): told[v]
        for case, told in zip(TABLE5, VOLUMES, strict=True)
        for v, name in enumerate(VARIANTS)
    }
    for case in TABLE5:
        ours = volumes[case.rate, "DP-1BCS"]
        others = {method: told[2] for (method, rate), told in BASELINES.items() if rate == case.rate}
        others["CEPS-Perf"] = volumes[case.rate, "DP-Perf"]
        for method, volume in others.items():
            rows.append(
                row(f"CEPS Table V, r = {case.rate:g}, less than {method}", "saved, %", 90, [100 * (1 - ours / volume)])
            )
    for method, told in (
        ("CEPS-1BCS", TABLE4_CEPS["CEPS-1BCS", 2.0]),
        ("CEPS-Perf", TABLE4_CEPS["CEPS-Perf", 2.0]),
        *((method, TABLE4[method, 2.0]) for method in ("D-PSGD-PC", "DFedAvgM", "DFedSAM")),
    ):
        again = TABLE5[0].rounds[VARIANTS.index("DP-" + method[5:])] if "CEPS" in method else BASELINES[method, 0.2][1]
        assert told is not None
        rows.append(row(f"CEPS Table IV and V, eps = 2, r = 0.2, {method}", "rounds", told[1], [again]))
    for column, (rounds, objective, _) in AGAIN.items():
        for v, name in enumerate(VARIANTS):
            case = f"CEPS Table III, column m=32 and {column}, {name}"
            rows.append(row(case, "rounds", TABLE3[0].rounds[v], [rounds[v]]))
            rows.append(row(case, "objective", TABLE3[0].objective[v], [objective[v]]))
    by_epsilon = {case.epsilon: case for case in TABLE3 if case.m == 32 and case.rate == 0.2}
    for name in ("DP-1BCS", "DP-Perf"):
        for epsilon, case in sorted(by_epsilon.items()):
            told = (
                case.rounds[VARIANTS.index(name)]
                if epsilon != 0.5
                else AGAIN["column eps=0.5"][0][VARIANTS.index(name)]
            )
            rows.append(row(f"CEPS Table III, eps = {epsilon:g}, {name}", "rounds", told, [told]))
    return rows


def doadp() -> list[Row]:
    """What the DO-ADP paper says of its noise and of its Table II."""
    p, share = 0.8, 0.3
    rows = [
        row(f"DO-ADP p = {p:g}, k/d = {share:g}", "noise saved, %", 24, [100 * (1 - p * math.sqrt(share))]),
        row(f"DO-ADP p = {p:g}, k/d = {share:g}", "variance saved, %", 24, [100 * (1 - p**2 * share)]),
        row(f"DO-ADP p = {p:g}, k/d = {share:g}", "communication, %", 24, [100 * p * share]),
    ]
    for epsilon, told in TABLE2.items():
        rises = float(sum(before < after for before, after in pairwise(told)))
        rows.append(row(f"DO-ADP Table II, eps = {epsilon:g}", "rises, of 3", 3, [rises]))
    return rows


@experiment(seeds=1)
def main(chosen: Options) -> Made:
    rows = [*dpps(), *ceps(), *doadp()]
    fig = bars(rows, ["saved, %"], "volume saved by CEPS-1BCS, %")
    return Made({"Sums: as stated, and from the papers' tables": rows}, fig)
