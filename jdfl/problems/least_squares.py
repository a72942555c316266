"""Least squares from arrays or from a function that draws examples, and Example 1 of the CEPS paper.

Examples that a function draws from keys are drawn whenever they are used: only their weights are stored.
S. Sha, S. Zhou, L. Kong, G. Y. Li, "Sparse Decentralized Federated Learning" (CEPS), section V.A.
Axes: m nodes, q examples per node (padded with weight 0), n parameters, N test examples.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike, DTypeLike
from scipy.sparse import issparse

from jdfl.arrays import ops
from jdfl.base import checks, struct
from jdfl.base.arguments import checked
from jdfl.base.keys import typed_key
from jdfl.base.names import aligned, labels_of
from jdfl.base.settings import MOST
from jdfl.base.streams import Stream
from jdfl.devices import memory
from jdfl.devices.processes import gather, portion
from jdfl.problems.linear import LinearRegression
from jdfl.problems.ragged import Blocks
from jdfl.problems.stack import (
    Precision,
    Public,
    checked_parts,
    copied,
    curvatures,
    dense_eigenvalue,
    floating,
    floats_fit,
    joined,
    stack,
)

Draw = Callable[[Array], tuple[Array, Array]]  # key -> features [n] and target [] of one example
_AT_ONCE = 2**20  # numbers in the features of the nodes that are computed side by side
_ON_HOST = 256  # nodes whose examples are on the host at a time
_MOST = 2**32  # examples of a node: as many numbers as a key takes
_EXAMPLES = Stream("problem.examples", "shared")  # separate from all draws of a run with the same seed
Arrays = Array | np.ndarray | Sequence[ArrayLike]
Storage = Literal["stored", "generated"]
_ALL = "It is an array of all nodes."


@struct.dataclass
class DrawnRegression(LinearRegression):
    """The objective of `LinearRegression` on examples that are `draw(key)` of a key of their own.

    data = node [m], the number of every node; example t of node i has the key fold_in(fold_in(self.key, i), t). Batches
    contain (features, targets) as usual, and only their examples are drawn. A pass over all examples draws all of them.
    """

    key: Any = None
    draw: Any = None  # a pytree that can be called
    features: int = struct.field(pytree_node=False, default=0)  # of one example

    @property
    def n(self) -> int:
        return self.features

    def _each(self, function: Callable[..., Any], *stacked: Any) -> Any:
        leaves = jax.tree.leaves(stacked)
        m, size = leaves[0].shape[0], max(1, _AT_ONCE // (self.weight.shape[-1] * self.n))
        if size >= m or not any(leaf.dtype == self.data.dtype for leaf in leaves):  # batches have been drawn
            return jax.vmap(function)(*stacked)
        return lax.map(lambda rows: function(*rows), stacked, batch_size=size)

    def examples(self, node: Array, places: Array) -> tuple[Array, Array]:
        """The examples with the numbers places [b] of a node []: features [b, n] and targets [b].

        One beyond the node's number of examples is drawn like the others, and has weight 0.
        """
        own = jax.random.fold_in(self.key, node)
        return jax.vmap(lambda t: self.draw(jax.random.fold_in(own, t)))(places)

    def made(self, data: Any) -> tuple[Array, Array]:
        """The features [q, n] and targets [q] of a batch, or of all examples of a node if `data` is its number."""
        if checks.is_a(data, tuple):
            return data
        return self.examples(data, jnp.arange(self.weight.shape[-1], dtype=jnp.uint32))

    def take(self, data: Any, chosen: Array) -> tuple[Array, Array]:
        return super().take(data, chosen) if isinstance(data, tuple) else self.examples(data, chosen)

    def example_gradients(self, w: Array, data: Any) -> Array:
        return super().example_gradients(w, self.made(data))

    def host_examples(self) -> Iterator[tuple[Any, np.ndarray, np.ndarray]]:
        for first in range(0, self.m, _ON_HOST):
            part = self.nodes(jnp.arange(first, min(self.m, first + _ON_HOST)))
            yield from ((X, y, c * (part.m / self.m)) for X, y, c in part.stored().host_examples())

    def stored(self) -> LinearRegression:
        """The same problem with its examples in memory, at least 4 m q n bytes; padding is zero.

        Use it for gradients of all examples: for each of them a drawn problem draws all examples again.
        """
        here = self.nodes(portion(self.m))
        A, b = _every_example(here)
        real = here.weight > 0
        data = jnp.where(real[:, :, None], A, 0), jnp.where(real, b, 0)
        problem = LinearRegression(
            data, here.weight, here.curvature, self.truth, self.test, self.start, shared=self.shared, name=self.name
        )
        return replace(joined(problem, self.m), about=self.about)

    def check_data(self) -> None:
        checks.shape((self.m,), "It has the numbers of the nodes.", data=self.data)
        for i in (0, self.m - 1):
            A, b = self.examples(self.data[i], jnp.arange(min(4, self.weight.shape[1]), dtype=jnp.uint32))
            checks.finite(f"See what draw(key) gives for node {i}.", features=A, targets=b)


def sample_regression(
    draw: Draw,
    sizes: ArrayLike,
    *,
    key: int | Array = 0,
    truth: ArrayLike | None = None,
    rows: int | None = None,
    name: str = "drawn regression",
    dtype: DTypeLike = jnp.float32,
) -> DrawnRegression:
    """Least squares on examples that are drawn whenever they are used, and never stored.

    Stored are 4 bytes per example and the curvature of every node, for which all examples are drawn once.

    Args:
        draw: The function that makes one example from a key, `draw(key) -> (features [n], target [])`, pure and in JAX.
            Captured arrays are compiled in, unless it is a callable pytree such as a `jax.tree_util.Partial`.
        sizes: Number of examples >= 1 of every node [m].
        key: Key, or seed of one, of all examples.
        truth: Parameters [n] that are known to have generated the examples; None: they are not known.
        rows: q, at least the largest of the sizes; None: the largest.

    Raises ValueError for sizes that are not whole numbers from 1, and for draws of another shape or type.
    """
    kind = floating(dtype)
    checks.shape((None,), "It has the number of examples of every node.", sizes=sizes)
    counts = np.asarray(sizes)
    if counts.size == 0 or not np.issubdtype(counts.dtype, np.integer) or counts.min() < 1 or counts.max() >= _MOST:
        raise ValueError(f"Expected sizes of whole numbers from 1, one for every node, got sizes = {sizes!r}.")
    if not callable(draw):
        raise ValueError(f"Expected draw to be a function of a key, got draw = {draw!r}.")
    own = _EXAMPLES.of(typed_key(key))
    found: Any = jax.eval_shape(draw, own)
    shapes = [(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(found)]
    if not isinstance(found, tuple) or len(shapes) != 2 or [len(s) for s, _ in shapes] != [1, 0]:
        raise ValueError(f"Expected draw(key) to give features [n] and a target [], got {found}.")
    if any(given != kind for _, given in shapes):
        raise ValueError(f"Expected draw(key) to give {kind}, got {[str(given) for _, given in shapes]}.")
    n = shapes[0][0][0]
    if truth is not None:
        checks.shape((n,), truth=truth)
    largest = int(counts.max())
    q = largest if rows is None else rows
    checks.integer(largest, remedy="It is the largest of the sizes or more.", rows=q)
    problem = DrawnRegression(
        data=jnp.arange(len(counts), dtype=jnp.uint32),
        weight=jnp.asarray(np.arange(q)[None] < counts[:, None], kind),
        curvature=jnp.zeros((len(counts),), kind),
        truth=None if truth is None else jnp.array(truth, kind),
        name=name,
        key=own,
        draw=draw if jax.tree.leaves(draw) != [draw] else jax.tree_util.Partial(draw),
        features=n,
    )
    return replace(problem, curvature=jnp.asarray(gather(_curvature(problem.nodes(portion(problem.m))), problem.m)))


@jax.jit
def _every_example(problem: DrawnRegression) -> tuple[Array, Array]:
    """The examples of all nodes: features [m, q, n], targets [m, q]."""
    return problem.each(problem.made, problem.data)


@jax.jit
def _curvature(problem: DrawnRegression) -> Array:
    """lambda_max(A_i^T diag(weight_i) A_i) / sum_t weight[i,t] of every node [m]."""
    start = jax.random.normal(jax.random.key(0), (problem.n,), problem.dtype)

    def one(node: Array, weight: Array) -> Array:
        return dense_eigenvalue(problem.made(node)[0], weight, start)

    return problem.each(one, problem.data, problem.weight)


@checked
def linear_regression(
    features: Arrays,
    targets: Arrays,
    *,
    truth: ArrayLike | None = None,
    test: tuple[ArrayLike, ArrayLike] | None = None,
    name: str = "linear regression",
    dtype: DTypeLike = jnp.float32,
) -> LinearRegression:
    """Least squares on the nodes' features and targets; see `sample_regression` for examples that are not stored.

    Args:
        features: The features of every node: m arrays [q_i, n], or one array [m, q, n].
        targets: The targets of every node: m arrays [q_i], or one array [m, q].
        truth: Parameters [n] that generated the targets; None: they are not known.
        test: Features [N, n] and targets [N] to test with; None: there are none.

    Raises ValueError for shapes that do not fit together.
    """
    kind = floating(dtype)
    for given, argument in ((features, "features"), (targets, "targets")):
        if getattr(given, "shape", None) == () or issparse(given) or callable(given):
            checks.refuse(f"{argument} to be a list of dense arrays, one for every node", argument, given)
        if hasattr(given, "shape"):
            checks.plain_array("Give a list of arrays, one for every node.", **{argument: given})
    if len(features) != len(targets):
        raise ValueError(f"Expected targets of {len(features)} nodes, got {len(targets)}.")
    if isinstance(features, Array | np.ndarray) and isinstance(targets, Array | np.ndarray):
        checks.real(features=features, targets=targets)
        checks.shape((None, None, None), _ALL, features=features)
        checks.shape(features.shape[:2], _ALL, targets=targets)
        if 0 in features.shape:
            raise ValueError(f"Expected features of nodes with examples, got an array of shape {features.shape}.")
        for argument, given in (("features", features), ("targets", targets)):
            if isinstance(given, np.ndarray):
                floats_fit(argument, given.reshape(-1, *given.shape[2:]), kind, stacklevel=4)
        data, weight, blocks = (features, targets), np.ones(features.shape[:2], kind), None
        like = [(np.zeros((1, features.shape[2]), kind), np.zeros(1, kind))]
        held = [] if test is None else checked_parts(like, test, kind, "targets")[1]
    else:
        parts, held = checked_parts(list(zip(features, targets)), test, kind, "targets")
        data, weight, blocks = stack(parts, (kind, kind))
    if truth is not None:
        truth = np.asarray(aligned("truth", truth, labels_of(features[0], axis=1), "the columns of features"))
        checks.shape((data[0].shape[-1],), truth=truth)
    return build(data, weight, truth, held[0] if held else None, name, kind, blocks)


def build(
    data: Any, weight: Any, truth: Any, test: Any, name: str, kind: np.dtype, blocks: Blocks | None = None
) -> LinearRegression:
    """The problem with checked arrays and the curvature of every node."""
    host = data[0], weight
    data, weight = jax.tree.map(lambda array: copied(array, kind), data), copied(weight, kind)
    return LinearRegression(
        data=data,
        weight=weight,
        blocks=jax.device_put(blocks),
        curvature=curvatures(*((data[0], weight) if blocks is None else host), blocks),
        truth=None if truth is None else copied(truth, kind),
        test=None if test is None else tuple(copied(array, kind) for array in test),
        name=name,
    )


@struct.dataclass
class _Draw:  # of one example: standard normal features, and their product with w* plus noise
    truth: Array  # [n]
    noise: Array  # []

    def __call__(self, key: Array) -> tuple[Array, Array]:
        n = self.truth.shape[0]
        drawn = jax.random.normal(key, (n + 1,), self.truth.dtype)
        return drawn[:n], jnp.dot(drawn[:n], self.truth, precision=ops.HIGHEST) + self.noise * drawn[n]


@checked
def example1(
    m: int = 32,
    n: int = 1000,
    s: int = 10,
    rows: tuple[int, int] = (250, 750),
    noise: float = 0.5,
    seed: int = 0,
    dtype: Precision = jnp.float32,
    storage: Storage = "stored",
    public: Public = (),
) -> LinearRegression:
    """Linear regression with a sparse truth, drawn at random (Example 1 of the CEPS paper).

    b_i = A_i w* + noise e_i, A_i and e_i standard normal; w* has nonzeros at random places, uniform on [-2, -0.5] and
    [0.5, 2]; f(w*) is about noise^2 / 2. Node i holds m_i examples, m_i uniform on the whole numbers of `rows` (both
    ends included). q is always rows[1], so that instances of different seeds share shapes and compiled code. Drawn on
    the host, in float32 for every dtype; w* and node i's data depend on the seed only, not on m.

    With storage = "generated" the examples are drawn on the device, in `dtype`, and only their weights are stored: 4
    bytes per example instead of 4 n. All random numbers except w* differ from the stored instance.

    Args:
        m: Number of nodes, at least 1.
        n: Number of parameters, at least 1.
        s: Nonzeros of the true parameters, 1 to n.
        rows: Minimum and maximum number of examples of a node, at least 1.
        noise: Standard deviation >= 0 of the noise on the targets.
        seed: Seed of the data.
        storage: Whether examples are in memory or are drawn whenever they are used.
        public: Names of values that are public anyway, see `Problem.declared`.

    Raises ValueError for settings out of range, and for data that would not fit into memory.
    """
    kind = floating(dtype)
    checks.integer(1, MOST, m=m, n=n)
    checks.integer(1, n, s=s)
    checks.not_negative(noise=noise)
    low, high = rows
    checks.integer(1, remedy="rows = (fewest, largest).", fewest=low)
    checks.integer(low, MOST, remedy="rows = (fewest, largest).", largest=high)
    checks.integer(0, 2**32 - 1 if storage == "generated" else None, seed=seed)
    _require_memory(m, high, n, kind, storage)
    own, *nodes = np.random.SeedSequence(seed).spawn(2 if storage == "generated" else m + 1)
    first = np.random.default_rng(own)

    truth = np.zeros(n)
    places = first.choice(n, size=s, replace=False)
    truth[places] = first.uniform(0.5, 2.0, size=s) * first.choice([-1.0, 1.0], size=s)

    if storage == "generated":
        draw = _Draw(jnp.array(truth, kind), jnp.asarray(noise, kind))
        sizes = np.random.default_rng(nodes[0]).integers(low, high, endpoint=True, size=m)
        made = sample_regression(draw, sizes, key=seed, truth=truth, rows=high, name="example1", dtype=kind)
        return made.declared(*public)

    here = portion(m)
    A, b, weight = (np.zeros((len(here), high, *more), kind) for more in ((n,), (), ()))
    for i, node in enumerate(here):
        rng = np.random.default_rng(nodes[int(node)])
        m_i = int(rng.integers(low, high, endpoint=True))
        A_i = rng.standard_normal((m_i, n), np.float32)
        A[i, :m_i] = A_i
        b[i, :m_i] = A_i[:, places].astype(np.float64) @ truth[places] + noise * rng.standard_normal(m_i, np.float32)
        weight[i, :m_i] = 1
    return joined(build((A, b), weight, truth, None, "example1", kind), m).declared(*public)


def _require_memory(m: int, rows: int, n: int, kind: np.dtype, storage: str) -> None:
    """Refuse data that would not fit: ValueError."""
    each = 1 if storage == "generated" else n + 2  # numbers of an example: its weight, features and target
    held, room, node = -(-m // jax.process_count()), memory.available(), rows * each * kind.itemsize
    once = {f"{n} true parameters, as drawn and as kept": (8 + kind.itemsize) * n}
    if storage == "generated":  # with parameters of its own, and with bits and what becomes of them side by side
        once[f"{rows} x {n} features that are drawn at a time"] = (1 + 3 * rows) * n * kind.itemsize
    most = 0 if room is None else (room - sum(once.values())) // node
    needed = {f"{held} x {rows} examples of {each} numbers": held * node, **once}
    memory.require(needed, most, m, "Use fewer nodes, rows or parameters.", room)
