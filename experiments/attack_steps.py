"""Careless and malicious steps of a user's own algorithm, each with what jdfl must say of it, and what an attack shows.

A step sends x - seen(x). What it has seen reveals the label of one record in one of these ways: noise is counted too
rarely, cancelled, cut or too small, the clip is undone after it was marked, or the data take another way. Outcomes:

- refused: the step is refused before it is compiled, with a remedy;
- no claim: it runs, and no epsilon is given for its messages;
- counted: an epsilon is claimed that counts every release, and an attack does not exceed it;
- trust: an epsilon is claimed on the author's word, and the statement says so.

Axes: m nodes, n parameters.
"""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from functools import cache, partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array, lax
from jax.ad_checkpoint import checkpoint_name
from jax.core import eval_jaxpr

import jdfl
from experiments.attack_worlds import ALONE, NOISY, Attack, Claim, M, N, Z, claim, regression, shown
from jdfl.algorithms.gradients import NOISE
from jdfl.algorithms.program import planned
from jdfl.algorithms.round import StepTrace
from jdfl.base import marking, struct
from jdfl.base.streams import Stream
from jdfl.privacy import GaussianEvent

Outcome = Literal["refused", "no claim", "counted", "trust"]
Seen = Callable[[Any, Array, jdfl.Round], Array]
_OWN, _KNOWN = Stream("attacks.own", "private"), Stream("attacks.known", "shared")
_PUBLIC = Stream("attacks.choice", "choice")


@struct.dataclass
class Step(jdfl.Algorithm):
    """Nodes send x - seen(x): the pattern of docs/own-algorithm.md, with gradients that others choose."""

    seen: Any = struct.field(pytree_node=False, default=None)
    gradients: jdfl.Gradients = NOISY
    updates: jdfl.Updates | None = None
    title = "Step"

    def init(self, round: jdfl.Round) -> Array:
        return round.problem.initial_params()

    def step(self, state: Array, round: jdfl.Round) -> Array:
        return round.mix(state - self.seen(self, state, round))


@struct.dataclass
class Kept(Step):
    """Nodes also keep what `seen` returns second, and may use it in the next round."""

    def init(self, round: jdfl.Round) -> Any:
        x = round.problem.initial_params()
        return x, jnp.zeros_like(x)

    def step(self, state: Any, round: jdfl.Round) -> Any:
        move, kept = self.seen(self, state, round)
        return round.mix(state[0] - move), kept


@struct.dataclass
class Planned(Step):
    """What nodes send depends on a plan that was made from the data on the host."""

    def plan(self, problem: Any, network: Any, steps: int) -> Any:
        """The mean label of every node."""
        return jnp.asarray(np.mean(np.asarray(problem.data[1]), axis=1))


@struct.dataclass
class Claiming(Step):
    """The guarantee is written by hand."""

    def privacy(self, problem: Any, plan: Any = None, steps: int | None = None) -> Any:
        return replace(NOISY.guarantee(problem), event=GaussianEvent(100.0))


@struct.dataclass
class Annotated(Step):
    """The guarantee is improved afterwards."""

    def annotated(self, guarantee: Any, problem: Any, steps: int | None) -> Any:
        return replace(guarantee, event=GaussianEvent(100.0))


@struct.dataclass
class OwnNoise:
    """Gaussian noise of a user's class; `share` below 1 is less than its event says."""

    multiplier: float = Z
    share: float = 1.0
    norm = "l2"

    def check(self) -> None:
        """Accept any number."""

    def add(self, key: Array, x: Array, sensitivity: Any) -> Array:
        return x + self.share * self.multiplier * sensitivity * jax.random.normal(key, x.shape, x.dtype)

    def event(self) -> GaussianEvent:
        return GaussianEvent(float(self.multiplier))


def _bare(a: Any, x: Array, r: jdfl.Round) -> Array:
    return a.gradients.without_noise(x, r)


def _added(a: Any, g: Any, r: jdfl.Round, size: Any = None, **given: Any) -> Array:
    """Noise on g [m, n] for the sensitivity of the gradients, or for another `size`."""
    size = a.gradients.sensitivities(r.problem) if size is None else size
    how = {"mechanism": a.gradients.mechanism, "stream": _OWN, "claim": a.gradients.guarantee} | given
    return r.noisy(how.pop("mechanism"), g, size, how.pop("stream"), how.pop("claim"), **how)


def _changed(change: Callable[[Any], Any]) -> Seen:
    """Noise on a clipped gradient that is changed first."""
    return lambda a, x, r: _added(a, change(_bare(a, x, r)), r)


def _drawn(a: Any, x: Array, r: jdfl.Round, keys: Any) -> Array:
    """The noise that keys [m] give."""
    size = a.gradients.mechanism.multiplier * a.gradients.sensitivities(r.problem)[:, None]
    return size * jax.vmap(lambda key: jax.random.normal(key, (N,), x.dtype))(keys)


def _within(transformed: Callable[[Callable[[Array], Array], Array], Array]) -> Seen:
    """Noisy gradients at x and at -x, whose difference has no noise, inside a transformation."""
    return lambda a, x, r: transformed(lambda y: a.gradients(y, r), x)


def _two(apart: Array) -> Array:
    return apart[0] - apart[1]


def _points(x: Array) -> Array:
    return jnp.stack([x, x + 1e9])  # where the clipped gradient points the other way


def _custom(f: Any, x: Array) -> Array:
    made = jax.custom_vjp(f)
    made.defvjp(lambda x: (f(x), None), lambda _, g: (g,))
    return made(x)


def _evaluated(f: Any, x: Array) -> Array:
    closed = jax.make_jaxpr(f)(x)
    run = partial(eval_jaxpr, closed.jaxpr, closed.consts)
    return _two(jnp.stack([run(one)[0] for one in _points(x)]))


def _looped(f: Any, x: Array) -> Array:
    start = jnp.zeros((2, *x.shape), x.dtype)
    return _two(lax.fori_loop(0, 2, lambda t, kept: kept.at[t].set(f(_points(x)[t])), start))


def _whiled(f: Any, x: Array) -> Array:
    def body(now: Any) -> Any:
        return now[0] + 1, now[1] + (1 - 2 * now[0]) * f(jnp.where(now[0] > 0, x + 1e9, x))

    return lax.while_loop(lambda now: now[0] < 2, body, (0, jnp.zeros_like(x)))[1]


INSIDE: dict[str, Callable[[Any, Array], Array]] = {
    "jax.vmap": lambda f, x: _two(jax.vmap(f)(_points(x))),
    "fori_loop": _looped,
    "scan": lambda f, x: _two(lax.scan(lambda _, y: (None, f(y)), None, _points(x))[1]),
    "while_loop": _whiled,
    "lax.map": lambda f, x: _two(lax.map(f, _points(x))),
    "cond": lambda f, x: lax.cond(jnp.sum(x) >= 0, f, lambda y: y, x),
    "switch": lambda f, x: lax.switch(jnp.int32(1), [lambda y: y, f], x),
    "jit": lambda f, x: (lambda g: g(x) - g(x + 1e9))(jax.jit(f)),
    "grad": lambda f, x: jax.grad(lambda y: jnp.sum(f(y)))(x),
    "jvp": lambda f, x: jax.jvp(f, (x,), (x,))[0],
    "checkpoint": lambda f, x: jax.checkpoint(f)(x),
    "custom_vjp": _custom,
    "pure_callback": lambda f, x: jax.pure_callback(lambda y: np.asarray(f(y)), x, x),
    "an evaluation of its own": _evaluated,
}


def _unselected(a: Any, x: Array, r: jdfl.Round) -> Array:
    nobody = jnp.zeros((r.m,), jnp.bool_)
    return r.each_of(nobody, None, lambda here: a.gradients(x, here))


def _smuggled(a: Any, x: Array, r: jdfl.Round) -> Array:
    kept: list[Any] = []
    r.each_of(jnp.zeros((r.m,), jnp.bool_), None, lambda here: kept.append(a.gradients(x, here)) or x)
    return kept[0]


def _half(a: Any, x: Array, r: jdfl.Round) -> Array:
    due = r.node == 0
    return jnp.where(due[:, None], r.each_of(due, None, lambda here: a.gradients(x, here)), 0.0)


def _last(a: Any, x: Array, r: jdfl.Round) -> Array:
    return r.repeat(3, lambda here, y: y - 0.1 * a.gradients(y, here), x) - x


def _raw_steps(a: Any, x: Array, r: jdfl.Round) -> Array:
    return a.gradients(x - 1e6 * _bare(a, x, r), r)


def _following(a: Any, x: Array, r: jdfl.Round) -> Array:
    def one(here: jdfl.Round, y: Array) -> Array:
        return y + _added(a, _bare(a, x, here), here, following=True)

    return r.repeat(40, one, jnp.zeros_like(x))


def _redrawn_later(a: Any, state: Any, r: jdfl.Round) -> Any:
    x, before = state
    return a.gradients(x, r) - before, _drawn(a, x, r, r.keys(NOISE))


def _before(a: Any, x: Array, r: jdfl.Round) -> Array:
    return _added(a, _bare(a, x, r) - _drawn(a, x, r, r.keys(_OWN)), r)


def _elsewhere(r: jdfl.Round) -> jdfl.Round:
    return replace(r, context=replace(r.context, roots=None, key=jax.random.key(7)))


def _with_records(change: Callable[[Any], Any]) -> Seen:
    return lambda a, x, r: a.gradients(x, replace(r, problem=change(r.problem)))


def _repeated(problem: Any) -> Any:
    return problem.replace(data=jax.tree.map(lambda leaf: jnp.repeat(leaf[:, :1], leaf.shape[1], axis=1), problem.data))


def _weighted(problem: Any) -> Any:
    return problem.replace(weight=problem.weight.at[:, 1:].mul(1e6))


def _named(a: Any, x: Array, r: jdfl.Round) -> Array:
    def jdfl_near(y: Array) -> Array:
        return 1e3 * y

    return _added(a, jax.jit(jdfl_near)(_bare(a, x, r)), r)


def _bits(a: Any, x: Array, r: jdfl.Round) -> Array:
    bare = _bare(a, x, r).astype(jnp.bfloat16)
    return _added(a, bare, r, a.gradients.sensitivities(r.problem).astype(jnp.bfloat16)).astype(x.dtype)


def _told(how: Callable[[Any], Any]) -> Seen:
    """A noisy gradient, after the bare one went to the host."""

    def seen(a: Any, x: Array, r: jdfl.Round) -> Array:
        how(jnp.sum(_bare(a, x, r)))
        return a.gradients(x, r)

    return seen


def _second(a: Any, x: Array, r: jdfl.Round) -> Array:
    g = a.gradients(x, r)
    return g + r.noisy(jdfl.Gaussian(0.01), _bare(a, x, r), a.gradients.sensitivities(r.problem), _OWN, NOISE)


def _indexed(a: Any, x: Array, r: jdfl.Round) -> Array:
    one, other = (_added(a, _bare(a, y, r), r, index=0, look=k) for k, y in enumerate(_points(x)))
    return one - other


def _masked(a: Any, x: Array, r: jdfl.Round) -> Array:
    records, weight, _ = a.gradients.sample(r)
    return a.gradients(x, r) + jnp.sum(weight, axis=1)[:, None] + 0 * jnp.sum(records[0])


def _lengths(a: Any, x: Array, r: jdfl.Round) -> Array:
    ready = replace(r.prepared.gradients, lengths=1e-6 * r.prepared.gradients.lengths)
    return a.gradients(x, replace(r, prepared=replace(r.prepared, gradients=ready)))


@struct.dataclass
class Loud(jdfl.problems.LinearRegression):
    """Its sums of clipped gradients are long."""

    def spread(self, slopes: Array, data: Any) -> Array:
        return 1e3 * super().spread(slopes, data)


def _other(problem: Any) -> Any:
    return Loud(**{one.name: getattr(problem, one.name) for one in fields(problem)})


@struct.dataclass
class Faint(jdfl.Gradients):
    """Its sensitivities are too small."""

    def sensitivities(self, problem: Any) -> Array:
        return 0.01 * super().sensitivities(problem)


def _told_more(problem: Any, looks: int) -> Any:
    return replace(NOISY.guarantee(problem, looks), event=GaussianEvent(100.0))


@cache
def _held() -> Array:
    """Labels that a step holds itself."""
    return regression(1).data[1]


SAMPLED: Any = NOISY.replace(batch=1, sampling="poisson")
WHOLE: Any = {"gradients": jdfl.Gradients(), "updates": jdfl.Updates(clip=1.0, mechanism=jdfl.Gaussian(Z))}
_FINE = jdfl.Gradients(clip=0.01, mechanism=jdfl.Gaussian(Z))


def _worked(a: Any, x: Array, r: jdfl.Round) -> Array:
    y = r.repeat(2, lambda here, y: y - 0.1 * a.gradients(y, here), x)
    return -a.updates(y - x, r)


def _exchanged(a: Any, x: Array, r: jdfl.Round) -> Array:
    return -a.updates(jnp.roll(r.problem.gradients(x), 1, axis=0) + r.problem.gradients(x), r)


def _in_round(change: Callable[[jdfl.Round], Any]) -> Seen:
    """Gradients in a round that the step has changed."""
    return lambda a, x, r: a.gradients(x, change(r))


def _at(**made: Callable[[Any], Any]) -> Callable[[jdfl.Round], Any]:
    return lambda r: replace(r, context=replace(r.context, **{name: make(r.context) for name, make in made.items()}))


def _zeroed(context: Any) -> Any:
    known = jax.random.wrap_key_data(0 * jax.random.key_data(context.roots.private))
    return replace(context.roots, private=known)


def _one_noise(a: Any, x: Array, r: jdfl.Round) -> Array:
    def one(here: jdfl.Round, y: Array) -> Array:
        return y - 0.1 * a.gradients(y, replace(here, local_step=0))

    return r.repeat(3, one, x) - x


def _booked(change: Callable[[StepTrace], Any]) -> Seen:
    """A noisy gradient, after which the step writes in the trace of its round."""
    return lambda a, x, r: (a.gradients(x, r), change(r.trace))[0]


def _absorbed(a: Any, x: Array, r: jdfl.Round) -> Array:
    own = replace(r, trace=StepTrace())
    return (a.gradients(x, own), r.trace.absorb(own.trace, 0))[0]


def _parts(a: Any, x: Array, r: jdfl.Round) -> Array:
    g = a.gradients(x, r)
    more = r.noisy(a.gradients.mechanism, _bare(a, x, r), a.gradients.sensitivities(r.problem), _OWN, NOISE)
    return (g + more, r.trace.parts.clear())[0]


def _marked_clip(a: Any, x: Array, r: jdfl.Round) -> Array:
    given, how = (r.problem.data, r.problem.weight), {"whole": False, "problem": r.problem}
    return _added(a, marking.clipped(100 * _bare(a, x, r), x, *given, a.gradients.bound, **how), r)


def _bound_clip(a: Any, x: Array, r: jdfl.Round) -> Array:
    given = 100 * _bare(a, x, r), x, *jax.tree.leaves(r.problem.data), r.problem.weight
    how = {"bound": a.gradients.bound, "whole": False, "problem": None, "lanes": False}
    return _added(a, marking.CLIPPED.bind(*given, **how), r)


def _marked_scale(a: Any, x: Array, r: jdfl.Round) -> Array:
    small = marking.scale(jnp.full((M,), 1e-3), r.problem.weight, marking.static(a.gradients))
    return _added(a, _bare(a, x, r), r, small)


def _marked_noise(a: Any, x: Array, r: jdfl.Round) -> Array:
    booking = r.release(_OWN, a.gradients.guarantee, mechanism=a.gradients.mechanism, honest=True)
    g, drawn = _bare(a, x, r), jax.vmap(lambda key: jax.random.normal(key, (N,)))(r.keys(_OWN))
    return marking.noisy(g + 1e-6 * drawn, g, a.gradients.sensitivities(r.problem), booking)


def _marked_rows(a: Any, x: Array, r: jdfl.Round) -> Array:
    old = r.problem.data, r.problem.weight
    data, weight = marking.rows((_repeated(r.problem).data, r.problem.weight), old)
    return a.gradients(x, replace(r, problem=replace(r.problem, data=data, weight=weight)))


def _by_hand(number: Callable[[], Any]) -> Seen:
    """Noise is drawn again with a key whose stream has this number."""

    def seen(a: Any, x: Array, r: jdfl.Round) -> Array:
        key = jax.random.fold_in(jax.random.fold_in(r.context.roots.private, number()), 0)  # pyright: ignore[reportOptionalMemberAccess]
        keys = jax.vmap(jax.random.fold_in, (None, 0))(key, r.node)
        return a.gradients(x, r) - _drawn(a, x, r, keys)

    return seen


class Forgetful(Stream):
    """Its keys are the same in all runs."""

    def of(self, key: Array) -> Array:
        return jax.random.wrap_key_data(0 * jax.random.key_data(super().of(key)))


_FORGETFUL = Forgetful("toy.forgetful", "private")
_SIGNED = np.uint32(NOISE.number).astype(np.int32)


def _parted(*given: Any, **known: Any) -> Any:
    clipped, rest = jdfl.Gradients.parted(_PARTED, *given, **known)
    return 100 * clipped, rest


_QUIET: Any = jdfl.Gaussian(Z)
object.__setattr__(_QUIET, "add", lambda key, x, size: x + 0 * jax.random.normal(key, x.shape))
_PARTED: Any = NOISY.replace(clip=1.0)
object.__setattr__(_PARTED, "parted", _parted)


@struct.dataclass
class Twofold(Step):
    """What is stated is about another step."""

    def traced_step(self, state: Array, round: jdfl.Round) -> Array:
        return round.mix(state - self.gradients(state, round))


def _adding(_: Any) -> Any:
    held = jnp.asarray(_held())
    return optax.stateless(lambda updates, _: jax.tree.map(lambda g: g + jnp.sum(held), updates))


@struct.dataclass
class Telling(jdfl.Dense):
    """A codec that adds labels to what it sends."""

    def encode(self, key: Any, x: Array, wire: Any) -> Any:
        return jdfl.Dense.encode(self, key, x + jnp.sum(jnp.asarray(_held())), wire)


STEPS: dict[str, tuple[Outcome, Any]] = {
    # what is sound, and must stay claimed
    "the tutorial's step": ("counted", lambda a, x, r: a.gradients(x, r)),
    "three local steps": ("counted", _last),
    "two looks at one sample": ("counted", lambda a, x, r: a.gradients(x, r) + a.gradients(x, r, look=1)),
    "noise by hand": ("counted", _changed(lambda g: g)),
    "noise on minus the gradient": ("counted", _changed(lambda g: -g)),
    "a public shift before the noise": ("counted", _changed(lambda g: g + 3.0)),
    "entries left out before the noise": ("counted", _changed(lambda g: jnp.where(jnp.arange(N) < 4, g, 0.0))),
    "whole numbers after the noise": (
        "counted",
        lambda a, x, r: jnp.round(a.gradients(x, r) * 64).astype(jnp.int32).astype(x.dtype) / 64.0,
    ),
    "one node at a time": ("counted", _half),
    "noise on updates": ("counted", Step(_worked, **WHOLE)),
    "noise of a user's class": ("trust", Step(gradients=NOISY.replace(mechanism=OwnNoise()))),
    "less noise than its own class says": ("trust", Step(gradients=NOISY.replace(mechanism=OwnNoise(share=0.01)))),
    # noise counted once and drawn twice
    **{f"noise inside {name}": ("refused", _within(how)) for name, how in INSIDE.items()},
    "noise inside pure_callback": ("no claim", _within(INSIDE["pure_callback"])),
    "one look twice": ("refused", lambda a, x, r: a.gradients(x, r) - a.gradients(x + 1e9, r)),
    "one index twice": ("refused", _indexed),
    "a fifth look": ("refused", lambda a, x, r: a.gradients(x, r, look=4)),
    "rows that were not selected": ("counted", _unselected),
    "rows smuggled out of a selection": ("counted", _smuggled),
    "local steps counted after an exchange alone": ("no claim", _following),
    "a second release as part of the first": ("no claim", _second),
    "another trace": ("no claim", lambda a, x, r: a.gradients(x, replace(r, trace=StepTrace()))),
    # noise that others know, or that is taken away again
    "noise drawn again": ("no claim", lambda a, x, r: a.gradients(x, r) - _drawn(a, x, r, r.keys(NOISE))),
    "noise drawn again from the moment": (
        "no claim",
        lambda a, x, r: a.gradients(x, r) - _drawn(a, x, r, r.context.keys(NOISE)),
    ),
    "noise drawn again from the root": (
        "no claim",
        lambda a, x, r: a.gradients(x, r) - _drawn(a, x, r, NOISE.keys(r.context.roots.private, r.node)),
    ),
    "noise drawn again a round later": ("no claim", Kept(_redrawn_later)),
    "noise taken away beforehand": ("no claim", _before),
    "noise of a shared stream": ("refused", lambda a, x, r: _added(a, _bare(a, x, r), r, stream=_KNOWN)),
    "noise of a public choice": ("refused", lambda a, x, r: _added(a, _bare(a, x, r), r, stream=_PUBLIC)),
    "noise of a known key": ("no claim", lambda a, x, r: a.gradients(x, _elsewhere(r))),
    "a sample that is shown": ("no claim", Step(_masked, gradients=SAMPLED)),
    # noise that is too small, or has few bits
    "a tenth of the sensitivity": (
        "no claim",
        lambda a, x, r: _added(a, _bare(a, x, r), r, 0.01 * a.gradients.sensitivities(r.problem)),
    ),
    "a sensitivity by hand": ("no claim", lambda a, x, r: _added(a, _bare(a, x, r), r, 1e-3)),
    "the sensitivity of another clip": (
        "no claim",
        lambda a, x, r: _added(a, _bare(a, x, r), r, _FINE.sensitivities(r.problem)),
    ),
    "another mechanism than its guarantee's": (
        "no claim",
        lambda a, x, r: _added(a, _bare(a, x, r), r, mechanism=jdfl.Gaussian(0.01)),
    ),
    "a guarantee by hand": ("no claim", lambda a, x, r: _added(a, _bare(a, x, r), r, claim=_told_more)),
    "a method `privacy` by hand": ("no claim", Claiming()),
    "a method `annotated` by hand": ("no claim", Annotated()),
    "noise in bfloat16": ("no claim", _bits),
    # a clip that is undone
    "a gradient scaled after the clip": ("no claim", _changed(lambda g: 100 * g)),
    "whole numbers before the noise": ("no claim", _changed(lambda g: (g * 1e3).astype(jnp.int32).astype(g.dtype))),
    "signs before the noise": ("no claim", _changed(jnp.sign)),
    "bfloat16 before the noise": ("no claim", _changed(lambda g: g.astype(jnp.bfloat16).astype(g.dtype))),
    "rows flipped before the noise": ("no claim", _changed(lambda g: g[::-1])),
    "rows rolled before the noise": ("no claim", _changed(lambda g: jnp.roll(g, 1, axis=0))),
    "rows of one node for all": ("no claim", _changed(lambda g: g[jnp.zeros(M, jnp.int32)])),
    "entries repeated before the noise": ("no claim", _changed(lambda g: jnp.broadcast_to(g[:, :1], g.shape))),
    "a function with a marker's name": ("no claim", _named),
    "a name that was a mark": ("no claim", _changed(lambda g: checkpoint_name(100 * g, "jdfl.bounded"))),
    "a mark of a bound by hand": ("no claim", lambda a, x, r: _added(a, marking.bounded(100 * _bare(a, x, r)), r)),
    "gradients at parameters that hold data": ("no claim", _raw_steps),
    "one record repeated": ("no claim", _with_records(_repeated)),
    "other weights": ("no claim", _with_records(_weighted)),
    "a clip by other lengths": ("no claim", _lengths),
    "a problem of another class": ("no claim", lambda a, x, r: a.gradients(x, replace(r, problem=_other(r.problem)))),
    "gradients of a user's class": ("no claim", Step(gradients=Faint(clip=1.0, mechanism=jdfl.Gaussian(Z)))),
    "such gradients in D-PSGD": (
        "no claim",
        jdfl.DPSGD(lr=1.0, gradients=Faint(clip=1.0, mechanism=jdfl.Gaussian(Z))),
    ),
    "updates that hold the data of two nodes": ("no claim", Step(_exchanged, **WHOLE)),
    # data that take another way
    "no noise": ("no claim", _bare),
    "a debugging callback": ("no claim", _told(lambda g: jax.debug.callback(lambda _: None, g))),
    "a debugging print": ("no claim", _told(lambda g: jax.debug.print("{}", g))),
    "a callback that returns data": (
        "no claim",
        lambda a, x, r: a.gradients(x, r) + jax.pure_callback(lambda: np.asarray(_held()[:, :1]), x[:, :1]),
    ),
    "records in the code of the step": ("no claim", lambda a, x, r: a.gradients(x, r) + jnp.asarray(_held())[:, :1]),
    "a plan that reads data": ("no claim", Planned(lambda a, x, r: a.gradients(x, r) + r.ready[:, None])),
    "a step size from the curvature": ("no claim", lambda a, x, r: a.gradients(x, r) * r.problem.curvature[:, None]),
    # a round, a trace, a mark or an object that is not what the library made
    "one node's noise for all": ("no claim", _in_round(_at(node=lambda context: 0 * context.node))),
    "a private root of zeros": ("no claim", _in_round(_at(roots=_zeroed))),
    "one noise for all local steps": ("no claim", _one_noise),
    "a release taken off the count": ("no claim", _booked(lambda trace: trace.released(-1))),
    "a count set to zero": ("no claim", _booked(lambda trace: setattr(trace, "_releases", 0))),
    "a part of the step that counts zero times": ("no claim", _absorbed),
    "a second release, forgotten": ("no claim", _parts),
    "a mark of a clip by hand": ("no claim", _marked_clip),
    "a mark of a clip by its primitive": ("no claim", _bound_clip),
    "a mark of a scale by hand": ("no claim", _marked_scale),
    "a mark of noise by hand": ("no claim", _marked_noise),
    "a mark of rows by hand": ("no claim", _marked_rows),
    "noise drawn again by a number in an array": ("no claim", _by_hand(lambda: jnp.asarray([NOISE.number])[0])),
    "noise drawn again by a number with a sign": (
        "no claim",
        _by_hand(lambda: lax.convert_element_type(_SIGNED, jnp.uint32)),
    ),
    "noise drawn again by the bits of a number": (
        "no claim",
        _by_hand(lambda: lax.bitcast_convert_type(jnp.int32(_SIGNED), jnp.uint32)),
    ),
    "a stream of a user's class": ("refused", lambda a, x, r: _added(a, _bare(a, x, r), r, stream=_FORGETFUL)),
    "a mechanism with a function of its own": (
        "trust",
        lambda a, x, r: _added(a, _bare(a, x, r), r, mechanism=_QUIET),
    ),
    "gradients with a function of their own": ("no claim", lambda a, x, r: _PARTED(x, r)),
    "a step other than the stated one": ("no claim", Twofold(_bare)),
    "an optimizer that holds labels": ("no claim", jdfl.DPSGD(lr=1.0, gradients=NOISY, optimizer=_adding)),
    "a codec that holds labels": ("no claim", jdfl.DOADP(lr=1.0, p=1.0, codec=Telling(), gradients=NOISY)),
    "two labels in the code of the step": (
        "no claim",
        lambda a, x, r: a.gradients(x, r) + jnp.sum(jnp.asarray(_held()[0, :2])),
    ),
    "a sensitivity in whole numbers": (
        "no claim",
        lambda a, x, r: _added(
            a, _bare(a, x, r), r, a.gradients.sensitivities(r.problem).astype(jnp.int32).astype(x.dtype)
        ),
    ),
    "losses added to the gradient": (
        "no claim",
        lambda a, x, r: a.gradients(x, r) + r.problem.values(x)[:, None],
    ),
}


def algorithm(name: str) -> Any:
    given: Any = STEPS[name][1]
    if not isinstance(given, jdfl.Algorithm):
        return Step(given)
    made: Any = given
    return replace(made, seen=STEPS["the tutorial's step"][1]) if getattr(made, "seen", made) is None else made


def outcome(name: str, steps: int = 2) -> tuple[Outcome, str]:
    """What jdfl says of a step, with the reason or the words of trust."""
    one = algorithm(name)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = planned(one, regression(0), ALONE, steps)
            told = program.privacy(regression(0))
    except (ValueError, TypeError) as error:
        return "refused", str(error)
    if not told.claimed:
        return "no claim", told.reason
    trusted = [words for words in told.warnings if "author" in words]
    return ("trust", trusted[0]) if trusted else ("counted", "")


def attacks() -> Mapping[str, Attack]:
    """An attack on every step, from the sum of all that is sent."""

    def of(name: str) -> Attack:
        rounds = 2 if isinstance(algorithm(name), Kept) else 1

        def claimed() -> Claim:
            told, words = outcome(name, rounds)
            if told == "refused":
                return Claim(None, words)
            given = claim(algorithm(name), regression(0), ALONE, rounds)
            return Claim(given.epsilon, words or given.words, told == "trust")

        def scores(world: int, runs: int, seed: int) -> np.ndarray:
            if outcome(name, rounds)[0] == "refused":
                return np.zeros(runs)
            try:
                return shown(algorithm(name), regression(world), ALONE, rounds, runs, seed, _everything)
            except jax.errors.JaxRuntimeError:  # refused while it runs, on the host
                return np.zeros(runs)

        return Attack(
            f"{name}: the step reveals no more than is claimed", claimed, scores, brief=STEPS[name][0] == "counted"
        )

    return {f"step, {name}": of(name) for name in STEPS}


def _everything(ready: Any, state: Any, _: Any) -> Array:
    return ready.params(state).sum()
