"""Two-state Markov chains, one per key, whose state in any round is a function of the key and the round alone.

No state is carried from round to round, so a resumed run, or a query of any single round, sees the same states. With
a the probability of a transition to state 1 and b that of a transition back, states h rounds apart are related by

    P(1 after h | x) = pi + l^h (x - pi),   pi = a / (a + b),   l = 1 - a - b.

States in rounds that are multiples of 2^L are independent, where |l|^(2^L) is below the resolution of the random
numbers. A state midway between two known ones is drawn conditionally on both, recursively down to the requested round.
The random number that decides a round's state is used for that round only. All states have the stationary distribution.
"""

import math

import jax
import jax.numpy as jnp
from jax import Array, lax

from jdfl.network.links import uniform

_RESOLUTION = 2.0**-25  # of uniform float32 numbers
_MOST = 28  # levels; a run has at most 2^30 rounds
_RAREST = 2.0**-30  # smallest transition probability: one transition in the longest possible run


def check(**named: float) -> int:
    """Check a pair of transition probabilities and return the number of `levels`; raises ValueError if unusable."""
    for name, p in named.items():
        if p < _RAREST:
            raise ValueError(
                f"Expected {name} >= {_RAREST:g}, got {name} = {p!r}: no run is long enough to see such a change. Use "
                "link_loss or node_participation, whose rounds are independent."
            )
    (one, p), (other, q) = named.items()
    if p == 1 and q == 1:
        raise ValueError(f"Expected {one} or {other} below 1, got both 1: states would only alternate. Lower one.")
    return levels(float(p), float(q))


def levels(a: float, b: float) -> int:
    """The number of times the interval between two independent states is halved: an integer from 0 to 28."""
    kept = abs(1 - a - b)
    if kept in (0, 1):
        return 0 if kept == 0 else _MOST
    needed = math.log(_RESOLUTION) / math.log(kept)
    return min(_MOST, max(0, math.ceil(math.log2(max(needed, 1)))))


def state(keys: Array, k: Array, a: Array, b: Array, levels: int) -> Array:
    """Whether each chain is in state 1 in a given round: bool [...]."""
    share = a / (a + b)
    kept = [1 - a - b]  # l^(2^i)
    for _ in range(levels):
        kept.append(kept[-1] * kept[-1])

    def drawn(time: Array) -> Array:
        at = jax.vmap(jax.random.fold_in, (0, None))(keys.reshape(-1), time)
        return uniform(at).reshape(keys.shape)

    def halved(carry: tuple[Array, Array, Array], at: tuple[Array, Array]) -> tuple[tuple[Array, Array, Array], None]:
        """The half of the interval starting at `begin` that contains k, and the states at its ends."""
        (begin, left, right), (level, kept) = carry, at

        def after(x: Array) -> Array:
            """The probability of state 1 half an interval after state x."""
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
