"""The families of kinds, and the few kinds without their own class or function in the library."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import scipy.sparse as sp

from jdfl import algorithms, codecs, events, network, privacy, problems, robust
from jdfl.base import checks
from jdfl.base.settings import As, Count, Natural, Positive
from jdfl.config.kinds import FAMILIES, TRAITS, Family, unbuilt
from jdfl.engine import stopping
from jdfl.network import FormatChoice, Static, Weights

_MOST = 10_000  # networks in turn; all are drawn and stored beforehand


def edge_list_file(
    m: int,
    path: str,
    *,
    directed: bool = False,
    connected: bool = True,
    weights: Weights | Literal["given", "by-distance"] | None = None,
    format: FormatChoice = "auto",
) -> Static:
    """A network from a file: one link `u v` or `u v number` per line, u and v numbers from 0 or names; or an .npz file.

    Args:
        m: The number of nodes.
        path: The file. In the SciPy sparse matrix of an .npz file a nonzero entry (i, j) means that i receives from j;
            without `weights`, values other than 0 and 1 are the mixing matrix itself.
        directed: Edge list: v receives from u, and u does not receive from v.
        connected: Refuse a network in several parts.
        weights: Rule for the mixing weights; None: as given where links have numbers, otherwise metropolis, or uniform
            if links run one way. out-degree is for push-sum; by-distance takes the numbers as lengths.
        format: How sums over neighbours are computed; auto looks at density, degrees and backend.

    Raises FileNotFoundError and ValueError that name the file (and its line).
    """
    file = Path(path)
    options: dict[str, Any] = {"weights": weights, "format": format, "connected": connected, "name": file.name}
    if not file.is_file():
        raise FileNotFoundError(f"Expected a file at network.path, got {path!r}. Check the path.")
    if file.suffix != ".npz":
        return network.from_edges(_edges(file), m, directed=directed, **options)
    try:
        with file.open("rb") as opened:
            adjacency = sp.load_npz(opened)
    except Exception as error:  # damaged directories, heads and streams each fail in ways of their own
        raise ValueError(
            f"Expected a SciPy sparse matrix in {file}: {checks.message(error)}. Save it by scipy.sparse.save_npz."
        ) from error
    checks.shape((m, m), "It must have a row and a column for each of the problem's nodes.", adjacency=adjacency)
    if weights is None and not np.all(adjacency.data == 1):
        del options["weights"]
        return network.from_matrix(adjacency, **options)
    return network.from_scipy(adjacency, **options)


def _edges(path: Path) -> list[tuple[Any, ...]]:
    """The rows of an edge list, names or all of them numbers; blank lines and what follows a # are skipped."""
    edges: list[tuple[Any, ...]] = []
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), start=1):
        words = line.partition("#")[0].replace(",", " ").split()
        if not words:
            continue
        numbers = [word.removeprefix("-").isdecimal() for word in words[:2]]
        like = not edges or (len(words), all(numbers)) == (len(edges[0]), isinstance(edges[0][0], int))
        try:
            weight = [float(word) for word in words[2:]]
        except ValueError:
            like, weight = False, []
        if len(words) not in (2, 3) or any(numbers) != all(numbers) or not like:
            raise ValueError(
                f"Expected two whole numbers or two names `u v`, or `u v number`, in {path}, line {number}, as in the "
                f"lines before, got {line.strip()[:80]!r}."
            )
        edges.append((*(map(int, words[:2]) if all(numbers) else words[:2]), *weight))
    return edges


NETWORKS = Family("networks", lambda: _networks(), "erdos-renyi", given=("m",))
TRAITS["fixed"] = lambda source: signature(source).return_annotation is Static
TRAITS["seeded"] = lambda source: "seed" in signature(source).parameters
FIXED, SEEDED = replace(NETWORKS, only="fixed"), replace(NETWORKS, only="seeded")


def periodic(m: int, base: Annotated[Any, SEEDED, As(make=unbuilt)], count: Count = 10) -> network.Periodic:
    """Several draws of a random network that take turns, one in every round.

    Args:
        m: The number of nodes.
        base: The first draw; the others have the seeds that follow.
        count: Number of draws.
    """
    return network.periodic(_draws(m, base, count))


def random_choice(m: int, base: Annotated[Any, SEEDED, As(make=unbuilt)], count: Count = 10) -> network.RandomChoice:
    """Several draws of a random network, one of them chosen at random in every round.

    Args:
        m: The number of nodes.
        base: The first draw; the others have the seeds that follow.
        count: Number of draws.
    """
    return network.random_choice(_draws(m, base, count))


def _draws(m: int, base: Any, count: int) -> list[Static]:
    checks.integer(1, _MOST, "Networks that are redrawn in every round need no storage: random-links.", count=count)
    return [replace(base, seed=base.seed + i).build(m=m) for i in range(count)]


def auto(algorithm: Any) -> stopping.StopRule | None:
    """The stop rule of the algorithm's paper: CEPS stops when the nodes agree, the others run all rounds.

    Args:
        algorithm: The algorithm that is run.
    """
    return consensus(algorithm) if isinstance(algorithm, algorithms.CEPS) else None


def consensus(
    algorithm: Any, tolerance: Positive = 5e-3, per: Positive | None = None, after: Natural = 0
) -> stopping.StopRule:
    """Stop when the nodes agree: (1/m) sum_i ||w_i - average||^2 <= tolerance * per. Nodes can agree without progress.

    Args:
        algorithm: The algorithm that is run.
        tolerance: Tolerance of the consensus error; the CEPS paper uses 5e-3.
        per: Factor of the tolerance; None: the nonzeros s of the algorithm, as in the CEPS paper, or 1.
        after: Number of rounds before the rule may fire.
    """
    per = float(getattr(algorithm, "s", 1)) if per is None else per
    return stopping.ConsensusBelow(tolerance, per, after)


def _algorithms() -> dict[str, Callable[..., Any]]:
    return algorithms.REGISTRY | {"ceps-paper": algorithms.CEPS.paper} | events.REGISTRY


def _networks() -> dict[str, Callable[..., Any]]:
    seeded = (
        network.erdos_renyi,
        network.k_regular,
        network.k_in,
        network.watts_strogatz,
        network.barabasi_albert,
        network.random_geometric,
    )
    plain = (network.ring, network.circulant, network.exponential, network.d_out, network.torus, network.star)
    fixed = (*seeded, *plain, network.complete, network.de_bruijn, network.equi_static, edge_list_file)
    drawn = (network.random_links, network.erdos_renyi_rounds, network.random_neighbours, network.random_matching)
    changing = (
        *drawn,
        network.base_graph,
        network.one_peer_exponential,
        network.equi_rounds,
        network.matcha,
        periodic,
        random_choice,
    )
    missing = (network.partial_communication, network.link_loss, network.bursty_loss, network.node_participation)
    around = (*missing, network.outages, network.membership, network.delays, network.timed, network.synchronised)
    return {one.__name__.replace("_", "-"): one for one in (*fixed, *changing, *around, network.laplacian)}


def _named(classes: Iterable[Any]) -> dict[str, Callable[..., Any]]:
    return {one.kind: one for one in classes}


_CODECS = (
    codecs.OneBit,
    codecs.Dense,
    codecs.Sparse,
    codecs.RandomK,
    codecs.QSGD,
    codecs.Sign,
    codecs.LowRank,
)
_PROBLEMS = {
    "example1": problems.example1,
    "classification": problems.classification,
    "neural": problems.neural_classification,
}
_TIMES = {
    "fixed": network.FixedTime,
    "exponential": network.ExponentialTime,
    "log-normal": network.LogNormalTime,
    "pareto": network.ParetoTime,
}
_STOPS = {
    "auto": auto,
    "consensus": consensus,
    "objective": stopping.ObjectiveBelow,
    "gradient": stopping.GradientBelow,
}
ALGORITHMS = Family("algorithms", lambda: _algorithms(), "ceps")
CODECS = Family("codecs", lambda: _named(_CODECS), "dense")
MECHANISMS = Family("mechanisms", lambda: _named((privacy.Gaussian, privacy.Laplace, privacy.ExactGaussian)))
UPDATES = Family("updates", lambda: _named((algorithms.Updates,)))
RULES = Family("rules", lambda: robust.RULES, "clipped-gossip")
PROBLEMS = Family("problems", lambda: _PROBLEMS, "example1")
TIMES = Family("times", lambda: _TIMES)
STOPS = Family("stop rules", lambda: _STOPS, "auto", given=("algorithm",))
FAMILIES.update(
    {
        codecs.Codec: CODECS,
        privacy.Mechanism: MECHANISMS,
        algorithms.Updates: UPDATES,
        robust.Rule: RULES,
        network.Times: TIMES,
        network.Network: NETWORKS,
        Static: FIXED,
    }
)
ALL = (ALGORITHMS, PROBLEMS, NETWORKS, CODECS, MECHANISMS, UPDATES, RULES, TIMES, STOPS)
