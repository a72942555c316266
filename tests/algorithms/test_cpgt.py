"""CPGT: against its loop, what it keeps and what it is without noise, and the epsilon of so many rounds."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jdfl
from jdfl.algorithms import cpgt
from jdfl.algorithms.cpgt import CPGT, calibrated
from jdfl.algorithms.program import planned
from jdfl.engine.start import check_settings
from tests.algorithms.play import ROUNDS, M, N, course, example, gradient_of, matrices, network
from tests.algorithms.pushing import KEY, follow
from tests.algorithms.test_compressed import CODECS, WIRE, float32, quarters
from tests.algorithms.test_dpdo import laplace
from tests.reference import laplace_rivals as reference

CLIP = 1.5
CLIPPED = jdfl.Gradients(clip=CLIP, per="batch")
RATES = {"lr": 0.03, "gamma": 0.3, "decay": 0.97}
NOISY = CPGT(noise_x=0.02, noise_y=0.1, gradients=CLIPPED, **RATES)


def weights(net):
    """W [m, m] with rows that sum to one in float64: what the method makes of the float32 diagonal's rounding."""
    W = matrices(net, jax.random.key(KEY), 1)[0]
    return W + np.diag(1 - W.sum(axis=1))


@pytest.mark.parametrize(
    ("codec", "noise"),
    [("exact", (0.02, 0.1)), ("top 3", (0.02, 0.1)), ("top 3", None)],
    ids=["exact, noisy", "top 3, noisy", "top 3"],
)
def test_it_agrees_with_its_loop(codec, noise):
    wire, compress = CODECS[codec]
    with jax.enable_x64(True):
        problem, net = example(), network()
        algorithm = NOISY.replace(codec=wire)
        if noise is None:
            algorithm = algorithm.replace(noise_x=None, noise_y=None)
        _, (params, _, states, _) = follow(algorithm, problem, net)
        drawn = laplace(cpgt._NOISE_X), laplace(cpgt._NOISE_Y)
        x, y, g = reference.cpgt(
            gradient_of(problem),
            weights(net),
            N,
            drawn,
            compress if codec == "exact" else float32(compress),
            noise=noise or (0.0, 0.0),
            clip=CLIP,
            **RATES,
        )
        assert np.abs(x).max() > 0.1
        np.testing.assert_allclose(np.asarray(params), x, rtol=0, atol=1e-9)
        np.testing.assert_allclose(np.asarray(states.y), y, rtol=0, atol=1e-9)
        np.testing.assert_allclose(np.asarray(states.g), g, rtol=0, atol=1e-9)


def test_without_noise_and_loss_it_is_gradient_tracking_that_combines_and_then_adapts():
    with jax.enable_x64(True):
        problem, net = example(), network()
        params, *_ = course(CPGT(lr=0.03, gamma=1.0, codec=WIRE), problem, net)
        expected = reference.gradient_tracking(gradient_of(problem), weights(net), N, ROUNDS, lr=0.03)
        np.testing.assert_allclose(params, expected, rtol=0, atol=1e-12)


def test_the_mean_tracker_is_the_mean_gradient_whatever_noise_and_codec_do():
    with jax.enable_x64(True):
        algorithm = NOISY.replace(codec=jdfl.Sparse(s=2, value="int4"))
        program, (params, start, states, _) = follow(algorithm, example(), quarters())
        x, y, g = np.asarray(params), np.asarray(states.y), np.asarray(states.g)
        np.testing.assert_allclose(y.mean(axis=1), g.mean(axis=1), rtol=0, atol=1e-13)
        assert np.abs(y - g).max() > 0.1
        np.testing.assert_array_equal(start.y, start.g)
        moved = np.diff(x.mean(axis=1), axis=0)
        np.testing.assert_allclose(moved, -algorithm.lr * y[:-1].mean(axis=1), rtol=0, atol=1e-13)
        seen = np.asarray(program.visible(jax.tree.map(lambda leaf: leaf[-1], states)))
        np.testing.assert_array_equal(seen, np.hstack([states.x_hat[-1], states.y_hat[-1]]))


def test_it_finds_the_optimum_with_a_tenth_of_the_entries():
    with jax.enable_x64(True):
        problem, net = example(n=20, rows=(40, 60)), jdfl.network.ring(M)
        algorithm = CPGT(lr=0.03, gamma=0.1, codec=jdfl.Sparse(share=0.1))
        params, *_ = course(algorithm, problem, net, rounds=3000)
        A, b = (np.asarray(leaf) for leaf in problem.data)
        share = np.asarray(problem.weight) / np.asarray(problem.weight).sum(axis=1, keepdims=True)
        best = np.linalg.solve(np.einsum("iq,iqa,iqb->ab", share, A, A), np.einsum("iq,iqa,iq->a", share, A, b))
        np.testing.assert_allclose(params[-1], np.tile(best, (M, 1)), atol=1e-6)


def test_noise_calibrated_for_one_round_is_on_both_messages():
    problem = example(np.float32)
    algorithm = calibrated(NOISY, problem, 1, 0.5)
    assert algorithm.noise_x == algorithm.noise_y == pytest.approx(2 * 2 * CLIP * math.sqrt(N) / 0.5)
    check_settings(algorithm, problem, network())
    told = planned(algorithm, problem, network(), 1).privacy(problem)
    assert 1 / told.event.multipliers[0] == pytest.approx(0.25)


@pytest.mark.parametrize("decay", [1.0, 0.999], ids=["constant", "fading"])
def test_calibrated_noise_spends_epsilon_in_its_rounds_half_on_either_message(decay):
    problem, steps, total = example(np.float32), 2000, 0.7
    algorithm = calibrated(NOISY.replace(decay=decay), problem, steps, total)
    told = planned(algorithm, problem, network(), steps).privacy(problem)
    spent = math.fsum(1 / z for z in told.event.multipliers)
    assert spent <= total
    assert spent == pytest.approx(total, rel=1e-6)
    k, fades = np.arange(steps), decay ** np.arange(steps)
    longest = 2 * CLIP * math.sqrt(N)
    by_hand = longest * (algorithm.lr * k / (algorithm.noise_x * fades) + 1 / (algorithm.noise_y * fades))
    np.testing.assert_allclose(1 / np.asarray(told.event.multipliers), by_hand, rtol=1e-6)
    assert (longest / (algorithm.noise_y * fades)).sum() == pytest.approx(total / 2, rel=1e-6)
    assert told.sensitivity == pytest.approx(max(longest, longest * algorithm.lr * (steps - 1)), rel=1e-6)
    more = planned(algorithm, problem, network(), steps + 50).privacy(problem)
    assert more.event.multipliers[:steps] == told.event.multipliers


def test_the_report_of_a_long_run_is_its_epsilon():
    problem, net, steps = example(np.float32), network(), 120_000
    algorithm = calibrated(NOISY.replace(decay=1.0), problem, steps, 1.0)
    report = jdfl.account_plan(algorithm, problem, net, steps=steps, delta=1e-5)
    assert report.epsilon_pure == pytest.approx(1.0, rel=1e-6)
    assert report.epsilon <= report.epsilon_pure <= 1.0
    assert (report.unit, report.adjacency, report.observer) == ("node", "replace-one", "all messages")


def test_worlds_that_show_the_same_are_apart_by_the_reported_changes_at_most_and_attain_them():
    """Steered by messages that do not depend on data, x and y of the two worlds drift apart as derived."""
    steps = 6
    net = jdfl.network.from_edges([], M, connected=False)  # nobody hears anybody, so all that others show is the same
    with jax.enable_x64(True):
        problem = example()
        A, b = problem.data
        even = jnp.ones_like(A[1]) / math.sqrt(N)
        worlds = [problem.replace(data=(A.at[1].set(even), b.at[1].set(far))) for far in (1e3, -1e3)]
        algorithm = NOISY.replace(noise_x=None, noise_y=None, codec=WIRE)
        one, two = (course(algorithm, world, net, rounds=steps) for world in worlds)
        x, y = (np.abs(np.asarray(a) - np.asarray(b)).sum(axis=2) for a, b in ((one[0], two[0]), (one[2].y, two[2].y)))
        longest = 2 * CLIP * math.sqrt(N)
        np.testing.assert_allclose(x[:, 1], longest * algorithm.lr * np.arange(1, steps + 1), rtol=1e-9)
        np.testing.assert_allclose(y[:, 1], longest, rtol=1e-9)
        assert not np.delete(x, 1, axis=1).any()


def test_nothing_is_claimed_without_noise_clip_or_schedule():
    problem, net = example(np.float32), network()
    assert planned(CPGT(), problem, net, 5).privacy(problem).reason == "no noise is added"
    assert "schedule" in NOISY.privacy(problem).reason
    bare = NOISY.replace(gradients=jdfl.Gradients())
    told = planned(bare, problem, net, 5).privacy(problem)
    assert not told.claimed
    assert "not clipped" in told.reason
    with pytest.raises(ValueError, match=r"not clipped.*Gradients"):
        jdfl.account_plan(bare, problem, net, steps=5)
    with pytest.raises(ValueError, match="clip for noise, got clip = None"):
        calibrated(bare, problem, 5, 1.0)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"lr": -1.0}, r"lr > 0 and finite, got lr = -1\.0"),
        ({"gamma": 0.0}, r"gamma in \(0, 1\], got gamma = 0\.0"),
        ({"decay": 1.1}, r"decay in \(0, 1\], got decay = 1\.1"),
        ({"noise_x": None}, r"both messages.*got noise_x = None and noise_y = 0\.1"),
        ({"noise_y": -0.1}, r"noise_y > 0 and finite, got noise_y = -0\.1"),
        ({"noise_x": np.ones(2)}, r"noise_x of shape \(\), got \(2,\)"),
        ({"gradients": CLIPPED.replace(mechanism=jdfl.Laplace(1.0))}, r"without noise for CPGT.*Give noise_x and"),
        ({"codec": jdfl.OneBit(d=120)}, r"CPGT .*got codec = OneBit.*Use Sparse"),
    ],
    ids=lambda value: "" if isinstance(value, str) else "-".join(value),
)
def test_settings_out_of_range_are_refused_in_words(fields, words):
    with pytest.raises(ValueError, match=words):
        check_settings(NOISY.replace(**fields), example(np.float32), network())


def test_networks_without_replicas_are_refused():
    problem = example(np.float32)
    changing = jdfl.network.random_links(network(), 0.5)
    directed = jdfl.network.k_in(M, 2, seed=1)
    uneven = jdfl.network.from_edges([(i, 0) for i in range(1, M)], M, weights="uniform")
    for net, why in ((changing, "a fixed"), (directed, "an undirected"), (uneven, "doubly stochastic")):
        with pytest.raises(ValueError, match=f"Expected {why} .* for CPGT, .*Use .*jdfl.network"):
            check_settings(CPGT(), problem, net)


def test_noise_that_fades_to_nothing_is_refused():
    problem, net = example(np.float32), network()
    with pytest.raises(ValueError, match=r"float32 .*900 rounds, got decay = 0\.9, .* from round 792 on"):
        NOISY.replace(decay=0.9).plan(problem, net, 900)
    told = planned(NOISY.replace(decay=0.9), problem, net, 792).privacy(problem)
    assert "noise is below the rounding of float32" in told.warnings[0]
    with pytest.raises(ValueError, match=r"range of float32 over 900 rounds, got decay = 0\.9"):
        calibrated(NOISY.replace(decay=0.9), problem, 900, 3.0)
