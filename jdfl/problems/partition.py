"""Data partitions: lists of the indices of each node's examples, drawn on the host; every example is used once.

Axes: N examples, m nodes. Every function returns m sorted arrays of int64 indices, the same for the same seed.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from jdfl.base import checks
from jdfl.base.arguments import checked
from jdfl.base.names import Names, aligned, labels_of, names_of, unlabelled
from jdfl.base.settings import MOST
from jdfl.problems.containers import column

Partition = Literal["iid", "dirichlet", "shards", "clients"]


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
    checks.positive(alpha=alpha)
    checks.not_negative(least=least)
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
    clients: ArrayLike | None = None,
    seed: int = 0,
) -> list[np.ndarray]:
    """The partition of that name: `iid`, `dirichlet`, `shards`, or `by_client` for the partition by clients.

    Raises ValueError for clients with another partition, for "clients" without any, and for a number of clients other
    than m.
    """
    if (partition == "clients") != (clients is not None):
        shown = "none" if clients is None else "some"
        raise ValueError(
            f"Expected clients with partition = 'clients' and with no other, got {shown} with {partition!r}. Give the "
            "client id of every example, or leave clients out."
        )
    if clients is not None:
        own = unlabelled(aligned("clients", clients, labels_of(labels), "labels"))
        checks.shape(np.shape(labels), "One client id for every example.", clients=own)
        parts = by_client(own)
        if len(parts) != m:
            raise ValueError(f"Expected m = {len(parts)}, the number of clients, got m = {m}.")
        return parts
    if partition == "iid":
        return iid(len(_labels(labels)), m, seed=seed)
    if partition == "dirichlet":
        return dirichlet(labels, m, alpha=alpha, seed=seed)
    return shards(labels, m, shards_per_node=shards_per_node, seed=seed)


def generator(seed: int) -> np.random.Generator:
    """NumPy's generator with this seed."""
    checks.integer(0, seed=seed)
    return np.random.default_rng(seed)


def _labels(labels: ArrayLike, name: str = "labels", remedy: str = "Give the label of every example.") -> np.ndarray:
    """The number of every example's label [N] in sorted order, so that no label is in no class, or in several."""
    found = column(name, labels, remedy)
    checks.shape((None,), remedy, **{name: np.asarray(labels)})
    return np.unique(found, return_inverse=True)[1]


def _enough(n_examples: int, m: int, each: int) -> None:
    checks.integer(m=m)
    checks.integer(0, MOST, n_examples=n_examples)
    if m * each > n_examples:
        needed = f"m = {m} nodes x {each}" if each != 1 else f"m = {m} nodes"
        raise ValueError(
            f"Expected at least {m * each} examples for {needed}, got n_examples = {n_examples}. "
            "Use fewer nodes or more examples."
        )


def _sorted(parts: Sequence[ArrayLike]) -> list[np.ndarray]:
    return [np.sort(np.asarray(part, np.int64)) for part in parts]
