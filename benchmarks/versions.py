"""Another version, such as the commit before a change, against this one: `python -m benchmarks.versions CHECKOUT`.

Both are measured alternately, A B A B ..., each time in a separate process, and every time that both measure under the
same name is divided pair by pair, so that a drift of the machine affects both. Without names it measures what a user
waits for: importing the package, first runs of some methods split into tracing and compilation, and their rounds after
that. With names it runs these benchmarks, which takes minutes each.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from benchmarks.common import show

HERE = Path(__file__).parent.parent
LIMIT = 1.05  # of the time of this version over the other's
TIMES = ("s", "ms", "us", "ns")
WAITED = HERE / "benchmarks" / "waited.py"


def measured(checkout: Path, name: str, quick: bool) -> dict[tuple[str, str], float]:
    """The times by case and measure of one benchmark ("waited" is that file) in the code of a checkout."""
    with tempfile.TemporaryDirectory() as folder:
        file = [str(WAITED)] if name == "waited" else ["-m", f"benchmarks.{name}"]
        command = [sys.executable, *file, "--out", folder, *["--quick"] * quick]
        # The path precedes installed packages, and a file's own folder is not where this one's modules are.
        there = os.environ | {"PYTHONPATH": str(checkout), "PYTHONSAFEPATH": "1"}
        subprocess.run(command, cwd=checkout, env=there, check=True, stdout=subprocess.DEVNULL)
        rows = json.loads((Path(folder) / f"{name}.json").read_text(encoding="utf-8"))["rows"]
    return {(one["case"], one["measure"]): one["value"] for one in rows if one["unit"] in TIMES}


def compared(pairs: Mapping[tuple[str, str], Sequence[tuple[float, float]]]) -> tuple[list[dict[str, str]], int]:
    """The lines of a table of times, here and there, by case and measure; how many are slower here by the median."""
    lines: list[dict[str, str]] = []
    for (case, measure), found in pairs.items():
        here, there = np.array(found).T
        median = float(np.median(here / there))
        lines.append(
            {"case": case, "measure": measure, "here": f"{np.median(here):.4g}", "there": f"{np.median(there):.4g}"}
            | {"here / there": f"{median:.3f}", "spread": f"{min(here / there):.3f}–{max(here / there):.3f}"}
            | {"": "slower" if median > LIMIT else ""}
        )
    return lines, sum(line[""] != "" for line in lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; the exit code is 1 where a median ratio is above LIMIT."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("checkout", type=Path, help="the other version: a folder with its jdfl/ and benchmarks/")
    parser.add_argument("names", nargs="*", default=["waited"], help="benchmarks that both have, and waited")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each in each version, at least 1")
    parser.add_argument("--quick", action="store_true", help="small sizes: shows that it runs, not how fast")
    given = parser.parse_args(arguments)
    if given.repeats < 1:
        parser.error(f"Expected repeats >= 1, got {given.repeats}.")
    there = given.checkout.resolve()
    for name in given.names:
        for file in ("jdfl/__init__.py", *([f"benchmarks/{name}.py"] if name != "waited" else [])):
            for root in (HERE, there):
                if not (root / file).is_file():
                    parser.error(f"Expected a checkout with {file}, got {root}, which has none.")
    slower = 0
    for name in given.names:
        pairs: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
        for _ in range(given.repeats):
            new, old = measured(HERE, name, given.quick), measured(there, name, given.quick)
            for key in [key for key in new if key in old]:
                pairs[key].append((new[key], old[key]))
        lines, more = compared(pairs)
        slower += more
        show(name, lines)
        sys.stdout.flush()
    print(f"{slower} times above {LIMIT} of the other version's")
    return int(slower > 0)


if __name__ == "__main__":
    sys.exit(main())
