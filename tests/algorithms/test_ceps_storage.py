"""CEPS with its parameters and messages stored as nonzeros does what it does with all entries in memory."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jdfl
from jdfl.algorithms.program import Program
from jdfl.arrays import nonzeros, ops
from jdfl.engine import loop, stepping
from tests.later import Later
from tests.test_sharding import same

M, N, S = 12, 40, 4
PROBLEM = Later(jdfl.problems.example1, m=M, n=N, s=S, rows=(10, 20))
NETWORK = Later(jdfl.network.erdos_renyi, M, 0.5, seed=1)
BASE = jdfl.CEPS(s=S, rate=0.5, sigma_rule="safe", periods=(2, 3), block=3)
NOISY = {"clip": 5.0, "sigma": 2.0, "mechanism": jdfl.Gaussian(0.1)}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        pytest.param({"codec": jdfl.OneBit(d=80), "own": "sampled", "own_coded": True} | NOISY, marks=pytest.mark.slow),
        pytest.param({"codec": jdfl.Sparse(value="float16"), "own": "always"}, marks=pytest.mark.slow),
        pytest.param({"codec": jdfl.RandomK(k=20)} | NOISY, marks=pytest.mark.slow),
    ],
    ids=["whole vectors", "one bit", "sparse", "random"],
)
def test_the_numbers_are_the_same_up_to_rounding(changes):
    algorithm = replace(BASE, **changes)
    told = {"steps": 12, "every": 12, "key": 3}
    plain, few = (
        jdfl.run(replace(algorithm, storage=kind), PROBLEM(), NETWORK(), **told) for kind in ("dense", "sparse")
    )
    np.testing.assert_allclose(few.params, plain.params, rtol=1e-6, atol=1e-7)  # XLA fuses other operations
    np.testing.assert_array_equal(few.params != 0, plain.params != 0)
    assert few.totals == plain.totals
    assert few.state.w.value.shape == few.state.w.place.shape == (M, S)


@pytest.mark.slow
def test_it_resumes():
    algorithm = replace(BASE, storage="sparse")
    parts = jdfl.run(algorithm, PROBLEM(), NETWORK(), key=3, steps=5)
    whole, again = (jdfl.run(algorithm, PROBLEM(), NETWORK(), key=3, steps=12, resume=part) for part in (None, parts))
    np.testing.assert_array_equal(again.params, whole.params)


@pytest.mark.slow
def test_it_is_the_same_on_several_devices():
    algorithm = replace(BASE, storage="sparse", **NOISY)
    one, many = (
        jdfl.run(algorithm, PROBLEM(), NETWORK(), key=0, steps=7, options=jdfl.Options(devices=mesh))
        for mesh in (None, 5)
    )
    same(one, many)


@pytest.mark.parametrize(
    "changes",
    [
        {"codec": jdfl.Sign()},
        {"codec": jdfl.OneBit(d=80), "phi": "receiver"},
        {"codec": jdfl.OneBit(d=80, side=True)},
        {"codec": jdfl.OneBit(d=80, s=S + 1)},
    ],
)
def test_messages_of_more_nonzeros_are_refused(changes):
    with pytest.raises(ValueError, match=r"at most s nonzeros.*Use storage = 'dense'"):
        jdfl.run(replace(BASE, storage="sparse", **changes), PROBLEM(), NETWORK(), key=0, steps=1)


def test_a_number_that_is_none_is_found():
    algorithm = replace(BASE, storage="sparse", sigma=1e-38, sigma_rule="paper")
    assert jdfl.run(algorithm, PROBLEM(), NETWORK(), key=0, steps=9).ending == "diverged"


@pytest.mark.slow
def test_a_round_has_no_further_array_of_all_entries():
    """Beside u, which changes in its place."""
    m = 40_000
    features = jnp.ones((m, 2, N))
    problem = jdfl.problems.linear_regression(features, features[:, :, 0])
    network = jdfl.network.circulant(m, (1, 2))
    sizes = {}
    for kind in ("dense", "sparse"):
        algorithm = replace(BASE, storage=kind, block=8)
        setting = stepping.setting(Program(algorithm), problem, network, None, jax.random.key(0))
        prepared, carry, _ = jax.eval_shape(loop.start, setting, ())
        setting = setting.replace(algorithm=prepared)
        compiled = loop.advance.lower(carry, setting, jnp.int32(9), 3, 1, ()).compile()
        sizes[kind] = compiled.memory_analysis().temp_size_in_bytes
    assert sizes["sparse"] < 0.75 * sizes["dense"]


@pytest.mark.rotated(2)
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_rows_of_nonzeros(dtype):
    x = jnp.asarray(np.random.default_rng(0).standard_normal((9, 30)), dtype)
    few = nonzeros.largest(x, 5)
    np.testing.assert_array_equal(nonzeros.dense(few), ops.top_s(x, 5))
    rows = jnp.asarray([3, 0, 12])
    np.testing.assert_array_equal(few[rows], ops.top_s(x, 5)[rows])
    senders, weight = jnp.asarray([[1, 2], [0, 8]]), jnp.asarray([[1.0, 0.0], [0.5, 2.0]])
    expected = jnp.stack([few[jnp.asarray([1])][0], 0.5 * few[jnp.asarray([0])][0] + 2 * few[jnp.asarray([8])][0]])
    np.testing.assert_allclose(nonzeros.gathered_sum(senders, weight, few), expected, rtol=1e-2, atol=1e-6)
