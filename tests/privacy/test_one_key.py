"""One private key is for one private run: noise follows from the key alone, and what shares it has no joint epsilon."""

import functools
import stat
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import jdfl
from jdfl.algorithms.gradients import NOISE
from jdfl.base import struct
from jdfl.base.keys import key_data
from jdfl.base.run_keys import RunKey
from jdfl.engine import runner
from jdfl.engine.accountant import spent_together
from jdfl.engine.provenance import COMPUTED
from tests.privacy.scene import DRAWN, NETWORK, NOISY, run
from tests.refused import refused

X = np.random.default_rng(0).standard_normal((24, 3)).astype(np.float32)
LOUD = replace(NOISY, gradients=replace(NOISY.gradients, mechanism=jdfl.Gaussian(500.0)))


def learning(sign):
    """A problem whose loss takes a sign from outside."""

    def loss(params, example):
        return sign * jnp.dot(params, example)

    return jdfl.problems.from_loss(loss, jnp.zeros(3), X, nodes=4)


signed = functools.cache(learning)


def of_a_clip(sign):
    return replace(NOISY, gradients=replace(NOISY.gradients, clip=1.5 + sign / 2)), DRAWN()


def of_a_record(sign):
    features, targets = DRAWN().data
    return NOISY, DRAWN().replace(data=(features.at[0, 0].multiply(sign), targets))


@functools.cache
def losses(key):
    """The runs of loss x +1 and loss x -1, with a key or without."""
    return [run(LOUD, signed(sign), steps=1, key=key) for sign in (1.0, -1.0)]


@pytest.mark.parametrize("kind", [of_a_clip, of_a_record])
def test_two_runs_that_share_a_private_key_have_no_joint_epsilon(kind, monkeypatch, tmp_path):
    """Whatever differs: the sum refuses them, and a ledger the second before it begins."""
    book = jdfl.DataLedger.create(tmp_path / "l.json", epsilon=1e3, delta=1e-4)
    first, second = (run(*kind(sign), key=7, ledger=one) for sign, one in ((1.0, book), (-1.0, None)))
    monkeypatch.setattr(runner, "_Run", None)  # nothing may begin
    with refused("data" if kind is of_a_record else "private key", str(book.path)):  # a ledger is of one data set
        run(*kind(-1.0), key=7, ledger=book)
    assert first.private_digest == second.private_digest
    with refused("private key"):
        spent_together((first, second), delta=1e-4)


def test_noise_that_is_shared_gives_a_record_away_and_a_fresh_key_hides_it():
    """The attack: the models of loss x +1 and loss x -1 add up to what has no noise."""
    shared, hidden = (float(np.abs(np.asarray(one.params - two.params)).max()) for one, two in map(losses, (7, None)))
    assert shared < 0.11 < 1.0 < hidden  # twice lr times a clipped gradient, against the noise of both
    with refused("private key"):
        spent_together(losses(7))
    assert losses(None)[0].private_digest != losses(None)[1].private_digest
    assert np.isfinite(spent_together(losses(None), delta=1e-4)[0])


def test_the_same_run_counts_once_and_so_does_what_it_continues():
    first = run(key=3)
    again, longer = run(key=3), run(key=3, resume=first, steps=4)
    once = spent_together([first])
    assert spent_together([first, again]) == once
    assert spent_together([longer, first]) == spent_together([longer]) == spent_together([first, longer])
    with refused("private key"):
        spent_together([first, run(key=3, steps=4)])  # whose beginning nobody has compared


@struct.dataclass
class Forgetful(jdfl.Algorithm):
    """What a round sends says nothing of earlier rounds."""

    signs: Any = None  # [T] of the points at which gradients are taken
    gradients: jdfl.Gradients = NOISY.gradients
    title = "Forgetful"

    def init(self, round):
        return round.problem.initial_params()

    def step(self, state, round):
        x = round.problem.initial_params()
        return round.mix(x - self.gradients(self.signs[round.k] * (x + 1), round) - 0 * state)


def test_runs_that_end_alike_are_not_one_run():
    """In the first round they differ, by an array of settings or by a record, and all that is left of it is equal."""

    def hinge(params, example):
        return jnp.maximum(0.0, jnp.sum(params)) * example[0] + 0 * params @ example

    signs, other = jnp.asarray([1.0, -1, 1, 1, 1]), X.copy()
    other[0] *= -1
    problem, changed = (jdfl.problems.from_loss(hinge, jnp.zeros(3), data, nodes=4) for data in (X, other))
    first, by_record, again = (run(Forgetful(signs), one, key=7) for one in (problem, changed, problem))
    for other in (by_record, run(Forgetful(signs.at[0].multiply(-1)), problem, key=7)):
        assert first.released[-1].split()[1] == other.released[-1].split()[1]
        with refused("private key"):
            spent_together([first, other])
    assert np.isfinite(spent_together([first, again])[0])


def test_without_a_key_noise_is_new_and_the_rest_is_that_of_seed_0():
    one, other = run(jdfl.DPSGD()), run(jdfl.DPSGD(), key=0)
    assert (one.key_source, other.key_source) == ("seed 0", "given")
    np.testing.assert_array_equal(one.params, other.params)
    private, seeded = run(), run(key=0)
    assert (private.key_source, seeded.key_source) == ("operating system", "given")
    assert private.key == seeded.key
    assert private.private_key != seeded.private_key
    assert np.isfinite(spent_together([private, run(replace(NOISY, lr=0.1))])[0])
    np.testing.assert_array_equal(run(key=private.run_key).params, private.params)


def test_the_record_of_a_folder_is_its_owners_and_is_enough_to_resume(tmp_path):
    folder = tmp_path / "run"
    whole = run(callbacks=[jdfl.Checkpoints(folder, every=1)])
    file = folder / "private.key"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    before = jdfl.read_checkpoint(folder, NOISY, DRAWN(), NETWORK())
    np.testing.assert_array_equal(run(resume=before, steps=4).params, run(key=whole.run_key, steps=4).params)
    file.unlink()
    lost = jdfl.read_checkpoint(folder, NOISY, DRAWN(), NETWORK())
    with refused("private.key"):
        run(resume=lost, steps=4)


def test_a_resumed_run_computes_the_same(tmp_path):
    """Another loss of the same name is seen where the run is kept, and where its result is at hand."""
    one, other = signed(1.0), signed(-1.0)
    kept = run(NOISY, one, key=1, callbacks=[jdfl.Checkpoints(tmp_path / "run", every=1)])
    assert COMPUTED in kept.provenance.settings
    for before in (jdfl.read_checkpoint(tmp_path / "run", NOISY, other, NETWORK()), run(NOISY, one, key=1)):
        with refused(COMPUTED):
            run(NOISY, other, key=1, steps=4, resume=before)
    with pytest.warns(UserWarning, match="data"):  # whose values nothing has recorded
        assert run(NOISY, learning(1.0), steps=4, resume=before).rounds == 4


def test_every_run_of_a_sweep_and_an_experiment_has_a_private_key_and_keeps_it():
    more = jdfl.sweep(NOISY, DRAWN(), NETWORK(), over={"lr": [0.2, 0.1]}, keys=[0, 1], steps=1, metrics=[])
    assert len({one.private_digest for one in more}) == 4
    assert len({one.key for one in more}) == 2  # public randomness is common
    assert np.isfinite(spent_together(more)[0])
    methods = {label: replace(NOISY, lr=0.1) for label in "ba"}
    with pytest.warns(UserWarning, match="Not tuned"):
        found = jdfl.compare(methods, DRAWN(), NETWORK(), trials=[0, 1], steps=1, tuning=None, metrics=["objective"])
    assert len({one.private_digest for runs in found.results.values() for one in runs}) == 4
    assert [one.key for one in found.results["a"]] == [one.key for one in found.results["b"]]
    assert np.isfinite(found.together.epsilon)


def test_a_derived_key_depends_on_nothing_but_its_name():
    names: Any = ({"a": 1, "b": 2}, {"b": 2, "a": 1}, "a")
    told = [key_data(RunKey.of(5).derived(name).private) for name in names]
    assert told[0] == told[1] != told[2]
    assert NOISE.number == 537908274  # of its name, in whatever order modules are imported
