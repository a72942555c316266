# pyright: reportAssignmentType=false, reportUnknownMemberType=false
"""DO-ADP and the private methods that its paper compares it with."""

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from jdfl import algorithms
from jdfl.config.codec import Codecs, Dense, Sparse
from jdfl.config.family import Messages
from jdfl.config.push_sum import Sampling

_WHOLE = ("batch", "sampling", "clip", "per", "norm")
_whole = algorithms.DPDO().gradients


@dataclass(frozen=True, kw_only=True)
class DOADP(Messages):
    """Nodes wake at random, and send the largest changes of momentum SGD with noisy gradients."""

    kind: ClassVar[str] = "do-adp"
    algorithm: ClassVar[Any] = algorithms.DOADP
    lr: float = algorithms.DOADP.lr
    """Length of the steps."""
    batch: int | None = 1
    """Examples of one gradient; None: all of the node's."""
    codec: Codecs = Sparse(share=0.3)  # noqa: RUF009 (frozen)
    """What travels on a wire."""
    gamma: float = algorithms.DOADP.gamma
    """Step towards the neighbours' public copies, in (0, 1]."""
    beta: float = algorithms.DOADP.beta
    """Momentum, in [0, 1)."""
    p: float = algorithms.DOADP.p
    """Chance of a node to be active in a round, in (0, 1]."""
    block: int | None = algorithms.DOADP.block
    """Active nodes at a time, no others being computed; none: all nodes at once."""
    start: Literal["x", "zero"] = algorithms.DOADP.start
    """Where the public copies start: at the parameters, or at zero."""
    delta0: float = algorithms.DOADP.delta0
    """Of the paper's Theorem 1: decides its noise and what it claims, with --privacy.accounting paper."""


@dataclass(frozen=True, kw_only=True)
class DPDDA(Messages):
    """Dual averaging of which some nodes at a time take part with noisy gradients, while all mix."""

    kind: ClassVar[str] = "dp-dda"
    algorithm: ClassVar[Any] = algorithms.DPDDA
    batch: int | None = 1
    """Examples of one gradient; None: all of the node's."""
    p: float = algorithms.DPDDA.p
    """Chance of a node to be active in a round, in (0, 1]."""
    mu: float | None = algorithms.DPDDA.mu
    """Modulus of strong convexity, which weights and steps then rely on; none: those of the convex case."""
    order: Literal["mix first", "adapt first"] = algorithms.DPDDA.order
    """Add gradients to what has been mixed, or mix what they have been added to."""
    block: int | None = algorithms.DPDDA.block
    """Active nodes at a time, no others being computed; none: all nodes at once."""


@dataclass(frozen=True, kw_only=True)
class _Whole:
    algorithm: ClassVar[Any]
    batch: int | None = _whole.batch
    """Examples of one gradient; None: all of the node's."""
    sampling: Sampling = _whole.sampling
    """How a batch is drawn: each example on its own, different ones, every example by chance, or all in turn, shuffled
    for every pass or in the order of the data."""
    clip: float | None = _whole.clip
    """Largest length of a node's gradient; None: as it is."""
    per: Literal["example", "batch"] = _whole.per
    """Whose gradient is clipped before the node's is: every example's, or none but the node's."""
    norm: Literal["l1", "l2", "linf", "entries"] = _whole.norm
    """In which a gradient's length is measured; entries: every entry is cut off at clip."""
    codec: Codecs = Dense()  # noqa: RUF009 (frozen)
    """What travels on a wire."""

    def build(self) -> Any:
        """The algorithm."""
        given = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        gradients = algorithms.Gradients(**{name: given.pop(name) for name in _WHOLE})
        return self.algorithm(gradients=gradients, **given | {"codec": self.codec.build()})


@dataclass(frozen=True, kw_only=True)
class DPDO(_Whole):
    """Projected gradient steps and Laplace noise on messages that both fade: one epsilon for any number of rounds."""

    kind: ClassVar[str] = "dpdo"
    algorithm: ClassVar[Any] = algorithms.DPDO
    c: float = algorithms.DPDO.c
    """Length of the first step."""
    q: float = algorithms.DPDO.q
    """By which steps fade from round to round, in (0, 1]."""
    p: float = algorithms.DPDO.p
    """By which noise fades from round to round, in (q, 1)."""
    radius: float | None = algorithms.DPDO.radius
    """Of the ball that parameters stay in; None: they may be anything."""
    epsilon: float | None = algorithms.DPDO.epsilon
    """Pure, of all rounds together, for a node's whole data; None: no noise."""


@dataclass(frozen=True, kw_only=True)
class CPGT(_Whole):
    """Gradient tracking whose noisy messages are compressed differences to public copies."""

    kind: ClassVar[str] = "cpgt"
    algorithm: ClassVar[Any] = algorithms.CPGT
    lr: float = algorithms.CPGT.lr
    """Length of the steps."""
    gamma: float = algorithms.CPGT.gamma
    """Step towards the neighbours' public copies, in (0, 1]."""
    noise_x: float | None = algorithms.CPGT.noise_x
    """Scale of the first Laplace noise on parameters; None: no noise."""
    noise_y: float | None = algorithms.CPGT.noise_y
    """Scale of the first Laplace noise on trackers; None: no noise."""
    decay: float = algorithms.CPGT.decay
    """By which noise fades from round to round, in (0, 1]."""


Private = DOADP | DPDDA | DPDO | CPGT
