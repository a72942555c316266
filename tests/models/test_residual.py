"""ResNet-18 with both norms obeys the laws of every network."""

import jax
import numpy as np
import pytest

from tests.models.laws import LAWS, compiled, loss
from tests.models.small import examples, small


@pytest.fixture(scope="module", params=["batch", pytest.param("group", marks=pytest.mark.slow)])
def case(request):
    """The small network with either norm."""
    return compiled(request.param)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_law(law, case):
    law(case)


@pytest.mark.slow
def test_gradients_of_narrow_networks_do_not_explode():
    """Also where images have one place left in the last layer, and groups of two numbers would norm to their signs."""
    model = small("group", shape=(8, 8, 1), width=8)
    gradient = jax.jit(jax.grad(loss(model)))
    for seed in range(4):
        slopes = model.unravel(np.asarray(gradient(model.init(seed), examples(model, 4, seed=seed))))
        longest = {path: np.linalg.norm(slope) for path, slope in slopes.items() if path.endswith("kernel")}
        assert max(longest.values()) < 10 * longest["head.kernel"]
