"""Which honest nodes have more attackers around them than a rule is made for. On the host."""

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from jdfl.base import checks
from jdfl.base.arguments import checked
from jdfl.network import Graph, Network, Static
from jdfl.network.combining import PartialCommunication
from jdfl.network.graph import round_of
from jdfl.network.sequences import graphs_of, inmost
from jdfl.network.tables import Arcs, arcs_of, called, components
from jdfl.robust.rule import Rule

_ROUNDS = 3  # rounds of a changing network that are looked at


class Weak(NamedTuple):
    """An honest node with more attackers among its in-neighbours than a rule is made for."""

    node: int
    attackers: int  # among its in-neighbours
    most: int  # that the rule, with its settings and the node's degree, is made for


@checked
def weak_nodes(graph: Graph, nodes: Sequence[int], rule: Rule) -> list[Weak]:
    """The honest nodes around which there are more attackers than the rule assumes, or than its paper's bound."""
    liar = np.isin(np.arange(graph.m), nodes)
    mask, senders = np.asarray(graph.mask), np.asarray(graph.senders)
    around, degree = (mask & liar[senders]).sum(axis=1), mask.sum(axis=1)
    found: list[Weak] = []
    for i in np.flatnonzero(~liar & (around > 0)):
        most = rule.most(int(degree[i]))
        most = min(most, rule.b) if rule.assumes else most
        if around[i] > most:
            found.append(Weak(int(i), int(around[i]), most))
    return found


@checked
def check_honest(network: Network, nodes: Sequence[int]) -> None:
    """Refuse attackers that are no nodes of the network, or whose absence leaves the honest nodes in several parts."""
    m = network.m
    if len(set(nodes)) != len(nodes) or any(not 0 <= one < m for one in nodes):
        checks.refuse(f"different node ids from 0 to {m - 1}", "nodes", tuple(nodes), "They are the attackers.")
    if len(nodes) >= m:
        checks.refuse(f"fewer than {m} attackers", "nodes", tuple(nodes), "Some nodes must be honest.")
    if not isinstance(network, Static):
        return
    links, good = arcs_of(round_of(network, 0)), ~np.isin(np.arange(m), nodes)
    place = np.cumsum(good) - 1
    keep = good[links.receiver] & good[links.sender]
    parts, _ = components(Arcs(int(good.sum()), place[links.receiver[keep]], place[links.sender[keep]]))
    if parts > 1:
        named = ", ".join(map(str, sorted(nodes)))
        raise ValueError(
            f"Expected attackers without which the honest nodes of {called(network)} are connected, got the nodes "
            f"{named}, which leave {parts} parts: nothing keeps these together. Choose others, or a denser network."
        )


def check_combines(network: Network, rule: Rule, method: str) -> None:
    """Refuse a rule that cannot combine any row at any node of a network; warn where it cannot at some nodes."""
    inner, never = inmost(network, PartialCommunication), np.ones(network.m, np.bool_)
    graphs = [graph for _, graph in graphs_of(inner, _ROUNDS)]

    def idle(rule: Rule) -> np.ndarray:
        found = never.copy()
        for graph in graphs:
            mask, weight = np.asarray(graph.mask), np.asarray(graph.weight)
            found &= ~np.array([rule.combines(row[here]) for row, here in zip(weight, mask)])
        return found

    alone = idle(rule)
    if not alone.any() or network.m == 1:
        return
    what = f"{rule.title}(b={rule.b})" if rule.b else rule.title
    works = next((b for b in reversed(range(rule.b)) if not idle(replace(rule, b=b)).all()), None)
    largest = "" if works is None else f" The largest b that works is {works}."
    remedy = f"Use a network with more links, other settings, or another rule.{largest}"
    if alone.all():
        raise ValueError(
            f"Expected a rule by which nodes of {called(network)} can combine what they receive in {method}, got "
            f"{what}, with which every node keeps its own row: all messages would be sent in vain. {remedy}"
        )
    some = np.flatnonzero(alone).tolist()
    shown = ", ".join(map(str, some[:8])) + (", ..." if len(some) > 8 else "")
    warnings.warn(
        f"{len(some)} of {network.m} nodes of {called(network)} keep their own rows with {what} in {method}, whatever "
        f"they receive, for they have too few in-neighbours: {shown}. {remedy}",
        stacklevel=2,
    )
