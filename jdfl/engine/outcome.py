"""The result of a run: the state of the device, the totals and the reason of its end, on the host."""

import hashlib
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import numpy as np
import pandas as pd
from jax import Array

from jdfl.base.keys import key_data
from jdfl.engine import invariants, loop, stepping
from jdfl.engine.compiling import Spent
from jdfl.engine.metrics import classifies
from jdfl.engine.provenance import identity, is_whole
from jdfl.engine.result import Cut, Ending, Result, Tally
from jdfl.engine.spending import records_of, stop_tells
from jdfl.engine.start import Plan
from jdfl.engine.stopping import StopRule
from jdfl.privacy import Guarantee, exposing
from jdfl.problems import LossProblem, Problem


def as_chunk(record: loop.Record) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """One record as a chunk of one, for `Tally.add`."""
    every = (record.rounds, record.metrics, record.counts)
    rounds, metrics, counts = jax.tree.map(lambda leaf: leaf[None], jax.device_get(every))
    return rounds, metrics, counts


def assemble(
    plan: Plan,
    setting: stepping.Setting,
    params: Array,
    carry: loop.RunState,
    tally: Tally,
    spent: Spent,
    cut: tuple[Cut, str] | None = None,
    warned: tuple[str, ...] = (),
    moments: dict[int, np.ndarray] | None = None,
) -> Result:
    """The result of a run that ended or was `cut`, on the host."""
    problem, network, guarantee = plan.problem, plan.network, plan.guarantee
    rounds, found = int(carry.rounds), invariants.found(carry.bad)
    ending, reason = _ending(rounds, plan, carry, setting, cut)
    warns = dict.fromkeys((*warned, *_privacy_warnings(setting.stop, ending, guarantee)))
    history, state = tally.history(), carry.state
    digest = "" if guarantee.event is None else _released(rounds, params, state, carry.releases, history)
    released = f"{plan.made} {digest}".strip()
    return Result(
        algorithm=setting.algorithm.algorithm,
        ready=setting.algorithm.ready,
        problem_name=problem.name,
        network_name=getattr(network, "name", type(network).__name__),
        node_names=problem.node_names if problem.node_names is not None else getattr(network, "node_names", None),
        pairing=stepping.pairing(problem, network),
        params=params,
        minimises=setting.algorithm.algorithm.minimises(problem, network),
        notes=(
            *_alone(setting.algorithm.algorithm, np.asarray(carry.communications), rounds),
            *_zeroed(plan, params, tally.history()),
        ),
        state=state,
        history=history,
        rounds=rounds,
        ending=ending,
        reason=reason,
        diverged=(rounds, found.node) if found is not None and found.rule is None else None,
        violated=(rounds, found.node) if found is not None and found.rule is not None else None,
        totals=tally.totals(),
        communication_rounds=np.asarray(carry.communications),
        releases=np.asarray(carry.releases),
        clock=None if carry.clock is None else np.asarray(carry.clock[0]),
        clock_rest=None if carry.clock is None else np.asarray(carry.clock[1]),
        moments=moments or {},
        published_bytes=setting.algorithm.published_bytes(problem, rounds),
        guarantee=exposing(guarantee, ("stop",), problem.public) if READS_DATA in warns else guarantee,
        records=records_of(problem),
        privacy_warnings=tuple(warning for warning in warns if warning not in guarantee.warnings),
        key=tuple(key_data(plan.key.public)),
        private_key=tuple(key_data(plan.key.private)),
        key_source=plan.key.source,
        token=plan.key.token,
        data=identity((problem.data, problem.weight)),
        released=(*(() if plan.before is None else plan.before.released), released),
        sums=dict(tally.base),
        seconds=spent.seconds,
        compile_seconds=spent.compile_seconds,
        provenance=plan.provenance,
        computed=plan.computed,
        test_examples=_tested(setting.algorithm.judged(problem)[0]),
    )


def _released(rounds: int, params: Array, state: Any, releases: Any, history: pd.DataFrame) -> str:
    """The digest of what a run with noise has put out: equal ones of runs with one key say that nothing differs."""
    total = hashlib.sha256(f"{rounds} {list(history.columns)}".encode())
    leaves = [_plain(leaf) for leaf in (params, releases, *jax.tree.leaves(state))]
    for part in jax.device_get(leaves):
        total.update(f"{part.dtype}{list(part.shape)}".encode())
        total.update(np.ascontiguousarray(part).reshape(-1).view(np.uint8).data)
    total.update(history.to_numpy(float).tobytes())
    return total.hexdigest()[:32]


def _plain(x: Any) -> Any:
    """An array without keys of random numbers, which hosts cannot hold."""
    return jax.random.key_data(x) if jax.numpy.issubdtype(x.dtype, jax.dtypes.prng_key) else x


_FEW = 1024  # examples of all nodes whose gradients are computed at the end, at least one of every node
READS_DATA = "a stop rule or a callback looks at more than what is released, and all see when it ends the run"


def _privacy_warnings(stop: StopRule | None, ending: Ending, guarantee: Guarantee) -> tuple[str, ...]:
    """What the end of a run reveals beyond its guarantee."""
    if stop_tells(guarantee, stop):  # that it did not fire is information, too
        return (READS_DATA,)
    if stop is None or ending != "stop rule":
        return ()
    return ("the stop rule looks at all nodes' true parameters, which no node knows; they follow from noisy releases",)


def _zeroed(plan: Plan, params: Array, history: pd.DataFrame) -> tuple[str, ...]:
    """How many clipped gradients count as zero at the end, where recorded losses or gradients are not finite."""
    clips = getattr(plan.program.algorithm, "gradients", plan.program.algorithm)
    looked = [name for name in ("objective", "objective_local") if name in history]
    finite = bool(looked) and bool(np.isfinite(history[looked].to_numpy(float)).all())
    if getattr(clips, "clip", None) is None or not is_whole(params):
        return ()
    problem: Any = replace(plan.problem, name="", test=None)
    here = np.asarray(problem.weight) > 0
    if not finite and np.any(lost := here & ~np.isfinite(np.asarray(_losses(problem, params)))):
        whole = int(np.sum(lost.sum(axis=1) == here.sum(axis=1)))
        return (
            f"the losses of {int(lost.sum())} of {int(here.sum())} examples are not finite at the last parameters, of "
            f"all examples at {whole} of {len(here)} nodes: clipped gradients that are not finite count as zero",
        )
    if not _own(problem):
        return ()
    few = here[:, : max(1, _FEW // len(here))]
    lost = few & ~np.asarray(_sound(problem, params, few.shape[1]))
    words = f"gradients of {int(lost.sum())} of {int(few.sum())} examples, at {int(lost.any(axis=1).sum())} nodes, "
    return (words + "are not finite at the last parameters: clipped, they count as zero",) * bool(lost.any())


def _own(problem: Any) -> bool:
    """Whether the losses of single examples are a person's own."""
    model = getattr(problem, "model", None)
    own = isinstance(problem, LossProblem) or not type(problem).__module__.startswith("jdfl.")
    return own if model is None else model.own and not model.examples_mix


@partial(jax.jit, static_argnames="count")
def _sound(problem: Any, params: Array, count: int) -> Array:
    """Whether the gradients of the first examples of every node are finite [m, count]."""

    def one(w: Array, data: Any) -> Array:
        gradients = jax.lax.map(
            lambda i: problem.example_gradients(w, problem.take(data, i[None]))[0], jax.numpy.arange(count)
        )
        return jax.numpy.isfinite(gradients).all(axis=1)

    return problem.each(one, params, problem.data)


@jax.jit
def _losses(problem: Any, params: Array) -> Array:
    return problem.each(problem.losses, params, problem.data)


def _alone(algorithm: Any, communications: np.ndarray, rounds: int) -> tuple[str, ...]:
    """Whether there were nodes that never combined a message, though the method sends some."""
    alone = np.flatnonzero(communications == 0)
    if not len(alone) or not algorithm.channels or rounds == 0 or len(communications) == 1:
        return ()
    which = "no node" if len(alone) == len(communications) else f"{len(alone)} of {len(communications)} nodes never"
    words = "ever combined a message" if which == "no node" else "combined a message"
    return (f"{which} {words} in {rounds} rounds (node {alone[0]}{', ...' if len(alone) > 1 else ''} for example)",)


def _ending(
    rounds: int,
    plan: Plan,
    carry: loop.RunState,
    setting: stepping.Setting,
    cut: tuple[Cut, str] | None,
) -> tuple[Ending, str]:
    found, stopped, stop = invariants.found(carry.bad), bool(carry.stopped), setting.stop
    m, steps, metrics = len(carry.communications), plan.steps, plan.metrics
    if found is not None and found.rule is not None:  # which is why a number may not be finite either
        measured = np.asarray(carry.measured, np.float64)
        value = float(measured.sum() if found.node == invariants.NOWHERE else measured[found.node])
        return "invariant", invariants.what_is_broken(found.rule, found.node, value, rounds, m, setting.planned)
    if found is not None and found.metric is not None:
        name = metrics[found.metric].__name__
        return "diverged", (
            f"the metric {name} is not finite after round {rounds}, though all parameters are; lower the learning rate "
            "or the noise, or look at the loss"
        )
    if found is not None:
        bad = invariants.what_is_bad(carry.state, found.node, len(setting.node), setting.largest, setting.watched)
        return "diverged", (
            f"node {found.node} has {bad} after round {rounds}; "
            "lower the learning rate or the noise, or look at that node's data"
        )
    if stopped and stop is not None:
        return "stop rule", stop.reason
    if bool(carry.spent) and setting.algorithm.algorithm.asynchronous and carry.clock is not None:
        when = f"at {float(carry.clock[0][0]):.6g} s"
        return "budget", f"an event {when} would release more than the privacy budget allows; nothing of it is sent"
    if bool(carry.spent):
        return "budget", f"round {rounds + 1} would release more than the privacy budget allows; nothing of it is sent"
    if cut is not None and rounds < steps:
        return cut[0], f"{cut[1]} after round {rounds}; everything up to there is kept"
    return "steps", f"all {steps} rounds are done" + (", the stop rule never fired" if stop is not None else "")


def _tested(problem: Problem) -> int | None:
    """How many test examples the accuracy is a share of; None where it is no share, such as a mean over nodes."""
    if problem.test is None or problem.personal or not classifies(problem):
        return None
    return int(problem.test[1].shape[0])
