"""What the commands share that work in a folder: how the folder begins, and one run into its folder."""

import contextlib
import dataclasses
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import jax

import jdfl
from jdfl.algorithms.program import planned
from jdfl.base import arguments
from jdfl.base.run_keys import RunKey
from jdfl.base.settings import Bound, Count
from jdfl.base.terminal import say, wrapped
from jdfl.config import RunConfig, budget_of, build, intended, ledger_of, run_key_of, settled, to_yaml
from jdfl.config.yaml_text import flat, plain
from jdfl.devices import processes
from jdfl.devices.layout import simulate
from jdfl.engine.accountant import check_account
from jdfl.engine.booking import RESERVED
from jdfl.engine.callbacks import Callback, Deadline
from jdfl.engine.checkpoint import Checkpoint
from jdfl.engine.data_ledger import Intent
from jdfl.engine.progress import Progress
from jdfl.engine.result import Result, Snapshot
from jdfl.engine.spending import guarantee_of, records_of
from jdfl.engine.start import Plan, check_settings, execution
from jdfl.lab.trackers import Trackers
from jdfl.lab.watch import Watch, returns
from jdfl.privacy import report
from jdfl.results.checkpoints import JOURNAL, RECORD, SNAPSHOTS, Checkpoints, read_record
from jdfl.results.folder import begin_run, end_run, new_run_folder
from jdfl.results.summary import summary_text
from jdfl.store import jobs, lease, manifest, snapshots
from jdfl.store.files import tidy
from jdfl.store.lease import HeldError, LostError, UnwrittenError

Written = TypeVar("Written")
_SOON = {JOURNAL, RECORD, lease.LOG, lease.NAME, jobs.ORIGIN, RESERVED}  # in the folder of work that was soon killed


def begun(out: Path, folder: Path | None, label: str) -> Path:
    """The folder for new work: a new one in `out`, or the `folder`, which must be empty or not there."""
    if folder is None:
        return new_run_folder(out, label)
    folder.mkdir(parents=True, exist_ok=True)
    tidy(folder)
    others = {path.name for path in folder.iterdir()} - _SOON
    if others:
        raise FileExistsError(
            f"Expected --folder with such work in it, empty, or not there, got {folder}, which has "
            f"{sorted(others)[0]}. Name another."
        )
    return folder


def written(folder: Path, write: Callable[[], Written]) -> Written:
    """What `write` returns, which writes results; UnwrittenError, which says how to write them later, if it cannot."""
    try:
        return write()
    except LostError:
        raise
    except OSError as error:
        remedy = f"Once it can be done: jdfl resume {folder}"
        raise UnwrittenError(f"Could not write the results: {error}. {remedy}") from error


class Views(Callback):
    """Writes the settings of a run before it begins, and everything that is made of its result when it has ended.

    The folder of a run that is resumed stays unchanged until the run has advanced, since it may be refused.
    """

    def __init__(self, store: Checkpoints, config_yaml: str, **accounting: Any) -> None:
        self._store, self._config, self._accounting = store, manifest.signed(config_yaml), accounting
        self._begun = False
        self.summary: dict[str, Any] = {}

    def on_start(self, plan: Plan) -> None:
        """Write the settings, unless the run is resumed."""
        self._begun = False
        if plan.before is None:
            self._begin()

    def on_chunk(self, now: Snapshot) -> None:
        """Write the settings of a run that is resumed and has advanced."""
        if not self._store.lost:
            self._begin()

    def on_end(self, result: Result) -> None:
        """Write everything; UnwrittenError or LostError where that is not possible."""
        if self._store.lost:
            raise LostError(f"{self._store.lost} Nothing more is written there.")

        def write() -> dict[str, Any]:
            self._begin()
            return end_run(self._store.folder, result, **self._accounting)

        self.summary = written(self._store.folder, write)

    def _begin(self) -> None:
        if not self._begun:
            begin_run(self._store.folder, self._config)
            self._begun = True


# By the way a run ended, its exit status; of others 0.
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
        if options.devices is not None:
            simulate(options.devices)
        joining = (options.coordinator, options.processes, options.process)
        self.several = options.distributed or any(value is not None for value in joining)
        if self.several:
            processes.join(*joining)
            if not processes.leads():
                say("")
        self.options = options
        self.built = self.algorithm, self.problem, self.network, self.stop = build(config)
        check_settings(self.algorithm, self.problem, self.network, config.steps)
        self.planned = planned(self.algorithm, self.problem, self.network, config.steps)
        self.config = settled(config, self.algorithm)
        self.accounting: Any = {"delta": config.privacy.delta, "accounting": config.privacy.accounting}
        check_account(self.planned, self.problem, **self.accounting)
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
        if chunk is None:
            chunk = returns(config.steps) if config.chunk is None else config.chunk
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
            options=self._how(chunk=chunk, devices=jax.devices() if self.several else self.options.devices),
        )

    def _how(self, **more: Any) -> jdfl.Options:
        return jdfl.Options(diverged_above=self.config.diverged_above, kernels=self.options.kernels, **more)

    def key(self, seed: int) -> RunKey:
        """The keys of a new run with this seed."""
        return run_key_of(self.config, seed, guarantee_of(self.planned, self.problem).event is not None)

    def recorded_key(self, folder: Path) -> RunKey:
        """The keys of the run in a folder; refused where its own one is missing, or another one is asked for."""
        found = read_record(folder)
        token, key = ("", None) if found is None else found
        if key is not None:
            for name in ("seed", "key_file"):
                if (value := getattr(self.config, name)) is not None:
                    raise ValueError(
                        f"Expected the key of the run in {folder}, which comes from the operating system and is in its "
                        f"{RECORD}, got {name} = {value!r}. Leave out --{name.replace('_', '-')}: what comes next is "
                        "drawn from the recorded key."
                    )
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
        return intended(self.config, self.built, keys, *execution(self._how(devices=self.options.devices)))

    def _epsilon(self) -> Callable[[Any], float] | None:
        """The epsilon of some releases, if privacy is claimed and soundly accounted for."""
        guarantee, records = guarantee_of(self.planned, self.problem, self.stop), records_of(self.problem)
        if guarantee.event is None or not guarantee.claimed or self.accounting["accounting"] != "sound":
            return None
        return lambda releases: (
            report(guarantee, releases, records, **self.accounting).epsilon if releases.any() else 0.0
        )

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

        A `seed` replaces that of the configuration. A process that does not write has no folder, but the folder
        `around` all runs. A `new` folder, made for this run, is removed again if the run leaves nothing to resume from.
        """
        config, options = self.config if seed is None else dataclasses.replace(self.config, seed=seed), self.options
        store = Checkpoints(folder or around, options.checkpoint_every, options.checkpoint_minutes)
        views = Views(store, to_yaml(config), **self.accounting)
        callbacks: list[Callback] = [store]
        if folder is not None:
            watching = [] if self.several else [Watch(store, self.problem)]
            callbacks = [Trackers(options.track, folder, flat(plain(config))), *watching, store]
            callbacks += [] if options.quiet else [Progress(label, epsilon=self._epsilon())]
            callbacks += [views]
        callbacks += [] if options.max_seconds is None else [Deadline(options.max_seconds)]
        try:
            result = self.made(key=key, callbacks=callbacks, resume=resume)
        except BaseException as error:
            if folder is not None and new and not isinstance(error, UnwrittenError | LostError | HeldError):
                with contextlib.suppress(OSError):
                    if snapshots.newest(folder / SNAPSHOTS) is None and not (folder / manifest.NAME).exists():
                        shutil.rmtree(folder)
            raise
        if folder is None:
            return result, None
        summary = {"folder": str(folder), **views.summary}
        if not options.json:
            print(folder if options.quiet else wrapped(f"{summary_text(summary)}- folder: {folder}\n"))
        if result.ending in (*STATUSES, "budget"):
            print(f"jdfl: {result.reason}", file=sys.stderr)
        return result, summary
