"""A round with all nodes on one CPU device, compared with the nodes sharded over one device per core.

Run `python -m benchmarks.cores [--quick] [--out DIR]`; three minutes on two cores.

The numbers are the same within rounding (`pytest -m "slow or not slow" tests/test_sharding.py`).
"""

import os
from functools import partial
from typing import Any

import jax

import jdfl
from benchmarks.common import Options, Row, benchmark, interleaved, ratios, rounds_of, row
from benchmarks.rounds import DEGREE, LR, MOST, least_squares, logistic
from jdfl.algorithms.program import planned
from jdfl.devices import layout

RESULT = (
    "With a device per core, a round of CEPS with 65,536 nodes has {m=65536 n=20 q=10 -> CEPS: one device / a device "
    "a core} times the speed, and a round of D-PSGD with 256 nodes of 20 parameters {m=256 n=20 q=10 -> D-PSGD: one "
    "device / a device a core}."
)
LIMIT = (
    "XLA itself uses all cores for products of matrices and large loops over entries; selections, sorts, small loops "
    "and the steps of a decoder run on one. Work that is limited by memory, or takes microseconds, gains nothing from "
    "a device per core, and rounds of small networks become slower: devices wait for one another in every round."
)


def beside(case: str, methods: dict[str, Any], problem: Any, network: Any, rounds: int, repeats: int) -> list[Row]:
    """Milliseconds of a round in both ways, and the speedup with all cores."""
    rows, mesh = [], layout.mesh_of(jax.device_count(), problem.m)
    for name, method in methods.items():
        ready = planned(method, problem, network, MOST)
        works = {
            "one device": rounds_of(ready, problem, network, rounds),
            "a device a core": rounds_of(ready, problem, network, rounds, mesh),
        }
        seconds = interleaved(works, repeats)
        rows += [row(case, f"{name}, {way}", [1e3 * s / rounds for s in found], "ms") for way, found in seconds.items()]
        rows.append(row(case, f"{name}: one device / a device a core", ratios(*seconds.values()), "x"))
    return rows


@benchmark("One CPU device, and one for every core")
def main(chosen: Options) -> list[Row]:
    """All figures."""
    layout.simulate(os.cpu_count() or 1)
    m, n, q, repeats = (16, 100, 32, 2) if chosen.quick else (128, 1000, 500, 7)
    small, large = (16, 64) if chosen.quick else (256, 65_536)
    some, batch = jdfl.Gradients(batch=q // 16), f"batches of {q // 16}"
    codec, plain = jdfl.Sparse(share=0.3), jdfl.network.k_regular(m, DEGREE)
    ceps = partial(jdfl.CEPS, s=max(1, n // 100), rate=0.5, sigma_rule="safe")
    doadp = partial(jdfl.DOADP, lr=LR, gamma=0.3, codec=codec)
    methods = {
        "D-PSGD, all examples": jdfl.DPSGD(lr=LR),
        f"D-PSGD, {batch}": jdfl.DPSGD(lr=LR, gradients=some),
        f"DO-ADP, {batch}": doadp(gradients=some),
        "CEPS, one-bit messages": ceps(codec=jdfl.OneBit()),
        "CEPS, one-bit messages, shared Phi": ceps(codec=jdfl.OneBit(shared=True)),
        "CEPS, whole vectors": ceps(),
    }
    rows = beside(f"m={m} n={n} q={q}", methods, least_squares(m, n, q), plain, 60, repeats)
    clipped = jdfl.Gradients(clip=1.0, norm="l1", per="batch", batch=q // 16)
    partpsp = jdfl.PartPSP(lr_shared=LR, gradients=clipped, dpps=jdfl.DPPS(b=1.0, noise_rate=1e-6))
    directed = jdfl.network.exponential(m)
    rows += beside(f"m={m} n={n} q={q}", {f"PartPSP, {batch}": partpsp}, logistic(m, n, q), directed, 60, repeats)
    if not chosen.quick:  # the data that `rounds` compares with a loop over the nodes
        problem, network = least_squares(256, 1000, 32), jdfl.network.k_regular(256, DEGREE)
        rows += beside("m=256 n=1000 q=32", {"D-PSGD": jdfl.DPSGD(lr=LR)}, problem, network, 20, repeats)
    for nodes, rounds in ((small, 500), (large, 20)):
        problem, network = least_squares(nodes, 20, 10), jdfl.network.k_regular(nodes, DEGREE)
        methods = {"D-PSGD": jdfl.DPSGD(lr=LR), "DO-ADP": doadp(gradients=jdfl.Gradients()), "CEPS": ceps(s=4)}
        rows += beside(f"m={nodes} n=20 q=10", methods, problem, network, rounds, repeats)
    return rows


if __name__ == "__main__":
    main()
