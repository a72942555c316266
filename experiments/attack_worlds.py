"""Building blocks of `experiments.attacks`: neighbouring data, many runs at once, and what jdfl claims.

Axes: m nodes, q records per node, n parameters, N runs.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jdfl
from jdfl.algorithms.program import planned
from jdfl.engine import stepping
from jdfl.engine.invariants import Watched
from jdfl.network import Network
from jdfl.privacy.report import uncovered
from jdfl.problems import Dataset, LinearRegression

DELTA = 1e-5
M, Q, N = 2, 4, 8
FAR = 1000.0  # a label whose gradient reaches the clip
Z = 5.0  # of Gaussian noise, in units of the sensitivity
ALONE = jdfl.network.from_edges([], M, connected=False)  # visible are the parameters that would be sent
PAIR = jdfl.network.complete(M)
NOISY: Any = jdfl.Gradients(clip=1.0, mechanism=jdfl.Gaussian(Z))
DESCENT: Any = jdfl.DPSGD(lr=1.0, gradients=NOISY)
SHORT = jdfl.Gradients(clip=1.0, per="batch", norm="l1")
MESSAGES = jdfl.DPPS(b=0.5, noise_rate=1.0)
Look = Callable[[Any, Any, stepping.Setting], jax.Array]  # of the prepared algorithm, its state and the setting


@dataclass(frozen=True)
class Claim:
    """jdfl's claim about what the attack observes: epsilon at DELTA, or None with the reason in words."""

    epsilon: float | None
    words: str = ""
    trusted: bool = False  # whether it rests on the word of an author, and says so


@dataclass(frozen=True)
class Attack:
    """A refuted statement, jdfl's current claim, and the scores [N] of N runs in a world, 0 or 1, from a seed."""

    claim: str
    claimed: Callable[[], Claim]
    scores: Callable[[int, int, int], np.ndarray]  # world, runs, seed
    runs: int = 4000
    brief: bool = True  # whether it belongs to those that are made first
    threshold: float | None = None  # scores above it are assigned to the second world; None: fitted on half of the runs


def claim(
    algorithm: Any, problem: Any, network: Network, steps: int, *, parameters: bool = False, delta: float = DELTA
) -> Claim:
    """The epsilon of all messages, and of the final `parameters` too where the attack uses these."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about a codec applied to models, which are not trained here
            told = jdfl.account_plan(algorithm, problem, network, steps=steps, delta=delta)
    except ValueError as error:
        return Claim(None, str(error))
    if parameters and told.local:
        return Claim(None, uncovered(told.local, delta))
    return Claim(told.epsilon)


def shown(
    algorithm: Any,
    problem: Any,
    network: Network,
    steps: int,
    runs: int,
    seed: int,
    look: Look,
    watched: Watched = "state",
) -> np.ndarray:
    """The observer's score of each of a number of independent runs [N]; `watched` may end them."""
    program = planned(algorithm, problem, network, steps)

    def one(key: jax.Array) -> jax.Array:
        setting = stepping.setting(program, problem, network, None, key, watched=watched)
        start = stepping.initial_round(setting)
        ready = program.prepare(problem, start)
        setting = replace(setting, program=ready)
        state = ready.init(problem, start)[0]
        for k in range(steps):
            state = stepping.step(setting, state, stepping.sample_round(setting, jnp.int32(k)))[0]
        return look(ready, state, setting)

    return np.asarray(jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(seed), runs)), float)


def towards(ready: Any, state: Any, _: Any) -> jax.Array:
    """The sum of node 0's parameters: all data lie in this direction."""
    return ready.params(state)[0].sum()


def sign(world: int) -> float:
    return 2.0 * world - 1


def regression(world: int, *, whole: bool = False, m: int = M, q: int = Q, n: int = N) -> LinearRegression:
    """Least squares with all labels zero but one of node 0 (or, `whole`, all of node 0's), which differs between
    worlds.

    Features are equal in all entries and of norm 1, so that a single direction describes all data.
    """
    features, targets = np.full((m, q, n), n**-0.5), np.zeros((m, q))
    targets[0, slice(None) if whole else 0] = FAR * sign(world)
    return jdfl.problems.linear_regression(features, targets)


def curved(world: int, n: int = 50) -> LinearRegression:
    """Least squares in which one record of node 0 is long or short, with the same direction and label."""
    features, targets = np.full((M, Q, n), n**-0.5), np.zeros((M, Q))
    features[0, 0] *= 1 + 99 * world
    targets[0, 0] = FAR
    return jdfl.problems.linear_regression(features, targets)


def dataset(feature: float, label: int, *, standardise: bool = False) -> Dataset:
    """Forty records, the first with this feature and label; the feature of each other is its index."""
    features = np.arange(40, dtype=np.float32)[:, None] / 40
    features[0] = feature
    labels = np.arange(40, dtype=np.int32) % 2
    labels[0] = label
    return Dataset("forty", features, labels, standardise=standardise)
