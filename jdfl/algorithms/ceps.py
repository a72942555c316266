"""CEPS: Communication-Efficient and Private method for Sparse decentralized federated learning.

Sha, Zhou, Kong, Li: Sparse Decentralized Federated Learning (Algorithms 1 and 2, section V).

    k in K_i = {kappa_i, 2 kappa_i, ...}:                                                                         (3)
        wbar_i = mean of z_j over N_i^k,   z_j = what arrives of w_j,   N_i^k a random subset of N_i
        u_i = sigma_i |N_i^k| wbar_i - grad f_i(wbar_i)
        w_i = P_s((u_i + xi_i) / (sigma_i |N_i^k|)),   xi_i ~ N(0, rho_i I)
    otherwise:                                                                                                    (4)
        w_i = P_s((u_i + mu w_i) / (sigma_i m_i + mu)),   u_i and m_i as they were

The four variants of the paper (Table II) are settings of one class: `codec=OneBit()` is 1BCS, `codec=Dense()` is Perf,
and `mechanism=None` is NoDP.

As printed, the noise is not stored in u: the rounds (4) remove most of it, and the next message is almost exactly a
function of the data. `noise="kept"`, the default, stores u + xi, including in the first u; `noise="literal"` follows
the paper. With `clip` every example's gradient is clipped, and every u, the first included, is a Gaussian release. The
paper does not clip, assumes the sensitivity u_i (`sensitivity`), and computes sigma_i from the data without noise; give
`sigma` for a public constant.

(3) is a gradient step with step size 1 / (sigma_i |N_i^k|). With the paper's sigma_i this is m (2 r + 0.1) / (|N_i^k|
L_i), which grows as a node combines fewer of the m nodes, until CEPS diverges (`check` warns). `sigma_rule="safe"` uses
the step size 1 / L_i; `step_scale` multiplies the step size of any rule.

Missing neighbours: N_i^k is drawn from the in-neighbours that can be reached in the round, |N_i| is their number, and a
node that receives nothing combines only its own vector. With delayed messages (`network.delays`) a node uses the newest
z_j that has arrived.

By (3) the neighbours outside of N_i^k leave the average; section III-E says that node i keeps using the z_j that it has
stored. `unselected="stored"` is that reading: wbar_i is the mean over all of N_i, of new and old z_j (at first the
common initial parameters), and m_i = |N_i|. It stores s values and positions per link, and needs `storage="sparse"` and
a fixed network.

Axes: m nodes, n parameters, d slots of the neighbour table, b rows of a block.
"""

from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jdfl.algorithms.algorithm import Algorithm, Codes
from jdfl.algorithms.ceps_paper import check_ceps, constants, guarantee, preset, published_bytes
from jdfl.algorithms.gradients import Gradients
from jdfl.algorithms.requests import ask, ask_and_store, none_yet, sizes, slots
from jdfl.algorithms.round import Round, RoundContext
from jdfl.arrays.ops import Nonzeros, dense, kept
from jdfl.base import checks, struct
from jdfl.base.settings import As, Count, Fraction, Positive, Provenance
from jdfl.base.streams import Stream
from jdfl.codecs import Codec, Dense, OneBit
from jdfl.devices.memory import at_once, in_blocks
from jdfl.network import Network
from jdfl.network.late import known
from jdfl.privacy import Mechanism
from jdfl.problems import Problem

_NOISE = Stream("ceps.noise", "private")
_PERIOD = Stream("ceps.period", "choice")
_U = As(about="Sensitivity u_i assumed instead of enforced by a clip, as in the paper.")
_SIGMA = As(about="A public constant instead of a sigma_i computed from each node's local data.")


class State(NamedTuple):
    w: Array | Nonzeros  # [m, n] s-sparse parameters
    u: Array  # [m, n] last combination of neighbours and gradient
    count: Array  # [m] m_i, the number of nodes in it, as a float  # pyright: ignore[reportIncompatibleMethodOverride]
    stored: Nonzeros | None = None  # [m, d s] the last z_j of every neighbour, side by side; None: they are not used


class Ready(NamedTuple):
    """The constants of a run."""

    period: Array  # [m] int32 kappa_i
    sigma: Array  # [m] sigma_i


@struct.dataclass
class CEPS(Algorithm):
    """CEPS: sparse models, infrequent communication, one-bit messages and optional noise.

    Where the paper is ambiguous, each reading is an option; `CEPS.paper(...)` reproduces its tables. `check` raises
    ValueError for settings that do not fit.
    """

    kind: ClassVar[str] = "ceps"
    provenance: ClassVar[Provenance] = ("paper read",)
    s: Count = struct.field(pytree_node=False, default=10)
    """Nonzeros of every node's parameters."""
    rate: Fraction = 0.2
    """Fraction of its in-neighbours that a node receives from when it communicates, in (0, 1]."""
    mu: Positive = 0.1
    """Proximal weight in the rounds between communications."""
    codec: Annotated[Codec, As(default=OneBit())] = Dense()
    mechanism: Mechanism | None = None
    """Noise on what is released; None: no noise."""
    clip: Positive | None = None
    """Largest l2 norm of one example's gradient, which bounds the sensitivity; None: no clipping."""
    adjacency: Literal["replace-one", "add-remove"] = struct.field(pytree_node=False, default="replace-one")
    """Neighbouring datasets differ in a record that is replaced, or one that is added or removed."""
    sensitivity: Annotated[Positive | None, _U] = struct.field(per_node=True, default=None)
    """Sensitivity u_i assumed instead of enforced by a clip, as in the paper: one number, or one per node [m]."""
    noise: Literal["kept", "literal"] = struct.field(pytree_node=False, default="kept")
    """kept: the noise stays in all later iterates; literal: as in the paper, where later rounds remove it."""
    periods: tuple[Count, Count] = struct.field(pytree_node=False, default=(10, 15))
    """Shortest and longest period between communications; every node draws its own."""
    period: Array | None = struct.field(per_node=True, default=None)
    """Rounds between communications of every node [m], int32; None: drawn from `periods`."""
    sigma: Annotated[Positive | None, _SIGMA] = struct.field(per_node=True, default=None)
    """A public constant, or one per node [m], instead of a sigma_i computed from each node's local data."""
    sigma_rule: Literal["paper", "half_n", "safe"] = struct.field(pytree_node=False, default="paper")
    """The d_i in the paper's constant sigma_i: the number of a node's examples, n / 2, or the safe rule."""
    step_scale: Positive = 1.0
    """Factor on the step size of the rule (sigma_i is divided by it)."""
    first: Literal["period", "zero"] = struct.field(pytree_node=False, default="period")
    """First round that communicates: the node's period, or round 0, as in the proof of Theorem 3 (Appendix E)."""
    own: Literal["absent", "sampled", "always"] = struct.field(pytree_node=False, default="absent")
    """Whether a node's own vector enters its average: never, only when drawn like a neighbour, or always."""
    own_coded: bool = struct.field(pytree_node=False, default=False)
    """Whether a node's own vector also goes through the codec."""
    phi: Literal["sender", "receiver"] = struct.field(pytree_node=False, default="sender")
    """Whether a message uses the sender's or the receiver's codec."""
    block: Count | None = struct.field(pytree_node=False, default=None)
    """Number of nodes processed at a time; None: chosen by backend."""
    storage: Literal["dense", "sparse"] = struct.field(pytree_node=False, default="dense")
    """Whether parameters and messages are stored as n numbers or as s values with their positions."""
    unselected: Literal["absent", "stored"] = struct.field(pytree_node=False, default="absent")
    """Whether neighbours outside of N_i^k leave the average (3), or stay in it with their last z_j (section III-E)."""
    title: ClassVar[str] = "CEPS"
    codes: ClassVar[Codes] = "requests"
    tuned: ClassVar[tuple[str, ...]] = ("step_scale",)
    uneven: ClassVar[bool] = True
    late: ClassVar[bool] = True
    mixes: ClassVar[bool] = False  # its means do not depend on weights

    @classmethod
    def paper(cls, s: int = 10, *, rate: float = 0.2, epsilon: float | None = None, one_bit: bool = True) -> "CEPS":
        """CEPS with the settings of section V of its paper; its noise is literal and no privacy is claimed.

        Args:
            s: Nonzeros of every node's parameters.
            rate: Fraction of its in-neighbours that a node receives from when it communicates, in (0, 1].
            epsilon: The paper's noise parameter, with delta 0.5 and u_i 0.1; None: no noise. It is not a guarantee.
            one_bit: One-bit messages (1BCS) or dense ones (Perf).
        """
        return cls(**preset(s, rate, epsilon, one_bit))

    @property
    def gradients(self) -> Gradients:
        """How gradients are clipped, and what scales the noise, which is added to u instead."""
        u = self.sensitivity
        return Gradients(clip=self.clip, mechanism=self.mechanism, sensitivity=u, adjacency=self.adjacency)

    def check(self, problem: Problem, network: Network) -> None:
        checks.integer(1, problem.n, "s is the number of nonzeros kept of n parameters.", s=self.s)
        super().check(problem, network)
        check_ceps(self, problem, network)

    def minimises(self, problem: Problem, network: Network) -> str:
        """A sum of the nodes' objectives whose weights differ where step sizes, periods or neighbourhoods do."""
        return "a sum of the f_i with the weights that step sizes, periods and neighbourhoods give, over s nonzeros"

    def sparsity(self, problem: Problem) -> int:
        return self.s

    def prepare(self, problem: Problem, context: RoundContext, plan: Any) -> Ready:
        """Draw kappa_i and compute sigma_i (`ceps_paper.constants`)."""
        low, high = self.periods
        period = self.period
        if period is None:
            period = jax.vmap(lambda key: jax.random.randint(key, (), low, high + 1, jnp.int32))(context.keys(_PERIOD))
        return Ready(jnp.asarray(period, jnp.int32), constants(self, problem, context.graph))

    def init(self, round: Round) -> State:
        start = lax.optimization_barrier(round.problem.initial_params())  # or XLA projects zeros at compile time
        w = kept(start, self.s, self.storage)
        g, x = self.gradients, dense(w)
        u = g.descent(x, round, _NOISE, guarantee(self))[1] if self.noise == "kept" else -g.without_noise(x, round)
        stored = none_yet(w, known(round.graph)) if self.unselected == "stored" and isinstance(w, Nonzeros) else None
        return State(w, u, sizes(self, round.graph)[0].astype(u.dtype), stored)

    def step(self, state: State, round: Round) -> State:
        """One round: (4) for all nodes, then (3) for the nodes that communicate, one block at a time."""
        w, u, count, stored = state
        sigma, mu = round.ready.sigma[:, None], self.mu
        due = self._due(round)
        if stored is None:
            heard, size = ask(self, w, due, round)  # sums of z_j over N_i^k, |N_i^k|
        else:
            heard, size = ask_and_store(self, w, stored, due, round)  # pyright: ignore[reportArgumentType]

        def communicate(here: Round) -> State:
            m_i, given = here.of(size)[:, None], heard(here)
            total, last = given if isinstance(given, tuple) else (given, None)
            wbar = total / m_i
            bare, noisy = self._gradients_of(here).descent(wbar, here, _NOISE, guarantee(self))
            shared = here.of(sigma) * m_i * wbar
            u_i = shared + noisy
            w_i = kept(u_i / (here.of(sigma) * m_i), self.s, self.storage)  # (3)
            return State(w_i, u_i if self.noise == "kept" else shared + bare, m_i[:, 0], last)

        def alone(w: Array | Nonzeros, u: Array, sigma: Array, count: Array) -> Array | Nonzeros:
            return kept((u + mu * dense(w)) / (sigma * count + mu), self.s, self.storage)  # (4)

        silent = State(in_blocks(alone, w, u, sigma, count[:, None]), u, count, stored)
        return round.each_of(due, self.block or at_once(round.m, round.problem.n, parts=32), communicate, silent)

    def _gradients_of(self, here: Round) -> Gradients:
        """The gradients of a block's nodes, which have their own sensitivity."""
        u = self.sensitivity
        if u is None or np.ndim(u) == 0:
            return self.gradients
        return replace(self.gradients, sensitivity=here.of(jnp.asarray(u)))

    def _due(self, round: Round) -> Array:
        """Whether k is in K_i [m] bool."""
        return (round.k % round.ready.period == 0) & ((round.k > 0) | (self.first == "zero"))

    def waits(self, round: Round) -> Array:
        """The slots [m, d] of N_i^k."""
        return slots(self, self._due(round), round)

    def published_bytes(self, problem: Problem, rounds: int, ready: Ready | None) -> float | None:
        """The paper's data volume for a number of rounds, with the periods in `ready` (None: their mean)."""
        return published_bytes(self, problem, rounds, ready)
