"""The command line: `jdfl run`, `jdfl list`.

tyro makes the flags from `jdfl.config.RunConfig`. Where a setting is one of several kinds, a flag with its name picks
the kind (`--network ring`) and the flags below it set the fields of that kind (`--network.weights uniform`), in any
order: the kinds are read first, and tyro then parses the configuration that has them.
"""

import contextlib
import dataclasses
import json
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

import tyro

import jdfl
from jdfl import checks, report
from jdfl.cache import use_cache
from jdfl.catalogue import catalogue
from jdfl.config import RunConfig, build, from_yaml, members, to_yaml
from jdfl.progress import Progress
from jdfl.result import Result
from jdfl.results import new_run_folder, write_run
from jdfl.summary import spread_text, summary, summary_text

_HELP = """usage: jdfl COMMAND [OPTIONS]

Decentralized federated learning, all nodes at once.

commands:
  run        run an algorithm on a problem over a network and keep the results
  list       what there is: algorithms, problems, data sets, networks, codecs, stop rules, metrics

  --version  the version
  --help     this text; `jdfl run --help` explains every setting of a run

environment:
  JDFL_DATA       the folder of the data sets' files
  JDFL_CACHE      0 keeps compiled programs out of ~/.cache/jdfl
  JDFL_TRACEBACK  1 shows where an error comes from
"""

_ABOUT = """Run an algorithm on a problem over a network, and keep everything about it in a new folder.

The flags with a list of kinds choose one; the settings of the chosen kinds are shown below, those of another kind with
for example: jdfl run --network k-regular --help"""

_EXAMPLES = """examples:
  jdfl run                                             CEPS with one-bit messages on its Example 1
  jdfl run --problem.m 64 --network ring --algorithm.sigma-rule safe --steps 300    more nodes, on a ring
  jdfl run --problem classification --problem.data digits --algorithm.s 60 --stop none
  jdfl run --algorithm.codec dense --repeats 5         whole vectors on the wires, seeds 0 to 4
  jdfl run --algorithm ceps-paper --algorithm.no-one-bit
  jdfl run --config runs/NAME/config.yaml --steps 500  an earlier run, but longer
  jdfl run --json --quiet | jq .metrics.objective      for scripts

exit status: 0 done, 2 a mistake in the settings, 3 the run diverged, 130 interrupted (in both cases what there is
has been written)
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """What is said about a run besides its configuration."""

    config: Path | None = None
    """A config.yaml to start from; other flags override it."""
    out: Path = Path("runs")
    """Where the run's new folder is made."""
    repeats: int = 1
    """Runs to make, with the seeds `seed`, `seed` + 1, ...; each gets its own folder."""
    quiet: bool = False
    """No progress bar and no summary; without --json, only the folder's name."""
    json: bool = False
    """Print the summary as JSON, a list of them if there are several runs."""


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    args = list(sys.argv[1:] if argv is None else argv)
    status = 0
    command, rest = (args[0], args[1:]) if args else ("--help", [])
    try:
        if command in ("--help", "-h"):
            print(_HELP, end="")
        elif command == "--version":
            print(f"jdfl {jdfl.__version__}")
        elif command == "list" and rest in (["--help"], ["-h"]):
            print("usage: jdfl list\n\nWhat there is to choose from, with a line about each.")
        elif command == "list" and rest:
            raise ValueError(f"Expected nothing after `jdfl list`, got {rest[0]!r}.")
        elif command == "list":
            print(catalogue(), end="")
        elif command == "run":
            with warnings.catch_warnings():
                warnings.showwarning = lambda message, *_: print(f"jdfl: warning: {message}", file=sys.stderr)
                status = _run(*_parse(rest))
        else:
            raise ValueError(f"Unknown command {command!r}. Known: run, list, --version, --help.")
        sys.stdout.flush()
    except BrokenPipeError:  # the reader, `head` say, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except (ValueError, OSError) as error:
        if os.environ.get("JDFL_TRACEBACK", "") not in ("", "0"):
            raise
        print(f"jdfl: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("jdfl: interrupted before the first round; only runs that were finished are kept", file=sys.stderr)
        return 130
    except SystemExit as stop:  # tyro's, after help or a complaint
        return stop.code if isinstance(stop.code, int) else 2
    return status


def _parse(args: list[str]) -> tuple[RunConfig, Options]:
    """The configuration and options behind the flags of `jdfl run`."""
    named = _given(args, "config")
    start = RunConfig() if named is None else from_yaml(_read(Path(named)))
    start = _with_kinds(start, args, "")
    kinds = [
        (f"kind_{i}", Annotated[choices, tyro.conf.arg(name=path, help=text)], dataclasses.field(default=default))
        for i, (path, choices, text, default) in enumerate(_kinds(start, ""))
    ]
    both = [
        ("options", Annotated[Options, tyro.conf.arg(name="")], dataclasses.field(default=Options())),
        ("run", Annotated[RunConfig, tyro.conf.arg(name="")], dataclasses.field(default=start)),
    ]
    flags = dataclasses.make_dataclass("Flags", [*kinds, *both], frozen=True)
    try:
        parsed: Any = tyro.cli(
            flags, args=args, default=flags(), prog="jdfl run", description=_ABOUT, config=(tyro.conf.AvoidSubcommands,)
        )
    except SystemExit as stop:
        if stop.code == 0:
            print(_EXAMPLES, end="")
        raise
    return parsed.run, parsed.options


def _given(args: list[str], name: str) -> str | None:
    """The value of the last `--name value` or `--name=value`."""
    found = None
    for i, word in enumerate(args):
        if word == f"--{name}" and i + 1 < len(args):
            found = args[i + 1]
        elif word.startswith(f"--{name}="):
            found = word.partition("=")[2]
    return found


def _choices(config: Any, path: str) -> Iterator[tuple[str, str, dict[str, type | None], Any]]:
    """Fields that may hold several kinds: name, dotted path, the kinds, the value."""
    for name, annotation in get_type_hints(type(config)).items():
        classes: dict[str, type | None] = dict(members(annotation))
        if classes:
            if type(None) in getattr(annotation, "__args__", ()):
                classes["none"] = None
            yield name, f"{path}{name}", classes, getattr(config, name)


def _with_kinds(config: Any, args: list[str], path: str) -> Any:
    """`config` with the kinds that the flags name; what a kind requires is left for tyro to ask for."""
    for name, place, classes, value in _choices(config, path):
        kind = _given(args, place)
        if kind in classes and (kind or "none") != getattr(value, "kind", "none"):
            value = _blank(classes[kind])
        config = dataclasses.replace(config, **{name: _with_kinds(value, args, f"{place}.") if value else None})
    return config


def _blank(kind: type | None) -> Any:
    """A value of this kind with its defaults."""
    if kind is None:
        return None
    missing = dataclasses.MISSING
    needed = [f.name for f in dataclasses.fields(kind) if f.default is missing and f.default_factory is missing]
    return kind(**dict.fromkeys(needed, tyro.MISSING))


def _kinds(config: Any, path: str) -> Iterator[tuple[str, Any, str, str]]:
    """For every flag that picks a kind: its path, its type, its help, its default."""
    for _, place, classes, value in _choices(config, path):
        about = (f"{kind}: {_first_line(classes[kind])}" for kind in classes if classes[kind] is not None)
        yield place, Literal[tuple(classes)], "\n".join(about), getattr(value, "kind", "none")
        if value is not None:
            yield from _kinds(value, f"{place}.")


def _first_line(kind: type | None) -> str:
    return (kind.__doc__ or "").strip().splitlines()[0]


def _read(path: Path) -> str:
    if not path.is_file():
        raise FileNotFoundError(f"Expected a file at --config, got {str(path)!r}. Check the path.")
    return path.read_text(encoding="utf-8")


def _run(config: RunConfig, options: Options) -> int:
    """Run once per seed, write and show every result."""
    checks.whole(1, repeats=options.repeats)
    use_cache()
    algorithm, problem, network, stop = build(config)
    told: list[dict[str, Any]] = []
    status = 0
    for seed in range(config.seed, config.seed + options.repeats):
        one = dataclasses.replace(config, seed=seed)
        folder = new_run_folder(options.out, f"{config.algorithm.kind}-{problem.name}-seed{seed}")
        try:
            with Progress(f"seed {seed}" if options.repeats > 1 else "") as progress:
                result = jdfl.run(
                    algorithm,
                    problem,
                    network,
                    key=seed,
                    steps=config.steps,
                    every=config.every,
                    stop=stop,
                    metrics=config.metrics or None,
                    callbacks=[] if options.quiet else [progress],
                    chunk=config.chunk,
                )
            write_run(folder, to_yaml(one), result, draw=report.figure)
        except BaseException:
            with contextlib.suppress(OSError):
                folder.rmdir()  # write_run leaves all or nothing
            raise
        told.append({"folder": str(folder), **summary(result)})
        _show(result, folder, options)
        status = max(status, {"diverged": 3, "interrupted": 130}.get(result.ending, 0))
        if result.ending == "interrupted":
            break
    if len(told) > 1 and not (options.json or options.quiet):
        print(spread_text(told), end="")
    if options.json:
        print(json.dumps(told[0] if options.repeats == 1 else told, indent=2, allow_nan=False, default=str))
    return status


def _show(result: Result, folder: Path, options: Options) -> None:
    if not options.json:
        print(folder if options.quiet else f"{summary_text(summary(result))}- folder: {folder}\n")
    if result.ending in ("diverged", "interrupted"):
        print(f"jdfl: {result.reason}", file=sys.stderr)
