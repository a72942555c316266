"""GT-SAGA, GT-SVRG and GT-SARAH: gradient tracking with gradients of few examples whose variance vanishes.

R. Xin, U. A. Khan, S. Kar: Variance-Reduced Decentralized Stochastic Optimization With Accelerated Convergence, 2020
(GT-SAGA and GT-SVRG); R. Xin, U. A. Khan, S. Kar: Fast decentralized non-convex finite-sum optimization with recursive
variance reduction, 2022 (GT-SARAH); X. Jiang, X. Zeng, J. Sun, J. Chen: Distributed Stochastic Gradient Tracking
Algorithm With Variance Reduction for Non-Convex Optimization, 2022 (GT-VR).

    x_i <- sum_j W_ij x_j - lr y_i,       y_i <- sum_j W_ij y_j + v_i(x_i) - v_i,       v_i <- v_i(x_i)
    GT-SAGA:     v_i(x) = g_ib(x) - z_ib + mean_t z_it,       then z_ib <- g_ib(x)
    GT-SVRG:     v_i(x) = g_ib(x) - g_ib(u_i) + g_i(u_i),       u_i <- x every `period` rounds
    GT-SARAH:    v_i(x) = g_ib(x) - g_ib(x_i-) + v_i,       but g_i(x) every `period` rounds

b are the examples of a round, the same on both sides of a difference, t all examples of a node, and x_i- the parameters
before x_i. All start from y_i = v_i = g_i(x_i). With all examples in b each is `jdfl.DIGing`, and like it they also
have the order adapt-then-combine. All converge linearly to the exact solution of strongly convex problems. GT-VR is
GT-SVRG whose nodes each replace u_i with a `probability`, in the order adapt-then-combine. The outer loop of GT-SARAH
is `period` rounds here, one more than its number of inner iterations.

The order of GT-SAGA differs between papers. That of 2022 (A Fast Randomized Incremental Gradient Method for
Decentralized Non-Convex Optimization), which decent-bench follows, has adapt-then-combine and mixes y once before the
first step.

Cost: `gradients` counts those of b examples, so that of all q examples of a node counts as q / b, rounded up. GT-SAGA
stores a gradient of every example, an array [m, q, n]; the others store one or two vectors [m, n].

Missing neighbours: their weight goes where the network says. W must stay doubly stochastic, so both directions of a
link fail together.

Axes: m nodes, q examples per node, b examples of one gradient, n parameters.
"""

from dataclasses import replace
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jdfl.algorithms.algorithm import Algorithm
from jdfl.algorithms.choosing import ACTIVE, active
from jdfl.algorithms.gradients import Exact, Gradients
from jdfl.algorithms.round import MODEL, TRACKER, Channel, Round, RoundContext
from jdfl.base import struct
from jdfl.base.settings import Count, Fraction, Provenance, StepSize
from jdfl.base.streams import Stream
from jdfl.network import Network
from jdfl.problems import Problem

_EXAMPLES = Stream("gt-saga.examples", "private")


class State(NamedTuple):
    x: Array  # [m, n] parameters
    y: Array  # [m, n] trackers of the average of v
    v: Array  # [m, n] last estimates of the gradients
    memory: Any  # GT-SAGA: table [m, q, n] and its mean [m, n]; GT-SVRG: u and its gradient [m, n]; else None


@struct.dataclass
class Reduced(Algorithm):
    """The common part: gradient tracking of estimates."""

    lr: StepSize = 0.02
    order: Literal["combine-then-adapt", "adapt-then-combine"] = struct.field(
        pytree_node=False, default="combine-then-adapt"
    )
    """Whether a step is added after mixing, or before."""
    needs: ClassVar[dict[str, bool]] = {"doubly_stochastic": True}
    channels: ClassVar[tuple[Channel, ...]] = (MODEL, TRACKER)

    def _begin(self, x: Array, round: Round) -> tuple[Array, Any]:
        """The gradients of all examples [m, n] at x [m, n], and the memory."""
        raise NotImplementedError

    def _estimate(self, x: Array, state: State, round: Round) -> tuple[Array, Any]:
        """The next v [m, n], at x [m, n], and the memory."""
        raise NotImplementedError

    def init(self, round: Round) -> State:
        x = round.problem.initial_params()
        v, memory = self._begin(x, round)
        return State(x, v, v, memory)

    def step(self, state: State, round: Round) -> State:
        x = self._mixed(state.x, -self.lr * state.y, round, MODEL)
        v, memory = self._estimate(x, state, round)
        return State(x, self._mixed(state.y, v - state.v, round, TRACKER), v, memory)

    def _mixed(self, z: Array, step: Array, round: Round, channel: Channel) -> Array:
        """W z + step, or W (z + step) [m, n]."""
        if self.order == "combine-then-adapt":
            return z + round.pull(z, channel) + step
        return z + step + round.pull(z + step, channel)


@struct.dataclass
class GTSAGA(Reduced):
    """GT-SAGA: the estimates need the last gradient of every example, which are stored.

    The examples of a round are distinct. Raises ValueError (from `check`) for a batch larger than the data of a node,
    and networks whose W is not doubly stochastic.
    """

    kind: ClassVar[str] = "gt-saga"
    provenance: ClassVar[Provenance] = ("from memory", "other code read")
    lr: StepSize = 0.01
    batch: Count = struct.field(pytree_node=False, default=1)
    """Examples of a round."""
    title: ClassVar[str] = "GT-SAGA"
    exact: ClassVar[bool] = True

    def check(self, problem: Problem, network: Network) -> None:
        super().check(problem, network)
        if self.batch > (fewest := int(np.min(np.asarray(problem.sizes)))):
            raise ValueError(
                f"Expected batch <= {fewest}, the number of examples of the smallest node, got batch = {self.batch}. "
                "Use a smaller batch."
            )

    def examples(self, problem: Problem) -> Array:
        """The batch, for every node [m] int32."""
        return jnp.full((problem.m,), self.batch, jnp.int32)

    def _begin(self, x: Array, round: Round) -> tuple[Array, Any]:
        """The gradients of all examples, one by one."""
        problem = round.problem
        round.trace.grads = round.trace.grads + _cost(problem.sizes, self.batch)
        table = problem.each(problem.example_gradients, x, problem.data)
        mean = jnp.einsum("mq,mqn->mn", _shares(problem), table, precision=lax.Precision.HIGHEST)
        return mean + _regulariser(problem, x), (table, mean)

    def _estimate(self, x: Array, state: State, round: Round) -> tuple[Array, Any]:
        """New gradients of some examples replace those in the table."""
        problem, (table, mean) = round.problem, state.memory
        round.trace.grads = round.trace.grads + 1

        def some(key: Array, weight: Array) -> Array:
            bits = jnp.where(weight > 0, jax.random.uniform(key, weight.shape, jnp.float32), -1)
            return jnp.sort(lax.top_k(bits, self.batch)[1])  # a sum over all examples does not depend on the draw

        def gradients(w: Array, data: Any, chosen: Array) -> Array:
            return problem.example_gradients(w, problem.take(data, chosen))

        chosen = problem.each(some, round.keys(_EXAMPLES), problem.cut(problem.weight))
        here = jnp.arange(round.m)[:, None]
        new = problem.each(gradients, x, problem.data, chosen)
        change = jnp.sum(_shares(problem)[here, chosen][:, :, None] * (new - table[here, chosen]), axis=1)
        factor = (problem.sizes / self.batch).astype(x.dtype)[:, None]  # for an unbiased estimate
        v = mean + factor * change + _regulariser(problem, x)
        return v, (table.at[here, chosen].set(new), mean + change)


class OfBatches(Algorithm):
    """The common part of methods whose estimates are differences of gradients of the same examples."""

    gradients: Gradients

    def check(self, problem: Problem, network: Network) -> None:
        """Raise ValueError for settings and networks that do not fit, and for noisy gradients."""
        super().check(problem, network)
        if self.gradients.mechanism is not None:
            raise ValueError(
                f"Expected gradients without noise for {self.title}, whose differences of gradients would add it up, "
                f"got mechanism = {self.gradients.mechanism!r}. Leave it out, or use DSGT."
            )

    def _change(self, x: Array, before: Array, round: Round) -> Array:
        """The gradients [m, n] at x [m, n] minus those at other parameters, of the same examples."""
        return self.gradients(x, round) - self.gradients(before, round, look=1)

    def _full_gradient(self, x: Array, due: Array, otherwise: Array, round: Round) -> Array:
        """The gradients of all examples [m, n] at x [m, n] of the nodes due [m]; the rows of `otherwise` elsewhere."""
        plain = replace(self.gradients, batch=None, sampling="replacement")
        if self.gradients.batch is not None:  # beyond the one that is counted by itself
            more = _cost(round.problem.sizes, self.gradients.batch) - 1
            round.trace.grads = round.trace.grads + more * due.astype(jnp.int32)
        return round.each_of(due, round.m, lambda here: plain(here.of(x), here), otherwise)


@struct.dataclass
class GTSVRG(OfBatches, Reduced):
    """GT-SVRG: the estimates need the gradient of all examples at a point that is replaced now and then.

    It takes any gradients without noise. With a `probability` it is GT-VR. Raises ValueError (from `check`) for noisy
    gradients, and networks whose W is not doubly stochastic.
    """

    kind: ClassVar[str] = "gt-svrg"
    provenance: ClassVar[Provenance] = ("from memory", "other code read")
    gradients: Exact = Gradients(batch=10)
    period: Count = struct.field(pytree_node=False, default=50)
    """Rounds between gradients of all examples, without a probability."""
    probability: Fraction | None = None
    """Probability with which a node computes a gradient of all examples in a round; None: all do in the same rounds."""
    title: ClassVar[str] = "GT-SVRG"
    exact: ClassVar[bool] = True

    def prepare(self, problem: Problem, context: RoundContext, plan: Any) -> Array:
        """The key [] from which it is drawn which nodes compute gradients of all examples."""
        return context.stream(ACTIVE)

    def _begin(self, x: Array, round: Round) -> tuple[Array, Any]:
        """The first point is x."""
        g = self._full_gradient(x, jnp.ones((round.m,), jnp.bool_), x, round)
        return g, (x, g)

    def _estimate(self, x: Array, state: State, round: Round) -> tuple[Array, Any]:
        """A difference of two gradients of the same examples, added to that of all examples."""
        u, whole = state.memory
        if self.probability is None:
            due = jnp.broadcast_to((round.k + 1) % self.period == 0, (round.m,))
        else:
            due = active(self.probability, round.ready, round)
        u, whole = jnp.where(due[:, None], x, u), self._full_gradient(x, due, whole, round)
        return self._change(x, u, round) + whole, (u, whole)


@struct.dataclass
class GTSARAH(OfBatches, Reduced):
    """GT-SARAH: the estimates add up differences, from the gradient of all examples that begins every period.

    It takes any gradients without noise. Raises ValueError (from `check`) for noisy gradients, and networks whose W is
    not doubly stochastic.
    """

    kind: ClassVar[str] = "gt-sarah"
    provenance: ClassVar[Provenance] = ("from memory", "other code read")
    gradients: Exact = Gradients(batch=10)
    period: Count = struct.field(pytree_node=False, default=50)
    """Rounds between gradients of all examples."""
    title: ClassVar[str] = "GT-SARAH"
    exact: ClassVar[bool] = True

    def _begin(self, x: Array, round: Round) -> tuple[Array, Any]:
        """There is no memory besides the state."""
        return self._full_gradient(x, jnp.ones((round.m,), jnp.bool_), x, round), None

    def _estimate(self, x: Array, state: State, round: Round) -> tuple[Array, Any]:
        """The last estimate and a difference, or the gradient of all examples."""
        due = jnp.broadcast_to((round.k + 1) % self.period == 0, (round.m,))

        change = round.each_of(~due, None, lambda here: self._change(x, state.x, here))
        return self._full_gradient(x, due, state.v + change, round), None


def _cost(sizes: Array, batch: int) -> Array:
    """The cost of a gradient of all examples [m], in gradients of a batch."""
    return -(-sizes // batch)


def _shares(problem: Problem) -> Array:
    """The coefficients [m, q] of the examples in a node's loss."""
    return problem.weight / jnp.sum(problem.weight, axis=1, keepdims=True)


def _regulariser(problem: Problem, x: Array) -> Array:
    """The gradients [m, n] of the part of the losses without data, which have no variance."""
    return jax.vmap(jax.grad(problem.regulariser))(x)
