"""What an audit in one run detects: sound noise, and noise and clips that differ from what is accounted for.

It takes some minutes on two cores.

D-PSGD on least squares, 8 nodes of 600 records, 600 parameters, 8 rounds, noise for epsilon = 4 at delta = 1e-5. Every
seed is one run, with its own canaries and coins. The bound is at delta = .2 / canaries, for which the accounted epsilon
is given, too. A last case is a perceptron of 103,914 parameters on digits, with its time relative to a plain run.
"""

import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

import jdfl
from experiments.common import Made, Options, Row, bars, experiment, row

NODES, RECORDS, ROUNDS, EPSILON, DELTA = 8, 600, 8, 4.0, 1e-5


def scaled(factor: float) -> Any:
    """Noise of another size than the mechanism states."""

    def add(self: Any, key: Any, x: Any, sensitivity: Any) -> Any:
        return x + factor * self.multiplier * sensitivity * jax.random.normal(key, x.shape, x.dtype)

    return add


def unclipped(nodes: Sequence[int]) -> Any:
    """No clip at these nodes."""
    usual = jdfl.Gradients.parted

    def parted(self: Any, problem: Any, w: Any, *rest: Any, **known: Any) -> Any:
        clipped, regulariser = usual(self, problem, w, *rest, **known)
        bare, _ = usual(replace(self, clip=None), problem, w, *rest, **{**known, "lengths": None})
        return clipped.at[jnp.asarray(nodes)].set(bare[jnp.asarray(nodes)]), regulariser

    return parted


@contextmanager
def broken(place: str, wrong: Any) -> Generator[None]:
    """The library with one function replaced, whose programs are neither taken from a cache nor left in it."""
    jax.clear_caches()
    with mock.patch(place, wrong):
        yield
    jax.clear_caches()


CASES: dict[str, tuple[str, Any]] = {
    "sound": ("", None),
    "noise missing": ("jdfl.privacy.Gaussian.add", scaled(0.0)),
    "noise a tenth": ("jdfl.privacy.Gaussian.add", scaled(0.1)),
    "noise a half": ("jdfl.privacy.Gaussian.add", scaled(0.5)),
    "no clip": ("jdfl.Gradients.parted", unclipped(range(NODES))),
    "no clip at one node": ("jdfl.Gradients.parted", unclipped([3])),
}


def audits(canaries: int, seeds: int) -> list[Any]:
    random = np.random.default_rng(0)
    A = random.standard_normal((NODES, RECORDS, RECORDS))
    problem = jdfl.problems.linear_regression(A, A @ random.standard_normal(RECORDS))
    network = jdfl.network.ring(NODES)
    noisy = jdfl.DPSGD(lr=0.1, gradients=jdfl.Gradients(clip=1.0, mechanism=jdfl.Gaussian(4.0)))
    found = jdfl.calibrate(noisy, problem, network, steps=ROUNDS, epsilon=EPSILON, delta=DELTA)
    return [
        jdfl.audit_one_run(found, problem, network, steps=ROUNDS, canaries=canaries, key=seed) for seed in range(seeds)
    ]


def lines(case: str, found: Sequence[Any]) -> list[Row]:
    return [
        row(case, "epsilon accounted", None, [found[0].epsilon_accounted]),
        row(case, "epsilon shown", None, [one.epsilon_lower for one in found]),
        row(case, "refuted", None, [float(one.violated) for one in found]),
        row(case, "mu", None, [one.mu_hat for one in found]),
        row(case, "mu accounted", None, [found[0].mu_accounted]),
    ]


def perceptron() -> list[Row]:
    """Seconds of an audit and of a plain run, both compiled, and the bound that is shown."""
    problem = jdfl.problems.neural_classification(
        "digits",
        NODES,
        model=jdfl.models.mlp(shape=(8, 8, 1), hidden=800),
        public=("partition", "holdout", "standardise"),
    )
    network = jdfl.network.ring(NODES)
    noisy = jdfl.DPSGD(lr=0.1, gradients=jdfl.Gradients(clip=1.0, mechanism=jdfl.Gaussian(4.0)))
    plain_run, audit, shown = [], [], []
    for key in range(4):
        began = time.perf_counter()
        jdfl.run(noisy, problem, network, steps=5, metrics=[], key=key)
        plain_run.append(time.perf_counter() - began)
        began = time.perf_counter()
        shown.append(jdfl.audit_one_run(noisy, problem, network, steps=5, key=key))
        audit.append(time.perf_counter() - began)
    case = f"perceptron, n = {problem.n}"
    ratio = [one / other for one, other in zip(audit[1:], plain_run[1:])]
    return [*lines(case, shown), row(case, "seconds / plain run", None, ratio)]


@experiment(seeds=20)
def main(chosen: Options) -> Made:
    """All cases; with `--quick` two of them."""
    cases = dict(list(CASES.items())[:2]) if chosen.quick else CASES
    rows: list[Row] = []
    for canaries in (1000,) if chosen.quick else (1000, 4000):
        for name, (place, wrong) in cases.items():
            case = f"{name}, {canaries:,} canaries"
            if not place:
                rows += lines(case, audits(canaries, chosen.seeds if chosen.quick else 5 * chosen.seeds))
                continue
            with broken(place, wrong):
                rows += lines(case, audits(canaries, chosen.seeds))
    rows += [] if chosen.quick else perceptron()
    return Made({"An audit in one run": rows}, bars(rows, ["epsilon shown"], "epsilon", marks="epsilon accounted"))
