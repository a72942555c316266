"""Checks before a run of what a method requires of its codec and of delayed messages."""

import warnings
from dataclasses import replace
from typing import Any, Literal

import jax
import jax.numpy as jnp

from jdfl.algorithms.consequences import consequence
from jdfl.base import arguments
from jdfl.codecs import Codec, Dense, Sparse
from jdfl.network.graph import Network
from jdfl.network.tables import called

Codes = Literal["models", "requests", "differences", "replicas", "contracting", "slow copies", "unbiased"]
"""What goes through a codec: models themselves; models that receivers request, with any codec; differences with error
feedback; differences that replicas follow, whose loss is never made up for; vectors that need a codec with a
contraction factor; differences from copies that move by a fraction of them, which need a codec that is unbiased or
contracts; vectors whose errors average out, which need an unbiased codec."""
_NEARLY_ALL = 0.99  # of the squared norm of a model: what short floats keep


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
            f"differences or error feedback.{consequence(method, codec)} Use CHOCO-SGD, which sends differences, or "
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
    if codes in ("replicas", "slow copies") and not contracts:
        _check_unbiased(method, codec, codes)


def sends_dense(algorithm: Any) -> bool:
    """Whether a method that exists to send compressed messages was given a codec that sends everything."""
    codes = getattr(algorithm, "codes", "models")
    return codes not in ("models", "requests") and isinstance(getattr(algorithm, "codec", None), Dense)


def _check_unbiased(method: str, codec: Codec, codes: Codes) -> None:
    if not codec.unbiased:
        raise ValueError(
            f"Expected a codec for {method} that is unbiased, E C(z) = z, or contracts, E ||C(z) - z||^2 < ||z||^2, "
            f"for every z, got codec = {codec!r}, for which neither is known. Use Dense('float16'), Sparse(share=0.1)."
        )
    if codes == "slow copies":  # a small fraction makes up for the variance
        return
    warnings.warn(
        f"The variance of {codec!r} may exceed the vector it sends, and what {method} loses is never made up for: it "
        f"may diverge.{consequence(method, codec)} Use a codec that contracts, e.g. Sparse(share=0.1), or CHOCO-SGD.",
        stacklevel=4,
    )


def _kept(codec: Codec, n: int, sparsity: int) -> float:
    """The worst-case fraction of ||x||^2 that is kept of vectors x [n] with `sparsity` nonzeros; 0 where unknown."""
    if isinstance(codec, Sparse) and codec.size(n, sparsity) >= sparsity:
        return replace(codec, s=sparsity, share=None).contraction(sparsity, sparsity)  # zeros arrive as they are
    return codec.contraction(n, sparsity) or 0.0


def refuse_late(method: str, network: Network, needed: str) -> None:
    """Raise ValueError for a network with delayed messages, which `method` accepts only with what is `needed`."""
    if jax.eval_shape(network.at, jnp.int32(0), jax.random.key(0)).late is not None:
        raise ValueError(
            f"Expected a network without delayed messages for {method}, got {called(network)}. Delayed messages need "
            f"{needed}."
        )
