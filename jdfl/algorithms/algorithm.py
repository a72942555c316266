"""The base class of algorithms: settings, and pure functions `init` and `step` that update the states of all nodes.

A new algorithm is one file with a `jdfl.base.struct.dataclass` that inherits from `Algorithm`. Its fields are its
settings. It has `step(state, round)`, and where the state is more than the parameters x [m, n] a State with documented
array shapes and `init(round)`. Everything else is derived from these or has a default here.

- A step computes for all m nodes at once. Everything except arithmetic goes through its `Round`: gradients are
  `self.gradients(x, round)`, W x is `round.mix(x)`, and random keys are `round.keys(STREAM)`.
- Counts of messages, gradients and releases, ledgers and privacy statements are derived from these calls.
- The result of `prepare`, computed before the first round, is available as `round.ready`; settings are never filled in.
- Absent nodes are computed like the others; afterwards the runner restores their rows of the State.

Axes: m nodes, n parameters.
"""

import warnings
from dataclasses import fields, replace
from types import MappingProxyType
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jdfl.algorithms.descent import check_optimizer
from jdfl.algorithms.round import MODEL, Prepared, Round, RoundContext
from jdfl.algorithms.statement import stated
from jdfl.algorithms.updates import check_updates
from jdfl.arrays.ops import Nonzeros, dense
from jdfl.base import arguments, checks
from jdfl.base.settings import Provenance
from jdfl.base.streams import Stream
from jdfl.codecs import Codec, Dense, Sparse
from jdfl.network import Network, node_weights, require
from jdfl.network.faults import Membership
from jdfl.network.properties import weighed
from jdfl.network.tables import called
from jdfl.privacy.guarantee import NO_NOISE, Guarantee
from jdfl.problems import Problem
from jdfl.problems.base import check_examples

Objective = Literal["mean", "pi"]
Personal = Literal["", "parameters", "models"]
Codes = Literal["models", "requests", "differences", "replicas", "contracting", "slow copies", "unbiased"]
"""What goes through a codec: models themselves; models that receivers request, with any codec; differences with error
feedback; differences that replicas follow, whose loss is never made up for; vectors that need a codec with a
contraction factor; differences from copies that move by a fraction of them, which need a codec that is unbiased or
contracts; vectors whose errors average out, which need an unbiased codec."""
FIXED_SYMMETRIC = {"fixed": True, "undirected": True, "doubly_stochastic": True, "symmetric_weights": True}
"""The requirements of a method whose messages each build on all earlier ones (see `jdfl.network.require`)."""
_NEARLY_ALL = 0.99  # of the squared norm of a model: what short floats keep
_CODEC = Stream("codec", "shared")  # what a codec draws once per run
UNSENT_STEP = "they hold a last step that has not been sent and has no noise"
UNPLANNED = replace(
    NO_NOISE,
    observer="all messages",
    reason="no noise schedule has been planned for these rounds",
    remedy="Call plan with the number of rounds.",
)


class Algorithm:
    """Base class of decentralized algorithms.

    Class variables describe a method: `title` is its name in messages, `tuned` lists the float settings that a
    comparison tunes, `channels` the kinds of messages it sends, `needs` its requirements on the network (see
    `jdfl.network.require`) and `codes` what passes through the codec (see `Codes`). `phi` says which
    end of a message decides its size, where a codec distinguishes nodes. `uneven` marks methods whose rounds differ in
    their amount of computation, `columns` those that need column-stochastic mixing matrices, `late` those that accept
    delayed messages, and `mixes` those that multiply by W, which must not expand then. `asynchronous` marks methods
    without rounds (see `jdfl.events`). `exact` marks methods that
    converge to the optimum with a constant step size and full gradients, and `divides_by_lr` those that schedules with
    a step size of zero do not suit. `personal` is "models" for methods whose nodes
    keep different models, which metrics and stop rules then evaluate instead of their mean; "parameters" for those that
    only keep the parameters outside the problem's shared part; and "" for those that aim at consensus. `objective` is
    "mean" for methods that minimise the mean of the nodes' objectives f_i and refuse networks on which they would not,
    and "pi" for those that then minimise sum_i pi_i f_i; it may be a setting.
    `noise_by` explains how to set the noise where it is not a mechanism's multiplier. `unsent` describes what the final
    parameters contain without noise, if anything. `attackers` lists the nodes that metrics, stop rules and divergence
    checks leave out. `provenance` says what the formulas were written from: a paper, code or memory.
    """

    provenance: ClassVar[Provenance] = ()
    title = ""  # this and the next five may be properties where they depend on settings
    needs = MappingProxyType[str, bool]({})
    codes = "models"
    phi = "sender"
    channels = (MODEL,)
    uneven = False
    tuned: ClassVar[tuple[str, ...]] = ("lr",)
    columns: ClassVar[bool] = False
    late: ClassVar[bool] = False
    mixes: ClassVar[bool] = True
    asynchronous: ClassVar[bool] = False
    objective: Any = "mean"  # ClassVar, or a field of Objective
    exact: ClassVar[bool] = False
    divides_by_lr: ClassVar[bool] = False
    personal: ClassVar[Personal] = ""
    noise_by: ClassVar[str] = ""
    unsent: ClassVar[str] = ""
    attackers: ClassVar[tuple[int, ...]] = ()  # as the first seven, it may be a property

    def init(self, round: Round) -> Any:
        """Return the state before the first round: a tree of arrays, most of them with one row per node.

        By default it is `round.problem.initial_params()`, x [m, n]. Its first array holds the nodes' parameters, unless
        `params` is overridden. Gradients, messages and noise at the start count as well, provided that they go through
        `round`. A pure function under jit.
        """
        return round.problem.initial_params()

    def step(self, state: Any, round: Round, /) -> Any:
        """Return the state after a round, like the `state` before it in structure, shapes and types: often x [m, n].

        A pure function under jit that computes for all m nodes at once. Gradients, messages, noise and keys must go
        through `round`; anything else is neither counted nor covered by a guarantee.
        """
        raise NotImplementedError

    def traced_step(self, state: Any, round: Round, /) -> Any:
        """Return the state after all that a run does again and again: a `step`. Privacy statements are derived from it.

        Only methods whose runs do not consist of steps override it.
        """
        return self.step(state, round)

    def params(self, state: Any) -> Array:
        """Return the nodes' parameters [m, n]: the state itself, or its first field.

        Metrics, stop rules and the result use them, and a guarantee without `local` covers them as a released model. A
        method whose parameters follow from several fields of the `state`, as with push-sum, overrides this.
        """
        return dense(_first(state))

    def visible(self, state: Any) -> Array:
        """Return what others may have seen of every node after a round [m, k], k a multiple of n; here its parameters.

        `jdfl.audit` attacks this. A method that sends something other than its parameters returns that instead, as far
        as its `state` keeps it; several vectors are concatenated. Runs do not use it.
        """
        return self.params(state)

    def held(self, state: Any) -> Array:
        """Return numbers [m, k] that are all finite exactly if the parameters are: the parameters or their nonzeros.

        After every round the runner checks them and the other floats of the `state`, and ends the run if a node has one
        that is not finite. Override it where computing the parameters is expensive, for example with sparse storage.
        """
        first = _first(state)
        return first.value if isinstance(first, Nonzeros) else self.params(state)

    def mass(self, state: Any) -> Array | None:
        """Return the push-sum weights of all nodes [m], or None for a method without them.

        In every round the runner checks that each is above zero, and that all of them, with those in messages that have
        not arrived yet, keep their sum m. A method that sends with `round.push` returns the weights of its `state`.
        """
        return None

    def check(self, problem: Problem, network: Network) -> None:
        """Raise ValueError for settings out of range, or that do not fit the problem, the network or one another.

        A method with constraints between its own settings extends this and calls it first.
        """
        check_parts(self, problem)
        if self.needs:
            require(network, self.title, **self.needs)
        if self.objective == "mean" and (pi := self.node_weights(problem, network)) is not None:
            field = "objective" in getattr(type(self), "__dataclass_fields__", {})
            accept = f"{type(self).__name__}(objective='pi')" if field else "objective = 'pi' in your class"
            raise ValueError(
                f"Expected mixing weights with which {self.title} minimises the mean of the nodes' objectives f_i, got "
                f"{called(network)}, on which it minimises {weighed(pi)}: columns of W do not sum to one. Use "
                "weights='metropolis' on an undirected network, or jdfl.SGP and weights='out-degree' on a directed "
                f"one. If it is meant: {accept}."
            )

    def node_weights(self, problem: Problem, network: Network) -> np.ndarray | None:
        """Return the weights pi [m] of the nodes' objectives in what is minimised; None where all are equal.

        By default they follow from W (see `jdfl.network.node_weights`) in methods that multiply by it, neither need
        doubly stochastic weights nor are made for column-stochastic ones, and do not keep personal models.
        """
        settled = not self.mixes or self.columns or self.personal == "models"
        return None if settled or self.needs.get("doubly_stochastic") else node_weights(network)

    def minimises(self, problem: Problem, network: Network) -> str:
        """Return what the method minimises, in words; "" for the mean of the nodes' objectives f_i."""
        if self.personal == "models":
            return "every node its own objective f_i, with a model of its own"
        if (pi := self.node_weights(problem, network)) is not None:  # whatever `check` was overridden with
            return weighed(pi)
        while hasattr(network, "base"):
            if isinstance(network, Membership) and np.ptp([network.joins, network.leaves], axis=1).any():
                return "in every round the mean of the f_i of the nodes that are there, which change"
            network = network.base  # pyright: ignore[reportAttributeAccessIssue]
        adapts = getattr(self, "optimizer", None) is not None
        return "the mean of the f_i, if the optimizer scales the gradients of all nodes alike" if adapts else ""

    def plan(self, problem: Problem, network: Network, steps: int) -> Any:
        """Return what depends on the number of rounds, such as a noise schedule; computed on the host before a run.

        The result is a tree of arrays. A plan for more rounds must begin with the plan for fewer.
        """
        return None

    def prepare(self, problem: Problem, context: RoundContext, plan: Any) -> Any:
        """Return what all rounds need from settings, plan, data and network, as `round.ready` (pure, under jit).

        It is computed once, on the device, at the `context` before the first round; the default is the `plan`. What
        needs the number of rounds or cannot be traced belongs in `plan`.
        """
        return plan

    def sparsity(self, problem: Problem) -> int:
        """Return how many entries of a sent vector may be nonzero.

        This is n unless a method keeps its parameters sparse, as CEPS does with its s. Codecs are checked and prepared
        for this number: some recover only sparse vectors, others derive their message size from it.
        """
        return problem.n

    def examples(self, problem: Problem) -> Array:
        """Return the number of examples that one gradient of every node uses [m] int32.

        `Totals.examples` is the number of gradients multiplied by this. The default is `gradients.examples`, or all
        examples of a node for a method without a field `gradients`.
        """
        gradients: Any = getattr(self, "gradients", None)
        return problem.sizes if gradients is None else gradients.examples(problem)

    def message_bits(self, problem: Problem, codec: Any) -> dict[str, int]:
        """Return the bits of one message on every channel: by default the size of the codec's message.

        The result maps channel names to whole numbers, by which the counted messages are multiplied. A method overrides
        it if its messages are more than one vector [n] sent through `codec`, as with push-sum. Where messages of
        different nodes differ in size, it is called for every group of nodes, `codec` being that of the group.
        """
        return {channel.name: codec.bits(problem.n, self.sparsity(problem)) for channel in self.channels}

    def waits(self, round: Round) -> Array:
        """Return the slots [m, d] of the neighbour table that nodes wait for on a network with simulated times.

        Bool; by default all slots that hold a neighbour. Simulated time depends on it in rounds in which a node
        combines what it received; learning does not.
        """
        return round.graph.mask

    def privacy(self, problem: Problem, plan: Any = None, steps: int | None = None) -> Guarantee:
        """The privacy guarantee of the noise that `init` and `step` add, derived from their traced programs.

        Args:
            problem: The problem to learn.
            plan: The result of `plan` for a run; without it nothing is claimed for planned noise.
            steps: The number of rounds that was planned for.
        """
        check_kinds(self)
        if plan is None and type(self).plan is not Algorithm.plan:
            return UNPLANNED
        return stated(self, problem, plan, steps)

    def annotated(self, guarantee: Guarantee, problem: Problem, steps: int | None) -> Guarantee:
        """Return the `guarantee` derived from the step, completed by statements such as a paper's claim.

        `steps` is the planned number of rounds.
        """
        return guarantee

    def prepared(self, problem: Problem, context: RoundContext, plan: Any) -> Prepared:
        """Return what rounds need besides settings, data and network: from gradients, codec and `prepare`.

        The runner calls it once, under jit, at the `context` before the first round, and passes the result to every
        `Round` as `prepared`. A method extends `prepare`, not this.
        """
        gradients, codec = getattr(self, "gradients", None), codec_of(self, problem)
        if gradients is not None:
            gradients = gradients.prepare(problem, context)
        ends = context.stream(_CODEC), context.node
        wire = codec.prepare(*ends, problem.n, self.sparsity(problem), problem.dtype)
        return Prepared(gradients, wire, self.prepare(problem, context, plan))


def _first(state: Any) -> Any:
    """The first array of a state, or its `Nonzeros`."""
    return jax.tree.leaves(state, is_leaf=lambda x: isinstance(x, Nonzeros))[0]


def codec_of(algorithm: Algorithm, problem: Problem) -> Codec:
    """The algorithm's codec, or a lossless one for an algorithm without that field."""
    return getattr(algorithm, "codec", Dense(problem.dtype.name))


def check_kinds(algorithm: Any) -> None:
    """Raise ValueError for settings that do not fit their annotations, whatever the problem and the network are."""
    arguments.settings(algorithm)
    if hasattr(algorithm, "optimizer"):
        check_optimizer(algorithm.optimizer)


def check_parts(algorithm: Any, problem: Problem) -> None:
    """Raise ValueError for settings and parts that do not fit their annotations, one another or the problem."""
    check_kinds(algorithm)
    for field in fields(algorithm):
        value = getattr(algorithm, field.name)
        if field.metadata.get("per_node") and np.ndim(value):
            checks.shape((problem.m,), "Give one number, or one for every node.", **{field.name: value})
    if hasattr(algorithm, "gradients"):
        algorithm.gradients.check(problem)
    clips = getattr(algorithm, "gradients", algorithm)
    by_example = getattr(clips, "per", "example") == "example"
    check_examples(problem, clipped=by_example and getattr(clips, "clip", None) is not None)
    if hasattr(algorithm, "updates"):
        check_updates(algorithm.updates, getattr(algorithm, "gradients", None))
    if hasattr(algorithm, "codec"):
        sparsity = algorithm.sparsity(problem)
        check_codec(algorithm.title, algorithm.codec, algorithm.codes, problem.n, problem.m, sparsity)


def check_protocol(algorithm: Algorithm) -> None:
    """Raise ValueError for anything but an `Algorithm`, or one that overrides a method with other parameters."""
    remedy = "For example jdfl.CEPS(). Your own must inherit from jdfl.Algorithm: see docs/own-algorithm.md."
    arguments.inherits("algorithm", algorithm, Algorithm, "an algorithm", remedy)


def check_codec(method: str, codec: Codec, codes: Codes, n: int, m: int, sparsity: int) -> None:
    """Raise ValueError for a codec that `method` cannot use, and warn about one that harms it.

    Refused are objects that are not codecs, settings that do not fit m nodes and vectors [n] with at most `sparsity`
    nonzeros, decoders that need the receiver's parameters, and codecs that do not meet the needs of `codes`. A method
    that encodes its models directly warns where the codec changes them by more than rounding.
    """
    remedy = "Use Dense() or Sparse(). Your own must inherit from jdfl.codecs.Codec: see docs/own-codec.md."
    arguments.inherits("codec", codec, Codec, "a codec", remedy)
    codec.check(n, m, sparsity)
    if codec.pairwise and codes != "requests":
        raise ValueError(
            f"Expected a codec for {method} whose messages all receivers decode alike, got codec = {codec!r}. Use "
            "Dense(), Sparse(), or OneBit(side=False)."
        )
    if codes == "models" and _kept(codec, n, sparsity) < _NEARLY_ALL:
        warnings.warn(
            f"{method} sends its models through codec = {codec!r}, which changes them in every round: it needs "
            f"differences or error feedback. Use CHOCO-SGD, which sends differences, or "
            "Dense('bfloat16'); use Sparse(s=...) only if the models have at most s nonzeros.",
            stacklevel=3,
        )
    contracts = codec.contraction(n, n) is not None
    if codes == "contracting" and not contracts:
        raise ValueError(
            f"Expected a codec for {method} that contracts, E ||C(x) - x||^2 <= (1 - delta) ||x||^2 for every x and a "
            f"delta > 0, got codec = {codec!r}, for which no delta is known. Use Sparse(share=0.1), or Dense()."
        )
    if codes == "unbiased" and not codec.unbiased and _kept(codec, n, sparsity) < _NEARLY_ALL:
        raise ValueError(
            f"Expected a codec for {method} that is unbiased, E C(z) = z for every z, got codec = {codec!r}, whose "
            "errors do not average out. Use RandomK(share=0.5, scaled=True), QSGD(), or Dense('float16')."
        )
    if codes not in ("replicas", "slow copies") or contracts:
        return
    if not codec.unbiased:
        raise ValueError(
            f"Expected a codec for {method} that is unbiased, E C(z) = z, or contracts, E ||C(z) - z||^2 < ||z||^2, "
            f"for every z, got codec = {codec!r}, for which neither is known. Use Dense('float16'), Sparse(share=0.1)."
        )
    if codes == "replicas":  # slow copies make up for the variance by their small fraction
        warnings.warn(
            f"The variance of {codec!r} may exceed the vector it sends, and what {method} loses is never made up for: "
            "it may diverge. Use a codec that contracts, e.g. Sparse(share=0.1), or CHOCO-SGD.",
            stacklevel=3,
        )


def sends_dense(algorithm: Any) -> bool:
    """Whether a method that exists to send compressed messages was given a codec that sends everything."""
    codes = getattr(algorithm, "codes", "models")
    return codes not in ("models", "requests") and isinstance(getattr(algorithm, "codec", None), Dense)


def _kept(codec: Codec, n: int, sparsity: int) -> float:
    """The worst-case fraction of ||x||^2 that is kept of vectors x [n] with `sparsity` nonzeros; 0 where unknown."""
    if isinstance(codec, Sparse) and codec.leaves is None and codec.size(n, sparsity) >= sparsity:
        return replace(codec, s=sparsity, share=None).contraction(sparsity, sparsity)  # zeros arrive as they are
    return codec.contraction(n, sparsity) or 0.0


def refuse_late(method: str, network: Network, needed: str) -> None:
    """Raise ValueError for a network with delayed messages, which `method` accepts only with what is `needed`."""
    if jax.eval_shape(network.at, jnp.int32(0), jax.random.key(0)).late is not None:
        raise ValueError(
            f"Expected a network without delayed messages for {method}, got {called(network)}. Delayed messages need "
            f"{needed}."
        )
