"""`jdfl audit`: an attack on the privacy of the run that a configuration describes."""

import dataclasses
import json
from pathlib import Path
from typing import Any, Literal, cast

from jdfl.auditing import audit as attacked
from jdfl.auditing import audit_bits as attacked_bits
from jdfl.auditing import audit_one_run as attacked_once
from jdfl.base.settings import defaults
from jdfl.base.terminal import wrapped
from jdfl.cli.running import written
from jdfl.config import RunConfig, build, key_of
from jdfl.store.files import write

_audit = defaults(attacked)
_IDLE = {  # what plays no part in which audit
    "bits": ("canary", "canaries", "looks", "folder", "retry"),
    "one run": ("node", "canary", "looks", "folder", "retry"),
    "many runs": ("canaries",),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Attack the privacy that an algorithm reports by distinguishing many runs on two neighbouring datasets.

    The flags of `jdfl run` describe the run. Its stop rule, budget, metrics and records are ignored: every run makes
    all rounds, so use few. A lower bound above the accounted epsilon refutes it; a bound below proves nothing. Noise,
    sensitivity, leaks and sampling are measured too where possible, and a mismatch also refutes the claim. With --runs
    1 many canaries are guessed in a single run, for models that are too large for thousands of runs; this finds gross
    errors. With --bits the floating-point bits of single releases are attacked, about which Gaussian noise claims
    nothing.

    Examples:
      jdfl audit --algorithm d-psgd --algorithm.clip 2 --algorithm.mechanism gaussian --algorithm.mechanism.multiplier 4
                 --problem.m 8 --problem.n 50 --steps 8
      jdfl audit --config runs/NAME/config.yaml --steps 20 --runs 10000 --node 3
      jdfl audit --config runs/NAME/config.yaml --steps 20 --json | jq .epsilon_lower
      jdfl audit --config runs/NAME/config.yaml --steps 20 --runs 1 --canaries 2000

    exit status: 0 not refuted, 1 a part failed, 2 a mistake in the settings, or nothing to audit, 3 refuted, 4
    inconclusive: an epsilon is claimed, but no round could be repeated and measured, or there were too few runs or
    canaries to refute it, 5 the results could not be written, 130 interrupted, 143 terminated; with --folder the same
    command goes on
    """

    config: Path | None = None
    """File config.yaml of a run to audit; other flags override it."""
    runs: int = _audit.runs
    """Number of runs on both datasets together. More runs allow larger bounds. With 1, many canaries in one run."""
    node: int = _audit.node
    """Node whose record is the canary."""
    canary: Literal["aligned", "random"] = _audit.canary
    """Direction of the canary: aligned with what a pilot run reveals most, or random for comparison."""
    canaries: int | None = defaults(attacked_once).canaries
    """Number of records that are canaries, with --runs 1; none: 1000, or fewer if there is no room."""
    delta: float | None = _audit.delta
    """Delta of the epsilons that are compared; none: privacy.delta, or 0.2 / canaries with --runs 1."""
    looks: int | None = _audit.looks
    """Number of moments that are attacked besides the end; none: every round. Use few for long runs."""
    confidence: float = _audit.confidence
    """Confidence level of the lower bound and of the interval of mu."""
    bits: bool = False
    """Attack the bits of single releases, --runs of them, instead. Gaussian noise claims nothing about them."""
    folder: Path | None = None
    """Folder of the audit, made if it is not there: runs are kept there in parts, the same command goes on with the
    others, and audit.json has what was found."""
    retry: int = 0
    """How often a part that fails is tried again."""
    json: bool = False
    """Print JSON."""


def audit(config: RunConfig, options: Options) -> int:
    """Attack and print what was found; returns the exit status."""
    how = "bits" if options.bits else "one run" if options.runs == 1 else "many runs"
    idle = [name for name in _IDLE[how] if getattr(options, name) != getattr(Options(), name)]
    if idle:
        given = ", ".join(f"{name} = {getattr(options, name)!r}" for name in idle)
        raise ValueError(f"Expected settings of an audit of {how}, got {given}, which would do nothing. Leave it out.")
    algorithm, problem, network, _ = build(config)
    common: Any = {"key": key_of(config), "confidence": options.confidence}
    delta = config.privacy.delta if options.delta is None else options.delta
    if options.bits:
        common |= {"runs": options.runs, "node": options.node} | ({} if delta is None else {"delta": delta})
        found = attacked_bits(algorithm, problem, **common)
    elif options.runs == 1:
        common |= {"steps": config.steps, "canaries": options.canaries, "delta": options.delta}
        found = attacked_once(algorithm, problem, network, **common)
    else:
        common |= {name: getattr(options, name) for name in ("runs", "node", "canary", "looks")}
        common |= {"steps": config.steps, "delta": delta, "retry": options.retry}
        try:
            found = attacked(algorithm, problem, network, **common, folder=options.folder)
        except KeyboardInterrupt as error:
            if options.folder is not None:
                error.add_note("the parts that are done are kept, and the same command goes on")
            raise
        if options.folder is not None:
            written(options.folder, lambda: write(cast(Path, options.folder) / "audit.json", found.as_dict()))
    text = wrapped(found.statement().rstrip("\n"))
    print(json.dumps(found.as_dict(), indent=2, allow_nan=False) if options.json else text)
    return found.exit_status
