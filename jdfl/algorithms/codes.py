"""What a method asks of its codec and of messages that are late, before a run."""

import warnings
from dataclasses import replace
from typing import Literal

import jax
import jax.numpy as jnp

from jdfl.algorithms.consequences import consequence
from jdfl.base import arguments
from jdfl.codecs import Codec, Sparse
from jdfl.network.graph import Network
from jdfl.network.tables import called

Codes = Literal["models", "requests", "differences", "replicas", "contracting"]
"""What goes through a codec: models themselves; models that receivers ask for, of any codec; differences to what is
known, with error feedback; differences that replicas follow, whose loss is never made up for; differences that need a
codec which contracts."""
_NEARLY_ALL = 0.99  # of the squared length of a model: what short floats keep


def check_codec(method: str, codec: Codec, codes: Codes, n: int, m: int, sparsity: int) -> None:
    """Raise ValueError for a codec that `method` cannot have, and warn of one that spoils it.

    Refused are what is no codec, settings that make no sense for m nodes and vectors [n] of which `sparsity` entries
    may be nonzero, decoders that need the receiver's parameters, and what does not meet the needs of `codes`. Models
    that are coded themselves are warned of where they change by more than a rounding.
    """
    remedy = "Use Dense() or Sparse(). One of your own inherits from jdfl.codecs.Codec: see docs/own-codec.md."
    arguments.inherits("codec", codec, Codec, "a codec", remedy)
    codec.check(n, m, sparsity)
    if codec.pairwise and codes != "requests":
        raise ValueError(
            f"Expected a codec of {method} whose messages mean the same to every receiver, got codec = {codec!r}. Use "
            "Dense(), Sparse(), or OneBit(side=False)."
        )
    if codes == "models" and _kept(codec, n, sparsity) < _NEARLY_ALL:
        warnings.warn(
            f"{method} sends its models through codec = {codec!r}, which changes them in every round: it needs "
            f"differences or error feedback.{consequence(method, codec)} Use CHOCO-SGD, which sends differences, or "
            "Dense('bfloat16'); Sparse(s=...) only if the models are that sparse.",
            stacklevel=3,
        )
    contracts = codec.contraction(n, n) is not None
    if codes == "contracting" and not contracts:
        raise ValueError(
            f"Expected a codec of {method} that contracts, E ||C(x) - x||^2 <= (1 - delta) ||x||^2 for every x and a "
            f"delta > 0, got codec = {codec!r}, for which no delta is known. Use Sparse(share=0.1), or Dense()."
        )
    if codes == "replicas" and not contracts:
        _check_unbiased(method, codec)


def _check_unbiased(method: str, codec: Codec) -> None:
    if not codec.unbiased:
        raise ValueError(
            f"Expected a codec of {method} that is unbiased, E C(z) = z, or contracts, E ||C(z) - z||^2 < ||z||^2, for "
            f"every z, got codec = {codec!r}, for which neither is known. Use Dense('float16'), or Sparse(share=0.1)."
        )
    warnings.warn(
        f"The variance of {codec!r} may exceed what it sends, and what {method} loses is never made up for: it may "
        f"diverge.{consequence(method, codec)} Use a codec that contracts, such as Sparse(share=0.1), or CHOCO-SGD.",
        stacklevel=4,
    )


def _kept(codec: Codec, n: int, sparsity: int) -> float:
    """The share of ||x||^2 that arrives at worst of vectors x [n] with so many nonzeros; 0 where nothing is known."""
    if isinstance(codec, Sparse) and codec.size(n, sparsity) >= sparsity:
        return replace(codec, s=sparsity, share=None).contraction(sparsity, sparsity)  # zeros arrive as they are
    return codec.contraction(n, sparsity) or 0.0


def refuse_late(method: str, network: Network, needed: str) -> None:
    """Refuse late messages, which `method` takes only if it has what is `needed`: ValueError."""
    if jax.eval_shape(network.at, jnp.int32(0), jax.random.key(0)).late is not None:
        raise ValueError(
            f"Expected a network for {method} whose messages are not late, got {called(network)}. Late messages need "
            f"{needed}."
        )
