"""Every message format in the full loop of CEPS: bytes per message against error, rounds and objective.

Example 1 with m = 32, n = 1000, s = 10, r = 0.2, no noise, until the nodes agree by the paper's rule. The relative
error is that of a single message whose vector is drawn like Example 1's truth; d is the number of signs of a one-bit
message. "side" means that the decoder starts from the receiver's own parameters (the error is that of a decoder without
them). The "paper" column holds the bytes of the study that this table repeats, where available, and the paper's rounds.
"""

import warnings

import jax
import jax.numpy as jnp
import numpy as np

import jdfl
from experiments.ceps_table3 import CASES, run_variant
from experiments.common import Made, Options, Row, bars, experiment, row
from experiments.gpsp_quality import arrived, vectors
from jdfl.codecs import Codec

S = 10  # nonzeros
DENSE = {f"dense {kind}": jdfl.Dense(kind) for kind in ("float32", "float16", "bfloat16")}
SPARSE = {
    f"sparse {value}, {index}": jdfl.Sparse(value=value, index=index)
    for value in ("float32", "float16", "int8", "int4")
    for index in ("plain", "enumerative")
}
ONE_BIT = {
    "one-bit d=500, paper's inverse": jdfl.OneBit(d=500, inverse="paper"),
    "one-bit d=500": jdfl.OneBit(d=500),
    "one-bit d=500, shared Phi": jdfl.OneBit(d=500, shared=True),
    "one-bit d=500, Rademacher": jdfl.OneBit(d=500, ensemble="rademacher"),
    "one-bit d=500, Hadamard": jdfl.OneBit(d=500, ensemble="hadamard"),
    "one-bit d=500, sparse Phi 5 %": jdfl.OneBit(d=500, ensemble="sparse"),
    "one-bit d=300": jdfl.OneBit(d=300),
    "one-bit d=300, Hadamard": jdfl.OneBit(d=300, ensemble="hadamard"),
    "one-bit d=300, side": jdfl.OneBit(d=300, side=True),
    "one-bit d=150": jdfl.OneBit(d=150),
    "one-bit d=150, side": jdfl.OneBit(d=150, side=True),
    "one-bit d=150, side, Hadamard": jdfl.OneBit(d=150, ensemble="hadamard", side=True),
    "one-bit d=100, side": jdfl.OneBit(d=100, side=True),
}
ALL: dict[str, Codec] = {**DENSE, **SPARSE, **ONE_BIT}
QUICK = (
    "dense float32",
    "sparse int8, enumerative",
    "one-bit d=300",
    "one-bit d=300, Hadamard",
    "one-bit d=300, side",
    "one-bit d=150, side",
)
STUDY_BYTES = {
    "one-bit d=500": 70.5,
    "sparse float32, enumerative": 49.8,
    "sparse float16, enumerative": 29.8,
    "sparse int8, enumerative": 23.8,
    "sparse int4, enumerative": 18.8,
    "one-bit d=150, side": 26.8,
}


def error(codec: Codec, seed: int) -> float:
    rows = vectors(S, seed)
    sized = codec if isinstance(codec, jdfl.Dense) else codec.replace(s=S)  # pyright: ignore[reportAttributeAccessIssue]
    received = np.asarray(arrived(sized, jnp.asarray(rows), jax.random.key(seed)))
    return float((np.linalg.norm(received - rows, axis=1) / np.linalg.norm(rows, axis=1)).mean())


def collect(codecs: dict[str, Codec], seeds: int) -> list[Row]:
    problems = [jdfl.problems.example1(m=32, seed=seed) for seed in range(seeds)]
    rows: list[Row] = []
    for name, codec in codecs.items():
        variant, v = ("NoDP-1BCS", 1) if isinstance(codec, jdfl.OneBit) else ("NoDP-Perf", 3)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="With d = |A sparse Phi")  # the table shows the effect
            results = [run_variant(CASES[0], variant, seed, problems[seed], codec=codec) for seed in range(seeds)]
        size = [result.totals.message_bits["model"] / 8 for result in results]
        rows += [
            row(name, "bytes per message", STUDY_BYTES.get(name), size),
            row(name, "relative error", None, [error(codec, seed) for seed in range(seeds)]),
            row(name, "rounds", CASES[0].rounds[v], [result.rounds for result in results]),
            row(name, "objective", CASES[0].objective[v], [result.final["objective"] for result in results]),
            row(name, "total kB", None, [result.totals.bytes / 1e3 for result in results]),
            row(name, "agreed", None, [float(result.ending == "stop rule") for result in results]),
            row(name, "seconds", None, [result.seconds for result in results]),
        ]
    return rows


@experiment()
def main(chosen: Options) -> Made:
    """All codecs, or those with a goal with `--quick`."""
    rows = collect({name: ALL[name] for name in QUICK} if chosen.quick else ALL, chosen.seeds)
    return Made({"CEPS with every codec (Example 1, m = 32)": rows}, bars(rows, ["bytes per message"], "bytes"))
