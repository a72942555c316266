"""Former names of modules are refused with the new one."""

from importlib import import_module

import pytest

import jdfl
from jdfl._moved import MOVED, OF_BASE
from jdfl.algorithms.moment import Moment
from jdfl.arrays import ops
from jdfl.engine.contents import held
from jdfl.engine.placement import placed
from jdfl.engine.runner import run
from jdfl.network.graph import Graph


@pytest.mark.parametrize(("old", "new"), MOVED.items())
def test_a_former_name_is_refused_with_the_new_one(old, new):
    with pytest.raises(ModuleNotFoundError, match=rf"^{old} is now {new} \(change the import; ") as error:
        import_module(old)
    assert error.value.name == old
    import_module(new)


@pytest.mark.parametrize("old", [old for old in MOVED if old.count(".") == 1])
def test_so_it_is_from_the_package_but_for_public_names(old):
    name = old.removeprefix("jdfl.")
    if name in jdfl.__all__:
        assert getattr(jdfl, name) is not None
        return
    with pytest.raises(ModuleNotFoundError, match=f"^{old} is now {MOVED[old]} "):
        exec(f"from jdfl import {name}")


@pytest.mark.parametrize(("name", "new"), OF_BASE.items())
def test_so_it_is_for_what_was_in_base(name, new):
    with pytest.raises(ModuleNotFoundError, match=f"^jdfl.base.{name} is now {new} "):
        exec(f"from jdfl.base import {name}")
    module, _, last = new.rpartition(".")
    assert hasattr(import_module(module), last)
    with pytest.raises(AttributeError, match="nothing"):
        import_module("jdfl.base").nothing  # noqa: B018


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (Moment, "jdfl.base.Moment"),
        (ops, "jdfl.ops"),
        (ops.length, "jdfl.ops.length"),
        (placed, "jdfl.devices.placement.placed"),
        (run.__wrapped__, "jdfl.runner.run"),
        (Graph, "jdfl.network.graph.Graph"),
    ],
)
def test_what_is_hashed_counts_on_under_its_former_name_so_that_runs_keep_their_noise(value, name):
    assert held(value)[0] == name
