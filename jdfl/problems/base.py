"""The learning problem: stacked data, the loss of one example, and everything that follows from them.

Axes: m nodes, q examples per node (padded with weight 0), n parameters, N test examples, B examples of a batch.
"""

import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Self, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.core import Tracer

from jdfl.base import checks, hooks, marking, struct
from jdfl.base.arguments import checked
from jdfl.base.backend import backend
from jdfl.base.display import Described
from jdfl.base.names import Names, names_of
from jdfl.devices.processes import held, portion
from jdfl.problems import about
from jdfl.problems.about import About
from jdfl.problems.ragged import Blocks, any_ragged, blocks_of, is_ragged, stored

P = TypeVar("P", bound="Problem")
# As in jdfl.privacy.DERIVED:
PUBLIC = ("standardise", "holdout", "partition", "curvature", "start", "constants", "tuning", "stop")
_SMALL = 2**16  # numbers that are looked at on the host, where nothing has to be compiled
_COMPARED = 1024  # examples that all draws are compared with, rather than searched
_TOGETHER = 4  # examples that are tried together and one by one


@struct.dataclass
class Optimum:
    """Reference parameters w [n] and their objective mean_i f_i(w), which metrics compare a run with.

    `optimum`, `sparse_optimum` and `solved` compute it with all data in one place; no node of a decentralized run
    could. A reference that is known from elsewhere is given as `problem.replace(optimum=Optimum(w, value))`; with
    w = None only the metric `suboptimality` can be computed.
    """

    w: Array | np.ndarray | None  # [n] float64 on the host
    value: Any  # [] mean_i f_i(w)
    accuracy: Any = float("nan")  # [] proven bound on value - min f; NaN: nothing is proven
    rest: Array | np.ndarray | None = None  # [n] w less its rounding to the problem's type; None: zeros
    gradient: Array | np.ndarray | None = None  # [n] of mean_i f_i at w; None: not known

    def step(self, w: Array) -> Array:
        """The differences [m, n] of parameters w [m, n] from the reference, without the rounding of its type."""
        differences = w - self.head(w.dtype)[None]
        return differences if self.rest is None else differences - jnp.asarray(self.rest, w.dtype)[None]

    def head(self, dtype: Any) -> Array:
        """The parameters [n] as a run in this type holds them."""
        return jnp.asarray(self.w, dtype)


@struct.dataclass
class Problem(Described):
    """f_i(w) = sum_t weight[i,t] loss(w, data[i,t]) / sum_t weight[i,t] + regulariser(w).

    A subclass gives `n` and `loss` of one example, and may give `regulariser` and `scores`. The first `shared`
    parameters are common to all nodes and the others stay with every node; an algorithm decides which it sends.

    Methods take the parameters w [n] of one node and its `data`, leaves [q, ...], with their weight [q] (`values` and
    `gradients` take w [m, n]). What a problem lacks raises TypeError, `check_data` and `check_test` raise ValueError.
    """

    data: Any  # pytree of arrays [m, q, ...], or of `Ragged` ones
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
    blocks: Blocks | None = None  # the nodes of the rows of `Ragged` data; None: data are arrays [m, q, ...]
    own_test: Any | None = None  # the problem of every node's own test examples, see `with_own_test`

    @property
    def m(self) -> int:
        """The number of nodes here: in a run on several devices it is that of one device."""
        return self.weight.shape[0]

    @property
    def leaves(self) -> tuple[int, ...]:
        """The number of entries of every array of the model, in the order of the parameters [n]; (n,) for vectors."""
        return (self.n,)

    @property
    def class_names(self) -> tuple[Any, ...]:
        """The label of every class in the order of the class numbers, for problems made of labelled data.

        Class k of a prediction is `class_names[k]`. Empty where classes have numbers alone.
        """
        return self.about.classes

    @property
    def node_names(self) -> Names | None:
        """The names of the nodes in the order of their rows, as text, numbers or tuples; None where they have none.

        Clients give their names. `jdfl.run` pairs nodes by name with those of a network that has names, too.
        """
        return self.about.nodes

    def named(self, names: Any) -> Self:
        """The same problem, whose node i is called names[i].

        Args:
            names: Names [m], text or whole numbers, all different; None: none, so that nodes are paired by position.

        Raises ValueError for another number of names, and for missing or repeated ones.
        """
        own = None if names is None else names_of("names", names, self.m)
        return replace(self, about=replace(self.about, nodes=own))

    def plot(self, *, ax: Any = None, width: Any = "column", height: float | None = None) -> Any:
        """Draw the data partition: the examples of every class at every node as dots, and their number as bars above.

        The area of a dot is in proportion to its examples. Targets, and more than 24 classes, are counted in bins of
        similar size. Of more than 60 nodes, 60 are drawn, evenly spaced by size. Data without labels have bars alone.
        The counts are exact: no guarantee covers the picture.

        Args:
            ax: The two Axes of matplotlib to draw into, or the one for bars alone; None: a new figure.
            width: The width of a new figure: "column" (3.3 inches), "page" (7 inches), or a number of inches.
            height: The height of a new figure in inches; None: what the width needs.

        Returns the figure and its Axes, which a notebook shows. Raises ValueError for other Axes and sizes.
        """
        return hooks.find("plot_partition")(self, ax=ax, width=width, height=height)

    def _described(self) -> tuple[str, Iterator[tuple[str, str]]]:
        return f"{type(self).__name__} {self.name!r}", about.rows(self)

    @property
    def dtype(self) -> Any:
        """The floating-point type of parameters, states, gradients and values; data may have another one."""
        return self.weight.dtype

    @property
    def sizes(self) -> Array:
        """The number of positive weights [m] int32 of every node, which privacy reports call its records."""
        return _sizes(self.weight)

    def each(self, function: Callable[..., Any], *stacked: Any) -> Any:
        """`function` of every node's rows of `stacked`, leaves [m, ...]: its results, stacked again.

        Use it instead of `jax.vmap` over nodes: problems whose nodes take much memory compute a few at a time here, and
        `Ragged` arguments, such as `data` and `weighted_data` of nodes of very different sizes, are computed in blocks
        of nodes with similar sizes. Results that have a row for every example are padded with zeros to q rows then.
        """
        if self.blocks is None or not any_ragged(stacked):
            return self._each(function, *stacked)
        return self.blocks.each(self._each, function, stacked)

    def _each(self, function: Callable[..., Any], *stacked: Any) -> Any:
        return jax.vmap(function)(*stacked)

    @property
    def weighted_data(self) -> tuple[Any, Any]:
        """The data and weights of all nodes, as `each` takes them for functions of both."""
        return self.data, self.cut(self.weight)

    def cut(self, x: Any) -> Any:
        """An array with a row for every example, x [m, q, ...], in the form of `data`: `Ragged` where these are."""
        return x if self.blocks is None else self.blocks.cut(x)

    def per_example(self, function: Callable[..., Any], *stacked: Any) -> Any:
        """`function` of every node's rows, with results for each of its examples: `Ragged` where arguments are."""
        if self.blocks is None or not any_ragged(stacked):
            return jax.vmap(function)(*stacked)
        return self.blocks.per_example(function, stacked)

    def some(self, chosen: Array) -> Any:
        """The examples, leaves [m, b, ...], at the positions chosen [m, b] of every node's data; see `take`."""
        if self.blocks is None:
            return jax.vmap(self.take)(self.data, chosen)
        return self.blocks.each(lambda take, *rows: jax.vmap(take)(*rows), self.take, (self.data, chosen))

    def padded(self) -> Self:
        """The same problem with data of arrays [m, q, ...], for code that reads them.

        Padding, of weight 0, repeats a node's first example where the data are `Ragged`.
        """
        own = None if self.own_test is None else self.own_test.padded()
        if self.blocks is None:
            return self if own is self.own_test else replace(self, own_test=own)
        data = jax.tree.map(self.blocks.padded, self.data, is_leaf=is_ragged)
        return replace(self, data=data, blocks=None, own_test=own)

    def with_own_test(self, nodes: Any) -> Self:
        """The same problem, in which every example of `test` belongs to a node, too.

        Metrics such as `node_accuracy` evaluate every node on its own test examples. `problem.own_test` is a problem
        whose data are these; nodes without any have weight 0 there, and do not count in these metrics.

        Args:
            nodes: The node [N] of every example of `test`: its number, or its name where nodes have names.

        Raises ValueError without a test set, for unknown nodes, and for another number of them.
        """
        if self.test is None:
            raise ValueError("Expected a problem with a test set, got test = None. Give test or test_fraction.")
        return with_tests_of(self, self._numbers_of(nodes, len(jax.tree.leaves(self.test)[-1])))

    def _numbers_of(self, nodes: Any, count: int) -> np.ndarray:
        """The numbers of nodes that are given by number or by name."""
        given = np.asarray(nodes)
        checks.shape((count,), "Give the node of every test example.", nodes=given)
        names = self.node_names
        if names is not None:
            known = {str(name): i for i, name in enumerate(names)}
            missing = [one for one in given.tolist() if str(one) not in known]
            if missing:
                raise ValueError(
                    f"Expected names of nodes of the problem, such as {names[0]!r}, got {missing[0]!r} ({len(missing)} "
                    "test examples are of unknown nodes). Leave these test examples out."
                )
            return np.array([known[str(one)] for one in given.tolist()], np.int64)
        if given.dtype.kind not in "iu" or given.min(initial=0) < 0 or given.max(initial=0) >= self.m:
            checks.refuse(f"numbers of nodes from 0 to {self.m - 1}", "nodes", given[0].item(), "Nodes have no names.")
        return given.astype(np.int64)

    def local(self, i: Array | np.ndarray | int) -> tuple[Any, Array]:
        """The data (leaves [q, ...]) and weights [q] of node i [], or of several i [b]; ids out of range are clipped.

        `value` and `gradient` take the data of one node. For several nodes leaves are [b, q, ...] and weights [b, q],
        for `jax.vmap`. Padded examples are included, with weight 0.
        """
        if self.blocks is None:
            return jax.tree.map(lambda leaf: leaf[i], (self.data, self.weight))
        blocks = self.blocks
        return jax.tree.map(lambda leaf: blocks.rows(leaf, i), self.data, is_leaf=is_ragged), self.weight[i]

    def some_node(self) -> Any:
        """The data of one node, leaves [q, ...]: the first node whose data this process has."""
        if self.blocks is not None:
            rows = self.blocks.host_rows
            return jax.tree.map(lambda leaf: jnp.asarray(next(rows(leaf))), self.data, is_leaf=is_ragged)
        one = jax.tree.map(lambda leaf: leaf[:1] if isinstance(leaf, np.ndarray) else leaf, held(self.data))
        return _first(one)

    def minibatch(self, key: Array, data: Any, weight: Array, size: int) -> tuple[Any, Array]:
        """Examples of one node, leaves [size, ...], and their weights [size]: uniform draws with replacement.

        Only examples of positive weight are drawn. One may occur several times, so such samples do not amplify privacy
        unless their size is 1. For distinct examples use `subset`.
        """
        chosen = drawn(key, weight, size)
        return self.take(data, chosen), weight[chosen]

    def subset(self, key: Array, data: Any, weight: Array, size: int) -> tuple[Any, Array]:
        """Distinct examples of one node, leaves [size, ...], and their weights [size]; all sets are equally likely.

        The node has at least `size` examples of positive weight, which `jdfl.Gradients.check` checks: otherwise padding
        of weight 0 is included.
        """
        chosen = drawn_once(key, weight, size)
        return self.take(data, chosen), weight[chosen]

    def take(self, data: Any, chosen: Array) -> Any:
        """The examples, leaves [b, ...], at the positions chosen [b] of one node's data, some perhaps repeated.

        Batches are made with it; a problem whose data have another layout overrides this method.
        """
        return jax.tree.map(lambda leaf: leaf[chosen], data)

    def varied(self, key: Array, data: Any) -> Any:
        """A batch, leaves [B, ...], with data augmentation if the problem has any; same shapes and types.

        Gradients of all examples, tests and metrics use the examples without augmentation.
        """
        return data

    def check_data(self) -> None:
        """Refuse data other than leaves [m, q, ...] of finite numbers, padding included, since 0 times NaN is NaN.

        ValueError names the leaf, the node, the example and the entry. `check_problem`, and so every run, calls it.
        """
        m, q = self.weight.shape
        for nodes, width in [] if self.blocks is None else zip(self.blocks.nodes, self.blocks.widths):
            if np.any(np.asarray(self.weight)[np.asarray(nodes), width:] > 0):
                raise ValueError(
                    f"Expected weight 0 beyond the {width} examples that are stored of a node, got others. Replace the "
                    "weight of problem.padded() instead."
                )
        leaves = jax.tree_util.tree_leaves_with_path(self.data, is_leaf=is_ragged)
        if not leaves:
            raise ValueError("Expected data with at least one array, got none.")
        for path, leaf in leaves:
            name = "data" + jax.tree_util.keystr(path)
            if np.shape(leaf)[:2] != (m, q):
                raise ValueError(f"Expected {name} of shape {(m, q)} + an example's, got {np.shape(leaf)}.")
            if is_ragged(leaf):
                if self.blocks is None:
                    raise ValueError(f"Expected blocks with ragged {name}, got None. Use problem.replace(data=...).")
                for part, nodes in zip(leaf.parts, self.blocks.nodes, strict=True):
                    check_finite(name, part, np.asarray(nodes))
                continue
            check_finite(name, held(leaf), portion(m) if held(leaf) is not leaf else None)

    def check_test(self) -> None:
        """Refuse a test set, leaves [N, ...], whose structure differs from that of one node's data, or not finite."""
        shapes = [np.shape(leaf)[2:] for leaf in jax.tree.leaves(self.data, is_leaf=is_ragged)]
        if jax.tree.structure(self.test) != jax.tree.structure(self.data, is_leaf=is_ragged):
            raise ValueError("Expected test with the same structure as data, got another one.")
        leaves = jax.tree_util.tree_leaves_with_path(self.test)
        rows = np.shape(leaves[0][1])[:1]
        for (path, leaf), shape in zip(leaves, shapes):
            name = "test" + jax.tree_util.keystr(path)
            if np.shape(leaf) != (*rows, *shape):
                raise ValueError(f"Expected {name} of shape {(*rows, *shape)}, got {np.shape(leaf)}.")
            if not _all_finite(leaf):
                checks.finite(f"See {name}.", test=leaf)

    def declared(self, *names: str) -> Self:
        """The problem with the values of these names declared public, besides those declared before.

        Each of them enters a run without noise, so that no epsilon is reported unless it is declared. Privacy reports
        list them; `problem.replace(public=())` takes all declarations back.

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
        return replace(self, public=tuple(dict.fromkeys((*self.public, *names))))

    @property
    def entering(self) -> tuple[str, ...]:
        """Names of `declared` of the values from records that enter every run: `derived`, and a replaced start."""
        first = () if self.start is None else np.asarray(self.start, np.float64)
        warm = np.size(first) and np.ptp(first) > 0 and self.about.start != _checksum(self.start)
        return (*self.derived, "start") if warm else self.derived

    @property
    def n(self) -> int:
        """The number of parameters of one node, a plain int, which a subclass defines; here it raises TypeError."""
        raise TypeError(f"{type(self).__name__} does not define its number of parameters n")

    @property
    def n_shared(self) -> int:
        """The number of leading parameters in common; metrics average these, and keep a node's values of the others."""
        return self.n if self.shared is None else self.shared

    @property
    def personal(self) -> bool:
        """Whether a node's predictions depend on more than the parameters that are common to all nodes.

        If so, accuracies are means over the nodes; otherwise they are those of the average of the nodes' parameters.
        """
        return self.n_shared < self.n

    def initial_params(self) -> Array:
        """The initial parameters [m, n] of the nodes: every row is `start`, or zeros if that is None."""
        start = jnp.zeros((self.n,), self.dtype) if self.start is None else self.start
        return jnp.broadcast_to(start, (self.m, self.n))

    def loss(self, w: Array, example: Any) -> Array:
        """The loss [] of ONE example, a tree like `data` whose leaves have neither the nodes' nor the examples' axis.

        A subclass defines it, as a pure function that JAX can differentiate, or else defines `losses`, `gradient` and
        `example_gradients`, which are computed from it. Here it raises TypeError.
        """
        raise TypeError(f"{type(self).__name__} does not define the loss of one example")

    def regulariser(self, w: Array) -> Array:
        """The part of f_i [] that does not depend on data; it is neither clipped nor counted in a sensitivity."""
        return jnp.zeros((), w.dtype)

    def nodes(self, i: Array | np.ndarray) -> Self:
        """The problem of the nodes i [b] alone, as a step in `Round.each_of` gets it; ids out of range are clipped."""
        data, weight = self.local(i)
        names = None if self.about.nodes is None or checks.is_a(i, Tracer) else self.about.nodes
        if names is not None:
            names = names_of("nodes", [names[min(max(int(one), 0), len(names) - 1)] for one in np.ravel(i)])
        about, own = replace(self.about, nodes=names), None if self.own_test is None else self.own_test.nodes(i)
        rows: dict[str, Any] = {"data": data, "weight": weight, "curvature": self.curvature[i], "own_test": own}
        return replace(self, about=about, blocks=None, **rows)

    def losses(self, w: Array, data: Any) -> Array:
        """The loss [q] of every example of one node's data; that of padding, whose weight is 0, must be finite."""
        return jax.vmap(self.loss, (None, 0))(w, data)

    def value(self, w: Array, data: Any, weight: Array) -> Array:
        """f_i(w) [] of one node: the mean of its losses, weighted by `weight`, plus the regulariser.

        Weights that are all zero give NaN. For all nodes at once use `values` or `values_at`.
        """
        mean = jnp.sum(self.losses(w, data) * weight) / jnp.sum(weight)
        return mean + self.regulariser(w)

    def gradient(self, w: Array, data: Any, weight: Array) -> Array:
        """The gradient [n] of f_i of one node, including the regulariser's, exact.

        Algorithms take theirs from `jdfl.Gradients` instead, which draws batches, clips, adds noise and counts.
        """
        return jax.grad(self.value)(w, data, weight)

    def example_gradients(self, w: Array, data: Any) -> Array:
        """The gradient of every single example's loss [q, n], without the regulariser's.

        Clipping uses them where a problem has no `slopes`, for a few examples at a time.
        """
        return jax.vmap(jax.grad(self.loss), (None, 0))(w, data)

    def slopes(self, w: Array, data: Any) -> Array | None:
        """The derivatives of the losses by the scores, if example t's gradient is the outer product a_t slopes[t].

        a_t are the example's features; slopes are [q], or [q, classes]. None if gradients have another form. Such
        gradients are clipped without being formed: ||a_t slopes[t]|| = ||a_t|| ||slopes[t]|| in l1, l2 and linf.
        """
        return None

    def feature_lengths(self, data: Any, norm: str) -> Array:
        """The lengths ||a_t|| [q] of one node's features in the norm "l1", "l2" or "linf"; see `slopes`."""
        raise TypeError(f"{type(self).__name__} has no slopes")

    def spread(self, slopes: Array, data: Any) -> Array:
        """The sum [n] of slopes[t] a_t over one node's examples, for slopes [q] or [q, classes]; see `slopes`."""
        raise TypeError(f"{type(self).__name__} has no slopes")

    def values(self, w: Array) -> Array:
        """f_i(w_i) [m] for stacked parameters [m, n], whose mean is the metric `objective_local`."""
        return marking.own(self.each(self.value, w, *self.weighted_data), w, self.data, self.weight)

    def gradients(self, w: Array) -> Array:
        """The gradient of every f_i at w_i [m, n] for stacked parameters [m, n], neither clipped nor noisy.

        Where privacy is claimed, no message may be computed from it. The stop rule `jdfl.gradient_below` looks at it.
        """
        return marking.own(self.each(self.gradient, w, *self.weighted_data), w, self.data, self.weight)

    def values_at(self, w: Array) -> Array:
        """f_i(w) [m] of every node at the same parameters w [n]; their mean is the common objective."""
        return self.each(partial(self.value, w), *self.weighted_data)

    def scores(self, w: Array, features: Array) -> Array:
        """The scores [N], or [N, classes], by which a classifier decides, of N examples.

        The largest of several scores decides; a single score means class 1 if it is positive, else class 0. The
        features [N, ...] are those of `test`. A problem that is no classification raises TypeError, and its runs have
        no accuracy.
        """
        raise TypeError(f"{type(self).__name__} is not a classification problem, so it has no scores")

    def predictions(self, w: Array, features: Any) -> Array:
        """The predicted targets [N] of a regression for features [N, ...], as those of `test`; else TypeError."""
        raise TypeError(f"{type(self).__name__} is not a regression, so it predicts no numbers")

    def predict(self, w: Array, data: Any) -> Array:
        """The predicted classes [N] int32 of the examples of `test`, which accuracies compare with their labels.

        Batch normalisation takes its statistics from `data`, the node's own examples.
        """
        return decided(self.scores(w, cast(Any, self.test)[0]))

    def test_loss(self, w: Array, data: Any) -> Array:
        """The mean loss [] of the examples of `test` at w [n], without the regulariser; `data` as for `predict`."""
        return jnp.mean(self.losses(w, self.test))


def with_tests_of(problem: P, place: np.ndarray) -> P:
    """The problem with tests of nodes, where place [N] has the node's number of every example of `test`."""
    order, leaves = np.argsort(place, kind="stable"), jax.tree.leaves(problem.test)
    if any(np.shape(leaf)[:1] != place.shape for leaf in leaves):
        raise ValueError(
            "Expected a test set of arrays with a row for every example, got others. Use toarray() for sparse rows."
        )
    index = np.split(order, np.cumsum(np.bincount(place, minlength=problem.m))[:-1])
    sizes = np.array([len(one) for one in index])
    blocks, *_ = blocks_of(np.maximum(sizes, 1)[None], sum(int(np.prod(leaf.shape[1:])) for leaf in leaves)) or [None]

    def rows(leaf: Any) -> Any:
        return jax.device_put(stored([np.asarray(leaf)[one] for one in index], leaf.dtype, blocks, repeat=True))

    weight = jnp.asarray(np.arange(max(1, sizes.max())) < sizes[:, None], problem.dtype)
    data, blocks = jax.tree.map(rows, problem.test), jax.device_put(blocks)
    own = replace(problem, data=data, weight=weight, blocks=blocks, curvature=jnp.zeros_like(weight[:, 0]))
    none = dict.fromkeys(("test", "truth", "start", "optimum", "own_test"))
    return replace(problem, own_test=replace(own, name="", derived=(), public=(), about=About(), **none))


def drawn(key: Array, weight: Array, size: int) -> Array:
    """The positions [size] of uniform draws with replacement among the examples of positive weight [q] of a node."""
    if weight.shape[0] == 1:
        return jnp.zeros((size,), jnp.int32)
    real = jnp.cumsum(weight > 0, dtype=jnp.int32)  # [q], rises by one at every example that counts
    nth = jax.random.randint(key, (size,), 0, real[-1], jnp.int32)
    return jnp.searchsorted(real, nth, side="right", method=_search(weight.shape[0]))


def drawn_once(key: Array, weight: Array, size: int) -> Array:
    """The positions [size] of distinct examples of positive weight [q] of a node, while there are any."""
    bits = jnp.where(weight > 0, jax.random.uniform(key, weight.shape, jnp.float32), -1.0)
    return lax.top_k(bits, size)[1]


def decided(scores: Array) -> Array:
    """The classes [N] int32 that scores [N] or [N, classes] decide on."""
    single = scores.ndim == 1 or scores.shape[1] == 1
    return (scores.reshape(-1) > 0 if single else jnp.argmax(scores, axis=1)).astype(jnp.int32)


def begun(problem: Any) -> Any:
    """A new problem, whose start is taken as public, since it belongs to the model."""
    return replace(problem, about=replace(problem.about, start=_checksum(problem.start)))


def _checksum(start: Any) -> float:
    """A number by which parameters to start from are recognised, to six digits."""
    return float(f"{np.sum(np.asarray(start, np.float64) * np.cos(np.arange(np.size(start)))):.6g}")


@checked
def check_problem(problem: Problem) -> None:
    """Refuse a problem whose arrays do not fit together or are not finite.

    Weights are >= 0, and every node has a positive one. The check runs where the arrays are; only a bad array is copied
    to the host. ValueError names the leaf, the node and the example.
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
        checks.integer(0, problem.n, "It counts leading parameters; None shares all.", shared=problem.shared)
    if problem.test is not None:
        problem.check_test()
    if problem.own_test is not None:
        checks.shape((m, None), "A row for every node.", own_test=problem.own_test.weight)
        problem.own_test.check_data()


def check_examples(problem: Problem, *, clipped: bool) -> None:
    """Refuse infinite losses of a user's model or problem; refuse (warn of, unless clipped) examples that mix."""
    own = not type(problem).__module__.startswith("jdfl.")
    model: Any = getattr(problem, "model", None)
    if not own and (model is None or not model.own or model.examples_mix):
        return
    node = int(np.argmax(np.asarray(problem.sizes)))
    real = np.flatnonzero(np.asarray(problem.weight[node]) > 0)[:_TOGETHER]
    noise = np.random.default_rng(0).standard_normal(problem.n)  # a last layer of zeros would hide a difference
    bare = replace(problem, name="", test=None)
    first, together, alone = _compared(bare, np.asarray(0.1 * noise, problem.dtype), node, real.astype(np.int32))
    if not np.isfinite(np.asarray(first)).all():
        raise ValueError(
            f"Expected finite losses at the start, got {np.asarray(first).tolist()} for examples {real.tolist()} of "
            f"node {node} of {problem.name}. Look for log(0), sqrt(0) or a division by zero, or start elsewhere."
        )
    if np.allclose(together, alone, rtol=1e-3, atol=1e-5 * float(np.max(np.abs(alone), initial=1.0)), equal_nan=True):
        return
    place = int(np.argmax(np.abs(np.asarray(together) - np.asarray(alone))))
    found = (
        f"{type(problem).__name__ if own else model.name}, which gives example {real[place]} of node {node} the loss "
        f"{float(together[place]):.6g} among {len(real)} examples and {float(alone[place]):.6g} alone"
    )
    if clipped:
        raise ValueError(
            "Expected a model whose output for an example does not depend on the others for gradients that are clipped "
            f'example by example, got {found}. Compute every example by itself, or clip with per="batch".'
        )
    warnings.warn(
        f"The loss of an example depends on the others in its batch, and so on the batch size, with {found}.",
        stacklevel=4,
    )


@jax.jit
def _compared(problem: Any, noise: Array, node: Array, chosen: Array) -> tuple[Array, Array, Array]:
    """The losses [b] of a node's examples at the start, and those away from it, together and one by one."""
    data, start = problem.take(problem.local(node)[0], chosen), problem.initial_params()[0]
    w = start + noise

    def one(example: Any) -> Array:
        return problem.losses(w, jax.tree.map(lambda leaf: leaf[None], example))[0]

    return problem.losses(start, data), problem.losses(w, data), jax.lax.map(one, data)


def _search(q: int) -> str:
    """How to find a number among q: one kernel instead of many on an accelerator."""
    return "scan" if backend() == "cpu" else "compare_all" if q <= _COMPARED else "scan_unrolled"


@jax.jit
def _sizes(weight: Array) -> Array:
    return jnp.sum(weight > 0, axis=1, dtype=jnp.int32)


@jax.jit
def _first(rows: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf[0], rows)


def _all_finite(x: Any) -> bool:
    if not jnp.issubdtype(getattr(x, "dtype", None) or np.asarray(x).dtype, jnp.inexact):
        return True  # whole numbers, and keys, which NumPy cannot read
    if np.size(x) <= _SMALL and not (isinstance(x, Array) and not x.is_fully_addressable):
        return bool(np.isfinite(np.asarray(x)).all())
    return bool(_sum_finite(x))


@jax.jit
def _sum_finite(x: Array) -> Array:
    return ~jnp.isnan(jnp.sum(x * 0))  # `all` would make an array of flags as large as x


def check_finite(name: str, leaf: Any, node: np.ndarray | None = None) -> None:
    """Refuse an array [m, ...] with numbers that are not finite; `node` [m] are ids of nodes if not 0 to m - 1."""
    if _all_finite(leaf):
        return
    array = np.asarray(leaf)
    where = tuple(int(k) for k in np.argwhere(~np.isfinite(array))[0])
    place = f"node {where[0] if node is None else node[where[0]]}" + (f", example {where[1]}" if len(where) > 1 else "")
    place += f", entry {where[2:]}" if len(where) > 2 else ""
    raise ValueError(f"Expected finite numbers in {name}, got {array[where]} at {place}.")
