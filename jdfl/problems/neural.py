"""Learning by a neural network: one architecture for all nodes, cross-entropy unless another loss is given.

    f_i(w) = mean_t loss(model(w, x_t), y_t) + penalty/2 ||w||^2
    cross-entropy: loss(z, y) = ln(sum_c e^z_c) - z_y;  of a single score z: ln(1 + e^z) - y z

Images are stored as they were read, as bytes where the source has bytes, and are converted to floating point when a
batch is used. A pass over all examples of a node takes `at_once` of them at a time, a test takes `test_batch`.
`nodes_at_once` nodes are computed side by side. None means all of them, except on a CPU where a node's batch and
parameters are many numbers: there the nodes are computed one by one, since together they would not fit the caches.

No bound on the curvature of such a loss is known: `curvature` is zero, and what needs a bound refuses that.

Where examples mix (BatchNorm), every batch has its own statistics, and so has every piece of a pass over more than
`at_once` examples. In a test the statistics are those of a node's first `calibration` examples. Examples of weight 0
never take part in them.

Axes: m nodes, q examples per node (padded with weight 0), B examples of a batch, N test examples, n parameters.
"""

import math
from collections.abc import Callable
from typing import Any, Literal, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jdfl.base import checks, struct
from jdfl.models.convolution import relaxed
from jdfl.problems.base import Problem, decided
from jdfl.problems.streamed import Streamed

Augment = Literal["flip-crop"]
_MARGIN = 4  # black pixels around an image that is cropped


@struct.dataclass
class NeuralProblem(Streamed):
    """Classification by a neural network; data = (features [m, q, *shape] uint8 or float, labels [m, q] int32).

    `shape` is the model's. A model with three colour channels also takes grey images [rows, columns, 1], whose channel
    is repeated. Built by `neural_classification` and `from_model`.
    """

    mean: tuple[float, ...] | None = struct.field(pytree_node=False, default=None)  # of channels, subtracted
    deviation: tuple[float, ...] | None = struct.field(pytree_node=False, default=None)  # what they are then divided by
    model: Any = struct.field(pytree_node=False, default=None)  # a jdfl.models.Model
    augment: Augment | None = struct.field(pytree_node=False, default=None)  # how batches are varied
    calibration: int = struct.field(pytree_node=False, default=100)  # at most the size of the smallest node
    criterion: Callable[[Array, Array], Array] | None = struct.field(pytree_node=False, default=None)
    """loss(output, target) [] of one example; None: cross-entropy."""

    @property
    def n(self) -> int:
        return self.model.n

    @property
    def leaves(self) -> tuple[int, ...]:
        return tuple(map(math.prod, self.model.shapes))

    @property
    def classes(self) -> int:
        """The number of classes, which is the number of scores of the model, or 2 for a single score."""
        return max(2, self.model.classes)

    @property
    def examples_mix(self) -> bool:
        return self.model.examples_mix

    @property
    def personal(self) -> bool:
        return self.n_shared < self.n or self.examples_mix

    def module(self, w: Any) -> Any:
        """The Flax NNX module with the parameters w [n], for predictions outside of a run.

        Its inputs are what the model is given here: bytes divided by 255, and features standardised like those in
        `data`, if they are. For example `problem.module(result.params.mean(axis=0))(x)`.
        """
        return self.model.module(jnp.asarray(w))

    def inputs(self, images: Array) -> Array:
        """Inputs [B, *shape] of the model from images [B, ...]: bytes become [0, 1], less the mean, over the deviation.

        Grey images are repeated where the model has three colour channels.
        """
        x, along = images.astype(self.dtype), (1,) * (images.ndim - 1) + (-1,)
        deviation = np.asarray(self.deviation or (1.0,)) * (255 if images.dtype == jnp.uint8 else 1)
        x = x * jnp.asarray(1 / deviation, x.dtype).reshape(along)
        if self.mean is not None:
            shift = np.asarray(self.mean) / np.asarray(self.deviation or (1.0,))
            x = x - jnp.asarray(shift, x.dtype).reshape(along)
        return jnp.broadcast_to(x, (len(x), *self.model.shape))

    def scores(self, w: Array, features: Array) -> Array:
        return self.model.apply(w, self.inputs(features))

    def loss(self, w: Array, example: Any) -> Array:
        self._check_single()
        return self.losses(w, jax.tree.map(lambda leaf: leaf[None], example))[0]

    def losses(self, w: Array, data: Any) -> Array:
        return self._lost(self.model.apply(w, self.inputs(data[0])), data[1])

    def slopes(self, w: Array, data: Any) -> None:
        """None: gradients of single examples have to be formed. ValueError where examples mix: there are none."""
        self._check_single()

    def predict(self, w: Array, data: Any) -> Array:
        return self._tested(lambda scores, _: decided(scores), w, data)

    def test_loss(self, w: Array, data: Any) -> Array:
        return jnp.mean(self._tested(self._lost, w, data))

    def varied(self, key: Array, data: Any) -> Any:
        if self.augment is None:
            return data
        return jax.vmap(_flip_crop)(jax.random.split(key, len(data[0])), data[0]), data[1]

    def check_data(self) -> None:
        super().check_data()
        checks.able(("apply", "init"), "a model", "jdfl.models builds one.", model=self.model)
        images, labels = self.data
        shape, grey = self.model.shape, (*self.model.shape[:-1], 1)
        if images.shape[2:] not in (shape, grey) or labels.shape != self.weight.shape:
            raise ValueError(
                f"Expected images of the model's shape {shape} and one label each, got {images.shape} and "
                f"{labels.shape}. Build the model for the images' shape."
            )
        if self.examples_mix:
            fewest = int(np.min(np.asarray(self.sizes)))
            remedy = "It is the number of every node's examples from which BatchNorm takes its statistics in a test."
            checks.integer(1, fewest, remedy, calibration=self.calibration)

    def _tested(self, function: Callable[[Array, Array], Array], w: Array, data: Any) -> Array:
        """`function(outputs, targets)`, results [B, ...], of all test examples [N, ...]."""
        features, targets = cast(Any, self.test)
        calibration = self.inputs(data[0][: self.calibration]) if self.examples_mix else None

        def one(place: Array) -> Array:
            found = self.model.apply(w, self.inputs(features[place]), calibration=calibration)
            return function(found, targets[place])

        return self._in_batches(one)

    def _lost(self, outputs: Array, targets: Array) -> Array:
        """The losses [B] of outputs [B, ...] and targets [B]."""
        if self.criterion is not None:
            with relaxed():
                found = jax.vmap(self.criterion)(outputs, targets)
            return found.reshape(len(targets)).astype(outputs.dtype)
        if outputs.ndim == 1 or outputs.shape[1] == 1:
            z = outputs.reshape(-1)
            return jax.nn.softplus(z) - targets.astype(z.dtype) * z
        own = jnp.arange(outputs.shape[1], dtype=jnp.int32)[None] == targets.astype(jnp.int32)[:, None]
        return jax.nn.logsumexp(outputs, axis=1) - jnp.sum(jnp.where(own, outputs, 0.0), axis=1)

    def _check_single(self) -> None:
        if self.examples_mix:
            raise ValueError(
                f"Expected a model whose examples do not mix for gradients of single examples, got {self.model.name} "
                'with batch normalisation. Use norm="group", or clip with per="batch".'
            )


@struct.dataclass
class NeuralRegression(NeuralProblem):
    """Regression by a neural network; data = (features [m, q, *shape], targets [m, q] float).

    The loss is half the squared error of the model's output, unless another one is given. Built by `from_model`.
    """

    @property
    def classes(self) -> int:
        return 0

    scores = Problem.scores  # so that there is no accuracy
    predict = Problem.predict

    def predictions(self, w: Array, features: Any) -> Array:
        return self.model.apply(w, self.inputs(features)).reshape(-1)

    def _lost(self, outputs: Array, targets: Array) -> Array:
        if self.criterion is not None:
            return super()._lost(outputs, targets)
        return 0.5 * jnp.square(outputs.reshape(-1) - targets)


def _flip_crop(key: Array, image: Array) -> Array:
    """An image [rows, columns, channels] flipped left to right or not, and shifted by up to four pixels into black."""
    flip, shift = jax.random.split(key)
    image = jnp.where(jax.random.bernoulli(flip), image[:, ::-1], image)
    wide = jnp.pad(image, ((_MARGIN, _MARGIN), (_MARGIN, _MARGIN), (0, 0)))
    row, column = jax.random.randint(shift, (2,), 0, 2 * _MARGIN + 1, jnp.int32)
    return lax.dynamic_slice(wide, (row, column, jnp.int32(0)), image.shape)
