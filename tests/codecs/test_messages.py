"""Subsets by their numbers, damaged messages, sealed messages."""

from itertools import combinations
from math import comb

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jdfl
from jdfl.codecs import packing, seal, subsets, unseal
from jdfl.codecs.packing import floats
from tests.codecs.test_codecs import CODECS, N, S, encode, first, prepare, sparse_rows

codecs = pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)


@pytest.mark.parametrize(("n", "s"), [(1, 1), (7, 1), (7, 3), (6, 6), (9, 0)])
def test_numbers_of_subsets_are_all_those_below_their_count(n, s):
    numbers = [subsets.rank(list(places), n) for places in combinations(range(n), s)]
    assert sorted(numbers) == list(range(comb(n, s)))
    assert [tuple(subsets.unrank(number, n, s)) for number in numbers] == list(combinations(range(n), s))


@given(st.data())
def test_subsets_of_any_size_come_back(data):
    n = data.draw(st.integers(1, 3000))
    places = np.sort(data.draw(st.lists(st.integers(0, n - 1), max_size=60, unique=True).map(np.array))).astype(int)
    for index in ("plain", "enumerative"):
        subset = subsets.subset(n, len(places), index)
        packed = subset.write(places)
        assert len(packed) == subset.bits
        np.testing.assert_array_equal(subset.read(packed), places)


def test_enumeration_needs_the_fewest_bits():
    assert subsets.subset(1000, 10, "enumerative").bits == 78  # log2 C(1000, 10) = 77.8
    assert subsets.subset(1000, 10, "plain").bits == 100
    assert subsets.subset(20_958, 50, "enumerative").bits == int(np.ceil(np.log2(float(comb(20_958, 50)))))
    assert subsets.subset(5, 5, "enumerative").bits == 0


@pytest.mark.parametrize("index", ["plain", "enumerative"])
@pytest.mark.parametrize(
    ("places", "words"),
    [
        ([3, 2, 5], "3 before 2"),
        ([2, 2, 5], "2 before 2"),
        ([2, 3, N], f"got {N} at place 2"),
        ([-1, 3, 4], "got -1 at place 0"),
        ([0.0, 1.0, 2.0], "whole numbers"),
    ],
)
def test_places_that_are_no_subset_are_refused(index, places, words):
    with pytest.raises(ValueError, match=words):
        jdfl.Sparse(index=index).pack((np.array(places), np.ones(3, np.float32)), N, S)


def test_bytes_that_name_no_subset_are_refused():
    plain, numbered = jdfl.Sparse(s=3), jdfl.Sparse(s=3, index="enumerative")
    values = floats(3).write(np.ones(3))
    for places, words in (([4, 4, 9], "4 before 4"), ([9, 4, 12], "9 before 4"), ([1, 2, 63], "got 63")):
        with pytest.raises(ValueError, match=words):
            plain.unpack(packing.join(packing.from_integers(np.array(places), 6), values), N)
    width = subsets.subset(N, 3, "enumerative").bits
    largest = packing.from_large(2**width - 1, width)
    with pytest.raises(ValueError, match="subset's number below"):
        numbered.unpack(packing.join(largest, values), N)


@pytest.mark.parametrize(("value", "width", "most"), [("int8", 8, 127), ("int4", 4, 7)])
def test_levels_and_scales_that_do_not_exist_are_refused(value, width, most):
    codec = jdfl.Sparse(s=3, value=value)
    places = packing.from_integers(np.array([1, 2, 3]), 6)
    good, one = packing.from_integers(np.array([1, 5, 9]), width), floats().write(np.ones(()))
    assert codec.unpack(packing.join(places, good, one), N)[1].tolist() == [v - most - 1 for v in (1, 5, 9)]
    with pytest.raises(ValueError, match="levels"):
        codec.unpack(packing.join(places, 0 * good, one), N)
    with pytest.raises(ValueError, match="scale >= 0"):
        codec.unpack(packing.join(places, good, floats().write(-np.ones(()))), N)
    with pytest.raises(ValueError, match="levels"):
        codec.pack((np.array([1, 2, 3]), np.array([0, 0, most + 1]), np.float32(1)), N)


def test_norms_and_fillings_that_do_not_exist_are_refused():
    codec = jdfl.OneBit(d=81)
    data = codec.pack(first(encode(prepare(codec).rows(jnp.array([0])), sparse_rows(0)[:1])), N)
    with pytest.raises(ValueError, match="zeros after the 145 bits"):
        codec.unpack(data[:-1] + bytes([data[-1] | 1]), N)
    with pytest.raises(ValueError, match="norm >= 0"):
        codec.unpack(data[:7] + bytes([data[7] | 128]) + data[8:], N)
    with pytest.raises(ValueError, match="finite"):
        codec.unpack(b"\xff" * 8 + data[8:], N)


@codecs
def test_a_batch_is_not_taken_for_a_message(codec):
    with pytest.raises(ValueError, match="one message at a time"):
        codec.pack(encode(prepare(codec), sparse_rows(0)), N, S)


@codecs
@given(st.data())
def test_sealed_messages_come_back_and_damage_is_noticed(codec, data):
    payload = first(encode(prepare(codec), sparse_rows(5)))
    sealed = seal(codec, payload, N, S)
    assert sealed[:-4] == codec.pack(payload, N, S)
    bit = data.draw(st.integers(0, 8 * len(sealed) - 1))
    changed = bytearray(sealed)
    changed[bit // 8] ^= 1 << bit % 8
    cut = data.draw(st.integers(0, len(sealed) - 1))
    for wrong in (bytes(changed), sealed[:cut], sealed + b"\0"):
        with pytest.raises(ValueError, match=r"checksum.*damaged"):
            unseal(codec, wrong, N, S)
    with pytest.raises(ValueError, match="checksum"):
        unseal(codec, sealed, N + 1, S)
    for one, other in zip(jax.tree.leaves(payload), jax.tree.leaves(unseal(codec, sealed, N, S))):
        np.testing.assert_array_equal(np.asarray(one), other)
