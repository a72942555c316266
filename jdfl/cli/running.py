"""What `jdfl run` and `jdfl resume` share: one run into one folder."""

import contextlib
import dataclasses
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import jax
import numpy as np

import jdfl
from jdfl.algorithms.program import planned
from jdfl.base import arguments, storage
from jdfl.base.settings import Bound, Count
from jdfl.config import RunConfig, budget_of, build, intended, key_of, ledger_of, settled, to_yaml
from jdfl.config.yaml_text import flat, plain
from jdfl.devices import processes
from jdfl.devices.layout import simulate
from jdfl.engine.accountant import check_account
from jdfl.engine.cache import use_cache
from jdfl.engine.callbacks import Callback, Deadline
from jdfl.engine.checkpoint import Checkpoint
from jdfl.engine.checkpoints import Checkpoints
from jdfl.engine.data_ledger import Intent
from jdfl.engine.progress import Progress
from jdfl.engine.result import Result, Snapshot
from jdfl.engine.spending import guarantee_of, records_of
from jdfl.engine.start import check_settings
from jdfl.lab.results import CHECKPOINTS, Onward, end_run
from jdfl.lab.summary import summary_text
from jdfl.lab.trackers import Trackers
from jdfl.lab.watch import Watch, returns
from jdfl.privacy import report

STATUS = """exit status: 0 done, 2 a mistake in the settings, 3 the run diverged, 4 another process of the run was lost,
124 --max-seconds are over, 130 interrupted, 143 terminated; of runs that diverged or ended early, what there is has
been written, and `jdfl resume` goes on with those that ended early or were killed"""
_STATUS = {"diverged": 3, "time limit": 124, "interrupted": 130, "terminated": 143}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Running:
    """How a run is made, which its numbers do not depend on."""

    checkpoint_every: Count | None = None
    """Write what is needed to go on into the run's folder about every so many rounds."""
    checkpoint_minutes: Annotated[float, Bound("(0, inf)")] | None = 10.0
    """And about every so many minutes."""
    max_seconds: Annotated[float, Bound("(0, inf)")] | None = None
    """End a run in time to be done after so many seconds, and keep what there is; no other seed is begun then."""
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
    track: tuple[Literal["tensorboard", "wandb", "mlflow"], ...] = ()
    """Programs that are told every record while the run goes on, besides the run's folder."""
    quiet: bool = False
    """No progress bar and no summary; without --json, only the folder's name."""
    json: bool = False
    """Print the summary as JSON, a list of them if there are several runs."""


class Session:
    """A configuration that was checked and built, to be run with one seed or several."""

    def __init__(self, config: RunConfig, options: Running) -> None:
        arguments.settings(options)
        use_cache()
        if options.devices is not None:
            simulate(options.devices)
        self.several = _joined(options)
        self.options = options
        self.algorithm, self.problem, self.network, self.stop = build(config)
        check_settings(self.algorithm, self.problem, self.network)
        self.planned = planned(self.algorithm, self.problem, self.network, config.steps)
        self.config = settled(config, self.algorithm)
        privacy = config.privacy
        self.told_how: Any = {"delta": privacy.delta, "accounting": privacy.accounting}
        check_account(self.planned, self.problem, **self.told_how)
        self.ledger = ledger_of(self.config)

    def made(
        self,
        *,
        callbacks: Sequence[Callback | Callable[[Snapshot], Any]],
        seed: int | None = None,
        chunk: int | None = None,
        resume: Checkpoint | None = None,
    ) -> Result:
        """The run, with what its configuration says besides: a budget, devices, chunks."""
        config = self.config
        chunk = chunk or returns(config.steps) if config.chunk is None else chunk or config.chunk
        devices = jax.devices() if self.several else self.options.devices
        return jdfl.run(
            self.algorithm,
            self.problem,
            self.network,
            key=key_of(config, seed),
            steps=config.steps,
            every=config.every,
            stop=self.stop,
            metrics=config.metrics or None,
            callbacks=[*callbacks, *budget_of(config)],
            resume=resume,
            ledger=self.ledger,
            options=jdfl.Options(chunk=chunk, devices=devices, diverged_above=config.diverged_above),
        )

    def intents(self, seeds: Sequence[int]) -> list[Intent]:
        """The runs with these seeds, for a ledger to keep room for."""
        built = self.algorithm, self.problem, self.network, self.stop
        return intended(self.config, built, seeds, self.config.diverged_above, str(self.options.devices))

    def _epsilon(self) -> Callable[[np.ndarray], float] | None:
        """What releases add up to, where something is claimed and soundly accounted for."""
        guarantee, records = guarantee_of(self.planned, self.problem, self.stop), records_of(self.problem)
        if guarantee.event is None or not guarantee.claimed or self.told_how["accounting"] != "sound":
            return None
        return lambda releases: report(guarantee, releases, records, **self.told_how).epsilon if releases.any() else 0.0

    def run(
        self,
        folder: Path | None,
        around: Path,
        *,
        seed: int,
        label: str = "",
        resume: Checkpoint | None = None,
        new: bool = False,
    ) -> tuple[Result, dict[str, Any] | None]:
        """Run, write and show; returns the result and what was told of it.

        Without a folder, a folder `around` all runs, in a process that does not write. A folder that is `new`, made for
        this run, is removed again where the run leaves nothing to go on from.
        """
        config, options = dataclasses.replace(self.config, seed=seed), self.options
        callbacks: list[Callback] = []
        if folder is not None:
            callbacks += [Trackers(options.track, folder, flat(plain(config))), Onward(folder, to_yaml(config))]
            callbacks += [] if options.quiet else [Progress(label, epsilon=self._epsilon())]
            callbacks += [] if self.several else [Watch(folder, self.problem, **self.told_how)]
        kept = (folder or around) / CHECKPOINTS
        callbacks.append(Checkpoints(kept, options.checkpoint_every, options.checkpoint_minutes))
        callbacks += [] if options.max_seconds is None else [Deadline(options.max_seconds)]
        try:
            result = self.made(seed=seed, callbacks=callbacks, resume=resume)
        except BaseException:
            if folder is not None and new:
                _discard(folder)
            raise
        if folder is None:
            return result, None
        told = {"folder": str(folder), **_ended(folder, result, self.told_how)}
        if not options.json:
            print(folder if options.quiet else f"{summary_text(told)}- folder: {folder}\n")
        if result.ending in (*_STATUS, "budget"):
            print(f"jdfl: {result.reason}", file=sys.stderr)
        return result, told


def _ended(folder: Path, result: Result, told_how: Any) -> dict[str, Any]:
    """The summary of a run whose results are written; OSError that says how to write them later."""
    try:
        return end_run(folder, result, **told_how)
    except OSError as error:
        raise OSError(f"Could not write the results: {error}. Once it can be done: jdfl resume {folder}") from error


def status_of(result: Result) -> int:
    """The exit status that tells how a run ended."""
    return _STATUS.get(result.ending, 0)


def _discard(folder: Path) -> None:
    """Remove the folder of a run that left nothing to go on from."""
    with contextlib.suppress(OSError):
        if storage.newest(folder / CHECKPOINTS) is None:
            shutil.rmtree(folder)


def _joined(options: Running) -> bool:
    """Whether this is one of several processes; then it has joined them."""
    given = (options.coordinator, options.processes, options.process)
    if options.distributed or any(value is not None for value in given):
        processes.join(*given)
        return True
    return False
