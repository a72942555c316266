"""P_s, the projection onto vectors with at most s nonzeros, exact for every type of number.

Axes: n entries of a row, any leading axes [...]. "Largest" below orders the entries of a row by magnitude, the lower
index first among equals. A NaN counts as larger than everything, 0.0 and -0.0 are equal, and subnormal numbers count as
zero, as in XLA's arithmetic on CPU; subnormal numbers of float16 keep their values, because XLA computes it in float32.
"""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jdfl.base.backend import backend
from jdfl.devices.memory import in_blocks
from jdfl.kernels import selection

# The fraction s / n up to which `lax.top_k` of float32 is used. On CPU it is a heap whose time grows with s, while the
# search takes about the same time for every s (benchmarks/projection.py measures both). `top_k` of other types sorts
# whole rows there and is always slower. Extracting indices from the search costs more than extracting values.
FEW_VALUES = 1 / 200
FEW_INDICES = 1 / 30
SHORT = 128  # rows up to this length: `top_k` of float32 takes a few microseconds, and compiles in a third of the time


RANKED, SORTED, FIRST = 256, 4096, 16  # on GPUs: row lengths up to which ranks or a sort win, and s of the fast `top_k`
LONG = 1024  # the shortest row of that


class _Bracket(NamedTuple):
    """Two keys of every row [..., 1] and how many entries are at least as large: n_low >= wanted > n_high."""

    low: Array
    high: Array
    n_low: Array  # int32
    n_high: Array  # int32


def top_s(x: Array, s: int) -> Array:
    """P_s: keep the `s` largest entries of each row [..., n], set the rest to zero.

    Exactly `s` entries are kept bit for bit, including zeros where the row has too few others. Gradients pass through
    the entries that are kept.

    Args:
        x ([..., n]): Rows of a floating or integer type.
        s: Number of entries to keep; n or more keeps all.
    """
    n = x.shape[-1]
    if s >= n:
        return x
    way = _by_index if _needs_index(x, s) or (not _on_gpu() and _few(x, s, FEW_VALUES)) else _by_search
    if way is _by_search and _on_gpu() and x.dtype == jnp.float32 and n <= SORTED:
        way = _by_rank if n <= RANKED else _by_threshold
    rows, by_blocks = x.reshape(-1, n), partial(in_blocks, partial(way, s=s))
    found = selection.top_s(rows, s, by_blocks) if s > 0 and selection.fits(rows) else by_blocks(rows)
    return found.reshape(x.shape)


def support(x: Array, s: int) -> tuple[Array, Array]:
    """Indices [s] int32 and values [s] of the `s` largest entries of a vector.

    Their order depends on the type, on n and on s: sort the indices where it matters.

    Args:
        x ([n]): The vector, of a floating or integer type.
        s: Number of entries, at most n.
    """
    by_index = _needs_index(x, s) or _few(x, s, 1.0 if _on_gpu() else FEW_INDICES)
    index = _indices(x, s) if by_index else jnp.nonzero(_largest(x, s), size=s)[0].astype(jnp.int32)
    return index, x[index]


def _needs_index(x: Array, s: int) -> bool:
    """Whether only `top_k` applies: s out of range, or unsigned keys that cannot grow by one."""
    return not 1 <= s <= x.shape[-1] or x.dtype in (jnp.uint32, jnp.uint64)


def _few(x: Array, s: int, share: float) -> bool:
    """Whether `top_k` is faster, given that it is up to this fraction of a row."""
    n = x.shape[-1]
    return x.dtype == jnp.float32 and (n <= SHORT or s <= share * n)


def _on_gpu() -> bool:
    # Scattering 10 of 1000 values back to their positions takes twice as long there as finding them; a search, which
    # leaves them in place, takes a third of both (benchmarks/results/device.json).
    return backend() == "gpu"


def _key(x: Array) -> Array:
    """The magnitude of every entry as an integer in the same order: of floats their bits, with one key for all NaN."""
    x = lax.stop_gradient(x)
    if not jnp.issubdtype(x.dtype, jnp.floating):
        return jnp.abs(x).astype(jnp.uint64 if x.dtype.itemsize == 8 else jnp.uint32)  # including that of -2^31
    kind = jnp.dtype(f"int{8 * x.dtype.itemsize}")
    bits = lax.bitcast_convert_type(x, kind) & jnp.iinfo(kind).max
    infinite = int(np.array(np.inf, x.dtype).view(kind))
    normal = 0 if x.dtype == jnp.float16 else 1 << jnp.finfo(x.dtype).nmant
    return jnp.where(bits < normal, 0, jnp.minimum(bits, infinite + 1))


def _indices(x: Array, s: int) -> Array:
    """The indices [..., s] of the largest entries, in order of magnitude."""
    size = _key(x)
    if jnp.issubdtype(x.dtype, jnp.floating):
        size = lax.bitcast_convert_type(size, x.dtype)  # `top_k` is fast for float32 only
    return lax.top_k(_padded(size, s), s)[1]


def _by_search(x: Array, s: int) -> Array:
    return jnp.where(_largest(x, s), x, jnp.zeros_like(x))


def _by_index(rows: Array, s: int) -> Array:
    kept = _indices(rows, s)
    line = jnp.arange(rows.shape[0])[:, None]
    return jnp.zeros_like(rows).at[line, kept].set(jnp.take_along_axis(rows, kept, axis=1))


def _by_rank(x: Array, s: int) -> Array:
    """By the number of larger entries: n comparisons for every entry, but a single pass over memory."""
    x, key = lax.optimization_barrier((x, _key(x)))  # both are formed in one pass
    place = jnp.arange(x.shape[1], dtype=jnp.int32)
    mine, others = key[:, :, None], key[:, None, :]
    ahead = (others > mine) | ((others == mine) & (place[None, :] < place[:, None])[None])
    # Fewer than 256 entries are ahead of any other.
    return jnp.where(jnp.sum(ahead, axis=2, dtype=jnp.uint8) < s, x, jnp.zeros_like(x))


def _by_threshold(x: Array, s: int) -> Array:
    """By the last entry that `top_k` keeps: of equal entries it keeps those with lower indices."""
    key = _key(x)
    value, index = lax.top_k(_padded(lax.bitcast_convert_type(key, x.dtype), s), s)
    last, end = lax.bitcast_convert_type(value[:, -1:], key.dtype), index[:, -1:]
    place = lax.broadcasted_iota(jnp.int32, x.shape, 1)
    return jnp.where((key > last) | ((key == last) & (place <= end)), x, jnp.zeros_like(x))


def _padded(size: Array, s: int) -> Array:
    """Magnitudes in rows that are long enough for the fast `top_k` of GPUs, where s is small enough for it."""
    n = size.shape[-1]
    if not (_on_gpu() and s <= FIRST and RANKED < n < LONG and size.dtype == jnp.float32):
        return size
    return jnp.pad(size, [(0, 0)] * (size.ndim - 1) + [(0, LONG - n)], constant_values=-1.0)


def _largest(x: Array, s: int) -> Array:
    """Which `s` entries of each row are the largest [..., n]: a search for the s-th key, then for places among ties."""
    n, axis, key = x.shape[-1], x.ndim - 1, _key(x)
    limits = jnp.iinfo(key.dtype)
    ends = jnp.array(limits.max, key.dtype), jnp.array(limits.min, key.dtype)
    low, high = lax.reduce((key, key), ends, lambda a, b: (jnp.minimum(a[0], b[0]), jnp.maximum(a[1], b[1])), (axis,))
    low, high = jnp.expand_dims(low, axis), jnp.expand_dims(high, axis) + 1
    none = jnp.zeros(low.shape, jnp.int32)
    start = _Bracket(low, high, none + n, none)
    if jnp.issubdtype(x.dtype, jnp.floating):  # most searches end within three octaves of the largest
        octave = 1 << jnp.finfo(x.dtype).nmant
        start = _cut(key, none + s, start, [jnp.maximum(high - part * octave // 2, low) for part in (6, 3, 1)])
    low, high, n_low, n_high = _search(key, none + s, start)
    # From n for the first entry of a row to 1 for the last; 0 for those outside the bracket.
    place = jnp.where((key >= low) & (key < high), n - lax.broadcasted_iota(jnp.int32, x.shape, axis), 0)
    first = _search(place, s - n_high, _Bracket(none + 1, none + (n + 1), n_low - n_high, none)).low
    return (key >= high) | (place >= first)


def _search(key: Array, wanted: Array, start: _Bracket) -> _Bracket:
    """Quarter the bracket of every row until `n_low` is `wanted` [..., 1], or `high` is next to `low`."""

    def is_open(here: _Bracket) -> Array:
        return jnp.any((here.n_low != wanted) & (here.high - here.low > 1))

    def quarter(here: _Bracket) -> _Bracket:
        half, fourth = (here.high - here.low) >> 1, (here.high - here.low) >> 2
        return _cut(key, wanted, here, [here.low + fourth, here.low + half, here.low + half + fourth])

    return lax.while_loop(is_open, quarter, start)


def _cut(key: Array, wanted: Array, here: _Bracket, cuts: Sequence[Array]) -> _Bracket:
    """The part of every bracket between two adjacent `cuts` [..., 1], ascending, all in [low, high)."""
    low, high, n_low, n_high = here
    for cut, count in zip(cuts, _counts(key, cuts)):
        enough = count >= wanted
        low, n_low = jnp.where(enough, cut, low), jnp.where(enough, count, n_low)
        lower = ~enough & (cut < high)
        high, n_high = jnp.where(lower, cut, high), jnp.where(lower, count, n_high)
    return _Bracket(low, high, n_low, n_high)


def _counts(key: Array, cuts: Sequence[Array]) -> Sequence[Array]:
    """How many entries of each row are at least as large as each of the cuts [..., 1]."""
    axis = key.ndim - 1  # below is one reduction: XLA on CPU fuses comparisons into it, but not into a plain sum
    reached = tuple((key >= cut).astype(jnp.int32) for cut in cuts)
    zeros = (jnp.int32(0),) * len(cuts)
    totals = lax.reduce(reached, zeros, lambda a, b: tuple(u + v for u, v in zip(a, b)), (axis,))
    return [jnp.expand_dims(total, axis) for total in totals]
