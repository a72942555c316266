"""What a run has come to, told to other programs while it goes on: TensorBoard, Weights & Biases, MLflow.

    result = jdfl.run(..., callbacks=[Trackers(("tensorboard",), folder, config)])

A tracker of one's own has the three methods of `Tracker`. What a tracker fails in is warned of once, and it is left
alone from then on: the run does not depend on it. The run's folder has everything in CSV and Parquet in any case.
"""

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from jdfl.base import checks
from jdfl.engine.callbacks import Callback
from jdfl.engine.result import Result, Snapshot
from jdfl.engine.start import Start


class Tracker(Protocol):
    """Takes in the records of a run."""

    def record(self, round: int, values: Mapping[str, float]) -> None:
        """Take in one record of the run.

        Args:
            round: The number of rounds that are done.
            values: The metrics and totals of the record by name, those of them that are finite.
        """
        ...

    def finish(self, values: Mapping[str, float], texts: Mapping[str, str]) -> None:
        """Take in what the run has come to.

        Args:
            values: The metrics and totals of the last record by name, those of them that are finite.
            texts: The run's ending, reason and provenance, by these names.
        """
        ...

    def close(self) -> None:
        """Nothing more will come, whether the run has ended or failed."""
        ...


class TensorBoard:
    """Event files in the run's folder, by tensorboardX: `tensorboard --logdir runs`."""

    def __init__(self, folder: Path, config: Mapping[str, Any]) -> None:
        self._writer = _module("tensorboardX").SummaryWriter(str(folder / "tensorboard"))
        self._writer.add_text("config", "\n".join(f"- {name}: {value}" for name, value in config.items()))

    def record(self, round: int, values: Mapping[str, float]) -> None:
        """A point of every curve."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, round)

    def finish(self, values: Mapping[str, float], texts: Mapping[str, str]) -> None:
        """The texts; the values are the curves' last points."""
        for name, text in texts.items():
            self._writer.add_text(name, text)

    def close(self) -> None:
        """Write what is left."""
        self._writer.close()


class WandB:
    """A run of Weights & Biases; project, mode and account are its own environment variables (WANDB_PROJECT, ...)."""

    def __init__(self, folder: Path, config: Mapping[str, Any]) -> None:
        self._run = _module("wandb").init(dir=str(folder), name=folder.name, config=dict(config), reinit="create_new")

    def record(self, round: int, values: Mapping[str, float]) -> None:
        """A point of every curve."""
        self._run.log(dict(values), step=round)

    def finish(self, values: Mapping[str, float], texts: Mapping[str, str]) -> None:
        """The run's summary."""
        self._run.summary.update({**values, **texts})

    def close(self) -> None:
        """Send what is left."""
        self._run.finish()


class MLflow:
    """A run of MLflow; where to is in its environment variables (MLFLOW_TRACKING_URI, MLFLOW_EXPERIMENT_NAME)."""

    def __init__(self, folder: Path, config: Mapping[str, Any]) -> None:
        mlflow = _module("mlflow")
        self._client = mlflow.MlflowClient()
        experiment = mlflow.set_experiment(mlflow.environment_variables.MLFLOW_EXPERIMENT_NAME.get() or "jdfl")
        self._run = self._client.create_run(experiment.experiment_id, run_name=folder.name).info.run_id
        for name, value in config.items():
            self._client.log_param(self._run, name, str(value)[:500])

    def record(self, round: int, values: Mapping[str, float]) -> None:
        """A point of every curve."""
        for name, value in values.items():
            self._client.log_metric(self._run, name, value, step=round)

    def finish(self, values: Mapping[str, float], texts: Mapping[str, str]) -> None:
        """The run's tags."""
        for name, text in texts.items():
            self._client.set_tag(self._run, name, text)

    def close(self) -> None:
        """The run is over."""
        self._client.set_terminated(self._run)


Made = Callable[[Path, Mapping[str, Any]], Tracker]
NAMES: dict[str, Made] = {"tensorboard": TensorBoard, "wandb": WandB, "mlflow": MLflow}


class Trackers(Callback):
    """Tells trackers every record of a run while it goes on, and closes them at its end, whatever happens.

    Args:
        names: Of the trackers, which begin with the run.
        folder: The run's.
        config: The run's settings by name.
    """

    def __init__(self, names: Sequence[str], folder: Path, config: Mapping[str, Any]) -> None:
        for name in names:
            checks.one_of(tuple(NAMES), tracker=name)
        self._names, self._folder, self._config = dict.fromkeys(names), folder, config
        self._told: dict[str, Tracker] = {}

    def begin(self, start: Start) -> None:
        """Begin with all; raises OSError for one that cannot be had."""
        for name in self._names:
            self._told[name] = _begun(name, self._folder, self._config)

    def __call__(self, now: Snapshot) -> None:
        """Tell all the records since the chunk before."""
        for row in now.rows:
            values = _finite({name: value for name, value in row.items() if name != "round"})
            self._tell(lambda tracker: tracker.record(int(row["round"]), values))  # noqa: B023 (called at once)

    def end(self, result: Result) -> None:
        """Tell all what the run has come to, as `result` has it."""
        texts = {"ending": result.ending, "reason": result.reason, "provenance": result.provenance.hash}
        self._tell(lambda tracker: tracker.finish(_finite(result.final), texts))

    def close(self) -> None:
        """Tell all that nothing more will come."""
        self._tell(lambda tracker: tracker.close())
        self._told = {}

    def _tell(self, what: Callable[[Tracker], None]) -> None:
        for name, tracker in list(self._told.items()):
            try:
                what(tracker)
            except Exception as error:  # theirs are of any kind
                del self._told[name]
                warnings.warn(f"{name} failed, and is told nothing more: {error!r}. The run goes on.", stacklevel=3)


def __getattr__(name: str) -> Any:
    if name == "open":
        raise AttributeError(
            f"{__name__}.open is now {__name__}.Trackers, a callback (this notice goes with the next release)"
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _begun(name: str, folder: Path, config: Mapping[str, Any]) -> Tracker:
    try:
        return NAMES[name](folder, config)
    except OSError:
        raise
    except Exception as error:  # theirs are of any kind
        raise OSError(f"Could not begin with {name}: {error!r}. Set it up, or leave it out.") from error


def _finite(values: Mapping[str, float]) -> dict[str, float]:
    return {name: float(value) for name, value in values.items() if math.isfinite(value)}


def _module(name: str) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        extra = name.lower().removesuffix("x")  # of pip install 'jdfl[...]'
        raise OSError(f"Expected the package {name}, found none. Install it: pip install 'jdfl[{extra}]'") from error
