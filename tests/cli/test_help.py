"""Help has at most 120 lines on a terminal of 80 columns, and no flag is missing from it."""

import contextlib
import re
from typing import Any

import pytest
import tyro

from jdfl.cli import _COMMANDS, flags, flags_of, functions_of, main
from jdfl.config import ALGORITHMS, CODECS, MECHANISMS, NETWORKS, PROBLEMS, STOPS, TIMES, UPDATES

LIMIT = 120
FAMILIES = {"problem": PROBLEMS, "network": NETWORKS, "algorithm": ALGORITHMS, "stop": STOPS}
INNER = {  # families whose kinds are chosen inside another kind
    "algorithm.codec": (CODECS, ["--algorithm", "choco-sgd"]),
    "algorithm.mechanism": (MECHANISMS, ["--algorithm", "d-psgd"]),
    "algorithm.updates": (UPDATES, ["--algorithm", "d-psgd"]),
    "network.compute": (TIMES, ["--network", "timed"]),
    "network.base": (NETWORKS, ["--network", "link-loss"]),
}
KINDS = [(place, kind, []) for place, family in FAMILIES.items() for kind in family.sources]
KINDS += [(place, kind, before) for place, (family, before) in INNER.items() for kind in family.sources]


@pytest.fixture(autouse=True)
def narrow(monkeypatch):
    """A terminal of 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")


def shown(capsys: Any, *args: str) -> str:
    assert main([*args, "--help"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert len(out.splitlines()) <= LIMIT, f"{len(out.splitlines())} lines"
    return out


@pytest.mark.parametrize("name", [*_COMMANDS, "list", "completion"])
def test_every_command_has_short_help_with_a_line_for_every_general_flag(name, capsys):
    out = shown(capsys, name)
    if name not in _COMMANDS:
        return
    listed = flags_of(name)
    places = [flag.name for flag in listed if flag.kinds]
    for flag in listed:
        if not flag.positional and not any(flag.name.startswith(f"{place}.") for place in places):
            assert re.search(rf"^  --{re.escape(flag.name)}( |$)", out, re.MULTILINE), flag.name


@pytest.mark.parametrize("command", ["run", "compare", "sweep"])
def test_commands_name_and_describe_all_kinds(command, capsys):
    overview = " ".join(shown(capsys, command).split())
    for place, family in FAMILIES.items():
        many = "s" * (command == "compare" and place == "algorithm")
        out = shown(capsys, command, f"--{place}{many}")
        for kind in family.sources:
            assert kind in overview
            assert re.search(rf"^        {re.escape(kind)}( |$)", out, re.MULTILINE), kind


@pytest.mark.rotated(5)
@pytest.mark.parametrize(("place", "kind", "before"), KINDS, ids=lambda one: one if isinstance(one, str) else "")
def test_every_kind_explains_all_its_flags(place, kind, before, capsys):
    chosen = [*before, f"--{place}", kind]
    out = shown(capsys, "run", *before, f"--{place}={kind}")
    flat = " ".join(out.split())
    for flag in flags_of("run", *chosen):
        if flag.name.startswith(f"{place}."):
            assert f"--{flag.name}" in flat
            assert " ".join(flag.about.split()) in flat


def of_tyro(name: str, args: Any, capsys: Any, monkeypatch: Any) -> set[str]:
    """The flags that tyro itself knows, which parses them."""
    seen: list[Any] = []
    monkeypatch.setattr(flags, "_parsed", lambda args, kind, prog, **how: seen.append((kind, how)))
    monkeypatch.setattr(flags, "refuse_typos", lambda *_: None)
    with contextlib.suppress(AttributeError):  # of what was not parsed
        functions_of(name)[0](list(args))
    (kind, how) = seen[-1]
    capsys.readouterr()
    with pytest.raises(SystemExit):
        tyro.cli(kind, args=["--help"], **how)
    heads = re.findall(r"(?m)^[│| ]*(--[a-z][^ ,]+(?:, --[^ ,]+)*)", capsys.readouterr().out)
    return {word.rstrip(".") for head in heads for word in head.split(", ")} - {"--help"}  # or the end of a sentence


@pytest.mark.parametrize("name", _COMMANDS)
def test_the_list_of_flags_is_what_tyro_parses(name, capsys, monkeypatch):
    listed = {name for flag in flags_of(name) for name in flag.names}
    monkeypatch.setattr(flags, "read", lambda _: "steps: 3")
    args = ["somewhere"] if name in ("resume", "verify") else []
    assert of_tyro(name, args, capsys, monkeypatch) == listed


@pytest.mark.rotated(12)
@pytest.mark.parametrize(("place", "kind", "before"), KINDS, ids=lambda one: one if isinstance(one, str) else "")
def test_the_flags_of_every_kind_are_what_tyro_parses(place, kind, before, capsys, monkeypatch):
    args = [*before, f"--{place}", kind]
    listed = {name for flag in flags_of("run", *args) for name in flag.names}
    assert of_tyro("run", args, capsys, monkeypatch) == listed
