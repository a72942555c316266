"""usage: jdfl COMMAND [FLAGS]

Simulate decentralized federated learning, all nodes at once.

commands:
  run        run an algorithm on a problem over a network and save the results
  resume     continue interrupted work, or a run to more rounds
  verify     check all files of a folder, repeat a part, compare bit for bit
  export     write the tables of a run, or an archive for a paper
  compare    tune several algorithms alike, run them with the same seeds
  sweep      run over values of any settings, with one table of all results
  account    compute the epsilon of releases or of a planned run, or the noise
  choose     list the algorithms that fit what you have, and why others do not
  audit      attack the privacy that an algorithm reports
  report     write one page about one run or several
  data       show which datasets are available, and download some
  list       list all that flags choose from; `jdfl list WORD` searches

  completion bash|zsh: print a script by which the shell completes flags

  --version  print the version
  --help     print this text; `jdfl run --help` gives an overview of the flags,
             and `jdfl run --network ring --help` explains those of one kind

environment:
  JDFL_DATA       the folder of the datasets' files
  JDFL_CACHE      0 keeps compiled programs out of ~/.cache/jdfl
  JDFL_TRACEBACK  1 shows where an error comes from
"""  # noqa: D400, D415 (it is the help)

import contextlib
import json
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import jdfl
from jdfl.base import suggest, terminal
from jdfl.cli import schema
from jdfl.cli.schema import FILE, NAMES, Flag, Node, find, prog_of

_HELP_FLAGS = ("-h", "--help")
_ALL = (*NAMES, "list", "completion", "--version", "--help")
_HELP = {
    "list": """usage: jdfl list [WORD ...]

List all that flags can choose from, with a line each, or what has these words
in its name, text or heading; five and fewer in full, with their sources.

  jdfl list tracking
  jdfl list directed exact
  jdfl list datasets""",
    "completion": """usage: jdfl completion bash|zsh

Print a script that lets the shell complete commands, flags and kinds.
For example:

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
    known = load_schema()
    values = _arguments(known["commands"][command], known["families"], lambda: find(command), args)
    return find(command), values


def load_schema() -> Node:
    """The commands and kinds of schema.json, with the kinds that other installed packages add."""
    found = json.loads(FILE.read_text(encoding="utf-8"))
    if any(group.startswith("jdfl.") for group in entry_points().groups):
        from jdfl.cli import describing  # which imports JAX

        describing.add_kinds(found["families"])
    return found


def _arguments(command: Node, families: Node, find: Callable[[], Callable[..., int]], args: Sequence[str]) -> Node:
    """The arguments of a command's function, which `find` imports where no help is asked for, as the words set them."""
    words = [_with_dashes(word) for word in args if word not in _HELP_FLAGS]
    asked, folder = len(words) < len(args), None
    if "folder" in command:
        if words and not words[0].startswith("-"):
            folder, words = Path(words[0]), words[1:]
        elif not asked and not command["folder_optional"]:
            got = words[0] if words else "nothing"
            raise ValueError(f"Expected the folder of a run after `{command['prog']}`, got {got!r}.")
    known = {node["name"] for part in command["nodes"] for node in part["nodes"]}
    file, run = (schema.given(words, name) if name in known else None for name in ("config", "run"))
    place = folder if run is None else Path(run)
    initial: Node | None = None
    start: Node = {}
    if "config" in {part["name"] for part in command["nodes"]} and (file is not None or place is not None):
        terminal.say("loading")
        from jdfl.cli import flags  # which imports JAX

        initial = flags.initial(find(), file, place)
        start = flags.plain(initial)
    listed = schema.flags_of(command, families, words, start)
    if asked:
        from jdfl.cli.helping import help_text

        print(help_text(command, listed, words), end="")
        raise SystemExit(0)
    typed = schema.read(words, listed, prog_of(command))
    terminal.say("loading")
    from jdfl.cli import flags

    function = find()
    values = flags.values(function, typed, initial or flags.initial(function))
    return values if "folder" not in command else {"folder": folder, **values}


def of_function(function: Callable[..., Any], prog: str, args: Sequence[str]) -> Node:
    """The arguments of a function, by name, as the words set them that are typed after `prog`.

    Its arguments are those of a command: `options`, and perhaps `config` and `folder`. Raises as `parse` does.
    """
    from jdfl.cli import describing  # which takes long, and is needed for programs that are no commands of jdfl

    return _arguments(describing.command(function, prog), load_schema()["families"], lambda: function, args)


def _with_dashes(word: str) -> str:
    """A word whose name is written with dashes, if it is a flag."""
    name, equals, value = word.partition("=")
    return f"{name.replace('_', '-')}{equals}{value}" if word.startswith("--") else word


def _work(folder: Path) -> str:
    """The command whose work is in a folder, if it is made of jobs; empty otherwise."""
    if (folder / "study.yaml").is_file():
        return "sweep"
    made_of_jobs = (folder / "jobs.json").is_file() or (folder / "comparison.json").is_file()
    return "compare" if made_of_jobs and (folder / "config.yaml").is_file() else ""


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status.

    It says on stderr what goes on, unless the words are given as `argv`, or one of them is --quiet.
    """
    args = list(sys.argv[1:] if argv is None else argv)
    status = 0
    name, rest = (args[0], args[1:]) if args else ("--help", [])
    try:
        silent = argv is not None or "--quiet" in rest
        with contextlib.nullcontext() if silent else terminal.Heartbeat(), warnings.catch_warnings():
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
        terminal.say(f"{name}: computing")
        return do(**values)
    elif name in _HELP and args in [[one] for one in _HELP_FLAGS]:
        print(_HELP[name])
    elif name == "list":
        from jdfl.cli import helping

        print(helping.catalogue(load_schema(), args), end="")
    elif name == "completion":
        if len(args) != 1 or args[0] not in ("bash", "zsh"):
            hint = suggest.hint(args[0], ["bash", "zsh"]) if args else ""
            given = " ".join(args) or "nothing"
            raise ValueError(f"Expected `jdfl completion bash` or zsh, got {given!r}. {hint}".strip())
        from jdfl.cli import completion

        print(completion.script(args[0], _ALL, load_schema(), NAMES), end="")
    else:
        names = [one for one in _ALL if one.startswith("--") == name.startswith("--")]
        rest = suggest.hint(name, names) or f"The commands are {', '.join(_ALL)}."
        raise ValueError(f"Unknown command {name!r}. {rest}")
    return 0


def flags_of(name: str, *words: str) -> list[Flag]:
    """The flags of a command with the kinds that the words choose."""
    known = load_schema()
    return schema.flags_of(known["commands"][name], known["families"], words)
