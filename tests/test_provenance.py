"""What every method, rule and attack was written from is a field, and not in its docstring."""

import dataclasses
import re
from pathlib import Path
from typing import get_args

import jdfl
from jdfl import robust
from jdfl.algorithms import REGISTRY
from jdfl.base.settings import Provenance, documentation
from jdfl.cli.catalogue import catalogue
from jdfl.events import REGISTRY as EVENTS

KINDS = {**REGISTRY, **EVENTS, **robust.RULES, **robust.ATTACKS}
WORDS = get_args(get_args(Provenance)[0])
BESIDES = re.compile(r"(?i)from\s+memory|not\s+at\s+hand|only\s+the\s+abstract|code\s+of\s+others|paper\s+was\s+not")
ITERATIVE = {"iterations", "inner", "products", "newton_steps", "cap"}  # settings that bound a solver's work


def test_every_registered_class_declares_its_own_and_the_list_shows_it():
    text = catalogue()
    for name, kind in KINDS.items():
        found = vars(kind).get("provenance", ())
        assert found, f"{name} declares none of its own"
        assert len(set(found) & set(WORDS)) == len(found), name
        assert "no paper" not in found or len(found) == 1, name
        assert re.search(rf"(?m)^  {re.escape(name)} .*\[{re.escape(', '.join(found))}\]$", text), name
    own = type("Own", (jdfl.Algorithm,), {"provenance": ("paper read",)})
    assert (own.provenance, type("Own", (jdfl.Algorithm,), {}).provenance) == (("paper read",), ())


def test_no_docstring_says_it_besides():
    for path in Path(jdfl.__file__).parent.rglob("*.py"):
        if path.name != "settings.py":  # which has the words
            assert not BESIDES.findall(re.sub(r"provenance: ClassVar.*", "", path.read_text())), path


def test_every_iterative_rule_has_a_tolerance_or_states_its_error():
    tried = 0
    for kind in (*KINDS.values(), jdfl.OneBit):
        about, names = documentation(kind), {field.name for field in dataclasses.fields(kind)}
        tried += bool(ITERATIVE & names)
        assert "tolerance" in names or all("error" in about.get(name, "") for name in ITERATIVE & names), kind
    assert tried >= 7
