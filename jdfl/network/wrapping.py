"""What networks around other networks have in common, and what a run tells all of them."""

from dataclasses import is_dataclass, replace
from typing import Any

import jax
from jax import Array

from jdfl.base.streams import Stream
from jdfl.network.arcs import called, kind_of, refuse_synchronised
from jdfl.network.graph import Network

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
        """With the key [] of a run, from which all its rounds follow; the network inside has a key of its own."""
        own: Any = self
        return replace(own, base=in_run(self.base, INNER.of(key), bits), run=key)


def in_run(network: Any, key: Array, bits: int) -> Any:
    """The network as a run has it: what belongs to many rounds is drawn from the run's key.

    A network says what it makes of them in a method of this name; of wrappers the network inside is asked as well.

    Args:
        network: The network.
        key: Key [] of the run.
        bits: Size of a message.
    """
    own = getattr(network, "in_run", None)
    if own is not None:
        return own(key, bits)
    return replace(network, base=in_run(network.base, key, bits)) if hasattr(network, "base") else network


def lasting(run: Array | None) -> Array:
    """The key of what lasts for many rounds: the run's, and outside a run a fixed one."""
    return jax.random.key(_UNBOUND) if run is None else run


def around(base: Network, name: str, *, on_time: str = "") -> tuple[Network, str]:
    """The network inside a wrapper, and what the wrapper is called.

    The network inside has no name, which is static: networks that differ in it only are compiled once. Raises
    `ValueError` for synchronised networks, of which the tables of neighbours are not all, and for late messages, where
    the wrapper `on_time` has rounds in which nodes send nothing, or take in nothing.
    """
    refuse_synchronised(base, "a network around it")
    if on_time and kind_of(base).late is not None:
        raise ValueError(
            f"Expected a network for {on_time} whose messages are not late, got base = {called(base)}: there are "
            "rounds in which a node sends nothing, or takes in nothing of what arrives. Use link_loss around delays."
        )
    inside = replace(base, name="") if is_dataclass(base) and hasattr(base, "name") else base
    return inside, f"{name} of {called(base)}"
