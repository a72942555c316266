"""A run before its first round, and all checks that are possible by then.

Axes: m nodes.
"""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any
from zlib import crc32

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jdfl.algorithms.algorithm import Algorithm, check_protocol
from jdfl.algorithms.program import Program, planned
from jdfl.base import arguments, checks
from jdfl.base.backend import Form, backend, offered
from jdfl.base.names import shown
from jdfl.base.run_keys import RunKey
from jdfl.base.schedules import largest
from jdfl.base.settings import Bound, Positive
from jdfl.devices import processes
from jdfl.devices.layout import Devices, mesh_of
from jdfl.engine import loop, stepping
from jdfl.engine.checkpoint import Checkpoint
from jdfl.engine.metrics import Metric, default_metrics, referenced, resolve
from jdfl.engine.placement import require_memory
from jdfl.engine.provenance import COMPUTED, Provenance, checksums, computed, identity, provenance, settings_of
from jdfl.engine.spending import guarantee_of, unspent, watched
from jdfl.engine.stopping import StopRule
from jdfl.kernels import PREFIX
from jdfl.network import check_weights
from jdfl.network.graph import Network, round_of
from jdfl.network.timing import check_traces
from jdfl.privacy import Guarantee
from jdfl.privacy.accounting import scheduled
from jdfl.problems import Problem, check_problem
from jdfl.store.jobs import name_of


def form_of(asked: bool) -> Form | None:
    """How the kernels that a run asks for are executed; None: it asks for none.

    Raises ValueError on a backend that has none.
    """
    form = offered()
    if asked and form is None:
        raise ValueError(
            f"Expected a GPU with options.kernels = True, got the backend {backend()!r}. Leave kernels out: every one "
            "of them replaces a form that runs on all backends."
        )
    return form if asked else None


def _round(setting: stepping.Setting, state: Any) -> Any:
    return stepping.step(setting, state, stepping.sample_round(setting, jnp.int32(0)))


def _names(program: Any) -> Iterator[str]:
    for equation in program.eqns:
        name = str(equation.params.get("name"))
        if equation.primitive.name == "pallas_call" and name.startswith(PREFIX):
            yield name.removeprefix(PREFIX)
        for part in jax.tree.leaves(list(equation.params.values())):
            inner = getattr(part, "jaxpr", part)
            if hasattr(inner, "eqns"):
                yield from _names(inner)


_SMALL = 2**26  # bytes of data that are compared by checksums, and not as arrays
MOST_ROUNDS = 2**30  # rounds are counted in int32, and the next record is computed ahead of them


@dataclass(frozen=True, kw_only=True)
class Options:
    """How a run is executed. The results do not depend on it, except for `diverged_above`, which may end the run, and
    `kernels`, which round otherwise.

    `devices` spreads the nodes over several devices. Draws, choices, counts and ledgers are the same on any number of
    devices, floats agree within rounding, and to the bit on the same number. Devices exchange only what the network,
    metrics and stop rules need of other nodes. Your own metrics and stop rules receive the rows of all nodes on every
    device, unless they are marked by `jdfl.nodes.on_every_device`. The result's arrays are then on the host.
    """

    chunk: Annotated[int, Bound("[1, 1048576]")] = 50
    """Approximate number of rounds after which the device returns to Python and callbacks are called."""
    devices: Devices | None = None
    """Devices that share the nodes: a number, a list, or a JAX mesh; None: the default device, without a mesh."""
    diverged_above: Positive | None = None
    """Size of a parameter beyond which the run ends, as it does for one that is not finite; None: no such size."""
    kernels: bool = False
    """Use jdfl's own kernels for GPUs where they fit; `provenance` of the result has their names, or "none"."""


def execution(options: Options) -> tuple[Any, ...]:
    """What may end a run, or change its floats by rounding, as its ledger reserves it."""
    return (options.diverged_above, str(options.devices), *(("kernels",) if options.kernels else ()))


@dataclass(frozen=True)
class Plan:
    """A run before its first round."""

    program: Program  # the algorithm, and its plan for this network and number of rounds
    problem: Problem
    network: Network
    stop: StopRule | None
    key: RunKey
    steps: int
    every: int  # rounds between two records
    metrics: tuple[Metric, ...]
    guarantee: Guarantee
    provenance: Provenance
    options: Options
    before: Checkpoint | None  # the checkpoint that it continues
    made: str = ""  # the digest of all that decides what is released, where other runs may have its private key

    def computed(self) -> str:
        """The digest of what the run computes, which is traced once more for it."""
        return computed(self.program, self.problem, self.network, self.metrics)


def check_settings(algorithm: Algorithm, problem: Problem, network: Network, steps: int = 1) -> None:
    """Check an algorithm's settings against their annotations, one another, the problem and the network: ValueError.

    A step size that is a schedule is checked by its largest value in `steps` rounds.
    """
    stepping.check_paired(problem, network)
    arguments.settings(algorithm)
    largest(algorithm, steps).check(problem, network)


def check_run(
    algorithm: Algorithm,
    problem: Problem,
    network: Network,
    steps: int,
    every: int,
    stop: StopRule | None,
    devices: int = 1,
) -> Program:
    """All checks that are possible before the run's program is compiled; raises ValueError."""
    checks.integer(1, MOST_ROUNDS, steps=steps, every=every)
    check_protocol(algorithm)
    checks.able(("data", "weight", "value"), "a problem", "jdfl.problems builds one.", problem=problem)
    remedy = "jdfl.network builds one, also from_matrix, from_networkx and from_edges."
    checks.able(("at", "m"), "a network", remedy, network=network)
    stepping.check_paired(problem, network)
    if stop is not None:
        checks.able(("check", "reason"), "a stop rule", "For example jdfl.consensus_below(5e-3).", stop=stop)
    check_problem(problem)
    if network.m != problem.m:
        raise ValueError(
            f"Expected a network and a problem of the same size, got network.m = {network.m} and "
            f"problem.m = {problem.m}. Build both for the same number of nodes m."
        )
    check_weights(network, type(algorithm).__name__, columns=algorithm.columns, mixes=algorithm.mixes)
    graph = round_of(network, 0)
    if graph.late is not None and not algorithm.late:
        raise ValueError(
            f"Expected a network for {type(algorithm).__name__} whose messages are not late, got "
            f"{getattr(network, 'name', 'a network')}: it has no use for messages of earlier rounds. Use bursty_loss, "
            "where what does not come in its round is missing, or an algorithm that takes late messages, such as "
            "jdfl.DPSGD or jdfl.SGP."
        )
    arguments.settings(algorithm)  # as check_settings, but warnings name the caller of `run`
    largest(algorithm, steps).check(problem, network)
    if stop is not None:
        arguments.settings(stop)
        stop.check()
    require_memory(algorithm, problem, network, devices)
    if not algorithm.asynchronous:
        check_traces(network, steps)
    program = planned(algorithm, problem, network, steps)
    if graph.away is not None and scheduled(guarantee_of(program, problem).event) is not None:
        raise ValueError(
            f"Expected a network for {type(algorithm).__name__} whose nodes are there in every round, got "
            f"{getattr(network, 'name', 'a network')}: its noise is meant for the step of the same round, and a node "
            "that comes back would send an old one with less. Use node_participation, whose silent nodes go on alone, "
            "or an algorithm with the same noise in every round, such as jdfl.PEDFL."
        )
    return program


def started(
    algorithm: Algorithm,
    problem: Problem,
    network: Network,
    *,
    key: int | Array | RunKey | None,
    steps: int,
    every: int,
    stop: StopRule | None,
    metrics: Sequence[str | Metric] | None,
    before: Checkpoint | None,
    options: Options,
    kept: bool = False,
) -> Plan:
    """A run that is ready to begin; ValueError if it is not valid. Arguments are as for `jdfl.run`.

    A run that is `kept` in a folder records checksums of its data, and the digest of what it computes.
    """
    arguments.settings(options)
    if options.devices is None:
        processes.check_complete(problem)
    devices = 1 if options.devices is None else mesh_of(options.devices, problem.m).size
    network, form = stepping.paired(problem, network), form_of(options.kernels)
    program = check_run(algorithm, problem, network, steps, every, stop, devices)
    chosen = default_metrics(problem, algorithm.personal) if metrics is None else resolve(metrics, problem)
    problem = referenced(chosen, problem, algorithm.attackers)
    guarantee = guarantee_of(program, problem)
    if options.diverged_above is not None and watched(guarantee, problem) == "nothing":
        raise ValueError(
            f"Expected no diverged_above for {type(algorithm).__name__} with noise, got diverged_above = "
            f"{options.diverged_above!r}: the run would end because of parameters that the guarantee does not cover "
            f"({guarantee.local}). Leave it out, or declare that this is public: public = 'stop' of the problem."
        )
    own = own_key(key, before, guarantee.event is not None)
    more: dict[str, Any] = (
        {} if form is None else {"kernels": _used(program, problem, network, own.public, form, options)}
    )
    built: dict[str, Any] = {"algorithm": algorithm, "problem": problem, "network": network}
    if isinstance(names := problem.node_names, tuple):
        more["node_names"] = f"{shown(names)}, with the checksum {crc32(repr(names).encode()):08x}"
    origin = provenance(own, **built, **more)
    given = own, int(steps), int(every), chosen
    plan = Plan(program, problem, network, stop, *given, guarantee, origin, options, before)
    known = {} if before is None or before.provenance is None else before.provenance.settings
    if kept or COMPUTED in known:
        settings = origin.settings | checksums(**built) | {COMPUTED: plan.computed()}
        plan = replace(plan, provenance=replace(origin, settings=settings))
    plan = replace(plan, made=made_of(plan, {}))
    if before is not None:
        names = [metric.__name__ for metric in chosen]
        before.check(unspent(guarantee, problem), own, int(steps), names, plan.provenance)
        summed = any("checksum" in name for name in known)
        if before.data and not summed and before.data != identity((problem.data, problem.weight)):
            warnings.warn(
                "The run is resumed with other arrays of data than it had, and whether these are equal is not known. "
                "Give it the same problem, or keep runs in a folder, which has checksums.",
                stacklevel=3,
            )
    return plan


def made_of(plan: Plan, known: dict[Any, str]) -> str:
    """The digest of settings, arrays and what is computed, which is `known` of runs alike; "" if its key is new."""
    if plan.guarantee.event is None or (plan.key.source != "given" and plan.before is None):
        return ""
    settings, data = plan.provenance.settings, (plan.problem.data, plan.problem.weight)
    alike = jax.tree.structure((plan.program, plan.problem, plan.network))
    if alike not in known:
        known[alike] = settings.get(COMPUTED) or plan.computed()
    more = {"algorithm": plan.program, "network": plan.network, "problem": plan.problem.start}
    small = jax.process_count() == 1 and sum(leaf.nbytes for leaf in jax.tree.leaves(data)) <= _SMALL
    sums = {} if COMPUTED in settings else checksums(data=data) if small else {"data": identity(data)}
    derived: dict[str, Any] = {"curvature": plan.problem.curvature, "plan": plan.program.plan}
    return name_of(settings, known[alike], sums, checksums(**more, **derived), settings_of(**derived))


def own_key(key: int | Array | RunKey | None, before: Checkpoint | None, noisy: bool) -> RunKey:
    """The keys of a run, which keeps those of the one that it continues."""
    if isinstance(key, RunKey):
        return key
    if key is not None:
        found = RunKey.of(key)
        return found if before is None else replace(found, token=before.token)
    if before is None:
        return RunKey.chosen(noisy)
    return before.run_key or replace(RunKey.of(0), token=before.token)


def _used(program: Program, problem: Problem, network: Network, root: Array, form: Form, options: Options) -> str:
    """The names of the kernels in a round, which is traced and not compiled; on several devices it has none."""
    if options.devices is not None:
        return "none"
    setting = stepping.setting(program, problem, network, None, root, kernels=form)
    program, carry, _ = jax.eval_shape(loop.start, setting, ())
    traced = jax.make_jaxpr(_round)(replace(setting, program=program), carry.state)
    return ", ".join(sorted(set(_names(traced.jaxpr)))) or "none"


def check_counters(network: Network, rounds: int) -> None:
    """ValueError for chunks so long that a node's int32 message counter could overflow."""
    largest = getattr(network, "largest_out_degree", None)  # a user's network may lack it
    if largest is None:
        largest = np.max(np.asarray(round_of(network, 0).out_degree), initial=1)
    busiest = max(1, int(largest)) * max(1, rounds)
    if busiest >= 2**31:
        raise ValueError(
            f"Expected fewer than 2^31 messages of one node between two records, got {busiest} in {rounds} rounds. "
            "Record more often (every=...), or use `run`, which adds up on the host after every chunk."
        )


def scheduler(program: Program, steps: int) -> Any:
    """What executes a number of rounds of a program, by `start` and `advance`: `loop`, or `Waves` of events."""
    if not program.algorithm.asynchronous:
        return loop
    from jdfl.engine.waves import Waves  # which imports all asynchronous methods

    return Waves(steps)


def releases(setting: stepping.Setting, steps: int) -> np.ndarray:
    """How many releases every node [m] makes at the start and in all rounds, whatever a stop rule would say."""
    if setting.program.algorithm.asynchronous:
        return np.asarray(scheduler(setting.program, steps).releases(setting))
    return np.asarray(loop.releases(setting, jax.numpy.int32(steps)))


def fitted(program: Program, state: Any, like: Any) -> Any:
    """The state of an asynchronous method with tables of messages as long as those of another; others as they are.

    Messages keep their rows in runs of any length, so that only free rows are added or left out.
    """
    method: Any = program.algorithm
    if not method.asynchronous or jax.tree.structure(state) != jax.tree.structure(like):
        return state

    def resized(table: Any, other: Any) -> Any:
        kept = jax.numpy.asarray(table)[: other.shape[0]]
        return jax.numpy.concatenate([kept, jax.numpy.zeros((other.shape[0] - len(kept), *kept.shape[1:]), kept.dtype)])

    return {
        name: jax.tree.map(resized, table, like[name]) if name in method.message_tables else table
        for name, table in state.items()
    }
