"""`jdfl choose`: what fits, what does not and why, and what its flags are."""

import dataclasses
import json
import re

import pytest

from jdfl.algorithms import REGISTRY
from jdfl.cli import looking as command
from jdfl.cli import main
from jdfl.lab import choosing
from jdfl.lab.choosing import PROPERTIES, Choice, choose
from tests.refused import refused

KNOWN = {  # by the papers: one that has the property, one that lacks it
    "directed": ("sgp", "d-psgd"),
    "changing": ("d-psgd", "choco-sgd"),
    "lossy": ("dsgt", "nids"),
    "late": ("sgp", "dsgt"),
    "compressed": ("choco-sgd", "d-psgd"),
    "exact": ("nids", "d-psgd"),
    "local_steps": ("dfedavgm", "nids"),
    "private": ("cpgt", "admm"),
    "personal": ("partpsp", "d-psgd"),
    "robust": ("robust-d-psgd", "d-psgd"),
}


NAMES = {name for pair in KNOWN.values() for name in pair} | {"directed-ceps", "ceps", "dpdo"}


@pytest.fixture(autouse=True)
def few(monkeypatch):
    """As if there were these methods only."""
    monkeypatch.setattr(choosing, "REGISTRY", {name: kind for name, kind in REGISTRY.items() if name in NAMES})


def found(*asked: str) -> dict[str, Choice]:
    return {one.name: one for one in choose(*asked)}


def test_a_property_is_had_or_lacked_as_the_papers_say():
    everything = found()
    assert set(everything) == NAMES
    assert all(one.fits for one in everything.values())
    counts = [len(one.has) for one in everything.values()]  # ranked by the properties that they have
    assert counts == sorted(counts, reverse=True)
    assert counts[0] > counts[-1]
    assert set(KNOWN) == set(PROPERTIES)
    for name, (has, lacks) in KNOWN.items():
        assert name in everything[has].has
        assert name not in everything[lacks].has


def test_who_lacks_a_property_is_told_the_first_one_and_a_reason():
    both, everything = found("directed", "lossy"), found()
    assert [one.fits for one in both.values()] == sorted((one.fits for one in both.values()), reverse=True)
    for name, one in both.items():
        missing = [asked for asked in ("directed", "lossy") if asked not in everything[name].has]
        assert one.fits == (not missing)
        assert not missing or re.fullmatch(f"{missing[0]}: .{{10,}}", one.lacks)
    assert both["sgp"].fits
    assert choosing._lacks(choosing._smallest("cpgt"), frozenset({"private"})) == ""
    assert both["nids"].lacks.startswith("directed: ")
    assert both["directed-ceps"].lacks.startswith("lossy: ")


def test_the_flags_are_the_properties():
    assert [one.name for one in dataclasses.fields(command.Properties)] == [*PROPERTIES, "json"]
    with refused("compressed"):
        choose("compresed")


def test_the_command_prints_what_fits_and_what_the_others_lack(capsys):
    assert main(["choose", "--exact", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    fit = {one["name"] for one in listed if not one["lacks"]}
    assert fit == {name for name, one in found().items() if "exact" in one.has}
    assert main(["choose", "--exact"]) == 0
    text = capsys.readouterr().out
    fits, _, others = text.partition("\nthe others")
    assert "  nids " in fits
    assert " d-psgd," in others
    assert all(len(line) <= 80 for line in text.splitlines())
    assert main(["choose", "--late", "--changing"]) == 1  # which contradict one another
    assert "0 of " in capsys.readouterr().out
