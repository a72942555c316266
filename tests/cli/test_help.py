"""Help has at most 120 lines on a terminal of 80 columns, and no flag is missing from it."""

import json
import re
from typing import Any

import pytest

from jdfl.cli import NAMES, describing, flags_of, main, parse, schema
from jdfl.config.families import ALGORITHMS, CODECS, MECHANISMS, NETWORKS, PROBLEMS, STOPS, TIMES, UPDATES

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


@pytest.mark.parametrize("name", [*NAMES, "list", "completion"])
def test_every_command_has_short_help_with_a_line_for_every_general_flag(name, capsys):
    out = shown(capsys, name)
    if name not in NAMES:
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


def test_the_file_of_the_command_line_is_what_the_classes_say():
    """If not: python -m tools.register."""
    assert describing.schema() == json.loads(schema.FILE.read_text(encoding="utf-8"))


@pytest.mark.rotated(12)
@pytest.mark.parametrize(("place", "kind", "before"), KINDS, ids=lambda one: one if isinstance(one, str) else "")
def test_defaults_that_are_written_as_flags_change_nothing(place, kind, before):
    args = [*before, f"--{place}", kind]
    listed = flags_of("run", *args)
    for flag in listed:
        if flag.required:
            args += [f"--{flag.name}", *["1"] * (1 if flag.open else len(flag.types))]
    plain = parse("run", args)[1]
    for flag in listed:
        if flag.default not in (None, []) and not flag.required:
            values = flag.default if isinstance(flag.default, list) else [flag.default] if flag.types else []
            args += [flag.names[flag.default is False], *map(str, values)]
    assert parse("run", args)[1] == plain
