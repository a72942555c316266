"""`jdfl compare`: tune several algorithms alike, run them with the same seeds, and keep tables and curves."""

import dataclasses
import json
import math
import shutil
import sys
from pathlib import Path
from typing import Any, cast

import jdfl
from jdfl.base import checks
from jdfl.base.terminal import say
from jdfl.cli import flags
from jdfl.cli.running import begun, written
from jdfl.config import to_yaml
from jdfl.engine.progress import announced
from jdfl.engine.provenance import versions
from jdfl.engine.result import BAD
from jdfl.lab.comparison import Comparison
from jdfl.lab.folder import fill
from jdfl.lab.settings import CompareConfig, build
from jdfl.lab.table import write as table
from jdfl.results.summary import finite
from jdfl.store import jobs, lease, manifest
from jdfl.store.files import write
from jdfl.store.lease import HeldError, LostError

_CONFIG = "config.yaml"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Working:
    """Continue a comparison. Programs whose runs are done stay as they are.

    Examples:
      jdfl resume runs/NAME                                the rest of an interrupted comparison
      jdfl resume runs/NAME --retry 2                      and a program that fails is tried twice more
    """

    retry: int = 0
    """How often a program that fails is tried again."""
    any_version: bool = False
    """Continue with other versions of jdfl or of libraries than it was begun with."""
    quiet: bool = False
    """No progress and no table; without --json, only the folder's name."""
    json: bool = False
    """Print the results as JSON."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(Working):
    """Compare algorithms on one problem with the same seeds, and save tables, curves and a figure in a new folder.

    Every algorithm is tuned first: over a grid of step sizes, on seeds other than the reported ones, judged by
    --measure at equal amounts of --by. The table and the figure show what every result has cost, and what was not
    tuned. Algorithms named here have default settings; a file (--config) gives them other settings, labels, networks
    and grids. --epsilon calibrates the noise of every algorithm with a mechanism; values that are tuned on the same
    data have no epsilon, unless --problem.public names tuning, and also curvature where the grid of lr is the default
    one.

    Examples:
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

    exit status: 0 done, 1 a part failed, 2 a mistake in the settings, 3 a run diverged or no point of a grid works (the
    results are written and say where), 5 the results could not be written, or somebody has removed or changed the
    folder, 130 interrupted, 143 terminated (SIGTERM, SIGHUP). What is done is kept, and `jdfl resume` goes on.
    """

    config: Path | None = None
    """YAML file to start from, such as the config.yaml of an earlier comparison; other flags override it."""
    out: Path = Path("runs")
    """Folder in which the comparison's new folder is made."""
    folder: Path | None = None
    """The comparison's own folder, instead of a new one in --out: it begins there, or goes on if it has begun."""


def resume_compare(folder: Path, options: Working) -> int:
    """Continue a comparison; returns the exit status."""
    return _work(folder, flags.config_of(folder, CompareConfig), options)


def compare(config: CompareConfig, options: Options) -> int:
    """Compare, write and show; returns the exit status."""
    folder = options.folder
    if folder is None or not (folder / _CONFIG).is_file():
        made = experiment_of(config)  # refused before there is a folder
        return _work(begun(options.out, folder, f"compare-{config.problem.kind}"), config, options, made)
    if to_yaml(flags.config_of(folder, CompareConfig)) != to_yaml(config):
        raise ValueError(
            f"Expected the settings of the comparison in --folder {folder}, got others. Leave them as they were, or "
            "name another folder."
        )
    return _work(folder, config, options)


def _work(folder: Path, config: CompareConfig, options: Working, experiment: jdfl.Experiment | None = None) -> int:
    """Make what is left of a comparison, write and show it; returns the exit status."""
    checks.integer(0, retry=options.retry)
    if (folder / manifest.NAME).is_file():
        manifest.check(folder)
        found = cast(Comparison, jdfl.load(folder))
        jobs.Jobs(folder).clear()  # if it was killed before it could do that
        return _shown(found, folder, options)
    made, text = experiment or experiment_of(config), manifest.signed(to_yaml(config))
    origin = {"work": "comparison", "settings": jobs.name_of(to_yaml(config)), "versions": versions()}
    try:
        with jobs.opened(folder, origin, any_version=options.any_version, retry=options.retry) as kept:
            write(folder / _CONFIG, text)
            with announced(False if options.quiet else None) as progress:
                found = made.made(kept, progress)
            lease.note(folder, "ended")
            say("writing tables and figures")
            written(folder, lambda: fill(found, folder, text, apart=(jobs.PLACE, jobs.ORIGIN)))
            kept.clear()
    except BaseException as error:
        others = isinstance(error, HeldError | LostError)  # the folder is somebody else's
        if experiment is not None and not others and not any((folder / jobs.PLACE).glob("*")):
            shutil.rmtree(folder, ignore_errors=True)
        elif isinstance(error, KeyboardInterrupt | jobs.FailedJobsError):
            error.add_note(f"what is done is kept. To continue: jdfl resume {folder}")
        raise
    return _shown(found, folder, options)


def experiment_of(config: CompareConfig) -> jdfl.Experiment:
    """The experiment that a configuration describes."""
    methods, problem, network, settings = build(config)
    return jdfl.Experiment(problem=problem, network=network, methods=methods, **settings)


def _shown(found: Comparison, folder: Path, options: Working) -> int:
    """Show a comparison; returns the exit status."""
    if options.json:
        content = {"folder": str(folder), **_content(found), "at_other_budgets": list(map(_content, found.views))}
        print(json.dumps(content, indent=2, allow_nan=False))
    else:
        print(folder if options.quiet else f"{table(found.grid(), 'text', str(folder / 'table.md'))}\nfolder: {folder}")
    status = 3 if any(how.failure and how.short is None for how in found.tuned.values()) else 0
    for label, runs in found.results.items():
        for ending, words in BAD.items():
            if count := sum(run.ending == ending for run in runs):
                print(f"jdfl: {label}: {count} of {len(found.seeds)} runs {words}", file=sys.stderr)
                status = 3
    return status


def _content(found: Comparison) -> dict[str, Any]:
    """A comparison as plain data for JSON; numbers that are not finite become None."""
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
