"""RelaySGD."""

from collections import defaultdict
from typing import Any

import networkx as nx
import numpy as np

import jdfl
from tests.field.row import ROUNDS, Loop, N, Rounds, field


def tree(links: np.ndarray) -> nx.Graph:
    """The spanning tree, from the distances to node 0."""
    network = nx.Graph([(int(i), int(j)) for i, j in zip(*np.nonzero(links))])
    far = nx.single_source_shortest_path_length(network, 0)
    return nx.Graph([(i, min(j for j in network[i] if far[j] < far[i])) for i in network if i])


def loop(the: Loop) -> Rounds:
    """The messages of every link in both directions."""
    x, near = the.start, tree(the.links)
    messages, counts = defaultdict(lambda: np.zeros(x.shape[1])), defaultdict(int)
    for _ in range(ROUNDS):
        h = x - the.algorithm.lr * the.gradients(x)
        links = [(i, j) for i in near for j in near[i]]
        sums = {(i, j): h[i] + sum(messages[k, i] for k in near[i] if k != j) for i, j in links}
        numbers = {(i, j): 1 + sum(counts[k, i] for k in near[i] if k != j) for i, j in links}
        messages.update(sums)
        counts.update(numbers)
        total = [h[i] + sum(messages[j, i] for j in near[i]) for i in range(len(x))]
        x = np.stack([row / (1 + sum(counts[j, i] for j in near[i])) for i, row in enumerate(total)])
        yield x


def count(program: Any, adjacency: np.ndarray, rounds: int) -> dict[str, Any]:
    """A message on every link of the tree, in both directions."""
    degree, every = tree(adjacency).degree, np.full(len(adjacency), rounds)
    sent = {"model": rounds * np.array([degree[i] for i in range(len(adjacency))])}
    return {"sent": sent, "communications": every, "grads": every, "releases": 0 * every}


_RELAY = jdfl.RelaySGD(lr=0.05)
ROWS = (field(_RELAY, loop, bits=32 * (N + 1), count=count, reaches=_RELAY, rounds=1000),)
