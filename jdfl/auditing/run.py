"""`jdfl.audit`: an attack on the privacy that an algorithm reports.

Half of many runs use one dataset, half a neighbouring one. A linear score of what the canary's node shows distinguishes
them, and how well it does so bounds epsilon from below. A lower bound above the reported epsilon refutes the report;
one below it proves nothing, since another attack may be better. In addition, noise, sensitivity and sampling are
measured where possible (see `jdfl.auditing.probe`), and a measurement that cannot be chance refutes the report as well.

The attacker knows all settings, what `prepare` draws, all other records, and everything that the node and its
in-neighbours show in every round (see `jdfl.auditing.observe`).

Axes: m nodes.
"""

import math
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jdfl.algorithms.algorithm import Algorithm
from jdfl.auditing import observe, observe_events
from jdfl.auditing.attack import attack
from jdfl.auditing.canary import Canary, Limit, designed, given, planted
from jdfl.auditing.claim import accounted, check, check_features
from jdfl.auditing.observe import check_visible, observed, some, watched
from jdfl.auditing.probe import most_runs, probe
from jdfl.auditing.result import Audit
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
from jdfl.privacy import GaussianEvent, Guarantee
from jdfl.problems import Problem
from jdfl.store.jobs import Jobs, name_of, opened

_ZERO, _ONE = Stream("audit.world without", "private"), Stream("audit.world with", "private")
_PILOT, _DIRECTION = Stream("audit.pilot", "private"), Stream("audit.direction", "private")
_PUBLIC, _PROBE = Stream("audit.constants", "shared"), Stream("audit.probe", "private")
_PILOTS, _POINTS = 4, 5  # pilot runs, and points on the path of each
_MOST_LANES, _MOST_NUMBERS = 256, 2**20  # runs side by side; parameters in them


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
    given = algorithm, problem, network, steps, runs, node, canary, delta, key, batch, looks, fitted, confidence
    if folder is None:
        if retry:
            raise ValueError(f"Expected a folder for what is tried again, got retry = {retry!r} without one.")
        return _audited(*given, None)
    checks.whole(0, retry=retry)
    place = Path(arguments.argument("folder", folder, str | Path))
    place.mkdir(exist_ok=True)
    with opened(place, {"work": "audit", "versions": versions()}, retry=int(retry)) as jobs:
        return _audited(*given, jobs)


def _audited(
    algorithm: Algorithm,
    problem: Problem,
    network: Network,
    steps: int,
    runs: int,
    node: int,
    canary: Any,
    delta: float | None,
    key: int | Array,
    batch: int | None,
    looks: int | None,
    fitted: float,
    confidence: float,
    jobs: Jobs | None,
) -> Audit:
    began, network = time.perf_counter(), stepping.paired(problem, network)
    program = check_run(algorithm, problem, network, steps, 1, None)
    guarantee = check(program, problem, runs, node, canary, delta, batch, confidence, fitted)
    steps, looks, half = int(steps), int(steps) if looks is None else looks, int(runs) // 2
    checks.whole(1, steps, "It is the number of intervals of rounds.", looks=looks)
    seed, asynchronous = typed_key(key), isinstance(algorithm, AsyncMethod)

    public, direction, pilots, worlds, probes = _drawn(seed, half=half, probes=most_runs(problem, steps))
    setting = stepping.setting(watched(program), problem, network, None, public)
    check_visible(setting)
    found, pairs = _canary(setting, steps, node, canary, guarantee, pilots, direction)
    batch = _lanes(algorithm, problem) if batch is None else int(batch)
    looked: dict[str, Any] = {"steps": steps, "batch": min(batch, half), "looks": int(looks)}
    shown: list[tuple[np.ndarray, np.ndarray]] = []
    for world, keys in zip((found.zero, found.one), worlds):
        about = (
            _about(setting, world, network) if jobs is not None else {},
            key_digest(key_data(seed)),
            node,
            half,
            looked,
        )
        here = replace(setting, problem=world)
        how = {**looked, "observe": observe_events.observe if asynchronous else observe.observe}
        shown.append(observed(here, found.directions, node, keys, jobs, name_of(*about), **how))
    seen = [features.astype(np.float64).reshape(half, -1) for features, _ in shown]
    check_features(seen)
    releases = max(int(np.max(counts)) for _, counts in shown)
    delta, epsilon = accounted(guarantee, problem, releases, node, delta)
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
        canary=found.told,
        left_out=guarantee.warnings,
        seconds=time.perf_counter() - began,
        published=published,
    )


def _about(setting: Setting, world: Problem, network: Network) -> dict[str, str]:
    """What identifies the runs of a world that are kept: settings, data, and what is computed."""
    built: dict[str, Any] = {"algorithm": setting.algorithm.algorithm, "problem": world, "network": network}
    return settings_of(**built) | checksums(**built) | {COMPUTED: computed(setting.algorithm, world, network)}


@partial(jax.jit, static_argnames=("half", "probes"))
def _drawn(seed: Array, *, half: int, probes: int) -> tuple[Keys, Array, Keys, tuple[Keys, Keys], Keys]:
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
    problem, algorithm = setting.problem, setting.algorithm.algorithm
    pilot = observe_events.pilot if isinstance(algorithm, AsyncMethod) else observe.pilot
    mean, paths = pilot(setting, jnp.int32(node), keys, steps=steps, points=_POINTS)
    points, limit = paths.reshape(-1, problem.n), Limit.of(algorithm)
    if not bool(jnp.all(jnp.isfinite(points))):
        raise ValueError("Expected runs that stay finite, got some that diverge. Lower the step size or the noise.")
    if not isinstance(canary, str):
        pair = given(problem, canary)
        return planted(problem, pair, node, guarantee, points, limit, "the given pair of examples"), [pair]
    drop = guarantee.adjacency == "add-remove"
    kinds = (canary, "random" if canary == "aligned" else "aligned")  # along one feature, and along all of them
    (pair, told), (other, _) = (designed(problem, kind, mean, points, limit, drop, direction) for kind in kinds)
    return planted(problem, pair, node, guarantee, points, limit, told), [pair, other]


def _lanes(algorithm: Algorithm, problem: Problem) -> int:
    """Runs side by side; one on CPU where decoders of different lengths would wait for one another."""
    if backend() == "cpu" and not getattr(getattr(algorithm, "codec", None), "free", True):
        return 1
    return max(1, min(_MOST_LANES, _MOST_NUMBERS // (problem.m * problem.n)))
