"""`jdfl completion`: a script by which a shell completes commands, flags, kinds and words.

The script holds the flags of every kind, so that only those of the kinds on the line are offered, and nothing of jdfl
runs while a person types.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from jdfl.cli.schema import Flag, Node, flags_of

_ZSH = "autoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit\n"
_METRICS = ("metrics", "measure", "by")  # flags that take names of metrics


def script(shell: str, commands: Iterable[str], schema: Node, listed: Iterable[str]) -> str:
    """The script for "bash" or "zsh", with these commands and the flags of those that are `listed`."""
    lines: list[str] = []  # that say which flags a command or a kind has, and which words they take
    several: set[str] = set()
    sets: dict[tuple[str, ...], str] = {}  # names of the sets of kinds that flags choose from

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
            if words := flag.choices or (tuple(schema["metrics"]) if flag.name in _METRICS else ()):
                found["words"].append(f"{flag.name}={','.join(words).replace(' ', '~')}")
            if flag.several:
                several.add(f"--{flag.name}")
        entries = " ".join(f'{key}="{" ".join(values)}"' for key, values in found.items())
        lines.append(f'        "{name}") {entries} ;;')

    def name_of(kinds: Mapping[str, Node]) -> str:
        """The name of a set of kinds, whose members are added when it is first met."""
        key = tuple(kinds)
        if key not in sets:
            sets[key] = name = f"set{len(sets)}"
            lines.append(f'        {name}) flags="{" ".join(kinds)}" inner= words= ;;')
            for kind, node in kinds.items():
                if node:
                    add(f"{name} {kind}", flags_of(node, schema["families"]))
        return sets[key]

    for command in listed:
        add(command, flags_of(schema["commands"][command], schema["families"]))
    text = Path(__file__).with_suffix(".bash").read_text(encoding="utf-8")
    text = text.replace("@COMMANDS@", " ".join(commands)).replace("@SEVERAL@", " ".join(sorted(several)))
    return (_ZSH if shell == "zsh" else "") + text.replace("@ENTRIES@", "\n".join(lines))
