"""The bytes that a round has to move at least, whatever program computes it: state, received rows and data.

Nothing of it is written down per method: the state's shapes, and the counts of a few rounds, say it.

Axes: m nodes, n parameters.
"""

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jdfl.algorithms.algorithm import Algorithm, codec_of
from jdfl.algorithms.program import planned
from jdfl.arrays import ops
from jdfl.base import checks
from jdfl.base.arguments import checked
from jdfl.base.keys import typed_key
from jdfl.engine import loop, stepping
from jdfl.network import Network
from jdfl.problems import Problem

_ROUNDS = 120  # whose counts are averaged: the periods of CEPS are 10 to 15
_MOST = 2**20


@dataclass(frozen=True)
class Floor:
    """The least bytes that a round of all nodes moves between memory and processor."""

    state: float
    """The state of all nodes, read and written once."""
    messages: float
    """A row of parameters for every message that is received, and what decoding it reads besides."""
    data: float
    """The examples of all gradients: read once, or twice where a gradient uses all of a node's."""

    @property
    def total(self) -> float:
        """The sum."""
        return self.state + self.messages + self.data


@dataclass(frozen=True)
class Counts:
    """What a round does on average, per node."""

    messages: float  # rows that arrive
    senders: float  # rows that are sent
    combining: float  # nodes that combine what they received
    examples: float  # that gradients read, of m nodes


@checked
def floor(algorithm: Algorithm, problem: Problem, network: Network, *, rounds: int = _ROUNDS) -> Floor:
    """The least bytes that a round moves, as the mean over the first rounds.

    The state is read and written once. Every message that is sent is read once, as a row of n parameters, where it is
    received, since receivers add up decoded rows; what a codec has drawn for its sender is read once besides. A
    gradient of a batch reads its examples once, and none twice; one of all examples reads them twice: for the
    predictions, and for the products with their errors.

    Args:
        algorithm: The settings of the method.
        problem: The nodes' data and losses, of m nodes.
        network: The communication network.
        rounds: How many rounds are averaged, from 1 to 2^20.

    Raises:
        ValueError: For other numbers of rounds, for more than a noise schedule is for, and for settings that do not fit
            the problem or the network.
    """
    checks.integer(1, _MOST, rounds=rounds)
    network = stepping.paired(problem, network)
    algorithm.check(problem, network)
    setting = _setting(algorithm, problem, network, rounds)
    state = jax.eval_shape(loop.start, setting, ())[1].state
    return of(counts(algorithm, problem, network, rounds), algorithm, problem, bytes_of(state))


def of(per_node: Counts, algorithm: Algorithm, problem: Problem, state: float) -> Floor:
    """The floor of a problem from what a round does per node."""
    m, row = problem.m, problem.n * jnp.dtype(problem.dtype).itemsize
    example = bytes_of((problem.data, problem.weight)) / (m * problem.weight.shape[1])
    read = per_node.examples * 2 if whole(algorithm) else min(per_node.examples, problem.weight.shape[1])
    messages = m * (per_node.messages * row + per_node.senders * _besides(algorithm, problem))
    return Floor(2 * state, messages, m * read * example)


def whole(algorithm: Algorithm) -> bool:
    """Whether a gradient uses all examples of a node."""
    return getattr(getattr(algorithm, "gradients", None), "batch", None) is None


def counts(algorithm: Algorithm, problem: Problem, network: Network, rounds: int = _ROUNDS) -> Counts:
    """What a round does on average, per node, over the first rounds."""
    setting = _setting(algorithm, problem, network, rounds)
    info, used = jax.tree.map(np.asarray, _counted(setting, jnp.int32(rounds)))
    sent = sum(float(np.sum(x)) for x in info.sent.values())
    senders = sum(float(np.sum(x)) for x in used.values())
    examples = float(np.sum(info.grads * np.asarray(algorithm.examples(problem), np.float64)))
    times = rounds * problem.m
    combining = float(np.sum(info.communications))
    return Counts(sent / times, senders / times, combining / times, examples / times)


@jax.jit
def _counted(setting: stepping.Setting, steps: Any) -> Any:
    """The sums of counts over rounds, and how often every node sent. What they do not depend on is not computed."""
    algorithm, carry, _ = loop.start(setting, ())
    setting = replace(setting, program=algorithm)

    def one(k: Any, carry: Any) -> Any:
        state, total, used = carry
        state, info = stepping.step(setting, state, stepping.sample_round(setting, k))
        used = {name: used[name] + (sent > 0).astype(jnp.int32) for name, sent in info.sent.items()}
        return state, jax.tree.map(jnp.add, total, info), used

    zero = jax.tree.map(jnp.zeros_like, carry.counts)
    return ops.in_turn(steps, one, (carry.state, zero, dict(zero.sent)))[1:]


def _setting(algorithm: Algorithm, problem: Problem, network: Network, rounds: int) -> stepping.Setting:
    program = planned(algorithm, problem, network, rounds)
    return stepping.setting(program, problem, network, None, typed_key(0))


def _besides(algorithm: Algorithm, problem: Problem) -> float:
    """The bytes that both ends of a message know in advance, such as a matrix of their own."""
    codec = codec_of(algorithm, problem)
    given = problem.n, algorithm.sparsity(problem), problem.dtype

    def drawn(node: Any) -> Any:
        return codec.prepare(typed_key(0), node, *given)

    one, two = (bytes_of(jax.eval_shape(drawn, jax.ShapeDtypeStruct((b,), jnp.int32))) for b in (1, 2))
    return two - one


def bytes_of(tree: Any) -> float:
    """The bytes of a tree of arrays, or of their shapes."""
    return float(sum(np.prod(x.shape) * x.dtype.itemsize for x in jax.tree.leaves(tree)))
