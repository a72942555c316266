"""`jdfl completion`: a script by which a shell completes commands, flags, kinds and words.

The script holds the flags of every kind, so that only those of the kinds on the line are offered, and nothing of jdfl
runs while a person types.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from jdfl.base import suggest

_HELP = """usage: jdfl completion bash|zsh

Print a script that lets the shell complete jdfl's commands, its flags and the kinds that they choose. For example:

  jdfl completion bash > ~/.local/share/bash-completion/completions/jdfl
  jdfl completion zsh >> ~/.zshrc

Print it again after installing a package that adds kinds to jdfl.
"""
_BASH = """# Completion of jdfl for bash.
_jdfl_of() {{  # the flags, the choices of kinds and the words of a command or of a kind in a set
    case "$1" in
{entries}
        *) flags= inner= words= ;;
    esac
}}
_jdfl_add() {{  # offer them below a path
    local path=$1 flags=$2 inner=$3 words=$4 one rest
    for one in $flags; do offered="$offered --$path$one"; done
    for one in $words; do
        if [[ "--$path${{one%%=*}}" == "$before" ]]; then choices=${{one#*=}}; fi
    done
    for one in $inner; do  # path:set:default
        rest=${{one#*:}}
        offered="$offered --$path${{one%%:*}}"
        _jdfl_chosen "$path${{one%%:*}}" "${{rest%%:*}}" "${{rest#*:}}"
    done
}}
_jdfl_chosen() {{  # the kind on the line, or the default, and its flags
    local kind=$3 i flags inner words
    for (( i = 2; i < ${{#COMP_WORDS[@]}}; i++ )); do
        if (( i == COMP_CWORD )); then continue; fi
        case "${{COMP_WORDS[i]}}" in
            "--$1") kind=${{COMP_WORDS[i+1]}}; if [[ $kind == "=" ]]; then kind=${{COMP_WORDS[i+2]}}; fi ;;
            "--$1="*) kind=${{COMP_WORDS[i]#*=}} ;;
        esac
    done
    if [[ "--$1" == "$before" ]]; then _jdfl_of "$2"; choices=$flags; fi
    _jdfl_of "$2 $kind"
    _jdfl_add "$1." "$flags" "$inner" "$words"
}}
_jdfl() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} offered= choices= flags inner words i
    if (( COMP_CWORD == 1 )); then
        COMPREPLY=($(compgen -W "{commands}" -- "$word"))
        return
    fi
    if [[ $word == "=" ]]; then word=; elif [[ $before == "=" ]]; then before=${{COMP_WORDS[COMP_CWORD-2]}}; fi
    for (( i = COMP_CWORD - 1; i > 1; i-- )); do  # a flag that takes several words
        if [[ "${{COMP_WORDS[i]}}" == -* ]]; then
            case " {several} " in *" ${{COMP_WORDS[i]}} "*) before=${{COMP_WORDS[i]}} ;; esac
            break
        fi
    done
    _jdfl_of "${{COMP_WORDS[1]}}"
    _jdfl_add "" "$flags" "$inner" "$words"
    if [[ -n $choices && $word != -* ]]; then
        COMPREPLY=($(compgen -W "${{choices//,/ }}" -- "$word"))
        COMPREPLY=("${{COMPREPLY[@]//\\~/\\\\ }}")
    elif [[ $word == -* ]]; then
        COMPREPLY=($(compgen -W "$offered" -- "$word"))
    else
        COMPREPLY=($(compgen -f -- "$word"))
    fi
}}
complete -o filenames -F _jdfl jdfl
"""
_ZSH = "autoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit\n"
_METRICS = ("metrics", "measure", "by")  # flags that take names of metrics
Parsers = Mapping[str, Callable[[list[str]], object]]


def completion(args: list[str], commands: Iterable[str], parsers: Parsers) -> None:
    """Print the script, or the help; ValueError for another shell."""
    if args in (["--help"], ["-h"]):
        print(_HELP, end="")
        return
    if len(args) != 1 or args[0] not in ("bash", "zsh"):
        hint = suggest.hint(args[0], ("bash", "zsh")) if args else ""
        raise ValueError(f"Expected `jdfl completion bash` or zsh, got {' '.join(args) or 'nothing'!r}. {hint}".strip())
    print(script(args[0], commands, parsers), end="")


def script(shell: str, commands: Iterable[str], parsers: Parsers) -> str:
    """The script for "bash" or "zsh"."""
    entries = _Entries()
    for name, parse in parsers.items():
        entries.add(name, _flags_of_command(parse))
    several = " ".join(sorted(entries.several))
    body = _BASH.format(commands=" ".join(commands), entries="\n".join(entries.lines), several=several)
    return _ZSH + body if shell == "zsh" else body


def _flags_of_command(parse: Callable[[list[str]], object]) -> Sequence[Any]:
    from jdfl.cli.flags import HelpAsked

    try:
        parse(["--help"])
    except HelpAsked as asked:
        return asked.listed
    raise AssertionError("every command has its help")


class _Entries:
    """The lines of the script that hold flags, written once for every set of kinds."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.several: set[str] = set()
        self.sets: dict[tuple[tuple[str, type | None], ...], str] = {}

    def add(self, name: str, flags: Sequence[Any]) -> None:
        """Write the flags of a command or of a kind."""
        from jdfl.engine.metrics import REGISTRY

        choosing = [flag for flag in flags if flag.kinds and not flag.several]
        own: list[str] = []
        inner: list[str] = []
        words: list[str] = []
        for flag in flags:
            if flag.positional or any(flag.name.startswith(f"{one.name}.") for one in choosing):
                continue
            if flag in choosing:
                inner.append(f"{flag.name}:{self.set_of(flag.kinds)}:{flag.default or ''}")
                continue
            own += [one.removeprefix("--") for one in flag.names]
            known = flag.choices or (tuple(REGISTRY) if flag.name in _METRICS else ())
            if known:
                choices = ",".join(one.replace(" ", "~") for one in known)
                words.append(f"{flag.name}={choices}")
            if flag.several:
                self.several.add(f"--{flag.name}")
        told = (f'{key}="{" ".join(values)}"' for key, values in (("flags", own), ("inner", inner), ("words", words)))
        self.lines.append(f'        "{name}") {" ".join(told)} ;;')

    def set_of(self, kinds: Mapping[str, type | None]) -> str:
        """The name of a set of kinds, whose members are written when it is first asked for."""
        from jdfl.cli.flags import blank
        from jdfl.cli.listing import flags_of

        key = tuple(kinds.items())
        if key not in self.sets:
            self.sets[key] = name = f"set{len(self.sets)}"
            self.lines.append(f'        {name}) flags="{" ".join(kinds)}" inner= words= ;;')
            for kind, cls in kinds.items():
                if cls is not None:
                    self.add(f"{name} {kind}", list(flags_of(blank(cls))))
        return self.sets[key]
