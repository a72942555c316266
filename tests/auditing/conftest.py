"""Of tests that plant bugs."""

import sys

import jax
import pytest


@pytest.fixture
def fresh():
    """Programs of patched code are neither taken from others nor left to them."""
    forget()
    yield
    forget()


def forget() -> None:
    """Programs of the library's own functions are made anew; those of single operations stay."""
    jitted = type(jax.jit(len))
    modules = [module for name, module in sys.modules.items() if name.startswith("jdfl.")]
    for one in {value for module in modules for value in vars(module).values() if isinstance(value, jitted)}:
        one.clear_cache()
