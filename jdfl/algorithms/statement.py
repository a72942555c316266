"""What may be said about a method's privacy, from the programs of its `init` and `step`: see `Algorithm.privacy`."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr

from jdfl.algorithms.book import Book
from jdfl.algorithms.moment import Moment
from jdfl.algorithms.round import Round
from jdfl.base.streams import Keys, Stream
from jdfl.network import Graph
from jdfl.privacy import NO_NOISE, NOTHING_SENT, Guarantee
from jdfl.privacy.flow import Label, leaking
from jdfl.problems import Problem

_LOCAL = "they hold what no noise has been added to"
CORRELATED = "noise is correlated over rounds, and what all of it reveals together is not accounted for"
_TOGETHER = "Add all noise by one mechanism, or give `round.noisy` as `told` the stream whose guarantee covers both."


def stated(algorithm: Any, problem: Problem, plan: Any, steps: int | None) -> Guarantee:
    """What the noise guarantees that an algorithm adds before the first round and in rounds, as they are traced.

    Args:
        algorithm: The settings of the method, a `jdfl.Algorithm`.
        problem: What the nodes learn.
        plan: What its `plan` gives for a run.
        steps: The number of rounds that was planned for; None: no number was.
    """
    books, programs = _traced(algorithm, problem, plan)
    releases = {stream: _released(stream, books, problem) for book in books for stream in book.noises}
    if not releases:
        return algorithm.told(NO_NOISE if any(book.uses for book in books) else NOTHING_SENT, problem, steps)
    told = algorithm.told(next(iter(releases.values())), problem, steps)
    if told.claimed and (len(releases) > 1 or any(book.uncovered() for book in books)):
        names = ", ".join(repr(one.name) for one in dict.fromkeys([*releases, *books[0].parts, *books[1].parts]))
        reason = f"noise of several streams is added ({names}), and what they reveal together is not accounted for"
        told = replace(told, claimed=False, reason=reason, remedy=_TOGETHER)
    local = algorithm.unsent if told.event is not None else ""
    if told.claimed:
        leaks, params, _ = outputs(programs, problem)
        local = (algorithm.unsent or _LOCAL) if params > Label.CLEAN else ""
        if leaks:
            channel, why = next(iter(leaks.items()))
            reason = f"what is sent on the channel {channel!r} {why}"
            told = replace(told, claimed=False, reason=reason, remedy="Send nothing but what noise has been added to.")
    if told.claimed and any(book.correlated for book in books):
        remedy = "Count in `privacy` what the rows of its factor add up to, as jdfl.MAFALDA does."
        told = replace(told, claimed=False, reason=CORRELATED, remedy=remedy)
    return replace(told, local=told.local or local)


@dataclass(frozen=True)
class Traced:
    """The programs of a method: `init`, and `step`, each of which gives a state, and then the nodes' parameters."""

    started: ClosedJaxpr
    going: ClosedJaxpr
    state: Any  # of shapes, as the two give it


def traced(algorithm: Any, problem: Problem, plan: Any) -> Traced:
    """The programs of a method on a problem, with what its `plan` gives for a run."""
    return _traced(algorithm, problem, plan)[1]


def outputs(programs: Traced, problem: Problem) -> tuple[dict[str, str], Label, Any]:
    """What records of the problem have to do with all that comes out of these programs.

    These are the channels on which something leaks, with the reasons, the parameters, and the arrays of a state, as a
    tree.
    """
    leaves, structure = jax.tree.flatten(programs.state)
    leaks, found = leaking(programs.started, programs.going, labels(problem), len(leaves))
    return leaks, max(found[len(leaves) :]), jax.tree.unflatten(structure, found[: len(leaves)])


def _traced(algorithm: Any, problem: Problem, plan: Any) -> tuple[tuple[Book, Book], Traced]:
    """What `init` and `step` have written down, and their programs."""
    books = Book(), Book()

    def round(problem: Problem, book: Book) -> Round:
        moment = _some_moment(problem)
        ready = algorithm.prepared(problem, moment, plan)
        return Round(moment=moment, problem=problem, prepared=ready, book=book)

    def begin(problem: Problem) -> Any:
        state = algorithm.init(round(problem, books[0]))
        return state, algorithm.params(state)

    def advance(state: Any, problem: Problem) -> Any:
        new = algorithm.step(state, round(problem, books[1]))
        return new, algorithm.params(new)

    started, (state, _) = jax.make_jaxpr(begin, return_shape=True)(problem)
    return books, Traced(started, jax.make_jaxpr(advance)(state, problem), state)


def _released(stream: Stream, books: Sequence[Book], problem: Problem) -> Guarantee:
    """What noise of a stream guarantees, before the run and in a round; not claimed where these differ."""
    noises = [book.noises[stream] for book in books if stream in book.noises]
    looks = max(len(looks) for _, looks in noises)
    first, last = noises[0][0](problem, looks), noises[-1][0](problem, looks)
    if all(getattr(first, part) == getattr(last, part) for part in ("event", "sensitivity", "unit", "adjacency")):
        return last
    reason = f"noise of the stream {stream.name!r} is another one before the first round than in rounds"
    return replace(last, claimed=False, reason=reason, remedy="Use the same mechanism and clip in `init` and `step`.")


def labels(problem: Problem) -> list[Label]:
    """Those of all arrays of a problem: its records, and what is computed from them and is not public, are RAW."""
    public = {"weight", "start", *problem.public}

    def label(path: Any, leaf: Any) -> Label:
        name = getattr(path[0], "name", "")
        return Label.CLEAN if name != "optimum" and (not np.ndim(leaf) or name in public) else Label.RAW

    return jax.tree.leaves(jax.tree_util.tree_map_with_path(label, problem))


def _some_moment(problem: Problem) -> Moment:
    """The first moment of a run on some network of one neighbour each."""
    m = problem.m
    node, one = jnp.arange(m, dtype=jnp.int32), jnp.ones((m,), jnp.float32)
    senders = ((node + 1) % m)[:, None]
    graph = Graph(senders, senders >= 0, one[:, None] / 2, one / 2, jnp.ones((m,), jnp.int32))
    key = jax.random.key(0)
    return Moment(jnp.int32(0), key, graph, node, Keys.of(key))
