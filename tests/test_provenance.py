"""What every method, rule and attack was written from is a field, and not in its docstring."""

import dataclasses
import re
from pathlib import Path
from typing import get_args

import pytest

import jdfl
from jdfl import robust
from jdfl.algorithms import REGISTRY
from jdfl.base.settings import Provenance, documentation
from jdfl.cli.catalogue import catalogue
from jdfl.events import REGISTRY as EVENTS

KINDS = {**REGISTRY, **EVENTS, **robust.RULES, **robust.ATTACKS}
WORDS = get_args(get_args(Provenance)[0])
BESIDES = re.compile(r"(?i)from\s+memory|not\s+at\s+hand|only\s+the\s+abstract|code\s+of\s+others|paper\s+was\s+not")


def undeclared(kind: type) -> str:
    """What is wrong with the provenance of a class, "" if nothing is."""
    if "provenance" not in vars(kind):
        return f"{kind.__name__} declares none of its own"
    found = kind.provenance
    if not found or set(found) - set(WORDS) or len(set(found)) < len(found):
        return f"{kind.__name__} has {found}"
    if "no paper" in found and len(found) > 1:
        return f"{kind.__name__} has no paper and one"
    return ""


def beside(text: str) -> list[str]:
    """Words in a docstring that say what the field says."""
    return [" ".join(one.split()) for one in BESIDES.findall(text)]


def test_every_registered_class_declares_its_own():
    assert [wrong for kind in KINDS.values() if (wrong := undeclared(kind))] == []


def test_no_docstring_says_it_besides():
    package = Path(jdfl.__file__).parent
    said = {
        path.name: beside(re.sub(r"provenance: ClassVar.*", "", path.read_text()))
        for path in package.rglob("*.py")
        if path.name != "settings.py"  # which has the words
    }
    assert {name: words for name, words in said.items() if words} == {}


def test_the_list_shows_it():
    text = catalogue()
    for name, kind in KINDS.items():
        assert re.search(rf"(?m)^  {re.escape(name)} .*\[{re.escape(', '.join(kind.provenance))}\]$", text), name


def test_a_planted_class_is_seen():
    class Silent(jdfl.DPSGD):
        pass

    class Strange(jdfl.DPSGD):
        provenance = ("a dream",)

    assert [bool(undeclared(one)) for one in (Silent, Strange, jdfl.DPSGD)] == [True, True, False]
    assert beside("The update is from\nmemory of the paper.") == ["from memory"]


@pytest.mark.parametrize("own", [{}, {"provenance": ("paper read",)}])
def test_an_own_method_may(own):
    kind = type("Own", (jdfl.Algorithm,), own)
    assert kind.provenance == own.get("provenance", ())


ITERATIVE = {"iterations", "inner", "products", "newton_steps", "cap"}  # settings that bound a solver's work


def silent(kind: type) -> list[str]:
    """Numbers of iterations that say nothing of the error, of a class without a tolerance."""
    about, names = documentation(kind), {field.name for field in dataclasses.fields(kind)}
    bounds = ITERATIVE & names if "tolerance" not in names else set()
    return [f"{kind.__name__}.{name}" for name in bounds if "error" not in about.get(name, "")]


def test_every_iterative_rule_has_a_tolerance_or_states_its_error():
    kinds = [*KINDS.values(), jdfl.OneBit]
    assert sum(bool(ITERATIVE & {field.name for field in dataclasses.fields(kind)}) for kind in kinds) >= 7
    assert [one for kind in kinds for one in silent(kind)] == []

    @dataclasses.dataclass
    class Eight:
        iterations: int = 8
        """Iterations."""

    assert silent(Eight) == ["Eight.iterations"]
