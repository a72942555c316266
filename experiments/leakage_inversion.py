"""Gradient inversion: fit records that make a method send the observed messages.

L. Zhu, Z. Liu, S. Han: Deep Leakage from Gradients, 2019; J. Geiping, H. Bauermeister, H. Droege, M. Moeller: Inverting
Gradients: How Easy Is It to Break Privacy in Federated Learning?, 2020, who use the cosine distance and keep records in
the box that contains the real ones.

The attacker knows the method, its settings, the network and, if it is a node, its own records. It runs the method
itself, without noise, on made-up records and labels of all other nodes, and follows the gradient of the distance
between what it would see and what it has seen. Nothing here depends on a particular method.

Axes: N records of a pool, p features, c classes, m nodes, q records per node, n = p c parameters, S rows per node that
leave it, B trials.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array, lax

from experiments.leakage_pools import Pool
from experiments.seen_runs import seen
from jdfl.algorithms.program import Program
from jdfl.base.streams import Keys, Stream
from jdfl.network import Network
from jdfl.observers.watched import Recorded

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
        """The value to be hidden."""
        return x

    def pairwise(self, stream: Stream, x: Array) -> Array:
        """Nothing."""
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
