"""Programs compiled for devices that are not there: methods keep their counts.

They need the compilers, `pip install 'jdfl[cuda]'` or `'jdfl[tpu]'`, each in an environment of its own.
"""

import subprocess
import sys
from importlib.util import find_spec

import pytest

from benchmarks import aot
from tests.refused import refused

PACKAGES = {"h100": "jax_cuda13_plugin", "v5e": "libtpu"}


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("target", PACKAGES)
def test_registered_methods_keep_their_counts(target):
    if find_spec(PACKAGES[target]) is None:
        pytest.skip(f"{PACKAGES[target]} is not installed")
    command = [sys.executable, "-m", "benchmarks.roofline", "--registered", "--target", target]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # before JAX is used
    assert done.returncode == 0, done.stderr[-3000:]


def test_a_size_without_room_is_refused_with_one_that_fits():
    with refused(aot.TooLargeError, "m <= 500", "m = 1,000"):
        aot._check_room(aot.H100, 1000, 160e9)
    aot._check_room(aot.H100, 1000, 80e9)
