"""`jax.tree_util` with paths that may be anything."""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from jax._src.tree_util import GetAttrKey as GetAttrKey
from jax._src.tree_util import Partial as Partial
from jax._src.tree_util import PyTreeDef as PyTreeDef

T = TypeVar("T")

def keystr(keys: Any, *, simple: bool = False, separator: str = "") -> str: ...
def tree_leaves_with_path(tree: Any, is_leaf: Callable[..., bool] | None = None) -> list[tuple[Any, Any]]: ...
def register_pytree_with_keys(
    nodetype: type[T],
    flatten_with_keys: Callable[[T], tuple[Iterable[tuple[Any, Any]], Any]],
    unflatten_func: Callable[[Any, Iterable[Any]], T],
    flatten_func: Callable[[T], tuple[Iterable[Any], Any]] | None = None,
) -> None: ...
def register_dataclass(nodetype: type[T], data_fields: Any = None, meta_fields: Any = None) -> type[T]: ...
def __getattr__(name: str) -> Any: ...
