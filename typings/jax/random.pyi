from typing import Any

from jax import Array
from jax._src.random import *

def wrap_key_data(key_bits_array: Any, *, impl: Any = None) -> Array: ...
