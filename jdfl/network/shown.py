"""How networks are displayed: a few lines in terminals, a small table in notebooks. Nothing expensive is computed."""

import html
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any, Self, cast

import jax
import numpy as np
from jax.core import Tracer

from jdfl.base import checks
from jdfl.base.names import Names, NodeNames, names_of, shown

_LINES = 12
_LONGEST = 80  # characters of a name
_GAP_UP_TO = 64  # nodes for which the spectral gap is computed
_PARTS = ("graph", "graphs", "base")  # fields of networks that may have names


class Shown:
    """The base class of networks, which may have names of nodes, and whose repr has at most 12 lines."""

    @property
    def node_names(self) -> Names | None:
        """The names of the nodes in the order of their rows, as text, numbers or tuples; None where they have none."""
        inside: Any = next((getattr(self, one) for one in _PARTS if hasattr(self, one)), self)
        if inside is self or _has_rows(inside):
            return getattr(inside, "names", NodeNames()).names
        return getattr(inside, "node_names", None)

    def named(self, names: Any) -> Self:
        """The same network, whose node i is called names[i].

        `jdfl.run` pairs the nodes of a network and of a problem by name where both have names, by position otherwise.

        Args:
            names: Names [m], text or whole numbers, all different; None: none, so that nodes are paired by position.

        Raises ValueError for another number of names, and for missing or repeated ones.
        """
        own = NodeNames(None if names is None else names_of("names", names, getattr(self, "m", None)))
        for part in _PARTS:
            if (inside := getattr(self, part, None)) is not None:
                checks.able(("names" if _has_rows(inside) else "named",), "a network of jdfl.network", base=inside)
                new = replace(inside, names=own) if _has_rows(inside) else inside.named(own.names)
                return replace(cast(Any, self), **{part: new})
        return replace(cast(Any, self), names=own)

    def __repr__(self) -> str:
        head, *rows = _lines(self)
        return "\n".join([head, *(f"  {name:<10} {text}" for name, text in rows)])

    def _repr_html_(self) -> str:
        """The same lines as a table, for notebooks."""
        head, *rows = _lines(self)
        cells = ((html.escape(name), html.escape(text)) for name, text in rows)
        body = "".join(f"<tr><th style='text-align:left'>{name}</th><td>{text}</td></tr>" for name, text in cells)
        return f"<table><caption>{html.escape(head)}</caption>{body}</table>"


def _lines(network: Any) -> list[Any]:
    """A heading, and pairs of what a row is called and what it says."""
    name = str(getattr(network, "name", "network"))
    name = name if len(name) <= _LONGEST else f"{name[:_LONGEST]} ..."
    head = f"{type(network).__name__} network {name!r}" if name else f"{type(network).__name__} network"
    try:
        found = [head, *_rows(network)] if all(_known(leaf) for leaf in jax.tree.leaves(network)) else [head]
    except (AttributeError, TypeError):  # a tree of other things than arrays, as inside of JAX
        found = [head]
    return found[:_LINES]


def _has_rows(part: Any) -> bool:
    return hasattr(part, "senders")


def _known(leaf: Any) -> bool:
    return isinstance(leaf, np.ndarray | np.generic | jax.Array | int | float | bool) and not isinstance(leaf, Tracer)


def _rows(network: Any) -> Iterator[tuple[str, str]]:
    names = network.node_names
    yield "nodes", f"{network.m:,}" + (f": {shown(names)}" if isinstance(names, tuple) else "")
    if hasattr(network, "rule"):
        yield from _fixed(network)
        return
    if hasattr(network, "graphs"):
        yield "rounds", f"{network.size:,} graphs"
    else:
        yield "rounds", "redrawn"
    for one in fields(network):
        value = getattr(network, one.name)
        if one.name in ("m", "name", "format", "run") or np.ndim(value) > 0 or jax.tree.leaves(value) != [value]:
            continue
        yield one.name, f"{value:g}" if isinstance(value, float) or hasattr(value, "dtype") else str(value)
    if (most := getattr(network, "largest_out_degree", None)) is not None:
        yield "out-degree", f"at most {int(most):,}"
    if hasattr(network, "base"):
        head, *rows = _lines(network.base)
        yield "around", head
        yield from rows[1:]


def _fixed(network: Any) -> Iterator[tuple[str, str]]:
    """The rows of a fixed network: degrees, weights, and the gap of a small one."""
    graph = network.graph
    degree = np.sum(np.asarray(graph.mask), axis=1)
    links = int(degree.sum())
    yield "in-degree", f"{degree.min()} to {degree.max()}, mean {degree.mean():.4g}"
    if graph.m > _GAP_UP_TO or graph.synchronised is not None:
        yield "weights", network.rule or "not named"
        return
    from jdfl.network.spectral import spectral_gap, sums_of
    from jdfl.network.tables import to_scipy

    sums = sums_of(to_scipy(graph)).replace("neither", "neither rows nor columns sum to one")
    yield "links", f"{links:,} from node to node"
    yield "weights", f"{network.rule or 'not named'}, {sums}{'' if ' ' in sums else ' stochastic'}"
    yield "gap", f"{spectral_gap(graph):.4g} (1 - the second eigenvalue in modulus)"
