"""Run all experiments, or the named ones, one after another, and write an index page of their results.

    python -m experiments all --quick              every table and figure, small
    python -m experiments ceps_table3 codecs       two of them, in full
    python -m experiments list                     their names
    python -m experiments index                    only the page, from what is in the folder

Each runs in its own process, `--processes` at a time, and writes its output to DIR/NAME.log. A failure does not stop
the others; the exit status is then 1. Small versions are compiled faster (`experiments.common.compile_sooner`).
DIR/index.html shows everything in DIR.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from experiments.common import compile_sooner
from experiments.gallery import Experiment, experiments, write_index


@dataclass(frozen=True)
class Outcome:
    """The outcome of a script."""

    name: str
    status: int
    seconds: float


def run(one: Experiment, flags: Sequence[str], out: Path) -> Outcome:
    """Run a script and record its output, its command line and its run time."""
    command = [sys.executable, "-m", f"experiments.{one.name}", *flags, "--out", str(out)]
    environment = {**os.environ, "COLUMNS": "160", "PYTHONUNBUFFERED": "1"}
    if "--quick" in flags:
        compile_sooner(environment)
    started = time.monotonic()
    with (out / f"{one.name}.log").open("w", encoding="utf-8") as log:
        status = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, env=environment, check=False).returncode
    done = Outcome(one.name, status, time.monotonic() - started)
    said = {"command": " ".join(["python", *command[1:-2]]), "status": status, "seconds": round(done.seconds, 1)}
    (out / f"{one.name}.run.json").write_text(json.dumps(said) + "\n", encoding="utf-8")
    return done


def took(one: Experiment, out: Path) -> float:
    """Seconds of the last run, or infinity: long scripts start first, so that all end together."""
    path = out / f"{one.name}.run.json"
    return json.loads(path.read_text(encoding="utf-8"))["seconds"] if path.is_file() else float("inf")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line names; returns the exit status."""
    known = {one.name: one for one in experiments()}
    parser = argparse.ArgumentParser(
        prog="python -m experiments", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="+", help="all, list, index, or names of experiments")
    parser.add_argument("--quick", action="store_true", help="small versions, 20 to 30 minutes for all on two cores")
    parser.add_argument("--seeds", type=int, help="number of seeds of each")
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder for all results")
    parser.add_argument("--processes", type=int, default=2, help="number of processes at a time")
    given = parser.parse_args(arguments)
    if given.processes < 1:
        parser.error(f"Expected --processes >= 1, got {given.processes}.")
    if given.names == ["list"]:
        print("\n".join(f"{one.name:<24}{one.title}" for one in known.values()))
        return 0
    given.out.mkdir(parents=True, exist_ok=True)
    wanted = {"all": list(known), "index": []}.get(given.names[0] if len(given.names) == 1 else "", given.names)
    unknown = sorted(set(wanted) - set(known))
    if unknown:
        parser.error(f"Expected names from `python -m experiments list`, got {', '.join(unknown)}.")
    flags = ["--quick"] * given.quick + (["--seeds", str(given.seeds)] if given.seeds is not None else [])
    console = Console(highlight=False)
    order = sorted((known[name] for name in dict.fromkeys(wanted)), key=lambda one: -took(one, given.out))
    failed: list[str] = []
    with ThreadPoolExecutor(given.processes) as pool:
        for done in (one.result() for one in as_completed([pool.submit(run, one, flags, given.out) for one in order])):
            ending = "" if done.status == 0 else f", status {done.status}: {given.out / done.name}.log"
            console.print(f"{done.name:<24}{done.seconds:6.0f} s{ending}")
            failed += [done.name] * (done.status != 0)
    console.print(f"index:  {write_index(given.out).resolve()}", soft_wrap=True)
    if failed:
        console.print(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
