"""How a run goes and where it ends."""

import re
import signal
import subprocess
import sys
import threading
from typing import Any

import jax
import numpy as np
import pytest

import jdfl
from jdfl import network as nw
from jdfl import testing
from jdfl.algorithms.program import Program
from jdfl.engine import guard, loop, metrics, waves
from jdfl.events import RandomizedGossip
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
    for tolerance in (1e9, 1.0):
        first = next(
            k
            for k in range(1, 31)
            if (k >= period).all() and float(metrics.consensus_error(params[k - 1], problem)) <= tolerance
        )
        for every, chunk in ((1, 50), (7, 3)):
            options = jdfl.Options(chunk=chunk)
            result = run(SLOW, steps=30, every=every, stop=jdfl.consensus_below(tolerance), options=options)
            assert (result.rounds, result.ending) == (first, "stop rule")
            np.testing.assert_array_equal(result.params, params[first - 1])
            np.testing.assert_array_equal(result.communication_rounds, first // period)
            assert result.history["round"].tolist() == [*range(0, first, every), first]


def test_records_fall_on_multiples_and_on_the_last_round(one_by_one):
    for steps, every, chunk, rounds in (
        (12, 5, 1, [0, 5, 10, 12]),
        (12, 4, 6, [0, 4, 8, 12]),
        (2, 2**30, 50, [0, 2]),
        (np.int64(3), np.int32(2), np.int64(2), [0, 2, 3]),
    ):
        result = run(SLOW, steps=steps, every=every, options=jdfl.Options(chunk=chunk))
        assert (result.ending, result.history["round"].tolist()) == ("steps", rounds)
        np.testing.assert_array_equal(result.params, one_by_one[0][steps - 1])
        whole = one_by_one[2].history.set_index("round").loc[rounds].reset_index()
        np.testing.assert_allclose(result.history.to_numpy(), whole.to_numpy(), rtol=1e-6)
    assert "the stop rule never fired" in run(stop=jdfl.objective_below(-1.0)).reason


def test_the_counts_are_those_of_the_algorithm(one_by_one):
    _, communications, result = one_by_one
    period = np.asarray(SLOW.period)
    assert communications == [int((k // period).sum()) for k in range(1, 31)]
    assert result.totals.messages == {"model": 30 * M}
    assert result.totals.message_bits == {"model": 32 * N}
    assert result.totals.bits == 30 * M * 32 * N
    assert result.totals.bytes == 30 * M * 4 * N
    assert (result.totals.gradients, result.totals.releases) == (31 * M, 30 * M)
    assert result.totals.communications == communications[-1]


def test_callbacks_see_every_chunk():
    seen = []

    def look(snapshot):
        seen.append((snapshot.rounds, snapshot.steps, snapshot.row["round"], snapshot.params()))
        snapshot.row["objective"] = None  # a callback's own copy

    result = run(callbacks=[look], options=jdfl.Options(chunk=5))
    assert [entry[:3] for entry in seen] == [(5, 12, 5), (10, 12, 10), (12, 12, 12)]
    for rounds, _, _, params in seen:  # still there after later chunks
        np.testing.assert_array_equal(params, run(steps=rounds).params)
    assert np.isfinite(result.history["objective"]).all()


def check_interrupted(result, rounds):
    whole = run(steps=rounds)
    assert (result.ending, result.rounds) == ("interrupted", rounds)
    assert f"after round {rounds}" in result.reason
    assert result.history["round"].tolist() == list(range(rounds + 1))
    assert result.totals == whole.totals
    np.testing.assert_array_equal(result.params, whole.params)


def test_a_callback_may_interrupt():
    def stop(now):
        return "it is good enough" if now.rounds == 6 else None

    def press(now):
        if now.rounds == 6:
            raise KeyboardInterrupt

    for callback in (stop, press):
        result = run(callbacks=[callback], options=jdfl.Options(chunk=3))
        check_interrupted(result, 6)
        assert result.reason.startswith("it is good enough") == (callback is stop)
    with refused("3"):
        run(callbacks=[lambda now: 3])


class Told(jdfl.Callback):
    """Notes when it is told what."""

    every = 4

    def __init__(self):
        self.log = []

    def begin(self, start):
        self.log.append(("begin", start.steps))

    def between(self, now):
        self.log.append(("between", now.rounds))

    def __call__(self, now):
        self.log.append(("told", now.rounds))

    def end(self, result):
        self.log.append(("end", result.rounds))

    def close(self):
        self.log.append("close")


def test_callbacks_are_told_in_order_and_closed_whatever_happens():
    def fail(now):
        raise RuntimeError("disk full")

    one, begun = Told(), [("begin", 6), ("between", 0), ("between", 4)]
    run(steps=6, callbacks=[one], options=jdfl.Options(chunk=5))
    assert one.log == [*begun, ("told", 5), ("between", 5), ("told", 6), ("end", 6), "close"]
    one.log.clear()
    with pytest.raises(RuntimeError):
        run(steps=6, callbacks=[one, fail])
    assert one.log == [*begun, ("told", 6), "close"]


class Allowed(jdfl.Callback):
    """Allows every node some releases."""

    def __init__(self, most):
        self.most = most

    def begin(self, start):
        return np.full(start.problem.m, self.most)


def test_the_tightest_of_several_limits_counts():
    result = run(SLOW.replace(period=None), callbacks=[Allowed(9), Allowed(4)])
    assert (result.ending, result.rounds) == ("budget", 4)


class Keep(jdfl.Callback):
    """Keeps the result, and does something after every chunk."""

    def __init__(self, what):
        self.what = what

    def __call__(self, now):
        self.what(now)

    def end(self, result):
        self.result = result


@pytest.fixture
def ctrl_c(monkeypatch):
    """Python's own handling of Ctrl-C, and a way to press it while a chunk's donated state is in nobody's hands."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    advance = loop.advance

    def press(times):
        left = [signal.SIGINT] * times

        def pressed(carry, *rest):
            result = advance(carry, *rest)
            while left:
                signal.raise_signal(left.pop())
            return result

        monkeypatch.setattr(loop, "advance", pressed)

    yield press
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_waits_for_the_chunk_under_way_and_a_second_one_does_not(ctrl_c):
    ctrl_c(1)
    try:
        result = run(options=jdfl.Options(chunk=3))
    except KeyboardInterrupt:  # it would end pytest
        pytest.fail("Ctrl-C was not held back")
    check_interrupted(result, 3)
    ctrl_c(2)
    with pytest.raises(KeyboardInterrupt):
        run(options=jdfl.Options(chunk=3))


@pytest.mark.parametrize("where", ["start", "advance", "callback"])
def test_ctrl_c_in_the_last_chunk_or_while_it_compiles_is_raised_when_the_run_returns(ctrl_c, monkeypatch, where):
    """So a loop of short runs ends; the result is known to callbacks."""
    ctrl_c(where == "advance")
    if where == "start":
        start = loop.start
        monkeypatch.setattr(loop, "start", lambda *some: (signal.raise_signal(signal.SIGINT), start(*some))[1])

    def press(_):
        if where == "callback":
            raise KeyboardInterrupt

    keep = Keep(press)
    with pytest.raises(KeyboardInterrupt):
        run(callbacks=[keep], options=jdfl.Options(chunk=100))
    assert (keep.result.ending, keep.result.rounds) == ("steps", 12)


def test_ctrl_c_in_a_run_inside_a_callback_ends_both_or_is_raised(ctrl_c):
    endings, chunk = [], jdfl.Options(chunk=3)

    def nested(_):
        ctrl_c(1)
        endings.append(run(options=chunk).ending)

    assert run(callbacks=[nested], options=chunk).ending == "interrupted"
    with pytest.raises(KeyboardInterrupt):
        run(callbacks=[nested], options=jdfl.Options(chunk=100))
    assert endings == ["interrupted"] * 2


def test_ctrl_c_in_the_last_events_is_raised(ctrl_c, monkeypatch):
    advance = waves.Waves.advance

    def pressed(*some):
        signal.raise_signal(signal.SIGINT)
        return advance(*some)

    monkeypatch.setattr(waves.Waves, "advance", pressed)
    small = testing.small_problem()
    with pytest.raises(KeyboardInterrupt):
        jdfl.run(RandomizedGossip(), small, nw.timed(nw.ring(small.m)), steps=2)


@pytest.mark.rotated(3)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_every_signal_that_ended_nothing_has_its_usual_effect_afterwards(number):
    """In a process, and after another one that did end something."""
    code = f"""
import signal
from jdfl.engine.interruption import Interruption
for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(one, signal.default_int_handler if one == signal.SIGINT else signal.SIG_DFL)
with Interruption() as ended:
    signal.raise_signal({number.value})
    ended.settle("interrupted" if ended.asked == "interrupted" else "terminated")
with Interruption() as noted:
    with Interruption() as inner:
        signal.raise_signal({number.value})
        assert inner.asked == noted.asked != None
        inner.settle("terminated")
    print("held", flush=True)
print("lost", flush=True)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "held\n"
    assert done.returncode == -number


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
        found = jax.jit(lambda w, largest=None, watched=watched: guard.bad_nodes(program, w, largest, watched))
        assert not found(w).any()
        assert found(w, large).all()
        for bad in ([np.nan], [np.inf], [-np.inf], [np.inf, -np.inf]):
            spoilt = w.copy()
            spoilt[1, 1 : 1 + len(bad)] = bad
            assert found(spoilt).tolist() == [False, True, False]
    assert guard.bad_nodes(program, w, large, "nothing") is None


def test_a_run_ends_where_a_parameter_is_too_large():
    result = run(Gossip(rate=2.5), steps=100, options=jdfl.Options(chunk=7, diverged_above=1e4))
    assert (result.ending, result.rounds < 100) == ("diverged", True)
    assert result.diverged is not None
    rounds, node = result.diverged
    assert (rounds, node) == (result.rounds, np.argmax(np.abs(result.params).max(axis=1) > 1e4))
    for said in (f"node {node} ", "10000", f"round {rounds}"):
        assert said in result.reason
    assert np.abs(run(Gossip(rate=2.5), steps=rounds - 1).params).max() <= 1e4
    with refused(diverged_above=-1):
        run(options=jdfl.Options(diverged_above=-1))


@pytest.mark.rotated(2)
@pytest.mark.parametrize(("every", "chunk"), [(5, 50), (1, 3)])
def test_a_run_ends_with_the_first_node_that_is_not_finite(every, chunk):
    failing = Gossip(fails=((6, 4), (6, 2), (8, 0)))
    result = run(failing, every=every, stop=jdfl.consensus_below(1e-9), options=jdfl.Options(chunk=chunk))
    assert (result.ending, result.rounds, result.diverged) == ("diverged", 7, (7, 2))
    assert "node 2" in result.reason
    assert "after round 7" in result.reason
    assert result.history["round"].tolist() == [*range(0, 7, every), 7]
    assert np.isfinite(result.history["objective"]).tolist() == [True] * (len(result.history) - 1) + [False]
    assert (result.final["objective"], result.final["consensus_error"], result.final["round"]) == (np.inf, np.inf, 7)
    assert result.totals.messages == {"model": 7 * M}
    assert np.isfinite(np.delete(np.asarray(result.params), [2, 4], axis=0)).all()


def test_a_start_that_is_not_finite_is_no_run():
    result = run(Gossip(fails=((-1, 3),)))
    assert (result.ending, result.rounds, result.diverged) == ("diverged", 0, (0, 3))
    assert result.history["round"].tolist() == [0]
    assert result.final["objective"] == np.inf


def test_ceps_that_diverges_keeps_what_was_finite():
    noisy = jdfl.CEPS(s=3, periods=(2, 3), mechanism=jdfl.Gaussian(1e38), sensitivity=10.0)
    result = run(noisy, steps=100, every=100)
    assert result.ending == "diverged"
    assert result.diverged is not None
    assert result.diverged[0] == result.rounds == result.history["round"].iloc[-1] < 100
    node = result.diverged[1]
    finite = {name: np.isfinite(getattr(result.state, name)).all(axis=1) for name in ("w", "u")}
    assert np.argmin(finite["w"] & finite["u"]) == node
    assert set(re.findall(r"\b[wu]\b", result.reason)) == {name for name, rows in finite.items() if not rows[node]}
    assert result.final["objective"] == np.inf


def test_a_metric_that_overflows_ends_a_run_where_it_is_recorded_unless_the_end_would_tell_of_data():
    result = run(Gossip(rate=2.5), steps=500, every=5)
    assert (result.ending, result.diverged) == ("diverged", (result.rounds, -1))
    assert "the metric objective is not finite" in result.reason
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
