"""`jdfl.audit`: an attack on the privacy that an algorithm reports.

Half of many runs use one dataset, half a neighbouring one. A linear score of what the canary's node shows distinguishes
them, and how well it does so bounds epsilon from below. A lower bound above the reported epsilon refutes the report;
one below it proves nothing, since another attack may be better. In addition, noise, sensitivity and sampling are
measured where possible (see `jdfl.auditing.probe`), and a measurement that cannot be chance refutes the report as well.

The attacker knows all settings, what `prepare` draws, all other records, and everything that the node and its
in-neighbours show in every round (see `jdfl.auditing.observe`).

Axes: m nodes, N runs, p features.
"""

import math
import time
import warnings
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jdfl.algorithms.algorithm import Algorithm
from jdfl.auditing.attack import Attack, Verdict, above, attack, basis, check_level
from jdfl.auditing.canary import Canary, Limit, check_dense, designed, given, planted
from jdfl.auditing.observe import check_visible, in_parts, observe, observe_events, pilot, pilot_events, some, watched
from jdfl.auditing.probe import Probe, most_runs, noisy_guarantee, probe
from jdfl.base import arguments, checks
from jdfl.base.backend import backend
from jdfl.base.keys import key_data, key_digest, typed_key
from jdfl.base.streams import Keys, Stream
from jdfl.engine import stepping
from jdfl.engine.provenance import COMPUTED, checksums, computed, settings_of, versions
from jdfl.engine.start import check_run
from jdfl.engine.stepping import Setting
from jdfl.events.method import AsyncMethod
from jdfl.network.graph import Network
from jdfl.privacy import GaussianEvent, Guarantee, Ledger, report
from jdfl.privacy.report import upper
from jdfl.problems import Problem
from jdfl.store.jobs import name_of, opened

_ZERO, _ONE = Stream("audit.world without", "private"), Stream("audit.world with", "private")
_PILOT, _DIRECTION = Stream("audit.pilot", "private"), Stream("audit.direction", "private")
_PUBLIC, _PROBE = Stream("audit.constants", "shared"), Stream("audit.probe", "private")
_PILOTS, _POINTS = 4, 5  # pilot runs, and points on the path of each
_MOST_LANES, _MOST_NUMBERS = 256, 2**20  # runs side by side; parameters in them
_FEW = 20  # runs per weight of the score


@dataclass(frozen=True, kw_only=True)
class Audit(Verdict, Attack, Probe):
    """How well an attack distinguished two neighbouring datasets, compared with the accounted epsilon.

    `mu_hat` is the distance of N(0, 1) from N(mu, 1), which alone decides how well Gaussian releases can be
    distinguished. `epsilon_lower` is a bound at `confidence`; `epsilon_most` is what a faultless attack with this
    number of runs would have shown: they cannot refute a larger accounted epsilon.
    """

    runs: int  # in both worlds together
    releases: int  # by the canary's node, in the run with most
    mu_accounted: float | None  # None for noise that is not Gaussian, and for gradients of samples
    claimed: bool  # whether the algorithm claims it, or it would follow if all assumptions held
    canary: str
    left_out: tuple[str, ...]  # what the guarantee leaves out; constants from data are taken as public
    published: tuple[float, float] | None = None  # epsilon and delta that the algorithm's paper claims

    @property
    def violated(self) -> bool:
        """Whether the attack's bound is above the accounted epsilon, or there are findings.

        The attack flags a sound algorithm with probability at most 1 - `confidence`, and all tests of repeated rounds
        together with probability at most 1e-6.
        """
        return bool(self.families)

    @property
    def families(self) -> tuple[str, ...]:
        """What refutes the account: "attack" where the attack does, then the families of findings, clearest first."""
        attack = ["attack"] if self.epsilon_lower > self.epsilon_accounted else []
        return tuple(dict.fromkeys(attack + [one.family for one in self.findings]))

    @property
    def inconclusive(self) -> bool:
        """Whether nothing was refuted, no rounds could be repeated, and more is claimed than the attack can judge.

        That is any claim, since an attack alone finds few errors, and any account above `epsilon_most`.
        """
        unjudged = self.claimed or self.epsilon_accounted > self.epsilon_most
        return not self.violated and bool(self.not_probed) and unjudged

    @property
    def refutes_published(self) -> bool:
        """Whether `delta_lower`, at the published epsilon, is above the published delta; not a part of `violated`."""
        return self.published is not None and self.delta_lower is not None and self.delta_lower > self.published[1]

    def statement(self) -> str:
        """The audit in words, as Markdown list items; first VIOLATED, INCONCLUSIVE or not refuted."""
        rests, shown = basis(self.claimed), f"shows {self._shown}"
        attacked = f"the attack on {self.algorithm} {shown}, against an accounted {self._account} ({rests})"
        if self.violated:
            measured = [family for family in self.families if family != "attack"]
            why = [f"the attack {shown}"] if "attack" in self.families else []
            why += [f"measurements disagree: {', '.join(measured)}"] if measured else []
            verdict = (
                f"VIOLATED: {self.algorithm} is accounted for as {self._account}-differentially private ({rests}), "
                f"but {', and '.join(why)}"
            )
        elif self.inconclusive:
            why = "which this number of runs cannot refute"
            if self.epsilon_accounted <= self.epsilon_most:
                why = "and nothing else was measured"
            verdict = f"INCONCLUSIVE: {attacked}, {why}"
        else:
            verdict = f"not refuted: {attacked}. An audit can refute but not prove: another attack may be better"
        mu = "" if self.mu_accounted is None else f", against an accounted {self.mu_accounted:.4g}"
        lines = [
            f"audit: {verdict}",
            f"mu: {self.mu_hat:.4g} ({self.mu_low:.4g} to {self.mu_high:.4g}){mu}; AUC {self.auc:.4g}",
            f"attack: {self.runs} runs, {self.releases} releases of the node, canary {self.canary}; "
            f"{self.seconds:.1f} s",
        ]
        if self.not_probed:
            lines.append(f"not probed: {self.not_probed}")
        elif self.tests:
            lines.append(f"probed: {self.tests} tests of repeated rounds, {len(self.findings)} failed")
        clearest = {one.family: one for one in reversed(self.findings)}
        lines += [
            f"{one.family}: {one.text} (p = {one.p:.2g}, below {one.level:.2g})" for one in reversed(clearest.values())
        ]
        if self.published is not None and self.delta_lower is not None:
            verdict = "REFUTED" if self.refutes_published else "not refuted"
            lines.append(
                f"as published, {verdict}: epsilon = {self.published[0]:.4g} at delta = {self.published[1]:.4g}; the "
                f"attack shows delta >= {self.delta_lower:.4g} there"
            )
        lines += [f"not attacked, taken as public: {one}" for one in self.left_out]
        if not self.violated:
            lines += above(self.mu_low, self.mu_accounted, "runs")
        if not self.violated and self.epsilon_accounted > self.epsilon_most:
            lines.append(
                f"this number of runs can show epsilon >= {self.epsilon_most:.4g} at most: more are needed to refute "
                f"{upper(self.epsilon_accounted)}"
            )
        return "\n".join(f"- {line}" for line in lines) + "\n"


def audit(
    algorithm: Algorithm,
    problem: Problem,
    network: Network,
    *,
    steps: int,
    runs: int = 4000,
    node: int = 0,
    canary: Any = "aligned",
    delta: float | None = None,
    key: int | Array = 0,
    batch: int | None = None,
    looks: int | None = None,
    fitted: float = 0.5,
    confidence: float = 0.95,
    folder: str | Path | None = None,
    retry: int = 0,
) -> Audit:
    """Attack the privacy of a node in many runs of `steps` rounds, half of them in each of two worlds.

    Noise, sensitivity, leaks and sampling are measured in repeated rounds (`jdfl.auditing.probe`), with a probability
    of a false alarm of 1e-6 over all of these tests (Bonferroni's correction). The outcome is `violated` where the
    attack's bound is above the accounted epsilon or a test fails: `families` names which, `findings` are the tests that
    failed, and `not_probed` says why there were none. Where a paper claims something else for the same settings, the
    attack is compared with that claim too.

    Asynchronous methods are observed at the ends of periods; what happens when is the same in all runs, and the
    attacker knows it. Choose a `period` in which a node acts about once. Their events are not repeated, so nothing is
    probed.

    Algorithms whose state does not keep their messages (DFedAvgM, DFedSAM, MATCHA, adapt-then-combine D-PSGD) are
    observed through averages only; over a network without links a node shows what it would have sent.

    sigma of CEPS, where it is not given, comes from `problem.curvature`, which stays that of the problem without the
    canary: constants computed from data are audited as if they were public.

    Args:
        algorithm: The algorithm to attack, with noise.
        problem: The data of the world without the canary; dense.
        network: The communication network.
        steps: Rounds of every run.
        runs: In both worlds together, at least 100. More runs can show a larger bound, at most about ln(runs / 15).
        node: The node whose record is the canary.
        canary: "aligned" with what a pilot run shows most of, "random" (a random direction, for comparison), or a pair
            of examples with the structure of the problem's data.
        delta: For the epsilons that are compared, in (0, 1); None uses that of the privacy report.
        key: For all randomness: an integer or a JAX key.
        batch: Number of runs computed side by side; None: as memory allows.
        looks: Number of intervals of rounds, with an observation before each and at the end; None: one per
            round. Use few for long runs, or the score has too many weights.
        fitted: The share of the runs that the score is fitted on, in (0, 1).
        confidence: Confidence level of every bound, in (0, 1).
        folder: A folder in which runs are kept, in ten parts of each world, so that the same call goes on with the
            others after it was cut off; with the same bits. It is made if its parent folder exists. None: nowhere.
        retry: How often a part that fails is tried again, with a `folder`.

    Raises ValueError for an algorithm without noise, for invalid settings, for a problem that needs a pair of examples,
    and for runs that do not stay finite.
    """
    if folder is None and retry:
        raise ValueError(f"Expected a folder for what is tried again, got retry = {retry!r} without one.")
    checks.integer(0, retry=retry)
    place = None if folder is None else Path(arguments.argument("folder", folder, str | Path))
    began, network, problem = time.perf_counter(), stepping.paired(problem, network), problem.padded()
    program = check_run(algorithm, problem, network, steps, 1, None)
    checks.integer(100, remedy="Half of the runs see each world, and half of these are used for testing.", runs=runs)
    remedy = "It is one of the problem's nodes; the id of a name is problem.node_names.index(name)."
    checks.integer(0, problem.m - 1, remedy, node=node)
    batch = _lanes(algorithm, problem) if batch is None else batch
    checks.integer(1, batch=batch)
    check_level(confidence)
    checks.fraction("It is the share of the runs that the score is fitted on.", fitted=fitted)
    half = int(runs) // 2
    if int(half * fitted) < 8 or int(half * (1 - fitted)) < 8:
        raise ValueError(
            f"Expected fitted that leaves 8 runs of each world to fit on and 8 to test with, got fitted = {fitted!r} "
            f"of {runs} runs. 0.5 is usual; less where there are few looks."
        )
    check_dense(problem)
    if isinstance(canary, str):
        checks.one_of(("aligned", "random"), "Or pass a pair of examples.", canary=canary)
    else:
        given(problem, canary)
    guarantee = noisy_guarantee(program, problem)
    _accounted(guarantee, problem, 1, node, delta)
    steps, looks = int(steps), int(steps) if looks is None else looks
    checks.integer(1, steps, "It is the number of intervals of rounds.", looks=looks)

    seed = typed_key(key)
    public, direction, pilots, worlds, probes = _sample(seed, half=half, probes=most_runs(problem, steps))
    setting = stepping.setting(watched(program), problem, network, None, public)
    check_visible(setting)
    look: Any = observe_events if isinstance(algorithm, AsyncMethod) else observe
    how: Any = {"steps": steps, "batch": min(int(batch), half), "looks": int(looks)}
    seen: list[np.ndarray] = []
    releases = 0
    with ExitStack() as stack:
        jobs = None
        if place is not None:  # before the pilots, so that an unfit folder is refused early
            place.mkdir(exist_ok=True)
            jobs = stack.enter_context(opened(place, {"work": "audit", "versions": versions()}, retry=int(retry)))
        found, pairs = _canary(setting, steps, node, canary, guarantee, pilots, direction)
        for world, keys in zip((found.zero, found.one), worlds):
            make = partial(look, replace(setting, problem=world), found.directions, jnp.int32(node), **how)
            if jobs is None:
                features, counts = make(keys)
            else:
                name = _name(setting, world, network, key_digest(key_data(seed)), node, half, how)
                features, counts = in_parts(make, keys, how["batch"], jobs, name)
            seen.append(np.asarray(features).astype(np.float64).reshape(half, -1))
            releases = max(releases, int(np.max(counts)))
    check_features(seen)
    delta, epsilon = _accounted(guarantee, problem, releases, node, delta)
    event, paper = guarantee.event, guarantee.published
    mu = None
    if isinstance(event, GaussianEvent) and guarantee.sampling is None:
        mu = float(event.shift(releases))
    published = None if paper is None or not 0 <= paper.epsilon < math.inf else (paper.epsilon, paper.delta)
    asked = None if published is None else published[0]
    return Audit(
        **vars(probe(setting, guarantee, pairs, probes, steps=steps)),
        **vars(attack(*seen, delta=delta, confidence=confidence, epsilon=asked, fitted=fitted)),
        algorithm=type(algorithm).__name__,
        runs=2 * half,
        releases=releases,
        confidence=float(confidence),
        delta=delta,
        epsilon_accounted=epsilon,
        mu_accounted=mu,
        claimed=guarantee.claimed,
        canary=found.text,
        left_out=guarantee.warnings,
        seconds=time.perf_counter() - began,
        published=published,
    )


def _name(setting: Setting, world: Problem, network: Network, *others: Any) -> str:
    """What identifies the runs of a world that are kept: settings, data, what is computed, and other plain data."""
    built: dict[str, Any] = {"algorithm": setting.program.algorithm, "problem": world, "network": network}
    made_of = settings_of(**built) | checksums(**built) | {COMPUTED: computed(setting.program, world, network)}
    return name_of(made_of, *others)


@partial(jax.jit, static_argnames=("half", "probes"))
def _sample(seed: Array, *, half: int, probes: int) -> tuple[Keys, Array, Keys, tuple[Keys, Keys], Keys]:
    """Keys of an audit: public, for a direction, for pilots, for `half` of the runs in each world, and for `probes`."""
    counts = {_PUBLIC: 1, _PILOT: _PILOTS, _ZERO: half, _ONE: half, _PROBE: probes}
    keys = jnp.concatenate([jax.random.split(stream.of(seed), count) for stream, count in counts.items()])
    every, ends = jax.vmap(Keys.of)(keys), np.cumsum([0, *counts.values()])
    public, pilots, zero, one, probed = (some(every, slice(*ends[i : i + 2])) for i in range(len(counts)))
    return some(public, 0), _DIRECTION.of(seed), pilots, (zero, one), probed


def _canary(
    setting: Setting, steps: int, node: int, canary: Any, guarantee: Guarantee, keys: Keys, direction: Array
) -> tuple[Canary, list[Any]]:
    """The two worlds, from a few runs without a canary, and pairs of examples for repeated rounds."""
    problem, algorithm = setting.problem, setting.program.algorithm
    first = pilot_events if isinstance(algorithm, AsyncMethod) else pilot
    mean, paths = first(setting, jnp.int32(node), keys, steps=steps, points=_POINTS)
    points, limit = paths.reshape(-1, problem.n), Limit.of(algorithm)
    if not bool(jnp.all(jnp.isfinite(points))):
        raise ValueError("Expected runs that stay finite, got some that diverge. Lower the step size or the noise.")
    if not isinstance(canary, str):
        pair = given(problem, canary)
        return planted(problem, pair, node, guarantee, points, limit, "the given pair of examples"), [pair]
    drop = guarantee.adjacency == "add-remove"
    kinds = (canary, "random" if canary == "aligned" else "aligned")  # along one feature, and along all of them
    (pair, text), (other, _) = (designed(problem, kind, mean, points, limit, drop, direction) for kind in kinds)
    return planted(problem, pair, node, guarantee, points, limit, text), [pair, other]


def _lanes(algorithm: Algorithm, problem: Problem) -> int:
    """Runs side by side; one on CPU where decoders of different lengths would wait for one another."""
    if backend() == "cpu" and not getattr(getattr(algorithm, "codec", None), "free", True):
        return 1
    return max(1, min(_MOST_LANES, _MOST_NUMBERS // (problem.m * problem.n)))


def _accounted(
    guarantee: Guarantee, problem: Problem, releases: int, node: int, delta: float | None
) -> tuple[float, float]:
    """Delta and a node's epsilon after all releases of every node, under assumptions where nothing is claimed."""
    records = np.asarray(problem.sizes)
    each = np.full(problem.m, releases)
    accounting = "sound" if guarantee.claimed else "paper"
    total = report(guarantee, each, records, delta=delta, accounting=accounting).delta
    return total, Ledger.of(guarantee, each, records).epsilon(node, total)


def check_features(seen: list[np.ndarray]) -> None:
    """Refuse runs that did not stay finite; warn where there are too few runs for the number of features."""
    wrong = sum(int((~np.isfinite(features)).any(axis=1).sum()) for features in seen)
    runs, weights = sum(map(len, seen)), seen[0].shape[1]
    if wrong:
        raise ValueError(
            f"Expected runs that stay finite, got {wrong} of {runs} that do not. Lower the step size or the noise, "
            "or use a weaker canary."
        )
    if weights * _FEW > runs:
        warnings.warn(
            f"The score has {weights} weights and {runs} runs: the attack is weaker than it could be. Use more runs, "
            "or fewer steps or looks.",
            stacklevel=3,
        )
