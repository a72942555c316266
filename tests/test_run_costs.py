"""What a run costs: programs, copies, time, and counters that do not overflow."""

import time

import jax
import jax.numpy as jnp
import numpy as np

import jdfl
from jdfl.algorithms.program import Program
from jdfl.engine import loop, stepping
from jdfl.engine.tally import Tally
from tests.toy import SLOW, Gossip, M, network, problem, regression, ring, run


def test_names_compile_nothing(compilations):
    run(problem=problem.replace(name="first"), network=network.replace(name="that"))
    before = compilations()
    renamed = run(problem=problem.replace(name="other"), network=network.replace(name="another"), steps=11)
    assert compilations() == before
    assert (renamed.problem_name, renamed.network_name) == ("other", "another")


def test_state_is_donated_and_data_is_not_copied():
    setting = stepping.setting(Program(Gossip()), problem, network, None, jax.random.key(0))
    program, carry, first = loop.start(setting, ())
    data = {leaf.shape for leaf in jax.tree.leaves(problem.data)}
    assert not data & {leaf.shape for leaf in jax.tree.leaves((program, carry, first))}
    setting = setting.replace(algorithm=program)
    later, _ = loop.advance(carry, setting, jnp.int32(5), 1, 5, ())
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves((carry.state, carry.communications)))
    assert not any(leaf.is_deleted() for leaf in jax.tree.leaves((later, setting)))


def test_compilation_is_timed_apart_and_once():
    shape = {"problem": regression(5, 9), "network": ring(5)}
    began = time.perf_counter()
    cold = run(**shape)
    wall = time.perf_counter() - began
    assert 0 < cold.compile_seconds < cold.compile_seconds + cold.seconds <= wall
    assert run(**shape, key=1).compile_seconds < 0.02 * cold.compile_seconds


def test_counters_beyond_an_int32_and_totals_beyond_a_float():
    result = run(Gossip(messages=2**29), options=jdfl.Options(chunk=1))
    assert result.history["messages"].tolist() == [k * M * 2**29 for k in range(13)]
    tally = Tally({"a": 2**60 + 1, "b": 3})
    limbs = np.full((1, 8), 2**31 - 1, np.int32)
    counts = dict.fromkeys(("sent_a", "sent_b", "grads", "examples", "communications", "releases"), limbs)
    for k in range(4):
        tally.add(np.array([k]), {"objective": np.array([0.5], np.float32)}, counts)
    each = (2**31 - 1) * sum(16**place for place in range(8))
    totals = tally.totals()
    assert totals.messages == {"a": 4 * each, "b": 4 * each}
    assert totals.bits == 4 * each * (2**60 + 4)
    assert totals.gradients == totals.communications == totals.releases == 4 * each
    assert tally.history()["messages"].tolist() == [2 * k * each for k in range(1, 5)]


def test_everything_runs_in_float64():
    with jax.enable_x64(True):
        rules = jdfl.all_of(jdfl.consensus_below(1e-30), jdfl.objective_below(-1.0, every=2), jdfl.gradient_below(1e-9))
        result = run(SLOW, problem=regression(dtype=np.float64), metrics=None, steps=np.int64(6), stop=rules)
        assert result.params.dtype == np.float64
        assert np.isfinite(result.history.to_numpy(dtype=float)).all()
