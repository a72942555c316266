"""A run that is resumed is the run that was never interrupted, and is refused where it would be another."""

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import numpy as np
import pytest

import jdfl
from jdfl.base.keys import key_digest
from jdfl.engine.checkpoint import Checkpoint
from jdfl.privacy import Ledger
from jdfl.results.checkpoints import read_checkpoint, write_checkpoint
from jdfl.results.folder import write_run
from tests.contract.table import GOSSIP, TABLE, Row
from tests.refused import refused
from tests.toy import FEW, SLOW, network, problem, regression, run

# Periods and steps drawn; an optimizer's state and minibatches; the contract's law has seven more.
QUICK = ("DP-CEPS, clipped", "DP-D-PSGD, every third round, minibatches, Adam", str(GOSSIP))
ROWS = [pytest.param(row, marks=[] if str(row) in QUICK else pytest.mark.slow) for row in (*TABLE, GOSSIP)]
LINKED = [row for row in ROWS if str(row.values[0]) != "BRIDGE-T"]  # which has too few neighbours on a ring
PRIVATE = jdfl.DPSGD(
    lr=0.02, gradients=jdfl.Gradients(clip=1.0, mechanism=jdfl.Gaussian(0.5), batch=3, sampling="poisson")
)


def go(algorithm: Any, steps: int, **options: Any) -> jdfl.Result:
    given = {"problem": problem(), "network": network(), "key": 3, "every": 2, "metrics": FEW, **options}
    return jdfl.run(algorithm, steps=steps, options=jdfl.Options(chunk=100), **given)


def noise(**fields: Any) -> Any:
    return replace(PRIVATE, gradients=replace(PRIVATE.gradients, **fields))


def check_same(one: jdfl.Result, other: jdfl.Result) -> None:
    """The same in everything but time."""
    np.testing.assert_array_equal(one.params, other.params)
    for leaf, like in zip(jax.tree.leaves(one.state), jax.tree.leaves(other.state), strict=True):
        np.testing.assert_array_equal(leaf, like)
    assert one.history.equals(other.history)
    assert one.history.dtypes.equals(other.history.dtypes)
    assert (one.totals, one.sums) == (other.totals, other.sums)
    np.testing.assert_array_equal(one.releases, other.releases)
    np.testing.assert_array_equal(one.communication_rounds, other.communication_rounds)
    assert (one.rounds, one.ending, one.reason, one.key) == (other.rounds, other.ending, other.reason, other.key)
    assert one.guarantee == other.guarantee


@pytest.mark.parametrize("row", LINKED, ids=str)
def test_a_resumed_run_is_the_unbroken_one_bit_for_bit(row: Row, tmp_path):
    whole, part = go(row.algorithm, 11), go(row.algorithm, 5)
    assert part.history["round"].tolist() == [0, 2, 4, 5]
    write_checkpoint(path := tmp_path / "checkpoints", Checkpoint.of(part))
    check_same(go(row.algorithm, 11, resume=part), whole)
    check_same(go(row.algorithm, 11, resume=read_checkpoint(path, row.algorithm, problem(), network())), whole)


def test_a_run_that_diverges_leaves_the_checkpoint_before(tmp_path):
    path, wild = tmp_path / "checkpoints", SLOW.replace(rate=1e12)
    result = run(wild, steps=30, callbacks=[jdfl.Checkpoints(path, every=1)])
    assert result.diverged is not None
    assert read_checkpoint(path, wild, problem(), network()).rounds == result.rounds - 1
    with refused("diverged"):
        run(wild, steps=30, resume=result)


def test_checkpoints_nobody_could_write_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").write_text("another's", encoding="utf-8")
    (tmp_path / "journal").write_text("no journal\n", encoding="utf-8")
    for error, words, given in (
        (ValueError, "minutes = 0.0", {"folder": "here", "minutes": 0.0}),
        (FileNotFoundError, "no/folder", {"folder": "no/folder"}),
        (FileExistsError, "taken", {"folder": "taken"}),
        (FileExistsError, "read_checkpoint", {"folder": tmp_path}),
    ):
        with refused(error, words):
            run(SLOW, callbacks=[jdfl.Checkpoints(**given)])
    assert (tmp_path / "taken").read_text(encoding="utf-8") == "another's"


def test_a_run_may_be_resumed_often_and_from_the_same_place():
    whole, first = run(SLOW), run(SLOW, steps=1)
    kept = np.array(first.params)
    for _ in range(2):  # what the first run left is not used up
        result = first
        for steps in (2, 5, 6, 12):
            result = run(SLOW, steps=steps, resume=result)
        check_same(result, whole)
    np.testing.assert_array_equal(first.params, kept)
    part = run(SLOW, callbacks=[lambda now: "enough" if now.rounds == 6 else None], options=jdfl.Options(chunk=3))
    assert (part.ending, part.rounds) == ("interrupted", 6)
    check_same(run(SLOW, resume=part), whole)


def test_noise_after_resuming_is_fresh():
    still = replace(SLOW, rate=1e-30, period=np.full(problem().m, 1000, np.int32))  # parameters change by noise alone
    result = run(still, steps=1)
    seen = [np.asarray(result.params)]
    for steps in range(2, 9):
        result = run(still, steps=steps, resume=result)
        seen.append(np.asarray(result.params))
    likeness = np.corrcoef(np.diff(seen, axis=0).reshape(7, -1))
    assert np.abs(likeness[~np.eye(7, dtype=bool)]).max() < 0.4  # 120 numbers each: 1 / sqrt(120) is .09
    np.testing.assert_array_equal(seen[-1], run(still, steps=8).params)


@pytest.fixture(scope="module")
def part() -> jdfl.Result:
    return go(PRIVATE, 5)


def test_a_file_is_the_run_wherever_it_is_read(part, tmp_path):
    folder = write_run(tmp_path / "run", part)
    told = read_checkpoint(folder / "checkpoints", PRIVATE, problem(), network())
    assert told.ledger.as_dict() == Ledger.of(part.guarantee, part.releases, part.records).as_dict()
    assert told.ledger.releases.tolist() == [5] * problem().m
    assert (told.rounds, told.key, told.sums) == (5, key_digest(part.key), part.sums)
    assert told.history.equals(part.history)
    np.testing.assert_array_equal(told.communications, part.communication_rounds)
    for memory in (part, told):
        check_same(go(PRIVATE, 5, resume=memory), part)


def test_warnings_of_the_past_stay(part, tmp_path):
    """What the first rounds did stays said, be it of the algorithm or of the stop rule that ended them."""
    past = replace(part, guarantee=replace(part.guarantee, warnings=("a",)), privacy_warnings=("b",))
    write_checkpoint(path := tmp_path / "checkpoints", Checkpoint.of(past))
    for before in (past, read_checkpoint(path, PRIVATE, problem(), network())):
        result = go(PRIVATE, 6, resume=before)
        assert jdfl.account(result).warnings == ("a", "b")
        assert jdfl.account(go(PRIVATE, 7, resume=result)).warnings == ("a", "b")
    assert jdfl.account(part).warnings == ()


def test_other_noise_a_weaker_past_and_other_observers_are_refused(part):
    ledger = partial(Ledger.of, releases=part.releases, records=part.records)
    changed = {"event": {"mechanism": jdfl.Gaussian(0.50001)}, "adjacency": {"adjacency": "add-remove"}}
    for name, fields in (changed | {"sampling": {"batch": 4}}).items():
        other = noise(**fields)
        with refused(name):
            go(other, 11, resume=part)
        with refused(name):  # nor the other way round
            past = replace(Checkpoint.of(part), ledger=ledger(other.privacy(problem())))
            past.check(ledger(PRIVATE.privacy(problem())), part.run_key, 11)
    # What is told at the end is told of all rounds, so that the first must have been protected alike.
    for before, after in (
        ({"per": "example"}, {"per": "batch"}),
        ({"noisy": "communicating"}, {"noisy": "always"}),
        ({"clip": None, "sensitivity": 1.0}, {"clip": 1.0}),
    ):
        kinds = ({"clip": 1.0, "mechanism": jdfl.Gaussian(0.5)} | fields for fields in (before, after))
        weak, strong = (jdfl.DPSGD(lr=0.02, gradients=jdfl.Gradients(**fields)) for fields in kinds)
        with refused("noise"):
            go(strong, 11, resume=replace(part, algorithm=weak, guarantee=weak.privacy(problem())))
    updates = jdfl.Updates(clip=0.1, mechanism=jdfl.Gaussian(0.5), trust="central")
    central = jdfl.FedAvg(updates=updates).privacy(problem())
    alike = jdfl.Gaussian(central.event.noise_multiplier)  # as much as a client sees under central trust
    local = jdfl.FedAvg(updates=replace(updates, trust="local", mechanism=alike))
    with refused("observer", "'all messages'"):
        go(local, 11, resume=replace(part, guarantee=central))


def test_other_settings_are_refused_with_the_difference(part, tmp_path):
    for words, given in (("key", {"key": 4}), ("steps = 4", {"steps": 4}), ("metrics", {"metrics": ["objective"]})):
        with refused(words):
            go(PRIVATE, **({"steps": 11} | given), resume=part)
    write_checkpoint(path := tmp_path / "checkpoints", Checkpoint.of(part))
    other = PRIVATE.replace(lr=0.03)
    for memory in (part, read_checkpoint(path, other, problem(), network())):
        with refused("algorithm.lr: was 0.02, is 0.03"):
            go(other, 11, resume=memory)
    changed = problem().replace(data=(problem().data[0].at[1, 2, 3].add(1e-3), problem().data[1]))
    with pytest.warns(UserWarning, match="other arrays of data"):  # nothing in memory has looked at them
        go(PRIVATE, 11, problem=changed, resume=part)
    kept = go(PRIVATE, 5, callbacks=[jdfl.Checkpoints(tmp_path / "kept")])
    for memory in (kept, read_checkpoint(tmp_path / "kept", PRIVATE, changed, network())):
        with refused("problem.data.0 checksum"):
            go(PRIVATE, 11, problem=changed, resume=memory)


def test_another_runs_state_is_refused(part, tmp_path):
    write_checkpoint(path := tmp_path / "checkpoints", Checkpoint.of(part))
    small = regression(n=9)
    with refused("problem.data.0: was float32[6, 8, 20], is float32[6, 8, 9]"):
        go(PRIVATE, 11, problem=small, resume=part)
    with refused("float32[6, 9]", "float32[6, 20]"):
        read_checkpoint(path, PRIVATE, small, network())
    fewer = problem().replace(weight=problem().weight.at[2, 0].set(0.0))
    for memory in (part, read_checkpoint(path, PRIVATE, fewer, network())):
        with refused("records per node"):
            go(PRIVATE, 11, problem=fewer, resume=memory)
    with refused("side by side"):
        go(PRIVATE, 11, resume=replace(part, state=None))  # as lanes are


def test_another_algorithms_state_is_refused(tmp_path):
    quiet = go(jdfl.DPSGD(lr=0.02), 3)
    write_checkpoint(path := tmp_path / "checkpoints", Checkpoint.of(quiet))
    half = jdfl.Dense("float16")  # no messages, messages of another size, more arrays, as many of the same shape
    for other in (jdfl.LocalOnly(lr=0.02), jdfl.DPSGD(lr=0.02, codec=half), jdfl.DSGT(lr=0.02), jdfl.DFedSAM(lr=0.02)):
        with refused("resumed"):
            go(other, 6, resume=quiet)
    with pytest.raises(ValueError, match=r"Resume with the algorithm"):
        go(jdfl.DSGT(lr=0.02), 6, resume=read_checkpoint(path, jdfl.DSGT(lr=0.02), problem(), network()))


def test_other_code_is_refused_unless_it_is_accepted(part):
    before = Checkpoint.of(part)
    assert before.provenance is not None
    old = replace(before.provenance, versions=before.provenance.versions | {"jax": "0.4.1", "code": "0"})
    with refused("code: was 0", "jax: was 0.4.1", "--any-version"):
        go(PRIVATE, 11, resume=replace(before, provenance=old))
    check_same(go(PRIVATE, 11, resume=replace(before, provenance=None)), go(PRIVATE, 11))
