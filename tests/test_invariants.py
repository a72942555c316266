"""What holds in every round: planted violations end a run by name, in their round; everything else goes on."""

from dataclasses import replace
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jdfl
from jdfl import network as nw
from jdfl import testing
from jdfl.algorithms import REGISTRY
from jdfl.base import struct
from jdfl.cli.running import status_of
from jdfl.engine import batch, invariants, runner, start
from jdfl.engine.invariants import NOTHING, Known, Rule, Weights
from jdfl.engine.spending import watched
from tests.contract.table import TABLE
from tests.network.test_every_round import WRAPPERS, heavier, own, turns
from tests.toy import Gossip

M = 6


@struct.dataclass
class Late:
    """A person's network whose graph is another from a round on; the rounds before are checked before a run."""

    graph: nw.Graph
    other: nw.Graph
    since: int = struct.field(pytree_node=False)

    @property
    def m(self):
        return self.graph.m

    def at(self, k, key):
        return jax.tree.map(lambda a, b: jnp.where(k < self.since, a, b), self.graph, self.other)


def signed(graph: nw.Graph) -> nw.Graph:
    """Rows and columns that sum to one, and weights down to -1 / 3, of a ring."""
    return replace(graph, weight=graph.weight * 2, self_weight=graph.self_weight * 0 - 1 / 3)


def unchecked(monkeypatch) -> None:
    """Leave out the checks before a run."""
    monkeypatch.setattr(start, "check_weights", lambda *_, **__: None)
    monkeypatch.setattr("jdfl.algorithms.algorithm.require", lambda *_, **__: None)
    monkeypatch.setattr("jdfl.algorithms.dpps.require", lambda *_, **__: None)


def ended(result: jdfl.Result, rule: str, place: tuple[int, int]) -> None:
    """The run ended by a violation, in this round and at this node, and says so."""
    assert (result.ending, result.violated, result.diverged) == ("invariant", place, None)
    assert result.rounds == place[0] == result.history["round"].iloc[-1]
    assert rule in result.reason
    assert f"in round {place[0]}" in result.reason
    assert place[1] < 0 or f" {place[1]} " in f"{result.reason} ".replace(",", " ").replace(";", " ")


# W


@pytest.mark.parametrize("kind", WRAPPERS)
def test_rows_of_the_sixth_matrix_that_do_not_sum_to_one(monkeypatch, kind):
    unchecked(monkeypatch)
    network = WRAPPERS[kind](own(turns(5)))
    result = jdfl.run(Gossip(), testing.small_problem(m=4), network, key=0, steps=12, metrics=[])
    ended(result, "got 1.3", (6, 0))


def test_a_thousand_good_rounds_are_no_proof():
    """Nothing is left out here: the checks before a run look at 1000 rounds."""
    ring = nw.ring(4).graph
    bad = replace(ring, weight=ring.weight.at[2].multiply(1.5))
    result = jdfl.run(
        Gossip(), testing.small_problem(m=4), Late(ring, bad, 1100), key=0, steps=1200, every=100, metrics=[]
    )
    ended(result, "got 1.33333 in row 2", (1101, 2))


def test_columns_are_checked_where_a_method_needs_them(monkeypatch):
    ring = nw.ring(M).graph
    skewed = replace(ring, weight=ring.weight.at[3].multiply(0.5), self_weight=ring.self_weight.at[3].add(1 / 3))
    network = Late(ring, skewed, 4)  # rows sum to one
    with pytest.raises(ValueError, match="columns"):
        jdfl.run(jdfl.SGP(), testing.small_problem(), network, key=0, steps=8)
    assert jdfl.run(jdfl.DPSGD(), testing.small_problem(), network, key=0, steps=8, metrics=[]).ending == "steps"
    unchecked(monkeypatch)
    for algorithm in (jdfl.DSGT(lr=0.01), jdfl.SGP(lr=0.01), jdfl.PEDFL(lr=0.01)):
        result = jdfl.run(algorithm, testing.small_problem(), network, key=0, steps=8, metrics=[])
        ended(result, "columns of the mixing matrix that sum to 1, got 0.833333 in column 2", (5, 2))


def test_negative_weights_that_nobody_looked_at():
    ring = nw.ring(4).graph
    late = jdfl.run(Gossip(), testing.small_problem(m=4), Late(ring, signed(ring), 1001), key=0, steps=1010, metrics=[])
    ended(late, "weights >= 0", (1002, 0))
    alone = jdfl.run(
        jdfl.LocalOnly(), testing.small_problem(m=4), Late(ring, signed(ring), 1001), key=0, steps=1010, metrics=[]
    )
    assert alone.ending == "steps"  # W plays no part


def test_negative_weights_that_were_accepted_are_no_violation():
    W = np.array([[0.8, 0.3, -0.1], [0.3, 0.4, 0.3], [-0.1, 0.3, 0.8]])
    network = own(nw.periodic([nw.from_matrix(W)] * 2))
    assert not invariants.weights_of(Gossip(), network).positive
    assert jdfl.run(Gossip(), testing.small_problem(m=3), network, key=0, steps=9, metrics=[]).ending == "steps"


def test_a_fixed_network_is_checked_before_a_run_and_not_again():
    assert invariants.weights_of(jdfl.DSGT(), nw.ring(4)) == Weights()
    assert invariants.weights_of(jdfl.DSGT(), turns(None)) == Weights(rows=True, columns=True)
    assert invariants.weights_of(jdfl.SGP(), turns(None)) == Weights(columns=True, positive=True)
    assert invariants.weights_of(jdfl.CEPS(), own(turns(None))) == Weights()


def test_the_tolerance_is_that_of_the_checks_before_a_run():
    ring = nw.ring(4).graph
    for more, ending in ((0.9e-5, "steps"), (3e-5, "invariant")):
        other = replace(ring, self_weight=ring.self_weight + more)
        assert (
            jdfl.run(Gossip(), testing.small_problem(m=4), Late(ring, other, 1001), key=0, steps=1005).ending == ending
        )


def judged(network: Any, weights: Weights, rounds: int) -> np.ndarray:
    """The rules of W that rounds violate, by node [rounds, m]."""
    nobody = jnp.zeros((network.m,), jnp.int32)
    known = Known(None, None)

    def one(k):
        key = jax.random.fold_in(jax.random.key(7), k)
        graph = nw.in_run(network, jax.random.key(3), 32).at(k, key)
        return invariants.broken(weights, graph, {}, nobody, known, known, None)[0]

    return np.asarray(jax.jit(lambda: jax.lax.map(one, jnp.arange(rounds, dtype=jnp.int32)))())


def _redrawn(m: int) -> dict[str, Any]:
    """Networks and faults whose rounds differ."""
    base, out, signs = nw.erdos_renyi(m, 0.6), nw.exponential(m), {"weights": "sender"}
    return {
        "one peer": nw.one_peer_exponential(m),
        "choice": nw.random_choice([base, nw.ring(m)]),
        "matcha": nw.matcha(base, 0.5),
        "redrawn": nw.erdos_renyi_rounds(m, 0.5),
        "neighbours": nw.random_neighbours(m, 3),
        "neighbours, out-degree": nw.random_neighbours(m, 3, weights="out-degree"),
        "matching": nw.random_matching(m),
        "partial": nw.partial_communication(base, 0.5, include_self=False),
        "loss": nw.link_loss(base, 0.4),
        "loss, rescaled": nw.link_loss(base, 0.4, directed=True, weights="rescale"),
        "loss, kept by senders": nw.link_loss(out, 0.4, directed=True, **signs),
        "bursts": nw.bursty_loss(base, 0.2, 0.4),
        "participation": nw.node_participation(base, 0.5),
        "outages": nw.outages(base, 0.2, 0.4, weights="rescale"),
        "outages, kept by senders": nw.outages(out, 0.2, 0.4, **signs),
        "members": nw.membership(base, joins=[0, 0, 3] + [0] * (m - 3)),
        "delays": nw.delays(base, 3),
        "times": nw.timed(base, nw.ParetoTime(), first=True),
        "synchronised": nw.synchronised(nw.link_loss(base, 0.3), 3),
        "everything": nw.link_loss(nw.outages(nw.node_participation(nw.timed(base), 0.7), 0.1, 0.5), 0.3),
    }


@pytest.mark.parametrize("kind", _redrawn(8))
@pytest.mark.parametrize("m", [8, pytest.param(100, marks=pytest.mark.slow)])
def test_no_round_of_a_network_is_a_false_alarm(kind, m):
    network = _redrawn(m)[kind]
    sums = {"rows": False, "columns": True}
    for name, given in sums.items():
        try:
            nw.check_weights(network, "a method", columns=given)
            if given:
                nw.require(network, "a method", column_stochastic=True)
        except ValueError:
            continue
        sums[name] = True
        found = judged(network, Weights(**{name: True}, positive=given), 100)
        assert not found.any(), Rule(int(found[found > 0][0]))
    assert any(sums.values())


def test_the_law_of_false_alarms_sees_an_alarm():
    assert set(judged(own(turns(5)), Weights(rows=True), 6)[:, 0].tolist()) == {0, Rule.ROW}


# Algorithms


@struct.dataclass
class Leaky(jdfl.SGP):
    """SGP that spoils the push-sum weights in a round: some of the mass is lost, or a node is left with none."""

    keeps: float = 0.9
    empty: bool = struct.field(pytree_node=False, default=False)

    def step(self, state, round):
        new = super().step(state, round)
        now, first = round.k == 3, round.node == 2
        if self.empty:  # what node 2 loses goes to node 3
            moved = jnp.where(first, 0, jnp.where(round.node == 3, new.a + new.a[2], new.a))
        else:
            moved = new.a * self.keeps
        return new._replace(a=jnp.where(now, moved, new.a))


@struct.dataclass
class Miscounting(Gossip):
    """Gossip that counts one gradient less than none at node 4 in round 2."""

    def step(self, w, round):
        new = super().step(w, round)
        round.book.grads = jnp.where((round.k == 2) & (round.node == 4), -1, 1)
        return new


@pytest.mark.parametrize("network", [nw.exponential(M), nw.delays(nw.exponential(M), 3)], ids=["fixed", "late"])
def test_push_sum_that_loses_mass(network):
    result = jdfl.run(Leaky(lr=0.01), testing.small_problem(), network, key=0, steps=9, metrics=[])
    ended(result, "stays 6, got 5.4" if network.name.startswith("exp") else "stays 6, got 5.", (4, -1))
    few = replace(Leaky(lr=0.01), keeps=1 - 1e-4)  # ten times as much as rounding explains
    assert jdfl.run(few, testing.small_problem(), network, key=0, steps=9, metrics=[]).ending == "invariant"


def test_push_sum_that_leaves_a_node_without_weight():
    """Its parameters are not finite either, which is a consequence and not reported."""
    result = jdfl.run(
        Leaky(lr=0.01, empty=True), testing.small_problem(), nw.exponential(M), key=0, steps=9, metrics=[]
    )
    ended(result, "weights > 0, got 0 at node 2", (4, 2))


@struct.dataclass
class KeepingSteps(jdfl.DPSGD):
    """D-PSGD that counts as `Miscounting` does, and whose parameters have a step that is not sent, without noise."""

    def init(self, round):
        return super().init(round), jnp.zeros_like(round.problem.begin())

    def step(self, state, round):
        new, own = super().step(state[0], round), round.problem.gradients(state[0].x)
        round.book.grads = jnp.where((round.k == 2) & (round.node == 4), -1, 2)
        return new, own

    def params(self, state):
        return super().params(state[0]) - 0.01 * state[1]


def test_a_private_run_ends_as_well():
    """Parameters that the guarantee does not cover may not end it; the rules do not read them."""
    noisy = jdfl.Gradients(clip=1.0, mechanism=jdfl.Gaussian(1.0))
    problem = testing.small_problem()
    result = jdfl.run(KeepingSteps(lr=0.01, gradients=noisy), problem, nw.ring(M), key=0, steps=9, metrics=[])
    ended(result, "got -1 at node 4", (3, 4))
    assert watched(result.guarantee, problem) == "nothing"
    assert jdfl.account(result, delta=1e-5).epsilon > 0


def test_a_private_run_that_loses_mass_ends():
    """Nothing is claimed for a noise schedule after a step of one's own; the schedule's noise is in it all the same."""
    private = Leaky(lr=0.01, gradients=jdfl.Gradients(clip=1.0, per="batch", norm="l1"), dpps=jdfl.DPPS(b=1.0))
    result = jdfl.run(private, testing.small_problem(), nw.exponential(M), key=0, steps=9, metrics=[])
    ended(result, "stays 6", (4, -1))
    assert result.totals.releases > 0
    with pytest.raises(ValueError, match="its scale is not the library's sensitivity"):
        jdfl.account(result, delta=1e-5)


def test_counts_below_zero():
    result = jdfl.run(Miscounting(), testing.small_problem(), nw.ring(M), key=0, steps=9, metrics=[])
    ended(result, "got -1 at node 4", (3, 4))


@struct.dataclass
class Backwards:
    """A network with times that are below zero at node 5 in round 4."""

    base: Any

    @property
    def m(self):
        return self.base.m

    def at(self, k, key):
        graph = self.base.at(k, key)
        timing = graph.timing
        compute = jnp.where((k == 4) & (jnp.arange(self.m) == 5), -3.0, timing.compute)
        return replace(graph, timing=replace(timing, compute=compute))


@struct.dataclass
class Alone(Gossip):
    """Gossip whose nodes wait for nobody."""

    def waits(self, round):
        return round.graph.mask & False


def test_a_clock_that_goes_back():
    network = Backwards(nw.timed(nw.ring(M), nw.FixedTime(1.0)))
    result = jdfl.run(Alone(), testing.small_problem(), network, key=0, steps=9, metrics=[])
    ended(result, "node 5 that moved by -3 s", (5, 5))


def test_clocks_are_exact_over_many_rounds():
    """Times of a ten millionth of the clock's last place are added without going back."""
    network = nw.timed(nw.ring(M), nw.ExponentialTime(1e-3), latency=nw.ParetoTime(1e-9, 0.5))
    assert (
        jdfl.run(Gossip(), testing.small_problem(), network, key=0, steps=3000, every=1000, metrics=[]).ending
        == "steps"
    )


PRIVATE = jdfl.DPSGD(lr=0.01, gradients=jdfl.Gradients(clip=1.0, mechanism=jdfl.Gaussian(1.0)))


def test_more_releases_than_planned(monkeypatch):
    most = np.array([9, 9, 4, 9, 3, 9], np.int32)
    monkeypatch.setattr(runner, "planned_at_most", lambda *_: most)
    result = jdfl.run(PRIVATE, testing.small_problem(), nw.ring(M), key=0, steps=9, metrics=[])
    ended(result, "at most the 3 planned releases of node 4, got 4", (4, 4))
    assert result.releases.tolist() == [4] * M  # what was released stays counted
    monkeypatch.setattr(batch, "planned_by_all", lambda *_: most)
    several = jdfl.repeat(PRIVATE, testing.small_problem(), nw.ring(M), keys=[0, 1], steps=9, metrics=[], batch=2)
    for one in several:
        ended(one, "at most the 3 planned releases of node 4, got 4", (4, 4))


def test_plans_are_those_of_the_ledger_and_of_scheduled_noise(tmp_path, monkeypatch):
    seen = []
    plan = runner.planned_at_most
    monkeypatch.setattr(runner, "planned_at_most", lambda *given: seen.append(plan(*given)) or seen[-1])
    ledger = jdfl.DataLedger.create(tmp_path / "ledger", epsilon=1e6, delta=1e-5)
    assert (
        jdfl.run(PRIVATE, testing.small_problem(), nw.ring(M), key=0, steps=5, metrics=[], ledger=ledger).ending
        == "steps"
    )
    noisy = jdfl.SGP(gradients=jdfl.Gradients(clip=1.0, per="batch", norm="l1"), dpps=jdfl.DPPS(b=1.0))
    assert jdfl.run(noisy, testing.small_problem(), nw.exponential(M), key=0, steps=7, metrics=[]).ending == "steps"
    assert jdfl.run(PRIVATE, testing.small_problem(), nw.ring(M), key=0, steps=5, metrics=[]).ending == "steps"
    assert [None if one is None else one.tolist() for one in seen] == [[5] * M, [7] * M, None]


FIRST = {row.name: row for row in reversed(TABLE)}
SOON = ("d-psgd", "dsgt", "sgp")


@pytest.mark.parametrize("kind", ["loss", "loss, kept by senders", "delays", "outages", "times", "synchronised"])
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in SOON else pytest.mark.slow) for name in sorted(REGISTRY)]
)
def test_no_algorithm_is_a_false_alarm_and_no_bit_changes(name, kind):
    row, network = FIRST[name], _redrawn(M)[kind]
    problem = testing.small_problem(shared=row.shared)

    def made():
        return jdfl.run(row.algorithm, problem, network, key=3, steps=30, every=10, metrics=["objective"])

    try:
        found = made()
    except ValueError:
        pytest.skip("it refuses this network")
    with mock.patch.object(invariants, "weights_of", return_value=None):
        plain = made()
    assert (found.ending, plain.ending) == ("steps", "steps")
    for one, other in zip(jax.tree.leaves(found.state), jax.tree.leaves(plain.state), strict=True):
        np.testing.assert_array_equal(one, other)
    assert found.history.equals(plain.history)


# What becomes of such a run


@pytest.fixture
def bad():
    return jdfl.run(Leaky(lr=0.01), testing.small_problem(), nw.exponential(M), key=0, steps=9, metrics=["objective"])


def test_it_is_not_continued(bad, tmp_path):
    with pytest.raises(ValueError, match="violated an invariant"):
        jdfl.engine.checkpoint.Checkpoint.of(bad)
    with pytest.raises(ValueError, match="violated an invariant"):
        jdfl.run(Leaky(lr=0.01), testing.small_problem(), nw.exponential(M), steps=20, resume=bad)
    store = jdfl.Checkpoints(tmp_path / "kept", every=1)
    jdfl.run(Leaky(lr=0.01), testing.small_problem(), nw.exponential(M), key=0, steps=9, callbacks=[store])
    kept = jdfl.read_checkpoint(tmp_path / "kept", Leaky(lr=0.01), testing.small_problem(), nw.exponential(M))
    assert kept is None or kept.rounds < 4


def test_it_is_stored_and_read(bad, tmp_path):
    bad.save(tmp_path / "run")
    assert not (tmp_path / "run" / "checkpoints").exists()
    again = jdfl.load(tmp_path / "run")
    assert (again.ending, again.violated, again.reason) == ("invariant", (4, -1), bad.reason)
    assert "Invalid: expected push-sum weights" in (tmp_path / "run" / "summary.md").read_text()


def test_its_exit_status_is_its_own(bad):
    assert status_of(bad) == 6


@pytest.mark.parametrize("size", [1, 2])
def test_runs_side_by_side_end_by_themselves(monkeypatch, size):
    unchecked(monkeypatch)
    monkeypatch.setattr(batch, "check_settings", lambda *_: None)
    results = jdfl.sweep(
        Gossip(),
        testing.small_problem(m=4),
        own(turns(5)),
        over={"rate": [0.05, 0.1]},
        keys=[1, 2],
        steps=12,
        batch=size,
    )
    for result in results:
        ended(result, "got 1.33333 in row 0", (6, 0))


@pytest.mark.parametrize("name", ["rows", "columns", "mass", "counts", "clock"])
def test_devices_find_the_same(monkeypatch, name):
    unchecked(monkeypatch)
    algorithm, network = {
        "rows": (Gossip(), own(nw.periodic([nw.ring(M)] * 5 + [nw.Static(heavier(nw.ring(M).graph))]))),
        "columns": (jdfl.DSGT(lr=0.01), own(nw.periodic([nw.ring(M)] * 3 + [nw.k_in(M, 2)]))),
        "mass": (Leaky(lr=0.01), nw.exponential(M)),
        "counts": (Miscounting(), nw.ring(M)),
        "clock": (Alone(), Backwards(nw.timed(nw.ring(M), nw.FixedTime(1.0)))),
    }[name]
    how = {"steps": 9, "metrics": []}
    one, many = (
        jdfl.run(algorithm, testing.small_problem(), network, options=jdfl.Options(devices=devices), **how)
        for devices in (None, 4)
    )
    assert one.ending == many.ending == "invariant"
    assert one.violated == many.violated
    assert one.reason == many.reason


def test_numbers_that_end_a_run():
    """A node with a rule comes before all nodes together, and these before nodes that diverged."""
    code, lost = jnp.array([0, 0, Rule.CLOCK, Rule.ROW]), jnp.bool_(True)
    diverged = jnp.array([False, True, False, False])
    none = jnp.zeros_like(code)

    def found(*given):
        return invariants.found(invariants.first(*given))

    assert found(code, lost, diverged) == (Rule.CLOCK, 2, None)
    assert found(none, lost, diverged) == (Rule.MASS, -1, None)
    assert found(none, ~lost, diverged) == (None, 1, None)
    assert found(none, ~lost, None) is None
    assert int(invariants.first(none, ~lost, ~diverged & diverged)) == NOTHING
    values = {0: jnp.float32(1), 2: jnp.float32(np.nan), 5: jnp.float32(np.inf)}
    assert invariants.found(invariants.unbounded(jnp.int32(NOTHING), values)) == (None, -1, 2)
    assert invariants.found(invariants.unbounded(invariants.first(none, lost, None), values)) == (Rule.MASS, -1, None)
    assert int(invariants.unbounded(jnp.int32(NOTHING), {0: jnp.float32(1)})) == NOTHING


def test_nodes_that_are_away_take_part_in_synchronised_rounds():
    """As the wrapper says; before, they kept their rows while the others took the mean of all, and mass was lost."""
    base = nw.outages(nw.exponential(M), 0.3, 0.5, weights="sender")
    problem = jdfl.problems.example1(m=M, n=12, s=2, rows=(5, 9))
    result = jdfl.run(jdfl.SGP(lr=0.01), problem, nw.synchronised(base, 3), key=0, steps=24)
    assert result.ending == "steps"
    assert (result.history["consensus_error"].iloc[3::3] < 1e-10).all()
    assert (result.communication_rounds[:, None] >= 8).all()
