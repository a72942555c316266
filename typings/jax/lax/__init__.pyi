"""The functions of `jax.lax` that take functions, or whose parameters jax leaves without types."""

from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar, overload

from jax import Array
from jax._src.lax.convolution import conv_general_dilated as conv_general_dilated
from jax._src.lax.lax import DotDimensionNumbers as DotDimensionNumbers
from jax._src.lax.lax import Precision as Precision
from jax._src.lax.lax import PrecisionLike as PrecisionLike
from jax._src.lax.lax import bitcast_convert_type as bitcast_convert_type
from jax._src.lax.lax import clz as clz
from jax._src.lax.lax import iota as iota
from jax._src.lax.lax import padtype_to_pads as padtype_to_pads
from jax._src.lax.lax import reduce as reduce
from jax._src.lax.lax import reduce_precision as reduce_precision
from jax._src.lax.lax import split as split
from jax._src.lax.lax import stop_gradient as stop_gradient
from jax._src.lax.lax import top_k as top_k
from jax._src.lax.parallel import axis_index as axis_index
from jax._src.lax.slicing import dynamic_slice as dynamic_slice
from jax._src.lax.slicing import dynamic_slice_in_dim as dynamic_slice_in_dim
from jax._src.lax.slicing import dynamic_update_slice_in_dim as dynamic_update_slice_in_dim
from jax.typing import ArrayLike, DTypeLike

T = TypeVar("T")
Y = TypeVar("Y")

def map(f: Callable[[Any], Y], xs: Any, *, batch_size: int | None = None) -> Y: ...
def scan(
    f: Callable[[T, Any], tuple[T, Y]],
    init: T,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
) -> tuple[T, Y]: ...
def fori_loop(
    lower: ArrayLike,
    upper: ArrayLike,
    body_fun: Callable[[Any, T], T],
    init_val: T,
    *,
    unroll: int | bool | None = None,
) -> T: ...
def while_loop(cond_fun: Callable[[T], ArrayLike], body_fun: Callable[[T], T], init_val: T) -> T: ...
@overload
def cond(pred: ArrayLike, true_fun: Callable[[Any], T], false_fun: Callable[[Any], T], a: Any, /) -> T: ...
@overload
def cond(
    pred: ArrayLike, true_fun: Callable[[Any, Any], T], false_fun: Callable[[Any, Any], T], a: Any, b: Any, /
) -> T: ...
@overload
def cond(pred: ArrayLike, true_fun: Callable[..., T], false_fun: Callable[..., T], *operands: Any) -> T: ...
def optimization_barrier(operand: T, /) -> T: ...
def broadcasted_iota(dtype: DTypeLike, shape: Sequence[int], dimension: int) -> Array: ...
def dot_general(
    lhs: ArrayLike,
    rhs: ArrayLike,
    dimension_numbers: DotDimensionNumbers,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
) -> Array: ...
def all_gather(x: Array, axis_name: Hashable, *, tiled: bool = False) -> Array: ...
def psum(x: Array, axis_name: Hashable) -> Array: ...
def pmax(x: Array, axis_name: Hashable) -> Array: ...
def pmin(x: Array, axis_name: Hashable) -> Array: ...
def psum_scatter(x: Array, axis_name: Hashable, *, tiled: bool = False) -> Array: ...
def ppermute(x: Array, axis_name: Hashable, perm: Sequence[tuple[int, int]]) -> Array: ...
def __getattr__(name: str) -> Any: ...
