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
from jdfl.base.settings import Bound, Count, Natural, NotNegative, Positive
from jdfl.base.streams import Stream
from jdfl.codecs import sensing
from jdfl.codecs.base import Codec, Wire
from jdfl.codecs.dense import rounded
from jdfl.codecs.gpsp import gpsp, recovery, unit, working_sparsity
from jdfl.codecs.packing import Part, floats, signs

_MATRIX = Stream("one-bit.sensing matrix", "shared")
POOR = 0.9  # recovery below which `check` warns
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

    `inverse` selects how w follows from the unit vector v. "paper" (Step 6-7) exponentiates v directly and rescales,
    with an error of a few per cent even for a perfect v, because log_gamma(1 + |w|) was normalised before. "exact"
    first finds the scale t with ||gamma^(t |v|) - 1|| = ||w||, without additional bits.
    """

    kind: ClassVar[str] = "one-bit"
    d: Count | None = struct.field(pytree_node=False, default=None)
    """Number of measurements, one bit each; None: n // 2."""
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
    """Maximum number of iterations of the decoder."""
    norm_bits: Literal[32, 64] = struct.field(pytree_node=False, default=64)
    """Bits of the norm."""
    matrix: Array | None = struct.field(per_node=lambda codec: not codec.shared, default=None)
    """Phi^T, [m, n, d], or [n, d] if shared, instead of drawing it."""

    @property
    def pairwise(self) -> bool:
        """With side information every receiver decodes separately."""
        return self.side

    def lanes(self, wire: Wire) -> int:
        """Few on CPU, where a matrix of the wire each stays in cache; unrequested rows fill the last block."""
        wide = 256 if jax.default_backend() != "cpu" else 16 if self.shared else 4
        d, s = self._measurements(wire.n), self._nonzeros(wire.sparsity)
        return min(wide, max(1, MOST_COLUMNS // (d * working_sparsity(wire.n, d, s))))

    def check(self, n: int, m: int, sparsity: int) -> None:
        """Raise ValueError for settings out of range; warn where the decoder cannot recover the support."""
        if self.s is not None:
            checks.whole(1, n, "A vector has no more nonzeros than entries.", s=self.s)
        d = self._measurements(n)
        if self.shared and self.ensemble == "hadamard":
            raise ValueError(
                "Expected shared = False with ensemble = 'hadamard', got shared = True. Nothing is stored, so "
                "leave it out."
            )
        if self.matrix is not None:
            if self.ensemble not in ("gaussian", "sparse"):
                raise ValueError(
                    f"Expected ensemble = 'gaussian' with a matrix of your own, got ensemble = {self.ensemble!r}. Its "
                    "entries should have mean 0 and variance 1."
                )
            wanted = (n, d) if self.shared else (m, n, d)
            checks.shape(wanted, "It is Phi^T, [n, d] if shared, else [m, n, d].", matrix=self.matrix)
            checks.finite(matrix=self.matrix)
        for name, number in {"gamma": self.gamma, "margin": self.margin, "eta": self.eta}.items():
            if np.ndim(number):
                checks.shape((m,), "Give one number, or one for every node.", **{name: number})
        checks.whole(0, d, flips=self.flips)
        self._warn(n, d, self._nonzeros(sparsity))

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

    def draw(self, key: Array, node: Array, n: int, dtype: Any) -> Array | sensing.Sensing | None:
        """The stored sensing matrices, one per node or one for all, or the rows [d] of the transforms."""
        d = self._measurements(n)
        if self.ensemble == "hadamard":
            return sensing.hadamard_rows(_MATRIX.of(key), n, d)
        if self.matrix is not None or (self.ensemble == "rademacher" and not self.shared):
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
        n, d = wire.n, self._measurements(wire.n)
        if self.ensemble == "hadamard":
            N = sensing.hadamard_size(n)
            drawn = jax.vmap(lambda one: sensing.signs(one, (2, -(-d // N), N), wire.dtype))(key)
            return sensing.double_hadamard(drawn, wire.drawn, n)
        if self.ensemble == "rademacher" and not self.shared:
            return sensing.Stored(jax.vmap(lambda one: self._matrix(one, n, d, wire.dtype))(key))
        if self.matrix is not None:
            return sensing.Shared(self.matrix) if self.shared else sensing.Stored(self.matrix)
        return wire.drawn

    def _logarithm(self, x: Array, gamma: Array) -> Array:
        return jnp.sign(x) * jnp.log1p(jnp.abs(x)) / jnp.log(gamma)[:, None]

    def encode(self, key: Array, x: Array, wire: Wire) -> tuple[Array, Array]:
        """The norms ||x|| [b] and signs [b, d] bool (True is +1)."""
        norm, gamma = jnp.linalg.norm(x, axis=1), _each(self.gamma, len(x), x.dtype)
        if self.norm_bits == 32:
            norm = rounded(norm, "float32")
        return norm, self._sensing(key, wire).measure(self._logarithm(x, gamma)) > 0

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
            start=self._logarithm(wire.side, gamma) if self.side and wire.side is not None else None,
        )
        v = jnp.abs(found.value)
        scale = _exact_scale(v, norm, gamma) if self.inverse == "exact" else jnp.ones_like(norm)
        size = jnp.expm1(v * (scale * jnp.log(gamma))[:, None])
        length = jnp.linalg.norm(size, axis=1)
        size = size * jnp.where(length > 0, norm / jnp.where(length > 0, length, 1.0), 0.0)[:, None]
        lane = jnp.arange(b)[:, None]
        return jnp.zeros((b, wire.n), dtype).at[lane, found.support].set(jnp.sign(found.value) * size, mode="drop")

    def _measurements(self, n: int) -> int:
        return max(1, n // 2) if self.d is None else self.d

    def _nonzeros(self, sparsity: int) -> int:
        return sparsity if self.s is None else self.s

    def layout(self, n: int, sparsity: int | None) -> tuple[Part, Part]:
        """The norm and one bit per measurement: d + 64 bits, or d + 32."""
        return floats(dtype=f"float{self.norm_bits}", size="norm"), signs(self._measurements(n))


def _each(number: float | Array, b: int, dtype: Any) -> Array:
    """A number of every message [b]."""
    return jnp.broadcast_to(jnp.asarray(number, dtype), (b,))


def _exact_scale(v: Array, norm: Array, gamma: Array) -> Array:
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
