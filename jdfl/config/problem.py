"""Problems: what the nodes learn."""

from dataclasses import dataclass
from typing import ClassVar, Literal

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
    "mnist",
    "fashion_mnist",
    "cifar10",
    "breast_cancer",
    "digits",
    "realsim_like",
]

_example1 = defaults(problems.example1)
_classification = defaults(problems.classification)


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

    def build(self) -> Problem:
        """The problem."""
        return problems.example1(**fields(self))


@dataclass(frozen=True, kw_only=True)
class Classification:
    """Logistic or softmax regression on a real data set, its examples split over the nodes."""

    kind: ClassVar[str] = "classification"
    data: DataName = "breast_cancer"
    """The data set. breast_cancer, digits and realsim_like are always there, JDFL_DATA names the folder of the others'
    files."""
    m: int = _example1.m
    """Number of nodes."""
    partition: Literal["iid", "dirichlet", "shards"] = _classification.partition
    """How the nodes share the examples: evenly, by Dirichlet(alpha) shares of every class, or sorted by class."""
    alpha: float = _classification.alpha
    """Of the Dirichlet partition: small values give nodes of few classes."""
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

    def build(self) -> Problem:
        """The problem; FileNotFoundError for a data set whose file is not there."""
        return problems.classification(**fields(self))
