"""Groups of a study as jobs of a cluster, by submitit."""

import contextlib
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from jdfl.lab.groups import Group
from jdfl.lab.study import Engine, keep


class FailedJobsError(OSError):
    """Some jobs failed; what the others did is kept."""


_MISSING = "Expected the package submitit for jobs of a cluster, found none. Install it: pip install 'jdfl[slurm]'"


def jobs(cluster: str, options: dict[str, Any]) -> Engine:
    """An engine that makes every group a job, and waits for all: "slurm", or "local" for processes of this machine.

    `options` are those of submitit's `update_parameters`: timeout_min, cpus_per_task, gpus_per_node, mem_gb,
    slurm_partition and more. Their logs are in the folder's jobs/. Raises OSError without submitit or the cluster, and
    FailedJobsError that names one, when all others are done.
    """
    try:
        submitit: Any = import_module("submitit")
    except ModuleNotFoundError as error:
        raise OSError(_MISSING) from error

    def work(folder: Path, todo: Sequence[Group]) -> None:
        try:
            executor = submitit.AutoExecutor(folder=folder / "jobs", cluster=cluster)
        except RuntimeError as error:
            raise OSError(f"Expected the cluster {cluster!r} here, got: {error}.") from error
        try:
            executor.update_parameters(name="jdfl", **options)
        except (NameError, TypeError) as error:
            raise ValueError(f"Expected options of submitit, got {options}: {error}.") from error
        started = executor.map_array(keep, [folder.resolve()] * len(todo), todo)
        failed: list[str] = []
        for job in started:
            with contextlib.suppress(Exception):  # told below, with the others
                job.result()
                continue
            failed.append(str(job.paths.stderr))
        if failed:
            raise FailedJobsError(f"{len(failed)} of {len(started)} jobs failed; the first one's log: {failed[0]}")

    return work
