"""Static verification that everything leaving a node is computed from noisy releases, on the program that JAX traced.

Every value is CLEAN (records of a node enter it only through releases), BOUNDED (a public value plus a term whose norm
a clip bounds, row by row) or RAW. Records start RAW. Marks of the library (`jdfl.base.marking`) say what a clip, a
sensitivity or a noise is; each is believed only as far as the values that it was made of allow:

- A clip bounds the gradients of the records as they are, at CLEAN parameters; a clip of whole rows also those at
  parameters whose rows depend on their own node's records alone.
- Noise makes a BOUNDED value CLEAN if its scale is the library's sensitivity for that very clip, unchanged, if it is
  drawn from its own private stream, which enters nothing else, and if the program draws it exactly as often as booked.
- Whatever else is done to a value that is not CLEAN makes it RAW, unless it keeps every row in place and no norm grows.

A claim holds if every message is CLEAN and reveals no noise. Which nodes send (`Round.publish`) is checked like a
message. Not covered: how long messages are, and that a mechanism's noise has the law that it states.
"""

from collections.abc import Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Literal
from jax.extend.core import primitives as lax

from jdfl.base import marking
from jdfl.base.streams import Stream


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
Secret = tuple[str, int | None]  # the root and number of a stream; None: any
NOTHING: frozenset[Secret] = frozenset()
_ANY = -1  # in place of the number of a stream: what was drawn from a root other than as the streams do


class Value(NamedTuple):
    """What is known of a value of the program."""

    label: Label = Label.CLEAN
    own: bool = False  # not CLEAN: whether row i depends on the records of node i alone
    intact: bool = False  # not CLEAN, or weights: an array of records as it was given, or rows of it
    fact: Any = None  # BOUNDED: its bound; CLEAN: the `Scale`, or the number that it is
    secrets: frozenset[Secret] = NOTHING  # the private streams whose draws enter


@dataclass(frozen=True)
class Scale:
    """A sensitivity, as the library's `source` has computed it."""

    source: Any


@dataclass(frozen=True, eq=False)
class Booking:
    """Noise as a step has booked it: once for every turn of the loops around it."""

    stream: Stream  # its own, which is private
    look: int = 0  # its number among the releases of one sample
    turns: tuple[int | None, ...] = ()  # of the library's loops around it; None: blocks of nodes
    mechanism: Any = None  # with settings that are not traced
    honest: bool = True  # whether it has the law of its event by the library's own code
    each: bool = True  # whether every local step makes it, not only that after an exchange


RECORDS = Value(Label.RAW, own=True, intact=True)
WEIGHTS = Value(intact=True)


def private(root: str) -> Value:
    """A key of a root: draws of the others are known to receivers."""
    return Value(secrets=frozenset({(root, None)}) if root in ("private", "run") else NOTHING)


@dataclass
class Flow:
    """The result of walking through a program."""

    leaks: dict[str, str] = field(default_factory=dict)  # by channel: what made its message other than CLEAN
    shown: dict[str, frozenset[Secret]] = field(default_factory=dict)  # by channel: secrets in its messages
    noises: dict[Booking, dict[Any, tuple[int | None, ...]]] = field(default_factory=dict)  # places, and loops there
    faults: dict[Booking, str] = field(default_factory=dict)  # noise that hides nothing, and why
    unproven: dict[Booking, str] = field(default_factory=dict)  # noise whose bound or scale only its author knows
    sources: dict[Booking, Any] = field(default_factory=dict)  # what computed the sensitivity of noise
    problem: Any = None  # the structure of the problem, whose losses alone clips are believed for; None: any
    arrays: list[Any] = field(default_factory=list)  # constants of the program
    place: tuple[Any, ...] = ()  # the equations that the walk is in
    turns: tuple[int | None, ...] = ()  # of the loops that it is in; None: any number
    noise_counts: ClassVar[bool] = True  # whether noise hides its argument; a law tests what is left without

    def walk(self, closed: Any, values: Sequence[Value]) -> list[Value]:
        """The values of a program's results, given those of its arguments."""
        jaxpr, consts = (closed.jaxpr, closed.consts) if isinstance(closed, ClosedJaxpr) else (closed, ())
        known: dict[Any, Value] = {var: self._constant(const) for var, const in zip(jaxpr.constvars, consts)}
        known.update(zip(jaxpr.invars, values, strict=True))

        def of(atom: Any) -> Value:
            return Value(fact=atom.val) if isinstance(atom, Literal) else known[atom]

        for equation in jaxpr.eqns:
            given = [of(atom) for atom in equation.invars]
            known.update(zip(equation.outvars, self._results(equation, given)))
        return [of(atom) for atom in jaxpr.outvars]

    def _constant(self, const: Any) -> Value:
        if np.ndim(const) and not any(const is one for one in self.arrays):
            self.arrays.append(const)
        plain = not np.ndim(const) and not jnp.issubdtype(getattr(const, "dtype", np.int32), jax.dtypes.extended)
        return Value(fact=const if plain else None)

    @contextmanager
    def _inside(self, equation: Any, *turns: int | None) -> Any:
        before = self.place, self.turns
        self.place, self.turns = (*self.place, id(equation)), (*self.turns, *turns)
        yield
        self.place, self.turns = before

    def _results(self, equation: Any, given: list[Value]) -> list[Value]:
        primitive, params = equation.primitive, equation.params
        if primitive in _MARKS:
            return [self._marked(equation, given)]
        with self._inside(equation):
            inner = params.get(_INNER.get(primitive, ""))
            if inner is not None:
                return self.walk(inner, given)
            if primitive is lax.scan_p:
                return self._scan(equation, given)
            if primitive is lax.while_p:
                return self._while(equation, given)
            if primitive is lax.cond_p:
                branches = [self.walk(branch, given[1:]) for branch in params["branches"]]
                return [_under(given[0], joined(one)) for one in zip(*branches)]
        if primitive is _barrier():
            return given
        secrets = _secrets(given)
        fact = given[1].fact if primitive is lax.random_fold_in_p else None
        number = _ANY if fact is None else int(fact) % 2**32
        secrets = frozenset((root, number if root == "private" and old is None else old) for root, old in secrets)
        worst = max((one.label for one in given), default=Label.CLEAN)
        if "callback" in primitive.name or equation.effects:
            if worst > Label.CLEAN:
                self.leaks.setdefault("callback", WHY[worst])
            self.shown["callback"] = self.shown.get("callback", NOTHING) | secrets
            return [Value(Label.RAW)] * len(equation.outvars)  # the host may look at records
        if worst == Label.CLEAN:
            fact = _converted(equation, given[0].fact) if primitive is lax.convert_element_type_p else None
            return [Value(fact=fact, secrets=secrets)] * len(equation.outvars)
        bounds = [one for one in given if one.label == Label.BOUNDED]
        if worst == Label.BOUNDED and len(bounds) == 1 and _keeps(equation, given):
            return [bounds[0]._replace(secrets=secrets)]
        aligned = all(one.own for one in given if one.label > Label.CLEAN) and _in_rows(equation, given)
        return [Value(Label.RAW, own=aligned, secrets=secrets)] * len(equation.outvars)

    def _marked(self, equation: Any, given: list[Value]) -> Value:
        mark, params, (first, *rest) = equation.primitive, equation.params, given
        if mark is marking.SENT:
            if first.label > Label.CLEAN:
                self.leaks.setdefault(params["channel"], WHY[first.label])
            self.shown[params["channel"]] = self.shown.get(params["channel"], NOTHING) | first.secrets
            return first
        if mark is marking.ROWS:
            return first if params["lanes"] or not rest[0].intact else rest[0]._replace(secrets=first.secrets)
        if mark is marking.SCALE:
            sound = first.label == Label.CLEAN and all(one.intact for one in rest) and not params["lanes"]
            return first._replace(fact=Scale(params["source"])) if sound and params["source"] is not None else first
        if mark is marking.BOUNDED:
            return first._replace(label=min(first.label, Label.BOUNDED), own=True, fact=None)
        if mark is marking.NOISY:
            return self._noisy(equation, *given)
        if mark is marking.OWN or params["whole"]:
            sound = all(one.own for one in rest if one.label > Label.CLEAN)
        else:
            sound = rest[0].label == Label.CLEAN and all(one.intact for one in rest[1:])
        other = params.get("problem")
        sound = sound and (other is None or self.problem is None or other == self.problem)
        if params["lanes"] or not sound:
            return first._replace(label=Label.RAW if max(one.label for one in given) else Label.CLEAN, own=False)
        if mark is marking.OWN:
            return Value(Label.RAW, own=True, secrets=_secrets(given))
        return Value(Label.BOUNDED, own=True, fact=params["bound"], secrets=_secrets(given))

    def _noisy(self, equation: Any, y: Value, x: Value, size: Value) -> Value:
        booking: Booking = equation.params["booking"]
        self.noises.setdefault(booking, {})[*self.place, id(equation)] = self.turns
        label = x.label if booking.honest else max(x.label, y.label)
        source = size.fact.source if isinstance(size.fact, Scale) else None
        if equation.params["lanes"]:
            self.faults[booking] = "is drawn inside jax.vmap, where all lanes share it"
        elif size.label > Label.CLEAN:
            self.faults[booking] = "has a scale that depends on records"
        elif ("private", booking.stream.number) not in y.secrets:
            self.faults[booking] = "is not drawn from the private key of the round"
        elif label == Label.RAW:
            self.faults[booking] = f"is added to a value that {WHY[label]}"
        elif label and jnp.finfo(equation.outvars[0].aval.dtype).bits < 32:
            self.faults[booking] = f"has the few bits of {equation.outvars[0].aval.dtype}, which cut its tails"
        elif label and (x.fact is None or source is None or not source.fits(x.fact)):
            self.unproven[booking] = "its scale is not the library's sensitivity for the clip of what it hides"
        self.sources[booking] = source
        self.shown.setdefault("what noise is added to", NOTHING)
        self.shown["what noise is added to"] |= x.secrets | size.secrets
        if booking in self.faults or label == Label.RAW or not self.noise_counts:
            return Value(max(label, size.label), own=x.own, fact=x.fact)
        return Value()

    def _scan(self, equation: Any, given: list[Value]) -> list[Value]:
        body, length = equation.params["jaxpr"], equation.params["length"]
        carried = len(equation.outvars) - _stacked(equation.outvars, body.jaxpr.outvars)
        consts = len(given) - _stacked(equation.invars, body.jaxpr.invars) - carried
        carry, rows = given[consts : consts + carried], [_row(one) for one in given[consts + carried :]]
        given = given[:consts]
        carry = [one._replace(fact=None) if one.label == Label.CLEAN else one for one in carry]
        with self._inside(equation, length):
            while True:
                out = self.walk(body, [*given, *carry, *rows])
                wider = [joined(pair) for pair in zip(carry, out)]
                if wider == carry:
                    break
                carry = wider
        # A stacked result may hold a bounded value in every row, unless every row comes from a different value.
        again = [Value(Label.RAW) if one.label else one for one in (*given, *carry)]
        worst = Flow(problem=self.problem).walk(body, [*again, *rows])
        stacked = [
            Value(one.label and max(one.label, other.label), secrets=one.secrets)
            for one, other in zip(out[carried:], worst[carried:])
        ]
        return [*carry, *stacked]

    def _while(self, equation: Any, given: list[Value]) -> list[Value]:
        params = equation.params
        outer, inner = params["cond_nconsts"], params["body_nconsts"]
        carry = [one._replace(fact=None) if one.label == Label.CLEAN else one for one in given[outer + inner :]]
        with self._inside(equation, None):
            while True:
                out = self.walk(params["body_jaxpr"], [*given[outer : outer + inner], *carry])
                (goes_on,) = self.walk(params["cond_jaxpr"], [*given[:outer], *carry])
                wider = [_under(goes_on, joined(pair)) for pair in zip(carry, out)]
                if wider == carry:
                    return carry
                carry = wider

    def fault(self, booked: Iterable[Booking], numbers: Iterable[int] = ()) -> str:
        """Why the noise that a step has `booked` does not hide what it is said to hide; empty where it does."""
        wanted = set(booked)
        for one, places in self.noises.items():
            if one in self.faults:
                return f"its noise {self.faults[one]}"
            if one not in wanted:
                return "noise is added that is not booked in this round"
            found = list(places.values()) if len(places) == 1 else []
            if not found or _loops(found[0]) != _loops(one.turns):
                return "its noise is drawn more often than it is booked"
        if missing := wanted - set(self.noises):
            return f"{len(missing)} of its booked releases are not in the program"
        secret, every = {one.stream.number for one in wanted}, {*numbers}
        for channel, secrets in self.shown.items():
            known = secret if channel == "what noise is added to" else secret | every
            if _known(secrets, known):
                return f"draws of a private stream of its noise or samples also enter {channel!r}"
        return ""


def _known(secrets: Iterable[Secret], numbers: Iterable[int]) -> bool:
    return any(number in (None, _ANY) or number in numbers for _, number in secrets)


def reveals(value: Value, numbers: Iterable[int]) -> bool:
    """Whether draws of private streams of these numbers enter a value, other than as noise."""
    return bool(numbers) and _known(value.secrets, numbers)


def _loops(turns: Sequence[int | None]) -> tuple[int, int]:
    # The number of iterations of loops with known lengths, and the number of other loops.
    return int(np.prod([one for one in turns if one is not None], initial=1)), sum(one is None for one in turns)


def joined(values: Sequence[Value]) -> Value:
    """What is known of a value that is one of several."""
    first, *others = values
    for other in others:
        secrets = first.secrets | other.secrets
        if first._replace(secrets=secrets) == other._replace(secrets=secrets):
            first = first._replace(secrets=secrets)
            continue
        pair = first, other
        label, known = max(one.label for one in pair), [one for one in pair if one.label > Label.CLEAN]
        own = all(one.own for one in known)
        facts = {one.fact for one in known}
        fact = facts.pop() if label == Label.BOUNDED and len(facts) == 1 else None
        first = Value(label, own=own and label > Label.CLEAN, fact=fact, secrets=secrets)
    return first


def _under(choice: Value, value: Value) -> Value:
    """A value that a choice decides about."""
    value = value._replace(secrets=value.secrets | choice.secrets)
    return value._replace(label=Label.RAW, own=False, intact=False, fact=None) if choice.label else value


def _secrets(values: Iterable[Value]) -> frozenset[Secret]:
    return NOTHING.union(*(one.secrets for one in values))


def _row(value: Value) -> Value:
    """A slice of a value along its first axis, which is no longer that of nodes."""
    return Value(value.label, fact=value.fact if value.label else None, secrets=value.secrets)


def _stacked(outer: Sequence[Any], inner: Sequence[Any]) -> int:
    """How many values of a scan have an extra axis outside its body, determined in a way common to all JAX versions."""
    return sum(one.aval.ndim > other.aval.ndim for one, other in zip(outer, inner))


def leaking(
    started: ClosedJaxpr, going: ClosedJaxpr, given: list[Value], leaves: int, problem: Any = None
) -> tuple[tuple[Flow, Flow], list[Value]]:
    """The walks through a run's first and later programs, and what is known of all outputs."""
    first, flow = Flow(problem=problem), Flow(problem=problem)
    known = [one._replace(intact=False) for one in first.walk(started, given)]
    known = [one if one.label else one._replace(fact=None) for one in known]
    while True:
        new = flow.walk(going, [*known[:leaves], *given])
        wider = [joined(pair)._replace(intact=False) for pair in zip(known, new)]
        if wider == known:
            return (first, flow), known
        known = wider


_MARKS = {marking.CLIPPED, marking.OWN, marking.SCALE, marking.ROWS, marking.BOUNDED, marking.NOISY, marking.SENT}
_INNER = {
    lax.jit_p: "jaxpr",
    lax.closed_call_p: "call_jaxpr",
    lax.call_p: "call_jaxpr",
    lax.custom_jvp_call_p: "call_jaxpr",
    lax.custom_vjp_call_p: "call_jaxpr",
    lax.remat_p: "jaxpr",
}
_BY_ENTRY = {  # primitives that compute every entry from the same entries of their arguments
    getattr(lax, f"{name}_p")
    for name in (
        *("abs", "add", "and", "atan2", "cbrt", "ceil", "clamp", "convert_element_type", "copy", "cos", "div", "eq"),
        *("erf", "exp", "exp2", "expm1", "floor", "ge", "gt", "integer_pow", "is_finite", "le", "log", "log1p"),
        *("logistic", "lt", "max", "min", "mul", "ne", "neg", "nextafter", "not", "or", "pow", "rem", "round"),
        *("rsqrt", "select_n", "sign", "sin", "sqrt", "square", "stop_gradient", "sub", "tan", "tanh", "xor"),
    )
    if hasattr(lax, f"{name}_p")
}
_ALONG = {  # primitives that work along the axes that this setting names
    lax.reduce_sum_p: "axes",
    lax.reduce_max_p: "axes",
    lax.reduce_min_p: "axes",
    lax.reduce_prod_p: "axes",
    lax.reduce_and_p: "axes",
    lax.reduce_or_p: "axes",
    lax.argmax_p: "axes",
    lax.argmin_p: "axes",
    lax.cumsum_p: "axis",
    lax.cumprod_p: "axis",
    lax.sort_p: "dimension",
    lax.squeeze_p: "dimensions",
    lax.rev_p: "dimensions",
    lax.concatenate_p: "dimension",
}
_found: list[Any] = []


def _barrier() -> Any:
    """The primitive of `jax.lax.optimization_barrier`, which JAX does not list."""
    if not _found:
        _found.append(jax.make_jaxpr(jax.lax.optimization_barrier)(0.0).eqns[0].primitive)
    return _found[0]


def _wider(old: Any, new: Any) -> bool:
    return jnp.issubdtype(new, jnp.floating) and jnp.finfo(new).bits >= jnp.finfo(old).bits


def _converted(equation: Any, fact: Any) -> Any:
    """What is known of a CLEAN value in another type."""
    old, new = equation.invars[0].aval.dtype, equation.outvars[0].aval.dtype
    if isinstance(fact, Scale):
        return fact if _wider(old, new) else None
    return None if fact is None else np.asarray(fact).astype(new)[()]


def _in_rows(equation: Any, given: list[Value]) -> bool:
    """Whether row i of the result depends on row i alone of the arguments that are not CLEAN."""
    primitive, params = equation.primitive, equation.params
    shapes = [atom.aval.shape for atom in equation.invars]
    out = equation.outvars[0].aval.shape
    held = [shape for shape, one in zip(shapes, given) if one.label > Label.CLEAN]
    if not out or any(not shape or shape[0] != out[0] for shape in held):
        return False
    if primitive in _BY_ENTRY:
        return all(len(shape) == len(out) for shape in held)
    if primitive in _ALONG:
        along = params[_ALONG[primitive]]
        return 0 not in (along if isinstance(along, tuple) else (along,))
    if primitive is lax.broadcast_in_dim_p:
        return bool(params["broadcast_dimensions"]) and params["broadcast_dimensions"][0] == 0
    if primitive is lax.reshape_p:
        return params.get("dimensions") is None
    if primitive is lax.slice_p:
        return shapes[0][0] == out[0]
    if primitive is lax.dot_general_p:
        (left, _), (rows, columns) = params["dimension_numbers"]
        if rows and rows[0] == 0 and columns[0] == 0:
            return True
        return given[1].label == Label.CLEAN and not rows and 0 not in left
    return False


def _keeps(equation: Any, given: list[Value]) -> bool:
    """Whether a primitive leaves the rows of its one BOUNDED argument in place and makes none of them longer."""
    primitive, params = equation.primitive, equation.params
    place = next(i for i, one in enumerate(given) if one.label == Label.BOUNDED)
    old, new = equation.invars[place].aval, equation.outvars[0].aval
    if primitive is lax.convert_element_type_p:
        return _wider(old.dtype, new.dtype)
    if primitive in (lax.neg_p, lax.copy_p, lax.stop_gradient_p):
        return True
    if primitive in (lax.add_p, lax.sub_p, lax.add_jaxvals_p):
        return old.shape == new.shape
    if primitive is lax.select_n_p:
        return place > 0
    if not old.shape or not new.shape or old.shape[0] != new.shape[0]:
        return False
    if primitive is lax.pad_p:
        return place == 0 and params["padding_config"][0] == (0, 0, 0)
    if primitive in (lax.rev_p, lax.concatenate_p):
        return _in_rows(equation, given)
    if primitive is lax.dynamic_slice_p:
        return place == 0
    return primitive is lax.slice_p or (
        primitive is lax.reshape_p and new.size == old.size and _in_rows(equation, given)
    )
