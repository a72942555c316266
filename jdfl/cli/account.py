"""`jdfl account`: the privacy of releases, of a planned run, or of a finished run with another delta."""

import dataclasses
import json
from pathlib import Path
from typing import Any, Literal

import jdfl
from jdfl import observers, privacy
from jdfl.algorithms.program import planned
from jdfl.base import checks
from jdfl.base.terminal import wrapped
from jdfl.cli import flags
from jdfl.config import RunConfig, build, intended, key_of, ledger_of, run_key_of
from jdfl.engine.provenance import Provenance, settings_of
from jdfl.engine.result import READS_DATA
from jdfl.engine.spending import guarantee_of, unspent
from jdfl.observers import observe
from jdfl.privacy import ExactGaussian, GaussianEvent, LaplaceEvent, Sampled, epsilon
from jdfl.privacy.accounting import delta_for_noise
from jdfl.privacy.mechanisms import event_of
from jdfl.privacy.report import KEYS, upper
from jdfl.results.checkpoints import SNAPSHOTS, read_checkpoint, read_record


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Compute the epsilon of releases, or the noise for a target epsilon, without a run.

    With --releases: the epsilon of that many releases of a mechanism with --multiplier, or the multiplier for
    --epsilon. With --run: a finished run, from the ledger in its folder, at any --privacy.delta. Otherwise: all rounds
    of the run that the flags of `jdfl run` describe; a run that a budget would end early is refused. With --observer:
    what an observer of some messages learns in that run, or every node about every other one. With --ledger or
    --new-ledger: the ledger of a dataset. A planned run is checked against a ledger with --privacy.ledger.

    Examples:
      jdfl account --releases 3 --multiplier 6.46 --delta 1e-5              the epsilon of three Gaussian releases
      jdfl account --releases 3 --epsilon 1 --delta 1e-5                    the noise that three releases need
      jdfl account --releases 1000 --multiplier 1 --sampling poisson --batch 32 --records 5000 --adjacency add-remove
      jdfl account --algorithm.clip 30 --algorithm.sigma 0.4 --algorithm.mechanism gaussian --privacy.epsilon 16
                   --steps 60
      jdfl account --algorithm d-psgd --algorithm.clip 1 --algorithm.mechanism gaussian
                   --algorithm.mechanism.multiplier 4 --steps 20 --observer neighbour --nodes 3
                                                           what node 3 learns from what its neighbours send
      jdfl account --config runs/NAME/config.yaml --observer pairs --figure pairs.png
      jdfl account --run runs/NAME --privacy.delta 1e-6
      jdfl account --algorithm ceps-paper --algorithm.epsilon 2 --privacy.accounting paper     labelled as no guarantee
      jdfl account --new-ledger digits.json --epsilon 3 --delta 1e-6      what all runs on some data may spend together
      jdfl account --ledger digits.json                                   and what they have spent

    exit status: 0 done, 2 a mistake in the settings, or nothing can be claimed
    """

    config: Path | None = None
    """File config.yaml of a run to account for; other flags override it."""
    run: Path | None = None
    """Folder of a finished run."""
    releases: int | None = None
    """Number of releases. Flags about a run are refused then."""
    noise: Literal["gaussian", "laplace", "exact-gaussian"] = "gaussian"
    """Kind of noise, with --releases."""
    entries: int | None = None
    """Length of a released vector, with --noise exact-gaussian: delta pays for every draw."""
    multiplier: float | None = None
    """Standard deviation (or Laplace scale) of the noise divided by the sensitivity, with --releases."""
    epsilon: float | None = None
    """Target epsilon, with --releases instead of a multiplier; with --new-ledger the budget of all runs together."""
    delta: float = 1e-5
    """Probability with which the guarantee may fail, with --releases or --new-ledger."""
    sampling: Literal["none", "poisson", "subset"] = "none"
    """Sampling of the records that a release uses, afresh and in secret, with --releases."""
    batch: int | None = None
    """Expected or exact number of records in a sample, with --sampling."""
    records: int | None = None
    """Number of records that samples are drawn from, with --sampling."""
    adjacency: Literal["replace-one", "add-remove"] = "replace-one"
    """Difference between neighbouring datasets, with --releases; the sensitivity refers to it."""
    ledger: Path | None = None
    """File of a dataset's ledger, which is shown."""
    new_ledger: Path | None = None
    """File of a new ledger, with --epsilon and --delta for all runs on the data together."""
    observer: Literal["everyone", "neighbour", "coalition", "final-models", "server", "pairs"] | None = None
    """Observer of a planned run; pairs: every node observes every other one."""
    nodes: tuple[int, ...] = ()
    """Nodes that observe, or whose final models are published, with --observer."""
    sums: bool = False
    """Observers see only secure sums of messages, with --observer."""
    figure: Path | None = None
    """File of a heat map of epsilon, and of epsilon by distance, with --observer pairs."""
    json: bool = False
    """Print JSON."""


_OF_RELEASES = ("noise", "entries", "multiplier", "epsilon", "delta", "sampling", "batch", "records", "adjacency")


def _check(config: RunConfig, options: Options, given: list[str]) -> None:
    """Refuse flags that do not fit together: ValueError naming them."""
    observer, nodes = options.observer, options.nodes
    for name in ("releases", "run"):
        if observer is not None and getattr(options, name) is not None:
            raise ValueError(
                f"Expected --observer for a run that the flags describe, got it with --{name}. A finished run's "
                "settings are in its folder: --config FOLDER/config.yaml."
            )
    fits = {
        "figure": (options.figure is not None, "pairs", "--observer pairs"),
        "sums": (options.sums, "neighbour coalition server pairs", "an observer of messages that are added up"),
        "nodes": (nodes != (), "neighbour coalition final-models", "an observer that is some of them"),
    }
    for name, (wanted, known, words) in fits.items():
        if wanted and observer not in known.split():
            raise ValueError(f"Expected --{name} with {words}, got observer = {observer!r}.")
    if observer == "neighbour" and len(nodes) != 1:
        raise ValueError(f"Expected one node with --observer neighbour, got nodes = {nodes}. Several are a coalition.")
    others = {name for name in ("releases", "run", "config", "observer") if getattr(options, name) is not None}
    described = ["the settings of a run"] * (config != RunConfig())
    if options.ledger is not None or options.new_ledger is not None:
        if options.ledger is not None and options.new_ledger is not None:
            raise ValueError(
                f"Expected --ledger or --new-ledger, got {options.ledger} and {options.new_ledger}. Make it first, "
                "then show it."
            )
        if found := ", ".join([*sorted(others), *described]):
            raise ValueError(
                f"Expected --ledger or --new-ledger alone, got {found} too. A planned run is checked "
                "against a ledger with --privacy.ledger."
            )
        if options.new_ledger is not None and options.epsilon is None:
            raise ValueError(
                "Expected --epsilon with --new-ledger, got epsilon = None. It is what all runs on the data may spend "
                "together, at --delta."
            )
    elif options.releases is None:
        for name in _OF_RELEASES:
            if name in given:
                raise ValueError(
                    f"Expected --{name} with --releases only, got {name} = {getattr(options, name)!r}. A run has its "
                    "own: --privacy.epsilon, --privacy.delta, and the flags of its algorithm."
                )
    elif others & {"run", "config"} or described:
        raise ValueError(
            f"Expected --releases = {options.releases} without settings of a run, got both. What releases add up to is "
            f"decided by --{', --'.join(_OF_RELEASES)}."
        )


def account(config: RunConfig, options: Options, given: list[str]) -> int:
    """Account and print; returns the exit status. `given` has the names of the flags on the command line."""
    _check(config, options, given)
    if options.ledger is not None or options.new_ledger is not None:
        values, text = _ledger(options)
    elif options.releases is not None:
        values = _releases(options)
        text = "".join(f"{name}: {value}\n" for name, value in values.items() if value is not None)
    else:
        find = _observed if options.observer is not None else _planned if options.run is None else _finished
        found = find(config, options)
        values, text = found.as_dict(), found.statement()
        if find is _planned and (book := ledger_of(config)) is not None:  # refused here as it would be there
            spent = book.check(intended(config, build(config), [run_key_of(config, config.seed or 0, noisy=True)]))
            now = book.standing()
            values |= {"data_ledger": now.as_dict() | {"with_this_run": spent}}
            text += f"- ledger: {now.statement().removesuffix('.')}; "
            text += f"with this run it would be ({upper(spent)}, {now.delta:g})\n"
    print(json.dumps(values, indent=2, allow_nan=False) if options.json else wrapped(text.rstrip("\n")))
    return 0


def _ledger(options: Options) -> tuple[dict[str, Any], str]:
    """The content of a ledger, as plain data and in words; a new one is made first."""
    if options.new_ledger is not None:
        assert options.epsilon is not None
        book = jdfl.DataLedger.create(options.new_ledger, epsilon=options.epsilon, delta=options.delta)
    else:
        book = jdfl.DataLedger(str(options.ledger))
    standing = book.standing()
    return standing.as_dict(), "\n".join([standing.statement(), *(f"- {line}" for line in book.lines()), ""])


def _planned(config: RunConfig, options: Options) -> jdfl.PrivacyReport:
    """The privacy of all rounds of a run that the flags describe."""
    algorithm, problem, network, stop = build(config)
    spend = config.privacy
    found = jdfl.account_plan(
        algorithm,
        problem,
        network,
        steps=config.steps,
        key=run_key_of(config, config.seed or 0, noisy=True),
        delta=spend.delta,
        accounting=spend.accounting,
        stop=stop,
    )
    if spend.accounting == "sound" and spend.epsilon is not None and found.epsilon > spend.epsilon:
        raise ValueError(
            f"Expected a run that spends at most privacy.epsilon = {spend.epsilon:g}, got {found.epsilon:.4g} for all "
            f"{config.steps} steps: it would end before. Drop --privacy.epsilon to account for all, give fewer steps, "
            "or drop the multiplier to get the least noise that does."
        )
    return found


def _finished(config: RunConfig, options: Options) -> jdfl.PrivacyReport:
    """The privacy of a finished run, from what is recorded in its folder."""
    algorithm, problem, network, _ = build(config)
    spend, folder = config.privacy, options.run or Path()
    program = planned(algorithm, problem, network, config.steps)
    if (folder / SNAPSHOTS).is_dir() and not (folder / "summary.json").is_file():
        raise ValueError(
            f"Expected a run that is done, got {folder}, which was cut off: what it released after its last "
            f"checkpoint is not counted. First: jdfl resume {folder}"
        )
    found = read_checkpoint(folder, algorithm, problem, network)
    guarantee, ledger = guarantee_of(program, problem), found.ledger
    ledger.check_same(unspent(guarantee, problem))
    changed = flags.changed(folder, config, "privacy")
    changed += ["privacy.epsilon"] if flags.config_of(folder).privacy.epsilon != spend.epsilon else []
    if changed:
        raise ValueError(
            f"Expected the settings of the run in {folder}, got other ones of {', '.join(changed)}. A finished run is "
            "accounted for as it was made: only --privacy.delta and --privacy.accounting may be others."
        )
    if found.provenance is not None:
        made = settings_of(algorithm=algorithm, problem=problem, network=network)
        if changed := Provenance({}, made).differences(found.provenance)[1]:
            raise ValueError(
                f"Expected the settings of the run in {folder}, got others in its config.yaml. "
                f"{'; '.join(changed[:5])}. Put back the file that the run was made with."
            )
    if READS_DATA in found.warnings:
        guarantee = privacy.exposing(guarantee, ("stop",), problem.public)
    warnings = tuple(warning for warning in found.warnings if warning not in guarantee.warnings)
    how: Any = {"delta": spend.delta, "accounting": spend.accounting, "warnings": warnings}
    record = read_record(folder)
    source = "" if record is None else "given" if record[1] is None else record[1].source
    return dataclasses.replace(
        privacy.report(guarantee, ledger.releases, ledger.records, **how), key=KEYS.get(source, "")
    )


def _observed(config: RunConfig, options: Options) -> observers.Exposure | observers.Pairs:
    """What an observer learns in a planned run; a figure is drawn if one is wanted."""
    algorithm, problem, network, stop = build(config)
    how: Any = {"steps": config.steps, "key": key_of(config), "delta": config.privacy.delta}
    jdfl.account_plan(algorithm, problem, network, stop=stop, **how)  # which a stop rule on data is refused by
    nodes, sums = options.nodes, options.sums
    match options.observer:
        case "pairs":
            found = observers.observe_pairs(algorithm, problem, network, sums=sums, **how)
            if options.figure is not None:
                from jdfl.lab.drawing import heat_map  # which imports matplotlib

                heat_map(found, options.figure)
            return found
        case "neighbour":
            observer = observers.Neighbour(nodes[0], sums)
        case "coalition":
            observer = observers.Coalition(nodes, sums)
        case "final-models":
            observer = observers.FinalModels(nodes or None)
        case "server":
            observer = observers.Server(sums)
        case _:
            observer = observers.Everyone()
    return observe(algorithm, problem, network, observer, **how)


def _event(options: Options, multiplier: float) -> privacy.Event:
    """One release of the noise that the options ask for; ValueError for a size that is missing, or needless."""
    if options.noise != "exact-gaussian" and options.entries is not None:
        raise ValueError(
            f"Expected --entries with --noise exact-gaussian only, got entries = {options.entries} with noise = "
            f"{options.noise!r}. What other noise guarantees does not depend on it."
        )
    if options.noise == "laplace":
        return LaplaceEvent(multiplier)
    if options.noise == "gaussian":
        return GaussianEvent(multiplier)
    checks.integer(remedy="Give the length of the vectors that are released.", entries=options.entries)
    assert options.entries is not None
    return event_of(ExactGaussian(multiplier), options.entries)


def _releases(options: Options) -> dict[str, Any]:
    count, sampled = options.releases, None
    checks.integer(1, releases=count)
    assert count is not None
    if options.sampling != "none":
        checks.integer(remedy="Samples need --batch and --records.", batch=options.batch, records=options.records)
        assert options.batch is not None
        assert options.records is not None
        sampled = Sampled(options.sampling, options.batch, options.records)
        sampled.check()
        if options.delta >= 1 / options.records:
            raise ValueError(
                f"Expected delta < 1 / records = {1 / options.records:.3g}, got delta = {options.delta:g}. Publishing "
                "a record picked at random has such a delta."
            )
    elif options.batch is not None or options.records is not None:
        raise ValueError(
            f"Expected --sampling with --batch and --records, got batch = {options.batch!r} and records = "
            f"{options.records!r} without. Releases that look at all records need neither."
        )
    if (options.multiplier is None) == (options.epsilon is None):
        raise ValueError(
            f"Expected --multiplier or --epsilon with --releases, got multiplier = {options.multiplier!r} and "
            f"epsilon = {options.epsilon!r}. One of them is computed from the other."
        )
    how: Any = {"sampled": sampled, "adjacency": options.adjacency}
    multiplier = options.multiplier
    if multiplier is None:
        assert options.epsilon is not None
        delta = delta_for_noise(_event(options, 1.0), count, options.delta, options.epsilon)
        kind = "laplace" if options.noise == "laplace" else "gaussian"
        multiplier = privacy.noise_multiplier(kind, options.epsilon, delta, count, **how)
    event = _event(options, multiplier)
    return {
        "noise": options.noise,
        "multiplier": multiplier,
        "releases": count,
        "adjacency": options.adjacency,
        "sampling": None if sampled is None else f"{sampled.kind} of {sampled.batch} among {sampled.records} records",
        "delta": options.delta,
        "epsilon": epsilon(event, count, options.delta, **how),
        "epsilon by RDP": privacy.epsilon_rdp(event, count, options.delta, **how),
        "epsilon without sampling": None if sampled is None else epsilon(event, count, options.delta),
        "epsilon at delta = 0": privacy.epsilon_pure(event, count, sampled=sampled),
        "epsilon of one release": epsilon(event, 1, options.delta, **how),
    }
