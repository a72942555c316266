"""The common part of `jdfl run` and `jdfl resume`: one run into one folder."""

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
from jdfl.base import arguments
from jdfl.base.run_keys import RunKey
from jdfl.base.settings import Bound, Count
from jdfl.config import RunConfig, budget_of, build, intended, ledger_of, run_key_of, settled, to_yaml
from jdfl.config.yaml_text import flat, plain
from jdfl.devices import processes
from jdfl.devices.layout import simulate
from jdfl.engine.accountant import check_account
from jdfl.engine.callbacks import Callback, Deadline
from jdfl.engine.checkpoint import Checkpoint
from jdfl.engine.checkpoints import Checkpoints
from jdfl.engine.compiling import use_cache
from jdfl.engine.data_ledger import Intent
from jdfl.engine.progress import Progress
from jdfl.engine.records import RECORD, SNAPSHOTS, read_record
from jdfl.engine.result import Result, Snapshot
from jdfl.engine.spending import guarantee_of, records_of
from jdfl.engine.start import Plan, check_settings, execution
from jdfl.lab.results import begin_run, end_run
from jdfl.lab.summary import summary_text
from jdfl.lab.trackers import Trackers
from jdfl.lab.watch import Watch, returns
from jdfl.privacy import report
from jdfl.store import manifest, snapshots
from jdfl.store.lease import HeldError, LostError, UnwrittenError


class Views(Callback):
    """Writes the settings of a run before it begins, and everything that is made of its result when it has ended.

    The folder of a run that is resumed stays unchanged until the run has advanced, since it may be refused.

    Args:
        store: The store of the run, which is called before.
        config_yaml: The settings as YAML.
        delta: As for `jdfl.account`.
        accounting: As for `jdfl.account`.
    """

    def __init__(self, store: Checkpoints, config_yaml: str, **told_how: Any) -> None:
        self._store, self._config, self._told_how = store, manifest.signed(config_yaml), told_how
        self._begun = False
        self.told: dict[str, Any] = {}

    def begin(self, plan: Plan) -> None:
        """Write the settings of the run, unless it is resumed."""
        self._begun = False
        if plan.before is None:
            self._begin()

    def __call__(self, now: Snapshot) -> None:
        """Write the settings of a run that is resumed and has advanced."""
        if not self._store.lost:
            self._begin()

    def end(self, result: Result) -> None:
        """Write everything.

        Raises UnwrittenError, which says how to write it later, where it cannot be written, and LostError where the
        folder is not this run's any more.
        """
        folder = self._store.folder
        if self._store.lost:
            raise LostError(f"{self._store.lost} Nothing more is written there.")
        try:
            self._begin()
            self.told = end_run(folder, result, **self._told_how)
        except OSError as error:
            remedy = f"Once it can be done: jdfl resume {folder}"
            raise UnwrittenError(f"Could not write the results: {error}. {remedy}") from error

    def _begin(self) -> None:
        if not self._begun:
            begin_run(self._store.folder, self._config)
            self._begun = True


STATUS = """exit status: 0 done, 2 a mistake in the settings, 3 the run diverged, 4 another process of the run was lost,
5 the results could not be written, or somebody has removed or changed the run's folder, 6 the run violated an
invariant, 124 the time limit --max-seconds was reached, 130 interrupted, 143 terminated (SIGTERM, SIGHUP). Results of
runs that diverged, violated an invariant or ended early are written, and `jdfl resume` continues runs that ended early
or were killed."""
STATUSES = {"diverged": 3, "invariant": 6, "time limit": 124, "interrupted": 130, "terminated": 143}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Running:
    """How a run is executed; its numbers do not depend on it, but for the rounding of --kernels."""

    checkpoint_every: Count | None = None
    """Number of rounds between two checkpoints in the run's folder, from which it can be resumed."""
    checkpoint_minutes: Annotated[float, Bound("(0, inf)")] | None = 10.0
    """Number of minutes between two checkpoints."""
    max_seconds: Annotated[float, Bound("(0, inf)")] | None = None
    """Time limit in seconds. The run ends before it, its results are kept, and no further seed is started."""
    devices: int | None = None
    """Number of devices that share the nodes, with the same results. On a CPU they are simulated. None: one."""
    kernels: bool = False
    """Use jdfl's own kernels for GPUs where they fit. Numbers then differ by rounding, and provenance.json names them.
    Give it again to resume or verify such a run."""
    distributed: bool = False
    """Run as one of several processes on a cluster that JAX recognises (SLURM, Open MPI, Kubernetes)."""
    coordinator: str | None = None
    """Address host:port of process 0 on other clusters, with --processes and --process. It listens there alone, and
    without authentication: use a network that nobody else reaches. --devices counts the devices of each process."""
    processes: int | None = None
    """Number of processes."""
    process: int | None = None
    """Number of this process, from 0."""
    track: tuple[Literal["tensorboard", "wandb", "mlflow"], ...] = ()
    """Trackers that receive every record during the run, besides the run's folder."""
    quiet: bool = False
    """No progress bar and no summary; without --json, only the folder's name."""
    json: bool = False
    """Print the summary as JSON, or a list of summaries if there are several runs."""


class Session:
    """A configuration that is checked and built, ready to be run with one or several seeds."""

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
        key: RunKey | None,
        chunk: int | None = None,
        resume: Checkpoint | None = None,
    ) -> Result:
        """The result of the run with the budget, devices and chunks of its configuration."""
        config = self.config
        chunk = chunk or returns(config.steps) if config.chunk is None else chunk or config.chunk
        how: dict[str, Any] = {"diverged_above": config.diverged_above, "kernels": self.options.kernels}
        how["devices"] = jax.devices() if self.several else self.options.devices
        return jdfl.run(
            self.algorithm,
            self.problem,
            self.network,
            key=key,
            steps=config.steps,
            every=config.every,
            stop=self.stop,
            metrics=config.metrics or None,
            callbacks=[*callbacks, *budget_of(config)],
            resume=resume,
            ledger=self.ledger,
            options=jdfl.Options(chunk=chunk, **how),
        )

    def key(self, seed: int) -> RunKey:
        """The keys of a new run with this seed."""
        return run_key_of(self.config, seed, guarantee_of(self.planned, self.problem).event is not None)

    def recorded_key(self, folder: Path) -> RunKey:
        """The keys of the run in a folder.

        Raises FileNotFoundError where its private key comes from the operating system and is not recorded, ValueError
        where it is recorded and another is asked for.
        """
        found = read_record(folder)
        token, key = ("", None) if found is None else found
        for name in ("seed", "key_file"):
            if key is not None and (value := getattr(self.config, name)) is not None:
                raise ValueError(
                    f"Expected the key of the run in {folder}, which comes from the operating system and is in its "
                    f"{RECORD}, got {name} = {value!r}. Leave out --{name.replace('_', '-')}: what comes next is drawn "
                    "from the recorded key."
                )
        if key is not None:
            return key
        own = self.key(self.config.seed or 0)
        if found is None and own.source == "operating system":
            raise FileNotFoundError(
                f"Expected the record of the run's private key in {folder / RECORD}, found none. Put it back: without "
                "it the run can neither be continued nor made again."
            )
        return own if found is None else dataclasses.replace(own, token=token)

    def intents(self, keys: Sequence[RunKey]) -> list[Intent]:
        """The runs with these keys, for a ledger to keep room for."""
        built = self.algorithm, self.problem, self.network, self.stop
        how = jdfl.Options(
            devices=self.options.devices, diverged_above=self.config.diverged_above, kernels=self.options.kernels
        )
        return intended(self.config, built, keys, *execution(how))

    def _epsilon(self) -> Callable[[np.ndarray], float] | None:
        """The epsilon of some releases, if privacy is claimed and soundly accounted for."""
        guarantee, records = guarantee_of(self.planned, self.problem, self.stop), records_of(self.problem)
        if guarantee.event is None or not guarantee.claimed or self.told_how["accounting"] != "sound":
            return None
        return lambda releases: report(guarantee, releases, records, **self.told_how).epsilon if releases.any() else 0.0

    def run(
        self,
        folder: Path | None,
        around: Path,
        *,
        key: RunKey,
        seed: int | None = None,
        label: str = "",
        resume: Checkpoint | None = None,
        new: bool = False,
    ) -> tuple[Result, dict[str, Any] | None]:
        """Run, write and show; returns the result and its summary.

        A `seed` replaces that of the configuration.
        A process that does not write has no folder, but the folder `around` all runs. A `new` folder, made for this
        run, is removed again if the run leaves nothing to resume from.
        """
        config, options = self.config if seed is None else dataclasses.replace(self.config, seed=seed), self.options
        store = Checkpoints(folder or around, options.checkpoint_every, options.checkpoint_minutes)
        callbacks: list[Callback] = []
        views = None if folder is None else Views(store, to_yaml(config), **self.told_how)
        if folder is not None and views is not None:
            callbacks += [Trackers(options.track, folder, flat(plain(config)))]
            callbacks += [] if self.several else [Watch(store, self.problem)]
        callbacks.append(store)
        if views is not None:
            callbacks += [] if options.quiet else [Progress(label, epsilon=self._epsilon())]
            callbacks += [views]
        callbacks += [] if options.max_seconds is None else [Deadline(options.max_seconds)]
        try:
            result = self.made(key=key, callbacks=callbacks, resume=resume)
        except BaseException as error:
            if folder is not None and new and not isinstance(error, UnwrittenError | LostError | HeldError):
                _discard(folder)
            raise
        if folder is None or views is None:
            return result, None
        told = {"folder": str(folder), **views.told}
        if not options.json:
            print(folder if options.quiet else f"{summary_text(told)}- folder: {folder}\n")
        if result.ending in (*STATUSES, "budget"):
            print(f"jdfl: {result.reason}", file=sys.stderr)
        return result, told


def status_of(result: Result) -> int:
    """The exit status for the way a run ended."""
    return STATUSES.get(result.ending, 0)


def _discard(folder: Path) -> None:
    """Remove the folder of a run that left nothing to resume from."""
    with contextlib.suppress(OSError):
        if snapshots.newest(folder / SNAPSHOTS) is None and not (folder / manifest.NAME).exists():
            shutil.rmtree(folder)


def _joined(options: Running) -> bool:
    """Join the other processes, if there are some; returns whether there are."""
    given = (options.coordinator, options.processes, options.process)
    if options.distributed or any(value is not None for value in given):
        processes.join(*given)
        return True
    return False
