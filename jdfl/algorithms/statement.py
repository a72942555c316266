"""A method's privacy guarantee, derived from the traced programs of its `init` and `step`: see `Algorithm.privacy`."""

import sys
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer
from jax.extend.core import ClosedJaxpr

from jdfl.algorithms import descent
from jdfl.algorithms.gradients import PRIVATE
from jdfl.algorithms.round import Round, RoundContext, StepTrace, in_round
from jdfl.base.schedules import schedules
from jdfl.base.streams import Keys, Stream
from jdfl.network import Graph
from jdfl.privacy.flow import RECORDS, WEIGHTS, Flow, Label, Value, leaking, private, reveals
from jdfl.privacy.guarantee import NO_NOISE, NOTHING_SENT, Guarantee, exposing
from jdfl.privacy.mechanisms import event_of
from jdfl.problems import Problem

_ROOTS = [private(one.name) for one in fields(Keys)]
_PLAIN = (
    "Add noise with jdfl.Gradients or jdfl.Updates, or with round.noisy(mechanism, x, sensitivities, stream, "
    "guarantee), where x is what gradients.without_noise returns, and the other two are those of the same gradients."
)
# how a problem's records are taken
_TAKING = [
    *("each", "_each", "per_example", "some", "cut", "weighted_data", "padded", "spread", "take", "subset"),
    *("minibatch", "nodes", "local", "varied", "feature_lengths", "sizes"),
]
_OWN = ("gradient", "example_gradients", "slopes")  # methods of a problem that may look elsewhere
_RECORDS = ("data", "weight", "test", "optimum", "truth", "curvature")  # of a problem
_LOCAL = "they contain values without noise"
CORRELATED = "noise is correlated over rounds, and its joint guarantee is not accounted for"
_LARGEST, _MOST = 2**16, 1024  # bytes of settings that are compared, and methods that are remembered
_noiseless: dict[Hashable, Guarantee] = {}  # only these: where code is exchanged, this may claim too little, never more
METHODS = __name__.rpartition(".")[0]
_TOGETHER = "Add all noise with one mechanism, or pass `round.noisy` the stream whose guarantee covers both as `claim`."


def stated(algorithm: Any, problem: Problem, plan: Any, steps: int | None) -> Guarantee:
    """The guarantee of the noise that an algorithm adds before the first round and in rounds, as they are traced."""
    key = _key(algorithm, problem, plan)
    if key in _noiseless:
        return algorithm.annotated(_noiseless[key], problem, steps)
    traces, programs = _traced(algorithm, problem, plan)
    releases = {stream: _released(stream, traces, problem) for trace in traces for stream in trace.noises}
    if not releases:
        found = NO_NOISE if any(trace.uses for trace in traces) else NOTHING_SENT
        if key is not None:
            if len(_noiseless) >= _MOST:
                _noiseless.clear()
            _noiseless[key] = found
        return algorithm.annotated(found, problem, steps)
    claim = algorithm.annotated(next(iter(releases.values())), problem, steps)
    if claim.claimed and (len(releases) > 1 or any(trace.uncovered() for trace in traces)):
        names = ", ".join(repr(one.name) for one in dict.fromkeys([*releases, *traces[0].parts, *traces[1].parts]))
        reason = f"noise of several streams is added ({names}), and their joint guarantee is not accounted for"
        claim = replace(claim, claimed=False, reason=reason, remedy=_TOGETHER)
    local = algorithm.unsent if claim.event is not None else ""
    if claim.claimed:
        flows, params, _ = outputs(programs, problem)
        local = (algorithm.unsent or _LOCAL) if params > Label.CLEAN else ""
        claim = _shown(claim, algorithm, problem, traces, flows)
        if claim.claimed or leaks(flows):
            claim = _entering(claim, algorithm, problem, plan, programs, flows)
    return replace(claim, local=claim.local or local)


@dataclass(frozen=True)
class Traced:
    """The programs of a method: `init` and `step` return a state and the nodes' parameters."""

    started: ClosedJaxpr
    going: ClosedJaxpr
    state: Any  # shapes of the state that both return
    problem: Any  # the structure of the problem


def traced(algorithm: Any, problem: Problem, plan: Any) -> Traced:
    """The programs of a method on a problem, with the result of its `plan` for a run."""
    return _traced(algorithm, problem, plan)[1]


def outputs(programs: Traced, problem: Problem) -> tuple[tuple[Flow, Flow], Label, Any]:
    """How the records of the problem affect the outputs of these programs.

    Returns the walks through both; the label of the parameters; and the labels of the arrays of a state, as a tree.
    """
    leaves, structure = jax.tree.flatten(programs.state)
    flows, found = leaking(programs.started, programs.going, [*values(problem), *_ROOTS], len(leaves), programs.problem)
    noise = {one.stream.number for flow in flows for one in flow.noises}
    seen = [max(one.label, Label.RAW if reveals(one, noise) else Label.CLEAN) for one in found]
    return flows, max(seen[len(leaves) :]), jax.tree.unflatten(structure, seen[: len(leaves)])


def _shown(
    claim: Guarantee, algorithm: Any, problem: Problem, traces: Sequence[StepTrace], flows: Sequence[Flow]
) -> Guarantee:
    """The claim if the programs show all that it needs, else one that is not claimed."""

    def lost(reason: str, remedy: str = _PLAIN) -> Guarantee:
        return replace(claim, claimed=False, reason=reason, remedy=remedy)

    if found := leaks(flows):
        channel, why = next(iter(found.items()))
        return lost(f"what is sent on the channel {channel!r} {why}", "Send only what noise has been added to.")
    for trace, flow in zip(traces, flows):
        if fault := flow.fault(trace.booked, PRIVATE if claim.sampling else ()):
            return lost(fault)
    if any(trace.altered for trace in traces):
        return lost("the step has altered its round, or the record of what it does")
    if any(trace.correlated for trace in traces):
        return lost(CORRELATED, "Count the rows of its factor in `privacy`, as jdfl.MAFALDA does.")
    strange = {type(one.mechanism).__name__ for trace in traces for one in trace.booked if not one.honest}
    if strange:
        words = f"on its author's word: the noise of {', '.join(sorted(strange))} has the law that its event states"
        claim = replace(claim, warnings=(*claim.warnings, words))
    if built_in(algorithm):
        return claim
    every = [(one, flow) for trace, flow in zip(traces, flows) for one in trace.booked]
    for one, flow in every:
        stream = f"noise of the stream {one.stream.name!r}"
        if why := flow.unproven.get(one, ""):
            return lost(f"of the {stream} {why}")
        if not one.each or any(trace.parts for trace in traces):
            return lost(f"the {stream} is not counted in every step that adds it")
        source = flow.sources.get(one)
        looks = max(len(looks) for trace in traces for _, looks in trace.noises.values())
        proven = None if source is None else source.guarantee(problem, looks)
        parts = ("event", "unit", "adjacency", "sampling", "sensitivity", "observer", "claimed")
        if proven is None or any(getattr(proven, part) != getattr(claim, part) for part in parts):
            return lost(f"the guarantee of the {stream} is not that of the clip and mechanism which scale it")
        if one.mechanism is None or event_of(one.mechanism, problem.n) != proven.event:
            return lost(f"the {stream} is drawn by another mechanism than that of its guarantee")
    return claim


def leaks(flows: Sequence[Flow]) -> dict[str, str]:
    """The channels whose messages are not CLEAN, with reasons."""
    return flows[0].leaks | flows[1].leaks


def _entering(
    claim: Guarantee, algorithm: Any, problem: Problem, plan: Any, programs: Traced, flows: Sequence[Flow]
) -> Guarantee:
    """The claim without what would have to be declared public, all of it together."""
    names, known = [], problem
    if leaks(flows):  # whether the curvature alone is what leaks
        known = problem.declared("curvature")
        if leaks(outputs(programs, known)[0]):
            return claim
        claim, names = replace(claim, claimed=True, reason="", remedy=""), ["curvature"]
    given = [id(leaf) for leaf in jax.tree.leaves((algorithm, plan))]
    arrays = [x for flow in flows for x in flow.arrays if id(x) not in given]
    mine = built_in(algorithm) and not _has_others(algorithm)
    if (not mine and any(np.size(x) >= 2 for x in arrays)) or _holds_arrays(algorithm, problem):
        names.append("constants")
    return exposing(claim, names, problem.public)


def loss_reads(problem: Problem) -> tuple[str, ...]:
    """The name "constants" if a node's loss depends on other values than its own examples and parameters."""
    data, weight = jax.eval_shape(lambda: problem.local(0))
    w = jax.ShapeDtypeStruct((problem.n,), problem.dtype)

    def value(path: Any, leaf: Any) -> Value:  # what else the loss may read: single numbers
        known = getattr(path[0], "name", "") not in _RECORDS and np.size(leaf) < 2
        return Value() if known or getattr(path[0], "name", "") == "start" else Value(Label.RAW)

    def loss(problem: Problem, w: Array, data: Any, weight: Array) -> Any:
        own = [name for name in _OWN if getattr(type(problem), name) is not getattr(Problem, name)]
        found = [getattr(problem, name)(w, data, *([weight] if name == "gradient" else [])) for name in own]
        if type(problem).loss is not Problem.loss:
            found.append(problem.loss(w, jax.tree.map(lambda leaf: leaf[0], data)))
        return found, problem.value(w, data, weight)

    flow, given = Flow(), [Value() for _ in jax.tree.leaves((w, data, weight))]
    closed = jax.make_jaxpr(loss)(problem, w, data, weight)
    found = flow.walk(closed, [*(value(*leaf) for leaf in jax.tree.leaves_with_path(problem)), *given])
    large = any(np.size(x) >= 2 for x in flow.arrays)
    other = any(not of_jdfl(type(problem), name) for name in _TAKING)
    return ("constants",) if large or other or any(one.label for one in found) else ()


def _has_others(one: Any) -> bool:
    """Whether a setting but the optimizer, such as a codec or a rule, or one inside it, is not of a class of jdfl's."""
    if type(one).__module__.partition(".")[0] not in ("jdfl", "builtins", "numpy", "jax", "jaxlib"):
        return True
    parts = fields(one) if is_dataclass(one) else ()
    return any(_has_others(getattr(one, part.name)) for part in parts if part.name != "optimizer")


def _holds_arrays(algorithm: Any, problem: Problem) -> bool:
    """Whether optimizer or step-size schedules, somebody's own in a built-in method, use arrays they were not given."""
    optimizer, own = getattr(algorithm, "optimizer", None), schedules(algorithm)
    if optimizer is None and not own:
        return False

    def once(x: Any) -> Any:
        rates = [one(jnp.int32(0)) for one in own]
        return descent.update(optimizer, 0.1, x, descent.begin(optimizer, 0.1, x), x), rates

    flow = Flow()
    flow.walk(jax.make_jaxpr(once)(np.zeros((1, problem.n), problem.dtype)), [Value()])
    return any(np.size(x) >= 2 for x in flow.arrays)


def of_jdfl(kind: type, name: str, package: str = "jdfl") -> bool:
    """Whether a class has a method from a class of jdfl's own, in this package, or none of that name."""
    owner = next((one for one in kind.__mro__ if name in vars(one)), None)
    return owner is None or _own(owner, package)


def built_in(algorithm: Any) -> bool:
    """Whether a method is jdfl's own, whose claims its tests prove where the program alone does not.

    Its gradients, updates and push-sum must be jdfl's own, too. There may be a rule or an attack around it.
    """
    wraps = _own(type(algorithm), METHODS) and not hasattr(type(algorithm), "kind")
    inner = getattr(algorithm, "algorithm", algorithm) if wraps else algorithm
    parts = [getattr(inner, name, None) for name in ("gradients", "updates", "dpps")]
    kinds = [type(inner), *(type(one) for one in parts if one is not None)]
    return hasattr(type(inner), "kind") and all(_own(kind, METHODS) for kind in kinds)


def _own(kind: type, package: str) -> bool:
    """Whether a class is one at the top of a module of this package; a class of that name elsewhere is not."""
    inside = f"{kind.__module__}.".startswith(f"{package}.")
    return inside and getattr(sys.modules.get(kind.__module__), kind.__name__, None) is kind


def _key(algorithm: Any, problem: Problem, plan: Any) -> Hashable | None:
    """What the traced programs follow from: code, settings, plan and the shapes of the problem; None: no comparison."""
    leaves, structure = jax.tree.flatten((algorithm, plan))
    shapes, about = jax.tree.flatten(problem)
    if any(isinstance(one, Tracer) for one in (*leaves, *shapes)):
        return None
    kind = type(algorithm)
    try:
        values = [np.asarray(one) for one in leaves]
        if sum(one.nbytes for one in values) > _LARGEST:
            return None
        settings = tuple((type(one), x.dtype.str, x.shape, x.tobytes()) for one, x in zip(leaves, values))
        given = tuple((jnp.shape(one), jnp.result_type(one)) for one in shapes)
        key = kind.init, kind.step, kind.prepare, structure, settings, about, given, jnp.result_type(float)
        hash(key)
    except TypeError:  # keys of random numbers, and static settings that have no hash
        return None
    return key


def _traced(algorithm: Any, problem: Problem, plan: Any) -> tuple[tuple[StepTrace, StepTrace], Traced]:
    """The records that `init` and `step` make, and their programs."""
    traces, keys = [StepTrace(), StepTrace()], Keys.of(jax.random.key(0))

    def round(problem: Problem, keys: Keys, trace: StepTrace) -> Round:
        context = some_context(problem, keys)
        ready = algorithm.prepared(problem, context, plan)
        return Round(context=context, problem=problem, prepared=ready, trace=trace)

    def begin(problem: Problem, keys: Keys) -> Any:
        traces[0] = StepTrace()
        here = round(problem, keys, traces[0])
        state = in_round(algorithm, here).init(here)
        return state, algorithm.params(state)

    def advance(state: Any, problem: Problem, keys: Keys) -> Any:
        traces[1] = StepTrace()
        here = round(problem, keys, traces[1])
        new = in_round(algorithm, here).traced_step(state, here)
        return new, algorithm.params(new)

    started, (state, _) = jax.make_jaxpr(begin, return_shape=True)(problem, keys)
    going = jax.make_jaxpr(advance)(state, problem, keys)
    return (traces[0], traces[1]), Traced(started, going, state, jax.tree.structure(problem))


def _released(stream: Stream, traces: Sequence[StepTrace], problem: Problem) -> Guarantee:
    """The guarantee of a stream's noise before the run and in rounds; not claimed where these differ."""
    noises = [trace.noises[stream] for trace in traces if stream in trace.noises]
    looks = max(len(looks) for _, looks in noises)
    first, last = noises[0][0](problem, looks), noises[-1][0](problem, looks)
    if all(getattr(first, part) == getattr(last, part) for part in ("event", "sensitivity", "unit", "adjacency")):
        return last
    reason = f"noise of the stream {stream.name!r} differs between the start and the rounds"
    remedy = "Use the same mechanism and clip in `init` and `step`."
    return replace(last, claimed=False, reason=reason, remedy=remedy, derived=())


def values(problem: Problem) -> list[Value]:
    """What is known of a problem's arrays: records, and values computed from them that are not public, are RAW."""
    public = {"start", *problem.public}

    def value(path: Any, leaf: Any) -> Value:
        name = getattr(path[0], "name", "")
        if name in ("data", "weight"):
            return RECORDS if name == "data" else WEIGHTS
        known = name == "blocks" or (name != "optimum" and (not np.ndim(leaf) or name in public))
        return Value() if known else Value(Label.RAW, own=name == "curvature")

    return [value(path, leaf) for path, leaf in jax.tree.leaves_with_path(problem)]


def some_context(problem: Problem, keys: Keys | None = None) -> RoundContext:
    """The first moment of a run on a network with one neighbour per node."""
    m = problem.m
    node, one = jnp.arange(m, dtype=jnp.int32), jnp.ones((m,), jnp.float32)
    senders = ((node + 1) % m)[:, None]
    graph = Graph(senders, senders >= 0, one[:, None] / 2, one / 2, jnp.ones((m,), jnp.int32))
    keys = Keys.of(jax.random.key(0)) if keys is None else keys
    return RoundContext(jnp.int32(0), keys.run, graph, node, keys)
