"""What an algorithm is: settings, and the pure functions `init` and `step` of the states of all nodes.

A new algorithm is one file: a `jdfl.base.struct.dataclass` that inherits from `Algorithm`, whose fields are its
settings, a State with the shapes of its arrays, `init(round)` and `step(state, round)`. Everything else follows, or has
a default here.

- A step speaks of all m nodes at once, and does what is no arithmetic through its `Round`: gradients are
  `self.gradients(x, round)`, W x is `round.mix(x)`, random keys are `round.keys(STREAM)`.
- Counts of messages, gradients and releases, ledgers and statements about privacy follow from these calls.
- What `prepare` computes before the first round is `round.ready` in all of them; settings are never filled in.
- Nodes that are away in a round are computed as the others; the runner puts their rows of the State back.

Axes: m nodes, n parameters.
"""

from dataclasses import replace
from types import MappingProxyType
from typing import Any, ClassVar

import jax
from jax import Array

from jdfl.algorithms.book import MODEL
from jdfl.algorithms.codes import check_codec
from jdfl.algorithms.descent import check_optimizer
from jdfl.algorithms.messages import Prepared
from jdfl.algorithms.moment import Moment
from jdfl.algorithms.round import Round
from jdfl.algorithms.statement import stated
from jdfl.algorithms.updates import check_updates
from jdfl.arrays.nonzeros import Nonzeros, dense
from jdfl.base import arguments
from jdfl.base.streams import Stream
from jdfl.codecs import Codec, Dense
from jdfl.network import Network, require
from jdfl.privacy import NO_NOISE, Guarantee
from jdfl.problems import Problem

_CODEC = Stream("codec", "shared")  # what a codec draws once, for a whole run
UNSENT_STEP = "they hold a last step that has not been sent and has no noise"
UNPLANNED = replace(
    NO_NOISE,
    observer="all messages",
    reason="no schedule of noise has been made for these rounds",
    remedy="Call plan with the number of rounds.",
)


class Algorithm:
    """Base class of decentralized algorithms: what nearly all of them have in common.

    Class variables describe a method: its `title` in messages; `tuned`, the float settings that a comparison tunes;
    `channels`, the kinds of messages it sends; `needs`, what it asks of a network (see `jdfl.network.require`);
    `codes` what the codec gets (see `jdfl.algorithms.codes`).
    `uneven` says that rounds differ in how much there is to compute, `columns` that it is the columns of the mixing
    matrix that sum to one, `late` that it takes messages of earlier rounds, `noise_by` how its noise is set where that
    is no multiplier of a mechanism, `unsent` the words for what the final parameters hold without noise, if they do.
    """

    title = ""  # of this and the next four a property may take the place, where settings decide
    needs = MappingProxyType[str, bool]({})
    codes = "models"
    channels = (MODEL,)
    uneven = False
    tuned: ClassVar[tuple[str, ...]] = ("lr",)
    columns: ClassVar[bool] = False
    late: ClassVar[bool] = False
    noise_by: ClassVar[str] = ""
    unsent: ClassVar[str] = ""

    def init(self, round: Round) -> Any:
        """The state before the first round: a tree of arrays, nearly all with a row for every node.

        Its first array are the nodes' parameters [m, n], unless `params` says otherwise; `round.problem.begin()` gives
        those of a start. Gradients, messages and noise of the start count, too, if they go through `round`. A pure
        function under jit.
        """
        raise NotImplementedError

    def step(self, state: Any, round: Round, /) -> Any:
        """The state after a round, of the same structure, shapes and types as the `state` before it.

        A pure function under jit that computes for all m nodes at once. All that is no arithmetic goes through `round`:
        gradients, messages, noise and keys; what does not is neither counted nor covered by a guarantee.
        """
        raise NotImplementedError

    def params(self, state: Any) -> Array:
        """The nodes' parameters [m, n]: the state, or the first of its fields.

        Metrics, stop rules and the result go by it, and a guarantee without `local` covers it as a released model. A
        method whose parameters follow from several fields of the `state`, as after push-sum, replaces it.
        """
        return dense(_first(state))

    def visible(self, state: Any) -> Array:
        """What others may have seen of every node after a round [m, k], k a multiple of n; its parameters.

        `jdfl.audit` attacks what is seen here. A method that sends something else than its parameters gives that
        instead, side by side if it is several vectors, as far as its `state` keeps it. Runs do not look at it.
        """
        return self.params(state)

    def held(self, state: Any) -> Array:
        """Numbers [m, k] of every node that are all finite where its parameters are: these, or their nonzeros.

        After every round the runner looks at them and at the other floats of the `state`, and ends the run at the first
        node with one that is not finite. Replace it where parameters take work to compute, as of sparse storage.
        """
        first = _first(state)
        return first.value if isinstance(first, Nonzeros) else self.params(state)

    def check(self, problem: Problem, network: Network) -> None:
        """Raise ValueError for settings, of this and of its parts, that do not go with the problem or the network.

        A method extends it by what relates its own settings, and calls this first.
        """
        parts: Any = self
        if hasattr(self, "optimizer"):
            check_optimizer(parts.optimizer)
        if hasattr(self, "gradients"):
            parts.gradients.check(problem)
        if hasattr(self, "updates"):
            check_updates(parts.updates, parts.gradients)
        if hasattr(self, "codec"):
            check_codec(self.title, parts.codec, parts.codes, problem.n, problem.m, self.sparsity(problem))
        if self.needs:
            require(network, self.title, **self.needs)

    def plan(self, problem: Problem, network: Network, steps: int) -> Any:
        """What follows from a number of rounds, such as a schedule of noise, on the host before a run.

        It is a tree of arrays. More rounds must give the same beginning.
        """
        return None

    def prepare(self, problem: Problem, moment: Moment, plan: Any) -> Any:
        """What all rounds need that follows from settings, plan, data and network: `round.ready` (pure, under jit).

        It is computed once, on the device, at the `moment` before the first round; here it is the `plan` itself. What
        needs the number of rounds, or cannot be traced, belongs into `plan`.
        """
        return plan

    def sparsity(self, problem: Problem) -> int:
        """How many entries of what is sent may be nonzero.

        It is n unless a method keeps its parameters sparse, such as CEPS with its s. Codecs are checked and prepared
        for so many, since some recover sparse vectors only, and others choose their size by it.
        """
        return problem.n

    def examples(self, problem: Problem) -> Array:
        """How many examples one gradient of every node looks at [m] int32.

        Gradients are counted one by one and multiplied by this for `Totals.examples`. It is what `gradients.examples`
        says, or all examples of a node for a method without a field of that name.
        """
        gradients: Any = getattr(self, "gradients", None)
        return problem.sizes if gradients is None else gradients.examples(problem)

    def message_bits(self, problem: Problem, codec: Any) -> dict[str, int]:
        """The bits of one message on every channel: the size of the codec's.

        Names of channels with whole numbers, by which the counted messages are multiplied. A method replaces it whose
        messages are more than one vector [n] through its `codec`, such as push-sum's.
        """
        return {channel.name: codec.bits(problem.n, self.sparsity(problem)) for channel in self.channels}

    def waits(self, round: Round) -> Array:
        """The slots [m, d] of the neighbour table that nodes wait for on a network with times.

        Bool; all that hold a neighbour, unless a method asks some of them only. Simulated seconds follow from it, in
        rounds in which a node combines what it hears. Nothing that is learnt depends on it.
        """
        return round.graph.mask

    def privacy(self, problem: Problem, plan: Any = None, steps: int | None = None) -> Guarantee:
        """What may be said about privacy: what the noise guarantees that `init` and `step` add, as they are traced.

        Args:
            problem: what the nodes learn.
            plan: what `plan` gives for a run; without it nothing is claimed of noise that is planned.
            steps: the number of rounds that was planned for.
        """
        if plan is None and type(self).plan is not Algorithm.plan:
            return UNPLANNED
        return stated(self, problem, plan, steps)

    def told(self, guarantee: Guarantee, problem: Problem, steps: int | None) -> Guarantee:
        """The guarantee that follows from the step, with what is to be said beside it, such as a paper's claim.

        `steps` is the number of rounds of a run that is planned.
        """
        return guarantee

    def prepared(self, problem: Problem, moment: Moment, plan: Any) -> Prepared:
        """All that rounds need besides settings, data and network: of gradients, codec and `prepare`.

        The runner calls it once, under jit, at the `moment` before the first round, and hands it to every `Round` as
        its `prepared`. A method extends `prepare`, not this.
        """
        gradients, codec = getattr(self, "gradients", None), codec_of(self, problem)
        if gradients is not None:
            gradients = gradients.prepare(problem, moment)
        ends = moment.stream(_CODEC), moment.node
        wire = codec.prepare(*ends, problem.n, self.sparsity(problem), problem.dtype)
        return Prepared(gradients, wire, self.prepare(problem, moment, plan))


def _first(state: Any) -> Any:
    """The first array of a state, or its nonzeros."""
    return jax.tree.leaves(state, is_leaf=lambda x: isinstance(x, Nonzeros))[0]


def codec_of(algorithm: Algorithm, problem: Problem) -> Codec:
    """The codec that an algorithm has as a field, or else the one by which vectors arrive as they are."""
    return getattr(algorithm, "codec", Dense(problem.dtype.name))


def check_protocol(algorithm: Algorithm) -> None:
    """Raise ValueError for what is no `Algorithm`, or replaces a method of it by one with other parameters."""
    remedy = "For example jdfl.CEPS(). One of your own inherits from jdfl.Algorithm: see docs/own-algorithm.md."
    arguments.inherits("algorithm", algorithm, Algorithm, "an algorithm", remedy)
