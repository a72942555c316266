"""CEPS: Communication-Efficient and Private method for Sparse decentralized federated learning.

Sha, Zhou, Kong, Li: Sparse Decentralized Federated Learning (Algorithms 1 and 2, section V).

    k in K_i = {kappa_i, 2 kappa_i, ...}:                                                                         (3)
        wbar_i = mean of z_j over N_i^k,   z_j = what arrives of w_j,   N_i^k a random subset of N_i
        u_i = sigma_i |N_i^k| wbar_i - grad f_i(wbar_i)
        w_i = P_s((u_i + xi_i) / (sigma_i |N_i^k|)),   xi_i ~ N(0, rho_i I)
    otherwise:                                                                                                    (4)
        w_i = P_s((u_i + mu w_i) / (sigma_i m_i + mu)),   u_i and m_i as they were

The four variants of the paper (Table II) are values of one class: `codec=OneBit()` is 1BCS and `codec=Dense()` is
Perf; `mechanism=None` is NoDP.

As printed, the noise is not stored in u: rounds (4) wash most of it out, and the next message is an almost exact
function of the data. `noise="kept"`, the default, stores u + xi, also in the first u, so that all that a node does is
computed from noisy u's; `noise="literal"` is the paper's. With `clip` every example's gradient is shortened, which
bounds what one record changes: then every u is a Gaussian release, the first included. The paper's gradients are not
clipped, its u_i (`sensitivity`) is assumed, and its sigma_i is itself computed from the data: give `sigma`.

(3) is a gradient step of length 1 / (sigma_i |N_i^k|). The paper's sigma_i makes that m (2 r + 0.1) / (|N_i^k| L_i):
about 5 / L_i where nearly half of all pairs are linked, but more the fewer of the m nodes a node combines, until CEPS
diverges (`check` warns). `sigma_rule="safe"` makes steps of 1 / L_i; `step_scale` stretches the steps of any rule.

Missing neighbours: N_i^k is drawn from those that can be heard in the round, |N_i| is their number, and a node that
hears nobody combines itself. Of late messages (`network.delays`) a node takes the newest z_j that has come.

Axes: m nodes, n parameters, d slots of the neighbour table, b rows of a block.
"""

import warnings
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jdfl.algorithms.algorithm import Algorithm
from jdfl.algorithms.ceps_theorems import PAPER_DELTA, guarantee
from jdfl.algorithms.codes import Codes, refuse_late
from jdfl.algorithms.gradients import Gradients
from jdfl.algorithms.moment import Moment
from jdfl.algorithms.requests import ask, sizes, slots
from jdfl.algorithms.round import Round
from jdfl.arrays import ops
from jdfl.arrays.nonzeros import Nonzeros, dense, largest
from jdfl.base import checks, struct
from jdfl.base.settings import As, Count, Fraction, Positive
from jdfl.base.streams import Stream
from jdfl.codecs import Codec, Dense, OneBit, RandomK, Sparse
from jdfl.devices import nodes
from jdfl.devices.blocks import at_once, in_blocks
from jdfl.network import Network, refuse_synchronised
from jdfl.privacy import Mechanism, classical_gaussian
from jdfl.problems import Problem

_NOISE = Stream("ceps.noise", "private")
_PERIOD = Stream("ceps.period", "choice")
_SIGMA = As(about="A public constant instead of a sigma_i from every node's own data.")
LONG_STEP = 10.0  # steps, in units of 1 / L_i, from which `check` warns; Table III's are about 5 here


class State(NamedTuple):
    """What the next round needs."""

    w: Array | Nonzeros  # [m, n] s-sparse parameters
    u: Array  # [m, n] last combination of neighbours and gradient
    count: Array  # [m] m_i, the number of nodes in it, as a float  # pyright: ignore[reportIncompatibleMethodOverride]


class Ready(NamedTuple):
    """The constants of a run."""

    period: Array  # [m] int32 kappa_i
    sigma: Array  # [m] sigma_i


@struct.dataclass
class CEPS(Algorithm):
    """Sparse models, few communications, one-bit messages, optional noise.

    CEPS with the readings of its paper as options; `CEPS.paper(...)` is the preset that reproduces its tables.

    Raises ValueError (from `check`) for settings out of range.
    """

    kind: ClassVar[str] = "ceps"
    s: Count = struct.field(pytree_node=False, default=10)
    """Nonzeros of every node's parameters."""
    rate: Fraction = 0.2
    """Share of its neighbours that a node listens to when it communicates, in (0, 1]."""
    mu: Positive = 0.1
    """Proximal weight of the rounds between communications."""
    codec: Annotated[Codec, As(default=OneBit())] = Dense()
    mechanism: Mechanism | None = None
    """Noise on what is released; none: exact messages."""
    clip: Positive | None = None
    """Largest l2 norm of one example's gradient; it bounds what the noise is scaled by. None: as it is."""
    adjacency: Literal["replace-one", "add-remove"] = struct.field(pytree_node=False, default="replace-one")
    """What neighbouring data sets differ in: a record replaced, or there or not."""
    sensitivity: Positive | None = None
    """An assumed sensitivity instead of a clip, as in the paper; nothing enforces it."""
    noise: Literal["kept", "literal"] = struct.field(pytree_node=False, default="kept")
    """kept: the noise stays in all that follows; literal: the paper's, which later rounds wash out."""
    periods: tuple[Count, Count] = struct.field(pytree_node=False, default=(10, 15))
    """Shortest and longest period between communications; every node draws its own."""
    period: Array | None = struct.field(per_node=True, default=None)
    """Rounds [m] between communications of every node, int32, instead of drawing them."""
    sigma: Annotated[Positive | None, _SIGMA] = struct.field(per_node=True, default=None)
    """A public constant, or one [m] for every node, instead of a sigma_i from every node's own data."""
    sigma_rule: Literal["paper", "half_n", "safe"] = struct.field(pytree_node=False, default="paper")
    """The d_i in the paper's constant sigma_i: a node's examples, or n / 2."""
    step_scale: Positive = 1.0
    """Steps this many times as long as by the rule (sigma_i divided by it)."""
    first: Literal["period", "zero"] = struct.field(pytree_node=False, default="period")
    """First round that communicates: that of the node's period, or round 0."""
    own: Literal["absent", "sampled", "always"] = struct.field(pytree_node=False, default="absent")
    """Whether a node counts among its neighbours and is in its own average: never, when drawn, or always."""
    own_coded: bool = struct.field(pytree_node=False, default=False)
    """A node's own share of the average goes through the codec too."""
    phi: Literal["sender", "receiver"] = struct.field(pytree_node=False, default="sender")
    """Whose codec a message uses."""
    block: Count | None = struct.field(pytree_node=False, default=None)
    """Nodes worked on at a time; None: chosen by backend."""
    storage: Literal["dense", "sparse"] = struct.field(pytree_node=False, default="dense")
    """Whether parameters and messages lie in memory as n numbers or as s of them and their places."""
    title: ClassVar[str] = "CEPS"
    codes: ClassVar[Codes] = "requests"
    tuned: ClassVar[tuple[str, ...]] = ("step_scale",)
    uneven: ClassVar[bool] = True
    late: ClassVar[bool] = True

    @classmethod
    def paper(cls, s: int = 10, *, rate: float = 0.2, epsilon: float | None = None, one_bit: bool = True) -> "CEPS":
        """CEPS word for word as in section V of its paper, to reproduce its tables; nothing here is private.

        The noise is literal, and Algorithm 2 is taken word for word. With `epsilon` delta is .5 and u_i is .1.

        Args:
            s: Nonzeros of every node's parameters.
            rate: Share of its neighbours that a node listens to when it communicates, in (0, 1].
            epsilon: The number that the paper scales its noise by; None: no noise. It is no guarantee of this run.
            one_bit: One-bit messages (1BCS) or dense ones (Perf).
        """
        return cls(
            s=s,
            rate=rate,
            codec=OneBit(inverse="paper") if one_bit else Dense(),
            mechanism=None if epsilon is None else classical_gaussian(epsilon, PAPER_DELTA),
            sensitivity=None if epsilon is None else 0.1,
            noise="literal",
        )

    def check(self, problem: Problem, network: Network) -> None:
        """Refuse settings out of range, naming them."""
        m, n = problem.m, problem.n
        checks.whole(1, n, "s is the number of nonzeros kept of n parameters.", s=self.s)
        refuse_synchronised(network, "CEPS")
        degrees = np.asarray(network.at(jnp.int32(0), jax.random.key(0)).mask).sum(axis=1)
        if self.own == "always" and degrees.max() and self.rate * (degrees.max() + 1) <= 1:
            raise ValueError(
                f"Expected a rate above {1 / (degrees.max() + 1):.3g} with own = 'always', got rate = {self.rate!r}. A "
                "node would only ever listen to itself, and nothing would be sent."
            )
        low, high = self.periods
        checks.whole(low, remedy="periods is (low, high).", high=high)
        if self.period is not None:
            checks.shape((m,), "One period for every node.", period=self.period)
            if not np.issubdtype(np.asarray(self.period).dtype, np.integer) or np.min(np.asarray(self.period)) < 1:
                raise ValueError(f"Expected whole numbers period >= 1, got period = {self.period!r}.")
        if self.sigma is not None:
            checks.shape(
                (m,) if np.ndim(self.sigma) else (), "One constant for every node, or for all.", sigma=self.sigma
            )
        elif not np.all(np.asarray(problem.curvature) > 0):
            flat = int(np.argmin(np.asarray(problem.curvature)))
            raise ValueError(
                f"Expected a loss whose curvature is known and positive, got curvature 0 at node {flat}: all its "
                "features are zero, or, as for a neural network, there is no bound. Leave that node out, or give sigma."
            )
        super().check(problem, network)
        if self.storage == "sparse" and (self.phi == "receiver" or not _few(self.codec, self.s)):
            raise ValueError(
                "Expected messages of at most s nonzeros, the same for all receivers, with storage = 'sparse', got "
                f"codec = {self.codec!r} and phi = {self.phi!r}. Use storage = 'dense', or Dense(), Sparse() or "
                "OneBit() of the sender."
            )
        if self.phi == "receiver" or self.codec.pairwise or self.storage == "sparse":
            refuse_late("CEPS", network, "messages that mean the same to all receivers, and storage = 'dense'")
        if self.sigma is None and self.sigma_rule != "safe":
            rate, scale = float(self.rate), float(self.step_scale)
            step = scale * m * (2 * rate + 0.1) / max(1.0, np.ceil(rate * np.median(degrees)))
            if step > LONG_STEP:
                warnings.warn(
                    f"The paper's sigma_i makes steps of about {step:.0f} / L_i here, since nodes combine few of the "
                    f'm = {m} nodes; CEPS often diverges so. Use sigma_rule="safe", or a denser network.',
                    stacklevel=4,
                )

    @property
    def gradients(self) -> Gradients:
        """How gradients are clipped, and what noise on them is scaled by; CEPS adds it to u instead."""
        return Gradients(
            clip=self.clip, mechanism=self.mechanism, sensitivity=self.sensitivity, adjacency=self.adjacency
        )

    def sparsity(self, problem: Problem) -> int:
        """The s nonzeros of w."""
        return self.s

    def prepare(self, problem: Problem, moment: Moment, plan: Any) -> Ready:
        """Draw kappa_i and compute sigma_i.

        sigma_i is lambda_max(A_i^T A_i) / (m (2 r + 0.1) d_i) (section V.B) with d_i the number of samples ("paper") or
        n / 2 ("half_n"), or L_i / |N_i^k| ("safe"), each, or the given `sigma`, divided by `step_scale`.
        """
        period, sigma = self.period, self.sigma
        if period is None:
            low, high = self.periods
            keys = moment.keys(_PERIOD)
            period = jax.vmap(lambda key: jax.random.randint(key, (), low, high + 1, jnp.int32))(keys)
        if sigma is None:
            m = nodes.count(problem.m)
            sigma = problem.curvature / (m * (2 * self.rate + 0.1))  # curvature: lambda_max over the samples
            if self.sigma_rule == "half_n":
                sigma = sigma * jnp.sum(problem.weight, axis=1) / (problem.n / 2)
            if self.sigma_rule == "safe":
                sigma = problem.curvature / sizes(self, moment.graph)[1].astype(problem.dtype)
        sigma = jnp.asarray(sigma, problem.dtype) / self.step_scale
        return Ready(jnp.asarray(period, jnp.int32), jnp.broadcast_to(sigma, (problem.m,)))

    def init(self, round: Round) -> State:
        """Start from w = 0, or the largest entries of where the problem starts, u = -grad f(w), m_i = |N_i|."""
        w = self._kept(lax.optimization_barrier(round.problem.begin()))  # or XLA projects its zeros at compile time
        u = -self.gradients.without_noise(dense(w), round)
        if self.noise == "kept":
            u = self._noisy(u, round)
        return State(w, u, sizes(self, round.graph)[0].astype(u.dtype))

    def step(self, state: State, round: Round) -> State:
        """One round: (4) for every node, then (3) for the nodes that communicate, a block at a time."""
        w, u, count = state
        sigma, mu = round.ready.sigma[:, None], self.mu
        due = self._due(round)
        heard, size = ask(self, w, due, round)  # sums of z_j over N_i^k, |N_i^k|

        def communicate(here: Round) -> State:
            m_i = here.of(size).astype(u.dtype)[:, None]
            wbar = heard(here) / m_i
            u_i = here.of(sigma) * m_i * wbar - self.gradients.without_noise(wbar, here)
            noisy = self._noisy(u_i, here)
            w_i = self._kept(noisy / (here.of(sigma) * m_i))  # (3)
            return State(w_i, noisy if self.noise == "kept" else u_i, m_i[:, 0])

        def alone(w: Array | Nonzeros, u: Array, sigma: Array, count: Array) -> Array | Nonzeros:
            return self._kept((u + mu * dense(w)) / (sigma * count + mu))  # (4)

        silent = State(in_blocks(alone, w, u, sigma, count[:, None]), u, count)
        return round.each_of(due, self.block or at_once(), communicate, silent)

    def _due(self, round: Round) -> Array:
        """Whether k is in K_i [m] bool."""
        return (round.k % round.ready.period == 0) & ((round.k > 0) | (self.first == "zero"))

    def _noisy(self, u: Array, round: Round) -> Array:
        """The released u + xi [b, n], or u where there is no noise."""
        if self.mechanism is None:
            return u
        sensitivity = self.gradients.sensitivities(round.problem)
        return round.noisy(self.mechanism, u, sensitivity, _NOISE, partial(guarantee, self))

    def waits(self, round: Round) -> Array:
        """The slots [m, d] of N_i^k."""
        return slots(self, self._due(round), round)

    def _kept(self, x: Array) -> Array | Nonzeros:
        """P_s of rows [b, n], as they are stored."""
        return largest(x, self.s) if self.storage == "sparse" else ops.top_s(x, self.s)

    def params(self, state: State) -> Array:
        """The parameters w [m, n]."""
        return dense(state.w)

    def held(self, state: State) -> Array:
        """The numbers of w [m, n], or its nonzeros [m, s]."""
        return state.w.value if isinstance(state.w, Nonzeros) else state.w

    def published_bytes(self, problem: Problem, rounds: int, ready: Ready | None) -> float | None:
        """`paper_volume` of a run with the periods of `ready`; None for codecs that the paper does not have."""
        if not isinstance(self.codec, (Dense, OneBit)):
            return None
        d = self.codec.bits(problem.n) - self.codec.norm_bits if isinstance(self.codec, OneBit) else None
        drawn = self.period if ready is None else ready.period
        period = sum(self.periods) / 2 if drawn is None else float(np.mean(np.asarray(drawn)))
        return paper_volume(rounds, m=problem.m, n=problem.n, rate=float(self.rate), period=period, d=d)


def _few(codec: Codec, s: int) -> bool:
    """Whether at most s nonzeros arrive of s, the same at all receivers."""
    if isinstance(codec, OneBit):
        return not codec.pairwise and (codec.s is None or codec.s <= s)
    return isinstance(codec, Dense | Sparse | RandomK)


def paper_volume(rounds: float, *, m: int, n: int, rate: float, period: float = 12.5, d: int | None = None) -> float:
    """A formula for the CEPS paper's "data transmission volume" (Table V), whose own rule the paper does not give.

    rounds / period * r * m * (m / 2) messages, of 4 n bytes each, or for one-bit messages of d + 64 units. It fits the
    dense rows of Table V. Its one-bit rows come to 593 to 663 units a message and d + 64 is 564: that they are bits
    which were added up as bytes is a guess (`python -m experiments.errata_checks`).
    """
    return rounds / period * rate * m * (m / 2) * (4 * n if d is None else d + 64)
