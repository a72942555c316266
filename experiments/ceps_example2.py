"""CEPS paper, Example 2: logistic regression (lambda = 0.001) on real data over m = 32 nodes, r = 0.2, without noise.

Data: QSAR oral toxicity (the paper's 'qot') and news20 where JDFL_DATA names a folder that has them, realsim_like
(generated; real-sim is the paper's 'rls'), and scikit-learn's breast_cancer where QSAR is missing. The paper prints the
two dimensions of both its datasets swapped, gives no s, and shows figures without numbers; the "paper" column holds
those of a NumPy study.

1. Trajectories on all of QSAR, and where the paper's stop rule ends them: the nodes agree before they have learned.
2. Every dataset with a fifth of it held out: objective, balanced accuracy, rounds, bytes, time, by message format; with
   the paper's step size doubled on QSAR, and with step sizes of 1 / L_i on text.
3. A sweep of the step size on QSAR, which is our addition: the paper's sigma_i gives step sizes of 5 / L_i, where L_i
   bounds a curvature that the logistic loss rarely reaches.

Reference lines: always predicting the base rate, and iterative hard thresholding (IHT) with all data in one place.
"""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jdfl
from experiments.common import Made, Options, Row, bars, experiment, row
from jdfl.arrays import ops
from jdfl.codecs import Codec
from jdfl.problems import Problem, base_rate, sparse_optimum
from jdfl.problems.datasets import locate

M, RATE = 32, 0.2
STUDY = {10: {300: 0.300, 1000: 0.285, 4000: 0.273}, 50: {300: 0.280, 1000: 0.251, 4000: 0.238}}
STUDY_STOP = {10: 0.33, 50: 0.30}
STUDY_IHT = {10: 0.276, 50: 0.236}
SCALES = (1.0, 2.0, 3.0, 4.0, 6.0, 8.0)  # of the paper's step size
OWN = {"sigma_rule": "safe", "periods": (5, 7)}  # equal step sizes at all nodes, twice as many communications
OWN_SCALES = (8.0, 10.0, 12.0, 14.0, 16.0)  # of 1 / L_i


def has(name: str) -> bool:
    try:
        locate(name)
    except FileNotFoundError:
        return False
    return True


def classification_of_all(name: str) -> Problem:
    """The dataset with nothing held out, as in the study."""
    return jdfl.problems.classification(name, M, test_fraction=0.0)


def network(m: int, seed: int) -> jdfl.network.Static:
    """Erdos-Renyi, padded so that all seeds share one compilation."""
    drawn = jdfl.network.erdos_renyi(m, 0.45, seed=seed)
    return replace(drawn, graph=jdfl.network.pad(drawn.graph, m - 1))


def iht(problem: Problem, s: int, steps: int) -> float:
    """The objective of w <- P_s(w - grad f(w) / L) after `steps` steps from 0, f = mean_i f_i."""
    L = jnp.mean(problem.curvature) + getattr(problem, "penalty", 0.0)

    @jax.jit
    def solve(problem: Problem) -> jax.Array:
        def step(_: int, w: jax.Array) -> jax.Array:
            every = jnp.broadcast_to(w, (problem.m, problem.n))
            return ops.top_s(w - jnp.mean(problem.gradients(every), axis=0) / L, s)

        w = jax.lax.fori_loop(0, steps, step, jnp.zeros((problem.n,), problem.dtype))
        return jnp.mean(problem.values_at(w))

    return float(solve(problem.replace(name="")))  # pyright: ignore[reportAttributeAccessIssue]


def run(problem: Problem, s: int, seed: int, steps: int, every: int, **more: Any) -> jdfl.Result:
    """CEPS without noise; `more` are fields of CEPS, or a stop rule."""
    stop = more.pop("stop", None)
    algorithm = jdfl.CEPS(**({"s": s, "rate": RATE, "codec": jdfl.Dense()} | more))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The paper's sigma_i gives step sizes")  # the sweep shows it
        return jdfl.run(
            algorithm,
            problem,
            network(problem.m, seed),
            key=seed,
            steps=steps,
            every=every,
            stop=stop,
            options=jdfl.Options(chunk=500),
        )


def trajectories(problem: Problem, seeds: int, rounds: Sequence[int]) -> list[Row]:
    """Objective at the given rounds, and at the paper's stop; the reference lines."""
    rows = [row(problem.name, "base rate", 0.2846, [base_rate(problem)])]
    for s, study in STUDY.items():
        results = [run(problem, s, seed, max(rounds), 20) for seed in range(seeds)]
        stop = jdfl.consensus_below(0.005, per=s)
        stopped = [run(problem, s, seed, max(rounds), 20, stop=stop) for seed in range(seeds)]
        name = f"{problem.name}, all of it, s={s}"
        for k in rounds:
            values = [one.history["objective"].to_numpy()[k // 20] for one in results]
            rows.append(row(name, f"objective, round {k}", study.get(k), values))
        at_stop = [one.final["objective"] for one in stopped]
        rows += [
            row(name, "rounds, paper's stop", 16, [one.rounds for one in stopped]),
            row(name, "objective, paper's stop", STUDY_STOP[s], at_stop),
            row(name, "IHT, one place", STUDY_IHT[s], [iht(problem, s, 4000)]),
            row(name, "sparse optimum, one place", None, [sparse_optimum(problem, s).value]),
        ]
    return rows


def sweep(problem: Problem, seeds: int, rounds: int) -> list[Row]:
    """Step sizes: the objective after `rounds`, and the first round at or below the study's IHT objective."""
    rows: list[Row] = []
    for s, target in STUDY_IHT.items():
        for label, fields, scales in (("paper's rule", {}, SCALES), ("safe rule, periods 5-7", OWN, OWN_SCALES)):
            for scale in scales:
                more = {**fields, "step_scale": scale}
                found = [run(problem, s, seed, rounds, 20, **more).history for seed in range(seeds)]
                name = f"{problem.name} s={s} {label} x {scale:g}"
                values = [history["objective"].to_numpy() for history in found]
                hits = [np.flatnonzero(objective <= target) for objective in values]
                first = [20.0 * hit[0] for hit in hits if hit.size]
                rows.append(row(name, f"objective, round {rounds}", target, [float(one[-1]) for one in values]))
                rows.append(row(name, "lowest objective", target, [float(one.min()) for one in values]))
                rows += [row(name, "round of the target, seeds that reach it", None, first)] if first else []
    return rows


def formats(problem: Problem, s: int, d: int | None, seeds: int, rounds: int, **more: Any) -> list[Row]:
    """One dataset with dense and sparse messages, and one-bit ones of d signs (None: without)."""
    codecs: dict[str, Codec] = {
        "Perf": jdfl.Dense(),
        "sparse int8": jdfl.Sparse(value="int8", index="enumerative"),
    }
    if d is not None:
        codecs[f"1BCS d={d}, Hadamard"] = jdfl.OneBit(d=d, ensemble="hadamard")
    name = f"{problem.name} s={s}"
    rows = [
        row(f"{name} always the base rate", "objective", None, [base_rate(problem)]),
        row(f"{name} IHT, one place", "objective", None, [iht(problem, s, 4000 if problem.n < 5000 else 500)]),
        row(f"{name} sparse optimum, one place", "objective", None, [sparse_optimum(problem, s).value]),
    ]
    for label, codec in codecs.items():
        results = [run(problem, s, seed, rounds, rounds, codec=codec, **more) for seed in range(seeds)]
        case = f"{name} {label}"
        rows += [
            row(case, "objective", None, [one.final["objective"] for one in results]),
            row(case, "balanced accuracy", None, [one.final["balanced_accuracy"] for one in results]),
            row(case, "accuracy", None, [one.final["accuracy"] for one in results]),
            row(case, "consensus_error", None, [one.final["consensus_error"] for one in results]),
            row(case, "rounds", None, [one.rounds for one in results]),
            row(case, "bytes per message", None, [one.totals.message_bits["model"] / 8 for one in results]),
            row(case, "true MB", None, [one.totals.bytes / 1e6 for one in results]),
            row(case, "seconds", None, [one.seconds for one in results]),
        ]
    return rows


def parts(chosen: Options) -> Iterator[tuple[Any, ...]]:
    """The arguments of `formats`: problem, s, d, seeds, rounds, and fields of CEPS."""
    text = {"sigma_rule": "safe"}  # on text the paper's step sizes leave the nodes far apart
    if chosen.quick:
        yield jdfl.problems.classification(jdfl.problems.realsim_like(4000, 2000), M), 50, 1536, 1, 60, text
        return
    if has("qsar"):
        yield jdfl.problems.classification("qsar", M), 50, 1024, chosen.seeds, 300, {"step_scale": 2.0}
    if has("news20"):
        news = jdfl.problems.classification("news20", M)
        yield news, 50, 2800, chosen.seeds, 100, text
        yield news, 200, None, chosen.seeds, 100, text
    yield jdfl.problems.classification("realsim_like", M), 50, 2800, chosen.seeds, 100, text


@experiment(seeds=3)
def main(chosen: Options) -> Made:
    """All three parts, or with `--quick` a few hundred rounds of small or generated data."""
    tables: dict[str, list[Row]] = {}
    if has("qsar") and not chosen.quick:
        everything = classification_of_all("qsar")
        rows = trajectories(everything, chosen.seeds, (300, 1000, 4000)) + sweep(everything, chosen.seeds, 1000)
        tables["CEPS on all of QSAR: NumPy study and ours"] = rows
    else:
        small, rows = jdfl.problems.classification("breast_cancer", 16), list[Row]()
        for scale in (1.0, 4.0):
            final = run(small, 10, 0, 300, 10, step_scale=scale).final
            rows.append(row(f"breast_cancer s=10 step x {scale:g}", "objective", None, [final["objective"]]))
        tables["CEPS on breast_cancer"] = rows
    title = "CEPS by message format, a fifth of the data held out"
    tables[title] = [one for *part, more in parts(chosen) for one in formats(*part, **more)]
    return Made(tables, bars(tables[title], ["objective"], "objective"))
