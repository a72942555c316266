"""The baselines that the CEPS paper compares with (section V.D), as the experiments run them.

The paper says that all methods exchange messages every 10 iterations, that D-PSGD and D-PSGD-DN receive from all
neighbours and the others from ceil(r |N_i|), and no more: no learning rates, momentum or weights, nor where noise
enters. The defaults here:

- Step size .5/L, with DFedAvgM's momentum .1/L; L is the largest curvature of the nodes' losses.
- Ten steps, then an exchange; the paper's stop rule is evaluated after the exchange, so that runs end after 10 j + 1
  iterations. D-PSGD with a period of ten, evaluated there, is DFedAvgM without momentum, and is run as that.
- CEPS's noise enters the first gradient after an exchange. Nine more steps remove it, except in directions that a
node's
  samples do not determine.
- Metropolis weights; where neighbours are sampled, their mean with the node's own row. Momentum .8; rho = .01.
- IHT-D-PSGD, which is not in the paper, is included because CEPS is given the true s and the baselines are dense.

The effect of other readings: `experiments.ceps_readings`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import jdfl
from experiments.common import Row, row
from jdfl.algorithms.ceps_paper import paper_volume
from jdfl.algorithms.gradients import Gradients
from jdfl.network.graph import Network
from jdfl.problems import Problem

PERIOD, LIMIT = 10, 20  # iterations between exchanges; exchanges after which a run counts as never agreeing
EVERYONE = ("D-PSGD", "D-PSGD-DN")  # methods that receive from all neighbours
METHODS = (*EVERYONE, "D-PSGD-PC", "DFedAvgM", "DFedSAM", "IHT-D-PSGD")
MARGIN = 0.01  # a run has learned when its objective is at most f(w*) + MARGIN
EPSILONS = (0.5, 1.0, 2.0)
TABLE4 = {  # method, epsilon: objective, rounds, seconds; None: "the algorithm diverges"
    ("D-PSGD", 0.5): None,
    ("D-PSGD", 1.0): (0.561, 41, 2.692),
    ("D-PSGD", 2.0): (0.129, 81, 3.872),
    ("D-PSGD-DN", 0.5): None,
    ("D-PSGD-DN", 1.0): (0.192, 71, 3.509),
    ("D-PSGD-DN", 2.0): (0.129, 91, 4.114),
    ("D-PSGD-PC", 0.5): None,
    ("D-PSGD-PC", 1.0): (0.185, 81, 3.805),
    ("D-PSGD-PC", 2.0): (0.132, 101, 4.492),
    ("DFedAvgM", 0.5): (0.577, 51, 2.911),
    ("DFedAvgM", 1.0): (0.274, 61, 3.289),
    ("DFedAvgM", 2.0): (0.156, 91, 4.199),
    ("DFedSAM", 0.5): (0.636, 41, 3.221),
    ("DFedSAM", 1.0): (0.243, 61, 4.049),
    ("DFedSAM", 2.0): (0.150, 81, 4.914),
}
STUDY = {  # method, epsilon: rounds and objective of an independent NumPy study with the same step sizes
    ("D-PSGD", 1.0): (41, 0.878),
    ("D-PSGD", 2.0): (51, 0.537),
    ("D-PSGD-PC", 1.0): (71, 0.263),
    ("D-PSGD-PC", 2.0): (91, 0.167),
    ("DFedAvgM", 1.0): (81, 0.162),
    ("DFedAvgM", 2.0): (101, 0.132),
    ("DFedSAM", 1.0): (71, 0.240),
    ("DFedSAM", 2.0): (91, 0.156),
}


@dataclass(frozen=True)
class Setting:
    """An algorithm on its network; `local`: a round of jdfl is ten iterations and an exchange, otherwise one."""

    algorithm: Any
    network: Network
    local: bool = True


@dataclass(frozen=True)
class Path:
    """A run's numbers after every exchange that mixes anything, j = 1, 2, ..."""

    iteration: np.ndarray  # 10 j + 1
    objective: np.ndarray
    consensus: np.ndarray
    bytes: np.ndarray  # sent up to that point
    seconds: np.ndarray  # up to that point; the run's time spread evenly

    def agreed(self, tolerance: float, s: int = 10) -> int | None:
        """The index at which the paper's rule ends the run."""
        return _first(self.consensus <= s * tolerance)

    def learnt(self, value: float) -> int | None:
        """The first index with an objective of at most `value`."""
        return _first(self.objective <= value)


def _first(true: np.ndarray) -> int | None:
    return int(np.argmax(true)) if true.any() else None


def gradients(epsilon: float | None, noisy: Any = "communicating") -> Gradients:
    """The noise of CEPS: delta = .5 and u_i = .1, which nothing enforces."""
    if epsilon is None:
        return Gradients()
    return Gradients(mechanism=jdfl.classical_gaussian(epsilon, 0.5), sensitivity=0.1, noisy=noisy)


def setting(
    method: str,
    problem: Problem,
    base: Network,
    *,
    epsilon: float | None,
    rate: float,
    step: float | None = None,
    weights: Any = None,
    own: bool = True,
    s: int = 10,
    **more: Any,
) -> Setting:
    """One of METHODS over the network `base`; `step` in units of 1 / L, `more` are other fields of the algorithm."""
    steepest = float(np.max(np.asarray(problem.curvature))) + float(getattr(problem, "penalty", 0.0))
    momentum = {"DFedAvgM": 0.8}.get(method, 0.0)
    fields: dict[str, Any] = {"lr": ((0.1 if momentum else 0.5) if step is None else step) / steepest}
    fields |= {"gradients": gradients(epsilon), "objective": "pi"}  # nodes of few neighbours may count for less
    if method == "D-PSGD":
        network = base
    elif method == "D-PSGD-DN":
        network = jdfl.network.erdos_renyi_rounds(problem.m, 0.45, weights=weights)
    else:
        network = jdfl.network.partial_communication(base, rate, include_self=own)
    if method == "IHT-D-PSGD":
        codec = jdfl.Sparse(index="enumerative")
        return Setting(jdfl.IHT(**({"s": s, "period": PERIOD, "codec": codec} | fields | more)), network, False)
    if method == "DFedSAM":
        return Setting(jdfl.DFedSAM(**({"rho": 0.01, "local_steps": PERIOD} | fields | more)), network)
    return Setting(jdfl.DFedAvgM(**({"theta": momentum, "local_steps": PERIOD} | fields | more)), network)


def follow(given: Setting, problem: Problem, seed: int, exchanges: int = LIMIT, *, start: bool = False) -> Path:
    """Run through `exchanges` exchanges, without a stop rule. `start`: an exchange of round 0's zeros counts too."""
    steps = exchanges if given.local else PERIOD * exchanges + 1
    result = jdfl.run(
        given.algorithm,
        problem,
        given.network,
        key=seed,
        steps=steps,
        metrics=["objective", "consensus_error"],
        options=jdfl.Options(chunk=steps),
    )
    history = result.history
    if given.local:
        places, iteration = np.arange(1, len(history)), PERIOD * np.arange(1, len(history)) + 1
    else:
        places = iteration = np.arange(1 if start else PERIOD + 1, len(history), PERIOD)
    objective, consensus, sent = (
        history[x].to_numpy(dtype=float)[places] for x in ("objective", "consensus_error", "bytes")
    )
    return Path(iteration, objective, consensus, sent, result.seconds * places / steps)


def cells(
    name: str,
    paths: Sequence[Path],
    tolerance: float,
    targets: Sequence[float],
    *,
    paper: tuple[float, float, float | None] | None = None,
    study: tuple[float, float] | None = None,
    formula: tuple[int, float, float | None] | None = None,
) -> list[Row]:
    """A row of a table. `paper`: objective, rounds, seconds; `study`: rounds, objective; `formula`: m, r, DTV in MB.

    Runs that the rule does not end are left out of the numbers, and "agreed" gives the share of the others. `targets`
    are the objectives at which the runs have learned.
    """
    ends = [(path, place) for path in paths if (place := path.agreed(tolerance)) is not None]
    found = [row(name, "agreed", None, [float(path.agreed(tolerance) is not None) for path in paths])]
    objective, rounds, seconds = paper or (None, None, None)
    if ends:
        stops = [float(path.iteration[place]) for path, place in ends]
        found += [
            row(name, "rounds", rounds, stops),
            row(name, "rounds, study", study[0] if study else None, stops),
            row(name, "objective", objective, [path.objective[place] for path, place in ends]),
            row(name, "objective, study", study[1] if study else None, [path.objective[place] for path, place in ends]),
            row(name, "true MB", None, [path.bytes[place] / 1e6 for path, place in ends]),
            row(name, "seconds", seconds, [path.seconds[place] for path, place in ends]),
        ]
        if formula is not None:
            m, rate, volume = formula
            sizes = [paper_volume(stop, m=m, n=1000, rate=rate, period=PERIOD) / 1e6 for stop in stops]
            found.append(row(name, "DTV formula, MB", volume, sizes))
    learnt = [path.iteration[k] for path, target in zip(paths, targets) if (k := path.learnt(target)) is not None]
    found += [row(name, "rounds to learn", None, learnt)] if learnt else []
    return found
