"""How stale gradients and models are without a common clock, and what their staleness does to the error.

Staleness follows from the events, which are drawn before anything is computed, so that it is counted on the host:

- AD-PSGD: how many meetings with others have changed a node's model since the snapshot at which its gradient is taken,
  and how many events there were anywhere meanwhile, which is the tau of the paper;
- SWIFT: how many newer versions of a neighbour's model there are than the one that a node averages with, and how many
  seconds old it is: there are few versions of a slow node's model, which are old;
- FedAsync: how many models the server has made since the client received its own.

They are means over seeds of the mean, the 99th percentile and the largest number in 200 s on a 4-regular network of 32
nodes, with a tenth of a second for a message. Then each method solves least squares with 20 parameters, of nodes with
solutions of their own, by exact gradients: the table has the gap between the objective at the mean of the nodes' models
and the least one, over that of the start, on average over the last fifth of 200 s. A slow node's data count for less,
late messages slow SWIFT down, and the exponent of FedAsync makes a stale model count for less.

--quick has 16 nodes, 60 s, two seeds and fewer cases.
"""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

import jdfl
from experiments.async_common import EQUAL, EXPONENTIAL, LOG_NORMAL, PARETO, Clock, one_slow
from experiments.common import Made, Options, Row, bars, experiment, row
from jdfl import events
from jdfl import network as nw
from jdfl.events import Events

LATENCY = 0.1
N, EXAMPLES, APART = 20, 40, 0.5  # parameters, examples of a node, and deviation of the nodes' solutions
CLOCKS = (EQUAL, EXPONENTIAL, LOG_NORMAL, PARETO, one_slow(10))
FACTORS = (1, 2, 4, 10, 100)
LATENCIES = (0.1, 1, 3, 10)  # seconds
POWERS = (0.0, 0.5, 1.0)
AD_PSGD, SWIFT, SWIFT_AGES, FED_ASYNC = "AD-PSGD, meetings", "SWIFT, versions", "SWIFT, seconds", "FedAsync, models"
Counts = dict[tuple[str, str], list[np.ndarray]]


@dataclass(frozen=True)
class Size:
    m: int
    seconds: int


FULL, SMALL = Size(32, 200), Size(16, 60)


def meetings(found: Events, m: int) -> np.ndarray:
    """How many meetings have changed the actor's model since its snapshot [E], for events of AD-PSGD."""
    met, before = [0] * (m + 1), [0] * m
    counts = list[int]()
    for actor, partner in zip(found.actor.tolist(), found.rows[:, -1].tolist()):
        counts.append(met[actor] - before[actor])
        before[actor] = met[actor]
        met[partner] += 1  # the last place is that of nobody
    return np.array(counts)


def elsewhere(found: Events, m: int) -> np.ndarray:
    """How many events there were since the actor's last one, or since the start [E]."""
    last = np.full(m, -1)
    counts = np.empty(len(found), np.int64)
    for place, actor in enumerate(found.actor.tolist()):
        counts[place] = place - last[actor] - 1
        last[actor] = place
    return counts


def versions(found: Events, m: int) -> np.ndarray:
    """How many newer versions there are of the models that events of SWIFT read, one number for every model read."""
    made, owner = [0] * m, {i: (i, 0) for i in range(m)}  # of a row of the table: the node, and the version's number
    counts = list[int]()
    for actor, own, *read in found.rows.tolist():
        counts += [made[owner[one][0]] - owner[one][1] for one in read if one >= 0]
        made[actor] += 1
        owner[own] = actor, made[actor]
    return np.array(counts)


def ages(found: Events, m: int) -> np.ndarray:
    """How many seconds old the models are that events of SWIFT read, one number for every model read."""
    made = dict.fromkeys(range(m), 0.0)  # of a row of the table: when its version was made
    seconds = list[float]()
    for time, (_, own, *read) in zip(found.time.tolist(), found.rows.tolist()):
        seconds += [time - made[one] for one in read if one >= 0]
        made[own] = time
    return np.array(seconds)


def models(found: Events, _: int) -> np.ndarray:
    """How many models the server has made since the client received its own, for models of FedAsync that arrive."""
    return found.data[found.kind == 1] // 2


COUNTED: dict[str, tuple[Any, Any]] = {
    AD_PSGD: (events.ADPSGD(), meetings),
    "AD-PSGD, events anywhere": (events.ADPSGD(), elsewhere),
    SWIFT: (events.SWIFT(), versions),
    SWIFT_AGES: (events.SWIFT(), ages),
    FED_ASYNC: (events.FedAsync(local_steps=1), models),
}


def base(m: int) -> Any:
    return nw.k_regular(m, 4)


def counted(size: Size, clocks: Sequence[Clock], seeds: int) -> Counts:
    """The staleness of all that is computed or read, by method and clock, for every seed."""
    found: Counts = {}
    for name, (method, count) in COUNTED.items():
        cases = {clock.name: (clock, LATENCY) for clock in clocks}
        if name in (SWIFT, SWIFT_AGES):
            cases |= {f"equal, messages take {one:g} s": (EQUAL, one) for one in LATENCIES[1:]}
        for case, (clock, latency) in cases.items():
            keys = [jax.random.key(seed) for seed in range(seeds)]
            drawn = [clock.network(base(size.m), latency).in_run(key, 0) for key in keys]
            happened = [method.events(net, key, float(size.seconds)) for net, key in zip(drawn, keys)]
            found[name, case] = [count(one, size.m) for one in happened]
    return found


def problem_of(m: int, seed: int) -> jdfl.problems.LinearRegression:
    """Least squares of nodes that have solutions of their own, with its optimum."""
    draw = np.random.default_rng(seed)
    A = draw.standard_normal((m, EXAMPLES, N))
    w = draw.standard_normal(N) + APART * draw.standard_normal((m, N))
    b = np.einsum("iqn,in->iq", A, w) + 0.1 * draw.standard_normal((m, EXAMPLES))
    return jdfl.problems.solved(jdfl.problems.linear_regression(A, b))


def left(method: Any, size: Size, clock: Clock, seeds: int, latency: float = LATENCY) -> list[float]:
    """The share of the start's gap that is left in the last fifth of the run, by seed; infinite where it diverged."""
    shares = list[float]()
    for seed in range(seeds):
        network = clock.network(base(size.m), latency)
        given: Any = {"steps": size.seconds, "every": 4, "metrics": ["suboptimality"]}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = jdfl.run(method, problem_of(size.m, seed), network, key=seed, **given)
        gaps = result.history["suboptimality"].to_numpy()
        shares.append(float(np.mean(gaps[-len(gaps) // 5 :]) / gaps[0]) if result.ending == "steps" else np.inf)
    return shares


def effects(size: Size, clocks: Sequence[Clock], seeds: int, quick: bool) -> Iterator[Row]:
    """The gaps that are left, case by case; instead of those of a case that diverged the share of seeds that did."""
    lr = 0.5 / float(np.max(np.asarray(problem_of(size.m, 0).curvature)))
    rates = {"small steps": lr / 10, "large steps": lr}
    factors, latencies = (FACTORS[::3], LATENCIES[::3]) if quick else (FACTORS, LATENCIES)
    cases: dict[str, tuple[Any, Clock, float]] = {}
    for factor in factors:
        cases[f"AD-PSGD, one node {factor} times slower"] = events.ADPSGD(lr=lr), one_slow(factor), LATENCY
    for clock in clocks[:4]:
        cases[f"AD-PSGD, {clock.name}"] = events.ADPSGD(lr=lr), clock, LATENCY
    for (name, rate), latency in ((one, late) for one in rates.items() for late in latencies):
        cases[f"SWIFT, messages take {latency:g} s, {name}"] = events.SWIFT(lr=rate), EQUAL, latency
    for clock, power in ((clock, power) for clock in clocks for power in POWERS):
        method = events.FedAsync(lr=lr, local_steps=1, power=power)
        cases[f"FedAsync, {clock.name}, exponent {power:g}"] = method, clock, LATENCY
    for case, (method, clock, latency) in cases.items():
        shares = left(method, size, clock, seeds, latency)
        yield row(case, "diverged", None, (~np.isfinite(shares)).astype(float).tolist())
        if np.isfinite(shares).all():
            yield row(case, "gap left", None, shares)


def rows_of(found: Counts) -> Iterator[Row]:
    for (name, case), counts in found.items():
        measures: dict[str, Any] = {"mean": np.mean, "99 %": lambda one: np.quantile(one, 0.99), "largest": np.max}
        for column, measure in measures.items():
            yield row(f"{name}, {case}", column, None, [float(measure(one)) for one in counts])
        yield row(f"{name}, {case}", "share of 0", None, [float(np.mean(one == 0)) for one in counts])


@experiment()
def main(chosen: Options) -> Made:
    size, clocks = (SMALL, CLOCKS[::4]) if chosen.quick else (FULL, CLOCKS)
    found = counted(size, clocks, chosen.seeds)
    rows = [*rows_of(found), *effects(size, clocks, chosen.seeds, chosen.quick)]
    return Made(
        {"Staleness, and the share of the gap that is left": rows}, bars(rows, ["gap left"], "share of the gap")
    )
