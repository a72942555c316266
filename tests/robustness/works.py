"""Works whose folders are attacked: runs, a sweep and a comparison, finished and at every moment at which they can die.

Everything is made once; the copies that are attacked share its compiled programs.
"""

import functools
import shutil
import warnings
from collections.abc import Callable
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
from jdfl.lab import stored
from jdfl.lab.comparison import Comparison
from jdfl.store import lease, manifest
from tests.comparing import comparisons as different
from tests.comparison.test_goes_on import SMALL
from tests.crashing import every_point
from tests.killing import differences
from tests.robustness.outcomes import Said, said
from tests.test_killed_runs import DPSGD, GAUSSIAN, NONE, RUNS, TINY

PLACE = Path("here", "work")  # of every folder that is attacked
EXPORTED = Path("here", "tables")
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
    begin: list[str]  # the command
    compared: Callable[[Path, Path], list[str]]  # what differs between two finished folders

    def copied(self, state: Path) -> Path:
        """A copy of a state at PLACE."""
        shutil.rmtree(PLACE.parent, ignore_errors=True)
        PLACE.parent.mkdir()
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
        """What `make` returns of an undamaged copy of a state, by this name; made once."""
        if (state, name) not in self._undamaged:
            aside = PLACE.parent.with_name("aside")
            PLACE.parent.rename(aside)
            self.copied(state)
            self._undamaged[state, name] = make()
            shutil.rmtree(PLACE.parent)
            aside.rename(PLACE.parent)
        return self._undamaged[state, name]


def works(few: bool) -> list[Work]:
    """All of them, in the current folder; or a `few`: one run with noise."""
    if few:
        return [_run("gradients")]
    made = [_run(name) for name in NAMES]
    Path("small.yaml").write_text(SMALL)

    def compared(one: Path, other: Path) -> list[str]:
        """What differs, but for a file that was half written, which is no result."""
        return [line for line in different(one, other) if ".partial." not in line]

    compare = ["compare", "--config", "small.yaml", "--quiet"]
    return [*made, _jobs("sweep", SWEEP, _tables), _jobs("comparison", compare, compared)]


def _run(name: str) -> Work:
    place = Path(name.replace(" ", "-"))
    args = ["run", *TINY, *NAMES[name], *STEPS]
    for seed in ("0", "1"):
        with every_point(place / seed, place / f"points{seed}") if seed == "0" else warnings.catch_warnings():
            assert said([*args, "--seed", seed, "--folder", str(place / seed / "run")]).status == 0
    return Work("run", place / "0" / "run", _states(place / "points0"), place / "1" / "run", args, differences)


def _jobs(kind: str, args: list[str], compared: Callable[[Path, Path], list[str]]) -> Work:
    for seed in ("0", "1"):
        with every_point(Path(kind, seed), Path(kind, f"points{seed}")) if seed == "0" else warnings.catch_warnings():
            assert said([*args, "--seed", seed, "--folder", f"{kind}/{seed}/run"]).status == 0
    return Work(kind, Path(kind, "0", "run"), _states(Path(kind, "points0")), Path(kind, "1", "run"), args, compared)


def _states(points: Path) -> list[Path]:
    """Copies of a folder that were made while it was written, those that can be gone on with."""
    found = sorted((int(one.name), one / "run") for one in points.iterdir() if one.name.isdecimal())
    return [run for _, run in found if any((run / name).is_file() for name in ("config.yaml", "study.yaml"))]


def _tables(one: Path, other: Path) -> list[str]:
    """What differs between two finished sweeps, but for times."""
    found = [line for folder in (one, other) for line in manifest.differences(folder)[0]]
    for name in ("results.parquet", "curves.parquet"):
        tables = [pd.read_parquet(folder / name) for folder in (one, other)]
        times = [column for column in tables[0] if "seconds" in str(column)]
        found += [] if tables[0].drop(columns=times).equals(tables[1].drop(columns=times)) else [name]
    return found + ([] if (one / "study.yaml").read_text() == (other / "study.yaml").read_text() else ["study.yaml"])


def plain_of(found: Any) -> tuple[str, dict[str, bytes], Any]:
    """A result or a comparison as text, bytes and parameters, equal for equal ones."""
    writer = stored._Writer()
    if isinstance(found, Comparison):
        told = writer.plain(found)
        return repr((told, writer.results)), {name: one.tobytes() for name, one in writer.arrays.items()}, ""
    told = writer.plain(replace(found, params=cast(Any, None), history=cast(Any, None)))
    arrays = {name: one.tobytes() for name, one in writer.arrays.items()}
    return repr((told, writer.results)), arrays, (found.params.tobytes(), found.history.to_csv())


def same_checkpoint(one: Checkpoint, other: Checkpoint) -> bool:
    """Whether two checkpoints are equal, but for times."""
    leaves = [[np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(found.state)] for found in (one, other)]
    rest = [(found.releases.tobytes(), found.history.to_csv(), found.ending, found.sums) for found in (one, other)]
    return leaves[0] == leaves[1] and rest[0] == rest[1]


def exported(folder: Path) -> tuple[Said, dict[str, str]]:
    """What `jdfl export` says, and the tables that it writes."""
    shutil.rmtree(EXPORTED, ignore_errors=True)
    ended = said(["export", str(folder), "--to", str(EXPORTED)])
    return ended, {path.name: path.read_text() for path in EXPORTED.glob("*")}


def reported(folder: Path) -> tuple[Said, str]:
    """What `jdfl report` says, and its page."""
    page = PLACE.with_name("page.html")
    page.unlink(missing_ok=True)
    ended = said(["report", str(folder), "--out", str(page)])
    return ended, page.read_text() if page.exists() else ""
