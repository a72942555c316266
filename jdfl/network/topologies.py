"""Networks that exist, with the places of their nodes and the lengths of their links, from the package topohub.

Axes: m nodes, e links.
"""

import difflib
import json
from collections import Counter
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal

import networkx as nx
import numpy as np

from jdfl.base import checks, struct
from jdfl.base.arguments import checked
from jdfl.base.names import NodeNames
from jdfl.base.settings import Bound
from jdfl.network.conversions import from_edges
from jdfl.network.graph import Static
from jdfl.network.timing import LinkTimes
from jdfl.network.weights import FormatChoice, Weights

_NEAR = 5  # names that are suggested


@struct.dataclass
class Topology(Static):
    """A fixed network whose nodes are somewhere. `topohub` builds it."""

    positions: Any = struct.field(per_node=True, kw_only=True)  # [m, 2]: longitude and latitude in degrees, or km
    node: Any = struct.field(per_node=True, kw_only=True)  # [m] int32, the numbers of nodes in `other`
    other: Any = struct.field(per_node=True, kw_only=True)  # [m, d] int32, neighbours, increasing, and m as padding
    lengths: Any = struct.field(per_node=True, kw_only=True)  # [m, d] the lengths of the links to them, in km
    geographic: bool = struct.field(pytree_node=False, default=True)  # whether positions are in degrees

    def latency(self, speed: Annotated[float, Bound("(0, inf)")] = 2e5) -> LinkTimes:
        """The times of messages on its links, length / speed, for `timed(network, latency=network.latency())`.

        Args:
            speed: In km per second; 2e5 is the speed of light in glass fibre.
        """
        checks.positive("It is in km per second, such as 2e5 in glass fibre.", speed=speed)
        return LinkTimes(self.node, self.other, np.asarray(self.lengths) / speed, NodeNames(self.node_names))

    def kilometres(self) -> dict[tuple[Any, Any], float]:
        """The length of every link in km, by the names of its two nodes."""
        names, place, other = self.node_names or range(self.m), np.argsort(self.node), np.asarray(self.other)
        links = [(i, place[other[i, j]], self.lengths[i, j]) for i, j in np.argwhere(other < self.m)]
        return {(names[i], names[j]): float(length) for i, j, length in links if i < j}


@checked
def topohub(
    name: str, *, weights: Weights | Literal["by-distance"] | None = None, format: FormatChoice = "auto"
) -> Topology:
    """A network that exists, or a Gabriel graph, of TopoHub: `pip install 'jdfl[natural]'`.

        network = jdfl.network.topohub("topozoo/Geant2012")
        jdfl.network.timed(network, latency=network.latency())

    P. Jurkiewicz, "TopoHub: a repository of reference Gabriel graph and real-world topologies for networking research",
    2023. It has topozoo/ (Internet Topology Zoo), sndlib/, caida/, backbone/ and gabriel/. Nodes have the names given
    there; a name that several nodes have, and a node without, is followed by its number there. Links have the lengths
    given there, 0 between nodes at one place.

    Args:
        name: A group and a name, such as "sndlib/polska", "backbone/africa" or "gabriel/25/0".
        weights: Rule for the mixing weights; None: metropolis. "by-distance" takes the lengths, see `from_edges`.

    Raises:
        OSError: Where the package is not installed.
        ValueError: For an unknown name, and for a topology that is directed or in several parts.
    """
    try:
        package = import_module("topohub")
    except ModuleNotFoundError as error:
        raise OSError(
            "Expected the package topohub, which has the data, found none. Install it: `pip install 'jdfl[natural]'`"
        ) from error
    root = Path(package.__path__[0]) / "data"
    known = sorted(one.relative_to(root).with_suffix("").as_posix() for one in root.rglob("*.json"))
    if name not in known:
        ends = {key: full for full in known for key in (full.casefold(), full.casefold().split("/")[-1])}
        near = [ends[one] for one in difflib.get_close_matches(name.casefold(), ends, 2 * _NEAR)]
        groups = ", ".join(f"{group} ({count})" for group, count in Counter(one.split("/")[0] for one in known).items())
        meant = ", ".join(list(dict.fromkeys(near))[:_NEAR]) or groups
        checks.refuse("a topology of topohub", "name", name, f"Near are: {meant}." if near else f"It has {groups}.")
    given = json.loads((root / f"{name}.json").read_text(encoding="utf-8"))
    if given["directed"] or given["multigraph"]:
        raise ValueError(f"Expected an undirected topology, got {name}, which has links that run one way. Use another.")
    graph: Any = nx.node_link_graph(given, edges="edges")
    if (parts := nx.number_connected_components(graph)) > 1:
        raise ValueError(f"Expected a connected topology, got {name} in {parts} parts. Choose another one.")
    words = [graph.nodes[node].get("name", "node") for node in graph]
    twice, m, place = Counter([*words, "node", "node"]), len(graph), {node: i for i, node in enumerate(graph)}
    names = [f"{word} {node}" if twice[word] > 1 else word for word, node in zip(words, graph)]
    links = [(place[u], place[v], float(km)) for u, v, km in graph.edges(data="dist")]
    if weights == "by-distance" and (short := sum(km <= 0 for *_, km in links)):
        raise ValueError(
            f"Expected lengths above 0 with weights='by-distance', got {short} of 0 km in {name}. Choose "
            "weights='metropolis'."
        )
    edges = links if weights == "by-distance" else [link[:2] for link in links]
    made = from_edges(edges, m, weights=weights, format=format, name=name).named(names)
    rows = [sorted((place[v], float(one["dist"])) for v, one in graph.adj[node].items()) for node in graph]
    other, lengths = np.full((m, max(map(len, rows))), m, np.int32), np.zeros((m, max(map(len, rows))))
    for i, row in enumerate(rows):
        other[i, : len(row)], lengths[i, : len(row)] = zip(*row)
    return Topology(
        made.graph,
        made.name,
        made.rule,
        positions=np.array([graph.nodes[node]["pos"] for node in graph], float),
        node=np.arange(m, dtype=np.int32),
        other=other,
        lengths=lengths,
        geographic=not name.startswith("gabriel/"),
    )
