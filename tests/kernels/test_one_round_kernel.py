"""A private round of D-PSGD in one kernel, in JAX's interpreter of kernels: XLA's form up to rounding, or that form."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jdfl
from benchmarks import aot
from jdfl import network as nw
from jdfl import problems
from jdfl.algorithms.program import planned
from jdfl.base import keys
from jdfl.base.backend import interpreted
from jdfl.base.streams import Keys
from jdfl.engine import loop, stepping
from jdfl.engine.start import started

NOISY = jdfl.Gradients(batch=1, clip=1.0, mechanism=jdfl.Gaussian(0.5))
ALGORITHM = jdfl.DPSGD(lr=0.05, gradients=NOISY)
SHAPES = [(13, 11, 7), (3, 1, 2)]  # m, n, q


def problem_of(m, n, q, seed=0):
    """Examples of very different sizes, of which some are clipped, and nodes with fewer of them."""
    rng = np.random.default_rng(seed)
    features = (rng.standard_normal((m, q, n)) * 10.0 ** rng.integers(-3, 4, (m, q, 1))).astype(np.float32)
    features[:3] = np.sign(features[:3]) * np.float32([1e-30, 1e30, 3e38])[:, None, None]  # the last overflows: it is 0
    weight = np.where(np.arange(q) < rng.integers(1, q + 1, (m, 1)), rng.choice([0.5, 1, 2], (m, q)), 0).astype(
        np.float32
    )
    targets = rng.standard_normal((m, q)).astype(np.float32)
    one = jnp.ones((m,), jnp.float32)
    return problems.LinearRegression(
        (jnp.asarray(features), jnp.asarray(targets)), jnp.asarray(weight), one, jnp.zeros((n,), jnp.float32)
    )


def after_a_round(form, algorithm, problem, network, x, k=2):
    """The parameters after one round, traced anew, with kernels in this form."""
    program = planned(algorithm, problem, network, 5)
    setting = stepping.setting(program, problem, network, None, Keys.of(keys.typed_key(3)), kernels=form)
    program, carry, _ = loop.start(setting, ())
    setting = replace(setting, program=program)

    def step(state):
        return stepping.step(setting, state, stepping.sample_round(setting, jnp.int32(k)))[0]

    state = jax.tree.map(lambda old: x if old.shape == x.shape else old, carry.state)
    traced = jax.jit(step).trace(state)
    assert ("pallas_call" in str(traced.jaxpr)) == (form is not None)
    return np.asarray(program.params(traced.lower().compile()(state)))


def compared(shape, seed=0, algorithm=ALGORITHM, network=None):
    m, n, _ = shape
    x = jnp.asarray(np.random.default_rng(seed + 1).standard_normal((m, n)), jnp.float32)
    given = problem_of(*shape, seed), network or nw.ring(m, format="padded"), x
    expected, found = (after_a_round(form, algorithm, *given) for form in (None, "interpreted"))
    np.testing.assert_allclose(found, expected, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_round_up_to_rounding(shape):
    compared(shape)


@pytest.mark.rotated(2)
@pytest.mark.parametrize("sampling", ["subset", "epochs", "in order"])
def test_other_samples_and_networks(sampling):
    algorithm = replace(ALGORITHM, lr=0.1, gradients=replace(NOISY, sampling=sampling, adjacency="add-remove"))
    compared((9, 20, 4), 1, algorithm, nw.erdos_renyi(9, 0.5, seed=1, format="padded"))


def test_links_and_nodes_that_are_missing_in_a_round():
    network = nw.link_loss(nw.outages(nw.ring(9, format="padded"), 0.4, 0.5), 0.3)
    compared((9, 20, 4), 2, replace(ALGORITHM, lr=0.1), network)


def test_noise_in_kernels_is_that_of_jax():
    key = keys.typed_key(7)
    for n in (1, 100, 1000):
        expected = np.asarray(jax.random.normal(key, (n,), jnp.float32))
        found = np.asarray(jax.jit(lambda words, n=n: keys.normal(words, n))(tuple(jax.random.key_data(key))))
        np.testing.assert_allclose(found, expected, rtol=0, atol=2.4e-7)
        assert np.mean(found == expected) > 0.9


OTHERS = {
    "an optimizer": replace(ALGORITHM, optimizer=partial(optax.sgd, momentum=0.9)),
    "another order": replace(ALGORITHM, order="adapt-then-combine"),
    "batches": replace(ALGORITHM, gradients=replace(NOISY, batch=2)),
    "a codec": replace(ALGORITHM, codec=jdfl.codecs.Dense("bfloat16")),
}


def kernels_of(algorithm=ALGORITHM, network=None, problem=None):
    problem = problem or aot.regression(aot.Size(13, 11, 7))
    given = algorithm, problem, network or nw.ring(13, format="padded")
    how = dict.fromkeys(("stop", "metrics", "before"))
    with interpreted():
        start = started(*given, key=0, steps=1, every=1, options=jdfl.Options(kernels=True), **how)
    return start.provenance.settings["kernels"].split(", ")


def test_a_run_has_the_guarantee_and_the_counts_of_the_other_form():
    given = ALGORITHM, aot.regression(aot.Size(13, 11, 7)), nw.ring(13, format="padded")
    plain = jdfl.run(*given, steps=4, key=3, metrics=())
    with interpreted():
        result = jdfl.run(*given, steps=4, key=3, metrics=(), options=jdfl.Options(kernels=True))
    assert result.provenance.settings["kernels"] == "one_round"
    assert result.sums == plain.sums
    assert result.guarantee == plain.guarantee
    np.testing.assert_allclose(result.params, plain.params, rtol=1e-5, atol=1e-6)


def test_what_does_not_fit_has_the_other_form():
    assert "one_round" in kernels_of()
    for name, other in OTHERS.items():
        assert "one_round" not in kernels_of(other), name
    for network in (nw.ring(13, format="dense"), nw.delays(nw.ring(13, format="padded"), 2)):
        assert "one_round" not in kernels_of(network=network)
