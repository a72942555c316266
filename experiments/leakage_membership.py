"""Membership inference: whether a record was used in a run, by its loss and by a likelihood ratio.

- Loss threshold (S. Yeom, I. Giacomelli, M. Fredrikson, S. Jha: Privacy Risk in Machine Learning, 2018): the mean loss
  of the record under all observed parameters is small if it was used.
- Likelihood ratio (N. Carlini, S. Chien, M. Nasr, S. Song, A. Terzis, F. Tramer: Membership Inference Attacks From
  First Principles, 2022): shadow runs, half of them with the record, give a Gaussian model of the view in either
  world, with means per record and a shared covariance. Of an observed row it uses the logit of the record's class, as
  there, and its component along the record's gradient; an observing node also has its own releases.

All other records of a run are redrawn, so that the attacker does not know them; or they are the same in all runs about
a record, including its replacement, as if the attacker knew them, which is the attacker of differential privacy. The
runs used for the results are used neither for the fit nor for the choice of a threshold.

Axes: N records of a pool, m nodes, n parameters, K records under attack, B runs about each, S rows per node that leave
it, P releases per node, f features.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from experiments.leakage_pools import DELTA, Pool
from experiments.seen_runs import seen
from jdfl.algorithms.program import Program
from jdfl.auditing.attack import area, best_threshold, epsilon_bound, errors, excluded_epsilons, separation
from jdfl.base.streams import Keys
from jdfl.network import Network

CONFIDENCE = 0.95
_AT_ONCE = 256  # runs side by side


class Shadows(NamedTuple):
    """Runs about records [K, B], every other one with its record, and what they reveal about it."""

    logit: Array  # [K, B, S, m] of the record's class, by parameters that leave a node
    along: Array  # [K, B, S, m] component of these along the record's gradient at the start
    released: Array  # [K, B, P, m] component of the releases along it


class Shown(NamedTuple):
    """How well runs that hold a record were distinguished from others."""

    auc: float
    caught: float  # share of runs with the record, at a false-alarm rate of one in a hundred
    mu: float  # the distance of the two means in standard deviations
    epsilon: float  # the lower bound that this proves at DELTA


@partial(jax.jit, static_argnames=("steps", "q", "victim"))
def shadows(
    program: Program,
    network: Network,
    pool: tuple[Array, Array],
    targets: Array,
    keys: Array,
    drawn: Array,
    *,
    steps: int,
    q: int,
    victim: int,
) -> Shadows:
    """Runs about every target, which is the first record of the victim in every other run, from the second on.

    Args:
        program: The planned method.
        network: The communication network of m nodes.
        pool: Features [N, p] and labels [N, c] from which nodes draw records.
        targets: The records under attack, by index, targets [K] int32.
        keys: Keys of the runs, keys [K, B].
        drawn: Keys for the other records of the runs, drawn [K, B].
        steps: Rounds of every run.
        q: Records per node.
        victim: The node that holds the target.
    """
    features, labels = pool
    m = network.m

    def one(given: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array]:
        target, held, ran, drawn = given
        others = jax.random.randint(drawn, (m, q), 0, len(features) - 1)
        others = jnp.where(others >= target, others + 1, others)
        records = others.at[victim, 0].set(jnp.where(held, target, others[victim, 0]))
        problem = Pool.problem(features[records], labels[records])
        run = seen(program, problem, network, Keys.of(ran), steps=steps)
        example = features[target], labels[target]
        direction = jax.grad(problem.loss)(jnp.zeros((problem.n,), problem.dtype), example)
        direction = direction / jnp.linalg.norm(direction)
        z = jax.vmap(problem.products, (0, None))(run.sent.reshape(-1, problem.n), example[0])
        own = example[1][None] > 0
        rest = jax.nn.logsumexp(jnp.where(own, -jnp.inf, z), axis=1)
        logit = (jnp.sum(jnp.where(own, z, 0.0), axis=1) - rest).reshape(run.sent.shape[:2])
        return logit, run.sent @ direction, run.released @ direction

    held = jnp.broadcast_to(jnp.arange(keys.shape[1]) % 2 == 1, keys.shape)
    flat = jnp.broadcast_to(targets[:, None], keys.shape).ravel(), held.ravel(), keys.ravel(), drawn.ravel()
    found = lax.map(one, flat, batch_size=_AT_ONCE)
    return Shadows(*(leaf.reshape(*keys.shape, *leaf.shape[1:]) for leaf in found))


def by_loss(told: Shadows, mask: np.ndarray) -> np.ndarray:
    """Scores [K, B]: minus the mean loss of the record under the visible parameters, mask [S, m]."""
    return -np.logaddexp(0, -np.asarray(told.logit, float)[:, :, mask]).mean(axis=2)


def by_ratio(runs: Shadows, mask: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Scores [K, B]: log-likelihood ratios, by Gaussians fitted to the first half of the runs.

    Args:
        runs: What the runs have recorded.
        mask: The visible rows, mask [S, m].
        known: The nodes that observe themselves, known [m].
    """
    logit, along, released = (np.asarray(part) for part in runs)
    own = released[:, :, :, known].reshape(*logit.shape[:2], -1)
    features = np.concatenate([logit[:, :, mask], along[:, :, mask], own], axis=2).astype(float)  # [K, B, f]
    features = features[:, :, features.std(axis=(0, 1)) > 0]
    half = features[:, : features.shape[1] // 2]
    means = [half[:, world::2].mean(axis=1, keepdims=True) for world in (0, 1)]
    rest = np.concatenate([half[:, world::2] - means[world] for world in (0, 1)], axis=1).reshape(-1, half.shape[2])
    size = np.maximum(rest.std(axis=0), 1e-12)
    covariance = np.cov(rest / size, rowvar=False).reshape(len(size), -1) + 1e-6 * np.eye(len(size))
    gap = (means[1] - means[0]) / size  # [K, 1, f]
    weights = np.linalg.solve(covariance, gap[:, 0].T).T[:, None]
    return np.sum(weights * (features - (means[0] + means[1]) / 2) / size, axis=2)


def shown(scores: np.ndarray) -> Shown:
    """The results for scores [K, B] of runs, whose second half is used for testing."""
    half = scores.shape[1] // 2
    (zero, one), (without, held) = _worlds(scores[:, :half]), _worlds(scores[:, half:])
    bound = partial(excluded_epsilons, delta=DELTA)
    wrong = errors(without, held, best_threshold(zero, one, bound, CONFIDENCE))
    return Shown(
        auc=area(without, held),
        caught=float(np.mean(held > np.quantile(without, 0.99))),
        mu=separation(without, held, CONFIDENCE)[0],
        epsilon=epsilon_bound(*wrong, len(without), len(held), DELTA, CONFIDENCE),
    )


def _worlds(scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The scores of runs without the record, and of those with it."""
    return scores[:, ::2].ravel(), scores[:, 1::2].ravel()
