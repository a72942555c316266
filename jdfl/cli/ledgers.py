"""The ledger of a dataset in `jdfl account`: make one, show it, and check a planned run against it."""

from typing import Any

import jdfl
from jdfl.config import RunConfig, build, intended, ledger_of, run_key_of
from jdfl.privacy.relation import upper


def asked(options: Any) -> bool:
    """Whether the options are about a ledger alone."""
    return options.ledger is not None or options.new_ledger is not None


def check(config: RunConfig, options: Any) -> None:
    """Refuse settings of runs and releases together with a ledger, and a new ledger without a budget: ValueError."""
    if options.ledger is not None and options.new_ledger is not None:
        raise ValueError(
            f"Expected --ledger or --new-ledger, got {options.ledger} and {options.new_ledger}. Make it first, then "
            "show it."
        )
    others = [name for name in ("releases", "run", "config", "observer") if getattr(options, name) is not None]
    others += ["the settings of a run"] * (config != RunConfig())
    if others:
        raise ValueError(
            f"Expected --ledger or --new-ledger alone, got {', '.join(others)} too. A planned run is checked "
            "against a ledger with --privacy.ledger."
        )
    if options.new_ledger is not None and options.epsilon is None:
        raise ValueError(
            "Expected --epsilon with --new-ledger, got epsilon = None. It is what all runs on the data may spend "
            "together, at --delta."
        )


def shown(options: Any) -> tuple[dict[str, Any], str]:
    """The content of a ledger, as plain data and in words; a new one is made first."""
    if options.new_ledger is not None:
        book = jdfl.DataLedger.create(options.new_ledger, epsilon=options.epsilon, delta=options.delta)
    else:
        book = jdfl.DataLedger(options.ledger)
    standing = book.standing()
    lines = [standing.statement(), *(f"- {line}" for line in book.lines())]
    return standing.as_dict(), "".join(f"{line}\n" for line in lines)


def with_plan(config: RunConfig) -> tuple[dict[str, Any], str]:
    """The ledger of a planned run after that run, as plain data and in words; empty without a ledger.

    ValueError for a run that the ledger would refuse.
    """
    if (book := ledger_of(config)) is None:
        return {}, ""
    found = book.check(intended(config, build(config), [run_key_of(config, config.seed or 0, noisy=True)]))
    now = book.standing()
    told = {"data_ledger": now.as_dict() | {"with_this_run": found}}
    return told, (
        f"- ledger: {now.statement().removesuffix('.')}; with this run it would be ({upper(found)}, {now.delta:g})\n"
    )
