"""What every method, rule and attack was written from is a field."""

import dataclasses
import re
from typing import get_args

import jdfl
from jdfl import robust
from jdfl.algorithms import REGISTRY
from jdfl.base.settings import Provenance, documentation
from jdfl.cli.catalogue import catalogue
from jdfl.events import REGISTRY as EVENTS

KINDS = {**REGISTRY, **EVENTS, **robust.RULES, **robust.ATTACKS}
WORDS = get_args(get_args(Provenance)[0])
ITERATIVE = {"iterations", "inner", "products", "newton_steps", "cap"}  # settings that bound a solver's work


def test_every_registered_class_declares_its_own_and_the_list_shows_it():
    text = catalogue()
    for name, kind in KINDS.items():
        found = vars(kind).get("provenance", ())
        assert found, f"{name} declares none of its own"
        assert len(set(found) & set(WORDS)) == len(found), name
        assert re.search(rf"(?m)^  {re.escape(name)} .*\[{re.escape(', '.join(found))}\]$", text), name


def test_every_iterative_rule_has_a_tolerance_or_states_its_error():
    for kind in (*KINDS.values(), jdfl.OneBit):
        about, names = documentation(kind), {field.name for field in dataclasses.fields(kind)}
        assert "tolerance" in names or all("error" in about.get(name, "") for name in ITERATIVE & names), kind
