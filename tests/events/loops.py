"""Asynchronous methods written from their papers: a queue of what happens, and plain loops over it in float64.

Times, partners and travel times are drawn by the library (`tests/events/test_timeline.py` is about them); who meets
whom, what has arrived and which version is read is found here by a queue, one thing after another.
"""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jdfl.events import faults, random_walk, timeline
from jdfl.events.plan import Plan
from jdfl.events.timeline import Events, Kind, by_column
from jdfl.network import Timed
from jdfl.network.faults import Membership, Outages

Gradient = Callable[[int, np.ndarray], np.ndarray]


def check_plan(plan: Plan, events: Events, kinds: Sequence[Kind]) -> None:
    """Raise ValueError unless levels rise along every row wherever either of two touches writes."""
    wrote, touched = dict[Any, int](), dict[Any, int]()  # the highest level so far
    for level, kind, rows in zip(plan.level.tolist(), events.kind.tolist(), events.rows.tolist()):
        here = [(touch.mode, (touch.table, row)) for touch, row in zip(by_column(kinds[kind], len(rows)), rows)]
        here = [(mode, row) for mode, row in here if row[0] and row[1] >= 0]
        for mode, row in here:
            if (touched if "w" in mode else wrote).get(row, 0) >= level:
                raise ValueError(f"Expected levels that rise along every row, got level {level} again on {row}.")
        for mode, row in here:
            for seen in (touched, wrote) if "w" in mode else (touched,):
                seen[row] = max(level, seen.get(row, 0))


@dataclass
class Scene:
    """What a loop is given."""

    network: Timed  # in the run
    key: jax.Array  # of the run's network
    seconds: float
    x: np.ndarray  # [m, n] the initial models
    gradient: Gradient

    @property
    def neighbours(self) -> list[list[int]]:
        senders, mask = timeline.hears(faults.links(self.network))
        return [senders[i][mask[i]].tolist() for i in range(len(senders))]

    @property
    def weights(self) -> np.ndarray:
        graph = faults.links(self.network)
        senders, mask = timeline.hears(graph)
        W, (i, slot) = np.zeros((len(mask), len(mask))), np.nonzero(mask)
        W[i, senders[i, slot]] = np.asarray(graph.weight)[i, slot]
        return W

    def wakes(self, **how: Any) -> list[tuple[float, int, int]]:
        found = timeline.wakes(self.network, self.key, self.seconds, **how)
        return list(zip(found.time.tolist(), found.actor.tolist(), found.count.tolist()))

    def partners(self, out: bool = False, **how: Any) -> dict[tuple[int, int], int]:
        found = timeline.wakes(self.network, self.key, self.seconds, **how)
        table = (timeline.heard_by if out else timeline.hears)(faults.links(self.network))
        who = timeline.partners(self.network, table, found, self.key, faults.absences(self.network, self.seconds))
        return {(i, c): j for i, c, j in zip(found.actor.tolist(), found.count.tolist(), who.tolist())}

    def returns(self) -> list[tuple[float, int]]:
        """When nodes return, and which."""
        away = np.zeros((int(self.seconds) + 1, len(self.x)), bool)  # after every second
        for fault in faults.faults(self.network):
            if isinstance(fault, Outages | Membership):
                away |= np.stack([_away(fault, k) for k in range(len(away))])
        before = np.logical_and.accumulate(away)  # who has not been there yet
        return [(float(k + 1), int(i)) for k, i in np.argwhere(away[:-1] & ~away[1:] & ~before[:-1])]

    def lost(self, node: int, count: int) -> bool:
        return bool(faults.lost(self.network, self.key, np.array([node]), np.array([count]))[0])

    def travel(self, node: int, count: int) -> float:
        return float(timeline.travels(self.network, self.key, np.array([node]), np.array([count]))[0])


@jax.jit
def _away(fault: Outages | Membership, k: int) -> jax.Array:
    return fault.away(jnp.asarray(k, jnp.int32))


def ad_psgd(how: Any, scene: Scene) -> np.ndarray:
    x, snapshot, partner = scene.x, scene.x.copy(), scene.partners()
    queue: list[Any] = [(time, 0, i, count) for time, i, count in scene.wakes()]
    queue += [(time, 1, i, None) for time, i in scene.returns()]
    for _, what, i, count in sorted(queue):
        if what == 1:
            snapshot[i] = x[i]
            continue
        g, j = scene.gradient(i, snapshot[i]), partner[i, count]
        if j >= 0:
            x[i] = x[j] = (x[i] + x[j]) / 2
        x[i] = x[i] - how.lr * g
        snapshot[i] = x[i]
    return x


def gossip(how: Any, scene: Scene) -> np.ndarray:
    x = np.stack([scene.gradient(i, x) for i, x in enumerate(scene.x)])
    partner = scene.partners()
    for _, i, count in scene.wakes():
        if (j := partner[i, count]) >= 0:
            x[i] = x[j] = (x[i] + x[j]) / 2
    return x


def swarm(how: Any, scene: Scene) -> np.ndarray:
    x, partner = scene.x, scene.partners(gradients=how.local_steps)
    for _, i, count in scene.wakes(gradients=how.local_steps):
        j = partner[i, count]
        for node in (i, j) if j >= 0 else (i,):
            for _ in range(how.local_steps):
                x[node] = x[node] - how.lr * scene.gradient(node, x[node])
        if j >= 0:
            x[i] = x[j] = (x[i] + x[j]) / 2
    return x


def agp(how: Any, scene: Scene) -> np.ndarray:
    m = len(scene.x)
    x, w, partner = scene.x, np.ones(m), scene.partners(out=True, messages=False)
    box, boxed = np.zeros_like(x), np.zeros(m)
    queue: list[Any] = [(time, 0, i, count, None) for time, i, count in scene.wakes(messages=False)]
    heapq.heapify(queue)
    while queue and queue[0][0] <= scene.seconds:
        time, what, i, count, message = heapq.heappop(queue)
        if what == 1:
            to, dx, dw = message
            box[to] += dx
            boxed[to] += dw
            continue
        x[i] = x[i] - how.lr * scene.gradient(i, x[i] / w[i])
        j = partner[i, count]
        if j >= 0:
            x[i], w[i] = x[i] / 2, w[i] / 2
            heapq.heappush(queue, (time + scene.travel(i, count), 1, i, count, (j, x[i].copy(), w[i])))
        x[i], w[i] = x[i] + box[i], w[i] + boxed[i]
        box[i], boxed[i] = 0, 0
    return x / w[:, None]


def swift(how: Any, scene: Scene) -> np.ndarray:
    x, W = scene.x, scene.weights
    known = [{j: (-1, x[j].copy()) for j in near} for near in scene.neighbours]
    queue: list[Any] = [(time, 0, i, count, None) for time, i, count in scene.wakes(messages=False)]
    heapq.heapify(queue)
    while queue and queue[0][0] <= scene.seconds:
        time, what, i, count, message = heapq.heappop(queue)
        if what == 1:  # of messages that overtake one another the newest counts
            for to, near in enumerate(known):
                if i in near and count > near[i][0]:
                    known[to][i] = (count, message)
            continue
        g = scene.gradient(i, x[i])
        x[i] = x[i] + sum(W[i, j] * (near - x[i]) for j, (_, near) in known[i].items()) - how.lr * g
        heapq.heappush(queue, (time + scene.travel(i, count), 1, i, count, x[i].copy()))
    return x


def compressed(how: Any, scene: Scene) -> np.ndarray:
    x, W, near = scene.x, scene.weights, scene.neighbours
    hat, momentum = x.copy(), np.zeros_like(x)
    for _, i, _ in scene.wakes():
        momentum[i] = scene.gradient(i, x[i]) + getattr(how, "beta", 0.0) * momentum[i]
        h = x[i] - how.lr * momentum[i]
        x[i] = h + how.gamma * sum(W[i, j] * (hat[j] - hat[i]) for j in near[i])
        q = x[i] - hat[i]
        kept = np.argsort(-np.abs(q), kind="stable")[: round(how.codec.share * len(q))]
        hat[i, kept] += q[kept].astype(np.float32)  # a message has 32 bits for each
    return x


def random_walk_sgd(how: Any, scene: Scene) -> np.ndarray:
    m, slow, net = len(scene.x), np.asarray(scene.network.slow(), float), scene.network
    start = np.arange(how.tokens) % m
    token, visits = scene.x[start].copy(), list[tuple[float, int, int]]()
    drawn = random_walk._walk(net.compute, net.latency, faults.links(net), scene.key, start.astype(np.int32), 0)
    for k, steps in enumerate(zip(*(np.asarray(one).T.tolist() for one in drawn))):
        time = 0.0
        for here, to, compute, travel in zip(*steps):
            time += compute * slow[here]
            if time > scene.seconds:
                break
            visits.append((time, k, here))
            time += travel if to != here else 0.0
        else:
            raise AssertionError("The walk is longer than what was drawn.")
    for _, k, at in sorted(visits):
        token[k] = token[k] - how.lr * scene.gradient(at, token[k])
    return token[np.arange(m) % how.tokens]


def _returned(how: Any, scene: Scene, take: Callable[..., np.ndarray], rho: float = 0.0) -> np.ndarray:
    """A server that is sent what nodes make of the model that they received last, and sends them the new one."""
    server, received = scene.x[0].copy(), {i: (0, x.copy()) for i, x in enumerate(scene.x)}
    version = 0
    for _, i, count in scene.wakes(gradients=how.local_steps):
        if scene.lost(i, count):
            continue
        then, start = received[i]
        y = start.copy()
        for _ in range(how.local_steps):
            y = y - how.lr * (scene.gradient(i, y) + rho * (y - start))
        server, version = take(server, version, y, start, (1 + version - then) ** -how.power)
        received[i] = version, server.copy()
    return np.broadcast_to(server, scene.x.shape)


def fed_async(how: Any, scene: Scene) -> np.ndarray:
    def take(server: np.ndarray, version: int, y: np.ndarray, _: np.ndarray, fresh: float) -> Any:
        return (1 - how.mixing * fresh) * server + how.mixing * fresh * y, version + 1

    return _returned(how, scene, take, how.rho)


def fed_buff(how: Any, scene: Scene) -> np.ndarray:
    held: list[np.ndarray] = []

    def take(server: np.ndarray, version: int, y: np.ndarray, start: np.ndarray, fresh: float) -> Any:
        held.append(fresh * (y - start))
        if len(held) < how.size:
            return server, version
        server = server + how.server_lr / how.size * sum(held)
        held.clear()
        return server, version + 1

    return _returned(how, scene, take)
