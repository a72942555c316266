"""The result of a run: data on the host, with totals as exact Python integers, and the reason of its end.

Axes: m nodes, n parameters.
"""

import functools
import hashlib
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import jax
import numpy as np
import pandas as pd
from jax import Array
from scipy.special import ndtri

from jdfl.arrays.ops import from_limbs
from jdfl.base import hooks
from jdfl.base.arguments import checked
from jdfl.base.display import Described, Tabled
from jdfl.base.keys import key_data
from jdfl.base.names import Names
from jdfl.base.run_keys import RunKey, Source, key_of_words
from jdfl.engine import invariants, stepping
from jdfl.engine.compiling import Spent
from jdfl.engine.data_ledger import Standing
from jdfl.engine.metrics import classifies
from jdfl.engine.provenance import PRIVATE, Provenance, identity, is_integral
from jdfl.engine.spending import records_of, stop_tells
from jdfl.engine.stopping import StopRule
from jdfl.network import Graph
from jdfl.privacy import Guarantee, exposing
from jdfl.problems import LossProblem, Problem

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from jdfl.engine.loop import Record, RunState
    from jdfl.engine.start import Plan


Cut = Literal["time limit", "interrupted", "terminated"]  # endings after which a run can be continued
CUTS: tuple[Cut, ...] = get_args(Cut)
Ending = Literal["steps", "stop rule", "diverged", "invariant", "budget"] | Cut
_PROGRESS = ("objective", "suboptimality", "objective_local", "test_loss")  # the first that was recorded is looked at
BAD = {"diverged": "diverged", "invariant": "violated an invariant"}  # whose numbers count for nothing
READS_DATA = "a stop rule or a callback looks at more than what is released, and all see when it ends the run"
_FEW = 1024  # examples of all nodes whose gradients are computed at the end, at least one of every node


@dataclass(frozen=True)
class Totals:
    """Exact totals over all nodes and rounds, the start included.

    They are Python integers, which never overflow. A vector sent to three neighbours counts as three messages, and a
    message that was lost counts as sent. The size of a message is what its codec reports. `history` has the same totals
    at every record.
    """

    messages: dict[str, int]  # by channel
    message_bits: dict[str, int]  # size of one message, by channel
    gradients: int  # evaluations of a node's gradient, over any number of examples
    examples: int  # gradients of single examples
    communications: int  # how often nodes combined messages that they received
    releases: int  # noisy functions of the data that others may see

    @property
    def bits(self) -> int:
        """Bits sent by all nodes in all rounds, an exact integer; headers of a transport are not included."""
        return sum(count * self.message_bits[channel] for channel, count in self.messages.items())

    @property
    def bytes(self) -> float:
        """Bytes sent over the network: bits / 8, as a float, which rounds very large numbers."""
        return self.bits / 8


@dataclass(frozen=True, repr=False)
class Result(Described):
    """A finished run.

    `jdfl.run` returns one; `sweep` and `repeat` return a list. `ending` says whether all rounds were done, a stop rule
    fired, a budget was spent, or the run diverged, violated an invariant or was interrupted. `plot` draws it, `save`
    and `jdfl.load` keep it, `report` makes a page, `jdfl.account` gives its epsilon, `jdfl.run(resume=...)` continues.
    """

    algorithm: Any  # with its settings
    problem_name: str  # `name` of the problem
    network_name: str  # `name` of the network
    params: Array  # [m, n] parameters of the nodes at the end
    state: Any  # last state of the algorithm, which no guarantee covers; None for runs made side by side
    history: pd.DataFrame  # a row per record: round, metrics, and totals so far
    rounds: int
    ending: Ending
    reason: str  # the ending in words
    diverged: tuple[int, int] | None  # (round, node) of the first number that is not finite, or too large
    totals: Totals
    communication_rounds: np.ndarray  # [m] how often each node combined messages, and a robust rule accepted any
    releases: np.ndarray  # [m] noisy functions of each node's data that others may see
    clock: np.ndarray | None  # [m] simulated seconds until every node was done; None: the network has no times
    published_bytes: float | None  # by the formula behind the tables of the paper; None where there is none
    guarantee: Guarantee
    records: np.ndarray  # [m] records in the local dataset of each node
    privacy_warnings: tuple[str, ...]  # what this run did that its guarantee does not cover
    key: tuple[int, ...]  # words of the public key
    sums: dict[str, int]  # exact totals by counter, as `totals` has them
    seconds: float  # wall time without compilation
    compile_seconds: float  # of tracing and compilation
    provenance: Provenance  # code, libraries, settings
    private_key: tuple[int, ...] = ()  # words of the key of noise and of the choice of records
    key_source: Source = "given"  # of the private key
    token: str = ""  # what distinguishes the run from others with the same private key
    data: str = ""  # what the arrays of the data are distinguished by from others, also from equal ones
    released: tuple[str, ...] = ("",)  # digests of what was released where the run ended, and ended before
    ready: Any = None  # what the algorithm computed before the first round, such as constants of the nodes
    labels: dict[str, Any] = field(default_factory=dict)  # seed and swept values
    clock_rest: np.ndarray | None = None  # [m] seconds that rounding has left out of `clock`
    moments: dict[int, np.ndarray] = field(default_factory=dict)  # `releases` after some rounds, of noise
    standing: Standing | None = None  # the ledger of the data when this run had ended; None: there is none
    test_examples: int | None = None  # the metric `accuracy` is a share of them; None: it is not a share
    minimises: str = ""  # what the method minimises on this network, in words; "": the mean of the nodes' objectives
    notes: tuple[str, ...] = ()  # what of the run differs from what its settings suggest, for `warnings`
    violated: tuple[int, int] | None = None  # (round, node) of the first violated invariant; -1: all nodes together
    node_names: Names | None = None  # [m] of all rows per node, in their order; None: nodes have numbers alone
    pairing: str = ""  # how the nodes of problem and network were matched: by name, or by position and why
    computed: Callable[[], str] | None = field(default=None, compare=False)  # gives the digest of what it computes

    @property
    def run_key(self) -> RunKey:
        """The keys of the run, with which `jdfl.run` makes it again."""
        public, private = (key_of_words(words) for words in (self.key, self.private_key))
        return RunKey(public, private, self.key_source, self.token)

    @property
    def private_digest(self) -> str:
        """The digest of the private key; runs that share it share their noise."""
        return self.provenance.settings.get(PRIVATE, "")

    @property
    def final(self) -> dict[str, float]:
        """The last record, by the names of the columns of `history`: the round, the metrics, and the totals so far.

        Of a run that diverged or violated an invariant no metric is finite: inf, or -inf where higher values are
        better, so that no other run is worse; NaN for a metric of your own.
        """
        return {str(name): float(value) for name, value in self.history.astype(float).iloc[-1].items()}

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a reader of the result must not miss, in words: what `notes` say, and whether nothing was learnt."""
        found = next((name for name in _PROGRESS if name in self.history), None)
        if found is None or self.rounds == 0:
            return self.notes
        first, last = (float(self.history[found].iloc[place]) for place in (0, -1))
        if last < first:
            return self.notes
        where = f"ended at {last:.4g}, above its initial value {first:.4g}"
        if last == first:
            where = f"is still at its initial value {first:.4g}"
        return (*self.notes, f"the {found.replace('_', ' ')} {where}: nothing was learnt")

    @property
    def intervals(self) -> dict[str, tuple[float, float]]:
        """The 95 % interval of `accuracy` in the last record, by Wilson's formula for the number of test examples.

        It is about this one run and a test set drawn at random. Empty where no such accuracy was recorded.
        """
        share = self.final.get("accuracy", float("nan"))
        return {} if self.test_examples is None or np.isnan(share) else {"accuracy": wilson(share, self.test_examples)}

    @checked
    def plot(
        self,
        x: str | Sequence[str] = "round",
        y: str | None = None,
        *,
        ax: Any = None,
        width: Literal["column", "page"] | float = "column",
        height: float | None = None,
        floor: float | None = None,
    ) -> "tuple[Figure, Any]":
        """Draw a metric against what it cost: `fig, ax = result.plot(y="objective")`.

        Nothing is written: save the figure with `fig.savefig("name.pdf")`, which puts the provenance into the metadata
        of the file. An axis is logarithmic where its values are positive and far apart.

        Args:
            x: round, communications, bytes, gradients, examples, seconds or, on networks with times, network_seconds;
                or a list of them.
            y: The metric; None: suboptimality or objective if it was recorded, otherwise the first metric.
            ax: Axes of matplotlib to draw into, one per amount; None: a new figure, which pyplot does not know.
            width: The width of a new figure: "column" (3.3 inches), "page" (7 inches), or a number of inches.
            height: The height of a new figure in inches; None: what the panels need.
            floor: The accuracy of the reference solution that a suboptimality is measured from: smaller values are
                drawn at it. None: there is none.

        Returns:
            The figure and its Axes, an array of Axes for a list of amounts. A notebook shows the figure where it, or
                this value, is on the last line of a cell.

        Raises:
            ValueError: For an unknown amount or metric, for a size that is not positive, and for another number of
                Axes than amounts.
        """
        return hooks.find("plot")(self, x, y, ax=ax, width=width, height=height, floor=floor)

    @checked
    def save(self, folder: str | Path, *, overwrite: bool = False) -> Path:
        """Write the result into a folder, whole or not at all, and return its path; `jdfl.load` reads it back.

        The folder has history, parameters, totals, provenance, guarantee and labels, a summary in words, and, if there
        is a state, a checkpoint to resume from. The state is the exact state of the nodes, which no guarantee covers.
        The key of the run and the algorithm object are not written.

        The `folder` is made, with those above it. One with content is replaced with `overwrite`; otherwise
        FileExistsError.
        """
        return hooks.find("save")(folder, self, overwrite=overwrite)

    @checked
    def report(self, path: str | Path) -> Path:
        """Write one HTML page about the run to `path`, which is returned: curves, privacy, costs, provenance.

        It is a single file that loads nothing from elsewhere, and replaces one that is there.
        """
        return hooks.find("report")(self, path)

    @functools.cached_property
    def _shown(self) -> list[tuple[str, str]]:
        return hooks.find("describe")(self)

    def _described(self) -> tuple[str, list[tuple[str, str]]]:
        return "", self._shown


class Results(list[Result], Tabled):
    """Runs in a list, which is shown as a table of them: labels, how they ended, and the first metric."""

    def __repr__(self) -> str:
        return Tabled.__repr__(self) if self else "[]"

    def _tabled(self) -> tuple[str, list[list[str]], list[str]]:
        names, recorded = dict.fromkeys(name for one in self for name in one.labels), self[0].final
        shown = [name for name in ("objective", "accuracy", "consensus_error") if name in recorded]
        head = [*names, "rounds", "ended by", *(name.replace("_", " ") for name in shown), "bytes"]
        rows = [
            [
                *(
                    f"{value:.6g}" if isinstance(value := one.labels.get(name, ""), float) else str(value)
                    for name in names
                ),
                f"{one.rounds:,}",
                one.ending,
                *(f"{one.final[name]:.4g}" for name in shown),
                f"{one.totals.bytes:,.0f}",
            ]
            for one in self
        ]
        return f"{len(self)} runs of {self[0].problem_name} over {self[0].network_name}", [head, *rows], []


@dataclass(frozen=True)
class Snapshot:
    """What a callback sees of a run. The functions copy from a state that is soon overwritten: call them at once.

    Numbers and records are on the host. Arrays of all nodes are fetched when they are asked for, so that they cost
    nothing otherwise; where a run has several processes, all of them have to ask.
    """

    rounds: int
    """Rounds that are done."""
    steps: int
    """Maximum number of rounds of the run."""
    row: dict[str, Any]
    """The last record."""
    rows: list[dict[str, Any]]
    """The records since the previous chunk; with the first chunk, also that of the start."""
    params: Callable[[], Array]
    """Gives the parameters [m, n]."""
    communications: Callable[[], np.ndarray]
    """Gives how often each node has combined messages so far [m]."""
    releases: Callable[[], np.ndarray]
    """Gives how many noisy functions of each node's data others may have seen so far [m]."""
    graph: Callable[[], Graph]
    """Gives the graph of the last round, with the rows of all nodes."""
    result: Callable[[], "Result"]
    """Gives the result of the run as if it were interrupted now."""
    chunk: int = 1
    """Rounds between two snapshots, which are taken at its multiples and at the end of the run."""


class Tally:
    """Adds up the partial sums of the device, chunk by chunk on the host, into rows of the history and exact totals.

    A record that falls on no multiple of `every` was made because the run ended there: it goes when the run goes on.
    """

    def __init__(self, message_bits: dict[str, int], every: int) -> None:
        self.message_bits, self._every = message_bits, every
        self.base: dict[str, int] = {}
        self.rows: list[dict[str, Any]] = []

    def add(self, rounds: Any, metrics: dict[str, Any], counts: dict[str, Any]) -> None:
        """Append records after `rounds` [k] with their metrics and counts by name; one without progress is dropped."""
        rounds, metrics, counts = jax.device_get((rounds, metrics, counts))  # one transfer
        sums: dict[str, int] = {}
        for i, done in enumerate(rounds.tolist()):
            sums = {name: self.base.get(name, 0) + from_limbs(part[i]) for name, part in counts.items()}
            if self.rows and done <= self.rows[-1]["round"]:
                continue
            if self.rows and self.rows[-1]["round"] % self._every:
                self.rows.pop()
            values = {name: float(value[i]) for name, value in metrics.items()}
            totals = self._totals(sums)
            row = {"round": done, **values, "messages": sum(totals.messages.values()), "bytes": totals.bytes}
            names = ("gradients", "examples", "communications", "releases")
            self.rows.append(row | {name: getattr(totals, name) for name in names})
        self.base = sums

    def _totals(self, sums: dict[str, int]) -> Totals:
        sent = {name.removeprefix("sent_"): value for name, value in sums.items() if name.startswith("sent_")}
        counted = (sums[name] for name in ("grads", "examples", "communications", "releases"))
        return Totals(sent, self.message_bits, *counted)

    def since(self, rounds: int) -> list[dict[str, Any]]:
        """The rows after so many rounds."""
        later = itertools.takewhile(lambda row: row["round"] > rounds, reversed(self.rows))
        return list(later)[::-1]

    def totals(self) -> Totals:
        """The totals so far."""
        return self._totals(self.base)

    def history(self) -> pd.DataFrame:
        """The rows so far."""
        return pd.DataFrame({name: [row[name] for row in self.rows] for name in self.rows[0]})


def wilson(share: float, examples: int) -> tuple[float, float]:
    """The 95 % interval of E. B. Wilson (1927) for a share of all data, from that of examples drawn at random."""
    z = float(ndtri(0.5 + 0.95 / 2))
    middle = share + z * z / (2 * examples)
    width = z * np.sqrt(share * (1 - share) / examples + (z / (2 * examples)) ** 2)
    low, high = ((middle + side * width) / (1 + z * z / examples) for side in (-1, 1))
    return max(0.0, float(low)), min(1.0, float(high))


def as_chunk(record: "Record") -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """One record as a chunk of one, for `Tally.add`."""
    every = (record.rounds, record.metrics, record.counts)
    rounds, metrics, counts = jax.tree.map(lambda leaf: leaf[None], jax.device_get(every))
    return rounds, metrics, counts


def assemble(
    plan: "Plan",
    setting: stepping.Setting,
    params: Array,
    carry: "RunState",
    tally: Tally,
    spent: Spent,
    cut: tuple[Cut, str] | None = None,
    warned: tuple[str, ...] = (),
    moments: dict[int, np.ndarray] | None = None,
) -> Result:
    """The result of a run that ended or was `cut`, on the host.

    `setting` is what the steps could read, `carry` what the loop carried at the end, and `params` ([m, n]) its
    parameters. `tally`, `spent` and `warned` have the records, seconds and warnings so far, and `moments` ([m] each)
    the releases after some rounds.
    """
    problem, network, guarantee = plan.problem, plan.network, plan.guarantee
    rounds, found = int(carry.rounds), invariants.found(carry.bad)
    ending, reason = _ending(rounds, plan, carry, setting, cut)
    warns = dict.fromkeys((*warned, *_privacy_warnings(setting.stop, ending, guarantee)))
    history, state = tally.history(), carry.state
    digest = "" if guarantee.event is None else _released(rounds, params, state, carry.releases, history)
    released = f"{plan.made} {digest}".strip()
    return Result(
        algorithm=setting.program.algorithm,
        ready=setting.program.ready,
        problem_name=problem.name,
        network_name=getattr(network, "name", type(network).__name__),
        node_names=problem.node_names if problem.node_names is not None else getattr(network, "node_names", None),
        pairing=stepping.pairing(problem, network),
        params=params,
        minimises=setting.program.algorithm.minimises(problem, network),
        notes=(
            *_alone(setting.program.algorithm, np.asarray(carry.communications), rounds),
            *_zeroed(plan, params, history),
        ),
        state=state,
        history=history,
        rounds=rounds,
        ending=ending,
        reason=reason,
        diverged=(rounds, found.node) if found is not None and found.rule is None else None,
        violated=(rounds, found.node) if found is not None and found.rule is not None else None,
        totals=tally.totals(),
        communication_rounds=np.asarray(carry.communications),
        releases=np.asarray(carry.releases),
        clock=None if carry.clock is None else np.asarray(carry.clock[0]),
        clock_rest=None if carry.clock is None else np.asarray(carry.clock[1]),
        moments=moments or {},
        published_bytes=setting.program.published_bytes(problem, rounds),
        guarantee=exposing(guarantee, ("stop",), problem.public) if READS_DATA in warns else guarantee,
        records=records_of(problem),
        privacy_warnings=tuple(warning for warning in warns if warning not in guarantee.warnings),
        key=tuple(key_data(plan.key.public)),
        private_key=tuple(key_data(plan.key.private)),
        key_source=plan.key.source,
        token=plan.key.token,
        data=identity((problem.data, problem.weight)),
        released=(*(() if plan.before is None else plan.before.released), released),
        sums=dict(tally.base),
        seconds=spent.seconds,
        compile_seconds=spent.compile_seconds,
        provenance=plan.provenance,
        computed=plan.computed,
        test_examples=_tested(setting.program.judged(problem)[0]),
    )


def _released(rounds: int, params: Array, state: Any, releases: Any, history: pd.DataFrame) -> str:
    """The digest of what a run with noise has put out: equal ones of runs with one key say that nothing differs."""
    total = hashlib.sha256(f"{rounds} {list(history.columns)}".encode())
    leaves = [_plain(leaf) for leaf in (params, releases, *jax.tree.leaves(state))]
    for part in jax.device_get(leaves):
        total.update(f"{part.dtype}{list(part.shape)}".encode())
        total.update(np.ascontiguousarray(part).reshape(-1).view(np.uint8).data)
    total.update(history.to_numpy(float).tobytes())
    return total.hexdigest()[:32]


def _plain(x: Any) -> Any:
    """An array without keys of random numbers, which hosts cannot hold."""
    return jax.random.key_data(x) if jax.numpy.issubdtype(x.dtype, jax.dtypes.prng_key) else x


def _privacy_warnings(stop: StopRule | None, ending: Ending, guarantee: Guarantee) -> tuple[str, ...]:
    """What the end of a run reveals beyond its guarantee."""
    if stop_tells(guarantee, stop):  # that it did not fire is information, too
        return (READS_DATA,)
    if stop is None or ending != "stop rule":
        return ()
    return ("the stop rule looks at all nodes' true parameters, which no node knows; they follow from noisy releases",)


def _zeroed(plan: "Plan", params: Array, history: pd.DataFrame) -> tuple[str, ...]:
    """How many clipped gradients count as zero at the end, where recorded losses or gradients are not finite."""
    clips = getattr(plan.program.algorithm, "gradients", plan.program.algorithm)
    looked = [name for name in ("objective", "objective_local") if name in history]
    finite = bool(looked) and bool(np.isfinite(history[looked].to_numpy(float)).all())
    if getattr(clips, "clip", None) is None or not is_integral(params):
        return ()
    problem: Any = replace(plan.problem, name="", test=None)
    here = np.asarray(problem.weight) > 0
    if not finite and np.any(lost := here & ~np.isfinite(np.asarray(_losses(problem, params)))):
        whole = int(np.sum(lost.sum(axis=1) == here.sum(axis=1)))
        return (
            f"the losses of {int(lost.sum())} of {int(here.sum())} examples are not finite at the last parameters, of "
            f"all examples at {whole} of {len(here)} nodes: clipped gradients that are not finite count as zero",
        )
    if not _own(problem):
        return ()
    few = here[:, : max(1, _FEW // len(here))]
    lost = few & ~np.asarray(_sound(problem, params, few.shape[1]))
    words = f"gradients of {int(lost.sum())} of {int(few.sum())} examples, at {int(lost.any(axis=1).sum())} nodes, "
    return (words + "are not finite at the last parameters: clipped, they count as zero",) * bool(lost.any())


def _own(problem: Any) -> bool:
    """Whether the losses of single examples are a person's own."""
    model = getattr(problem, "model", None)
    own = isinstance(problem, LossProblem) or not type(problem).__module__.startswith("jdfl.")
    return own if model is None else model.own and not model.examples_mix


@functools.partial(jax.jit, static_argnames="count")
def _sound(problem: Any, params: Array, count: int) -> Array:

    def one(w: Array, data: Any) -> Array:
        gradients = jax.lax.map(
            lambda i: problem.example_gradients(w, problem.take(data, i[None]))[0], jax.numpy.arange(count)
        )
        return jax.numpy.isfinite(gradients).all(axis=1)

    return problem.each(one, params, problem.data)


@jax.jit
def _losses(problem: Any, params: Array) -> Array:
    return problem.each(problem.losses, params, problem.data)


def _alone(algorithm: Any, communications: np.ndarray, rounds: int) -> tuple[str, ...]:
    """Whether there were nodes that never combined a message, though the method sends some."""
    alone = np.flatnonzero(communications == 0)
    if not len(alone) or not algorithm.channels or rounds == 0 or len(communications) == 1:
        return ()
    which = "no node" if len(alone) == len(communications) else f"{len(alone)} of {len(communications)} nodes never"
    words = "ever combined a message" if which == "no node" else "combined a message"
    return (f"{which} {words} in {rounds} rounds (node {alone[0]}{', ...' if len(alone) > 1 else ''} for example)",)


def _ending(
    rounds: int,
    plan: "Plan",
    carry: "RunState",
    setting: stepping.Setting,
    cut: tuple[Cut, str] | None,
) -> tuple[Ending, str]:
    found, stopped, stop = invariants.found(carry.bad), bool(carry.stopped), setting.stop
    m, steps, metrics = len(carry.communications), plan.steps, plan.metrics
    if found is not None and found.rule is not None:  # which is why a number may not be finite either
        measured = np.asarray(carry.measured, np.float64)
        value = float(measured.sum() if found.node == invariants.NOWHERE else measured[found.node])
        return "invariant", invariants.what_is_broken(found.rule, found.node, value, rounds, m, setting.planned)
    if found is not None and found.metric is not None:
        name = metrics[found.metric].__name__
        return "diverged", (
            f"the metric {name} is not finite after round {rounds}, though all parameters are; lower the learning rate "
            "or the noise, or look at the loss"
        )
    if found is not None:
        bad = invariants.what_is_bad(carry.state, found.node, len(setting.node), setting.largest, setting.watched)
        return "diverged", (
            f"node {found.node} has {bad} after round {rounds}; "
            "lower the learning rate or the noise, or look at that node's data"
        )
    if stopped and stop is not None:
        return "stop rule", stop.reason
    if bool(carry.spent) and setting.program.algorithm.asynchronous and carry.clock is not None:
        when = f"at {float(carry.clock[0][0]):.6g} s"
        return "budget", f"an event {when} would release more than the privacy budget allows; nothing of it is sent"
    if bool(carry.spent):
        return "budget", f"round {rounds + 1} would release more than the privacy budget allows; nothing of it is sent"
    if cut is not None and rounds < steps:
        return cut[0], f"{cut[1]} after round {rounds}; everything up to there is kept"
    return "steps", f"all {steps} rounds are done" + (", the stop rule never fired" if stop is not None else "")


def _tested(problem: Problem) -> int | None:
    """How many test examples the accuracy is a share of; None where it is no share, such as a mean over nodes."""
    if problem.test is None or problem.personal or not classifies(problem):
        return None
    return int(problem.test[1].shape[0])
