"""How a node takes gradients of its own loss: from which examples, clipped, and with which noise.

Axes: m nodes, q examples per node, b examples of one gradient, n parameters.
"""

from dataclasses import replace
from functools import partial
from typing import Annotated, Any

import jax
import jax.numpy as jnp
from jax import Array

from jdfl.algorithms.book import Told
from jdfl.algorithms.clipping import clipped_sum, formed, sloped
from jdfl.algorithms.gradient_settings import GradientSettings
from jdfl.algorithms.moment import Moment
from jdfl.algorithms.round import Round
from jdfl.algorithms.sampling import sample
from jdfl.base import struct
from jdfl.base.settings import Only
from jdfl.base.streams import Stream
from jdfl.privacy import clipped
from jdfl.privacy.flow import bounded
from jdfl.privacy.mechanisms import is_exact
from jdfl.problems import Problem

_NOISE = Stream("gradients.noise", "private")
_VARIED = Stream("gradients.augmentation", "private")
_ORDER = Stream("gradients.order of passes", "private")
_LOOKS = 4  # most gradients of one step


@struct.dataclass
class Ready:
    """What gradients need in every round that follows from the data."""

    lengths: Array | None = None  # [m, q] of the examples' features, where clipped gradients of all examples need them
    order: Array | None = None  # [] key that the orders of passes are drawn from

    def rows(self, some: Array) -> "Ready":
        """Those of the nodes some [b] alone."""
        return self if self.lengths is None else replace(self, lengths=self.lengths[some])


@struct.dataclass
class Gradients(GradientSettings):
    """How nodes take gradients: of which examples, clipped, with which noise.

    All examples, exactly, unless said otherwise.
    With `clip` every example's gradient is shortened to that length (`per="example"`), or the gradient of all that are
    looked at (`per="batch"`), which protects a node's whole data; `norm="entries"` cuts off every entry instead. That
    bounds what neighbouring data change, and noise is scaled by the bound (`sensitivities`). Without `clip` it is
    scaled by an assumed `sensitivity`, which nothing enforces. Where there is a clip, a gradient too long for its type
    counts as zero, so that no example can spoil the others'. The regulariser is neither clipped nor counted: it holds
    no data.

    Samples of `batch` examples are drawn anew for every step. `sampling`: "replacement" draws each alone; "subset"
    draws different ones; "poisson" takes every example with probability batch / size, looks at all of them to do so,
    and divides by the expected size. Only the last two, and single draws, make a guarantee stronger. "epochs" goes
    through a node's examples in an order that is drawn anew for every pass, "in order" in the data's, `batch` in a
    round; after size // batch rounds a pass begins, and the last size % batch examples of the order are left out of it.

    Neighbouring data sets differ in one record that is replaced, or (`adjacency="add-remove"`) in one whose gradients
    count or are zero; what is divided by stays.
    """

    def prepare(self, problem: Problem, moment: Moment) -> Ready:
        """The lengths of the features, where clipped gradients of all examples need them, and the key of "epochs".

        Computed once, at the `moment` before the first round, since features do not change; rounds have it as
        `round.prepared.gradients`. All else needs nothing.
        """
        if self.sampling == "epochs":
            return Ready(order=moment.stream(_ORDER))
        every = self.batch is None or self.sampling == "poisson"
        if self.clip is None or self.per == "batch" or self.norm == "entries" or not every or not sloped(problem):
            return Ready()
        return Ready(problem.each(partial(problem.feature_lengths, norm=self.norm), problem.data))

    def __call__(self, w: Array, round: Round, *, look: int = 0, part: slice | None = None) -> Array:
        """The gradient of every f_i at w_i [m, n] for stacked parameters w [m, n], or a `part` of it, which is clipped.

        Each `look` (0, 1, ...) of a step sees the same examples, with fresh noise.
        """
        clipped, rest = self._taken(w, round, part)
        if self.mechanism is None:
            return clipped + rest
        following = self.noisy == "communicating"
        counted: Any = {"index": round.local_step * _LOOKS + look, "look": look, "following": following}
        scale = self.sensitivities(round.problem)
        noisy = round.noisy(self.mechanism, clipped, scale, _NOISE, self.guarantee, **counted)
        return (jnp.where(round.follows_exchange, noisy, clipped) if following else noisy) + rest

    def without_noise(self, w: Array, round: Round, part: slice | None = None) -> Array:
        """The gradients [m, n] of the examples whose turn it is, clipped.

        A gradient of every node is counted. It is for methods that add noise to something else, such as updates or
        messages; what is sent without any noise after it leaves nothing to be claimed.

        Args:
            w: Parameters w [m, n] of the nodes.
            round: The round, which decides on the examples, together with its local step.
            part: The entries that are wanted, to which clipping refers then; None: all.
        """
        clipped, rest = self._taken(w, round, part)
        return clipped + rest

    def descent(self, w: Array, round: Round, stream: Stream, told: Told) -> tuple[Array, Array]:
        """Minus the gradients [m, n], without noise and with that of a stream; without a mechanism the same twice.

        Args:
            w: Parameters w [m, n] of the nodes.
            round: The round, which counts a gradient and a release.
            stream: What the noise is drawn from.
            told: What that guarantees, as for `Round.release`.
        """
        clipped, rest = self._taken(w, round, None)
        if self.mechanism is None:
            return -clipped - rest, -clipped - rest
        noisy = round.noisy(self.mechanism, -clipped, self.sensitivities(round.problem), stream, told)
        return -clipped - rest, noisy - rest

    def correlated(self, w: Array, round: Round, row: Array, hidden: Array) -> tuple[Array, Array]:
        """The gradients [m, n] with noise that is correlated over rounds, and what is hidden next.

        Args:
            w: Parameters w [m, n] of the nodes.
            round: The round, which counts a gradient and a release.
            row: The row of C row [p], as for `Round.correlated`.
            hidden: What is hidden of the last rounds, hidden [m, p - 1, n], as for it.
        """
        clipped, rest = self._taken(w, round, None)
        scale: Any = self.sensitivities(round.problem), _NOISE, self.guarantee
        noisy, hidden = round.correlated(self.mechanism, clipped, *scale, row, hidden)  # pyright: ignore
        return noisy + rest, hidden

    def _taken(self, w: Array, round: Round, part: slice | None) -> tuple[Array, Array | float]:
        """Gradients of the examples whose turn it is, clipped, and the regulariser's, which holds no data."""
        round.book.grads = round.book.grads + 1
        lengths = round.prepared.gradients.lengths
        clipped, rest = self.parted(round.problem, w, *self.sample(round), part, lengths=lengths)
        return (clipped, rest) if self.clip is None else (bounded(clipped), rest)

    def sample(self, round: Round) -> tuple[Any, Array, Array]:
        """What a step looks at: every node's data, their weights [m, b], and what is divided by [m].

        The data have leaves [m, b, ...], varied by the problem where there is a batch. b is q without a batch and for
        Poisson samples, whose other examples have weight 0. The same round and local step draw the same examples.
        """
        problem = round.problem
        if self.batch is None:
            return problem.data, problem.weight, jnp.sum(problem.weight, axis=1)
        data, weight, total = sample(round, self.sampling, self.batch)
        return jax.vmap(problem.varied)(round.keys(_VARIED, round.local_step), data), weight, total

    def exact(self, *given: Any, **known: Any) -> Array:
        """Gradients [b, n] of nodes, clipped, without noise, for the arguments of `parted`."""
        clipped, rest = self.parted(*given, **known)
        return clipped + rest

    def parted(
        self,
        problem: Problem,
        w: Array,
        data: Any,
        weight: Array,
        total: Array,
        part: slice | None = None,
        *,
        lengths: Array | None = None,
    ) -> tuple[Array, Array | float]:
        """Gradients [b, n] of nodes with these data, clipped, without noise, and the regulariser's beside them.

        With a `part` both are [b, its length]. Without a clip the first has the regulariser's in it, and the second is
        0. They are apart so that noise which is exact to the last bit can be added to what holds data, and nothing else
        is rounded with it.

        Args:
            problem: The loss and the regulariser, which is not clipped.
            w: Parameters w [b, n].
            data: Examples, leaves [b, q, ...].
            weight: Their weights, weight [b, q]; 0 for those that do not count.
            total: What sums over examples are divided by, total [b].
            part: The entries that are wanted; what is not in it is not computed where the compiler sees that. None:
                all.
            lengths: The lengths of the examples' features, lengths [b, q]; None: computed where they are needed.
        """
        here = slice(None) if part is None else part

        def regulariser(w: Array) -> Array:
            return jax.vmap(jax.grad(problem.regulariser))(w)[:, here]

        chunk = formed(weight.shape[0], problem.n, weight.shape[1])

        def sums(w_i: Array, data_i: Any, weight_i: Array, lengths_i: Array | None) -> Array:
            assert self.clip is not None
            known = self.clip, self.norm, lengths_i, chunk, part
            return clipped_sum(problem, w_i, data_i, weight_i, *known, pieces=is_exact(self.mechanism))

        if self.clip is not None and self.per == "example":
            return problem.each(sums, w, data, weight, lengths) / total[:, None], regulariser(w)
        g = problem.each(lambda *node: self.plain(problem, *node, part=part), w, data, weight, total)
        if self.clip is None:
            return g, 0.0
        return clipped(g - regulariser(w), self.norm, self.clip), regulariser(w)

    def plain(
        self, problem: Problem, w: Array, data: Any, weight: Array, total: Array, part: slice | None = None
    ) -> Array:
        """The gradient at w [n] of one node with these data, weight [q] and divisor total [], unclipped, or a part.

        The regulariser is in it, and no noise. The divisor counts for "subset" and "poisson", whose samples are divided
        by their expected weight; other gradients are divided by the weight that there is.
        """
        here = slice(None) if part is None else part
        # f_i divides by the sum of its weights, which is not what a sample is divided by, and may be zero
        found = jnp.sum(weight)
        g = problem.gradient(w, data, jnp.where(found > 0, weight, 1.0))[here]
        if self.sampling in ("subset", "poisson"):
            regulariser = jax.grad(problem.regulariser)(w)[here]
            g = regulariser + found / total * (g - regulariser)
        return g


def gradients_of(settings: Any) -> Gradients:
    """The gradients of a method that has clip, mechanism, sensitivity and adjacency among its own `settings`."""
    names = ("clip", "mechanism", "sensitivity", "adjacency")
    return Gradients(**{name: getattr(settings, name) for name in names})


Exact = Annotated[
    Gradients, Only(("batch", "sampling", "clip", "per", "norm"))
]  # of algorithms with noise of their own
