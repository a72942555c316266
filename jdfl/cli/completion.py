"""`jdfl completion`: a script by which a shell completes commands, flags, kinds and words.

The script holds the flags of every kind, so that only those of the kinds on the line are offered, and nothing of jdfl
runs while a person types.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jdfl.cli.flags import blank
from jdfl.cli.helping import Flag, flags_of
from jdfl.engine.metrics import REGISTRY

_ZSH = "autoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit\n"
_METRICS = ("metrics", "measure", "by")  # flags that take names of metrics


def script(shell: str, commands: Iterable[str], flags: Mapping[str, Sequence[Flag]]) -> str:
    """The script for "bash" or "zsh", with the flags of every command that has some."""
    lines: list[str] = []  # that say which flags a command or a kind has, and which words they take
    several: set[str] = set()
    sets: dict[tuple[Any, ...], str] = {}  # names of the sets of kinds that flags choose from

    def add(name: str, flags: Sequence[Flag]) -> None:
        choosing = [flag for flag in flags if flag.kinds and not flag.several]
        found: dict[str, list[str]] = {"flags": [], "inner": [], "words": []}
        for flag in flags:
            if flag.positional or any(flag.name.startswith(f"{one.name}.") for one in choosing):
                continue
            if flag in choosing:
                found["inner"].append(f"{flag.name}:{name_of(flag.kinds)}:{flag.default or ''}")
                continue
            found["flags"] += [one.removeprefix("--") for one in flag.names]
            if words := flag.choices or (tuple(REGISTRY) if flag.name in _METRICS else ()):
                found["words"].append(f"{flag.name}={','.join(words).replace(' ', '~')}")
            if flag.several:
                several.add(f"--{flag.name}")
        told = " ".join(f'{key}="{" ".join(values)}"' for key, values in found.items())
        lines.append(f'        "{name}") {told} ;;')

    def name_of(kinds: Mapping[str, type | None]) -> str:
        """The name of a set of kinds, whose members are added when it is first met."""
        key = tuple(kinds.items())
        if key not in sets:
            sets[key] = name = f"set{len(sets)}"
            lines.append(f'        {name}) flags="{" ".join(kinds)}" inner= words= ;;')
            for kind, cls in kinds.items():
                if cls is not None:
                    add(f"{name} {kind}", list(flags_of(blank(cls))))
        return sets[key]

    for command, one in flags.items():
        add(command, one)
    text = Path(__file__).with_suffix(".bash").read_text(encoding="utf-8")
    text = text.replace("@COMMANDS@", " ".join(commands)).replace("@SEVERAL@", " ".join(sorted(several)))
    return (_ZSH if shell == "zsh" else "") + text.replace("@ENTRIES@", "\n".join(lines))
