"""The sensitivity of every built-in private setting: what is claimed, and the largest change that was found.

Two runs on neighbouring data are made side by side with the same keys. Wherever noise is added, the second continues
with what the first has released, so both have the same messages so far: what is left of the difference is what the
records change in the next release, as composition counts it. For every setting there are

- claimed: the sensitivity that the guarantee states, for the node where it is largest;
- change / claimed: the largest change of a release, in units of the sensitivity of its node, at most 1 (not where noise
  follows a schedule of its own);
- spent / accounted: what all releases of a node together reveal, in units of what the accountant counts, at most 1
  (the root of the sum of squares of changes over noise for Gaussian noise, their sum for Laplace noise; not where
  others' noise helps to hide a node);
- seen: the largest difference of what others see, which must be exactly 0: nothing but noisy releases leaves a node.

Records are extreme: gradients along one entry or all of them, of either sign, far beyond the clip, zero, or overflowing
(they count as zero); a search then moves the pairs that changed most. With `--quick` there are fewer settings.

Axes: P pairs of worlds, m nodes, q records per node, n parameters.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

import jdfl
from experiments.common import Made, Options, Row, experiment, row
from experiments.privacy_audit import noisy_kinds
from jdfl.algorithms.program import planned
from jdfl.base import marking, struct
from jdfl.engine import stepping
from jdfl.events import REGISTRY as EVENTS
from jdfl.events import AsyncMethod
from jdfl.network import Network
from jdfl.privacy.mechanisms import is_exact

M, N, Z, CLIP = 4, 5, 3.0, 0.5
PAIRS, STEPS, FAR = 24, 3, 1e4
_ORDER = {"l1": 1, "l2": 2, "linf": np.inf}


@dataclass(frozen=True)
class Case:
    """A method on a problem and a network."""

    algorithm: Any
    problem: Callable[[], Any]
    network: Network
    steps: int = STEPS
    scaled: bool = True  # whether a sensitivity scales the noise of every release
    alone: bool = True  # whether nothing but its own noise hides a node


@dataclass(frozen=True)
class Measured:
    """What was found, per pair [P], as in the table."""

    claimed: float
    change: np.ndarray
    spent: np.ndarray
    seen: np.ndarray


@dataclass
class _Releases:
    """What has been released in pairs of worlds; the second of each goes on with what the first has released.

    Worlds are lanes of one program, or with `again` two runs one after another, whose noise has the same keys.
    """

    amount: float = 1.0  # of noise that no mechanism adds, in units of its scale
    now: Any = None  # amount, norm, nodes, due nodes and keys of the release under way
    change: Any = 0.0  # [P, m]
    spent: Any = 0.0  # [P, m], squared for l2
    again: dict[bytes, list[Any]] | None = None  # by key: rows of the first run, in their order
    second: bool = False  # whether the second run is under way

    def forced(self, y: Array, x: Array, size: Any) -> Array:
        """The released rows y [m, n], those of the pair's first world in both."""
        m = x.shape[0]
        nothing = jnp.zeros((m, 1), jnp.uint32)
        amount, norm, node, due, words = self.now or (self.amount, "l1", jnp.arange(m), None, nothing)
        due = jnp.ones(m, bool) if due is None else due
        size, amount = (jnp.broadcast_to(jnp.asarray(one, x.dtype), (m,)) for one in (size, amount))
        told = jax.ShapeDtypeStruct(y.shape, y.dtype)

        def host(*given: Any) -> np.ndarray:
            compare = self._compare if self.again is None else self._compare_again
            return compare(_ORDER[norm], *(np.asarray(one) for one in given))

        return jax.pure_callback(host, told, y, x, size, amount, node, due, words, vmap_method="broadcast_all")

    def _compare(self, order: float, y: np.ndarray, x: np.ndarray, *rest: np.ndarray) -> np.ndarray:
        if x.ndim == 2:  # nothing of it depends on data
            return y
        x, (size, amount, node, due, _) = x.reshape(-1, 2, *x.shape[1:]).astype(float), (one[::2] for one in rest)
        change = np.linalg.norm(x[:, 1] - x[:, 0], order, axis=-1) * due
        part = np.where(change > 0, change / size, 0.0)
        places = np.arange(len(change))[:, None], node
        np.maximum.at(self.change, places, part)
        np.add.at(self.spent, places, (part / amount) ** (2 if order == 2 else 1))
        return np.repeat(y[::2], 2, axis=0)

    def _compare_again(self, order: float, y: np.ndarray, x: np.ndarray, *rest: np.ndarray) -> np.ndarray:
        """The last release with a key is that of an event; a piece may compute events before it is their turn."""
        assert self.again is not None
        found = np.array(y)
        for i, (size, amount, node, _, words) in enumerate(zip(*rest)):
            if not self.second:
                self.again.setdefault(words.tobytes(), []).append((y[i], x[i].astype(float)))
                continue
            rows = self.again[words.tobytes()]
            found[i], before = rows.pop(0)
            if not rows:
                part = np.linalg.norm(x[i] - before, order) / size
                self.change[0, node] = max(self.change[0, node], part)
                self.spent[0, node] += (part / amount) ** (2 if order == 2 else 1)
        return found


@contextmanager
def _replayed(found: _Releases) -> Generator[None]:
    """All noise is added as ever, and then compared."""
    noisy = jdfl.Round.noisy

    def counted(self: Any, mechanism: Any, x: Array, size: Any, stream: Any, *rest: Any, **more: Any) -> Array:
        amount = mechanism.scale(x.shape[1]) if is_exact(mechanism) else mechanism.multiplier
        words = jax.random.key_data(self.keys(stream, self.local_step * 4 + more.get("look", 0)))
        found.now = amount, mechanism.norm, self.node, self.due, words
        try:
            return noisy(self, mechanism, x, size, stream, *rest, **more)
        finally:
            found.now = None

    def marked(y: Array, x: Array, size: Any, _: Any) -> Array:
        return found.forced(y, x, size)

    with patch.object(jdfl.Round, "noisy", counted), patch.object(marking, "noisy", marked):
        yield


def _record(draw: np.random.Generator, leaves: Sequence[np.ndarray]) -> list[np.ndarray]:
    """A record: its features along one entry, all of them or some direction, and a label far away or near."""
    made = list[np.ndarray]()
    for leaf in leaves:
        shape = leaf.shape[2:]
        if np.issubdtype(leaf.dtype, np.integer):
            one = draw.choice(np.unique(leaf), shape)
        elif not shape:
            one = draw.choice([-FAR, FAR, -1.0, 1.0, 0.0], shape, p=[0.4, 0.4, 0.08, 0.08, 0.04])
        else:
            size = int(np.prod(shape))
            kinds = np.eye(size)[draw.integers(size)], np.ones(size), draw.choice([-1.0, 1.0], size)
            one = [*kinds, draw.standard_normal(size)][draw.integers(4)] * draw.choice([1e-2, 1.0, 30.0])
            one = one.reshape(shape)
        made.append(np.asarray(one, leaf.dtype))
    return made


def _others(draw: np.random.Generator, record: list[np.ndarray], leaves: Any, removed: bool) -> list[np.ndarray]:
    """What a record is replaced by: its opposite, another one, or one whose gradient overflows and counts as zero."""
    if removed:
        return [one if one.dtype.kind in "iu" else np.full_like(one, np.finfo(one.dtype).max) for one in record]
    kind = draw.choice(3, p=[0.5, 0.25, 0.25])
    if kind == 2:
        return _record(draw, leaves)
    last = len(record) - 1
    if kind == 1 or record[last].dtype.kind in "iu":
        return [-one if one.dtype.kind == "f" and (i < last or kind == 1) else one for i, one in enumerate(record)]
    return [*record[:last], -record[last]]


@dataclass
class _Pairs:
    """Pairs of neighbouring data: the base data of each, a node, a record (None: all of them), and two records."""

    problem: Any
    whole: bool
    removed: bool
    made: list[tuple[int, int, list[np.ndarray], list[np.ndarray]]] = field(default_factory=list)

    def drawn(self, draw: np.random.Generator, count: int) -> None:
        """New pairs at nodes but the last."""
        leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(self.problem.data)]
        sizes = np.asarray(self.problem.sizes)
        for _ in range(count):
            node = int(draw.integers(self.problem.m - 1))
            one = _record(draw, leaves)
            place = int(np.argmax(np.asarray(self.problem.weight)[node])), int(draw.integers(sizes[node]))
            self.made.append((node, place[draw.integers(2)], one, _others(draw, one, leaves, self.removed)))

    def moved(self, draw: np.random.Generator, best: np.ndarray) -> "_Pairs":
        def near(record: list[np.ndarray]) -> list[np.ndarray]:
            def one(x: np.ndarray) -> np.ndarray:
                if x.dtype.kind in "iu" or np.max(np.abs(x), initial=0) > 1e30:
                    return x
                with_noise = x * draw.choice([0.3, 1.0, 3.0]) + 0.1 * draw.standard_normal(x.shape)
                return np.clip(with_noise, -1e6, 1e6).astype(x.dtype)

            return [one(x) for x in record]

        chosen = [self.made[int(i)] for i in np.resize(best, len(self.made))]
        made = [(node, place, near(one), near(other)) for node, place, one, other in chosen]
        return replace(self, made=made)

    def data(self) -> Any:
        """The data of both worlds of every pair, leaves [2 P, m, q, ...]."""
        leaves, structure = jax.tree.flatten(self.problem.data)
        stacked = [np.repeat(np.asarray(leaf)[None], 2 * len(self.made), axis=0) for leaf in leaves]
        for i, (node, place, *both) in enumerate(self.made):
            where = slice(None) if self.whole else place
            for world, record in enumerate(both):
                for leaf, value in zip(stacked, record):
                    leaf[2 * i + world, node, where] = value
        return jax.tree.unflatten(structure, [jnp.asarray(leaf) for leaf in stacked])


def measure(case: Case, seed: int = 0, searches: int = 2, pairs: int = PAIRS) -> Measured:
    """The largest changes that were found for a setting, which must have a claim: RuntimeError otherwise."""
    problem, draw = case.problem(), np.random.default_rng(seed)
    program = planned(case.algorithm, problem, case.network, case.steps)
    told = program.privacy(problem)
    if not told.claimed or told.event is None:
        raise RuntimeError(f"no claim: {told.reason}")
    worlds = _Pairs(problem, told.unit == "node", told.adjacency == "add-remove")
    worlds.drawn(draw, pairs)
    played = _one_by_one(case, problem) if isinstance(case.algorithm, AsyncMethod) else _side_by_side(case, problem)
    best = list[tuple[np.ndarray, np.ndarray, np.ndarray]]()
    for _ in range(searches + 1):
        seen, releases, change, spent = played(worlds.data(), int(draw.integers(2**31)))
        counts = releases.reshape(-1, 2, M)
        if (counts[:, 0] != counts[:, 1]).any():
            raise RuntimeError("the data change how often a node releases")
        spent = np.sqrt(spent) if told.event.kind == "gaussian" else spent
        share = np.where(spent > 0, spent / np.maximum(_accounted(told.event, counts[:, 0]), 1e-300), 0.0)
        apart = np.nan_to_num(np.abs(np.diff(seen.reshape(len(counts), 2, -1), axis=1)), nan=np.inf)
        best.append((change.max(axis=1), share.max(axis=1), apart.max(axis=(1, 2))))
        worlds = worlds.moved(draw, np.argsort(-best[-1][1 if case.alone else 0])[: max(1, pairs // 4)])
    return Measured(float(told.sensitivity or 0.0), *(np.concatenate(one) for one in zip(*best)))


Played = Callable[[Any, int], tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]


def _side_by_side(case: Case, problem: Any) -> Played:
    """What others see, releases [2 P, m], changes and what is spent [P, m] of rounds on data with leaves [2 P, ...]."""
    dpps = getattr(case.algorithm, "dpps", None)
    found = _Releases(1.0 if dpps is None else float(dpps.noise_rate) / float(dpps.b))
    program = planned(case.algorithm, problem, case.network, case.steps)

    @jax.jit
    def play(data: Any, key: Array) -> Any:
        def one(data: Any) -> Any:
            made = replace(problem, data=data)
            setting = stepping.setting(program, made, case.network, None, key)
            ready = program.prepare(made, stepping.initial_round(setting))
            setting = replace(setting, program=ready)
            state, info = ready.init(made, stepping.initial_round(setting))
            seen, releases = [ready.visible(state)], info.releases
            for k in range(case.steps):
                state, info = stepping.step(setting, state, stepping.sample_round(setting, jnp.int32(k)))
                seen, releases = [*seen, ready.visible(state)], releases + info.releases
            return jnp.stack(seen), releases

        return jax.vmap(one)(data)

    def played(data: Any, seed: int) -> Any:
        pairs = len(jax.tree.leaves(data)[0]) // 2
        found.change, found.spent = np.zeros((2, pairs, M))
        with _replayed(found):
            seen, releases = jax.device_get(play(data, jax.random.key(seed)))
        return seen, releases, found.change, found.spent

    return played


def _one_by_one(case: Case, problem: Any) -> Played:
    """The same of a method with events, whose runs are made one after another."""
    found, kind = _Releases(), type(case.algorithm)
    own: Any = struct.dataclass(type("Replayed", (kind,), {"__annotations__": {}, "__doc__": kind.__doc__}))
    method = own(**{one.name: getattr(case.algorithm, one.name) for one in fields(case.algorithm)})

    def played(data: Any, seed: int) -> Any:
        seen, releases, changes, every = [], [], [], []
        with _replayed(found):
            for pair in range(len(jax.tree.leaves(data)[0]) // 2):
                found.again, (found.change, found.spent) = {}, np.zeros((2, 1, M))
                for world in (0, 1):
                    found.second = world == 1
                    given = replace(problem, data=jax.tree.map(lambda leaf: leaf[2 * pair + world], data))  # noqa: B023
                    run = jdfl.run(method, given, case.network, key=seed, steps=case.steps, metrics=[])
                    seen.append(np.asarray(method.visible(run.state)))
                    releases.append(run.releases)
                changes.append(found.change[0])
                every.append(found.spent[0])
        return tuple(map(np.stack, (seen, releases, changes, every)))

    return played


def _accounted(event: Any, counts: np.ndarray) -> np.ndarray:
    """What the accountant counts for numbers of releases [...]: mu, or the pure epsilon of Laplace noise."""
    if event.kind == "gaussian":
        return np.asarray(event.shift(counts), float)
    each = getattr(event, "multipliers", None)
    if each is None:
        return counts / event.noise_multiplier
    return np.concatenate([[0.0], np.cumsum(1 / np.asarray(each))])[np.minimum(counts, len(each))]


def _linear(sizes: Sequence[int] = (6, 3, 5, 4), weights: bool = False) -> Any:
    """Least squares at nodes of several sizes, with weights that differ if asked to."""
    draw = np.random.default_rng(1)
    A = [draw.standard_normal((q, N)) for q in sizes]
    made: Any = jdfl.problems.linear_regression(A, [a @ np.ones(N) for a in A])
    factor = draw.uniform(0.3, 3.0, made.weight.shape) if weights else 1.0
    return replace(made, weight=made.weight * jnp.asarray(factor, made.dtype))


def _labelled(make: Callable[..., Any], classes: int) -> Callable[[], Any]:
    def problem() -> Any:
        draw = np.random.default_rng(2)
        return make([(draw.standard_normal((5, N)), np.arange(5) % classes) for _ in range(M)])

    return problem


def _own_loss() -> Any:
    """A loss of a user without known slopes, whose gradients are formed."""
    draw = np.random.default_rng(3)
    data = draw.standard_normal((6 * M, N)).astype(np.float32), np.ones(6 * M, np.float32)

    def loss(w: Any, example: Any) -> Any:
        return jnp.logaddexp(0.0, example[0] @ w["a"] * 3.0) + (w["b"] - example[1]) ** 2

    return jdfl.problems.from_loss(loss, {"a": jnp.zeros(N), "b": jnp.zeros(())}, data, nodes=M)


def _noisy(norm: Any = "l2", z: Any = None, **how: Any) -> Any:
    return jdfl.Gradients(clip=CLIP, norm=norm, mechanism=jdfl.Gaussian(Z) if z is None else z, **how)


RING = jdfl.network.ring(M)
MECHANISMS = {"Gaussian": jdfl.Gaussian(Z), "Laplace": jdfl.Laplace(Z), "exact": jdfl.ExactGaussian(Z)}
SAMPLING: Mapping[str, dict[str, Any]] = {
    "single draws": {"batch": 1},
    "draws with replacement": {"batch": 3},
    "subset": {"batch": 2, "sampling": "subset"},
    "Poisson": {"batch": 2, "sampling": "poisson"},
    "epochs": {"batch": 2, "sampling": "epochs"},
    "in order": {"batch": 2, "sampling": "in order"},
}
PROBLEMS: Mapping[str, Callable[[], Any]] = {
    "weights": lambda: _linear(weights=True),
    "logistic": _labelled(jdfl.problems.logistic_regression, 2),
    "softmax": _labelled(jdfl.problems.softmax_regression, 3),
    "a user's loss": _own_loss,
    "a user's loss in pieces": lambda: replace(_own_loss(), nodes_at_once=1, at_once=2),
}


def _descent(gradients: Any, problem: Callable[[], Any] = _linear, **how: Any) -> Case:
    return Case(jdfl.DPSGD(lr=0.1, gradients=gradients), problem, RING, **how)


def cases() -> dict[str, Case]:
    """By name: settings of gradients and of updates, then every method whose noise has a claim."""
    found = dict[str, Case]()
    for adjacency in ("replace-one", "add-remove"):
        for per in ("example", "batch"):
            for norm in ("l1", "l2", "linf", "entries"):
                for name, z in MECHANISMS.items():
                    if name == "exact" and norm == "entries":
                        continue
                    how: Any = {"per": per, "adjacency": adjacency}
                    found[f"gradients: {name}, {norm} per {per}, {adjacency}"] = _descent(_noisy(norm, z, **how))
        for name, how in SAMPLING.items():
            for kind in ("sizes", "weights"):
                problem = _linear if kind == "sizes" else PROBLEMS["weights"]
                found[f"sampling: {name}, {kind}, {adjacency}"] = _descent(
                    _noisy(adjacency=adjacency, **how), problem, steps=2 * STEPS
                )
        for norm in ("l1", "l2", "linf"):
            for name, z in MECHANISMS.items():
                updates = jdfl.Updates(clip=CLIP, norm=norm, mechanism=z, adjacency=adjacency)
                method = jdfl.DFedAvgM(lr=0.1, local_steps=2, updates=updates)
                found[f"updates: {name}, {norm}, {adjacency}"] = Case(method, _linear, RING)
    for name, problem in PROBLEMS.items():
        for norm in ("l2", "entries"):
            found[f"problem: {name}, {norm}"] = _descent(_noisy(norm), problem)
    return found | methods()


def methods() -> dict[str, Case]:
    """Every registered method whose noise has a claim, by name, with the settings that change where noise is."""
    noisy, short = _noisy(), jdfl.Gradients(clip=CLIP, per="batch", norm="l1")
    updates = jdfl.Updates(clip=CLIP, mechanism=jdfl.Gaussian(Z))
    ceps = jdfl.CEPS(s=2, sigma=1.0, period=jnp.asarray([1, 2, 1, 3]), clip=CLIP, mechanism=jdfl.Gaussian(Z))
    tracking = jdfl.CPGT(lr=0.05, noise_x=3.0, noise_y=24.0, gradients=short)
    decaying = jdfl.DPDO(c=0.5, q=0.5, p=0.8, epsilon=3.0, gradients=short)
    parts = jdfl.PartPSP(gradients=short, dpps=(push := jdfl.DPPS(b=0.5, noise_rate=1.0, watch=True)))
    turns = jdfl.MAFALDA(lr=0.1, gradients=_noisy(batch=2, sampling="in order"), horizon=6, band=3)
    special: dict[str, Any] = {
        "ceps": ceps,
        "ceps, one-bit messages": replace(ceps, codec=jdfl.OneBit()),
        "d-psgd, a mean of three rounds": jdfl.DPSGD(lr=0.1, period=3, gradients=noisy),
        "d-psgd, updates": jdfl.DPSGD(lr=0.1, period=2, updates=updates),
        "do-adp, a trigger": jdfl.DOADP(lr=0.1, p=0.7, trigger=0.3, gradients=noisy),
        "do-adp, blocks": jdfl.DOADP(lr=0.1, p=0.7, block=2, gradients=noisy),
        "directed-ceps": jdfl.DirectedCEPS(s=2, gradients=noisy),
        "dfedavgm, three local steps": jdfl.DFedAvgM(lr=0.1, local_steps=3, gradients=noisy),
        "dfedsam, updates": jdfl.DFedSAM(lr=0.1, updates=updates),
        "fedavg, two clients": jdfl.FedAvg(lr=0.1, fraction=0.5, updates=updates),
        "iht-d-psgd": jdfl.IHT(s=2, lr=0.1, gradients=noisy),
        "muffliato": jdfl.Muffliato(lr=0.1, gossips=2, gradients=noisy),
    }
    planned_noise: dict[str, Any] = {
        "average-consensus": jdfl.AverageConsensus(clip=CLIP, dpps=push),
        "cpgt": replace(tracking, codec=jdfl.Dense()),
        "cpgt, l2, fading": replace(tracking, decay=0.9, gradients=replace(short, norm="l2")),
        "dpdo": decaying,
        "dpdo, linf, in a ball": replace(decaying, radius=0.4, gradients=replace(short, norm="linf")),
        "mafalda": replace(turns, gradients=noisy),
        "mafalda, in order": turns,
        "partpsp": replace(parts, milestones=(2,)),
        "partpsp, per example": replace(parts, gradients=replace(short, per="example")),
        "partpsp, l2": replace(parts, gradients=replace(short, norm="l2")),
        "partpsp, Lemma 2": replace(parts, dpps=replace(push, sensitivity="lemma2")),
        "pedfl": jdfl.PEDFL(gradients=short, dpps=push),
        "sgp": jdfl.SGP(gradients=short, dpps=push),
    }
    directed, many = jdfl.network.d_out(M, 2), partial(_linear, (6, 6, 6, 6))
    central = jdfl.FedAvg(lr=0.1, updates=replace(updates, trust="central"))
    corrected = jdfl.PrivSGPVR(lr=0.1, gradients=_noisy(per="batch", batch=1))
    found = {name: Case(one, _linear, RING) for name, one in special.items()}
    for name, one in planned_noise.items():
        how: Any = (many, RING, 6) if name.startswith("mafalda") else (_linear, directed)
        found[name] = Case(one, *how, scaled=False)
    found["decor"] = Case(jdfl.DECOR(lr=0.1, gradients=noisy, pairs=Z), _linear, RING, alone=False)
    found["fedavg, central"] = Case(central, _linear, RING, alone=False)
    found["privsgp-vr"] = Case(corrected, _linear, directed)
    for name, kind in noisy_kinds().items():
        found.setdefault(name, Case(kind(gradients=noisy), _linear, RING))
    timed = jdfl.network.timed(RING, jdfl.network.FixedTime(0.1))
    for name, kind in EVENTS.items():
        found[f"{name}, at times of their own"] = Case(kind(gradients=noisy), _linear, timed, steps=1)
    return found


QUICK = (
    "gradients: Laplace, l2 per batch, add-remove",
    "sampling: Poisson, weights, replace-one",
    "dsgt",
    "dpdo",
    "ad-psgd, at times of their own",
)


def collect(seeds: int, searches: int, names: Sequence[str] | None = None) -> list[Row]:
    rows = list[Row]()
    for name, case in cases().items():
        if names is not None and name not in names:
            continue
        few = isinstance(case.algorithm, AsyncMethod)
        found = [measure(case, seed, 0 if few else searches, 6 if few else PAIRS) for seed in range(seeds)]
        rows.append(row(name, "claimed", None, [one.claimed for one in found]))
        rows += [row(name, "change / claimed", None, [one.change.max() for one in found])] if case.scaled else []
        rows += [row(name, "spent / accounted", None, [one.spent.max() for one in found])] if case.alone else []
        rows.append(row(name, "seen", None, [one.seen.max() for one in found]))
        print(name, *(f"{one.mean:.5f}" for one in rows if one.case == name), flush=True)
    return rows


@experiment(seeds=1)
def main(chosen: Options) -> Made:
    """All settings, or with `--quick` a few of them."""
    rows = collect(chosen.seeds, 0, QUICK) if chosen.quick else collect(chosen.seeds, 2)
    return Made({"Claimed, and measured in units of what is claimed": rows})
