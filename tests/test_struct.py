"""Structures of different classes are different, whatever their fields hold."""

import itertools

import jax
import pytest

from jdfl.algorithms import REGISTRY
from jdfl.base import struct


def test_classes_with_equal_fields_have_different_structures():
    for one, other in itertools.combinations([kind() for kind in REGISTRY.values()], 2):
        assert jax.tree.structure(one) != jax.tree.structure(other), (one, other)


def test_a_jitted_function_never_gives_back_another_class():
    same = jax.jit(lambda value: value)
    for _ in range(10):
        pair = [struct.dataclass(type(name, (), {"__annotations__": {"x": float}, "x": 1.0})) for name in "AB"]
        assert [type(same(kind())) for kind in pair] == pair


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
    assert jax.tree_util.keystr(jax.tree_util.tree_leaves_with_path(point)[0][0]) == ".x"
    with pytest.raises(AttributeError):
        point.x = 3.0  # pyright: ignore
