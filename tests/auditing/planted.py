"""Bugs to be planted in noise, clipping, sampling and counting, each with the family of the audit that must see it.

A bug replaces methods of the library's classes, or is an algorithm of its own; what the library claims stays, since
`plant` lets nobody look at the traced program: the audit has to see what the flow of data would tell of some bugs.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jdfl
from jdfl.algorithms import gradients as gradients_file
from jdfl.algorithms import sampling as sampling_file
from jdfl.algorithms.book import Book
from jdfl.algorithms.moment import Moment
from jdfl.base import struct
from jdfl.privacy import Gaussian, GaussianEvent, Laplace
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
    "node": jdfl.DPSGD(lr=0.1, gradients=replace(PLAIN, per="batch")),
    "updates": jdfl.DPSGD(lr=0.1, updates=jdfl.Updates(clip=0.5, mechanism=jdfl.Gaussian(Z))),
}
CALL, SAMPLE, PARTED = jdfl.Gradients.__call__, jdfl.Gradients.sample, jdfl.Gradients.parted
SENSITIVITIES, UPDATE = jdfl.Gradients.sensitivities, jdfl.Updates.__call__
FIXED, DISCRETE = jax.random.key(7), exact_file.discrete_gaussian


@dataclass(frozen=True)
class Bug:
    """What is replaced, in which setting or by which algorithm, and the family that must see it."""

    family: str
    patch: dict[str, Any] = field(default_factory=dict)
    owner: type = jdfl.Gradients
    setting: str = "all"
    algorithm: Any = None
    steps: int = STEPS

    @property
    def audited(self) -> Any:
        return SETTINGS[self.setting] if self.algorithm is None else self.algorithm


def plant(bug, monkeypatch):
    """Put a bug into the library, and leave what it does to the audit alone."""
    monkeypatch.setattr("jdfl.algorithms.statement.outputs", lambda *_: ((Flow(), Flow()), Label.CLEAN, None))
    monkeypatch.setattr("jdfl.privacy.flow.Flow.fault", lambda *_: "")
    monkeypatch.setattr("jdfl.base.marking.ours", lambda *_: True)
    for method, wrong in bug.patch.items():
        monkeypatch.setattr(bug.owner, method, wrong)


def _aside(round):
    """The round with a book of its own: what is done in it is not counted."""
    return replace(round, book=Book())


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


def _rarely(round):
    """One node in twenty, by chance."""
    return jax.vmap(lambda key: jax.random.bernoulli(key, 0.05, (1,)))(round.keys(gradients_file._VARIED))


def _sampled_by(draw):
    """Weights by another draw [m, q] of who is looked at; what is divided by stays."""

    def sample(self, round):
        problem = round.problem
        if self.batch is None:
            return SAMPLE(self, round)
        taken = draw(problem.weight, round.keys(sampling_file._BATCH, round.local_step), round)
        total = jnp.sum(problem.weight, axis=1) * (BATCH / Q)
        return problem.data, jnp.where(taken, problem.weight, 0.0), total

    return {"sample": sample}


def _by_chance(weight, keys, share):
    return jax.vmap(lambda key: jax.random.bernoulli(key, share, weight.shape[1:]))(keys)


def _fixed(round):
    """The round with the same keys in all rounds and runs."""
    return replace(round, moment=replace(round.moment, key=FIXED, roots=None))


def _same_sample(self, round):
    return SAMPLE(self, round if self.batch is None else _fixed(round))


def _skip(self, problem, w, data, weight, total, part=None, **known):
    """The clip is skipped for record 2 of node 1."""
    right, rest = PARTED(self, problem, w, data, weight, total, part, **known)
    alone = jnp.zeros_like(weight).at[1, 2].set(weight[1, 2])
    clipped, _ = PARTED(self, problem, w, data, alone, total, part, **known)
    bare, _ = PARTED(replace(self, clip=None), problem, w, data, jnp.maximum(alone, 1e-9), total, part)
    return right - clipped + bare * (alone.sum(axis=1) / total)[:, None], rest


def _skip_node(self, problem, w, *given, **known):
    """The clip is skipped for all records of node 1."""
    clipped, rest = PARTED(self, problem, w, *given, **known)
    bare, _ = PARTED(replace(self, clip=None), problem, w, *given)
    return clipped.at[1].set(bare[1]), rest


def _clipped_to(clip):
    """Another clip than the one that the noise is scaled by."""

    def parted(self, *rest, **known):
        return PARTED(replace(self, clip=clip(self.clip)), *rest, **known)

    return {"parted": parted}


def _before_clipping(self, w, round, **options):
    """Noise on what is not clipped, and a clip of the noisy gradient."""
    g = _bare(replace(self, clip=None), w, round, **options)
    noisy = _added(self, g, round, round.keys(gradients_file.NOISE))
    return noisy * jnp.minimum(1.0, self.clip / jnp.linalg.norm(noisy, axis=1, keepdims=True))


def _by_the_data(self, problem):
    """A scale by the largest label at hand."""
    label = jnp.maximum(jnp.max(problem.data[1], axis=1), 0.0)
    return SENSITIVITIES(self, problem) * (1 + label / (1 + label))


def _twice(self, w, round, **options):
    """Two looks, of which the mean is shown, counted once."""
    return (CALL(self, w, round, **options) + CALL(self, w, _aside(round), **options, look=1)) / 2


def _uncounted(self, w, round, **options):
    """Releases that nobody counts."""
    g = CALL(self, w, round, **options)
    round.book._releases = 0
    return g


def _relayed(self, w, round, **options):
    """A node adds a little of its neighbour's gradient, without noise."""
    return CALL(self, w, round, **options) + 0.1 * jnp.roll(_bare(self, w, _aside(round), **options), 1, axis=0)


def _biased(self, w, round, **options):
    """The mean of the node's labels moves the first number."""
    return CALL(self, w, round, **options).at[:, 0].add(jnp.mean(round.problem.data[1], axis=1))


def _unclipped_update(self, update, round, clients=None):
    """Noise for a clip that is not there."""
    scale = jnp.asarray(self.sensitivity(update.shape[1]), update.dtype)

    def told(problem, looks):
        return self.guarantee(problem, clients)

    return round.noisy(self.mechanism, update, scale, gradients_file.NOISE, told)


def _same_update_noise(self, update, round, clients=None):
    return UPDATE(self, update, _fixed(round), clients)


@struct.dataclass
class Shows(jdfl.DPSGD):
    """Shows the loss of every node beside its parameters."""

    def step(self, state, round):
        new = jdfl.DPSGD.step(self, state[0], round)
        losses = round.problem.values(state[0].x)  # of parameters that are known
        return new, jnp.broadcast_to(losses[:, None], new.x.shape)

    def init(self, round):
        state = jdfl.DPSGD.init(self, round)
        return state, jnp.zeros_like(state.x)

    def params(self, state):
        return state[0].x

    def visible(self, state):
        return jnp.concatenate([state[0].x, state[1]], axis=1)


@struct.dataclass
class Cancels(Shows):
    """Takes the noise of a round away in the next one."""

    def step(self, state, round):
        """One round; `state[1]` is the last round's noise."""
        before, last = state
        bare = replace(self, gradients=replace(self.gradients, mechanism=None))
        clean = jdfl.DPSGD.step(bare, before, _aside(round))
        new = jdfl.DPSGD.step(self, before, round)
        return new._replace(x=new.x - last), new.x - clean.x

    def visible(self, state):
        return state[0].x


@struct.dataclass
class Messages(Shows):
    """Sends two gradients in a round, at two points, which count as two releases."""

    fresh: bool = struct.field(pytree_node=False, default=False)  # whether each has noise of its own

    def step(self, state, round):
        """One round; `state[1]` is the second message."""
        new = jdfl.DPSGD.step(self, state[0], round)
        x = jnp.zeros_like(new.x)
        if self.fresh:
            return new, self.gradients(x, round, look=1)
        g, private = self.gradients.without_noise(x, round), self.gradients
        keys = round.keys(gradients_file.NOISE)
        round.release(gradients_file.NOISE, private.guarantee, look=1)  # it says that it is fresh
        return new, jax.vmap(private.mechanism.add)(keys, g, private.sensitivities(round.problem))


def _shared_size(key, x):
    """The sign is fresh, the size is that of all nodes."""
    return jnp.abs(_noise(FIXED, x)) * jnp.where(_noise(key, x) > 0, 1, -1)


def _on_a_grid(key, x):
    return jnp.round(_noise(key, x) * 64) / 64


def _few_bits(key, x):
    return _noise(key, x).astype(jnp.bfloat16).astype(x.dtype)


def _correlated(key, x):
    return 0.9**0.5 * _noise(key, x) + 0.1**0.5 * jax.random.normal(jax.random.fold_in(key, 1), (), x.dtype)


def _cut(key, x):
    return jax.random.truncated_normal(key, -2.5, 2.5, x.shape, x.dtype) / 0.95468


def _of_sixteen_bits(key, x):
    seed = jax.random.bits(key, (), jnp.uint32) & 0xFFFF
    return _noise(jax.random.wrap_key_data(jnp.stack([seed, seed])), x)


def _without_index(self, stream, index=0):
    return stream.keys(self.roots.private, self.node)


@struct.dataclass
class Mixed(jdfl.DPSGD):
    """Adapts before it combines, in local steps, as the tutorial on one's own algorithms does."""

    turns: int = struct.field(pytree_node=False, default=1)

    def step(self, state, round):
        y = round.repeat(self.turns, lambda here, y: y - self.lr * self.gradients(y, here), state.x)
        return state._replace(x=round.mix(y))


BUGS = {
    "no noise": _law(lambda k, x: jnp.zeros_like(x), "residual scale"),
    "a tenth of the noise": _law(lambda k, x: _noise(k, x) / 10, "residual scale"),
    "half of the noise": _law(lambda k, x: _noise(k, x) / 2, "residual scale"),
    "noise times .95": _law(lambda k, x: 0.95 * _noise(k, x), "residual scale"),
    "one coordinate without noise": _law(lambda k, x: _noise(k, x).at[1].set(0), "residual scale"),
    "Gaussian noise for Laplace": _law(
        lambda k, x: 2**0.5 * _noise(k, x), "residual shape", owner=Laplace, setting="laplace"
    ),
    "uniform noise": _law(lambda k, x: jax.random.uniform(k, x.shape, x.dtype, -(3**0.5), 3**0.5), "residual shape"),
    "the same key in all runs": _law(lambda k, x: _noise(FIXED, x), "residual covariance"),
    "the same noise in all coordinates": _law(
        lambda k, x: jnp.broadcast_to(jax.random.normal(k, (), x.dtype), x.shape), "residual covariance"
    ),
    "noise correlated between coordinates": _law(_correlated, "residual covariance"),
    "sizes shared by all nodes": _law(_shared_size, "residual magnitudes"),
    "bfloat16 noise": _law(_few_bits, "residual collisions"),
    "noise on a grid": _law(_on_a_grid, "residual collisions"),
    "noise cut at 2.5 standard deviations": _law(_cut, "residual tails"),
    "keys of 16 bits": _law(_of_sixteen_bits, "residual collisions"),
    "one noise for all local steps": Bug(
        "residual scale", {"keys": _without_index}, Moment, algorithm=Mixed(lr=0.1, gradients=PLAIN, turns=2)
    ),
    "half of the noise, mixed": _law(
        lambda k, x: _noise(k, x) / 2, "residual scale", algorithm=Mixed(lr=0.1, gradients=PLAIN)
    ),
    "noise missing in one round": Bug("leak", _bare_when(lambda round: round.k == 2)),
    "noise missing at one node": Bug("leak", _bare_when(lambda round: (round.node == 1)[:, None])),
    "noise missing now and then": Bug("leak", _bare_when(_rarely)),
    "noise shared by two nodes": Bug(
        "residual covariance", _other_keys(lambda keys, round: keys[jnp.asarray([0, 0, 2])])
    ),
    "keys reused over rounds": Bug("residual covariance", _other_keys(lambda keys, round: _each(FIXED, round))),
    "noise added before clipping": Bug("attack", {"__call__": _before_clipping}),
    "noise that depends on the data": Bug("leak", {"sensitivities": _by_the_data}),
    "noise cancelled a round later": Bug(
        "attack", algorithm=Cancels(lr=0.1, gradients=replace(PLAIN, mechanism=jdfl.Gaussian(10.0))), steps=12
    ),
    "noise not fresh in a second message": Bug("residual covariance", algorithm=Messages(lr=0.1, gradients=PLAIN)),
    "sensitivity off by two": Bug(
        "sensitivity", {"sensitivities": lambda self, problem: SENSITIVITIES(self, problem) / 2}
    ),
    "twice the noise accounted for": Bug(
        "sensitivity", {"event": lambda self: GaussianEvent(2 * float(self.multiplier))}, owner=Gaussian
    ),
    "clip skipped for one record of one node": Bug("sensitivity", {"parted": _skip}),
    "clip skipped at one node": Bug("sensitivity", {"parted": _skip_node}),
    "clip skipped altogether": Bug("sensitivity", _clipped_to(lambda clip: None)),
    "clip norm off by two": Bug("sensitivity", _clipped_to(lambda clip: 2 * clip)),
    "clip skipped for updates": Bug(
        "sensitivity", {"__call__": _unclipped_update}, owner=jdfl.Updates, setting="updates"
    ),
    "the same noise on updates in all rounds": Bug(
        "residual covariance", {"__call__": _same_update_noise}, owner=jdfl.Updates, setting="updates"
    ),
    "two releases counted as one": Bug("residual scale", {"__call__": _twice}),
    "releases not counted": Bug("release count", {"__call__": _uncounted}),
    "a neighbour's gradient relayed": Bug("leak", {"__call__": _relayed}),
    "a bias by the labels": Bug("sensitivity", {"__call__": _biased}),
    "the loss shown without noise": Bug("leak", algorithm=Shows(lr=0.1, gradients=PLAIN)),
    "last records instead of a Poisson sample": Bug(
        "sampling",
        _sampled_by(lambda weight, keys, round: jnp.broadcast_to(jnp.arange(Q) >= Q - BATCH, weight.shape)),
        setting="poisson",
    ),
    "Poisson samples at twice the rate": Bug(
        "sampling",
        _sampled_by(lambda weight, keys, round: _by_chance(weight, keys, 2 * BATCH / Q)),
        setting="poisson",
    ),
    "a Poisson sample of all records or none": Bug(
        "sampling",
        _sampled_by(
            lambda weight, keys, round: jnp.broadcast_to(
                jax.vmap(lambda key: jax.random.bernoulli(key, BATCH / Q, (1,)))(keys), weight.shape
            )
        ),
        setting="poisson",
    ),
    "the same Poisson sample at all nodes": Bug(
        "sampling",
        _sampled_by(lambda weight, keys, round: _by_chance(weight, jnp.broadcast_to(keys[:1], keys.shape), BATCH / Q)),
        setting="poisson",
    ),
    "the same Poisson samples in all runs": Bug("sampling", {"sample": _same_sample}, setting="poisson"),
    "the same subset always": Bug("sampling", {"sample": _same_sample}, setting="subset"),
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
