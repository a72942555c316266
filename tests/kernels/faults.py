"""Kernels with planted faults: their modules with one piece of source replaced."""

import inspect
from types import ModuleType


def planted(module: ModuleType, right: str, wrong: str) -> ModuleType:
    """The module with `wrong` in place of `right`, which it has once."""
    source = inspect.getsource(module)
    assert source.count(right) == 1, (right, source.count(right))
    found = ModuleType(module.__name__)
    exec(compile(source.replace(right, wrong), module.__file__ or "", "exec"), found.__dict__)
    return found


def primitives(program) -> set[str]:
    """The names of all primitives in a traced program, and in those within it."""
    found = set()
    for equation in program.eqns:
        found.add(equation.primitive.name)
        for value in equation.params.values():
            for part in value if isinstance(value, tuple) else (value,):
                inner = getattr(part, "jaxpr", part)
                found |= primitives(inner) if hasattr(inner, "eqns") else set()
    return found
