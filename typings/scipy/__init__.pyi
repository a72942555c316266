"""What functions of scipy return, which differs with their arguments, is anything."""

from typing import Any

from scipy import stats as stats  # imported when it is first asked for

def __getattr__(name: str) -> Any: ...
