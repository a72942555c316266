"""The one-bit decoder: support recovered and relative error over signs d, nonzeros s and kinds of sensing matrix.

n = 1000, vectors drawn like Example 1's truth, 64 of them per seed, the exact inverse. The "paper" column holds the
figures of the NumPy study of the decoder (with the paper's inverse), where available. Two densities represent the CEPS
paper's sparse matrices: its text says "0.05 percent", its formula reads as 5 per cent.
"""

import jax
import jax.numpy as jnp
import numpy as np

import jdfl
from experiments.common import Made, Options, Row, bars, experiment, row
from jdfl.codecs import Codec, transmit
from jdfl.codecs.one_bit import recovery

N, COUNT = 1000, 64
KINDS = {
    "gaussian": {},
    "shared gaussian": {"shared": True},
    "rademacher": {"ensemble": "rademacher"},
    "hadamard": {"ensemble": "hadamard"},
    "sparse 5 %": {"ensemble": "sparse", "density": 0.05},
    "sparse 0.05 %": {"ensemble": "sparse", "density": 0.0005},
    "paper's inverse": {"inverse": "paper"},
}
STUDY: dict[tuple[int, int], tuple[float, float | None]] = {  # d, s: support, relative error
    (100, 10): (0.51, 0.85),
    (200, 10): (0.89, 0.28),
    (300, 10): (0.97, 0.14),
    (500, 10): (1.0, 0.07),
    (1000, 10): (1.0, 0.05),
    (500, 20): (0.99, None),
    (500, 50): (0.71, None),
}
SIGNS = (50, 100, 150, 200, 300, 400, 500, 1000)
NONZEROS = (5, 10, 20, 50)


def vectors(s: int, seed: int) -> np.ndarray:
    """Vectors [COUNT, N] with s nonzeros as Example 1 draws its truth."""
    draw = np.random.default_rng(seed)
    rows = np.zeros((COUNT, N), np.float32)
    for one in rows:
        one[draw.choice(N, s, replace=False)] = draw.uniform(0.5, 2, s) * draw.choice([-1, 1], s)
    return rows


@jax.jit
def arrived(codec: Codec, rows: jax.Array, key: jax.Array) -> jax.Array:
    """What receivers decode, with every node sending one row; the codec's own s is that of the rows."""
    node = jnp.arange(COUNT, dtype=jnp.int32)
    wire = codec.prepare(key, node, N, N, rows.dtype)
    return transmit(wire, jax.random.split(key, COUNT), rows, jnp.ones(COUNT, bool))


def quality(kind: str, d: int, s: int, seeds: int) -> list[Row]:
    """One cell: support recovered, relative error and cosine."""
    recovered, errors, cosines = [], [], []
    for seed in range(seeds):
        rows = vectors(s, seed)
        received = np.asarray(arrived(jdfl.OneBit(d=d, s=s, **KINDS[kind]), jnp.asarray(rows), jax.random.key(seed)))
        length, norm = np.linalg.norm(rows, axis=1), np.linalg.norm(received, axis=1)
        recovered.append(float(((received != 0) & (rows != 0)).sum() / (COUNT * s)))
        errors.append(float((np.linalg.norm(received - rows, axis=1) / length).mean()))
        cosines.append(float(((received * rows).sum(axis=1) / np.maximum(norm * length, 1e-12)).mean()))
    name = f"{kind} d={d} s={s}"
    known = STUDY.get((d, s), (None, None)) if kind == "paper's inverse" else (None, None)
    return [
        row(name, "support", known[0], recovered),
        row(name, "relative error", known[1], errors),
        row(name, "cosine", None, cosines),
        row(name, "d / (s ln(n/s))", None, [d / (s * np.log(N / s))]),
        row(name, "announced", None, [recovery(N, d, s)]),
    ]


def collect(quick: bool, seeds: int) -> list[Row]:
    """Kinds at d = 500, s = 10; Gaussian matrices over d and s; the study's cells."""
    signs, nonzeros = ((200, 500), (10,)) if quick else (SIGNS, NONZEROS)
    cells = [(kind, 500, 10) for kind in KINDS]
    cells += [(kind, d, s) for kind in ("gaussian", "hadamard") for s in nonzeros for d in signs]
    cells += [("paper's inverse", d, s) for d, s in STUDY if not quick or d in signs]
    return [one for cell in dict.fromkeys(cells) for one in quality(*cell, seeds)]


@experiment(seeds=3)
def main(chosen: Options) -> Made:
    """All cells, or those at d = 200 and 500 with `--quick`."""
    rows = collect(chosen.quick, chosen.seeds)
    return Made(
        {"GPSP, n = 1000": rows}, bars(rows, ["support"], "share of the support that is recovered", marks="announced")
    )
