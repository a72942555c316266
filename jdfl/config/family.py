# pyright: reportAssignmentType=false, reportUnknownMemberType=false
"""The decentralized family: every algorithm but CEPS."""

import dataclasses
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal

import optax

from jdfl import algorithms
from jdfl.config.algorithm import Gaussian, Laplace
from jdfl.config.codec import Codecs, Dense, Sparse
from jdfl.config.push_sum import Pushing, Sampling

_OPTIMIZERS = {
    "sgd": None,
    "momentum": partial(optax.sgd, momentum=0.9),
    "nesterov": partial(optax.sgd, momentum=0.9, nesterov=True),
    "adam": optax.adam,
    "adamw": optax.adamw,
    "adagrad": optax.adagrad,
    "rmsprop": optax.rmsprop,
}
_GRADIENTS = ("batch", "sampling", "clip", "per", "norm", "mechanism", "sensitivity", "adjacency", "noisy")
Optimizer = Literal["sgd", "momentum", "nesterov", "adam", "adamw", "adagrad", "rmsprop"]


@dataclass(frozen=True, kw_only=True)
class Updates:
    """A node's work of a round is clipped, and noisy: its whole data are protected."""

    kind: ClassVar[str] = "clipped"
    clip: float
    """Largest length of an update."""
    mechanism: Gaussian | Laplace | None = None
    """Noise on updates; none: only clipped."""
    norm: Literal["l1", "l2", "linf"] = algorithms.Updates.norm
    """In which an update's length is measured."""
    adjacency: Literal["replace-one", "add-remove"] = algorithms.Updates.adjacency
    """What neighbouring data sets differ in: a node's data replaced, or its update there or zero."""
    trust: Literal["local", "central"] = algorithms.Updates.trust
    """local: every message hides the node; central: only means over all nodes do."""

    def build(self) -> algorithms.Updates:
        """The library's."""
        given: dict[str, Any] = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        given |= {"mechanism": None if self.mechanism is None else self.mechanism.build()}
        return algorithms.Updates(**given)


@dataclass(frozen=True, kw_only=True)
class _Descent:
    algorithm: ClassVar[Any]
    lr: float = 0.1
    """Length of the steps."""
    batch: int | None = algorithms.Gradients.batch
    """Examples of one gradient; None: all of the node's."""
    sampling: Sampling = algorithms.Gradients.sampling
    """How a batch is drawn: each example on its own, different ones, every example by chance, or all in turn, shuffled
    for every pass or in the order of the data."""
    clip: float | None = algorithms.Gradients.clip
    """Largest length of a gradient; None: as it is."""
    per: Literal["example", "batch"] = algorithms.Gradients.per
    """Whose gradient is clipped: every example's, or that of all that are looked at."""
    norm: Literal["l1", "l2", "linf", "entries"] = algorithms.Gradients.norm
    """In which a gradient's length is measured; entries: every entry is cut off at clip."""
    mechanism: Gaussian | Laplace | None = None
    """Noise on gradients; none: exact ones."""
    sensitivity: float | None = algorithms.Gradients.sensitivity
    """Assumed sensitivity that scales the noise of gradients that are not clipped; nothing enforces it."""
    adjacency: Literal["replace-one", "add-remove"] = algorithms.Gradients.adjacency
    """What neighbouring data sets differ in: a record replaced, or there or not."""
    noisy: Literal["always", "communicating"] = algorithms.Gradients.noisy
    """Which gradients are noisy: all, or those that follow an exchange of messages."""

    def build(self) -> Any:
        """The algorithm."""
        given = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        oracle = {name: given.pop(name) for name in _GRADIENTS}
        if self.mechanism is not None:
            oracle["mechanism"] = self.mechanism.build()
        if "codec" in given:
            given["codec"] = given["codec"].build()
        if given.get("updates") is not None:
            given["updates"] = given["updates"].build()
        if "optimizer" in given:
            given["optimizer"] = _OPTIMIZERS[given["optimizer"]]
        return self.algorithm(gradients=algorithms.Gradients(**oracle), **given)


@dataclass(frozen=True, kw_only=True)
class Messages(_Descent):
    """Gradients, and a codec."""

    codec: Codecs = Dense()  # noqa: RUF009 (frozen)
    """What travels on a wire."""


@dataclass(frozen=True, kw_only=True)
class _Optimized(Messages):
    optimizer: Optimizer = "sgd"
    """Who makes steps of gradients; momentum is 0.9."""


@dataclass(frozen=True, kw_only=True)
class DPSGD(_Optimized):
    """Decentralized SGD: mix with the neighbours, step down the own gradient."""

    kind: ClassVar[str] = "d-psgd"
    algorithm: ClassVar[Any] = algorithms.DPSGD
    updates: Updates | None = None
    """Clipping and noise of what a node has learnt in a round, instead of noise on gradients."""
    period: int = algorithms.DPSGD.period
    """Rounds from one exchange of messages to the next."""
    order: Literal["mix first", "adapt first"] = algorithms.DPSGD.order
    """Mix and step from where the node was, or step and mix what comes out."""


@dataclass(frozen=True, kw_only=True)
class LocalOnly(_Descent):
    """No communication: every node learns from its own data."""

    kind: ClassVar[str] = "local-only"
    algorithm: ClassVar[Any] = algorithms.LocalOnly
    optimizer: Optimizer = "sgd"
    """Who makes steps of gradients; momentum is 0.9."""
    train: Literal["all", "local"] = algorithms.LocalOnly.train
    """Which parameters learn: all, or those that the problem does not mean to be shared."""


@dataclass(frozen=True, kw_only=True)
class DFedAvgM(Messages):
    """Local steps with momentum, then mixing; quantised with public copies."""

    kind: ClassVar[str] = "dfedavgm"
    algorithm: ClassVar[Any] = algorithms.DFedAvgM
    updates: Updates | None = None
    """Clipping and noise of what a node has learnt in a round, instead of noise on gradients."""
    theta: float = algorithms.DFedAvgM.theta
    """Momentum of the local steps, which starts anew in every round."""
    local_steps: int = algorithms.DFedAvgM.local_steps
    """Gradient steps before each exchange of messages."""
    quantised: bool = algorithms.DFedAvgM.quantised
    """Send differences to public copies instead of the parameters."""


@dataclass(frozen=True, kw_only=True)
class DFedSAM(Messages):
    """Sharpness-aware local steps, then mixing, once or several times."""

    kind: ClassVar[str] = "dfedsam"
    algorithm: ClassVar[Any] = algorithms.DFedSAM
    updates: Updates | None = None
    """Clipping and noise of what a node has learnt in a round, instead of noise on gradients."""
    rho: float = algorithms.DFedSAM.rho
    """How far up the gradient is taken."""
    local_steps: int = algorithms.DFedSAM.local_steps
    """Steps of two gradients each before the messages."""
    gossip_steps: int = algorithms.DFedSAM.gossip_steps
    """Exchanges of messages in a round."""


@dataclass(frozen=True, kw_only=True)
class DCD(Messages):
    """D-PSGD that sends compressed differences to exact replicas."""

    kind: ClassVar[str] = "dcd-psgd"
    algorithm: ClassVar[Any] = algorithms.DCD


@dataclass(frozen=True, kw_only=True)
class CHOCO(_Optimized):
    """Decentralized SGD with compressed differences to public copies and any codec that contracts."""

    kind: ClassVar[str] = "choco-sgd"
    algorithm: ClassVar[Any] = algorithms.CHOCO
    gamma: float = algorithms.CHOCO.gamma
    """Step towards the neighbours' public copies, in (0, 1]."""
    local_steps: int = algorithms.CHOCO.local_steps
    """Gradient steps before each exchange of messages."""
    order: Literal["adapt first", "mix first"] = algorithms.CHOCO.order
    """Mix the copies that were just heard (2019), or those of the round before (2020)."""


@dataclass(frozen=True, kw_only=True)
class MATCHA(_Optimized):
    """Decentralized SGD over random matchings; use it with --network matcha."""

    kind: ClassVar[str] = "matcha"
    algorithm: ClassVar[Any] = algorithms.MATCHA
    local_steps: int = algorithms.MATCHA.local_steps
    """Gradient steps before each exchange of messages."""


@dataclass(frozen=True, kw_only=True)
class DSGT(Messages):
    """Gradient tracking; clipped and noisy it is DP-DSGT."""

    kind: ClassVar[str] = "dsgt"
    algorithm: ClassVar[Any] = algorithms.DSGT


@dataclass(frozen=True, kw_only=True)
class EXTRA(Messages):
    """Exact first-order algorithm: the optimum itself with constant steps."""

    kind: ClassVar[str] = "extra"
    algorithm: ClassVar[Any] = algorithms.EXTRA


@dataclass(frozen=True, kw_only=True)
class NIDS(Messages):
    """Exact, with steps whose length does not depend on the network."""

    kind: ClassVar[str] = "nids"
    algorithm: ClassVar[Any] = algorithms.NIDS


@dataclass(frozen=True, kw_only=True)
class ExactDiffusion(Messages):
    """Exact: adapt, correct, combine."""

    kind: ClassVar[str] = "exact-diffusion"
    algorithm: ClassVar[Any] = algorithms.ExactDiffusion


@dataclass(frozen=True, kw_only=True)
class IHT(Messages):
    """D-PSGD that keeps the s largest entries: the sparse baseline for CEPS."""

    kind: ClassVar[str] = "iht-d-psgd"
    algorithm: ClassVar[Any] = algorithms.IHT
    codec: Codecs = Sparse()  # noqa: RUF009 (frozen)
    """What travels on a wire."""
    s: int = algorithms.IHT.s
    """Nonzeros of every node's parameters."""
    period: int = algorithms.IHT.period
    """Rounds from one exchange of messages to the next."""


@dataclass(frozen=True, kw_only=True)
class FedAvg(_Optimized):
    """A server averages what clients learn: the centralized yardstick, which needs no network."""

    kind: ClassVar[str] = "fedavg"
    algorithm: ClassVar[Any] = algorithms.FedAvg
    updates: Updates | None = None
    """Clipping and noise of what a node has learnt in a round, instead of noise on gradients."""
    local_steps: int = algorithms.FedAvg.local_steps
    """Gradient steps of a client in a round."""
    fraction: float = algorithms.FedAvg.fraction
    """Share of the clients that take part in a round."""
    weighting: Literal["equal", "examples"] = algorithms.FedAvg.weighting
    """Whether clients count alike or by their numbers of examples."""


Gossiping = (
    DPSGD | LocalOnly | DFedAvgM | DFedSAM | DCD | CHOCO | MATCHA | DSGT | EXTRA | NIDS | ExactDiffusion | IHT | FedAvg
)
Family = Gossiping | Pushing
