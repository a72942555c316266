"""Records of a run for other programs while it goes on: TensorBoard, Weights & Biases, MLflow.

    result = jdfl.run(..., callbacks=[Trackers(("tensorboard",), folder, config)])

A custom tracker has the three methods of `Tracker`. If a tracker fails, there is one warning, and it receives nothing
more: the run does not depend on it. The folder of the run has everything in CSV and Parquet in any case.
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
from jdfl.engine.start import Plan


class Tracker(Protocol):
    """Receives the records of a run: metrics and totals by name, without values that are not finite."""

    def record(self, round: int, values: Mapping[str, float]) -> None:
        """Receive the record after a round."""
        ...

    def finish(self, values: Mapping[str, float], texts: Mapping[str, str]) -> None:
        """Receive the last record, and as `texts` the ending, reason and provenance of the run."""
        ...

    def close(self) -> None:
        """The run is over, whether it has ended or failed."""
        ...


class _TensorBoard:
    """Event files in the folder of the run, by tensorboardX: `tensorboard --logdir runs`."""

    def __init__(self, folder: Path, config: Mapping[str, Any]) -> None:
        self._writer = _module("tensorboardX").SummaryWriter(str(folder / "tensorboard"))
        self._writer.add_text("config", "\n".join(f"- {name}: {value}" for name, value in config.items()))

    def record(self, round: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, round)

    def finish(self, values: Mapping[str, float], texts: Mapping[str, str]) -> None:
        for name, text in texts.items():
            self._writer.add_text(name, text)

    def close(self) -> None:
        self._writer.close()


class _WandB:
    """A run of Weights & Biases, which reads project, mode and account from WANDB_PROJECT and similar variables."""

    def __init__(self, folder: Path, config: Mapping[str, Any]) -> None:
        self._run = _module("wandb").init(dir=str(folder), name=folder.name, config=dict(config), reinit="create_new")

    def record(self, round: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=round)

    def finish(self, values: Mapping[str, float], texts: Mapping[str, str]) -> None:
        self._run.summary.update({**values, **texts})

    def close(self) -> None:
        self._run.finish()


class _MLflow:
    """A run of MLflow, which reads its address from MLFLOW_TRACKING_URI and MLFLOW_EXPERIMENT_NAME."""

    def __init__(self, folder: Path, config: Mapping[str, Any]) -> None:
        mlflow = _module("mlflow")
        self._client = mlflow.MlflowClient()
        experiment = mlflow.set_experiment(mlflow.environment_variables.MLFLOW_EXPERIMENT_NAME.get() or "jdfl")
        self._run = self._client.create_run(experiment.experiment_id, run_name=folder.name).info.run_id
        for name, value in config.items():
            self._client.log_param(self._run, name, str(value)[:500])

    def record(self, round: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._client.log_metric(self._run, name, value, step=round)

    def finish(self, values: Mapping[str, float], texts: Mapping[str, str]) -> None:
        for name, text in texts.items():
            self._client.set_tag(self._run, name, text)

    def close(self) -> None:
        self._client.set_terminated(self._run)


NAMES: dict[str, Callable[[Path, Mapping[str, Any]], Tracker]] = {
    "tensorboard": _TensorBoard,
    "wandb": _WandB,
    "mlflow": _MLflow,
}


class Trackers(Callback):
    """Gives trackers of these names every record of a run while it goes on, and closes them at its end or failure."""

    def __init__(self, names: Sequence[str], folder: Path, config: Mapping[str, Any]) -> None:
        for name in names:
            checks.one_of(tuple(NAMES), tracker=name)
        self._names, self._folder, self._config = dict.fromkeys(names), folder, config
        self._open: dict[str, Tracker] = {}

    def on_start(self, plan: Plan) -> None:
        """Start all trackers; raises OSError for one that is not available."""
        for name in self._names:
            try:
                self._open[name] = NAMES[name](self._folder, self._config)
            except OSError:
                raise
            except Exception as error:  # trackers raise errors of any kind
                raise OSError(f"Could not start {name}: {error!r}. Set it up, or leave it out.") from error

    def on_chunk(self, now: Snapshot) -> None:
        """Give all trackers the records since the previous chunk."""
        for row in now.rows:
            values = _finite({name: value for name, value in row.items() if name != "round"})
            self._each(lambda tracker: tracker.record(int(row["round"]), values))  # noqa: B023 (called at once)

    def on_end(self, result: Result) -> None:
        """Give all trackers the final state of the run."""
        texts = {"ending": result.ending, "reason": result.reason, "provenance": result.provenance.hash}
        self._each(lambda tracker: tracker.finish(_finite(result.final), texts))

    def close(self) -> None:
        """Close all trackers."""
        self._each(lambda tracker: tracker.close())
        self._open = {}

    def _each(self, what: Callable[[Tracker], None]) -> None:
        for name, tracker in list(self._open.items()):
            try:
                what(tracker)
            except Exception as error:  # trackers raise errors of any kind
                del self._open[name]
                warnings.warn(f"{name} failed, and receives nothing more: {error!r}. The run goes on.", stacklevel=3)


def _finite(values: Mapping[str, float]) -> dict[str, float]:
    return {name: float(value) for name, value in values.items() if math.isfinite(value)}


def _module(name: str) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        extra = name.lower().removesuffix("x")  # of pip install 'jdfl[...]'
        raise OSError(f"Expected the package {name}, found none. Install it: pip install 'jdfl[{extra}]'") from error
