"""One private key is for one private run: noise follows from the key alone, and what shares it has no joint epsilon."""

import ctypes
import os
import stat
import subprocess
import sys
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jdfl
from jdfl.algorithms.program import planned
from jdfl.base import struct
from jdfl.base.keys import key_data
from jdfl.base.run_keys import RunKey
from jdfl.engine import accountant, batch, runner, start
from jdfl.engine.accountant import spent_together
from jdfl.engine.computed import COMPUTED, computed
from tests.later import Later

NETWORK = Later(jdfl.network.ring, 4)
DRAWN = Later(jdfl.problems.example1, m=4, n=12, s=2, rows=(8, 12))
NOISY = jdfl.DPSGD(lr=0.05, gradients=jdfl.Gradients(clip=1.0, mechanism=jdfl.Gaussian(5.0)))
X = np.random.default_rng(0).standard_normal((24, 3)).astype(np.float32)


def run(algorithm=NOISY, problem=None, **how):
    how = {"steps": 2, "metrics": []} | how
    return jdfl.run(algorithm, DRAWN() if problem is None else problem, NETWORK(), **how)


def learning(sign):
    """A problem whose loss takes a sign from wherever a function may take it, when it is traced."""

    def loss(params, example):
        return sign() * jnp.dot(params, example)

    return jdfl.problems.from_loss(loss, jnp.zeros(3), X, nodes=4)


class Signs(type):
    value = 1.0

    @property
    def sign(cls):
        return Signs.value


class Held(metaclass=Signs):
    pass


def of_environment(patch, sign):
    patch.setenv("JDFL_TEST_SIGN", str(sign))
    return NOISY, learning(lambda: float(os.environ["JDFL_TEST_SIGN"]))


def of_arguments(patch, sign):
    patch.setattr(sys, "argv", ["x", str(sign)])
    return NOISY, learning(lambda: float(sys.argv[1]))


def of_a_foreign_function(patch, sign):
    name = "ceil" if sign > 0 else "floor"
    function = getattr(ctypes.CDLL(None), name)
    function.restype, function.argtypes = ctypes.c_double, [ctypes.c_double]
    return NOISY, learning(lambda: 2 * function(0.5) - 1)


def of_a_ufunc(patch, sign):
    ufunc = np.frompyfunc(lambda x: sign * x, 1, 1)
    return NOISY, learning(lambda: ufunc(1.0))


def of_the_configuration(patch, sign):
    return NOISY, learning(lambda: 1.0 if jax.config.jax_default_matmul_precision == "highest" else -1.0)


def of_a_metaclass(patch, sign):
    patch.setattr(Signs, "value", sign)
    return NOISY, learning(lambda: Held.sign)


def of_a_closure(patch, sign):
    return NOISY, learning(lambda: sign)


def of_a_clip(patch, sign):
    return replace(NOISY, gradients=replace(NOISY.gradients, clip=1.5 + sign / 2)), DRAWN()


def of_a_multiplier(patch, sign):
    return replace(NOISY, gradients=replace(NOISY.gradients, mechanism=jdfl.Gaussian(5.0 + sign))), DRAWN()


def of_curvature(patch, sign):
    ceps = jdfl.CEPS(s=3, clip=5.0, mechanism=jdfl.Gaussian(5.0))
    return ceps, DRAWN().replace(curvature=DRAWN().curvature * (3 + sign)).declared("curvature")


def of_a_record(patch, sign):
    features, targets = DRAWN().data
    return NOISY, DRAWN().replace(data=(features.at[0, 0].multiply(sign), targets))


KINDS = (
    of_environment,
    of_arguments,
    of_a_foreign_function,
    of_a_ufunc,
    of_the_configuration,
    of_a_metaclass,
    of_a_closure,
    of_a_clip,
    of_a_multiplier,
    of_curvature,
    of_a_record,
)


@pytest.mark.parametrize("kind", KINDS)
def test_two_runs_that_share_a_private_key_have_no_joint_epsilon(kind, monkeypatch, tmp_path):
    """Whatever differs: the sum refuses them, a ledger the second before it begins; without a key, none is shared."""
    own = kind is of_a_record  # a ledger is of one data set
    book = jdfl.DataLedger.create(tmp_path / "l.json", epsilon=1e3, delta=1e-4)
    found, fresh = [], []
    for sign in (1.0, -1.0):
        with jax.default_matmul_precision("highest" if sign > 0 else "default"):
            algorithm, problem = kind(monkeypatch, sign)
            found.append(run(algorithm, problem, key=7))
            fresh.append(run(algorithm, problem))
            if sign > 0:
                run(algorithm, problem, key=7, ledger=book)
            else:
                monkeypatch.setattr(runner, "_Run", None)  # nothing may begin
                with pytest.raises(ValueError, match="data of the ledger" if own else "another key"):
                    run(algorithm, problem, key=7, ledger=book)
    assert found[0].private_digest == found[1].private_digest
    for pair in (found, found[::-1]):
        with pytest.raises(ValueError, match="private key of their own"):
            spent_together(pair, delta=1e-4)
    assert fresh[0].private_digest != fresh[1].private_digest
    assert np.isfinite(spent_together(fresh, delta=1e-4)[0])


def test_noise_that_is_shared_gives_a_record_away_and_a_fresh_key_hides_it():
    """The attack: the models of loss x +1 and loss x -1 add up to what has no noise."""
    loud = jdfl.DPSGD(lr=0.05, gradients=jdfl.Gradients(clip=1.0, mechanism=jdfl.Gaussian(500.0)))
    pairs = [
        [run(loud, learning(lambda sign=sign: sign), steps=1, **how).params for sign in (1.0, -1.0)]
        for how in ({"key": 7}, {})
    ]
    shared, hidden = (float(np.abs(np.asarray(one - other)).max()) for one, other in pairs)
    assert shared < 0.11 < 1.0 < hidden  # twice lr times a clipped gradient, against the noise of both


def test_the_same_run_counts_once_and_so_does_what_it_continues():
    first = run(key=3)
    again, longer = run(key=3), run(key=3, resume=first, steps=4)
    once = spent_together([first])
    assert spent_together([first, again]) == once
    assert spent_together([longer, first]) == spent_together([longer]) == spent_together([first, longer])
    with pytest.raises(ValueError, match="released different things"):
        spent_together([first, run(key=3, steps=4)])  # whose beginning nobody has compared


@struct.dataclass
class Forgetful(jdfl.Algorithm):
    """What a round sends says nothing of earlier rounds."""

    signs: Any = None  # [T] of the points at which gradients are taken
    gradients: jdfl.Gradients = NOISY.gradients
    title = "Forgetful"

    def init(self, round):
        """Start where the problem says."""
        return round.problem.begin()

    def step(self, state, round):
        """A step from the start."""
        x = round.problem.begin()
        return round.mix(x - self.gradients(self.signs[round.k] * (x + 1), round) - 0 * state)


def test_runs_that_end_alike_are_not_one_run(monkeypatch):
    """In the first round they differ, by an array of settings or by a record, and all that is left of it is equal."""

    def hinge(params, example):
        return jnp.maximum(0.0, jnp.sum(params)) * example[0] + 0 * params @ example

    signs, other = jnp.asarray([1.0, -1, 1, 1, 1]), X.copy()
    other[0] *= -1
    problem, changed = (jdfl.problems.from_loss(hinge, jnp.zeros(3), data, nodes=4) for data in (X, other))
    by_record = (Forgetful(signs), problem), (Forgetful(signs), changed)
    by_array = (Forgetful(signs), problem), (Forgetful(signs.at[0].multiply(-1)), problem)

    def found(pair):
        made = [run(*one, key=7) for one in pair]
        lanes = [jdfl.repeat(*one, NETWORK(), keys=[7, 8], steps=2, metrics=[])[0] for one in pair]
        return made, lanes

    for both in (*found(by_record), [run(*one, key=7) for one in by_array]):
        assert both[0].released[-1].split()[1] == both[1].released[-1].split()[1]
        with pytest.raises(ValueError, match="private key of their own"):
            spent_together(both)
    again = run(Forgetful(1 * signs), jdfl.problems.from_loss(hinge, jnp.zeros(3), X, nodes=4), key=7)
    assert np.isfinite(spent_together([run(Forgetful(signs), problem, key=7), again])[0])
    with monkeypatch.context() as patch:
        for file in (start, batch):
            patch.setattr(file, "made_of", lambda *_: "")
        assert all(np.isfinite(spent_together(both)[0]) for both in found(by_record))


def test_without_a_key_noise_is_new_and_the_rest_is_that_of_seed_0():
    one, other = run(jdfl.DPSGD(), metrics=None), run(jdfl.DPSGD(), metrics=None, key=0)
    assert (one.key_source, other.key_source) == ("seed 0", "given")
    np.testing.assert_array_equal(one.params, other.params)
    private, seeded = run(), run(key=0)
    assert (private.key_source, seeded.key_source) == ("operating system", "given")
    assert private.key == seeded.key
    assert private.private_key != seeded.private_key
    np.testing.assert_array_equal(run(key=private.run_key).params, private.params)
    np.testing.assert_array_equal(run(resume=private, steps=4).params, run(key=private.run_key, steps=4).params)


def test_the_record_of_a_folder_is_its_owners_and_is_enough_to_resume(tmp_path):
    folder = tmp_path / "run"
    whole = run(steps=2, callbacks=[jdfl.Checkpoints(folder, every=1)])
    file = folder / "private.key"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    before = jdfl.read_checkpoint(folder, NOISY, DRAWN(), NETWORK())
    np.testing.assert_array_equal(run(resume=before, steps=4).params, run(key=whole.run_key, steps=4).params)
    told = file.read_bytes()
    assert all(str(word).encode() in told for word in whole.private_key)
    others = [path.read_bytes() for path in folder.rglob("*") if path.is_file() and path != file]
    assert not any(str(word).encode() in content for word in whole.private_key for content in others)
    file.write_text("{}")
    with pytest.raises(ValueError, match="damaged"):
        jdfl.read_checkpoint(folder, NOISY, DRAWN(), NETWORK())
    file.unlink()
    lost = jdfl.read_checkpoint(folder, NOISY, DRAWN(), NETWORK())
    with pytest.raises(ValueError, match=r"private\.key"):
        run(resume=lost, steps=4)


def test_a_resumed_run_computes_the_same(tmp_path):
    """Another loss of the same name is seen where the run is kept, and where its result is at hand."""
    one, other = learning(lambda: 1.0), learning(lambda: -1.0)
    kept = run(NOISY, one, key=1, callbacks=[jdfl.Checkpoints(tmp_path / "run", every=1)])
    assert COMPUTED in kept.provenance.settings
    with pytest.raises(ValueError, match=COMPUTED):
        run(NOISY, other, key=1, steps=4, resume=jdfl.read_checkpoint(tmp_path / "run", NOISY, other, NETWORK()))
    with pytest.raises(ValueError, match=COMPUTED):
        run(NOISY, other, steps=4, resume=run(NOISY, one, key=1))
    with pytest.warns(UserWarning, match="with other arrays of data"):  # whose values nothing has recorded
        assert run(NOISY, learning(lambda: 1.0), steps=4, resume=run(NOISY, one, key=1)).rounds == 4
    assert run(NOISY, one, steps=4, resume=run(NOISY, one, key=1)).rounds == 4


def test_what_is_computed_has_no_names():
    def loss(params, example):
        return jnp.sum(jax.jit(lambda a: a * 2)(params) * example)

    def verlust(gewichte, beispiel):
        @jax.jit
        def doppelt(a):
            return a * 2

        zwischen = doppelt(gewichte) * beispiel
        return jnp.sum(zwischen)

    def other(params, example):
        return jnp.sum(jax.jit(lambda a: a * 3)(params) * example)

    made = [jdfl.problems.from_loss(one, jnp.zeros(3), X, nodes=4) for one in (loss, verlust, other)]
    found = [computed(planned(NOISY, one, NETWORK(), 2), one, NETWORK()) for one in made]
    assert found[0] == found[1] != found[2]


def test_every_run_of_a_sweep_and_an_experiment_has_a_private_key_and_keeps_it():
    def swept(rates):
        return jdfl.sweep(NOISY, DRAWN(), NETWORK(), over={"lr": rates}, keys=[0, 1], steps=1, metrics=["objective"])

    def compared(labels, trials):
        methods = {label: replace(NOISY, lr=0.1) for label in labels}
        with pytest.warns(UserWarning, match="Not tuned"):
            return jdfl.compare(methods, DRAWN(), NETWORK(), trials=trials, steps=1, tuning=None, metrics=["objective"])

    few, more = swept([0.1]), swept([0.2, 0.1])
    assert len({one.private_digest for one in more}) == 4
    assert [one.private_digest for one in few] == [one.private_digest for one in more[2:]]
    assert len({one.key for one in more}) == 2  # public randomness is common
    assert np.isfinite(spent_together(more)[0])
    short, long = compared(["a"], [0, 1]), compared(["b", "a"], [0, 1, 2])
    keys = {label: [one.private_digest for one in runs] for label, runs in long.results.items()}
    assert len({*keys["a"], *keys["b"]}) == 6
    assert [one.private_digest for one in short.results["a"]] == keys["a"][:2]
    assert [one.key for one in long.results["a"]] == [one.key for one in long.results["b"]]
    assert np.isfinite(long.together.epsilon)


SCRIPT = """
import {first}
import {second}
import jax.numpy as jnp, numpy as np, jdfl

def loss({params}, {example}):
    {inner} = jnp.dot({params}, {example})
    return {inner} ** 2

x = np.random.default_rng(0).standard_normal((24, 3)).astype(np.float32)
problem = jdfl.problems.from_loss(loss, jnp.zeros(3), x, nodes=4)
gradients = jdfl.Gradients(clip=1.0, mechanism=jdfl.Gaussian(5.0), batch=2)
found = jdfl.run(jdfl.DPSGD(lr=0.1, gradients=gradients), problem, jdfl.network.ring(4), key=3, steps=2, metrics=[])
print(np.asarray(found.params).tobytes().hex())
"""


def test_names_of_variables_and_the_order_of_imports_change_no_bit():
    one = {"first": "jdfl.privacy", "second": "optax", "params": "params", "example": "example", "inner": "inner"}
    other = {"first": "optax", "second": "jdfl.events", "params": "w", "example": "beispiel", "inner": "zwischen"}
    bits = [
        subprocess.run(
            [sys.executable, "-c", SCRIPT.format(**names)], capture_output=True, text=True, check=True
        ).stdout
        for names in (one, other)
    ]
    assert bits[0] == bits[1]
    assert len(bits[0]) > 90


def test_keys_depend_on_nothing_but_the_key_stream_node_round_and_index():
    """Two methods on two problems draw the same noise with one key; what is derived depends on its name alone."""
    quiet = replace(NOISY, gradients=replace(NOISY.gradients, mechanism=None))
    other = DRAWN().replace(data=jax.tree.map(lambda x: -x, DRAWN().data))
    noise = [
        np.asarray(run(NOISY, problem, key=5, steps=1).params - run(quiet, problem, key=5, steps=1).params)
        for problem in (DRAWN(), other)
    ]
    np.testing.assert_allclose(*noise, atol=1e-5)
    key = RunKey.of(5)
    told = [
        key_data(one.private)
        for one in (key.derived({"a": 1, "b": 2}), key.derived({"b": 2, "a": 1}), key.derived("a"))
    ]
    assert told[0] == told[1] != told[2]


def test_planted_bugs_are_seen(monkeypatch):
    """A sum that looks at no keys, and a default that draws no new one."""
    pair = [run(key=7), run(replace(NOISY, lr=0.1), key=7)]
    with monkeypatch.context() as patch:
        patch.setattr(accountant, "check_shared", lambda *_: None)
        assert np.isfinite(spent_together(pair)[0])
    with monkeypatch.context() as patch:
        patch.setattr(start.RunKey, "chosen", classmethod(lambda cls, *_: cls.of(0)))
        with pytest.raises(ValueError, match="private key of their own"):
            spent_together([run(), run(replace(NOISY, lr=0.1))])
