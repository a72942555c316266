"""Networks for the laws of this folder. Few sizes and one table width, so that each jitted function compiles seldom."""

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st

from jdfl import network as nw

SIZES = (1, 2, 6)
WIDTH = 5  # slots: enough for 6 nodes
FORMATS = ("padded", "dense")
SYMMETRIC = ("metropolis", "laplacian")

mix = jax.jit(nw.mix)
sample = jax.jit(nw.sample_neighbours)


@st.composite
def edge_lists(draw, directed=False):
    """(m, edges [e, 2]) of a connected network: a random tree, or a cycle if directed, and some more edges."""
    m = draw(st.sampled_from(SIZES))
    node = st.integers(0, m - 1)
    if directed:
        order = draw(st.permutations(range(m)))
        edges = [(order[i - 1], order[i]) for i in range(m)]
    else:
        edges = [(draw(st.integers(0, i - 1)), i) for i in range(1, m)]
    edges += draw(st.lists(st.tuples(node, node), max_size=12))
    return m, np.array(edges, np.int64).reshape(-1, 2)


@st.composite
def graphs(draw, weights=("metropolis", "uniform", "laplacian"), directed=None):
    """A connected graph in the padded format with WIDTH slots."""
    if directed is None:
        directed = "uniform" in weights and draw(st.booleans())
    rule = "uniform" if directed else draw(st.sampled_from(weights))
    m, edges = draw(edge_lists(directed))
    made = nw.from_edges(edges, m, weights=rule, directed=directed, format="padded")
    return nw.pad(made.graph, WIDTH)


@jax.jit
def _rounds(net, keys):
    return jax.lax.scan(lambda k, key: (k + 1, net.at(k, key)), jnp.int32(0), keys)[1]


def rounds(net, keys):
    """The graphs of the rounds 0, 1, ..., stacked, from inside a scan; networks that differ in name share a program."""
    return jax.device_get(_rounds(net.replace(name=""), keys))


def graph_of_round(stacked, k):
    return jax.tree.map(lambda leaf: leaf[k], stacked)


def matrices(stacked):
    """The mixing matrices [k, m, m]."""
    mask, senders, weight = (np.asarray(part) for part in (stacked.mask, stacked.senders, stacked.weight))
    W = np.zeros((*mask.shape[:2], mask.shape[1]), np.float32)
    k, i, slot = np.nonzero(mask)
    W[k, i, senders[k, i, slot]] = weight[k, i, slot]
    W += np.asarray(stacked.self_weight)[..., None] * np.eye(mask.shape[1], dtype=np.float32)
    if stacked.synchronised is not None:
        W[np.asarray(stacked.synchronised)] = 1 / mask.shape[1]
    return W


def heard(stacked):
    """Who hears whom: bool [k, m, m]."""
    mask, (k, i, slot) = np.asarray(stacked.mask), np.nonzero(np.asarray(stacked.mask))
    found = np.zeros((*mask.shape[:2], mask.shape[1]), bool)
    found[k, i, np.asarray(stacked.senders)[k, i, slot]] = True
    return found


def rows(m, n=3, seed=0):
    """Rows [m, n] to mix."""
    return np.random.default_rng(seed).uniform(-1, 1, (m, n)).astype(np.float32)


def same(left, right):
    """Whether two graphs are equal in every array and in format."""
    leaves = zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True)
    return left.format == right.format and all(np.array_equal(a, b) for a, b in leaves)
