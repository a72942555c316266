"""Docstrings of all public names: `tests.docs.public` says which these are, `tests.docs.rules` what is asked of them.

`pytest tests/docs/test_docstrings.py -s` prints how many names keep each rule.
"""

import inspect

import pytest

import jdfl
from jdfl import codecs, network
from jdfl.algorithms import REGISTRY
from jdfl.privacy import mechanisms
from tests.docs.public import Name, names
from tests.docs.rules import RULES

_OF_PAPERS = {  # whose docstrings, or modules, name a source
    *REGISTRY.values(),
    *(getattr(codecs, name) for name in codecs.__all__ if inspect.isclass(getattr(codecs, name))),
    mechanisms.Gaussian,
    mechanisms.Laplace,
}
_NOT_OF_PAPERS = {codecs.Codec, codecs.Wire, codecs.Dense, REGISTRY["local-only"]}  # nobody's
# Of networks; the others are nobody's, such as rings, or this library's, such as wrappers.
_FAMILIES = (
    *("barabasi_albert", "base_graph", "bursty_loss", "d_cliques", "d_out", "de_bruijn", "equi_rounds"),
    *("equi_static", "erdos_renyi", "erdos_renyi_rounds", "exponential", "hyper_hypercube", "k_regular", "matcha"),
    *("one_peer_exponential", "random_geometric", "random_matching", "stl_fw", "watts_strogatz"),
)


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule != "source"])
def test_docstrings_say_all_that_is_asked_of_them(rule):
    _all_keep(rule, names())


def test_algorithms_codecs_networks_and_mechanisms_name_their_source():
    kinds = (_OF_PAPERS - _NOT_OF_PAPERS) | {inspect.unwrap(getattr(network, name)) for name in _FAMILIES}
    chosen = [one for one in names() if one.value in kinds]
    assert len(chosen) == len(kinds)
    _all_keep("source", chosen)


def test_nothing_public_is_left_out():
    known = {one.value for one in names()}
    public = [getattr(jdfl, name) for name in jdfl.__all__ if not inspect.ismodule(getattr(jdfl, name))]
    assert [one for one in public if inspect.unwrap(one) not in known] == []
    assert len(known) > 800


def _all_keep(rule: str, chosen) -> None:
    wanting: dict[Name, list[str]] = {one: list(RULES[rule](one)) for one in chosen}
    wanting = {one: what for one, what in wanting.items() if what}
    print(f"{rule}: {1 - len(wanting) / len(chosen):.1%} of {len(chosen)} public names")
    assert not wanting, "\n".join(f"{one}: {', '.join(what)}" for one, what in wanting.items())
