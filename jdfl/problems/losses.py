"""A person's own loss as a problem: any function of a tree of parameters and one example that JAX differentiates.

    f_i(w) = mean_t loss(params(w), example[i,t]) + penalty/2 ||w||^2

Axes: m nodes, q examples per node (padded with weight 0), N test examples or examples to split, n parameters.
"""

from collections.abc import Callable
from typing import Any, cast

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import DTypeLike

from jdfl.base import checks, struct
from jdfl.devices.processes import portion
from jdfl.models.base import relaxed
from jdfl.problems.about import About
from jdfl.problems.base import begun
from jdfl.problems.functions import check_loss, check_pair, check_predict, check_start
from jdfl.problems.packing import Packing, packed
from jdfl.problems.partition import iid
from jdfl.problems.stack import check_public, floating, joined
from jdfl.problems.streamed import Streamed
from jdfl.problems.trees import check_classes, of_nodes, of_test, take


@struct.dataclass
class LossProblem(Streamed):
    """The formula above; data is a tree with leaves [m, q, ...]. Built by `from_loss`."""

    function: Callable[[Any, Any], Array] = struct.field(pytree_node=False, default=None)  # pyright: ignore
    packing: Packing = struct.field(pytree_node=False, default=None)  # pyright: ignore

    @property
    def n(self) -> int:
        """The number of parameters: all entries of all arrays of the tree."""
        return self.packing.n

    def unflatten(self, w: Any) -> Any:
        """The tree of parameters of a vector w [n]; leading axes of w [..., n], such as the nodes', stay in its arrays.

        For example `problem.unflatten(result.params.mean(axis=0))` is the average of the nodes' models.
        """
        array = jnp.asarray(w)
        checks.shape((*array.shape[:-1], self.n), "Its last axis has the parameters.", w=array)
        return self.packing.unflatten(array)

    def loss(self, w: Array, example: Any) -> Array:
        """The loss [] of one example at the parameters w [n]."""
        with relaxed():
            found = self.function(self.packing.unflatten(w), example)
        return jnp.reshape(found, ()).astype(w.dtype)


@struct.dataclass
class LossClassification(LossProblem):
    """The user's loss on examples (features, label), with scores, from which accuracies follow."""

    predictor: Callable[[Any, Any], Array] = struct.field(pytree_node=False, default=None)  # pyright: ignore
    classes: int = struct.field(pytree_node=False, default=2)

    def scores(self, w: Array, features: Any) -> Array:
        """The scores [N, classes], or [N], of features with leaves [N, ...]."""

        def one(example: Any) -> Array:
            with relaxed():
                return self.predictor(self.packing.unflatten(w), example).astype(w.dtype)

        return jax.vmap(one)(features)

    def predict(self, w: Array, data: Any) -> Array:
        """The classes [N] int32 of the test examples, a batch of them at a time."""
        features = cast(Any, self.test)[0]

        def classes(place: Array) -> Array:
            scores = self.scores(w, jax.tree.map(lambda leaf: leaf[place], features))
            scores = scores.reshape(len(place), -1)
            found = jnp.argmax(scores, axis=1) if self.classes > 2 or scores.shape[1] == 2 else scores[:, 0] > 0
            return found.astype(jnp.int32)

        return self._in_batches(classes)


def from_loss(
    loss: Callable[[Any, Any], Any],
    params: Any,
    data: Any,
    *,
    nodes: int | None = None,
    test: Any = None,
    predict: Callable[[Any, Any], Any] | None = None,
    weight: Any = None,
    penalty: float = 0.0,
    shared: tuple[str, ...] | None = None,
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

        problem = jdfl.from_loss(loss, {"w": jnp.zeros(5), "b": jnp.zeros(())}, (X, y), nodes=20)

    Args:
        loss: The loss of one example, `loss(params, example) -> number`, written in JAX. It must not depend on
            anything random.
        params: The parameters that every node starts from, a tree of floating-point arrays: a dict, a list, the
            parameters of flax.linen, an nnx.State or an equinox module. Functions, text and truth values in it stay as
            they are. They are one vector w [n] for the algorithms; `problem.unflatten(w)` is the tree again.
        data: The examples of every node: a list with one tree for every node, whose leaves [q_i, ...] may have
            different lengths; or one tree (a tuple, a dict or an array) with leaves [m, q, ...]. With `nodes`, one
            tree with leaves [N, ...] to be split.
        nodes: Number of nodes that the examples are split over evenly at random; None: data has an axis of nodes.
        test: Test examples, a tree like one example with leaves [N, ...]; None: there are none.
        predict: The scores of one example, `predict(params, features)` -> [classes], or a single number that is
            positive for class 1; None: there are no accuracies. Examples have to be pairs (features, label) then,
            labels whole numbers from 0.
        weight: Weights >= 0 of the examples, [m, q] or a list of [q_i] (with `nodes`, [N]); None: all are 1.
        penalty: Weight >= 0 of the squared norm in the objective (halved).
        shared: Patterns of the names of the parameters that are common to all nodes, as in ("encoder.*",), where the
            names are the keys on the way to an array, joined by dots; None: all are.
        seed: Seed >= 0 of the split.
        nodes_at_once: Nodes computed side by side, at least 1; None: as suits the device.
        name: Name of the problem in reports; None: that of the loss.
        dtype: Type of the parameters and of all floating-point data, float32 or float64; the latter needs
            JAX_ENABLE_X64=1.
        public: What of the data is public anyway: curvature, start, constants, tuning, stop (see
            `Problem.declared`).

    Raises ValueError for a loss, parameters or data that do not fit together. Wrong shapes and types are refused before
    anything is compiled; the value and the gradient at the start are then computed for a few examples, to refuse a
    loss that is not finite there.
    """
    kind = floating(dtype)
    check_public(public)
    for argument, value in (("loss", loss), ("predict", predict)):
        if not callable(value) and not (argument == "predict" and value is None):
            checks.refuse(f"{argument} to be a function", argument, value, f"Write def {argument}(params, ...).")
    checks.not_negative("It is the weight of the squared norm, such as 0.001.", penalty=penalty)
    checks.shape((), "It is one number.", penalty=penalty)
    checks.whole(0, None, "The seed decides on the split, for example seed=0.", seed=seed)
    if name is not None and not checks.is_a(name, str):
        checks.refuse("name to be text", "name", name, "It is what reports call the problem.")
    for argument, value in (("nodes", nodes), ("nodes_at_once", nodes_at_once)):
        if value is not None:
            checks.whole(1, None, f"Give the number of nodes, for example {argument}=20.", **{argument: value})
    packing, start, count = packed(params, shared, kind)
    stacked, weights, m = of_nodes(data, weight, nodes, lambda total, m: iid(total, m, seed=seed), kind)
    one = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[2:], leaf.dtype), stacked)
    if predict is not None:
        check_pair(one)
    check_loss(loss, packing, one, kind)
    tests = None if test is None else of_test(test, stacked, kind, data)
    given: dict[str, Any] = {}
    if predict is not None:
        given = {"predictor": predict, "classes": check_predict(predict, packing, one, kind)}
        check_classes(stacked, tests, given["classes"])
    made = LossProblem if predict is None else LossClassification
    problem = made(
        data=jax.tree.map(jnp.asarray, take(stacked, portion(m))),
        weight=jnp.asarray(weights[portion(m)]),
        curvature=jnp.zeros(len(portion(m)), kind),
        test=None if tests is None else jax.tree.map(jnp.asarray, tests),
        start=jnp.asarray(start),
        shared=count,
        name=name or str(getattr(loss, "__name__", type(loss).__name__)).strip("<>"),
        about=About("" if predict is None else "classification", "as given" if nodes is None else "iid"),
        penalty=None if penalty == 0 else jnp.asarray(penalty, kind),
        nodes_at_once=nodes_at_once,
        function=loss,
        packing=packing,
        **given,
    )
    check_start(problem)
    return begun(joined(problem, m)).declared(*public)
