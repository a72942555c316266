"""How a node computes gradients of its local loss: from which examples, with what clipping and noise.

Axes: m nodes, q examples per node, b examples of one gradient, n parameters.
"""

from dataclasses import replace
from functools import partial
from typing import Annotated, Any, get_type_hints

import jax
import jax.numpy as jnp
from jax import Array

from jdfl.algorithms.book import Claim
from jdfl.algorithms.clipping import clipped_sum, formed, sloped
from jdfl.algorithms.gradient_settings import GradientSettings
from jdfl.algorithms.moment import Moment
from jdfl.algorithms.round import Round
from jdfl.algorithms.sampling import sample
from jdfl.base import marking, struct
from jdfl.base.settings import Only, marks
from jdfl.base.streams import Stream
from jdfl.kernels import one_pass
from jdfl.privacy import clipped
from jdfl.privacy.mechanisms import is_exact
from jdfl.problems import Problem

NOISE = Stream("gradients.noise", "private")
_VARIED = Stream("gradients.augmentation", "private")
_ORDER = Stream("gradients.order of passes", "private")


@struct.dataclass
class Ready:
    """What gradients need from the data in every round."""

    lengths: Array | None = None  # [m, q] norms of the examples' features, where clipping all examples needs them
    order: Array | None = None  # [] key that the orders of passes are drawn from

    def rows(self, some: Array) -> "Ready":
        """The part for the nodes some [b]."""
        return self if self.lengths is None else replace(self, lengths=marking.rows(self.lengths[some], self.lengths))


@struct.dataclass
class Gradients(GradientSettings):
    """Gradients of the local losses: from which examples, with what clipping and noise.

    The default is exact gradients of all local data.
    With `clip`, every example's gradient is clipped to that norm (`per="example"`), or the gradient of the whole batch
    (`per="batch"`), which protects a node's whole data; `norm="entries"` clips every entry instead. This bounds the
    effect of neighbouring data, and the noise is scaled by the bound (`sensitivities`). Without `clip` the noise is
    scaled by an assumed `sensitivity`, which nothing enforces. With a clip, a gradient that overflows its type counts
    as zero, so no example can destroy the others. The regulariser is neither clipped nor counted: it contains no data.

    Batches of `batch` examples are redrawn for every step. `sampling`: "replacement" draws each example independently;
    "subset" draws distinct ones; "poisson" takes every example with probability batch / size, reads all of them to do
    so, and divides by the expected size. Only the last two, and single draws, amplify privacy. "epochs" passes through
    a node's examples in an order that is reshuffled for every pass, "in order" in the order of the data, `batch` per
    round. A pass takes size // batch rounds and leaves out the last size % batch examples of its order.

    Neighbouring datasets differ in one record that is replaced, or (`adjacency="add-remove"`) in one whose gradients
    count or are zero; the divisor stays the same.
    """

    def prepare(self, problem: Problem, moment: Moment) -> Ready:
        """The norms of the features, where clipping all examples needs them, and the key of "epochs".

        They are computed once, at the `moment` before the first round, because features do not change; rounds read them
        as `round.prepared.gradients`. Other settings need nothing.
        """
        if self.sampling == "epochs":
            return Ready(order=moment.stream(_ORDER))
        every = self.batch is None or self.sampling == "poisson"
        if self.clip is None or self.per == "batch" or self.norm == "entries" or not every or not sloped(problem):
            return Ready()
        lengths = problem.each(partial(problem.feature_lengths, norm=self.norm), problem.data)
        return Ready(marking.rows(lengths, jax.tree.leaves(problem.data)[0]))

    def __call__(self, w: Array, round: Round, *, look: int = 0, part: slice | None = None) -> Array:
        """The gradient of every f_i at w_i [m, n] for parameters w [m, n], or a `part` of it, which is clipped alone.

        Each `look` (0, 1, ...) of a step uses the same examples, with fresh noise.
        """
        clipped, rest = self._taken(w, round, part)
        if self.mechanism is None:
            return clipped + rest
        following = self.noisy == "communicating"
        scale = self.sensitivities(round.problem)
        noisy = round.noisy(self.mechanism, clipped, scale, NOISE, self.guarantee, look=look, following=following)
        return (jnp.where(round.follows_exchange, noisy, clipped) if following else noisy) + rest

    def without_noise(self, w: Array, round: Round, part: slice | None = None) -> Array:
        """The clipped gradients [m, n] of the current examples, without noise.

        One gradient per node is counted. It is for methods that add noise to something else, such as updates or
        messages; if no noise is added before sending, no privacy can be claimed.

        Args:
            w: Parameters w [m, n] of the nodes.
            round: The round, which determines the examples together with its local step.
            part: The entries to compute, to which clipping then applies; None: all.
        """
        clipped, rest = self._taken(w, round, part)
        return clipped + rest

    def descent(self, w: Array, round: Round, stream: Stream, claim: Claim) -> tuple[Array, Array]:
        """The negative gradients [m, n], first without and then with noise; twice the same without a mechanism.

        Args:
            w: Parameters w [m, n] of the nodes.
            round: The round, which counts a gradient and a release.
            stream: The stream of the noise.
            claim: The guarantee of the noise, as for `Round.release`.
        """
        clipped, rest = self._taken(w, round, None)
        if self.mechanism is None:
            return -clipped - rest, -clipped - rest
        noisy = round.noisy(self.mechanism, -clipped, self.sensitivities(round.problem), stream, claim)
        return -clipped - rest, noisy - rest

    def correlated(self, w: Array, round: Round, row: Array, hidden: Array) -> tuple[Array, Array]:
        """The gradients [m, n] with noise that is correlated over rounds, and the next `hidden`.

        Args:
            w: Parameters w [m, n] of the nodes.
            round: The round, which counts a gradient and a release.
            row: The row of C row [p], as for `Round.correlated`.
            hidden: The state of the noise, hidden [m, p - 1, n], as for `Round.correlated`.
        """
        clipped, rest = self._taken(w, round, None)
        scale: Any = self.sensitivities(round.problem), NOISE, self.guarantee
        noisy, hidden = round.correlated(self.mechanism, clipped, *scale, row, hidden)  # pyright: ignore
        return noisy + rest, hidden

    def _taken(self, w: Array, round: Round, part: slice | None) -> tuple[Array, Array | float]:
        """Clipped gradients of the current examples, and the gradient of the regulariser, which contains no data."""
        round.book.grads = round.book.grads + 1
        lengths = round.prepared.gradients.lengths
        with one_pass.stored(self.batch is None and round.rows is None):
            clipped, rest = self.parted(round.problem, w, *self.sample(round), part, lengths=lengths)
        data, weight = (round.problem.data, lengths), round.problem.weight
        if self.clip is None:
            return marking.own(clipped, w, data, weight), rest
        bound = None if round.altered else self.bound
        return marking.clipped(clipped, w, data, weight, bound, whole=self.per == "batch", problem=round.problem), rest

    @property
    def bound(self) -> Any:
        """What is clipped, and how: equal for settings with equal sensitivities; None for those that are not known.

        Unknown are settings that JAX traces, and derived classes, which may compute something else.
        """
        if not marking.plain(self, Gradients) or self.clip is None or marking.static(self.clip) is None:
            return None
        one = self.per, self.norm, float(self.clip)
        return one if self.per == "batch" else (*one, self.batch, self.sampling)

    def sample(self, round: Round) -> tuple[Any, Array, Array]:
        """The examples of a step: every node's data, their weights [m, b], and the divisor [m].

        The data have leaves [m, b, ...] and are augmented by the problem if there is a batch. b is q without a batch
        and for Poisson samples, in which examples that are not drawn have weight 0. The same round and local step draw
        the same examples.
        """
        problem = round.problem
        if self.batch is None:
            return problem.data, problem.weight, jnp.sum(problem.weight, axis=1)
        data, weight, total = sample(round, self.sampling, self.batch)
        return jax.vmap(problem.varied)(round.keys(_VARIED, round.local_step), data), weight, total

    def exact(self, *given: Any, **known: Any) -> Array:
        """Clipped gradients [b, n] of nodes without noise, for the arguments of `parted`."""
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
        """Clipped gradients [b, n] of nodes with these data, without noise, and those of the regulariser separately.

        With a `part` both are [b, its length]. Without a clip the first includes the regulariser, and the second is 0.
        They are separate so that noise which is exact to the last bit is added to the data term alone, and nothing else
        is rounded with it.

        Args:
            problem: The loss and the regulariser, which is not clipped.
            w: Parameters w [b, n].
            data: Examples, leaves [b, q, ...].
            weight: Their weights, weight [b, q]; 0 for those that do not count.
            total: The divisor of sums over examples, total [b].
            part: The entries to compute; the others are skipped where the compiler can. None: all.
            lengths: The norms of the examples' features, lengths [b, q]; None: computed where they are needed.
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
        """The unclipped gradient at w [n] of one node with these data, weight [q] and divisor total [], or a part of
        it.

        It includes the regulariser and no noise. The divisor applies to "subset" and "poisson", whose samples are
        divided by their expected weight; other gradients are divided by their actual weight.
        """
        here = slice(None) if part is None else part
        # f_i divides by the sum of its weights, which differs from the divisor of a sample and may be zero
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
]  # of algorithms that add noise elsewhere


def takes_noise(kind: type) -> bool:
    """Whether the gradients of a class of algorithms, the `kind`, may be noisy: it has them with all their settings."""
    annotation = get_type_hints(kind, include_extras=True).get("gradients")
    return annotation is not None and not any(isinstance(mark, Only) for mark in marks(annotation))
