"""What holds in every round: planted violations end a run by name, in their round; everything else goes on."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jdfl
from jdfl import network as nw
from jdfl import testing
from jdfl.base import struct
from jdfl.cli.running import STATUSES
from jdfl.engine import batch, invariants, runner
from jdfl.engine.invariants import Known, Rule, Weights
from tests.later import Later
from tests.refused import refused
from tests.toy import Gossip

M, NONE = 6, Weights()
PROBLEM = Later(testing.small_problem)


@struct.dataclass
class Late:
    """A person's network whose graph is another from a round on; the rounds before are checked before a run."""

    graph: nw.Graph
    other: nw.Graph
    since: Any

    @property
    def m(self):
        return self.graph.m

    def at(self, k, key):
        return jax.tree.map(lambda a, b: jnp.where(k < self.since, a, b), self.graph, self.other)


def ring() -> nw.Graph:
    return nw.ring(M).graph


def heavier() -> nw.Graph:
    """Row 2 sums to 4/3."""
    return replace(ring(), weight=ring().weight.at[2].multiply(1.5))


def skewed() -> nw.Graph:
    """Rows sum to one; column 2 does not."""
    here = ring()
    return replace(here, weight=here.weight.at[3].multiply(0.5), self_weight=here.self_weight.at[3].add(1 / 3))


def signed() -> nw.Graph:
    """Rows and columns that sum to one, and weights down to -1 / 3, of a ring."""
    return replace(ring(), weight=ring().weight * 2, self_weight=ring().self_weight * 0 - 1 / 3)


def play(algorithm: Any, network: Any, steps: int = 9, **how: Any) -> jdfl.Result:
    return jdfl.run(algorithm, PROBLEM(), network, key=0, steps=steps, metrics=[], **how)


def ended(result: jdfl.Result, rule: str, place: tuple[int, int]) -> None:
    """The run ended by a violation, in this round and at this node, and says so."""
    assert (result.ending, result.violated, result.diverged) == ("invariant", place, None)
    assert result.rounds == place[0] == result.history["round"].iloc[-1]
    assert rule in result.reason
    assert f"in round {place[0]}" in result.reason
    assert place[1] < 0 or f" {place[1]} " in f"{result.reason} ".replace(",", " ").replace(";", " ")


# The rules


BROKEN = jax.jit(invariants.broken, static_argnums=0)


def judged(weights=NONE, graph=None, info=None, releases=None, own=1.0, coming=0.0, clock=0.0, planned=None):
    """The rules that a round violates by node, and whether mass is lost; it begins with all ones and clocks at zero."""
    zero, ones, none = np.zeros(M, np.float32), np.ones(M, np.float32), np.zeros(M, np.int32)
    before = Known((ones, zero), (zero, zero))
    after = Known((ones * own, ones * coming), (ones * clock, zero))
    released = none if releases is None else np.array(releases, np.int32)
    code, _, lost = BROKEN(weights, graph, info or {}, released, before, after, planned)
    return {i: Rule(one) for i, one in enumerate(code.tolist()) if one}, bool(lost)


def test_every_rule_sees_its_violation_and_nothing_else():
    rows, columns, positive = Weights(rows=True), Weights(columns=True), Weights(positive=True)
    for weights in (rows, columns, positive):
        assert judged(weights, ring()) == ({}, False)
    assert judged(rows, heavier()) == ({2: Rule.ROW}, False)
    assert judged(rows, replace(heavier(), synchronised=jnp.bool_(True))) == ({}, False)  # whatever the table says
    assert judged(columns, heavier())[0] == {1: Rule.COLUMN, 3: Rule.COLUMN}
    assert judged(rows, skewed()) == ({}, False)
    assert judged(columns, skewed())[0] == dict.fromkeys((2, 3, 4), Rule.COLUMN)
    assert judged(positive, signed())[0] == dict.fromkeys(range(M), Rule.NEGATIVE)
    assert judged(rows, signed()) == judged(columns, signed()) == ({}, False)
    for more, found in ((0.9e-5, {}), (3e-5, dict.fromkeys(range(M), Rule.ROW))):  # as before a run
        assert judged(rows, replace(ring(), self_weight=ring().self_weight + more))[0] == found
    at = np.eye(M, dtype=np.float32)
    assert judged(own=1 - 0.1 * at[2]) == ({}, True)
    assert judged(own=1 - 0.1 * at[2], coming=0.1 * at[3]) == ({}, False)  # it is on its way
    assert judged(own=1 - at[2] + at[3]) == ({2: Rule.SHARE}, False)
    planned = np.array([9, 9, 4, 9, 3, 9], np.int32)
    assert judged(releases=[4] * M, planned=planned) == ({4: Rule.RELEASES}, False)
    assert judged(clock=-3.0 * at[5]) == ({5: Rule.CLOCK}, False)
    assert judged(info={"gradients": np.arange(M, dtype=np.int32) - 1}) == ({0: Rule.COUNTER}, False)


def test_a_fixed_network_is_checked_before_a_run_and_not_again():
    late = Late(ring(), ring(), jnp.int32(5))
    assert invariants.weights_of(jdfl.DSGT(), nw.ring(4)) == NONE
    assert invariants.weights_of(jdfl.DSGT(), nw.periodic([nw.ring(M)] * 2)) == Weights(rows=True, columns=True)
    assert invariants.weights_of(jdfl.SGP(), late) == Weights(columns=True, positive=True)
    assert invariants.weights_of(Gossip(), late) == Weights(rows=True, positive=True)
    assert invariants.weights_of(jdfl.CEPS(), late) == invariants.weights_of(jdfl.LocalOnly(), late) == NONE
    accepted = nw.from_matrix(np.array([[0.8, 0.3, -0.1], [0.3, 0.4, 0.3], [-0.1, 0.3, 0.8]])).graph
    assert not invariants.weights_of(Gossip(), Late(accepted, accepted, jnp.int32(5))).positive


# Runs


def test_a_thousand_good_rounds_are_no_proof():
    """Nothing is left out here: the checks before a run look at 1000 rounds."""
    for bad, said, place in ((heavier(), "got 1.33333 in row 2", (1002, 2)), (signed(), "weights >= 0", (1002, 0))):
        ended(play(Gossip(), Late(ring(), bad, jnp.int32(1001)), 1005, every=200), said, place)


@struct.dataclass
class Leaky(jdfl.SGP):
    """SGP that spoils the push-sum weights in a round: some of the mass is lost, or goes from node 2 to node 3."""

    keeps: Any = 0.9
    moves: Any = 0.0

    def step(self, state, round):
        new = super().step(state, round)
        moved = self.moves * new.a[2] * jnp.where(round.node == 3, 1.0, jnp.where(round.node == 2, -1.0, 0.0))
        return new._replace(a=jnp.where(round.k == 3, self.keeps * new.a + moved, new.a))


def leaky(network: Any = None, keeps: float = 0.9, moves: float = 0.0, **how: Any) -> jdfl.Result:
    return play(Leaky(lr=0.01, keeps=keeps, moves=moves), network or nw.exponential(M), **how)


def test_push_sum_that_loses_mass_or_leaves_a_node_without_weight():
    """Its parameters are not finite either, which is a consequence and not reported."""
    ended(leaky(), "stays 6, got 5.4", (4, -1))
    assert leaky(keeps=1 - 1e-4).ending == "invariant"  # ten times as much as rounding explains
    ended(leaky(keeps=1.0, moves=1.0), "weights > 0, got 0 at node 2", (4, 2))
    ended(leaky(nw.delays(nw.exponential(M), 3)), "stays 6, got 5.", (4, -1))
    ended(leaky(options=jdfl.Options(devices=4)), "stays 6, got 5.4", (4, -1))


NOISY = jdfl.Gradients(clip=1.0, mechanism=jdfl.Gaussian(1.0))
PRIVATE = jdfl.DPSGD(lr=0.01, gradients=NOISY)


def test_a_clock_that_goes_back_ends_a_run_and_clocks_are_exact_over_many_rounds():
    graph = nw.timed(nw.ring(M), nw.FixedTime(1.0)).at(jnp.int32(0), jax.random.key(0))
    back = replace(graph, timing=replace(graph.timing, compute=graph.timing.compute - 4))
    ended(play(Gossip(), Late(graph, back, jnp.int32(4))), "node 0 that moved by -3 s", (5, 0))
    # Times of a ten millionth of the clock's last place are added without going back.
    network = nw.timed(nw.ring(M), nw.ExponentialTime(1e-3), latency=nw.ParetoTime(1e-9, 0.5))
    assert play(Gossip(), network, 3000, every=1000).ending == "steps"


def test_more_releases_than_planned_end_a_run_alone_and_beside_others(monkeypatch):
    most = np.array([9, 9, 4, 9, 3, 9], np.int32)
    monkeypatch.setattr(runner, "planned_at_most", lambda *_: most)
    monkeypatch.setattr(batch, "planned_by_all", lambda *_: most)
    result = play(PRIVATE, nw.ring(M))
    assert result.releases.tolist() == [4] * M  # what was released stays counted
    many = jdfl.repeat(PRIVATE, PROBLEM(), nw.ring(M), keys=[0, 1], steps=9, metrics=[], batch=2)
    for one in (result, *many):
        ended(one, "at most the 3 planned releases of node 4, got 4", (4, 4))


def test_plans_are_those_of_the_ledger_and_of_scheduled_noise(tmp_path, monkeypatch):
    seen = []
    plan = runner.planned_at_most
    monkeypatch.setattr(runner, "planned_at_most", lambda *given: seen.append(plan(*given)) or seen[-1])
    ledger = jdfl.DataLedger.create(tmp_path / "ledger", epsilon=1e6, delta=1e-5)
    noisy = jdfl.SGP(gradients=jdfl.Gradients(clip=1.0, per="batch", norm="l1"), dpps=jdfl.DPPS(b=1.0))
    play(PRIVATE, nw.ring(M), ledger=ledger)
    play(noisy, nw.exponential(M), 7)
    play(PRIVATE, nw.ring(M))
    assert [None if one is None else one.tolist() for one in seen] == [[9] * M, [7] * M, None]


def test_such_a_run_is_stored_and_not_continued(tmp_path):
    bad = leaky(callbacks=[jdfl.Checkpoints(tmp_path / "kept", every=1)])
    assert STATUSES[bad.ending] == 6
    with refused("invariant"):
        jdfl.engine.checkpoint.Checkpoint.of(bad)
    with refused("invariant"):
        leaky(steps=20, resume=bad)
    kept = jdfl.read_checkpoint(tmp_path / "kept", Leaky(lr=0.01), PROBLEM(), nw.exponential(M))
    assert kept is None or kept.rounds < 4
    bad.save(tmp_path / "run")
    again = jdfl.load(tmp_path / "run")
    assert (again.ending, again.violated, again.reason) == ("invariant", (4, -1), bad.reason)
