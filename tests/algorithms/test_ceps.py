"""CEPS against the loop written from the paper, and what its options mean."""

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
from jdfl.algorithms.moment import Moment
from jdfl.algorithms.program import Program
from jdfl.base import streams
from jdfl.engine import loop, stepping
from tests.algorithms.play import direct
from tests.reference.ceps import ceps as reference
from tests.reference.ceps import one_bit

M, N, S, ROUNDS = 7, 40, 4, 100


def example(dtype=np.float64) -> jdfl.problems.LinearRegression:
    return jdfl.problems.example1(m=M, n=N, s=S, rows=(12, 20), seed=3, dtype=dtype)


def gradient_of(problem):
    """grad f_i(w) in numpy, for least squares."""
    A, b = (np.asarray(leaf) for leaf in problem.data)
    rows = np.asarray(problem.weight).sum(axis=1)
    return lambda i, w: A[i].T @ (A[i] @ w - b[i] * (np.asarray(problem.weight)[i] > 0)) / rows[i]


@partial(jax.jit, static_argnames=("rounds",))
def course(algorithm, problem, network, key, rounds: int):
    """Everything random that a run draws, and its parameters [rounds, m, n]."""
    keys = streams.Keys.of(key)
    setting, carry, _ = loop._start(stepping.setting(Program(algorithm), problem, network, None, keys), ())
    program = setting.algorithm

    def noise(moment):
        zero = jnp.zeros((M, N), problem.dtype)
        if algorithm.mechanism is None:
            return zero
        return jax.vmap(algorithm.mechanism.add)(
            moment.keys(module._NOISE), zero, algorithm.gradients.sensitivities(problem)
        )

    def one(state, k):
        moment = stepping.drawn(setting, k)
        round = program.round(problem, moment, {})
        mine, others = requests._drawn(algorithm, algorithm._due(round), round)
        state, info = program.step(state, problem, moment)
        return state, (program.params(state), mine, others, noise(moment), sum(info.sent.values()))

    _, drawn = jax.lax.scan(one, carry.state, jnp.arange(rounds, dtype=jnp.int32))
    return program, drawn, noise(stepping.begun(setting))


def compare(algorithm, *, own="absent", send=None, tolerance=1e-9):
    with jax.enable_x64(True):
        problem = example()
        network = jdfl.network.erdos_renyi(M, 0.5, seed=2)
        algorithm = algorithm.replace(own=own)
        bare = stepping.nameless(network)
        prepared, (w, mine, others, xi, sent), first = course(
            algorithm, stepping.nameless(problem), bare, jax.random.key(11), ROUNDS
        )
        w, mine, others, xi, first = (np.asarray(part) for part in (w, mine, others, xi, first))
        senders = np.asarray(network.graph.senders)
        mask = np.asarray(network.graph.mask)
        neighbours = [[int(j) for j in senders[i][mask[i]]] for i in range(M)]

        def choose(k, i, size):
            chosen = [int(j) for j in senders[i][others[k, i]]] + [i] * int(mine[k, i])
            assert len(chosen) == size, (k, i, chosen, size)
            return chosen

        if own != "absent":
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
            send=(lambda j, x: x) if send is None else partial(send, prepared),
            pairwise=algorithm.phi == "receiver" or algorithm.codec.pairwise,
            noise=(lambda k, i: first[i] if k < 0 else xi[k, i]) if private else None,
            kept=algorithm.noise == "kept",
        )
        np.testing.assert_allclose(w, np.stack(found.w), rtol=0, atol=tolerance)
        np.testing.assert_array_equal(np.asarray(sent).sum(axis=0), found.sent)
        return prepared, problem


BASE = jdfl.CEPS(s=S, rate=0.6, periods=(3, 5), codec=jdfl.Dense("float64"))


@pytest.mark.rotated(3)
@pytest.mark.parametrize("own", ["absent", "sampled", "always"])
def test_perf_agrees_with_the_paper_loop_over_100_rounds(own):
    compare(BASE, own=own)


@pytest.mark.parametrize("noise", ["kept", "literal"])
def test_noise_goes_where_it_is_said_to_go(noise):
    compare(BASE.replace(mechanism=jdfl.Gaussian(0.7), noise=noise, sensitivity=0.1))


@pytest.mark.rotated(2)
@pytest.mark.parametrize("inverse", ["paper", "exact"])
def test_one_bit_agrees_with_the_paper_loop(inverse):
    def send(prepared, j, x):
        phi = np.asarray(prepared.prepared.wire.drawn.matrix[j]).T
        return one_bit(x, phi, S, exact=inverse == "exact", cap=12)

    compare(BASE.replace(codec=jdfl.OneBit(d=60, inverse=inverse)), send=send)


@pytest.mark.rotated(3)
@pytest.mark.parametrize(("phi", "side"), [("receiver", False), ("sender", True), ("receiver", True)])
def test_decoding_that_depends_on_the_receiver_agrees_with_the_paper_loop(phi, side):
    def send(prepared, j, x, i, own):
        matrix = np.asarray(prepared.prepared.wire.drawn.matrix[i if phi == "receiver" else j]).T
        return one_bit(x, matrix, S, exact=True, cap=12, side=own if side else None)

    compare(BASE.replace(codec=jdfl.OneBit(d=60, side=side), phi=phi), send=send)


def test_one_shared_matrix_agrees_with_the_paper_loop():
    def send(prepared, j, x):
        return one_bit(x, np.asarray(prepared.prepared.wire.drawn.matrix).T, S, exact=True, cap=12)

    compare(BASE.replace(codec=jdfl.OneBit(d=60, shared=True)), send=send)


@pytest.mark.slow
def test_steps_are_as_many_times_longer_as_asked():
    one, three = (run(SMALL.replace(step_scale=scale)).ready.sigma for scale in (1.0, 3.0))
    np.testing.assert_allclose(one, 3 * np.asarray(three), rtol=1e-6)


def test_sigma_is_the_papers_constant():
    with jax.enable_x64(True):
        prepared, problem = compare(BASE)
        A = np.asarray(problem.data[0])
        rows = np.asarray(problem.weight).sum(axis=1)
        largest = np.array([np.linalg.eigvalsh(A[i].T @ A[i])[-1] for i in range(M)])
        np.testing.assert_allclose(prepared.ready.sigma, largest / (M * (2 * 0.6 + 0.1) * rows), rtol=1e-6)
        half, _ = compare(BASE.replace(sigma_rule="half_n"))
        np.testing.assert_allclose(half.ready.sigma, largest / (M * (2 * 0.6 + 0.1) * N / 2), rtol=1e-6)


def run(algorithm, steps=20, **options):
    return jdfl.run(algorithm, example(np.float32), jdfl.network.erdos_renyi(M, 0.5, seed=2), steps=steps, **options)


SMALL = jdfl.CEPS(s=S, rate=0.6, periods=(3, 5))


def test_periods_are_drawn_from_their_range_and_can_be_given():
    drawn = np.asarray(run(SMALL.replace(periods=(2, 9))).ready.period)
    assert drawn.min() >= 2
    assert drawn.max() <= 9
    assert len(set(drawn.tolist())) > 1
    given = np.arange(1, M + 1, dtype=np.int32)
    result = run(SMALL.replace(period=given), steps=13)
    np.testing.assert_array_equal(result.communication_rounds, [12 // p for p in given])


@pytest.mark.slow
def test_first_communication_at_zero_or_at_the_period():
    assert run(SMALL, steps=1).totals.communications == 0
    assert run(SMALL.replace(first="zero"), steps=1).totals.communications == M


@pytest.mark.slow
def test_blocks_do_not_matter():
    small, large = (run(SMALL.replace(codec=jdfl.OneBit(d=100), block=block)) for block in (1, M))
    np.testing.assert_allclose(small.params, large.params, rtol=1e-4, atol=1e-5)
    assert small.totals == large.totals


@pytest.mark.slow
def test_own_parameters_through_the_codec():
    exact, coded = (
        run(SMALL.replace(codec=jdfl.OneBit(d=100), own="always", own_coded=own_coded)) for own_coded in (False, True)
    )
    assert not np.array_equal(exact.params, coded.params)
    assert exact.totals == coded.totals  # nothing is sent to oneself
    same = [run(SMALL.replace(own="always", own_coded=own_coded)).params for own_coded in (False, True)]
    np.testing.assert_array_equal(*same)


@pytest.mark.slow
def test_own_parameters_are_coded_where_nobody_else_asks_for_them():
    edges = [(1, 0), (2, 0), (1, 2), (2, 1), (1, 3)]  # nobody hears node 3
    problem = jdfl.problems.example1(m=4, n=N, s=S, rows=(12, 20), seed=3)
    algorithm = SMALL.replace(codec=jdfl.OneBit(d=100), own="always", own_coded=True, periods=(2, 2), rate=1.0)
    silent, heard = (
        jdfl.run(
            algorithm, problem, jdfl.network.from_edges(edges + more, 4, directed=True, connected=False), key=0, steps=3
        )
        for more in ([], [(0, 3)])
    )
    assert silent.communication_rounds[0] == 1
    assert silent.totals.messages["model"] < heard.totals.messages["model"]
    np.testing.assert_allclose(silent.params[0], heard.params[0], rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_kept_noise_stays_and_literal_noise_is_washed_out():
    """Literal noise leaves w within a few rounds (4); kept noise does not."""
    base = SMALL.replace(mechanism=jdfl.Gaussian(2.0), sensitivity=0.1)
    gap = {}
    for noise in ("literal", "kept"):
        noisy = run(base.replace(noise=noise, period=np.full(M, 3, np.int32)), steps=6)
        clean = run(SMALL.replace(period=np.full(M, 3, np.int32)), steps=6)
        gap[noise] = float(np.linalg.norm(noisy.params - clean.params))
    assert gap["literal"] < 0.05 * gap["kept"]


def test_a_node_without_neighbours_learns_alone():
    problem = jdfl.problems.example1(m=1, n=N, s=S, rows=(30, 30), seed=0)
    result = jdfl.run(SMALL.replace(periods=(2, 2), rate=1.0), problem, jdfl.network.complete(1), key=0, steps=60)
    assert result.final["objective"] < 0.5 * result.history["objective"].iloc[0]
    assert result.totals.bits == 0


@partial(jax.jit, static_argnames=("rounds",))
def draws(algorithm, network, key, rounds: int):
    """N_i^k of every round when all nodes communicate: sizes [k, m], i in it [k, m], others [k, m, d]."""
    m = network.graph.m
    node, talks = jnp.arange(m, dtype=jnp.int32), jnp.ones(m, jnp.bool_)

    def one(k):
        round_key = jax.random.fold_in(key, k)
        moment = Moment(k, round_key, network.at(k, round_key), node)
        _, size = requests.sizes(algorithm, moment.graph)
        return size, *requests._drawn(algorithm, talks, direct(moment, None))

    return jax.lax.map(one, jnp.arange(rounds, dtype=jnp.int32))


@pytest.mark.parametrize("own", ["absent", "sampled", "always"])
def test_every_member_of_the_neighbourhood_is_drawn_equally_often(own):
    network, rounds = stepping.nameless(jdfl.network.circulant(9, [1, 2, 3])), 2000
    size, mine, others = map(np.asarray, draws(SMALL.replace(own=own, rate=0.5), network, jax.random.key(4), rounds))
    members = 6 if own == "absent" else 7
    assert (size == -(-members // 2)).all()
    np.testing.assert_array_equal(mine + others.sum(axis=2), size)
    share = size[0, 0] / members
    sd = np.sqrt(share * (1 - share) / rounds)
    if own == "sampled":
        np.testing.assert_allclose(mine.mean(axis=0), share, atol=5 * sd)
    else:
        assert (mine == (own == "always")).all()
    expected = (size[0, 0] - mine.mean()) / 6
    np.testing.assert_allclose(others.mean(axis=0), expected, atol=5 * sd)


def test_draws_differ_between_rounds_nodes_and_seeds():
    network = stepping.nameless(jdfl.network.complete(9))
    others = [np.asarray(draws(SMALL.replace(rate=0.5), network, jax.random.key(seed), 40)[2]) for seed in (0, 1)]
    assert len({one.tobytes() for one in others[0]}) == 40  # rounds
    assert len({one.tobytes() for one in others[0].transpose(1, 0, 2)}) == 9  # nodes
    assert not (others[0] == others[1]).all(axis=(1, 2)).any()  # seeds


@pytest.mark.parametrize("own", ["absent", "always"])
def test_sample_sizes_are_exact_ceilings(own):
    """ceil(r |N_i|) in exact fractions, for degrees 1 to 60 and rates .05, .10, ..., 1."""
    degree = np.arange(1, 61)
    mask = degree[:, None] > np.arange(60)[None, :]
    senders = np.where(mask, (np.arange(60)[:, None] + 1 + np.arange(60)[None, :]) % 61, 0).astype(np.int32)
    blank = jnp.zeros((60, 60), jnp.float32)
    graph = jdfl.network.Graph(senders, jnp.asarray(mask), blank, jnp.ones(60), jnp.zeros(60, jnp.int32))
    network = jdfl.network.Static(graph, "")
    for percent in range(5, 101, 5):
        size = np.asarray(draws(SMALL.replace(own=own, rate=percent / 100), network, jax.random.key(0), 1)[0])[0]
        exact = [math.ceil(Fraction(percent, 100) * (int(d) + (own == "always"))) for d in degree]
        assert size.tolist() == exact, percent


def test_a_node_that_draws_only_itself_has_not_communicated():
    network = jdfl.network.from_edges([(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 6), (0, 2), (0, 3), (0, 4)])
    result = jdfl.run(SMALL.replace(own="always", rate=0.3), example(np.float32), network, key=0, steps=20)
    alone = np.asarray(network.graph.mask).sum(axis=1) < 3  # ceil(.3 * 3) = 1
    assert alone.any()
    assert not result.communication_rounds[alone].any()
    assert result.communication_rounds[~alone].all()
    assert result.totals.gradients > M + result.totals.communications


def test_preset_is_the_papers_setting():
    preset = jdfl.CEPS.paper(10, rate=0.5, epsilon=0.25)
    assert preset.noise == "literal"
    assert preset.codec.inverse == "paper"
    assert preset.mechanism is not None
    noise_variance = (float(preset.mechanism.multiplier) * preset.sensitivity) ** 2
    assert noise_variance == pytest.approx(2 * np.log(1.25 / 0.5) * 0.1**2 / 0.25**2)
    assert jdfl.CEPS().noise == "kept"
    assert jdfl.OneBit().inverse == "exact"
    assert isinstance(jdfl.CEPS.paper(one_bit=False).codec, jdfl.Dense)


def test_paper_volume_gives_table_5():
    """Table V, NoDP-Perf and DP-Perf: 8.80 and 9.13 million at r = .5 after 27 and 28 rounds."""
    volume = partial(paper_volume, m=64, n=1000, rate=0.5)
    assert volume(27) / 1e6 == pytest.approx(8.80, rel=0.01)
    assert volume(28) / 1e6 == pytest.approx(9.13, rel=0.01)
    assert volume(28, d=500) / volume(28) == pytest.approx(564 / 4000)


def test_a_node_whose_features_are_all_zero_is_named():
    problem = example(np.float32)
    features, target = problem.data
    flat = problem.replace(data=(features.at[3].set(0.0), target), curvature=problem.curvature.at[3].set(0.0))
    network = jdfl.network.erdos_renyi(M, 0.5, seed=2)
    with pytest.raises(ValueError, match="curvature 0 at node 3"):
        jdfl.run(SMALL, flat, network, key=0, steps=3)
    given = SMALL.replace(sigma=[1.0] * M, period=[2] * M)  # lists will do
    assert jdfl.run(given, flat, network, key=0, steps=3).ending == "steps"


@pytest.mark.filterwarnings("ignore:With d = ")
@pytest.mark.slow
def test_the_papers_formula_is_the_same_for_runs_side_by_side():
    """A sweep's algorithms have not been prepared; d = None still means n // 2 signs."""
    coded = SMALL.replace(codec=jdfl.OneBit(), period=np.full(M, 4, np.int32))
    alone = run(coded, steps=6)
    together = jdfl.repeat(coded, example(np.float32), jdfl.network.erdos_renyi(M, 0.5, seed=2), keys=[0], steps=6)[0]
    expected = paper_volume(6, m=M, n=N, rate=0.6, period=4, d=N // 2)
    assert alone.published_bytes == pytest.approx(expected)  # a prepared rate is a float32
    assert together.published_bytes == pytest.approx(expected)


@pytest.mark.slow
def test_long_steps_are_announced_and_the_safe_rule_makes_short_ones():
    problem, ring = jdfl.problems.example1(m=24, n=N, s=S, rows=(12, 20), seed=3), jdfl.network.ring(24)
    paper = jdfl.CEPS(s=S, periods=(3, 5))
    with pytest.warns(UserWarning, match="step sizes of about 12 / L_i"):
        long = jdfl.run(paper, problem, ring, key=0, steps=80, every=80, metrics=["objective"])
    safe = jdfl.run(paper.replace(sigma_rule="safe"), problem, ring, key=0, steps=80, every=80, metrics=["objective"])
    np.testing.assert_allclose(safe.ready.sigma, problem.curvature, rtol=1e-6)  # |N_i^k| = 1
    assert safe.final["objective"] < 0.2 * safe.history["objective"].iloc[0]
    assert long.final["objective"] > safe.final["objective"]


@pytest.mark.slow
def test_one_shared_matrix_is_all_the_memory_that_coding_takes():
    """Four times the nodes add no matrix: compiled temporaries and stored arrays stay below two of them."""
    n, d = 100, 2000
    matrix = 4 * n * d
    for m in (8, 32):
        problem, network = jdfl.problems.example1(m=m, n=n, s=S, rows=(5, 8)), jdfl.network.complete(m)
        algorithm = jdfl.CEPS(s=S, codec=jdfl.OneBit(d=d, shared=True), block=4)
        setting = stepping.setting(Program(algorithm), problem, network, None, jax.random.key(0))
        prepared, carry, _ = loop.start(setting, ())
        stored = sum(leaf.nbytes for leaf in jax.tree.leaves(prepared) if leaf.dtype == np.float32)
        assert stored < 1.1 * matrix
        lowered = loop.advance.lower(carry, setting.replace(algorithm=prepared), jnp.int32(9), 9, 1, ())
        assert lowered.compile().memory_analysis().temp_size_in_bytes < 2 * matrix
