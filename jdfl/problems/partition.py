"""Data partitions: lists of the indices of each node's examples, drawn on the host; every example is used once.

Axes: N examples, m nodes, p features. Every function but the last two, which change the features of nodes, returns m
sorted arrays of int64 indices, the same for the same seed.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.ndimage import rotate
from scipy.sparse import issparse

from jdfl.base import checks
from jdfl.base.arguments import checked
from jdfl.base.names import Names, aligned, labels_of, names_of, unlabelled
from jdfl.base.settings import MOST
from jdfl.problems.containers import column

Partition = Literal["iid", "dirichlet", "dirichlet-balanced", "shards", "classes", "log-normal", "power-law", "clients"]
BY_LABEL = ("dirichlet", "dirichlet-balanced", "shards", "classes")  # partitions that look at labels
OF_CLASSES = ("dirichlet", "dirichlet-balanced", "classes")  # partitions that have no meaning for targets
_USERS = {  # of settings: the partitions that use them
    "alpha": ("dirichlet", "dirichlet-balanced"),
    "shards_per_node": ("shards",),
    "classes_per_node": ("classes",),
    "sigma": ("log-normal",),
    "exponent": ("power-law",),
    "least": ("dirichlet", "classes", "log-normal", "power-law"),
}
_ALPHA = "Small values of alpha, such as 0.1, give unequal nodes; 100 gives similar ones."


@checked
def iid(n_examples: int, m: int, *, seed: int = 0) -> list[np.ndarray]:
    """A uniformly random partition of n_examples into parts whose sizes differ by at most one.

    Raises ValueError for more nodes than examples.
    """
    _enough(n_examples, m, 1)
    return _sorted(np.array_split(generator(seed).permutation(n_examples), m))


@checked
def by_size(sizes: Sequence[int] | np.ndarray, n_examples: int, *, seed: int = 0) -> list[np.ndarray]:
    """A uniformly random partition into parts of given sizes [m], each at least 1.

    Raises ValueError unless they add up to `n_examples`.
    """
    checks.shape((None,), "It has the number of examples of every node.", sizes=sizes)
    for i, count in enumerate(sizes):
        checks.integer(remedy=f"See node {i}.", sizes=count)
    if (total := int(sum(sizes))) != n_examples:
        raise ValueError(f"Expected sizes that add up to n_examples = {n_examples}, got {total} in total.")
    cuts = np.cumsum(sizes, dtype=np.int64)[:-1]
    return _sorted(np.split(generator(seed).permutation(n_examples), cuts))


@checked
def shards(labels: ArrayLike, m: int, *, shards_per_node: int = 2, seed: int = 0) -> list[np.ndarray]:
    """Sort by label, cut into m * shards_per_node pieces, deal the pieces out at random.

    The split of McMahan et al. (2017), "Communication-efficient learning of deep networks from decentralized data",
    section 3: with two shards a node has about two classes. Within a class the order is random.

    Args:
        labels: Label of every example [N].
        shards_per_node: Number of shards of a node, at least 1.

    Raises ValueError for more shards than examples, and for missing labels or labels of several kinds.
    """
    classes = _labels(labels)
    checks.integer(1, max(1, len(classes)), "A shard holds an example at least.", shards_per_node=shards_per_node)
    _enough(len(classes), m, shards_per_node)
    rng = generator(seed)
    order = rng.permutation(len(classes))
    order = order[np.argsort(classes[order], kind="stable")]
    pieces = np.array_split(order, m * shards_per_node)
    dealt = rng.permutation(len(pieces)).reshape(m, shards_per_node)
    return _sorted([np.concatenate([pieces[int(k)] for k in row]) for row in dealt])


@checked
def dirichlet(labels: ArrayLike, m: int, *, alpha: float, seed: int = 0, least: int = 1) -> list[np.ndarray]:
    """Split every class over the nodes in proportions drawn from Dirichlet(alpha, ..., alpha).

    The split of Hsu, Qi and Brown (2019), "Measuring the effects of non-identical data distribution for federated
    visual classification", in its per-class form. A node left with too few examples takes random ones from the node
    that currently has the most, so the draw never has to be repeated.

    Args:
        labels: Label of every example [N].
        alpha: Concentration > 0: small values give nodes with few classes and unequal sizes, large ones approach `iid`.
        least: Minimum number of examples of a node, 0 to N / m.

    Raises ValueError for values out of range, and for missing labels or labels of several kinds.
    """
    classes = _labels(labels)
    checks.positive(_ALPHA, alpha=alpha)
    _enough(len(classes), m, least)
    rng = generator(seed)
    held: list[list[int]] = [[] for _ in range(m)]
    for label in range(classes.max(initial=-1) + 1):
        members = rng.permutation(np.flatnonzero(classes == label))
        share = rng.dirichlet(np.full(m, float(alpha)))
        cuts = np.rint(np.cumsum(share)[:-1] * len(members)).astype(np.int64)
        for own, piece in zip(held, np.split(members, cuts)):
            own.extend(piece.tolist())
    for own in held:
        while len(own) < least:
            donor = max(held, key=len)
            own.append(donor.pop(int(rng.integers(len(donor)))))
    return _sorted(held)


@checked
def dirichlet_balanced(labels: ArrayLike, m: int, *, alpha: float, seed: int = 0) -> list[np.ndarray]:
    """Nodes of equal size (or one less), with classes in proportions p_i ~ Dirichlet(alpha, ..., alpha) of each node.

    One example at a time goes to a node in random order, of class c with probability p_ic among the classes that have
    examples left: the last draws follow p_i less closely. This is `client_inner_dirichlet_partition` of FedLab (code
    read), there attributed to Acar et al. (2021), "Federated learning based on dynamic regularization" (not read).
    Arguments and errors are those of `dirichlet`.
    """
    label = _labels(labels)
    checks.positive(_ALPHA, alpha=alpha)
    _enough(len(label), m, 1)
    rng = generator(seed)
    members = [rng.permutation(np.flatnonzero(label == c)).tolist() for c in range(label.max() + 1)]
    share = rng.dirichlet(np.full(len(members), float(alpha)), m)
    sums: list[list[float]] = np.cumsum(share, axis=1).tolist()
    held: list[list[int]] = [[] for _ in range(m)]
    turns = rng.permutation(np.arange(len(label)) % m)
    for i, draw in zip(turns.tolist(), (rng.random(len(label)) * (1 - 2.0**-50)).tolist()):
        if not sums[i][-1] > 0:  # none of its classes has examples: any others do
            sums[i] = np.cumsum([len(some) for some in members], dtype=float).tolist()
        c = bisect_right(sums[i], draw * sums[i][-1])
        held[i].append(members[c].pop())
        if not members[c]:
            share[:, c] = 0
            sums = np.cumsum(share, axis=1).tolist()
    return _sorted(held)


@checked
def classes(labels: ArrayLike, m: int, *, classes_per_node: int = 2, seed: int = 0, least: int = 1) -> list[np.ndarray]:
    """Exactly `classes_per_node` classes at every node; a class's examples are divided equally among its nodes.

    "Quantity-based label imbalance" of Li et al. (2022), "Federated learning on non-IID data silos", as in NIID-Bench
    (code read, paper not): nodes take one class each in a cycle, and random other ones. Here the cycle is in random
    order, and goes on until every class has a node, where the code leaves the examples of some classes out.

    `labels` [N] are those of the examples. Raises ValueError for fewer classes of all nodes than there are, for a class
    of fewer examples than nodes, where a node has fewer examples than `least`, and for labels as `dirichlet` does.
    """
    label = _labels(labels)
    counts = np.bincount(label)
    checks.integer(1, max(1, len(counts)), "A node has no class twice.", classes_per_node=classes_per_node)
    _enough(len(label), m, max(least, classes_per_node))
    if (first := -(-len(counts) // m)) > classes_per_node:
        remedy = f"Every one of {len(counts)} classes needs one of {m} nodes: use more classes per node, or more nodes."
        checks.integer(first, None, remedy, classes_per_node=classes_per_node)
    rng = generator(seed)
    cycle, has = rng.permutation(len(counts)), np.zeros((m, len(counts)), bool)
    for i, own in enumerate(has):
        own[cycle[(i + m * np.arange(first)) % len(counts)]] = True
        own[rng.choice(np.flatnonzero(~own), classes_per_node - first, replace=False)] = True
    held: list[list[int]] = [[] for _ in range(m)]
    for c, count in enumerate(counts):
        nodes = rng.permutation(np.flatnonzero(has[:, c]))
        if count < len(nodes):
            name = column("labels", labels)[np.argmax(label == c)]
            remedy = "Use fewer nodes, fewer classes per node, or no rare classes."
            raise ValueError(f"Expected {len(nodes)} examples of class {name} for its nodes, got {count}. {remedy}")
        for i, piece in zip(nodes, np.array_split(rng.permutation(np.flatnonzero(label == c)), len(nodes))):
            held[i].extend(piece.tolist())
    if (fewest := min(map(len, held))) < least:
        remedy = f"A node of {classes_per_node} classes has no more. Use fewer nodes, or another seed."
        checks.refuse(f"least = {fewest} at most", "least", least, remedy)
    return _sorted(held)


@checked
def log_normal(n_examples: int, m: int, *, sigma: float = 1.0, seed: int = 0, least: int = 1) -> list[np.ndarray]:
    """A uniformly random partition; sizes: `least` + a part in proportion to exp(sigma z_i), z_i ~ N(0, 1).

    `lognormal_unbalance_partition` of FedLab (code read), with the smallest size of FedProx (code read), which has
    sigma = 2. `sigma` is >= 0, `least` 0 to n_examples / m. Raises ValueError for values out of range.
    """
    _enough(n_examples, m, least)
    checks.not_negative("It is the deviation of ln(size), such as 1.0.", sigma=sigma)
    rng = generator(seed)
    return _in_proportion(sigma * rng.standard_normal(m), n_examples, least, rng)


@checked
def power_law(n_examples: int, m: int, *, exponent: float = 1.0, seed: int = 0, least: int = 1) -> list[np.ndarray]:
    """A uniformly random partition; the r-th largest size: `least` + a part in proportion to r^-exponent (Zipf's law).

    Nodes have the ranks r in random order. `exponent` is >= 0, `least` 0 to n_examples / m. The "power law" of Li et
    al. (2020), "Federated optimization in heterogeneous networks", is `log_normal` in its code (read; paper not).
    Raises ValueError for values out of range.
    """
    _enough(n_examples, m, least)
    checks.not_negative("It is the exponent of the sizes, such as 1.0.", exponent=exponent)
    rng = generator(seed)
    return _in_proportion(-exponent * np.log(1 + rng.permutation(m)), n_examples, least, rng)


@checked
def by_client(clients: ArrayLike) -> list[np.ndarray]:
    """The natural partition of the data: node i has the examples of the i-th client in sorted order.

    Args:
        clients: Client of every example [N], numbers or text.

    Raises ValueError for another shape, and for missing clients.
    """
    place = _labels(clients, "clients", "Give one client id for every example.")
    order = np.argsort(place, kind="stable")
    return _sorted(np.split(order, np.cumsum(np.bincount(place))[:-1])) if len(place) else []


def client_names(clients: ArrayLike | None) -> Names | None:
    """The names of the nodes of `by_client`; None without clients."""
    return None if clients is None else names_of("clients", np.unique(column("clients", clients)))


@checked
def sample(
    partition: Partition,
    labels: ArrayLike,
    m: int,
    *,
    alpha: float = 0.5,
    shards_per_node: int = 2,
    classes_per_node: int = 2,
    sigma: float = 1.0,
    exponent: float = 1.0,
    least: int = 1,
    clients: ArrayLike | None = None,
    seed: int = 0,
) -> list[np.ndarray]:
    """The partition of that name, by the function of that name; "clients" is `by_client`.

    Raises ValueError for clients with another partition, for "clients" without any, for a number of clients other than
    m, and for a setting that the partition does not use.
    """
    if (partition == "clients") != (clients is not None):
        shown = "none" if clients is None else "some"
        raise ValueError(
            f"Expected clients with partition = 'clients' and with no other, got {shown} with {partition!r}. Give the "
            "client id of every example, or leave clients out."
        )
    how = Settings(alpha, shards_per_node, classes_per_node, sigma, exponent, least)
    how.check(partition)
    if clients is not None:
        own = unlabelled(aligned("clients", clients, labels_of(labels), "labels"))
        checks.shape(np.shape(labels), "One client id for every example.", clients=own)
        parts = by_client(own)
        if len(parts) != m:
            raise ValueError(f"Expected m = {len(parts)}, the number of clients, got m = {m}.")
        return parts
    makers: dict[str, Any] = {"dirichlet": dirichlet, "dirichlet-balanced": dirichlet_balanced, "shards": shards}
    makers |= {"classes": classes, "log-normal": log_normal, "power-law": power_law, "iid": iid}
    examples = labels if partition in BY_LABEL else len(_labels(labels))
    return makers[partition](examples, m, seed=seed, **how.used(partition))


@dataclass(frozen=True)
class Settings:
    """The settings of a partition, and of the features of its nodes."""

    alpha: Any = 0.5
    shards_per_node: Any = 2
    classes_per_node: Any = 2
    sigma: Any = 1.0
    exponent: Any = 1.0
    least: Any = 1
    noise: Any = 0.0
    rotations: Any = 1

    def used(self, partition: str) -> dict[str, Any]:
        """The settings of a partition."""
        return {name: getattr(self, name) for name, users in _USERS.items() if partition in users}

    def check(self, partition: str) -> None:
        """Refuse values of settings that the partition does not use, and of those of features out of range."""
        for field in fields(self):
            name, value, users = field.name, getattr(self, field.name), _USERS.get(field.name, (partition,))
            same = checks.is_a(value, int | float | np.number) and value == field.default
            if partition not in users and not same:
                remedy = f"Leave it out, or write partition={users[0]!r}."
                checks.refuse(f"{name} = {field.default}, which {partition!r} does not use", name, value, remedy)
        if not checks.is_integer(self.least) or self.least < 1:
            checks.refuse("a whole number least >= 1", "least", self.least, "Every node needs an example.")
        checks.not_negative("It is the standard deviation at the last node, such as 0.1.", noise=self.noise)
        checks.shape((), "It is one number for all nodes.", noise=self.noise)
        checks.integer(1, None, "It is the number of different rotations, such as 4.", rotations=self.rotations)

    @property
    def skews(self) -> bool:
        """Whether the features of nodes differ."""
        return self.noise > 0 or self.rotations > 1

    def skewed(self, features: Any, index: Sequence[np.ndarray], seed: int, axes: tuple[int, int] = (1, 2)) -> Any:
        """The features [N, ...] of training examples as the nodes have them."""
        if self.rotations > 1:
            features = rotated(features, index, rotations=self.rotations, axes=axes, seed=seed)
        return noisy(features, index, noise=self.noise, seed=seed) if self.noise > 0 else features

    def words(self, partition: str) -> str:
        """What reports say."""
        names = {"clients": "one node per client", "given": "as given", "dirichlet": "Dirichlet"}
        names |= {one: f"{getattr(self, f'{one}_per_node')} {one} per node" for one in ("shards", "classes")}
        found, used = names.get(partition, partition), self.used(partition)
        found += "".join(f", {name} = {used[name]:g}" for name in ("alpha", "sigma", "exponent") if name in used)
        found += f", least = {self.least}" if self.least > 1 else ""
        found += f", {self.rotations} rotations" if self.rotations > 1 else ""
        return found + (f", feature noise up to {self.noise:g}" if self.noise > 0 else "")


@checked
def noisy(features: ArrayLike, index: Sequence[np.ndarray], *, noise: float, seed: int = 0) -> np.ndarray:
    """The features [N, ...] with Gaussian noise that grows with the node: x + N(0, s_i^2 I), s_i = noise i / (m - 1).

    "Noise-based feature imbalance" of Li et al. (2022), see `classes`, with the deviation of its code. `index` has
    the examples of every node, and `noise` >= 0 is that of the last node, in the unit of the features. Raises
    ValueError for sparse features and for images of whole numbers.
    """
    found = _dense("noise", features, index)
    checks.not_negative(noise=noise)
    if found.dtype.kind != "f" and found.ndim > 2:
        raise ValueError(f"Expected floating-point X with noise = {noise:g}, got {found.dtype}. Use X / 255 for bytes.")
    rng, found = generator(seed, 1), found.astype(np.result_type(found, np.float32))
    for i, rows in enumerate(index):
        level = noise * i / max(1, len(index) - 1)
        found[rows] += (level * rng.standard_normal((len(rows), *found.shape[1:]))).astype(found.dtype)
    return found


@checked
def rotated(
    features: ArrayLike, index: Sequence[np.ndarray], *, rotations: int, axes: tuple[int, int] = (1, 2), seed: int = 0
) -> np.ndarray:
    """The features, turned by a fixed rotation at every node: node i has that of number g = i mod rotations.

    Images [N, rows, columns, ...] (of these `axes`) are turned by 360 g / rotations degrees: with 4 rotations those of
    Ghosh et al. (2020), "An efficient framework for clustered federated learning" (not read). Quarter turns of square
    images are exact, other ones are interpolated linearly, with zeros outside. Vectors [N, p] are multiplied by
    orthogonal matrices Q_g, where Q_0 = I and the others are uniformly random (Haar), so that their norms stay. `index`
    has the examples of every node. Raises ValueError for sparse features and more rotations than nodes.
    """
    found = _dense("rotations", features, index)
    checks.integer(1, max(1, len(index)), "There are no more than nodes.", rotations=rotations)
    rng = generator(seed, 2)
    found = found.astype(np.result_type(found, np.float32) if found.ndim == 2 else found.dtype)
    for g in range(1, rotations):
        rows, angle = np.concatenate(index[g::rotations]), 360 * g / rotations
        if found.ndim == 2:
            Q, R = np.linalg.qr(rng.standard_normal((found.shape[1], found.shape[1])))
            found[rows] = found[rows] @ (Q * np.sign(np.diag(R))).T.astype(found.dtype)
        elif angle % 90 == 0 and found.shape[axes[0]] == found.shape[axes[1]]:
            found[rows] = np.rot90(found[rows], int(angle // 90), axes)
        else:
            found[rows] = rotate(found[rows], angle, axes[::-1], reshape=False, order=1)
    return found


def _dense(name: str, features: Any, index: Sequence[Any]) -> np.ndarray:
    """Dense features, whose examples are at one node each, or at none."""
    if issparse(features) or np.ndim(features) < 2:
        checks.refuse(f"dense features [N, ...] with {name}", "X", features, "Use X.toarray() for sparse ones.")
    checks.real(features=features)
    every = np.concatenate([np.ravel(rows) for rows in index]) if len(index) else np.zeros(0, int)
    inside = every.dtype.kind in "iu" and np.all((every >= 0) & (every < len(np.asarray(features))))
    if not inside or len(np.unique(every)) < len(every):
        checks.refuse("numbers of examples of X in index, each once", "index", index, "Use one of the functions above.")
    return np.asarray(features)


def generator(seed: int, *purpose: int) -> np.random.Generator:
    """NumPy's generator with this seed; another `purpose` has independent draws."""
    checks.integer(0, seed=seed)
    return np.random.default_rng((seed, *purpose) if purpose else seed)


def _labels(labels: ArrayLike, name: str = "labels", remedy: str = "Give the label of every example.") -> np.ndarray:
    """The number of every example's label [N] in sorted order, so that no label is in no class, or in several."""
    found = column(name, labels, remedy)
    checks.shape((None,), remedy, **{name: np.asarray(labels)})
    return np.unique(found, return_inverse=True)[1]


def _enough(n_examples: int, m: int, each: int) -> None:
    checks.integer(m=m)
    checks.not_negative(least=each)
    checks.integer(0, MOST, n_examples=n_examples)
    if m * each > n_examples:
        needed = f"m = {m} nodes x {each}" if each != 1 else f"m = {m} nodes"
        raise ValueError(
            f"Expected at least {m * each} examples for {needed}, got n_examples = {n_examples}. "
            "Use fewer nodes or more examples."
        )


def _in_proportion(logs: np.ndarray, n_examples: int, least: int, rng: np.random.Generator) -> list[np.ndarray]:
    """A random partition with sizes `least` + a part in proportion to exp(logs) [m], rounded by largest remainders."""
    share = np.exp(logs - logs.max())
    exact = share * ((n_examples - least * len(share)) / share.sum())
    sizes = least + np.floor(exact).astype(np.int64)
    sizes[np.argsort(np.floor(exact) - exact, kind="stable")[: n_examples - sizes.sum()]] += 1
    return _sorted(np.split(rng.permutation(n_examples), np.cumsum(sizes)[:-1]))


def _sorted(parts: Sequence[ArrayLike]) -> list[np.ndarray]:
    return [np.sort(np.asarray(part, np.int64)) for part in parts]
