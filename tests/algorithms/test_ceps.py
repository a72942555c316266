"""CEPS against the loop written from the paper, what its options mean, and what clipped gradients let it claim."""

import math
from fractions import Fraction
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jdfl
from jdfl.algorithms import ceps as module
from jdfl.algorithms import requests
from jdfl.algorithms.ceps_paper import paper_volume
from jdfl.algorithms.program import Program
from jdfl.algorithms.round import RoundContext
from jdfl.base import streams
from jdfl.engine import loop, stepping
from jdfl.engine.start import check_settings
from tests.algorithms import play
from tests.algorithms.play import direct, gradient_of, network
from tests.reference.ceps import ceps as reference
from tests.reference.ceps import one_bit
from tests.refused import refused

M, N, S, ROUNDS = 7, 40, 4, 60
SIGNS = (60, 48, 75, 60, 33, 90, 61)


def example(dtype=np.float64) -> jdfl.problems.LinearRegression:
    return jdfl.problems.example1(m=M, n=N, s=S, rows=(12, 20), seed=3, dtype=dtype)


@partial(jax.jit, static_argnames=("rounds",))
def course(algorithm, problem, network, key, rounds: int):
    """Everything random that a run draws, and its parameters [rounds, m, n]."""
    keys = streams.Keys.of(key)
    setting, carry, _ = loop._start(stepping.setting(Program(algorithm), problem, network, None, keys), ())
    program = setting.program

    def noise(context):
        zero = jnp.zeros((M, N), problem.dtype)
        if algorithm.mechanism is None:
            return zero
        return jax.vmap(algorithm.mechanism.add)(
            context.keys(module._NOISE), zero, algorithm.gradients.sensitivities(problem)
        )

    def one(state, k):
        context = stepping.sample_round(setting, k)
        round = program.round(problem, context, {})
        mine, others = requests._sample(algorithm, algorithm._due(round), round)
        state, info = program.step(state, problem, context)
        return state, (program.params(state), mine, others, noise(context), sum(info.sent.values()))

    _, drawn = jax.lax.scan(one, carry.state, jnp.arange(rounds, dtype=jnp.int32))
    return program, drawn, noise(stepping.initial_round(setting))


def compare(algorithm, send=None, gradient_of=gradient_of):
    """Every round of a run agrees with the loop; `send(wire, ...)` is what arrives of a message."""
    with jax.enable_x64(True):
        problem, net = example(), network()
        prepared, (w, mine, others, xi, sent), first = course(
            algorithm, stepping.nameless(problem), stepping.nameless(net), jax.random.key(11), ROUNDS
        )
        w, mine, others, xi, first = (np.asarray(part) for part in (w, mine, others, xi, first))
        senders, mask = np.asarray(net.graph.senders), np.asarray(net.graph.mask)
        neighbours = [[int(j) for j in senders[i][mask[i]]] for i in range(M)]

        def choose(k, i, size):
            chosen = [int(j) for j in senders[i][others[k, i]]] + [i] * int(mine[k, i])
            assert len(chosen) == size, (k, i, chosen, size)
            return chosen

        if algorithm.own != "absent":
            neighbours = [[*near, i] for i, near in enumerate(neighbours)]
        private = algorithm.mechanism is not None
        found = reference(
            gradient_of(problem),
            neighbours,
            N,
            s=S,
            rate=algorithm.rate,
            mu=algorithm.mu,
            sigma=np.asarray(prepared.ready.sigma),
            period=np.asarray(prepared.ready.period),
            rounds=ROUNDS,
            choose=choose,
            send=(lambda j, x: x) if send is None else partial(send, prepared.prepared.wire),
            pairwise=algorithm.phi == "receiver" or algorithm.codec.pairwise,
            noise=(lambda k, i: first[i] if k < 0 else xi[k, i]) if private else None,
            kept=algorithm.noise == "kept",
            own_coded=algorithm.own_coded,
            zero=algorithm.first == "zero",
        )
        np.testing.assert_allclose(w, np.stack(found.w), rtol=0, atol=1e-9)
        np.testing.assert_array_equal(np.asarray(sent).sum(axis=0), found.sent)


BASE = jdfl.CEPS(s=S, rate=0.6, periods=(3, 5), codec=jdfl.Dense("float64"))
SMALL = BASE.replace(codec=jdfl.Dense())
U = np.linspace(0.05, 0.2, M, dtype=np.float32)


@pytest.mark.rotated(3)
@pytest.mark.parametrize("own", ["absent", "sampled", "always"])
def test_perf_agrees_with_the_paper_loop(own):
    compare(BASE.replace(own=own))


CLIP = 2.0
NOISE = jdfl.Gaussian(0.8)
PRIVATE = jdfl.CEPS(s=N, rate=1.0, periods=(2, 3), clip=CLIP, sigma=5.0, mechanism=NOISE)


def clipped_gradient_of(problem):
    """In numpy: means of shortened gradients of single examples."""
    A, b, weight = (np.asarray(leaf, np.float64) for leaf in (*problem.data, problem.weight))

    def gradient(i, w):
        each = (A[i] @ w - b[i])[:, None] * A[i]
        factor = np.minimum(1, CLIP / np.maximum(np.linalg.norm(each, axis=1), 1e-30))
        return (weight[i] * factor) @ each / weight[i].sum()

    return gradient


def test_noise_that_stays_and_noise_that_does_not_go_where_they_are_said_to_go():
    """In step 0 Appendix E has noise, and Algorithm 1 only where K_i has 0; u_i is one for all, or every node's own."""
    noisy = BASE.replace(mechanism=jdfl.Gaussian(0.7))
    compare(noisy.replace(noise="kept", sensitivity=U, block=3))
    compare(noisy.replace(noise="literal", clip=CLIP, sigma=5.0, first="zero"), gradient_of=clipped_gradient_of)
    found, sizes = PRIVATE.gradients.sensitivities(example(np.float32)), np.asarray(example(np.float32).sizes)
    np.testing.assert_allclose(found, 2 * CLIP / sizes, rtol=1e-6)
    for u in (U, 0.1):
        given = noisy.replace(sensitivity=u).gradients.sensitivities(example(np.float32))
        np.testing.assert_allclose(given, np.broadcast_to(u, M), rtol=1e-6)
    assert jdfl.CEPS().first == "period"


def of_the_sender(wire, j, x):
    """As many signs as a node sends, and the paper's inverse."""
    return one_bit(x, np.asarray(wire.drawn.phi.matrix[j])[:, : SIGNS[j]].T, S, cap=12)


def of_the_receiver(wire, j, x, i, own):
    """The receiver's matrix, and what it knows already."""
    return one_bit(x, np.asarray(wire.drawn.matrix[i]).T, S, exact=True, cap=12, side=own)


def of_all(wire, j, x):
    """One matrix, through which a node sees its own parameters too."""
    return one_bit(x, np.asarray(wire.drawn.matrix).T, S, exact=True, cap=12)


@pytest.mark.parametrize(
    ("codec", "fields", "send"),
    [
        (jdfl.OneBit(d=SIGNS, inverse="paper"), {}, of_the_sender),
        (jdfl.OneBit(d=60, side=True), {"phi": "receiver"}, of_the_receiver),
        (jdfl.OneBit(d=60, shared=True), {"own": "always", "own_coded": True}, of_all),
    ],
    ids=["sender", "receiver, side", "shared, own"],
)
def test_one_bit_messages_agree_with_the_paper_loop(codec, fields, send):
    compare(BASE.replace(codec=codec, **fields), send)


def prepared(**fields):
    """What is computed before the first round."""
    node = jnp.arange(M, dtype=jnp.int32)
    context = RoundContext(jnp.int32(0), jax.random.key(0), network().graph, node)
    return Program(SMALL.replace(**fields)).prepare(example(np.float32), context).ready


def test_sigma_is_the_rules_constant_and_as_many_times_smaller_as_asked():
    problem = example(np.float32)
    A, rows = np.asarray(problem.data[0], float), np.asarray(problem.weight, float).sum(axis=1)
    largest = np.array([np.linalg.eigvalsh(A[i].T @ A[i])[-1] for i in range(M)])
    combine = np.ceil(0.6 * np.asarray(network().graph.mask).sum(axis=1))
    for rule, below, scale in (
        ("paper", M * 1.3 * rows, 1.0),
        ("half_n", M * 1.3 * N / 2, 3.0),
        ("safe", combine * rows, 3.0),
    ):
        found = prepared(sigma_rule=rule, step_scale=scale).sigma
        np.testing.assert_allclose(found, largest / below / scale, rtol=1e-5)
    np.testing.assert_allclose(prepared(sigma=5.0, step_scale=2.0).sigma, np.full(M, 2.5))


def test_periods_are_drawn_from_their_range_or_given():
    drawn = np.asarray(prepared(periods=(2, 9)).period).tolist()
    assert 2 <= min(drawn) < max(drawn) <= 9
    given = np.arange(1, M + 1, dtype=np.int32)
    np.testing.assert_array_equal(prepared(period=given).period, given)


@partial(jax.jit, static_argnames=("rounds",))
def draws(network, key, rounds: int):
    """N_i^k when all nodes communicate, for each `own`: sizes [k, m], i in it [k, m], others [k, m, d]."""
    m = network.graph.m
    node, talks = jnp.arange(m, dtype=jnp.int32), jnp.ones(m, jnp.bool_)

    def one(k):
        context = RoundContext(k, jax.random.fold_in(key, k), network.graph, node)
        for own in ("absent", "sampled", "always"):
            asking = SMALL.replace(own=own, rate=0.5)
            yield requests.sizes(asking, network.graph)[1], *requests._sample(asking, talks, direct(context, None))

    return jax.lax.map(lambda k: list(one(k)), jnp.arange(rounds, dtype=jnp.int32))


def test_every_member_of_the_neighbourhood_is_drawn_equally_often():
    rounds, net = 2000, stepping.nameless(jdfl.network.circulant(9, [1, 2, 3]))
    expected = ((6, 0), (7, 4 / 7), (7, 1))  # of how many, and how often a node draws itself
    for (size, mine, others), (members, itself) in zip(jax.device_get(draws(net, jax.random.key(4), rounds)), expected):
        assert (size == -(-members // 2)).all()
        np.testing.assert_array_equal(mine + others.sum(axis=2), size)
        assert len({one.tobytes() for one in others.transpose(1, 0, 2)}) == 9  # every node on its own
        share = size[0, 0] / members
        sd = np.sqrt(share * (1 - share) / rounds)
        np.testing.assert_allclose(mine.mean(axis=0), itself, atol=5 * sd * (0 < itself < 1))
        np.testing.assert_allclose(others.mean(axis=0), (size[0, 0] - mine.mean()) / 6, atol=5 * sd)


def test_sample_sizes_are_exact_ceilings():
    degree = np.arange(1, 61)
    mask = degree[:, None] > np.arange(60)[None, :]
    senders = np.where(mask, (np.arange(60)[:, None] + 1 + np.arange(60)[None, :]) % 61, 0).astype(np.int32)
    graph = jdfl.network.Graph(senders, mask, np.zeros((60, 60)), np.ones(60), np.zeros(60, np.int32))
    for own in ("absent", "always"):
        sizes = jax.jit(lambda rate, own=own: requests.sizes(SMALL.replace(own=own, rate=rate), graph)[1])
        for percent in range(5, 101, 5):
            exact = [math.ceil(Fraction(percent, 100) * (int(d) + (own == "always"))) for d in degree]
            assert np.asarray(sizes(percent / 100)).tolist() == exact, percent


def test_the_preset_is_the_papers_and_its_volume_is_that_of_table_5():
    preset = jdfl.CEPS.paper(10, rate=0.5, epsilon=0.25)
    assert (preset.noise, preset.codec.inverse) == ("literal", "paper")
    noise_variance = (float(preset.mechanism.multiplier) * preset.sensitivity) ** 2
    assert noise_variance == pytest.approx(2 * np.log(1.25 / 0.5) * 0.1**2 / 0.25**2)
    assert isinstance(jdfl.CEPS.paper(one_bit=False).codec, jdfl.Dense)
    volume = partial(paper_volume, m=64, n=1000, rate=0.5)
    assert volume(28) / 1e6 == pytest.approx(9.13, rel=0.01)
    assert volume(28, d=500) / volume(28) == pytest.approx(564 / 4000)


def test_a_node_whose_features_are_all_zero_is_named():
    problem = example(np.float32)
    features, target = problem.data
    flat = problem.replace(data=(features.at[3].set(0.0), target), curvature=problem.curvature.at[3].set(0.0))
    with refused("node 3"):
        check_settings(SMALL, flat, network())
    check_settings(SMALL.replace(sigma=[1.0] * M, period=[2] * M), flat, network())  # lists will do


def test_long_steps_are_announced():
    problem, ring = jdfl.problems.example1(m=24, n=N, s=S, rows=(12, 20), seed=3), jdfl.network.ring(24)
    with pytest.warns(UserWarning, match="12 / L_i"):
        check_settings(jdfl.CEPS(s=S), problem, ring)
    check_settings(jdfl.CEPS(s=S, sigma_rule="safe"), problem, ring)


def first_u(algorithm, problem, key):
    return play.course(algorithm, problem, network(), key, rounds=1)[1].u


def test_one_record_changes_the_first_u_by_the_sensitivity_at_most():
    problem = example(np.float32)
    A, b = problem.data
    quiet = PRIVATE.replace(mechanism=None)
    for scale in (1.0, 1e6, 1e25):
        other = problem.replace(data=(A.at[3, 1].multiply(-scale), b.at[3, 1].multiply(scale)))
        one, two = (np.asarray(first_u(quiet, world, jax.random.key(0))) for world in (problem, other))
        change = np.linalg.norm(one - two, axis=1)
        assert change[3] <= 2 * CLIP / int(problem.sizes[3]) * (1 + 1e-4)
        assert not np.delete(change, 3).any()


def test_what_is_claimed_and_what_is_not():
    problem = example(np.float32)
    claimed = PRIVATE.privacy(problem)
    assert claimed.claimed
    assert claimed.sensitivity == pytest.approx(2 * CLIP / int(problem.sizes.min()))
    assert not claimed.warnings
    assert PRIVATE.replace(adjacency="add-remove").privacy(problem).sensitivity == pytest.approx(
        claimed.sensitivity / 2
    )
    own = PRIVATE.replace(sigma=None)
    assert own.privacy(problem.declared("curvature")).claimed
    assert PRIVATE.replace(mechanism=None).privacy(problem) == jdfl.privacy.NO_NOISE
    for leaks, why in (
        (own, "sigma_i"),
        (PRIVATE.replace(noise="literal"), "first message"),
        (PRIVATE.replace(clip=None, sensitivity=np.full(M, 0.1)), "not clipped"),
    ):
        told = leaks.privacy(problem)
        assert not told.claimed
        assert why in told.reason


def test_the_papers_preset_claims_nothing_and_says_what_its_noise_would_buy():
    problem = play.example(np.float32, rows=(400, 500))
    preset = jdfl.CEPS.paper(s=3, epsilon=2.0)
    guarantee = preset.privacy(problem)
    assert (guarantee.claimed, guarantee.sensitivity) == (False, 0.1)
    told = jdfl.privacy.report(guarantee, np.full(M, 3), np.asarray(problem.sizes), delta=1e-5, accounting="paper")
    assert not told.sound
    assert told.published["epsilon"] == pytest.approx(2.0, rel=1e-6)
    assert told.epsilon == pytest.approx(13.6, abs=0.05)
