"""Golden results: output of contract rows, experiments and the command line from before a refactoring.

    python -m tools.golden record [WHAT ...]
    python -m tools.golden check [WHAT ...] [--only TEXT]

WHAT is among rows, statements, experiments, commands; without it, all are used. --only selects records with TEXT in
their name. `record` writes tools/golden/; `check` recomputes everything and compares: words and counts must be equal,
floats have equal bits or differ by at most 1e-6 of the largest entry of their array, which is reported. It ends with
status 1 where anything differs. Bits can be compared only on the kind of processor that they were recorded on, which
the record names.

Rows: parameters after 1, 10 and 33 rounds, the history, totals and counts of every node. Statements: the guarantee, the
ledger and the report of the same runs, or why there is none. Experiments: the rows of ten, run with --quick, without
times. Commands: help texts of every kind, and the lists.
"""

import argparse
import contextlib
import dataclasses
import gzip
import io
import json
import platform
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import jax
import numpy as np

import jdfl
from jdfl.cli import main as command_line
from jdfl.config import RunConfig
from jdfl.config.kinds import members
from tests.contract.table import TABLE, Row
from tests.contract.test_contract import make_network, make_problem

FOLDER = Path(__file__).parent / "golden"
ROUNDS = (1, 10, 33)
TOLERANCE = 1e-6
EXPERIMENTS = (
    "ceps_table3",
    "ceps_figure4",
    "gpsp_quality",
    "codecs",
    "dpps_consensus",
    "partpsp_figure3",
    "doadp_equal_noise",
    "doadp_figure3",
    "fair_comparison",
    "unreliable",
)
COMMANDS = ("run", "resume", "verify", "compare", "sweep", "account", "audit", "report", "data", "bench")


def _run(row: Row) -> tuple[jdfl.Result, np.ndarray]:
    """A run of a row, and its parameters [rounds, m, n] after ROUNDS."""
    kept: dict[int, np.ndarray] = {}

    def keep(snapshot: Any) -> None:
        if snapshot.rounds in ROUNDS:
            kept[snapshot.rounds] = np.asarray(snapshot.params())

    result = jdfl.run(
        row.algorithm,
        make_problem(row),
        make_network(),
        key=1,
        steps=ROUNDS[-1],
        callbacks=[keep],
        options=jdfl.Options(chunk=1),
    )
    return result, np.stack([kept[rounds] for rounds in ROUNDS])


def rows(only: str) -> Iterator[tuple[str, Any]]:
    """The results of every row of the contract table."""
    for row in (row for row in TABLE if only in str(row)):
        result, params = _run(row)
        totals = dataclasses.asdict(result.totals)
        yield (
            str(row),
            {
                "params": params,
                "history": {name: result.history[name].to_numpy(dtype=float) for name in result.history},
                "totals": totals,
                "communications": result.communication_rounds,
                "releases": result.releases,
                "ending": result.reason,
                "published bytes": result.published_bytes,
            },
        )
        jax.clear_caches()


def statements(only: str) -> Iterator[tuple[str, Any]]:
    """The privacy statement of every row of the contract table."""
    for row in (row for row in TABLE if only in str(row)):
        problem, network = make_problem(row), make_network()
        result = jdfl.run(row.algorithm, problem, network, key=1, steps=ROUNDS[1], metrics=[])
        told: dict[str, Any] = {"guarantee": _plain(result.guarantee), "warnings": list(result.privacy_warnings)}
        for accounting in ("sound", "paper"):
            try:
                found = jdfl.account(result, delta=1e-3, accounting=accounting)
                told[accounting] = {"report": found.as_dict(), "statement": found.statement()}
            except ValueError as error:
                told[accounting] = str(error)
        yield str(row), told
        jax.clear_caches()


def experiments(only: str) -> Iterator[tuple[str, Any]]:
    """The results of some experiments in their quick form."""
    for name in (name for name in EXPERIMENTS if only in name):
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
            import_module(f"experiments.{name}").main(["--quick", "--out", folder])
            made = json.loads((Path(folder) / f"{name}.json").read_text())
        yield (
            name,
            {
                f"{one['case']} | {one['column']}": [one["paper"], one["mean"], one["sd"], one["seeds"]]
                for one in made
                if "second" not in one["column"]
            },
        )
        jax.clear_caches()


def commands(only: str) -> Iterator[tuple[str, Any]]:
    """The command line's help on its settings, with every kind of every family chosen once."""
    every = [[name, "--help"] for name in COMMANDS]
    hints = {one.name: one.type for one in dataclasses.fields(RunConfig)}
    for family in ("algorithm", "network", "problem", "stop"):
        for kind in members(hints[family]):
            every.append(["run", f"--{family}", kind, "--help"])
    for args in every:
        if only in (name := f"jdfl {' '.join(args)}"):
            yield name, _said(args)
    if only in "jdfl list":
        yield "jdfl list", [line for line in _said(["list"]).splitlines() if "found" not in line]


def _said(args: list[str]) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        status = command_line(args)
    return f"{out.getvalue()}[{status}]"


KINDS: dict[str, Callable[[str], Iterator[tuple[str, Any]]]] = {
    one.__name__: one for one in (rows, statements, experiments, commands)
}


def _plain(value: Any) -> Any:
    """Plain data for JSON; arrays are written in full, and floats so that their bits are preserved."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {one.name: _plain(getattr(value, one.name)) for one in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        return np.asarray(value).astype(float if np.asarray(value).dtype.kind == "f" else None).tolist()
    return value if isinstance(value, str | int | float | bool | None) else type(value).__name__


def differences(old: Any, new: Any, path: str = "") -> Iterator[tuple[str, float]]:
    """Where two records differ, and by how much: infinitely, unless both are floats; arrays by their worst entry.

    Floats are compared with the largest entry of their list.
    """
    if isinstance(old, dict) and isinstance(new, dict):
        for name in {**old, **new}:
            if name not in old or name not in new:
                yield f"{path}.{name}", float("inf")
            else:
                yield from differences(old[name], new[name], f"{path}.{name}")
    elif isinstance(old, list) and isinstance(new, list) and _numbers(old) and _numbers(new):
        was, now = np.array(old, float), np.array(new, float)
        if was.shape != now.shape or (np.isfinite(was) != np.isfinite(now)).any():
            yield path, float("inf")
        elif not np.array_equal(was, now, equal_nan=True):
            both = np.isfinite(was)
            scale = np.abs(was[both]).max(initial=0.0)
            yield path, float(np.abs(was - now)[both].max(initial=0.0) / scale) if scale else float("inf")
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for i, (was, now) in enumerate(zip(old, new)):
            yield from differences(was, now, f"{path}.{i}")
    elif isinstance(old, float) and isinstance(new, float):
        yield from differences([old], [new], path)
    elif old != new:
        yield path, float("inf")


def _numbers(value: list[Any]) -> bool:
    try:
        return bool(value) and np.array(value).dtype.kind in "fi" and np.array(value, float).size > 0
    except ValueError:
        return False


def record(wanted: list[str]) -> None:
    """Write the current results."""
    FOLDER.mkdir(exist_ok=True)
    for kind in wanted:
        found = {name: _plain(value) for name, value in KINDS[kind]("")}
        (FOLDER / f"{kind}.json.gz").write_bytes(gzip.compress(json.dumps(found).encode(), mtime=0))
        print(f"{kind}: {len(found)} recorded")
    about = {"machine": platform.processor() or platform.machine(), "jax": jax.__version__, "numpy": np.__version__}
    (FOLDER / "about.json").write_text(json.dumps(about | {"cpu": _cpu()}, indent=1) + "\n")


def _cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def check(wanted: list[str], only: str) -> int:
    """Recompute everything and report differences; returns the number of records that differ."""
    wrong = 0
    was = json.loads((FOLDER / "about.json").read_text())
    print(f"recorded on {was['cpu']}, jax {was['jax']}; here {_cpu()}, jax {jax.__version__}")
    for kind in wanted:
        old = json.loads(gzip.decompress((FOLDER / f"{kind}.json.gz").read_bytes()))
        same = close = 0
        seen = set[str]()
        old = {name: value for name, value in old.items() if only in name}
        for name, value in KINDS[kind](only):
            seen.add(name)
            found = dict(differences(old.get(name), json.loads(json.dumps(_plain(value)))))
            worst = max(found.values(), default=0.0)
            same, close = same + (not found), close + (0 < worst <= TOLERANCE)
            if worst > TOLERANCE:
                wrong += 1
                places = ", ".join(f"{path} ({size:.2g})" for path, size in list(found.items())[:5] if size > TOLERANCE)
                print(f"DIFFERS {kind}: {name}: {places}")
            elif found:
                print(f"close   {kind}: {name}: {worst:.2g}")
        gone = set(old) - seen
        wrong += len(gone)
        print(f"{kind}: {same} the same, {close} within {TOLERANCE:g}, {len(old) - same - close} differ or are gone")
        if gone:
            print(f"GONE    {kind}: {', '.join(sorted(gone))}")
    return wrong


def main(arguments: list[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("do", choices=("record", "check"))
    parser.add_argument("what", nargs="*", choices=(*KINDS, []), help="without it, all")
    parser.add_argument("--only", default="", metavar="TEXT", help="records with this in their name")
    given = parser.parse_args(arguments)
    wanted = given.what or list(KINDS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if given.do == "record":
            record(wanted)
            return 0
        return 1 if check(wanted, given.only) else 0


if __name__ == "__main__":
    sys.exit(main())
