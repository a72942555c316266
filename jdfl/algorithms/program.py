"""An algorithm that is ready to run: its settings, what was planned and prepared for it, and its counted steps.

This is the runner's view of every algorithm. Settings stay as the user chose them; what follows from them, the data,
the network and the number of rounds is stored separately.

Axes: m nodes, n parameters.
"""

from dataclasses import replace
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
from jax import Array

from jdfl.algorithms.algorithm import Algorithm, codec_of
from jdfl.algorithms.round import Round, RoundContext, StepCounts, in_round, parts
from jdfl.algorithms.statement import METHODS, built_in, of_jdfl
from jdfl.base import checks, schedules, struct
from jdfl.network import Network
from jdfl.network.late import Mail
from jdfl.network.links import Sizes
from jdfl.privacy import Guarantee
from jdfl.problems import Problem

_ABOVE_ZERO = "Give a schedule that ends above 0, such as optax.cosine_decay_schedule(0.1, 300, alpha=0.01)."


class Waiting(NamedTuple):
    """A state on a network with delayed messages."""

    state: Any  # the algorithm's
    mail: dict[str, Any]  # by channel


@struct.dataclass
class Program:
    """An algorithm with its plan from the host and, after `prepare`, what was computed on the device."""

    algorithm: Algorithm
    plan: Any = None
    steps: Any = None  # the planned number of rounds, as a float
    prepared: Any = None
    unproven: str = struct.field(pytree_node=False, default="")  # why nothing can be claimed with its plan

    @property
    def ready(self) -> Any:
        """The result of the algorithm's `prepare`; None before."""
        return None if self.prepared is None else self.prepared.own

    def judged(self, problem: Problem, *rows: Array) -> tuple[Problem, *tuple[Array, ...]]:
        """The problem and rows [m, ...] of the nodes that metrics and stop rules are about.

        With a personal method no parameter is common to the nodes, so that each is judged with its own model.
        """
        problem = replace(problem, shared=0) if self.algorithm.personal == "models" else problem
        if not self.algorithm.attackers:
            return problem, *rows
        ids = jnp.asarray([i for i in range(problem.m) if i not in set(self.algorithm.attackers)], jnp.int32)
        return problem.nodes(ids), *(x[ids] for x in rows)

    def prepare(self, problem: Problem, context: RoundContext) -> "Program":
        """The program with what all rounds need (pure, runs once under jit)."""
        return replace(self, prepared=self.algorithm.prepared(problem, context, self.plan))

    def init(self, problem: Problem, context: RoundContext) -> tuple[Any, StepCounts]:
        """The state before round 0, and its counts."""
        round = self.round(problem, context, {})
        state = in_round(self.algorithm, round).init(round)
        if context.graph.late is not None:
            mail = jax.eval_shape(lambda: self._stepped(state, {}, problem, context)[0].mail)
            state = Waiting(state, jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), mail))
        return state, self._info(round)

    def step(self, state: Any, problem: Problem, context: RoundContext) -> tuple[Any, StepCounts]:
        """One round."""
        inner, mail = state if isinstance(state, Waiting) else (state, {})
        round, new = self._stepped(inner, dict(mail), problem, context)
        return (Waiting(new, round.mail) if isinstance(state, Waiting) else new), self._info(round)

    def _stepped(self, state: Any, mail: dict[str, Any], problem: Problem, context: RoundContext) -> tuple[Round, Any]:
        round = self.round(problem, context, mail)
        return round, in_round(self.algorithm, round).step(state, round)

    def round(self, problem: Problem, context: RoundContext, mail: dict[str, Any] | None = None) -> Round:
        """The round of a moment; `mail` has the delayed messages by channel, none by default."""
        return Round(context=context, problem=problem, prepared=self.prepared, mail=mail or {})

    def _info(self, round: Round) -> StepCounts:
        groups = round.codec.groups
        group = None if groups is None else jnp.asarray(groups, jnp.int32)[round.node]
        return round.trace.info(round.m, self.algorithm.channels, self._sizes(round.problem), group)

    def message_bits(self, problem: Problem) -> dict[str, int]:
        """The bits of one message on every channel, which has several names where messages differ in size."""
        return {
            part: size for name, sizes in self._sizes(problem).items() for part, size in zip(parts(name, sizes), sizes)
        }

    def round_bits(self, problem: Problem) -> int | Sizes:
        """The bits of one message on every channel together, as networks with simulated times take them."""
        totals = [sum(one) for one in zip(*self._sizes(problem).values())]
        groups = codec_of(self.algorithm, problem).groups
        if groups is None:
            return sum(totals)
        end: Any = self.algorithm.phi
        return Sizes(tuple(totals[group] for group in groups), end)

    def _sizes(self, problem: Problem) -> dict[str, tuple[int, ...]]:
        """The bits of one message by channel, of every group of nodes."""
        codec = codec_of(self.algorithm, problem)
        number = 1 if codec.groups is None else max(codec.groups) + 1
        each = [self.algorithm.message_bits(problem, codec.of(group)) for group in range(number)]
        return {name: tuple(one[name] for one in each) for name in each[0]}

    def examples(self, problem: Problem) -> Array:
        """The number of examples that one gradient of every node uses [m] int32."""
        return self.algorithm.examples(problem)

    def params(self, state: Any) -> Array:
        """The nodes' parameters [m, n]."""
        return self.algorithm.params(state.state if isinstance(state, Waiting) else state)

    def visible(self, state: Any) -> Array:
        """What others may have seen of every node [m, k]."""
        return self.algorithm.visible(state.state if isinstance(state, Waiting) else state)

    def held(self, state: Any) -> Array:
        """Numbers [m, k] that are all finite exactly if the parameters are."""
        return self.algorithm.held(state.state if isinstance(state, Waiting) else state)

    def mass(self, state: Any) -> tuple[Array, Array] | None:
        """The push-sum weights of all nodes [m], and those on their way to them [m]; None for methods without them."""
        inner, mail = (state.state, state.mail) if isinstance(state, Waiting) else (state, {})
        own = self.algorithm.mass(inner)
        if own is None:
            return None
        late = [
            jnp.sum(one.rows[..., -1], axis=1) for one in mail.values() if isinstance(one, Mail)
        ]  # see `Round.push`
        return own, sum(late, jnp.zeros_like(own))

    def waits(self, context: RoundContext, problem: Problem) -> Array:
        """The slots [m, d] that nodes wait for."""
        return self.algorithm.waits(self.round(problem, context, {}))

    def published_bytes(self, problem: Problem, rounds: int) -> float | None:
        """The bytes of a number of rounds by a formula of the method's paper; None where there is none."""
        find: Any = getattr(self.algorithm, "published_bytes", None)
        return None if find is None else find(problem, rounds, self.ready)

    def privacy(self, problem: Problem) -> Guarantee:
        """The privacy guarantee of the noise that `init` and `step` add."""
        claim = self.algorithm.privacy(problem, self.plan, None if self.steps is None else int(self.steps))
        why, kind = self.unproven, type(self.algorithm)
        if not why and not of_jdfl(kind, "privacy", METHODS):
            why = "its method `privacy` states it by hand"
        if not of_jdfl(kind, "traced_step"):
            why = "its method `traced_step` is not what runs do"
        if not claim.claimed or not why:
            return claim
        remedy = (
            "Leave out `privacy`; a plan may use shapes, sizes and weights, and what needs records goes into `prepare`."
        )
        return replace(
            claim, claimed=False, reason=f"the guarantee does not follow from the program: {why}", remedy=remedy
        )


def planned(algorithm: Algorithm | Program, problem: Problem, network: Network, steps: int) -> Program:
    """The algorithm with what it computes on the host before a run of `steps` rounds, such as a noise schedule.

    Raises ValueError for fewer than one round, for settings without such a schedule, and for a step size that is not
    finite or negative in one of the rounds.
    """
    checks.integer(1, steps=steps)
    settings = algorithm.algorithm if isinstance(algorithm, Program) else algorithm
    least = min((float(schedules.values(one, steps).min()) for one in schedules.schedules(settings)), default=1.0)
    if settings.divides_by_lr and least == 0:
        checks.refuse(f"step sizes > 0 for {settings.title}, which divides by them", "min lr(k)", least, _ABOVE_ZERO)
    plan, why = settings.plan, ""
    if type(settings).plan is Algorithm.plan or built_in(settings):
        return Program(settings, plan(problem, network, int(steps)), float(steps))
    hidden = replace(problem, data=jax.tree.map(Hidden, problem.data), test=None, optimum=None, truth=None)
    hidden = (
        hidden if "curvature" in problem.public else replace(hidden, curvature=cast(Any, Hidden(problem.curvature)))
    )
    try:
        made = plan(hidden, network, int(steps))
    except Exception:  # whatever its code does with an array that cannot be read
        made, why = plan(problem, network, int(steps)), "its `plan` reads the records"
    return Program(settings, made, float(steps), unproven=why)


class Hidden:
    """An array of records whose shape and type alone can be read."""

    def __init__(self, x: Any) -> None:
        self.shape, self.dtype, self.ndim, self.size = jnp.shape(x), jnp.result_type(x), jnp.ndim(x), jnp.size(x)
