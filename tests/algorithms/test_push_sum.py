"""Push-sum and what is built on it against the loops written from the papers, and the laws that they keep."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jdfl
from jdfl.engine.start import check_settings
from tests.algorithms.play import M, N, example, gradient_of
from tests.algorithms.pushing import DECAY, MILESTONES, NETWORKS, falling, follow, protocol, uneven, weights
from tests.reference import push_sum as reference

CLIPPED = jdfl.Gradients(clip=1.0, per="batch", norm="l1")
NOISY = {"b": 2.0, "noise_rate": 0.01}
FALLS = {"milestones": MILESTONES, "decay": DECAY}
VECTORS = np.random.default_rng(2).standard_normal((M, 5)) * np.arange(1, M + 1)[:, None] + 3.0


def begun(problem):
    """The same problem with a start that is not zero."""
    start = np.random.default_rng(7).standard_normal(problem.n)
    return problem.replace(start=jnp.asarray(start, problem.dtype))


def agrees(algorithm, loop_of, problem, net, d=N):
    """Every round of a run agrees with `loop_of(start, W, protocol)`."""
    program, (params, *_) = follow(algorithm, problem, net)
    expected = loop_of(np.asarray(problem.begin()), weights(net), protocol(program, net, d))
    assert np.abs(expected).max() > 0.1
    np.testing.assert_allclose(np.asarray(params), expected, rtol=1e-9, atol=1e-9)
    return np.asarray(params)


@pytest.mark.parametrize(
    ("name", "sensitivity"),
    [("uneven", "real"), ("one peer", "certified"), ("uneven, synchronised", "eq22"), ("3-out, synchronised", None)],
)
def test_sgp_agrees_with_its_loop(name, sensitivity):
    with jax.enable_x64(True):
        problem, dpps = begun(example()), jdfl.DPPS()
        if sensitivity is not None:
            dpps = jdfl.DPPS(sensitivity=sensitivity, **NOISY)
        algorithm = jdfl.SGP(lr=0.07, gradients=CLIPPED, dpps=dpps, **FALLS)
        agrees(
            algorithm,
            lambda x, W, told: reference.sgp(gradient_of(problem), W, x, told, falling(), lr=0.07, clip=1.0),
            problem,
            NETWORKS[name],
        )


def test_what_is_watched_is_not_taken_for_rows_of_nodes():
    """As many rounds as nodes, and a record in the middle, when later rounds have not been seen yet."""
    with jax.enable_x64(True):
        algorithm, problem = jdfl.SGP(lr=0.07, dpps=jdfl.DPPS(watch=True)), begun(example())
        result = jdfl.run(algorithm, problem, NETWORKS["uneven"], key=0, steps=M, every=1, metrics=[])
    assert result.ending == "steps"
    seen = np.asarray(result.state.seen)
    assert np.isfinite(seen[:M]).all()
    assert len(seen) == M + 1


@pytest.mark.parametrize("reading", ["text", "no start", "code"])
def test_every_reading_of_the_estimate_agrees_with_its_loop(reading):
    """Nodes differ in their steps and noise, and start away from zero, so that no two readings are equal."""
    with jax.enable_x64(True):
        problem, dpps = begun(example()), jdfl.DPPS(sensitivity="eq22", reading=reading, **NOISY)
        algorithm = jdfl.SGP(lr=0.07, gradients=CLIPPED, dpps=dpps, **FALLS)

        def loop(x, W, told):
            return reference.sgp(gradient_of(problem), W, x, told, falling(), lr=0.07, clip=1.0)

        found = agrees(algorithm, loop, problem, NETWORKS["uneven, synchronised"])
        other = {"text": "no start", "no start": "code", "code": "text"}[reading]
        changed = algorithm.replace(dpps=dpps.replace(reading=other))
        _, (params, *_) = follow(changed, problem, NETWORKS["uneven, synchronised"])
    assert np.abs(np.asarray(params) - found).max() > 1e-6


@pytest.mark.parametrize(
    ("name", "sensitivity"), [("one peer", "real"), ("3-out, synchronised", "certified"), ("one peer", "eq22")]
)
def test_pedfl_agrees_with_its_loop(name, sensitivity):
    with jax.enable_x64(True):
        problem = begun(example())
        algorithm = jdfl.PEDFL(lr=0.07, gradients=CLIPPED, dpps=jdfl.DPPS(sensitivity=sensitivity, **NOISY), **FALLS)
        agrees(
            algorithm,
            lambda x, W, told: reference.pedfl(gradient_of(problem), W, x, told, falling(), lr=0.07, clip=1.0),
            problem,
            NETWORKS[name],
        )


@pytest.mark.parametrize("dpps", [jdfl.DPPS(), jdfl.DPPS(**NOISY)], ids=["exact", "noisy"])
def test_average_consensus_agrees_with_its_loop(dpps):
    with jax.enable_x64(True):
        problem = jdfl.problems.averaging(VECTORS, dtype=np.float64)
        clip = None if dpps.b is None else 20.0
        agrees(
            jdfl.AverageConsensus(clip=clip, dpps=dpps),
            lambda x, W, told: reference.average_consensus(VECTORS, W, told, clip=clip),
            problem,
            uneven(),
            d=5,
        )


def test_push_sum_keeps_the_sum_and_finds_the_average_with_unequal_masses():
    problem = jdfl.problems.averaging(VECTORS)
    _, (params, begin, states, _) = follow(jdfl.AverageConsensus(), problem, uneven(), 300)
    total = np.asarray(begin.step, np.float64).sum(axis=0)
    kept = np.asarray(states.sums.s, np.float64).sum(axis=1)
    mass = np.asarray(states.sums.a, np.float64)
    np.testing.assert_allclose(kept, np.broadcast_to(total, kept.shape), rtol=1e-6)
    np.testing.assert_allclose(mass.sum(axis=1), M, rtol=1e-6)
    assert mass[-1].max() > 2 * mass[-1].min()
    np.testing.assert_allclose(params[-1], np.broadcast_to(VECTORS.mean(axis=0), (M, 5)), rtol=2e-6)
    # Without the masses it is another mean that the nodes agree on.
    assert np.abs(np.asarray(states.sums.s)[-1] - VECTORS.mean(axis=0)).max() > 0.5


def test_pedfl_without_noise_is_d_psgd():
    with jax.enable_x64(True):
        problem, net = begun(example()), jdfl.network.d_out(M, 2)
        _, (here, *_) = follow(jdfl.PEDFL(lr=0.07, gradients=CLIPPED), problem, net)
        _, (there, *_) = follow(jdfl.DPSGD(lr=0.07, gradients=CLIPPED, codec=jdfl.Dense("float64")), problem, net)
        np.testing.assert_allclose(here, there, rtol=0, atol=1e-12)


def test_rates_fall_at_milestones_and_noise_with_them():
    problem, net = example(np.float32), jdfl.network.synchronised(jdfl.network.d_out(M, 3), 1)
    algorithm = jdfl.SGP(gradients=CLIPPED, dpps=jdfl.DPPS(b=2.0, watch=True), milestones=(4, 6), decay=0.1)
    program, (_, _, states, _) = follow(algorithm, problem, net, 8)
    np.testing.assert_allclose(program.plan.scales, [1, 1, 1, 1, 0.1, 0.1, 0.01, 0.01], rtol=1e-6)
    # Everybody starts every round alike, so that only two steps of 0.1 times the clip are between nodes.
    np.testing.assert_allclose(program.plan.certified, 0.2 * program.plan.scales, rtol=1e-5, atol=5e-6)
    seen = np.asarray(states.seen)[-1]
    np.testing.assert_array_equal(seen[:, 1], program.plan.certified)
    assert (seen[:, 0] <= seen[:, 1]).all()
    length = np.asarray(states.noise)
    assert not length.any()  # means leave nothing to estimate


@pytest.mark.rotated(2)
@pytest.mark.parametrize("kind", [jdfl.SGP, jdfl.PEDFL], ids=lambda kind: kind.__name__)
def test_later_rounds_change_nothing_of_earlier_ones(kind):
    """A run that is resumed equals an unbroken one, although the schedule of its noise is longer."""
    problem, net = example(np.float32, n=6), uneven() if kind is jdfl.SGP else jdfl.network.d_out(M, 2)
    algorithm = kind(gradients=CLIPPED, dpps=jdfl.DPPS(b=2.0), milestones=(3,))
    common = {"metrics": ["objective"], "key": 5}
    whole = jdfl.run(algorithm, problem, net, steps=9, **common)
    half = jdfl.run(algorithm, problem, net, steps=4, **common)
    onward = jdfl.run(algorithm, problem, net, steps=9, resume=half, **common)
    np.testing.assert_array_equal(whole.params, onward.params)
    np.testing.assert_array_equal(whole.releases, onward.releases)
    assert whole.totals == onward.totals
    with pytest.raises(ValueError, match="noise of the run that is resumed"):
        jdfl.run(algorithm.replace(dpps=jdfl.DPPS(b=3.0)), problem, net, steps=9, resume=half, **common)


def test_a_sweep_over_b_gives_every_run_a_schedule_of_its_own():
    problem, net = example(np.float32, n=6), uneven()
    algorithm = jdfl.SGP(gradients=CLIPPED, dpps=jdfl.DPPS(b=1.0, noise_rate=0.05))
    values = [0.5, 1.0, 4.0]
    together = jdfl.sweep(algorithm, problem, net, over={"dpps.b": values}, keys=[3], steps=6, metrics=["objective"])
    schedules = []
    for one, b in zip(together, values):
        own = algorithm.replace(dpps=algorithm.dpps.replace(b=b))
        alone = jdfl.run(own, problem, net, key=one.run_key, steps=6, metrics=["objective"])
        np.testing.assert_allclose(one.params, alone.params, rtol=1e-5, atol=1e-6)
        assert one.guarantee == alone.guarantee
        schedules.append(np.asarray(alone.ready.certified))
    assert (np.diff(np.stack(schedules), axis=0)[:, 1:] < 0).all()  # less noise, smaller distances


@pytest.mark.parametrize(
    ("algorithm", "words"),
    [
        (jdfl.SGP(lr=-1.0), ["lr", "-1.0"]),
        (jdfl.SGP(dpps=jdfl.DPPS(b=-1.0)), ["b > 0", "-1.0", "None: no noise"]),
        (jdfl.SGP(dpps=jdfl.DPPS(b=np.ones(M))), ["b", "(7,)", "one number"]),
        (jdfl.SGP(dpps=jdfl.DPPS(noise_rate=0.0)), ["noise_rate > 0", "0.0"]),
        (jdfl.SGP(dpps=jdfl.DPPS(contraction=1.5)), ["contraction", "1.5"]),
        (jdfl.SGP(dpps=jdfl.DPPS(sensitivity="true")), ["sensitivity", "'true'", "certified"]),
        (jdfl.SGP(dpps=jdfl.DPPS(failure=0.0)), ["failure in (0, 1]", "0.0"]),
        (jdfl.SGP(dpps=jdfl.DPPS(failure=2.0)), ["failure", "2.0", "1"]),
        (jdfl.SGP(milestones=(0,)), ["milestones[0] >= 1", "0"]),
        (jdfl.SGP(decay=0.0), ["decay > 0", "0.0"]),
        (
            jdfl.SGP(gradients=jdfl.Gradients(clip=1.0, mechanism=jdfl.Laplace(1.0))),
            ["SGP", "mechanism", "dpps=DPPS(b=...)"],
        ),
        (jdfl.AverageConsensus(clip=0.0), ["clip > 0", "0.0"]),
        (jdfl.PEDFL(), ["PEDFL", "doubly stochastic"]),
    ],
    ids=lambda given: type(given).__name__ if not isinstance(given, list) else given[0].split()[0],
)
def test_mistakes_are_named(algorithm, words):
    with pytest.raises(ValueError) as error:
        check_settings(algorithm, example(np.float32), uneven())
    assert all(word in str(error.value) for word in words), error.value


@pytest.mark.parametrize("kind", [jdfl.SGP, jdfl.PartPSP, jdfl.AverageConsensus], ids=lambda kind: kind.__name__)
def test_networks_that_do_not_keep_the_sum_are_refused(kind):
    with pytest.raises(ValueError, match=f"column-stochastic weights for {kind.__name__}"):
        check_settings(kind(), example(np.float32), jdfl.network.star(M, weights="uniform"))
    apart = jdfl.network.from_edges([(0, 1), (1, 0)], M, directed=True, weights="out-degree", connected=False)
    with pytest.raises(ValueError, match=f"strongly connected network for {kind.__name__}"):
        check_settings(kind(), example(np.float32), apart)


def test_synchronised_rounds_and_broadcasts_are_counted():
    problem, net = example(np.float32, n=6), uneven()
    sent = int(np.asarray(net.graph.out_degree).sum())
    algorithm = jdfl.SGP(gradients=CLIPPED, dpps=jdfl.DPPS(b=1.0, sensitivity="eq22"))
    told = jdfl.run(algorithm, problem, jdfl.network.synchronised(net, 3), key=0, steps=3, metrics=[])
    assert told.totals.messages == {"shared": 2 * sent + M * (M - 1), "sensitivity": 3 * M * (M - 1)}
    assert told.totals.message_bits == {"shared": 32 * (6 + 1), "sensitivity": 32}
    assert told.releases.tolist() == [3] * M
