"""A model: a pure pair (init, apply) on one flat vector of parameters, without further state.

Algorithms work on w alone. The shared leaves come first, then the local ones, and within each part in the order in
which the model creates them; so a node that sends its shared parameters sends the first `n_shared` entries.

A model has no arrays, is hashable, and equals every model with the same definition: as a static field of a jitted
structure it never causes a second compilation.

Batch normalisation keeps no running averages. In training the statistics are those of the batch; in a test they are
those of a calibration batch, computed at the parameters that are tested: the "precise" statistics of Y. Wu and
J. Johnson, "Rethinking 'Batch' in BatchNorm", 2021, from one batch. If that batch consists of a node's own examples,
the statistics are local: they are never sent or averaged. (PyTorch's BatchNorm keeps running averages instead.)

Axes: n parameters, B examples of a batch, classes; vmap adds a leading axis of nodes.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self

import jax
import jax.numpy as jnp
from jax import Array, lax

from jdfl.base import checks
from jdfl.models.convolution import fast, relaxed

if TYPE_CHECKING:
    from jdfl.models.graph import Layout

Compute = Literal["float32", "bfloat16"]
Shape = tuple[int, ...]
Part = str | tuple[str, ...]
Presets = tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True)
class Maker:
    """`module(**options, rngs=rngs)`, compared by the class of the module and the options.

    Pass it to `from_nnx` instead of a new lambda: models with equal makers are equal and share compiled programs.
    `options` are pairs of a name and a hashable value.
    """

    module: Callable[..., Any]
    options: tuple[tuple[str, Any], ...]

    def __call__(self, rngs: Any) -> Any:
        """A new module with random parameters from the nnx.Rngs."""
        return self.module(**dict(self.options), rngs=rngs)


@dataclass(frozen=True)
class Model:
    """A neural network as a hashable value; built by `mlp`, `cnn`, `resnet18`, `vit` and `from_nnx`.

    Its parameters are one vector w [n]; the nodes share the first `n_shared` of them.
    """

    name: str
    make: Callable[[Any], Any]  # nnx.Rngs -> nnx.Module; equal makes make equal models
    shape: Shape  # of one example
    classes: int
    presets: Presets = ()  # names of splits and the patterns of their shared leaves
    shared: tuple[str, ...] | None = None  # the paths of the shared leaves; None: all of them

    @property
    def paths(self) -> tuple[str, ...]:
        """The name of every leaf in the order of w: the attributes on the way to it, as in "layer1.0.conv1.kernel"."""
        natural = self._layout.paths
        if self.shared is None:
            return natural
        first = set(self.shared)
        return (*self.shared, *(path for path in natural if path not in first))

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """The shape of every leaf, in the order of w, where its entries follow each other, the last axis fastest."""
        known = dict(zip(self._layout.paths, self._layout.shapes))
        return tuple(known[path] for path in self.paths)

    @property
    def n(self) -> int:
        """The number of parameters of the network, the length of w [n]."""
        return sum(map(math.prod, self._layout.shapes))

    @property
    def n_shared(self) -> int:
        """The number of shared parameters, which are the first ones of w; n if nothing was split off."""
        count = len(self.paths if self.shared is None else self.shared)
        return sum(map(math.prod, self.shapes[:count]))

    @property
    def examples_mix(self) -> bool:
        """Whether the scores of an example depend on its batch (BatchNorm), so that single examples have no gradients.

        Its problem refuses clipping per example: clip with `per="batch"`, or use another norm.
        """
        return self._layout.mixes

    @property
    def own(self) -> bool:
        """Whether the module is not one of jdfl's: an instance that was given, or made by a function from elsewhere."""
        module = getattr(self.make, "__module__", type(self.make).__module__)
        return hasattr(self.make, "graphdef") or not module.startswith("jdfl.")

    @property
    def _layout(self) -> "Layout":
        from jdfl.models import graph

        return graph.layout(self.make)

    def split(self, shared: Part) -> Self:
        """The same network with other shared parameters, and w in the corresponding order.

        Args:
            shared: The part that is common to all nodes: the name of a preset, or a tuple of patterns of paths
                ("layer1.*", where * also matches dots). The others stay with every node.

        Raises ValueError for an unknown preset, a pattern that matches no parameter and an empty shared part.
        """
        paths = self._layout.paths
        patterns = shared
        if isinstance(shared, str):
            known = {**dict(self.presets), "all": ("*",)}
            remedy = f"These are the presets of {self.name}; patterns go into a tuple, as in ('layer1.*',)."
            checks.one_of(known, remedy, shared=shared)
            patterns = known[shared]
        first = chosen(paths, patterns, self.name)
        return replace(self, shared=None if len(first) == len(paths) else first)

    def init(self, seed: int) -> Array:
        """Random parameters [n] float32; the same seed gives every leaf the same values in any split.

        Args:
            seed: Seed of the parameters, 0 to 2^32 - 1.

        Raises ValueError for an invalid seed.
        """
        checks.integer(0, 2**32 - 1, seed=seed)
        return self.ravel(_leaves(self.make, jax.random.key(seed)))

    def apply(self, w: Array, x: Array, calibration: Array | None = None) -> Array:
        """Scores [B, classes] of examples, in the type of the parameters.

        Args:
            w: Parameters [n].
            x ([B, *shape]): Examples in floating point.
            calibration ([C, *shape]): The batch from which BatchNorm takes its means and variances at w; None: x. Other
                models ignore it.

        Raises ValueError for shapes that do not fit and examples that are not in floating point.
        """
        checks.shape((self.n,), "One node's parameters; vmap gives the node axis.", w=w)
        for name, batch in (("x", x), ("calibration", calibration)):
            if batch is not None:
                checks.shape((None, *self.shape), f"A batch of {self.name}'s examples.", **{name: batch})
                if not jnp.issubdtype(batch.dtype, jnp.floating):
                    raise ValueError(f"Expected {name} in floating point, got {batch.dtype}. Scale it, as to [0, 1].")

        def scores(w: Array, x: Array) -> Array:
            module = self._layout.module(self.unravel(w))
            if calibration is not None and self.examples_mix:
                module(calibration)
                module.set_attributes(use_running_average=True, raise_if_not_found=False)
            return module(x).astype(w.dtype)

        with relaxed():
            return fast(scores)(w, x)

    def module(self, w: Array) -> Any:
        """The Flax NNX module with the parameters w [n]; ValueError for another shape.

        BatchNorm in it takes the statistics of the batch that it is given.
        """
        checks.shape((self.n,), "Give the parameters of one node, or their mean over the nodes.", w=w)
        return self._layout.module(self.unravel(w))

    def unravel(self, w: Array) -> dict[str, Array]:
        """The leaves of w [..., n] by path, each [..., *its shape]; ValueError for another n.

        The inverse of `ravel`; use it to inspect single layers of `result.params`.
        """
        checks.shape((*w.shape[:-1], self.n), w=w)
        sizes = [math.prod(shape) for shape in self.shapes]
        leaves = lax.split(w, sizes, w.ndim - 1)  # one operation; its transpose is one concatenation
        return {path: leaf.reshape(*w.shape[:-1], *s) for path, leaf, s in zip(self.paths, leaves, self.shapes)}

    def ravel(self, leaves: Mapping[str, Array]) -> Array:
        """The vector w [..., n] of `leaves` [..., *shape] by path; ValueError if they are not exactly this model's.

        The inverse of `unravel`; use it for parameters from elsewhere, since the order of w depends on the split.
        """
        for word, odd in (("no", set(self.paths) - {*leaves}), ("unknown", {*leaves} - set(self.paths))):
            if odd:
                raise ValueError(f"Expected the leaves {', '.join(self.paths)}, got {word} {min(odd)}.")
        lead = jnp.shape(leaves[self.paths[0]])[: -len(self.shapes[0]) or None]
        for path, shape in zip(self.paths, self.shapes):
            checks.shape((*lead, *shape), "", **{path: leaves[path]})
        return jnp.concatenate([leaves[path].reshape(*lead, -1) for path in self.paths], axis=-1)


def chosen(paths: tuple[str, ...], shared: Any, owner: str) -> tuple[str, ...]:
    """The paths of parameters that fit one of the patterns `shared`, in the given order."""
    if not checks.is_a(shared, tuple | list) or not shared or not all(checks.is_a(one, str) for one in shared):
        checks.refuse("shared to be a tuple of patterns", "shared", shared, 'For example shared=("encoder.*",).')
    for pattern in shared:
        if not any(fnmatchcase(path, pattern) for path in paths):
            raise ValueError(
                f"Expected shared to fit parameters of {owner}, got {pattern!r}. It has {', '.join(paths)[:300]}."
            )
    return tuple(path for path in paths if any(fnmatchcase(path, pattern) for pattern in shared))


def computed_in(dtype: Compute) -> Any:
    """The type in which a Flax layer computes; None: that of its parameters and inputs."""
    return None if dtype == "float32" else dtype


@partial(jax.jit, static_argnums=0)
def _leaves(make: Callable[[Any], Any], key: Array) -> dict[str, Array]:
    """Random parameters by path; one program for all splits of a network."""
    from flax import nnx

    from jdfl.models import graph

    with relaxed():
        return graph.parameters(make(nnx.Rngs(key)))


def check_sizes(shape: Shape, classes: int, rank: int | None = None) -> Shape:
    """An example's shape as a tuple, checked."""
    sizes = tuple(shape)
    if not sizes or (rank is not None and len(sizes) != rank):
        wanted = "rows, columns and channels" if rank == 3 else "at least one axis"
        raise ValueError(f"Expected shape with {wanted}, got shape = {shape!r}.")
    for size in sizes:
        checks.integer(remedy="It is an entry of shape.", size=size)
    checks.integer(2, classes=classes)
    return sizes
