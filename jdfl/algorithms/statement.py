"""A method's privacy guarantee, derived from the traced programs of its `init` and `step`: see `Algorithm.privacy`."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.extend.core import ClosedJaxpr

from jdfl.algorithms.book import Book
from jdfl.algorithms.moment import Moment
from jdfl.algorithms.round import Round
from jdfl.base.streams import Keys, Stream
from jdfl.network import Graph
from jdfl.privacy import NO_NOISE, NOTHING_SENT, Guarantee
from jdfl.privacy.flow import Label, leaking
from jdfl.problems import Problem

_LOCAL = "they contain values without noise"
CORRELATED = "noise is correlated over rounds, and its joint guarantee is not accounted for"
_LARGEST, _MOST = 2**16, 1024  # bytes of settings that are compared, and methods that are remembered
_noiseless: dict[Hashable, Guarantee] = {}  # only these: where code is exchanged, this may claim too little, never more
_TOGETHER = "Add all noise with one mechanism, or pass `round.noisy` the stream whose guarantee covers both as `claim`."


def stated(algorithm: Any, problem: Problem, plan: Any, steps: int | None) -> Guarantee:
    """The guarantee of the noise that an algorithm adds before the first round and in rounds, as they are traced.

    Args:
        algorithm: The settings of the method, a `jdfl.Algorithm`.
        problem: The problem to learn.
        plan: The result of its `plan` for a run.
        steps: The planned number of rounds; None: unknown.
    """
    key = _key(algorithm, problem, plan)
    if key in _noiseless:
        return algorithm.annotated(_noiseless[key], problem, steps)
    books, programs = _traced(algorithm, problem, plan)
    releases = {stream: _released(stream, books, problem) for book in books for stream in book.noises}
    if not releases:
        found = NO_NOISE if any(book.uses for book in books) else NOTHING_SENT
        if key is not None:
            if len(_noiseless) >= _MOST:
                _noiseless.clear()
            _noiseless[key] = found
        return algorithm.annotated(found, problem, steps)
    claim = algorithm.annotated(next(iter(releases.values())), problem, steps)
    if claim.claimed and (len(releases) > 1 or any(book.uncovered() for book in books)):
        names = ", ".join(repr(one.name) for one in dict.fromkeys([*releases, *books[0].parts, *books[1].parts]))
        reason = f"noise of several streams is added ({names}), and their joint guarantee is not accounted for"
        claim = replace(claim, claimed=False, reason=reason, remedy=_TOGETHER)
    local = algorithm.unsent if claim.event is not None else ""
    if claim.claimed:
        leaks, params, _ = outputs(programs, problem)
        local = (algorithm.unsent or _LOCAL) if params > Label.CLEAN else ""
        if leaks:
            channel, why = next(iter(leaks.items()))
            reason = f"what is sent on the channel {channel!r} {why}"
            claim = replace(claim, claimed=False, reason=reason, remedy="Send only what noise has been added to.")
    if claim.claimed and any(book.correlated for book in books):
        remedy = "Count the rows of its factor in `privacy`, as jdfl.MAFALDA does."
        claim = replace(claim, claimed=False, reason=CORRELATED, remedy=remedy)
    return replace(claim, local=claim.local or local)


@dataclass(frozen=True)
class Traced:
    """The programs of a method: `init` and `step` return a state and the nodes' parameters."""

    started: ClosedJaxpr
    going: ClosedJaxpr
    state: Any  # shapes of the state that both return


def traced(algorithm: Any, problem: Problem, plan: Any) -> Traced:
    """The programs of a method on a problem, with the result of its `plan` for a run."""
    return _traced(algorithm, problem, plan)[1]


def outputs(programs: Traced, problem: Problem) -> tuple[dict[str, str], Label, Any]:
    """How the records of the problem affect the outputs of these programs.

    Returns the channels that leak, with reasons; the label of the parameters; and the labels of the arrays of a state,
    as a tree.
    """
    leaves, structure = jax.tree.flatten(programs.state)
    leaks, found = leaking(programs.started, programs.going, labels(problem), len(leaves))
    return leaks, max(found[len(leaves) :]), jax.tree.unflatten(structure, found[: len(leaves)])


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


def _traced(algorithm: Any, problem: Problem, plan: Any) -> tuple[tuple[Book, Book], Traced]:
    """The records that `init` and `step` make, and their programs."""
    books = Book(), Book()

    def round(problem: Problem, book: Book) -> Round:
        moment = some_moment(problem)
        ready = algorithm.prepared(problem, moment, plan)
        return Round(moment=moment, problem=problem, prepared=ready, book=book)

    def begin(problem: Problem) -> Any:
        state = algorithm.init(round(problem, books[0]))
        return state, algorithm.params(state)

    def advance(state: Any, problem: Problem) -> Any:
        new = algorithm.traced_step(state, round(problem, books[1]))
        return new, algorithm.params(new)

    started, (state, _) = jax.make_jaxpr(begin, return_shape=True)(problem)
    return books, Traced(started, jax.make_jaxpr(advance)(state, problem), state)


def _released(stream: Stream, books: Sequence[Book], problem: Problem) -> Guarantee:
    """The guarantee of a stream's noise before the run and in rounds; not claimed where these differ."""
    noises = [book.noises[stream] for book in books if stream in book.noises]
    looks = max(len(looks) for _, looks in noises)
    first, last = noises[0][0](problem, looks), noises[-1][0](problem, looks)
    if all(getattr(first, part) == getattr(last, part) for part in ("event", "sensitivity", "unit", "adjacency")):
        return last
    reason = f"noise of the stream {stream.name!r} differs between the start and the rounds"
    return replace(last, claimed=False, reason=reason, remedy="Use the same mechanism and clip in `init` and `step`.")


def labels(problem: Problem) -> list[Label]:
    """The labels of a problem's arrays: records, and values computed from them that are not public, are RAW."""
    public = {"weight", "start", *problem.public}

    def label(path: Any, leaf: Any) -> Label:
        name = getattr(path[0], "name", "")
        return Label.CLEAN if name != "optimum" and (not np.ndim(leaf) or name in public) else Label.RAW

    return jax.tree.leaves(jax.tree_util.tree_map_with_path(label, problem))


def some_moment(problem: Problem) -> Moment:
    """The first moment of a run on a network with one neighbour per node."""
    m = problem.m
    node, one = jnp.arange(m, dtype=jnp.int32), jnp.ones((m,), jnp.float32)
    senders = ((node + 1) % m)[:, None]
    graph = Graph(senders, senders >= 0, one[:, None] / 2, one / 2, jnp.ones((m,), jnp.int32))
    key = jax.random.key(0)
    return Moment(jnp.int32(0), key, graph, node, Keys.of(key))
