"""Tests on repeated rounds: each belongs to a family, and has a p-value that is valid for sound noise and sampling.

All tests of an audit share one significance level, divided by their number: C. E. Bonferroni, "Teoria statistica delle
classi e calcolo delle probabilità", 1936.

Axes: N runs, T rounds, m nodes, n numbers that a node shows, r replaced records, K places of records.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy

LEVEL = 1e-6  # probability of a false alarm in a sound setting, over all of its tests
_SLACK = 1e-3  # relative, of sensitivities in float32
_FEW, _MANY = 20, 200  # minimum sample for a test of scale, and for one of covariance
_CELLS = 96  # maximum number of rows of a covariance table
_CLOSE = 1e-4  # distance below which two residuals count as a collision

Family = Literal[
    "residual scale",
    "residual shape",
    "residual covariance",
    "residual magnitudes",
    "residual collisions",
    "residual tails",
    "release count",
    "sensitivity",
    "leak",
    "sampling",
]


@dataclass(frozen=True)
class Finding:
    """One test: its family, the measurement, and its probability if everything is sound (0 if it is impossible)."""

    family: Family
    text: str
    p: float
    level: float = 0.0  # below which p counts, set by `fired`


def fired(tests: list[Finding], level: float = LEVEL) -> tuple[Finding, ...]:
    """The findings that a sound setting shows with a total probability of at most `level`, the clearest first."""
    each = level / max(1, len(tests))
    found = [Finding(one.family, one.text, one.p, each) for one in tests if one.p < each]
    return tuple(sorted(found, key=lambda one: one.p))


def judge_residuals(z: np.ndarray, live: np.ndarray, gaussian: bool, precision: float) -> list[Finding]:
    """The residual families on z [N, T, m, n], standard noise where `live` [N, T, m, n]; z has a given `precision`."""
    if not gaussian:  # transform to standard normal
        away = scipy.stats.norm.isf(np.exp(scipy.stats.laplace.logsf(np.abs(z))))
        z = np.sign(z) * np.minimum(away, 38.0)
    runs, T, m, n = z.shape
    groups = {f"round {t}, node {i}": z[:, t, i][live[:, t, i]] for t in range(T) for i in range(m)}
    groups |= {f"number {j}": z[..., j][live[..., j]] for j in spread(n)}
    every = groups["all"] = z[live]
    tests = [one for where, numbers in groups.items() for one in _scale(where, numbers)]
    shape = scipy.stats.kstest(every, scipy.stats.norm.cdf).pvalue
    tests.append(Finding("residual shape", "Kolmogorov-Smirnov", float(shape)))
    tests += _collisions(every, precision) + _tails(every) + _repeats(z, live, precision)
    z, alive = np.where(live, z, 0.0), live.astype(float)
    cells, some = spread(T * m), spread(n)
    rows, there = (a.transpose(1, 2, 0, 3).reshape(T * m, -1)[cells] for a in (z, alive))
    tests += _covariances(rows, there, [f"round {cell // m}, node {cell % m}" for cell in cells])
    columns, here = (np.moveaxis(a[..., some], -1, 0).reshape(len(some), -1) for a in (z, alive))
    tests += _covariances(columns, here, [f"number {j}" for j in some])
    first, second = (a.reshape(1, -1) for a in (z[: runs - 1], z[1:]))
    both = (live[: runs - 1] & live[1:]).reshape(1, -1).astype(float)
    tests += _pairs("residual covariance", np.r_[first, second] * both, np.r_[both, both], ["a run", "the next run"])
    return tests


def judge_sums(noisy: np.ndarray, fresh: np.ndarray) -> list[Finding]:
    """Whether what noise adds, noisy [N, T, m, k], varies as much as what fresh noise adds in its place.

    The logarithm of the ratio of two sample variances of N normal numbers has about variance 4 / (N - 1); all numbers
    of a round and node count as one, since their noise may be mixed.
    """
    count, tests = len(noisy), list[Finding]()
    if count < _FEW:
        return []
    for t in range(noisy.shape[1]):
        for i in range(noisy.shape[2]):
            mine, other = noisy[:, t, i].var(axis=0, ddof=1), fresh[:, t, i].var(axis=0, ddof=1)
            live = (other > 1e-12 * other.max(initial=0.0)) & (other > 0)
            if not live.any():
                continue
            ratio = float(np.mean(np.log(np.maximum(mine[live], 1e-300) / other[live])))
            p = float(2 * scipy.stats.norm.sf(abs(ratio) / np.sqrt(4 / (count - 1))))
            tests.append(Finding("residual scale", f"round {t}, node {i}: {np.exp(ratio):.4g} times fresh noise", p))
    return tests


def judge_counts(z: np.ndarray, live: np.ndarray, releases: np.ndarray) -> list[Finding]:
    """Whether nodes show more noisy vectors than `releases` [N, T, m] counts: z and `live` are [N, T, m, blocks, n].

    Where one release is counted, all blocks that show it must carry the same noise.
    """
    shown = live.any(axis=-1)
    uncounted = int(np.sum(shown.any(axis=-1) & (releases == 0)))
    apart = _apart(z, live & (releases == 1)[..., None, None])
    return [
        Finding("release count", f"noise was shown {uncounted} times without being counted", float(uncounted == 0)),
        Finding("release count", f"two blocks of one release differ by {apart:.3g} units", float(apart <= 0.05)),
    ]


def _apart(x: np.ndarray, live: np.ndarray) -> float:
    """The largest difference between two `live` blocks of x [..., blocks, n] in a number."""
    high, low = np.where(live, x, -np.inf).max(axis=-2), np.where(live, x, np.inf).min(axis=-2)
    return float(np.where(live.any(axis=-2), high - low, 0.0).max())


def judge_changes(
    change: np.ndarray,
    scale: np.ndarray,
    other: np.ndarray,
    own: np.ndarray,
    order: int,
    largest: float,
    precision: float,
    single: bool,
) -> list[Finding]:
    """Sensitivity and leaks: changes [r, m, blocks, n] by records of nodes `own` [r, m], which may reach `largest`.

    `scale` [r, m, blocks, n] is the noise's scale in one world and `other` in the other; 0 means no noise. `largest` is
    in units of the scale. With a `single` release per round, all blocks that show its noise must change equally.
    """
    live = scale != 0
    units = np.where(live, change / np.where(live, scale, 1), 0.0)
    size = np.linalg.norm(units, ord=order, axis=-1).max(axis=-1)  # [r, m]
    worst, top = float(size[own].max()), float(np.abs(change).max())
    slack = _SLACK * largest + 4 * precision * change.shape[-1] ** (1 / order)
    blur = 1e-5 * top + 8 * precision * float(np.abs(scale).max())
    stray = float(np.abs(change).max(axis=(-2, -1))[~own].max(initial=0.0))
    bare = float(np.abs(np.where(live, 0.0, change)).max())
    broad = float(np.abs(np.where(live, other / np.where(live, scale, 1) - 1, 0.0)).max())
    tests = [
        Finding("sensitivity", f"{worst:.4g} units of the noise, of {largest:.4g}", float(worst <= largest + slack)),
        Finding("leak", f"another node moves by {stray:.3g}", float(stray <= blur)),
        Finding("leak", f"a number without noise moves by {bare:.3g}", float(bare <= blur)),
        Finding("leak", f"the noise's scale changes by a share of {broad:.3g}", float(broad <= _SLACK + 8 * precision)),
    ]
    if single:
        apart = _apart(units, live)
        text = f"two blocks of one release move {apart:.3g} units apart"
        tests.append(Finding("leak", text, float(apart <= slack + 8 * precision)))
    return tests


def judge_hits(hit: np.ndarray, share: np.ndarray, seen: np.ndarray, independent: bool) -> list[Finding]:
    """Sampling: `hit` [K, N, T, m], whether a record was used, which has probability `share` [m].

    Only where `seen` [K, N, T, m]: the record exists, and its node released something. Rounds and nodes are
    independent, and records too where `independent`.
    """
    tests: list[Finding] = []
    for i, p in enumerate(share.tolist()):
        for k in np.flatnonzero(seen[..., i].any(axis=(1, 2))):
            total, count = int(seen[k, ..., i].sum()), int((hit & seen)[k, ..., i].sum())
            tests.append(Finding("sampling", f"node {i}, place {k}: {count} of {total}", _by_chance(count, total, p)))
    drawn = (share > 0) & (share < 1)
    spread = np.sqrt(np.where(drawn, share * (1 - share), 1.0))
    free = np.where(seen & drawn, (hit - share) / spread, 0.0)  # [K, N, T, m]
    largest = np.where(drawn, np.maximum(share, 1 - share) / spread, 0.0)
    # Records of one subset are dependent: their products are summed before they count as independent.
    width, more = (1, 1) if independent else (len(hit), 2)
    for i in np.flatnonzero(drawn):
        pairs = [("rounds", free[:, :, :-1, i] * free[:, :, 1:, i], largest[i] ** 2)]
        if independent:
            pairs.append(("records", free[:-1, ..., i] * free[1:, ..., i], largest[i] ** 2))
        pairs += [(f"nodes, the other {j},", free[..., i] * free[..., j], largest[i] * largest[j]) for j in range(i)]
        for name, products, top in pairs:
            # S. Bernstein's inequality: products are bounded, and rare events have long tails.
            size, total = more * np.count_nonzero(products), abs(float(products.sum()))
            bound = 2 * np.exp(-(total**2) / 2 / max(1.0, size + width * top * total / 3))
            tests.append(Finding("sampling", f"node {i}, two {name} are drawn together", float(min(1.0, bound))))
    return tests


def spread(count: int, most: int = _CELLS) -> list[int]:
    """At most `most` elements of range(count), equally spaced."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(int)).tolist()


def _scale(where: str, cells: np.ndarray) -> list[Finding]:
    """Test that the variance of standard normal numbers is 1."""
    if len(cells) < _FEW:
        return []
    total = float(np.sum(cells**2))
    p = 2 * min(scipy.stats.chi2.cdf(total, len(cells)), scipy.stats.chi2.sf(total, len(cells)))
    return [Finding("residual scale", f"{where}: variance {total / len(cells):.4g}", float(min(1.0, p)))]


def _tails(every: np.ndarray) -> list[Finding]:
    tests = list[Finding]()
    for beyond in np.arange(2.0, 5.0, 0.5):
        found, share = int(np.sum(np.abs(every) > beyond)), 2 * scipy.stats.norm.sf(beyond)
        text = f"{found} numbers beyond {beyond:g} standard deviations, expected {len(every) * share:.3g}"
        tests.append(Finding("residual tails", text, _by_chance(found, len(every), share)))
    return tests


def _by_chance(count: int, total: int, share: float) -> float:
    """The two-sided p-value of a count that is binomial."""
    tail = min(scipy.stats.binom.cdf(count, total, share), scipy.stats.binom.sf(count - 1, total, share))
    return float(min(1.0, 2 * tail))


def _repeats(z: np.ndarray, live: np.ndarray, precision: float) -> list[Finding]:
    """Test whether the noise of two releases, z [N, T, m, n], is the same: keys of few bits repeat."""
    rows = z.reshape(-1, z.shape[-1])[live.reshape(-1, z.shape[-1]).all(axis=-1)]
    n, close = rows.shape[-1], max(_CLOSE, 4 * precision)
    if len(rows) < 2:
        return []
    cells = np.unique(np.round(rows / close), axis=0, return_counts=True)[1]
    found = int(np.sum(cells * (cells - 1) // 2))
    expected = len(rows) ** 2 / 2 * (close / (2 * np.sqrt(np.pi))) ** n
    text = f"{found} pairs of releases with the same noise, expected {expected:.2g}"
    return [Finding("residual collisions", text, float(scipy.stats.poisson.sf(found - 1, 1.5 * expected + 1e-12)))]


def _collisions(every: np.ndarray, precision: float) -> list[Finding]:
    """Test for repeated values: noise of few bits repeats more often than a density would."""
    close = max(_CLOSE, 4 * precision)
    every = np.sort(every[: 10 * 2**10])
    near = np.searchsorted(every, every + close, side="right") - np.arange(len(every)) - 1
    count, expected = int(near.sum()), len(every) ** 2 * close / (2 * np.sqrt(np.pi))
    p = scipy.stats.poisson.sf(count - 1, 1.5 * expected + 10)  # pairs are not independent: a clear excess counts
    return [Finding("residual collisions", f"{count} pairs closer than {close:.2g}, expected {expected:.0f}", float(p))]


def _covariances(rows: np.ndarray, there: np.ndarray, names: list[str]) -> list[Finding]:
    """Covariances of all pairs of rows: of the residuals, and of their magnitudes, by their ranks under the law."""
    ranks = np.where(there > 0, np.sqrt(12.0) * (2 * scipy.stats.norm.cdf(np.abs(rows)) - 1.5), 0.0)
    return _pairs("residual covariance", rows, there, names) + _pairs("residual magnitudes", ranks, there, names)


def _pairs(family: Family, rows: np.ndarray, there: np.ndarray, names: list[str]) -> list[Finding]:
    products, square = rows @ rows.T, rows**2
    if there.all():
        sums = square.sum(axis=1)
        both, length = np.full(products.shape, rows.shape[1]), np.sqrt(np.outer(sums, sums))
    else:
        both, length = there @ there.T, np.sqrt((square @ there.T) * (there @ square.T))
    first, second = np.tril_indices(len(rows), -1)
    many = both[first, second] >= _MANY
    cells = first[many], second[many]
    p = 2 * scipy.stats.norm.sf(np.abs(products[cells]) / np.maximum(length[cells], 1e-300) * np.sqrt(both[cells]))
    return [Finding(family, f"{names[i]} and {names[j]}", float(one)) for i, j, one in zip(*cells, p)]
