"""Asynchronous methods in runs: what is counted, released and claimed, where budgets end, and seeds together."""

from dataclasses import replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jdfl
from jdfl import network as nw
from jdfl import testing
from jdfl.base import struct
from jdfl.devices import memory
from jdfl.engine import side_by_side
from jdfl.engine.spending import release_limits
from jdfl.events import ADPSGD, AGP, AsyncMethod, Event, FedAsync, Kind, RandomWalkSGD, SwarmSGD, Touch, lanes, meetings
from jdfl.events.faults import with_times
from jdfl.events.partners import links
from jdfl.events.timeline import Events
from tests.events.scenes import NOISY, PERIODS, ROWS, VARIANTS, M, Simulated, borne, network, simulated

FEW: dict[str, Any] = {"key": 2, "steps": PERIODS, "metrics": []}
NOISES = [name for name in VARIANTS if name.endswith("noise")]


def ran(method: AsyncMethod, timed: Any = None, **given: Any) -> jdfl.Result:
    return jdfl.run(method, testing.small_problem(), timed or network("slow nodes"), **FEW | given)


def drawn(method: AsyncMethod, timed: Any = None) -> tuple[Simulated, Events]:
    found = simulated(method, testing.small_problem(), timed or network("slow nodes"))
    return found, found.scheduler.events


def by_hand(name: str, events: Events, degree: np.ndarray) -> dict[str, np.ndarray]:
    """What every node does, from the papers: messages, gradients, and how often it combines."""
    sent, grads, combined = (np.zeros(M, int) for _ in range(3))
    method: Any = ROWS[name].method
    for kind, i, rows in zip(events.kind, events.actor, events.rows):
        if name in ("AD-PSGD", "SwarmSGD", "randomized gossip"):
            j, steps = rows[2 if name == "AD-PSGD" else 1] if kind == 0 else -1, getattr(method, "local_steps", 1)
            grads[i] += 0 if name == "randomized gossip" or kind == 1 else steps
            if j < -1:
                sent[[i, -2 - j]] += 1
            if j >= 0:
                sent[[i, j]] += 1
                combined[[i, j]] += 1
                grads[j] += steps if name == "SwarmSGD" else 0
        elif name == "AGP" and kind == 0:
            grads[i] += 1
            combined[i] += 1
            sent[i] += rows[2] != -1
        elif name in ("SWIFT", "CHOCO", "DO-ADP"):
            grads[i] += 1
            combined[i] += 1
            sent[i] += degree[i]
        elif "walk" in name:
            grads[i] += 1
            if rows[1] >= 0:
                sent[i] += 1
                combined[rows[1]] += 1
        elif name.startswith("Fed"):
            grads[i] += method.local_steps if kind == 0 else 0
            sent[i] += 1  # up, and down
            combined[i] += kind == 1
    return {"sent": sent, "grads": grads, "communications": combined}


@pytest.mark.parametrize(
    ("name", "graph", "fault"),
    [(name, graph, None) for name in ROWS for graph in ("small", "cut off")]
    + [(name, "small", fault) for name in ROWS for fault in borne(name)],
)
def test_counts_are_those_made_by_hand(name, graph, fault):
    method, timed = ROWS[name].method, network("slow nodes", graph, fault)
    _, events = drawn(method, timed)
    result = ran(method, timed)
    degree = np.asarray(links(with_times(timed, "")).out_degree)
    expected = by_hand(name, events, degree)
    assert sum(result.totals.messages.values()) == expected["sent"].sum()
    assert result.totals.gradients == expected["grads"].sum() + (M if name == "randomized gossip" else 0)
    assert result.totals.examples == testing.EXAMPLES * result.totals.gradients
    np.testing.assert_array_equal(result.communication_rounds, expected["communications"])
    assert result.totals.releases == 0
    assert result.clock is not None
    np.testing.assert_array_equal(result.clock, float(PERIODS))


@pytest.mark.parametrize("name", NOISES)
def test_releases_are_known_before_the_run_and_all_messages_are_covered(name):
    method, timed = VARIANTS[name], network("slow nodes")
    result, problem = ran(method, timed), testing.small_problem()
    planned = jdfl.planned_releases(method, problem, timed, steps=PERIODS, key=2)
    np.testing.assert_array_equal(planned, result.releases)
    assert result.totals.releases == result.totals.gradients
    report = jdfl.account(result)
    assert report.sound
    assert report.observer == "all messages"
    assert report.sampling is None
    alone = jdfl.account(ran(ADPSGD(lr=0.05, gradients=NOISY), network("equal"), steps=int(result.releases.max())))
    assert report.epsilon == pytest.approx(alone.epsilon, rel=1e-9)  # as many releases of any other method


@pytest.mark.parametrize("epsilon", [60.0, 110.0])
@pytest.mark.parametrize("name", NOISES)
def test_a_budget_ends_before_the_first_event_that_exceeds_it(name, epsilon):
    method, timed, problem = VARIANTS[name], network("slow nodes"), testing.small_problem()
    result = ran(method, timed, callbacks=[jdfl.Budget(epsilon, 1e-5)], every=5)
    found, events = drawn(method, timed)
    limits = release_limits(method, problem, epsilon=epsilon, delta=1e-5)
    assert result.ending == "budget"
    assert "nothing of it is sent" in result.reason
    done, second = int(result.state["happened"]), float(result.clock[0]) + float(result.clock_rest[0])
    assert events.time[done] == pytest.approx(second, rel=1e-12)
    assert result.rounds == np.ceil(second)
    assert jdfl.account(result, delta=1e-5).epsilon <= epsilon
    whole = jdfl.planned_releases(method, problem, timed, steps=PERIODS, key=2)
    assert (whole >= result.releases).all()
    assert (result.releases <= limits).all()
    more = ran(method, timed, resume=result, every=5)
    for one, other in zip(jax.tree.leaves(more.state), jax.tree.leaves(found.state), strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(more.releases, whole)


@pytest.mark.parametrize("name", ["AD-PSGD", "AGP, noise", "SWIFT", "FedBuff"])
def test_repeated_runs_and_points_are_single_runs_bit_for_bit(name):
    method, timed, problem = VARIANTS[name], network("slow nodes"), testing.small_problem()
    how: dict[str, Any] = {"steps": PERIODS, "every": 5, "metrics": ["objective"]}
    for found in jdfl.sweep(method, problem, timed, over={"lr": [0.01, 0.002]}, keys=[2, 3], **how):
        single = jdfl.run(replace(method, lr=found.labels["lr"]), problem, timed, key=found.labels["seed"], **how)
        np.testing.assert_array_equal(found.params, single.params)
        assert found.history.equals(single.history)
        assert found.totals == single.totals


@pytest.mark.parametrize("fault", [None, "both"])
@pytest.mark.parametrize("name", VARIANTS)
def test_seeds_side_by_side_are_single_runs_bit_for_bit(name, fault, monkeypatch):
    if fault not in (None, *borne(name)):
        fault = None
    method, problem, timed = VARIANTS[name], testing.small_problem(), network("slow nodes", fault=fault)
    how: dict[str, Any] = {"steps": 6, "every": 4, "metrics": ["objective"]}
    if fault is not None:
        how["stop"] = jdfl.objective_below(0.7)
    together, number = side_by_side.advance, list[int]()
    monkeypatch.setattr(side_by_side, "advance", lambda runs, *rest: number.append(len(runs)) or together(runs, *rest))
    for seed, found in zip((2, 7, 3), jdfl.repeat(method, problem, timed, keys=[2, 7, 3], **how), strict=True):
        single = jdfl.run(method, problem, timed, key=seed, **how)
        np.testing.assert_array_equal(found.params, single.params)
        assert found.history.equals(single.history)
        assert found.totals == single.totals
        np.testing.assert_array_equal(found.releases, single.releases)
    assert number == ([1, 1, 1] if hasattr(method, "gamma") else [3])  # codecs have keys of their run


@struct.dataclass
class Shifted(ADPSGD):
    """What it prepares follows from the key of the run."""

    def prepare(self, problem, moment, plan):
        return {"by": jax.random.uniform(moment.key, (), jnp.float32)}


def test_a_method_that_prepares_constants_of_a_run_is_refused():
    """Its place is taken by the sizes of tables, and seeds side by side would all have the first one's."""
    with pytest.raises(ValueError, match=r"no prepare of its own for AD-PSGD.*in tables"):
        ran(Shifted(lr=0.05))


@pytest.mark.parametrize("planted", ["one key", "one table", "order"])
def test_planted_mistakes_side_by_side_are_noticed(planted, monkeypatch):
    method, problem, timed = VARIANTS["AD-PSGD, noise"], testing.small_problem(), network("slow nodes")
    how: dict[str, Any] = {"steps": 6, "metrics": ["objective"], "keys": [2, 7]}
    whole, merged = jdfl.repeat(method, problem, timed, **how), lanes.merged

    def wrong(parts, kinds, heights):
        if planted == "one table":
            heights = dict.fromkeys(heights, 0)
        events, lane = merged(parts, kinds, heights)
        return (events, 0 * lane) if planted == "one key" else (events, lane)

    monkeypatch.setattr(lanes, "merged", wrong)
    if planted == "order":
        monkeypatch.setattr(lanes, "apart", lambda tables, number, apart=lanes.apart: apart(tables, number)[::-1])
    found = jdfl.repeat(method, problem, timed, **how)
    assert any(not np.array_equal(one.params, other.params) for one, other in zip(whole, found))


def test_a_ledger_takes_what_the_run_will_release(tmp_path):
    method, timed = VARIANTS["SwarmSGD, noise"], network("slow nodes")
    result = ran(method, timed, ledger=jdfl.DataLedger.create(tmp_path / "much", epsilon=1e4, delta=1e-5))
    assert result.standing is not None
    with pytest.raises(ValueError, match=r"budget|epsilon"):
        ran(method, timed, key=3, ledger=jdfl.DataLedger.create(tmp_path / "little", epsilon=1.0, delta=1e-5))


@struct.dataclass
class Bare(AsyncMethod):
    """A planted mistake: it sends gradients as they are, next to noisy ones."""

    title: ClassVar[str] = "bare"
    kinds: ClassVar[tuple[Kind, ...]] = (Kind("meet", (Touch("node", "rw"), Touch("node", "rw"))),)
    honest: bool = struct.field(pytree_node=False, default=False)

    def tables(self, round, sizes):
        return {"node": jnp.array(round.problem.begin())}

    def events(self, network, key, seconds):
        return meetings(network, key, seconds, columns=2)

    def handle(self, kind: str, rows: tuple[Any, ...], event: Event) -> tuple[Any, ...]:
        x, other = rows
        noisy = self.gradients(x, event.at())
        bare = noisy if self.honest else self.gradients.without_noise(x, event.at(turn=1))
        return x - 0.1 * noisy, other - 0.1 * event.send(bare, 1)


def test_what_is_sent_without_noise_has_no_guarantee():
    honest, bare = (Bare(gradients=NOISY, honest=one) for one in (True, False))
    assert jdfl.account(ran(honest)).sound
    with pytest.raises(ValueError, match="what is sent on the channel 'model' has no noise"):
        jdfl.account(ran(bare))


@struct.dataclass
class Silent(Bare):
    """A planted mistake: gradients without noise reach another node's row, and nothing marks them as sent."""

    kinds: ClassVar[tuple[Kind, ...]] = (
        Kind("meet", (Touch("node", "rw"), Touch("raw", "rw", own=True), Touch("node", "rw"))),
    )
    by: str = struct.field(pytree_node=False, default="writing")

    def tables(self, round, sizes):
        x = jnp.array(round.problem.begin())
        return {"node": x, "raw": jnp.zeros_like(x)}

    def events(self, network, key, seconds):
        return meetings(network, key, seconds, columns=3)

    def handle(self, kind: str, rows: tuple[Any, ...], event: Event) -> tuple[Any, ...]:
        x, raw, other = rows
        noisy = x - 0.1 * self.gradients(x, event.at())
        bare = self.gradients.without_noise(x, event.at(turn=1))
        if self.by == "keeping":  # it stays in a row that nobody else sees
            return noisy, bare, other
        return (noisy, raw, other - bare) if self.by == "writing" else (noisy - bare, raw, other)


def test_what_another_node_may_see_counts_as_sent_whatever_is_marked():
    assert jdfl.account(ran(Silent(gradients=NOISY, by="keeping"))).sound
    for by in ("writing", "reading"):  # by the partner now, or by whoever meets the node later
        with pytest.raises(ValueError, match=r"what is sent on the channel 'table node' has no noise"):
            jdfl.account(ran(Silent(gradients=NOISY, by=by)))


def test_rows_that_are_not_what_a_method_says_are_refused():
    @struct.dataclass
    class Others(Silent):
        """It says that rows of others are its own, or meets itself."""

        def events(self, network, key, seconds):
            found = meetings(network, key, seconds, columns=3)
            rows = found.rows.copy()
            rows[:, 1 if self.by == "writing" else 2] = (rows[:, 0] + (self.by == "writing")) % M
            return replace(found, rows=rows)

    with pytest.raises(ValueError, match="the actor's own row of the table 'raw' in every event 'meet'"):
        ran(Others(gradients=NOISY))
    with pytest.raises(ValueError, match="different rows of the table 'node' in an event 'meet', got one twice"):
        ran(Others(gradients=NOISY, by="keeping"))


def test_correlated_noise_is_not_claimed_and_rounds_of_events_send_nothing():
    @struct.dataclass
    class Correlated(Bare):
        """Its noise depends on that of earlier events; or it sends through a round."""

        def handle(self, kind: str, rows: tuple[Any, ...], event: Event) -> tuple[Any, ...]:
            x, other = rows
            round = event.at()
            if not self.honest:
                return x - round.mix(x), other
            row, hidden = jnp.array([1.0, 0.5]), jnp.zeros((len(x), 1, x.shape[1]))
            return x - self.gradients.correlated(x, round, row, hidden)[0], other

    with pytest.raises(ValueError, match="noise is correlated over rounds"):
        jdfl.account(ran(Correlated(gradients=NOISY, honest=True)))
    with pytest.raises(ValueError, match=r"messages of an event through its send.* got one on model"):
        ran(Correlated(gradients=NOISY, honest=False))


def test_one_round_of_an_event_has_noise_once():
    @struct.dataclass
    class Twice(Bare):
        """A planted mistake: both gradients have the same noise."""

        def handle(self, kind: str, rows: tuple[Any, ...], event: Event) -> tuple[Any, ...]:
            x, other = rows
            return x - self.gradients(x, event.at()) - self.gradients(x, event.at()), other

    with pytest.raises(ValueError, match="a turn of its own for every round of an event, got turn = 0 twice"):
        ran(Twice(gradients=NOISY))


def test_several_devices_are_refused():
    with pytest.raises(ValueError, match="devices = None for an asynchronous method"):
        ran(ADPSGD(), options=jdfl.Options(devices=2))


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


@pytest.mark.parametrize("method", [FedAsync(lr=0.02), RandomWalkSGD(lr=0.02, tokens=3), SwarmSGD(lr=0.02)])
def test_they_learn(method):
    history = ran(method, network(), steps=150, every=150, metrics=["objective"]).history
    assert history.objective.iloc[-1] < 0.1 * history.objective.iloc[0]


def test_a_checkpoint_goes_on_to_the_same_folder(tmp_path):
    method, timed = VARIANTS["AGP, noise"], network("slow nodes")
    whole = ran(method, timed, every=3)
    ran(method, timed, every=3, steps=8, callbacks=[jdfl.Checkpoints(tmp_path / "run", every=2)])
    before = jdfl.read_checkpoint(tmp_path / "run", method, testing.small_problem(), timed)
    found = ran(method, timed, every=3, resume=before)
    for one, other in zip(jax.tree.leaves(found.state), jax.tree.leaves(whole.state), strict=True):
        np.testing.assert_array_equal(one, other)
    assert found.history.equals(whole.history)


def test_a_network_that_is_drawn_again_in_every_round_is_refused():
    for net in (nw.random_matching(M), nw.bursty_loss(nw.ring(M), 0.1, 0.5)):
        with pytest.raises(ValueError, match="fixed network with times"):
            ran(ADPSGD(), nw.timed(net, nw.FixedTime(1.0)))


def test_what_would_play_rounds_refuses_methods_without_any():
    """A wrapped method, an audit of one run or a floor would compute other things than the run."""
    problem, timed, method = testing.small_problem(), network(), VARIANTS["AD-PSGD, noise"]
    plays = [
        lambda: ran(jdfl.attacked(method, jdfl.robust.SignFlip(), nodes=[1])),
        lambda: jdfl.audit_one_run(method, problem, timed, steps=2),
        lambda: jdfl.floor(method, problem, timed),
    ]
    for play in plays:
        with pytest.raises(ValueError, match=r"a method with rounds, got AD-PSGD|no rounds that could be repeated"):
            play()


def test_messages_that_do_not_fit_are_refused(monkeypatch):
    monkeypatch.setattr(memory, "available", lambda devices=1: 800)
    with pytest.raises(ValueError, match=r"at most .* of memory.*messages in the table 'slot'.*shorter latencies"):
        simulated(AGP(), testing.small_problem(), network("slow nodes"))
