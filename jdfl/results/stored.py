"""Results as files, and back.

NAME.json holds the structure and NAME.npz the arrays and tables (Parquet). There is no code in either, and reading
makes values of the classes in `KINDS` alone, to which rooms above add theirs. Objects that are code, which are
algorithms, their state and what a paper computes, are not stored: an `Absent` takes their place.
"""

import io
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, cast

import jax
import numpy as np
import pandas as pd

from jdfl.algorithms.algorithm import Algorithm
from jdfl.base import checks
from jdfl.base.absent import Absent
from jdfl.engine.data_ledger import Standing
from jdfl.engine.provenance import Provenance, versions
from jdfl.engine.result import BAD, Result, Totals
from jdfl.privacy import Guarantee, PrivacyReport
from jdfl.privacy.guarantee import Published, Sampling
from jdfl.privacy.mechanisms import GaussianEvent, GaussianSchedule, LaplaceEvent, LaplaceSchedule
from jdfl.privacy.report import Together
from jdfl.results.summary import described
from jdfl.store import manifest
from jdfl.store.files import placed, read, write

FORMAT = 1
_EVENTS = (GaussianEvent, GaussianSchedule, LaplaceEvent, LaplaceSchedule)
_WORDS = (Guarantee, PrivacyReport, Published, Sampling, Standing, Together)
KINDS: dict[str, Any] = {one.__name__: one for one in (Result, Totals, Provenance, *_EVENTS, *_WORDS)}
_AGAIN = "Make the run again with the same settings, or keep the object that was saved."


class _Writer:
    """Takes values apart; every result once, however often it occurs."""

    def __init__(self) -> None:
        self.arrays: dict[str, np.ndarray] = {}
        self.results: list[Any] = []
        self._known: dict[int, int] = {}

    def plain(self, value: Any) -> Any:
        """A value as JSON can hold it."""
        kind: Any = type(value)
        if value is None or kind in (str, bool, int) or (kind is float and math.isfinite(value)):
            return value
        if checks.is_a(value, pd.DataFrame):
            table = io.BytesIO()
            value.to_parquet(table)
            return {"$": "table", "at": self._keep(np.frombuffer(table.getvalue(), np.uint8))}
        if checks.is_a(value, float | np.generic | np.ndarray | jax.Array):
            array = np.asarray(value)
            form = "array" if checks.is_a(value, np.ndarray | jax.Array) else "number"
            return {"$": form, "at": self._keep(array), "dtype": array.dtype.name, "plain": kind is float}
        if checks.is_a(value, Absent):
            return {"$": "absent", **vars(value)}
        if checks.is_a(value, Algorithm):
            return self.plain(Absent("the algorithm", described(value), _AGAIN))
        if checks.is_a(value, Result):
            if id(value) not in self._known:
                self._known[id(value)] = place = len(self.results)
                self.results.append(None)
                self.results[place] = self._parts(value)
            return {"$": "result", "at": self._known[id(value)]}
        if checks.is_a(value, dict):
            return {"$": "dict", "items": [[self.plain(name), self.plain(one)] for name, one in value.items()]}
        if kind.__name__ in KINDS:
            return self._parts(value)
        if kind is range:
            return {"$": "range", "items": [value.start, value.stop]}
        if kind in (list, tuple):
            return {"$": kind.__name__, "items": [self.plain(one) for one in value]}
        raise TypeError(f"Expected a value that can be stored, got {checks.text(value)} of {kind.__name__}.")

    def _parts(self, value: Any) -> dict[str, Any]:
        """The fields of a dataclass or a named tuple."""
        names = [one.name for one in fields(value)] if is_dataclass(value) else list(value._fields)
        instead = _absent(value) if isinstance(value, Result) else {}
        parts: dict[str, Any] = {name: instead.get(name, getattr(value, name)) for name in names}
        if isinstance(value, Published):
            parts["run"] = None
        if isinstance(value, Result):
            parts |= {"computed": None, "data": "", "token": ""}  # which say nothing in another process
        return {"$": type(value).__name__, "of": {name: self.plain(one) for name, one in parts.items()}}

    def _keep(self, array: np.ndarray) -> str:
        name = f"a{len(self.arrays)}"
        self.arrays[name] = array
        return name


class _Reader:
    """Puts values together again."""

    def __init__(self, arrays: Mapping[str, np.ndarray], results: list[Any]) -> None:
        self._arrays = arrays
        self._results = [self.value(one) for one in results]

    def value(self, data: Any) -> Any:
        """The value that `_Writer.plain` has taken apart."""
        if not isinstance(data, dict):
            return data
        kind = data["$"]
        if kind == "table":
            return pd.read_parquet(io.BytesIO(self._arrays[data["at"]].tobytes()))
        if kind in ("array", "number"):
            array = self._arrays[data["at"]].view(np.dtype(data["dtype"]))
            return array if kind == "array" else float(array) if data["plain"] else array[()]
        if kind == "absent":
            return Absent(data["what"], data["described"], data["remedy"])
        if kind == "result":
            return self._results[data["at"]]
        if kind == "dict":
            return {self.value(name): self.value(one) for name, one in data["items"]}
        if kind in ("list", "tuple", "range"):
            items = [self.value(one) for one in data["items"]]
            return {"list": list, "tuple": tuple, "range": lambda ends: range(*ends)}[kind](items)
        return KINDS[kind](**{name: self.value(one) for name, one in data["of"].items()})


def _absent(result: Result) -> dict[str, Absent]:
    """What takes the place of values that are not stored."""
    about = described(result.algorithm)
    state = "The run kept none, so that it cannot be resumed. Make it again with jdfl.run"
    if result.state is not None and result.ending not in BAD:
        state = (
            "Read it with jdfl.read_checkpoint(FOLDER / 'checkpoints', algorithm, problem, network), whose value "
            "jdfl.run(..., resume=...) takes"
        )
    found = {
        "state": Absent("the state of the nodes", about, f"{state}."),
        "key": Absent("the key", about, "With it the noise can be removed: keep it apart, and give it to jdfl.run."),
        "private_key": Absent("the private key", about, "Read it with jdfl.read_checkpoint, as the state."),
        "ready": Absent("what the algorithm computed before the first round", about, _AGAIN),
    }
    return {name: one for name, one in found.items() if not isinstance(getattr(result, name), Absent)}


def write_value(folder: Path, name: str, value: Any) -> None:
    """Write a value of KINDS as NAME.json and NAME.npz into a folder; the JSON file comes last."""
    writer = _Writer()
    plain = writer.plain(value)
    with placed(folder / f"{name}.npz") as path, path.open("wb") as stream:
        cast(Any, np).savez_compressed(stream, **writer.arrays)
    whole = {"format": FORMAT, "jdfl": versions()["jdfl"], "value": plain, "results": writer.results}
    write(folder / f"{name}.json", whole)


def read_value(folder: Path, name: str) -> Any:
    """What `write_value` has written; ValueError for another format and for damaged files."""
    content = read(folder / f"{name}.json")
    if content.get("format") != FORMAT:
        raise ValueError(
            f"Expected {name}.json of format {FORMAT} in {folder}, got format {content.get('format')!r}. Load it with "
            f"jdfl {content.get('jdfl', 'of another version')}, which wrote it."
        )
    try:
        # NumPy leaves a damaged file open that it has opened itself.
        with (folder / f"{name}.npz").open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
            return _Reader(arrays, content["results"]).value(content["value"])
    except FileNotFoundError:
        raise FileNotFoundError(f"Expected {name}.npz next to {name}.json in {folder}, found none.") from None
    except Exception as error:  # of zip, of what is compressed in it, of NumPy, of Parquet
        raise ValueError(
            f"Expected what jdfl has saved in {folder}, got damaged files {name}.json and {name}.npz: "
            f"{' '.join(str(error).split())[:200]}. Save it again."
        ) from error


def read_result(folder: Path) -> Result:
    """The result in the complete folder of a run; ValueError for files that are damaged or not as they were written."""
    found = read_value(folder, "result")
    found = replace(found, params=read(folder / "params.npz"), history=read(folder / "metrics.parquet"))
    manifest.check(folder, ("result.json", "result.npz", "summary.json", "params.npz", "metrics.parquet"))
    return found
