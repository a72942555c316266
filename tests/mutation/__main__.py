"""Mutation testing of a random sample: `python -m tests.mutation [PACKAGE ...] --sample 40 --work DIR`.

A mutant is jdfl with one small mistake made by cosmic-ray: another operator, a number one larger or smaller, a
condition turned round. The tests of its module's row (`table`) kill it or let it survive; it counts as killed, too,
where they take four times as long as without it. Every mutant that is not left out (`left_out`) is as likely to be in
the sample as any other. A larger sample of the same seed holds the smaller one.

DIR keeps cosmic-ray's session, one per package, so that a second call goes on where the first was stopped, and the
report, in JSON and Markdown. Mutated is a copy of the checkout, never the checkout. JAX keeps compiled programs in DIR,
and knows them by all that they compute, so that a mutant's are never taken for another's. A result belongs to the
contents of the mutated file: once that has changed, it is looked at no more. `--retry` judges survivors anew, as after
new tests. `equivalent.toml` names survivors that no test can kill and says why; in the score they are survivors.
"""

import argparse
import hashlib
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import chdir
from difflib import ndiff
from functools import cache
from importlib import import_module
from itertools import islice
from multiprocessing import get_context
from pathlib import Path

import pytest
from cosmic_ray.commands import init
from cosmic_ray.mutating import mutate_code, use_mutation
from cosmic_ray.operators.operator import Operator
from cosmic_ray.plugins import get_operator
from cosmic_ray.work_db import use_db
from cosmic_ray.work_item import MutationSpec, TestOutcome, WorkerOutcome, WorkItem, WorkResult

from tests.mutants import copied
from tests.mutation.left_out import inside, left_out
from tests.mutation.report import Mutant, write
from tests.mutation.table import TABLE

PACKAGES = ("privacy", "codecs", "algorithms")
IMPORTS = ("jax", "optax", "chex", "flax.linen", "networkx", "pandas", "scipy.stats", "dp_accounting", "tyro")
SLOWER, LEAST = 4.0, 60.0  # tests take so many times as long as usual, or so many seconds, before they are stopped


def run(row: tuple[str, ...], log: Path) -> None:
    """Run the tests of a row as a process that ends here with their exit code, stopped at the first that fails."""
    os.setsid()
    for number in (1, 2):
        os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    for name in [name for name in sys.modules if name.partition(".")[0] in ("tests", "jdfl")]:
        del sys.modules[name]  # the checkout's
    sys.path.insert(0, os.getcwd())
    os._exit(pytest.main(["-x", "-q", "-p", "no:cacheprovider", "--tb=short", *row]))


def exit_code(row: tuple[str, ...], log: Path, limit: float | None = None) -> int | None:
    """That of the tests, forked from this process with its imports; None where they take longer than `limit` s."""
    one = get_context("fork").Process(target=run, args=(row, log))
    one.start()
    one.join(limit)
    if one.exitcode is None:
        os.killpg(one.pid or 0, signal.SIGKILL)
        one.join()
        return None
    return one.exitcode


@cache
def usual(row: tuple[str, ...], log: Path) -> float:
    """Seconds that the tests of a row take without a mutant; RuntimeError where they fail, which would kill all."""
    begun = time.monotonic()
    if exit_code(row, log):
        raise RuntimeError(f"The tests fail without any mutant: {' '.join(row)}\n{log.read_text()[-3000:]}")
    return time.monotonic() - begun


def mutants(package: str) -> list[WorkItem]:
    """All of a package that are not left out, each named by its place and the contents of its file."""
    paths = sorted(Path("jdfl", package).glob("*.py"))
    with tempfile.TemporaryDirectory() as folder, use_db(Path(folder, "all.sqlite")) as session:
        init(paths, session, {})
        every = [item.mutations[0] for item in session.work_items]
    sources = {path: path.read_text() for path in paths}
    spans = {path: left_out(source) for path, source in sources.items()}
    now = {path: hashlib.sha256(source.encode()).hexdigest()[:12] for path, source in sources.items()}
    found = [
        WorkItem.single(f"{(path := one.module_path)} {now[path]} {one.operator_name} {one.occurrence}", one)
        for one in every
        if one.operator_name != "core/RemoveDecorator"
        and not inside(spans[one.module_path], sources[one.module_path], one.start_pos, one.end_pos)
    ]
    return sorted(found, key=lambda item: item.job_id)


def runs(item: WorkItem) -> bool:
    """Whether a mutant is Python."""
    one = item.mutations[0]
    try:
        compile(str(mutate_code(one.module_path.read_text(), _operator(one), one.occurrence)), "", "exec")
    except SyntaxError:
        return False
    return True


def _operator(one: MutationSpec) -> Operator:
    return get_operator(one.operator_name)(**one.operator_args)


def tried(package: str, sample: int, seed: int, work: Path, retry: bool) -> tuple[list[Mutant], int]:
    """The sample's mutants, those without a verdict judged, and of how many they were drawn."""
    every = mutants(package)
    chosen = list(islice(filter(runs, random.Random(seed).sample(every, len(every))), sample))
    with use_db(work / f"{package}.sqlite") as session:
        known = {item.job_id for item in session.work_items}
        session.add_work_items(item for item in chosen if item.job_id not in known)
        results = {str(name): result for name, result in session.results}
        for i, item in enumerate(chosen):
            result = results.get(item.job_id)
            if result is None or (retry and result.test_outcome == TestOutcome.SURVIVED):
                results[item.job_id] = result = judged(item, work / "tests.log")
                session.set_result(item.job_id, result)
            mutant = told(item, result)
            print(f"{package} {i + 1}/{len(chosen)}: {mutant}", flush=True)
    return [told(item, results[item.job_id]) for item in chosen], len(every)


def judged(item: WorkItem, log: Path) -> WorkResult:
    """The verdict of the tests of the mutated module's row."""
    one = item.mutations[0]
    row = TABLE.get(one.module_path.as_posix(), (f"tests/{one.module_path.parent.name}",))
    limit = max(LEAST, SLOWER * usual(row, log))
    with use_mutation(one.module_path, _operator(one), one.occurrence) as (before, after):
        code = exit_code(row, log, limit)
    output = "timed out" if code is None else log.read_text(errors="replace")[-2000:]
    outcome = TestOutcome.SURVIVED if code == 0 else TestOutcome.KILLED
    change = ndiff(before.split("\n"), str(after).split("\n"))
    return WorkResult(WorkerOutcome.NORMAL, output, outcome, "\n".join(change))


def told(item: WorkItem, result: WorkResult) -> Mutant:
    """A mutant and its verdict in plain words."""
    one = item.mutations[0]
    lines = (result.diff or "").split("\n")
    before, after = (" ".join(line[2:].strip() for line in lines if line.startswith(sign)) for sign in ("- ", "+ "))
    survived = "survived" if result.test_outcome == TestOutcome.SURVIVED else "killed"
    verdict = "timed out" if result.output == "timed out" else survived
    return Mutant(one.module_path.as_posix(), one.start_pos[0], before, after, verdict)


def main(arguments: Sequence[str] | None = None) -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("packages", nargs="*", metavar="PACKAGE", help=f"some of {', '.join(PACKAGES)}; all by default")
    parser.add_argument("--sample", type=int, default=40, help="mutants of every package (default 40)")
    parser.add_argument("--seed", type=int, default=0, help="of the sample (default 0)")
    parser.add_argument("--work", type=Path, default=Path("out/mutation"), help="folder of sessions and reports")
    parser.add_argument("--retry", action="store_true", help="judge survivors anew")
    chosen = parser.parse_args(arguments)
    for name in chosen.packages:
        if name not in PACKAGES:
            parser.error(f"There is no package {name!r}; those that are mutated are {', '.join(PACKAGES)}.")
    work = chosen.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        copied(Path(folder))
        os.environ |= {
            "PYTHONPATH": folder,  # for tests that start processes
            "PYTHONDONTWRITEBYTECODE": "1",  # a mutant's would be taken for another's of the same second
            "JAX_COMPILATION_CACHE_DIR": str(work / "compiled"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.1",
        }
        sys.dont_write_bytecode = True
        for name in IMPORTS:  # once, after the settings and before any process is forked
            import_module(name)
        with chdir(folder):
            for name in chosen.packages or PACKAGES:
                found, of = tried(name, chosen.sample, chosen.seed, work, chosen.retry)
                print(write(work / name, name, found, of, chosen.seed))


if __name__ == "__main__":
    main()
