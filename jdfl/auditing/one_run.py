"""`jdfl.audit_one_run`: an audit in about the time of one run, for models too large for thousands of runs.

Many records across all nodes are canaries. A fair secret coin decides for each of them which of two records it is, or
whether it is present. The run is made, and each coin is guessed from what the canary's node shows; the number of
correct guesses gives a bound on epsilon (`epsilon_shown`).

A canary's gradient is a single entry, distinct within each node (`Dirac`), so canaries do not interfere
with one another. Every round is repeated from the same state with the same keys, without noise and without canaries.
The difference, in units of the noise, is the noise plus the canaries' gradients, as if all other records had none. Such
data are among those that the guarantee covers, whatever else an algorithm stores or samples. A canary's score is the
sum of its entry over all rounds.

The bound. m records are each in one of two states, decided by a fair secret coin, and a run uses all of them. An
adversary sees what it releases and guesses r of the m coins, which it may choose. Let every record be protected by
(epsilon, delta), whatever the states of the others, q = e^epsilon / (1 + e^epsilon), and W be the number of correct
guesses. Then

    P[W >= v] <= P[B_r >= v] + m delta / (1 + e^epsilon) * (1 / r) sum_{k < r} max_j P[B_k = j],

where B_k is binomial with k trials and probability q. So r guesses are worth r answers of a randomised response, and
nothing is lost for the number of records. The first term and the idea are those of T. Steinke, M. Nasr, M. Jagielski,
"Privacy auditing with one (1) training run", 2023 (Theorem 5.2); the term with delta is derived here, since theirs is
larger where epsilon is large.

Proof. Reveal the coins one after another in any order, given the release t. Coin i is guessed correctly with a
probability K_i that depends on t and on the coins before it. With g(k, w) = P[w + B_k >= v], which is q g(k-1, w+1) +
(1-q) g(k-1, w), replacing the i-th guess by one of probability q changes P[W >= v] by the mean of (K_i - q) times a
difference g(k, w+1) - g(k, w) = P[B_k = v-1-w], where k guesses come after it. This is at most max_j P[B_k = j] times
max(0, K_i - q), whose mean given t only grows if K_i knows all other coins (Jensen). It is then the probability for
one record between two worlds P and Q of the release, and P <= e^epsilon Q + delta, in both directions, gives a mean of
at most (1-q) delta. Over a random order of the coins k is uniform on 0, ..., r-1 for any t, which gives the sum.

Axes: m nodes, q examples per node, n parameters, K canaries, c blocks of n numbers that a node shows.
"""

import time
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy
from jax import Array

from jdfl.algorithms.algorithm import Algorithm
from jdfl.auditing.attack import Verdict, above, basis, check_level, separation
from jdfl.auditing.canary import Limit, check_dense
from jdfl.auditing.observe import check_visible, started
from jdfl.auditing.probe import amount_of, noisy_guarantee, refusal, repeated
from jdfl.base import checks, struct
from jdfl.base.keys import typed_key
from jdfl.base.streams import Stream
from jdfl.engine import stepping
from jdfl.engine.spending import records_of
from jdfl.engine.start import check_run
from jdfl.engine.stepping import Setting
from jdfl.network.graph import Network
from jdfl.privacy import GaussianEvent, Ledger
from jdfl.privacy.analytic import check_delta
from jdfl.problems import Problem

_COINS, _WHERE = Stream("audit.coins", "private"), Stream("audit.canaries", "private")
_MOST, _DELTA = 1000, 0.2  # default number of canaries, and default delta times their number
_LONG = 10.0  # norm of a canary's gradient, in clips, so that skipping the clip shows
_GRID = np.arange(0.0, 20.0, 0.005)  # epsilons that are tried
_SHARES = (0.5, 0.125)  # of the coins that are guessed: many where much is revealed, few where little is


@dataclass(frozen=True, kw_only=True)
class OneRun(Verdict):
    """What guessing the coins of many canaries from one run proves about epsilon.

    `epsilon_lower` is a bound at `confidence`. `mu_hat` is the distance between the scores of canaries with either
    outcome of the coin, in standard deviations: an estimate of what a single canary reveals, which proves nothing by
    itself.
    """

    epsilon_most: float  # the bound if all guesses were correct
    mu_hat: float
    mu_low: float  # lower end of its confidence interval
    mu_high: float  # upper end
    canaries: int  # number of coins
    guesses: int  # used for the bound
    right: int  # correct ones among them
    releases: int  # by the node with most
    mu_accounted: float | None  # None for noise that is not Gaussian, and for gradients of samples
    claimed: bool  # whether the algorithm claims it, or it would follow if all assumptions held
    left_out: tuple[str, ...]  # what the guarantee leaves out

    @property
    def inconclusive(self) -> bool:
        """Whether the accounted epsilon is above `epsilon_most`, which more canaries raise logarithmically."""
        return not self.violated and self.epsilon_accounted > self.epsilon_most

    def statement(self) -> str:
        """The audit in words, as Markdown list items; first VIOLATED, INCONCLUSIVE or not refuted."""
        verdict = "VIOLATED" if self.violated else "INCONCLUSIVE" if self.inconclusive else "not refuted"
        why = "" if self.violated else ". One run can only refute gross errors; another attack may be better"
        why = ", which this number of canaries cannot refute" if self.inconclusive else why
        mu = "" if self.mu_accounted is None else f", against an accounted {self.mu_accounted:.4g}"
        lines = [
            f"audit of one run: {verdict}: the attack on {self.algorithm} shows {self._shown}, against "
            f"an accounted {self._account} ({basis(self.claimed)}){why}",
            f"mu: {self.mu_hat:.4g} ({self.mu_low:.4g} to {self.mu_high:.4g}){mu}",
            f"attack: {self.right} of {self.guesses} guesses about {self.canaries} canaries are correct, "
            f"{self.releases} releases per node; if all were correct, epsilon >= {self.epsilon_most:.4g} would be "
            f"shown; {self.seconds:.1f} s",
        ]
        lines += [f"not attacked, taken as public: {one}" for one in self.left_out]
        if not self.violated:
            lines += above(self.mu_low, self.mu_accounted, "canaries")
        return "\n".join(f"- {line}" for line in lines) + "\n"


def audit_one_run(
    algorithm: Algorithm,
    problem: Problem,
    network: Network,
    *,
    steps: int,
    canaries: int | None = None,
    delta: float | None = None,
    key: int | Array = 0,
    confidence: float = 0.95,
) -> OneRun:
    """Attack the privacy of many records in a single run of `steps` rounds.

    The bound assumes nothing about the algorithm, but no attack on a single run gets near the epsilon of correct noise.
    It finds gross errors, such as missing noise or a skipped clip, in models too large for the thousands of runs of
    `jdfl.audit`. A record's guarantee is its own node's, and the result is compared with that of the node with the
    largest epsilon. Half of the coins are guessed, and an eighth of them; the larger of the two bounds is used, each at
    half of the error (Bonferroni).

    Where records are replaced, a canary's gradient points either way along its entry; where they are present or absent,
    it is that or zero. A canary replaces a record of the problem.

    Args:
        algorithm: The algorithm to attack. Its gradients are clipped, and a mechanism adds noise to them.
        problem: The data, dense, with any loss.
        network: The communication network.
        steps: Rounds of the run.
        canaries: Their number, at least 100; each node has room for the smaller of its number of records and the number
            of parameters. None: 1,000, or the largest number that fits.
        delta: For the epsilons that are compared, in (0, 1). None: 0.2 / canaries, since a guarantee has an epsilon for
            every delta, and the one for a large delta is refuted by fewer canaries.
        key: For all randomness: an integer or a JAX key.
        confidence: Confidence level of the bound, in (0, 1).

    Raises ValueError for algorithms without such noise or clip, for guarantees of whole nodes, for invalid settings,
    and for runs that do not stay finite.
    """
    began, network, problem = time.perf_counter(), stepping.paired(problem, network), problem.padded()
    program = check_run(algorithm, problem, network, steps, 1, None)
    seed, clip = typed_key(key), Limit.of(algorithm).clip
    check_level(confidence)
    check_dense(problem)
    guarantee = noisy_guarantee(program, problem)
    if reason := refusal(program):
        raise ValueError(
            f"Expected noise of a mechanism of gradients, got {type(algorithm).__name__}: {reason}. Use jdfl.audit."
        )
    if guarantee.unit != "record" or clip is None:
        raise ValueError(
            f"Expected a guarantee of single records and a clip, got one of a {guarantee.unit} and clip = {clip}. Give "
            "Gradients a clip with per = 'example', or use jdfl.audit."
        )
    free = int(_room(problem).sum())
    count = min(_MOST, free) if canaries is None else canaries
    checks.integer(100, free, "A node has room for one per record, or one per parameter.", canaries=count)
    delta = _DELTA / count if delta is None else delta
    check_delta(delta)

    where = places(problem, count, int(jax.random.bits(_WHERE.of(seed))))
    coins = np.asarray(jax.random.bernoulli(_COINS.of(seed), 0.5, (count,))).astype(int)
    drop, absent = guarantee.adjacency == "add-remove", planted(problem, where)
    world = with_sizes(absent, where, coins if drop else 2 * coins - 1, clip)
    setting = stepping.setting(check_run(algorithm, world, network, steps, 1, None), world, network, None, seed)
    check_visible(setting)
    at = jnp.asarray(where.node, jnp.int32), jnp.asarray(where.entry, jnp.int32)
    amount = amount_of(setting.program, problem.n)
    found = _scores(setting, amount, stepping.nameless(absent), *at, steps=int(steps))
    scores, releases = np.asarray(found[0], np.float64), np.asarray(found[1])
    if not np.all(np.isfinite(scores)):
        raise ValueError("Expected a run that stays finite, got one that diverges. Lower the step size or the noise.")

    accounted, event = Ledger.of(guarantee, releases, records_of(problem)).worst(delta)[1], guarantee.event
    sizes = [int(share * count) for share in _SHARES]
    level = 1 - (1 - confidence) / len(sizes)
    present = drop and guarantee.sampling is not None  # a sample without the record looks as if it were absent
    rights = [right_guesses(scores, coins, 0 if present else r // 2, r if present else r - r // 2) for r in sizes]
    shown = [epsilon_shown(v, r, count, delta, level) for v, r in zip(rights, sizes)]
    best = int(np.argmax(shown))
    mu, low, high = separation(scores[coins == 0], scores[coins == 1], confidence)
    wanted = None
    if isinstance(event, GaussianEvent) and guarantee.sampling is None:
        wanted = float(event.shift(int(releases.max())))
    return OneRun(
        epsilon_lower=shown[best],
        epsilon_most=max(epsilon_shown(r, r, count, delta, level) for r in sizes),
        mu_hat=mu,
        mu_low=low,
        mu_high=high,
        algorithm=type(algorithm).__name__,
        canaries=count,
        guesses=sizes[best],
        right=rights[best],
        releases=int(releases.max()),
        confidence=float(confidence),
        delta=float(delta),
        epsilon_accounted=accounted,
        mu_accounted=wanted,
        claimed=guarantee.claimed,
        left_out=guarantee.warnings,
        seconds=time.perf_counter() - began,
    )


@partial(jax.jit, static_argnames=("steps",))
def _scores(
    setting: Setting, amount: float, absent: Problem, node: Array, entry: Array, *, steps: int
) -> tuple[Array, Array]:
    """The canaries' scores [K] in a run, and the number of releases per node [m]."""
    begun, start, info = started(setting, setting.keys)
    other, _, _ = started(replace(setting, problem=absent), setting.keys)
    level = jnp.ones((absent.m, absent.n), absent.dtype)

    def step(k: Array, carry: tuple[Any, Array, Array]) -> tuple[Any, Array, Array]:
        state, score, releases = carry
        new, info = stepping.step(begun, state, stepping.sample_round(begun, k))

        def shown(units: Array) -> Array:
            return repeated(other, amount, units * level, state, k)

        bare, scale = jax.jvp(shown, (jnp.zeros((), absent.dtype),), (jnp.ones((), absent.dtype),))
        moved, scale = (_at(x, node, entry, absent.n) for x in (begun.program.visible(new) - bare, scale))  # [K, c]
        power = jnp.sum(scale * scale, axis=1)
        seen = jnp.sum(moved * scale, axis=1) / jnp.where(power > 0, power, 1.0)
        return new, score + seen, releases + info.releases

    none = jnp.zeros(node.shape, absent.dtype)
    _, score, releases = jax.lax.fori_loop(0, steps, step, (start, none, info.releases))
    return score, releases


def _at(shown: Array, node: Array, entry: Array, n: int) -> Array:
    """The entries [K, c] of all blocks of n numbers of what is shown [m, c n]."""
    return shown.reshape(shown.shape[0], -1, n)[node, :, entry]


@struct.dataclass
class Dirac(Problem):
    """A problem in which some records have the loss size * w[entry], and the gradient size * e_entry everywhere.

    `data` are those of the problem `inner`, and for each record its entry [m, q] int32, -1 for an ordinary one, and its
    size [m, q]. They are clipped like other records, and formed explicitly only where others are.
    """

    inner: Any = None  # the problem that the other records belong to

    @property
    def n(self) -> int:
        """The number of parameters."""
        return self.inner.n

    def loss(self, w: Array, example: Any) -> Array:
        """The loss [] of one example."""
        own, entry, size = example
        return jnp.where(entry < 0, self.inner.loss(w, own), size * w[jnp.maximum(entry, 0)])

    def losses(self, w: Array, data: Any) -> Array:
        """The loss [q] of every example."""
        own, entry, size = data
        return jnp.where(entry < 0, self.inner.losses(w, own), size * w[jnp.maximum(entry, 0)])

    def example_gradients(self, w: Array, data: Any) -> Array:
        """The gradients of single examples [q, n]: the problem's, or a single entry, built in one pass over them."""
        own, entry, size = (data[0], data[1][:, None], data[2][:, None])
        lone = jnp.where(jnp.arange(self.n, dtype=entry.dtype)[None] == entry, size, 0.0)
        return jnp.where(entry < 0, self.inner.example_gradients(w, own), lone)

    def regulariser(self, w: Array) -> Array:
        """The problem's regulariser []."""
        return self.inner.regulariser(w)

    def slopes(self, w: Array, data: Any) -> Array | None:
        """The problem's slopes [q], or [q, classes]; a canary's features are one entry, and its slope is its size."""
        own, entry, size = data
        slopes = self.inner.slopes(w, own)
        if slopes is None:
            return None
        if slopes.ndim == 1:
            return jnp.where(entry < 0, slopes, size)
        classes = jnp.arange(slopes.shape[1], dtype=entry.dtype)
        lone = jnp.where(classes[None] == entry[:, None] % slopes.shape[1], size[:, None], 0.0)
        return jnp.where(entry[:, None] < 0, slopes, lone)

    def feature_lengths(self, data: Any, norm: str) -> Array:
        """The norms of the features [q]."""
        return self.inner.feature_lengths(data[0], norm)

    def spread(self, slopes: Array, data: Any) -> Array:
        """The sum of slopes times features [n]."""
        return self.inner.spread(slopes, data[0])

    def each(self, function: Any, *stacked: Any) -> Any:
        """`function` of every node's rows, with as many nodes at once as the problem takes."""
        return self.inner.each(function, *stacked)

    def varied(self, key: Array, data: Any) -> Any:
        """The problem's own records after its augmentation; canaries are unchanged."""
        own, entry, size = data
        return self.inner.varied(key, own), entry, size

    def check_data(self) -> None:
        """Nothing to refuse: the problem's own data were checked."""


@dataclass(frozen=True)
class _Places:
    node: np.ndarray  # [K]
    record: np.ndarray  # [K] of that node
    entry: np.ndarray  # [K] of the gradient, distinct within a node


def _room(problem: Problem) -> np.ndarray:
    """How many canaries every node can have [m]: at most one per record, and one per entry."""
    return np.minimum(np.asarray(problem.sizes), problem.n)


def places(problem: Problem, canaries: int, seed: int) -> _Places:
    """Places for the canaries, distributed over the nodes as evenly as possible, with random records and entries."""
    rng, most = np.random.default_rng(seed), _room(problem)
    turn = np.concatenate([np.flatnonzero(most > i) for i in range(int(most.max()))])  # one per node, then another
    count = np.bincount(turn[:canaries], minlength=problem.m)
    weight = np.asarray(problem.weight)
    there = [rng.permutation(np.flatnonzero(weight[i] > 0))[:c] for i, c in enumerate(count)]
    entries = [rng.permutation(problem.n)[:c] for c in count]
    return _Places(np.repeat(np.arange(problem.m), count), np.concatenate(there), np.concatenate(entries))


def planted(problem: Problem, places: _Places) -> Dirac:
    """The problem with canaries of size 0, which change nothing, in these places; `with_sizes` sets their sizes."""
    at = places.node, places.record
    entry = jnp.full(problem.weight.shape, -1, jnp.int32).at[at].set(jnp.asarray(places.entry, jnp.int32))
    data, w = problem.data, jnp.zeros((problem.n,), problem.dtype)
    slopes = jax.eval_shape(lambda w: problem.slopes(w, problem.local(0)[0]), w)
    if slopes is not None:
        features, *rest = data
        column = jnp.asarray(places.entry // (problem.n // features.shape[-1]), jnp.int32)
        unit = jnp.zeros((len(column), features.shape[-1]), features.dtype).at[jnp.arange(len(column)), column].set(1)
        data = (features.at[at].set(unit), *rest)
    some = jax.tree.map(lambda leaf: leaf[:1, :1], problem.data)
    return Dirac(
        data=(data, entry, jnp.zeros(problem.weight.shape, problem.dtype)),
        weight=problem.weight,
        curvature=problem.curvature,
        start=problem.start,
        shared=problem.shared,
        derived=problem.derived,
        public=problem.public,
        inner=replace(problem, data=some, weight=problem.weight[:1, :1], curvature=problem.curvature[:1], test=None),
    )


def with_sizes(problem: Dirac, places: _Places, sign: np.ndarray, clip: float) -> Dirac:
    """The problem with canaries of these signs [K], 0 for none, each with a gradient of ten times the clip."""
    own, entry, size = problem.data
    sized = size.at[places.node, places.record].set(jnp.asarray(_LONG * clip * sign, size.dtype))
    return replace(problem, data=(own, entry, sized))


def _lost(guesses: int, records: int, epsilon: np.ndarray, delta: float) -> np.ndarray:
    """The second term of the bound, which accounts for delta, for every epsilon [E]; it decreases with epsilon."""
    q = 1 / (1 + np.exp(-epsilon))
    start = np.unique(np.geomspace(1, guesses, 60).astype(int)) - 1  # of ranges of k: the largest decreases with k
    k = start[:, None]
    highest = scipy.stats.binom.pmf(np.floor((k + 1) * q), k, q)
    return records * delta * (1 - q) * (np.diff([*start, guesses]) @ highest) / guesses


def chance(right: int, guesses: int, records: int, epsilon: np.ndarray, delta: float) -> np.ndarray:
    """The bound above on the probability of at least `right` correct guesses, for every epsilon [E].

    The other arguments are those of `_lost`.
    """
    q = 1 / (1 + np.exp(-epsilon))
    return scipy.stats.binom.sf(right - 1, guesses, q) + _lost(guesses, records, epsilon, delta)


def epsilon_shown(right: int, guesses: int, records: int, delta: float, confidence: float) -> float:
    """The largest epsilon excluded by this number of correct guesses, at this confidence; 0 where none is.

    A record protected by some epsilon is protected by any larger one. Small epsilons, for which delta alone would use
    more than half of the error, are therefore excluded together with the smallest one for which it does not.
    """
    error = 1 - confidence
    tried = _GRID[_lost(guesses, records, _GRID, delta) <= error / 2]
    likely = chance(right, guesses, records, tried, delta) >= error
    first = int(np.argmax(likely)) if likely.any() else len(tried)
    return float(tried[first - 1]) if first else 0.0


def right_guesses(scores: np.ndarray, coins: np.ndarray, low: int, high: int) -> int:
    """The number of correct guesses if the `low` smallest scores [m] are guessed 0 and the `high` largest 1."""
    order = np.argsort(scores, kind="stable")
    return int((coins[order[:low]] == 0).sum() + (coins[order[len(order) - high :]] == 1).sum())
