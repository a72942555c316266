"""The cells of the robustness atlas: many small runs with attackers in one compiled program per rule.

A cell is a rule, an attack, a graph, a share of attackers and a seed. Cells with the same rule and attack run side by
side; the attack is a number that the program reads, so that it computes one attack's rows only. Every cell is also
`run_one`, the same run by `jdfl.run`.

Axes: m nodes, d slots, L cells side by side, n parameters.
"""

from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, NamedTuple
from zlib import crc32

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

import jdfl
from jdfl import network as nw
from jdfl import robust
from jdfl.algorithms.round import RoundContext
from jdfl.base.streams import Keys
from jdfl.network import Graph
from jdfl.robust.attacks import DRAWN, Attack, Lies, Scene
from jdfl.robust.rule import Aimed

NODES, FEATURES, EXAMPLES, TESTS, ROUNDS = 25, 100, 8, 400, 200
SIDE = 10  # cells side by side
RULES: dict[str, robust.Rule] = {
    **{name: rule() for name, rule in robust.RULES.items()},
    "balance": robust.BALANCE(horizon=ROUNDS, gamma=0.6),
}
ATTACKS: dict[str, Attack] = {name: attack() for name, attack in robust.ATTACKS.items()}
GRAPHS: dict[str, Any] = {
    "complete": lambda seed: nw.complete(NODES),
    "regular-12": lambda seed: nw.k_regular(NODES, 12, seed=seed),
    "regular-8": lambda seed: nw.k_regular(NODES, 8, seed=seed),
    "random": lambda seed: nw.erdos_renyi(NODES, 0.4, seed=seed),
    "two-worlds": lambda seed: two_worlds(seed),
}
FRACTIONS = (0.08, 0.16, 0.24)
LR, BETA = 0.5, 0.5


class Cell(NamedTuple):
    """One run; written as `rule/attack/graph/fraction/seed`."""

    rule: str
    attack: str
    graph: str
    fraction: float
    seed: int

    @classmethod
    def of(cls, text: str) -> "Cell":
        """The cell of its text; ValueError for another."""
        words = text.split("/")
        known = (RULES, ATTACKS, GRAPHS)
        if len(words) != 5 or any(word not in names for word, names in zip(words, known)):
            raise ValueError(f"Expected rule/attack/graph/fraction/seed, got {text!r}. For example {EXAMPLE}.")
        return cls(words[0], words[1], words[2], float(words[3]), int(words[4]))

    def __str__(self) -> str:
        return f"{self.rule}/{self.attack}/{self.graph}/{self.fraction:g}/{self.seed}"


EXAMPLE = "cs-plus/dissensus/two-worlds/0.16/0"


def two_worlds(seed: int) -> nw.Static:
    """Two halves, each nearly complete, with few links between them."""
    draw, half = np.random.default_rng(seed), NODES // 2 + 1
    world = np.arange(NODES) // half
    links = [(i, j) for i in range(NODES) for j in range(i) if draw.random() < (0.8 if world[i] == world[j] else 0.15)]
    return nw.from_edges(links, NODES, name="two worlds")


@cache
def problem(seed: int) -> Any:
    """Two classes of Gaussian features, the nodes with other shares of the classes, and a test set."""
    draw = np.random.default_rng([seed, 7])
    centre = draw.standard_normal(FEATURES) * 0.22

    def some(count: int, share: float) -> tuple[np.ndarray, np.ndarray]:
        labels = (draw.random(count) < share).astype(np.float32)
        features = draw.standard_normal((count, FEATURES)) + np.outer(2 * labels - 1, centre)
        return features.astype(np.float32), labels

    shares = draw.beta(2, 2, NODES)
    parts = [some(EXAMPLES, share) for share in shares]
    return jdfl.problems.logistic_regression(parts, penalty=0.01, test=some(TESTS, 0.5))


@cache
def place(graph: str, fraction: float, seed: int) -> tuple[nw.Static, tuple[int, ...], int]:
    """The network of a cell, its attackers, and the most attackers around one honest node.

    Attackers are drawn until the honest nodes are connected.
    """
    network = GRAPHS[graph](seed)
    draw, count = np.random.default_rng([seed, round(1000 * fraction)]), round(fraction * NODES)
    while True:
        nodes = tuple(sorted(int(i) for i in draw.choice(NODES, count, replace=False)))
        try:
            robust.check_honest(network, nodes)
            break
        except ValueError:
            continue
    liar = np.isin(np.arange(NODES), nodes)
    table = network.graph
    around = (np.asarray(table.mask) & liar[np.asarray(table.senders)]).sum(axis=1)[~liar]
    return network, nodes, int(around.max())


def run_one(cell: Cell) -> dict[str, float]:
    """The numbers of a cell by `jdfl.run`."""
    network, nodes, b = place(cell.graph, cell.fraction, cell.seed)
    rule = replace(RULES[cell.rule], b=b)
    algorithm = jdfl.attacked(jdfl.RobustDSGD(lr=LR, rule=rule, beta=BETA), ATTACKS[cell.attack], nodes)
    given = problem(cell.seed), network
    result = jdfl.run(algorithm, *given, key=cell.seed, steps=ROUNDS, every=ROUNDS, metrics=["consensus_error"])
    return _numbers(*_judged(jnp.asarray(result.params), jnp.asarray(_mask(nodes)), given[0].test))


def _mask(nodes: tuple[int, ...]) -> np.ndarray:
    return np.isin(np.arange(NODES), nodes)


@jax.jit
def _judged(w: Array, liars: Array, test: Any) -> tuple[Array, Array, Array]:
    """The mean and the smallest accuracy of honest nodes, and their consensus error; three scalars []."""
    features, labels = test
    right = jnp.mean(((w @ features.T > 0) == (labels > 0)[None]).astype(w.dtype), axis=1)
    good = (~liars).astype(w.dtype)
    mean = jnp.dot(good, w) / jnp.sum(good)
    apart = jnp.sum(good * jnp.sum((w - mean[None]) ** 2, axis=1)) / jnp.sum(good)
    return jnp.dot(good, right) / jnp.sum(good), jnp.min(jnp.where(liars, 1, right)), apart


def _numbers(mean: Any, worst: Any, apart: Any) -> dict[str, float]:
    most = float(np.finfo(np.float32).max)
    return {
        "accuracy": float(mean),
        "worst accuracy": float(worst),
        "consensus error": min(most, float(np.nan_to_num(float(apart), nan=most, posinf=most))),
    }


@dataclass
class Chosen(Lies):
    """One attack of several, by its number; attackers of the others' kinds are honest."""

    number: Any = None  # int32 []

    def of(self, graph: Graph, x: Array, channel: str, index: int) -> tuple[Array, Aimed | None]:
        """The rows that all receive, and those that single nodes receive."""
        scene = Scene(graph, x, self.liars, self.ready, jax.random.fold_in(_on(self.key, channel), index))
        rows = lax.switch(self.number, [partial(_rows, attack, scene) for attack in ATTACKS.values()])
        aims = self.liars & jnp.asarray([attack.aimed for attack in ATTACKS.values()])[self.number]
        self.channels.add(channel)
        return jnp.where((self.liars & ~aims)[:, None], rows, x), Aimed(aims, rows)


def _on(key: Array, channel: str) -> Array:
    return jax.random.fold_in(key, jnp.uint32(crc32(channel.encode())))


def _rows(attack: Attack, scene: Scene) -> Array:
    return attack.rows(replace(scene)).astype(scene.x.dtype)  # a scene remembers what it has computed


class Lane(NamedTuple):
    graph: Graph
    liars: Array  # [m] bool
    b: Array  # int32 []
    key: Array  # []
    problem: Any


@partial(jax.jit, static_argnames=("rule",))
def cells(rule: str, number: Array, lanes: Lane) -> tuple[Array, Array, Array]:
    """The numbers [L] of cells with a rule and the attack of a number, int32 []."""
    return jax.vmap(partial(_cell, rule, number))(lanes)


def _cell(rule: str, number: Array, lane: Lane) -> tuple[Array, Array, Array]:
    liars, node = lane.liars, jnp.arange(NODES, dtype=jnp.int32)
    attacks = list(ATTACKS.values())
    flips, lies = ([isinstance(one, kind) for one in attacks] for kind in (robust.LabelFlip, robust.TopologyLiar))
    flipped = robust.LabelFlip().problem(lane.problem, liars & jnp.asarray(flips)[number])
    graph = robust.TopologyLiar().graph(lane.graph, liars & jnp.asarray(lies)[number])
    algorithm = jdfl.RobustDSGD(lr=LR, rule=replace(RULES[rule], b=lane.b), beta=BETA)
    keys = Keys.of(lane.key)
    spectral = [isinstance(one, robust.SpectralAttack) for one in attacks]
    ready = lax.cond(
        jnp.asarray(spectral)[number],
        lambda: robust.SpectralAttack().prepare(lane.graph, liars),
        lambda: jnp.zeros((NODES,), jnp.float32),
    )
    begin = RoundContext(jnp.int32(0), lane.key, graph, node, keys)
    prepared = algorithm.prepared(flipped, begin, None)

    def round_of(k: Array) -> jdfl.Round:
        now = keys.at_round(k)
        context = RoundContext(k, now.run, graph, node, now)
        lied = Chosen(attacks[0], liars, ready, context.stream(DRAWN), number=number)
        return jdfl.Round(context=context, problem=flipped, prepared=prepared, lies=lied)

    state = algorithm.init(round_of(jnp.int32(0)))
    state, _ = lax.scan(lambda state, k: (algorithm.step(state, round_of(k)), None), state, jnp.arange(ROUNDS))
    return _judged(state.x, liars, lane.problem.test)


@cache
def lane_of(graph: str, fraction: float, seed: int) -> Lane:
    """The arrays of all cells of a graph, a share of attackers and a seed."""
    network, nodes, b = place(graph, fraction, seed)
    table = replace(nw.pad(network.graph, NODES - 1), format="padded", buckets=None)
    given = replace(problem(seed), name="")
    return Lane(table, jnp.asarray(_mask(nodes)), jnp.int32(b), jax.random.key(seed), given)


@cache
def stacked(places: tuple[tuple[str, float, int], ...]) -> Lane:
    """The arrays of several, with a leading axis [L]."""
    lanes = [lane_of(*one) for one in places]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *lanes)


def group(rule: str, attack: str, places: tuple[tuple[str, float, int], ...]) -> list[dict[str, float]]:
    """The numbers of all cells with a rule and an attack, `SIDE` of them side by side."""
    number = jnp.int32(list(ATTACKS).index(attack))
    found: list[dict[str, float]] = []
    for first in range(0, len(places), SIDE):
        some = places[first : first + SIDE]
        full = some + some[:1] * (SIDE - len(some))
        numbers = jax.device_get(cells(rule, number, stacked(full)))
        found += [_numbers(*one) for one in zip(*numbers)][: len(some)]
    return found
