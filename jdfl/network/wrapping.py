"""What networks around other networks have in common, and what a run tells all of them."""

from dataclasses import is_dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from jdfl.network.arcs import called, refuse_synchronised
from jdfl.network.graph import Network
from jdfl.streams import Stream

INNER = Stream("network.inside", "network")  # all that the network inside draws
_UNBOUND = 0  # seed of what a network draws for many rounds, outside a run


class Around:
    """A network around another."""

    base: Any

    @property
    def m(self) -> int:
        """The number of nodes."""
        return self.base.m

    @property
    def largest_out_degree(self) -> int:
        """The most messages that a node sends in a round: as in the network inside, or where it does not say, m - 1."""
        return getattr(self.base, "largest_out_degree", self.m - 1)


class Lasting(Around):
    """A network around another that draws from the run's key, its field `run`, what lasts for many rounds."""

    def in_run(self, key: Array, bits: int) -> Any:
        """With the key of a run, from which all of its rounds follow, and the network inside with one of its own."""
        return replace(inside(self, key, bits), run=key)


def in_run(network: Any, key: Array, bits: int) -> Any:
    """The network as a run has it: what belongs to many rounds is drawn from `key`, and a message has so many bits.

    A network says what it makes of them in a method of this name; of wrappers the network inside is asked as well.
    """
    own = getattr(network, "in_run", None)
    if own is not None:
        return own(key, bits)
    if not hasattr(network, "base"):
        return network
    return replace(network, base=in_run(network.base, key, bits))


def inside(network: Any, key: Array, bits: int) -> Any:
    """A network that draws from the key itself, with the one that it holds as a run has that."""
    return replace(network, base=in_run(network.base, INNER.of(key), bits))


def lasting(run: Array | None) -> Array:
    """The key of what lasts for many rounds: the run's, and outside a run a fixed one."""
    return jax.random.key(_UNBOUND) if run is None else run


def base_is_network(base: Network) -> None:
    """Refuse what is not a network, and synchronised ones, of which the tables of neighbours are not all."""
    if isinstance(base, type) or not (hasattr(base, "m") and hasattr(base, "at")):
        found = base.__name__ if isinstance(base, type) else type(base).__name__
        raise ValueError(
            f"Expected base to be a network, got base = {found}. Take one from jdfl.network; Static(graph) makes one "
            "of a Graph."
        )
    refuse_synchronised(base, "a network around it")


def refuse_late(base: Network, name: str) -> None:
    """Refuse late messages, for a wrapper `name` with rounds in which nodes send nothing, or take in nothing."""
    if jax.eval_shape(base.at, jnp.int32(0), jax.random.key(0)).late is not None:
        raise ValueError(
            f"Expected a network for {name} whose messages are not late, got base = {called(base)}: there are rounds "
            "in which a node sends nothing, or takes in nothing of what arrives. Use link_loss around delays."
        )


def wrapped(base: Network) -> Network:
    """The network without its name, which is static: networks that differ in it only are compiled once."""
    return replace(base, name="") if is_dataclass(base) and hasattr(base, "name") else base
