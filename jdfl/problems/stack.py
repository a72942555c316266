"""What makers of problems share: checked arguments and their form on the command line, padding and curvature.

Axes: m nodes, q examples per node (padded with weight 0), p features.
"""

import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.core import Tracer
from jax.typing import ArrayLike, DTypeLike
from scipy.sparse import hstack, issparse
from typing_extensions import Doc

from jdfl.arrays import ops
from jdfl.base import checks
from jdfl.base.names import aligned, labels_of
from jdfl.base.settings import As
from jdfl.devices.processes import Portion, gather
from jdfl.models.base import Part
from jdfl.problems.base import PUBLIC, Problem
from jdfl.problems.ragged import Blocks, blocks_of, stored

P = TypeVar("P", bound=Problem)

EIGEN_STEPS = 40  # size of the Krylov space: six digits or more on Gaussian matrices, whose spectrum ends without a gap
_SMALL, _FEW, _SIDE = 2**22, 2**12, 128  # numbers, nodes and rows up to which the host finds the largest eigenvalues
_WRAP = "Wrap them in scipy.sparse.csr_array(...), or use logistic_regression."
_UNWRAP = "Use toarray(), or sparse_logistic_regression for two classes."
_KINDS = "Write dtype='float32', or 'float64' with JAX_ENABLE_X64=1."
_LOST, _SHOWN = 0.01, 3  # rounding, as a share of the deviation of a column, that is warned of; columns in a message
_BATCH, _NUMBERS = 4, 2**16  # nodes computed at once, or more if their data are smaller than that


def _clients(file: str | None) -> list[str] | list[int] | None:
    """The words of a file, as numbers where all are whole ones; FileNotFoundError if it is missing."""
    if file is None:
        return None
    path = Path(os.path.expanduser(file))
    if not path.is_file():
        raise FileNotFoundError(f"Expected a file at problem.clients, got {file!r}. Check the path.")
    words = path.read_text(encoding="utf-8", errors="surrogateescape").split()  # other bytes stay distinguishable
    return [int(word) for word in words] if all(word.isdecimal() for word in words) else words


def _names(public: str | None) -> tuple[str, ...]:
    """Names that are separated by commas."""
    return tuple(name.strip() for name in (public or "").split(",") if name.strip())


def _part(shared: str | None) -> str | tuple[str, ...] | None:
    """A preset's name as it is, patterns as a tuple."""
    if shared is None or not set(shared) & set("*?[.,"):
        return shared
    return tuple(pattern.strip() for pattern in shared.split(","))


Clients = Annotated[
    ArrayLike | None,
    As(
        str | None,
        _clients,
        about="A text file with the client of every training example, for the partition by clients.",
    ),
]
Public = Annotated[
    Sequence[str],
    As(
        str | None,
        _names,
        None,
        about="Names, separated by commas, of values that are public anyway: standardise, holdout, partition, "
        "curvature, start, constants, tuning, stop. Privacy reports list them; other values that enter without noise "
        "leave no epsilon.",
    ),
]
Shared = Annotated[
    Part | None,
    As(
        str | None,
        _part,
        about="The parameters that all nodes have in common: a preset (partpsp-1, partpsp-2, all) or patterns of their "
        "names, separated by commas, as in layer1.*,layer2.*; none: all.",
    ),
]
Precision = Annotated[
    DTypeLike,
    As(Literal["float32", "float64"], default="float32"),
    Doc("Type of all numbers, float32 or float64; the latter needs JAX_ENABLE_X64=1."),
]
Images = Literal["digits", "mnist", "fashion_mnist", "cifar10"]


def check_options(public: Any, penalty: Any, name: Any, nodes_at_once: Any = None, **switches: Any) -> None:
    """Refuse wrong values of arguments that the makers of problems share."""
    if not checks.is_a(public, tuple | list):
        checks.refuse("public to be a list of names", "public", public, f"They are {', '.join(PUBLIC)}.")
    for one in public:
        checks.one_of(PUBLIC, "See Problem.declared.", public=one)
    if penalty is not None:
        checks.not_negative("It is the weight of the squared norm, such as 0.001.", penalty=penalty)
        checks.shape((), "It is one number.", penalty=penalty)
    if name is not None and not checks.is_a(name, str):
        checks.refuse("name to be text", "name", name, "It is what reports call the problem.")
    if nodes_at_once is not None:
        checks.integer(1, remedy="None: a number that suits the device.", nodes_at_once=nodes_at_once)
    for argument, value in switches.items():
        checks.one_of((True, False), "It is either on or off.", **{argument: value})


def floating(dtype: DTypeLike) -> np.dtype:
    """`dtype` as a NumPy type, which JAX has to be set up to keep."""
    try:
        asked = np.dtype(dtype)
    except (TypeError, ValueError):
        checks.refuse("dtype float32 or float64", "dtype", dtype, _KINDS)
    if asked not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise ValueError(f"Expected dtype float32 or float64, got dtype = {asked.name!r}. {_KINDS}")
    if asked == np.float64 and not jax.config.jax_enable_x64:  # pyright: ignore[reportAttributeAccessIssue]
        raise ValueError("Expected dtype = 'float32', got dtype = 'float64'. Set jax_enable_x64 to use 64 bits.")
    return asked


def copied(array: Any, kind: np.dtype) -> Array:
    """A copy on the device; `jnp.asarray` would compile a program for every shape of an array of the host."""
    return jnp.array(array, kind) if isinstance(array, Array) else jax.device_put(np.array(array, kind))


def floats_fit(name: str, array: Any, kind: np.dtype, columns: Sequence[str] = (), stacklevel: int = 3) -> None:
    """Refuse numbers that become infinite in a type; warn of those that become 0, or differ by little but rounding."""
    numbers = array.data if issparse(array) else array
    if numbers.dtype.kind not in "iuf" or not numbers.size or np.can_cast(numbers.dtype, kind):
        return
    limits = np.finfo(kind)
    largest = max(float(np.max(numbers)), -float(np.min(numbers)))
    if not np.isfinite(largest):
        return  # refused with its place, where it is used
    if largest > float(limits.max):
        raise ValueError(
            f"Expected numbers in {name} up to {limits.max:.3g}, the largest of {kind}, got {largest:.3g}. "
            "Scale the features, or use standardise=True."
        )
    problems: list[str] = []
    rows = numbers if numbers.ndim == 2 else numbers.reshape(-1, 1)  # pixels are alike
    for j in range(rows.shape[1]):
        column, where = rows[:, j], f" in column {columns[j] if columns else j!r}" if numbers.ndim == 2 else ""
        least = column.min()  # differences are exact for whole numbers, too
        exact, rounded = (column - least).astype(float), column.astype(kind).astype(float) - float(least)
        spread, lost = float(np.std(exact)), float(np.max(np.abs(exact - rounded)))
        if zeros := int(np.sum((column != 0) & (np.abs(column) < limits.tiny))):
            problems.append(f"{zeros:,} numbers{where} are closer to 0 than {limits.tiny:.2g}, and become 0")
        elif lost > _LOST * spread > 0 and not issparse(array):
            problems.append(f"the numbers{where}, which deviate by {spread:.3g}, are rounded by up to {lost:.3g}")
    if problems:
        more = f"; and {len(problems) - _SHOWN} more columns" if len(problems) > _SHOWN else ""
        warnings.warn(
            f"Numbers in {name} lose their meaning as {kind}: {'; '.join(problems[:_SHOWN])}{more}. Subtract their "
            "mean and divide by their deviation first.",
            stacklevel=stacklevel,
        )


def _parts_fit(name: str, arrays: Sequence[Any], kind: np.dtype) -> None:
    """`floats_fit` for the arrays of all nodes, which are copied only where a number may change."""
    stored = [one.data if issparse(one) else one for one in arrays]
    if not all(np.can_cast(one.dtype, kind) for one in stored):
        floats_fit(name, np.concatenate(stored), kind, stacklevel=6)


def checked_parts(
    parts: Sequence[Any],
    test: Any,
    kind: np.dtype,
    answers: Literal["labels", "targets"],
    *,
    sparse: bool = False,
    intercept: bool = False,
) -> tuple[list[tuple[Any, np.ndarray]], list[tuple[Any, np.ndarray]]]:
    """The checked features [q_i, p], with ones for an `intercept`, and answers [q_i] of the nodes and the test set."""
    if not len(parts):
        raise ValueError("Expected the data of at least one node, got none.")
    m, headings = len(parts), labels_of(parts[0][0], axis=1)
    found: list[tuple[Any, np.ndarray]] = []
    every: list[Any] = [*parts, *([] if test is None else [test])]
    for i, (features, own) in enumerate(every):
        where = f"node {i}" if i < m else "the test set"
        features = aligned(f"features of {where}", features, headings, "node 0", axis=1)
        own = aligned(f"{answers} of {where}", own, labels_of(features), f"features of {where}")
        if issparse(features) != sparse:
            wanted, remedy = ("scipy.sparse", _WRAP) if sparse else ("dense", _UNWRAP)
            raise ValueError(f"Expected {wanted} features at {where}, got {type(features).__name__}. {remedy}")
        checks.real(f"See {where}.", features=features)
        (checks.class_numbers if answers == "labels" else checks.real)(f"See {where}.", **{answers: own})
        features, own = features if sparse else np.asarray(features), np.asarray(own)
        checks.shape((None, found[0][0].shape[1] if found else None), f"See {where}.", features=features)
        checks.shape((features.shape[0],), f"See {where}.", **{answers: own})
        found.append((features, own))
    for some, where in ((found[:m], ""), (found[m:], " of the test set")):
        if some:
            _parts_fit(f"features{where}", [features for features, _ in some], kind)
            if answers == "targets":
                _parts_fit(f"targets{where}", [own for _, own in some], kind)
    if intercept:
        beside = hstack if sparse else np.hstack
        found = [(beside([features, np.ones((features.shape[0], 1), features.dtype)]), own) for features, own in found]
    return found[:m], found[m:]


def stack(
    parts: Sequence[tuple[np.ndarray, ...]], dtypes: tuple[np.dtype, ...]
) -> tuple[tuple[Any, ...], np.ndarray, Blocks | None]:
    """The arrays of all nodes, padded with zeros to the longest or in blocks of similar sizes, and their weights."""
    sizes = np.array([len(part[0]) for part in parts])
    if 0 in sizes:
        raise ValueError(f"Expected at least one example at every node, got none at node {np.argmin(sizes)}.")
    blocks, *_ = blocks_of(sizes[None], sum(int(np.prod(one.shape[1:])) for one in parts[0])) or [None]
    arrays = tuple(stored([part[k] for part in parts], kind, blocks) for k, kind in enumerate(dtypes))
    return arrays, (np.arange(sizes.max()) < sizes[:, None]).astype(dtypes[0]), blocks


def joined(problem: P, m: int) -> P:
    """The problem of all nodes, from the problem of its own nodes in every process.

    Weights and curvatures of all nodes are exchanged; a run places the data. All processes have to call it.
    """
    if jax.process_count() == 1:
        return problem
    q = problem.weight.shape[1]
    beyond = int(np.max(gather(np.full((problem.m,), q), m))) - q

    def longer(x: Any) -> np.ndarray:
        return np.pad(np.asarray(x), [(0, 0), (0, beyond), *[(0, 0)] * (x.ndim - 2)])

    return replace(
        problem,
        data=jax.tree.map(lambda x: Portion(longer(x), m), problem.data),
        weight=jnp.asarray(gather(longer(problem.weight), m)),
        curvature=jnp.asarray(gather(problem.curvature, m)),
    )


def gram_eigenvalue(
    times: Callable[[Array], Array], back: Callable[[Array], Array], weight: Array, start: Array, steps: int
) -> Array:
    """lambda_max(A^T diag(weight) A) / sum(weight) [] of one node by Lanczos, with A [q, p] given by its products."""
    return ops.largest_eigenvalue(lambda x: back(weight * times(x)), start, steps) / jnp.sum(weight)


def dense_eigenvalue(A: Array, weight: Array, start: Array) -> Array:
    """`gram_eigenvalue` of an array A [q, p], which needs at most one step more than its rank."""
    return gram_eigenvalue(
        lambda x: jnp.dot(A, x, precision=ops.HIGHEST),
        lambda y: jnp.dot(y, A, precision=ops.HIGHEST),
        weight,
        start,
        min(EIGEN_STEPS, min(A.shape) + 1),
    )


def gram_eigenvalues(features: Array, weight: Array) -> Array:
    """lambda_max(A_i^T diag(weight_i) A_i) / sum_t weight[i,t] of every node [m].

    Few nodes with small matrices are computed on the host in float64, where nothing has to be compiled first.
    """
    m, q, p = features.shape
    if isinstance(features, Tracer) or m > _FEW or min(q, p) > _SIDE or features.size > _SMALL:
        return _gram_eigenvalues(features, weight)
    c = np.asarray(weight, np.float64)
    with np.errstate(invalid="ignore", over="ignore"):  # of nodes without examples, and of data that are refused later
        A = np.sqrt(c)[..., None] * np.asarray(features, np.float64)
        gram = A.swapaxes(1, 2) @ A if p <= q else A @ A.swapaxes(1, 2)  # they have the same largest eigenvalue
        wrong = np.flatnonzero(~np.isfinite(gram.sum(axis=(1, 2))))
        gram[wrong] = 0.0
        largest = np.linalg.eigvalsh(gram)[:, -1]
        largest[wrong] = np.nan
        return copied(largest / c.sum(1), features.dtype)


def curvatures(features: Any, weight: Any, blocks: Blocks | None) -> Array:
    """`gram_eigenvalues` [m] of features in blocks, too; those are on the host."""
    if blocks is None:
        return gram_eigenvalues(features, weight)
    found = [gram_eigenvalues(*part) for part in zip(features.parts, blocks.cut(weight).parts)]
    return jnp.asarray(np.concatenate([np.asarray(one) for one in found])[blocks.place])


@jax.jit
def _gram_eigenvalues(features: Array, weight: Array) -> Array:
    q, p = features.shape[1:]
    start = jax.random.normal(jax.random.key(0), (p,), features.dtype)

    def one(node: tuple[Array, Array]) -> Array:
        return dense_eigenvalue(*node, start)

    return lax.map(one, (features, weight), batch_size=max(_BATCH, _NUMBERS // (q * p)))
