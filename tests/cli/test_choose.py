"""`jdfl choose`: what fits, what does not and why, and what its flags are."""

import dataclasses
import json
from functools import cache

import pytest

from jdfl.algorithms import REGISTRY
from jdfl.base.settings import documentation
from jdfl.cli import choose as command
from jdfl.cli import main
from jdfl.lab.choosing import PROPERTIES, Choice, choose

KNOWN = {  # by the papers: one that has the property, one that lacks it
    "directed": ("sgp", "d-psgd"),
    "changing": ("d-psgd", "choco-sgd"),
    "lossy": ("dsgt", "nids"),
    "late": ("sgp", "dsgt"),
    "compressed": ("choco-sgd", "d-psgd"),
    "exact": ("nids", "d-psgd"),
    "local_steps": ("dfedavgm", "nids"),
    "private": ("d-psgd", None),
    "personal": ("partpsp", "d-psgd"),
    "robust": ("robust-d-psgd", "d-psgd"),
}


@cache
def found(*asked: str) -> dict[str, Choice]:
    return {one.name: one for one in choose(*asked)}


def test_every_algorithm_is_chosen_where_nothing_is_asked():
    assert set(found()) == set(REGISTRY)
    assert all(one.fits for one in found().values())


@pytest.mark.parametrize("name", PROPERTIES)
def test_a_property_is_had_or_lacked_with_a_reason(name):
    has, lacks = KNOWN[name]
    assert found(name)[has].fits, found(name)[has].lacks
    if lacks is not None:
        assert found(name)[lacks].lacks.startswith(f"{name}: ")
    order = [one.fits for one in found(name).values()]
    assert order == sorted(order, reverse=True)
    assert all(len(one.lacks) > len(name) + 10 for one in found(name).values() if not one.fits)


@pytest.mark.parametrize("pair", [("directed", "lossy"), ("compressed", "exact"), ("private", "local_steps")])
def test_more_properties_leave_fewer_algorithms(pair):
    both = {name for name, one in found(*pair).items() if one.fits}
    for one in pair:
        assert both <= {name for name, choice in found(one).items() if choice.fits}
    assert both


def test_the_flags_are_the_properties():
    fields = {one.name for one in dataclasses.fields(command.Options)} - {"json"}
    assert fields == set(PROPERTIES)
    about = documentation(command.Options)
    assert {name: about[name].rstrip(".").lower() for name in PROPERTIES} == {
        name: text.lower() for name, text in PROPERTIES.items()
    }


def test_unknown_properties_are_refused():
    with pytest.raises(ValueError, match="compressed"):
        choose("compresed")


def test_the_command_prints_what_fits_and_what_the_others_lack(capsys):
    assert main(["choose", "--exact", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert {one["name"] for one in listed if not one["lacks"]} == {n for n, one in found("exact").items() if one.fits}
    assert main(["choose", "--exact"]) == 0
    text = capsys.readouterr().out
    fits, _, others = text.partition("\nthe others")
    assert "  nids " in fits
    assert " d-psgd," in others
    assert all(len(line) <= 80 for line in text.splitlines())


def test_nothing_fits_contradictory_wishes(capsys):
    assert main(["choose", "--late", "--changing"]) == 1
    assert "0 of " in capsys.readouterr().out


def test_the_first_property_that_is_missing_is_named():
    lacking = {name: one.lacks.partition(":")[0] for name, one in found("directed", "lossy").items() if not one.fits}
    assert {lacking[name] for name in ("d-psgd", "nids", "choco-sgd", "admm")} == {"directed"}
    assert lacking["directed-ceps"] == "lossy"


def test_without_properties_algorithms_are_ranked_by_those_that_they_have():
    counts = [len(one.has) for one in found().values()]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] > counts[-1]
    for name in ("directed", "late", "exact", "personal"):
        assert {one.name for one in found().values() if name in one.has} == {
            one.name for one in found(name).values() if one.fits
        }
