"""The methods whose rounds are measured on devices and counted in compiled programs, and the sizes."""

from functools import partial
from typing import Any, NamedTuple

import jdfl
from benchmarks.aot import Size

LR, KEPT = 1e-4, 10  # KEPT: the number of largest entries that some methods send
FULL, FEW, WIDE = Size(4096, 1000, 500), Size(4096, 1000, 8), Size(65_536, 1000, 8)
MANY, MOST = Size(1_000_000, 1000, 2), Size(10_000_000, 100, 1)
SIZES, QUICK = (FULL, WIDE, MANY, MOST), Size(1000, 40, 2)


class Method(NamedTuple):
    """A method and its settings, and what its compiled rounds are to reach on an H100."""

    name: str
    settings: Any
    kernels: int = 200
    """Kernels that a round starts at most."""
    traffic: float | None = None
    """Bytes that a round moves at most, over the least; None: its decoder's passes are not in the least."""
    fewest: int = 1
    """Examples of a node; with fewer it is not measured."""


_SOME = jdfl.Gradients(batch=1, clip=1.0, mechanism=jdfl.Gaussian(1.0))
_CEPS = partial(jdfl.CEPS, s=KEPT, rate=0.5, sigma_rule="safe")
METHODS = (
    PLAIN := Method("D-PSGD", jdfl.DPSGD(lr=LR), 25, 1.3),
    BATCH := Method("D-PSGD, batches of 8", jdfl.DPSGD(lr=LR, gradients=jdfl.Gradients(batch=8)), 40, 1.3, 8),
    NOISY := Method("D-PSGD, noise, batches of 1", jdfl.DPSGD(lr=LR, gradients=_SOME), 40, 1.35),
    TRACKING := Method("DSGT", jdfl.DSGT(lr=LR), 40, 1.4),
    PUSHING := Method("push-sum", jdfl.SGP(lr=LR), 25, 1.4),
    CHOCO := Method("CHOCO-SGD, top 10", jdfl.CHOCO(lr=LR, gamma=0.1, codec=jdfl.Sparse(s=KEPT)), 200, 2),
    DOADP := Method("DO-ADP, top 10", jdfl.DOADP(lr=LR, gamma=0.1, codec=jdfl.Sparse(s=KEPT)), 200, 2),
    WHOLE := Method("CEPS, whole vectors", _CEPS(), 200, 4),
    SPARSE := Method("CEPS, sparse", _CEPS(codec=jdfl.Sparse()), 200, 4),
    HADAMARD := Method("CEPS, one-bit, Hadamard", _CEPS(codec=jdfl.OneBit(ensemble="hadamard")), 4000),
    GAUSSIAN := Method("CEPS, one-bit", _CEPS(codec=jdfl.OneBit()), 4000),
)
SPEED = {(NOISY.name, MOST): 50, (CHOCO.name, MANY): 25, (WHOLE.name, MANY): 50, (HADAMARD.name, MANY): 4}  # rounds/s
KERNELS = {  # with own kernels: traffic
    (PLAIN.name, FULL): 0.51,
    (TRACKING.name, FULL): 0.51,
    (CHOCO.name, MANY): 1.8,
    (NOISY.name, MOST): 1.15,
}
FASTER = {(NOISY.name, MOST): 60}  # rounds/s, own kernels
