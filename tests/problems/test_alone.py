"""Models and problems of one's own are tried on a few examples together and one by one."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import jdfl
from jdfl.base import struct
from tests.refused import all_refused, refused

draw = np.random.default_rng(0)
X, y = draw.normal(size=(60, 3)).astype(np.float32), np.arange(60) % 2
RING = jdfl.network.ring(3)
CLIPPED = jdfl.DPSGD(gradients=jdfl.Gradients(clip=1e3))


class Dense(nnx.Module):
    """One layer, after what `first` makes of a batch."""

    def __init__(self, first: Any) -> None:
        self.first, self.layer = first, nnx.Linear(3, 2, rngs=nnx.Rngs(0))

    def __call__(self, x: Any) -> Any:
        return self.layer(self.first(x))


MIXING = {
    "centred": lambda x: x - x.mean(axis=0),
    "scaled": lambda x: x / len(x),
    "by place": lambda x: x * jnp.arange(1.0, 1.0 + len(x))[:, None],
    "drawn": lambda x: x + jax.random.normal(jax.random.key(0), x.shape),
}


@pytest.mark.parametrize("first", MIXING)
def test_a_model_whose_examples_depend_on_one_another_is_refused_where_they_are_clipped(first):
    model = Dense(MIXING[first])
    model.layer.kernel[...] = 0 * model.layer.kernel[...]  # which hides nothing
    problem = jdfl.from_model(model, X, y, 3)
    with refused("model", "Dense", 'per="batch"'):
        CLIPPED.check(problem, RING)
    for gradients in (jdfl.Gradients(), jdfl.Gradients(clip=1.0, per="batch")) if first == "drawn" else ():
        with pytest.warns(UserWarning, match="depends on the others"):
            jdfl.DPSGD(gradients=gradients).check(problem, RING)


@struct.dataclass
class Own(jdfl.problems.Problem):
    """Least squares, whose losses are less the mean of the features in the batch."""

    mixes: bool = struct.field(pytree_node=False, default=True)
    at: float = struct.field(pytree_node=False, default=0.0)
    most: Any = np.float32(-np.inf)  # up to which first feature losses are NaN where w has left the start

    @property
    def n(self):
        return 3

    def losses(self, w, data):
        A, b = data
        gone = (jnp.sum(jnp.abs(w)) > 1e-3) & (A[0, 0] <= self.most)
        A = A - A.mean(axis=0, keepdims=True) if self.mixes else A
        return (A @ w - b) ** 2 / 2 + self.at + jnp.where(gone, jnp.nan, 0.0)

    def loss(self, w, example):
        return self.losses(w, jax.tree.map(lambda leaf: leaf[None], example))[0]


def own(broken: int = 0, **fields: Any) -> Own:
    """With some nodes whose losses are NaN where w has left the start."""
    most = sorted([-np.inf, *X[::20, 0]])[broken]
    data = X.reshape(3, 20, 3), y.reshape(3, 20).astype(np.float32)
    ones = np.ones((3, 20), np.float32)
    return Own(data=data, weight=ones, curvature=ones[:, 0], most=np.float32(most), **fields)


def test_problems_of_one_s_own_are_tried_as_well():
    ceps = jdfl.CEPS(s=2, mechanism=jdfl.Gaussian(1.0), clip=1.0, sigma=1.0)
    all_refused(
        *((lambda method=method: jdfl.run(method, own(), RING, steps=1), "Own") for method in (CLIPPED, ceps)),
        (lambda: CLIPPED.check(own(mixes=False, at=float("nan")), RING), "finite losses"),
    )
    CLIPPED.check(own(mixes=False), RING)
    for made in (Dense(lambda x: x - x.mean(axis=1, keepdims=True)), "mlp"):
        CLIPPED.check(jdfl.from_model(made, X, y, 3), RING)


def test_gradients_that_count_as_zero_are_reported_and_a_run_without_noise_ends(monkeypatch):
    monkeypatch.setattr("jdfl.algorithms.algorithm.check_examples", lambda *_, **__: None)
    plain = jdfl.run(CLIPPED, own(mixes=False, broken=3), RING, steps=9)
    assert (plain.ending, plain.rounds) == ("diverged", 1)
    noisy = jdfl.DPSGD(gradients=jdfl.Gradients(clip=1.0, mechanism=jdfl.Gaussian(1.0)))
    result = jdfl.run(noisy, own(mixes=False, broken=1), RING, steps=2)
    assert result.ending == "steps"  # whose end would tell of the data
    assert any("20 of 60 examples are not finite" in one and "at 1 of 3 nodes" in one for one in result.warnings)
    assert not any("not finite" in one for one in jdfl.run(noisy, own(mixes=False), RING, steps=2).warnings)


@pytest.mark.rotated(2)
@pytest.mark.parametrize(("per", "metrics"), [("example", None), ("batch", [])])
def test_gradients_that_count_as_zero_though_losses_are_finite_are_reported(per, metrics):
    """And nothing else is, whatever is recorded."""

    def loss(w, example):
        x, high = example
        odd = jnp.where(high, 0.0, 1.0) * (1 + w[0] ** 2)
        return jnp.sum((w - x) ** 2) + jnp.sqrt(odd)  # whose derivative is 0 * inf

    high = np.zeros((3, 20), np.int32)
    high[1, 2:9] = high[2, 5] = 1
    problem = jdfl.from_loss(loss, jnp.zeros(3), (X.reshape(3, 20, 3), high))
    method = jdfl.DPSGD(gradients=jdfl.Gradients(clip=1.0, per=per))
    (told,) = jdfl.run(method, problem, RING, steps=2, metrics=metrics).warnings
    assert "gradients of 8 of 60 examples, at 2 nodes, are not finite" in told
    fine = jdfl.from_loss(loss, jnp.zeros(3), (X.reshape(3, 20, 3), 0 * high))
    assert not jdfl.run(method, fine, RING, steps=2, metrics=metrics).warnings
