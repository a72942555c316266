"""Methods made of other methods: one whose `mix` uses a robust rule, and one in which some nodes attack.

Axes: m nodes, n parameters.
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import jax.numpy as jnp
from jax import Array

from jdfl.algorithms.algorithm import UNPLANNED, Algorithm, check_protocol
from jdfl.algorithms.round import Prepared, Round, RoundContext
from jdfl.algorithms.statement import stated
from jdfl.base import checks, struct
from jdfl.base.arguments import checked
from jdfl.base.settings import Natural
from jdfl.devices import nodes as devices
from jdfl.network import Network, refuse_synchronised, require
from jdfl.network.graph import round_of
from jdfl.privacy import Guarantee
from jdfl.problems import Problem
from jdfl.robust import Attack, Rule, Weighted, check_combines, check_honest, weak_nodes
from jdfl.robust.attacks import DRAWN, Lies


def _theirs(name: str) -> Any:
    """A property of a method around another one: the other one's class variable or method."""
    return property(lambda self: getattr(self.algorithm, name))


@struct.dataclass
class Around(Algorithm):
    """A method that does what another one does, in rounds that differ; the base class of this module's.

    Whatever it does not define itself is the other method's.
    """

    algorithm: Algorithm
    """The other method."""
    published_bytes: ClassVar[None] = None  # formulas of papers are about their methods
    needs, codes, phi, channels = (_theirs(name) for name in ("needs", "codes", "phi", "channels"))
    uneven, columns, late, mixes = (_theirs(name) for name in ("uneven", "columns", "late", "mixes"))
    noise_by, unsent, attackers = (_theirs(name) for name in ("noise_by", "unsent", "attackers"))
    exact, personal, objective, divides_by_lr = map(_theirs, ("exact", "personal", "objective", "divides_by_lr"))
    params, visible, held, mass = (_theirs(name) for name in ("params", "visible", "held", "mass"))
    node_weights, minimises, plan, prepare = (_theirs(n) for n in ("node_weights", "minimises", "plan", "prepare"))
    sparsity, examples, message_bits = (_theirs(name) for name in ("sparsity", "examples", "message_bits"))
    waits, annotated = _theirs("waits"), _theirs("annotated")

    def __getattr__(self, name: str) -> Any:
        """The other method's settings and attributes."""
        if name.startswith("__") or name == "algorithm":
            raise AttributeError(name)
        return getattr(self.algorithm, name)

    def around(self, round: Round) -> Round:
        """Return the round in which the other method takes its step."""
        return round

    def init(self, round: Round) -> Any:
        """The other method's."""
        return self._in(round, self.algorithm.init)

    def step(self, state: Any, round: Round) -> Any:
        """The other method's step, in a round that differs."""
        return self._in(round, lambda here: self.algorithm.step(state, here))

    def _in(self, round: Round, work: Callable[[Round], Any]) -> Any:
        return work(self.around(round))

    def check(self, problem: Problem, network: Network) -> None:
        """Raise ValueError as the other method does."""
        check_protocol(self.algorithm)
        self.algorithm.check(problem, network)

    def privacy(self, problem: Problem, plan: Any = None, steps: int | None = None) -> Guarantee:
        """The guarantee derived from the traced programs, in rounds that differ."""
        if plan is None and type(self.algorithm).plan is not Algorithm.plan:
            return UNPLANNED
        return stated(self, problem, plan, steps)


@struct.dataclass
class CombinedBy(Around):
    """A method whose `mix` and `pull` combine rows by a robust rule; see `combined_by`."""

    rule: Rule = Weighted()
    """The rule in place of W."""

    @property
    def title(self) -> str:
        """The method's and the rule's."""
        return f"{self.algorithm.title} by {self.rule.title}"

    def around(self, round: Round) -> Round:
        """The round with the rule."""
        return round.by(self.rule)

    def step(self, state: Any, round: Round) -> Any:
        """The other method's step; ValueError for one that never combines rows by `mix` or `pull`."""
        result = super().step(state, round)
        if round.trace.moved is None:
            raise ValueError(
                f"Expected a method that combines rows by round.mix or round.pull for the {self.rule.title}, got "
                f"{self.algorithm.title}, which the rule would not change. Use another method, such as jdfl.RobustDSGD."
            )
        return result

    def minimises(self, problem: Problem, network: Network) -> str:
        """What the other method minimises, where the rule is W; otherwise what the rule leaves."""
        return self.rule.minimises or super().minimises(problem, network)

    def check(self, problem: Problem, network: Network) -> None:
        """Raise ValueError as the other method does, and for synchronised rounds and rules that combine nobody."""
        super().check(problem, network)
        refuse_synchronised(network, self.title)
        check_combines(network, self.rule, self.algorithm.title)


@struct.dataclass
class Attacked(Around):
    """A method in which some nodes attack; see `attacked`."""

    attack: Attack = struct.field(default=None)  # pyright: ignore
    """What attackers do."""
    nodes: tuple[int, ...] = struct.field(pytree_node=False, default=())
    """The attackers."""
    start: Natural = struct.field(pytree_node=False, default=0)
    """The first round in which they attack."""

    @property
    def title(self) -> str:
        """The method's, the attack's, and who attacks."""
        some = self.nodes if len(self.nodes) <= 12 else (*self.nodes[:12], "...")
        since = f" from round {self.start}" if self.start else ""
        return f"{self.algorithm.title} under {self.attack.title}{since} by nodes {', '.join(map(str, some))}"

    @property
    def attackers(self) -> tuple[int, ...]:
        """The nodes that metrics, stop rules and divergence checks leave out."""
        return self.nodes

    def liars(self, context: RoundContext) -> Array:
        """The attackers [m] bool of a round."""
        found = jnp.zeros((context.m,), jnp.bool_).at[jnp.asarray(self.nodes, jnp.int32)].set(True)
        return found & (context.k >= self.start)

    def around(self, round: Round) -> Round:
        """The round with the attackers' data, weights and rows."""
        liars, attack = self.liars(round.context), self.attack
        own, ready = round.prepared.own
        lies = Lies(attack, liars, ready, round.context.stream(DRAWN))
        context = replace(round.context, graph=attack.graph(round.graph, liars))
        problem = attack.problem(round.problem, liars)
        return replace(round, context=context, problem=problem, prepared=replace(round.prepared, own=own), lies=lies)

    def _in(self, round: Round, work: Callable[[Round], Any]) -> Any:
        if devices.share() is not None:
            raise ValueError("Expected one device for attackers, who see all rows. Leave out Options.devices.")
        here = self.around(round)
        result = work(here)
        if missed := [name for name in round.trace.uses if here.lies and name not in here.lies.channels]:
            raise ValueError(
                f"Expected a method that sends through round.mix, pull, publish, push or deliver, got "
                f"{self.algorithm.title}, which sends otherwise on the channel {missed[0]!r}, where attackers would be "
                "honest. Attack another method, such as jdfl.RobustDSGD."
            )
        return result

    def prepared(self, problem: Problem, context: RoundContext, plan: Any) -> Prepared:
        """What the other method prepares for the attackers' data, and what the attack prepares."""
        return super().prepared(self.attack.problem(problem, self.liars(context)), context, plan)

    def prepare(self, problem: Problem, context: RoundContext, plan: Any) -> Any:
        """What the other method prepares, and the attack."""
        liars = self.liars(replace(context, k=jnp.int32(self.start)))
        return super().prepare(problem, context, plan), self.attack.prepare(context.graph, liars)

    def check(self, problem: Problem, network: Network) -> None:
        """Raise ValueError as the other method does, and for attackers that are not nodes or separate honest ones.

        It warns where an honest node has more attackers around it than its rule is made for.
        """
        super().check(problem, network)
        check_honest(network, self.nodes)
        refuse_synchronised(network, self.title)
        require(network, f"the attack {self.attack.title}", undirected=self.attack.kind == "spectral")
        self.attack.check(problem)
        rule = getattr(self.algorithm, "rule", None)
        if not isinstance(rule, Rule):
            return
        if weak := weak_nodes(round_of(network, 0), self.nodes, rule):
            worst = max(weak, key=lambda one: one.attackers - one.most)
            warnings.warn(
                f"{len(weak)} honest nodes have more attackers around them than {rule.title} is made for: node "
                f"{worst.node} has {worst.attackers}, the bound is {worst.most}. Its error is not bounded there.",
                stacklevel=4,
            )


@checked
def combined_by(algorithm: Algorithm, rule: Rule) -> CombinedBy:
    """The method with a robust rule in place of W in all its `mix` and `pull`.

    What its analysis says of W does not hold for a rule, such as that the average of the nodes stays where it is. A
    method with push-sum is refused when it runs, and a step that mixes outside of `round` is not affected.

    Args:
        algorithm: The method.
        rule: The rule, such as `jdfl.robust.TrimmedMean(b=2)`.

    Raises ValueError for a method with a rule, and when the run begins for one that does not mix.
    """
    check_protocol(algorithm)
    if isinstance(own := getattr(algorithm, "rule", None), Rule):
        checks.refuse("a method without a rule", "algorithm.rule", own, "Give the method the other rule itself.")
    return CombinedBy(algorithm, rule)


@checked
def attacked(algorithm: Algorithm, attack: Attack, nodes: Sequence[int], *, start: Natural = 0) -> Attacked:
    """The method with some nodes that attack from a round on.

    Attackers see all rows that honest nodes would send and send others. Metrics, stop rules and divergence checks are
    about the honest nodes; counts of messages include all. Before `start` the attackers are honest.

    Args:
        algorithm: The method, for example with a robust rule.
        attack: What attackers do.
        nodes: The ids of the attackers, from 0, each once: places in the order of the problem's nodes.
        start: The first round of the attack, from 0.

    Raises:
        ValueError: For attackers that are not nodes; when the run begins also for attackers without which the honest
            nodes are not connected, and for methods and attacks that do not fit one another.
    """
    check_protocol(algorithm)
    chosen = tuple(int(one) for one in nodes)
    if not chosen or len(set(chosen)) != len(chosen) or min(chosen) < 0:
        checks.refuse("at least one node id, each once and from 0", "nodes", chosen, "They are the attackers.")
    return Attacked(algorithm, attack=attack, nodes=chosen, start=start)
