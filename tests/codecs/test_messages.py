"""Subsets by their numbers, and damaged messages."""

from itertools import combinations
from math import comb

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jdfl
from jdfl.codecs import packing
from jdfl.codecs.packing import floats
from tests.codecs.test_codecs import CODECS, N, S, codecs, encode, first, prepare, sent, sparse_rows
from tests.refused import refused


def test_numbers_of_subsets_are_all_those_below_their_count():
    for n, s in ((7, 1), (7, 3), (6, 6), (9, 0)):
        numbers = [packing.rank(list(places), n) for places in combinations(range(n), s)]
        assert sorted(numbers) == list(range(comb(n, s)))
        assert [tuple(packing.unrank(number, n, s)) for number in numbers] == list(combinations(range(n), s))


@given(st.data())
def test_subsets_of_any_size_come_back(data):
    n = data.draw(st.integers(1, 3000))
    places = np.sort(data.draw(st.lists(st.integers(0, n - 1), max_size=60, unique=True).map(np.array))).astype(int)
    for index in ("plain", "enumerative"):
        subset = packing.subset(n, len(places), index)
        packed = subset.write(places)
        assert len(packed) == subset.bits
        np.testing.assert_array_equal(subset.read(packed), places)


def test_places_that_are_no_subset_are_refused():
    wrong = {"3 before 2": [3, 2, 5], f"{N} at place 2": [2, 3, N], "-1 at place 0": [-1, 3, 4]}
    for index in ("plain", "enumerative"):
        for named, places in (*wrong.items(), ("whole", [0.0, 1.0, 2.0])):
            with refused(named):
                jdfl.Sparse(index=index).pack((np.array(places), np.ones(3, np.float32)), N, S)
    plain, numbered = jdfl.Sparse(s=3), jdfl.Sparse(s=3, index="enumerative")
    values = floats(3).write(np.ones(3))
    for named, places in {"4 before 4": [4, 4, 9], "63": [1, 2, 63]}.items():
        with refused(named):
            plain.unpack(packing.join(packing.from_integers(np.array(places), 6), values), N)
    width = packing.subset(N, 3, "enumerative").bits
    with refused("subset"):
        numbered.unpack(packing.join(packing.from_large(2**width - 1, width), values), N)


@pytest.mark.parametrize(("value", "width", "most"), [("int8", 8, 127), ("int4", 4, 7)])
def test_levels_and_scales_that_do_not_exist_are_refused(value, width, most):
    codec = jdfl.Sparse(s=3, value=value)
    places = packing.from_integers(np.array([1, 2, 3]), 6)
    good, one = packing.from_integers(np.array([1, 5, 9]), width), floats().write(np.ones(()))
    assert codec.unpack(packing.join(places, good, one), N)[1].tolist() == [v - most - 1 for v in (1, 5, 9)]
    with refused("levels"):
        codec.unpack(packing.join(places, 0 * good, one), N)
    with refused("scale"):
        codec.unpack(packing.join(places, good, floats().write(-np.ones(()))), N)
    with refused("levels"):
        codec.pack((np.array([1, 2, 3]), np.array([0, 0, most + 1]), np.float32(1)), N)


def test_norms_and_fillings_that_do_not_exist_are_refused():
    codec = jdfl.OneBit(d=81)
    data = codec.pack(first(encode(prepare(codec).rows(jnp.array([0])), sparse_rows(0)[:1])), N)
    with refused("145 bits"):
        codec.unpack(data[:-1] + bytes([data[-1] | 1]), N)
    with refused("norm"):
        codec.unpack(data[:7] + bytes([data[7] | 128]) + data[8:], N)
    with refused("finite"):
        codec.unpack(b"\xff" * 8 + data[8:], N)


@codecs
def test_a_message_is_packed_alone(name):
    codec, payload = CODECS[name], first(sent(name)[1])
    batch = jax.tree.map(lambda leaf: np.stack([leaf, leaf]), payload)
    with refused("one message at a time"):
        codec.pack(batch, N, S)
