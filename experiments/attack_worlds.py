"""What the attacks of `experiments.attacks` are made of: neighbouring data, many runs at once, and what jdfl claims.

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
from jdfl.engine.guard import Watched
from jdfl.network import Network
from jdfl.privacy.relation import uncovered
from jdfl.problems import Dataset, LinearRegression

DELTA = 1e-5
M, Q, N = 2, 4, 8
FAR = 1000.0  # a label whose gradient is as long as the clip allows
Z = 5.0  # of Gaussian noise, in units of the sensitivity
ALONE = jdfl.network.from_edges([], M, connected=False)  # parameters are what would be sent
PAIR = jdfl.network.complete(M)
NOISY: Any = jdfl.Gradients(clip=1.0, mechanism=jdfl.Gaussian(Z))
DESCENT: Any = jdfl.DPSGD(lr=1.0, gradients=NOISY)
SHORT = jdfl.Gradients(clip=1.0, per="batch", norm="l1")
MESSAGES = jdfl.DPPS(b=0.5, noise_rate=1.0)
Look = Callable[[Any, Any, stepping.Setting], jax.Array]  # of the prepared algorithm, its state and the setting


@dataclass(frozen=True)
class Claim:
    """What jdfl says of what the attack looks at: epsilon at DELTA, or None, and in words why there is none."""

    epsilon: float | None
    words: str = ""


@dataclass(frozen=True)
class Attack:
    """A claim, what jdfl says of it today, and the scores [N] of N runs in a world, 0 or 1, from a seed."""

    claim: str
    claimed: Callable[[], Claim]
    scores: Callable[[int, int, int], np.ndarray]  # world, runs, seed
    runs: int = 4000
    threshold: float | None = None  # above which a score is taken for the second world; None: fitted on half


def claim(
    algorithm: Any, problem: Any, network: Network, steps: int, *, parameters: bool = False, delta: float = DELTA
) -> Claim:
    """The epsilon of all messages, and of the final `parameters` too where these are looked at."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what a codec makes of models, which nobody trains here
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
    """What an observer makes of every one of so many independent runs, a number each [N]; `watched` may end them."""
    program = planned(algorithm, problem, network, steps)

    def one(key: jax.Array) -> jax.Array:
        keys = stepping.run_keys(key, program, problem, network)
        setting = stepping.setting(program, problem, network, None, keys, watched=watched)
        start = stepping.begun(setting)
        ready = program.prepare(problem, start)
        setting = replace(setting, algorithm=ready)
        state = ready.init(problem, start)[0]
        for k in range(steps):
            state = stepping.step(setting, state, stepping.drawn(setting, jnp.int32(k)))[0]
        return look(ready, state, setting)

    return np.asarray(jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(seed), runs)), float)


def towards(ready: Any, state: Any, _: Any) -> jax.Array:
    """Of node 0's parameters: all data lie in this direction."""
    return ready.params(state)[0].sum()


def sign(world: int) -> float:
    """-1 in the first world and 1 in the second."""
    return 2.0 * world - 1


def regression(world: int, *, whole: bool = False, m: int = M, q: int = Q, n: int = N) -> LinearRegression:
    """Least squares, all labels zero but one of node 0 (or, `whole`, all of node 0's), which is at either end.

    Features are the same in every entry and of length 1, so that all data are told by one direction.
    """
    features, targets = np.full((m, q, n), n**-0.5), np.zeros((m, q))
    targets[0, slice(None) if whole else 0] = FAR * sign(world)
    return jdfl.problems.linear_regression(features, targets)


def curved(world: int, n: int = 50) -> LinearRegression:
    """Least squares in which one record of node 0 is long or short, and has the same direction and label."""
    features, targets = np.full((M, Q, n), n**-0.5), np.zeros((M, Q))
    features[0, 0] *= 1 + 99 * world
    targets[0, 0] = FAR
    return jdfl.problems.linear_regression(features, targets)


def dataset(feature: float, label: int, *, standardise: bool = False) -> Dataset:
    """Forty records, of which the first has this feature and label; the feature of the others is their number."""
    features = np.arange(40, dtype=np.float32)[:, None] / 40
    features[0] = feature
    labels = np.arange(40, dtype=np.int32) % 2
    labels[0] = label
    return Dataset("forty", features, labels, standardise=standardise)
