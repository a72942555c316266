"""CEPS: the effect of each reading of its paper on rounds and objective.

The first column of Table III (m = 32, eps = 0.5, r = 0.2) under the preset `CEPS.paper`, and with one reading changed
at a time. "objective" is mean_i f_i at the average of the nodes' parameters, as the preset reads it; "objective, own"
is mean_i f_i(w_i), the other reading.
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from jax import Array

import jdfl
from experiments.ceps_table3 import CASES, VARIANTS, algorithm_of, network_of, run_variant, tolerance
from experiments.common import Made, Options, Row, bars, experiment, row
from jdfl.base import struct
from jdfl.engine import metrics
from jdfl.engine.stopping import ConsensusBelow, StopRule, View

CASE = CASES[0]
SHOWN = ("DP-1BCS", "NoDP-Perf")


@struct.dataclass
class AgreeAtOnce(ConsensusBelow):
    """The paper's test taken literally, also while nodes agree only because they have not communicated yet."""

    def __call__(self, view: View) -> Array:
        return metrics.consensus_error(view.w, view.problem) <= self.tolerance * self.per


def _codec(**fields: Any) -> Callable[[str], dict[str, Any]]:
    return lambda variant: {"codec": algorithm_of(CASE, variant).codec.replace(**fields)}  # pyright: ignore


def _as_deviation(variant: str) -> dict[str, Any]:
    """rho_i read as the standard deviation of the noise instead of its variance."""
    algorithm = algorithm_of(CASE, variant)
    assert algorithm.mechanism is not None
    multiplier = algorithm.mechanism.multiplier  # pyright: ignore[reportAttributeAccessIssue]
    return {"mechanism": jdfl.Gaussian(multiplier**2 * algorithm.sensitivity)}


@dataclass(frozen=True)
class Reading:
    """One answer to a question that the paper leaves open."""

    question: str
    answer: str
    fields: Callable[[str], dict[str, Any]] = field(default=lambda variant: {})
    variants: tuple[str, ...] = SHOWN
    p: float = 0.45
    stop: Callable[[str], StopRule] | None = None

    def __str__(self) -> str:
        return f"{self.question}: {self.answer}"


def _paper_stop(kind: Callable[..., Any], **more: Any) -> Callable[[str], StopRule]:
    return lambda variant: kind(tolerance(CASE, variant), per=10.0, **more)


READINGS = (
    Reading("preset", "as in Table III"),
    Reading("i in N_i", "drawn like the others", lambda v: {"own": "sampled"}),
    Reading("i in N_i", "always averaged", lambda v: {"own": "always"}),
    Reading("i in N_i", "always, own w_i through 1BCS", lambda v: {"own": "always", "own_coded": True}, ("DP-1BCS",)),
    Reading("Phi", "the receiver's (Alg. 2)", lambda v: {"phi": "receiver"}, ("DP-1BCS",)),
    Reading("d_i in sigma_i", "n/2", lambda v: {"sigma_rule": "half_n"}),
    Reading("first communication", "k = 0", lambda v: {"first": "zero"}),
    Reading("unselected", "their old z_j stay", lambda v: {"unselected": "stored", "storage": "sparse"}),
    Reading("stop", "from round 30 on", stop=_paper_stop(ConsensusBelow, after=30)),
    Reading("stop", "also before any communication", stop=_paper_stop(AgreeAtOnce)),
    Reading("GPSP's k", "ceil(.01 d) flips", _codec(flips=5), ("DP-1BCS",)),
    Reading("inverse of the logarithm", "exact scale", _codec(inverse="exact"), ("DP-1BCS",)),
    Reading("noise", "kept in u", lambda v: {"noise": "kept"}, ("DP-1BCS",)),
    Reading("rho_i", "a standard deviation", _as_deviation, ("DP-1BCS",)),
    Reading("graph", "p = 0.25", p=0.25),
    Reading("graph", "p = 0.35", p=0.35),
    Reading("graph", "p = 0.5", p=0.5),
)
QUICK = ("preset", "first communication")


def collect(readings: Sequence[Reading], seeds: int) -> list[Row]:
    rows: list[Row] = []
    problems = [jdfl.problems.example1(m=CASE.m, seed=seed) for seed in range(seeds)]
    for reading in readings:
        for variant in reading.variants:
            v = VARIANTS.index(variant)
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="The paper's sigma_i")  # on graphs of few links
                results = [
                    run_variant(
                        CASE,
                        variant,
                        seed,
                        problem,
                        network=network_of(CASE, seed, reading.p),
                        stop=reading.stop(variant) if reading.stop else None,
                        **reading.fields(variant),
                    )
                    for seed, problem in enumerate(problems)
                ]
            name = f"{variant} | {reading}"
            rows += [
                row(name, "rounds", CASE.rounds[v], [result.rounds for result in results]),
                row(name, "objective", CASE.objective[v], [result.final["objective"] for result in results]),
                row(name, "objective, own", None, [result.final["objective_local"] for result in results]),
                row(name, "support", None, [result.final["support_recovery"] for result in results]),
                row(name, "stopped", None, [float(result.ending == "stop rule") for result in results]),
            ]
    return rows


@experiment()
def main(chosen: Options) -> Made:
    """All readings, or those of a few questions with `--quick`."""
    rows = collect([one for one in READINGS if not chosen.quick or one.question in QUICK], chosen.seeds)
    return Made(
        {"CEPS, Table III (m = 32, eps = 0.5, r = 0.2), one reading changed at a time": rows},
        bars(rows, ["rounds"], "rounds"),
    )
