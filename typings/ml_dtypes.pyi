from typing import Any

class finfo:
    bits: int
    dtype: Any
    eps: Any
    max: Any
    maxexp: int
    min: Any
    nmant: int
    smallest_normal: Any
    tiny: Any
    def __init__(self, dtype: Any) -> None: ...

class iinfo:
    bits: int
    max: int
    min: int
    def __init__(self, dtype: Any) -> None: ...

def __getattr__(name: str) -> Any: ...
