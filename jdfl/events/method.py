"""Asynchronous methods: what their events touch, and what one event computes.

Axes: m nodes, b events that are computed together, d slots of the table of in-neighbours, n parameters.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jdfl.algorithms.algorithm import Algorithm, check_parts
from jdfl.algorithms.gradients import Gradients
from jdfl.algorithms.round import Round
from jdfl.base import struct
from jdfl.base.settings import Positive
from jdfl.events import faults
from jdfl.events.event import Event, Note, Notes
from jdfl.events.execution import Tables, happen, of_every_node
from jdfl.events.faults import links
from jdfl.events.timeline import Events, Kind
from jdfl.network import Network, Static, Timed, Times, TimeTrace, require
from jdfl.network.graph import Graph
from jdfl.network.tables import arcs_of, called
from jdfl.problems import Problem

HAPPENED = "happened"  # the entry of the tables that says how many events have happened, []


@struct.dataclass
class AsyncMethod(Algorithm):
    """Base class of asynchronous methods: settings, `kinds` of events, `tables`, `events` and `handle`.

    Times, partners and paths must not depend on parameters; what an event computes may. `jdfl.run` executes events as
    if one after another in the order of time, and counts a `period` of simulated seconds as a round: records, stop
    rules and checkpoints are at the end of periods.
    """

    kind: ClassVar[str] = ""
    kinds: ClassVar[tuple[Kind, ...]] = ()
    mixes: ClassVar[bool] = False
    asynchronous: ClassVar[bool] = True
    objective = "pi"  # nodes that are slow are what these methods are for
    paced: ClassVar[bool] = False  # whether nodes count as often as they act
    directed: ClassVar[bool] = False  # whether links may run one way
    bears: ClassVar[tuple[str, ...]] = ()  # of "lost messages" and "absent nodes"
    message_tables: ClassVar[tuple[str, ...]] = ()  # tables of messages, whose numbers of rows follow from the events
    gradients: Gradients = Gradients()
    period: Positive = 1.0
    """Simulated seconds that count as one round."""

    def tables(self, round: Round, sizes: Mapping[str, int]) -> Tables:
        """Return the tables at the start by name, the nodes' parameters under "node" unless `params` is overridden.

        The `round` at the start has problem, gradients and keys; its graph is the network's. `sizes` are the numbers of
        rows of the tables of messages, as `events` has found them.
        """
        raise NotImplementedError

    def events(self, network: Timed, key: Array, seconds: float) -> Events:
        """Return the events until a time in `seconds`, included, sorted, with the rows of their touches.

        The `network` in this run has times around a fixed graph, with its faults between them. Times and paths are
        drawn from the `key` [].
        """
        raise NotImplementedError

    def handle(self, kind: str, rows: tuple[Any, ...], event: Event) -> tuple[Any, ...]:
        """Return the new rows [b, ...] of every touch of events of a kind; None for those that are read only."""
        raise NotImplementedError

    def node_weights(self, problem: Problem, network: Network) -> np.ndarray | None:
        """The shares of the nodes in all gradients, where these move the mean of the nodes; None: all are equal.

        In methods whose node combines others' models with its own without changing theirs, a node that acts more often
        also forgets its gradients sooner, so that all count alike. Factors of times that are drawn in a run give NaN.
        """
        if not self.paced:
            return None
        times = faults.with_times(network, self.title)
        slow = np.ones(problem.m) if times.slowness is None else times.slowness
        slow = np.full(problem.m, np.nan) if isinstance(slow, Times) else np.asarray(slow, np.float64)
        if isinstance(times.compute, TimeTrace):
            slow = slow * np.mean(np.asarray(times.compute.seconds, np.float64), axis=1)
        share = self.shares(1 / slow, links(times))
        return None if np.ptp(share) <= 1e-3 * np.max(share) else share / np.sum(share)

    def shares(self, rate: np.ndarray, graph: Graph) -> np.ndarray:
        """Return how many gradients nodes compute [m], if their clocks tick at a `rate` [m]."""
        return rate

    def minimises(self, problem: Problem, network: Network) -> str:
        """What is minimised, in words: nodes that compute more gradients may count for more."""
        pi = self.node_weights(problem, network)
        if pi is None or np.isfinite(pi).all():
            return super().minimises(problem, network)
        return "sum_i pi_i f_i with pi in proportion to the nodes' speeds, which are drawn in the run, not the mean"

    def init(self, round: Round) -> Tables:
        """The tables at the start."""
        sizes = {} if round.ready is None else {name: len(rows) for name, rows in round.ready.items()}
        return {**self.tables(round, sizes), HAPPENED: jnp.int32(0)}

    def step(self, state: Any, round: Round, /) -> Any:
        """There are no rounds: ValueError, for everything that would play them."""
        raise ValueError(
            f"Expected a method with rounds, got {self.title}, whose nodes act at times of their own. jdfl.run, "
            "repeat, sweep, comparisons and audit take it; observers, attackers and kernels do not."
        )

    def traced_step(self, state: Any, round: Round, /) -> Any:
        """The tables after one event of every kind at every node."""
        tables = dict(state)
        for kind in range(len(self.kinds)):
            notes = Notes()
            tables = _one_each(self, tables, kind, round, notes)
            notes.into(round.trace)
        return tables

    def params(self, state: Any) -> Array:
        """The nodes' parameters [m, n]: the table "node"."""
        return state["node"]

    def check(self, problem: Problem, network: Network) -> None:
        """Refuse networks without times, that change or have faults, and gradients that need the number of a round.

        Raises ValueError.
        """
        check_parts(self, problem)
        if type(self).prepare is not Algorithm.prepare:
            raise ValueError(
                f"Expected no prepare of its own for {self.title}, an asynchronous method, whose runs prepare the "
                "sizes of tables alone. Keep constants in settings or in tables."
            )
        title, name = self.title, called(network)
        times = faults.with_times(network, title)
        faults.check(network, title, self.bears, exchanges=not self.directed)
        base = Static(links(times), name=called(network))
        require(base, title, **self.needs)
        if times.first:
            raise ValueError(f"Expected first = False for {title}, got {name}: nobody waits for the first response.")
        if not (self.directed or arcs_of(base.graph).symmetric):
            raise ValueError(
                f"Expected a network whose links run both ways for {title}, got {name}: both ends of a link exchange "
                "their models. Use an undirected network, or jdfl.events.AGP."
            )
        if self.gradients.sampling in ("epochs", "in order"):
            raise ValueError(
                f"Expected examples that do not depend on the number of a round, got sampling = "
                f"{self.gradients.sampling!r}. Events have no rounds; use 'replacement', 'subset' or 'poisson'."
            )
        if self.gradients.noisy == "communicating":
            raise ValueError(
                "Expected noise in every gradient, got noisy = 'communicating': an event does not know whether its "
                "gradient is sent. Use noisy = 'always'."
            )


def start(round: Round) -> Array:
    """The initial parameters of all nodes [m, n], in an array of their own."""
    return jnp.array(round.problem.initial_params())


def noted(method: AsyncMethod, state: Any, round: Round) -> list[list[Note]]:
    """What events of every kind do, found by tracing them."""
    found = list[list[Note]]()
    for kind in range(len(method.kinds)):
        notes = Notes()
        jax.eval_shape(partial(_one_each, method, kind=kind, round=round, notes=notes), dict(state))
        found.append(notes.all())
    return found


def _one_each(method: AsyncMethod, tables: dict[str, Any], kind: int, round: Round, notes: Notes) -> dict[str, Any]:
    event = of_every_node(method, tables, kind, round, notes)
    return happen(method, tables, kind, event, round.graph.weight)
