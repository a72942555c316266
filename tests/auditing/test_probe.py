"""Planted bugs that repeating a round shows; each row names the family that must see it."""

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jdfl
from jdfl import stepping, struct
from jdfl.algorithms import gradients as gradients_file
from jdfl.auditing.probe import Probe, most_runs, probe
from jdfl.privacy import Gaussian
from jdfl.problems import LinearRegression
from jdfl.streams import Keys

M, N, Q, Z, STEPS = 3, 4, 6, 4.0, 4
NETWORK = jdfl.network.complete(M)
BATCH = 2


def _problem() -> LinearRegression:
    rng = np.random.default_rng(0)
    return jdfl.problems.linear_regression(
        [rng.normal(size=(Q, N)) for _ in range(M)], [rng.normal(size=Q) for _ in range(M)]
    )


PROBLEM = _problem()


def _pair(features: list[float]) -> Any:
    long = jnp.asarray(features, jnp.float32)
    return (long, jnp.float32(1e4)), (long, jnp.float32(-1e4))


PAIRS = [_pair([1.0, 0.0, 0.0, 0.0]), _pair([0.5, -0.4, 0.3, 0.6])]
PLAIN = jdfl.Gradients(clip=1.0, mechanism=jdfl.Gaussian(Z))
SETTINGS = {
    "all": jdfl.DPSGD(lr=0.1, gradients=PLAIN),
    "poisson": jdfl.DPSGD(lr=0.1, gradients=replace(PLAIN, batch=BATCH, sampling="poisson")),
}


def _found(algorithm: Any, seed: int = 0) -> Probe:
    setting = stepping.setting(algorithm, PROBLEM, NETWORK, None, jax.random.key(seed))
    keys = jax.vmap(Keys.of)(jax.random.split(jax.random.key(seed + 1), most_runs(PROBLEM, STEPS)))
    return probe(setting, algorithm.privacy(PROBLEM), PAIRS, keys, steps=STEPS)


@pytest.fixture
def fresh():
    """Programs of patched code are neither taken from others nor left to them."""
    jax.clear_caches()
    yield
    jax.clear_caches()


@pytest.mark.slow
@pytest.mark.parametrize("name", list(SETTINGS))
def test_nothing_fires_where_all_is_sound(name):
    told = _found(SETTINGS[name])
    assert (told.findings, told.reason) == ((), "")
    assert told.tests > 100


def _noise(key, x):
    return jax.random.normal(key, x.shape, x.dtype)


def _as(law):
    """A mechanism whose standard noise is `law(key, x)`."""
    return lambda self, key, x, sensitivity: x + self.multiplier * sensitivity * law(key, x)


def _few_bits(key, x):
    return _noise(key, x).astype(jnp.bfloat16).astype(x.dtype)


def _magnitude(key, x):
    """The sign is fresh, the size is that of all nodes."""
    return jnp.abs(_noise(jax.random.key(7), x)) * jnp.where(_noise(key, x) > 0, 1, -1)


LAWS = {
    "no noise": (lambda k, x: 0 * x, "residual scale"),
    "a tenth of the noise": (lambda k, x: _noise(k, x) / 10, "residual scale"),
    "half of the noise": (lambda k, x: _noise(k, x) / 2, "residual scale"),
    "nine tenths of the noise": (lambda k, x: 0.9 * _noise(k, x), "residual scale"),
    "a number without noise": (lambda k, x: _noise(k, x).at[1].set(0), "residual scale"),
    "the same key always": (lambda k, x: _noise(jax.random.key(7), x), "residual covariance"),
    "one number for all": (lambda k, x: jnp.broadcast_to(jax.random.normal(k), x.shape), "residual covariance"),
    "correlated with a common part": (
        lambda k, x: 0.9 * _noise(k, x) + 0.19**0.5 * _noise(jax.random.key(7), x),
        "residual covariance",
    ),
    "sizes shared": (_magnitude, "residual magnitudes"),
    "uniform noise": (lambda k, x: jax.random.uniform(k, x.shape, x.dtype, -(3**0.5), 3**0.5), "residual shape"),
    "signs alone": (lambda k, x: jnp.sign(_noise(k, x)), "residual shape"),
    "bfloat16 noise": (_few_bits, "residual collisions"),
}


CALL, SAMPLE, EXACT = jdfl.Gradients.__call__, jdfl.Gradients.sample, jdfl.Gradients.exact
SENSITIVITIES = jdfl.Gradients.sensitivities


def _bare_when(when):
    def call(self, w, problem, round, **options):
        bare = CALL(replace(self, mechanism=None), w, problem, round, **options)
        return jnp.where(when(round), bare, CALL(self, w, problem, round, **options))

    return {"__call__": call}


def _other_keys(change):
    """Noise from keys [m] that are changed first."""

    def call(self, w, problem, round, **options):
        g = CALL(replace(self, mechanism=None), w, problem, round, **options)
        keys = change(round.keys(gradients_file._NOISE), round)
        return jax.vmap(self.mechanism.add)(keys, g, self.sensitivities(problem))

    return {"__call__": call}


def _over_rounds(keys, round):
    return jax.vmap(jax.random.fold_in, (None, 0))(jax.random.key(5), round.node)


def _twice(self, w, problem, round, **options):
    """Two looks, of which the mean is shown, counted once."""
    return (CALL(self, w, problem, round, **options) + CALL(self, w, problem, round, **options, look=1)) / 2


def _skip(self, problem, w, data, weight, total, part=None):
    """The clip is skipped for record 2 of node 1."""
    right = EXACT(self, problem, w, data, weight, total, part)
    alone = jnp.zeros_like(weight).at[1, 2].set(weight[1, 2])
    clipped = EXACT(self, problem, w, data, alone, total, part)
    bare = EXACT(replace(self, clip=None), problem, w, data, jnp.maximum(alone, 1e-9), total, part)
    return right - clipped + bare * (alone.sum(axis=1) / total)[:, None]


def _last(self, problem, round, step=0, steps=1):
    """The last records instead of a sample."""
    data, weight, total = SAMPLE(self, problem, round, step, steps)
    if self.batch is None:
        return data, weight, total
    late = jnp.arange(problem.weight.shape[1]) >= problem.weight.shape[1] - BATCH
    return problem.data, jnp.where(late, problem.weight, 0.0), total


def _relayed(self, w, problem, round, **options):
    """A node adds a little of its neighbour's gradient, without noise."""
    g = CALL(self, w, problem, round, **options)
    return g + 0.1 * jnp.roll(CALL(replace(self, mechanism=None), w, problem, round, **options), 1, axis=0)


@dataclass(frozen=True)
class Bug:
    """What is patched into `Gradients`, under which setting, and the family that must see it."""

    patch: dict[str, Any]
    family: str
    setting: str = "all"


BUGS = {
    "noise missing in one round": Bug(_bare_when(lambda round: round.k == 2), "leak"),
    "noise missing at even rounds": Bug(_bare_when(lambda round: round.k % 2 == 0), "leak"),
    "noise missing at one node": Bug(_bare_when(lambda round: (round.node == 1)[:, None]), "leak"),
    "noise shared by two nodes": Bug(
        _other_keys(lambda keys, round: keys[jnp.asarray([0, 0, 2])]), "residual covariance"
    ),
    "keys reused over rounds": Bug(_other_keys(_over_rounds), "residual covariance"),
    "sensitivity off by two": Bug(
        {"sensitivities": lambda self, problem: SENSITIVITIES(self, problem) / 2}, "sensitivity"
    ),
    "clip skipped for one record of one node": Bug({"exact": _skip}, "sensitivity"),
    "two releases counted as one": Bug({"__call__": _twice}, "residual scale"),
    "releases not counted": Bug({"releases": lambda self, evaluated, communicating: 0 * evaluated}, "release count"),
    "gradients of a neighbour relayed": Bug({"__call__": _relayed}, "leak"),
    "last records instead of a Poisson sample": Bug({"sample": _last}, "sampling", "poisson"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", list(LAWS))
def test_a_wrong_law_of_noise_is_seen(name, monkeypatch, fresh):
    law, family = LAWS[name]
    monkeypatch.setattr(Gaussian, "add", _as(law))
    assert family in {one.family for one in _found(SETTINGS["all"]).findings}


@pytest.mark.slow
@pytest.mark.parametrize("name", list(BUGS))
def test_a_wrong_gradient_is_seen(name, monkeypatch, fresh):
    bug = BUGS[name]
    for method, wrong in bug.patch.items():
        monkeypatch.setattr(jdfl.Gradients, method, wrong)
    assert bug.family in {one.family for one in _found(SETTINGS[bug.setting]).findings}


@struct.dataclass
class Own:
    """Noise of one's own."""

    multiplier: Any = Z
    norm = "l2"

    def check(self) -> None:
        """Nothing to refuse."""

    def add(self, key: Any, x: Any, sensitivity: Any) -> Any:
        """Gaussian noise."""
        return Gaussian(self.multiplier).add(key, x, sensitivity)

    def event(self) -> Any:
        """That of the library's."""
        return Gaussian(self.multiplier).event()


STEP = jdfl.Gradients(clip=1.0, per="batch", norm="l1")
LEFT = {
    "noise of its own": (jdfl.SGP(gradients=STEP, dpps=jdfl.DPPS(b=0.5, noise_rate=1.0)), "not added by a mechanism"),
    "another mechanism": (jdfl.DPSGD(gradients=replace(PLAIN, mechanism=Own())), "scale of a Own"),
}


@pytest.mark.parametrize("name", ["noise of its own", "another mechanism"])
def test_what_cannot_be_probed_says_why(name):
    algorithm, words = LEFT[name]
    told = _found(algorithm)
    assert words in told.reason
    assert told.tests == 0
    assert told.findings == ()
