"""Charts of a page as plain data, which script.js draws."""

from collections.abc import Mapping, Sequence
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd

from jdfl.lab.page import Chart
from jdfl.lab.watch import Lanes

_BUCKETS = 150  # of a line, evenly spaced, and as many that are close together at its beginning
_PAIRS = 60_000  # links in all moments together
_TOGETHER = 3000  # links in one


def curves(views: Mapping[tuple[str, str], pd.DataFrame], axes: Mapping[str, str], alt: str) -> Chart:
    """Lines with bands, of a metric y against an amount x that a reader chooses.

    Long lines are thinned: of every bucket of records the first and the last, those with the smallest and the largest
    mean, and the ends of the band are kept, so that no extreme is lost. Buckets are evenly spaced, and others are close
    together at the beginning, for logarithmic axes.

    Args:
        views: Frames by (x, y), with columns label, x, mean, low and high, a row per record. The first pair is shown
            first; values that are not finite are left out.
        axes: The title of every x of `views`.
        alt: The chart in words, for readers who cannot see it.
    """
    pool: dict[tuple[float | int | None, ...], int] = {}  # lists of numbers that several lines share, and their places
    data = {
        f"{x}|{y}": [_line(str(label), one, pool) for label, one in frame.groupby("label", sort=False, observed=True)]
        for (x, y), frame in views.items()
    }
    chosen = {
        "labels": list(dict.fromkeys(line["label"] for lines in data.values() for line in lines)),
        "views": data,
        "lists": [list(one) for one in pool],
        "y": list(dict.fromkeys(y for _, y in views)),
        "x": [[x, axes[x]] for x in dict.fromkeys(x for x, _ in views)],
    }
    return Chart("curves", chosen, alt)


def _line(label: str, one: pd.DataFrame, pool: dict[tuple[float | int | None, ...], int]) -> dict[str, Any]:
    good = one[np.isfinite(one["x"]) & np.isfinite(one["mean"])]
    kept = good.iloc[_thinned(good)]

    def place(name: str, digits: int = 5) -> int:
        return pool.setdefault(tuple(numbers(kept[name], digits)), len(pool))

    line = {"label": label, "x": place("x", 7), "mean": place("mean")}
    if np.any(kept["high"] > kept["low"]):
        line |= {"low": place("low"), "high": place("high")}
    return line


def _thinned(one: pd.DataFrame) -> np.ndarray:
    """The places of the records that are drawn."""
    size = len(one)
    if size <= 4 * _BUCKETS:
        return np.arange(size)
    steps = (np.linspace(0, size, _BUCKETS), np.geomspace(1, size, _BUCKETS))
    edges = np.unique(np.concatenate([[0], *steps]).round().astype(int))
    mean, low, high = (one[name].to_numpy(float) for name in ("mean", "low", "high"))
    low, high = np.where(np.isfinite(low), low, mean), np.where(np.isfinite(high), high, mean)
    kept: set[int] = set()
    for begin, end in zip(edges[:-1].tolist(), edges[1:].tolist()):
        inside = slice(begin, end)
        kept |= {begin, end - 1, begin + int(mean[inside].argmin()), begin + int(mean[inside].argmax())}
        kept |= {begin + int(low[inside].argmin()), begin + int(high[inside].argmax())}
    return np.array(sorted(kept))


def network(nodes: pd.DataFrame, links: pd.DataFrame, alt: str) -> Chart:
    """A network whose nodes are coloured by their values, with a slider over the moments of a run.

    Args:
        nodes: A row per node and moment, with columns round, node, perhaps name, and any numbers, each of them a choice
            for the colour.
        links: Columns `round`, `node` and `hears`: from that round on, the node receives from the node in `hears`;
            node -1 where no node receives anything. Of very many links an even selection is drawn.
        alt: The chart in words, for readers who cannot see it.
    """
    rounds, ids = np.unique(nodes["round"]), np.unique(nodes["node"])
    fields: dict[str, list[list[float | int | None]]] = {}
    for name in nodes.columns.drop(["round", "node", "name"], errors="ignore"):
        table = nodes.pivot_table(index="round", columns="node", values=name, dropna=False)
        fields[str(name)] = [numbers(row) for row in table.reindex(index=rounds, columns=ids).to_numpy(float)]
    pairs = _pairs(links, rounds, ids)
    x, y = _places(ids, np.concatenate([one for _, one in pairs]) if pairs else np.zeros((0, 2), int))
    drawn = [{"moment": moment, "pairs": one.tolist()} for moment, one in pairs]
    names = nodes.drop_duplicates("node").set_index("node").get("name", pd.Series(ids, ids)).reindex(ids).tolist()
    chosen = {"rounds": rounds.tolist(), "nodes": names, "x": x, "y": y, "fields": fields, "links": drawn}
    return Chart("network", chosen, alt)


def bars(x: Sequence[Any], series: Mapping[str, Sequence[float]], x_title: str, y_title: str, alt: str) -> Chart:
    """Stacked bars over `x`, a colour per series.

    Args:
        x: The names of the bars.
        series: The heights by label, in the order in which they are stacked, with a number for every bar.
        x_title: The name of the horizontal axis.
        y_title: The name of the vertical axis.
        alt: The chart in words, for readers who cannot see it.
    """
    lines = [{"label": label, "y": numbers(y)} for label, y in series.items()]
    return Chart("bars", {"x": list(x), "series": lines, "x_title": x_title, "y_title": y_title}, alt)


def timeline(lanes: Lanes) -> Chart:
    """A lane for every node over simulated seconds, a mark for every event, and a line for everything that is sent.

    Args:
        lanes: The events and messages that are shown.
    """
    nodes, events, messages = lanes.nodes, lanes.events, lanes.messages
    place = {node: lane for lane, node in enumerate(nodes)}
    times = [numbers(one, 7) for one in (events["time"], messages["sent"], messages["arrives"])]
    own, giver, taker = ([place[node] for node in one] for one in (events["node"], messages["node"], messages["to"]))
    marks = [list(one) for one in zip(times[0], own, events["kind"].astype(int))]
    named = ((events, "node", "name"), (messages, "node", "name"), (messages, "to", "to_name"))
    names = {i: name for table, of, word in named if word in table for i, name in zip(table[of], table[word])}
    chosen = {"nodes": [names.get(i, i) for i in nodes], "kinds": list(lanes.kinds), "events": marks}
    return Chart(
        "timeline", chosen | {"messages": [list(one) for one in zip(times[1], giver, times[2], taker)]}, lanes.caption
    )


def numbers(values: Any, digits: int = 5) -> list[float | int | None]:
    """The `values` rounded to significant `digits`, None for those that are not finite."""
    found = (float(f"{value:.{digits}g}") if np.isfinite(value) else None for value in np.asarray(values, float))
    return [int(value) if value is not None and value.is_integer() else value for value in found]


def _pairs(links: pd.DataFrame, rounds: np.ndarray, ids: np.ndarray) -> list[tuple[int, np.ndarray]]:
    """(moment, links as pairs of places in `ids`), each pair once, whatever its direction."""
    found: list[tuple[int, np.ndarray]] = []
    for k, one in links.groupby("round"):
        both: np.ndarray = one.loc[one["node"] >= 0, ["node", "hears"]].to_numpy(int)
        places = np.unique(np.sort(np.searchsorted(ids, both), axis=1), axis=0)
        found.append((int(np.searchsorted(rounds, float(str(k)))), places[_evenly(len(places), _TOGETHER)]))
    most = max(1, _PAIRS // max(1, max((len(one) for _, one in found), default=1)))
    return [found[i] for i in _evenly(len(found), most)]


def _evenly(size: int, most: int) -> np.ndarray:
    """At most `most` of `size` places, evenly spaced, with the first and the last."""
    return np.unique(np.linspace(0, size - 1, min(most, size)).round().astype(int))


def _places(ids: np.ndarray, pairs: np.ndarray) -> tuple[list[Any], list[Any]]:
    """Where nodes are drawn: linked ones close to each other."""
    graph: nx.Graph[int] = nx.Graph()
    graph.add_nodes_from(range(len(ids)))
    graph.add_edges_from((u, v) for u, v in pairs.tolist())
    degrees = dict(graph.degree()).values()
    if (
        not len(ids) or max(degrees) <= 2 or not nx.is_connected(graph)
    ):  # a ring, a path, or parts that would drift apart
        found = nx.circular_layout(graph)
    else:
        found = nx.spring_layout(graph, seed=0, iterations=200, k=3.0 / np.sqrt(max(1, len(ids))))
    x, y = np.array([found[i] for i in range(len(ids))]).reshape(-1, 2).T
    return numbers(x, 4), numbers(y, 4)
