"""`jdfl compare`: tune several algorithms alike, run them with the same seeds, and keep tables and curves."""

import contextlib
import dataclasses
import json
import math
import sys
from pathlib import Path
from typing import Any

import jdfl
from jdfl.cli import flags
from jdfl.config import ALGORITHMS
from jdfl.engine.cache import use_cache
from jdfl.engine.progress import announced
from jdfl.engine.result import BAD
from jdfl.lab.comparison import Comparison
from jdfl.lab.results import new_run_folder
from jdfl.lab.settings import (
    CompareConfig,
    build,
    from_yaml,
    named,
    settings_of,
    to_yaml,
    with_algorithms,
)
from jdfl.lab.summary import finite

_ABOUT = """Compare algorithms on one problem with the same seeds, and save tables, curves and a figure in a new folder.

Every algorithm is tuned first: over a grid of step sizes, on seeds other than the reported ones, judged by --measure
at equal amounts of --by. The table and the figure show what every result has cost, and what was not tuned. Algorithms
named here have default settings; a file (--config) gives them other settings, labels, networks and grids. --epsilon
calibrates the noise of every algorithm with a mechanism; values that are tuned on the same data have no epsilon, unless
--problem.public names tuning, and also curvature where the grid of lr is the default one."""

_EXAMPLES = """examples:
  jdfl compare --algorithms d-psgd choco-sgd ceps --seeds 5 --steps 300
  jdfl compare --algorithms d-psgd ceps --problem.m 64 --network ring --by bytes
  jdfl compare --algorithms ceps --grids step_scale=0.5,1,2
  jdfl compare --algorithms d-psgd ceps --stop objective --stop.value 0.2 --by stop
  jdfl compare --config compare.yaml --out results --json
  jdfl compare --config private.yaml --epsilon 4 --delta 1e-5     the noise that epsilon 4 needs

a file for --config; everything in it has a default, and flags override it:
  steps: 300
  by: bytes
  network: ring
  algorithms:
  - d-psgd
  - kind: ceps
    s: 10
    codec: dense
  - kind: entry
    label: CEPS on more links
    algorithm: {kind: ceps, s: 10, codec: sparse}
    network: {kind: erdos-renyi, p: 0.5}
    grids: ["step_scale=0.5,1,2,4"]

a file for --epsilon, with clips; multipliers are calibrated, and what tuning sees is declared public:
  problem: {kind: example1, public: "tuning, curvature"}
  algorithms:
  - {kind: d-psgd, clip: 5.0, mechanism: gaussian}
  - {kind: ceps, s: 10, sigma: 4.0, clip: 5.0, mechanism: gaussian}

exit status: 0 done, 2 a mistake in the settings, 3 a run diverged or no point of a grid works (the results are written
and say where), 130 interrupted (nothing is written)
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Options of a comparison besides its configuration."""

    config: Path | None = None
    """YAML file to start from, such as the config.yaml of an earlier comparison; other flags override it."""
    out: Path = Path("runs")
    """Folder in which the comparison's new folder is made."""
    quiet: bool = False
    """No progress and no table; without --json, only the folder's name."""
    json: bool = False
    """Print the results as JSON."""


def parse(args: list[str]) -> tuple[CompareConfig, Options]:
    """The configuration and options behind the flags of `jdfl compare`."""
    file = flags.given(args, "config")
    start = CompareConfig() if file is None else from_yaml(flags.read(file))
    what = flags.several("algorithms", ALGORITHMS, "The algorithms to compare, with default settings.")
    parsed = flags.parse(
        args, settings_of(start), Options(), prog="jdfl compare", about=_ABOUT, examples=_EXAMPLES, more=[what]
    )
    return with_algorithms(parsed.config, named(parsed.algorithms) or start.algorithms), parsed.options


def compare(config: CompareConfig, options: Options) -> int:
    """Compare, write and show; returns the exit status."""
    use_cache()
    entries, problem, network, arguments = build(config)
    folder = new_run_folder(options.out, f"compare-{config.problem.kind}")
    try:
        with announced(False if options.quiet else None) as progress:
            found = jdfl.compare(entries, problem, network, progress=progress, **arguments)
        found.save(folder, config_yaml=to_yaml(config))
    except BaseException:
        with contextlib.suppress(OSError):
            folder.rmdir()  # save leaves all or nothing
        raise
    if options.json:
        print(json.dumps({"folder": str(folder), **told(found)}, indent=2, allow_nan=False))
    else:
        print(folder if options.quiet else f"{found.table()}\nfolder: {folder}")
    bad = {label: sum(run.ending in BAD for run in runs) for label, runs in found.results.items()}
    for label, count in bad.items():
        if count:
            print(
                f"jdfl: {label}: {count} of {len(found.seeds)} runs diverged or violated an invariant", file=sys.stderr
            )
    failed = any(how.failure and how.short is None for how in found.tuned.values())
    return 3 if any(bad.values()) or failed else 0


def told(found: Comparison) -> dict[str, Any]:
    """A comparison as plain data for JSON; numbers that are not finite become None."""
    return {**_told(found), "at_other_budgets": [_told(one) for one in found.views]}


def _told(found: Comparison) -> dict[str, Any]:
    at = found.at("round", math.inf) if found.by == "stop" else found.at(found.by)
    return {
        "title": found.setting,
        "by": found.by,
        "measure": found.measure,
        "seeds": list(found.seeds),
        "tuning_seeds": list(found.tuning_seeds),
        "tuning": found.criterion,
        "budget": finite(at["budget"].iloc[0]),
        "together": None if found.together is None else found.together.as_dict(),
        "ledger": None if found.standing is None else found.standing.as_dict(),
        "algorithms": {
            label: {
                "values": how.values,
                "grid": {path: list(values) for path, values in how.grid.items()},
                "tuning_runs": how.runs,
                "edge": how.edge,
                "note": found.note(label),
                "mark": found.mark(label),
                "epsilon": found.privacy[label].epsilon if label in found.privacy else None,
                "delta": found.privacy[label].delta if label in found.privacy else None,
                **{str(name): finite(value) for name, value in at.drop(columns="budget").loc[label].items()},
            }
            for label, how in found.tuned.items()
        },
    }
