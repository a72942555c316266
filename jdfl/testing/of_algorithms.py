"""The laws that every algorithm keeps.

Axes: m nodes, n parameters.
"""
# pyright: reportUnusedFunction=false

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from operator import attrgetter
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jdfl import network as networks
from jdfl import problems
from jdfl.algorithms import Algorithm
from jdfl.algorithms.program import Program, planned
from jdfl.algorithms.round import RoundContext, StepCounts
from jdfl.base import arguments, checks
from jdfl.engine import stepping
from jdfl.engine.accountant import paths
from jdfl.engine.batch import sweep
from jdfl.engine.result import Result
from jdfl.engine.runner import run
from jdfl.engine.start import Options, check_run
from jdfl.privacy import flow
from jdfl.testing.law import close, hold, laws_in, leaves_equal, require, same

NODES = 6  # of the problem that laws are tried on
PARAMETERS = 20
EXAMPLES = 8
ROUNDS = 11
_PLAYED = 13
_SAME: dict[str, Any] = {"every": 2, "metrics": ["objective", "consensus_error"]}  # one program for all laws that run
Start = Callable[[Program, Any], Any]
_compiled = 0


def _listen(event: str, duration_secs: float, **_: object) -> None:
    global _compiled
    _compiled += event == "/jax/core/compile/backend_compile_duration"


jax.monitoring.register_event_duration_secs_listener(_listen)


def compilations() -> int:
    """How many programs JAX has compiled in this process since this module was imported."""
    return _compiled


def small_problem(
    noise: float = 0.1, padding: int = 0, shared: int | None = None, dtype: Any = np.float32, m: int = NODES
) -> problems.LinearRegression:
    """Sparse linear regression of 6 nodes with 8 examples each and 20 parameters, three of them not zero.

    Args:
        noise: standard deviation of the noise on targets; with zero the true parameters solve every node's problem.
        padding: examples of weight zero that are added to every node.
        shared: how many leading parameters the nodes have in common; None: all.
        dtype: of the data.
        m: how many nodes there are instead of 6.
    """
    draw, truth = np.random.default_rng(5), np.zeros(PARAMETERS)
    truth[:3] = [1.0, -2.0, 0.5]
    A = draw.standard_normal((m, EXAMPLES, PARAMETERS))
    b = A @ truth + noise * draw.standard_normal((m, EXAMPLES))
    problem = replace(problems.linear_regression(list(A), list(b), truth=truth, dtype=dtype), shared=shared)
    return padded(problem, padding) if padding else problem


def padded(problem: problems.LinearRegression, padding: int) -> problems.LinearRegression:
    """The problem with `padding` more examples of weight zero at every node."""

    def longer(x: Array) -> Array:
        return jnp.pad(x, [(0, 0), (0, padding)] + [(0, 0)] * (x.ndim - 2))

    return replace(problem, data=jax.tree.map(longer, problem.data), weight=longer(problem.weight))


def small_network() -> networks.Static:
    """A connected, undirected graph of 6 nodes that have unequal degrees."""
    return networks.from_edges([(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 0), (0, 2), (0, 3)], NODES)


@dataclass(frozen=True)
class Case:
    """An algorithm, and what it is tried on: a fixed network, and a problem whose data are stacked arrays."""

    algorithm: Algorithm
    problem: problems.LinearRegression = field(default_factory=small_problem)
    network: networks.Static = field(default_factory=small_network)
    swept: str = ""
    """The float setting that runs side by side differ in, by a dotted name; empty: the first that is tuned."""

    def run(self, **given: Any) -> Result:
        """A run of 11 rounds with key 1, unless something else is `given`."""
        how: dict[str, Any] = {"key": 1, "steps": ROUNDS, "options": Options(chunk=100)} | _SAME | given
        return run(self.algorithm, self.problem, self.network, **how)

    def play(
        self, problem: Any = None, network: Any = None, node: Sequence[int] | None = None, start: Start | None = None
    ) -> tuple[Program, Array, StepCounts]:
        """The prepared program, the parameters [13, m, n] after each of 13 rounds, and the summed counts, in float64.

        Args:
            problem: what to learn instead of the case's.
            network: the network instead of the case's.
            node: ids [m] of the nodes; None: 0, 1, ...
            start: the state of program and problem from which it begins; None: that of `init`.
        """
        with jax.enable_x64(True):  # messages of few bits remain the same where additions have another order
            wide = partial(jax.tree.map, lambda x: x.astype(float) if jnp.issubdtype(x.dtype, jnp.floating) else x)
            problem, network = wide(problem or self.problem), network or self.network
            ids = jnp.arange(problem.m, dtype=jnp.int32) if node is None else jnp.asarray(node, jnp.int32)
            program = planned(self.algorithm, problem, network, _PLAYED)
            return jax.device_get(_played(program, stepping.nameless(problem), stepping.nameless(network), ids, start))


@partial(jax.jit, static_argnames=("start",))
def _played(
    program: Program, problem: Any, network: Any, node: Array, start: Start | None
) -> tuple[Program, Array, StepCounts]:
    prepares, begins, goes_on = jax.random.split(jax.random.key(3), 3)

    def at(k: Array, key: Array) -> RoundContext:
        key = jax.random.fold_in(key, k)
        return RoundContext(k, key, network.at(k, key), node)

    program = program.prepare(problem, at(jnp.int32(0), prepares))
    state, total = program.init(problem, at(jnp.int32(0), begins))
    if start is not None:
        state = start(program, problem)

    def one(carry: Any, k: Array) -> tuple[Any, Array]:
        state, info = program.step(carry[0], problem, at(k, goes_on))
        return (state, jax.tree.map(jnp.add, carry[1], info)), program.params(state)

    (_, total), params = jax.lax.scan(one, (state, total), jnp.arange(_PLAYED, dtype=jnp.int32))
    return program, params, total


def _same_counts(here: StepCounts, there: StepCounts, order: Any = slice(None)) -> None:
    leaves_equal("counts", jax.tree.leaves(there), [one[order] for one in jax.tree.leaves(here)])


def _chunks_change_nothing(case: Case) -> None:
    """A run that returns to Python every three rounds equals the unbroken one, bit for bit."""
    whole, parts = case.run(), case.run(options=Options(chunk=3))
    close("parameters", parts.params, whole.params)
    require(whole.history.equals(parts.history), "the recorded metrics differ")
    same("totals", parts.totals, whole.totals)
    same("recorded rounds", whole.history["round"].tolist(), [0, 2, 4, 6, 8, 10, 11])


def _resumed_runs_are_the_same(case: Case) -> None:
    """A run that is interrupted after round 6 and resumed equals the unbroken one, bit for bit."""
    cut = case.run(options=Options(chunk=3), callbacks=[lambda now: "enough" if now.rounds >= 6 else None])
    same("rounds before the interruption", cut.rounds, 6)
    whole, resumed = case.run(), case.run(resume=cut)
    close("parameters", resumed.params, whole.params)
    same("totals", resumed.totals, whole.totals)


def _plans_begin_alike(case: Case) -> None:
    """The plan of a short run is the beginning of the plan of a longer one, so that runs of all lengths share it."""
    few, many = (jax.tree.leaves(planned(case.algorithm, case.problem, case.network, k).plan) for k in (4, 9))
    for short, long in zip(few, many, strict=True):
        (axis,) = np.flatnonzero(np.array(short.shape) != long.shape)
        close("plan of 4 and of 9 rounds", np.take(long, range(short.shape[axis]), axis), short)


def _runs_side_by_side_equal_single_runs(case: Case) -> None:
    """Two values of a setting with two seeds in one program equal four single runs, and the setting matters."""
    name = case.swept or next(iter(case.algorithm.tuned), "")

    def runs(*factors: float) -> list[Result]:
        over = {name: [factor * attrgetter(name)(case.algorithm) for factor in factors]} if name else {}
        given: dict[str, Any] = {"keys": [4, 5], "over": over, "steps": ROUNDS, "batch": 2} | _SAME
        return sweep(case.algorithm, case.problem, case.network, **given)

    for found in runs(1.0, 0.5):
        varied = stepping.with_field(case.algorithm, name, found.labels[name]) if name else case.algorithm
        alone = replace(case, algorithm=varied).run(key=found.run_key)
        close(f"parameters of {found.labels}", found.params, alone.params, rtol=1e-5, atol=1e-6)
        same(f"totals of {found.labels}", found.totals, alone.totals)
    before = compilations()
    runs(0.8, 0.7)
    same(f"programs compiled for other values of {name}", compilations() - before, 0)
    if name:  # what is played draws the same noise whatever the settings are
        other = stepping.with_field(case.algorithm, name, 0.5 * attrgetter(name)(case.algorithm))
        changed = not np.array_equal(case.play()[1], replace(case, algorithm=other).play()[1])
        require(changed, f"half of {name} gives the same parameters")


def _one_program_for_all_values(case: Case) -> None:
    """Another seed, other data and other numbers in the settings compile nothing again."""
    case.run()
    made = 0
    for factor, seed in ((1.1, 9), (1.2, 10)):  # again if the first checks of other data compiled something
        other = replace(case.problem, data=jax.tree.map(lambda x, factor=factor: factor * x, case.problem.data))
        changed = case.algorithm
        for name in changed.tuned:
            changed = stepping.with_field(changed, name, factor * attrgetter(name)(changed))
        before = compilations()
        Case(changed, other, case.network).run(key=seed)
        made = compilations() - before
        if made == 0:
            break
    same("programs compiled for another seed, data and settings", made, 0)


def _relabelled_nodes_do_the_same(case: Case) -> None:
    """Nodes that lie in another order, with their ids, data and links, compute the same: places mean nothing."""
    problem, order = case.problem, np.random.default_rng(3).permutation(case.problem.m)
    data, rest = jax.tree.map(lambda leaf: leaf[order], problem.data), ("weight", "curvature")
    moved = replace(problem, data=data, **{name: getattr(problem, name)[order] for name in rest})
    relabelled = replace(case.network, graph=networks.relabel(case.network.graph, order))
    _, here, counts = case.play()
    _, there, moved_counts = case.play(moved, relabelled, order.tolist())
    close("parameters by round", there, here[:, order], rtol=1e-9, atol=1e-12)
    _same_counts(counts, moved_counts, order)


def _padding_changes_nothing(case: Case) -> None:
    """Examples of weight zero and empty slots for neighbours change nothing."""
    wide = replace(case.network, graph=networks.pad(case.network.graph, case.network.graph.mask.shape[1] + 5))
    _, here, counts = case.play()
    _, there, wide_counts = case.play(padded(case.problem, 5), wide)
    close("parameters by round", there, here, rtol=1e-9, atol=1e-12)
    _same_counts(counts, wide_counts)


def _runs_stay_finite(case: Case) -> None:
    """Forty rounds are completed with finite parameters and metrics."""
    result = case.run(steps=40, key=2)
    same("ending", result.ending, "steps")
    for name, found in (("metrics", result.history.to_numpy(dtype=float)), ("parameters", result.params)):
        require(np.isfinite(found).all(), f"{int((~np.isfinite(found)).sum())} {name} are not finite")


def _bits_are_those_of_the_messages(case: Case) -> None:
    """Every channel is counted, and the bits of a run are its messages times their size."""
    totals = case.run().totals
    channels = {channel.name for channel in case.algorithm.channels}
    for what, names in (("messages", totals.messages), ("bits", totals.message_bits)):
        bare = {name if name in channels else name.rpartition(" of ")[0] or name for name in names}  # without a size
        same(f"channels whose {what} are counted", bare, channels)
    same("bits", totals.bits, sum(totals.message_bits[name] * sent for name, sent in totals.messages.items()))


def _claims_rest_on_noise(case: Case) -> None:
    """A claim of privacy counts releases, covers what they reveal, and disappears where no noise protects it."""
    given = case.algorithm, case.problem, case.network
    program = planned(*given, ROUNDS)
    told, stated = program.privacy(case.problem), case.algorithm.privacy(case.problem, program.plan, ROUNDS)
    require(told.claimed or not stated.claimed, f"privacy is claimed, but {told.reason}")
    if told.claimed:
        require(case.run().totals.releases > 0, "privacy is claimed, but no release is counted")
        exposed = paths(*given, steps=ROUNDS)["parameters"]
        same("whether parameters are exposed, and local privacy is claimed", bool(exposed), bool(told.local))
        with mock.patch.object(flow.Flow, "noise_counts", False):
            require(not program.privacy(case.problem).claimed, "privacy is claimed without noise")
            require(paths(*given, steps=ROUNDS)["parameters"], "parameters are not exposed without noise")


LAWS = laws_in(globals())
"""The laws by their names."""


def check_algorithm(algorithm: Algorithm, law: str | None = None, problem: Any = None, network: Any = None) -> None:
    """Try one law, or all of them, on an algorithm.

    Args:
        algorithm: The settings of a class that inherits from `jdfl.Algorithm`.
        law: A name in `LAWS`; None: all, one after another.
        problem: The problem that nodes learn, with stacked data; None: `small_problem()`.
        network: A fixed network of as many nodes; None: `small_network()`.

    Raises:
        LawBrokenError: For the first law that does not hold.
        ValueError: For an unknown law, an object that is no algorithm, settings out of range, and a network that
            changes over rounds.
    """
    arguments.argument("algorithm", algorithm, Algorithm)
    if network is not None and not isinstance(network, networks.Static):
        raise ValueError(
            f"Expected a fixed network, got network = {checks.text(network)}. For example jdfl.network.ring(6)."
        )
    case = Case(algorithm, problem or small_problem(), network or small_network())
    check_run(case.algorithm, case.problem, case.network, ROUNDS, 1, None)
    hold(LAWS, case, algorithm, law)
