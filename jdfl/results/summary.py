"""A result in numbers and in words."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from jdfl.algorithms.around import Around
from jdfl.base.absent import Absent
from jdfl.engine.accountant import account, ledger_of_run
from jdfl.engine.metrics import COUNTS
from jdfl.engine.result import BAD, Result
from jdfl.privacy import Accounting, Ledger
from jdfl.privacy.ledger import compact
from jdfl.privacy.report import Together, uncovered

_PUBLISHED = "bytes_by_the_papers_formula"


def finite(value: float) -> float | None:
    """A number for JSON, where a `value` that is not finite becomes None."""
    return float(value) if math.isfinite(value) else None


def summary(result: Result, *, delta: float | None = None, accounting: Accounting = "sound") -> dict[str, Any]:
    """A `result` in numbers and words, as plain data for JSON; numbers that are not finite become None.

    Where no epsilon can be given, the reason is there instead. `delta` and `accounting` are those of `jdfl.account`.
    """
    totals, guarantee, clock, talk = result.totals, result.guarantee, result.clock, result.communication_rounds
    m, n = result.params.shape
    covered = "covered" if guarantee.claimed else "not covered"
    released = f"released, {covered}" if guarantee.claimed else covered
    return {
        "run": sentence(result),
        "nodes": m,
        "pairing": result.pairing,
        "parameters": n,
        "labels": dict(result.labels),
        "rounds": result.rounds,
        "ending": result.ending,
        "reason": result.reason,
        "diverged": None if result.diverged is None else dict(zip(("round", "node"), result.diverged)),
        "violated": None if result.violated is None else dict(zip(("round", "node"), result.violated)),
        "metrics": {name: finite(value) for name, value in sorted(result.final.items()) if name not in COUNTS},
        "intervals": {name: list(ends) for name, ends in result.intervals.items()},
        "test_examples": result.test_examples,
        "messages": dict(totals.messages),
        "message_bits": dict(totals.message_bits),
        "bytes": totals.bytes,
        _PUBLISHED: result.published_bytes,
        "gradients": totals.gradients,
        "example_gradients": totals.examples,
        "communication_rounds": {"min": int(talk.min()), "mean": float(talk.mean()), "max": int(talk.max())},
        "seconds": result.seconds,
        "compile_seconds": result.compile_seconds,
        "network_seconds": None if clock is None else {"mean": float(clock.mean()), "last": float(clock.max())},
        "provenance": result.provenance.hash,
        "minimises": result.minimises,
        "warnings": list(result.warnings),
        "privacy": {
            "releases": totals.releases,
            "releases_per_node": {"min": int(result.releases.min()), "max": int(result.releases.max())},
            "private_key": result.private_digest,
            "released": result.released[-1],
            "claimed": guarantee.claimed,
            "reason": guarantee.reason,
            "outputs": {
                "messages": covered,
                "parameters": f"local, {uncovered(guarantee.local)}" if guarantee.local else released,
                **dict.fromkeys(("metrics", "tables of nodes", "state", "checkpoints"), "not covered"),
            },
            **privacy_of(result, delta, accounting),
            "data_ledger": None if result.standing is None else result.standing.as_dict(),
        },
    }


def summary_text(data: Mapping[str, Any]) -> str:
    """The `data` of a summary in words, as Markdown."""
    ended = f"Ended after {data['rounds']} rounds ({data['ending']}): {data['reason']}."
    if data["ending"] in BAD:
        ended = f"{'Diverged' if data['ending'] == 'diverged' else 'Invalid'}: {data['reason']}."
    talk, clock, published = (data[name] for name in ("communication_rounds", "network_seconds", _PUBLISHED))
    lines = [data["run"], "", ended]
    if data.get("pairing"):
        lines += ["", f"Nodes of problem and network are paired {data['pairing']}."]
    if data.get("minimises"):
        lines += ["", f"Minimises {data['minimises']}."]
    for warning in data["warnings"]:
        lines += ["", f"Warning: {warning}."]
    lines += ["", "| final metric | value |", "| --- | ---: |"]
    lines += [f"| {name} | {'none' if value is None else f'{value:.6g}'} |" for name, value in data["metrics"].items()]
    lines.append("")
    for name, (low, high) in data.get("intervals", {}).items():
        lines.append(f"- {name}: 95 % interval {low:.4g} to {high:.4g} for {data['test_examples']:,} test examples")
    for channel, count in data["messages"].items():
        bits = data["message_bits"][channel]
        lines.append(f"- messages ({channel}): {count:,} of {bits:,} bits ({bits / 8:,g} bytes)")
    lines.append(f"- bytes sent, all nodes: {data['bytes']:,.1f}")
    if published is not None:
        lines.append(f"- by the formula behind the dense rows of the paper, which counts no messages: {published:,.0f}")
    lines += [
        f"- gradient evaluations, all nodes: {data['gradients']:,}, of {data['example_gradients']:,} examples in all",
        f"- communication rounds of a node: minimum {talk['min']}, mean {talk['mean']:.1f}, maximum {talk['max']}",
        f"- provenance: {data['provenance']}",
        f"- time: {data['seconds']:.2f} s, and {data['compile_seconds']:.2f} s of compilation",
    ]
    if clock is not None:
        mean, last = clock["mean"], clock["last"]
        lines.append(f"- simulated time until a node was done: mean {mean:,.6g} s, last {last:,.6g} s")
    return "\n".join([*lines, *data["privacy"]["statement"].splitlines()]) + "\n"


def together(runs: Sequence[Mapping[str, Any]]) -> Together | None:
    """The total epsilon of publishing `runs` on the same data, given by their summaries; None if none claims any."""
    every, shared = dict[Any, Any](), False
    for i, one in enumerate(runs):
        privacy = one["privacy"]
        key = i if privacy.get("ledger") is None else privacy.get("private_key", i)
        other = every.setdefault(key, privacy)  # the same run counts once
        shared |= other.get("released") != privacy.get("released")
    ledgers = [None if one.get("ledger") is None else Ledger.from_dict(one["ledger"]) for one in every.values()]
    smallest = min((one["report"]["delta"] for one in every.values() if one["report"]), default=0.0)
    found = Together.of(ledgers, smallest)
    return replace(found, epsilon=None, shared=True) if found is not None and shared else found


def privacy_of(result: Result, delta: float | None = None, accounting: Accounting = "sound") -> dict[str, Any]:
    """What a `result` can claim about privacy: `report` and `ledger`, None where nothing is claimed, and `statement`.

    The ledger is that of the releases of the most exposed node. `delta` and `accounting` are those of `jdfl.account`,
    and so is the ValueError for a delta that is too large to promise anything.
    """
    noisy, guarantee = result.guarantee.event is not None, result.guarantee
    if not guarantee.claimed and not (noisy and accounting == "paper"):
        counted = f"; {result.totals.releases:,} noisy releases in all" if result.totals.releases else ""
        words = f"- privacy: no guarantee is claimed: {guarantee.reason}{counted}"
        return {"report": None, "statement": words, "ledger": None}
    report, ledger = account(result, delta=delta, accounting=accounting), ledger_of_run(result)
    known = compact(ledger).as_dict() if guarantee.claimed else None
    statement = report.statement()
    if result.standing is not None:
        statement += f"- ledger: {result.standing.statement()}\n"
    return {"report": report.as_dict(), "statement": statement, "ledger": known}


def as_paragraphs(statement: str) -> str:
    """A privacy statement's list items as paragraphs."""
    return "\n\n".join(line.removeprefix("- ") for line in statement.splitlines())


def bytes_text(value: float) -> str:
    """A `value` in bytes with a unit, a power of 1000, and three digits, such as 1.25 MB."""
    place = next((i for i in range(5) if abs(value) < 1000 ** (i + 1)), 5)
    return f"{value / 1000**place:.3g} {('B', 'kB', 'MB', 'GB', 'TB', 'PB')[place]}"


def described(algorithm: Any) -> str:
    """An algorithm in words: its class, messages, noise and attackers; that of a loaded result as it was saved."""
    if isinstance(algorithm, Absent):
        return algorithm.described
    inside = isinstance(algorithm, Around)  # whose title says what goes on
    parts = [algorithm.title if inside else type(algorithm).__name__]
    if hasattr(algorithm, "codec"):
        parts.append(f"with {type(algorithm.codec).__name__} messages")
    if hasattr(algorithm, "mechanism"):
        noise = "no" if algorithm.mechanism is None else type(algorithm.mechanism).__name__
        parts.append(f"and {noise} noise")
    return " ".join(parts)


def sentence(result: Result) -> str:
    """What a run was, in one sentence."""
    m, n = result.params.shape
    on = f"{result.problem_name} (m = {m} nodes, n = {n} parameters) over {result.network_name}"
    return f"{described(result.algorithm)} on {on}."
