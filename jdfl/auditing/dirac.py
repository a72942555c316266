"""Records whose gradient is a single entry: many of them fit into one run without interfering with each other.

Axes: m nodes, q examples per node, n parameters, K canaries.
"""

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jdfl.base import struct
from jdfl.problems import Problem

_LONG = 10.0  # norm of a canary's gradient, in clips, so that skipping the clip shows


@struct.dataclass
class Dirac(Problem):
    """A problem in which some records have the loss size * w[entry], and the gradient size * e_entry everywhere.

    `data` are those of the problem `inner`, and for each record its entry [m, q] int32, -1 for an ordinary one, and its
    size [m, q]. They are clipped like other records, and formed explicitly only where others are.
    """

    inner: Any = None  # the problem that the other records belong to

    @property
    def n(self) -> int:
        """The number of parameters."""
        return self.inner.n

    def loss(self, w: Array, example: Any) -> Array:
        """The loss [] of one example."""
        own, entry, size = example
        return jnp.where(entry < 0, self.inner.loss(w, own), size * w[jnp.maximum(entry, 0)])

    def losses(self, w: Array, data: Any) -> Array:
        """The loss [q] of every example."""
        own, entry, size = data
        return jnp.where(entry < 0, self.inner.losses(w, own), size * w[jnp.maximum(entry, 0)])

    def example_gradients(self, w: Array, data: Any) -> Array:
        """The gradients of single examples [q, n]: the problem's, or a single entry, built in one pass over them."""
        own, entry, size = (data[0], data[1][:, None], data[2][:, None])
        lone = jnp.where(jnp.arange(self.n, dtype=entry.dtype)[None] == entry, size, 0.0)
        return jnp.where(entry < 0, self.inner.example_gradients(w, own), lone)

    def regulariser(self, w: Array) -> Array:
        """The problem's regulariser []."""
        return self.inner.regulariser(w)

    def slopes(self, w: Array, data: Any) -> Array | None:
        """The problem's slopes [q], or [q, classes]; a canary's features are one entry, and its slope is its size."""
        own, entry, size = data
        slopes = self.inner.slopes(w, own)
        if slopes is None:
            return None
        if slopes.ndim == 1:
            return jnp.where(entry < 0, slopes, size)
        classes = jnp.arange(slopes.shape[1], dtype=entry.dtype)
        lone = jnp.where(classes[None] == entry[:, None] % slopes.shape[1], size[:, None], 0.0)
        return jnp.where(entry[:, None] < 0, slopes, lone)

    def feature_lengths(self, data: Any, norm: str) -> Array:
        """The norms of the features [q]."""
        return self.inner.feature_lengths(data[0], norm)

    def spread(self, slopes: Array, data: Any) -> Array:
        """The sum of slopes times features [n]."""
        return self.inner.spread(slopes, data[0])

    def each(self, function: Any, *stacked: Any) -> Any:
        """`function` of every node's rows, with as many nodes at once as the problem takes."""
        return self.inner.each(function, *stacked)

    def varied(self, key: Array, data: Any) -> Any:
        """The problem's own records after its augmentation; canaries are unchanged."""
        own, entry, size = data
        return self.inner.varied(key, own), entry, size

    def check_data(self) -> None:
        """Nothing to refuse: the problem's own data were checked."""


@dataclass(frozen=True)
class Places:
    """Where canaries are."""

    node: np.ndarray  # [K]
    record: np.ndarray  # [K] of that node
    entry: np.ndarray  # [K] of the gradient, distinct within a node


def room(problem: Problem) -> np.ndarray:
    """How many canaries every node can have [m]: at most one per record, and one per entry."""
    return np.minimum(np.asarray(problem.sizes), problem.n)


def places(problem: Problem, canaries: int, seed: int) -> Places:
    """Places for the canaries, distributed over the nodes as evenly as possible, with random records and entries."""
    rng, most = np.random.default_rng(seed), room(problem)
    turn = np.concatenate([np.flatnonzero(most > i) for i in range(int(most.max()))])  # one per node, then another
    count = np.bincount(turn[:canaries], minlength=problem.m)
    weight = np.asarray(problem.weight)
    there = [rng.permutation(np.flatnonzero(weight[i] > 0))[:c] for i, c in enumerate(count)]
    entries = [rng.permutation(problem.n)[:c] for c in count]
    return Places(np.repeat(np.arange(problem.m), count), np.concatenate(there), np.concatenate(entries))


def planted(problem: Problem, places: Places) -> Dirac:
    """The problem with canaries of size 0, which change nothing, in these places; `with_sizes` sets their sizes."""
    at = places.node, places.record
    entry = jnp.full(problem.weight.shape, -1, jnp.int32).at[at].set(jnp.asarray(places.entry, jnp.int32))
    data, w = problem.data, jnp.zeros((problem.n,), problem.dtype)
    slopes = jax.eval_shape(lambda w: problem.slopes(w, problem.local(0)[0]), w)
    if slopes is not None:
        features, *rest = data
        column = jnp.asarray(places.entry // (problem.n // features.shape[-1]), jnp.int32)
        unit = jnp.zeros((len(column), features.shape[-1]), features.dtype).at[jnp.arange(len(column)), column].set(1)
        data = (features.at[at].set(unit), *rest)
    some = jax.tree.map(lambda leaf: leaf[:1, :1], problem.data)
    return Dirac(
        data=(data, entry, jnp.zeros(problem.weight.shape, problem.dtype)),
        weight=problem.weight,
        curvature=problem.curvature,
        start=problem.start,
        shared=problem.shared,
        derived=problem.derived,
        public=problem.public,
        inner=replace(problem, data=some, weight=problem.weight[:1, :1], curvature=problem.curvature[:1], test=None),
    )


def with_sizes(problem: Dirac, places: Places, sign: np.ndarray, clip: float) -> Dirac:
    """The problem with canaries of these signs [K], 0 for none, each with a gradient of ten times the clip."""
    own, entry, size = problem.data
    sized = size.at[places.node, places.record].set(jnp.asarray(_LONG * clip * sign, size.dtype))
    return replace(problem, data=(own, entry, sized))
