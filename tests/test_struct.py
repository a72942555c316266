"""Structures of different classes are different, whatever their fields hold."""

import itertools

import jax
import pytest

from jdfl.algorithms import REGISTRY
from jdfl.base import struct


def test_classes_with_equal_fields_have_different_structures():
    for one, other in itertools.combinations([kind() for kind in REGISTRY.values()], 2):
        assert jax.tree.structure(one) != jax.tree.structure(other), (one, other)


def test_leaves_static_fields_and_paths():
    @struct.dataclass
    class Point:
        x: float
        name: str = struct.field(pytree_node=False, default="p")

    point = Point(2.0)
    assert jax.tree.leaves(point) == [2.0]
    assert jax.tree.map(lambda x: 2 * x, point) == Point(4.0)
    assert point.replace(name="q") == Point(2.0, "q")  # pyright: ignore
    assert jax.tree.structure(point) != jax.tree.structure(Point(2.0, "q"))
    with pytest.raises(AttributeError):
        point.x = 3.0  # pyright: ignore
