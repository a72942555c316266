"""`jdfl.audit_one_run`: an audit in about the time of one run, for models too large for thousands of runs.

Many records across all nodes are canaries. A fair secret coin decides for each of them which of two records it is, or
whether it is present. The run is made, and each coin is guessed from what the canary's node shows;
`jdfl.auditing.guesses` converts the number of correct guesses to a bound on epsilon.

A canary's gradient is a single entry, distinct within each node (`jdfl.auditing.dirac`), so canaries do not interfere
with one another. Every round is repeated from the same state with the same keys, without noise and without canaries.
The difference, in units of the noise, is the noise plus the canaries' gradients, as if all other records had none. Such
data are among those that the guarantee covers, whatever else an algorithm stores or samples. A canary's score is the
sum of its entry over all rounds.

Axes: m nodes, n parameters, K canaries, c blocks of n numbers that a node shows.
"""

import time
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jdfl.algorithms.algorithm import Algorithm
from jdfl.auditing.attack import separation
from jdfl.auditing.canary import Limit
from jdfl.auditing.claim import check_dense, check_level, noisy_guarantee
from jdfl.auditing.dirac import places, planted, room, with_sizes
from jdfl.auditing.guesses import epsilon_shown, right_guesses
from jdfl.auditing.observe import check_visible, started, visible
from jdfl.auditing.probe import amount_of, refusal, repeated
from jdfl.auditing.verdicts import OneRun
from jdfl.base import checks
from jdfl.base.keys import typed_key
from jdfl.base.streams import Stream
from jdfl.engine import stepping
from jdfl.engine.spending import records_of
from jdfl.engine.start import check_run
from jdfl.engine.stepping import Setting
from jdfl.network.graph import Network
from jdfl.privacy import GaussianEvent, Ledger
from jdfl.privacy.analytic import check_delta
from jdfl.problems import Problem

_COINS, _WHERE = Stream("audit.coins", "private"), Stream("audit.canaries", "private")
_MOST, _DELTA = 1000, 0.2  # default number of canaries, and default delta times their number
_SHARES = (0.5, 0.125)  # of the coins that are guessed: many where much is revealed, few where little is


def audit_one_run(
    algorithm: Algorithm,
    problem: Problem,
    network: Network,
    *,
    steps: int,
    canaries: int | None = None,
    guesses: int | None = None,
    delta: float | None = None,
    key: int | Array = 0,
    confidence: float = 0.95,
) -> OneRun:
    """Attack the privacy of many records in a single run of `steps` rounds.

    The bound assumes nothing about the algorithm, but no attack on a single run gets near the epsilon of correct noise.
    It finds gross errors, such as missing noise or a skipped clip, in models too large for the thousands of runs of
    `jdfl.audit`. A record's guarantee is its own node's, and the result is compared with that of the node with the
    largest epsilon.

    Where records are replaced, a canary's gradient points either way along its entry; where they are present or absent,
    it is that or zero. A canary replaces a record of the problem.

    Args:
        algorithm: The algorithm to attack. Its gradients are clipped, and a mechanism adds noise to them.
        problem: The data, dense, with any loss.
        network: The communication network.
        steps: Rounds of the run.
        canaries: Their number, at least 100; each node has room for the smaller of its number of records and the number
            of parameters. None: 1,000, or the largest number that fits.
        guesses: Number of coins that are guessed. None: half of them, and an eighth; the larger of the two bounds is
            used, each at half of the error (Bonferroni).
        delta: For the epsilons that are compared, in (0, 1). None: 0.2 / canaries, since a guarantee has an epsilon for
            every delta, and the one for a large delta is refuted by fewer canaries.
        key: For all randomness: an integer or a JAX key.
        confidence: Confidence level of the bound, in (0, 1).

    Raises ValueError for algorithms without such noise or clip, for guarantees of whole nodes, for invalid settings,
    and for runs that do not stay finite.
    """
    began, network = time.perf_counter(), stepping.paired(problem, network)
    program = check_run(algorithm, problem, network, steps, 1, None)
    seed, clip = typed_key(key), Limit.of(algorithm).clip
    check_level(confidence)
    check_dense(problem)
    guarantee = noisy_guarantee(program, problem)
    if reason := refusal(program):
        raise ValueError(
            f"Expected noise of a mechanism of gradients, got {type(algorithm).__name__}: {reason}. Use jdfl.audit."
        )
    if guarantee.unit != "record" or clip is None:
        raise ValueError(
            f"Expected a guarantee of single records and a clip, got one of a {guarantee.unit} and clip = {clip}. Give "
            "Gradients a clip with per = 'example', or use jdfl.audit."
        )
    free = int(room(problem).sum())
    count = min(_MOST, free) if canaries is None else canaries
    checks.whole(100, free, "A node has room for one per record, or one per parameter.", canaries=count)
    if guesses is not None:
        checks.whole(2, count, "They are guesses of the canaries' coins.", guesses=guesses)
    delta = _DELTA / count if delta is None else delta
    check_delta(delta)

    where = places(problem, count, int(jax.random.bits(_WHERE.of(seed))))
    coins = np.asarray(jax.random.bernoulli(_COINS.of(seed), 0.5, (count,))).astype(int)
    drop, absent = guarantee.adjacency == "add-remove", planted(problem, where)
    world = with_sizes(absent, where, coins if drop else 2 * coins - 1, clip)
    setting = stepping.setting(check_run(algorithm, world, network, steps, 1, None), world, network, None, seed)
    check_visible(setting)
    at = jnp.asarray(where.node, jnp.int32), jnp.asarray(where.entry, jnp.int32)
    amount = amount_of(setting.algorithm, problem.n)
    found = _scores(setting, amount, stepping.nameless(absent), *at, steps=int(steps))
    scores, releases = np.asarray(found[0], np.float64), np.asarray(found[1])
    if not np.all(np.isfinite(scores)):
        raise ValueError("Expected a run that stays finite, got one that diverges. Lower the step size or the noise.")

    accounted, event = Ledger.of(guarantee, releases, records_of(problem)).worst(delta)[1], guarantee.event
    sizes = [int(share * count) for share in _SHARES] if guesses is None else [int(guesses)]
    level = 1 - (1 - confidence) / len(sizes)
    above = drop and guarantee.sampling is not None  # a sample without the record looks as if it were absent
    rights = [right_guesses(scores, coins, 0 if above else r // 2, r if above else r - r // 2) for r in sizes]
    shown = [epsilon_shown(v, r, count, delta, level) for v, r in zip(rights, sizes)]
    best = int(np.argmax(shown))
    mu, low, high = separation(scores[coins == 0], scores[coins == 1], confidence)
    wanted = None
    if isinstance(event, GaussianEvent) and guarantee.sampling is None:
        wanted = float(event.shift(int(releases.max())))
    return OneRun(
        epsilon_lower=shown[best],
        epsilon_most=max(epsilon_shown(r, r, count, delta, level) for r in sizes),
        mu_hat=mu,
        mu_low=low,
        mu_high=high,
        algorithm=type(algorithm).__name__,
        canaries=count,
        guesses=sizes[best],
        right=rights[best],
        releases=int(releases.max()),
        confidence=float(confidence),
        delta=float(delta),
        epsilon_accounted=accounted,
        mu_accounted=wanted,
        claimed=guarantee.claimed,
        left_out=guarantee.warnings,
        seconds=time.perf_counter() - began,
    )


@partial(jax.jit, static_argnames=("steps",))
def _scores(
    setting: Setting, amount: float, absent: Problem, node: Array, entry: Array, *, steps: int
) -> tuple[Array, Array]:
    """The canaries' scores [K] in a run, and the number of releases per node [m]."""
    begun, start, info = started(setting, setting.keys)
    other, _, _ = started(replace(setting, problem=absent), setting.keys)
    level = jnp.ones((absent.m, absent.n), absent.dtype)

    def step(k: Array, carry: tuple[Any, Array, Array]) -> tuple[Any, Array, Array]:
        state, score, releases = carry
        new, info = stepping.step(begun, state, stepping.drawn(begun, k))

        def shown(units: Array) -> Array:
            return repeated(other, amount, units * level, state, k)

        bare, scale = jax.jvp(shown, (jnp.zeros((), absent.dtype),), (jnp.ones((), absent.dtype),))
        moved, scale = (_at(x, node, entry, absent.n) for x in (visible(begun.algorithm, new) - bare, scale))  # [K, c]
        power = jnp.sum(scale * scale, axis=1)
        seen = jnp.sum(moved * scale, axis=1) / jnp.where(power > 0, power, 1.0)
        return new, score + seen, releases + info.releases

    none = jnp.zeros(node.shape, absent.dtype)
    _, score, releases = jax.lax.fori_loop(0, steps, step, (start, none, info.releases))
    return score, releases


def _at(shown: Array, node: Array, entry: Array, n: int) -> Array:
    """The entries [K, c] of all blocks of n numbers of what is shown [m, c n]."""
    return shown.reshape(shown.shape[0], -1, n)[node, :, entry]
