"""The version here beside another one, such as the commit before a change: `python -m benchmarks.versions CHECKOUT`.

The same benchmarks run in both checkouts in turn, A B A B ..., each time in a process of its own, and every time that
both measure under the same name is divided pair by pair, so that a machine that drifts slows both. Beside the
benchmarks that are named it measures what a user waits for: importing the package, and a first run of some methods,
with what of it JAX traces and compiles.
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
NAMES = ("dpsgd_overhead", "rounds", "million", "ceps", "doadp", "mixing")
LIMIT = 1.05  # of this version's time over the other's
TIMES = ("s", "ms", "us", "ns")
FIRST = """
import json, sys, time
began = time.perf_counter()
import jdfl
imported = time.perf_counter() - began
import jax
spent = {}
def listen(event, seconds, **_):
    spent[event] = spent.get(event, 0) + seconds
jax.monitoring.register_event_duration_secs_listener(listen)
problem = jdfl.problems.example1(m=32, n=200, s=10)
network = jdfl.network.ring(32)
rows = [("package", "import", imported)]
for name, settings in (("DPSGD", {"lr": .1}), ("DSGT", {"lr": .01}), ("CHOCO", {"lr": .1}), ("EXTRA", {"lr": .1}),
                       ("CEPS", {"s": 10}), ("DOADP", {"lr": .01}), ("SGP", {"lr": .1})):
    spent.clear()
    began = time.perf_counter()
    jdfl.run(getattr(jdfl, name)(**settings), problem, network, key=jax.random.key(1), steps=20, every=10)
    rows.append((name, "first run", time.perf_counter() - began))
    for what, event in (("tracing", "jaxpr_trace_duration"), ("lowering", "jaxpr_to_mlir_module_duration"),
                        ("compiling", "backend_compile_duration")):
        rows.append((name, what, spent["/jax/core/compile/" + event]))
rows = [{"case": case, "measure": measure, "value": value, "unit": "s"} for case, measure, value in rows]
json.dump({"rows": rows}, open(sys.argv[1], "w"))
"""


def measured(checkout: Path, name: str, quick: bool) -> dict[tuple[str, str], float]:
    """The times of one benchmark ("first" is FIRST) as the code of a checkout makes and measures it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}.json"
        arguments = ["-c", FIRST, str(path)] if name == "first" else ["-m", f"benchmarks.{name}", "--out", folder]
        command = [sys.executable, *arguments, *["--quick"] * (quick and name != "first")]
        subprocess.run(command, cwd=checkout, check=True, stdout=subprocess.DEVNULL)
        rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
    return {(one["case"], one["measure"]): one["value"] for one in rows if one["unit"] in TIMES}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; the exit code is 1 where a median ratio is above LIMIT."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("checkout", type=Path, help="the other version: a folder with its jdfl/ and benchmarks/")
    parser.add_argument("names", nargs="*", default=["first", *NAMES], help="benchmarks that both have, and first")
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
    print(f"{slower} times above {LIMIT} of the other version's")
    return int(slower > 0)


if __name__ == "__main__":
    sys.exit(main())
