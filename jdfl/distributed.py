"""A run over several processes, each with devices of its own: joining it, and what one process knows and others do not.

Every process runs the same program on the same data and holds the rows of its own devices' nodes.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from jax import Array
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding

from jdfl import checks

_OWN_FAULTS = ("RESOURCE_EXHAUSTED", "INVALID_ARGUMENT", "UNIMPLEMENTED")  # what no other process is to blame for
PATIENCE = 30  # seconds without a sign of life from a process, after which the others end


class ProcessLostError(RuntimeError):
    """Another process of the run has ended or cannot be reached."""


def join(address: str | None = None, processes: int | None = None, process: int | None = None) -> None:
    """Make this process one of several, before anything is computed; without arguments as the cluster says.

    `address` is host:port of process 0, which this one is if `process` is 0. SLURM, Open MPI, Kubernetes and Cloud TPU
    are recognised. Raises ValueError where neither is enough, or JAX has begun to compute.
    """
    given = {"address": address, "processes": processes, "process": process}
    if any(value is not None for value in given.values()):
        missing = [name for name, value in given.items() if value is None]
        if missing:
            raise ValueError(
                f"Expected address, processes and process together, got {missing[0]} = None. Give all three, or "
                "none on a cluster that JAX recognises."
            )
        checks.whole(1, processes=processes)
        checks.whole(0, int(processes or 1) - 1, "Processes are counted from 0.", process=process)
        if address is not None and not address.rpartition(":")[2].isdigit():
            raise ValueError(f"Expected address as host:port of process 0, got address = {address!r}.")
    try:
        jax.distributed.initialize(address, processes, process, heartbeat_timeout_seconds=PATIENCE)
    except (ValueError, RuntimeError) as error:
        raise ValueError(
            f"Expected a run over several processes to begin, got: {error} Start the same command once per process, "
            "with the address of process 0 (host:port), the number of processes and each one's own number."
        ) from error


def leads() -> bool:
    """Whether this process is the one that prints and writes."""
    return jax.process_index() == 0


def agreed(flag: bool) -> bool:
    """Whether the flag is true in some process; all of them have to ask."""
    return flag if jax.process_count() == 1 else bool(np.any(multihost_utils.process_allgather(np.array(flag))))


def spread(x: Any, where: NamedSharding) -> Array:
    """The array x, which all processes have, on the devices of all; each process places what is its own."""
    if jax.process_count() == 1:
        return jax.device_put(x, where)
    if not hasattr(x, "dtype"):
        return x  # a number of Python's
    if jax.numpy.issubdtype(x.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(spread(jax.random.key_data(x), where), impl=jax.random.key_impl(x))
    host = np.asarray(x)
    return jax.make_array_from_callback(host.shape, where, lambda index: host[index])


def on_host(x: Array) -> Any:
    """The whole array, of numpy's, in every process; keys stay with JAX."""
    if jax.numpy.issubdtype(x.dtype, jax.dtypes.prng_key):
        data = on_host(jax.random.key_data(x))
        return jax.random.wrap_key_data(jax.numpy.asarray(data), impl=jax.random.key_impl(x))
    if x.is_fully_addressable or x.is_fully_replicated:
        return np.asarray(x)
    return multihost_utils.process_allgather(x, tiled=True)


@contextlib.contextmanager
def watched() -> Iterator[None]:
    """Turns the failure of an exchange between processes into ProcessLostError."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if jax.process_count() == 1 or str(error).startswith(_OWN_FAULTS):
            raise
        raise ProcessLostError(
            f"process {jax.process_index()} lost the others: {str(error).splitlines()[0]} A process that ended is not "
            "replaced; start the run again, on any number of devices, from what it last wrote."
        ) from error
