"""Networks whose messages are lost, one by one or in bursts. Any network in, a network out.

Whose message a node lacks it replaces by its own row, so that rows of W still sum to one (`weights="own"`); or all that
is left is scaled up ("rescale"); or the sender, who gets no receipt, keeps what did not arrive, so that it is columns
that sum to one, as push-sum needs ("sender"). W stays symmetric where it was and both ways of a link are missing
together. A lost message has been sent, and counts. A wrapper and the network in it draw with different keys, and so do
wrappers in one another.

Axes: m nodes, d slots of the table.
"""

from dataclasses import replace
from typing import Any, get_args

import jax.numpy as jnp
import numpy as np
from jax import Array

from jdfl import checks, struct
from jdfl.arguments import checked
from jdfl.network import chain
from jdfl.network.arcs import called
from jdfl.network.graph import Graph, Network
from jdfl.network.links import Missing, link_keys, link_uniform, without
from jdfl.network.wrapping import INNER, Around, Lasting, base_is_network, lasting, wrapped
from jdfl.streams import Stream

_LOST, _BURST = Stream("network.lost", "network"), Stream("network.burst", "network")


@struct.dataclass
class LinkLoss(Around):
    """A network whose messages are lost with one probability."""

    base: Network
    p: Array  # float32 [] probability that a message is lost
    directed: bool = struct.field(pytree_node=False)  # whether the two ways of a link are lost apart
    weights: Missing = struct.field(pytree_node=False)
    name: str = struct.field(pytree_node=False, default="network")

    def at(self, k: Array, key: Array) -> Graph:
        """What arrives, as a lossy graph: `out_degree` still counts what was lost, since it was sent."""
        graph = self.base.at(k, INNER.of(key))
        up = link_uniform(key, _LOST, graph, directed=self.directed) >= self.p
        return replace(without(graph, up, self.weights), lossy=True)


@struct.dataclass
class BurstyLoss(Lasting):
    """A network whose links are good or bad for a while (Gilbert and Elliott)."""

    base: Network
    to_bad: Array  # float32 [] probability that a good link is bad in the next round
    to_good: Array  # float32 [] and that a bad one is good
    loss: Array  # float32 [2] probability that a message is lost on a good link, and on a bad one
    levels: int = struct.field(pytree_node=False)  # of `chain.state`
    directed: bool = struct.field(pytree_node=False)  # both ways of a link are good or bad on their own
    weights: Missing = struct.field(pytree_node=False)
    run: Array | None = None  # what links' states are drawn from in all rounds
    name: str = struct.field(pytree_node=False, default="network")

    def at(self, k: Array, key: Array) -> Graph:
        """What arrives, as a lossy graph: `out_degree` still counts what was lost, since it was sent."""
        graph = self.base.at(k, INNER.of(key))
        bad = self.bad(k, graph)
        up = link_uniform(key, _LOST, graph, directed=self.directed) >= jnp.where(bad, self.loss[1], self.loss[0])
        return replace(without(graph, up, self.weights), lossy=True)

    def bad(self, k: Array, graph: Graph) -> Array:
        """Which slots [m, d] have a bad link in round k."""
        keys = link_keys(lasting(self.run), _BURST, graph, directed=self.directed)
        return chain.state(keys, k, self.to_bad, self.to_good, self.levels)


@checked
def link_loss(base: Network, p: Any, *, directed: bool = False, weights: Missing = "own") -> LinkLoss:
    """Every link of `base` is cut with probability `p`, drawn anew in every round and for every link.

    Both ways of a link are lost together; if `directed`, every message is lost apart from the others. The weight of
    what is missing goes to the receiver's own row ("own"), or all weights that are left are scaled up to sum to one
    ("rescale"; a node that is left without any keeps its row), or the sender keeps it ("sender", for push-sum, whose
    columns of weights then still sum to one). With "own" and links lost both ways, symmetric doubly stochastic weights
    stay so; the other choices leave rows or columns only. A lost message has been sent, so `out_degree` counts it, and
    with it the bits of a run; algorithms that ask for messages count what they ask for, which is what can be heard. Put
    link loss around other wrappers, not into them.

    Raises `ValueError` for p outside [0, 1) and an unknown rule for the weights.
    """
    base_is_network(base)
    _check_loss(p=p)
    checks.one_of((False, True), directed=directed)
    checks.one_of(get_args(Missing), weights=weights)
    each = "each way, " if directed else ""
    name = f"link loss({each}p={float(p):g}) of {called(base)}"
    return LinkLoss(wrapped(base), jnp.float32(p), directed, weights, name)


@checked
def bursty_loss(
    base: Network,
    to_bad: Any,
    to_good: Any,
    *,
    good: Any = 0.0,
    bad: Any = 1.0,
    directed: bool = False,
    weights: Missing = "own",
) -> BurstyLoss:
    """Messages are lost in bursts: every link of `base` is a Gilbert-Elliott channel.

    A good link turns bad from one round to the next with probability `to_bad`, a bad one good with `to_good`, so that
    bad times last 1 / to_good rounds in the mean, and links are bad for a share to_bad / (to_bad + to_good) of all
    rounds, the first round included. A message is lost with probability `good` on good links and `bad` on bad ones. The
    two ways of a link share its state and its losses, unless `directed`. Everything else is as in `link_loss`. E.
    Gilbert, "Capacity of a Burst-Noise Channel", 1960; E. Elliott, "Estimates of Error Rates for Codes on Burst-Noise
    Channels", 1963.

    Raises `ValueError` for to_bad and to_good outside (0, 1] or both 1, and good and bad outside [0, 1].
    """
    base_is_network(base)
    levels = chain.check(to_bad=to_bad, to_good=to_good)
    for name, value in (("good", good), ("bad", bad)):
        _check_loss(most=1.0, **{name: value})
    checks.one_of((False, True), directed=directed)
    checks.one_of(get_args(Missing), weights=weights)
    each = "each way, " if directed else ""
    name = f"bursty loss({each}to_bad={float(to_bad):g}, to_good={float(to_good):g}) of {called(base)}"
    loss = jnp.asarray([good, bad], jnp.float32)
    return BurstyLoss(
        wrapped(base), jnp.float32(to_bad), jnp.float32(to_good), loss, levels, directed, weights, name=name
    )


def _check_loss(most: float = np.nextafter(1.0, 0.0), **named: Any) -> None:
    """Refuse what is no probability that a message is lost."""
    for name, p in named.items():
        checks.not_negative(**{name: p})
        checks.shape((), "It is one number for all links.", **{name: p})
        if float(p) > most:
            above = "[0, 1]" if most == 1 else "[0, 1)"
            raise ValueError(
                f"Expected {name} in {above}, got {name} = {p!r}. It is the probability that a message is lost."
            )
