"""`jdfl run`: one run per seed, each in its own folder."""

import contextlib
import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import jax

import jdfl
from jdfl import checks, distributed, report
from jdfl.accountant import check_account
from jdfl.cache import use_cache
from jdfl.checkpoint import read_checkpoint
from jdfl.cli import flags
from jdfl.config import RunConfig, build, settled, to_yaml
from jdfl.progress import Progress
from jdfl.result import Result
from jdfl.results import new_run_folder, write_run
from jdfl.runner import planned
from jdfl.sharding import simulate
from jdfl.summary import spread_text, summary, summary_text

_ABOUT = """Run an algorithm on a problem over a network, and keep everything about it in a new folder.

The flags with a list of kinds choose one; the settings of the chosen kinds are shown below, those of another kind with
for example: jdfl run --network k-regular --help"""

_EXAMPLES = """examples:
  jdfl run                                             CEPS with one-bit messages on its Example 1
  jdfl run --problem.m 64 --network ring --algorithm.sigma-rule safe --steps 300    more nodes, on a ring
  jdfl run --problem classification --problem.data digits --algorithm.s 60 --stop none
  jdfl run --algorithm.codec dense --repeats 5         whole vectors on the wires, seeds 0 to 4
  jdfl run --algorithm ceps-paper --algorithm.no-one-bit
  jdfl run --algorithm choco-sgd --algorithm.codec sparse --algorithm.codec.share 0.1 --algorithm.gamma 0.1
  jdfl run --config runs/NAME/config.yaml --steps 500  an earlier run, but longer
  jdfl run --resume runs/NAME --steps 500              the same run, from where it ended
  jdfl run --steps 100000 --checkpoint-every 1000      which it can be even if it is killed
  jdfl run --algorithm.clip 30 --algorithm.sigma 0.4 --algorithm.mechanism gaussian --privacy.epsilon 16   private CEPS
  jdfl run --devices 8                                 the nodes spread over eight devices, with the same results
  jdfl run --coordinator node0:1234 --processes 2 --process 0    the same over two processes; the other is --process 1
  jdfl run --json --quiet | jq .metrics.objective      for scripts

exit status: 0 done, 2 a mistake in the settings, 3 the run diverged, 4 another process of the run was lost,
130 interrupted (what there is of runs that diverged or were interrupted has been written)
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """What is said about a run besides its configuration."""

    config: Path | None = None
    """A config.yaml to start from; other flags override it."""
    out: Path = Path("runs")
    """Where the run's new folder is made."""
    resume: Path | None = None
    """The folder of a run to go on with; its config.yaml is read unless --config names another."""
    checkpoint_every: int | None = None
    """Write what is needed to go on with --resume into the run's folder about every so many rounds."""
    repeats: int = 1
    """Runs to make, with the seeds `seed`, `seed` + 1, ...; each gets its own folder."""
    devices: int | None = None
    """Devices that share the nodes, with the same results; on a CPU they are simulated. One is used if not given."""
    distributed: bool = False
    """Run as one of several processes, started alike on a cluster that JAX recognises (SLURM, Open MPI, Kubernetes)."""
    coordinator: str | None = None
    """Elsewhere: host:port of process 0, with --processes and --process; --devices are then those of each process."""
    processes: int | None = None
    """How many processes there are."""
    process: int | None = None
    """The number of this one, from 0."""
    quiet: bool = False
    """No progress bar and no summary; without --json, only the folder's name."""
    json: bool = False
    """Print the summary as JSON, a list of them if there are several runs."""


def parse(args: list[str]) -> tuple[RunConfig, Options]:
    """The configuration and options behind the flags of `jdfl run`."""
    return flags.parse_run(args, Options(), prog="jdfl run", about=_ABOUT, examples=_EXAMPLES, folder="resume")


def run(config: RunConfig, options: Options) -> int:
    """Run once per seed, write and show every result; returns the exit status."""
    checks.whole(1, repeats=options.repeats)
    use_cache()
    if options.devices is not None:
        simulate(options.devices)
    several = _joined(options)
    algorithm, problem, network, stop = build(config)
    budget = config.privacy.epsilon if config.privacy.accounting == "sound" else None  # a paper's is no budget
    config = settled(config, algorithm)
    told_how: Any = {"delta": config.privacy.delta, "accounting": config.privacy.accounting}
    check_account(planned(algorithm, problem, network, config.steps), problem, **told_how)
    resume = None
    if options.resume is not None:
        checks.one_of((1,), "A run is resumed with its own seed.", repeats=options.repeats)
        resume = read_checkpoint(
            options.resume / "checkpoints", planned(algorithm, problem, network, config.steps), problem, network
        )
    told: list[dict[str, Any]] = []
    status = 0
    for seed in range(config.seed, config.seed + options.repeats):
        one = dataclasses.replace(config, seed=seed)
        name = f"{config.algorithm.kind}-{problem.name}-seed{seed}"
        folder = new_run_folder(options.out, name) if distributed.leads() else None
        checkpoint = None if options.checkpoint_every is None else (folder or options.out) / "checkpoints"
        if folder is not None and checkpoint is not None:
            (folder / "config.yaml").write_text(to_yaml(one), encoding="utf-8")
        try:
            with Progress(f"seed {seed}" if options.repeats > 1 else "") as progress:
                result = jdfl.run(
                    algorithm,
                    problem,
                    network,
                    key=seed,
                    steps=config.steps,
                    every=config.every,
                    stop=stop,
                    metrics=config.metrics or None,
                    callbacks=[] if options.quiet or folder is None else [progress],
                    chunk=config.chunk,
                    resume=resume,
                    epsilon=budget,
                    delta=None if budget is None else config.privacy.delta,
                    mesh=jax.devices() if several else options.devices,
                    checkpoint=checkpoint,
                    checkpoint_every=options.checkpoint_every,
                )
            if folder is not None:
                again = checkpoint is not None  # the folder holds it already
                write_run(folder, to_yaml(one), result, draw=report.figure, overwrite=again, **told_how)
        except BaseException:
            if folder is not None:
                _discard(folder)
            raise
        if folder is not None:
            told.append({"folder": str(folder), **summary(result, **told_how)})
            _show(result, told[-1], folder, options)
        status = max(status, {"diverged": 3, "interrupted": 130}.get(result.ending, 0))
        if result.ending == "interrupted":
            break
    if len(told) > 1 and not (options.json or options.quiet):
        print(spread_text(told), end="")
    if options.json and told:
        print(json.dumps(told[0] if options.repeats == 1 else told, indent=2, allow_nan=False, default=str))
    return status


def _discard(folder: Path) -> None:
    """Remove the folder of a run that left nothing; `write_run` leaves all or nothing, and a checkpoint stays."""
    with contextlib.suppress(OSError):
        if not (folder / "checkpoints").exists():
            (folder / "config.yaml").unlink(missing_ok=True)
        folder.rmdir()


def _joined(options: Options) -> bool:
    """Whether this is one of several processes; then it has joined them."""
    given = (options.coordinator, options.processes, options.process)
    if options.distributed or any(value is not None for value in given):
        distributed.join(*given)
        return True
    return False


def _show(result: Result, told: dict[str, Any], folder: Path, options: Options) -> None:
    if not options.json:
        print(folder if options.quiet else f"{summary_text(told)}- folder: {folder}\n")
    if result.ending in ("diverged", "interrupted", "budget"):
        print(f"jdfl: {result.reason}", file=sys.stderr)
