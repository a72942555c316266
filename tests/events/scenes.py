"""Asynchronous methods with their loops, and what they are tried on."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jdfl
from jdfl import events, testing
from jdfl import network as nw
from jdfl.algorithms.program import planned
from jdfl.base.streams import Keys
from jdfl.engine import loop, stepping, waves
from jdfl.events import AsyncMethod
from jdfl.events.faults import with_times
from jdfl.events.timeline import Events
from jdfl.network import in_run
from tests.events import loops
from tests.later import Named

M, PERIODS = testing.NODES, 14  # about 84 events of each kind, so that all runs share their programs
NOISY = jdfl.Gradients(clip=1.0, mechanism=jdfl.Gaussian(0.1))
TOP = jdfl.Sparse(share=0.3)


@dataclass(frozen=True)
class Row:
    """An asynchronous method, and the loop of its paper."""

    method: AsyncMethod
    loop: Callable[[Any, loops.Scene], np.ndarray]


ROWS: dict[str, Row] = {
    "AD-PSGD": Row(events.ADPSGD(lr=0.05), loops.ad_psgd),
    "SwarmSGD": Row(events.SwarmSGD(lr=0.05, local_steps=2), loops.swarm),
    "randomized gossip": Row(events.RandomizedGossip(), loops.gossip),
    "AGP": Row(events.AGP(lr=0.002), loops.agp),
    "SWIFT": Row(events.SWIFT(lr=0.05), loops.swift),
    "CHOCO": Row(events.AsyncCHOCO(lr=0.05, gamma=0.3, codec=TOP), loops.compressed),
    "DO-ADP": Row(
        events.AsyncDOADP(lr=0.05, gamma=0.3, beta=0.4, gradients=jdfl.Gradients(), codec=TOP), loops.compressed
    ),
    "four walks": Row(events.RandomWalkSGD(lr=0.05, tokens=4), loops.random_walk_sgd),
    "FedAsync": Row(events.FedAsync(lr=0.05, local_steps=2, rho=0.1, power=0.7), loops.fed_async),
    "FedBuff": Row(events.FedBuff(lr=0.05, local_steps=2, server_lr=0.8, size=3), loops.fed_buff),
}
VARIANTS: dict[str, AsyncMethod] = {
    **{name: row.method for name, row in ROWS.items()},
    "AD-PSGD, batches": events.ADPSGD(lr=0.05, gradients=jdfl.Gradients(batch=3)),
    **{
        f"{name}, noise": replace(ROWS[name].method, gradients=NOISY)
        for name in ("AD-PSGD", "SwarmSGD", "AGP", "SWIFT", "DO-ADP", "four walks", "FedBuff")
    },
}
CLOCKS = Named(
    {
        "exponential": {"compute": nw.ExponentialTime(1.0)},
        "equal": {"compute": nw.FixedTime(1.0)},
        "pareto": {"compute": nw.ParetoTime(0.5, 1.5), "latency": nw.FixedTime(0.2)},
        "slow nodes": {
            "compute": nw.ExponentialTime(0.7),
            "slowness": nw.LogNormalTime(1.0, 1.0),
            "latency": nw.ExponentialTime(0.8),
        },
    }
)
GRAPHS: dict[str, Callable[[], nw.Static]] = {
    "small": testing.small_network,
    "star": lambda: nw.star(M),
    "complete": lambda: nw.complete(M),
    "cut off": lambda: nw.from_edges([(0, 1), (1, 2), (2, 0), (3, 4)], M, connected=False),
}


FAULTS: dict[str, Callable[[Any], Any]] = {
    "lost messages": lambda net: nw.link_loss(net, 0.3, weights="sender"),
    "absent nodes": lambda net: nw.outages(net, 0.3, 0.4),
    "members": lambda net: nw.membership(net, joins=[0, 3, 0, 0, 14, 1], leaves=[9, 14, 14, 5, 14, 14]),
    "both": lambda net: nw.link_loss(nw.outages(net, 0.2, 0.5), 0.2, weights="sender"),
}


def network(clock: str = "exponential", graph: str = "small", fault: str | None = None) -> Any:
    """A network with times, whose table is as wide as any."""
    base = GRAPHS[graph]()
    timed = nw.timed(replace(base, graph=nw.pad(base.graph, M - 1)), **CLOCKS[clock])
    return timed if fault is None else FAULTS[fault](timed)


def borne(name: str) -> list[str]:
    """The faults that a method bears, the most last."""
    bears = VARIANTS[name].bears
    whole = {"lost messages": ["lost messages"], "absent nodes": ["absent nodes", "members"]}
    return [fault for what in bears for fault in whole[what]] + ["both"] * (len(bears) == 2)


def most(name: str) -> str | None:
    """As many faults at once as a method bears."""
    return (borne(name) or [None])[-1]


def wide(problem: Any) -> Any:
    """The problem in float64."""
    return jax.tree.map(lambda x: x.astype(float) if jnp.issubdtype(x.dtype, jnp.floating) else x, problem)


@dataclass
class Simulated:
    """What a run computed, and what happened in it."""

    program: Any
    state: Any
    scheduler: waves.Waves
    carry: loop.RunState

    @property
    def params(self) -> np.ndarray:
        return np.asarray(self.program.params(self.state))


def simulated(
    method: AsyncMethod, problem: Any, timed: Any, *, seed: int = 2, steps: int = PERIODS, every: int = PERIODS
) -> Simulated:
    """A run without everything that is around it."""
    setting = stepping.setting(planned(method, problem, timed, steps), problem, timed, None, jax.random.key(seed))
    scheduler = waves.Waves(steps)
    program, carry, _ = scheduler.start(setting, ())
    carry, _ = scheduler.advance(carry, replace(setting, program=program), steps, every, steps, ())
    return Simulated(program, jax.device_get(carry.state), scheduler, carry)


FEW: dict[str, Any] = {"key": 2, "steps": PERIODS, "metrics": []}


def ran(method: AsyncMethod, timed: Any = None, problem: Any = None, **given: Any) -> jdfl.Result:
    """A run of few periods."""
    return jdfl.run(method, problem or testing.small_problem(), timed or network("slow nodes"), **FEW | given)


def drawn(method: AsyncMethod, timed: Any) -> Events:
    """What happens in such a run."""
    key = Keys.of(jax.random.key(FEW["key"])).network
    return method.events(with_times(in_run(timed, key, 0), ""), key, float(PERIODS))


def by_loop(row: Row, problem: Any, timed: Any) -> np.ndarray:
    """The parameters [m, n] of the loop of a method's paper, for a problem of least squares in float64."""
    keys = Keys.of(jax.random.key(FEW["key"]))
    features, targets = (np.asarray(leaf, np.float64) for leaf in problem.data)

    def gradient(i: int, w: np.ndarray) -> np.ndarray:
        return features[i].T @ (features[i] @ w - targets[i]) / len(targets[i])

    here = with_times(in_run(timed, keys.network, 0), row.method.title)
    return row.loop(
        row.method, loops.Scene(here, keys.network, float(PERIODS), np.array(problem.initial_params()), gradient)
    )


def equal(one: Any, other: Any) -> None:
    """Two trees are equal, bit for bit."""
    for mine, others in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(mine, others)
