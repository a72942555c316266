from typing import Any

class types:
    @staticmethod
    def is_numeric_dtype(arr_or_dtype: Any) -> bool: ...
