"""Works whose folders are attacked: runs, a sweep and a comparison, finished and at every moment at which they can die.

Everything is made once; the copies that are attacked share its compiled programs.
"""

import functools
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import jax
import numpy as np
import pandas as pd

import jdfl
from jdfl.cli.flags import config_of
from jdfl.config import build
from jdfl.engine.checkpoint import Checkpoint
from jdfl.lab.comparison import Comparison
from jdfl.results import stored
from jdfl.store import lease, manifest
from tests.comparing import comparisons as different
from tests.comparison.test_goes_on import SMALL
from tests.crashing import every_point
from tests.killing import differences
from tests.robustness.outcomes import Said, said
from tests.test_killed_runs import DPSGD, GAUSSIAN, NONE, RUNS, TINY

PLACE = Path("here", "work")  # of every folder that is attacked
STEPS = ["--steps", "16", "--chunk", "4", "--checkpoint-every", "4", "--quiet"]
LONGER = ["--steps", "20", "--checkpoint-every", "4", "--quiet"]
NAMES = {"plain": [*DPSGD, *NONE]} | {name: RUNS[name] for name in ("gradients", "budget", "delays")}
SWEEP = ["sweep", *TINY, *DPSGD, *GAUSSIAN, *NONE, "--steps", "6", "--quiet"]
SWEEP += ["--over", "algorithm.lr=0.01,0.02", "network=ring,complete"]


@dataclass
class Work:
    """A work that was finished, the states of its folder on the way there, and what an attack is compared with."""

    kind: str  # run, sweep or comparison
    whole: Path
    cut: list[Path]  # states of its folder before it was finished, in order
    other: Path  # the finished folder of another work of the same kind
    compared: Callable[[Path, Path], list[str]]  # what differs between two finished folders

    def copied(self, state: Path) -> Path:
        """A copy of a state at PLACE."""
        shutil.rmtree(PLACE.parent, ignore_errors=True)
        shutil.copytree(state, PLACE)
        (PLACE / lease.NAME).unlink(missing_ok=True)  # its holder, this process, lives
        return PLACE

    @functools.cached_property
    def longer(self) -> Path:
        """The finished folder after it was extended, which only runs can be."""
        place = self.whole.with_name("longer")
        shutil.copytree(self.whole, place)
        said(["resume", str(place), *LONGER])
        return place

    @functools.cached_property
    def built(self) -> tuple[Any, Any, Any]:
        """Algorithm, problem and network of a run."""
        return build(config_of(self.whole))[:3]

    @functools.cached_property
    def checkpoints(self) -> dict[int, Checkpoint]:
        """Undamaged checkpoints by their rounds."""
        found: dict[int, Checkpoint] = {}
        for state in [self.whole, *self.cut[::4], *self.cut[-1:]]:
            try:
                one = jdfl.read_checkpoint(state, *self.built)
            except (FileNotFoundError, ValueError):
                continue
            found[one.rounds] = one
        return found

    @functools.cached_property
    def _undamaged(self) -> dict[tuple[Path, str], Any]:
        return {}

    def undamaged(self, state: Path, make: Callable[[], Any], name: str) -> Any:
        """What `make` returns of an undamaged copy of a state, by this name; made once, after the attack's own."""
        if (state, name) not in self._undamaged:
            self.copied(state)
            self._undamaged[state, name] = make()
        return self._undamaged[state, name]


def works(few: bool) -> list[Work]:
    """All of them, in the current folder; or a `few`: one run with noise."""
    runs = {name: ["run", *TINY, *NAMES[name], *STEPS] for name in NAMES}
    if few:
        return [_work("run", "gradients", runs["gradients"], differences)]
    Path("small.yaml").write_text(SMALL)

    def compared(one: Path, other: Path) -> list[str]:
        """What differs, but for a file that was half written, which is no result."""
        return [line for line in different(one, other) if ".partial." not in line]

    compare = ["compare", "--config", "small.yaml", "--quiet"]
    made = [_work("run", name, args, differences) for name, args in runs.items()]
    return [*made, _work("sweep", "sweep", SWEEP, _tables), _work("comparison", "comparison", compare, compared)]


def _work(kind: str, name: str, args: list[str], compared: Callable[[Path, Path], list[str]]) -> Work:
    points = Path(name, "points")
    for seed in ("0", "1"):
        with every_point(Path(name, seed), points) if seed == "0" else nullcontext():
            assert said([*args, "--seed", seed, "--folder", f"{name}/{seed}/run"]).status == 0
    states = sorted((int(one.name), one / "run") for one in points.iterdir() if one.name.isdecimal())
    begun = [run for _, run in states if any((run / name).is_file() for name in ("config.yaml", "study.yaml"))]
    return Work(kind, Path(name, "0", "run"), begun, Path(name, "1", "run"), compared)


def _tables(one: Path, other: Path) -> list[str]:
    """What differs between two finished sweeps, but for times."""
    found = [line for folder in (one, other) for line in manifest.differences(folder)[0]]
    for name in ("results.parquet", "curves.parquet"):
        tables = [pd.read_parquet(folder / name) for folder in (one, other)]
        times = [column for column in tables[0] if "seconds" in str(column)]
        found += [] if tables[0].drop(columns=times).equals(tables[1].drop(columns=times)) else [name]
    return found + ([] if (one / "study.yaml").read_text() == (other / "study.yaml").read_text() else ["study.yaml"])


def plain_of(found: Any) -> tuple[Any, ...]:
    """A result or a comparison as text, bytes and parameters, equal for equal ones."""
    writer, rest = stored._Writer(), ()
    if not isinstance(found, Comparison):
        rest = found.params.tobytes(), found.history.to_csv()
        found = replace(found, params=cast(Any, None), history=cast(Any, None))
    told = repr(writer.plain(found))
    return told, repr(writer.results), {name: one.tobytes() for name, one in writer.arrays.items()}, rest


def same_checkpoint(one: Checkpoint, other: Checkpoint) -> bool:
    """Whether two checkpoints are equal, but for times."""
    leaves = [[np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(found.state)] for found in (one, other)]
    rest = [(found.releases.tobytes(), found.history.to_csv(), found.ending, found.sums) for found in (one, other)]
    return leaves[0] == leaves[1] and rest[0] == rest[1]


def exported(folder: Path) -> tuple[Said, dict[str, str]]:
    """What `jdfl export` says, and the tables that it writes."""
    tables = PLACE.with_name("tables")
    shutil.rmtree(tables, ignore_errors=True)
    ended = said(["export", str(folder), "--to", str(tables)])
    return ended, {path.name: path.read_text() for path in tables.glob("*")}


def reported(folder: Path) -> tuple[Said, str]:
    """What `jdfl report` says, and its page."""
    page = PLACE.with_name("page.html")
    page.unlink(missing_ok=True)
    ended = said(["report", str(folder), "--out", str(page)])
    return ended, page.read_text() if page.exists() else ""
