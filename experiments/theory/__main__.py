"""`python -m experiments.theory`: which theorems of the papers speak of a run, and what they then say of it."""

import dataclasses
import json
import sys
from pathlib import Path

import jdfl
from experiments.theory.statement import Name, theory
from jdfl.cli import flags, of_function
from jdfl.config import RunConfig, build, key_of
from jdfl.engine.result import Result
from jdfl.problems.yardsticks import solvable, solved


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Compare a run with the theorems of the CEPS, DPPS and DO-ADP papers: which conditions it satisfies.

    The flags of `jdfl run` describe the run; or give the folder of a finished one first, whose recorded gradients are
    then set against the bounds. Every condition is printed with its numbers, those that are missing by name, and what
    the theorem then says. Constants that cannot be known, such as the Lipschitz constant of a neural network, are
    unknown.

    Examples:
      python -m experiments.theory runs/NAME                                              a finished run
      python -m experiments.theory --algorithm do-adp --network laplacian --steps 1000 --theorem do-adp-2
      python -m experiments.theory --algorithm sgp --network d-out --algorithm.dpps.b 3
                                   --algorithm.dpps.sensitivity eq22
      python -m experiments.theory --config runs/NAME/config.yaml --json

    exit status: 0 printed, 2 a mistake in the settings, or a theorem that does not speak of the algorithm
    """

    config: Path | None = None
    """File config.yaml of a run; other flags override it."""
    theorem: Name | None = None
    """Name of one theorem; none: all that speak of the algorithm."""
    json: bool = False
    """Print JSON."""


def state(folder: Path | None, config: RunConfig, options: Options) -> int:
    """State the theorems and print; returns the exit status."""
    result = None
    if folder is not None:
        if changed := flags.changed(folder, config):
            raise ValueError(
                f"Expected the settings of the run in {folder}, got other ones of {', '.join(changed)}. For others: "
                f"python -m experiments.theory --config {folder / 'config.yaml'}, with the flags."
            )
        result = jdfl.load(folder)
        if not isinstance(result, Result):
            raise ValueError(f"Expected the folder of one run, got {folder}, a comparison. Name one of its runs.")
    algorithm, problem, network, _ = build(config)
    problem = solved(problem) if problem.optimum is None and solvable(problem) else problem
    found = theory(
        algorithm,
        problem,
        network,
        steps=None if result is not None else config.steps,
        key=key_of(config),
        result=result,
        theorem=options.theorem,
    )
    print(json.dumps(found.as_dict(), indent=2, allow_nan=False) if options.json else found.statement(), end="")
    return 0


def main(arguments: list[str] | None = None) -> int:
    """The command; returns the exit status."""
    try:
        words = sys.argv[1:] if arguments is None else arguments
        return state(**of_function(state, "python -m experiments.theory", words))
    except (ValueError, OSError) as error:
        print(f"theory: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
