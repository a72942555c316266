"""`jdfl completion`: a script by which a shell completes commands, flags and kinds."""

import contextlib
import io
import os
import re
from collections.abc import Callable, Iterable

_HELP = """usage: jdfl completion bash|zsh

Print a script that lets the shell complete jdfl's commands, flags and the kinds that flags choose from. For example:

  jdfl completion bash > ~/.local/share/bash-completion/completions/jdfl
  jdfl completion zsh >> ~/.zshrc
"""
_BASH = """# Completion of jdfl for bash.
_jdfl() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} choices
    if (( COMP_CWORD == 1 )); then
        COMPREPLY=($(compgen -W "{commands}" -- "$word"))
        return
    fi
    case "${{COMP_WORDS[1]}} $before" in
{kinds}
        *) choices= ;;
    esac
    if [[ -n $choices ]]; then
        COMPREPLY=($(compgen -W "$choices" -- "$word"))
    elif [[ $word == -* ]]; then
        case "${{COMP_WORDS[1]}}" in
{flags}
        esac
        COMPREPLY=($(compgen -W "$choices" -- "$word"))
    else
        COMPREPLY=($(compgen -f -- "$word"))
    fi
}}
complete -o filenames -F _jdfl jdfl
"""
_WIDE = "4000"  # characters of a line of help
_ZSH = "autoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit\n"
_FLAG = re.compile(r"--[a-z][a-z0-9.-]*")
_CHOICES = re.compile(r"(--[a-z][a-z0-9.-]*) (?:\[)?\{([^}]*)\}")


def script(shell: str, commands: Iterable[str], parsers: dict[str, Callable[[list[str]], object]]) -> str:
    """The script for "bash" or "zsh"; `parsers` are the commands' own, whose help tells their flags."""
    kinds: list[str] = []
    flags: list[str] = []
    for name, parse in parsers.items():
        text = " ".join(_help_of(parse).split())
        found = dict.fromkeys(_FLAG.findall(text))
        flags.append(f'            {name}) choices="{" ".join(found)}" ;;')
        for flag, choices in dict(_CHOICES.findall(text)).items():
            kinds.append(f'        "{name} {flag}") choices="{" ".join(choices.split(","))}" ;;')
    body = _BASH.format(commands=" ".join(commands), kinds="\n".join(kinds), flags="\n".join(flags))
    return _ZSH + body if shell == "zsh" else body


def completion(args: list[str], commands: Iterable[str], parsers: dict[str, Callable[[list[str]], object]]) -> None:
    """Print the script, or the help; ValueError for another shell."""
    if args in (["--help"], ["-h"]):
        print(_HELP, end="")
        return
    if len(args) != 1 or args[0] not in ("bash", "zsh"):
        raise ValueError(f"Expected `jdfl completion bash` or zsh, got {' '.join(args) or 'nothing'!r}.")
    print(script(args[0], commands, parsers), end="")


def _help_of(parse: Callable[[list[str]], object]) -> str:
    """The help of a command, as wide as it wants to be."""
    printed, before = io.StringIO(), os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = _WIDE  # or lists of kinds are broken
    try:
        with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
            parse(["--help"])
    finally:
        if before is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = before
    return printed.getvalue()
