"""The two keys of a run: a public one, and a private one from which noise and the choice of records follow.

One private key is for one private run. Two runs that share it and differ in anything have the same noise on other
numbers, so that the difference of their outputs has none: they have no joint epsilon.
"""

import hashlib
import json
import secrets
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jdfl.base.keys import key_data, key_digest, typed_key

Source = Literal["given", "operating system", "seed 0"]


@dataclass(frozen=True)
class RunKey:
    """The keys of a run. `Result.run_key` has those of a finished run, with which `jdfl.run` makes it again.

    Args:
        public: The key [] of what others observe or share: participants, codecs, links, faults.
        private: The key [] of noise and of the records that gradients use.
        source: Where `private` comes from: it was "given", also by a seed; it is from the "operating system"; or it is
            "seed 0", because no key was given and the run has no noise.
        token: What distinguishes the run from others with the same private key: a run that is resumed keeps it.
    """

    public: Array
    private: Array
    source: Source = "given"
    token: str = field(default_factory=lambda: secrets.token_hex(8))

    @classmethod
    def of(cls, key: "int | Array | RunKey") -> "RunKey":
        """The keys that follow from a seed or a typed key []; a `RunKey` stays as it is."""
        return key if isinstance(key, RunKey) else cls(typed_key(key), typed_key(key))

    @classmethod
    def chosen(cls, noisy: bool, seed: int = 0) -> "RunKey":
        """The keys of a run without a given key: public ones of a seed, and a new private one if it is `noisy`."""
        public = typed_key(seed)
        return cls(public, key_of_words(_fresh_words()), "operating system") if noisy else cls(public, public, "seed 0")

    def derived(self, *about: Any) -> "RunKey":
        """The keys of one of several runs: the private one follows from this one and from what it is `about`.

        `about` is plain data, such as a label and values by field. The public keys and the token stay.
        """
        content = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).digest()
        return replace(self, private=_within(self.private, np.frombuffer(content[:16], ">u4").astype(np.uint32)))

    @property
    def digest(self) -> str:
        """The digest of the private key, as results and ledgers record it."""
        return key_digest(key_data(self.private))


def _fresh_words() -> tuple[int, int]:
    """The two words of a new private key, 64 bits from the operating system; the same in all processes of a run."""
    words = np.array([secrets.randbits(32), secrets.randbits(32)], np.uint32)
    if jax.process_count() > 1:
        from jax.experimental import multihost_utils

        words = multihost_utils.broadcast_one_to_all(words)
    high, low = (int(word) for word in words)
    return high, low


def key_of_words(words: tuple[int, ...]) -> Array:
    """The typed key [] that `key_data` gives these words of."""
    return typed_key(jax.random.wrap_key_data(jnp.asarray(words, jnp.uint32)))


@jax.jit
def _within(key: Array, words: Array) -> Array:
    """The key [] of several words [k], one after another."""
    for word in words:
        key = jax.random.fold_in(key, word)
    return key
