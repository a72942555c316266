"""`jdfl run`: one run per seed, each in its own folder; and `jdfl resume`: continue one from its last checkpoint."""

import dataclasses
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from jdfl.base import checks
from jdfl.base.keys import key_file
from jdfl.base.terminal import wrapped
from jdfl.cli import flags
from jdfl.cli.running import STATUSES, Running, Session, begun
from jdfl.config import RunConfig, build, settled
from jdfl.devices import processes
from jdfl.engine.booking import Room
from jdfl.engine.provenance import COMPUTED, Provenance
from jdfl.engine.result import BAD, CUTS
from jdfl.lab.table import PM, half_width, rounded
from jdfl.results.checkpoints import JOURNAL, RECORDS, SNAPSHOTS, read_checkpoint
from jdfl.results.folder import read_run
from jdfl.results.summary import together
from jdfl.store import journal, manifest, snapshots

_OTHER_CODE = (
    "rounds after the checkpoint may have been made before by other code, with the same noise on other numbers; where "
    "messages of both were seen, nothing hides the difference"
)
_STATUS = """
    exit status: 0 done, 2 a mistake in the settings, 3 the run diverged, 4 another process of the run was lost,
    5 the results could not be written, or somebody has removed or changed the run's folder, 6 the run violated an
    invariant, 124 the time limit --max-seconds was reached, 130 interrupted, 143 terminated (SIGTERM, SIGHUP). Results
    of runs that diverged, violated an invariant or ended early are written, and `jdfl resume` continues runs that ended
    early or were killed."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(Running):
    """Run an algorithm on a problem over a network, and save configuration, results and figure in a new folder.

    Examples:
      jdfl run                                             CEPS with one-bit messages on Example 1 of its paper
      jdfl run --problem.m 64 --network ring --algorithm.sigma-rule safe --steps 300    more nodes, on a ring
      jdfl run --problem classification --problem.data digits --algorithm.s 60 --stop none
      jdfl run --algorithm.codec dense --repeats 5         uncompressed messages, seeds 0 to 4
      jdfl run --algorithm ceps-paper --algorithm.no-one-bit
      jdfl run --algorithm choco-sgd --algorithm.codec sparse --algorithm.codec.share 0.1 --algorithm.gamma 0.1
      jdfl run --config runs/NAME/config.yaml --steps 500  an earlier run with more rounds
      jdfl run --steps 100000 --max-seconds 3600           one hour; `jdfl resume runs/NAME` continues it
      jdfl run --steps 100000 --folder runs/mine           the same command, given again, goes on
      jdfl run --algorithm.clip 30 --algorithm.sigma 0.4 --algorithm.mechanism gaussian --privacy.epsilon 16
      jdfl run --devices 8                                 distribute the nodes over eight devices
      jdfl run --coordinator node0:1234 --processes 2 --process 0    two processes; the other has --process 1
      jdfl run --json --quiet | jq .metrics.objective      for scripts
    """

    config: Path | None = None
    """File config.yaml to start from; other flags override it."""
    out: Path = Path("runs")
    """Folder in which the run's new folder is made."""
    folder: Path | None = None
    """The run's own folder, instead of a new one in --out: the run begins there, or goes on if it has begun. The same
    command can be given again until it has ended, as by a queue that starts jobs again."""
    repeats: int = 1
    """Number of runs, with the seeds `seed`, `seed` + 1, ...; each has its own folder."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Resuming(Running):
    """Continue a run that was killed or ended early, or extend it (--steps), from its last checkpoint.

    The result equals that of a run that was never interrupted. With another --steps, the rows of releases.csv,
    nodes.csv and links.csv lie at other rounds than in a run that had that number from the start. Everything is written
    into the run's own folder, which is refused while another process writes into it. Settings that would change its
    numbers are refused.

    Examples:
      jdfl resume runs/NAME                                a run that was killed, interrupted or out of time
      jdfl resume runs/NAME --steps 500                    extend a finished run to 500 rounds in total
      jdfl resume runs/NAME --devices 8                    on another number of devices
      jdfl resume runs/NAME --steps 500 --privacy.epsilon 4    with a larger budget; the noise stays
    """

    any_version: bool = False
    """Continue with other versions of jdfl or of libraries, whose numbers may differ in the last bits."""


for _options in (Options, Resuming):
    _options.__doc__ = f"{_options.__doc__}{_STATUS}"


def run(config: RunConfig, options: Options) -> int:
    """Run once per seed, write and show every result; returns the exit status."""
    checks.integer(1, repeats=options.repeats)
    if options.folder is not None and options.repeats > 1:
        raise ValueError(f"Expected one run for --folder {options.folder}, got repeats = {options.repeats}. Use --out.")
    if options.folder is not None and (options.folder / "config.yaml").is_file():
        return _again(options.folder, config, options)
    first = config.seed or 0
    checks.integer(0, 2**32 - options.repeats, "The seeds are `seed` to `seed` + repeats - 1.", seed=first)
    if config.key_file is not None and not Path(config.key_file).exists():
        key_file(config.key_file)
        remedy = "keep it secret, and keep it: resuming the run needs it"
        print(f"jdfl: new key in {config.key_file}: {remedy}", file=sys.stderr)
    session = Session(config, options)
    summaries: list[dict[str, Any]] = []
    status = 0
    keys = {seed: session.key(seed) for seed in range(first, first + options.repeats)}
    with Room(session.ledger) as room:
        room.keep(lambda: session.intents(list(keys.values())))  # refused whole, before there is a folder
        for seed, key in keys.items():
            name = f"{config.algorithm.kind}-{session.problem.name}-seed{seed}"
            folder = begun(options.out, options.folder, name) if processes.leads() else None
            label = f"seed {seed}" if options.repeats > 1 else ""
            own = None if config.seed is None and config.key_file is None else seed
            around = options.folder or options.out
            result, one = session.run(folder, around, key=key, seed=own, label=label, new=True)
            summaries += [] if one is None else [one]
            status = max(status, STATUSES.get(result.ending, 0))
            if result.ending in CUTS:
                break
    if len(summaries) > 1 and not (options.json or options.quiet):
        print(wrapped(spread_text(summaries)), end="")
    if options.json and summaries:
        print(json.dumps(summaries[0] if options.repeats == 1 else summaries, indent=2, allow_nan=False, default=str))
    return status


def spread_text(runs: Sequence[Mapping[str, Any]]) -> str:
    """Means over `runs` of one setting with 95 % intervals, given by their summaries, as Markdown."""
    rows = [{"rounds": one["rounds"], "bytes": one["bytes"], **one["metrics"]} for one in runs]
    lines = [f"| over runs | mean {PM} | runs |", "| --- | ---: | ---: |"]
    for name in rows[0]:
        values = [row[name] for row in rows if row[name] is not None]
        mean = rounded(fmean(values), half_width(np.array(values, float))) if values else "none"
        lines.append(f"| {name} | {mean} | {len(values)} |")
    spent = together(runs)
    return "\n".join(lines) + "\n" + ("" if spent is None else f"\n{spent.statement()}\n")


def _again(folder: Path, config: RunConfig, options: Options) -> int:
    """Go on with the run in a folder, if it has these settings and did not end; returns the exit status."""
    if flags.changed(folder, config):  # in its folder, the noise that was found for its budget is among the settings
        config = settled(config, build(config)[0])
    if changed := flags.changed(folder, config):
        raise ValueError(
            f"Expected the settings of the run in --folder {folder}, got other ones of {', '.join(changed)}. Leave "
            f"them as they were, name another folder, or change the run: jdfl resume {folder}."
        )
    summary = read_run(folder).summary if (folder / manifest.NAME).is_file() else {}
    if summary and summary["ending"] not in CUTS:
        ended = f"{folder} has ended: {summary['reason']}"
        print(json.dumps(summary, indent=2, allow_nan=False) if options.json else ended)
        return STATUSES.get(summary["ending"], 0)
    running = {one.name: getattr(options, one.name) for one in dataclasses.fields(Running)}
    return resume(folder, config, Resuming(**running))


def resume(folder: Path, config: RunConfig, options: Resuming) -> int:
    """Continue the run, write and show it; returns the exit status."""
    done = _summary(folder)
    if done.get("ending") in BAD:
        raise ValueError(
            f"Expected a run that can be continued, got {folder}, which {BAD[done['ending']]}: {done.get('reason')}."
        )
    resumable = snapshots.newest(folder / SNAPSHOTS) is not None
    if done and not resumable:
        raise FileNotFoundError(f"Expected checkpoints of the finished run {folder}, found none.")
    if not done:
        _check_end(folder, config)
    if (was := flags.config_of(folder).privacy.ledger) != config.privacy.ledger and was:
        raise ValueError(
            f"Expected the ledger that the run has joined, {was}, got privacy.ledger = {config.privacy.ledger!r}. It "
            "counts there what has been released; leave it as it was."
        )
    session = Session(config, options)
    before = None
    if resumable:
        before = read_checkpoint(folder, session.algorithm, session.problem, session.network)
        if not done and before.ending == "stop rule":  # it was killed while its end was written
            before = dataclasses.replace(before, over=True)
        if done and config.steps == before.rounds:
            raise ValueError(
                f"Expected --steps above the {before.rounds} rounds that are done, got {config.steps}. It counts all."
            )
        if options.any_version:
            settings = {} if before.provenance is None else dict(before.provenance.settings)
            settings.pop(COMPUTED, None)
            known = Provenance({}, settings)
            before = dataclasses.replace(before, provenance=known, warnings=(*before.warnings, _OTHER_CODE))
    elif changed := flags.changed(folder, config, "steps", "chunk", "privacy", "diverged_above"):  # it starts again
        raise ValueError(
            f"Expected the settings of the run that is resumed, in {folder / 'config.yaml'}, got other ones of "
            f"{', '.join(changed)}. Leave them as they were, or begin another run: jdfl run --config."
        )
    own = folder if processes.leads() else None
    result, summary = session.run(own, folder.parent, key=session.recorded_key(folder), resume=before)
    if options.json and summary is not None:
        print(json.dumps(summary, indent=2, allow_nan=False, default=str))
    return STATUSES.get(result.ending, 0)


def _summary(folder: Path) -> dict[str, Any]:
    """The summary of a run; empty for one that was interrupted."""
    file, ended = folder / "summary.json", (folder / manifest.NAME).is_file()
    return flags.read_json(file) if file.is_file() and ended else {}


def _check_end(folder: Path, config: RunConfig) -> None:
    """Refuse settings that may end an interrupted run before the rounds that it had reached: ValueError."""
    try:
        recorded = max(map(int, journal.read(folder / JOURNAL).rows(RECORDS)["round"]), default=0)
    except (ValueError, OSError):  # without a journal, or with none that can be read
        recorded = 0
    if config.steps < recorded:
        raise ValueError(
            f"Expected --steps of at least the {recorded} rounds that are recorded in {folder}, got {config.steps}. "
            "They were done before it was cut off, and what they released is counted when they are done again."
        )
    was = flags.config_of(folder)
    budget, before = config.privacy.epsilon, was.privacy.epsilon
    for name, other in (
        ("stop", config.stop != was.stop),
        ("diverged_above", config.diverged_above != was.diverged_above),
        ("privacy.epsilon", budget is not None and (before is None or budget < before)),
        ("privacy.delta", budget is not None and config.privacy.delta != was.privacy.delta),
    ):
        if other:
            raise ValueError(
                f"Expected {name} as in {folder / 'config.yaml'} for a run that was cut off, got another. Rounds that "
                "were done after its last checkpoint have to be done again. Resume it as it was, then change this."
            )
