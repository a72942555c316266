"""The version here beside another one, such as the commit before a change: `python -m benchmarks.versions CHECKOUT`.

Both are measured in turn, A B A B ..., each time in a process of its own, and every time that both measure under the
same name is divided pair by pair, so that a machine that drifts slows both. Without names it measures what a user waits
for: importing the package, first runs of some methods with what of them JAX traces and compiles, and their rounds after
that. With names it runs these benchmarks, which takes minutes each.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.common import show

HERE = Path(__file__).parent.parent
LIMIT = 1.05  # of the time here over the other's
TIMES = ("s", "ms", "us", "ns")
WAITED = """
import json, sys, time
began = time.perf_counter()
import jdfl
rows = [("package", "import", time.perf_counter() - began)]
import jax
import numpy as np
from jdfl.codecs import OneBit
spent = {}
def listen(event, seconds, **_):
    spent[event] = spent.get(event, 0) + seconds
jax.monitoring.register_event_duration_secs_listener(listen)
regression = jdfl.problems.example1(m=32, n=1000, s=10)
ring = jdfl.network.ring(32)
many = jdfl.problems.linear_regression([np.ones((1, 4))] * 100_000, [np.ones(1)] * 100_000)
dense = jdfl.network.complete(512)
wide = jdfl.problems.linear_regression([np.ones((1, 4000))] * 512, [np.ones(1)] * 512)
for name, method, settings, problem, network, rounds in (
    ("D-PSGD", "DPSGD", {"lr": 1e-4}, regression, ring, 100),
    ("DSGT", "DSGT", {"lr": 1e-4}, regression, ring, 100),
    ("CHOCO-SGD", "CHOCO", {"lr": 1e-4}, regression, ring, 100),
    ("EXTRA", "EXTRA", {"lr": 1e-4}, regression, ring, 100),
    ("SGP", "SGP", {"lr": 1e-4}, regression, ring, 100),
    ("CEPS, whole vectors", "CEPS", {"s": 10, "sigma_rule": "safe"}, regression, ring, 300),
    ("CEPS, one bit", "CEPS", {"s": 10, "sigma_rule": "safe", "codec": OneBit()}, regression, ring, 60),
    ("DO-ADP", "DOADP", {"lr": 1e-4}, regression, ring, 100),
    ("D-PSGD, 100,000 nodes", "DPSGD", {"lr": 1e-4}, many, jdfl.network.ring(100_000), 60),
    ("D-PSGD, 512 nodes that all hear all", "DPSGD", {"lr": 1e-4}, wide, dense, 60),
):
    spent.clear()
    def seconds(steps):
        began = time.perf_counter()
        algorithm = getattr(jdfl, method)(**settings)
        jdfl.run(algorithm, problem, network, key=jax.random.key(1), steps=steps, every=steps, metrics=[])
        return time.perf_counter() - began
    rows.append((name, "first run", seconds(20)))
    for what, event in (("tracing", "jaxpr_trace_duration"), ("lowering", "jaxpr_to_mlir_module_duration"),
                        ("compiling", "backend_compile_duration")):
        rows.append((name, what, spent["/jax/core/compile/" + event]))
    few, lots = (min(seconds(steps) for _ in range(3)) for steps in (20, 20 + rounds))
    rows.append((name, "a round", (lots - few) / rounds))
rows = [{"case": case, "measure": measure, "value": value, "unit": "s"} for case, measure, value in rows]
json.dump({"rows": rows}, open(sys.argv[1], "w"))
"""


def measured(checkout: Path, name: str, quick: bool) -> dict[tuple[str, str], float]:
    """The times of one benchmark ("waited" is WAITED) as the code of a checkout makes and measures it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}.json"
        arguments = ["-c", WAITED, str(path)] if name == "waited" else ["-m", f"benchmarks.{name}", "--out", folder]
        command = [sys.executable, *arguments, *["--quick"] * (quick and name != "waited")]
        subprocess.run(command, cwd=checkout, check=True, stdout=subprocess.DEVNULL)
        rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
    return {(one["case"], one["measure"]): one["value"] for one in rows if one["unit"] in TIMES}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; the exit code is 1 where a median ratio is above LIMIT."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("checkout", type=Path, help="the other version: a folder with its jdfl/ and benchmarks/")
    parser.add_argument("names", nargs="*", default=["waited"], help="benchmarks that both have, and waited")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each in each version")
    parser.add_argument("--quick", action="store_true", help="small sizes: shows that it runs, not how fast")
    given = parser.parse_args(arguments)
    slower = 0
    for name in given.names:
        pairs: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
        for _ in range(given.repeats):
            new, old = measured(HERE, name, given.quick), measured(given.checkout, name, given.quick)
            for key in [key for key in new if key in old]:
                pairs[key].append((new[key], old[key]))
        lines: list[dict[str, str]] = []
        for (case, measure), found in pairs.items():
            ratios = [new / old for new, old in found]
            median = float(np.median(ratios))
            slower += median > LIMIT
            lines.append(
                {"case": case, "measure": measure, "this": f"{np.median([new for new, _ in found]):.4g}"}
                | {"other": f"{np.median([old for _, old in found]):.4g}", "this / other": f"{median:.3f}"}
                | {"spread": f"{min(ratios):.3f}–{max(ratios):.3f}", "": "slower" if median > LIMIT else ""}
            )
        show(name, lines)
        sys.stdout.flush()
    print(f"{slower} times above {LIMIT} of the other version's")
    return int(slower > 0)


if __name__ == "__main__":
    sys.exit(main())
