"""One-bit compressed sensing of sparse vectors: d signs and one norm (CEPS paper, Algorithm 2).

Signs of random measurements tell a sparse vector up to its length: P. T. Boufounos, R. G. Baraniuk: 1-Bit Compressive
Sensing, 2008. Sending the norm, the logarithm before and its inverse after are the CEPS paper's.
"""

import warnings
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jdfl.base import checks, struct
from jdfl.base.settings import Bound, Count, Filled, Natural, NotNegative, Positive
from jdfl.base.streams import Stream
from jdfl.codecs import packing, sensing
from jdfl.codecs.dense import rounded
from jdfl.codecs.gpsp import gpsp, working_sparsity
from jdfl.codecs.recovery import recovery, unit

_MATRIX = Stream("one-bit.sensing matrix", "shared")
POOR = 0.9  # recovery below which `check` warns
MOST_COLUMNS = 2**24  # numbers that the columns gathered for messages side by side may take, 64 MB


@struct.dataclass
class OneBit:
    """One sign per measurement and one norm; the receiver decodes by GPSP.

    c = sign(Phi x), x = sign(w) log_gamma(1 + |w|), sent with ||w||; GPSP finds x, then w is rebuilt.

    Phi comes from `ensemble` (see `jdfl.codecs.sensing`). "gaussian" is stored, 4 n d bytes a node, or once for all
    nodes if `shared`; it stays the same for a whole run, so a vector that it fails on is failed on again. "rademacher"
    (unless shared) and "hadamard" come anew from the key of every message and need no storage; "hadamard" never exists
    as a matrix. "sparse", which the paper suggests for its cost, has a share `density` of nonzeros and fails: most
    measurements see none of x. With `side` the decoder starts from the parameters that the receiver has itself, so that
    d may be much smaller; then every receiver decodes on its own.

    `inverse` says how w follows from the unit vector v: "paper" (Step 6-7) exponentiates v as it is and rescales, which
    errs by a few per cent even when v is perfect, since log_gamma(1 + |w|) was normalised before; "exact" first finds
    the scale t with ||gamma^(t |v|) - 1|| = ||w||, at no extra bits.
    """

    kind: ClassVar[str] = "one-bit"
    d: Count | None = struct.field(pytree_node=False, default=None)
    """Number of measurements, one bit each; None: n // 2."""
    s: Count | None = struct.field(pytree_node=False, default=None)
    """Nonzeros that the decoder looks for; None: those of the algorithm."""
    gamma: Annotated[float | Array, Bound("(1, inf)")] = struct.field(per_node=True, default=5.0)
    """Base of the logarithm that evens out the magnitudes, > 1."""
    inverse: Literal["exact", "paper"] = struct.field(pytree_node=False, default="exact")
    """How the logarithm is undone: at the right scale, or as the paper's Algorithm 2 prints it."""
    ensemble: sensing.Ensemble = struct.field(pytree_node=False, default="gaussian")
    """How sensing matrices are made: gaussian is stored, rademacher and hadamard come from keys, sparse fails."""
    shared: bool = struct.field(pytree_node=False, default=False)
    """One sensing matrix for all nodes instead of one for each."""
    density: Annotated[float, Bound("(0, 1]")] = struct.field(pytree_node=False, default=0.05)
    """Share of nonzeros of sparse sensing matrices."""
    side: bool = struct.field(pytree_node=False, default=False)
    """The decoder starts from the receiver's own parameters, so that d may be much smaller."""
    flips: Natural = struct.field(pytree_node=False, default=0)
    """Signs that the decoder may take for wrong."""
    margin: Positive = struct.field(per_node=True, default=0.01)
    """The decoder's margin (GPSP's e)."""
    eta: NotNegative = struct.field(per_node=True, default=1e-4)
    """The decoder's ridge."""
    cap: Count = struct.field(pytree_node=False, default=12)
    """Most iterations of the decoder."""
    norm_bits: Literal[32, 64] = struct.field(pytree_node=False, default=64)
    """Bits of the norm."""
    matrix: Array | None = struct.field(per_node=lambda codec: not codec.shared, default=None)
    """Phi^T, [m, n, d], or [n, d] if shared, instead of drawing it."""
    order: Filled[Any] = None
    """Rows [d] of the Hadamard transforms, from `prepare`."""
    free: ClassVar[bool] = False

    @property
    def pairwise(self) -> bool:
        """With side information every receiver decodes on its own."""
        return self.side

    @property
    def unbiased(self) -> bool:
        """GPSP keeps s entries, whatever the vector has."""
        return False

    def contraction(self, n: int, sparsity: int) -> None:
        """None: the norm is kept, so a wrong direction errs by up to 4 ||x||^2, and dense vectors have no right one."""

    def lanes(self, n: int) -> int:
        """Few on CPU, where a matrix of each stays in cache; rows that nobody asked for fill up the last block."""
        wide = 256 if jax.default_backend() != "cpu" else 16 if self.shared else 4
        d = self._sizes(n)[1]
        return min(wide, max(1, MOST_COLUMNS // (d * working_sparsity(n, d, self.s or 1))))

    def check(self, n: int, m: int, sparsity: int) -> None:
        """Refuse settings out of range; warn where the decoder cannot recover what it is asked for."""
        if self.s is not None:
            checks.whole(1, n, "A vector has no more nonzeros than entries.", s=self.s)
        d = self._sizes(n)[1]
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
        for name in _PER_NODE:
            if np.ndim(getattr(self, name)):
                checks.shape((m,), "Give one number, or one for every node.", **{name: getattr(self, name)})
        checks.whole(0, d, flips=self.flips)
        self._warn(n, d, sparsity if self.s is None else self.s)

    def _warn(self, n: int, d: int, s: int) -> None:
        if self.ensemble == "sparse":
            blind = (1 - self.density) ** s
            warnings.warn(
                f"A sparse Phi fails: {blind:.0%} of its measurements see none of {s} nonzeros with density = "
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

    def prepare(self, key: Array, node: Array, n: int, sparsity: int, dtype: Any) -> "OneBit":
        """Draw the sensing matrices that are stored: every node's own, or one for all."""
        m, d = node.shape[0], self._sizes(n)[1]
        matrix, order = self.matrix, None
        if matrix is None and self.shared:
            matrix = self._draw(_MATRIX.of(key), n, d, dtype)
        elif matrix is None and self.ensemble in ("gaussian", "sparse"):
            matrix = jax.vmap(lambda one: self._draw(one, n, d, dtype))(_MATRIX.keys(key, node))
        if self.ensemble == "hadamard":
            order = sensing.hadamard_rows(_MATRIX.of(key), n, d)
        spread = {name: jnp.broadcast_to(jnp.asarray(getattr(self, name), dtype), (m,)) for name in _PER_NODE}
        s = sparsity if self.s is None else self.s
        return replace(self, d=d, s=s, matrix=matrix, order=order, **spread)

    def _draw(self, key: Array, n: int, d: int, dtype: Any) -> Array:
        """Phi^T [n, d]."""
        if self.ensemble == "rademacher":
            return sensing.signs(key, (n, d), dtype)
        if self.ensemble == "gaussian":
            return jax.random.normal(key, (n, d), dtype)
        places, values = jax.random.split(key)
        there = jax.random.uniform(places, (n, d), jnp.float32) < self.density
        return jnp.where(there, jax.random.normal(values, (n, d), dtype) / np.sqrt(self.density), 0.0)

    def rows(self, i: Array) -> "OneBit":
        """What belongs to the nodes i [b]; what is shared stays."""
        own = {name: getattr(self, name)[i] for name in _PER_NODE}
        if self.matrix is not None and not self.shared:
            own["matrix"] = self.matrix[i]
        return replace(self, **own)

    def _sensing(self, key: Array, n: int, dtype: Any) -> sensing.Sensing:
        """The matrices of the messages with keys [b]."""
        if self.matrix is not None:
            return sensing.Shared(self.matrix) if self.shared else sensing.Stored(self.matrix)
        assert self.d is not None  # set by prepare
        N = sensing.hadamard_size(n)
        shape = (n, self.d) if self.ensemble == "rademacher" else (2, -(-self.d // N), N)
        drawn = jax.vmap(lambda one: sensing.signs(one, shape, dtype))(key)
        return sensing.Stored(drawn) if self.ensemble == "rademacher" else sensing.double_hadamard(drawn, self.order, n)

    def _logarithm(self, x: Array) -> Array:
        return jnp.sign(x) * jnp.log1p(jnp.abs(x)) / jnp.log(self.gamma)[:, None]

    def encode(self, key: Array, x: Array) -> tuple[Array, Array]:
        """Signs [b, d] bool (True is +1) and the norms ||x|| [b]."""
        norm = jnp.linalg.norm(x, axis=1)
        if self.norm_bits == 32:
            norm = rounded(norm, "float32")
        return self._sensing(key, x.shape[1], x.dtype).measure(self._logarithm(x)) > 0, norm

    def decode(self, key: Array, payload: tuple[Array, Array], n: int, side: Array | None = None) -> Array:
        """GPSP on the payload ([b, d] signs, [b] norms), the inverse of the logarithm, the norm; zero for norm zero."""
        positive, norm = payload
        assert self.s is not None  # set by prepare
        b, dtype = positive.shape[0], jnp.result_type(self.margin)
        found = gpsp(
            self._sensing(key, n, dtype),
            jnp.where(positive, 1.0, -1.0).astype(dtype),
            self.s,
            n,
            flips=self.flips,
            margin=self.margin,
            eta=self.eta,
            cap=self.cap,
            start=self._logarithm(side) if self.side and side is not None else None,
        )
        v = jnp.abs(found.value)
        scale = _exact_scale(v, norm, jnp.asarray(self.gamma)) if self.inverse == "exact" else jnp.ones_like(norm)
        size = jnp.expm1(v * (scale * jnp.log(self.gamma))[:, None])
        length = jnp.linalg.norm(size, axis=1)
        size = size * jnp.where(length > 0, norm / jnp.where(length > 0, length, 1.0), 0.0)[:, None]
        lane = jnp.arange(b)[:, None]
        return jnp.zeros((b, n), dtype).at[lane, found.support].set(jnp.sign(found.value) * size, mode="drop")

    def _sizes(self, n: int) -> tuple[int, int]:
        return self.norm_bits, max(1, n // 2) if self.d is None else self.d

    def bits(self, n: int) -> int:
        """One bit a measurement and the norm: d + 64 (or d + 32)."""
        return sum(self._sizes(n))

    def pack(self, payload: tuple[Array, Array], n: int) -> bytes:
        """The norm, then the signs, of the payload ([d], [])."""
        positive, norm = (np.asarray(part) for part in payload)
        checks.shape(self._sizes(n)[1:], "Pack one message at a time.", signs=positive)
        return packing.join(packing.from_floats(norm[None], f"float{self.norm_bits}"), positive)

    def unpack(self, data: bytes, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Signs [d] and norm []."""
        bits, signs = packing.split(data, *self._sizes(n))
        norm = packing.to_floats(bits, f"float{self.norm_bits}")[0]
        if not norm >= 0:
            raise ValueError(f"Expected a norm >= 0 in a message, got {norm}. {packing.DAMAGED}")
        return signs.astype(bool), norm


_PER_NODE = ("gamma", "margin", "eta")


def _exact_scale(v: Array, norm: Array, gamma: Array) -> Array:
    """The t >= 0 [b] with ||gamma^(t v) - 1|| = norm for v [b, s] >= 0, by bisection (the left side grows with t)."""
    largest = jnp.max(v, axis=1)
    top = jnp.log1p(norm) / (jnp.log(gamma) * jnp.where(largest > 0, largest, 1.0))  # the largest entry alone suffices

    def halve(_: int, bracket: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bracket
        middle = (low + high) / 2
        short = jnp.linalg.norm(jnp.expm1(v * (middle * jnp.log(gamma))[:, None]), axis=1) < norm
        return jnp.where(short, middle, low), jnp.where(short, high, middle)

    low, high = lax.fori_loop(0, 60 if v.dtype == jnp.float64 else 30, halve, (jnp.zeros_like(top), top))
    return (low + high) / 2
