"""The cost of keeping a run on the disk: its journal compared with SQLite, a run with and without it, the page of one.

Run `python -m benchmarks.store [--quick] [--out DIR]`, three minutes. Records have 12 numbers and come in chunks of 50,
as those of a run do. SQLite has one table in WAL mode, with a commit per chunk and `synchronous=NORMAL`; both are
synced once per 1,000 chunks, as by a checkpoint. The run makes one to two thousand records per second, each of a
round. The page is that of `jdfl report`, in a process of its own, with an objective whose largest value is one record.
"""

import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import numpy as np
import pandas as pd

import jdfl
from benchmarks.common import Options, Row, benchmark, row
from jdfl.config import RunConfig, to_yaml
from jdfl.engine.callbacks import Plan
from jdfl.results.folder import tables, write_run
from jdfl.store import journal
from jdfl.store.journal import Journal

RESULT = (
    "A run of 1,000 records per second waits for the store for {D-PSGD, 96 nodes, 20,000 rounds and records -> the "
    "same of a run of 1,000 records per second} % of its time."
)
COLUMNS, CHUNK, SYNC, NODES = 12, 50, 1_000, 96
RATE = 1_000  # records per second, of the goal: the same seconds of the store in a run of as many records
LARGEST = 98765  # an objective that no thinning of the page's lines may lose


def chunk(first: int) -> np.ndarray:
    """CHUNK records."""
    names = ["round", *(f"metric{i}" for i in range(COLUMNS - 1))]
    rows = np.zeros(CHUNK, [(name, "i8" if name == "round" else "f8") for name in names])
    rows["round"] = np.arange(first, first + CHUNK)
    for name in names[1:]:
        rows[name] = np.sin(rows["round"])
    return rows


def of_journal(folder: Path, records: int) -> tuple[float, float]:
    """Seconds of appending and of reading all."""
    made, path = [chunk(first) for first in range(0, records, CHUNK)], folder / "journal"
    start = time.perf_counter()
    book = Journal.create(path, {})
    for i, rows in enumerate(made):
        book.append("records", rows)
        book.flush() if (i + 1) % SYNC else book.sync()
    book.sync()
    book.close()
    middle = time.perf_counter()
    assert len(journal.read(path).rows("records")) == records
    return middle - start, time.perf_counter() - middle


def of_sqlite(folder: Path, records: int) -> tuple[float, float]:
    """The same of a table of SQLite."""
    made = [chunk(first).tolist() for first in range(0, records, CHUNK)]
    start = time.perf_counter()
    base = sqlite3.connect(folder / "sqlite")
    base.execute("PRAGMA journal_mode=WAL")
    base.execute("PRAGMA synchronous=NORMAL")
    base.execute(
        f"CREATE TABLE records (round INTEGER PRIMARY KEY, {', '.join(f'm{i} REAL' for i in range(COLUMNS - 1))})"
    )
    for i, rows in enumerate(made):
        with base:
            base.executemany(f"INSERT INTO records VALUES ({', '.join('?' * COLUMNS)})", rows)
        if (i + 1) % SYNC == 0:
            base.execute("PRAGMA wal_checkpoint(FULL)")
    middle = time.perf_counter()
    assert len(np.array(base.execute("SELECT * FROM records").fetchall())) == records
    base.close()
    return middle - start, time.perf_counter() - middle


T = TypeVar("T")


class Timed(jdfl.Checkpoints):
    """A store that measures the seconds for which the run waits for it, in all and `around` its rounds."""

    seconds = around = 0.0

    def on_start(self, plan: Plan) -> None:
        """As the store."""
        self._timed(partial(super().on_start, plan), around=True)

    def on_chunk(self, now: jdfl.Snapshot) -> str | None:
        """As the store."""
        return self._timed(partial(super().on_chunk, now))

    def on_return(self, now: jdfl.Snapshot) -> None:
        """As the store."""
        self._timed(partial(super().on_return, now))

    def on_end(self, result: jdfl.Result) -> None:
        """As the store."""
        self._timed(partial(super().on_end, result), around=True)

    def close(self) -> None:
        """As the store."""
        self._timed(super().close, around=True)

    def _timed(self, done: Callable[[], T], around: bool = False) -> T:
        start = time.perf_counter()
        try:
            return done()
        finally:
            took = time.perf_counter() - start
            self.seconds += took
            self.around += around * took


def of_run(steps: int, store: Timed | None) -> float:
    """Seconds of a run, after a first one that compiles."""
    problem, network = jdfl.problems.example1(m=NODES, n=1000, s=5, rows=(20, 40)), jdfl.network.ring(NODES)
    callbacks = [] if store is None else [store]
    how = {"metrics": ["objective", "consensus_error"], "options": jdfl.Options(chunk=CHUNK)}
    start = time.perf_counter()
    jdfl.run(jdfl.DPSGD(lr=0.01), problem, network, steps=steps, callbacks=callbacks, **how)
    return time.perf_counter() - start


def of_report(folder: Path, records: int) -> tuple[float, float]:
    """Seconds until the page of a run with many records is there, and its size in MB."""
    problem, network = jdfl.problems.example1(m=4, n=20, s=2, rows=(5, 9)), jdfl.network.ring(4)
    run = jdfl.run(jdfl.DPSGD(lr=0.01), problem, network, steps=10)
    rounds, noise = np.arange(records), np.random.default_rng(0).standard_normal(records)
    history = pd.DataFrame(dict.fromkeys(run.history, rounds.astype(float)))
    history["round"], history["objective"] = rounds, np.exp(-rounds / records) + 0.01 * noise
    history.loc[records // 8, "objective"] = LARGEST
    write_run(folder, replace(run, history=history, rounds=records - 1), config_yaml=to_yaml(RunConfig()))
    os.sync()  # what is still being written slows the page down
    start = time.perf_counter()
    subprocess.run([sys.executable, "-m", "jdfl", "report", folder], check=True, stdout=subprocess.DEVNULL)
    page = folder / "report.html"
    assert str(LARGEST) in page.read_text(encoding="utf-8")
    return time.perf_counter() - start, page.stat().st_size / 1e6


@benchmark("The cost of keeping a run on the disk")
def main(chosen: Options) -> list[Row]:
    """Seconds and ratios."""
    records, steps, repeats = (10_000, 1_000, 1) if chosen.quick else (1_000_000, 20_000, 3)
    rows: list[Row] = []
    with TemporaryDirectory() as place:
        for name, measured in (("journal", of_journal), ("SQLite, WAL", of_sqlite)):
            folder = Path(place, name)
            folder.mkdir()
            written, read = measured(folder, records)
            case = f"{name}, {records:,} records"
            rows.append(row(case, "append", [written / records * 1e6], "us per record"))
            rows.append(row(case, "read all", [read], "s"))
        of_run(CHUNK, Timed(Path(place, "first"), minutes=10.0))  # which imports and compiles
        without, kept, spent, waited, around = [], [], [], [], []
        for i in range(repeats):
            store = Timed(Path(place, f"run{i}"), minutes=10.0)
            without.append(of_run(steps, None))
            kept.append(of_run(steps, store))
            spent.append(store.seconds)
            waited.append(100 * store.seconds / (kept[-1] - store.seconds))
            around.append(store.around)
        ratios = [100 * (b / a - 1) for a, b in zip(without, kept)]
        case = f"D-PSGD, {NODES} nodes, {steps:,} rounds and records"
        rows.append(row(case, "records per second without a store", [steps / one for one in without], ""))
        at_rate = [100 * seconds / (steps / RATE) for seconds in spent]
        goal = "" if chosen.quick else "<= 1"
        rows.append(row(case, "time for which the run waits for the store", waited, "%"))
        rows.append(row(case, f"the same of a run of {RATE:,} records per second", at_rate, "%", goal))
        rows.append(row(case, "seconds of it before the first round and after the last", around, "s"))
        rows.append(row(case, "a run with the store, compared with the run before it without", ratios, "%"))
        start = time.perf_counter()
        tables(Path(place, "run0"))
        rows.append(row(case, "read the tables", [time.perf_counter() - start], "s"))
        seconds, sizes = zip(*(of_report(Path(place, f"long{i}"), records) for i in range(repeats)))
        goals = ("", "") if chosen.quick else ("<= 5", "<= 3")
        rows.append(row(f"jdfl report, {records:,} records", "until the page is there", seconds, "s", goals[0]))
        rows.append(row(f"jdfl report, {records:,} records", "size of the page", sizes, "MB", goals[1]))
    return rows


if __name__ == "__main__":
    main()
