"""One-bit compressed sensing of sparse vectors: d signs and one norm (CEPS paper, Algorithm 2)."""

from dataclasses import replace
from typing import Any, ClassVar, Literal

import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array, lax

from jdfl import checks, ops
from jdfl.codecs import packing
from jdfl.codecs.gpsp import gpsp

_MATRIX = 11  # purpose of the sensing matrices' keys


@struct.dataclass
class OneBit:
    """c = sign(Phi x), x = sign(w) log_gamma(1 + |w|), sent with ||w||; GPSP finds x, then w is rebuilt.

    Phi is Gaussian, one per node, drawn in `prepare` and stored (4 n d bytes a node). `inverse` says how w follows
    from the unit vector v: "paper" (Step 6-7) exponentiates v as it is and rescales, which errs by a few per cent even
    when v is perfect, since log_gamma(1 + |w|) was normalised before; "exact" first finds the scale t with
    ||gamma^(t |v|) - 1|| = ||w||, at no extra bits.
    """

    d: int | None = struct.field(pytree_node=False, default=None)  # measurements; None: n // 2
    s: int | None = struct.field(pytree_node=False, default=None)  # nonzeros; None: as many as are known to be there
    gamma: Any = 5.0  # base of the logarithm, > 1; [m] for one per node
    inverse: Literal["exact", "paper"] = struct.field(pytree_node=False, default="exact")
    flips: int = struct.field(pytree_node=False, default=0)  # signs that may be wrong (GPSP's k)
    margin: Any = 0.01  # GPSP's e
    eta: Any = 1e-4  # GPSP's ridge
    cap: int = struct.field(pytree_node=False, default=12)  # most GPSP iterations
    norm_bits: Literal[32, 64] = struct.field(pytree_node=False, default=64)  # the paper sends a double
    matrix: Any = None  # [m, n, d] Phi^T of every node; None: drawn in prepare
    free: ClassVar[bool] = False

    def check(self, n: int, m: int) -> None:
        """Refuse settings out of range."""
        if self.d is not None:
            checks.whole(1, None, "One sign is the least that can be sent.", d=self.d)
        if self.s is not None:
            checks.whole(1, n, "A vector has no more nonzeros than entries.", s=self.s)
        if not np.all(np.isfinite(self.gamma)) or not np.all(np.asarray(self.gamma) > 1):
            raise ValueError(f"Expected gamma > 1, got gamma = {self.gamma!r}. It is the base of a logarithm.")
        checks.positive(margin=self.margin)
        checks.not_negative(eta=self.eta)
        checks.literals(self)
        if self.matrix is not None:
            checks.shape((m, n, self._sizes(n)[1]), "It is Phi^T of every node, [m, n, d].", matrix=self.matrix)
            checks.finite(matrix=self.matrix)
        for name in _PER_NODE:
            if np.ndim(getattr(self, name)):
                checks.shape((m,), "Give one number, or one for every node.", **{name: getattr(self, name)})
        checks.whole(1, cap=self.cap)
        checks.whole(0, self.d if self.d is not None else n // 2, flips=self.flips)

    def prepare(self, key: Array, node: Array, n: int, sparsity: int, dtype: Any) -> "OneBit":
        """Draw every node's sensing matrix from its own key."""
        m, d = node.shape[0], max(1, n // 2) if self.d is None else self.d
        matrix = ops.node_normal(key, _MATRIX, node, (n, d), dtype) if self.matrix is None else self.matrix
        spread = {name: jnp.broadcast_to(jnp.asarray(getattr(self, name), dtype), (m,)) for name in _PER_NODE}
        return replace(self, d=d, s=sparsity if self.s is None else self.s, matrix=matrix, **spread)

    def encode(self, key: Array, x: Array) -> tuple[Array, Array]:
        """Signs [d] bool (True is +1) and the norm ||x|| []."""
        logarithm = jnp.sign(x) * jnp.log1p(jnp.abs(x)) / jnp.log(self.gamma)
        norm = jnp.linalg.norm(x)
        if self.norm_bits == 32:
            norm = norm.astype(jnp.float32).astype(x.dtype)  # as it will be on the wire
        return jnp.dot(logarithm, self.matrix, precision=ops.HIGHEST) > 0, norm

    def decode(self, key: Array, payload: tuple[Array, Array], n: int) -> Array:
        """GPSP, then the inverse of the logarithm, then the norm; the zero vector for norm zero."""
        positive, norm = payload
        assert self.s is not None  # set by prepare
        c = jnp.where(positive, 1.0, -1.0).astype(self.matrix.dtype)
        found = gpsp(self.matrix, c, self.s, flips=self.flips, margin=self.margin, eta=self.eta, cap=self.cap)
        v = jnp.abs(found.value)
        scale = _exact_scale(v, norm, self.gamma) if self.inverse == "exact" else jnp.ones_like(norm)
        size = jnp.expm1(scale * v * jnp.log(self.gamma))
        length = jnp.linalg.norm(size)
        size = size * jnp.where(length > 0, norm / jnp.where(length > 0, length, 1.0), 0.0)
        return jnp.zeros((n,), size.dtype).at[found.support].set(jnp.sign(found.value) * size)

    def _sizes(self, n: int) -> tuple[int, int]:
        return self.norm_bits, max(1, n // 2) if self.d is None else self.d

    def bits(self, n: int) -> int:
        """One bit a measurement and the norm: d + 64 (or d + 32)."""
        return sum(self._sizes(n))

    def pack(self, payload: tuple[Array, Array], n: int) -> bytes:
        """The norm, then the signs."""
        positive, norm = payload
        return packing.join(packing.from_floats(np.asarray(norm)[None], f"float{self.norm_bits}"), np.asarray(positive))

    def unpack(self, data: bytes, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Signs and norm."""
        norm, signs = packing.split(data, *self._sizes(n))
        return signs.astype(bool), packing.to_floats(norm, f"float{self.norm_bits}")[0]


_PER_NODE = ("gamma", "margin", "eta")


def _exact_scale(v: Array, norm: Array, gamma: Array) -> Array:
    """The t >= 0 with ||gamma^(t v) - 1|| = norm for v [s] >= 0, by bisection (the left side grows with t)."""
    largest = jnp.max(v)
    top = jnp.log1p(norm) / (jnp.log(gamma) * jnp.where(largest > 0, largest, 1.0))  # the largest entry alone suffices

    def halve(_: int, bracket: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bracket
        middle = (low + high) / 2
        short = jnp.linalg.norm(jnp.expm1(middle * v * jnp.log(gamma))) < norm
        return jnp.where(short, middle, low), jnp.where(short, high, middle)

    low, high = lax.fori_loop(0, 60 if v.dtype == jnp.float64 else 30, halve, (jnp.zeros_like(top), top))
    return (low + high) / 2
