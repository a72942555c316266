"""Programs compiled for devices that are not there: methods keep their counts, nodes exchange what they need.

They need the compilers, `pip install 'jdfl[cuda]'` or `'jdfl[tpu]'`, each in an environment of its own.
"""

import subprocess
import sys
from importlib.util import find_spec

import pytest

from benchmarks import aot
from tests.refused import refused

PACKAGES = {"h100": "jax_cuda13_plugin", "v5e": "libtpu"}


def needs(target):
    return pytest.mark.skipif(find_spec(PACKAGES[target]) is None, reason=f"{PACKAGES[target]} is not installed")


def python(*words):
    """The output of a process of its own: the target is settled before JAX is used."""
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("target", [pytest.param(name, marks=needs(name)) for name in PACKAGES])
def test_registered_methods_keep_their_counts(target):
    python("-m", "benchmarks.roofline", "--registered", "--target", target)


def test_a_size_without_room_is_refused_with_one_that_fits():
    with refused(aot.TooLargeError, "m <= 500", "m = 1,000"):
        aot._check_room(aot.H100, 1000, 160e9)
    aot._check_room(aot.H100, 1000, 80e9)


MEASURED = """
from benchmarks import aot, methods, shared, together
aot.environment()
size = aot.Size(8 * shared.FEW, 100, 1)  # the lists of a network as it is
print(together.counted(methods.NOISY, size, shared.RANDOM).ratio)
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
@needs("h100")
def test_devices_exchange_the_halo_and_no_more():
    assert 1 <= float(python("-c", MEASURED).splitlines()[-1]) <= 1.1
