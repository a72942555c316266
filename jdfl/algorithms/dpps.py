"""DPPS: perturbed push-sum with Laplace noise on every message, for any algorithm that supplies a perturbation.

Y. Zhou, K. Xue, E. Chen: Differentially Private Perturbed Push-Sum Protocol and Its Application in Non-Convex
Optimization (Algorithm 1). Without noise it is perturbed push-sum: A. Nedic, A. Olshevsky: Distributed Optimization
over Time-Varying Directed Graphs, 2015.

    h_i <- s_i + eps_i,   v_i = h_i + gamma_n Lap(0, S / b),   s_i <- sum_j W_ij v_j,   a_i <- sum_j W_ij a_j,
    y_i = s_i / a_i

The columns of W sum to one, and a node's message to itself is noisy too. Where S comes from is `sensitivity`; see
`jdfl.privacy.sensitivity` for the three sources. Only "certified" can be told of: S of "real" is an oracle's,
Eq. 22 ("eq22") bounds the distances for some constants and not for those of the paper's experiments, which are the
defaults here, and broadcasting the S_i tells the length of the noise.

Axes: m nodes, d shared parameters, T rounds.
"""

from dataclasses import replace
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jdfl import checks, ops, struct
from jdfl.base import Round
from jdfl.devices import nodes
from jdfl.network import Graph, Mail, Network, matrices, mix, require
from jdfl.privacy import NO_NOISE, Guarantee, LaplaceSchedule
from jdfl.privacy.sensitivity import certified, published, real
from jdfl.streams import Stream

_NOISE = Stream("dpps.noise", "private")
_ROUNDING = 2.0**-21  # of vectors in float32, four units in the last place
_LONG = 2**12  # numbers of a row that take longer than its turn in a loop
_NOTHING = 1e12  # the multiplier of a round in which data change nothing
_REMEDY = 'Use sensitivity="certified" and a clip.'


@struct.dataclass
class PushSum:
    """What the next round needs of the protocol."""

    s: Array  # [m, d] shared parameters, not corrected
    a: Array  # [m] normalising scalars
    estimate: Array  # [m] S_i of the last round (Eq. 22)
    noise: Array  # [m] l1 length of the noise of the last round
    seen: Array | None = None  # [T, 2] true distances and S, where they are watched
    sent: Array | None = None  # [m, d] messages of the last round, where they are watched
    mail: Mail | None = None  # [m, b + 1, d + 1] what of s and a is on its way, where messages are late

    @property
    def y(self) -> Array:
        """The corrected parameters [m, d]; by the inverse, as XLA divides in some programs and not in others."""
        return self.s * (1 / self.a)[:, None]

    @property
    def shown(self) -> Array:
        """What others have seen last [m, d]: the messages where they are watched, else what came of mixing them."""
        return self.s if self.sent is None else self.sent


@struct.dataclass
class DPPS:
    """The protocol's settings. Raises ValueError (from `check` and `plan`) for settings out of range."""

    b: Any = None  # privacy parameter; None: no noise
    noise_rate: Any = 1e-3  # gamma_n
    sensitivity: Literal["certified", "eq22", "real"] = struct.field(pytree_node=False, default="certified")
    constant: Any = 0.78  # C' of Eq. 22
    contraction: Any = 0.55  # lambda of Eq. 22
    failure: float = struct.field(pytree_node=False, default=1e-6)  # chance that a certified S does not hold, ever
    watch: bool = struct.field(pytree_node=False, default=False)  # keep messages, true distances and S
    schedule: Array | None = None  # [T] S_t, made by `plan`
    scales: Array | None = None  # [T] what rates are multiplied by, made by `plan`

    def check(self, method: str, network: Network) -> None:
        """Refuse settings out of range, and networks on which push-sum does not average."""
        checks.literals(self)
        require(network, method, column_stochastic=True, connected=True)
        if self.b is not None:
            checks.shape((), "It is one number for all nodes.", b=self.b)
            checks.positive("Use b=None for a run without noise.", b=self.b)
        checks.positive(noise_rate=self.noise_rate, constant=self.constant, failure=self.failure)
        checks.fraction("It is a chance.", failure=self.failure)
        checks.fraction("Distances shrink by it in a round.", contraction=self.contraction)

    def plan(
        self, network: Network, bounds: np.ndarray | None, scales: np.ndarray, d: int, start: Array | None = None
    ) -> "DPPS":
        """With the rounds' numbers, on the host before a run: perturbations are at most `bounds` [T] long in l1.

        `scales` [T] multiply the noise rate; all nodes start with the same vector `start` [d] (None: zeros). Raises
        ValueError where nothing bounds the perturbations and S is to be certified, and for networks drawn at random.
        """
        planned = replace(self, scales=jnp.asarray(scales, jnp.float32))
        if self.b is None or self.sensitivity != "certified":
            return planned
        if bounds is None:
            raise ValueError(
                "Expected a clip for noise with sensitivity = 'certified', got clip = None: nothing bounds what a node "
                "adds in a round. Give gradients a clip, or b=None for a run without noise; 'real' and 'eq22' need "
                "none, and guarantee nothing."
            )
        noise = float(self.noise_rate) / float(self.b) * np.asarray(scales, float)
        length = 0.0 if start is None else float(np.abs(np.asarray(start, np.float64)).sum())
        known = {"failure": self.failure, "start": length, "rounding": _ROUNDING}
        mixing = matrices(network, len(bounds), 'sensitivity = "certified"')
        found = certified(mixing, bounds, noise, d, **known)
        return replace(planned, schedule=jnp.asarray(np.nextafter(found.astype(np.float32), np.float32(np.inf))))

    def init(self, s: Array, round: Round) -> PushSum:
        """Start from s [m, d], the same for all nodes."""
        none = jnp.zeros((s.shape[0],), s.dtype)
        rounds = 0 if self.scales is None else self.scales.shape[0]
        mail = Mail.begin(round.graph, jnp.concatenate([s, none[:, None]], axis=1))
        start = PushSum(s, none + 1, none, none, mail=mail)
        if not self.watch:
            return start
        return replace(start, seen=jnp.full((rounds, 2), jnp.nan, s.dtype), sent=jnp.zeros_like(s))

    def step(self, state: PushSum, eps: Array, round: Round) -> PushSum:
        """One round with perturbations eps [m, d]."""
        h, graph = state.s + eps, round.graph
        rate, seen, sent = self.noise_rate * self.scale(round.k).astype(h.dtype), state.seen, h
        estimate, length = state.estimate, state.noise
        if self.b is not None:
            S, estimate = self._sensitivity(state, h, eps, round)
            keys = round.keys(_NOISE)
            added = rate * S / self.b * _laplace(keys, h.shape[1], h.dtype)
            sent, length = h + added, ops.length(added, "l1")
            if seen is not None:
                apart = S if self.sensitivity == "real" else _apart(h)
                seen = seen.at[round.k].set(jnp.stack([apart, S]), mode="drop")
        elif seen is not None:
            seen = seen.at[round.k].set(jnp.stack([_apart(h), jnp.zeros((), h.dtype)]), mode="drop")
        if graph.synchronised is not None:  # all are alike again, and nothing is left to estimate
            estimate, length = (jnp.where(graph.synchronised, 0, x) for x in (estimate, length))
        kept = sent if self.watch else None
        if state.mail is None:
            return PushSum(mix(graph, sent), mix(graph, state.a[:, None])[:, 0], estimate, length, seen, kept)
        both, mail = state.mail.mix(graph, jnp.concatenate([sent, state.a[:, None]], axis=1), round.k)
        return PushSum(both[:, :-1], both[:, -1], estimate, length, seen, kept, mail)

    def scale(self, k: Array) -> Array:
        """What rates are multiplied by in round k []."""
        return jnp.ones(()) if self.scales is None else self.scales[jnp.minimum(k, self.scales.shape[0] - 1)]

    def _sensitivity(self, state: PushSum, h: Array, eps: Array, round: Round) -> tuple[Array, Array]:
        """S [] and the nodes' S_i [m]."""
        if self.sensitivity == "real":
            return _apart(h), state.estimate
        if self.sensitivity == "certified":
            assert self.schedule is not None  # plan
            return self.schedule[jnp.minimum(round.k, self.schedule.shape[0] - 1)].astype(h.dtype), state.estimate
        start, step = ops.length(state.s, "l1"), ops.length(eps, "l1")
        told = {"constant": self.constant, "contraction": self.contraction}
        estimate = published(state.estimate, state.noise, step, start, round.k == 0, **told)
        return nodes.largest(estimate), estimate

    def sent(self, graph: Graph) -> dict[str, Array | int]:
        """Messages of a round, [m] or one number: s and a to out-neighbours, and with Eq. 22 a scalar to all others."""
        every = {"shared": graph.out_degree}
        return every | ({"sensitivity": nodes.count(graph.m) - 1} if self._broadcasts else {})

    def message_bits(self, d: int, dtype: Any) -> dict[str, int]:
        """Bits of one message on every channel."""
        bits = 8 * np.dtype(dtype).itemsize
        return {"shared": (d + 1) * bits} | ({"sensitivity": bits} if self._broadcasts else {})

    @property
    def _broadcasts(self) -> bool:
        return self.b is not None and self.sensitivity == "eq22"

    def guarantee(self, bounds: np.ndarray | None, enforced_by: str) -> Guarantee:
        """What may be said where perturbations, at most `bounds` [T] long, are all that data change in a round.

        Of everything that is sent, for a whole node's data replaced; beside it the paper's relation, one node's message
        answered by another's. `enforced_by` is what keeps to the bounds, in words.
        """
        if self.b is None:
            return NO_NOISE
        if self.sensitivity != "certified" or bounds is None or self.schedule is None or self.scales is None:
            return replace(NO_NOISE, observer="all messages", reason=self._reason(bounds), remedy=_REMEDY)
        rate = float(self.noise_rate) / float(self.b) * np.asarray(self.scales, float)
        change = 2 * np.asarray(bounds, float)
        scale = rate * np.asarray(self.schedule, float)
        multipliers = np.where(change > 0, scale / np.where(change > 0, change, 1), _NOTHING)
        told = Guarantee(
            unit="node",
            adjacency="replace-one",
            observer="all messages",
            sensitivity=float(change.max()),
            enforced_by=enforced_by,
            claimed=True,
            reason="every message is noisy by a public schedule, and all else that is sent follows from messages",
            event=LaplaceSchedule(tuple(multipliers.tolist())),
        )
        swap = replace(
            told,
            unit="node-swap",
            sensitivity=float(np.max(self.schedule)),
            enforced_by=f"{enforced_by}, and a certified schedule of distances between nodes",
            event=LaplaceSchedule(tuple(rate.tolist())),
            failure=self.failure,
        )
        return replace(told, beside=(swap,))

    def _reason(self, bounds: np.ndarray | None) -> str:
        if self.sensitivity == "real":
            return "noise is scaled by the true distances between nodes, which nobody knows and which tell of the data"
        if self.sensitivity == "eq22":
            return (
                "noise is scaled by Eq. 22, whose constants nothing ties to the network (those of the paper's "
                "experiments are too small, experiments.lemma2_counterexample), and the scalars that the nodes "
                "broadcast for it tell how long their noise is"
            )
        if bounds is None:
            return "nothing bounds what a node adds in a round"
        return "no schedule of noise has been made for these rounds"


def _apart(h: Array) -> Array:
    """The largest l1 distance [] between two of all nodes' rows [m, d]."""
    return real(nodes.everyone(h))


def _laplace(keys: Array, d: int, dtype: Any) -> Array:
    """Laplace noise of scale 1 [m, d], row i from keys[i]."""

    def row(key: Array) -> Array:
        return jax.random.laplace(key, (d,), dtype)

    in_turn = jax.default_backend() == "cpu" and d >= _LONG  # a row stays in the cache, and all of them would not
    return lax.map(row, keys) if in_turn else jax.vmap(row)(keys)
