"""A small algorithm that compiles in no time, for tests of the runner; its counts and failures are known by hand."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

import jdfl
from jdfl.algorithms.round import MODEL
from jdfl.base import checks, struct
from jdfl.base.streams import Stream
from jdfl.engine.trials import Trial
from jdfl.lab.entries import Terms
from jdfl.privacy import NO_NOISE
from tests.later import Later

_START, _NOISE = Stream("toy.start", "choice"), Stream("toy.noise", "private")

M, N, Q = 6, 20, 8


@struct.dataclass
class Gossip(jdfl.Algorithm):
    """w_i <- sum_j W_ij w_j (in rounds k with (k + 1) % period_i = 0) - rate grad f_i(w_i), with noise where asked."""

    rate: Any = 0.05
    mechanism: Any = None
    period: Any = None  # [m] int32
    messages: int = struct.field(pytree_node=False, default=1)  # counted per node and round
    fails: tuple[tuple[int, int], ...] = struct.field(pytree_node=False, default=())  # (k, node) that become infinite
    title: ClassVar[str] = "Gossip"
    tuned: ClassVar[tuple[str, ...]] = ()

    def check(self, problem: Any, network: Any) -> None:
        checks.positive("Steps go downhill.", rate=self.rate)

    def prepare(self, problem: Any, context: Any, plan: Any) -> Array:
        return jnp.ones((problem.m,), jnp.int32) if self.period is None else self.period

    def init(self, round: jdfl.Round) -> Array:
        problem = round.problem
        draw = jax.vmap(lambda key: jax.random.normal(key, (problem.n,), problem.dtype))
        w = draw(round.keys(_START))
        for k, node in self.fails:
            if k < 0:
                w = w.at[node].set(jnp.nan)
        round.trace.grads = 1
        return w

    def step(self, w: Array, round: jdfl.Round) -> Array:
        talks = (round.k + 1) % round.ready == 0
        new = jnp.where(talks[:, None], round.mix(w, None), w) - self.rate * round.problem.gradients(w)
        if self.mechanism is not None:
            new = round.noisy(self.mechanism, new, 1.0, _NOISE, lambda problem, looks: NO_NOISE)
        for k, node in self.fails:
            new = jnp.where(((round.k == k) & (round.node == node))[:, None], jnp.inf, new)
        round.trace.grads = 1
        round.trace.send(MODEL, self.messages, talks.astype(jnp.int32))
        return new

    def message_bits(self, problem: Any, codec: Any) -> dict[str, int]:
        return {"model": 32 * problem.n}


def regression(m: int = M, n: int = N, dtype: Any = np.float32) -> jdfl.problems.LinearRegression:
    """A small sparse regression, well conditioned enough for `Gossip`'s default rate."""
    draw = np.random.default_rng(5)
    w = np.zeros(n)
    w[:3] = [1.0, -2.0, 0.5]
    A = draw.standard_normal((m, Q, n))
    return jdfl.problems.linear_regression(list(A), list(A @ w), truth=w, dtype=dtype)


def ring(m: int = M) -> jdfl.network.Static:
    """The network of most tests."""
    return jdfl.network.ring(m)


problem, network = Later(regression), Later(ring)
SLOW = Gossip(period=np.array([1, 2, 3, 1, 2, 4], np.int32), mechanism=jdfl.Gaussian(1e-3))
FEW = ["objective", "consensus_error"]


def run(algorithm: Any = None, *, steps: int = 12, **options: Any) -> jdfl.Result:
    """`jdfl.run` on the common problem; the same settings share compiled code."""
    given = {
        "problem": problem(),
        "network": network(),
        "metrics": FEW,
        **({} if "resume" in options else {"key": 0}),
        **options,
    }
    return jdfl.run(Gossip() if algorithm is None else algorithm, steps=steps, **given)


def terms(problem, network, keys, steps, tune=None, **others):
    """What the methods of an experiment share, on one problem and one network."""
    trials = [Trial(key, problem, network) for key in keys]
    others["tuning"] = [Trial(key, problem, network) for key in ([] if tune is None else tune.keys)]
    return Terms(trials=trials, steps=steps, tune=tune, **others)
