"""What methods, rules and attacks were written from is a field; the digest of what is computed has no names."""

import re
from typing import get_args

import jax
import jax.numpy as jnp
import numpy as np

import jdfl
from jdfl import robust
from jdfl.algorithms import GROUPS, REGISTRY
from jdfl.algorithms.program import planned
from jdfl.base import struct
from jdfl.base.settings import Provenance
from jdfl.cli import helping, load_schema
from jdfl.engine.provenance import computed, identity, settings_of
from jdfl.events import REGISTRY as EVENTS
from tests.later import Later

KINDS = {**REGISTRY, **EVENTS, **robust.RULES, **robust.ATTACKS}
WORDS = get_args(get_args(Provenance)[0])
RING = Later(jdfl.network.ring, 4)


def test_every_registered_class_declares_its_own_and_is_found_by_a_source_and_in_one_group():
    for name, kind in KINDS.items():
        found = vars(kind).get("provenance", ())
        assert found, f"{name} declares none of its own"
        assert len(set(found) & set(WORDS)) == len(found), name
    for word in WORDS:
        shown = re.findall(r"(?m)^  ([\w-]+)  ", helping.catalogue(load_schema(), [f"{word}"]))
        assert sorted(shown) == sorted(name for name, kind in KINDS.items() if word in kind.provenance), word
    assert sorted(" ".join(GROUPS.values()).split()) == sorted(REGISTRY)


def digest(algorithm, loss, steps=2):
    problem, network = jdfl.problems.from_loss(loss, jnp.zeros(3), np.ones((8, 3), np.float32), nodes=4), RING()
    return computed(planned(algorithm, problem, network, steps), problem, network)


def doubled(params, example):
    return jnp.sum(jax.jit(lambda a: a * 2)(params) * example)


def test_names_of_functions_and_variables_leave_the_digest_of_what_is_computed_alone_and_numbers_do_not():
    def verdoppelt(gewichte, beispiel):
        @jax.jit
        def doppelt(a):
            return a * 2

        zwischen = doppelt(gewichte) * beispiel
        return jnp.sum(zwischen)

    def tripled(params, example):
        return jnp.sum(jax.jit(lambda a: a * 3)(params) * example)

    one, renamed, other = (digest(jdfl.DPSGD(), loss) for loss in (doubled, verdoppelt, tripled))
    assert one == renamed != other
    told = settings_of(some={"b", "a"}, alike=[odd := ValueError(), odd])  # of any kind, in any order
    assert (told["some.0"], told["alike.1"], identity([3, 4.5])) == ("a", "as alike.0", "3 4.5")


@struct.dataclass
class Scheduled(jdfl.DPSGD):
    """One whose plan depends on the number of rounds, and on the records where it `reads`."""

    reads: bool = struct.field(pytree_node=False, default=False)

    def plan(self, problem, network, steps):
        return np.full(steps, jnp.sum(problem.data) if self.reads else problem.m, np.float32)


def test_a_plan_of_another_length_leaves_the_digest_alone_and_one_that_reads_no_data_is_known():
    assert digest(Scheduled(), doubled) == digest(Scheduled(), doubled, steps=5) != digest(jdfl.DPSGD(), doubled)
    problem = jdfl.problems.from_loss(doubled, jnp.zeros(3), np.ones((8, 3), np.float32), nodes=4)
    why = [planned(Scheduled(reads=reads), problem, RING(), 2).unproven for reads in (False, True)]
    assert why == ["", "its `plan` reads the records"]
