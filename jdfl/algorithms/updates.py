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
from typing import Any, ClassVar, Literal

import jax.numpy as jnp
from jax import Array

from jdfl.algorithms.gradients import Gradients
from jdfl.algorithms.round import Round
from jdfl.base import checks, struct
from jdfl.base.settings import Positive
from jdfl.base.streams import Stream
from jdfl.devices import nodes
from jdfl.privacy import (
    Gaussian,
    GaussianEvent,
    Guarantee,
    Mechanism,
    central_multiplier,
    check_mechanism,
    clipped,
    stretch,
)
from jdfl.privacy.flow import bounded
from jdfl.privacy.mechanisms import event_of, is_exact
from jdfl.problems import Problem

_NOISE = Stream("updates.noise", "private")


@struct.dataclass
class Updates:
    """Clipping and noise of what a node has learnt in a round, instead of noise on gradients.

    Updates no longer than `clip`, with noise: a node's whole data are protected.

    `trust="local"` hides every node's update from everybody. `trust="central"` divides Gaussian noise by the root of
    the number of nodes that take part, so that their mean has the noise that a trusted server would add to it; single
    messages then hide little, so that only a server that shows nothing but means can be claimed to protect. A client
    that takes part can subtract its own noise from the mean: what is claimed counts that of the others alone. A mean of
    Laplace variables is no Laplace variable, so that other mechanisms are refused there.

    Neighbouring data sets differ in one node's whole data that is replaced, or (`adjacency="add-remove"`) whose update
    counts or is zero.
    """

    kind: ClassVar[str] = "clipped"
    clip: Positive
    """Largest length of an update."""
    mechanism: Mechanism | None = None
    """Noise on updates; none: only clipped."""
    norm: Literal["l1", "l2", "linf"] = struct.field(pytree_node=False, default="l2")
    """In which an update's length is measured."""
    adjacency: Literal["replace-one", "add-remove"] = struct.field(pytree_node=False, default="replace-one")
    """What neighbouring data sets differ in: a node's data replaced, or its update there or zero."""
    trust: Literal["local", "central"] = struct.field(pytree_node=False, default="local")
    """local: every message hides the node; central: only means over all nodes do."""

    def check(self, gradients: Gradients) -> None:
        """Refuse settings out of range, and noise in two places: ValueError naming them.

        Refused are what is no mechanism, noise other than Gaussian with trust = "central", and noise on `gradients`
        beside that on updates, for they protect different things. Without a mechanism everything goes.
        """
        if self.mechanism is None:
            return
        check_mechanism(self.mechanism)
        if self.trust == "central" and is_exact(self.mechanism):
            raise ValueError(
                "Expected trust = 'local' with exact noise, got 'central'. A mean of parts is computed in floating "
                "point, so that its last bits are not hidden; use Gaussian(...) or trust='local'."
            )
        if self.trust == "central" and not isinstance(self.mechanism, Gaussian):
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
        """What is made of the nodes' update [m, n].

        `clients` of all nodes take part in the round, and nobody sees more than their mean (None: all take part, and
        messages are seen).
        """
        short = bounded(clipped(update, self.norm, self.clip))
        if self.mechanism is None:
            return short
        scale, mechanism = jnp.asarray(self.sensitivity(update.shape[1]), update.dtype), self.mechanism
        if self.trust == "central":
            part = math.sqrt(clients or nodes.count(update.shape[0]))
            assert isinstance(mechanism, Gaussian)  # check
            mechanism = replace(mechanism, multiplier=mechanism.multiplier / part)
        return round.noisy(mechanism, short, scale, _NOISE, lambda problem, _: self.guarantee(problem, clients))

    def sensitivity(self, n: int) -> Any:
        """The most that neighbouring data change an update of n entries, in the mechanism's norm.

        2 clip where a node's data are replaced, clip where its update is there or not, times `jdfl.privacy.stretch`
        where the norms of clip and noise differ. It is 0.0 without a mechanism.
        """
        if self.mechanism is None:
            return 0.0
        change = 2.0 if self.adjacency == "replace-one" else 1.0
        if is_exact(self.mechanism):  # of the clip, n / 2 + 16 roundings, and of what noise is added to
            change += (n + 40) * float(jnp.finfo(jnp.float32).eps)
        return change * stretch(self.norm, self.mechanism.norm, n) * self.clip

    def guarantee(self, problem: Problem, clients: int | None = None) -> Guarantee:
        """What may be said of noisy updates: a node's whole data are protected. It is for updates with a mechanism.

        Args:
            problem: The problem, of whose n parameters an update is.
            clients: How many clients take part where only means over them are ever seen by others; None: messages are
                seen. With trust = "central" the noise that counts is that of the other clients
                (`jdfl.privacy.central_multiplier`), and nothing is claimed for one client or for messages that are
                seen.
        """
        assert self.mechanism is not None
        told = Guarantee(
            unit="node",
            adjacency=self.adjacency,
            observer="all messages",
            sensitivity=float(self.sensitivity(problem.n)),
            enforced_by=f"{self.norm} clipping of every node's update to {float(self.clip):g}",
            claimed=True,
            reason="every update is clipped and noisy, and everything else is computed from these and from messages",
            event=event_of(self.mechanism, problem.n),
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
    """The parameters [m, n] after local work, of clipped and noisy updates if so wanted.

    Args:
        updates: How they are clipped and noisy; None: the work is kept as it is.
        before: Parameters before [m, n] the local work.
        after: Parameters after [m, n] it.
        round: The round, which counts a release of noise.
        clients: As for `Updates`.
    """
    return after if updates is None else before + updates(after - before, round, clients)
