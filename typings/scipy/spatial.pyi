from typing import Any

import numpy as np

class KDTree:
    def __init__(self, data: np.ndarray) -> None: ...
    def query_pairs(self, r: float, output_type: str = "set") -> Any: ...
