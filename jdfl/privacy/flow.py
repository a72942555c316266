"""Static verification that everything leaving a node is computed from noisy releases, on the program that JAX traced.

Every value is CLEAN (records of a node enter it only through an enforced release), BOUNDED (a public value plus a term
whose norm a clip bounds) or RAW. Records start RAW. A clip marks its result BOUNDED, a mechanism marks its result as
released, which turns BOUNDED into CLEAN, and a channel marks what it sends. Adding CLEAN values, and moving or
selecting rows, keep a label. Everything else done to a value that is not CLEAN makes it RAW: repeating it, a primitive
not known here, or a choice by a RAW condition. A claim holds if every message is CLEAN.

The marks are trusted: that a clip bounds, and that a mechanism's noise has the stated scale. A scaled value is RAW
again, so bounds are marked after the last scaling. Which nodes send in a round (`Round.publish`) is checked
like a message. Not covered: how long messages are.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, ClassVar

import jax
from jax import Array
from jax.ad_checkpoint import checkpoint_name
from jax.extend.core import ClosedJaxpr, Literal

_BOUNDED, _RELEASED, _MESSAGE, _NEAR = "jdfl.bounded", "jdfl.released", "jdfl.message: ", "jdfl_near"


class Label(IntEnum):
    """How a value depends on the records of a node; for several values, the largest label counts."""

    CLEAN = 0
    BOUNDED = 1
    RAW = 2


WHY = {
    Label.CLEAN: "",
    Label.BOUNDED: "has no noise",
    Label.RAW: "depends on records that nothing bounds or hides",
}


def bounded(x: Array) -> Array:
    """Mark x as a value that neighbouring data change by a bounded norm; for clips and proven bounds only."""
    return checkpoint_name(x, _BOUNDED)


def released(x: Array) -> Array:
    """Mark x as a value to which a mechanism has added its noise; for mechanisms only."""
    return checkpoint_name(x, _RELEASED)


def near(function: Callable[..., Array], x: Array, *rest: Any) -> Array:
    """`function(x, *rest)`, marked so that it is BOUNDED where x is; for mechanisms only.

    Args:
        function: A function that moves no two values of x further apart than the mechanism accounts for.
        x: The value that noise will be added to.
        rest: Other arguments, which hold no data.
    """

    def jdfl_near(x: Array, *rest: Any) -> Array:
        return function(x, *rest)

    return jax.jit(jdfl_near)(x, *rest)


def sent(x: Array, channel: str) -> Array:
    """Mark x as leaving a node on a channel."""
    return checkpoint_name(x, _MESSAGE + channel)


@dataclass
class Flow:
    """The result of walking through a program."""

    leaks: dict[str, str] = field(default_factory=dict)  # by channel: what made its message other than CLEAN
    noise_counts: ClassVar[bool] = True  # whether noise hides its argument; a law tests what is left without

    def walk(self, closed: ClosedJaxpr, labels: Sequence[Label]) -> list[Label]:
        """The labels of a program's results, given those of its arguments."""
        jaxpr = closed.jaxpr
        known: dict[Any, Label] = dict.fromkeys(jaxpr.constvars, Label.CLEAN)
        known.update(zip(jaxpr.invars, labels))

        def of(atom: Any) -> Label:
            return Label.CLEAN if isinstance(atom, Literal) else known[atom]

        for equation in jaxpr.eqns:
            given = [of(atom) for atom in equation.invars]
            known.update(zip(equation.outvars, self._results(equation, given)))
        return [of(atom) for atom in jaxpr.outvars]

    def _results(self, equation: Any, given: list[Label]) -> list[Label]:
        name, params, worst = equation.primitive.name, equation.params, max(given, default=Label.CLEAN)
        if params.get("name") == _NEAR:
            return [given[0] if max(given[1:], default=Label.CLEAN) == Label.CLEAN else Label.RAW]
        inner = _INNER.get(name)
        if inner is not None and isinstance(params.get(inner), ClosedJaxpr):
            return self.walk(params[inner], given)
        if name == "scan":
            return self._scan(equation, given)
        if name == "while":
            return self._while(params, given)
        if name == "cond":
            branches = [self.walk(branch, given[1:]) for branch in params["branches"]]
            return [max(given[0] and Label.RAW, *one) for one in zip(*branches)]
        if name == "optimization_barrier":
            return given
        if name == "name":
            return [self._marked(params["name"], worst)]
        if worst > Label.CLEAN and not _keeps(equation, given):
            worst = Label.RAW
        return [worst] * len(equation.outvars)

    def _marked(self, mark: str, label: Label) -> Label:
        if mark == _BOUNDED:
            return min(label, Label.BOUNDED)
        if mark == _RELEASED:
            return Label.CLEAN if label <= Label.BOUNDED and self.noise_counts else label
        if mark.startswith(_MESSAGE) and label > Label.CLEAN:
            self.leaks.setdefault(mark.removeprefix(_MESSAGE), WHY[label])
        return label

    def _scan(self, equation: Any, given: list[Label]) -> list[Label]:
        body = equation.params["jaxpr"]
        carried = len(equation.outvars) - _stacked(equation.outvars, body.jaxpr.outvars)
        consts = len(given) - _stacked(equation.invars, body.jaxpr.invars) - carried
        carry = given[consts : consts + carried]
        while True:
            out = self.walk(body, [*given[:consts], *carry, *given[consts + carried :]])
            wider = [max(pair) for pair in zip(carry, out)]
            if wider == carry:
                break
            carry = wider
        # A stacked result may hold a bounded value in every row, unless every row comes from a different value.
        again = [label and Label.RAW for label in (*given[:consts], *carry)]
        worst = Flow().walk(body, [*again, *given[consts + carried :]])
        return [*carry, *(label and other for label, other in zip(out[carried:], worst[carried:]))]

    def _while(self, params: Any, given: list[Label]) -> list[Label]:
        outer, inner = params["cond_nconsts"], params["body_nconsts"]
        carry = given[outer + inner :]
        while True:
            out = self.walk(params["body_jaxpr"], [*given[outer : outer + inner], *carry])
            (goes_on,) = self.walk(params["cond_jaxpr"], [*given[:outer], *carry])
            wider = [max(goes_on and Label.RAW, *pair) for pair in zip(carry, out)]
            if wider == carry:
                return carry
            carry = wider


def _stacked(outer: Sequence[Any], inner: Sequence[Any]) -> int:
    """How many values of a scan have an extra axis outside its body, determined in a way common to all JAX versions."""
    return sum(one.aval.ndim > other.aval.ndim for one, other in zip(outer, inner))


def leaking(
    started: ClosedJaxpr, going: ClosedJaxpr, data: list[Label], leaves: int
) -> tuple[dict[str, str], list[Label]]:
    """The leaking channels of a run, with reasons, and the labels of all outputs.

    Args:
        started: the program from data to an initial state of `leaves` arrays, and further outputs.
        going: the program from state and data to the next state and the same outputs.
        data: the labels of the data.
        leaves: the number of arrays of a state.
    """
    flow = Flow()
    known = flow.walk(started, data)
    while True:
        new = flow.walk(going, [*known[:leaves], *data])
        wider = [max(pair) for pair in zip(known, new)]
        if wider == known:
            return flow.leaks, known
        known = wider


_INNER = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "core_call": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "remat2": "jaxpr",
    "checkpoint": "jaxpr",
}
_MOVES = {  # primitives that move their first argument as directed by the others
    "broadcast_in_dim",
    "convert_element_type",
    "copy",
    "dynamic_slice",
    "expand_dims",
    "neg",
    "pad",
    "reshape",
    "rev",
    "slice",
    "squeeze",
    "stop_gradient",
    "transpose",
}


def _keeps(equation: Any, given: list[Label]) -> bool:
    """Whether a primitive leaves its arguments' labels unchanged; repetition increases the norm."""
    name = equation.primitive.name
    if name in ("add", "add_any", "sub"):
        return min(given) == Label.CLEAN
    if name == "select_n":
        return given[0] == Label.CLEAN and sum(label > Label.CLEAN for label in given) == 1
    if name == "concatenate":
        return sum(label > Label.CLEAN for label in given) == 1
    if name in ("scatter", "dynamic_update_slice"):  # these write into their first argument
        old, new, place = given[0], *((given[2], given[1:2]) if name == "scatter" else (given[1], given[2:]))
        return min(old, new) == Label.CLEAN and max(place, default=Label.CLEAN) == Label.CLEAN
    if name not in _MOVES or (equation.outvars[0].aval.size > equation.invars[0].aval.size and name != "pad"):
        return False
    return max(given[1:], default=Label.CLEAN) == Label.CLEAN
