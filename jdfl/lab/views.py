"""The files of a run's folder that are made before its first round, and when it has ended."""

from typing import Any

from jdfl.engine.callbacks import Callback
from jdfl.engine.checkpoints import Checkpoints
from jdfl.engine.result import Result, Snapshot
from jdfl.engine.start import Start
from jdfl.lab.results import begin_run, end_run
from jdfl.store import manifest
from jdfl.store.lease import LostError, UnwrittenError


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

    def begin(self, start: Start) -> None:
        """Write the settings of the run, unless it is resumed."""
        self._begun = False
        if start.before is None:
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
