"""The privacy accountant against two independent ones: whether its bounds hold, and how tight they are.

Run `python -m benchmarks.accountants [--quick] [--out DIR]`; ten minutes on two cores. One is `rounded_losses`, with
lower and upper bounds; the other is prv-accountant (S. Gopi, Y. T. Lee, L. Wutschitz: Numerical Composition of
Differential Privacy, 2021), with its own bounds for samples under add-remove, if it is installed: pip install --no-deps
prv-accountant. Every row is jdfl's epsilon divided by a lower bound, which must be at least 1, or by an upper bound,
which should be at most 1.01. Samples under replace-one have only a lower bound: that of the worst known pair, while
jdfl's bound must hold for all pairs.
"""

import importlib
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks.common import Options, Row, benchmark, row
from benchmarks.rounded_losses import Pair, bracket
from jdfl.privacy import GaussianEvent, LaplaceEvent, Sampled, epsilon

NAME = "accountants"
RESULT = (
    "With noise multiplier 1, sampling rate 0.1 and 100 releases, epsilon is {z=1, rate=0.1, T=100, delta=1e-06 -> "
    "over rounded losses, from below} times an independent lower bound and {z=1, rate=0.1, T=100, delta=1e-06 -> over"
    " rounded losses, from above} times its upper bound."
)
LIMIT = (
    "Rows of samples under replace-one have no upper bound. For Poisson samples jdfl's is that of a pair which "
    "dominates all others by joint convexity; that the pair of two records on either side of zero is the worst one is "
    "not proven, and a bound that assumed it would not be valid."
)
RECORDS = 1000
NOISE = (0.1, 0.3, 0.6, 1.0, 2.0, 5.0, 10.0)
RATES = (0.001, 0.01, 0.1, 0.5)
RELEASES = (1, 10, 100, 1000, 10_000)
ALONE = ((0.0, 1.0),)


def settings() -> Iterator[tuple[float, float, int, float]]:
    """Multiplier, rate, releases and delta: every multiplier with every rate, over all numbers of releases."""
    for i, z in enumerate(NOISE):
        for j, rate in enumerate(RATES):
            yield z, rate, RELEASES[(i + 2 * j) % len(RELEASES)], (1e-5, 1e-6)[(i + j) % 2]


def sampled_pairs(kind: Any, z: float, rate: float, adjacency: str) -> list[Pair]:
    """The pairs that distinguish a record that is added or replaced, in both directions."""
    one = ((1 - rate, 0.0), (rate, 1.0)) if rate < 1 else ((1.0, 1.0),)
    other = ((1 - rate, 0.0), (rate, -1.0)) if adjacency == "replace-one" else ((1.0, 0.0),)
    return [Pair(kind, z, one, other), Pair(kind, z, other, one)]


def own_bounds(pairs: Sequence[Pair], releases: int, delta: float, about: float) -> tuple[float, float]:
    """The larger bounds of both directions."""
    found = [bracket(pair, releases, delta, about) for pair in pairs]
    return max(low for low, _ in found), max(high for _, high in found)


def prv_bounds(z: float, rate: float, releases: int, delta: float, about: float) -> tuple[float, float] | None:
    """The bounds of prv-accountant; None where it is not installed, or has none."""
    try:
        prv: Any = importlib.import_module("prv_accountant")
    except ModuleNotFoundError:
        return None
    one = prv.PoissonSubsampledGaussianMechanism(noise_multiplier=z, sampling_probability=rate)
    try:
        how: Any = {"eps_error": max(4e-3 * about, 1e-3), "delta_error": 1e-3 * delta}
        accountant = prv.PRVAccountant(prvs=[one], max_self_compositions=[releases], **how)
        low, _, high = accountant.compute_epsilon(delta=delta, num_self_compositions=[releases])
    except (ValueError, RuntimeError, MemoryError, FloatingPointError) as error:
        print(f"prv-accountant has no bounds for z = {z:g}, rate = {rate:g}, T = {releases}: {error!r:.100}")
        return None
    return float(low), float(high)


def rows_of(case: str, found: float, bounds: dict[str, tuple[float, float] | None]) -> Iterator[Row]:
    """The epsilon of jdfl divided by the bounds of the others."""
    yield Row(case, "epsilon", found, "")
    for name, ends in bounds.items():
        if ends is not None and ends[0] > 0:
            yield row(case, f"over {name}, from below", [found / ends[0]], "", ">= 1")
            yield row(case, f"over {name}, from above", [found / ends[1]], "", "<= 1.01")


def poisson(z: float, rate: float, releases: int, delta: float) -> Iterator[Row]:
    """Poisson samples and Gaussian noise under add-remove."""
    sampled = Sampled("poisson", round(rate * RECORDS), RECORDS)
    found = epsilon(GaussianEvent(z), releases, delta, sampled=sampled, adjacency="add-remove")
    own = own_bounds(sampled_pairs("norm", z, rate, "add-remove"), releases, delta, found)
    bounds = {"rounded losses": own, "prv-accountant": prv_bounds(z, rate, releases, delta, found)}
    yield from rows_of(f"z={z:g}, rate={rate:g}, T={releases}, delta={delta:g}", found, bounds)


def whole(kind: Any, z: float, releases: int, delta: float) -> Iterator[Row]:
    """Releases that use all records."""
    event = GaussianEvent(z) if kind == "norm" else LaplaceEvent(z)
    found = epsilon(event, releases, delta)
    own = own_bounds([Pair(kind, z, ((1.0, 1.0),), ((1.0, 0.0),))], releases, delta, found)
    yield from rows_of(
        f"{event.kind}, all records, z={z:g}, T={releases}, delta={delta:g}", found, {"rounded losses": own}
    )


def replaced(kind: Any, z: float, rate: float, releases: int, delta: float) -> Iterator[Row]:
    """Samples under replace-one: records half as far on either side of zero or, for subsets, all others on one side."""
    sampled = Sampled(kind, round(rate * RECORDS), RECORDS)
    found = epsilon(GaussianEvent(z), releases, delta, sampled=sampled)
    pairs = sampled_pairs("norm", 2 * z, rate, "replace-one")
    pairs += sampled_pairs("norm", z, rate, "add-remove") if kind == "subset" else []  # all others on one side
    low, _ = own_bounds(pairs, releases, delta, found)
    case = f"replace-one, {kind}, z={z:g}, rate={rate:g}, T={releases}, delta={delta:g}"
    yield Row(case, "epsilon", found, "")
    yield row(case, "over a bound of one pair, from below", [found / low], "", ">= 1")


@benchmark("The accountant against others")
def main(chosen: Options) -> list[Row]:
    """All figures."""
    rows: list[Row] = []
    for setting in [(1.0, 0.01, 10, 1e-5)] if chosen.quick else settings():
        rows += poisson(*setting)
        print(rows[-1].case, flush=True)
    if not chosen.quick:
        for kind, z, releases in [("norm", 1.0, 1), ("norm", 5.0, 100), ("norm", 10.0, 1000)]:
            rows += whole(kind, z, releases, 1e-5)
        for kind, z, releases in [("laplace", 1.0, 1), ("laplace", 5.0, 10), ("laplace", 20.0, 100)]:
            rows += whole(kind, z, releases, 1e-5)
        for kind in ("subset", "poisson"):
            for z, rate, releases in [(1.0, 0.01, 100), (2.0, 0.1, 100), (0.6, 0.001, 10)]:
                rows += replaced(kind, z, rate, releases, 1e-5)
    return rows


if __name__ == "__main__":
    main()
