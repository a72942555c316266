"""The sparse least squares of the CEPS paper's Example 1.

S. Sha, S. Zhou, L. Kong, G. Y. Li, "Sparse Decentralized Federated Learning" (CEPS), section V.A.
Axes: m nodes, q examples per node (padded with weight 0), n parameters.
"""

from typing import Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import DTypeLike

from jdfl import checks, ops, struct
from jdfl.arguments import checked
from jdfl.devices import memory
from jdfl.devices.processes import portion
from jdfl.problems.drawn import drawn_regression
from jdfl.problems.joined import joined
from jdfl.problems.linear import LinearRegression, build
from jdfl.problems.stack import floating

Storage = Literal["stored", "generated"]
_MOST = 2**31 - 1  # nodes, parameters and examples of a node: they are numbered in int32


@struct.dataclass
class _Draw:
    """One example: standard normal features, and what w* makes of them with noise."""

    truth: Array  # [n]
    noise: Array  # []

    def __call__(self, key: Array) -> tuple[Array, Array]:
        n = self.truth.shape[0]
        drawn = jax.random.normal(key, (n + 1,), self.truth.dtype)
        return drawn[:n], jnp.dot(drawn[:n], self.truth, precision=ops.HIGHEST) + self.noise * drawn[n]


@checked
def example1(
    m: int = 32,
    n: int = 1000,
    s: int = 10,
    rows: tuple[int, int] = (250, 750),
    noise: float = 0.5,
    seed: int = 0,
    dtype: DTypeLike = jnp.float32,
    storage: Storage = "stored",
) -> LinearRegression:
    """Example 1 of the CEPS paper (section V.A): b_i = A_i w* + noise e_i, A_i and e_i standard normal.

    Node i holds m_i examples, m_i uniform on the whole numbers of `rows` (both ends included); w* has `s` nonzeros at
    random places, uniform on [-2, -0.5] and [0.5, 2]. q is always rows[1], so that instances of different seeds share
    shapes and compiled code. Drawn on the host, in float32 for every dtype; w* and node i's data depend on the seed
    only, not on m. f(w*) is about noise^2 / 2.

    With `storage="generated"` the examples are drawn on the device whenever they are looked at, in `dtype`, and only
    their weights are stored: 4 bytes an example instead of 4 n. Everything but w* is another draw than the stored one.

    Raises ValueError for settings out of range.
    """
    kind = floating(dtype)
    checks.one_of(get_args(Storage), storage=storage)
    checks.whole(1, _MOST, m=m, n=n)
    checks.whole(least=1, most=n, s=s)
    checks.not_negative(noise=noise)
    low, high = rows
    checks.whole(remedy="rows = (fewest, largest).", fewest=low)
    checks.whole(low, _MOST, remedy="rows = (fewest, largest).", largest=high)
    checks.whole(0, seed=seed)
    _require_memory(m, high, n, 0 if storage == "generated" else n + 1, kind.itemsize)
    own, *nodes = np.random.SeedSequence(seed).spawn(2 if storage == "generated" else m + 1)
    first = np.random.default_rng(own)

    truth = np.zeros(n)
    places = first.choice(n, size=s, replace=False)
    truth[places] = first.uniform(0.5, 2.0, size=s) * first.choice([-1.0, 1.0], size=s)

    if storage == "generated":
        checks.whole(0, 2**32 - 1, seed=seed)
        draw = _Draw(jnp.array(truth, kind), jnp.asarray(noise, kind))
        sizes = np.random.default_rng(nodes[0]).integers(low, high, endpoint=True, size=m)
        return drawn_regression(draw, sizes, key=seed, truth=truth, rows=high, name="example1", dtype=kind)

    here = portion(m)
    A, b, weight = (np.zeros((len(here), high, *more), kind) for more in ((n,), (), ()))
    for i, node in enumerate(here):
        rng = np.random.default_rng(nodes[int(node)])
        m_i = int(rng.integers(low, high, endpoint=True))
        A_i = rng.standard_normal((m_i, n), np.float32)
        A[i, :m_i] = A_i
        b[i, :m_i] = A_i[:, places].astype(np.float64) @ truth[places] + noise * rng.standard_normal(m_i, np.float32)
        weight[i, :m_i] = 1
    return joined(build((A, b), weight, truth, None, "example1", kind), m)


def _require_memory(m: int, rows: int, n: int, each: int, size: int) -> None:
    """Refuse data that would not fit, with `each` numbers of `size` bytes beside an example's weight: ValueError."""
    room, node = memory.available(), rows * (each + 1) * size
    held = -(-m // jax.process_count())
    needed = {f"{held} x {rows} examples of {each + 1} numbers": held * node, f"{n} true parameters": 8 * n}
    most = 0 if room is None else (room - 8 * n) // node
    memory.require(needed, most, m, "Use fewer nodes, rows or parameters.", room)
