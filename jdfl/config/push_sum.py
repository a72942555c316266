# pyright: reportAssignmentType=false, reportUnknownMemberType=false
"""Algorithms over perturbed push-sum: what their nodes add, and the noise on their messages."""

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from jdfl import algorithms
from jdfl.config.defaults import fields

Sampling = Literal["replacement", "subset", "poisson", "epochs", "in order"]
_gradients = algorithms.PartPSP().gradients
_GRADIENTS = ("batch", "sampling", "clip", "per", "norm")


@dataclass(frozen=True, kw_only=True)
class DPPS:
    """Laplace noise on every message of push-sum."""

    b: float | None = algorithms.DPPS.b
    """Privacy parameter: the larger, the less noise; None: no noise."""
    noise_rate: float = algorithms.DPPS.noise_rate
    """What noise is multiplied by, beside the milestones' decay (gamma_n of the paper)."""
    sensitivity: Literal["certified", "eq22", "real"] = algorithms.DPPS.sensitivity
    """Where the noise's scale comes from: a public bound, the paper's Eq. 22, or the true distances; only the first one
    is a guarantee."""
    constant: float = algorithms.DPPS.constant
    """C' of Eq. 22."""
    contraction: float = algorithms.DPPS.contraction
    """Lambda of Eq. 22, in (0, 1]."""
    failure: float = algorithms.DPPS.failure
    """Chance that the certified bound does not hold in some round."""
    watch: bool = algorithms.DPPS.watch
    """Keep the true distances and the noise's scale of all rounds in the state."""

    def build(self) -> algorithms.DPPS:
        """The library's."""
        return algorithms.DPPS(**fields(self))


@dataclass(frozen=True, kw_only=True)
class _Steps:
    algorithm: ClassVar[Any]
    batch: int | None = _gradients.batch
    """Examples of one gradient; None: all of the node's."""
    sampling: Sampling = _gradients.sampling
    """How a batch is drawn: each example on its own, different ones, every example by chance, or all in turn, shuffled
    for every pass or in the order of the data."""
    clip: float | None = _gradients.clip
    """Largest length of the gradient that is shared; None: as it is."""
    per: Literal["example", "batch"] = _gradients.per
    """Whose gradient is clipped before the node's is: every example's, or none but the node's."""
    norm: Literal["l1", "l2", "linf", "entries"] = _gradients.norm
    """In which a gradient's length is measured; entries: every entry is cut off at clip."""
    dpps: DPPS = DPPS()
    """Noise on messages."""
    milestones: tuple[int, ...] = algorithms.PartPSP.milestones
    """Rounds from which all rates are lower."""
    decay: float = algorithms.PartPSP.decay
    """What rates are multiplied by at every milestone."""

    def build(self) -> Any:
        """The algorithm."""
        given = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        gradients = algorithms.Gradients(**{name: given.pop(name) for name in _GRADIENTS})
        return self.algorithm(gradients=gradients, **given | {"dpps": self.dpps.build()})


@dataclass(frozen=True, kw_only=True)
class PartPSP(_Steps):
    """Push-sum of a part of the parameters, private where messages are noisy; the rest stays with its node."""

    kind: ClassVar[str] = "partpsp"
    algorithm: ClassVar[Any] = algorithms.PartPSP
    lr_shared: float = algorithms.PartPSP.lr_shared
    """Length of the shared parameters' steps."""
    lr_local: float = algorithms.PartPSP.lr_local
    """Length of the local parameters' steps."""


@dataclass(frozen=True, kw_only=True)
class SGP(_Steps):
    """Stochastic gradient push: SGD over directed networks by push-sum."""

    kind: ClassVar[str] = "sgp"
    algorithm: ClassVar[Any] = algorithms.SGP
    lr: float = algorithms.SGP.lr
    """Length of the steps."""


@dataclass(frozen=True, kw_only=True)
class PEDFL(_Steps):
    """Decentralized SGD with Laplace noise on messages: what PartPSP is compared with."""

    kind: ClassVar[str] = "pedfl"
    algorithm: ClassVar[Any] = algorithms.PEDFL
    lr: float = algorithms.PEDFL.lr
    """Length of the steps."""


@dataclass(frozen=True, kw_only=True)
class AverageConsensus:
    """Push-sum of one vector per node, whose mean all are to know."""

    kind: ClassVar[str] = "average-consensus"
    algorithm: ClassVar[Any] = algorithms.AverageConsensus
    clip: float | None = algorithms.AverageConsensus.clip
    """Largest l1 length of a node's vector; None: as it is."""
    dpps: DPPS = DPPS()
    """Noise on messages."""

    def build(self) -> algorithms.AverageConsensus:
        """The algorithm."""
        return algorithms.AverageConsensus(clip=self.clip, dpps=self.dpps.build())


Pushing = PartPSP | SGP | PEDFL | AverageConsensus
