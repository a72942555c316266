"""Run all experiments, or the named ones, one after another, and write an index page of their results.

    python -m experiments all --quick              every table and figure, small
    python -m experiments all                      the same in full
    python -m experiments ceps_table3 codecs       two of them, in full
    python -m experiments list                     their names
    python -m experiments index                    only the page, from what is in the folder
    python -m experiments ceps_table3 --record     also keep its numbers, which the documentation is made from
    python -m experiments pages                    fill in the documentation from the numbers that are kept

Each runs in its own process, `--processes` at a time, and writes its output to DIR/NAME.log. A failure does not stop
the others; the exit status is then 1. Small versions are compiled faster (`experiments.common.compile_sooner`).
DIR/index.html shows everything in DIR.

What is done is kept in DIR/jobs: the same command goes on with the rest after it was interrupted or killed, and does
not repeat what is done with the same settings, code and libraries, unless it is asked to with `--again`.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from experiments import ledger, pages
from experiments.common import compile_sooner, cut_off, mortal, reflowed
from experiments.gallery import Experiment, experiments, write_index
from jdfl.base.terminal import wrapped
from jdfl.engine.provenance import total, versions
from jdfl.store import jobs, manifest
from jdfl.store.files import placed
from jdfl.store.jobs import FailedJobsError, Jobs


@dataclass(frozen=True)
class Outcome:
    name: str
    status: int
    seconds: float
    before: bool  # it was done before


class FailedError(RuntimeError):
    """A script ended with another status than 0."""


class Scripts:
    """Scripts in processes of their own, which do not outlive this one.

    Args:
        flags: The flags of all scripts.
        kept: What is done.
        again: Whether what is done is done again.
    """

    def __init__(self, flags: Sequence[str], kept: Jobs, again: bool) -> None:
        self._flags, self._kept, self._again = list(flags), kept, again
        self._running: set[subprocess.Popen[bytes]] = set()
        self._over = False
        self._code = total(path.read_text(encoding="utf-8") for path in sorted(Path(__file__).parent.glob("*.py")))

    def run(self, one: Experiment) -> Outcome:
        """Run a script, unless it is done, and bring its files, with output, command and run time, to their places."""
        out, before = self._kept.folder, True
        name = jobs.name_of(one.name, self._flags, self._code, versions())
        if self._again:
            shutil.rmtree(out / jobs.PLACE / name, ignore_errors=True)

        def make(folder: Path) -> None:
            nonlocal before
            before = False
            if status := self._execute(one, folder):
                if not self._over:
                    _copy(folder, out)  # what there is, the log above all
                raise FailedError(f"{one.name} ended with status {status}")

        try:
            _copy(self._kept.done(name, make), out)
        except FailedJobsError:
            if self._over:
                raise
        said = json.loads((out / f"{one.name}.run.json").read_text(encoding="utf-8"))
        return Outcome(one.name, said["status"], said["seconds"], before)

    def end(self) -> None:
        """End all scripts; none begins any more."""
        self._over = True
        for process in list(self._running):
            process.kill()

    def _execute(self, one: Experiment, folder: Path) -> int:
        command = ["-m", f"experiments.{one.name}", *self._flags]
        environment = {**os.environ, "COLUMNS": "160", "PYTHONUNBUFFERED": "1"}
        if "--quick" in self._flags:
            compile_sooner(environment)
        started, log = time.monotonic(), folder / f"{one.name}.log"
        with log.open("w", encoding="utf-8") as output:
            words = mortal(*command, "--out", str(folder))
            process = subprocess.Popen(words, stdout=output, stderr=subprocess.STDOUT, env=environment)
            self._running.add(process)
            if self._over:
                process.kill()
            status, processor = ended(process)
            self._running.remove(process)
        seconds = round(time.monotonic() - started, 1)
        text = log.read_text(encoding="utf-8", errors="replace")
        text = re.sub(r"(?m)^ *\d+ s  .*\n", "", text)  # signs of life
        log.write_text(text.replace(str(folder), str(self._kept.folder)), encoding="utf-8")
        said: dict[str, Any] = {"command": " ".join(["python", *command]), "status": status, "seconds": seconds}
        said["processor"] = processor
        (folder / f"{one.name}.run.json").write_text(json.dumps(said) + "\n", encoding="utf-8")
        return status


def _copy(here: Path, there: Path) -> None:
    """Bring the files of a job to the folder of all, each whole."""
    for path in sorted(here.rglob("*")):
        name = path.relative_to(here)
        if path.is_file() and name.name != manifest.NAME:
            (there / name).parent.mkdir(parents=True, exist_ok=True)
            with placed(there / name) as partial:
                shutil.copyfile(path, partial)


def ended(process: subprocess.Popen[bytes]) -> tuple[int, float | None]:
    """The status of a process that is waited for, and its processor seconds, which other work hardly changes.

    They are None where the system does not tell them.
    """
    if not hasattr(os, "wait4"):
        return process.wait(), None
    _, how, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(how)
    return process.returncode, round(usage.ru_utime + usage.ru_stime, 1)


def took(one: Experiment, flags: Sequence[str], out: Path) -> float:
    """Processor seconds of the last or the recorded run with these flags, or infinity for none.

    Long scripts start first, so that all end together.
    """
    command = " ".join(["python", "-m", f"experiments.{one.name}", *flags])
    for path in (out / f"{one.name}.run.json", ledger.RESULTS / f"{one.name}.json"):
        said = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        seconds = ledger.time_of(said)
        # A script that was run by itself is not timed; published weights add a case, which takes little.
        if seconds is not None and said["command"].partition(" --weights")[0] == command:
            return seconds
    return float("inf")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line names; returns the exit status."""
    known = {one.name: one for one in experiments()}
    parser = argparse.ArgumentParser(
        prog="python -m experiments",
        description=reflowed(__doc__ or ""),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="+", help="all, list, index, pages, or names of experiments")
    parser.add_argument("--quick", action="store_true", help="small versions, 20 to 30 minutes for all on two cores")
    parser.add_argument("--seeds", type=int, help="number of seeds of each")
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder for all results")
    parser.add_argument("--processes", type=int, default=2, help="number of processes at a time")
    parser.add_argument("--retry", type=int, default=0, help="how often one that fails is tried again")
    parser.add_argument("--record", action="store_true", help="keep the numbers in experiments/results")
    parser.add_argument("--again", action="store_true", help="do again what is done")
    given = parser.parse_args(arguments)
    if given.processes < 1:
        parser.error(f"Expected --processes >= 1, got {given.processes}.")
    if given.retry < 0:
        parser.error(f"Expected --retry >= 0, got {given.retry}.")
    if given.names == ["list"]:
        print("\n".join(wrapped(one.title, f"{one.name:<24}") for one in known.values()))
        return 0
    if given.names == ["pages"]:
        print("filled in:", *(path.name for path in pages.write()))
        return 0
    if given.record and given.quick:
        parser.error("Expected --record without --quick: sentences about papers have the numbers of full runs.")
    given.out.mkdir(parents=True, exist_ok=True)
    wanted = {"all": list(known), "index": []}.get(given.names[0] if len(given.names) == 1 else "", given.names)
    unknown = sorted(set(wanted) - set(known))
    if unknown:
        parser.error(f"Expected names from `python -m experiments list`, got {', '.join(unknown)}.")
    if given.names == ["index"]:
        print(f"index:  {write_index(given.out).resolve()}")
        return 0
    flags = ["--quick"] * given.quick + (["--seeds", str(given.seeds)] if given.seeds is not None else [])
    order = sorted((known[name] for name in dict.fromkeys(wanted)), key=lambda one: -took(one, flags, given.out))
    try:
        with jobs.opened(given.out, {"work": "experiments", "versions": {}}, retry=given.retry) as kept:
            failed = _all(order, Scripts(flags, kept, given.again), given)
    except (OSError, KeyboardInterrupt) as error:
        return cut_off(error, "experiments")
    faults = _recorded([one.name for one in order if one.name not in failed], given.out) if given.record else []
    return 1 if failed or faults else 0


def _recorded(names: Sequence[str], out: Path) -> list[str]:
    """Keep the output of experiments, fill in the pages, and say which claims are not true; returns these."""
    ledger.record(names, out)
    faults = [fault for one in ledger.claims() if one.run in names for fault in one.faults(ledger.rows_of(one.run))]
    print("filled in:", *(path.name for path in pages.write()))
    print(*(f"not true: {fault}" for fault in faults), sep="\n", end="\n" if faults else "")
    return faults


def _all(order: Sequence[Experiment], scripts: Scripts, given: argparse.Namespace) -> list[str]:
    """Run experiments and write the index; returns the names of those that failed."""
    console, failed = Console(highlight=False), list[str]()
    with ThreadPoolExecutor(given.processes) as pool:
        begun = [pool.submit(scripts.run, one) for one in order]
        try:
            for done in (one.result() for one in as_completed(begun)):
                ending = "" if done.status == 0 else f", status {done.status}: {given.out / done.name}.log"
                console.print(f"{done.name:<24}{done.seconds:6.0f} s{', before' * done.before}{ending}")
                failed += [done.name] * (done.status != 0)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            scripts.end()
            raise
    console.print(f"index:  {write_index(given.out).resolve()}", soft_wrap=True)
    if failed:
        console.print(f"failed: {', '.join(failed)}")
    return failed


if __name__ == "__main__":
    sys.exit(main())
