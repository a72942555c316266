"""Of tests that plant bugs."""

import jax
import pytest


@pytest.fixture
def fresh():
    """Programs of patched code are neither taken from others nor left to them."""
    jax.clear_caches()
    yield
    jax.clear_caches()
