"""Gradient inversion and membership inference on any method, for `experiments.leakage`.

Nothing here depends on a particular method: its own steps are run, and what they send and release is recorded.

Inversion fits records that make a method send the observed messages (L. Zhu, Z. Liu, S. Han: Deep Leakage from
Gradients, 2019; J. Geiping, H. Bauermeister, H. Droege, M. Moeller: Inverting Gradients: How Easy Is It to Break
Privacy in Federated Learning?, 2020, who use the cosine distance and keep records in the box that contains the real
ones). The attacker knows the method, its settings, the network and, if it is a node, its own records. It runs the
method itself, without noise, on made-up records and labels of all other nodes, and follows the gradient of the distance
between what it would see and what it has seen.

Membership is whether a record was used in a run:

- Loss threshold (S. Yeom, I. Giacomelli, M. Fredrikson, S. Jha: Privacy Risk in Machine Learning, 2018): the mean loss
  of the record under all observed parameters is small if it was used.
- Likelihood ratio (N. Carlini, S. Chien, M. Nasr, S. Song, A. Terzis, F. Tramer: Membership Inference Attacks From
  First Principles, 2022): shadow runs, half of them with the record, give a Gaussian model of the view in either
  world, with means per record and a shared covariance. Of an observed row it uses the logit of the record's class, as
  there, and its component along the record's gradient; an observing node also has its own releases.

All other records of a run are redrawn, so that the attacker does not know them; or they are the same in all runs about
a record, including its replacement, as if the attacker knew them, which is the attacker of differential privacy. The
runs used for the results are used neither for the fit nor for the choice of a threshold.

Axes: N records of a pool, p features, c classes, m nodes, q records per node, n = p c parameters, S rows per node that
leave it, P releases per node, B trials or runs, K records under attack, f features of the attack.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array, lax

import jdfl
from experiments.observer_attack import seen
from jdfl.algorithms.program import Program
from jdfl.auditing.attack import area, best_threshold, epsilon_bound, errors, excluded_epsilons, separation
from jdfl.base import struct
from jdfl.base.streams import Keys, Stream
from jdfl.network import Network
from jdfl.observers import Observer
from jdfl.observers.observe import Observed
from jdfl.observers.watched import Recorded
from jdfl.problems.logistic import SoftmaxRegression

DELTA = 1e-5


@struct.dataclass
class Labelled(SoftmaxRegression):
    """Softmax regression whose labels are class probabilities [m, q, c], which can be fitted like features."""

    def loss(self, w: Array, example: Any) -> Array:
        """The cross-entropy [] of one example (a [p], b [c])."""
        z = self.products(w, example[0])
        return jax.nn.logsumexp(z) - jnp.vdot(example[1], z)

    def slopes(self, w: Array, data: Any) -> Array:
        return jax.nn.softmax(self.products(w, data[0]), axis=1) - data[1]


@dataclass(frozen=True)
class Pool:
    """Real records, from which nodes get theirs."""

    features: np.ndarray  # [N, p] float32
    labels: np.ndarray  # [N, c] float32, one of each row 1
    image: bool  # whether features are pixels in [0, 1]

    @staticmethod
    def problem(features: Any, labels: Any) -> Labelled:
        """Softmax regression, without a regulariser, on records [m, q, p] with labels [m, q, c]."""
        m, q = features.shape[:2]
        weight, curvature = jnp.ones((m, q), features.dtype), jnp.ones((m,), features.dtype)
        return Labelled((features, labels), weight, curvature, penalty=0.0, classes=labels.shape[-1])

    def held(self, records: Any) -> Labelled:
        """The problem of nodes with these records [m, q]."""
        return self.problem(jnp.asarray(self.features)[records], jnp.asarray(self.labels)[records])


def pool(name: str) -> Pool:
    """The records of digits, 1,797 images of 64 pixels, or of breast_cancer, 569 of two classes, standardised."""
    found = jdfl.problems.load(name)
    features = np.asarray(found.features, np.float32)
    if found.standardise:  # by public statistics
        features = (features - features.mean(axis=0)) / features.std(axis=0)
    return Pool(features, np.eye(found.classes, dtype=np.float32)[found.labels], name == "digits")


def budgeted(algorithm: Any, problem: Any, network: Network, steps: int, epsilon: float | None) -> Any:
    """The method with the noise for this epsilon at DELTA; None: with zero noise, the same program."""
    if epsilon is None:
        silent = replace(algorithm.gradients, mechanism=jdfl.Gaussian(0.0))
        return replace(algorithm, gradients=silent)
    return jdfl.calibrate(algorithm, problem, network, steps=steps, epsilon=epsilon, delta=DELTA)


def watched(algorithm: Any, problem: Any, network: Network, steps: int) -> Observed:
    return Observed.of(algorithm, problem, network, steps=steps, key=0, delta=DELTA)


def view(run: Observed, observer: Observer) -> tuple[np.ndarray, np.ndarray]:
    """The rows that an observer sees, a mask [S, m] with the final parameters as the last, and the nodes it knows [m].

    Raises ValueError for an observer that only sees sums of rows.
    """
    mask, known = np.zeros((len(run.spread.places) + 1, run.spread.m), bool), np.zeros(run.spread.m, bool)
    for place, weights in observer.rows(run.spread):
        if np.count_nonzero(weights) != 1:
            raise ValueError(f"Expected an observer of single messages, got {observer!r}. Leave out sums.")
        mask[-1 if place == run.spread.final else place] |= weights != 0
    known[list(observer.known(run.spread.m))] = True
    return mask, known


_RATE = 0.1  # initial learning rate of Adam; it ends at zero


class Found(NamedTuple):
    """An attacker's reconstruction from a view."""

    features: Array  # [q, p] of the victim's records, as fitted
    records: Array  # [q] int32 the true ones, by their index in the pool
    distance: Array  # [] remaining distance, 0 to 2
    view: Array  # [S, m, n] what leaves the nodes


class Rerun(Recorded):
    """A round as the attacker repeats it, without noise."""

    def noisy(self, mechanism: Any, x: Array, *given: Any, **counted: Any) -> Array:
        return x

    def pairwise(self, stream: Stream, x: Array) -> Array:
        return jnp.zeros_like(x)


def distance(one: Array, other: Array, mask: Array) -> Array:
    """The mean of 1 - cosine [] over rows [S, m, n] that are seen, mask [S, m], and not zero."""
    size = jnp.sum(one * one, axis=2)
    there = mask & (size > 0)
    length = jnp.where(there, size, 1.0) * jnp.maximum(jnp.sum(other * other, axis=2), 1e-20)
    cosine = jnp.sum(one * other, axis=2) / jnp.sqrt(length)
    return jnp.sum(jnp.where(there, 1 - cosine, 0.0)) / jnp.maximum(jnp.sum(there.astype(one.dtype)), 1.0)


@partial(jax.jit, static_argnames=("steps", "q", "victim", "iterations"))
def inverted(
    program: Program,
    network: Network,
    pool: tuple[Array, Array],
    mask: Array,
    known: Array,
    keys: Array,
    *,
    steps: int,
    q: int,
    victim: int,
    iterations: int,
) -> Found:
    """What attackers find, leaves [B, ...], one per key: each trial has its own records, noise and first guess.

    Args:
        program: The planned method, with leaves [B, ...] where trials differ in them.
        network: The communication network.
        pool: Features [N, p] and labels [N, c] from which nodes draw distinct records.
        mask: The rows that observers see, mask [B, S, m].
        known: The nodes that observers know, known [B, m].
        keys: Keys of the trials, keys [B].
        steps: Rounds of every run.
        q: Records per node.
        victim: The node under attack.
        iterations: Steps of the attacker's descent.
    """
    features, labels = pool
    low, high = features.min(axis=0)[None, None], features.max(axis=0)[None, None]
    m = known.shape[1]

    def one(program: Program, mask: Array, known: Array, key: Array) -> Found:
        drawn, ran, first = jax.random.split(key, 3)
        records = jax.random.choice(drawn, len(features), (m, q), replace=False)
        truth = features[records], labels[records]

        def sends(data: tuple[Array, Array], kind: Any) -> Array:
            return seen(program, Pool.problem(*data), network, Keys.of(ran), steps=steps, kind=kind).sent

        view = sends(truth, Recorded)

        def data(guess: tuple[Array, Array]) -> tuple[Array, Array]:
            mine = guess[0], jax.nn.softmax(guess[1])
            return jax.tree.map(lambda a, b: jnp.where(known[:, None, None], a, b), truth, mine)

        def left(guess: tuple[Array, Array]) -> Array:
            return distance(view, sends(data(guess), Rerun), mask)

        optimizer = optax.adam(optax.cosine_decay_schedule(_RATE, iterations))

        def descend(carry: tuple[Any, Any], _: None) -> tuple[tuple[Any, Any], None]:
            guess, state = carry
            slope = jax.grad(left)(guess)
            with jax.numpy_dtype_promotion("standard"):  # optax mixes integers and floats
                move, state = optimizer.update(slope, state)
            features, labels = jax.tree.map(jnp.add, guess, move)
            return ((jnp.clip(features, low, high), labels), state), None

        unit, shares = (jax.random.uniform(key, leaf.shape) for key, leaf in zip(jax.random.split(first), truth))
        guess = low + (high - low) * unit, shares  # equal shares would make a gradient of zero, which has no direction
        guess, _ = lax.scan(descend, (guess, optimizer.init(guess)), None, length=iterations)[0]
        return Found(guess[0][victim], records[victim], left(guess), view)

    axes = jax.tree.map(lambda leaf: 0 if jnp.ndim(leaf) else None, program)
    return jax.vmap(one, (axes, 0, 0, 0))(program, mask, known, keys)


def closed_form(view: np.ndarray, mask: np.ndarray, victim: int, classes: int) -> np.ndarray:
    """The record [p] of a node that has only one, recovered from the first of its messages that is not zero.

    For a message that is a step of softmax regression from zero: the gradient is the outer product of the record and
    the classes' slopes, and the slope of the record's own class is the largest in magnitude and the only negative one.

    Args:
        view: What leaves the nodes, view [S, m, n].
        mask: The visible part of it, mask [S, m].
        victim: The node; ValueError where none of its messages is seen.
        classes: The number of classes.
    """
    rows = view[:, victim][mask[:, victim]]
    rows = rows[np.any(rows != 0, axis=1)]
    if not len(rows):
        raise ValueError(f"Expected an observer of the messages of node {victim}, got mask without any.")
    parts = rows[0].reshape(-1, classes)
    return parts[:, np.argmax(np.linalg.norm(parts, axis=0))]


def judged(fitted: np.ndarray, records: np.ndarray, features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The similarity of victims' records [B, q] to the nearest fitted ones [B, q, p], and whether they are found [B,
    q].

    Similarity is the cosine, since a clipped gradient does not reveal the brightness. A record is found if, of all N
    records [N, p] of the pool, it is the nearest to one of the fitted ones.
    """
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    fitted = fitted / np.maximum(np.linalg.norm(fitted, axis=2, keepdims=True), 1e-12)
    cosine = fitted @ unit.T  # [B, q, N]
    nearest = cosine.argmax(axis=2)  # [B, q]
    alike = np.take_along_axis(cosine, records[:, None, :], axis=2).max(axis=1)
    return alike, (nearest[:, :, None] == records[:, None, :]).any(axis=1)


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
