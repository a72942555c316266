"""Unknown flags, kinds and words on the command line: a one-line error that suggests the right one."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from jdfl.base import checks, suggest
from jdfl.cli.listing import Flag

_SHOWN = 3  # kinds that are named


def refuse_typos(args: Sequence[str], listed: Sequence[Flag], prog: str) -> None:
    """Raise ValueError for a flag that a command does not have, and for a word that a flag does not take."""
    known = {name: flag for flag in listed for name in flag.names}
    for i, word in enumerate(args):
        if not word.startswith("--") or word == "--":
            continue
        name, equals, value = word.partition("=")
        flag = known.get(name.replace("_", "-"))
        if flag is None:
            raise ValueError(_unknown(name, listed, prog))
        if not flag.choices:
            continue
        values = [value] if equals else list(_following(args[i + 1 :], flag.several))
        for one in values:
            checks.one_of(flag.choices, **{f"--{flag.name}": one})


def _following(words: Sequence[str], several: bool) -> Iterator[str]:
    """The values that follow a flag."""
    for word in words if several else words[:1]:
        if word.startswith("-"):
            return
        yield word


def _unknown(given: str, listed: Sequence[Flag], prog: str) -> str:
    """The message about a flag that is not there."""
    name = given.removeprefix("--").replace("_", "-")
    here = {flag.name: "" for flag in listed if not flag.positional}
    there = {path: kinds for path, kinds in _of_other_kinds(listed).items() if path not in here}
    all_of_them = here | there
    meant = name if name in there else closest_flag(name, list(here), list(there))
    if meant is None:
        return f"Unknown flag {given} of {prog}. See {prog} --help."
    owner = all_of_them[meant]
    if not owner:
        return f"Unknown flag {given} of {prog}. Did you mean --{meant}?"
    if meant == name:
        return f"Expected {given} with {owner} only, got it without. See {prog} {given.rpartition('.')[0]} --help."
    return f"Unknown flag {given} of {prog}. Did you mean --{meant}, a flag of {owner}?"


def _of_other_kinds(listed: Sequence[Flag]) -> dict[str, str]:
    """Flags of kinds that are not chosen, each with the kinds that have it, in words."""
    found: dict[str, list[str]] = {}
    for flag in listed:
        for kind, cls in flag.kinds.items() if not flag.several else ():
            fields: Any = () if cls is None else dataclasses.fields(cls)
            for one in fields:
                found.setdefault(f"{flag.name}.{one.name.replace('_', '-')}", []).append(kind)
    words: dict[str, str] = {}
    for path, kinds in found.items():
        more = f" and {len(kinds) - _SHOWN} more" if len(kinds) > _SHOWN else ""
        words[path] = f"--{path.rpartition('.')[0]} {', '.join(kinds[:_SHOWN])}{more}"
    return words


def closest_flag(name: str, here: Sequence[str], there: Sequence[str]) -> str | None:
    """The flag that was probably meant, without its dashes; None where no flag is close."""
    above, _, last = name.rpartition(".")
    for flags in (here, there):
        exact = [flag for flag in flags if suggest.plain(flag) == suggest.plain(name)]
        words = [suggest.plain(one) for one in (last, *suggest.meanings(last))]
        same = [flag for flag in flags if flag.rpartition(".")[0] == above]
        for place in (same, flags):
            for word in words:
                exact += sorted((one for one in place if suggest.plain(one.rpartition(".")[2]) == word), key=_depth)
        if exact:
            return exact[0]
    for flags in (here, there):
        ends = {flag.rpartition(".")[2]: flag for flag in flags if flag.rpartition(".")[0] == above}
        if (found := suggest.closest(last, ends)) is not None:
            return ends[found]
    return suggest.closest(name, here) or suggest.closest(name, there)


def _depth(flag: str) -> int:
    return flag.count(".")
