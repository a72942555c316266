"""DO-ADP against a loop over nodes, its laws, and what it says of privacy."""

from dataclasses import replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jdfl
from jdfl.algorithms import Theorem1
from jdfl.algorithms.program import planned
from jdfl.codecs import round_trip
from jdfl.engine.start import check_settings
from tests.algorithms.play import ROUNDS, M, N, course, direct, example, matrices, network, round_of
from tests.reference import compressed
from tests.reference.doadp import doadp as reference
from tests.refused import all_refused, refused

KEY = 11
NOISY = jdfl.Gradients(batch=1, clip=0.5, mechanism=jdfl.Gaussian(0.7))
TOP, LEVEL = 4, 0.15  # of codec and trigger


def top_in_float32(z):
    """Entries travel as float32."""
    return compressed.top(TOP)(z).astype(np.float32).astype(float)


def drawn(gradients, problem, dtype=np.float64):
    """Every round's examples (features [R, m, n], targets [R, m]) and noise [R, m, n], by the keys of a run."""

    def one(k):
        context = round_of(KEY, k, network().graph, jnp.arange(M, dtype=jnp.int32))
        round = direct(context, problem, gradients)
        x = jnp.zeros((M, N), dtype)
        exact = replace(gradients, mechanism=None)
        (features, target), _, _ = gradients.sample(round)
        return features[:, 0], target[:, 0], gradients(x, round) - exact(x, round)

    return [np.asarray(part) for part in jax.jit(jax.vmap(one))(jnp.arange(ROUNDS, dtype=jnp.int32))]


def shortened(g, norm):
    return np.clip(g, -0.5, 0.5) if norm == "entries" else g * min(1, 0.5 / np.linalg.norm(g))


@pytest.mark.parametrize(("start", "norm", "trigger"), [("zero", "entries", None), ("x", "l2", LEVEL)])
def test_agrees_with_a_loop_over_nodes(start, norm, trigger):
    """With a trigger active nodes send only what exceeds it, and what is held back was released all the same."""
    with jax.enable_x64(True):
        x0, gradients = np.linspace(-1, 1, N), replace(NOISY, norm=norm)
        problem, W = replace(example(np.float64), start=jnp.asarray(x0)), matrices(network(), KEY)[0]
        given = {"lr": 0.05, "gamma": 0.4, "beta": 0.3, "p": 0.7, "codec": jdfl.Sparse(s=TOP), "trigger": trigger}
        algorithm = jdfl.DOADP(gradients=gradients, start=start, **given)
        params, first, states, infos = course(algorithm, problem, network(), KEY)
        features, target, noise = drawn(gradients, problem)
    awake = np.asarray(infos.grads).astype(bool)

    def gradient(k, i, x):
        a = features[k, i]
        return shortened(a * (a @ x - target[k, i]), norm) + noise[k, i]

    rule = {"lr": 0.05, "gamma": 0.4, "beta": 0.3, "zero": start == "zero", "trigger": trigger}
    expected = reference(gradient, awake, W, x0, top_in_float32, **rule)
    np.testing.assert_allclose(params, expected, rtol=1e-9, atol=1e-9)
    assert 0.5 < awake.mean() < 0.85
    np.testing.assert_array_equal(infos.releases, awake)
    hats = np.concatenate([first.hat[None], states.hat])
    sends = (hats[1:] != hats[:-1]).any(axis=2)
    degree = np.asarray(network().graph.out_degree)
    np.testing.assert_array_equal(infos.sent["model"], sends * degree)
    if trigger is None:
        np.testing.assert_array_equal(sends, awake)
    else:
        assert not (sends & ~awake).any()
        assert 0.1 < sends.sum() / awake.sum() < 0.9


def test_without_momentum_noise_and_sleep_it_is_choco_sgd():
    with jax.enable_x64(True):
        plain, problem = jdfl.Gradients(), example()
        same = {"lr": 0.05, "gamma": 0.3, "gradients": plain, "codec": jdfl.Sparse(s=TOP)}
        ours, *_ = course(jdfl.DOADP(beta=0.0, p=1.0, **same), problem, network())
        theirs, *_ = course(jdfl.CHOCO(order="combine-then-adapt", **same), problem, network())
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)


def test_gradients_of_active_nodes_alone_give_the_same():
    problem, gradients = example(np.float32), jdfl.Gradients(clip=0.5)
    method = jdfl.DOADP(lr=0.05, gamma=0.4, p=0.5, gradients=gradients, codec=jdfl.Sparse(s=N))
    every, some = (course(replace(method, block=block), problem, network()) for block in (None, 2))
    np.testing.assert_allclose(some[0], every[0], rtol=0, atol=1e-5)
    np.testing.assert_array_equal(some[3].grads, every[3].grads)


def test_what_arrives_of_top_k_is_what_its_messages_say():
    draw = np.random.default_rng(0)
    x = np.round(draw.standard_normal((6, 200)), 1).astype(np.float32)  # ties
    x[0, 5], x[1, 7], x[2], x[3, :100] = np.nan, -np.inf, 0.0, -0.0
    keys = jax.random.split(jax.random.key(0), 6)
    codecs = jdfl.Sparse(share=0.3, value="float16"), jdfl.RandomK(k=7, scaled=True)
    for codec in codecs:
        wire = codec.prepare(keys[0], jnp.arange(6), 200, 200, x.dtype)
        np.testing.assert_array_equal(jax.jit(codec.arrived)(keys, x, wire), jax.jit(round_trip)(wire, keys, x))
        assert codec.direct
    assert not jdfl.Sparse(s=3, value="int8").direct


def test_rare_activity_is_warned_of():
    with pytest.warns(UserWarning, match=r"p = 0\.3 is below 1/2"):
        check_settings(jdfl.DOADP(p=0.3), example(np.float32), network())


def test_theorem_is_its_formula_and_its_inverse():
    theorem = Theorem1(p=0.8, share=0.3, steps=120_000, records=20_000, clip=2.0, delta0=1e-6)
    square = 160 * 0.3 * 0.8**2 * 120_000 * np.log(1.25e6) * 2.0**2 / (20_000**2 * 0.01**2)
    assert theorem.sigma(0.01) == pytest.approx(np.sqrt(square), rel=1e-12)
    assert theorem.epsilon(theorem.sigma(0.37)) == pytest.approx(0.37, rel=1e-12)
    assert theorem.multiplier(0.01) == pytest.approx(theorem.sigma(0.01) / 4)
    assert theorem.delta(0.5) == pytest.approx(1 - (1 - 0.5 / np.sqrt(5)) * (1 - 0.8e-6) ** 120_000)
    assert all(line.endswith(": holds") for line in theorem.conditions(0.01))
    short = replace(theorem, steps=100)
    assert "DOES NOT HOLD" in short.conditions(1.0)[1]
    for epsilon in (1.5, 0.0):
        with refused(epsilon=epsilon):
            theorem.sigma(epsilon)


def test_published_noise_and_what_it_claims():
    problem = example(np.float32)
    q = int(np.min(np.asarray(problem.sizes)))
    algorithm = jdfl.DOADP(gradients=NOISY, codec=jdfl.Sparse(s=TOP))
    paper = {"steps": 50, "epsilon": 0.5, "accounting": "paper"}
    told = jdfl.calibrate(algorithm, problem, network(), **paper)
    theorem = Theorem1(p=0.8, share=TOP / N, steps=50, records=q, clip=0.5)
    assert told.gradients.mechanism.multiplier == pytest.approx(theorem.multiplier(0.5))
    report = jdfl.account_plan(told, problem, network(), steps=50, accounting="paper")
    assert not report.sound
    assert report.published is not None
    assert report.published["epsilon"] == pytest.approx(0.5)
    assert report.published["delta"] == pytest.approx(theorem.delta(0.5))
    most = int(np.max(jdfl.planned_releases(told, problem, network(), steps=50)))
    sampled = jdfl.privacy.Sampled("subset", 1, q)
    spent = jdfl.privacy.epsilon(jdfl.Gaussian(report.sound_multiplier).event(), most, report.delta, sampled=sampled)
    assert 0.4 < spent <= 0.5001
    with refused(epsilon=2):
        jdfl.calibrate(algorithm, problem, network(), **paper | {"epsilon": 2.0})
    for other in (replace(NOISY, batch=2), replace(NOISY, adjacency="add-remove")):
        with refused("Theorem 1"):
            jdfl.calibrate(replace(algorithm, gradients=other), problem, network(), **paper)
    with refused("accounting"):
        jdfl.calibrate(jdfl.DPSGD(gradients=NOISY), problem, network(), **paper)


def test_only_active_rounds_count_and_no_sparsity_amplifies():
    problem = example(np.float32)
    made = [jdfl.DOADP(p=p, gradients=NOISY, codec=jdfl.Sparse(s=s)) for p, s in ((1.0, N), (0.6, N), (0.6, 1))]
    assert 15 < np.max(jdfl.planned_releases(made[1], problem, network(), steps=40)) < 35
    assert len({one.privacy(problem).event for one in made}) == 1


def test_iota_is_larger_than_every_degree():
    base = jdfl.network.circulant(20, (1, 2, 3))
    W = np.asarray(jdfl.network.as_dense(jdfl.network.laplacian(base, 8.0).graph))
    L = 6 * np.eye(20) - (np.asarray(jdfl.network.as_dense(base.graph)) > 0) * (1 - np.eye(20))
    np.testing.assert_allclose(W, np.eye(20) - L / 8, atol=1e-6)
    all_refused(
        (lambda: jdfl.network.laplacian(base, 6.0), "iota = 6.0"),
        (lambda: jdfl.network.laplacian(jdfl.network.k_in(M, 2, seed=1)), "undirected"),
        (lambda: jdfl.network.laplacian(jdfl.network.link_loss(network(), 0.1)), "fixed"),  # pyright: ignore[reportArgumentType]
    )


def test_the_guarantee_is_the_same_as_without_and_theorem_1_is_silent():
    problem = example(np.float32)
    plain = jdfl.DOADP(gradients=NOISY, codec=jdfl.Sparse(s=TOP))
    held = replace(plain, trigger=LEVEL)
    told, before = (planned(one, problem, network(), 40).privacy(problem) for one in (held, plain))
    assert told.claimed
    assert replace(told, published=None) == replace(before, published=None)
    assert before.published is not None
    assert told.published is None
    with refused("trigger"):
        jdfl.calibrate(held, problem, network(), steps=40, epsilon=0.5, accounting="paper")


@jdfl.base.struct.dataclass
class Leaky(jdfl.DOADP):
    """What it sends has noise, but when it is sent, or how much it must differ, reads the gradient before the noise."""

    title: ClassVar[str] = "Leaky"

    def step(self, state: Any, round: Any) -> Any:
        """One round."""
        bare = jnp.linalg.norm(replace(self.gradients, mechanism=None)(state.x, round), axis=1)
        x = state.x - self.lr * self.gradients(state.x, round)
        hat = round.publish(x, state.hat, **({"over": bare} if self.start == "x" else {"by": bare > LEVEL}))
        return state._replace(x=x, hat=hat)


@pytest.mark.parametrize("start", ["x", "zero"])
def test_a_threshold_that_reads_records_gets_no_epsilon(start):
    problem = example(np.float32)
    leaks = planned(Leaky(gradients=NOISY, start=start), problem, network(), 7).privacy(problem)
    assert not leaks.claimed
    assert "depends on records" in leaks.reason


def test_a_threshold_that_reads_records_is_a_path_to_what_is_sent():
    found = jdfl.paths(Leaky(gradients=NOISY), example(np.float32), network(), steps=3)
    assert "depends on records" in found["message model"]
