"""The command line: `jdfl COMMAND`, a file of this package each."""

import os
import sys
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import jdfl

_HELP = """usage: jdfl COMMAND [OPTIONS]

Decentralized federated learning, all nodes at once.

commands:
  run        run an algorithm on a problem over a network and keep the results
  resume     go on with a run or a sweep that was cut off, ended early, or has more rounds to go
  verify     make a run's first rounds again, and compare bit for bit
  compare    tune several algorithms alike, run them with the same seeds, and keep tables and curves
  sweep      run over values of any settings, into one table
  account    what a run's releases add up to, or how much noise a target needs; nothing is run
  audit      attack the privacy that an algorithm reports
  report     one page about one run or several
  data       which data sets there are; downloads
  bench      how long a round takes on this machine
  list       what there is: algorithms, problems, data sets, networks, codecs, stop rules, metrics

  completion bash|zsh: a script by which the shell completes commands and flags

  --version  the version
  --help     this text; `jdfl run --help`, and so for the others, explains every setting

environment:
  JDFL_DATA       the folder of the data sets' files
  JDFL_CACHE      0 keeps compiled programs out of ~/.cache/jdfl
  JDFL_TRACEBACK  1 shows where an error comes from
"""


_COMMANDS = ("run", "resume", "verify", "compare", "sweep", "account", "audit", "report", "data", "bench")
_NAMES = (*_COMMANDS, "list", "completion", "--version", "--help")
_KEPT = {"run": "only runs that have a checkpoint are kept", "resume": "the last checkpoint is kept"}


def _functions(command: str, args: Sequence[str] = ()) -> tuple[Callable[[list[str]], Any], Callable[..., int]]:
    """What parses a command's arguments, and what does it, imported when they are asked for."""
    if command == "resume" and args and (Path(args[0]) / "study.yaml").is_file():
        study = import_module("jdfl.cli.sweep")
        return study.parse_again, study.again
    module = import_module(f"jdfl.cli.{command}")
    return module.parse, getattr(module, command)


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
            print(import_module("jdfl.cli.catalogue").catalogue(), end="")
        elif command == "completion":
            from jdfl.cli.completion import completion

            completion(rest, _NAMES, {name: _functions(name)[0] for name in _COMMANDS})
        elif command in _COMMANDS:
            parse, do = _functions(command, rest)
            with warnings.catch_warnings():
                warnings.showwarning = _show_warning
                status = do(*parse(rest))
        else:
            raise ValueError(f"Unknown command {command!r}. Known: {', '.join(_NAMES)}.")
        sys.stdout.flush()
    except BrokenPipeError:  # the reader, `head` say, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except (ValueError, OSError) as error:
        if os.environ.get("JDFL_TRACEBACK", "") not in ("", "0"):
            raise
        print(f"jdfl: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except RuntimeError as error:
        from jdfl.devices.processes import LOST, ProcessLostError

        if not isinstance(error, ProcessLostError):
            raise
        print(f"jdfl: {' '.join(str(error).split())}", file=sys.stderr, flush=True)
        os._exit(LOST)  # the usual way out would wait for the process that is gone
    except KeyboardInterrupt:
        kept = _KEPT.get(command, "nothing is written")
        print(f"jdfl: interrupted; {kept}", file=sys.stderr)
        return 130
    except SystemExit as stop:  # a command's help, or tyro's, which has described a mistake
        if (help_text := getattr(stop, "text", None)) is not None:
            print(help_text(), end="")
        return stop.code if isinstance(stop.code, int) else 2
    return status


def _show_warning(message: Warning | str, *_: object) -> None:
    print(f"jdfl: warning: {message}", file=sys.stderr)
