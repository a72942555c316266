"""A run that is resumed is the run that was never interrupted, and is refused where it would be another."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jdfl
from jdfl.base.keys import key_digest
from jdfl.engine.checkpoint import Checkpoint
from jdfl.engine.reading import read_checkpoint
from jdfl.lab.results import write_run
from jdfl.privacy import Ledger
from tests.contract.table import GOSSIP, TABLE, Row
from tests.toy import FEW, SLOW, network, problem, regression, ring, run

pytestmark = pytest.mark.optimized

LAST = {row.name: row.label for row in TABLE}  # of every algorithm
QUICK = {*LAST.values(), "DP-CEPS, clipped", "DP-D-PSGD, every third round, minibatches, Adam"}
ROWS = [pytest.param(row, marks=[] if row.label in QUICK else pytest.mark.slow) for row in TABLE]


@pytest.fixture(scope="module", params=[*ROWS, GOSSIP], ids=str)
def row(request):
    """A row of the table; programs are not shared with the next."""
    yield request.param
    jax.clear_caches()


def go(algorithm: Any, steps: int, **options: Any) -> jdfl.Result:
    given = {"key": 3, "every": 2, "metrics": FEW, "options": jdfl.Options(chunk=100), **options}
    return jdfl.run(algorithm, problem, network, steps=steps, **given)


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


@pytest.mark.rotated(8)
def test_a_resumed_run_is_the_unbroken_one_bit_for_bit(row: Row, tmp_path):
    whole, part = go(row.algorithm, 11), go(row.algorithm, 5)
    assert part.history["round"].tolist() == [0, 2, 4, 5]
    path = Checkpoint.of(part).write(tmp_path / "checkpoints")
    check_same(go(row.algorithm, 11, resume=part), whole)
    check_same(go(row.algorithm, 11, resume=read_checkpoint(path, row.algorithm, problem, network)), whole)


# ---------------------------------------------------------------- checkpoints while a run is under way


class CutError(Exception):
    """What ends a run with nothing to say."""


@pytest.mark.parametrize("chunk", [3, 50])
def test_a_run_that_is_cut_off_goes_on_from_its_last_checkpoint(tmp_path, chunk):
    path = tmp_path / "checkpoints"

    def cut(snapshot):
        if snapshot.rounds > 6:
            raise CutError

    with pytest.raises(CutError):
        run(SLOW, callbacks=[cut, jdfl.Checkpoints(path, every=4)], options=jdfl.Options(chunk=chunk))
    checkpoint = read_checkpoint(path, SLOW, problem, network)
    assert checkpoint.rounds == 8
    check_same(run(SLOW, resume=checkpoint, callbacks=[jdfl.Checkpoints(path)]), run(SLOW))
    assert read_checkpoint(path, SLOW, problem, network).rounds == run(SLOW).rounds


def test_a_checkpoint_has_no_say_in_a_run(tmp_path):
    check_same(run(SLOW, callbacks=[jdfl.Checkpoints(tmp_path / "one", every=1)]), run(SLOW))
    assert [file.name for file in tmp_path.iterdir()] == ["one"]


def test_a_run_that_diverges_leaves_the_checkpoint_before(tmp_path):
    path, wild = tmp_path / "checkpoints", jdfl.DPSGD(lr=1e12)
    result = run(wild, steps=30, callbacks=[jdfl.Checkpoints(path, every=1)])
    assert result.diverged is not None
    assert read_checkpoint(path, wild, problem, network).rounds == result.rounds - 1


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"folder": "here", "every": 0}, ValueError, "every = 0"),
        ({"folder": "here", "minutes": 0.0}, ValueError, "minutes = 0.0"),
        ({"folder": 3}, ValueError, "folder = 3"),
        ({"folder": "no/folder"}, FileNotFoundError, "no/folder"),
        ({"folder": "taken"}, FileExistsError, "taken"),
    ],
)
def test_checkpoints_nobody_could_write_are_refused(given, error, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").write_text("another's", encoding="utf-8")
    with pytest.raises(error, match=words):
        run(SLOW, callbacks=[jdfl.Checkpoints(**given)])
    assert (tmp_path / "taken").read_text(encoding="utf-8") == "another's"


# ---------------------------------------------------------------- how a run goes on


def test_a_run_may_be_resumed_often_and_from_the_same_place():
    whole, first = run(SLOW, steps=12), run(SLOW, steps=1)
    kept = np.array(first.params)
    for _ in range(2):  # what the first run left is not used up
        result = first
        for steps in (2, 5, 6, 12):
            result = run(SLOW, steps=steps, resume=result)
        check_same(result, whole)
    np.testing.assert_array_equal(first.params, kept)


def test_an_interrupted_run_goes_on():
    def stop(now):
        return "enough" if now.rounds == 6 else None

    part = run(SLOW, callbacks=[stop], options=jdfl.Options(chunk=3))
    assert (part.ending, part.rounds) == ("interrupted", 6)
    check_same(run(SLOW, resume=part), run(SLOW))


def test_a_run_goes_on_after_its_stop_rule_fired():
    part = run(SLOW, steps=30, stop=jdfl.consensus_below(1e9))
    assert (part.ending, part.rounds) == ("stop rule", 4)
    check_same(run(SLOW, steps=12, resume=part), run(SLOW, steps=12))
    again = run(SLOW, steps=30, resume=part, stop=jdfl.consensus_below(1e9))
    assert (again.ending, again.rounds) == ("stop rule", 5)


def test_noise_after_resuming_is_fresh():
    still = replace(SLOW, rate=1e-30, period=np.full(problem.m, 1000, np.int32))  # parameters change by noise alone
    seen = [np.asarray(run(still, steps=1).params)]
    result = run(still, steps=1)
    for steps in range(2, 9):
        result = run(still, steps=steps, resume=result)
        seen.append(np.asarray(result.params))
    noise = np.diff(seen, axis=0).reshape(7, -1)
    likeness = np.corrcoef(noise)
    assert np.abs(likeness[~np.eye(7, dtype=bool)]).max() < 0.4  # 120 numbers each: 1 / sqrt(120) is .09
    np.testing.assert_array_equal(seen[-1], run(still, steps=8).params)


def test_a_file_is_the_run_wherever_it_is_read(tmp_path):
    part = go(PRIVATE, 4)
    folder = write_run(tmp_path / "run", part)
    told = read_checkpoint(folder / "checkpoints", PRIVATE, problem, network)
    assert told.ledger.as_dict() == Ledger.of(part.guarantee, part.releases, part.records).as_dict()
    assert told.ledger.releases.tolist() == [4] * problem.m
    assert (told.rounds, told.key, told.sums) == (4, key_digest(part.key), part.sums)
    assert told.history.equals(part.history)
    np.testing.assert_array_equal(told.communications, part.communication_rounds)


def test_optimizers_in_half_precision_come_back(tmp_path):
    def halves(learning_rate: Any) -> Any:
        import optax

        init = optax.trace(0.5, accumulator_dtype=jnp.bfloat16).init
        turned = optax.scale_by_learning_rate(learning_rate)

        def update(updates, state, params=None):
            state = jax.tree.map(lambda old, new: 0.5 * old + new.astype(old.dtype), state.trace, updates)
            step, _ = turned.update(state.astype(updates.dtype), turned.init(params))
            return step, optax.TraceState(state)

        return optax.GradientTransformation(init, update)

    algorithm = jdfl.DPSGD(lr=0.02, optimizer=halves)
    part, whole = go(algorithm, 3), go(algorithm, 6)
    assert jnp.bfloat16 in [leaf.dtype for leaf in jax.tree.leaves(part.state)]
    path = Checkpoint.of(part).write(tmp_path / "checkpoints")
    check_same(go(algorithm, 6, resume=read_checkpoint(path, algorithm, problem, network)), whole)


def test_noise_may_have_been_rounded_by_a_float():
    algorithm = replace(PRIVATE, gradients=replace(PRIVATE.gradients, mechanism=jdfl.Gaussian(0.3)))
    rounded = replace(
        algorithm, gradients=replace(algorithm.gradients, mechanism=jdfl.Gaussian(float(np.float32(0.3))))
    )
    assert rounded.gradients.mechanism.multiplier != 0.3
    check_same(
        replace(go(algorithm, 5, resume=go(rounded, 3)), guarantee=None), replace(go(algorithm, 5), guarantee=None)
    )


# ---------------------------------------------------------------- what is refused

NOISY = jdfl.Gradients(clip=1.0, mechanism=jdfl.Gaussian(0.5), batch=3, sampling="poisson")
PRIVATE = jdfl.DPSGD(lr=0.02, gradients=NOISY)


@pytest.fixture(scope="module")
def part() -> jdfl.Result:
    return go(PRIVATE, 5)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"mechanism": jdfl.Gaussian(0.6)}, "event = GaussianEvent.*0.5.*got GaussianEvent.*0.6.*resume with the same"),
        ({"mechanism": jdfl.Gaussian(0.50001)}, "event"),
        ({"mechanism": jdfl.Laplace(0.5)}, "event.*got LaplaceEvent"),
        ({"mechanism": None}, "event.*got None"),
        ({"adjacency": "add-remove"}, "adjacency = 'replace-one', got 'add-remove'"),
        ({"batch": 4}, "sampling = .*batch=3.*got .*batch=4"),
        ({"sampling": "subset"}, "sampling = .*poisson.*got .*subset"),
        ({"batch": None, "sampling": "replacement"}, "sampling = .*got None"),
    ],
    ids=["multiplier", "multiplier-slightly", "mechanism", "no-noise", "adjacency", "batch", "sampling", "no-sampling"],
)
def test_other_noise_is_refused_by_name(part, fields, words):
    other = replace(PRIVATE, gradients=replace(NOISY, **fields))
    with pytest.raises(ValueError, match=words):
        go(other, 11, resume=part)
    with pytest.raises(ValueError, match=r"event|adjacency|sampling"):  # nor the other way round
        replace(Checkpoint.of(part), ledger=Ledger.of(other.privacy(problem), part.releases, part.records)).check(
            Ledger.of(PRIVATE.privacy(problem), part.releases, part.records), part.run_key, 11
        )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"per": "example"}, {"per": "batch"}),
        ({"noisy": "communicating"}, {"noisy": "always"}),
        ({"clip": None, "sensitivity": 1.0}, {"clip": 1.0}),
    ],
    ids=["whose-data", "silent-rounds", "not-clipped"],
)
def test_a_weaker_past_is_refused(part, before, after):
    """What is told at the end is told of all rounds, so that the first must have been protected alike."""
    weak, strong = (
        jdfl.DPSGD(lr=0.02, gradients=jdfl.Gradients(**({"clip": 1.0, "mechanism": jdfl.Gaussian(0.5)} | fields)))
        for fields in (before, after)
    )
    past = replace(part, algorithm=weak, guarantee=weak.privacy(problem))
    with pytest.raises(ValueError, match="Expected the noise of the run that is resumed"):
        go(strong, 11, resume=past)


def test_a_past_with_other_observers_is_refused(part):
    updates = jdfl.Updates(clip=0.1, mechanism=jdfl.Gaussian(0.5), trust="central")
    central = jdfl.FedAvg(updates=updates).privacy(problem)
    noise = jdfl.Gaussian(central.event.noise_multiplier)  # as much as a client sees under central trust
    local = jdfl.FedAvg(updates=replace(updates, trust="local", mechanism=noise))
    with pytest.raises(ValueError, match=r"observer = .*server.*got 'all messages'"):
        go(local, 11, resume=replace(part, guarantee=central))


def test_warnings_of_the_past_stay(part, tmp_path):
    """What the first rounds did stays said, be it of the algorithm or of the stop rule that ended them."""
    path = tmp_path / "checkpoints"
    past = replace(part, guarantee=replace(part.guarantee, warnings=("a",)), privacy_warnings=("b",))
    assert jdfl.account(past).warnings == ("a", "b")
    Checkpoint.of(past).write(path)
    for before in (past, read_checkpoint(path, PRIVATE, problem, network)):
        result = go(PRIVATE, 6, resume=before)
        assert jdfl.account(result).warnings == ("a", "b")
        assert jdfl.account(go(PRIVATE, 7, resume=result)).warnings == ("a", "b")
    assert jdfl.account(part).warnings == ()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"key": 4}, r"Leave key as it was"),
        ({"steps": 4}, r"steps >= 5, the rounds that are done, got steps = 4\. It counts all rounds"),
    ],
    ids=["key", "fewer-steps"],
)
def test_another_key_and_too_few_steps_are_refused(part, options, words):
    with pytest.raises(ValueError, match=words):
        go(PRIVATE, **({"steps": 11} | options), resume=part)


def test_as_many_steps_as_are_done_give_what_there_is(part, tmp_path):
    path = Checkpoint.of(part).write(tmp_path / "checkpoints")
    for memory in (part, read_checkpoint(path, PRIVATE, problem, network)):
        check_same(go(PRIVATE, 5, resume=memory), part)


def test_other_metrics_are_refused(part):
    with pytest.raises(ValueError, match=r"metrics .*\['consensus_error', 'objective'\], got \['objective'\]"):
        go(PRIVATE, 11, resume=part, metrics=["objective"])


def test_runs_without_a_state_are_refused():
    (lane,) = jdfl.repeat(SLOW, problem, network, keys=[0], steps=3, metrics=FEW)
    with pytest.raises(ValueError, match="side by side, whose states are not kept"):
        run(SLOW, steps=9, resume=lane)
    lost = replace(run(SLOW, steps=3), ending="diverged", diverged=(3, 2), reason="node 2 has a non-finite parameter")
    with pytest.raises(ValueError, match="diverged: node 2"):
        run(SLOW, steps=9, resume=lost)


def test_another_runs_state_is_refused(part, tmp_path):
    path = Checkpoint.of(part).write(tmp_path / "checkpoints")
    small, shapes = regression(n=9), r"float32\[6, 9\], got float32\[6, 20\].*Resume with the algorithm"
    with pytest.raises(ValueError, match=r"problem\.data\.0: was float32\[6, 8, 20\], is float32\[6, 8, 9\]"):
        jdfl.run(PRIVATE, small, network, key=3, steps=11, metrics=FEW, resume=part)
    with pytest.raises(ValueError, match=shapes):
        read_checkpoint(path, PRIVATE, small, network)
    with pytest.raises(ValueError, match=r"float32\[7, 20\], got float32\[6, 20\]"):
        read_checkpoint(path, PRIVATE, regression(m=7), ring(7))
    with jax.enable_x64(True), pytest.raises(ValueError, match=r"float64\[6, 20\], got float32\[6, 20\]"):
        read_checkpoint(path, PRIVATE, regression(dtype=np.float64), network)
    fewer = problem.replace(weight=problem.weight.at[2, 0].set(0.0))
    for memory in (part, read_checkpoint(path, PRIVATE, fewer, network)):
        with pytest.raises(ValueError, match="other numbers of records per node"):
            jdfl.run(PRIVATE, fewer, network, key=3, steps=11, metrics=FEW, resume=memory)


def test_another_algorithms_state_is_refused(tmp_path):
    quiet = go(jdfl.DPSGD(lr=0.02), 3)
    path = Checkpoint.of(quiet).write(tmp_path / "checkpoints")
    words = r"the run that is resumed|Resume with the algorithm"
    for other in (
        jdfl.LocalOnly(lr=0.02),  # no messages
        jdfl.DPSGD(lr=0.02, codec=jdfl.Dense("float16")),  # messages of another size
        jdfl.DSGT(lr=0.02),  # more arrays
        jdfl.DFedSAM(lr=0.02),  # as many arrays of the same shape
    ):
        with pytest.raises(ValueError, match=words):
            go(other, 6, resume=quiet)
    for other in (jdfl.LocalOnly(lr=0.02), jdfl.DSGT(lr=0.02)):
        with pytest.raises(ValueError, match=words):
            go(other, 6, resume=read_checkpoint(path, other, problem, network))


def test_other_settings_are_refused_with_the_difference(part, tmp_path):
    path = Checkpoint.of(part).write(tmp_path / "checkpoints")
    other = PRIVATE.replace(lr=0.03)
    for memory in (part, read_checkpoint(path, other, problem, network)):
        with pytest.raises(ValueError, match=r"resumed\. algorithm\.lr: was 0\.02, is 0\.03\. Resume with"):
            jdfl.run(other, problem, network, key=3, steps=11, metrics=FEW, resume=memory)
    changed = problem.replace(data=(problem.data[0].at[1, 2, 3].add(1e-3), problem.data[1]))
    with pytest.warns(UserWarning, match="other arrays of data"):  # nothing in memory has looked at them
        jdfl.run(PRIVATE, changed, network, key=3, steps=11, every=2, metrics=FEW, resume=part)
    kept = go(PRIVATE, 5, callbacks=[jdfl.Checkpoints(tmp_path / "kept")])
    for memory in (kept, read_checkpoint(tmp_path / "kept", PRIVATE, changed, network)):
        with pytest.raises(ValueError, match=r"resumed\. problem\.data\.0 checksum: was (\w+), is (?!.*\1)"):
            jdfl.run(PRIVATE, changed, network, key=3, steps=11, every=2, metrics=FEW, resume=memory)


def test_other_code_is_refused_unless_it_is_accepted(part):
    before = Checkpoint.of(part)
    assert before.provenance is not None
    old = replace(before.provenance, versions=before.provenance.versions | {"jax": "0.4.1", "code": "0"})
    with pytest.raises(ValueError, match=r"code: was 0, is \w+; jax: was 0\.4\.1, is .*--any-version"):
        jdfl.run(PRIVATE, problem, network, key=3, steps=11, metrics=FEW, resume=replace(before, provenance=old))
    check_same(go(PRIVATE, 11, resume=replace(before, provenance=None)), go(PRIVATE, 11))
