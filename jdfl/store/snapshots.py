"""Numbered snapshots in a folder, each complete or absent, written while the program continues (Orbax).

The arrays are stored consecutively, and everything is covered by a SHA-256, so that later damage is detected.
"""

import contextlib
import functools
import hashlib
import importlib
import json
import logging
import math
import shutil
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

if TYPE_CHECKING:
    import orbax.checkpoint as ocp

_SMALL, _PART = 2**26, 2**30  # bytes of small arrays stored together, and the most per part
_UNFINISHED = "*orbax-checkpoint-tmp*"
_KEPT = 2  # the newest snapshot, and the one before in case the newest is damaged


class Stored(NamedTuple):
    """What was passed to `write`."""

    number: int
    arrays: dict[str, np.ndarray]
    told: dict[str, Any]


class Writer:
    """Writes snapshots into a folder, which is created with the first; must be closed."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder).absolute()
        self._manager: ocp.CheckpointManager | None = None

    def write(self, number: int, arrays: Mapping[str, np.ndarray], told: Mapping[str, Any]) -> None:
        """Start writing a snapshot; existing snapshots with this and higher numbers are removed first."""
        self.finish()
        parts, plain = list(_parts(arrays.values())), dict(told)
        about = {name: [str(array.dtype), list(array.shape)] for name, array in arrays.items()}
        ocp = _orbax()
        items = ocp.args.Composite(
            parts=ocp.args.StandardSave(parts),
            told=ocp.args.JsonSave({"told": plain, "arrays": about, "sha256": _checksum(parts, plain, about)}),
        )
        with _Writing(self.folder):
            if self._manager is None:
                self._manager = _manager(self.folder)
            for old in self._manager.all_steps():
                if old >= number:
                    self._manager.delete(old)
            self._manager.save(number, args=items, force=True)

    def finish(self) -> None:
        """Wait until everything is written; OSError where it cannot be."""
        if self._manager is None:
            return
        try:
            with _Writing(self.folder):
                self._manager.wait_until_finished()
        except OSError:  # which it would raise again in place of the next snapshot
            failed, self._manager = self._manager, None
            with contextlib.suppress(Exception):
                failed.close()
            raise

    def close(self) -> None:
        """`finish`, and stop the threads."""
        try:
            self.finish()
        finally:
            if self._manager is not None:
                self._manager.close()
                self._manager = None


class _Writing:
    """Turns any failure inside into an OSError that names the folder, and removes what was half written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __enter__(self) -> None: ...

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if not isinstance(error, Exception):
            return
        for partial in self.folder.glob(_UNFINISHED):
            shutil.rmtree(partial, ignore_errors=True)
        words = " ".join(str(error).split())[:300]
        raise OSError(f"Could not write a checkpoint into {self.folder}: {words}") from error


def tidy(folder: str | Path) -> None:
    """Remove what a killed writer leaves behind: unfinished snapshots, and those due for removal."""
    folder = Path(folder)
    for partial in folder.glob(_UNFINISHED):
        shutil.rmtree(partial, ignore_errors=True)
    for number in _numbers(folder)[:-_KEPT]:
        shutil.rmtree(folder / str(number), ignore_errors=True)


def newest(folder: str | Path) -> int | None:
    """The number of the newest snapshot; None where there is none."""
    numbers = _numbers(Path(folder))
    return numbers[-1] if numbers else None


def read(folder: str | Path, check: Callable[[Stored], object] = lambda found: None) -> Stored:
    """The newest complete snapshot; warns of damaged ones.

    Args:
        folder: The folder of the snapshots.
        check: Raises ValueError for a snapshot that is of no use, so that the one before is taken.

    Raises FileNotFoundError where there is none, ValueError where all are damaged.
    """
    folder = Path(folder).absolute()
    numbers = _numbers(folder)
    if not numbers:
        raise FileNotFoundError(
            f"Expected a checkpoint at {folder}, found none. Give the folder `checkpoints` in a run's folder."
        )
    damage = ""
    for number in reversed(numbers):
        try:
            found = _read(folder, number)
            check(found)
        except Exception as error:  # storage formats, compressed streams and JSON each raise their own errors
            damage = damage or f"{folder / str(number)}: {' '.join(str(error).split())[:300] or repr(error)}"
            continue
        if damage:
            warnings.warn(f"A checkpoint is damaged, and the one before it is used: {damage}", stacklevel=2)
        return found
    raise ValueError(
        f"Expected a checkpoint at {folder}, got {len(numbers)}, none of them readable. The newest fails with "
        f"{damage}. Start the run again."
    )


def _numbers(folder: Path) -> list[int]:
    """The numbers of the existing snapshots, ascending; unfinished ones have other names."""
    return sorted(int(one.name) for one in folder.iterdir() if one.name.isdecimal()) if folder.is_dir() else []


def _read(folder: Path, number: int) -> Stored:
    ocp = _orbax()
    handler = ocp.CompositeCheckpointHandler(parts=ocp.StandardCheckpointHandler(), told=ocp.JsonCheckpointHandler())
    with ocp.Checkpointer(handler, multiprocessing_options=_alone("read")) as reader:
        items = ocp.args.Composite(parts=ocp.args.StandardRestore(), told=ocp.args.JsonRestore())
        found = reader.restore(folder / str(number), args=items)
    told = found.told
    if _checksum(found.parts, told["told"], told["arrays"]) != told["sha256"]:
        raise ValueError("its content is not what was written")
    content = np.concatenate(found.parts)
    arrays, start = {}, 0
    for name, (kind, shape) in told["arrays"].items():
        size = np.dtype(kind).itemsize * math.prod(shape)
        arrays[name] = content[start : start + size].view(kind).reshape(shape)
        start += size
    return Stored(number, arrays, told["told"])


@functools.cache
def _orbax() -> Any:
    """The library, imported when it is first needed because that takes most of a second."""
    orbax = importlib.import_module("orbax.checkpoint")
    logging.getLogger("absl").addFilter(lambda record: "orbax" not in record.pathname)  # failures are raised here
    return orbax


def _parts(arrays: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
    """The arrays' bytes in consecutive pieces: small arrays together, large ones without a copy."""
    small: list[np.ndarray] = []
    for array in arrays:
        content = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        if small and sum(one.size for one in small) + content.size > _SMALL:
            yield np.concatenate(small)
            small = []
        if content.size > _SMALL:
            yield from (content[start : start + _PART] for start in range(0, content.size, _PART))
        elif content.size:
            small.append(content)
    if small:
        yield np.concatenate(small)


def _checksum(parts: Iterable[np.ndarray], *plain: Any) -> str:
    total = hashlib.sha256(json.dumps(plain, sort_keys=True).encode())
    for part in parts:
        total.update(part.data)
    return total.hexdigest()


def _alone(purpose: str) -> Any:
    """Options with which this process acts alone among several."""
    here = jax.process_index()
    return _orbax().options.MultiprocessingOptions(here, {here}, f"jdfl-{purpose}")


def _manager(folder: Path) -> "ocp.CheckpointManager":
    options = _orbax().CheckpointManagerOptions(
        max_to_keep=_KEPT,
        cleanup_tmp_directories=True,
        enable_async_checkpointing=True,
        async_options=_orbax().AsyncOptions(create_directories_asynchronously=False),  # threads would wait for them
        multiprocessing_options=_alone("write"),
        create=False,
    )
    folder.mkdir(parents=True, exist_ok=True)
    return _orbax().CheckpointManager(folder, options=options)
