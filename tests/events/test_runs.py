"""Asynchronous methods in runs: what is counted, released and claimed, and where budgets end."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jdfl
from jdfl import testing
from jdfl.base import struct
from jdfl.base.streams import Keys
from jdfl.devices import memory
from jdfl.engine.spending import release_limits
from jdfl.events import ADPSGD, AGP, AsyncMethod, SwarmSGD, plan
from jdfl.events.faults import with_times
from jdfl.events.partners import links
from jdfl.events.timeline import Events
from jdfl.network import in_run
from tests.events.scenes import NOISY, PERIODS, ROWS, VARIANTS, M, borne, equal, network, ran, simulated
from tests.refused import refused

NOISES = [name for name in VARIANTS if name.endswith("noise")]


def drawn(method: AsyncMethod, timed, seed: int = 2) -> Events:
    """What happens in a run."""
    key = Keys.of(jax.random.key(seed)).network
    return method.events(with_times(in_run(timed, key, 0), ""), key, float(PERIODS))


def by_hand(name: str, events: Events, degree: np.ndarray) -> dict[str, np.ndarray]:
    """What every node does, from the papers: messages, gradients, and how often it combines."""
    sent, grads, combined = (np.zeros(M, int) for _ in range(3))
    steps = getattr(ROWS[name].method, "local_steps", 1)
    for kind, i, rows in zip(events.kind, events.actor, events.rows):
        if name in ("AD-PSGD", "SwarmSGD", "randomized gossip"):
            j = rows[2 if name == "AD-PSGD" else 1] if kind == 0 else -1
            grads[i] += 0 if name == "randomized gossip" or kind == 1 else steps
            sent[[i, j if j >= 0 else -2 - j]] += j != -1
            if j >= 0:
                combined[[i, j]] += 1
                grads[j] += steps if name == "SwarmSGD" else 0
        elif name in ("SWIFT", "CHOCO", "DO-ADP") or (name == "AGP" and kind == 0):
            grads[i] += 1
            combined[i] += 1
            sent[i] += rows[2] != -1 if name == "AGP" else degree[i]
        elif "walk" in name:
            grads[i] += 1
            sent[i] += rows[1] >= 0
            combined[rows[1]] += rows[1] >= 0
        elif name.startswith("Fed"):
            grads[i] += steps if kind == 0 else 0
            sent[i] += 1  # up, and down
            combined[i] += kind == 1
    return {"sent": sent, "grads": grads, "communications": combined}


@pytest.mark.parametrize("name", ROWS)
def test_counts_are_those_made_by_hand(name):
    method, timed = ROWS[name].method, network("slow nodes", "cut off", (borne(name) or [None])[-1])
    result, degree = ran(method, timed), np.asarray(links(with_times(timed, "")).out_degree)
    expected = by_hand(name, drawn(method, timed), degree)
    assert sum(result.totals.messages.values()) == expected["sent"].sum()
    assert result.totals.gradients == expected["grads"].sum() + (M if name == "randomized gossip" else 0)
    assert result.totals.examples == testing.EXAMPLES * result.totals.gradients
    np.testing.assert_array_equal(result.communication_rounds, expected["communications"])
    assert result.totals.releases == 0
    assert result.clock is not None
    np.testing.assert_array_equal(result.clock, float(PERIODS))


@pytest.mark.rotated(4)
@pytest.mark.parametrize(("name", "fault"), [(name, one) for name in NOISES for one in [None, *borne(name)[-1:]]])
def test_releases_are_known_before_the_run_and_all_messages_are_covered(name, fault):
    method, timed, problem = VARIANTS[name], network("slow nodes", fault=fault), testing.small_problem()
    result = ran(method, timed)
    planned = jdfl.planned_releases(method, problem, timed, steps=PERIODS, key=2)
    np.testing.assert_array_equal(planned, result.releases)
    assert result.totals.releases == result.totals.gradients
    report = jdfl.account(result)
    assert report.sound
    assert report.observer == "all messages"
    assert report.sampling is None
    alone = jdfl.account(ran(ADPSGD(lr=0.05, gradients=NOISY), network("equal"), steps=int(result.releases.max())))
    assert report.epsilon == pytest.approx(alone.epsilon, rel=1e-9)  # as many releases of any other method


@pytest.mark.rotated(3)
@pytest.mark.parametrize("name", NOISES)
def test_a_budget_ends_before_the_first_event_that_exceeds_it(name):
    method, timed, problem, epsilon = VARIANTS[name], network("slow nodes"), testing.small_problem(), 60.0
    result = ran(method, timed, problem, callbacks=[jdfl.Budget(epsilon, 1e-5)], every=5)
    assert result.ending == "budget"
    assert "nothing of it is sent" in result.reason
    done, second = int(result.state["happened"]), float(result.clock[0]) + float(result.clock_rest[0])
    assert drawn(method, timed).time[done] == pytest.approx(second, rel=1e-12)
    assert result.rounds == np.ceil(second)
    assert jdfl.account(result, delta=1e-5).epsilon <= epsilon
    whole = jdfl.planned_releases(method, problem, timed, steps=PERIODS, key=2)
    assert (whole >= result.releases).all()
    assert (result.releases <= release_limits(method, problem, epsilon=epsilon, delta=1e-5)).all()
    more = ran(method, timed, problem, resume=result, every=5)
    equal(more.state, simulated(method, problem, timed).state)
    np.testing.assert_array_equal(more.releases, whole)


@struct.dataclass
class Shifted(ADPSGD):
    """What it prepares follows from the key of the run."""

    def prepare(self, problem, moment, plan):
        return {"by": jax.random.uniform(moment.key, (), jnp.float32)}


def test_what_would_play_rounds_or_prepare_constants_is_refused():
    """A wrapped method, an audit of one run or a floor would compute other things than the run."""
    problem, timed, method = testing.small_problem(), network(), VARIANTS["AD-PSGD, noise"]
    plays = [
        ("prepare", lambda: ran(Shifted(lr=0.05))),  # seeds side by side would all have the first one's
        ("rounds", lambda: ran(jdfl.attacked(method, jdfl.robust.SignFlip(), nodes=[1]))),
        ("rounds", lambda: jdfl.audit_one_run(method, problem, timed, steps=2)),
        ("rounds", lambda: jdfl.floor(method, problem, timed)),
        ("devices", lambda: ran(ADPSGD(), options=jdfl.Options(devices=2))),
    ]
    for named, play in plays:
        with refused(named):
            play()


def test_a_ledger_takes_what_the_run_will_release(tmp_path):
    method, timed = VARIANTS["SwarmSGD, noise"], network("slow nodes")
    result = ran(method, timed, ledger=jdfl.DataLedger.create(tmp_path / "much", epsilon=1e4, delta=1e-5))
    assert result.standing is not None
    with refused("epsilon"):
        ran(method, timed, key=3, ledger=jdfl.DataLedger.create(tmp_path / "little", epsilon=1.0, delta=1e-5))


def test_a_run_that_diverges_ends_at_a_record_whatever_its_chunks_are():
    runs = [ran(ADPSGD(lr=1e30), every=4, options=jdfl.Options(chunk=chunk)) for chunk in (3, 100)]
    assert [run.ending for run in runs] == ["diverged"] * 2
    assert {run.rounds for run in runs} == {4}


def test_a_stop_rule_is_asked_after_every_period():
    runs = [ran(SwarmSGD(lr=0.05), stop=jdfl.objective_below(2.0), every=every) for every in (1, 5)]
    assert runs[0].rounds == runs[1].rounds < PERIODS
    assert runs[0].ending == "stop rule"
    history = ran(SwarmSGD(lr=0.05), metrics=["objective"]).history
    assert (history.objective <= 2.0).to_numpy().argmax() == runs[0].rounds


def test_periods_are_seconds():
    short, long = (ran(replace(AGP(lr=0.002), period=period), steps=steps) for period, steps in ((0.5, 28), (2.0, 7)))
    np.testing.assert_array_equal(short.params, long.params)
    np.testing.assert_array_equal(short.history.network_seconds, np.arange(29) * 0.5)


def test_a_checkpoint_goes_on_to_the_same_folder(tmp_path):
    method, timed = VARIANTS["AGP, noise"], network("slow nodes")
    whole = ran(method, timed, every=3)
    ran(method, timed, every=3, steps=8, callbacks=[jdfl.Checkpoints(tmp_path / "run", every=2)])
    before = jdfl.read_checkpoint(tmp_path / "run", method, testing.small_problem(), timed)
    found = ran(method, timed, every=3, resume=before)
    equal(found.state, whole.state)
    assert found.history.equals(whole.history)


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
    assert at_once >= min(plan.WIDTHS) * memory.size_of(given[1].begin()[0])
    for room[0], named in ((everything - 1, "events that are computed together"), (800, "memory")):
        with refused(named):
            simulated(*given)
    room[0] = everything
    simulated(*given)
