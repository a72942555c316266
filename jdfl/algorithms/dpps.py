"""DPPS: perturbed push-sum with Laplace noise on every message, for any algorithm that supplies a perturbation.

Y. Zhou, K. Xue, E. Chen: Differentially Private Perturbed Push-Sum Protocol and Its Application in Non-Convex
Optimization (Algorithm 1). Without noise it is perturbed push-sum: A. Nedic, A. Olshevsky: Distributed Optimization
over Time-Varying Directed Graphs, 2015.

    h_i <- s_i + eps_i,   v_i = h_i + gamma_n Lap(0, S / b),   s_i <- sum_j W_ij v_j,   a_i <- sum_j W_ij a_j,
    y_i = s_i / a_i

The columns of W sum to one, and a node's message to itself is noisy too. `sensitivity` selects the source of S;
`jdfl.privacy.sensitivity` describes the four sources. Only "certified" and the looser "lemma2" yield a guarantee. The S
of "real" is an oracle's. Eq. 22 ("eq22") bounds the distances for some constants, but not for those of the paper's
experiments, which are the defaults here, and broadcasting the S_i reveals the norm of the noise.

Axes: m nodes, d shared parameters, T rounds.
"""

from dataclasses import replace
from typing import Annotated, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jdfl.algorithms.round import Channel, Claim, Round
from jdfl.arrays import ops
from jdfl.base import marking, struct
from jdfl.base.backend import backend
from jdfl.base.settings import Bound, Fraction, Positive
from jdfl.base.streams import Stream
from jdfl.devices import nodes
from jdfl.network import Network, matrices, require
from jdfl.privacy import NO_NOISE, Guarantee, LaplaceSchedule
from jdfl.privacy.sensitivity import certified, lemma2, published, real

_NOISE = Stream("dpps.noise", "private")
SHARED, SENSITIVITY = Channel("shared"), Channel("sensitivity")
_ROUNDING = 2.0**-21  # of vectors in float32, four units in the last place
_LONG = 2**12  # numbers in a row from which a loop over rows is faster
_NOTHING = 1e12  # multiplier of a round in which the data change nothing
_BOUNDS = {"certified": certified, "lemma2": lemma2}
_REMEDY = 'Use sensitivity="certified" and a clip.'


class PushSum(NamedTuple):
    """The protocol's state after a round."""

    s: Array  # [m, d] shared parameters, uncorrected
    a: Array  # [m] push-sum weights
    estimate: Array  # [m] S_i of the last round (Eq. 22)
    noise: Array  # [m] l1 norm of the noise of the last round
    seen: Array | None = None  # [T, 2] true distances and S, with `watch`
    sent: Array | None = None  # [m, d] messages of the last round, with `watch`

    @property
    def y(self) -> Array:
        """The corrected parameters [m, d]; uses the inverse, because XLA divides only in some programs."""
        return self.s * (1 / self.a)[:, None]

    @property
    def shown(self) -> Array:
        """What others saw last [m, d]: the messages with `watch`, otherwise their mixture."""
        return self.s if self.sent is None else self.sent


class Schedule(NamedTuple):
    """The public noise schedule of all rounds."""

    scales: Array  # [T] factors on the rates
    certified: Array | None  # [T] S_t, a bound on distances between nodes
    rates: Array | None = None  # [T] bounds on step sizes that follow a schedule

    def scale(self, k: Array) -> Array:
        """The factor on the rates in round k []."""
        return _at(self.scales, k)


@struct.dataclass
class DPPS:
    """Settings of DPPS. Raises ValueError (from `check` and `plan`) for settings out of range.

    Algorithms use it as a part and supply a perturbation in every round: `PartPSP`, `SGP`, `PEDFL`, `AverageConsensus`.
    Without `b` it is plain push-sum. With noise only sensitivity = "certified" or "lemma2" gives a guarantee. It
    protects a node's whole data and needs a clip that bounds the perturbations.
    """

    b: Positive | None = None
    """Privacy parameter: larger values mean less noise; None: no noise."""
    noise_rate: Positive = 1e-3
    """Factor on the noise, besides the decay at milestones (gamma_n of the paper)."""
    sensitivity: Literal["certified", "lemma2", "eq22", "real"] = struct.field(pytree_node=False, default="certified")
    """Source of the noise scale: a public bound, the looser one of Lemma 2 with constants computed from the network,
    the paper's Eq. 22, or the true distances; only the first two give a guarantee."""
    constant: Positive = 0.78
    """C' of Eq. 22."""
    contraction: Fraction = 0.55
    """Lambda of Eq. 22, in (0, 1]."""
    reading: Literal["text", "no start", "code"] = struct.field(pytree_node=False, default="text")
    """Reading of Eq. 22: as in the text; without the norm of the start, which all nodes share; or as in the published
    code, where in addition the next round continues with the network's largest S_i."""
    failure: Annotated[float, Bound("(0, 1]")] = struct.field(pytree_node=False, default=1e-6)
    """Probability that the bound of "certified" or "lemma2" fails in some round."""
    watch: bool = struct.field(pytree_node=False, default=False)
    """Keep the true distances and noise scales of all rounds in the state."""

    def check(self, method: str, network: Network) -> None:
        """Raise ValueError, naming the algorithm `method`, for networks on which push-sum does not average.

        The columns of the mixing matrix must sum to one. On a fixed or periodic network information from every node
        must reach all others, by links or in synchronised rounds.
        """
        require(network, method, column_stochastic=True, connected=True)

    def plan(
        self, network: Network, bounds: np.ndarray | None, scales: np.ndarray, d: int, start: Array | None = None
    ) -> Schedule:
        """The schedule of all rounds, on the host before a run; perturbations have l1 norm at most `bounds` [T].

        `scales` [T] multiply the noise rate; all nodes start from the same vector `start` [d] (None: zeros). Raises
        ValueError where nothing bounds the perturbations although S is to be certified, for networks drawn at random,
        and for "lemma2" where rows of W do not sum to one.
        """
        rates = jnp.asarray(scales, jnp.float32)
        if self.b is None or self.sensitivity not in _BOUNDS:
            return Schedule(rates, None)
        if bounds is None:
            raise ValueError(
                f"Expected a clip for noise with sensitivity = {self.sensitivity!r}, got clip = None: nothing bounds "
                "what a node adds in a round. Give gradients a clip, or b=None for a run without noise; 'real' and "
                "'eq22' need none, but guarantee nothing."
            )
        noise = float(self.noise_rate) / float(self.b) * np.asarray(scales, float)
        length = 0.0 if start is None else float(np.abs(np.asarray(start, np.float64)).sum())
        known = {"failure": self.failure, "start": length, "rounding": _ROUNDING}
        mixing = matrices(network, len(bounds), f'sensitivity = "{self.sensitivity}"')
        found = _BOUNDS[self.sensitivity](mixing, bounds, noise, d, **known)
        return Schedule(rates, jnp.asarray(np.nextafter(found.astype(np.float32), np.float32(np.inf))))

    def init(self, s: Array, round: Round) -> PushSum:
        """Start from s [m, d], the same for all nodes; the algorithm's plan is a `Schedule`.

        Every push-sum weight is 1, so the corrected parameters y equal s. With `watch` the state has room for the true
        distances and noise scales of all rounds, [T, 2]; for T = m one row more, or they would be taken for rows of
        nodes. Nothing is sent.
        """
        none = jnp.zeros((s.shape[0],), s.dtype)
        if not self.watch:
            return PushSum(s, none + 1, none, none)
        rounds = round.ready.scales.shape[0]
        seen = jnp.full((rounds + (rounds == round.m), 2), jnp.nan, s.dtype)
        return PushSum(s, none + 1, none, none, seen, jnp.zeros_like(s))

    def step(self, state: PushSum, eps: Array, round: Round, claim: Claim) -> PushSum:
        """One round with perturbations, Algorithm 1 of the paper.

        The noisy s + eps and the push-sum weights a are summed with the columns of W, as in the module's formulas; `y`
        of the state are the corrected parameters. It counts one message to every out-neighbour, and with noise one
        release.

        Args:
            state: The state after the previous round.
            eps: The perturbations eps [m, d], added before noise.
            round: The round, whose `ready` is the `Schedule`.
            claim: The guarantee of the noise, as for `Round.release`.
        """
        h, graph, schedule = state.s + eps, round.graph, round.ready
        rate, seen, sent = self.noise_rate * schedule.scale(round.k).astype(h.dtype), state.seen, h
        estimate, length, scale = state.estimate, state.noise, jnp.zeros((), h.dtype)
        if self.b is not None:
            scale, estimate = self._sensitivity(state, h, eps, round)
            booking = round.release(_NOISE, claim)
            added = rate * scale / self.b * _laplace(round.keys(_NOISE), h.shape[1], h.dtype)
            sent, length = marking.noisy(h + added, h, scale, booking), ops.length(added, "l1")
        if seen is not None:
            apart = scale if self.b is not None and self.sensitivity == "real" else _apart(h)
            seen = seen.at[round.k].set(jnp.stack([apart, scale]), mode="drop")
        if graph.synchronised is not None:  # all nodes are equal again, and nothing is left to estimate
            estimate, length = (jnp.where(graph.synchronised, 0, x) for x in (estimate, length))
        s, a = round.push(sent, state.a, SHARED)
        if self.broadcasts:
            round.trace.send(SENSITIVITY, nodes.count(round.m) - 1, 0)
        return PushSum(s, a, estimate, length, seen, sent if self.watch else None)

    def _sensitivity(self, state: PushSum, h: Array, eps: Array, round: Round) -> tuple[Array, Array]:
        """S [] and the nodes' S_i [m]."""
        if self.sensitivity == "real":
            return _apart(h), state.estimate
        if self.sensitivity in _BOUNDS:
            return _at(round.ready.certified, round.k).astype(h.dtype), state.estimate
        step, start = ops.length(eps, "l1"), jnp.zeros_like(state.estimate)
        if self.reading == "text":
            start = ops.length(state.s, "l1")
        claim = {"constant": self.constant, "contraction": self.contraction}
        estimate = published(state.estimate, state.noise, step, start, round.k == 0, **claim)
        largest = nodes.largest(estimate)
        return largest, jnp.broadcast_to(largest, estimate.shape) if self.reading == "code" else estimate

    @property
    def channels(self) -> tuple[Channel, ...]:
        """The channels: s and a to out-neighbours, and with Eq. 22 a scalar to all other nodes.

        "shared" counts messages of d + 1 numbers, "sensitivity" the scalars that each node sends to the m - 1 others.
        An algorithm with this part has these `channels`.
        """
        return (SHARED, SENSITIVITY) if self.broadcasts else (SHARED,)

    def message_bits(self, d: int, dtype: Any) -> dict[str, int]:
        """Bits of one message on every channel, by the channel's name.

        A message on "shared" has d + 1 numbers of the given `dtype`, the entries of s and one a; a message on
        "sensitivity" has one number. Nothing goes through a codec.
        """
        bits = 8 * np.dtype(dtype).itemsize
        return {"shared": (d + 1) * bits} | ({"sensitivity": bits} if self.broadcasts else {})

    @property
    def broadcasts(self) -> bool:
        """Whether nodes broadcast their estimates of distances.

        They do so if the noise is scaled by Eq. 22, whose largest S_i all nodes need. The scalars are sent without
        noise and reveal the norm of the noise, so nothing is claimed then.
        """
        return self.b is not None and self.sensitivity == "eq22"

    def guarantee(self, schedule: Schedule, bounds: np.ndarray | None, enforced_by: str) -> Guarantee:
        """The guarantee where the data affect a round only through its perturbations.

        It covers all messages, for a node's whole data replaced. It also states the paper's adjacency relation, in
        which one node's message is replaced by another's.

        Args:
            schedule: The noise of all rounds; nothing is claimed unless it is certified.
            bounds: The largest l1 norm of a perturbation, bounds [T]; None: it is unbounded, and nothing is claimed.
            enforced_by: What enforces the bounds, in words.
        """
        if self.b is None or schedule.certified is None or bounds is None:
            return replace(NO_NOISE, observer="all messages", reason=self._reason(), remedy=_REMEDY)
        rate = float(self.noise_rate) / float(self.b) * np.asarray(schedule.scales, float)
        change = 2 * np.asarray(bounds, float)
        scale = rate * np.asarray(schedule.certified, float)
        multipliers = np.where(change > 0, scale / np.where(change > 0, change, 1), _NOTHING)
        claim = Guarantee(
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
            claim,
            unit="node-swap",
            sensitivity=float(np.max(schedule.certified)),
            enforced_by=f"{enforced_by}, and a certified schedule of distances between nodes",
            event=LaplaceSchedule(tuple(rate.tolist())),
            failure=self.failure,
        )
        return replace(claim, beside=(swap,))

    def _reason(self) -> str:
        if self.sensitivity == "real":
            return "noise is scaled by the true distances between nodes, which nobody knows and which depend on data"
        if self.sensitivity == "eq22":
            return (
                "noise is scaled by Eq. 22, whose constants nothing ties to the network (those of the paper's "
                "experiments are too small, experiments.lemma2_counterexample), and the scalars that the nodes "
                "broadcast for it reveal the norm of their noise"
            )
        return "nothing bounds what a node adds in a round"


def _at(schedule: Array, k: Array) -> Array:
    """Entry k of a schedule [T]; the last one beyond its end."""
    return schedule[jnp.minimum(k, schedule.shape[0] - 1)]


def _apart(h: Array) -> Array:
    """The largest l1 distance [] between two rows of h [m, d], over all nodes."""
    return real(nodes.gather(h))


def _laplace(keys: Array, d: int, dtype: Any) -> Array:
    """Laplace noise of scale 1 [m, d], row i from keys[i]."""

    def row(key: Array) -> Array:
        return jax.random.laplace(key, (d,), dtype)

    in_turn = backend() == "cpu" and d >= _LONG  # one row stays in the cache, all rows would not
    return lax.map(row, keys) if in_turn else jax.vmap(row)(keys)
