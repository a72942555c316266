"""Whether a run uses kernels of jdfl's own, and which of them its rounds have."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from jdfl.base.backend import Form, backend, offered
from jdfl.engine import loop, stepping
from jdfl.kernels import PREFIX


def form_of(asked: bool) -> Form | None:
    """How the kernels that a run asks for are executed; None: it asks for none.

    Raises ValueError on a backend that has none.
    """
    form = offered()
    if asked and form is None:
        raise ValueError(
            f"Expected a GPU with options.kernels = True, got the backend {backend()!r}. Leave kernels out: every one "
            "of them replaces a form that runs on all backends."
        )
    return form if asked else None


def used(setting: stepping.Setting) -> tuple[str, ...]:
    """The names of the kernels in a round's program, which is traced and not compiled, in alphabetical order."""
    program, carry, _ = jax.eval_shape(loop.start, setting, ())
    traced = jax.make_jaxpr(_round)(replace(setting, algorithm=program), carry.state)
    return tuple(sorted(set(_names(traced.jaxpr))))


def _round(setting: stepping.Setting, state: Any) -> Any:
    return stepping.step(setting, state, stepping.drawn(setting, jnp.int32(0)))


def _names(program: Any) -> Iterator[str]:
    for equation in program.eqns:
        name = str(equation.params.get("name"))
        if equation.primitive.name == "pallas_call" and name.startswith(PREFIX):
            yield name.removeprefix(PREFIX)
        for part in jax.tree.leaves(list(equation.params.values())):
            inner = getattr(part, "jaxpr", part)
            if hasattr(inner, "eqns"):
                yield from _names(inner)
