"""How a node computes gradients of its local loss: from which examples, with what clipping and noise.

Axes: m nodes, q examples per node, b examples of one gradient, n parameters.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, get_type_hints

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jdfl.algorithms.round import Claim, Round, RoundContext
from jdfl.arrays import ops
from jdfl.base import checks, marking, struct
from jdfl.base.backend import backend
from jdfl.base.settings import Count, Only, Positive, marks
from jdfl.base.streams import Stream, each
from jdfl.kernels import one_pass
from jdfl.privacy.clipping import Clip, clipped, factor, stretch
from jdfl.privacy.guarantee import NO_NOISE, Guarantee, Sampling
from jdfl.privacy.mechanisms import Gaussian, Mechanism, check_mechanism, event_of, is_exact
from jdfl.problems import Problem
from jdfl.problems.base import drawn, drawn_once

Sampler = Literal["replacement", "subset", "poisson", "epochs", "in order"]
NOISE = Stream("gradients.noise", "private")
_BATCH = Stream("gradients.batch", "private")
_VARIED = Stream("gradients.augmentation", "private")
_ORDER = Stream("gradients.order of passes", "private")
PRIVATE = (_BATCH.number,)  # whose draws decide which records a gradient uses
_REPEATED = (
    "samples are drawn with replacement and may contain a record several times, so they do not amplify privacy; "
    'sampling = "subset" or "poisson" does'
)
_AT_ONCE = 2**24  # numbers in the single-example gradients that are formed at a time
_ONE_CLIP = (
    "An adaptive clip would be a noisy release more in every round, which is not accounted for: choose one with public "
    "data. In place of l2 clips C_l per layer give the root of the sum of C_l^2, which has their sensitivity."
)
_FEW = 64  # terms that are added at once
_MOST_ROUNDING = 0.1  # of a sensitivity
_PASSES = "a record counts in all releases of its node, although a pass over the data uses it in only one of them"


@jax.jit
def _largest_and_sum(weight: Array) -> tuple[Array, Array]:
    return jnp.max(weight, axis=1), jnp.sum(weight, axis=1)


@struct.dataclass
class Ready:
    """What gradients need from the data in every round."""

    lengths: Array | None = None  # [m, q] norms of the examples' features, where clipping all examples needs them
    order: Array | None = None  # [] key that the orders of passes are drawn from

    def rows(self, some: Array) -> "Ready":
        """The part for the nodes some [b]."""
        return self if self.lengths is None else replace(self, lengths=marking.rows(self.lengths[some], self.lengths))


@struct.dataclass
class Gradients:
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

    flat: ClassVar[bool] = True  # on the command line and in YAML, its fields are listed with those of the algorithm
    batch: Count | None = struct.field(pytree_node=False, default=None)
    """Examples of one gradient; None: all local data."""
    sampling: Sampler = struct.field(pytree_node=False, default="replacement")
    """How a batch is drawn: each example independently, distinct ones, every example with equal probability, or all in
    turn, shuffled for every pass or in the order of the data."""
    clip: Positive | None = None
    """Largest norm of a gradient; None: no clipping."""
    per: Literal["example", "batch"] = struct.field(pytree_node=False, default="example")
    """What is clipped: every example's gradient, or the batch's."""
    norm: Clip = struct.field(pytree_node=False, default="l2")
    """The norm that is clipped; entries: every entry is clipped separately."""
    mechanism: Mechanism | None = None
    """Noise on gradients; None: no noise."""
    sensitivity: Positive | None = None
    """Sensitivity assumed for the noise where gradients are not clipped; nothing enforces it."""
    adjacency: Literal["replace-one", "add-remove"] = struct.field(pytree_node=False, default="replace-one")
    """Neighbouring datasets differ in a record that is replaced, or one that is added or removed."""
    noisy: Literal["always", "communicating"] = struct.field(pytree_node=False, default="always")
    """Which gradients are noisy: all, or only those that follow an exchange of messages."""

    def __post_init__(self) -> None:
        """Raise ValueError for clips that follow the data or differ between layers."""
        clip: Any = self.clip  # JAX may put anything in its place
        if type(clip) in (str, dict, list, tuple):
            checks.refuse("one number for all rounds and parameters", "clip", clip, _ONE_CLIP)

    def prepare(self, problem: Problem, context: RoundContext) -> Ready:
        """The norms of the features, where clipping all examples needs them, and the key of "epochs".

        They are computed once, before the first round, because features do not change; rounds read them as
        `round.prepared.gradients`. Other settings need nothing.
        """
        if self.sampling == "epochs":
            return Ready(order=context.stream(_ORDER))
        every = self.batch is None or self.sampling == "poisson"
        if self.clip is None or self.per == "batch" or self.norm == "entries" or not every or not _has_slopes(problem):
            return Ready()
        lengths = problem.each(partial(problem.feature_lengths, norm=self.norm), problem.data)
        return Ready(marking.rows(lengths, jax.tree.leaves(problem.data)[0]))

    def __call__(self, w: Array, round: Round, *, look: int = 0, part: slice | None = None) -> Array:
        """The gradient of every f_i at w_i [m, n] for parameters w [m, n], or a `part` of it, which is clipped alone.

        Each `look` (0, 1, ...) of a step uses the same examples, with fresh noise.
        """
        clipped, rest = self._counted_gradient(w, round, part)
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
        clipped, rest = self._counted_gradient(w, round, part)
        return clipped + rest

    def descent(self, w: Array, round: Round, stream: Stream, claim: Claim) -> tuple[Array, Array]:
        """The negative gradients [m, n], first without and then with noise; twice the same without a mechanism.

        Args:
            w: Parameters w [m, n] of the nodes.
            round: The round, which counts a gradient and a release.
            stream: The stream of the noise.
            claim: The guarantee of the noise, as for `Round.release`.
        """
        clipped, rest = self._counted_gradient(w, round, None)
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
        clipped, rest = self._counted_gradient(w, round, None)
        scale: Any = self.sensitivities(round.problem), NOISE, self.guarantee
        noisy, hidden = round.correlated(self.mechanism, clipped, *scale, row, hidden)  # pyright: ignore
        return noisy + rest, hidden

    def _counted_gradient(self, w: Array, round: Round, part: slice | None) -> tuple[Array, Array | float]:
        """Clipped gradients of the current examples and the regulariser's gradient; without a clip their sum, and 0."""
        round.trace.grads = round.trace.grads + 1
        known, weight = round.prepared.gradients.lengths, round.problem.weight
        lengths = None if known is None else round.problem.cut(known)
        with one_pass.stored(self.batch is None and round.rows is None):
            clipped, rest = self.parted(round.problem, w, *self.sample(round), part, lengths=lengths)
        data = round.problem.data, known
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

    def fits(self, bound: Any) -> bool:
        """Whether `sensitivities` are those of a value that is clipped to `bound`."""
        return self.bound == bound

    def sample(self, round: Round) -> tuple[Any, Array, Array]:
        """The examples of a step: every node's data, their weights [m, b], and the divisor [m].

        The data have leaves [m, b, ...] and are augmented by the problem if there is a batch. b is q without a batch
        and for Poisson samples, in which examples that are not drawn have weight 0. The same round and local step draw
        the same examples.
        """
        problem = round.problem
        if self.batch is None:
            return *problem.weighted_data, jnp.sum(problem.weight, axis=1)
        data, weight, total = sample(round, self.sampling, self.batch)
        keys = round.keys(_VARIED, round.local_step)
        return problem.per_example(problem.varied, keys, data), weight, total

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

        chunk = _formed(weight.shape[0], problem.n, weight.shape[1])

        def sums(w_i: Array, data_i: Any, weight_i: Array, lengths_i: Array | None) -> Array:
            assert self.clip is not None
            known = self.clip, self.norm, lengths_i, chunk, part
            return _clipped_sum(problem, w_i, data_i, weight_i, *known, pieces=is_exact(self.mechanism))

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

    def check(self, problem: Problem) -> None:
        """Raise ValueError for settings out of range.

        Refused are a batch larger than the smallest node's data, unless it is drawn with replacement; other sampling
        without a batch; noise without exactly one of clip and sensitivity, or a sensitivity without noise; and, for
        clipping per example, a `problem` whose slopes do not belong to its loss.
        """
        if self.batch is not None:
            fewest = int(np.min(np.asarray(problem.sizes)))
            if self.sampling != "replacement" and self.batch > fewest:
                raise ValueError(
                    f"Expected batch <= {fewest}, the number of examples of the smallest node, with sampling = "
                    f"{self.sampling!r}, got batch = {self.batch}. Use a smaller batch or fewer nodes, or sampling = "
                    "'replacement', which may draw an example twice."
                )
        elif self.sampling != "replacement":
            raise ValueError(
                f"Expected a batch with sampling = {self.sampling!r}, got batch = None. Give one, such as batch=1."
            )
        self._check_noise(problem)
        if self.clip is not None and self.per == "example":
            _check_slopes(problem)

    def _check_noise(self, problem: Problem) -> None:
        if self.mechanism is None:
            if self.sensitivity is not None:
                raise ValueError(
                    f"Expected a mechanism with sensitivity = {self.sensitivity!r}, got mechanism = None. Give "
                    "Gaussian(multiplier), or leave sensitivity out."
                )
            return
        check_mechanism(self.mechanism)
        if (self.clip is None) == (self.sensitivity is None):
            raise ValueError(
                f"Expected clip or sensitivity to scale the noise, got clip = {self.clip!r} and sensitivity = "
                f"{self.sensitivity!r}. Noise without clipping protects nobody: give clip, which bounds the effect of "
                "one example; sensitivity only assumes a bound, and nothing is claimed then."
            )
        if not is_exact(self.mechanism):
            return
        if self.clip is None:
            raise ValueError(
                f"Expected a clip with exact noise, got sensitivity = {self.sensitivity!r}, which bounds no bits. Give "
                "clip, or use Gaussian."
            )
        if self.noisy == "communicating":
            raise ValueError('Expected noisy = "always" with exact noise, got "communicating", which claims nothing.')
        whole = np.asarray(self.sensitivities(problem))
        plain = np.asarray(replace(self, mechanism=Gaussian(1.0)).sensitivities(problem))
        node = int(np.argmax(whole / plain))
        if whole[node] > (1 + _MOST_ROUNDING) * plain[node]:
            looked = int(self.examples(problem)[node])
            raise ValueError(
                f"Expected sums of gradients whose rounding is below {_MOST_ROUNDING:g} of the effect of one record, "
                f"got {whole[node] / plain[node] - 1:.2g} for the {looked} examples of node {node} in "
                f"{problem.dtype}. Exact noise would have to hide the rounding, too: use float64 (JAX_ENABLE_X64=1), "
                "fewer examples (batch), or Gaussian."
            )

    def sensitivities(self, problem: Problem) -> Array:
        """The sensitivity of every node [m], in the mechanism's norm: assumed, or enforced by `clip`.

        For a replaced record it is 2 clip w_t / divisor with the largest weight w_t of the node (2 clip for
        "replacement", whose draws may all pick one record), for a replaced node 2 clip; half of that for add-remove. It
        is multiplied by the largest ratio between the norm of the noise and the norm of the clip. For exact noise it
        includes what floating-point arithmetic may add (`_rounding`).
        """
        dtype = problem.dtype
        if self.clip is None or self.mechanism is None:
            return jnp.full((problem.m,), 0.0 if self.sensitivity is None else self.sensitivity, dtype)
        largest, total = _largest_and_sum(problem.weight)
        if self.per == "batch" or (self.batch is not None and self.sampling == "replacement"):
            share = jnp.ones_like(total)
        elif self.batch is not None and self.sampling in ("epochs", "in order"):
            least = jnp.min(jnp.where(problem.weight > 0, problem.weight, jnp.inf), axis=1)
            share = largest / (self.batch * least)
        elif self.batch is not None:
            share = largest * problem.sizes.astype(dtype) / (self.batch * total)
        else:
            share = largest / total
        change = (2.0 if self.adjacency == "replace-one" else 1.0) * share
        if is_exact(self.mechanism):
            change = change + self._rounding(problem, share)
        found = change * stretch(self.norm, self.mechanism.norm, problem.n) * self.clip
        return marking.scale(found, problem.weight, None if self.bound is None else marking.static(self))

    def _rounding(self, problem: Problem, share: Array) -> Array:
        """The largest effect of rounding on the difference of two sums of clipped gradients, in units of the clip [m].

        With u half the distance from 1 to the next number, the norm of a clipped gradient is too large by at most n / 2
        + 16 roundings. A sum whose terms pass through k additions has an error of k u times the sum of their norms (N.
        Higham, "Accuracy and Stability of Numerical Algorithms", 2002, section 4.2), and noise rounds its argument
        twice more. TPUs multiply with fewer digits than they store.
        """
        unit = float(jnp.finfo(problem.dtype).eps) / 2 * (8 if backend() == "tpu" else 1)
        looked = problem.weight.shape[1] if self.batch is None or self.sampling == "poisson" else self.batch
        at_once = looked if self.norm != "entries" and _has_slopes(problem) else _formed(problem.m, problem.n, looked)
        passed = 0 if self.per == "batch" else _additions(looked, at_once)
        # The divisor is the weight of the examples in use, or for these two samplings their expected weight.
        expected = self.batch is not None and self.sampling in ("poisson", "subset")
        reach = jnp.maximum(1.0, looked * share) if expected else jnp.ones_like(share)
        return 2.1 * unit * ((problem.n / 2 + 16) * share + (passed + 8) * reach)

    def examples(self, problem: Problem) -> Array:
        """The number of examples that one gradient of every node uses [m] int32.

        It is `batch`, or all local data: without a batch, and for Poisson samples, which read every example in order to
        draw. The count `examples` of a run follows from it.
        """
        if self.batch is None or self.sampling == "poisson":
            return problem.sizes
        return jnp.full((problem.m,), self.batch, jnp.int32)

    def passes(self, problem: Problem) -> np.ndarray:
        """The number of steps of a pass over every node's data [m], where a record is used in one known step of each.

        It is 1 where the protected unit may be used in every step: a whole node, and records that are drawn at random
        or all used.
        """
        sizes = np.asarray(problem.sizes)
        in_turn = self.sampling == "in order" and self.per == "example"
        return sizes // self.batch if self.batch and in_turn else np.ones_like(sizes)

    def guarantee(self, problem: Problem, looks: int = 1) -> Guarantee:
        """The guarantee of messages that depend on the data only through these gradients.

        `looks` gradients of a step use the same examples. The unit is one record, or with per = "batch" a node's data.
        Nothing is claimed without a clip, nor with noisy = "communicating"; without a mechanism it is
        `jdfl.privacy.NO_NOISE`.

        Args:
            problem: The nodes' data, which determine the sensitivity.
            looks: How many gradients of one step use the same examples, at least 1.
        """
        if self.mechanism is None:
            return NO_NOISE
        unit = "node" if self.per == "batch" and self.clip is not None else "record"
        claimed, enforced_by, remedy = False, None, ""
        if self.clip is None:
            reason = "gradients are not clipped, so nothing enforces the sensitivity that the noise is scaled by"
            remedy = "Give clip instead of sensitivity."
        elif self.noisy == "communicating":
            reason = "gradients between two exchanges of messages have no noise, and messages depend on them"
            remedy = 'Use noisy="always".'
        else:
            reason = "every gradient is clipped and noisy, and everything else is computed from these and from messages"
            norm, what = "entrywise" if self.norm == "entries" else self.norm, "example" if unit == "record" else "node"
            claimed, enforced_by = True, f"{norm} clipping of every {what}'s gradient to {float(self.clip):g}"
        return Guarantee(
            unit=unit,
            adjacency=self.adjacency,
            observer="all messages",
            sensitivity=float(np.max(self.sensitivities(problem) if self.sensitivity is None else self.sensitivity)),
            enforced_by=enforced_by,
            claimed=claimed,
            reason=reason,
            remedy=remedy,
            event=event_of(self.mechanism, problem.n),
            sampling=self._sampling(looks) if unit == "record" else None,
            warnings=self._warnings(),
        )

    def _warnings(self) -> tuple[str, ...]:
        if self.batch not in (None, 1) and self.sampling == "replacement":
            return (_REPEATED,)
        return (_PASSES,) if self.sampling in ("epochs", "in order") else ()

    def _sampling(self, looks: int) -> Sampling | None:
        """The sampling that amplifies privacy: without replacement, which includes single draws."""
        if self.batch is None or self.sampling in ("epochs", "in order"):
            return None
        if self.sampling == "replacement" and self.batch > 1:
            return None
        return Sampling("poisson" if self.sampling == "poisson" else "subset", self.batch, looks)


def sample(round: Round, sampling: Sampler, batch: int) -> tuple[Any, Array, Array]:
    """Every node's examples of a local step, leaves [m, b, ...], their weights [m, b], and the divisor [m].

    `batch` examples are drawn as `sampling` says.
    """
    problem = round.problem
    data, weight, total = problem.data, problem.weight, jnp.sum(problem.weight, axis=1)
    keys = round.keys(_BATCH, round.local_step)
    share = batch / problem.sizes.astype(weight.dtype)
    if sampling == "poisson":

        def taken(key: Array, p: Array, weight: Array) -> Array:
            return jnp.where(jax.random.bernoulli(key, p, weight.shape), weight, 0.0)

        return data, problem.per_example(taken, keys, share, problem.cut(weight)), total * share
    if sampling in ("epochs", "in order"):
        place = _turn(round, batch, round.prepared.gradients.order if sampling == "epochs" else None)
        weight = jnp.take_along_axis(weight, place, axis=1)
        return problem.some(place), weight, jnp.sum(weight, axis=1)
    if problem.blocks is None:
        draw = problem.subset if sampling == "subset" else problem.minibatch
        data, weight = jax.vmap(draw, (0, 0, 0, None))(keys, data, weight, batch)
    else:
        chosen = drawn_once if sampling == "subset" else drawn
        place = problem.each(lambda key, weight: chosen(key, weight, batch), keys, problem.cut(weight))
        data, weight = problem.some(place), jnp.take_along_axis(weight, place, axis=1)
    return data, weight, jnp.sum(weight, axis=1) if sampling == "replacement" else total * share


def _turn(round: Round, batch: int, order: Array | None) -> Array:
    """The positions [m, b] of the examples of a local step; `order` is the key of the passes' orders."""
    sizes, step = round.problem.sizes, round.k * round.local_steps + round.local_step  # counted over all rounds
    rounds = sizes // batch  # per pass
    place = (step % rounds)[:, None] * batch + jnp.arange(batch, dtype=jnp.int32)[None]
    if order is None:
        return place
    keys = jax.vmap(jax.random.fold_in)(each(order, round.node), step // rounds)
    return jax.vmap(ops.permuted)(keys, place, sizes)


def _clipped_sum(
    problem: Problem,
    w: Array,
    data: Any,
    weight: Array,
    clip: float | Array,
    norm: Clip,
    lengths: Array | None,
    chunk: int,
    part: slice | None = None,
    *,
    pieces: bool = False,
) -> Array:
    """sum_t weight[t] min(1, clip / ||g_t||) g_t [n] over a node's examples, or of a part of the gradients g_t at w."""
    # Slopes make the sum without forming gradients; others, and those clipped by entry, are formed `chunk` at a time.
    q = weight.shape[0]
    chunk = min(chunk, _piece(q)) if pieces else chunk
    slopes = problem.slopes(w, data) if part is None and norm != "entries" else None
    if slopes is None:
        here = slice(None) if part is None else part

        def some(share: Array, place: Array) -> Array:
            g = clipped(problem.example_gradients(w, problem.take(data, place))[:, here], norm, clip)
            return jnp.dot(share, g, precision=ops.HIGHEST)

        return _sum(q, chunk, weight, w[here], some)
    if lengths is None:
        lengths = problem.feature_lengths(data, norm)
    scale = factor(lengths * ops.length(slopes[:, None], norm, tuple(range(1, slopes.ndim + 1))), clip)
    share = (weight * scale).reshape(-1, *[1] * (slopes.ndim - 1))
    scaled = jnp.where(share > 0, slopes, 0.0) * share
    if not pieces or _piece(q) == q:
        return problem.spread(scaled, data)
    return _sum(q, _piece(q), scaled, w, lambda here, place: problem.spread(here, problem.take(data, place)))


def _has_slopes(problem: Problem) -> bool:
    """Whether gradients of examples are clipped without being formed, unless their entries are clipped."""
    w = jax.ShapeDtypeStruct((problem.n,), problem.dtype)
    return jax.eval_shape(lambda w: problem.slopes(w, problem.local(0)[0]), w) is not None


def _formed(m: int, n: int, q: int) -> int:
    """How many of q examples' gradients are formed at a time, with n numbers for each of m nodes."""
    return max(1, min(q, _AT_ONCE // (m * n)))


def _additions(q: int, chunk: int) -> int:
    """The largest number of additions that a term of q passes through, in pieces of at most one chunk."""
    size = min(chunk, _piece(q))
    return size + -(-q // size)


def _piece(q: int) -> int:
    """How many of q terms are added at a time to keep the rounding of their sum small: about the root of q."""
    return q if q <= _FEW else math.isqrt(q - 1) + 1


@jax.jit
def _both_gradients(problem: Problem, w: Array, data: Any) -> tuple[Array, Array, Array] | None:
    """An example's gradient, the one that its slopes make, and the length of that; None where there are no slopes."""
    data = problem.take(data, jnp.arange(1, dtype=jnp.int32))
    if (slopes := problem.slopes(w, data)) is None:
        return None
    length = problem.feature_lengths(data, "l2")[0] * jnp.linalg.norm(slopes[0])
    return problem.example_gradients(w, data)[0], problem.spread(slopes, data), length


def _check_slopes(problem: Problem) -> None:
    """Raise ValueError for a problem whose slopes do not belong to its loss, for example in a derived class."""
    w = jnp.asarray(np.random.default_rng(0).standard_normal(problem.n) / problem.n**0.5, problem.dtype)
    if (both := _both_gradients(problem, w, problem.some_node())) is None:
        return
    g, made, length = (np.asarray(one, np.float64) for one in both)
    size = np.linalg.norm(g)
    if not np.isfinite(g).all():
        return  # a record too large for its type cannot be checked
    if not (np.linalg.norm(made - g) <= 1e-3 * size + 1e-6 and abs(length - size) <= 1e-3 * size + 1e-6):
        raise ValueError(
            f"Expected slopes, feature_lengths and spread of {type(problem).__name__} that make the gradient of its "
            "loss, got others. Override them in the class, or let slopes return None."
        )


def _sum(q: int, chunk: int, terms: Array, like: Array, some: Callable[[Array, Array], Array]) -> Array:
    """The sum of `some(terms[places], places)`, with the shape of `like`, over all q places, one chunk at a time."""
    count = -(-q // chunk)
    terms = jnp.pad(terms, [(0, count * chunk - q)] + [(0, 0)] * (terms.ndim - 1))  # padding has weight zero

    def add(c: Array, total: Array) -> Array:
        place = jnp.minimum(c * chunk + jnp.arange(chunk, dtype=jnp.int32), q - 1)
        return total + some(lax.dynamic_slice_in_dim(terms, c * chunk, chunk), place)

    return lax.fori_loop(0, count, add, jnp.zeros_like(like))


# of algorithms that add noise elsewhere
Exact = Annotated[Gradients, Only(("batch", "sampling", "clip", "per", "norm"))]


def takes_noise(kind: type) -> bool:
    """Whether the gradients of a class of algorithms, the `kind`, may be noisy: it has them with all their settings."""
    annotation = get_type_hints(kind, include_extras=True).get("gradients")
    return annotation is not None and not any(isinstance(mark, Only) for mark in marks(annotation))
