"""Problems: what the nodes learn."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from jdfl import problems
from jdfl.config.defaults import defaults, fields
from jdfl.problems import Problem

Precision = Literal["float32", "float64"]
DataName = Literal[
    "qsar",
    "a9a",
    "w8a",
    "mushrooms",
    "phishing",
    "news20",
    "real-sim",
    "epsilon",
    "mnist",
    "fashion_mnist",
    "cifar10",
    "breast_cancer",
    "digits",
    "realsim_like",
    "epsilon_like",
]
ImageName = Literal["digits", "mnist", "fashion_mnist", "cifar10"]
ModelName = Literal["mlp", "cnn", "resnet18", "vit", "cnn3"]
PartitionName = Literal["iid", "dirichlet", "shards", "clients"]

_example1 = defaults(problems.example1)
_classification = defaults(problems.classification)
_neural = defaults(problems.neural_classification)


@dataclass(frozen=True, kw_only=True)
class Example1:
    """Linear regression with a sparse truth, drawn at random (Example 1 of the CEPS paper)."""

    kind: ClassVar[str] = "example1"
    m: int = _example1.m
    """Number of nodes."""
    n: int = _example1.n
    """Number of parameters."""
    s: int = _example1.s
    """Nonzeros of the true parameters."""
    rows: tuple[int, int] = _example1.rows
    """Fewest and most examples of a node."""
    noise: float = _example1.noise
    """Standard deviation of the noise on the targets."""
    seed: int = _example1.seed
    """Seed of the data."""
    dtype: Precision = "float32"
    """Type of all numbers; float64 needs JAX_ENABLE_X64=1."""
    storage: Literal["stored", "generated"] = _example1.storage
    """Whether examples lie in memory or are drawn anew whenever they are looked at."""

    public: str | None = None
    """What of the data is known anyway, names with commas: standardise, holdout, partition, curvature, tuning, stop.
    A privacy report lists it; what else enters without noise leaves no epsilon."""

    def build(self) -> Problem:
        """The problem."""
        return problems.example1(**{name: value for name, value in fields(self).items() if name != "public"}).declared(
            *_names(self.public)
        )


@dataclass(frozen=True, kw_only=True)
class Classification:
    """Logistic or softmax regression on a real data set, its examples split over the nodes."""

    kind: ClassVar[str] = "classification"
    data: DataName = "breast_cancer"
    """The data set. breast_cancer, digits, realsim_like, epsilon_like are always there, JDFL_DATA names the folder of
    the others' files."""
    m: int = _example1.m
    """Number of nodes."""
    partition: PartitionName = _classification.partition
    """How the nodes share the examples: evenly, by Dirichlet(alpha) shares of every class, sorted by class, or every
    node those of one client."""
    alpha: float = _classification.alpha
    """Of the Dirichlet partition: small values give nodes of few classes."""
    shards_per_node: int = _classification.shards_per_node
    """Of the partition by class: pieces of one class, mostly, that a node gets."""
    clients: str | None = _classification.clients
    """Of the partition by clients: a text file with the client of every training example."""
    penalty: float = _classification.penalty
    """Weight of the squared norm in the objective (halved)."""
    test_fraction: float = _classification.test_fraction
    """Share of every class held out for testing, where the data set has no test set of its own."""
    seed: int = _classification.seed
    """Seed of the split."""
    intercept: bool = _classification.intercept
    """Add a constant feature."""
    binary: bool = _classification.binary
    """Digits: odd against even instead of ten classes."""
    sparse: bool | None = _classification.sparse
    """Keep rows sparse; none: as the data set has them, which is sparse for text."""
    dtype: Precision = "float32"
    """Type of all numbers; float64 needs JAX_ENABLE_X64=1."""

    public: str | None = None
    """What of the data is known anyway, names with commas: standardise, holdout, partition, curvature, tuning, stop.
    A privacy report lists it; what else enters without noise leaves no epsilon."""

    def build(self) -> Problem:
        """The problem; FileNotFoundError for a data set whose file is not there."""
        given: dict[str, Any] = fields(self) | {
            "clients": _clients(self.clients),
            "public": _names(self.public),
        }
        return problems.classification(**given)


@dataclass(frozen=True, kw_only=True)
class NeuralClassification:
    """A neural network on images, its examples split over the nodes and its parameters shared or in part."""

    kind: ClassVar[str] = "neural"
    data: ImageName = "digits"
    """The images. digits are always there, JDFL_DATA names the folder of the others' files."""
    m: int = 10
    """Number of nodes."""
    model: ModelName = _neural.model
    """The architecture, made for the images' shape."""
    shared: str | None = _neural.shared
    """The parameters that all nodes have in common: a preset (partpsp-1, partpsp-2, all) or patterns of their names,
    separated by commas, as in layer1.*,layer2.*; none: all."""
    partition: PartitionName = _neural.partition
    """How the nodes share the examples: evenly, by Dirichlet(alpha) shares of every class, sorted by class, or every
    node those of one client."""
    alpha: float = _neural.alpha
    """Of the Dirichlet partition: small values give nodes of few classes."""
    shards_per_node: int = _neural.shards_per_node
    """Of the partition by class: pieces of one class, mostly, that a node gets."""
    clients: str | None = _neural.clients
    """Of the partition by clients: a text file with the client of every training example."""
    seed: int = _neural.seed
    """Seed of the split."""
    init_seed: int = _neural.init_seed
    """Seed of the parameters that all nodes begin with."""
    nodes_at_once: int | None = _neural.nodes_at_once
    """Nodes computed side by side; none: as suits the device. It changes memory and time, never what is computed."""
    dtype: Literal["float32", "bfloat16"] = _neural.dtype
    """In which the network computes; its parameters are float32."""
    penalty: float = _neural.penalty
    """Weight of the squared norm in the objective (halved)."""
    augment: Literal["flip-crop"] | None = _neural.augment
    """How the images of a batch are varied: flipped and shifted at random, or not at all."""
    standardise: bool | None = _neural.standardise
    """Give every channel mean 0 and deviation 1; none: as the data set asks for."""
    test_fraction: float = _neural.test_fraction
    """Share of every class held out for testing, where the data set has no test set of its own."""
    examples: int | None = _neural.examples
    """Training images to use, drawn at random; none: all."""
    test_examples: int | None = _neural.test_examples
    """Test images to use, drawn at random; none: all."""

    public: str | None = None
    """What of the data is known anyway, names with commas: standardise, holdout, partition, curvature, tuning, stop.
    A privacy report lists it; what else enters without noise leaves no epsilon."""

    def build(self) -> Problem:
        """The problem; FileNotFoundError for a data set whose file is not there."""
        given: dict[str, Any] = fields(self) | {
            "shared": _part(self.shared),
            "clients": _clients(self.clients),
            "public": _names(self.public),
        }
        return problems.neural_classification(**given)


def _names(public: str | None) -> tuple[str, ...]:
    """Names that are separated by commas."""
    return tuple(name.strip() for name in (public or "").split(",") if name.strip())


def _part(shared: str | None) -> str | tuple[str, ...] | None:
    """A preset's name as it is, patterns as a tuple."""
    if shared is None or not set(shared) & set("*?[.,"):
        return shared
    return tuple(pattern.strip() for pattern in shared.split(","))


def _clients(file: str | None) -> list[str] | None:
    """The words of a file; FileNotFoundError if it is not there."""
    if file is None:
        return None
    path = Path(os.path.expanduser(file))
    if not path.is_file():
        raise FileNotFoundError(f"Expected a file at problem.clients, got {file!r}. Check the path.")
    return path.read_text(encoding="utf-8", errors="surrogateescape").split()  # other bytes are told apart, too
