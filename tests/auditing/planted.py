"""Bugs to be planted in noise, clipping, sampling and counting, each with the family of the audit that must see it.

A bug replaces methods of the library's classes; what the library claims stays, since `plant` lets nobody look at the
traced program: the audit has to see what the flow of data would tell of some bugs.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jdfl
from jdfl.algorithms import gradients as gradients_file
from jdfl.algorithms.round import StepTrace
from jdfl.privacy import Gaussian
from jdfl.privacy import exact as exact_file
from jdfl.privacy.flow import Flow, Label
from tests.later import Later

M, N, Q, Z, BATCH, STEPS = 3, 4, 6, 4.0, 2, 4
NETWORK = Later(jdfl.network.complete, M)
_rng = np.random.default_rng(0)
_A = _rng.normal(size=(M, Q, N))
_B = _A @ _rng.normal(size=N) + 0.1 * _rng.normal(size=(M, Q))
PROBLEM = Later(jdfl.problems.linear_regression, _A, _B)

PLAIN = jdfl.Gradients(clip=1.0, mechanism=jdfl.Gaussian(Z))
POISSON = replace(PLAIN, batch=BATCH, sampling="poisson")
SETTINGS = {
    "all": jdfl.DPSGD(lr=0.1, gradients=PLAIN),
    "poisson": jdfl.DPSGD(lr=0.1, gradients=POISSON),
    "subset": jdfl.DPSGD(lr=0.1, gradients=replace(POISSON, sampling="subset")),
    "laplace": jdfl.DPSGD(lr=0.1, gradients=jdfl.Gradients(clip=1.0, norm="l1", mechanism=jdfl.Laplace(Z))),
    "exact": jdfl.DPSGD(lr=0.1, gradients=replace(PLAIN, mechanism=jdfl.ExactGaussian(Z))),
    "updates": jdfl.DPSGD(lr=0.1, updates=jdfl.Updates(clip=0.5, mechanism=jdfl.Gaussian(Z))),
}
CALL, SAMPLE, PARTED = jdfl.Gradients.__call__, jdfl.Gradients.sample, jdfl.Gradients.parted
SENSITIVITIES, DISCRETE = jdfl.Gradients.sensitivities, exact_file.discrete_gaussian
FIXED = Later(jax.random.key, 7)


@dataclass(frozen=True)
class Bug:
    """What is replaced, in which setting, and the family that must see it."""

    family: str
    patch: dict[str, Any] = field(default_factory=dict)
    owner: type = jdfl.Gradients
    setting: str = "all"

    @property
    def audited(self) -> Any:
        return SETTINGS[self.setting]


def plant(bug, monkeypatch):
    """Put a bug into the library, and leave what it does to the audit alone."""
    monkeypatch.setattr("jdfl.algorithms.statement.outputs", lambda *_: ((Flow(), Flow()), Label.CLEAN, None))
    monkeypatch.setattr("jdfl.privacy.flow.Flow.fault", lambda *_: "")
    monkeypatch.setattr("jdfl.base.marking.ours", lambda *_: True)
    for method, wrong in bug.patch.items():
        monkeypatch.setattr(bug.owner, method, wrong)


def _aside(round):
    """The round with a trace of its own: what is done in it is not counted."""
    return replace(round, trace=StepTrace())


def _bare(gradients, w, round, **options):
    """Gradients without noise."""
    return CALL(replace(gradients, mechanism=None), w, round, **options)


def _added(gradients, g, round, keys):
    """Noise of these keys [m] on g [m, n], counted as a release."""
    round.release(gradients_file.NOISE, gradients.guarantee)
    return jax.vmap(gradients.mechanism.add)(keys, g, gradients.sensitivities(round.problem))


def _noise(key, x):
    return jax.random.normal(key, x.shape, x.dtype)


def _law(law: Callable[..., Any], family: str, **options: Any) -> Bug:
    """A mechanism whose standard noise is `law(key, x)`."""

    def add(self, key, x, sensitivity):
        return x + self.multiplier * sensitivity * law(key, x)

    return Bug(family, {"add": add}, **{"owner": Gaussian} | options)


def _bare_when(when):
    """Gradients without noise at nodes and rounds where `when(round)` [] or [m, 1]."""

    def call(self, w, round, **options):
        bare = _bare(self, w, _aside(round), **options)
        return jnp.where(when(round), bare, CALL(self, w, round, **options))

    return {"__call__": call}


def _other_keys(change):
    """Noise from keys [m] that are changed first."""

    def call(self, w, round, **options):
        g = _bare(self, w, round, **options)
        return _added(self, g, round, change(round.keys(gradients_file.NOISE), round))

    return {"__call__": call}


def _each(key, round):
    """A key for every node, the same in all rounds."""
    return jax.vmap(jax.random.fold_in, (None, 0))(key, round.node)


def _last_records(self, round):
    """The last records of every node, as if they were a sample."""
    if self.batch is None:
        return SAMPLE(self, round)
    weight = round.problem.weight
    return round.problem.data, jnp.where(jnp.arange(Q) >= Q - BATCH, weight, 0.0), weight.sum(axis=1) * (BATCH / Q)


def _fixed(round):
    """The round with the same keys in all rounds and runs."""
    return replace(round, context=replace(round.context, key=FIXED(), roots=None))


def _same_sample(self, round):
    return SAMPLE(self, round if self.batch is None else _fixed(round))


def _skip_node(self, problem, w, *given, **known):
    """The clip is skipped for all records of node 1."""
    clipped, rest = PARTED(self, problem, w, *given, **known)
    bare, _ = PARTED(replace(self, clip=None), problem, w, *given)
    return clipped.at[1].set(bare[1]), rest


def _uncounted(self, w, round, **options):
    """Releases that nobody counts."""
    g = CALL(self, w, round, **options)
    round.trace._releases = 0
    return g


def _shared_size(key, x):
    """The sign is fresh, the size is that of all nodes."""
    return jnp.abs(_noise(FIXED(), x)) * jnp.where(_noise(key, x) > 0, 1, -1)


def _few_bits(key, x):
    return _noise(key, x).astype(jnp.bfloat16).astype(x.dtype)


def _correlated(key, x):
    return 0.9**0.5 * _noise(key, x) + 0.1**0.5 * jax.random.normal(jax.random.fold_in(key, 1), (), x.dtype)


def _cut(key, x):
    return jax.random.truncated_normal(key, -2.5, 2.5, x.shape, x.dtype) / 0.95468


def _of_sixteen_bits(key, x):
    seed = jax.random.bits(key, (), jnp.uint32) & 0xFFFF
    return _noise(jax.random.wrap_key_data(jnp.stack([seed, seed])), x)


BUGS = {
    "no noise": _law(lambda k, x: jnp.zeros_like(x), "residual scale"),
    "a third of the noise": _law(lambda k, x: _noise(k, x) / 3, "residual scale"),
    "noise times .95": _law(lambda k, x: 0.95 * _noise(k, x), "residual scale"),
    "uniform noise": _law(lambda k, x: jax.random.uniform(k, x.shape, x.dtype, -(3**0.5), 3**0.5), "residual shape"),
    "the same key in all runs": _law(lambda k, x: _noise(FIXED(), x), "residual covariance"),
    "noise correlated between coordinates": _law(_correlated, "residual covariance"),
    "sizes shared by all nodes": _law(_shared_size, "residual magnitudes"),
    "bfloat16 noise": _law(_few_bits, "residual collisions"),
    "noise cut at 2.5 standard deviations": _law(_cut, "residual tails"),
    "keys of 16 bits": _law(_of_sixteen_bits, "residual collisions"),
    "noise missing in one round": Bug("leak", _bare_when(lambda round: round.k == 2)),
    "noise shared by two nodes": Bug(
        "residual covariance", _other_keys(lambda keys, round: keys[jnp.asarray([0, 0, 2])])
    ),
    "keys reused over rounds": Bug("residual covariance", _other_keys(lambda keys, round: _each(FIXED(), round))),
    "sensitivity off by two": Bug(
        "sensitivity", {"sensitivities": lambda self, problem: SENSITIVITIES(self, problem) / 2}
    ),
    "clip skipped at one node": Bug("sensitivity", {"parted": _skip_node}),
    "releases not counted": Bug("release count", {"__call__": _uncounted}),
    "last records instead of a Poisson sample": Bug("sampling", {"sample": _last_records}, setting="poisson"),
    "the same Poisson samples in all runs": Bug("sampling", {"sample": _same_sample}, setting="poisson"),
}


def _unrounded(self, key, x, sensitivity):
    """Noise on the grid, added to what is not on it."""
    gamma = sensitivity * self.scale(x.size) / exact_file.spread(self.levels(x.size))
    return x + exact_file.discrete_gaussian(key, x.size, self.levels(x.size)).astype(x.dtype) * gamma


def _even(key, n, levels):
    """Every second whole number alone."""
    return 2 * (DISCRETE(key, n, levels) // 2)


BITS = {  # what is replaced in the module of exact noise, or in its mechanism, for `jdfl.audit_bits` to see
    "levels so far apart that they leave gaps": (exact_file, "_STEP", 2700),
    "grid noise on every second step": (exact_file, "discrete_gaussian", _even),
    "grid noise on what is not on the grid": (jdfl.ExactGaussian, "add", _unrounded),
}
