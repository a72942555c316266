"""CEPS with parameters and messages stored as nonzeros, and with the old messages of unselected neighbours (III-E)."""

from dataclasses import replace

import jax
import numpy as np
import pytest

import jdfl
from jdfl.algorithms.program import Program, planned
from jdfl.engine import loop, stepping
from jdfl.engine.start import check_settings
from tests.algorithms import play
from tests.algorithms.test_ceps import BASE, ROUNDS, M, N, S, course, example, gradient_of, network
from tests.reference.gpsp import keep_largest
from tests.refused import refused

STORED = BASE.replace(storage="sparse", unselected="stored")
SPARSE = jdfl.CEPS(s=S, rate=0.5, sigma=2.0, periods=(2, 3), block=3, storage="sparse")
NOISY = {"clip": 5.0, "mechanism": jdfl.Gaussian(0.1)}
ONE_BIT = {"codec": jdfl.OneBit(d=80), "own": "sampled", "own_coded": True} | NOISY


def loop_over_nodes(gradient, neighbours, sigma, period, chosen, own):
    """Algorithm 1 with III-E: every node keeps the last z_j of each neighbour; `chosen(k, i)` are those it asks."""
    w, u = np.zeros((M, N)), np.stack([-gradient(i, np.zeros(N)) for i in range(M)])
    size = np.array([len(near) + own for near in neighbours], float)
    known = [{j: np.zeros(N) for j in near} for near in neighbours]
    taken = []
    for k in range(ROUNDS):
        new = w.copy()
        for i in range(M):
            if k > 0 and k % period[i] == 0:
                for j in chosen(k, i):
                    known[i][j] = w[j]
                total = sum(known[i].values()) + (w[i] if own else 0)
                mean = total / size[i]
                u[i] = sigma[i] * size[i] * mean - gradient(i, mean)
                new[i] = keep_largest(u[i] / (sigma[i] * size[i]), S)
            else:
                new[i] = keep_largest((u[i] + 0.1 * w[i]) / (sigma[i] * size[i] + 0.1), S)
        w = new
        taken.append(w)
    return np.stack(taken)


@pytest.mark.rotated(2)
@pytest.mark.parametrize(("own", "block"), [("absent", 3), ("always", None)])
def test_old_messages_stay_in_use(own, block):
    with jax.enable_x64(True):
        problem, algorithm = example(), STORED.replace(own=own, rate=0.4, block=block)
        plain, bare = stepping.nameless(problem), stepping.nameless(network())
        prepared, (w, _, others, _, _), _ = course(algorithm, plain, bare, jax.random.key(11), ROUNDS)
        senders, mask = np.asarray(network().graph.senders), np.asarray(network().graph.mask)
        assert np.asarray(others).sum() < 0.6 * np.asarray(others).any(axis=2).sum() * mask.sum() / M  # some are old
        found = loop_over_nodes(
            gradient_of(problem),
            [senders[i][mask[i]].tolist() for i in range(M)],
            np.asarray(prepared.ready.sigma),
            np.asarray(prepared.ready.period),
            lambda k, i: senders[i][np.asarray(others)[k, i]].tolist(),
            own == "always",
        )
        np.testing.assert_allclose(w, found, rtol=0, atol=1e-9)


def test_old_messages_are_the_same_on_several_devices():
    """From a start that is not zero, which nodes have of each other before the first message."""
    problem = example(np.float32).replace(start=np.linspace(-1, 1, N, dtype=np.float32))
    algorithm = STORED.replace(codec=jdfl.Sparse(), rate=0.4, periods=(2, 3))
    one, many = (
        jdfl.run(algorithm, problem, network(), steps=9, metrics=[], options=jdfl.Options(devices=devices))
        for devices in (None, 4)
    )
    np.testing.assert_allclose(many.params, one.params, rtol=1e-5, atol=1e-6)
    assert many.totals == one.totals


def test_what_is_stored_is_s_numbers_per_link_bounded_and_no_less_private():
    algorithm, problem = STORED.replace(codec=jdfl.Sparse()), example(np.float32)
    program = planned(algorithm, problem, network(), 9)
    setting = stepping.setting(Program(program.algorithm), problem, network(), None, jax.random.key(0))
    _, carry, _ = jax.eval_shape(loop.start, setting, ())
    d = network().graph.senders.shape[1]
    assert carry.state.stored.value.shape == (M, d * S)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("jdfl.algorithms.ceps_paper.MOST_STORED", M * d * S - 1)
        with refused(str(M * d * S)):
            check_settings(algorithm, problem, network())
    private = algorithm.replace(mechanism=jdfl.Gaussian(3.0), clip=1.0, sigma=1.0)
    told = planned(private, problem, network(), 9).privacy(problem)
    assert told.claimed
    assert told == planned(private.replace(unselected="absent"), problem, network(), 9).privacy(problem)


@pytest.mark.rotated(3)
@pytest.mark.parametrize(
    "changes", [{}, ONE_BIT, {"codec": jdfl.RandomK(k=20)} | NOISY], ids=["whole", "one bit", "random"]
)
def test_few_nonzeros_are_the_same_numbers_up_to_rounding(changes):
    (plain, _, _, sent), (few, first, _, also) = (
        play.course(replace(SPARSE, storage=kind, **changes), example(np.float32), network(), rounds=12)
        for kind in ("dense", "sparse")
    )
    np.testing.assert_allclose(few, plain, rtol=1e-6, atol=1e-7)  # XLA fuses other operations
    np.testing.assert_array_equal(few != 0, plain != 0)
    jax.tree.map(np.testing.assert_array_equal, sent, also)
    assert first.w.value.shape == first.w.place.shape == (M, S)


def test_what_cannot_be_stored_is_refused():
    problem = example(np.float32)
    for changes in ({"storage": "dense"}, {"own": "sampled"}):
        with refused(**changes):
            check_settings(STORED.replace(**changes), problem, network())
    with refused("fixed"):
        check_settings(STORED, problem, jdfl.network.link_loss(network(), 0.1))
    codecs = jdfl.Sign(), jdfl.OneBit(d=80, side=True), jdfl.OneBit(d=80, s=S + 1)
    for changes in (*({"codec": codec} for codec in codecs), {"codec": jdfl.OneBit(d=80), "phi": "receiver"}):
        with refused("s", storage="dense", **changes):
            check_settings(replace(SPARSE, **changes), problem, network())
