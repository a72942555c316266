"""Membership inference: whether a record took part in a run, by its loss and by a likelihood ratio.

- Loss threshold (S. Yeom, I. Giacomelli, M. Fredrikson, S. Jha: Privacy Risk in Machine Learning, 2018): the mean loss
  of the record under all parameters that are seen is small if it took part.
- Likelihood ratio (N. Carlini, S. Chien, M. Nasr, S. Song, A. Terzis, F. Tramer: Membership Inference Attacks From
  First Principles, 2022): shadow runs, half of which hold the record, give a Gaussian of what is seen in either world,
  with means of every record and a covariance of all. Of a seen row it is the logit of the record's class, as there, and
  its share in the direction of the record's gradient; a node that observes has also what it released itself.

All other records of a run are drawn anew, so that the attacker does not know them; or they are the same in all runs
about a record, also the one in its place, as if the attacker knew them, whom differential privacy is about. The runs
that judge had no part in the fit nor in the choice of a threshold.

Axes: N records of a pool, m nodes, n parameters, K records under attack, B runs about each, S rows of every node that
leave it, P releases of a node, f features.
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
    """Runs about records [K, B], every other of which holds its record, and what they tell of it."""

    logit: Array  # [K, B, S, m] of the record's class, by parameters that leave a node
    along: Array  # [K, B, S, m] these by the direction of the record's gradient at the start
    released: Array  # [K, B, P, m] releases by the same direction


class Shown(NamedTuple):
    """How well runs that hold a record were told from others."""

    auc: float
    caught: float  # of the runs with the record, where a hundredth of the others is taken for one
    mu: float  # the distance of the two means in standard deviations
    epsilon: float  # the bound that this proves at DELTA


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
        network: Who hears whom, m nodes.
        pool: Features [N, p] and labels [N, c] that nodes draw records of.
        targets: The records under attack, by their numbers, targets [K] int32.
        keys: Of the runs, keys [K, B].
        drawn: Of the other records of the runs, drawn [K, B].
        steps: Rounds of every run.
        q: Records of a node.
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
    """Scores [K, B]: minus the mean loss of the record under the parameters that are seen, mask [S, m]."""
    return -np.logaddexp(0, -np.asarray(told.logit, float)[:, :, mask]).mean(axis=2)


def by_ratio(told: Shadows, mask: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Scores [K, B]: logarithms of likelihood ratios, by Gaussians that are fitted to the first half of the runs.

    Args:
        told: What runs tell.
        mask: The rows that are seen, mask [S, m].
        known: The nodes that observe themselves, known [m].
    """
    logit, along, released = (np.asarray(part) for part in told)
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
    """What scores [K, B] of runs show, whose second half judges."""
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
