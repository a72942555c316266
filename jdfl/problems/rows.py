"""The stacked examples of all nodes: counting them, selecting those of one node, drawing batches, checking them.

Axes: m nodes, q examples per node (padded with weight 0), N test examples, b of several nodes or examples.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Self, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jdfl.base import checks
from jdfl.base.backend import backend
from jdfl.base.names import Names, names_of
from jdfl.devices.processes import held, portion
from jdfl.problems.about import Described

_SMALL = 2**16  # numbers that are looked at on the host, where nothing has to be compiled
_COMPARED = 1024  # examples that all draws are compared with, rather than searched


class Rows(Described):
    """The part of a `Problem` that concerns its examples alone, whatever the loss."""

    data: Any
    weight: Array
    test: Any | None

    @property
    def m(self) -> int:
        """The number of nodes, the length of the first axis of `weight` and of every leaf of `data`.

        For a problem returned by `nodes` it is the number of chosen nodes; inside a run on several devices it is the
        number of nodes of one device.
        """
        return self.weight.shape[0]

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
        return replace(cast(Any, self), about=replace(self.about, nodes=own))

    @property
    def dtype(self) -> Any:
        """The floating-point type of the parameters and of `weight`.

        States of algorithms, gradients and values have it as well. Data may have another type, such as images in bytes.
        Float64 needs JAX_ENABLE_X64=1.
        """
        return self.weight.dtype

    @property
    def sizes(self) -> Array:
        """The number of examples [m] int32 of every node: the number of its positive weights.

        Padding does not count. Batches are drawn from these examples, and privacy reports call them the records of a
        node.
        """
        return _sizes(self.weight)

    def each(self, function: Callable[..., Any], *stacked: Any) -> Any:
        """`function` of every node's rows: all nodes at once, or a few after another.

        Use it instead of `jax.vmap` over nodes: problems whose nodes take much memory compute a few at a time here.

        Args:
            function: The function of one node. It takes that node's rows, leaves [...] without the axis of nodes.
            *stacked: Its arguments for all nodes, trees with leaves [m, ...].

        Returns:
            The results of the function, stacked: leaves [m, ...].
        """
        return jax.vmap(function)(*stacked)

    def local(self, i: Array | np.ndarray | int) -> tuple[Any, Array]:
        """The data (leaves [q, ...]) and weights [q] of node i [], or of several i [b]; ids out of range are clipped.

        `value` and `gradient` take the data of one node. For several nodes leaves are [b, q, ...] and weights [b, q],
        for `jax.vmap`. Padded examples are included, with weight 0.
        """
        return jax.tree.map(lambda leaf: leaf[i], (self.data, self.weight))

    def some_node(self) -> Any:
        """The data of one node, leaves [q, ...]: the first node whose data this process has.

        It serves to inspect the shapes, types and values of real examples before a run. Different processes, each with
        the data of its own nodes, return different nodes.
        """
        one = jax.tree.map(lambda leaf: leaf[:1] if isinstance(leaf, np.ndarray) else leaf, held(self.data))
        return _first(one)

    def minibatch(self, key: Array, data: Any, weight: Array, size: int) -> tuple[Any, Array]:
        """Some of one node's examples, drawn uniformly with replacement.

        An example may occur several times, so such samples do not amplify privacy unless their size is 1. For distinct
        examples use `subset`.

        Args:
            key ([]): Key of this draw, used for nothing else.
            data: The node's examples, leaves [q, ...].
            weight ([q]): Their weights; only examples of positive weight are drawn, with equal probability.
            size: Number of draws.

        Returns:
            The examples, leaves [size, ...], and their weights [size].
        """
        if weight.shape[0] == 1:
            chosen = jnp.zeros((size,), jnp.int32)
        else:
            real = jnp.cumsum(weight > 0, dtype=jnp.int32)  # [q], rises by one at every example that counts
            nth = jax.random.randint(key, (size,), 0, real[-1], jnp.int32)
            chosen = jnp.searchsorted(real, nth, side="right", method=_search(weight.shape[0]))
        return self.take(data, chosen), weight[chosen]

    def subset(self, key: Array, data: Any, weight: Array, size: int) -> tuple[Any, Array]:
        """Distinct examples of one node; all sets of that size are equally likely.

        Args:
            key ([]): Key of this draw, used for nothing else.
            data: The node's examples, leaves [q, ...].
            weight ([q]): Their weights; only examples of positive weight are drawn.
            size: Number of examples, at most the number that the node has. This is not checked here
                (`jdfl.Gradients.check` does it): otherwise padding of weight 0 is included.

        Returns:
            The examples, leaves [size, ...], and their weights [size].
        """
        bits = jnp.where(weight > 0, jax.random.uniform(key, weight.shape, jnp.float32), -1.0)
        chosen = lax.top_k(bits, size)[1]
        return self.take(data, chosen), weight[chosen]

    def take(self, data: Any, chosen: Array) -> Any:
        """Some examples of one node, leaves [b, ...].

        Batches are made with it; a problem whose data have another layout overrides this method.

        Args:
            data: The node's examples, leaves [q, ...].
            chosen ([b]): Positions of the examples, from 0 to q - 1, with or without repetitions.
        """
        return jax.tree.map(lambda leaf: leaf[chosen], data)

    def varied(self, key: Array, data: Any) -> Any:
        """A batch of one node's examples with data augmentation, if the problem has any.

        The base class returns the batch unchanged. Gradients of all examples, tests and metrics use the examples
        without augmentation.

        Args:
            key ([]): Key of all random numbers for the batch.
            data: Examples of the batch, leaves [B, ...].

        Returns:
            The batch with the same shapes and types.
        """
        return data

    def check_data(self) -> None:
        """Refuse data other than leaves [m, q, ...] of finite numbers; a problem with another layout overrides this.

        Padding has to be finite as well, since 0 times NaN is NaN. ValueError names the leaf, the node, the example and
        the entry. `check_problem`, and so every run, calls it.
        """
        m, q = self.weight.shape
        leaves = jax.tree_util.tree_leaves_with_path(self.data)
        if not leaves:
            raise ValueError("Expected data with at least one array, got none.")
        for path, leaf in leaves:
            name = "data" + jax.tree_util.keystr(path)
            if np.shape(leaf)[:2] != (m, q):
                raise ValueError(f"Expected {name} of shape {(m, q)} + an example's, got {np.shape(leaf)}.")
            check_finite(name, held(leaf), portion(m) if held(leaf) is not leaf else None)

    def check_test(self) -> None:
        """Refuse a test set whose structure differs from that of one node's data, or with numbers that are not finite.

        Its leaves are [N, ...], with the same N. ValueError names the leaf. `check_problem` calls it if there is a test
        set.
        """
        shapes = [np.shape(leaf)[2:] for leaf in jax.tree.leaves(self.data)]
        if jax.tree.structure(self.test) != jax.tree.structure(self.data):
            raise ValueError("Expected test with the same structure as data, got another one.")
        leaves = jax.tree_util.tree_leaves_with_path(self.test)
        rows = np.shape(leaves[0][1])[:1]
        for (path, leaf), shape in zip(leaves, shapes):
            name = "test" + jax.tree_util.keystr(path)
            if np.shape(leaf) != (*rows, *shape):
                raise ValueError(f"Expected {name} of shape {(*rows, *shape)}, got {np.shape(leaf)}.")
            if not _all_finite(leaf):
                checks.finite(f"See {name}.", test=leaf)


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
    """Refuse an array with numbers that are not finite.

    Args:
        name: Name of the array in the message.
        leaf ([m, ...]): The array, with a row for every node; arrays of whole numbers are always accepted.
        node ([m]): Ids of the nodes that the rows belong to; None: 0 to m - 1.

    Raises:
        ValueError: It names the first node and example with such a number, its place, and the number.
    """
    if _all_finite(leaf):
        return
    array = np.asarray(leaf)
    where = tuple(int(k) for k in np.argwhere(~np.isfinite(array))[0])
    place = f"node {where[0] if node is None else node[where[0]]}" + (f", example {where[1]}" if len(where) > 1 else "")
    place += f", entry {where[2:]}" if len(where) > 2 else ""
    raise ValueError(f"Expected finite numbers in {name}, got {array[where]} at {place}.")
