"""Noise on what a node has learnt in a round instead of on its gradients: the whole data of a node are protected.

H. B. McMahan, D. Ramage, K. Talwar, L. Zhang: Learning Differentially Private Recurrent Language Models, 2018, without
its sampling of users.

A node's update, its parameters after local work less those before, is shortened to `clip` and gets noise; the node goes
on from the noisy parameters itself. So the parameters before the next update are computed from noisy updates alone, and
another node's worth of data changes the next update by 2 clip at most, however many steps were made and whatever state
optimizers keep.

Axes: m nodes, n parameters.
"""

import math
from dataclasses import replace
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax import Array

from jdfl import checks, struct
from jdfl.algorithms.gradients import Gradients
from jdfl.base import Round
from jdfl.devices import nodes
from jdfl.privacy import (
    GaussianEvent,
    Guarantee,
    Mechanism,
    central_multiplier,
    check_mechanism,
    clipped,
    stretch,
)
from jdfl.problems import Problem
from jdfl.streams import Stream

_NOISE = Stream("updates.noise", "private")


@struct.dataclass
class Updates:
    """Updates no longer than `clip`, with noise.

    `trust="local"` hides every node's update from everybody. `trust="central"` divides Gaussian noise by the root of
    the number of nodes that take part, so that their mean has the noise that a trusted server would add to it; single
    messages then hide little, so that only a server that shows nothing but means can be claimed to protect. A client
    that takes part can subtract its own noise from the mean: what is claimed counts that of the others alone. A mean of
    Laplace variables is no Laplace variable, so that other mechanisms are refused there.

    Neighbouring data sets differ in one node's whole data that is replaced, or (`adjacency="add-remove"`) whose update
    counts or is zero.
    """

    clip: Any = None  # largest length of an update
    mechanism: Mechanism | None = None
    norm: Literal["l1", "l2", "linf"] = struct.field(pytree_node=False, default="l2")  # in which its length is measured
    adjacency: Literal["replace-one", "add-remove"] = struct.field(pytree_node=False, default="replace-one")
    trust: Literal["local", "central"] = struct.field(pytree_node=False, default="local")

    def check(self, gradients: Gradients) -> None:
        """Refuse settings out of range, and noise in two places: ValueError naming them."""
        checks.literals(self)
        if self.clip is None:
            raise ValueError(
                "Expected a clip of the updates, got clip = None. Nothing else bounds what a node changes."
            )
        checks.shape((), "It is one number for all nodes.", clip=self.clip)
        checks.positive(clip=self.clip)
        if self.mechanism is None:
            return
        check_mechanism(self.mechanism)
        if self.trust == "central" and not isinstance(self.mechanism.event(), GaussianEvent):
            raise ValueError(
                f"Expected Gaussian noise with trust = 'central', got mechanism = {self.mechanism!r}. Only of Gaussian "
                "noise is a mean of so many parts the noise that is accounted for; use Gaussian(...) or trust='local'."
            )
        if gradients.mechanism is not None:
            raise ValueError(
                f"Expected noise on gradients or on updates, got both: {gradients.mechanism!r} and {self.mechanism!r}. "
                "They protect different things (records and nodes); leave one out."
            )

    def __call__(self, update: Array, round: Round, clients: int | None = None) -> Array:
        """What is made of the nodes' update [m, n]; `clients` of all nodes (None: all) take part in the round."""
        short = clipped(update, self.norm, self.clip)
        if self.mechanism is None:
            return short
        scale = jnp.asarray(self.sensitivity(update.shape[1]), update.dtype)
        if self.trust == "central":
            scale = scale / math.sqrt(clients or nodes.count(update.shape[0]))
        return jax.vmap(self.mechanism.add, (0, 0, None))(round.keys(_NOISE), short, scale)

    def sensitivity(self, n: int) -> Any:
        """The most that neighbouring data change an update of n entries, in the mechanism's norm."""
        if self.mechanism is None:
            return 0.0
        return (
            (2.0 if self.adjacency == "replace-one" else 1.0) * stretch(self.norm, self.mechanism.norm, n) * self.clip
        )

    def guarantee(self, problem: Problem, *, clients: int | None) -> Guarantee:
        """What may be said; where only means over so many `clients` are ever seen by others (None: messages are)."""
        assert self.mechanism is not None
        told = Guarantee(
            unit="node",
            adjacency=self.adjacency,
            observer="all messages",
            sensitivity=float(self.sensitivity(problem.n)),
            enforced_by=f"{self.norm} clipping of every node's update to {float(self.clip):g}",
            claimed=True,
            reason="every update is clipped and noisy, and everything else is computed from these and from messages",
            event=self.mechanism.event(),
        )
        if self.trust == "local":
            return told
        if clients == 1:
            return replace(
                told,
                claimed=False,
                reason="the mean over one client has that client's noise alone, which it can subtract",
                remedy='Let more clients take part, or use trust="local".',
            )
        if clients is not None:
            assert isinstance(told.event, GaussianEvent)  # check
            left = GaussianEvent(central_multiplier(told.event.noise_multiplier, clients))
            observer = (
                "the server's models, also one that takes part and subtracts its own noise (the server is trusted and "
                "sees updates with little noise)"
            )
            return replace(told, observer=observer, event=left)
        return replace(
            told,
            claimed=False,
            observer="the nodes' average alone",
            reason="neighbours see messages that have the noise of a mean, not of one node",
            remedy='Use trust="local", or FedAvg.',
        )


def check_updates(updates: Updates | None, gradients: Gradients) -> None:
    """ValueError for updates that make no sense beside these gradients."""
    if updates is not None:
        checks.able(("guarantee", "sensitivity"), "jdfl.Updates(...)", "None leaves them as they are.", updates=updates)
        updates.check(gradients)


def released(updates: Updates | None, before: Array, after: Array, round: Round, clients: int | None = None) -> Array:
    """The parameters [m, n] after local work from `before` [m, n] to `after` [m, n].

    They are those of clipped and noisy updates if so wanted; `clients` of all nodes (None: all) take part in the round.
    """
    return after if updates is None else before + updates(after - before, round, clients)


def noisy_releases(updates: Updates | None, gradients: Array | int) -> Array | int:
    """Releases of a node in a round, [] or [m]: those of its `gradients` [m], or its one noisy update."""
    return gradients if updates is None or updates.mechanism is None else 1


def guarantee(
    updates: Updates | None, gradients: Gradients, problem: Problem, *, looks: int = 1, clients: int | None = None
) -> Guarantee:
    """That of the updates where they are noisy, else that of the gradients, with `looks` at one sample.

    `clients`: only means over so many nodes are ever seen by others.
    """
    if updates is None or updates.mechanism is None:
        return gradients.guarantee(problem, looks)
    return updates.guarantee(problem, clients=clients)
