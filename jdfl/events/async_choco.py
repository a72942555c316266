"""CHOCO-SGD and DO-ADP without a common clock: public copies that change one node at a time.

The methods are those of `jdfl.algorithms.choco` (order of 2020) and `jdfl.algorithms.doadp`, whose papers have rounds;
how they run without is ours. Whenever node i has finished a gradient,

    CHOCO     h_i =  x_i - lr g_i(x_i)
    DO-ADP    m_i <- g_i(x_i) + theta_i + beta m_i,   h_i = x_i - lr m_i,    theta_i noise
    both      x_i <- h_i + gamma sum_j W_ij (xhat_j - xhat_i)
              xhat_i <- xhat_i + C(x_i - xhat_i),     sent to all neighbours, who have it at once

A node is active when its clock says so: with equal clocks all nodes are, one after another. DO-ADP's probability p has
no part in it, and between two activations the momentum does not decay. What is sent takes no time after the event: a
clock with latency waits for it before the node's next gradient.

Privacy: all messages are computed from noisy clipped gradients, and observers see who sends when. Random activation
amplifies nothing.

Axes: m nodes, b events, n parameters.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jax import Array

from jdfl.algorithms.algorithm import FIXED_SYMMETRIC, Codes
from jdfl.algorithms.choco import warn_of_gamma
from jdfl.algorithms.gradients import Gradients
from jdfl.algorithms.round import Round
from jdfl.base import struct
from jdfl.base.settings import Fraction, Momentum, Provenance, StepSize
from jdfl.codecs import Codec, Sparse
from jdfl.events import faults, timeline
from jdfl.events.event import Event, Neighbours
from jdfl.events.method import AsyncMethod, Tables, start
from jdfl.events.timeline import Events, Kind, Touch
from jdfl.network import Network, Timed
from jdfl.problems import Problem

_HATS = (Touch("hat", "rw"), Touch("hat", "r", many=True))


class _Copies(AsyncMethod):
    """What both have in common: public copies."""

    needs: ClassVar[dict[str, bool]] = FIXED_SYMMETRIC
    codes: ClassVar[Codes] = "contracting"
    tuned: ClassVar[tuple[str, ...]] = ("lr", "gamma")
    lr: Any
    gamma: Any
    codec: Any

    def check(self, problem: Problem, network: Network) -> None:
        """Raise ValueError for settings, codecs and networks that the method cannot use."""
        super().check(problem, network)
        delta = self.codec.contraction(problem.n, problem.n)
        assert delta is not None  # a codec with a contraction factor
        warn_of_gamma(self.codec, float(self.gamma), delta)

    def tables(self, round: Round, sizes: Mapping[str, int]) -> Tables:
        """Models, and public copies of them."""
        return {"node": start(round), "hat": start(round)}

    def events(self, network: Timed, key: Array, seconds: float) -> Events:
        """Every node finishes one gradient after another."""
        senders, mask = timeline.hears(faults.links(network))
        own = self.kinds[0].single
        each = 8 * (own + 2 + senders.shape[1])
        found = timeline.wakes(network, key, seconds, each=max(timeline.BYTES, each))
        own = np.repeat(found.actor[:, None], own, axis=1)
        read = np.where(mask, senders, -1)[found.actor]
        return replace(found, rows=np.concatenate([own, read], axis=1))

    def visible(self, state: Any) -> Array:
        """The public copies [m, n]: the sum of all messages."""
        return state["hat"]

    def moved(self, h: Array, hat: Array, others: Neighbours, event: Event) -> tuple[Array, Array]:
        """The new models and public copies [b, n] after the steps to h [b, n]."""
        x = h + self.gamma * others.pulled(hat)
        event.combine()
        return x, event.publish(x, onto=hat)


@struct.dataclass
class AsyncCHOCO(_Copies):
    """CHOCO-SGD without a common clock: nodes send compressed differences whenever they have a gradient."""

    kind: ClassVar[str] = "async-choco"
    provenance: ClassVar[Provenance] = ("from memory",)
    title: ClassVar[str] = "asynchronous CHOCO-SGD"
    kinds: ClassVar[tuple[Kind, ...]] = (Kind("wake", (Touch("node", "rw"), *_HATS)),)
    lr: StepSize = 0.1
    gamma: Fraction = 0.1
    """Step size towards the neighbours' public copies, in (0, 1]."""
    codec: Codec = Sparse(share=0.1)

    def handle(self, kind: str, rows: tuple[Any, ...], event: Event) -> tuple[Any, ...]:
        """Take a step, move towards the copies, and send."""
        x, hat, others = rows
        x, hat = self.moved(x - self.lr * self.gradients(x, event.at()), hat, others, event)
        return x, hat, None


@struct.dataclass
class AsyncDOADP(_Copies):
    """DO-ADP without a common clock (ours): noisy momentum and compressed differences, whenever a node is active."""

    kind: ClassVar[str] = "async-do-adp"
    provenance: ClassVar[Provenance] = ("paper read",)
    title: ClassVar[str] = "asynchronous DO-ADP"
    kinds: ClassVar[tuple[Kind, ...]] = (
        Kind("wake", (Touch("node", "rw"), Touch("momentum", "rw", own=True), *_HATS)),
    )
    lr: StepSize = 0.001
    gamma: Fraction = 0.05
    """Step size towards the neighbours' public copies, in (0, 1]."""
    beta: Momentum = 0.15
    """Momentum, in [0, 1)."""
    gradients: Gradients = Gradients(batch=1)
    codec: Codec = Sparse(share=0.3)

    def tables(self, round: Round, sizes: Mapping[str, int]) -> Tables:
        """Models, public copies of them, and momenta."""
        found = super().tables(round, sizes)
        return {**found, "momentum": jnp.zeros_like(found["node"])}

    def handle(self, kind: str, rows: tuple[Any, ...], event: Event) -> tuple[Any, ...]:
        """Take a step with momentum, move towards the copies, and send."""
        x, momentum, hat, others = rows
        momentum = self.gradients(x, event.at()) + self.beta * momentum
        x, hat = self.moved(x - self.lr * momentum, hat, others, event)
        return x, momentum, hat, None
