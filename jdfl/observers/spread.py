"""A method's rounds as an affine map from its releases to its messages, derived from its step.

With inputs in place of the noisy releases, the program of all rounds computes what leaves the nodes. Each of these rows
is a linear combination of the inputs, whose coefficients are found by reverse-mode differentiation, many rows at a
time, one per column. Random inputs check the result: the program must be affine, treat coordinates alike, and send the
same messages whatever is released.

Axes: m nodes, d slots of the neighbour table, T rounds, P inputs per node, S places of the program at which rows are
recorded, c columns.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from scipy import sparse as sp
from scipy.sparse import csgraph

from jdfl.algorithms.algorithm import codec_of
from jdfl.algorithms.gradients import Gradients
from jdfl.algorithms.program import Program
from jdfl.algorithms.round import RoundContext, To, exact, in_round
from jdfl.base.keys import typed_key
from jdfl.base.streams import Keys
from jdfl.codecs import Dense
from jdfl.engine import stepping
from jdfl.engine.stepping import Setting
from jdfl.network import Graph, Network
from jdfl.observers.watched import Given, Log, NoMapError, Shape, Watched
from jdfl.problems import Problem

_ENTRIES = 2**24  # computed in one backward pass
_MOST_COLUMNS = 512
_TOLERANCE = 1e-9  # for affinity, in float64


@dataclass(frozen=True)
class _Place:
    """A point in the program where rows leave all nodes: in a round, or before all rounds (-1), with the recipient."""

    round: int
    to: To


@dataclass(frozen=True)
class Spread:
    """The map from inputs (releases and pairwise noise) to everything that leaves the nodes in the rounds of a run."""

    m: int
    steps: int
    inputs: list[float | None]  # [P] noise of each release in units of its sensitivity; None: pairwise noise
    factor: np.ndarray | None  # [P, P] maps independent noise to that of the releases; None: identity
    rounds: list[int]  # [P] in which they enter; -1: before all rounds
    places: list[_Place]  # of messages, in the order of the program
    by: np.ndarray  # [messages, m] bool senders
    senders: np.ndarray  # [T, m, d] int32 the neighbour table
    heard: np.ndarray  # [T, m, d] bool slots whose messages arrive
    weight: np.ndarray  # [T, m, d] float32 mixing weights
    everyone: np.ndarray  # [T] bool rounds in which all nodes receive from all others
    points: list[tuple[int, int]]  # releases among the inputs, and the places where their gradients are taken
    fixed: bool  # whether noise is added only to values that depend on inputs through gradients, if at all
    final: int  # the place of the final parameters
    pull: Callable[[Array, Array], tuple[Array, Array]]  # coefficients, from places [c] and weights of nodes [m, c]
    columns: int

    def rows(self, wanted: Sequence[tuple[int, np.ndarray]]) -> np.ndarray:
        """The coefficients [len(wanted), P, m] of rows, each given by a place and weights [m] of the nodes there.

        Releases are in units of their sensitivities, pairwise noise as it is added at a node.
        """
        found = np.zeros((len(wanted), len(self.inputs), self.m))
        for start in range(0, len(wanted), self.columns):
            some = wanted[start : start + self.columns]
            place, weight = np.zeros(self.columns, np.int32), np.zeros((self.m, self.columns))
            for j, (where, nodes) in enumerate(some):
                place[j], weight[:, j] = where, nodes
            with jax.enable_x64(True):
                first, rest = self.pull(jnp.asarray(place), jnp.asarray(weight))
            both = np.concatenate([np.asarray(first), np.asarray(rest)])  # [P, m, c]
            found[start : start + len(some)] = np.moveaxis(both, 2, 0)[: len(some)]
        return found

    def distances(self) -> np.ndarray:
        """The number of links from each node to each other one [m, m], along links used in any round."""
        heard = np.zeros((self.m, self.m), bool)
        for senders, mask in zip(self.senders, self.heard):
            heard[np.nonzero(mask)[0], senders[mask]] = True
        heard[:] |= self.everyone.any()
        return csgraph.shortest_path(heard, unweighted=True)

    def noises(self, unknown: np.ndarray) -> Any:
        """How unknown unit noises combine into the noise of inputs: [P m, noises], for unknown nodes [m].

        Each release has its node's own noise; pairwise noise has one unit per link and round, known to both its nodes.
        """
        if self.factor is not None:
            own = np.eye(self.m)[:, unknown]
            return sp.kron(self.factor * np.array(self.inputs, float), own, format="csr")
        size, parts = self.m * len(self.inputs), []
        for p, (multiplier, k) in enumerate(zip(self.inputs, self.rounds)):
            if multiplier is not None:
                ends, weights = np.flatnonzero(unknown)[:, None], np.array([multiplier])
            else:
                listener, slot = np.nonzero(self.heard[max(k, 0)])
                pairs = np.stack([listener, self.senders[max(k, 0)][listener, slot]], axis=1)
                ends = pairs[(pairs[:, 0] < pairs[:, 1]) & unknown[pairs].all(axis=1)]
                weights = np.array([1.0, -1.0])
            columns = np.broadcast_to(np.arange(len(ends))[:, None], ends.shape).ravel()
            values = np.broadcast_to(weights, ends.shape).ravel()
            parts.append(sp.csr_array((values, (p * self.m + ends.ravel(), columns)), (size, len(ends))))
        return sp.hstack(parts, format="csr")


def spread(program: Program, problem: Problem, network: Network, steps: int, key: int | Array) -> Spread:
    """The map of a planned program over `steps` rounds; NoMapError where there is none, with the reason."""
    with jax.enable_x64(True):
        return _Rounds(program, problem, network, steps, key).spread()


class _Rounds:
    """The program of all rounds, with its releases as inputs."""

    def __init__(self, program: Program, problem: Problem, network: Network, steps: int, key: int | Array) -> None:
        self.m, self.steps, self.plan = problem.m, steps, program.plan
        self.keys = Keys.of(typed_key(key))
        self.network = stepping.nameless(network)
        self.algorithm = _followed(program.algorithm, problem)
        self.weight = np.asarray(problem.weight, np.float64)
        self.curvature = np.asarray(problem.curvature, np.float64)
        self.before, self.each = self._logs()
        self.first, self.per_round = len(self.before.inputs), len(self.each.inputs)
        self.inputs = self.before.inputs + steps * self.each.inputs
        if all(one is None for one in self.inputs):
            raise NoMapError("it releases nothing")

    def spread(self) -> Spread:
        """The map, checked."""
        places = [_Place(-1, one.to) for one in self.before.sent]
        places += [_Place(k, one.to) for k in range(self.steps) for one in self.each.sent]
        asked = [release for release, _ in self.before.points]
        for k in range(self.steps):
            asked += [self.first + k * self.per_round + release for release, _ in self.each.points]
        points = [(release, len(places) + j) for j, release in enumerate(asked)]
        final = len(places) + len(points)
        columns = max(2, min(_MOST_COLUMNS, _ENTRIES // (self.m * (final + 1 + len(self.inputs)))))
        shapes = [(rows, self.m, columns) for rows in (self.first, self.steps * self.per_round)]

        @jax.jit
        def pull(place: Array, weight: Array) -> tuple[Array, Array]:
            zeros = [jnp.zeros(shape) for shape in shapes]
            cotangent = jnp.zeros((final + 1, self.m, columns))
            cotangent = cotangent.at[place, :, jnp.arange(columns)].set(weight.T)
            return jax.vjp(lambda *given: self.forward(*given)[0], *zeros)[1](cotangent)

        by, graphs, fixed, factors = self._checked(shapes)
        heard = np.asarray(graphs.out_degree) > 0
        for index, place in enumerate(places):
            if place.to == "neighbours":
                by[index] &= heard[max(place.round, 0)]
        together = graphs.synchronised
        return Spread(
            m=self.m,
            steps=self.steps,
            inputs=self.inputs,
            factor=_factor(len(self.inputs), factors),
            rounds=self.first * [-1] + [k for k in range(self.steps) for _ in range(self.per_round)],
            places=places,
            by=by,
            senders=np.asarray(graphs.senders),
            heard=np.asarray(graphs.mask),
            weight=np.asarray(graphs.weight),
            everyone=np.zeros(self.steps, bool) if together is None else np.asarray(together),
            points=points,
            fixed=fixed,
            final=final,
            pull=pull,
            columns=columns,
        )

    def _checked(self, shapes: list[tuple[int, int, int]]) -> tuple[np.ndarray, Graph, bool, np.ndarray]:
        """The senders at every place [messages, m], the graphs, `fixed`, and rows of C; NoMapError if not affine."""
        random = np.random.default_rng(0)
        a, b = ([random.standard_normal((*shape[:2], 3)) for shape in shapes] for _ in range(2))
        alike = [np.broadcast_to(one[:, :, :1], one.shape) for one in b]
        given = [a, b, [2 * one - 3 * other for one, other in zip(a, b)], [0 * one for one in a], alike]
        forward = jax.jit(self.forward)
        ran = [forward(*map(jnp.asarray, one)) for one in given]
        rows = [np.asarray(one) for one, _ in ran]
        bys = [np.asarray(by) for _, (by, *_) in ran]
        bare = [np.asarray(one) for _, (_, _, one, _) in ran]
        if any((by != bys[0]).any() for by in bys):
            raise NoMapError("the senders of a round depend on what has been released")
        f_a, f_b, f_both, f_0, f_alike = rows
        size = np.max(np.abs(np.stack(rows)))
        gaps = {
            "its step is not affine in what is released": f_both - f_0 - 2 * (f_a - f_0) + 3 * (f_b - f_0),
            "its step does not treat the entries of a vector alike": f_alike - f_b[:, :, :1],
        }
        for reason, gap in gaps.items():
            if not np.max(np.abs(gap)) <= _TOLERANCE * size:  # NaN is not a map either
                raise NoMapError(f"{reason} (by {np.max(np.abs(gap)) / size:.1g} of its size)")
        _, graphs, _, factors = ran[0][1]
        return bys[0].copy(), graphs, all(np.array_equal(one, bare[0]) for one in bare), np.asarray(factors)

    def forward(self, first: Array, rest: Array) -> tuple[Array, tuple[Array, Graph, Array, Array]]:
        """Rows [S, m, c] of messages, of points and of the final parameters, given inputs [P, m, c]."""
        columns = first.shape[2]
        state, log = self._begin(first, columns)
        given = rest.reshape(self.steps, self.per_round, *rest.shape[1:])

        def step(state: Any, now: tuple[Array, Array]) -> tuple[Any, Any]:
            new, log, context = self._step(state, now[0], now[1], columns)
            return new, (*_arrays(log, rest.shape[1:]), context.graph, log.bare, _rows_of(log))

        rounds = jnp.arange(self.steps, dtype=jnp.int32)
        state, (sent, points, by, graphs, bare, factors) = lax.scan(step, state, (rounds, given))
        began = _arrays(log, rest.shape[1:])

        def together(one: Array, other: Array) -> Array:
            return jnp.concatenate([one, other.reshape(-1, *one.shape[1:])])

        last = self.algorithm.params(state)[None]
        rows = jnp.concatenate([together(began[0], sent), together(began[1], points), last])
        every = jnp.concatenate([*(one[None] for one in log.bare), *bare])
        return rows, (together(began[2], by), graphs, every, factors[:, 0] if factors.shape[1] else factors[:0])

    def _logs(self) -> tuple[Log, Log]:
        logs: list[Log] = []

        def once() -> Any:
            state, before = self._begin(None, 2)
            new, log, _ = self._step(state, jnp.int32(0), None, 2)
            logs.extend((before, log))
            return self.algorithm.params(new)

        jax.eval_shape(once)
        return logs[0], logs[1]

    def _setting(self, columns: int) -> Setting:
        zeros, node = jnp.zeros(self.weight.shape), jnp.arange(self.m, dtype=jnp.int32)
        shape = Shape(zeros, jnp.asarray(self.weight), jnp.asarray(self.curvature), width=columns)
        return Setting(Program(self.algorithm, self.plan), shape, self.network, None, self.keys, node)

    def _round(self, setting: Setting, context: RoundContext, given: Array | None) -> Watched:
        ready = self.algorithm.prepared(setting.problem, stepping.initial_round(setting), self.plan)
        return Watched(context=context, problem=setting.problem, prepared=ready, given=given, log=Log())

    def _begin(self, given: Array | None, columns: int) -> tuple[Any, Log]:
        setting = self._setting(columns)
        round = self._round(setting, stepping.initial_round(setting), given)
        return in_round(self.algorithm, round).init(round), round.log

    def _step(self, state: Any, k: Array, given: Array | None, columns: int) -> tuple[Any, Log, RoundContext]:
        setting = self._setting(columns)
        context = stepping.sample_round(setting, k)
        if context.graph.late is not None:
            raise NoMapError("messages of its network may be late")
        round = self._round(setting, context, given)
        new = in_round(self.algorithm, round).step(state, round)
        return stepping.kept(state, new, context), round.log, context


def _arrays(log: Log, shape: tuple[int, ...]) -> tuple[Array, Array, Array]:
    """The rows of messages and of points [., m, c] of a log, and the senders [., m]."""

    def stacked(rows: Sequence[Array], shape: tuple[int, ...], dtype: Any = None) -> Array:
        return jnp.stack(rows) if rows else jnp.zeros((0, *shape), dtype)

    points, by = [x for _, x in log.points], [one.by for one in log.sent]
    return stacked([one.x for one in log.sent], shape), stacked(points, shape), stacked(by, shape[:1], jnp.bool_)


def _rows_of(log: Log) -> Array:
    """The row [1, p] of C in a round whose noise is correlated with earlier noise, or none [0, 0]."""
    if log.factors and len(log.inputs) > 1:
        raise NoMapError("it makes several releases in a round, whose noise is correlated over rounds")
    return jnp.stack(log.factors) if log.factors else jnp.zeros((0, 0))


def _factor(count: int, rows: np.ndarray) -> np.ndarray | None:
    """C^-1 [P, P] for correlated releases, from the rows [P, p] of C, diagonal first; None: not correlated."""
    if not len(rows):
        return None
    C = np.zeros((count, count))
    for back in range(min(count, rows.shape[1])):
        C[np.arange(back, count), np.arange(count - back)] = rows[back:, back]
    return np.linalg.inv(C)


def _followed(algorithm: Any, problem: Problem) -> Any:
    """The settings with given gradients, in float64; NoMapError for parts that cannot be replaced."""
    if hasattr(algorithm, "gradients"):
        if type(algorithm.gradients) is not Gradients:
            raise NoMapError(f"its gradients have their own class, {type(algorithm.gradients).__name__}")
        inner = {one.name: getattr(algorithm.gradients, one.name) for one in fields(Gradients)}
        scale = jnp.asarray(np.asarray(algorithm.gradients.sensitivities(problem), np.float64))
        algorithm = replace(algorithm, gradients=Given(**inner, slope=_slope(problem), scale=scale))
    if not hasattr(algorithm, "codec"):
        return algorithm
    if not exact(codec_of(algorithm, problem), jnp.zeros((1, 1), problem.dtype)):
        raise NoMapError(f"its codec {algorithm.codec!r} loses information")
    return replace(algorithm, codec=Dense("float64"))


def _slope(problem: Problem) -> float:
    """The s of a regulariser s / 2 ||w||^2; NoMapError for any other."""
    w = jnp.asarray(np.random.default_rng(0).standard_normal((2, problem.n)), problem.dtype)
    g = np.asarray(jax.vmap(jax.grad(problem.regulariser))(w), np.float64)
    at = np.asarray(w, np.float64)
    slope = float(np.sum(g * at) / np.sum(at * at))
    if np.max(np.abs(g - slope * at)) > 1e-5 * np.max(np.abs(g)):
        raise NoMapError("its regulariser is not a multiple of the squared norm")
    return slope
