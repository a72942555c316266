from collections.abc import Callable
from typing import Any

import numpy as np

class OptimizeResult:
    x: Any
    fun: Any
    success: bool
    message: str

class RootResults:
    root: float
    converged: bool

def brentq(f: Callable[[float], float], a: float, b: float, **options: Any) -> float: ...
def root_scalar(f: Callable[[float], float], **options: Any) -> RootResults: ...
def minimize_scalar(fun: Callable[[float], float], **options: Any) -> OptimizeResult: ...
def minimize(fun: Callable[[np.ndarray], Any], x0: np.ndarray, **options: Any) -> OptimizeResult: ...
