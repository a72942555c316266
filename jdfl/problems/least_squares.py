"""Least squares from arrays or from a function that draws examples, and Example 1 of the CEPS paper.

S. Sha, S. Zhou, L. Kong, G. Y. Li, "Sparse Decentralized Federated Learning" (CEPS), section V.A.
Axes: m nodes, q examples per node (padded with weight 0), n parameters, N test examples.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike, DTypeLike
from scipy.sparse import issparse

from jdfl.arrays import ops
from jdfl.base import checks, struct
from jdfl.base.arguments import checked
from jdfl.base.names import aligned, labels_of, unlabelled
from jdfl.base.settings import MOST
from jdfl.devices import memory
from jdfl.devices.processes import portion
from jdfl.problems.drawn import Draw, drawn_regression
from jdfl.problems.linear import LinearRegression, build
from jdfl.problems.stack import floating, floats_fit, joined, parts_fit, stack
from jdfl.problems.written import Precision, Public

Arrays = Array | np.ndarray | Sequence[ArrayLike]
Storage = Literal["stored", "generated"]
_ALL = "It is an array of all nodes."


@checked
def linear_regression(
    features: Arrays | Draw,
    targets: Arrays,
    *,
    truth: ArrayLike | None = None,
    test: tuple[ArrayLike, ArrayLike] | None = None,
    storage: Storage = "stored",
    key: int | Array = 0,
    name: str = "linear regression",
    dtype: DTypeLike = jnp.float32,
) -> LinearRegression:
    """Least squares on the nodes' features and targets, or on examples that a function draws.

    Args:
        features: The features of every node: m arrays [q_i, n], or one array [m, q, n]. Or a function
            draw(key) -> (features [n], target []) of one example, as for `drawn_regression`.
        targets: The targets of every node: m arrays [q_i], or one array [m, q]. With a function that draws, every
            node's number of examples [m].
        truth: Parameters [n] that generated the targets; None: they are not known.
        test: Features [N, n] and targets [N] to test with; None: there are none.
        storage: Whether examples are in memory, or are drawn whenever they are used, for which features have to be a
            function; then only their weights are in memory.
        key: Key, or seed of one, of the examples drawn.
        name: Name of the problem in reports.
        dtype: Type of all numbers, float32 or float64; the latter needs JAX_ENABLE_X64=1.

    Raises ValueError for shapes that do not fit together, and for arrays that are to be generated.
    """
    kind = floating(dtype)
    for given, words in ((features, "features"), (targets, "targets")):
        if hasattr(given, "shape"):
            checks.plain_array("Give a list of arrays, one for every node.", **{words: given})
    if callable(features):
        problem = drawn_regression(features, np.asarray(targets), key=key, truth=truth, name=name, dtype=kind)
        found = problem if storage == "generated" else problem.stored()
        return found if test is None else replace(found, test=_test(test, found.n, kind, None))
    if storage == "generated":
        raise ValueError(
            "Expected a function as features with storage = 'generated', got arrays, which are in memory already. Give "
            "draw(key) -> (features [n], target []), and every node's number of examples as targets."
        )
    for given, words in ((features, "features"), (targets, "targets")):
        several = checks.is_a(given, list | tuple)
        if getattr(given, "shape", None) == () or any(map(issparse, given if several else [given])):
            checks.refuse(f"{words} to be a list of dense arrays, one for every node", words, given)
    if len(features) != len(targets):
        raise ValueError(f"Expected targets of {len(features)} nodes, got {len(targets)}.")
    data, weight = _together(features, targets, kind)
    n = data[0].shape[-1]
    if truth is not None:
        truth = np.asarray(aligned("truth", truth, labels_of(features[0], axis=1), "the columns of features"))
        checks.shape((n,), truth=truth)
    return build(data, weight, truth, None if test is None else _test(test, n, kind, features[0]), name, kind)


def _alike(A: Any, b: Any, where: str, first: Any) -> tuple[Any, Any]:
    """Features with columns in the order of the first node's, and targets in the order of their rows."""
    A = aligned(f"features of {where}", A, labels_of(first, axis=1), "features of node 0", axis=1)
    b = aligned(f"targets of {where}", b, labels_of(A), f"features of {where}")
    return unlabelled(A), unlabelled(b)


def _test(test: tuple[ArrayLike, ArrayLike], n: int, kind: np.dtype, first: Any) -> tuple[Array, ...]:
    """The test set as arrays with checked shapes."""
    test = _alike(*test, "the test set", first)
    checks.real("See the test set.", features=test[0], targets=test[1])
    checks.shape((None, n), "See the test set.", features=test[0])
    checks.shape(np.shape(test[0])[:1], "See the test set.", targets=test[1])
    for name, array in zip(("features", "targets"), test):
        floats_fit(f"{name} of the test set", np.asarray(array), kind, stacklevel=5)
    return tuple(jnp.asarray(array, kind) for array in test)


def _together(features: Arrays, targets: Arrays, kind: np.dtype) -> tuple[tuple[Any, ...], Any]:
    """Features [m, q, n], targets [m, q] and weights [m, q]; single arrays are kept as they are."""
    if isinstance(features, Array | np.ndarray) and isinstance(targets, Array | np.ndarray):
        checks.real(features=features, targets=targets)
        checks.shape((None, None, None), _ALL, features=features)
        checks.shape(features.shape[:2], _ALL, targets=targets)
        if 0 in features.shape:
            raise ValueError(f"Expected features of nodes with examples, got an array of shape {features.shape}.")
        for name, array in (("features", features), ("targets", targets)):
            if isinstance(array, np.ndarray):
                floats_fit(name, array.reshape(-1, *array.shape[2:]), kind, stacklevel=5)
        return (features, targets), np.ones(features.shape[:2], kind)
    parts: list[tuple[np.ndarray, ...]] = []
    for i, (A, b) in enumerate(zip(features, targets)):
        A, b = _alike(A, b, f"node {i}", features[0])
        checks.real(f"See node {i}.", features=A, targets=b)
        checks.shape((None, None), f"See node {i}.", features=A)
        checks.shape(np.shape(A)[:1], f"See node {i}.", targets=b)
        parts.append((np.asarray(A), np.asarray(b)))
    found = stack(parts, (kind, kind))
    for name, arrays in zip(("features", "targets"), zip(*parts)):
        parts_fit(name, arrays, kind)
    return found


@struct.dataclass
class _Draw:
    """One example: standard normal features, and their product with w* plus noise."""

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
        dtype: Type of all numbers, float32 or float64; the latter needs JAX_ENABLE_X64=1.
        storage: Whether examples are in memory or are drawn whenever they are used.
        public: Names of values that are public anyway: curvature, start, constants, tuning, stop (see
            `Problem.declared`).

    Raises ValueError for settings out of range, and for data that would not fit into memory.
    """
    kind = floating(dtype)
    checks.whole(1, MOST, m=m, n=n)
    checks.whole(1, n, s=s)
    checks.not_negative(noise=noise)
    low, high = rows
    checks.whole(1, remedy="rows = (fewest, largest).", fewest=low)
    checks.whole(low, MOST, remedy="rows = (fewest, largest).", largest=high)
    checks.whole(0, 2**32 - 1 if storage == "generated" else None, seed=seed)
    _require_memory(m, high, n, kind, storage)
    own, *nodes = np.random.SeedSequence(seed).spawn(2 if storage == "generated" else m + 1)
    first = np.random.default_rng(own)

    truth = np.zeros(n)
    places = first.choice(n, size=s, replace=False)
    truth[places] = first.uniform(0.5, 2.0, size=s) * first.choice([-1.0, 1.0], size=s)

    if storage == "generated":
        draw = _Draw(jnp.array(truth, kind), jnp.asarray(noise, kind))
        sizes = np.random.default_rng(nodes[0]).integers(low, high, endpoint=True, size=m)
        made = drawn_regression(draw, sizes, key=seed, truth=truth, rows=high, name="example1", dtype=kind)
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
