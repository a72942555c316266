"""Keys of runs: the random numbers of `jax.random` with threefry-2x32, in a form that XLA fuses on CPU.

JAX compiles threefry for CPU as a loop, which leaves no fusion and takes 1.6 to 4.4 times as long
(`benchmarks/noise.py`). Here its twenty rounds are unrolled. A key and what is drawn from it have the same bits as with
`jax.random` and the same seed. Derived keys are kept from fusing with what is drawn from them, because XLA would
otherwise compile and compute them again for every number.
"""

import contextlib
import hashlib
import math
import os
import re
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.extend.random import define_prng_impl

from jdfl.base import checks

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_THREEFRY = "threefry2x32"  # JAX's name
_COUNTERS = 2**32


def typed_key(key: int | Array) -> Array:
    """The key [] of a run, from a seed or from a typed key, whose numbers stay the same.

    A key of another kind, such as rbg, is converted to one with this module's numbers: for several keys in one program,
    as in a sweep, JAX draws all rbg numbers from the first. Raises ValueError for anything else.
    """
    if isinstance(key, Array) and jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        checks.shape((), "Give one key for a run.", key=key)
    else:
        # JAX uses the low 32 bits of a seed, so larger seeds would repeat the runs of smaller ones.
        checks.integer(0, 2**32 - 1, key=key, remedy="Give a seed, or a typed key from jax.random.key.")
        key = jax.random.key(int(key), impl=_THREEFRY)  # pyright: ignore[reportArgumentType]
    kind, words = str(jax.random.key_impl(key)), jax.random.key_data(key)
    if kind in (_THREEFRY, str(_UNROLLED)):
        return jax.random.wrap_key_data(words, impl=_UNROLLED)
    own = jax.random.key(0, impl=_UNROLLED)
    for word in (*kind.encode(), *words.ravel()):
        own = jax.random.fold_in(own, word)
    return own


def key_data(key: Array) -> list[int]:
    """The words of a typed key []."""
    return [int(word) for word in np.asarray(jax.random.key_data(key)).ravel()]


def key_digest(words: Sequence[int]) -> str:
    """An identifier of a key's words [2] that does not reveal them: 16 digits of their SHA-256.

    Results store it instead of the key. It does not protect a seed, because all seeds can be tried.
    """
    return hashlib.sha256(f"jdfl key {' '.join(map(str, words))}".encode()).hexdigest()[:16]


def key_file(path: str | Path) -> Array:
    """The key [] in a file, which is created with 64 bits from the operating system if it does not exist.

    A seed has 32 bits, and all seeds can be tried: anyone who finds it can remove the noise. Results do not hold this
    key, and a run can be resumed only with the file. Keep it away from published results.

    Args:
        path: The file, with 16 hexadecimal digits, readable by its owner only.

    Raises:
        ValueError: For a file with other content.
    """
    path = Path(path)
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
        with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(f"{secrets.token_hex(8)}\n")
            file.flush()
            os.fsync(file.fileno())
        try:
            with contextlib.suppress(FileExistsError):  # another process created it first; its key is used
                os.link(partial, path)
        finally:
            partial.unlink()
    return key_in(path)


def key_in(path: str | Path) -> Array:
    """The key [] in a file; FileNotFoundError where there is none, ValueError for other content."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(
            f"Expected the file with the run's key, found no {path}. Without it the run cannot be continued."
        )
    text = path.read_text(encoding="ascii", errors="replace").strip()
    if not re.fullmatch(r"[0-9a-f]{16}", text):
        raise ValueError(
            f"Expected a key of 16 hexadecimal digits in {path}, got {len(text)} characters. Name another file for a "
            "new key; this one is left unchanged."
        )
    return typed_key(jax.random.wrap_key_data(jnp.asarray([int(text[:8], 16), int(text[8:], 16)], jnp.uint32)))


def _threefry(key: Array, high: Array, low: Array) -> tuple[Array, Array]:
    """The block cipher: two words for every pair of words (J. Salmon et al.: Parallel Random Numbers, 2011)."""
    words = key[0], key[1], key[0] ^ key[1] ^ jnp.uint32(0x1BD11BDA)
    x, y = high + words[0], low + words[1]
    for step in range(5):
        for turn in _ROTATIONS[step % 2]:
            x = x + y
            y = x ^ (y << turn | y >> (32 - turn))
        x, y = x + words[(step + 1) % 3], y + words[(step + 2) % 3] + jnp.uint32(step + 1)
    return x, y


def words(key: Array, shape: Sequence[int]) -> tuple[Array, Array]:
    """Two random words [...] uint32 for every position of an array, from a typed key [] of any kind.

    With keys of this module they are one block of threefry, as long as positions can be counted with 32 bits.

    Args:
        key: The key [] of all of them.
        shape: The shape [...] of the array.
    """
    if str(jax.random.key_impl(key)) == str(_UNROLLED) and math.prod(shape) <= _COUNTERS:
        return _counted(jax.random.key_data(key), shape)
    both = jax.random.bits(key, (2, *shape), "uint32")
    return both[0], both[1]


def normal(words: Sequence[Array], n: int) -> Array:
    """What `jax.random.normal` draws for a shape [n] in float32 from a key of this module, up to rounding.

    It consists of operations that kernels have; elsewhere `jax.random.normal` gives the same.

    Args:
        words: The two words [] of the key.
        n: How many numbers.
    """
    high, low = _threefry(words, jnp.uint32(0), lax.iota(jnp.uint32, n))  # pyright: ignore[reportArgumentType]
    unit = lax.bitcast_convert_type((high ^ low) >> 9 | jnp.uint32(0x3F800000), jnp.float32) - 1  # in [0, 1)
    least = np.nextafter(np.float32(-1), np.float32(0))
    return np.float32(2**0.5) * lax.erf_inv(jnp.maximum(least, unit * (1 - least) + least))


_once = jax.jit(_threefry)  # traced once for all keys and shapes alike: programs have many of its 100 operations


def _counted(key: Array, shape: Sequence[int]) -> tuple[Array, Array]:
    """Two words for every position of an array."""
    return _once(key, jnp.uint32(0), lax.iota(jnp.uint32, math.prod(shape)).reshape(shape))


def _plain(key: Array) -> Array:
    """JAX's own key, for arrays with more positions than a 32-bit counter has values."""
    return jax.random.wrap_key_data(key, impl=_THREEFRY)


def _seed(seed: Array) -> Array:
    return jax.random.key_data(jax.random.key(seed, impl=_THREEFRY))


def _split(key: Array, shape: Sequence[int]) -> Array:
    if math.prod(shape) > _COUNTERS:
        return jax.random.key_data(jax.random.split(_plain(key), tuple(shape)))
    return lax.optimization_barrier(jnp.stack(_counted(key, shape), axis=-1))


def _fold_in(key: Array, data: int | Array) -> Array:
    return lax.optimization_barrier(jnp.stack(_once(key, jnp.uint32(0), jnp.asarray(data, jnp.uint32))))


def _bits(key: Array, width: int, shape: Sequence[int]) -> Array:
    kind: Any = f"uint{width}"
    if math.prod(shape) > _COUNTERS:
        return jax.random.bits(_plain(key), tuple(shape), kind)
    high, low = _counted(key, shape)
    if width == 64:
        return high.astype(kind) << 32 | low.astype(kind)
    return (high ^ low).astype(kind)


_UNROLLED = define_prng_impl(
    key_shape=(2,),
    seed=_seed,
    split=_split,
    random_bits=_bits,
    fold_in=_fold_in,
    name="threefry2x32, unrolled",
    tag="jdfl",
)
