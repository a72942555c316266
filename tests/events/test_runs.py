"""Asynchronous methods in runs: what is released and claimed, where budgets, signals and rules end, and memory."""

import signal
from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jdfl
from jdfl import network as nw
from jdfl import testing
from jdfl.base import struct
from jdfl.devices import memory
from jdfl.engine import waves
from jdfl.engine.spending import release_limits
from jdfl.events import ADPSGD, plan
from tests.events.scenes import NOISY, PERIODS, ROWS, VARIANTS, drawn, equal, most, network, ran, simulated
from tests.refused import refused

NOISES = [name for name in VARIANTS if name.endswith("noise")]
PLAIN, AGP = VARIANTS["AD-PSGD"], VARIANTS["AGP, noise"]


@cache
def whole(name: str) -> tuple[jdfl.Result, nw.Timed]:
    """A run of a noisy method and its network."""
    timed = network("slow nodes", fault=most(name))
    return ran(VARIANTS[name], timed, every=5), timed


@pytest.mark.rotated(4)
@pytest.mark.parametrize("name", NOISES)
def test_releases_are_known_before_the_run_and_all_messages_are_covered(name):
    (result, timed), problem = whole(name), testing.small_problem()
    planned = jdfl.planned_releases(VARIANTS[name], problem, timed, steps=PERIODS, key=2)
    np.testing.assert_array_equal(planned, result.releases)
    assert result.totals.releases == result.totals.gradients
    report = jdfl.account(result)
    assert report.sound
    assert report.observer == "all messages"
    assert report.sampling is None
    rounds = {"steps": int(result.releases.max())}  # as many releases of any other method
    other = jdfl.account_plan(jdfl.DPSGD(gradients=NOISY), problem, testing.small_network(), **rounds)
    assert report.epsilon == pytest.approx(other.epsilon, rel=1e-9)


@pytest.mark.rotated(4)
@pytest.mark.parametrize("name", NOISES)
def test_a_budget_ends_before_the_first_event_that_exceeds_it(name):
    (end, timed), method, problem, epsilon = whole(name), VARIANTS[name], testing.small_problem(), 60.0
    result = ran(method, timed, problem, callbacks=[jdfl.Budget(epsilon, 1e-5)], every=5)
    assert result.ending == "budget"
    assert "nothing of it is sent" in result.reason
    done, second = int(result.state["happened"]), float(result.clock[0]) + float(result.clock_rest[0])
    assert drawn(method, timed).time[done] == pytest.approx(second, rel=1e-12)
    assert result.rounds == np.ceil(second)
    assert jdfl.account(result, delta=1e-5).epsilon <= epsilon
    assert (result.releases <= release_limits(method, problem, epsilon=epsilon, delta=1e-5)).all()
    more = ran(method, timed, problem, resume=result, every=5)
    equal(more.state, end.state)
    np.testing.assert_array_equal(more.releases, end.releases)


@struct.dataclass
class Shifted(ADPSGD):
    """What it prepares follows from the key of the run."""

    def prepare(self, problem, context, plan):
        return {"by": jax.random.uniform(context.key, (), jnp.float32)}


def test_what_would_play_rounds_or_prepare_constants_is_refused():
    """A wrapped method or an audit of one run would compute other things than the run."""
    problem, timed, method = testing.small_problem(), network(), VARIANTS["AD-PSGD, noise"]
    plays = [
        ("prepare", lambda: ran(Shifted(lr=0.05))),  # seeds side by side would all have the first one's
        ("rounds", lambda: ran(jdfl.attacked(method, jdfl.robust.SignFlip(), nodes=[1]))),
        ("rounds", lambda: jdfl.audit_one_run(method, problem, timed, steps=2)),
        ("devices", lambda: ran(PLAIN, options=jdfl.Options(devices=2))),
    ]
    for named, play in plays:
        with refused(named):
            play()


def test_a_ledger_takes_what_the_run_will_release(tmp_path):
    result = ran(AGP, ledger=jdfl.DataLedger.create(tmp_path / "much", epsilon=1e4, delta=1e-5))
    assert result.standing is not None
    with refused("epsilon"):
        ran(AGP, key=3, ledger=jdfl.DataLedger.create(tmp_path / "little", epsilon=1.0, delta=1e-5))


def test_a_run_that_diverges_ends_at_a_record_and_a_stop_rule_is_asked_after_every_period():
    runs = [ran(PLAIN.replace(lr=1e30), every=4, options=jdfl.Options(chunk=chunk)) for chunk in (3, 100)]
    assert [run.ending for run in runs] == ["diverged"] * 2
    assert {run.rounds for run in runs} == {4}
    values = ran(PLAIN, metrics=["objective"]).history.objective.to_numpy()
    runs = [ran(PLAIN, stop=jdfl.objective_below(float(values[6])), every=every) for every in (1, 5)]
    assert runs[0].rounds == runs[1].rounds == (values <= values[6]).argmax() > 1
    assert runs[0].ending == "stop rule"


@pytest.mark.parametrize("where", ["start", "advance"])
def test_ctrl_c_while_a_run_compiles_or_computes_ends_it_after_the_periods_under_way(where, monkeypatch):
    usual, left = signal.signal(signal.SIGINT, signal.default_int_handler), [signal.SIGINT]
    called = getattr(waves.Waves, where)

    def pressed(*some):
        while left:
            signal.raise_signal(left.pop())
        return called(*some)

    monkeypatch.setattr(waves.Waves, where, pressed)
    try:
        result = ran(PLAIN, options=jdfl.Options(chunk=3))
    finally:
        signal.signal(signal.SIGINT, usual)
    assert (result.ending, result.rounds) == ("interrupted", 3)
    np.testing.assert_array_equal(result.params, ran(PLAIN, steps=3).params)


def test_periods_are_seconds():
    short, long = (ran(replace(AGP, period=period), steps=steps) for period, steps in ((0.5, 28), (2.0, 7)))
    np.testing.assert_array_equal(short.params, long.params)
    np.testing.assert_array_equal(short.history.network_seconds, np.arange(29) * 0.5)


def test_a_checkpoint_goes_on_to_the_same_folder(tmp_path):
    timed = network("slow nodes")
    end = ran(AGP, timed, every=3)
    ran(AGP, timed, every=3, steps=8, callbacks=[jdfl.Checkpoints(tmp_path / "run", every=2)])
    before = jdfl.read_checkpoint(tmp_path / "run", AGP, testing.small_problem(), timed)
    found = ran(AGP, timed, every=3, resume=before)
    equal(found.state, end.state)
    assert found.history.equals(end.history)


@pytest.mark.rotated(6)
@pytest.mark.parametrize("name", ROWS)
def test_the_memory_of_a_run_of_events_is_that_of_its_tables_and_of_a_piece(name, monkeypatch):
    """Tables and messages to the byte; a run is refused with one byte less than everything together."""
    given = ROWS[name].method, testing.small_problem(), network("slow nodes")
    needed, room = list[dict[str, int]](), [1]
    monkeypatch.setattr(memory, "available", lambda devices=1: room[0])
    with monkeypatch.context() as recording:
        recording.setattr(memory, "require", lambda what, *_: needed.append(dict(what)))
        tables = memory.size_of(simulated(*given).carry.state)
    parts, everything = needed[-1], sum(needed[-1].values())
    at_once = parts["events that are computed together"]
    assert everything - at_once - parts["its constants"] == tables
    assert at_once >= min(plan.WIDTHS) * memory.size_of(given[1].initial_params()[0])
    for room[0], named in ((everything - 1, "events that are computed together"), (800, "memory")):
        with refused(named):
            simulated(*given)
    room[0] = everything
    simulated(*given)
