"""Named random streams: where every random number of a run comes from, and who may know it.

A stream is declared once, at the top of the module that draws from it, with a name and a root. Its numbers follow from
the name, so nobody has to choose any; two streams with one name, or two names with one number, are refused. The root
says who may know the numbers that the stream draws:

- "private": noise, and the records that a gradient uses. No receiver may be able to compute these. They depend on the
  private key of the run, stream, node, round and index alone, so that one private key is for one run (`RunKey`).
- "choice": which nodes are active, which neighbours and clients take part. Others observe these choices, and a node's
  releases depend on them, so they do not change with the amount of noise.
- "shared": what sender and receiver both know, such as sensing matrices and index sets.
- "network": the links of a round, delayed messages and lost ones. The same for all algorithms that run with one seed.

A key is derived by the path run, root, moment, stream, index, node, always of this depth: no key is both drawn from and
used to derive others.
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

    Declared once, at the top of a module; in notebook cells, which run repeatedly, use `Stream.again`.
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
                    f"Expected a name of a random stream that is not declared yet, got name = {self.name!r}: another "
                    f"stream has {why}, and the two would draw the same numbers. Choose another name, such as "
                    "'my_package.noise'."
                )
        _streams[self.name] = self

    @classmethod
    def again(cls, name: str, root: Root) -> "Stream":
        """The stream with this name and root, declared now if necessary: for cells that run repeatedly.

        Raises ValueError for a name that is declared with another root. In a module use `Stream(name, root)`, which
        refuses a name that another module has, where this would draw the same numbers as that module.
        """
        known = _streams.get(name)
        return known if known is not None and known.root == root else cls(name, root)

    @property
    def number(self) -> int:
        """The number that is folded into keys: the first 32 bits of the SHA-256 of the name.

        It is the same in every process and on every machine. A renamed stream therefore draws different numbers; the
        root does not affect it.
        """
        return _number(self.name)

    def of(self, key: Array) -> Array:
        """The stream's key [] derived from another key [].

        It is one key for all nodes, for what is drawn once, such as a codec's constants. Draw from it or derive keys
        from it, never both. `keys` gives one key per node.
        """
        return jax.random.fold_in(key, jnp.uint32(self.number))

    def keys(self, key: Array, node: Array, index: Array | int = 0) -> Array:
        """One key for every node [m]; they depend on the nodes' global ids, not on array position or device.

        Args:
            key: The key [] from which the stream's key is derived.
            node: The global ids node [m], int32.
            index: Distinguishes several draws of a moment, index [], such as the gradient steps of a round.
        """
        return each(self.of(key), node, index)


_ROOTS: dict[Root, int] = {root: _number(f"root {root}") for root in ("private", "choice", "shared", "network")}
_START, _ROUND = _number("moment start"), _number("moment round")


def each(key: Array, node: Array, index: Array | int = 0) -> Array:
    """One key for every node [m], from the key [] of a stream and an index that distinguishes draws."""
    return jax.vmap(jax.random.fold_in, (None, 0))(jax.random.fold_in(key, index), node)


def declared() -> dict[str, Stream]:
    """All streams of this process, by name."""
    return dict(_streams)


@jax.jit
def _under(key: Array, numbers: Array) -> list[Array]:
    """The keys [] for several numbers [k] under a key []; jitted, because single operations take tenths of a second."""
    return [jax.random.fold_in(key, number) for number in numbers]


@struct.dataclass
class Keys:
    """The key [] of a run, or of a moment of it, and the keys derived from it for each root."""

    run: Array  # the key of all others
    private: Array
    choice: Array
    shared: Array
    network: Array

    @classmethod
    def of(cls, key: Array, private: Array | None = None) -> "Keys":
        """The keys derived from a key []; the private root from another key `private` [] if there is one."""
        numbers = np.array(list(_ROOTS.values()), np.uint32)
        named = dict(zip(_ROOTS, _under(key, numbers)))
        if private is not None:
            named["private"] = dict(zip(_ROOTS, _under(private, numbers)))["private"]
        return cls(key, **named)

    def at_start(self) -> "Keys":
        """The keys of the moment before the first round."""
        return jax.tree.map(lambda key: jax.random.fold_in(key, jnp.uint32(_START)), self)

    def at_round(self, k: Array | int) -> "Keys":
        """The keys of round k []."""
        return jax.tree.map(lambda key: jax.random.fold_in(jax.random.fold_in(key, jnp.uint32(_ROUND)), k), self)
