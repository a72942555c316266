"""What the theorems of the three papers say about a run: `theory`."""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd
from jax import Array

from experiments.theory import hypotheses
from experiments.theory.theorem import Theorem, log10
from jdfl.algorithms.algorithm import Algorithm
from jdfl.base import checks
from jdfl.base.arguments import checked
from jdfl.base.keys import typed_key
from jdfl.engine import stepping
from jdfl.engine.result import Result
from jdfl.engine.start import check_run
from jdfl.network import Network
from jdfl.problems import Problem

Name = Literal["ceps-1", "ceps-2", "ceps-3", "dpps-1", "dpps-2", "do-adp-1", "do-adp-2", "do-adp-corollary-1"]
NAMES: tuple[Name, ...] = get_args(Name)
BOUNDS = ("ceps-1", "dpps-2", "do-adp-2", "do-adp-corollary-1")  # which bound the mean squared norm of a gradient
_RECORD = 'record the metric gradient_norm (metrics=["gradient_norm"], --metrics gradient_norm) and give the run'
_PAPERS: dict[str, Callable[[hypotheses.Run], tuple[Theorem, ...]]] = {
    "ceps": hypotheses.ceps,
    "partpsp": hypotheses.partpsp,
    "sgp": hypotheses.partpsp,
    "pedfl": hypotheses.dpps,
    "average-consensus": hypotheses.dpps,
    "do-adp": hypotheses.doadp,
}
_ABOUT = {
    "ceps": "Algorithm 1 of the CEPS paper",
    "dpps": "the DPPS protocol, of Theorem 2 PartPSP,",
    "do-adp": "Algorithm 1 of the DO-ADP paper",
}


@dataclass(frozen=True)
class Theory:
    """The theorems that speak of the algorithm of a run, with their conditions and conclusions for this run."""

    theorems: tuple[Theorem, ...]

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON: the theorems by name, all fields of each; numbers that are not finite become None."""
        return {one.name: _plain(asdict(one) | {"holds": one.holds, "missing": one.missing}) for one in self.theorems}

    def statement(self) -> str:
        """The theorems in words: verdict, conditions with their numbers, conclusion, and what was measured."""
        return "\n".join(one.statement() for one in self.theorems)

    def __str__(self) -> str:
        """The same as `statement`."""
        return self.statement()


@checked
def theory(
    algorithm: Algorithm,
    problem: Problem,
    network: Network,
    *,
    steps: int | None = None,
    key: int | Array = 0,
    result: Result | None = None,
    theorem: Name | None = None,
) -> Theory:
    """What the theorems of the CEPS, DPPS and DO-ADP papers say about a run, and which hypotheses it satisfies.

    Nothing is run. A constant that cannot be computed, such as the Lipschitz constant of a neural network, is unknown,
    and so is a bound that depends on it. The f* of `problem.optimum` is used if it is there (`jdfl.problems.solved`).

    Args:
        algorithm: The settings of the method: CEPS, PartPSP, SGP, PEDFL, AverageConsensus or DOADP.
        problem: The nodes' data and losses, of m nodes.
        network: The communication network, with the same number of nodes.
        steps: Rounds of the run, at least 1; None: those of `result`.
        key: The key of the run, from which periods may be drawn.
        result: The finished run, whose recorded gradients are set against the bounds; None: nothing was measured.
        theorem: The name of one theorem, such as "ceps-1"; None: all that speak of the algorithm.

    Returns:
        A `Theory`, whose `theorems` have `conditions`, `says`, `measured`, `holds` and `missing`, and whose `statement`
        is printed.

    Raises:
        ValueError: For an algorithm about which there is no theorem, or not the one asked for, without `steps` and
            `result`, and for what `jdfl.run` refuses.
    """
    if steps is None and result is None:
        raise ValueError("Expected steps or result, got neither. Give steps, the number of rounds of the run.")
    rounds = result.rounds if steps is None and result is not None else steps
    checks.integer(1, steps=rounds)
    assert rounds is not None
    kind = str(getattr(algorithm, "kind", type(algorithm).__name__))
    if kind not in _PAPERS:
        raise ValueError(
            f"Expected an algorithm of the CEPS, DPPS or DO-ADP paper, got {kind}: the first hypothesis of every "
            f"theorem, the paper's own algorithm, is missing. They speak of {', '.join(_PAPERS)}."
        )
    network = stepping.paired(problem, network)
    program = check_run(algorithm, problem, network, rounds, 1, None)
    setting = stepping.setting(program, problem, network, None, typed_key(key))
    ready = program.prepare(problem, stepping.initial_round(setting)).ready
    found = _PAPERS[kind](hypotheses.Run(algorithm, problem, network, rounds, ready))
    if theorem is not None and theorem not in (one.name for one in found):
        raise ValueError(
            f"Expected a theorem that speaks of {kind}, got theorem = {theorem!r}: its first hypothesis, "
            f"{_ABOUT[theorem.rpartition('-')[0].removesuffix('-corollary')]}, is missing. Of {kind} speak "
            f"{', '.join(one.name for one in found)}."
        )
    history = None if result is None else result.history
    return Theory(tuple(_measured(one, problem, history) for one in found if theorem in (None, one.name)))


def _measured(one: Theorem, problem: Problem, history: pd.DataFrame | None) -> Theorem:
    """The theorem with the mean squared gradient norm of the records, if it bounds one."""
    if one.name not in BOUNDS:
        return one
    if history is None or "gradient_norm" not in history:
        return replace(one, unmeasured=_RECORD)
    square = float(np.mean(np.square(history["gradient_norm"].to_numpy(float))))
    name = f"mean ||grad f||^2 of {len(history)} records"
    if one.name == "ceps-1":  # whose f is a sum
        return replace(one, measured={f"log10 of the {name}": log10(square * problem.m**2) or 0.0})
    return replace(one, measured={f"{name}, of all parameters" if problem.personal else name: square})


def _plain(value: Any) -> Any:
    """For JSON: numbers that are not finite become None."""
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
