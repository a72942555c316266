"""How a run goes and where it ends."""

import signal
import threading
from typing import Any

import jax
import numpy as np
import pytest

import jdfl
from jdfl.algorithms.program import Program
from jdfl.engine import invariants, loop, metrics, runner
from tests.refused import refused
from tests.toy import SLOW, Gossip, M, N, problem, run


@pytest.fixture(scope="module")
def one_by_one():
    """The parameters and communications after each of 30 rounds, a round at a time."""
    params, communications = [], []

    def keep(snapshot):
        params.append(snapshot.params())
        communications.append(snapshot.row["communications"])

    result = run(SLOW, steps=30, callbacks=[keep], options=jdfl.Options(chunk=1))
    return params, communications, result


def test_the_stop_rule_ends_the_run_in_the_very_round(one_by_one):
    params, _, _ = one_by_one
    period = np.asarray(SLOW.period)
    for tolerance, every, chunk in ((1e9, 1, 50), (1e9, 7, 3), (1.0, 7, 3)):
        errors = (float(metrics.consensus_error(w, problem())) for w in params)
        first = next(k for k, error in enumerate(errors, 1) if (k >= period).all() and error <= tolerance)
        options = jdfl.Options(chunk=chunk)
        result = run(SLOW, steps=30, every=every, stop=jdfl.consensus_below(tolerance), options=options)
        assert (result.rounds, result.ending) == (first, "stop rule")
        np.testing.assert_array_equal(result.params, params[first - 1])
        np.testing.assert_array_equal(result.communication_rounds, first // period)
        assert result.history["round"].tolist() == [*range(0, first, every), first]
    assert "the stop rule never fired" in run(SLOW, stop=jdfl.consensus_below(1e-30)).reason


def test_records_fall_on_multiples_and_on_the_last_round(one_by_one):
    for steps, every, chunk, rounds in (
        (np.int64(12), np.int32(5), np.int64(3), [0, 5, 10, 12]),
        (2, 2**30, 50, [0, 2]),
    ):
        result = run(SLOW, steps=steps, every=every, options=jdfl.Options(chunk=chunk))
        assert (result.ending, result.history["round"].tolist()) == ("steps", rounds)
        np.testing.assert_array_equal(result.params, one_by_one[0][steps - 1])
        whole = one_by_one[2].history.set_index("round").loc[rounds].reset_index()
        np.testing.assert_allclose(result.history.to_numpy(), whole.to_numpy(), rtol=1e-6)


def test_the_counts_are_those_of_the_algorithm(one_by_one):
    _, communications, result = one_by_one
    period = np.asarray(SLOW.period)
    assert communications == [int((k // period).sum()) for k in range(1, 31)]
    assert result.totals.messages == {"model": 30 * M}
    assert result.totals.bytes == 30 * M * 4 * N
    assert (result.totals.gradients, result.totals.releases) == (31 * M, 30 * M)
    assert result.totals.communications == communications[-1]


def test_callbacks_see_every_chunk():
    seen = []

    def look(snapshot):
        seen.append((snapshot.rounds, snapshot.steps, snapshot.row["round"], snapshot.params()))
        snapshot.row["objective"] = None  # a callback's own copy

    result = run(callbacks=[look], options=jdfl.Options(chunk=3))
    assert [entry[:3] for entry in seen] == [(k, 12, k) for k in (3, 6, 9, 12)]
    for rounds, _, _, params in seen:  # still there after later chunks
        np.testing.assert_array_equal(params, run(steps=rounds).params)
    assert np.isfinite(result.history["objective"]).all()


def check_interrupted(result, rounds):
    whole = run(steps=rounds)
    assert (result.ending, result.rounds, result.totals) == ("interrupted", rounds, whole.totals)
    np.testing.assert_array_equal(result.params, whole.params)


def test_a_callback_may_interrupt():
    stop = lambda now: "it is good enough" if now.rounds == 6 else None  # noqa: E731
    result = run(callbacks=[stop], options=jdfl.Options(chunk=3))
    check_interrupted(result, 6)
    assert result.reason.startswith("it is good enough")
    with refused("3"):
        run(callbacks=[lambda now: 3])


@pytest.mark.parametrize("name", ["__call__", "on_chunks", "on_begin"])
def test_a_callback_with_a_method_that_nothing_calls_is_refused(name):
    kind = type("Mine", (jdfl.Callback,), {name: lambda self, now: None})
    with pytest.raises(ValueError) as refused:
        run(callbacks=[kind()])
    assert f"Mine.{name}" in str(refused.value)


class Noting(jdfl.Callback):
    """Notes when it is told what."""

    every = 4

    def __init__(self):
        self.log = []

    def on_start(self, start):
        self.log.append(("start", start.steps))

    def on_return(self, now):
        self.log.append(("return", now.rounds))

    def on_chunk(self, now):
        self.log.append(("chunk", now.rounds))

    def on_end(self, result):
        self.log.append(("end", result.rounds))

    def close(self):
        self.log.append("close")


def test_callbacks_are_told_in_order_and_closed_whatever_happens():
    def fail(now):
        raise RuntimeError("disk full")

    one, begun = Noting(), [("start", 6), ("return", 0), ("return", 4)]
    run(steps=6, callbacks=[one], options=jdfl.Options(chunk=5))
    assert one.log == [*begun, ("chunk", 5), ("return", 5), ("chunk", 6), ("end", 6), "close"]
    one.log.clear()
    with pytest.raises(RuntimeError):
        run(steps=6, callbacks=[one, fail])
    assert one.log == [*begun, ("chunk", 6), "close"]


class Allowed(jdfl.Callback):
    def __init__(self, releases):
        self.releases = releases

    def on_start(self, start):
        return np.full(start.problem.m, self.releases)


def test_the_tightest_of_several_limits_counts():
    result = run(SLOW.replace(period=None), callbacks=[Allowed(9), Allowed(4)])
    assert (result.ending, result.rounds) == ("budget", 4)


@pytest.fixture
def ctrl_c(monkeypatch):
    """Python's own handling of Ctrl-C, and what is pressed while a chunk's donated state is in nobody's hands."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    advance, left = loop.advance, []

    def pressed(carry, *rest):
        result = advance(carry, *rest)
        while left:
            signal.raise_signal(left.pop())
        return result

    monkeypatch.setattr(loop, "advance", pressed)
    yield left
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_waits_for_the_chunk_under_way_and_a_second_one_does_not(ctrl_c):
    ctrl_c.append(signal.SIGINT)
    check_interrupted(run(options=jdfl.Options(chunk=3)), 3)
    ctrl_c.extend([signal.SIGINT] * 2)
    with pytest.raises(KeyboardInterrupt):
        run(options=jdfl.Options(chunk=3))


def test_ctrl_c_in_the_last_chunk_is_raised_when_the_run_returns(ctrl_c):
    """So a loop of short runs ends; the result is known to callbacks."""
    ctrl_c.append(signal.SIGINT)
    one = Noting()
    one.every = 50
    with pytest.raises(KeyboardInterrupt):
        run(callbacks=[one])
    assert one.log[-2:] == [("end", 12), "close"]
    with pytest.raises(KeyboardInterrupt), runner.Interruption(), runner.Interruption() as inner:
        inner.note()  # and those around are told


def test_runs_in_other_threads():
    found = []
    thread = threading.Thread(target=lambda: found.append(run(key=3)))
    thread.start()
    thread.join()
    np.testing.assert_array_equal(found[0].params, run(key=3).params)


def test_every_number_that_is_not_finite_is_found():
    w = np.full((3, 5), np.finfo(np.float32).max, np.float32)  # finite, if only just
    program, large = Program(Gossip()), np.float32(1e30)
    for watched in ("state", "parameters"):
        found = jax.jit(lambda w, largest=None, watched=watched: invariants.bad_nodes(program, w, largest, watched))
        assert not found(w).any()
        assert found(w, large).all()
        assert found(-w, large).all()
        for bad in ([np.nan], [np.inf], [-np.inf], [np.inf, -np.inf]):
            spoilt = w.copy()
            spoilt[1, 1 : 1 + len(bad)] = bad
            assert found(spoilt).tolist() == [False, True, False]
    assert invariants.bad_nodes(program, w, large, "nothing") is None


def test_a_run_ends_where_a_parameter_is_too_large():
    result = run(Gossip(rate=2.5), steps=100, options=jdfl.Options(chunk=7, diverged_above=1e4))
    assert (result.ending, result.rounds < 100) == ("diverged", True)
    assert result.diverged is not None
    rounds, node = result.diverged
    assert (rounds, node) == (result.rounds, np.argmax(np.abs(result.params).max(axis=1) > 1e4))
    assert np.abs(run(Gossip(rate=2.5), steps=rounds - 1).params).max() <= 1e4
    with refused(diverged_above=-1):
        run(options=jdfl.Options(diverged_above=-1))


@pytest.mark.rotated(2)
@pytest.mark.parametrize(("every", "chunk"), [(5, 50), (1, 3)])
def test_a_run_ends_with_the_first_node_that_is_not_finite(every, chunk):
    failing = Gossip(fails=((6, 4), (6, 2), (8, 0)))
    result = run(failing, every=every, stop=jdfl.consensus_below(1e-9), options=jdfl.Options(chunk=chunk))
    assert (result.ending, result.rounds, result.diverged) == ("diverged", 7, (7, 2))
    assert result.history["round"].tolist() == [*range(0, 7, every), 7]
    assert np.isfinite(result.history["objective"]).tolist() == [True] * (len(result.history) - 1) + [False]
    assert (result.final["objective"], result.final["consensus_error"], result.final["round"]) == (np.inf, np.inf, 7)
    assert result.totals.messages == {"model": 7 * M}


def test_a_start_that_is_not_finite_is_no_run():
    result = run(Gossip(fails=((-1, 3),)))
    assert (result.ending, result.rounds, result.diverged) == ("diverged", 0, (0, 3))
    assert result.history["round"].tolist() == [0]


def test_a_metric_that_overflows_ends_a_run_where_it_is_recorded_unless_the_end_would_tell_of_data():
    result = run(Gossip(rate=2.5), steps=500, every=5)
    assert (result.ending, result.diverged) == ("diverged", (result.rounds, -1))
    assert np.isfinite(result.params).all()
    assert result.final["objective"] == result.final["consensus_error"] == np.inf
    assert np.isfinite(result.history["objective"].iloc[-2])
    noisy = run(jdfl.DPSGD(gradients=jdfl.Gradients(clip=1.0, mechanism=jdfl.Gaussian(1e28))))
    assert (noisy.ending, noisy.diverged) == ("steps", None)
    assert noisy.final["objective"] == np.inf
    assert np.isfinite(noisy.params).all()


def test_the_smallest_and_the_largest_final_value_never_belong_to_a_run_that_diverged():
    """A diverged run whose last record has finite metrics, here for a parameter that is too large."""
    X, y = np.random.default_rng(0).normal(size=(60, 3)), np.arange(60) % 2
    problem = jdfl.from_arrays(X, y, nodes=3, test_fraction=0.3)
    given: Any = {"steps": 40, "options": jdfl.Options(diverged_above=0.2), "every": 100}
    far, near = (jdfl.run(jdfl.DPSGD(lr=lr), problem, jdfl.network.ring(3), **given).final for lr in (1.0, 1e-3))
    for name in ("objective", "objective_local", "consensus_error"):
        assert near[name] < far[name] == np.inf
    for name in ("accuracy", "balanced_accuracy"):
        assert near[name] > far[name] == -np.inf
