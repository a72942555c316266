from collections.abc import Callable
from typing import Any, NamedTuple

class GradientTransformation(NamedTuple):
    init: Callable[[Any], Any]
    update: Callable[..., tuple[Any, Any]]

def sgd(learning_rate: Any, momentum: float | None = None, nesterov: bool = False) -> GradientTransformation: ...
def __getattr__(name: str) -> Any: ...
