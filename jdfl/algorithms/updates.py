"""Noise on the updates of a round instead of on gradients, which protects a node's whole data.

H. B. McMahan, D. Ramage, K. Talwar, L. Zhang: Learning Differentially Private Recurrent Language Models, 2018, without
its sampling of users.

A node's update, its parameters after local work minus those before, is clipped to `clip` and gets noise; the node
itself continues from the noisy parameters. The parameters before the next update therefore depend on noisy updates
only, and replacing a node's data changes the next update by at most 2 clip, regardless of the number of steps and the
optimizer's state.

Axes: m nodes, n parameters.
"""

import math
from dataclasses import replace
from typing import Any, ClassVar, Literal, cast

import jax.numpy as jnp
from jax import Array

from jdfl.algorithms.gradients import Gradients
from jdfl.algorithms.round import Round
from jdfl.base import checks, marking, struct
from jdfl.base.settings import Positive
from jdfl.base.streams import Stream
from jdfl.devices import nodes
from jdfl.privacy.analytic import central_multiplier
from jdfl.privacy.clipping import clipped, stretch
from jdfl.privacy.guarantee import Guarantee
from jdfl.privacy.mechanisms import Gaussian, GaussianEvent, Mechanism, check_mechanism, event_of, is_exact
from jdfl.problems import Problem

_NOISE = Stream("updates.noise", "private")


@struct.dataclass
class Updates:
    """Clipping and noise of a node's update in a round, instead of noise on gradients.

    Updates with norm at most `clip`, with noise, protect a node's whole data.

    `trust="local"` hides every node's update from all observers. `trust="central"` divides Gaussian noise by the root
    of the number of nodes that take part, so their mean has the noise that a trusted server would add. Single messages
    then hide little, so protection can be claimed only if the server reveals nothing but means. A client that takes
    part can subtract its own noise from the mean: the claim counts only the noise of the others. A mean of Laplace
    variables is not a Laplace variable, so other mechanisms are refused there.

    Neighbouring datasets differ in one node's whole data that is replaced, or (`adjacency="add-remove"`) whose update
    counts or is zero.
    """

    kind: ClassVar[str] = "clipped"
    clip: Positive
    """Largest norm of an update."""
    mechanism: Mechanism | None = None
    """Noise on updates; None: only clipping."""
    norm: Literal["l1", "l2", "linf"] = struct.field(pytree_node=False, default="l2")
    """The norm of an update that is clipped."""
    adjacency: Literal["replace-one", "add-remove"] = struct.field(pytree_node=False, default="replace-one")
    """Neighbouring datasets differ in a node's data: replaced, or with an update that counts or is zero."""
    trust: Literal["local", "central"] = struct.field(pytree_node=False, default="local")
    """local: every message hides the node; central: only means over all nodes do."""

    def check(self, gradients: Gradients | None) -> None:
        """Raise ValueError for settings out of range, and for noise in two places.

        Refused are objects that are not mechanisms, noise other than Gaussian with trust = "central", and noise on both
        `gradients` and updates, which protect different units. Without a mechanism everything is accepted.
        """
        if self.mechanism is None:
            return
        check_mechanism(self.mechanism)
        if self.trust == "central" and is_exact(self.mechanism):
            raise ValueError(
                "Expected trust = 'local' with exact noise, got 'central'. A mean of parts is computed in floating "
                "point, which does not hide its last bits; use Gaussian(...) or trust='local'."
            )
        if self.trust == "central" and not isinstance(self.mechanism, Gaussian):
            raise ValueError(
                f"Expected Gaussian noise with trust = 'central', got mechanism = {self.mechanism!r}. Only with "
                "Gaussian noise does a mean of parts have the accounted distribution; use Gaussian(...), trust='local'."
            )
        if gradients is not None and gradients.mechanism is not None:
            raise ValueError(
                f"Expected noise on gradients or on updates, got both: {gradients.mechanism!r} and {self.mechanism!r}. "
                "They protect different units (records and nodes); leave one out."
            )

    def __call__(self, update: Array, round: Round, clients: int | None = None) -> Array:
        """The clipped and noisy version of the nodes' update [m, n].

        `clients` of all nodes take part in the round, and only their mean is revealed (None: all take part, and
        messages are seen).
        """
        short = marking.clipped(clipped(update, self.norm, self.clip), update, None, None, self.bound, whole=True)
        if self.mechanism is None:
            return short
        scale, mechanism = jnp.asarray(self.sensitivity(update.shape[1]), update.dtype), self.mechanism
        scale = marking.scale(scale, None, None if self.bound is None else marking.static(self))
        if self.trust == "central":
            part = math.sqrt(clients or nodes.count(update.shape[0]))
            gaussian = cast(Gaussian, mechanism)  # check refuses others
            mechanism = replace(gaussian, multiplier=gaussian.multiplier / part)
        return round.noisy(mechanism, short, scale, _NOISE, lambda problem, _: self.guarantee(problem, clients))

    @property
    def bound(self) -> Any:
        """What is clipped, and how, as for `Gradients.bound`."""
        known = marking.plain(self, Updates) and marking.static(self.clip) is not None
        return ("batch", self.norm, float(self.clip)) if known else None

    def fits(self, bound: Any) -> bool:
        """Whether `sensitivity` is that of a value that is clipped to `bound`."""
        return self.bound == bound

    def sensitivity(self, n: int) -> Any:
        """The largest change of an update of n entries between neighbouring datasets, in the mechanism's norm.

        It is 2 clip where a node's data are replaced and clip where its update counts or is zero, times
        `jdfl.privacy.stretch` where the norms of clip and noise differ. It is 0.0 without a mechanism.
        """
        if self.mechanism is None:
            return 0.0
        change = 2.0 if self.adjacency == "replace-one" else 1.0
        if is_exact(self.mechanism):  # n / 2 + 16 roundings of the clip, and of the sum that noise is added to
            change += (n + 40) * float(jnp.finfo(jnp.float32).eps)
        return change * stretch(self.norm, self.mechanism.norm, n) * self.clip

    def guarantee(self, problem: Problem, clients: int | None = None) -> Guarantee:
        """The guarantee of noisy updates, for a node's whole data; for updates with a mechanism.

        Args:
            problem: The problem; an update has its n parameters.
            clients: The number of clients that take part where others only ever see means over them; None: messages are
                seen. With trust = "central" only the noise of the other clients counts
                (`jdfl.privacy.central_multiplier`), and nothing is claimed for one client or for messages that are
                seen.
        """
        assert self.mechanism is not None
        claim = Guarantee(
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
            return claim
        if clients == 1:
            return replace(
                claim,
                claimed=False,
                reason="the mean over one client has only that client's noise, which it can subtract",
                remedy='Let more clients take part, or use trust="local".',
            )
        if clients is not None:
            assert isinstance(claim.event, GaussianEvent)  # check
            left = GaussianEvent(central_multiplier(claim.event.noise_multiplier, clients))
            observer = (
                "the server's models, including a client that subtracts its own noise (the server is trusted and "
                "sees updates with little noise)"
            )
            return replace(claim, observer=observer, event=left)
        return replace(
            claim,
            claimed=False,
            observer="the nodes' average alone",
            reason="neighbours see messages with the noise of a mean, not of one node",
            remedy='Use trust="local", or FedAvg.',
        )


def check_updates(updates: Updates | None, gradients: Gradients | None) -> None:
    """Raise ValueError for updates that do not fit these gradients."""
    if updates is not None:
        checks.able(("guarantee", "sensitivity"), "jdfl.Updates(...)", "None leaves them unchanged.", updates=updates)
        updates.check(gradients)


def released(updates: Updates | None, before: Array, after: Array, round: Round, clients: int | None = None) -> Array:
    """The parameters [m, n] after local work, with clipped and noisy updates if requested.

    Args:
        updates: How updates are clipped and noised; None: the work is kept unchanged.
        before: Parameters before [m, n] the local work.
        after: Parameters after [m, n] the local work.
        round: The round, which counts a release of noise.
        clients: As for `Updates`.
    """
    return after if updates is None else before + updates(after - before, round, clients)
