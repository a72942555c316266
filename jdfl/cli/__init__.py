"""usage: jdfl COMMAND [FLAGS]

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
"""  # noqa: D400, D415 (it is the help)

import os
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jdfl
from jdfl.base import suggest
from jdfl.cli import parsing, schema
from jdfl.cli.schema import NAMES, Flag, find

_ALL = (*NAMES, "list", "completion", "--version", "--help")
_HELP = {
    "list": "usage: jdfl list\n\nList all that a flag can choose from, with one line each.",
    "completion": """usage: jdfl completion bash|zsh

Print a script that lets the shell complete jdfl's commands, its flags and the kinds that they choose. For example:

  jdfl completion bash > ~/.local/share/bash-completion/completions/jdfl
  jdfl completion zsh >> ~/.zshrc

Print it again after installing a package that adds kinds to jdfl.""",
}
_LEFT = {
    "run": "only runs with a checkpoint are kept",
    "resume": "the last checkpoint is kept",
    "data": "what was downloaded is kept, and the same command continues",
}


def parse(name: str, args: Sequence[str]) -> tuple[Callable[..., int], dict[str, Any]]:
    """The function that executes a command, and its arguments as the words set them.

    Runs are resumed and verified by other functions than sweeps and comparisons: the folder decides. Raises ValueError
    for mistakes in the words, FileNotFoundError for missing files, and SystemExit where help is asked for, after
    printing it.
    """
    work = _work(Path(args[0])) if name in ("resume", "verify") and args else ""
    command = name if not work else f"resume {work}" if name == "resume" else "verify jobs"
    known = parsing.load()
    values = parsing.parsed(known["commands"][command], known["families"], lambda: find(command), args)
    return find(command), values


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
    name, rest = (args[0], args[1:]) if args else ("--help", [])
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_: print(f"jdfl: warning: {message}", file=sys.stderr)
            status = _do(name, rest)
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

        if not isinstance(error, FailedJobsError | ProcessLostError):
            raise
        text = " ".join([*str(error).split(), *getattr(error, "__notes__", [])])
        print(f"jdfl: {text}", file=sys.stderr, flush=True)
        if isinstance(error, FailedJobsError):
            return 1
        os._exit(LOST)  # the usual way out would wait for the process that is gone
    except KeyboardInterrupt as error:
        from jdfl.store.jobs import TerminatedError

        word, status = ("terminated", 143) if isinstance(error, TerminatedError) else ("interrupted", 130)
        left = " ".join(getattr(error, "__notes__", [])) or _LEFT.get(name, "nothing is written")
        print(f"jdfl: {word}; {left}", file=sys.stderr)
        return status
    except SystemExit as stop:  # a command has printed its help
        return stop.code if isinstance(stop.code, int) else 2
    return status


def _do(name: str, args: list[str]) -> int:
    """Execute a command; returns the exit status."""
    if name in ("--help", "-h"):
        print(__doc__, end="")
    elif name == "--version":
        print(f"jdfl {jdfl.__version__}")
    elif name in NAMES:
        do, values = parse(name, args)
        return do(**values)
    elif name in _HELP and args in (["--help"], ["-h"]):
        print(_HELP[name])
    elif name == "list":
        if args:
            raise ValueError(f"Expected nothing but --help after `jdfl list`, got {args[0]!r}.")
        from jdfl.cli import helping

        print(helping.catalogue(parsing.load()), end="")
    elif name == "completion":
        if len(args) != 1 or args[0] not in ("bash", "zsh"):
            hint = suggest.hint(args[0], ["bash", "zsh"]) if args else ""
            given = " ".join(args) or "nothing"
            raise ValueError(f"Expected `jdfl completion bash` or zsh, got {given!r}. {hint}".strip())
        from jdfl.cli import completion

        print(completion.script(args[0], _ALL, parsing.load(), NAMES), end="")
    else:
        names = [one for one in _ALL if one.startswith("--") == name.startswith("--")]
        rest = suggest.hint(name, names) or f"The commands are {', '.join(_ALL)}."
        raise ValueError(f"Unknown command {name!r}. {rest}")
    return 0


def flags_of(name: str, *words: str) -> list[Flag]:
    """The flags of a command with the kinds that the words choose."""
    known = parsing.load()
    return schema.flags_of(known["commands"][name], known["families"], words)
