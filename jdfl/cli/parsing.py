"""The words after a command, from what was typed to the arguments of the function that executes it.

What takes long to import is imported where it is needed: help and mistyped words need the data of the schema alone.
"""

import json
from collections.abc import Callable, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from jdfl.cli import schema
from jdfl.cli.schema import FILE, Node, prog_of

_HELP = ("-h", "--help")


def load() -> Node:
    """The data, with the kinds that other installed packages add."""
    found = json.loads(FILE.read_text(encoding="utf-8"))
    if any(group.startswith("jdfl.") for group in entry_points().groups):
        from jdfl.cli import describing  # which imports JAX

        describing.add_kinds(found["families"])
    return found


def parsed(command: Node, families: Node, find: Callable[[], Callable[..., int]], args: Sequence[str]) -> Node:
    """The arguments of a command's function, by name, as the words set them.

    Settings start from the file at --config, or from config.yaml in the folder that is the first word, or in that at
    --run. Where help is asked for, it is printed, and SystemExit is raised.

    Args:
        command: The command.
        families: All kinds, by their families.
        find: Imports the command's function. It is not called for help, and for mistyped words only where a file is
            named to start from.
        args: What was typed after the command.

    Raises ValueError and FileNotFoundError for mistakes in the words, and for a bad or missing file or folder.
    """
    words = [_with_dashes(word) for word in args if word not in _HELP]
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
    started: Node | None = None
    start: Node = {}
    if "config" in {part["name"] for part in command["nodes"]} and (file is not None or place is not None):
        from jdfl.cli import flags  # which imports JAX

        started = flags.started(find(), file, place)
        start = flags.plain(started)
    listed = schema.flags_of(command, families, words, start)
    if asked:
        from jdfl.cli.helping import help_text

        print(help_text(command, listed, words), end="")
        raise SystemExit(0)
    typed = schema.read(words, listed, prog_of(command))
    from jdfl.cli import flags

    function = find()
    values = flags.values(function, typed, started or flags.started(function))
    return values if "folder" not in command else {"folder": folder, **values}


def of_function(function: Callable[..., Any], prog: str, args: Sequence[str]) -> Node:
    """The arguments of a function, by name, as the words set them that are typed after `prog`.

    Its arguments are those of a command: `options`, and perhaps `config` and `folder`. See `parsed`.
    """
    from jdfl.cli import describing  # which takes long, and is needed for programs that are no commands of jdfl

    return parsed(describing.command(function, prog), load()["families"], lambda: function, args)


def _with_dashes(word: str) -> str:
    """A word whose name is written with dashes, if it is a flag."""
    name, equals, value = word.partition("=")
    return f"{name.replace('_', '-')}{equals}{value}" if word.startswith("--") else word
