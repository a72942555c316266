"""Strict settings for every test: no silent rank or dtype promotion, and warnings are errors (pyproject)."""

import os
from pathlib import Path

import hypothesis
import jax
import pytest

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")
hypothesis.settings.register_profile("jdfl", deadline=None, derandomize=True, max_examples=25)
hypothesis.settings.load_profile("jdfl")


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder with the real data sets; the test is skipped where JDFL_DATA does not name one."""
    folder = os.environ.get("JDFL_DATA")
    if not folder:
        pytest.skip("JDFL_DATA is not set: no real data on this machine")
    return Path(folder)
