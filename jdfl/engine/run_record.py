"""The record of a run's keys in its folder: a file that its owner alone may read, and that is no part of any export.

It has the token of the run, and its keys where the private one comes from the operating system. A key that was given is
not in it.
"""

import json
import os
from pathlib import Path
from uuid import uuid4

from jdfl.base.keys import key_data
from jdfl.base.run_keys import RunKey, key_of_words
from jdfl.store import manifest

RECORD = manifest.PRIVATE  # in the folder of a run, next to its checkpoints


def write_record(folder: Path, key: RunKey) -> None:
    """Write the record of a run into its folder, whole or not at all."""
    own = key.source == "operating system"
    words = {name: key_data(getattr(key, name)) if own else None for name in ("public", "private")}
    partial = folder / f".{uuid4().hex[:12]}.partial.{RECORD}"
    try:
        with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            json.dump({"token": key.token, **words}, file)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(folder / RECORD)
    finally:
        partial.unlink(missing_ok=True)


def read_record(folder: Path) -> tuple[str, RunKey | None] | None:
    """The token of the run in a folder, and its keys unless they were given; None where there is no record.

    Raises ValueError for a damaged file.
    """
    path = folder / RECORD
    if not path.is_file():
        return None
    try:
        told = dict(json.loads(path.read_text(encoding="ascii")))
        token, words = str(told["token"]), (told["public"], told["private"])
        if words == (None, None):
            return token, None
        public, private = (key_of_words((int(one[0]), int(one[1]))) for one in words)
    except (ValueError, TypeError, KeyError, IndexError, OverflowError, RecursionError) as error:
        raise ValueError(
            f"Expected the record of a run's key in {path}, got a damaged file. Put it back: without it the run cannot "
            "be continued."
        ) from error
    return token, RunKey(public, private, "operating system", token)
