"""Classification by a neural network: the nodes' images, one model for all, cross-entropy.

    f_i(w) = mean_t ln(sum_c e^z_tc) - z_t,b_t + penalty/2 ||w||^2,   z_t = model(w, x_t)

Images are kept as they were read, in bytes where these are bytes, and become numbers where a batch is used. A pass over
all of a node's examples takes them `at_once` at a time, a test `test_batch` images. Nodes are computed `nodes_at_once`
side by side; None is all of them, but one by one on a CPU where a node's batch and parameters are many numbers, since
those of all nodes would leave its caches.

There is no bound on the curvature of such a loss: `curvature` is zero, and whatever needs one refuses that.

Where examples mix (BatchNorm), a batch's statistics are its own, those of a pass over more than `at_once` examples the
pieces' own; in a test they are those of a node's first `calibration` examples. Examples of weight 0 stay out of them.

Axes: m nodes, q examples per node (padded with weight 0), B examples of a batch, N test images, n parameters.
"""

from collections.abc import Callable
from typing import Any, Literal, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jdfl.arrays import ops
from jdfl.base import checks, struct
from jdfl.problems.base import Problem

Augment = Literal["flip-crop"]
_CACHED = 2**15  # numbers of a node that a CPU keeps at hand while it computes with them
_MARGIN = 4  # black pixels around an image that is cropped


@struct.dataclass
class NeuralProblem(Problem):
    """The formula above; data = (images [m, q, *shape] uint8 or float, labels [m, q] int32).

    `shape` is the model's, but for grey images [rows, columns, 1] of a model with three colours, which get all three.
    """

    penalty: Any = None  # [] of the squared norm; None: there is none
    mean: tuple[float, ...] | None = struct.field(pytree_node=False, default=None)  # of channels, subtracted
    deviation: tuple[float, ...] | None = struct.field(pytree_node=False, default=None)  # what they are then divided by
    model: Any = struct.field(pytree_node=False, default=None)  # a jdfl.models.Model
    augment: Augment | None = struct.field(pytree_node=False, default=None)  # how batches are varied
    nodes_at_once: int | None = struct.field(pytree_node=False, default=None)  # None: as suits the device
    at_once: int = struct.field(pytree_node=False, default=500)  # examples of a node
    test_batch: int = struct.field(pytree_node=False, default=1000)
    calibration: int = struct.field(pytree_node=False, default=100)  # no more than the smallest node has

    @property
    def n(self) -> int:
        """The number of parameters."""
        return self.model.n

    @property
    def classes(self) -> int:
        """The number of classes, which the model decides: so many scores has an example.

        Labels count from 0 to one less than that. A node need not have examples of every class, and usually has not
        where a partition is skewed.
        """
        return self.model.classes

    @property
    def personal(self) -> bool:
        """Whether what a node predicts depends on its own parameters, or on its own examples' statistics."""
        return self.n_shared < self.n or self.model.examples_mix

    def each(self, function: Callable[..., Any], *stacked: Any) -> Any:
        """`function` of every node's rows of `stacked`, leaves [m, ...], for `nodes_at_once` nodes side by side."""
        leaves = jax.tree.leaves(stacked)
        m, at_once = leaves[0].shape[0], self.nodes_at_once
        if m == 1:  # products without an axis of one are laid out better
            found = function(*jax.tree.map(lambda leaf: leaf[0], stacked))
            return jax.tree.map(lambda leaf: leaf[None], found)
        if at_once is None:
            many = sum(leaf.size for leaf in leaves) > m * _CACHED
            at_once = 1 if many and jax.default_backend() == "cpu" else m
        if at_once >= m:
            return jax.vmap(function)(*stacked)
        return lax.map(lambda rows: function(*rows), stacked, batch_size=None if at_once == 1 else at_once)

    def inputs(self, images: Array) -> Array:
        """What the model sees of images [B, ...]: bytes to [0, 1], less the mean, over the deviation.

        The result [B, *shape] has the type of the parameters. Mean and deviation are those of the channels, where the
        data are standardised. Grey images are repeated where the model has three colours.
        """
        x, along = images.astype(self.dtype), (1,) * (images.ndim - 1) + (-1,)
        deviation = np.asarray(self.deviation or (1.0,)) * (255 if images.dtype == jnp.uint8 else 1)
        x = x * jnp.asarray(1 / deviation, x.dtype).reshape(along)
        if self.mean is not None:
            shift = np.asarray(self.mean) / np.asarray(self.deviation or (1.0,))
            x = x - jnp.asarray(shift, x.dtype).reshape(along)
        return jnp.broadcast_to(x, (len(x), *self.model.shape))

    def scores(self, w: Array, features: Array) -> Array:
        """The model's scores [B, classes] of images [B, ...]; the largest decides."""
        return self.model.apply(w, self.inputs(features))

    def loss(self, w: Array, example: Any) -> Array:
        """The cross-entropy [] of one example (image, label); ValueError where examples mix."""
        self._check_single()
        return self.losses(w, jax.tree.map(lambda leaf: leaf[None], example))[0]

    def losses(self, w: Array, data: Any) -> Array:
        """The cross-entropy of every example of a batch [B]."""
        z, b = self.scores(w, data[0]), data[1].astype(jnp.int32)
        own = jnp.arange(z.shape[1], dtype=jnp.int32)[None] == b[:, None]
        return jax.nn.logsumexp(z, axis=1) - jnp.sum(jnp.where(own, z, 0.0), axis=1)

    def regulariser(self, w: Array) -> Array:
        """penalty/2 ||w||^2 []."""
        if self.penalty is None:
            return jnp.zeros((), w.dtype)
        return 0.5 * self.penalty * jnp.sum(w * w)

    def value(self, w: Array, data: Any, weight: Array) -> Array:
        """f_i(w) [] from one node's data and weights, a piece at a time."""
        return self._streamed(self._total, w, data, weight) / jnp.sum(weight) + self.regulariser(w)

    def gradient(self, w: Array, data: Any, weight: Array) -> Array:
        """The gradient of f_i at w [n] from one node's data and weights, a piece at a time."""
        # Shares of the weight, and no zeros to add: the compiler can then leave out what only other parts of g need.
        g = self._streamed(jax.grad(self._total), w, data, weight / jnp.sum(weight))
        return g if self.penalty is None else g + jax.grad(self.regulariser)(w)

    def slopes(self, w: Array, data: Any) -> None:
        """None: gradients of single examples have to be formed. ValueError where examples mix: there are none."""
        self._check_single()

    def predict(self, w: Array, data: Any) -> Array:
        """The classes [N] int32 that parameters [n] give the test images; `data` [q, ...] is the node's own."""
        images = cast(Any, self.test)[0]
        size = min(self.test_batch, len(images))
        places = jnp.minimum(jnp.arange(-(-len(images) // size) * size, dtype=jnp.int32), len(images) - 1)
        calibration = self.inputs(data[0][: self.calibration]) if self.model.examples_mix else None

        def classes(place: Array) -> Array:
            scores = self.model.apply(w, self.inputs(images[place]), calibration=calibration)
            return jnp.argmax(scores, axis=1).astype(jnp.int32)

        return lax.map(classes, places.reshape(-1, size)).ravel()[: len(images)]

    def varied(self, key: Array, data: Any) -> Any:
        """A batch as a gradient sees it, every image flipped and shifted on its own where `augment` says so."""
        if self.augment is None:
            return data
        return jax.vmap(_flip_crop)(jax.random.split(key, len(data[0])), data[0]), data[1]

    def activation_bytes(self, examples: int) -> int:
        """Bytes that a gradient of so many examples of one node keeps from its forward pass, found by shapes alone.

        A pass never takes more than `at_once` examples together, so that more of them give no larger number. A run adds
        it up beforehand and refuses what would not fit, where the size of the memory is known.
        """
        size = min(examples, self.at_once)
        data = tuple(jax.ShapeDtypeStruct((size, *leaf.shape[2:]), leaf.dtype) for leaf in self.data)
        w = jax.ShapeDtypeStruct((self.n,), self.dtype)

        def kept(w: Array, data: Any) -> Any:
            return jax.tree.leaves(jax.vjp(lambda w: jnp.sum(self.losses(w, data)), w)[1])

        return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.eval_shape(kept, w, data))

    def check_data(self) -> None:
        """Refuse data, and sizes of pieces, that do not fit the model: ValueError."""
        super().check_data()
        checks.able(("apply", "init"), "a model", "jdfl.models builds one.", model=self.model)
        checks.whole(1, at_once=self.at_once, test_batch=self.test_batch)
        if self.nodes_at_once is not None:
            checks.whole(1, remedy="None takes all nodes at once.", nodes_at_once=self.nodes_at_once)
        images, labels = self.data
        shape, grey = self.model.shape, (*self.model.shape[:-1], 1)
        if images.shape[2:] not in (shape, grey) or labels.shape != self.weight.shape:
            raise ValueError(
                f"Expected images of the model's shape {shape} and one label each, got {images.shape} and "
                f"{labels.shape}. Build the model for the images' shape."
            )
        if self.model.examples_mix:
            fewest = int(np.min(np.asarray(self.sizes)))
            remedy = "They are examples of every node, which BatchNorm is tested with."
            checks.whole(1, fewest, remedy, calibration=self.calibration)

    def _check_single(self) -> None:
        if self.model.examples_mix:
            raise ValueError(
                f"Expected a model whose examples do not mix for gradients of single examples, got {self.model.name} "
                'with batch normalisation. Use norm="group", or clip with per="batch".'
            )

    def _total(self, w: Array, data: Any, weight: Array) -> Array:
        return jnp.dot(self.losses(w, data), weight, precision=ops.HIGHEST)

    def _streamed(self, function: Callable[..., Array], w: Array, data: Any, weight: Array) -> Array:
        """The sum over pieces of one node's examples of `function(w, data, weight)`."""
        q = weight.shape[0]
        pieces = -(-q // self.at_once)
        size = -(-q // pieces)
        place = jnp.arange(pieces * size, dtype=jnp.int32) % q
        weights = jnp.where(jnp.arange(pieces * size) < q, weight[place], 0.0).reshape(pieces, size)
        if self.model.examples_mix:  # what weighs nothing is replaced, for it would count in the statistics
            real = jnp.argsort(weight <= 0, stable=True).astype(jnp.int32)
            count = jnp.maximum(jnp.sum(weight > 0, dtype=jnp.int32), 1)
            place = jnp.where(weights.ravel() > 0, place, real[place % count])
        if pieces == 1:
            return function(w, self.take(data, place) if self.model.examples_mix else data, weight)

        def add(total: Array, piece: tuple[Array, Array]) -> tuple[Array, None]:
            return total + function(w, self.take(data, piece[0]), piece[1]), None

        start = jax.tree.map(jnp.zeros_like, jax.eval_shape(function, w, self.take(data, place[:size]), weights[0]))
        return lax.scan(add, start, (place.reshape(pieces, size), weights))[0]


def _flip_crop(key: Array, image: Array) -> Array:
    """An image [rows, columns, channels] flipped left to right or not, and shifted by up to four pixels into black."""
    flip, shift = jax.random.split(key)
    image = jnp.where(jax.random.bernoulli(flip), image[:, ::-1], image)
    wide = jnp.pad(image, ((_MARGIN, _MARGIN), (_MARGIN, _MARGIN), (0, 0)))
    row, column = jax.random.randint(shift, (2,), 0, 2 * _MARGIN + 1, jnp.int32)
    return lax.dynamic_slice(wide, (row, column, jnp.int32(0)), image.shape)
