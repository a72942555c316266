"""`jdfl resume`: continue a run from its last checkpoint, in its own folder."""

import dataclasses
import json
from pathlib import Path
from typing import Any

from jdfl.cli import flags
from jdfl.cli.running import STATUS, Running, Session, status_of
from jdfl.config import RunConfig
from jdfl.devices import processes
from jdfl.engine.checkpoints import read_checkpoint
from jdfl.engine.provenance import COMPUTED, Provenance
from jdfl.engine.records import JOURNAL, RECORDS, SNAPSHOTS
from jdfl.engine.result import BAD
from jdfl.store import journal, manifest, snapshots

_OTHER_CODE = (
    "rounds after the checkpoint may have been made before by other code, with the same noise on other numbers; where "
    "messages of both were seen, nothing hides the difference"
)

_ABOUT = """Continue a run that was killed or ended early, or extend it (--steps), from its last checkpoint.

The result equals that of a run that was never interrupted. With another --steps, the rows of releases.csv, nodes.csv
and links.csv lie at other rounds than in a run that had that number from the start. Everything is written into the
run's own folder, which is refused while another process writes into it. Settings that would change its numbers are
refused."""

_EXAMPLES = f"""examples:
  jdfl resume runs/NAME                                a run that was killed, interrupted or out of time
  jdfl resume runs/NAME --steps 500                    extend a finished run to 500 rounds in total
  jdfl resume runs/NAME --devices 8                    on another number of devices
  jdfl resume runs/NAME --steps 500 --privacy.epsilon 4    with a larger budget; the noise stays

{STATUS}
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(Running):
    """How the run is continued."""

    any_version: bool = False
    """Continue with other versions of jdfl or of libraries, whose numbers may differ in the last bits."""


def parse(args: list[str]) -> tuple[Path, RunConfig, Options]:
    """The folder, the configuration and the options behind the arguments of `jdfl resume`."""
    return flags.parse_of_run(args, Options(), prog="jdfl resume", about=_ABOUT, examples=_EXAMPLES)


def resume(folder: Path, config: RunConfig, options: Options) -> int:
    """Continue the run, write and show it; returns the exit status."""
    done = _summary(folder)
    if done.get("ending") in BAD:
        raise ValueError(
            f"Expected a run that can be continued, got {folder}, which {BAD[done['ending']]}: {done.get('reason')}."
        )
    kept = snapshots.newest(folder / SNAPSHOTS) is not None
    if done and not kept:
        raise FileNotFoundError(f"Expected checkpoints of the finished run {folder}, found none.")
    recorded = _recorded(folder)
    if not done and config.steps < recorded:
        raise ValueError(
            f"Expected --steps of at least the {recorded} rounds that are recorded in {folder}, got {config.steps}. "
            "They were done before it was cut off, and what they released is counted when they are done again."
        )
    if not done:
        _check_end(folder, config)
    if (was := flags.config_of(folder).privacy.ledger) != config.privacy.ledger and was:
        raise ValueError(
            f"Expected the ledger that the run has joined, {was}, got privacy.ledger = {config.privacy.ledger!r}. It "
            "counts there what has been released; leave it as it was."
        )
    session = Session(config, options)
    before = None
    if not kept:  # it was killed before there was one
        _check_same(folder, config)
    else:
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
    own = folder if processes.leads() else None
    result, told = session.run(own, folder.parent, key=session.recorded_key(folder), resume=before)
    if options.json and told is not None:
        print(json.dumps(told, indent=2, allow_nan=False, default=str))
    return status_of(result)


def _check_same(folder: Path, config: RunConfig) -> None:
    """Refuse other settings for a run without checkpoints, which starts again: ValueError naming them."""
    changed = flags.changed(folder, config, "steps", "chunk", "privacy", "diverged_above")
    if changed:
        raise ValueError(
            f"Expected the settings of the run that is resumed, in {folder / 'config.yaml'}, got other ones of "
            f"{', '.join(changed)}. Leave them as they were, or begin another run: jdfl run --config."
        )


def _summary(folder: Path) -> dict[str, Any]:
    """The summary of a run; empty for one that was interrupted."""
    file = folder / "summary.json"
    ended = (folder / manifest.NAME).is_file() or not (folder / JOURNAL).is_file()  # earlier versions have neither
    return flags.read_json(file) if file.is_file() and ended else {}


def _check_end(folder: Path, config: RunConfig) -> None:
    """Refuse settings that may end an interrupted run before the rounds that it had reached: ValueError."""
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


def _recorded(folder: Path) -> int:
    """The last recorded round of a run; 0 without a journal, or with none that can be read."""
    try:
        return max(map(int, journal.read(folder / JOURNAL).rows(RECORDS)["round"]), default=0)
    except (ValueError, OSError):
        return 0
