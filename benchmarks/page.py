"""The page of figures in the documentation, made of benchmarks/results by `python -m benchmarks --page`."""

from pathlib import Path
from textwrap import fill

from benchmarks.common import FOLDER, Benchmark, Record, discover, read

RESULTS = FOLDER / "results"
PAGE = FOLDER.parent / "docs" / "benchmarks.md"

HEAD = """# Benchmarks

<!-- Made by `python -m benchmarks --page` of the files in benchmarks/results: change those. -->

Every figure is a median of runs in one process; what is compared takes turns, and a ratio is formed turn by turn, so
that a machine that becomes slower does so for both. The spread is the least and the greatest, and of how many.
`python -m benchmarks` measures all of it, `python -m benchmarks NAME ... --out benchmarks/results` some.
"""


def page(results: Path = RESULTS) -> str:
    """The whole page in Markdown: a section for every benchmark that has figures, in alphabetical order."""
    known = discover()
    strange = sorted(path.name for path in results.glob("*.json") if path.stem not in known)
    if strange:
        raise ValueError(f"Expected figures of benchmarks in {results.name}, found {', '.join(strange)}.")
    paths = {name: results / f"{name}.json" for name in known}
    records = {name: read(path) for name, path in paths.items() if path.exists()}
    return "\n".join([HEAD, goals(records), *(section(known[name], record) for name, record in records.items())])


def goals(records: dict[str, Record]) -> str:
    """How many goals every benchmark has met, and the figures that miss theirs."""
    lines = []
    for name, record in records.items():
        judged = [row for row in record.rows if row.met is not None]
        missed = [f"{row.case}, {row.measure}: {row.value:.3g}, {row.goal}" for row in judged if not row.met]
        met = f"{len(judged) - len(missed)} of {len(judged)}" if judged else "none set"
        lines.append([f"[{name}](#{name})", met, _plain("; ".join(missed))])
    heads = [["benchmark", "goals met", "missed: value, goal"], ["---"] * 3]
    return "\n".join(f"| {' | '.join(line)} |" for line in [*heads, *lines]) + "\n"


def section(benchmark: Benchmark, record: Record) -> str:
    """What was asked, how it is run, where it was, the figures, and why some goals are missed."""
    lines = [list(one.cells().values()) for one in record.rows]
    heads = [list(record.rows[0].cells()), ["---"] * len(lines[0])]
    table = ["| " + " | ".join(map(_plain, line)) + " |" for line in [*heads, *lines]]
    about = f"{benchmark.about}\n\n`python -m benchmarks.{benchmark.name}`\n\n{record.machine}."
    why = f"\n{fill(benchmark.limit, 120)}\n" if benchmark.limit else ""
    return f"## {benchmark.name}\n\n{about}\n\n" + "\n".join(table) + "\n" + why


def _plain(text: str) -> str:
    """Text that Markdown takes for nothing else."""
    return "".join("\\" + letter if letter in r"\|*_[]" else letter for letter in text).replace("<", "&lt;")


def write(path: Path = PAGE) -> Path:
    """Write the page; its place."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(page(), encoding="utf-8")
    return path
