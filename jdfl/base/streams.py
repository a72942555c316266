"""Random streams by name: where every random number of a run comes from, and who may know it.

A stream is declared once, at the top of the module that draws from it, with a name and a root. The name decides its
numbers, so that nobody chooses any; two streams of one name, or of two names with one number, are refused. The root
decides who may know what is drawn:

- "private": noise, and which records a gradient looks at. No receiver may compute these. What is folded into this root
  besides the run's key is a fingerprint of the run's algorithm, data and network, so that two different runs of one
  seed share no noise.
- "choice": who is active, which neighbours and clients take part. Others see these when they happen, and what a node
  releases depends on them, so that they do not change with the amount of noise.
- "shared": what sender and receiver both know, such as sensing matrices and index sets.
- "network": who hears whom, what is late and what is lost. The same for all algorithms that run with one seed.

A key is derived by the path run, root, moment, stream, index, node, always of this depth: a key from which others are
derived is never drawn from.
"""

import hashlib
from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jdfl.base import struct

Root = Literal["private", "choice", "shared", "network"]

_streams: dict[str, "Stream"] = {}  # by name


def _number(name: str) -> int:
    """The first 32 bits of the name's SHA-256."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big")


@dataclass(frozen=True)
class Stream:
    """A source of random numbers: its `name`, unique in a process, and its `root`.

    Declared once, at the top of a module. `Stream.again` is for cells of a notebook, which are run more than once.
    Raises ValueError for an unknown root, for a name that is declared already, and for one whose number another has.
    """

    name: str
    root: Root

    def __post_init__(self) -> None:
        if self.root not in _ROOTS:
            raise ValueError(f"Expected root among {', '.join(_ROOTS)}, got root = {self.root!r}.")
        for other in _streams.values():
            if other.number == self.number:
                why = "this name" if other.name == self.name else f"the number of this name: {other.name!r}"
                raise ValueError(
                    f"Expected the name of a random stream that is not declared yet, got name = {self.name!r}: another "
                    f"stream has {why}, and the two would draw the same numbers. Choose another name, such as "
                    "'my_package.noise'."
                )
        _streams[self.name] = self

    @classmethod
    def again(cls, name: str, root: Root) -> "Stream":
        """The stream of this name and root, declared now if it is not: for cells that are run more than once.

        Raises ValueError for a name that is declared with another root. In a module declare by `Stream(name, root)`,
        which refuses a name that another module has, where this would draw the same numbers as that one.
        """
        known = _streams.get(name)
        return known if known is not None and known.root == root else cls(name, root)

    @property
    def number(self) -> int:
        """What is folded into keys: 32 bits of the name's hash.

        They are the first of its SHA-256, the same in every process and on every machine. A stream that is renamed
        therefore draws other numbers; the root does not enter here.
        """
        return _number(self.name)

    def of(self, key: Array) -> Array:
        """The stream's key [] under another key [].

        It is one key for all nodes, for what is drawn once, such as a codec's constants. Draw from it, or derive keys
        from it, never both. A key for every node comes from `keys`.
        """
        return jax.random.fold_in(key, jnp.uint32(self.number))

    def keys(self, key: Array, node: Array, index: Array | int = 0) -> Array:
        """One key for every node [m]: they depend on the nodes' global ids, not on place or device.

        Args:
            key: The key [] that the stream's is derived from.
            node: The global ids node [m], int32.
            index: Tells several draws of a moment apart, index [], such as the gradient steps of a round.
        """
        return each(self.of(key), node, index)


_ROOTS: dict[Root, int] = {root: _number(f"root {root}") for root in ("private", "choice", "shared", "network")}
_START, _ROUND = _number("moment start"), _number("moment round")


def each(key: Array, node: Array, index: Array | int = 0) -> Array:
    """One key for every node [m], from the key [] of a stream and what else tells draws apart."""
    return jax.vmap(jax.random.fold_in, (None, 0))(jax.random.fold_in(key, index), node)


def declared() -> dict[str, Stream]:
    """All streams of this process, by name."""
    return dict(_streams)


@jax.jit
def _under(key: Array, numbers: Array) -> list[Array]:
    """The keys [] of several numbers [k] under a key []; operation by operation they take tenths of a second."""
    return [jax.random.fold_in(key, number) for number in numbers]


@jax.jit
def _within(key: Array, words: Array) -> Array:
    """The key [] of several words [k], one after another."""
    for word in words:
        key = jax.random.fold_in(key, word)
    return key


@struct.dataclass
class Keys:
    """The key [] of a run, or of a moment of it, and what comes from it under each root."""

    run: Array  # what all of them come from
    private: Array
    choice: Array
    shared: Array
    network: Array

    @classmethod
    def of(cls, key: Array, fingerprint: tuple[int, ...] | Array = ()) -> "Keys":
        """Those of a key []; the words [k] of a run's `fingerprint` enter what is private."""
        words = fingerprint if isinstance(fingerprint, Array) else np.array(fingerprint, np.uint32)
        roots = _under(key, np.array(list(_ROOTS.values()), np.uint32))
        named = dict(zip(_ROOTS, roots))
        return cls(key, **named | {"private": _within(named["private"], words)})

    def at_start(self) -> "Keys":
        """Those of the moment before the first round."""
        return jax.tree.map(lambda key: jax.random.fold_in(key, jnp.uint32(_START)), self)

    def at_round(self, k: Array | int) -> "Keys":
        """Those of round k []."""
        return jax.tree.map(lambda key: jax.random.fold_in(jax.random.fold_in(key, jnp.uint32(_ROUND)), k), self)
