"""What ends a run by itself: numbers that diverge, and rules that hold in every round whatever is learned.

The rules are about sums of W, push-sum weights, counters, planned releases and clocks. They read the network, counts
and times, never parameters or gradients. Ledgers and budgets count these as public, so the end of a private run reveals
nothing more, and the rules hold in all runs, also where divergence is not looked at.

Graphs of fixed networks are checked before a run and not again. In other networks the rounds that were looked at before
the run need not be all of them. Tolerances are worst cases of floating-point sums, with eps the distance from 1 to the
next number of a type:

    |sum of a line of W - 1|   <= 1e-5 + t eps sum |w|, for t terms: `check_graph` accepts 1e-5. Rounding each weight
                                  adds eps / 2, the sum that made the diagonal (t - 1) eps / 2, that made here as much
    |change of the sum of a|   <= m (1e-5 + t eps + (m + t) eps'), eps' of the type of a: m nodes of mean weight 1 add
                                  up t products each, and then the m differences, whose sizes sum to 2 m at most

All else is exact: counters are whole numbers, and a clock adds up without ever rounding below what it was.

Axes: m nodes, d slots of the table, k numbers of a node.
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from functools import reduce
from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jdfl.algorithms.algorithm import Algorithm
from jdfl.algorithms.program import Program
from jdfl.algorithms.round import StepCounts
from jdfl.devices import nodes
from jdfl.network.graph import Graph, Network, Static
from jdfl.network.properties import nonnegative
from jdfl.network.tables import TOLERANCE
from jdfl.network.timing import Seconds

NOWHERE = -1
Watched = Literal["nothing", "parameters", "state"]  # the values whose divergence may end a run, from the fewest to all


def least(watched: Sequence[Watched]) -> Watched:
    """The strictest of the checks of several runs that are made side by side."""
    order: tuple[Watched, ...] = get_args(Watched)
    return min(watched, key=order.index)


def bad_nodes(program: Program, state: Any, largest: Array | None, watched: Watched) -> Array | None:
    """The nodes [m] with a number not finite, or a too large parameter, in what is `watched`; None: that is nothing.

    Only honest nodes are checked.
    """
    if watched == "nothing":
        return None
    if watched == "state":
        w = program.held(state)  # [m, k], with all that is large in the parameters
        rows = [w, *(leaf for leaf in jax.tree.leaves(state) if leaf is not w and _floats(leaf, w.shape[0]))]
    else:
        rows = [w := program.params(state)]
    bad = ~jnp.isfinite(reduce(jnp.add, (_finite(leaf, w.dtype) for leaf in rows)))
    if largest is not None:
        bad = bad | (jnp.max(jnp.abs(w), axis=1) > largest)
    attackers = program.algorithm.attackers
    return bad.at[jnp.asarray(attackers, jnp.int32)].set(False) if attackers else bad


def what_is_bad(state: Any, node: int, m: int, largest: Any, watched: Watched) -> str:
    """The numbers of a node that end the run, in words (on the host)."""
    if state is None or (watched == "parameters" and largest is None):
        return "a number that is not finite"
    fields = [
        jax.tree_util.keystr(path, simple=True, separator=".") or "its parameters"
        for path, leaf in jax.tree_util.tree_leaves_with_path(state)
        if _floats(leaf, m) and not np.isfinite(np.asarray(leaf[node], np.float64)).all()
    ]
    if fields or largest is None:
        return f"a number that is not finite in {' and '.join(fields) or 'its parameters'}"
    return f"a parameter of size above {float(largest):g}"


def has_rows(leaf: Array, m: int) -> bool:
    """Whether a leaf of a state has a row for every node."""
    return leaf.ndim > 0 and leaf.shape[0] == m


def _floats(leaf: Array, m: int) -> bool:
    return has_rows(leaf, m) and jnp.issubdtype(leaf.dtype, jnp.floating)


def _finite(rows: Array, dtype: Any) -> Array:
    """0 [m] where a row is finite, else NaN, in one pass."""
    return jnp.sum(rows * 0, axis=tuple(range(1, rows.ndim))).astype(dtype)


class Rule(IntEnum):
    """The rules in the order in which they are reported where a node violates several."""

    MASS = 0  # of all nodes together, so that there is no node to name
    COUNTER = 1
    ROW = 2
    COLUMN = 3
    NEGATIVE = 4
    SHARE = 5
    RELEASES = 6
    CLOCK = 7


# What ends a run is one whole number, so that one minimum over all nodes finds it, with the divergence check: first
# come nodes with their rules, then all nodes together, then nodes that diverged, then none.
_RULES = len(Rule)
_DIVERGED = 2**30
_ALL = _DIVERGED - 1
NOTHING = int(jnp.iinfo(jnp.int32).max)
_METRICS = NOTHING - 1024  # the first number of metrics, which only matter where nothing else is found


class Weights(NamedTuple):
    """What W must be in the rounds of a network that changes; static, so that nothing else is computed."""

    rows: bool = False  # whether rows sum to one
    columns: bool = False  # whether columns sum to one
    positive: bool = False  # whether no weight is negative


class Found(NamedTuple):
    """What ended a run."""

    rule: Rule | None  # None: it diverged
    node: int  # the lowest id, or NOWHERE
    metric: int | None = None  # the place of the metric that was not finite


class Known(NamedTuple):
    """What the rules compare from round to round."""

    mass: tuple[Array, Array] | None  # push-sum weights [m] at the nodes, and in late messages; None: no push-sum
    clock: Seconds | None  # None: time is not simulated


def unit(known: Known) -> Known:
    """What is so before anything is computed: push-sum weights of one, no messages, and clocks at zero."""
    mass = None if known.mass is None else (jnp.ones_like(known.mass[0]), jnp.zeros_like(known.mass[1]))
    return Known(mass, jax.tree.map(jnp.zeros_like, known.clock))


def weights_of(algorithm: Algorithm, network: Network) -> Weights:
    """What a method needs of W in every round, apart from what is settled before a run.

    W of a fixed network is checked then. With weights >= 0 and rows that sum to one no round makes differences between
    nodes grow. Where weights below zero were accepted, because rounds contract on average, one round says nothing: only
    networks defined outside jdfl, whose rounds seen before the run had none, are held to it.
    """
    if isinstance(network, Static):
        return Weights()
    needs: Mapping[str, bool] = algorithm.needs
    both, columns = needs.get("doubly_stochastic", False), needs.get("column_stochastic", False)
    columns = algorithm.columns or columns or both
    rows = both or (algorithm.mixes and not algorithm.columns)
    return Weights(rows, columns, algorithm.columns or (algorithm.mixes and nonnegative(network)))


def shared_by(networks: Sequence[Network], algorithm: Algorithm) -> list[Weights]:
    """`weights_of` several networks, with the same rule for negative weights: their runs may share a program."""
    found = {place: weights_of(algorithm, network) for place, network in {id(one): one for one in networks}.items()}
    positive = all(one.positive for one in found.values())
    return [found[id(network)]._replace(positive=positive) for network in networks]


def broken(
    weights: Weights,
    graph: Graph | None,
    info: StepCounts,
    releases: Array,
    before: Known,
    after: Known,
    planned: Array | None,
) -> tuple[Array, Array, Array]:
    """The rules that a round violates."""
    lowest = reduce(jnp.minimum, [*jax.tree.leaves(info), releases])
    found = [(Rule.COUNTER, lowest < 0, lowest)]
    found += [] if graph is None else _of_weights(weights, graph)
    lost, value = jnp.bool_(False), jnp.zeros(releases.shape, jnp.float32)
    if before.mass is not None and after.mass is not None:
        (former, came), (own, coming) = before.mass, after.mass
        found.append((Rule.SHARE, ~(own > 0), own))
        change = nodes.total((own - former) + (coming - came))
        lost, value = ~(jnp.abs(change) <= _slack(own, graph)), (own + coming).astype(jnp.float32)
    if planned is not None:
        found.append((Rule.RELEASES, releases > planned, releases))
    if before.clock is not None and after.clock is not None:
        (old, rest), (new, left) = before.clock, after.clock
        back = ~(new >= old) | ((new == old) & (left < rest))
        found.append((Rule.CLOCK, back, (new - old) + (left - rest)))
    code = jnp.zeros_like(releases)
    for rule, bad, measured in reversed(found):
        code = jnp.where(bad, jnp.int32(rule), code)
        value = jnp.where(bad, measured.astype(jnp.float32), value)
    return code, value, lost


def first(code: Array, lost: Array, diverged: Array | None) -> Array:
    """What ends a run, as one whole number [] int32 that `found` reads, or NOTHING."""
    ids = nodes.ids(code.shape[0])
    each = jnp.int32(NOTHING) if diverged is None else jnp.where(diverged, _DIVERGED + ids, NOTHING)
    each = jnp.where(code > 0, ids * _RULES + code, each)
    return jnp.minimum(nodes.least(each, NOTHING), jnp.where(lost, _ALL, NOTHING))


def unbounded(first: Array, values: Mapping[int, Array]) -> Array:
    """`first` [], or the lowest place of the metrics `values` [] that is not finite, where nothing ended the run."""
    for place, value in values.items():
        first = jnp.minimum(first, jnp.where(jnp.isfinite(value), NOTHING, _METRICS + place))
    return first


def found(first: Any) -> Found | None:
    """What `first` says, on the host; None for NOTHING."""
    number = int(first)
    if number >= _METRICS:
        return None if number == NOTHING else Found(None, NOWHERE, number - _METRICS)
    if number >= _DIVERGED:
        return Found(None, number - _DIVERGED)
    if number == _ALL:
        return Found(Rule.MASS, NOWHERE)
    return Found(Rule(number % _RULES), number // _RULES)


def _of_weights(weights: Weights, graph: Graph) -> list[tuple[Rule, Array, Array]]:
    """The rules of W with the rows that violate them [m], and what was measured."""
    weight, own, eps = graph.weight, graph.self_weight, float(jnp.finfo(graph.weight.dtype).eps)
    found: list[tuple[Rule, Array, Array]] = []
    if weights.rows:
        total, size = own + jnp.sum(weight, axis=1), jnp.abs(own) + jnp.sum(jnp.abs(weight), axis=1)
        slack = TOLERANCE + (weight.shape[1] + 1) * eps * size
        found.append((Rule.ROW, ~(jnp.abs(total - 1) <= slack), total))
    if weights.columns:
        sums = graph.returned(jnp.stack([weight, jnp.abs(weight)], axis=2))  # in one pass over the table
        total, size = own + sums[:, 0], jnp.abs(own) + sums[:, 1]
        slack = TOLERANCE + (graph.out_degree + 1).astype(own.dtype) * eps * size
        found.append((Rule.COLUMN, ~(jnp.abs(total - 1) <= slack), total))
    if weights.positive:
        least = jnp.minimum(own, jnp.min(weight, axis=1))
        found.append((Rule.NEGATIVE, ~(least >= -TOLERANCE), least))
    if graph.synchronised is not None:  # a mean over all nodes, whatever the table says
        found = [(rule, bad & ~graph.synchronised, value) for rule, bad, value in found]
    return found


def _slack(a: Array, graph: Graph | None) -> float:
    """How far the sum of the push-sum weights a [m] may move in a round by rounding."""
    m = nodes.count(a.shape[0])
    terms = 1 if graph is None else graph.weight.shape[1] + 1
    eps = float(jnp.finfo(jnp.float32 if graph is None else graph.weight.dtype).eps)
    return m * (TOLERANCE + terms * eps + (m + terms) * float(jnp.finfo(a.dtype).eps))


_GRAPH = "; look at network.at({before}, key), the graph of that round"
_TEXTS = {
    Rule.MASS: (
        "push-sum weights whose sum over all nodes stays {m}, got {value:.6g} {when}, of no single node; all weight "
        "that leaves a node must arrive somewhere"
    ),
    Rule.COUNTER: (
        "counts of messages, gradients, communications and releases >= 0, got {value:.0f} at node {node} {when}; look "
        "at what the step counts"
    ),
    Rule.ROW: "rows of the mixing matrix that sum to 1, got {value:.6g} in row {node} {when}" + _GRAPH,
    Rule.COLUMN: "columns of the mixing matrix that sum to 1, got {value:.6g} in column {node} {when}" + _GRAPH,
    Rule.NEGATIVE: (
        "weights >= 0, as in all rounds that were checked before the run, got {value:.6g} in row {node} of the mixing "
        "matrix {when}, with which differences between nodes may grow" + _GRAPH
    ),
    Rule.SHARE: "push-sum weights > 0, got {value:.6g} at node {node} {when}; give every node a self_weight > 0",
    Rule.RELEASES: (
        "at most the {planned} planned releases of node {node}, got {value:.0f} {when}; what a step releases must not "
        "depend on anything that the plan does not know"
    ),
    Rule.CLOCK: (
        "a simulated clock that never goes back, got one of node {node} that moved by {value:.6g} s {when}; times of "
        "computing and travelling must be finite and >= 0"
    ),
}


def what_is_broken(rule: Rule, node: int, value: float, rounds: int, m: int, planned: Any) -> str:
    """The violation of a rule in words (on the host)."""
    when = f"in round {rounds}" if rounds else "before the first round"
    most = None if planned is None else int(planned[node])
    return f"expected {_TEXTS[rule]}".format(node=node, value=value, when=when, before=rounds - 1, m=m, planned=most)
