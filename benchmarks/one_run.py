"""The time of a round of any run on this machine, and the limit that its memory sets.

    python -m benchmarks.one_run [FLAGS OF `jdfl run`] [--rounds 50] [--repeats 5] [--json]

The run has no metrics, stop rule and files. The limit is the time to move what a round has to move
(`benchmarks.floors`) at the speed at which this machine copies memory. A round takes less only where the processor's
cache holds some of it. Compilation is reported separately. Mistakes in the settings end with status 2.
"""

import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import jax

import jdfl
from benchmarks.floors import floor
from benchmarks.machine import bandwidth
from jdfl.base import checks
from jdfl.cli import of_function
from jdfl.config import RunConfig, build, key_of
from jdfl.engine.placement import estimate


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Measure the time of rounds of the run that these flags describe, and compare it with the time to move what a
    round has to move, at the speed at which this machine copies memory.

    Rounds are run without metrics, stop rule, privacy budget and files: the flags of these, and --steps, --every and
    --chunk, have no effect.

    Examples:
      python -m benchmarks.one_run --algorithm d-psgd --problem.m 4096 --network ring --rounds 20
    """

    config: Path | None = None
    """File config.yaml of a run; other flags override it."""
    rounds: int = 50
    """Number of rounds that are timed together."""
    repeats: int = 5
    """Number of measurements."""
    json: bool = False
    """Print JSON."""


def measured(config: RunConfig, options: Options) -> dict[str, Any]:
    """Times, speeds and sizes of a run by name."""
    checks.integer(1, rounds=options.rounds, repeats=options.repeats)
    algorithm, problem, network, _ = build(config)
    rounds = options.rounds
    how: dict[str, Any] = {"steps": rounds, "every": rounds, "metrics": (), "options": jdfl.Options(chunk=rounds)}
    first = jdfl.run(algorithm, problem, network, key=key_of(config), **how)
    if first.rounds < rounds:
        raise ValueError(f"Expected a run of {rounds} rounds, got {first.rounds}: {first.reason}. Give fewer --rounds.")
    runs = [jdfl.run(algorithm, problem, network, key=key_of(config), **how) for _ in range(options.repeats)]
    seconds = [run.seconds / rounds for run in runs]
    least, speed = floor(algorithm, problem, network, rounds=min(rounds, 120)), bandwidth()[1] * 1e9
    return {
        "device": jax.devices()[0].device_kind,
        "nodes": problem.m,
        "parameters": problem.n,
        "milliseconds_per_round": {"least": min(seconds) * 1e3, "median": median(seconds) * 1e3},
        "rounds_per_second": 1 / median(seconds),
        "compile_seconds": first.compile_seconds,
        "copy_gigabytes_per_second": speed / 1e9,
        "least_megabytes_per_round": {name: size / 1e6 for name, size in dataclasses.asdict(least).items()},
        "times_the_limit": median(seconds) / (least.total / speed),
        "memory_megabytes": {name: size / 1e6 for name, size in estimate(algorithm, problem, network).items()},
    }


def main(args: Sequence[str]) -> int:
    """Measure and print; the exit status."""
    try:
        settings = of_function(measured, "python -m benchmarks.one_run", args)
        found = measured(**settings)
    except (ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    if settings["options"].json:
        print(json.dumps(found, indent=2))
        return 0
    for name, value in found.items():
        parts = value.items() if isinstance(value, dict) else [("", value)]
        shown = (f"{part} {one:,.4g}" if isinstance(one, float) else f"{part} {one}" for part, one in parts)
        print(f"{name.replace('_', ' ')}: {', '.join(word.strip() for word in shown)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
