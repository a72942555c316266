"""A run over several processes, each with its own devices: joining it, and exchanging what only one process knows.

Every process runs the same program and holds the rows of the nodes on its devices.
"""

import contextlib
import ctypes
import os
import signal
from collections.abc import Generator
from typing import Any

import jax
import numpy as np
from jax import Array
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding

from jdfl.base import checks
from jdfl.devices import nodes

_OWN_FAULTS = ("RESOURCE_EXHAUSTED", "INVALID_ARGUMENT", "UNIMPLEMENTED")  # faults not caused by other processes
_OWN_DATA = "Every process has loaded only the data of its own nodes: use mesh = jax.devices()."
PATIENCE = 45  # seconds without contact to a process after which JAX aborts the others
LOST = 4  # exit status of a process that lost the others


class ProcessLostError(RuntimeError):
    """Another process of the run has ended or cannot be reached."""


def join(address: str | None = None, processes: int | None = None, process: int | None = None) -> None:
    """Make this process one of several, before anything is computed; without arguments as the cluster specifies.

    SLURM, Open MPI, Kubernetes and Cloud TPU are recognised. Give all arguments or none.
    """
    given = {"address": address, "processes": processes, "process": process}
    if any(value is not None for value in given.values()):
        missing = [name for name, value in given.items() if value is None]
        if missing:
            raise ValueError(
                f"Expected address, processes and process together, got {missing[0]} = None. Give all three, or "
                "none on a cluster that JAX recognises."
            )
        checks.integer(1, processes=processes)
        checks.integer(0, int(processes or 1) - 1, "Processes are counted from 0.", process=process)
        if address is not None and not address.rpartition(":")[2].isdigit():
            raise ValueError(f"Expected address as host:port of process 0, got address = {address!r}.")
    report_aborts()
    try:
        jax.distributed.initialize(
            address,
            processes,
            process,
            heartbeat_timeout_seconds=PATIENCE,
            coordinator_bind_address=address if process == 0 else None,  # without it: all interfaces
        )
    except (ValueError, RuntimeError) as error:
        raise ValueError(
            f"Expected a run over several processes to start, got: {error} Start the same command once per process, "
            "with the address of process 0 (host:port), the number of processes and the process's own number."
        ) from error


def report_aborts() -> None:
    """Let an abort of this process, with which JAX responds to the loss of another, end with a message and status
    `LOST`.

    JAX aborts in its own thread, sometimes before the current exchange has failed, and no Python handler runs then.
    """
    ctypes.CDLL(None).signal(int(signal.SIGABRT), _ON_ABORT)


@ctypes.CFUNCTYPE(None, ctypes.c_int)
def _ON_ABORT(_: int) -> None:
    os.write(
        2, b"jdfl: aborted, as JAX does with a process that has lost the others; what it says of it stands above\n"
    )
    os._exit(LOST)


def leads() -> bool:
    """Whether this process is the one that prints and writes."""
    return jax.process_index() == 0


def highest(number: int) -> int:
    """The largest of the numbers given by the processes; all of them must call it."""
    return int(np.max(multihost_utils.process_allgather(np.array(number))))


def summed(number: int) -> int:
    """The sum, modulo 2^64, of the numbers given by the processes; all of them must call it."""
    halves = np.array([number >> 32, number & 0xFFFFFFFF], np.uint32)
    every = np.asarray(multihost_utils.process_allgather(halves)).reshape(-1, 2)
    return sum((int(high) << 32) + int(low) for high, low in every) % 2**64


def portion(m: int) -> np.ndarray:
    """The nodes of m whose rows are on this process's devices; all of them if it is the only process.

    The last node is repeated where there are more rows than nodes.
    """
    if jax.process_count() == 1:
        return np.arange(m)
    every, held = jax.devices(), nodes.per_device(m, jax.device_count())
    here = [k for k, device in enumerate(every) if device.process_index == jax.process_index()]
    return np.minimum(np.concatenate([np.arange(k * held, (k + 1) * held) for k in here]), m - 1)


class Portion(jax.ShapeDtypeStruct):
    """An array [m, ...] whose rows in `portion` this process holds, until a run places them."""

    def __init__(self, rows: Array | np.ndarray, m: int) -> None:
        super().__init__((m, *rows.shape[1:]), rows.dtype)
        self.rows = rows

    def __array__(self, *_: Any) -> np.ndarray:
        """Raises TypeError: there is no such array."""
        raise TypeError("Expected data of all nodes, got those of this process's nodes only, which only a run can use.")

    def placed(self, where: NamedSharding) -> Array:
        """The array on the devices of all processes, with the last row repeated as padding.

        ValueError where the run's devices are not all devices in their order.
        """
        if list(np.ravel(np.asarray(where.mesh.devices))) != jax.devices():
            raise ValueError(
                f"Expected all devices of all processes in the mesh, in JAX's order, got others. {_OWN_DATA}"
            )
        rows = nodes.per_device(self.shape[0], jax.device_count()) * jax.device_count()
        return jax.make_array_from_process_local_data(where, np.asarray(self.rows), (rows, *self.shape[1:]))


def held(tree: Any) -> Any:
    """The tree with the rows that this process has of each `Portion`."""
    return jax.tree.map(lambda x: x.rows if isinstance(x, Portion) else x, tree)


def check_complete(tree: Any) -> None:
    """Raise ValueError for arrays that are a `Portion`, in a run without a mesh."""
    if any(isinstance(x, Portion) for x in jax.tree.leaves(tree)):
        raise ValueError(f"Expected a mesh in a run of several processes, got mesh = None. {_OWN_DATA}")


def gather(x: Any, m: int) -> np.ndarray:
    """The array [m, ...] from every process's rows of its `portion`; all processes must call it."""
    return np.asarray(multihost_utils.process_allgather(np.asarray(x), tiled=True))[:m]


def spread(x: Any, where: NamedSharding) -> Array:
    """The array x, which all processes have, on all devices; each process places its own part."""
    if isinstance(x, Portion):
        return x.placed(where)
    if jax.process_count() == 1:
        return jax.device_put(x, where)
    if not hasattr(x, "dtype"):
        return x  # a Python number
    return jax.make_array_from_callback(x.shape, where, lambda index: x[index])


def on_host(x: Array) -> Any:
    """The whole array, as a NumPy array, in every process; keys stay JAX keys."""
    if jax.numpy.issubdtype(x.dtype, jax.dtypes.prng_key):
        data = on_host(jax.random.key_data(x))
        return jax.random.wrap_key_data(jax.numpy.asarray(data), impl=jax.random.key_impl(x))
    if x.is_fully_addressable or x.is_fully_replicated:
        return np.asarray(x)
    return multihost_utils.process_allgather(x, tiled=True)


@contextlib.contextmanager
def watched() -> Generator[None]:
    """Turn a failed exchange between processes into ProcessLostError."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if jax.process_count() == 1 or str(error).startswith(_OWN_FAULTS):
            raise
        raise ProcessLostError(
            f"process {jax.process_index()} lost the others: {str(error).splitlines()[0]} A process that has ended is "
            "not replaced; start the run again, on any number of devices, from its last checkpoint."
        ) from error
