"""A person's own loss as a problem: any function of a tree of parameters and one example that JAX differentiates.

    f_i(w) = mean_t loss(params(w), example[i,t]) + penalty/2 ||w||^2

A person's functions are tried before a run: by shapes alone first, then at the start on a few examples.

Axes: m nodes, q examples per node (padded with weight 0), N test examples or examples to split, n parameters.
"""

import math
import warnings
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.tree_util import keystr, tree_flatten_with_path
from jax.typing import DTypeLike
from scipy.sparse import issparse

from jdfl.base import checks, struct
from jdfl.base.names import labelled, labels_of
from jdfl.devices.processes import portion
from jdfl.models.base import chosen
from jdfl.models.convolution import relaxed
from jdfl.problems.about import About
from jdfl.problems.base import Problem, begun, decided
from jdfl.problems.classify import check_unseen, computed, standardised
from jdfl.problems.containers import array_of, table
from jdfl.problems.partition import Settings, iid
from jdfl.problems.ragged import is_ragged
from jdfl.problems.stack import check_options, floating, joined
from jdfl.problems.streamed import Streamed
from jdfl.problems.tables import Intake, Split, Task, TestSplit, check_split, taken_in
from jdfl.problems.trees import check_classes, leaves_of, of_nodes, of_test, real_examples, take, weights_of

_ARRAYS = "Give a tree of arrays of floating-point numbers, such as a dict, an nnx.State or an equinox module."
_TRIED = 32  # examples whose losses are computed at the start


@dataclass(frozen=True, repr=False)
class Packing:
    """Where arrays of a tree of parameters lie in a vector w [n], shared ones first; equal trees share programs."""

    structure: Any  # of the tree, all leaves counted
    paths: tuple[str, ...]  # of the arrays, in the order of w
    places: tuple[int, ...]  # of the arrays among the leaves, in the order of w
    shapes: tuple[tuple[int, ...], ...]
    kinds: tuple[str, ...]  # the type that an array has in the tree, or "" for that of w
    constants: tuple[tuple[int, Any], ...]  # leaves that are no arrays, such as activation functions

    def __repr__(self) -> str:
        """A few words, since JAX prints it in messages about structures."""
        return f"Packing(n={self.n})"

    @property
    def n(self) -> int:
        """The number of parameters."""
        return sum(map(math.prod, self.shapes))

    def unflatten(self, w: Array) -> Any:
        """The tree of w [..., n], whose arrays keep the leading axes of w."""
        parts = lax.split(w, [math.prod(shape) for shape in self.shapes], w.ndim - 1)
        leaves: list[Any] = [None] * self.structure.num_leaves
        for place, constant in self.constants:
            leaves[place] = constant
        for place, part, shape, kind in zip(self.places, parts, self.shapes, self.kinds):
            leaves[place] = part.reshape(*w.shape[:-1], *shape).astype(kind or w.dtype)
        return jax.tree.unflatten(self.structure, leaves)


@struct.dataclass
class LossProblem(Streamed):
    """The formula above; data is a tree with leaves [m, q, ...]. Built by `from_loss`."""

    function: Callable[[Any, Any], Array] = struct.field(pytree_node=False, default=None)  # pyright: ignore
    packing: Packing = struct.field(pytree_node=False, default=None)  # pyright: ignore

    @property
    def n(self) -> int:
        return self.packing.n

    @property
    def leaves(self) -> tuple[int, ...]:
        return tuple(map(math.prod, self.packing.shapes))

    def unflatten(self, w: Any) -> Any:
        """The tree of parameters of a vector w [n]; leading axes of w [..., n], such as the nodes', stay in its arrays.

        For example `problem.unflatten(result.params.mean(axis=0))` is the average of the nodes' models.
        """
        array = jnp.asarray(w)
        checks.shape((*array.shape[:-1], self.n), "Its last axis has the parameters.", w=array)
        return self.packing.unflatten(array)

    def loss(self, w: Array, example: Any) -> Array:
        with relaxed():
            found = self.function(self.packing.unflatten(w), example)
        return jnp.reshape(found, ()).astype(w.dtype)


@struct.dataclass
class LossClassification(LossProblem):
    """The user's loss on examples (features, label), with scores, from which accuracies follow."""

    predictor: Callable[[Any, Any], Array] = struct.field(pytree_node=False, default=None)  # pyright: ignore
    classes: int = struct.field(pytree_node=False, default=2)

    def scores(self, w: Array, features: Any) -> Array:
        def one(example: Any) -> Array:
            with relaxed():
                return self.predictor(self.packing.unflatten(w), example).astype(w.dtype)

        return jax.vmap(one)(features)

    def predict(self, w: Array, data: Any) -> Array:
        features = cast(Any, self.test)[0]
        return self._in_batches(lambda place: decided(self.scores(w, take(features, place))))


@struct.dataclass
class LossRegression(LossProblem):
    """The user's loss on examples (features, target), with predicted targets, from which errors follow."""

    predictor: Callable[[Any, Any], Array] = struct.field(pytree_node=False, default=None)  # pyright: ignore

    def predictions(self, w: Array, features: Any) -> Array:
        def one(example: Any) -> Array:
            with relaxed():
                return jnp.reshape(self.predictor(self.packing.unflatten(w), example), ()).astype(w.dtype)

        return jax.vmap(one)(features)


def from_loss(
    loss: Callable[[Any, Any], Any],
    params: Any,
    data: Any,
    nodes: int | None = None,
    *,
    predict: Callable[[Any, Any], Any] | None = None,
    weight: Any = None,
    task: Task | None = None,
    shared: tuple[str, ...] | None = None,
    partition: Split = "iid",
    alpha: float = 0.5,
    shards_per_node: int = 2,
    classes_per_node: int = 2,
    sigma: float = 1.0,
    exponent: float = 1.0,
    least: int = 1,
    noise: float = 0.0,
    rotations: int = 1,
    clients: Any = None,
    test: Any = None,
    test_fraction: float = 0.0,
    test_split: TestSplit = "classes",
    penalty: float = 0.0,
    standardise: bool = False,
    seed: int = 0,
    nodes_at_once: int | None = None,
    name: str | None = None,
    dtype: DTypeLike = jnp.float32,
    public: tuple[str, ...] = (),
) -> LossProblem:
    """A problem with any differentiable loss, parameters in any tree, and your own data.

        def loss(params, example):
            x, y = example
            return (x @ params["w"] + params["b"] - y) ** 2

        problem = jdfl.from_loss(loss, {"w": jnp.zeros(5), "b": jnp.zeros(())}, (X, y), 20)

    Args:
        loss: The loss of one example, `loss(params, example) -> number`, written in JAX. It must not depend on
            anything random.
        params: The parameters that every node starts from, a tree of floating-point arrays: a dict, a list, the
            parameters of flax.linen, an nnx.State or an equinox module. Functions, text and truth values in it stay as
            they are. They are one vector w [n] for the algorithms; `problem.unflatten(w)` is the tree again.
        data: Features and labels (X, y) as for `from_arrays`, to be split: X [N, ...] and y [N]. Text in y is numbered
            in sorted order, and numbers stay as they are. With `nodes`, also another tree with leaves [N, ...]. Without
            `nodes` and the arguments from `task` to `standardise`, the examples of every node: a list with one tree for
            every node, whose leaves [q_i, ...] may have different lengths; or one tree (a tuple, a dict or an array)
            with leaves [m, q, ...].
        nodes: Number of nodes that the examples are split over; None: data has an axis of nodes, or there is one node
            for every client or given part, otherwise 20.
        predict: The scores of one example, `predict(params, features)` -> [classes], or a single number that is
            positive for class 1; None: there are no accuracies. Examples have to be pairs (features, label) then,
            labels whole numbers from 0. With task = "regression" the predicted target, for metrics such as `rmse`.
        weight: Weights >= 0 of the examples, [m, q] or a list of [q_i] (for data to be split, [N]); None: all are 1.
        task: Of (X, y): "classification" numbers all labels, and "regression" makes floating-point numbers of y.
        shared: Patterns of the names of the parameters that are common to all nodes, as in ("encoder.*",), where the
            names are the keys on the way to an array, joined by dots; None: all are.
        partition: How the nodes share (X, y), with `alpha`, `shards_per_node`, `classes_per_node`, `sigma`, `exponent`,
            `least`, `noise`, `rotations`, `clients` and `seed` as for `from_arrays`; with "given", data is a list of
            pairs (X, y), or a dict of them by the nodes' names.
        test: Test examples, a tree like `data` with leaves [M, ...]; None: those of `test_fraction`.
        test_fraction: Share of (X, y) to hold out for testing, in [0, 1), as for `from_arrays`; of every class where
            labels are numbered here.
        test_split: Of what that share is held out, as for `from_arrays`.
        penalty: Weight >= 0 of the squared norm in the objective (halved).
        standardise: Give every feature of (X, y) mean 0 and variance 1 of the training examples.
        nodes_at_once: Nodes computed side by side, at least 1; None: as suits the device.
        name: Name of the problem in reports; None: that of the loss.
        dtype: Type of the parameters and of all floating-point data, float32 or float64; the latter needs
            JAX_ENABLE_X64=1.
        public: Names of values that are public anyway, see `Problem.declared`.

    Raises ValueError for a loss, parameters or data that do not fit together. Wrong shapes and types are refused before
    anything is compiled; the value and the gradient at the start are then computed for a few examples, to refuse a
    loss that is not finite there.
    """
    kind = floating(dtype)
    check_options(public, penalty, name, nodes_at_once, standardise=standardise)
    for argument, value in (("loss", loss), ("predict", predict)):
        if not callable(value) and not (argument == "predict" and value is None):
            checks.refuse(f"{argument} to be a function", argument, value, f"Write def {argument}(params, ...).")
    how = Settings(alpha, shards_per_node, classes_per_node, sigma, exponent, least, noise, rotations)
    check_split(nodes, task, partition, how, test_fraction, seed)
    packing, start, count = _packed(params, shared, kind)
    about, derived, index, tested = About("", "as given" if nodes is None else "iid"), (), None, lambda problem: problem
    asked = {"task": task, "partition": partition != "iid", "clients": clients is not None}
    asked |= {"test_fraction": test_fraction, "test_split": test_split != "classes", "standardise": standardise}
    asked |= {"noise": noise, "rotations": rotations > 1}
    if pair := _pair(data, partition, [name for name, value in asked.items() if value]):
        split = (task, partition, how, clients, test, test_fraction, test_split, seed)
        taken = taken_in(None, *pair, nodes, *split, encode=False)
        if issparse(taken.features):
            raise ValueError("Expected dense X for a loss, got a sparse matrix. Use X.toarray().")
        features, test = standardised(taken.features, taken.test) if standardise else (taken.features, taken.test)
        taken = replace(taken, features=features, test=test).skewed(how, seed)
        test = taken.test
        data, weight = (taken.features, taken.targets), _remaining(weight, pair, taken, kind)
        nodes, index, about = len(taken.index), taken.index, taken.about
        derived, tested = computed(partition, taken.chose, standardise), taken.tested
    stacked, weights, blocks = of_nodes(
        data, weight, nodes, lambda total, m: iid(total, m, seed=seed) if index is None else index, kind
    )
    m, here = len(weights), portion(len(weights))
    one = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[2:], leaf.dtype), stacked, is_leaf=is_ragged)
    given: dict[str, Any] = {}
    regression = task == "regression"
    if predict is not None:
        given = {"predictor": predict, "classes": _check_predict(predict, packing, one, kind)}
        if regression and given.pop("classes") > 2:
            raise ValueError(
                'Expected predict to give one number for one example with task = "regression", got predict that gives '
                "several. Return the predicted target."
            )
    _check_loss(loss, packing, one, kind)
    tests = None if test is None else of_test(test, stacked, kind, data)
    if tests is not None and index is None:
        check_unseen(real_examples(stacked, weights, blocks), tests)
    if predict is not None and not regression:
        check_classes(real_examples(stacked, weights, blocks), tests, given["classes"])
    made = LossProblem if predict is None else LossRegression if regression else LossClassification
    problem = made(
        data=jax.tree.map(jnp.asarray, stacked if blocks else take(stacked, here)),
        weight=jnp.asarray(weights[here]),
        curvature=jnp.zeros(len(here), kind),
        blocks=jax.device_put(blocks),
        test=None if tests is None else jax.tree.map(jnp.asarray, tests),
        start=jnp.asarray(start),
        shared=count,
        name=name or str(getattr(loss, "__name__", type(loss).__name__)).strip("<>"),
        derived=derived,
        about=about if predict is None or regression else replace(about, task=about.task or "classification"),
        penalty=None if penalty == 0 else jnp.asarray(penalty, kind),
        nodes_at_once=nodes_at_once,
        function=loss,
        packing=packing,
        **given,
    )
    _check_start(problem)
    return tested(begun(joined(problem, m))).declared(*public)


def _pair(data: Any, partition: Split, asked: list[str]) -> tuple[Any, Any] | None:
    """X and y, or those of all given nodes, if `asked` is about them or y has text; None for data as they are."""
    if partition == "given":
        names = list(data) if checks.is_a(data, Mapping) else None
        parts = list(data.values()) if names else data
        if checks.is_a(parts, list | tuple) and all(map(_is_pair, parts)):
            X, y = [one[0] for one in parts], [one[1] for one in parts]
            return (X, y) if names is None else (dict(zip(names, X)), dict(zip(names, y)))
    elif _is_pair(data):
        if not isinstance(data[1], str) and labels_of(data[0], axis=1) is not None:
            table("X", labelled(data[0]), None)  # refuses columns by their names
        kind = getattr(labelled(data[1]), "dtype", None) or np.asarray(data[1]).dtype
        return (data[0], data[1]) if asked or getattr(kind, "kind", "") in tuple("SUO") else None
    if asked:
        wanted = "a list of pairs (X, y), one for every node," if partition == "given" else "features and labels (X, y)"
        raise ValueError(
            f"Expected data as {wanted} with {', '.join(asked)}, got data of {_described(data)}. Give such data, or "
            f"leave {asked[0]} out."
        )
    return None


def _is_pair(data: Any) -> bool:
    return checks.is_a(data, tuple | list) and len(data) == len(leaves_of(data)) == 2


def _remaining(weight: Any, pair: tuple[Any, Any], taken: Intake, kind: np.dtype) -> np.ndarray | None:
    """The weights of the training examples, where weights are given for all examples of X and y."""
    if weight is None:
        return None
    held = np.zeros(len(taken.targets), bool) if taken.held is None else taken.held
    if not checks.is_a(pair[1], list | Mapping) or not checks.is_a(weight, list):
        return weights_of("weight", weight, held.shape, kind, pair)[~held]
    return np.concatenate([np.asarray(one, kind) for one in weight])[~held]


def _packed(params: Any, shared: tuple[str, ...] | None, kind: np.dtype) -> tuple[Packing, np.ndarray, int | None]:
    """How a tree of parameters is laid out, its vector [n], and the number of shared parameters (None: all)."""
    try:
        found, structure = tree_flatten_with_path(params)
        hash(structure)
    except (TypeError, ValueError) as error:
        checks.refuse("params to be a tree that can be hashed", "params", params, f"{_ARRAYS} {checks.message(error)}")
    arrays: dict[str, tuple[int, Any]] = {}
    constants: list[tuple[int, Any]] = []
    for place, (path, leaf) in enumerate(found):
        where = keystr(path, simple=True, separator=".").removesuffix(".value") or "params"
        if checks.is_a(leaf, str | bool) or (callable(leaf) and not hasattr(leaf, "dtype")):
            if not checks.is_a(leaf, Hashable):
                checks.refuse("leaves of params that can be hashed", f"params at {where}", leaf, _ARRAYS)
            constants.append((place, leaf))
            continue
        arrays[where if where not in arrays else f"{where}.{place}"] = place, _parameter(where, leaf, kind)
    if not arrays:
        checks.refuse("params with at least one array", "params", params, _ARRAYS)
    first = tuple(arrays) if shared is None else chosen(tuple(arrays), shared, "params")
    order = (*first, *(path for path in arrays if path not in first))
    known = tuple(arrays[path] for path in order)
    packing = Packing(
        structure,
        order,
        tuple(place for place, _ in known),
        tuple(leaf.shape for _, leaf in known),
        tuple(leaf.dtype.name if leaf.dtype.itemsize < 4 else "" for _, leaf in known),
        tuple(constants),
    )
    count = sum(arrays[path][1].size for path in first)
    vector = np.concatenate([np.asarray(leaf, kind).ravel() for _, leaf in known])
    return packing, vector, None if count == packing.n else count


def _parameter(where: str, leaf: Any, kind: np.dtype) -> Any:
    """A leaf as an array of floating-point numbers."""
    named = f"params at {where}" if where != "params" else "params"
    if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.extended):
        raise ValueError(
            f"Expected arrays of parameters in params, got a random key at {where}. Leave random state out, for "
            "example with nnx.split(model, nnx.Param, ...)."
        )
    array = array_of(named, leaf, _ARRAYS)
    if not jnp.issubdtype(array.dtype, jnp.floating):
        raise ValueError(
            f"Expected real floating-point parameters in params, got {array.dtype} at {where}. Convert "
            "whole numbers with astype(float), give real and imaginary parts as separate arrays, or leave what is not "
            "trained out of params."
        )
    bad = ~np.isfinite(array.astype(kind))
    if bad.any() or array.size == 0:
        found = array[bad][0] if array.size else f"shape {array.shape}"
        raise ValueError(f"Expected finite parameters in params, got {found} at {where}. Start from finite values.")
    return array


def _check_loss(loss: Callable[..., Any], packing: Packing, example: Any, kind: np.dtype) -> None:
    """Refuse a loss that does not give one real number for one example, or does not depend on the parameters."""
    check_number("loss", _traced("loss", "loss(params, example)", loss, packing, kind, example))

    def value(w: Array, example: Any) -> Any:
        with relaxed():
            return jnp.reshape(loss(packing.unflatten(w), example), ())

    program = jax.make_jaxpr(value)(jax.ShapeDtypeStruct((packing.n,), kind), example).jaxpr
    reached: set[Any] = {program.invars[0]}
    for step in program.eqns:
        if any(not hasattr(one, "val") and one in reached for one in step.invars):
            reached.update(step.outvars)
    if not any(not hasattr(one, "val") and one in reached for one in program.outvars):
        raise ValueError(
            "Expected a loss that depends on params, got loss = "
            f"{checks.text(loss)}, whose value is the same for all parameters. Use the params that the function is "
            "given."
        )


def _check_predict(predict: Callable[..., Any], packing: Packing, example: Any, kind: np.dtype) -> int:
    """The number of classes of the scores that a function gives for one example's features."""
    if not checks.is_a(example, tuple | list) or len(example) != 2 or not hasattr(example[1], "shape"):
        raise ValueError(
            f"Expected data of pairs (features, label) for predict, got data of {_described(example)}. Give data as a "
            "pair of features and labels, or leave predict out."
        )
    call = "predict(params, features)"
    found = _traced("predict", call, predict, packing, kind, example[0])
    leaves = jax.tree.leaves(found)
    fits = len(leaves) == 1 and len(leaves[0].shape) <= 1 and leaves[0].shape != (0,)
    if not fits or not jnp.issubdtype(leaves[0].dtype, jnp.floating):
        raise ValueError(
            f"Expected {call} to give scores [classes] of one example in floating point, got predict that gives "
            f"{_described(found)}. Return the scores, not the class."
        )
    return max(2, int(np.prod(leaves[0].shape)))


def check_number(name: str, found: Any) -> None:
    """Refuse what a loss gives, by its shape and type, unless it is one real number."""
    leaves = jax.tree.leaves(found)
    one = len(leaves) == 1 and hasattr(leaves[0], "shape") and math.prod(leaves[0].shape) == 1
    if not one or not jnp.issubdtype(leaves[0].dtype, jnp.floating):
        raise ValueError(
            f"Expected {name} to give one floating-point number for one example, got {name} that gives "
            f"{_described(found)}. Return the loss alone, for example with jnp.mean; it has to be differentiable in "
            "the parameters, as counts and argmax are not."
        )


def _traced(
    name: str, call: str, function: Callable[[Any, Any], Any], packing: Packing, kind: np.dtype, example: Any
) -> Any:
    """Shapes and types of what a function of parameters and an example gives."""

    def one(w: Array, example: Any) -> Any:
        with relaxed():
            return function(packing.unflatten(w), example)

    shapes = ", ".join(f"{path} {shape}" for path, shape in zip(packing.paths, packing.shapes))
    about = f"One example is {_described(example)}, params are {shapes[:300]}."
    return shapes_of(name, call, about, one, jax.ShapeDtypeStruct((packing.n,), kind), example)


def shapes_of(name: str, call: str, about: str, function: Callable[..., Any], *given: Any) -> Any:
    """Shapes and types of what a person's function gives; `about` says in an error what it was given."""
    try:
        return jax.eval_shape(function, *given)
    except Exception as error:
        text = (checks.message(error).strip().splitlines() or ["nothing"])[0].strip().rstrip(".")
        raise ValueError(
            f"Expected {call} to run on one example, got {name} that raised {type(error).__name__}: {text}. {about} "
            f"Write {name} for one example, without an axis of examples, in JAX. functools.partial binds further "
            "arguments."
        ) from error


def _check_start(problem: Problem) -> None:
    """Refuse losses and gradients of a few examples at the start that are not finite; warn of gradients of zero."""
    real = np.flatnonzero(np.asarray(problem.weight[0]) > 0)[:_TRIED]
    bare: Any = problem.replace(name="", test=None)  # pyright: ignore[reportAttributeAccessIssue]
    values, sizes = _at_start(bare, bare.some_node(), real.astype(np.int32))
    for found, what in ((values, "losses"), (sizes, "gradients")):
        bad = np.flatnonzero(~np.isfinite(np.asarray(found)))
        if bad.size:
            raise ValueError(
                f"Expected finite {what} at the start, got loss with {what[:-1]} {np.asarray(found)[bad[0]]} for "
                f"example {real[bad[0]]} of node 0. Look for log(0), sqrt(0) or a division by zero, and choose params "
                "where the loss is finite."
            )
    if not np.any(np.asarray(sizes)):
        warnings.warn(
            f"The gradient of the loss is zero at params for the first {len(real)} examples of node 0: no algorithm "
            "moves from there. Start from other params, for example random ones.",
            stacklevel=3,
        )


@jax.jit
def _at_start(problem: Any, data: Any, chosen: Array) -> tuple[Array, Array]:
    """The losses [b] and the largest entries of the gradients [b] of the examples `chosen` [b] of a node."""
    w, data = problem.initial_params()[0], problem.take(data, chosen)

    def one(example: Any) -> tuple[Array, Array]:
        value, g = jax.value_and_grad(problem.loss)(w, example)
        return value, jnp.max(jnp.abs(g))

    return jax.lax.map(one, data)


def _described(tree: Any) -> str:
    """A tree in a message, with shapes and types instead of arrays."""

    def one(leaf: Any) -> str:
        return f"{leaf.dtype}{list(leaf.shape)}" if hasattr(leaf, "shape") else type(leaf).__name__

    return checks.text(jax.tree.map(one, tree)) if jax.tree.leaves(tree) else checks.text(tree)
