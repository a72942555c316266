"""How a node takes gradients of its own loss: from which examples, clipped, and with which noise.

Axes: m nodes, q examples per node, b examples of one gradient, n parameters.
"""

from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax import Array, lax

from jdfl import checks, ops, struct
from jdfl.base import Round
from jdfl.privacy import NO_NOISE, Guarantee, Mechanism
from jdfl.problems import Problem

_BATCH, _NOISE = 31, 32  # purposes of the keys
_LOOKS = 4  # most gradients of one step
_AT_ONCE = 2**24  # numbers in the single-example gradients that are clipped at a time


@struct.dataclass
class Gradients:
    """All examples, exactly, unless said otherwise.

    With `clip` every example's gradient is shortened to that l2 norm before the mean is taken, so that one example
    replaced changes a node's gradient by 2 clip max_t weight[i, t] / sum_t weight[i, t] at most (2 clip with `batch`,
    whose draws may all hit one example): that is what noise is then scaled by. Without `clip` the noise is scaled by an
    assumed `sensitivity`, which nothing enforces. Where there is a clip, a gradient too long for its type counts as
    zero, so that no example can spoil the others'. The regulariser is neither clipped nor counted: it holds no data.
    """

    batch: int | None = struct.field(pytree_node=False, default=None)  # drawn with replacement; None: all examples
    clip: Any = None  # largest l2 norm of one example's gradient; None: as it is
    mechanism: Mechanism | None = None  # noise on the gradient
    sensitivity: Any = None  # assumed l2 sensitivity of gradients that are not clipped
    noisy: Literal["always", "communicating"] = struct.field(pytree_node=False, default="always")  # which gradients

    def check(self) -> None:
        """Refuse settings out of range: ValueError naming them."""
        if self.batch is not None:
            checks.whole(1, remedy="It is the number of examples of one gradient; None takes all.", batch=self.batch)
        checks.literals(self)
        for name in ("clip", "sensitivity"):
            if getattr(self, name) is not None:
                checks.shape((), "It is one number for all nodes.", **{name: getattr(self, name)})
                checks.positive(**{name: getattr(self, name)})
        if self.mechanism is None:
            if self.sensitivity is not None:
                raise ValueError(
                    f"Expected a mechanism beside sensitivity = {self.sensitivity!r}, got mechanism = None. Give "
                    "Gaussian(multiplier), or leave sensitivity out."
                )
            return
        remedy = "Use Gaussian(multiplier), or None for no noise."
        checks.able(("add", "event"), "a noise mechanism", remedy, mechanism=self.mechanism)
        self.mechanism.check()
        if (self.clip is None) == (self.sensitivity is None):
            raise ValueError(
                f"Expected clip or sensitivity to scale the noise, got clip = {self.clip!r} and sensitivity = "
                f"{self.sensitivity!r}. clip bounds what one example can change; sensitivity only assumes a bound."
            )

    def __call__(
        self,
        w: Array,
        problem: Problem,
        round: Round,
        *,
        step: Array | int = 0,
        look: int = 0,
        communicating: Array | bool = True,
    ) -> Array:
        """The gradient of every f_i at w_i [m, n] for stacked parameters [m, n].

        `step` counts the gradient steps of a round. The looks (0, 1, ...) of one step see the same examples, with fresh
        noise. `communicating` is whether this step follows an exchange of messages.
        """
        data, weight = problem.data, problem.weight
        if self.batch is not None:
            keys = ops.node_keys(jax.random.fold_in(round.key, step), _BATCH, round.node)
            data, weight = jax.vmap(problem.minibatch, (0, 0, 0, None))(keys, data, weight, self.batch)
        if self.clip is None:
            g = jax.vmap(problem.gradient)(w, data, weight)
        else:
            g = jax.vmap(jax.grad(problem.regulariser))(w) + _clipped_means(problem, w, data, weight, self.clip)
        if self.mechanism is None:
            return g
        keys = ops.node_keys(jax.random.fold_in(round.key, step * _LOOKS + look), _NOISE, round.node)
        noisy = jax.vmap(self.mechanism.add)(keys, g, self._sensitivity(weight))
        return noisy if self.noisy == "always" else jnp.where(communicating, noisy, g)

    def _sensitivity(self, weight: Array) -> Array:
        """What the noise of every node [m] is scaled by; weights [m, b] of the examples of a gradient."""
        if self.clip is None:
            return jnp.full(weight.shape[:1], self.sensitivity, weight.dtype)
        share = jnp.max(weight, axis=1) / jnp.sum(weight, axis=1)
        return 2 * self.clip * (share if self.batch is None else jnp.ones_like(share))

    def examples(self, problem: Problem) -> Array:
        """How many examples one gradient of every node looks at [m] int32."""
        return problem.sizes if self.batch is None else jnp.full((problem.m,), self.batch, jnp.int32)

    def releases(self, evaluated: Array | int, communicating: Array | int) -> Array | int:
        """How many of a node's gradients were noisy: of all that it evaluated, or of those after an exchange."""
        if self.mechanism is None:
            return 0
        return evaluated if self.noisy == "always" else communicating

    def guarantee(self) -> Guarantee:
        """What may be said of messages that depend on the data through these gradients alone."""
        if self.mechanism is None:
            return NO_NOISE
        if self.clip is None:
            reason = "gradients are not clipped, so nothing enforces the sensitivity that the noise is scaled by"
            enforced, claimed = None, False
        elif self.noisy == "communicating":
            reason = "gradients between two exchanges of messages have no noise, and what is sent depends on them"
            enforced, claimed = None, False
        else:
            reason = "every gradient is clipped per example and noisy; composing all releases gives epsilon"
            enforced, claimed = "per-example clipping", True
        assumed = self.sensitivity if self.clip is None else 2 * self.clip
        return Guarantee("record", "replace-one", "all messages", float(assumed), enforced, claimed, reason)


def _clipped_means(problem: Problem, w: Array, data: Any, weight: Array, clip: Array) -> Array:
    """sum_t weight[i, t] min(1, clip / ||g_it||) g_it / sum_t weight[i, t], [m, n], some examples at a time."""
    m, b = weight.shape
    size = max(1, min(b, _AT_ONCE // (m * problem.n)))
    chunks = -(-b // size)
    weight = jnp.pad(weight, ((0, 0), (0, chunks * size - b)))  # the places of the last chunk beyond b weigh nothing

    def add(c: Array, total: Array) -> Array:
        place = jnp.minimum(c * size + jnp.arange(size, dtype=jnp.int32), b - 1)
        here = lax.dynamic_slice_in_dim(weight, c * size, size, axis=1)

        def one(w_i: Array, data_i: Any, weight_i: Array) -> Array:
            g = problem.example_gradients(w_i, problem.take(data_i, place))
            length = jnp.linalg.norm(g, axis=1)
            g = jnp.where(jnp.isfinite(length)[:, None], g, 0.0)  # too long to be counted, one would spoil all others
            return jnp.dot(weight_i * jnp.where(length > clip, clip / length, 1.0), g, precision=ops.HIGHEST)

        return total + jax.vmap(one)(w, data, here)

    total = lax.fori_loop(0, chunks, add, jnp.zeros_like(w))
    return total / jnp.sum(weight, axis=1, keepdims=True)
