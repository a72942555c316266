"""What a user waits for: `python benchmarks/waited.py --out DIR [--quick]`, for the version that is on the path.

`benchmarks.versions` runs it with the code of several versions, so it uses only what all of them have: the import of
the package, the first run of some methods with JAX's tracing, lowering and compilation times, and a round after that.
"""

import argparse
import json
import time
from pathlib import Path

BEGAN = time.perf_counter()
import jdfl  # noqa: E402 (its import is measured)

IMPORTED = time.perf_counter() - BEGAN

import jax  # noqa: E402
import numpy as np  # noqa: E402

from jdfl.codecs import OneBit  # noqa: E402

COMPILE = "/jax/core/compile/"
STAGES = {
    "tracing": "jaxpr_trace_duration",
    "lowering": "jaxpr_to_mlir_module_duration",
    "compiling": "backend_compile_duration",
}
FIRST = 20  # rounds of the first run
spent: dict[str, float] = {}


def _listen(event: str, duration_secs: float, **_: object) -> None:
    spent[event] = spent.get(event, 0.0) + duration_secs


def seconds(
    algorithm: jdfl.Algorithm, problem: jdfl.problems.Problem, network: jdfl.network.Static, steps: int
) -> float:
    """The time of a run of `rounds` rounds with one record, from the call to the result."""
    began = time.perf_counter()
    jdfl.run(algorithm, problem, network, key=1, steps=steps, every=steps, metrics=[])
    return time.perf_counter() - began


def main() -> None:
    """Measure and write DIR/waited.json; `quick` uses small sizes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    jax.monitoring.register_event_duration_secs_listener(_listen)
    m, few, many = (8, 20, 1000) if given.quick else (32, 1000, 100_000)
    regression, ring = jdfl.problems.example1(m=m, n=few, s=10), jdfl.network.ring(m)
    small = jdfl.problems.linear_regression([np.ones((1, 4))] * many, [np.ones(1)] * many)
    all_hear = jdfl.network.complete(16 * m)
    wide = jdfl.problems.linear_regression([np.ones((1, 4 * few))] * (16 * m), [np.ones(1)] * (16 * m))
    cases = (  # rounds for which a run takes some tenths of a second
        ("D-PSGD", jdfl.DPSGD(lr=1e-4), regression, ring, 100),
        ("DSGT", jdfl.DSGT(lr=1e-4), regression, ring, 100),
        ("CHOCO-SGD", jdfl.CHOCO(lr=1e-4, codec=jdfl.Dense()), regression, ring, 100),
        ("EXTRA", jdfl.EXTRA(lr=1e-4), regression, ring, 100),
        ("SGP", jdfl.SGP(lr=1e-4), regression, ring, 100),
        ("CEPS, whole vectors", jdfl.CEPS(s=10, sigma_rule="safe"), regression, ring, 1000),
        ("CEPS, one bit", jdfl.CEPS(s=10, sigma_rule="safe", codec=OneBit()), regression, ring, 100),
        ("DO-ADP", jdfl.DOADP(lr=1e-4), regression, ring, 5000),
        (f"D-PSGD, {many:,} nodes", jdfl.DPSGD(lr=1e-4), small, jdfl.network.ring(many), 200),
        (f"D-PSGD, {16 * m} nodes, complete network", jdfl.DPSGD(lr=1e-4), wide, all_hear, 60),
    )
    rows = [("package", "import", IMPORTED)]
    for case, algorithm, problem, network, rounds in cases:
        spent.clear()
        rows.append((case, "first run", seconds(algorithm, problem, network, FIRST)))
        rows += [(case, stage, spent[COMPILE + event]) for stage, event in STAGES.items()]
        short, long = (
            min(seconds(algorithm, problem, network, steps) for _ in range(3)) for steps in (FIRST, FIRST + rounds)
        )
        rows.append((case, "a round", (long - short) / rounds))
    written = [{"case": case, "measure": measure, "value": value, "unit": "s"} for case, measure, value in rows]
    (given.out / "waited.json").write_text(json.dumps({"rows": written}), encoding="utf-8")


if __name__ == "__main__":
    main()
