"""What came of a sample of mutants, in JSON and Markdown."""

import json
import math
import tomllib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

EQUIVALENT = Path(__file__).with_name("equivalent.toml")


@dataclass(frozen=True)
class Mutant:
    """One mistake and its verdict: killed, timed out or survived."""

    file: str
    line: int
    before: str
    after: str
    verdict: str

    def __str__(self) -> str:
        return f"{self.verdict}, {self.file}:{self.line}: {self.before} -> {self.after}"


def wilson(hits: int, of: int, z: float = 1.959964) -> tuple[float, float]:
    """The 95 % interval of a share (E. B. Wilson, 1927)."""
    if of == 0:
        return 0.0, 1.0
    middle, square = (hits + z**2 / 2) / (of + z**2), hits * (of - hits) / of + z**2 / 4
    half = z * math.sqrt(square) / (of + z**2)
    return middle - half, middle + half


def why_equivalent() -> dict[tuple[str, str, str], str]:
    """The reasons by file, line before and line after."""
    listed = tomllib.loads(EQUIVALENT.read_text())["mutant"]
    return {(one["file"], one["before"], one["after"]): one["why"] for one in listed}


def write(path: Path, package: str, mutants: Sequence[Mutant], of: int, seed: int) -> str:
    """Write path.json and path.md; the latter."""
    reasons = why_equivalent()
    counts = {name: sum(one.verdict == name for one in mutants) for name in ("killed", "timed out", "survived")}
    survivors = [
        asdict(one) | {"equivalent": reasons.get((one.file, one.before, one.after), "")}
        for one in sorted(mutants, key=lambda one: (one.file, one.line))
        if one.verdict == "survived"
    ]
    dead, equivalent = len(mutants) - counts["survived"], sum(bool(one["equivalent"]) for one in survivors)
    low, high = wilson(dead, len(mutants))
    figures = {
        "package": f"jdfl/{package}",
        "mutants": len(mutants),
        "drawn from": of,
        "seed": seed,
        **counts,
        "equivalent": equivalent,
        "score": dead / max(len(mutants), 1),
        "score, 95 % interval": [low, high],
        "score without equivalent ones": dead / max(len(mutants) - equivalent, 1),
    }
    path.with_suffix(".json").write_text(json.dumps(figures | {"survivors": survivors}, indent=2) + "\n")
    lines = [
        f"# Mutants of jdfl/{package}",
        "",
        f"{len(mutants)} of {of} mutants, seed {seed}: {counts['killed']} killed, {counts['timed out']} timed out, "
        f"{counts['survived']} survived, of which {equivalent} are equivalent.",
        f"Score {figures['score']:.1%} (95 % interval {low:.1%} to {high:.1%}), "
        f"{figures['score without equivalent ones']:.1%} without equivalent ones.",
        "",
        *(["| place | before | after | equivalent |", "| --- | --- | --- | --- |"] if survivors else []),
        *map(_row, survivors),
    ]
    text = "\n".join(lines) + "\n"
    path.with_suffix(".md").write_text(text)
    return text


def _row(one: dict[str, Any]) -> str:
    before, after = (one[name].replace("|", "\\|") for name in ("before", "after"))
    return f"| {one['file']}:{one['line']} | `{before}` | `{after}` | {one['equivalent']} |"
