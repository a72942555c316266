"""The command line: `jdfl COMMAND`, with a file of this package for every command."""

import os
import sys
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import jdfl

_HELP = """usage: jdfl COMMAND [FLAGS]

Simulate decentralized federated learning, all nodes at once.

commands:
  run        run an algorithm on a problem over a network and save the results
  resume     continue a run, a sweep or a comparison that was interrupted or ended early, or a run to more rounds
  verify     check all files of a run, sweep or comparison, repeat a part of it and compare the numbers bit for bit
  export     write the tables of a run that goes on or was cut off
  compare    tune several algorithms alike, run them with the same seeds, save tables and curves
  sweep      run over values of any settings and collect the results in one table
  account    compute the epsilon of releases or of a planned run, or the noise for a target
  choose     list the algorithms that fit what you have, and why others do not
  audit      attack the privacy that an algorithm reports
  report     write one page about one run or several
  data       show which datasets are available, and download some
  list       list algorithms, problems, datasets, networks, codecs, stop rules and metrics

  completion bash|zsh: print a script that lets the shell complete commands and flags

  --version  print the version
  --help     print this text; `jdfl run --help` gives an overview of a command's flags, and
             `jdfl run --network ring --help` explains those of one kind

environment:
  JDFL_DATA       the folder of the datasets' files
  JDFL_CACHE      0 keeps compiled programs out of ~/.cache/jdfl
  JDFL_TRACEBACK  1 shows where an error comes from
"""


_COMMANDS = (
    *("run", "resume", "verify", "export", "compare", "sweep"),
    *("account", "choose", "audit", "report", "data"),
)
_NAMES = (*_COMMANDS, "list", "completion", "--version", "--help")
_KEPT = {
    "run": "only runs with a checkpoint are kept",
    "resume": "the last checkpoint is kept",
    "data": "what was downloaded is kept, and the same command continues",
}


def _functions(command: str, args: Sequence[str] = ()) -> tuple[Callable[[list[str]], Any], Callable[..., int]]:
    """The function that parses a command's arguments and the one that executes it, imported on demand."""
    if command in ("resume", "verify") and args and (work := _work(Path(args[0]))):
        module = import_module(f"jdfl.cli.{work}" if command == "resume" else "jdfl.cli.verify_jobs")
        return module.parse_again, module.again
    module = import_module(f"jdfl.cli.{command}")
    return module.parse, getattr(module, command)


def _work(folder: Path) -> str:
    """The command whose work is in a folder, if it is made of jobs; empty otherwise."""
    if (folder / "study.yaml").is_file():
        return "sweep"
    made_of_jobs = (folder / "jobs.json").is_file() or (folder / "comparison.json").is_file()
    return "compare" if made_of_jobs and (folder / "config.yaml").is_file() else ""


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
            print("usage: jdfl list\n\nList all that a flag can choose from, with one line each.")
        elif command == "list" and rest:
            raise ValueError(f"Expected nothing but --help after `jdfl list`, got {rest[0]!r}.")
        elif command in (*_COMMANDS, "list", "completion"):
            with warnings.catch_warnings():
                warnings.showwarning = _show_warning
                status = _do(command, rest)
        else:
            raise ValueError(_unknown(command))
        sys.stdout.flush()
    except BrokenPipeError:  # the reader, `head` say, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except (ValueError, OSError) as error:
        from jdfl.store.lease import LostError, UnwrittenError

        if os.environ.get("JDFL_TRACEBACK", "") not in ("", "0"):
            raise
        print(f"jdfl: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 5 if isinstance(error, LostError | UnwrittenError) else 2
    except RuntimeError as error:
        from jdfl.devices.processes import LOST, ProcessLostError
        from jdfl.store.jobs import FailedJobsError

        if isinstance(error, FailedJobsError):
            print(f"jdfl: {_in_words(error)}", file=sys.stderr)
            return 1
        if not isinstance(error, ProcessLostError):
            raise
        print(f"jdfl: {' '.join(str(error).split())}", file=sys.stderr, flush=True)
        os._exit(LOST)  # the usual way out would wait for the process that is gone
    except KeyboardInterrupt as error:
        from jdfl.store.jobs import TerminatedError

        word, status = ("terminated", 143) if isinstance(error, TerminatedError) else ("interrupted", 130)
        kept = " ".join(getattr(error, "__notes__", [])) or _KEPT.get(command, "nothing is written")
        print(f"jdfl: {word}; {kept}", file=sys.stderr)
        return status
    except SystemExit as stop:  # a command's help, or tyro's, which has described a mistake
        if (help_text := getattr(stop, "text", None)) is not None:
            print(help_text(), end="")
        return stop.code if isinstance(stop.code, int) else 2
    return status


def _in_words(error: BaseException) -> str:
    """An error and its notes in one line."""
    return " ".join([*str(error).split(), *getattr(error, "__notes__", [])])


def _do(command: str, args: list[str]) -> int:
    """Execute a command; returns the exit status."""
    if command == "list":
        print(import_module("jdfl.cli.catalogue").catalogue(), end="")
        return 0
    if command == "completion":
        from jdfl.cli.completion import completion

        completion(args, _NAMES, {name: _functions(name)[0] for name in _COMMANDS})
        return 0
    parse, do = _functions(command, args)
    return do(*parse(args))


def _unknown(command: str) -> str:
    """The message about a command that does not exist."""
    from jdfl.base import suggest

    names = [name for name in _NAMES if name.startswith("--") == command.startswith("--")]
    rest = suggest.hint(command, names) or f"The commands are {', '.join(_NAMES)}."
    return f"Unknown command {command!r}. {rest}"


def _show_warning(message: Warning | str, *_: object) -> None:
    print(f"jdfl: warning: {message}", file=sys.stderr)
