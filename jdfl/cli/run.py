"""`jdfl run`: one run per seed, each in its own folder."""

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

from jdfl.base import checks
from jdfl.base.keys import key_file
from jdfl.cli import flags, folders, resume
from jdfl.cli.running import STATUS, STATUSES, Running, Session, status_of
from jdfl.config import RunConfig, build, settled
from jdfl.devices import processes
from jdfl.engine.booking import Room
from jdfl.engine.result import CUTS
from jdfl.lab.results import read_run
from jdfl.lab.summary import spread_text
from jdfl.store import manifest

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
  jdfl run --steps 100000 --folder runs/mine           the same command, given again, goes on
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
    folder: Path | None = None
    """The run's own folder, instead of a new one in --out: the run begins there, or goes on if it has begun. The same
    command can be given again until it has ended, as by a queue that starts jobs again."""
    repeats: int = 1
    """Number of runs, with the seeds `seed`, `seed` + 1, ...; each has its own folder."""


def parse(args: list[str]) -> tuple[RunConfig, Options]:
    """The configuration and options behind the flags of `jdfl run`."""
    return flags.parse_run(args, Options(), prog="jdfl run", about=_ABOUT, examples=_EXAMPLES)


def run(config: RunConfig, options: Options) -> int:
    """Run once per seed, write and show every result; returns the exit status."""
    checks.whole(1, repeats=options.repeats)
    if options.folder is not None and options.repeats > 1:
        raise ValueError(f"Expected one run for --folder {options.folder}, got repeats = {options.repeats}. Use --out.")
    if options.folder is not None and (options.folder / "config.yaml").is_file():
        return _again(options.folder, config, options)
    checks.whole(0, 2**32 - options.repeats, "The seeds are `seed` to `seed` + repeats - 1.", seed=config.seed or 0)
    if config.key_file is not None and not Path(config.key_file).exists():
        key_file(config.key_file)
        print(
            f"jdfl: new key in {config.key_file}: keep it secret, and keep it: resuming the run needs it",
            file=sys.stderr,
        )
    session = Session(config, options)
    told: list[dict[str, Any]] = []
    status = 0
    keys = {seed: session.key(seed) for seed in range(config.seed or 0, (config.seed or 0) + options.repeats)}
    with Room(session.ledger) as room:
        room.keep(lambda: session.intents(list(keys.values())))  # refused whole, before there is a folder
        for seed, key in keys.items():
            name = f"{config.algorithm.kind}-{session.problem.name}-seed{seed}"
            folder = folders.begun(options.out, options.folder, name) if processes.leads() else None
            label = f"seed {seed}" if options.repeats > 1 else ""
            own = None if config.seed is None and config.key_file is None else seed
            around = options.folder or options.out
            result, one = session.run(folder, around, key=key, seed=own, label=label, new=True)
            told += [] if one is None else [one]
            status = max(status, status_of(result))
            if result.ending in CUTS:
                break
    if len(told) > 1 and not (options.json or options.quiet):
        print(spread_text(told), end="")
    if options.json and told:
        print(json.dumps(told[0] if options.repeats == 1 else told, indent=2, allow_nan=False, default=str))
    return status


def _again(folder: Path, config: RunConfig, options: Options) -> int:
    """Go on with the run in a folder, if it has these settings and did not end; returns the exit status."""
    if flags.changed(folder, config):  # in its folder, the noise that was found for its budget is among the settings
        config = settled(config, build(config)[0])
    if changed := flags.changed(folder, config):
        raise ValueError(
            f"Expected the settings of the run in --folder {folder}, got other ones of {', '.join(changed)}. Leave "
            f"them as they were, name another folder, or change the run: jdfl resume {folder}."
        )
    told = read_run(folder).summary if (folder / manifest.NAME).is_file() else {}
    if told and told["ending"] not in CUTS:
        print(json.dumps(told, indent=2, allow_nan=False) if options.json else f"{folder} has ended: {told['reason']}")
        return STATUSES.get(told["ending"], 0)
    running = {one.name: getattr(options, one.name) for one in dataclasses.fields(Running)}
    return resume.resume(folder, config, resume.Options(**running))
