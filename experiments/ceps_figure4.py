"""CEPS paper, Figure 4: the objective against iterations on Example 1, for m = 32, 64, 128 and all methods.

Lines are means over seeds, bands their 95 % confidence intervals, marks the mean iteration at which the paper's stop
rule ends a run; the curves continue after it. The paper does not state its epsilon, which is 2 here, where all its
methods converge in Table IV; r = .2. The baselines have the learning rates and readings of
`experiments.ceps_baselines`. IHT-D-PSGD is not in the paper.

The paper's figure has no numbers. The claims of its text are checked by the stop rule and by the iterations until the
objective is at most f(w*) + 0.01, which is what the figure shows. An event that does not happen in 161 iterations
counts as that many.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

import jdfl
from experiments.ceps_baselines import MARGIN, PERIOD, follow, setting
from experiments.ceps_table3 import algorithm_of, network_of, tolerance
from experiments.ceps_table4 import CEPS, case_of
from experiments.common import Made, Options, Row, experiment, row
from jdfl.lab.drawing import looks
from jdfl.lab.table import half_widths
from jdfl.problems import Problem

EPSILON, EXCHANGES = 2.0, 16
ROUNDS = 61  # of CEPS, whose curves are flat by then
LOOKS = looks(("CEPS-Perf", "CEPS-1BCS", "D-PSGD", "D-PSGD-DN", "D-PSGD-PC", "DFedAvgM", "DFedSAM", "IHT-D-PSGD"))
AFTER = (31, 61, 121)


@dataclass(frozen=True)
class Curve:
    """One method at one m, over seeds."""

    iteration: np.ndarray
    objective: np.ndarray  # [seeds, iterations]
    stop: list[int]  # where the paper's rule ends the run; the last iteration if it does not
    learnt: list[int]  # the first recorded iteration with f(w*) + MARGIN; the last if there is none


def curve(method: str, problems: Sequence[Problem], exchanges: int) -> Curve:
    """A curve whose seeds have independent data, network and noise."""
    case, objectives, stops, learnt = case_of(problems[0].m, EPSILON), [], [], []
    last = PERIOD * exchanges + 1
    iteration = np.arange(0)
    for seed, problem in enumerate(problems):
        target = jdfl.problems.value_at_truth(problem) + MARGIN
        base = network_of(case, seed)
        if method in CEPS:
            algorithm, rounds = algorithm_of(case, CEPS[method]), min(ROUNDS, last)
            result = jdfl.run(
                algorithm,
                problem,
                base,
                key=seed,
                steps=rounds,
                metrics=["objective", "consensus_error"],
                options=jdfl.Options(chunk=rounds),
            )
            iteration = result.history["round"].to_numpy()
            objective, consensus = (result.history[name].to_numpy(float) for name in ("objective", "consensus_error"))
            ready = iteration > int(np.max(np.asarray(result.ready.period)))  # all nodes have communicated
            agreed = ready & (consensus <= 10 * tolerance(case, CEPS[method]))
        else:
            path = follow(setting(method, problem, base, epsilon=EPSILON, rate=0.2), problem, seed, exchanges)
            iteration, objective = path.iteration, path.objective
            agreed = path.consensus <= 10 * 0.0025 / EPSILON
        objectives.append(objective)
        stops.append(int(iteration[np.argmax(agreed)]) if agreed.any() else last)
        low = objective <= target
        learnt.append(int(iteration[np.argmax(low)]) if low.any() else last)
    return Curve(iteration, np.stack(objectives), stops, learnt)


def lines(m: int, method: str, found: Curve) -> list[Row]:
    name = f"m={m} {method}"
    at_stop = [values[np.searchsorted(found.iteration, stop)] for values, stop in zip(found.objective, found.stop)]
    rows = [
        row(name, "rounds", None, found.stop),
        row(name, "objective at the stop", None, at_stop),
        row(name, "rounds to learn", None, found.learnt),
    ]
    for k in AFTER:
        place = int(np.searchsorted(found.iteration, k))
        if place < len(found.iteration):
            rows.append(row(name, f"objective, {k}", None, found.objective[:, place].tolist()))
    return rows


def draw(found: Mapping[tuple[int, str], Curve], sizes: Sequence[int]) -> Figure:
    fig = Figure(figsize=(4.4 * len(sizes), 4.6), layout="constrained")
    panels = fig.subplots(1, len(sizes), sharey=True, squeeze=False)[0]
    for axis, m in zip(panels, sizes):
        for method, look in LOOKS.items():
            one = found[m, method]
            mean, half = one.objective.mean(axis=0), half_widths(one.objective.T)
            axis.plot(one.iteration, mean, label=method, **look | {"marker": None})
            axis.fill_between(one.iteration, mean - half, mean + half, color=look["color"], alpha=0.2, linewidth=0)
            stop = float(np.mean(one.stop))
            axis.plot(stop, np.interp(stop, one.iteration, mean), **look)
        axis.set(yscale="log", title=f"m = {m}", xlabel="iteration")
        axis.grid(alpha=0.3, which="both")
    panels[0].set_ylabel("objective")
    fig.legend(
        *panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=min(4, 2 * len(sizes)), frameon=False
    )
    return fig


@experiment(seeds=3)
def main(chosen: Options) -> Made:
    """All three panels, or the first with `--quick`."""
    sizes = (32,) if chosen.quick else (32, 64, 128)
    found: dict[tuple[int, str], Curve] = {}
    for m in sizes:
        problems = [jdfl.problems.example1(m=m, seed=seed) for seed in range(chosen.seeds)]
        found |= {(m, method): curve(method, problems, EXCHANGES) for method in LOOKS}
    rows = [one for (m, method), some in found.items() for one in lines(m, method, some)]
    return Made({"CEPS and its baselines, Figure 4 (Example 1, r = 0.2, eps = 2)": rows}, draw(found, sizes))
