"""A row of the contract that has the loop of its paper, and what else is known of where the method ends."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jdfl
from jdfl import testing
from jdfl.algorithms.round import RoundContext
from tests.contract.row import ROUNDS, Row, row

Rounds = Iterator[np.ndarray]  # x [m, n] after every round
M, N = testing.NODES, testing.PARAMETERS
EDGES = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 0), (0, 2), (0, 3)]  # those of `testing.small_network`


def weighted() -> np.ndarray:
    """A symmetric doubly stochastic W [m, m] on these links; multiples of 1/8, which float32 holds as they are."""
    W = np.zeros((M, M))
    for i, j in EDGES:
        W[i, j] = W[j, i] = 1 / 8
    return W + np.diag(1 - W.sum(axis=1))


def network() -> jdfl.network.Static:
    """The network with these weights, in the form that `testing.small_network` has."""
    return jdfl.network.from_matrix(weighted(), name="eighths")


def directed() -> jdfl.network.Static:
    """One-way links; nodes have 1 or 3 in- and out-neighbours, so that float32 holds equal shares as they are."""
    ring = [(i, (i + 1) % M) for i in range(M)]
    edges = [*ring, (0, 4), (0, 5), (2, 4), (2, 5)]
    return jdfl.network.from_edges(edges, M, directed=True, weights="out-degree")


@cache
def problem(shared: int | None = None) -> jdfl.problems.LinearRegression:
    """What the loops learn, with its first parameters in common; None: all. Nodes do not begin at zero."""
    with jax.ensure_compile_time_eval():
        return replace(
            testing.small_problem(shared=shared), start=jnp.arange(-N // 2, N - N // 2, dtype=jnp.float32) / 32
        )


@dataclass(frozen=True)
class Loop:
    """What the loop of a paper has: the settings, the losses, W and what is drawn, all in float64."""

    algorithm: Any
    problem: Any
    on: Callable[[], jdfl.network.Static] = network

    @cached_property
    def W(self) -> np.ndarray:
        """The mixing matrix [m, m]."""
        return jdfl.network.to_scipy(self.on()).toarray()

    @cached_property
    def links(self) -> np.ndarray:
        """Which nodes are linked [m, m], 0 or 1 and 0 on the diagonal."""
        return (self.W != 0) * (1.0 - np.eye(M))

    @cached_property
    def start(self) -> np.ndarray:
        """The initial parameters [m, n]."""
        return np.asarray(self.problem.initial_params(), np.float64)

    def examples(self, i: int) -> tuple[np.ndarray, np.ndarray]:
        """The features [q, n] and targets [q] of node i, whose loss is the mean of (a_q x - b_q)^2 / 2."""
        A, b = (np.asarray(leaf[i], np.float64) for leaf in self.problem.data)
        return A, b

    def gradient(self, i: int, x: np.ndarray) -> np.ndarray:
        """The gradient [n] of f_i at x [n]."""
        A, b = self.examples(i)
        return A.T @ (A @ x - b) / len(b)

    def gradients(self, x: np.ndarray) -> np.ndarray:
        """Every node's at its own row [m, n]."""
        return np.stack([self.gradient(i, row) for i, row in enumerate(x)])

    def moment(self, k: int, part: int = 2) -> RoundContext:
        """Round k as `testing.Case.play` has it, for the keys of what is drawn in it; part 1 is before round 0."""
        key = jax.random.fold_in(jax.random.split(jax.random.key(3), 3)[part], k)
        return RoundContext(jnp.int32(k), key, self.on().graph, jnp.arange(M, dtype=jnp.int32))


@dataclass(frozen=True)
class Field(Row):
    """A row whose method is compared with a loop over nodes that is written from its paper."""

    loop: Callable[[Loop], Any] | None = None  # -> x [13, m, n] after every round
    reaches: Any = None  # the method as it reaches the optimum of a strongly convex problem; None: it needn't
    rounds: int = 2000  # in which it reaches it
    same: tuple[tuple[Any, Any], ...] = ()  # pairs of methods that compute the same parameters
    more: tuple[Any, ...] = ()  # the method with settings that are compared with the loop and need no row
    on: Callable[[], jdfl.network.Static] = network  # where the loop is tried, and where it reaches the optimum
    module: str = ""  # the file of jdfl.algorithms


def field(
    algorithm: Any,
    loop: Callable[[Loop], Iterable[Any]],
    label: str = "",
    *,
    channels: Iterable[str] = ("model",),
    bits: int | dict[str, int] = 32 * N,
    grads: int = 1,
    first: int = 0,
    times: int = 1,
    **given: Any,
) -> Field:
    """The row of a method.

    Args:
        algorithm: Its settings, on which all laws are tried.
        loop: The loop of its paper, which reads the settings of `Loop.algorithm` and yields x [m, n] after every round.
        label: The id of the row; empty: the title of the method.
        channels: The channels on which a message goes to every neighbour in every round.
        bits: The size of a message, of all channels or by channel.
        grads: The gradients of a node in a round.
        first: The gradients of a node before the first round.
        times: How often a node sends on every channel in a round.
        given: Fields of `Field`, and what else `tests.contract.row.row` takes.
    """
    sizes = bits if isinstance(bits, dict) else dict.fromkeys(channels, bits)
    total, module = grads * ROUNDS + first, type(algorithm).__module__.rpartition(".")[2]
    given |= {"grads": total, "talks": times * ROUNDS, "module": module}
    given["loop"] = lambda the: np.array([np.array(x) for x in loop(the)])  # as they are then
    return row(algorithm, label, bits=sizes, kind=Field, **given)


def exactly(algorithm: Any) -> Any:
    """The method with messages that lose nothing of float64."""
    dense = type(getattr(algorithm, "codec", None)) is jdfl.Dense
    return replace(algorithm, codec=jdfl.Dense("float64")) if dense else algorithm
