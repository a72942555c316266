"""One-bit compressed sensing of sparse vectors: d signs and one norm (CEPS paper, Algorithm 2).

Signs of random measurements determine a sparse vector up to its norm: P. T. Boufounos, R. G. Baraniuk: 1-Bit
Compressive Sensing, 2008. Sending the norm, the logarithm before it and its inverse after it are from the CEPS paper.
"""

import warnings
from typing import Annotated, Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jdfl.base import checks, struct
from jdfl.base.backend import backend
from jdfl.base.settings import As, Bound, Count, Natural, NotNegative, Positive
from jdfl.base.streams import Stream
from jdfl.codecs import sensing
from jdfl.codecs.base import Codec, Wire
from jdfl.codecs.gpsp import gpsp, recovery, unit, working_sparsity
from jdfl.codecs.packing import Part, floats, signs
from jdfl.codecs.quantised import rounded

_MATRIX = Stream("one-bit.sensing matrix", "shared")
_D = As(int | tuple[int, ...] | None)
POOR = 0.9  # recovery below which `check` warns
MOST_ELSEWHERE = 2**29  # the same on other backends than CPUs, 2 GB
MOST_COLUMNS = 2**24  # largest number of entries in the columns gathered for messages side by side, 64 MB


@struct.dataclass
class OneBit(Codec):
    """One sign per measurement and one norm; the receiver decodes by GPSP.

    c = sign(Phi x), x = sign(w) log_gamma(1 + |w|), sent with ||w||; GPSP finds x, from which w is reconstructed.

    Phi comes from `ensemble` (see `jdfl.codecs.sensing`). "gaussian" is stored, 4 n d bytes per node, or once for all
    nodes if `shared`; it stays the same for a whole run, so a vector on which it fails fails repeatedly. "rademacher"
    (unless shared) and "hadamard" are redrawn from the key of every message and need no storage; "hadamard" is never
    formed as a matrix. "sparse", which the paper suggests for its cost, has a fraction `density` of nonzeros and fails,
    because most measurements contain none of x. With `side` the decoder starts from the receiver's own parameters, so d
    may be much smaller; then every receiver decodes separately.

    With one d per node, as in the paper, the message of node i has its own d_i signs: of matrices for the largest d,
    only the first d_i rows exist for it. With `phi="receiver"` of CEPS the d_i of the receiver counts.

    `inverse` selects how w follows from the unit vector v. "paper" (Step 6-7) exponentiates v directly and rescales,
    with an error of a few per cent even for a perfect v, because log_gamma(1 + |w|) was normalised before. "exact"
    first finds the scale t with ||gamma^(t |v|) - 1|| = ||w||, without additional bits.
    """

    kind: ClassVar[str] = "one-bit"
    d: Annotated[Count | tuple[Count, ...] | None, _D] = struct.field(pytree_node=False, per_node=True, default=None)
    """Number of measurements, one bit each, or one number per node [m]; None: n // 2."""
    s: Count | None = struct.field(pytree_node=False, default=None)
    """Nonzeros that the decoder recovers; None: the algorithm's sparsity."""
    gamma: Annotated[float | Array, Bound("(1, inf)")] = struct.field(per_node=True, default=5.0)
    """Base of the logarithm that compresses the range of magnitudes, > 1."""
    inverse: Literal["exact", "paper"] = struct.field(pytree_node=False, default="exact")
    """How the logarithm is inverted: at the exact scale, or as in the paper's Algorithm 2."""
    ensemble: sensing.Ensemble = struct.field(pytree_node=False, default="gaussian")
    """How sensing matrices are made: gaussian is stored, rademacher and hadamard come from keys, sparse fails."""
    shared: bool = struct.field(pytree_node=False, default=False)
    """Use one sensing matrix for all nodes instead of one per node."""
    density: Annotated[float, Bound("(0, 1]")] = struct.field(pytree_node=False, default=0.05)
    """Fraction of nonzeros of sparse sensing matrices."""
    side: bool = struct.field(pytree_node=False, default=False)
    """Start the decoder from the receiver's own parameters, so that d may be much smaller."""
    flips: Natural = struct.field(pytree_node=False, default=0)
    """Number of signs that the decoder may treat as wrong."""
    margin: Positive = struct.field(per_node=True, default=0.01)
    """The decoder's margin (GPSP's e)."""
    eta: NotNegative = struct.field(per_node=True, default=1e-4)
    """The decoder's ridge."""
    cap: Count = struct.field(pytree_node=False, default=12)
    """Most iterations of the decoder; the error of one that ends early is in what it returns, without a mark."""
    norm_bits: Literal[32, 64] = struct.field(pytree_node=False, default=64)
    """Bits of the norm."""

    def __post_init__(self) -> None:
        """Store lists and arrays of numbers of measurements as tuples, which are compared by value."""
        d: Any = self.d
        d = d.tolist() if checks.is_a(d, np.ndarray) else d
        if checks.is_a(d, list | tuple):
            d = tuple(int(one) if checks.is_integer(one) else one for one in d)
        object.__setattr__(self, "d", d)

    @property
    def pairwise(self) -> bool:
        """With side information every receiver decodes separately."""
        return self.side

    @property
    def groups(self) -> tuple[int, ...] | None:
        """Nodes with equal d form a group; the groups are in the order of their d."""
        if not isinstance(self.d, tuple) or len(set(self.d)) < 2:
            return None
        place = {size: i for i, size in enumerate(sorted(set(self.d)))}
        return tuple(place[size] for size in self.d)

    def of(self, group: int) -> Codec:
        """The codec for the bytes of messages with the d of a group: d + 64 bits, or d + 32."""
        if self.groups is None:
            return self
        sizes = self._sizes(0)
        return _Message(sizes[group], sizes[-1], self.norm_bits)

    def lanes(self, wire: Wire) -> int:
        """Few on CPU, where a matrix of the wire each stays in cache; elsewhere what memory has room for."""
        sizes, s = self._sizes(wire.n), self._nonzeros(wire.sparsity)
        columns = sizes[-1] * max(working_sparsity(wire.n, d, s) for d in sizes)
        if backend() != "cpu":
            return max(1, MOST_ELSEWHERE // columns)
        return min(16 if self.shared else 4, max(1, MOST_COLUMNS // columns))

    def check(self, n: int, m: int, sparsity: int) -> None:
        """Raise ValueError for settings out of range; warn where the decoder cannot recover the support."""
        if self.s is not None:
            checks.integer(1, n, "A vector has no more nonzeros than entries.", s=self.s)
        if isinstance(self.d, tuple):
            self._check_each(self.d, m)
        if self.shared and self.ensemble == "hadamard":
            raise ValueError(
                "Expected shared = False with ensemble = 'hadamard', got shared = True. Nothing is stored, so "
                "leave it out."
            )
        for name, number in {"gamma": self.gamma, "margin": self.margin, "eta": self.eta}.items():
            if np.ndim(number):
                checks.shape((m,), "Give one number, or one for every node.", **{name: number})
        checks.integer(0, self._sizes(n)[0], flips=self.flips)
        s = self._nonzeros(sparsity)
        self._warn(n, min(self._sizes(n), key=lambda one: recovery(n, one, s)), s)

    def _check_each(self, d: tuple[int, ...], m: int) -> None:
        checks.shape((m,), "Give one number of measurements, or one for every node.", d=d)
        for i, one in enumerate(d):
            checks.integer(1, None, "", **{f"d[{i}]": one})
        if self.shared:
            raise ValueError(
                "Expected shared = False with one d for every node, got shared = True. Give one d for all nodes, or "
                "leave shared out: then every node has its own matrix."
            )

    def _warn(self, n: int, d: int, s: int) -> None:
        if self.ensemble == "sparse":
            blind = (1 - self.density) ** s
            warnings.warn(
                f"A sparse Phi fails: {blind:.0%} of its measurements contain none of {s} nonzeros with density = "
                f'{self.density:g}. Use ensemble="hadamard", which needs no storage either.',
                stacklevel=6,
            )
            return
        expected = recovery(n, d, s)
        if expected < POOR and not self.side:
            least = int(np.ceil(6.5 * unit(n, d, s)))
            warnings.warn(
                f"With d = {d} signs GPSP recovers about {expected:.0%} of the support of s = {s} nonzeros among "
                f"n = {n} (measured). Use d >= {least} or a smaller s, or side=True.",
                stacklevel=6,
            )

    def draw(self, key: Array, node: Array, n: int, dtype: Any) -> Any:
        """The stored sensing matrices, one per node or one for all, or the rows [d] of the transforms.

        Where the nodes' d differ they are stored for the largest d, next to the groups [m] of the nodes.
        """
        phi, groups = self._phi(key, node, n, dtype), self.groups
        return phi if groups is None else _Several(phi, jnp.asarray(groups, jnp.int32)[node])

    def _phi(self, key: Array, node: Array, n: int, dtype: Any) -> Array | sensing.Sensing | None:
        d = self._sizes(n)[-1]
        if self.ensemble == "hadamard":
            return sensing.hadamard_rows(_MATRIX.of(key), n, d)
        if self.ensemble == "rademacher" and not self.shared:
            return None
        if self.shared:
            return sensing.Shared(self._matrix(_MATRIX.of(key), n, d, dtype))
        return sensing.Stored(jax.vmap(lambda one: self._matrix(one, n, d, dtype))(_MATRIX.keys(key, node)))

    def _matrix(self, key: Array, n: int, d: int, dtype: Any) -> Array:
        """Phi^T [n, d]."""
        if self.ensemble == "rademacher":
            return sensing.signs(key, (n, d), dtype)
        if self.ensemble == "gaussian":
            return jax.random.normal(key, (n, d), dtype)
        places, values = jax.random.split(key)
        there = jax.random.uniform(places, (n, d), jnp.float32) < self.density
        return jnp.where(there, jax.random.normal(values, (n, d), dtype) / np.sqrt(self.density), 0.0)

    def _sensing(self, key: Array, wire: Wire) -> sensing.Sensing:
        """The matrices of the messages with keys [b]."""
        n, d = wire.n, self._sizes(wire.n)[-1]
        drawn = wire.drawn.phi if isinstance(wire.drawn, _Several) else wire.drawn
        if self.ensemble == "hadamard":
            N = sensing.hadamard_size(n)
            flipped = jax.vmap(lambda one: sensing.signs(one, (2, -(-d // N), N), wire.dtype))(key)
            return sensing.double_hadamard(flipped, drawn, n)
        if self.ensemble == "rademacher" and not self.shared:
            return sensing.Stored(jax.vmap(lambda one: self._matrix(one, n, d, wire.dtype))(key))
        return drawn

    def encode(self, key: Array, x: Array, wire: Wire) -> tuple[Array, Array]:
        """The norms ||x|| [b] and signs [b, d] bool: True is +1, False is -1 or, beyond a node's own d, no sign."""
        norm, gamma = jnp.linalg.norm(x, axis=1), _each(self.gamma, len(x), x.dtype)
        if self.norm_bits == 32:
            norm = rounded(norm, "float32")
        positive = self._sensing(key, wire).measure(logarithm(x, gamma)) > 0
        if isinstance(wire.drawn, _Several):
            d = jnp.asarray(self._sizes(wire.n), jnp.int32)[wire.drawn.group]
            positive = positive & (jnp.arange(positive.shape[1], dtype=jnp.int32)[None, :] < d[:, None])
        return norm, positive

    def decode(self, key: Array, payload: tuple[Array, Array], wire: Wire) -> Array:
        """GPSP on the payload ([b] norms, [b, d] signs), logarithm inverted, rescaled [b, n]; zero for norm zero."""
        norm, positive = payload
        b, dtype = len(norm), wire.dtype
        gamma, margin, eta = (_each(number, b, dtype) for number in (self.gamma, self.margin, self.eta))
        found = gpsp(
            self._sensing(key, wire),
            jnp.where(positive, 1.0, -1.0).astype(dtype),
            self._nonzeros(wire.sparsity),
            wire.n,
            flips=self.flips,
            margin=margin,
            eta=eta,
            cap=self.cap,
            start=logarithm(wire.side, gamma) if self.side and wire.side is not None else None,
            sizes=self._sizes(wire.n) if isinstance(wire.drawn, _Several) else (),
            group=wire.drawn.group if isinstance(wire.drawn, _Several) else None,
        )
        v = jnp.abs(found.value)
        scale = exact_scale(v, norm, gamma) if self.inverse == "exact" else jnp.ones_like(norm)
        size = jnp.expm1(v * (scale * jnp.log(gamma))[:, None])
        length = jnp.linalg.norm(size, axis=1)
        size = size * jnp.where(length > 0, norm / jnp.where(length > 0, length, 1.0), 0.0)[:, None]
        lane = jnp.arange(b)[:, None]
        return jnp.zeros((b, wire.n), dtype).at[lane, found.support].set(jnp.sign(found.value) * size, mode="drop")

    def _sizes(self, n: int) -> tuple[int, ...]:
        """The different numbers of measurements, ascending."""
        if isinstance(self.d, tuple):
            return tuple(sorted(set(self.d)))
        return (max(1, n // 2) if self.d is None else self.d,)

    def _nonzeros(self, sparsity: int) -> int:
        return sparsity if self.s is None else self.s

    def layout(self, n: int, sparsity: int | None) -> tuple[Part, Part]:
        """The norm and one bit per measurement: d + 64 bits, or d + 32; ValueError where it depends on the node."""
        if self.groups is not None:
            raise ValueError(
                f"Expected one d for messages of one size, got d = {checks.text(self.d)}. Use codec.of(group) with "
                "the sender's number in codec.groups; where receivers own the matrices, with the receiver's."
            )
        return floats(dtype=f"float{self.norm_bits}", size="norm"), signs(self._sizes(n)[0])


@struct.dataclass
class _Several:
    """What is drawn where the nodes have different numbers of measurements."""

    phi: Any  # for the largest d
    group: Array = struct.field(per_node=True)  # [m] int32, which of the numbers a node has


@struct.dataclass
class _Message(Codec):
    """The bytes of a message with fewer signs than its arrays have room for."""

    d: int = struct.field(pytree_node=False)
    room: int = struct.field(pytree_node=False)
    norm_bits: int = struct.field(pytree_node=False)

    def layout(self, n: int, sparsity: int | None) -> tuple[Part, Part]:
        """The norm and the first d of `room` signs."""
        return floats(dtype=f"float{self.norm_bits}", size="norm"), signs(self.d, self.room)


def _each(number: float | Array, b: int, dtype: Any) -> Array:
    """A number of every message [b]."""
    return jnp.broadcast_to(jnp.asarray(number, dtype), (b,))


def logarithm(x: Array, gamma: Array) -> Array:
    """sign(x) log_gamma(1 + |x|) for x [b, n] and gamma [b] > 1."""
    return jnp.sign(x) * jnp.log1p(jnp.abs(x)) / jnp.log(gamma)[:, None]


def exact_scale(v: Array, norm: Array, gamma: Array) -> Array:
    """The t >= 0 [b] with ||gamma^(t v) - 1|| = norm for v [b, s] >= 0, by bisection (the left side grows with t)."""
    largest = jnp.max(v, axis=1)
    top = jnp.log1p(norm) / (jnp.log(gamma) * jnp.where(largest > 0, largest, 1.0))  # enough for the largest entry

    def halve(_: int, bracket: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bracket
        middle = (low + high) / 2
        short = jnp.linalg.norm(jnp.expm1(v * (middle * jnp.log(gamma))[:, None]), axis=1) < norm
        return jnp.where(short, middle, low), jnp.where(short, high, middle)

    low, high = lax.fori_loop(0, 60 if v.dtype == jnp.float64 else 30, halve, (jnp.zeros_like(top), top))
    return (low + high) / 2
