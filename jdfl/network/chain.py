"""Chains of two states, one for each of many keys, whose state in any round follows from key and round alone.

Nothing is carried from round to round, so that a run that is resumed, or looked at anywhere, has the same states. With
a the probability of a change to state 1 and b of one back, the states h rounds apart are connected by

    P(1 after h | x) = pi + l^h (x - pi),   pi = a / (a + b),   l = 1 - a - b.

In rounds that are a multiple of 2^L, with |l|^(2^L) below the resolution of the numbers that are drawn, states are
independent; in the middle of two known ones a state is drawn given both, down to the round that is asked for. The
number that decides a round's state belongs to that round alone. States have their stationary distribution throughout.
"""

import math

import jax
import jax.numpy as jnp
from jax import Array, lax

from jdfl.network.links import uniform

_RESOLUTION = 2.0**-25  # of uniform numbers in float32
_MOST = 28  # levels, of 2^30 rounds that a run may have
_RAREST = 2.0**-30  # probability of a change, one in as many rounds as a run may have


def check(**named: float) -> int:
    """Refuse two probabilities of a change that make no chain: ValueError. Returns the levels of `state` for them."""
    for name, p in named.items():
        if p < _RAREST:
            raise ValueError(
                f"Expected {name} >= {_RAREST:g}, got {name} = {p!r}: no run is long enough for such a change. Use "
                "link_loss or node_participation, whose rounds do not depend on one another."
            )
    (one, p), (other, q) = named.items()
    if p == 1 and q == 1:
        raise ValueError(f"Expected {one} or {other} below 1, got both 1: states would only take turns. Lower one.")
    return levels(float(p), float(q))


def levels(a: float, b: float) -> int:
    """How often the time between two independent states is halved: whole, from 0 to 28.

    Args:
        a: Probability of a change to state 1, in (0, 1].
        b: Probability of a change back, in (0, 1].
    """
    kept = abs(1 - a - b)
    if kept in (0, 1):
        return 0 if kept == 0 else _MOST
    needed = math.log(_RESOLUTION) / math.log(kept)
    return min(_MOST, max(0, math.ceil(math.log2(max(needed, 1)))))


def state(keys: Array, k: Array, a: Array, b: Array, levels: int) -> Array:
    """The states of chains in one round: bool [...], whether they are 1.

    Args:
        keys ([...]): A key for every chain.
        k ([]): The round, from 0.
        a ([]): Probability of a change to state 1.
        b ([]): Probability of a change back to state 0.
        levels: How often the time between independent states is halved, as `check` and `levels` give it.
    """
    share = a / (a + b)
    kept = [1 - a - b]  # l^(2^i)
    for _ in range(levels):
        kept.append(kept[-1] * kept[-1])

    def drawn(time: Array) -> Array:
        at = jax.vmap(jax.random.fold_in, (0, None))(keys.reshape(-1), time)
        return uniform(at).reshape(keys.shape)

    def halved(carry: tuple[Array, Array, Array], at: tuple[Array, Array]) -> tuple[tuple[Array, Array, Array], None]:
        """The half of the time from `begin` on in which k lies, and the states at its ends."""
        (begin, left, right), (level, kept) = carry, at

        def after(x: Array) -> Array:
            """The probability of 1 from state x, half of the time on."""
            return share + kept * (x - share)

        middle = begin + (1 << level)
        x, one, zero = left.astype(jnp.float32), after(jnp.float32(1)), after(jnp.float32(0))
        to_one = after(x) * jnp.where(right, one, 1 - one)
        to_zero = (1 - after(x)) * jnp.where(right, zero, 1 - zero)
        between = drawn(middle) * (to_one + to_zero) < to_one
        later = k >= middle
        begin = jnp.where(later, middle, begin)
        return (begin, jnp.where(later, between, left), jnp.where(later, right, between)), None

    begin = (k >> levels) << levels
    ends = begin, drawn(begin) < share, drawn(begin + (1 << levels)) < share
    half = jnp.arange(levels, dtype=jnp.int32)[::-1], jnp.stack(jnp.broadcast_arrays(*kept))[:levels][::-1]
    return lax.scan(halved, ends, half)[0][1]
