"""The effect on every method of the codecs that it warns about.

Example 1 of the CEPS paper on a ring of 8 nodes, n = 100, 200 rounds, in float64. In float32 the last digits of sums,
which depend on the processor, decide signs and largest entries, so runs end differently. Each pair of a method and a
kind of codec runs twice, with the setting that is warned about and with the advised one. The kinds are: a codec that
changes the models sent through it; an unbiased codec that may add more than it sends (for differences that are sent
once); and steps gamma towards public copies that are too large for what the codec keeps.

For Sparse the models have ten times as many nonzeros as a message holds. --quick uses
only the first codec of each kind.
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

import jdfl
from experiments.common import Made, Options, Row, experiment, row
from jdfl.codecs import Codec

MOST = float(np.finfo(np.float32).max)  # stands for runs that diverged
NODES, SIZE, ROUNDS, RATE = 8, 100, 200, 0.05
LOSSY: tuple[Codec, ...] = (
    *(jdfl.Sign(), jdfl.OneBit(d=200, s=10), jdfl.Sparse(s=1)),
    *(jdfl.RandomK(share=0.5), jdfl.LowRank(), jdfl.QSGD(levels=1)),
)
NOISY: tuple[Codec, ...] = (jdfl.QSGD(levels=1), jdfl.RandomK(share=0.3, scaled=True))
SMALL: tuple[Codec, ...] = (jdfl.Sparse(share=0.1), jdfl.RandomK(share=0.1), jdfl.LowRank())
Make = Callable[[Codec, float], Any]


class Pair(NamedTuple):
    """A method with the setting that is warned about, and with the advised one."""

    method: str  # its name in the warning
    codec: Codec
    warned: str
    algorithm: Any
    instead: str
    other: Any


def _of(kind: Any, **fields: Any) -> Make:
    return lambda codec, gamma: kind(codec=codec, **fields)


def _towards(kind: Any, **fields: Any) -> Make:
    return lambda codec, gamma: kind(codec=codec, gamma=gamma, **fields)


DIRECT: dict[str, Make] = {
    "D-PSGD": _of(jdfl.DPSGD, lr=RATE),
    "DFedAvgM": _of(jdfl.DFedAvgM, lr=RATE / 5),
    "DFedSAM": _of(jdfl.DFedSAM, lr=RATE / 5),
    "DP-DDA": _of(jdfl.DPDDA, lr=10 * RATE, p=1.0, gradients=jdfl.Gradients()),
    "DPDO": _of(jdfl.DPDO, c=RATE),
    "DSGT": _of(jdfl.DSGT, lr=RATE),
    "EXTRA": _of(jdfl.EXTRA, lr=RATE),
    "FedAvg": _of(jdfl.FedAvg, lr=RATE / 5),
    "IHT-D-PSGD": _of(jdfl.IHT, lr=RATE, s=10),
    "MATCHA": _of(jdfl.MATCHA, lr=RATE),
    "NIDS": _of(jdfl.NIDS, lr=RATE),
    "exact diffusion": _of(jdfl.ExactDiffusion, lr=RATE),
}
REPLICAS: dict[str, Make] = {
    "DCD-PSGD": _of(jdfl.DCD, lr=RATE),
    "quantised DFedAvgM": _of(jdfl.DFedAvgM, lr=RATE / 5, quantised=True),
}
COPIES: dict[str, Make] = {
    "CHOCO-SGD": _towards(jdfl.CHOCO, lr=RATE),
    "DO-ADP": _towards(jdfl.DOADP, lr=RATE, p=1.0, gradients=jdfl.Gradients()),
}


def pairs() -> Iterator[Pair]:
    exact = jdfl.Dense()
    for methods, codecs in ((DIRECT, LOSSY), (REPLICAS, NOISY)):
        for method, make in methods.items():
            for codec in codecs:
                yield Pair(method, codec, _said(codec), make(codec, 1.0), "Dense()", make(exact, 1.0))
    for method, make in COPIES.items():
        for codec in SMALL:
            delta = codec.contraction(SIZE, SIZE)
            assert delta is not None
            with_gamma = [f"{_said(codec)} and gamma = {gamma:.3g}" for gamma in (1.0, delta)]
            yield Pair(method, codec, with_gamma[0], make(codec, 1.0), with_gamma[1], make(codec, delta))


def _said(codec: Codec) -> str:
    """The codec with its non-default fields."""
    given = {name: value for name, value in vars(codec).items() if value != getattr(type(codec)(), name)}
    return f"{type(codec).__name__}({', '.join(f'{name}={value!r}' for name, value in given.items())})"


def problem(seed: int = 0, dtype: str = "float32") -> jdfl.problems.Problem:
    """The problem of all runs, in float64."""
    return jdfl.problems.example1(m=NODES, n=SIZE, s=10, rows=(20, 30), seed=seed, dtype=dtype)


def network() -> jdfl.network.Network:
    return jdfl.network.ring(NODES)


def ended(algorithm: Any, seed: int = 0) -> float:
    """The objective at the end; infinite where the run diverged."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # about what is measured here
        with jax.enable_x64(True):
            given = algorithm, problem(seed, "float64"), network()
            result = jdfl.run(*given, key=seed, steps=ROUNDS, every=ROUNDS, metrics=["objective"])
    final = float(result.final["objective"])
    return final if result.ending != "diverged" and np.isfinite(final) else float("inf")


def collect(chosen: Sequence[Pair], seeds: int) -> list[Row]:
    rows: list[Row] = []
    known: dict[tuple[str, str], list[float]] = {}
    for pair in chosen:
        for words, algorithm in ((pair.warned, pair.algorithm), (pair.instead, pair.other)):
            key = (pair.method, words)
            if key not in known:
                known[key] = [ended(algorithm, seed) for seed in range(seeds)]
        case = f"{pair.method}, {pair.warned}"
        rows += [
            row(case, "objective", None, [min(one, MOST) for one in known[pair.method, pair.warned]]),
            row(case, "instead", None, [min(one, MOST) for one in known[pair.method, pair.instead]]),
        ]
    return rows


@experiment(seeds=1)
def main(chosen: Options) -> Made:
    """All pairs, or one codec of each kind with `--quick`."""
    first = (LOSSY[0], NOISY[0], SMALL[0])
    wanted = [pair for pair in pairs() if not chosen.quick or pair.codec in first]
    rows = collect(wanted, chosen.seeds)
    return Made({"The objective with a codec that a method warns about, and with the advised one": rows})
