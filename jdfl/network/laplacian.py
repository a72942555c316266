"""W = I - L / iota for an undirected network, L being its Laplacian: every link weighs 1 / iota."""

from typing import Any

import numpy as np

from jdfl import checks
from jdfl.arguments import checked
from jdfl.network.arcs import arcs_of, called
from jdfl.network.graph import Static
from jdfl.network.weights import FormatChoice, table


@checked
def laplacian(base: Static, iota: float | None = None, *, format: FormatChoice = "auto") -> Static:
    """The links of a fixed undirected network with the weights 1 / iota, the rest with the nodes themselves.

    W is symmetric and doubly stochastic, and every node keeps some weight of its own where iota > d_max, the largest
    number of neighbours. None takes d_max + 1, as `weights="laplacian"` does. Raises ValueError for iota <= d_max, and
    for networks that change or have links of one way only.
    """
    if not checks.is_a(base, Static):
        raise ValueError(
            f"Expected a fixed network, got {called(base)}, which may change from round to round. Weigh the one that "
            "it is made from."
        )
    links: Any = arcs_of(base.graph)
    if not links.symmetric:
        raise ValueError(
            f"Expected an undirected network, got {called(base)}, which has links of one way only. Its Laplacian would "
            "not be symmetric."
        )
    most = int(np.max(np.asarray(base.graph.in_degree), initial=0))
    iota = most + 1.0 if iota is None else iota
    checks.positive(iota=iota)
    if not iota > most:
        raise ValueError(
            f"Expected iota > d_max = {most}, the largest number of neighbours, got iota = {iota!r}. With less, a node "
            f"would have a negative weight of its own, or none; {most + 1} is usual."
        )
    graph = table(links, np.full(len(links.receiver), 1 / float(iota)), None, format)
    return Static(graph, f"laplacian({called(base)}, iota={float(iota):g})")
