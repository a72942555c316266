"""The learning problem: stacked data, the loss of one example, and everything that follows from them.

Axes: m nodes, q examples per node (padded with weight 0), n parameters, N test examples, B examples of a batch.
"""

from dataclasses import replace
from functools import partial
from typing import Any, Self, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer

from jdfl.base import checks, marking, struct
from jdfl.base.arguments import checked
from jdfl.base.names import names_of
from jdfl.problems.about import About
from jdfl.problems.reference import Optimum
from jdfl.problems.rows import Rows, check_finite

PUBLIC = (
    "standardise",
    "holdout",
    "partition",
    "curvature",
    "start",
    "constants",
    "tuning",
    "stop",
)  # as in jdfl.privacy.DERIVED


@struct.dataclass
class Problem(Rows):
    """f_i(w) = sum_t weight[i,t] loss(w, data[i,t]) / sum_t weight[i,t] + regulariser(w).

    A subclass gives `n` and `loss` of one example, and may give `regulariser` and `scores`. The first `shared`
    parameters are common to all nodes and the others stay with every node; an algorithm decides which it sends.

    Methods take the parameters w [n] of one node and its `data`, leaves [q, ...], with their weight [q] (`values` and
    `gradients` take w [m, n]). What a problem lacks raises TypeError, `check_data` and `check_test` raise ValueError.
    """

    data: Any  # pytree of arrays [m, q, ...]
    weight: Array  # [m, q] float, 0 = padding
    curvature: Array  # [m] lambda_max of the data part of the Hessian of f_i (a bound on it where it varies)
    truth: Array | None = None  # [n] the generating parameters, where they are known
    test: Any | None = None  # pytree of arrays [N, ...] like `data` without its node axis
    start: Array | None = None  # [n] the parameters that every node begins with; None: zeros
    optimum: Optimum | None = None  # what metrics compare with, see `solved`; None: not known
    shared: int | None = struct.field(pytree_node=False, default=None)  # leading parameters in common; None: all
    name: str = struct.field(pytree_node=False, default="problem")
    derived: tuple[str, ...] = struct.field(pytree_node=False, default=())  # from all records, see `declared`
    public: tuple[str, ...] = struct.field(pytree_node=False, default=())  # see `declared`
    about: About = struct.field(pytree_node=False, default=About())  # names and words, without any effect

    def declared(self, *names: str) -> Self:
        """The problem with the values of these names, and of no others, declared public; privacy reports list them.

        Each of them enters a run without noise, so that no epsilon is reported unless it is declared.

        Args:
            *names: "standardise", "holdout" and "partition": values that a constructor may have computed from all
                records (`derived`); "curvature": the source of step sizes, and of the default tuning grids of lr;
                "start": parameters to begin with that were set after the problem was made; "constants": arrays of a
                step, or of a loss of the user; "tuning": hyper-parameters chosen from other runs on the same data;
                "stop": a stop rule that looks at the data.

        Raises ValueError for other names.
        """
        for name in names:
            checks.one_of(PUBLIC, "See Problem.declared.", public=name)
        return replace(self, public=tuple(dict.fromkeys(names)))

    @property
    def entering(self) -> tuple[str, ...]:
        """Names of `declared` of the values from records that enter every run: `derived`, and a replaced start."""
        first = () if self.start is None else np.asarray(self.start, np.float64)
        warm = np.size(first) and np.ptp(first) > 0 and self.about.start != checksum(self.start)
        return (*self.derived, "start") if warm else self.derived

    @property
    def n(self) -> int:
        """The number of parameters of one node, the length of every vector that algorithms train, send and average.

        A subclass defines it, as a plain int, since shapes depend on it; here it raises TypeError.
        """
        raise TypeError(f"{type(self).__name__} does not define its number of parameters n")

    @property
    def n_shared(self) -> int:
        """The number of leading parameters that are common to all nodes: `shared`, or n if `shared` is None.

        Metrics average these alone and evaluate every node with its own values of the others.
        """
        return self.n if self.shared is None else self.shared

    @property
    def personal(self) -> bool:
        """Whether a node's predictions depend on more than the parameters that are common to all nodes.

        If so, accuracies are means over the nodes, each with its own values of the parameters that are not shared.
        Otherwise they are those of the average of the nodes' parameters.
        """
        return self.n_shared < self.n

    def begin(self) -> Array:
        """The initial parameters [m, n] of the nodes, the same for all.

        Every row is `start`, or zeros if that is None, in the problem's `dtype`. Neural networks need a start, which
        their constructors set.
        """
        start = jnp.zeros((self.n,), self.dtype) if self.start is None else self.start
        return jnp.broadcast_to(start, (self.m, self.n))

    def loss(self, w: Array, example: Any) -> Array:
        """The loss [] of a node's parameters on ONE example.

        A subclass defines it, as a pure function that JAX can differentiate, or else defines `losses`, `gradient` and
        `example_gradients`, which are computed from it. Here it raises TypeError.

        Args:
            w ([n]): Parameters of the node.
            example: The example, a tree like `data`, whose leaves have neither the nodes' nor the examples' axis.
        """
        raise TypeError(f"{type(self).__name__} does not define the loss of one example")

    def regulariser(self, w: Array) -> Array:
        """The part of f_i [] at w [n] that does not depend on data; zero unless a subclass defines one.

        It is added to the mean of the losses. Since it reveals nothing about any record, it is neither clipped nor
        counted in a sensitivity.
        """
        return jnp.zeros((), w.dtype)

    def nodes(self, i: Array | np.ndarray) -> Self:
        """The problem of the nodes i [b] alone, with their rows of data, weight and curvature.

        Everything that belongs to no single node, such as `test`, `truth` and `start`, is kept. A step that works on a
        block of nodes (`Round.each_of`) receives such a problem. Ids out of range are clipped.
        """
        data, weight = self.local(i)
        names = None if self.about.nodes is None or checks.is_a(i, Tracer) else self.about.nodes
        if names is not None:
            names = names_of("nodes", [names[min(max(int(one), 0), len(names) - 1)] for one in np.ravel(i)])
        about = replace(self.about, nodes=names)
        return replace(self, data=data, weight=weight, curvature=self.curvature[i], about=about)

    def losses(self, w: Array, data: Any) -> Array:
        """The loss [q] of every example of one node's data, padding included.

        The loss of padding is never counted, since its weight is 0, but it must be finite. The base class takes `loss`
        of every example; a subclass that computes all of them together replaces this method.

        Args:
            w ([n]): Parameters of the node.
            data: Its examples, leaves [q, ...].
        """
        return jax.vmap(self.loss, (None, 0))(w, data)

    def value(self, w: Array, data: Any, weight: Array) -> Array:
        """f_i(w) [] of one node: the mean of its losses, weighted by `weight`, plus the regulariser.

        For all nodes at once use `values` or `values_at`.

        Args:
            w ([n]): Parameters of the node.
            data: Its examples, leaves [q, ...], as `local` gives them.
            weight ([q]): Their weights >= 0, over whose sum the mean is taken; weights that are all zero give NaN.
        """
        mean = jnp.sum(self.losses(w, data) * weight) / jnp.sum(weight)
        return mean + self.regulariser(w)

    def gradient(self, w: Array, data: Any, weight: Array) -> Array:
        """The gradient [n] of f_i of one node, including the regulariser's.

        It is exact, neither clipped nor noisy. Algorithms take their gradients from `jdfl.Gradients` instead, which
        draws batches, clips, adds noise and counts.

        Args:
            w ([n]): Parameters of the node.
            data: Its examples, leaves [q, ...], as `local` gives them.
            weight ([q]): Their weights, as for `value`.
        """
        return jax.grad(self.value)(w, data, weight)

    def example_gradients(self, w: Array, data: Any) -> Array:
        """The gradient of every single example's loss [q, n], without the regulariser's.

        Clipping of single examples uses them where a problem has no `slopes`. All q n numbers are formed, so
        `jdfl.Gradients` asks for a few examples at a time.

        Args:
            w ([n]): Parameters of the node.
            data: Its examples, leaves [q, ...].
        """
        return jax.vmap(jax.grad(self.loss), (None, 0))(w, data)

    def slopes(self, w: Array, data: Any) -> Array | None:
        """The derivatives of the losses by the scores, if example t's gradient is the outer product a_t slopes[t].

        a_t are the example's features; slopes are [q], or [q, classes]. None if gradients have another form. Such
        gradients are clipped without being formed: ||a_t slopes[t]|| = ||a_t|| ||slopes[t]|| in l1, l2 and linf.

        Args:
            w ([n]): Parameters of the node.
            data: Its examples, leaves [q, ...].
        """
        return None

    def feature_lengths(self, data: Any, norm: str) -> Array:
        """The lengths ||a_t|| [q] of one node's features, for a problem that has `slopes`; others raise TypeError.

        Such a length times ||slopes[t]|| is the length of an example's gradient, which need not be formed.

        Args:
            data: The node's examples, leaves [q, ...].
            norm: The norm in which lengths are measured: "l1", "l2" or "linf".
        """
        raise TypeError(f"{type(self).__name__} has no slopes")

    def spread(self, slopes: Array, data: Any) -> Array:
        """The sum [n] of slopes[t] a_t over one node's examples.

        It takes one product with the features and forms no gradient of a single example. A problem without slopes
        raises TypeError.

        Args:
            slopes ([q]): The result of `slopes`, or [q, classes]; weighted and clipped slopes give a sum of clipped
                gradients.
            data: The node's examples, leaves [q, ...].
        """
        raise TypeError(f"{type(self).__name__} has no slopes")

    def values(self, w: Array) -> Array:
        """f_i(w_i) [m] for stacked parameters [m, n]: every node's own data at its own parameters.

        All examples count, without clipping or noise. The mean over the nodes is the metric `objective_local`; for the
        same parameters at all nodes use `values_at`.
        """
        return marking.own(self.each(self.value, w, self.data, self.weight), w, self.data, self.weight)

    def gradients(self, w: Array) -> Array:
        """The gradient of every f_i at w_i [m, n] for stacked parameters [m, n].

        All examples and the regulariser count, without clipping or noise. Where privacy is claimed, no message may be
        computed from it. The stop rule `jdfl.gradient_below` looks at it.
        """
        return marking.own(self.each(self.gradient, w, self.data, self.weight), w, self.data, self.weight)

    def values_at(self, w: Array) -> Array:
        """f_i(w) [m] of every node at the same parameters [n], on all examples of its own data.

        The mean over the nodes is the common objective mean_i f_i(w), at the average of the nodes' parameters the
        metric `objective`.
        """
        return self.each(partial(self.value, w), self.data, self.weight)

    def scores(self, w: Array, features: Array) -> Array:
        """The scores [N], or [N, classes], by which a classifier decides, of N examples.

        The largest of several scores decides; a single score means class 1 if it is positive, else class 0. A problem
        that is no classification raises TypeError, and its runs have no accuracy.

        Args:
            w ([n]): Parameters of one node.
            features ([N, ...]): Features of the examples, as in `test`.
        """
        raise TypeError(f"{type(self).__name__} is not a classification problem, so it has no scores")

    def predict(self, w: Array, data: Any) -> Array:
        """The predicted classes [N] int32 of the examples of `test`, which accuracies compare with their labels.

        Args:
            w ([n]): Parameters of the node.
            data: Its own examples, leaves [q, ...], from which batch normalisation takes its statistics.
        """
        scores = self.scores(w, cast(Any, self.test)[0])
        return (jnp.argmax(scores, axis=1) if scores.ndim == 2 else scores > 0).astype(jnp.int32)

    def test_loss(self, w: Array, data: Any) -> Array:
        """The mean loss [] of the examples of `test` at w [n], without the regulariser; `data` as for `predict`."""
        return jnp.mean(self.losses(w, self.test))


def begun(problem: Any) -> Any:
    """The problem as it is made, whose start is taken as public: it belongs to the model."""
    return replace(problem, about=replace(problem.about, start=checksum(problem.start)))


def checksum(start: Any) -> float:
    """A number [] by which parameters to start from are recognised, to six digits."""
    return float(f"{np.sum(np.asarray(start, np.float64) * np.cos(np.arange(np.size(start)))):.6g}")


@checked
def check_problem(problem: Problem) -> None:
    """Refuse a problem whose arrays do not fit together or are not finite.

    `data` has the layout that its `check_data` requires ([m, q, ...]) and is finite, including padding (0 times NaN is
    NaN). Weights are >= 0, and every node has a positive one. `curvature`, `truth` and `test` fit and are finite. The
    check runs where the arrays are; only a bad array is copied to the host. ValueError names the leaf, the node and
    the example.
    """
    checks.shape((None, None), weight=problem.weight)
    for name, tree in (("data", problem.data), ("test", problem.test)):
        if any(hasattr(leaf, "iloc") for leaf in jax.tree.leaves(tree)):
            raise ValueError(f"Expected arrays in {name}, got a table of pandas. Use to_numpy(), in the order of X.")
    m, q = problem.weight.shape
    if m == 0 or q == 0:
        raise ValueError(f"Expected at least one node and one example, got weight of shape {(m, q)}.")
    check_finite("weight", problem.weight)
    weight = np.asarray(problem.weight)
    if (weight < 0).any():
        i, t = np.argwhere(weight < 0)[0]
        raise ValueError(f"Expected weight >= 0, got {weight[i, t]} at node {i}, example {t}.")
    empty = np.flatnonzero(weight.sum(axis=1) <= 0)
    if empty.size:
        raise ValueError(f"Expected examples at every node, got total weight 0 at node {empty[0]}.")

    problem.check_data()
    checks.shape((m,), curvature=problem.curvature)
    check_finite("curvature", problem.curvature)
    checks.not_negative(curvature=problem.curvature)
    reference = None if problem.optimum is None else problem.optimum.w
    same: dict[str, Any] = {"truth": problem.truth, "start": problem.start, "optimum": reference}
    for named in ({name: value} for name, value in same.items() if value is not None):
        checks.shape((problem.n,), "It is the same for all nodes.", **named)
        checks.finite(**named)
    if problem.shared is not None:
        checks.whole(0, problem.n, "It counts leading parameters; None shares all.", shared=problem.shared)
    if problem.test is not None:
        problem.check_test()
