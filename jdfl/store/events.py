"""What happened to the work in a folder: one line of JSON per event, with its time, machine and process.

It is a log, to which lines are only appended, and no result is made of it: equal runs have other events.
"""

import contextlib
import json
import os
import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

NAME = "events"


def note(folder: Path, event: str, **about: Any) -> None:
    """Append an event, and wait until the disk has it; a folder that is gone is not made again."""
    told = {
        "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "host": platform.node(),
        "process": os.getpid(),
    }
    line = json.dumps({**told, "event": event, **about}).encode() + b"\n"
    file = os.open(folder / NAME, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        size = os.fstat(file).st_size
        if size and os.pread(file, 1, size - 1) != b"\n":  # of a line that was cut off
            line = b"\n" + line
        os.write(file, line)
        os.fsync(file)
    finally:
        os.close(file)


def read(folder: Path) -> list[dict[str, Any]]:
    """The events in a folder, without lines that are not whole; none where there is no such file."""
    found: list[dict[str, Any]] = []
    with contextlib.suppress(FileNotFoundError):
        for line in (folder / NAME).read_bytes().split(b"\n"):
            with contextlib.suppress(ValueError, TypeError, RecursionError):
                found.append(dict(json.loads(line)))
    return found
