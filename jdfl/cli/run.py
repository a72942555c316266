"""`jdfl run`: one run per seed, each in its own folder."""

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

from jdfl.base import checks
from jdfl.base.keys import key_file
from jdfl.cli import flags
from jdfl.cli.running import STATUS, Running, Session, status_of
from jdfl.config import RunConfig
from jdfl.devices import processes
from jdfl.engine.booking import Room
from jdfl.lab.results import new_run_folder
from jdfl.lab.summary import spread_text

_ABOUT = """Run an algorithm on a problem over a network, and save configuration, results and figure in a new folder."""

_EXAMPLES = f"""examples:
  jdfl run                                             CEPS with one-bit messages on Example 1 of its paper
  jdfl run --problem.m 64 --network ring --algorithm.sigma-rule safe --steps 300    more nodes, on a ring
  jdfl run --problem classification --problem.data digits --algorithm.s 60 --stop none
  jdfl run --algorithm.codec dense --repeats 5         uncompressed messages, seeds 0 to 4
  jdfl run --algorithm ceps-paper --algorithm.no-one-bit
  jdfl run --algorithm choco-sgd --algorithm.codec sparse --algorithm.codec.share 0.1 --algorithm.gamma 0.1
  jdfl run --config runs/NAME/config.yaml --steps 500  an earlier run with more rounds
  jdfl run --steps 100000 --max-seconds 3600           one hour; `jdfl resume runs/NAME` continues it
  jdfl run --algorithm.clip 30 --algorithm.sigma 0.4 --algorithm.mechanism gaussian --privacy.epsilon 16   private CEPS
  jdfl run --devices 8                                 distribute the nodes over eight devices
  jdfl run --coordinator node0:1234 --processes 2 --process 0    two processes; the other has --process 1
  jdfl run --json --quiet | jq .metrics.objective      for scripts

{STATUS}
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(Running):
    """Options of a run besides its configuration."""

    config: Path | None = None
    """File config.yaml to start from; other flags override it."""
    out: Path = Path("runs")
    """Folder in which the run's new folder is made."""
    repeats: int = 1
    """Number of runs, with the seeds `seed`, `seed` + 1, ...; each has its own folder."""


def parse(args: list[str]) -> tuple[RunConfig, Options]:
    """The configuration and options behind the flags of `jdfl run`."""
    return flags.parse_run(args, Options(), prog="jdfl run", about=_ABOUT, examples=_EXAMPLES)


def run(config: RunConfig, options: Options) -> int:
    """Run once per seed, write and show every result; returns the exit status."""
    checks.whole(1, repeats=options.repeats)
    checks.whole(0, 2**32 - options.repeats, "The seeds are `seed` to `seed` + repeats - 1.", seed=config.seed)
    if config.key_file is not None and not Path(config.key_file).exists():
        key_file(config.key_file)
        print(
            f"jdfl: new key in {config.key_file}: keep it secret, and keep it: resuming the run needs it",
            file=sys.stderr,
        )
    session = Session(config, options)
    told: list[dict[str, Any]] = []
    status = 0
    seeds = range(config.seed, config.seed + options.repeats)
    with Room(session.ledger) as room:
        room.keep(lambda: session.intents(seeds))  # refused whole, before there is a folder
        for seed in seeds:
            name = f"{config.algorithm.kind}-{session.problem.name}-seed{seed}"
            folder = new_run_folder(options.out, name) if processes.leads() else None
            label = f"seed {seed}" if options.repeats > 1 else ""
            result, one = session.run(folder, options.out, seed=seed, label=label, new=True)
            told += [] if one is None else [one]
            status = max(status, status_of(result))
            if result.ending in ("interrupted", "terminated", "time limit"):
                break
    if len(told) > 1 and not (options.json or options.quiet):
        print(spread_text(told), end="")
    if options.json and told:
        print(json.dumps(told[0] if options.repeats == 1 else told, indent=2, allow_nan=False, default=str))
    return status
