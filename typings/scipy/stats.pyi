from typing import Any

beta: Any
norm: Any

def rankdata(a: Any) -> Any: ...
def __getattr__(name: str) -> Any: ...
