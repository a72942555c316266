"""An attack on every registered private algorithm, and on variants whose noise protects nothing.

Least squares at 8 nodes with 200 parameters; one record of node 0 is the canary, with its label at either extreme. In
the first table an algorithm claims its epsilon, and the attack must not show more. In the second it claims nothing, and
the attack must show more than the noise would give if all assumptions held:

- literal: CEPS as printed, whose noise is not stored in u;
- unclipped: CEPS with the paper's kind of assumed sensitivity, and a record whose gradient is arbitrarily large;
- between messages: D-PSGD whose gradients are noisy only after an exchange;
- with a tenth of the reported noise: shows that the audit can fail;
- push-sum whose clip exists only in its report.

MATCHA, DFedAvgM and DFedSAM do not keep what they send; they are attacked on a network without links, where their
parameters are what they would send. FedAvg is observed through its averages only, so little can be shown about it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np

import jdfl
from experiments.common import Made, Options, Row, bars, experiment, row
from jdfl.algorithms import REGISTRY
from jdfl.algorithms.gradients import takes_noise
from jdfl.algorithms.push_descent import shared_gradient
from jdfl.base import struct
from jdfl.network import Network
from jdfl.privacy import GaussianEvent, Norm

M, N, RECORDS, STEPS = 8, 200, 240, 6
LARGE = 3  # entries of w* that matter
NOISE, CLIP, ASSUMED = 4.0, 3.0, 0.1  # the last is the paper's u_i
SHARE = 0.5  # pure epsilon of a message of push-sum


@struct.dataclass
class Pretender:
    """Gaussian noise of a tenth of what it reports."""

    multiplier: float = NOISE
    norm: ClassVar[Norm] = "l2"

    def check(self) -> None:
        """Accept any settings."""

    def add(self, key: Any, x: Any, sensitivity: Any) -> Any:
        return jdfl.Gaussian(self.multiplier / 10).add(key, x, sensitivity)

    def event(self) -> GaussianEvent:
        return GaussianEvent(float(self.multiplier))


@struct.dataclass
class Quiet(jdfl.DPPS):
    """Push-sum whose messages have a tenth of the noise that it reports."""

    def step(self, state: Any, eps: Any, round: jdfl.Round, claim: Any) -> Any:
        return jdfl.DPPS.step(replace(self, noise_rate=self.noise_rate / 10), state, eps, round, claim)


@struct.dataclass
class Faint(jdfl.DPDO):
    """DPDO whose messages have a tenth of the noise that it reports."""

    def step(self, state: Any, round: jdfl.Round) -> Any:
        plan = round.ready
        weak = replace(round.prepared, own=plan._replace(noise=plan.noise / 10))
        new = jdfl.DPDO.step(self, state, replace(round, prepared=weak))
        (stream,) = round.trace.noises
        round.trace.noises[stream] = partial(self._guarantee, plan), frozenset({0})  # the guarantee of the whole noise
        return new


@struct.dataclass
class Unclipped(jdfl.SGP):
    """SGP whose noise is planned for a clip that it does not apply."""

    def step(self, state: Any, round: jdfl.Round) -> Any:
        g = shared_gradient(replace(self.gradients, clip=None), state.y, round)
        return self.pushed(state, -self.lr * round.ready.scale(round.k).astype(g.dtype) * g, round)


@dataclass(frozen=True)
class Attacked:
    """An algorithm on its network, and whether it claims what the audit compares it with."""

    algorithm: Any
    network: Network
    claims: bool = True


def problem(seed: int) -> jdfl.problems.LinearRegression:
    """Least squares with few large coefficients, at features that are larger than the others."""
    draw, truth = np.random.default_rng(seed), np.zeros(N)
    truth[draw.choice(N, LARGE, replace=False)] = [4.0, -3.0, 3.5]
    A = draw.standard_normal((M, RECORDS, N)) * np.where(truth != 0, 1.0, 0.1)
    return jdfl.problems.linear_regression(A, A @ truth + 0.1 * draw.standard_normal((M, RECORDS)))


def noisy_kinds() -> dict[str, type]:
    """The registered algorithms that send something and whose gradients may be noisy, by name."""
    return {name: kind for name, kind in REGISTRY.items() if takes_noise(kind) and name != "local-only"}


def attacked() -> dict[str, Attacked]:
    """By name; all registered algorithms except LocalOnly, which sends nothing."""
    linked, alone = jdfl.network.complete(M), jdfl.network.from_edges([], M, connected=False)
    noisy = jdfl.Gradients(clip=CLIP, mechanism=jdfl.Gaussian(NOISE))
    steps, messages = jdfl.Gradients(clip=CLIP, per="batch", norm="l1"), jdfl.DPPS(b=SHARE, noise_rate=1.0)
    period = jnp.full((M,), 2, jnp.int32)
    ceps = jdfl.CEPS(
        s=LARGE, rate=1.0, codec=jdfl.Dense(), sigma=1.0, period=period, clip=CLIP, mechanism=jdfl.Gaussian(2.5)
    )
    sound = {
        "ceps": Attacked(ceps, linked),
        "choco-sgd": Attacked(jdfl.CHOCO(lr=0.1, gradients=noisy, codec=jdfl.Dense()), linked),
        "d-psgd": Attacked(jdfl.DPSGD(lr=0.1, gradients=noisy), linked),
        "d-psgd, samples": Attacked(
            jdfl.DPSGD(lr=0.1, gradients=replace(noisy, batch=60, sampling="poisson", adjacency="add-remove")), linked
        ),
        "d-psgd, updates": Attacked(
            jdfl.DPSGD(lr=0.1, updates=jdfl.Updates(clip=0.5, mechanism=jdfl.Gaussian(NOISE))), linked
        ),
        "decor": Attacked(jdfl.DECOR(lr=0.1, gradients=noisy, pairs=NOISE), linked),
        "mafalda": Attacked(
            jdfl.MAFALDA(lr=0.1, gradients=replace(noisy, batch=80, sampling="in order"), horizon=STEPS, band=3), linked
        ),
        "muffliato": Attacked(jdfl.Muffliato(lr=0.1, gossips=2, gradients=noisy), linked),
        "dcd-psgd": Attacked(jdfl.DCD(lr=0.1, gradients=noisy, codec=jdfl.Dense()), linked),
        "directed-ceps": Attacked(jdfl.DirectedCEPS(s=LARGE, lr=0.1, codec=jdfl.Sparse(), gradients=noisy), linked),
        "dfedavgm": Attacked(jdfl.DFedAvgM(lr=0.1, local_steps=1, gradients=noisy), alone),
        "dfedsam": Attacked(jdfl.DFedSAM(lr=0.1, local_steps=1, gradients=noisy), alone),
        "dsgt": Attacked(jdfl.DSGT(lr=0.05, gradients=noisy), linked),
        "exact-diffusion": Attacked(jdfl.ExactDiffusion(lr=0.05, gradients=noisy), linked),
        "extra": Attacked(jdfl.EXTRA(lr=0.05, gradients=noisy), linked),
        "fedavg": Attacked(jdfl.FedAvg(lr=0.1, local_steps=1, gradients=noisy), linked),
        "iht-d-psgd": Attacked(jdfl.IHT(s=LARGE, lr=0.1, gradients=noisy), linked),
        "matcha": Attacked(jdfl.MATCHA(lr=0.1, gradients=noisy), alone),
        "nids": Attacked(jdfl.NIDS(lr=0.05, gradients=noisy), linked),
        "average-consensus": Attacked(jdfl.AverageConsensus(clip=CLIP, dpps=messages), linked),
        "partpsp": Attacked(jdfl.PartPSP(gradients=steps, dpps=messages), linked),
        "pedfl": Attacked(jdfl.PEDFL(gradients=steps, dpps=messages), linked),
        "cpgt": Attacked(
            jdfl.CPGT(lr=0.05, gamma=0.5, noise_x=3.0, noise_y=24.0, gradients=steps, codec=jdfl.Dense()), linked
        ),
        "do-adp": Attacked(jdfl.DOADP(lr=0.1, p=0.7, codec=jdfl.Sparse(share=0.3), gradients=noisy), linked),
        "dp-dda": Attacked(jdfl.DPDDA(lr=0.1, p=1.0, gradients=noisy), linked),
        "dpdo": Attacked(jdfl.DPDO(c=0.5, q=0.5, p=0.8, epsilon=3.0, gradients=steps), linked),
        "privsgp-vr": Attacked(jdfl.PrivSGPVR(lr=0.1, gradients=replace(noisy, batch=1, per="batch")), linked),
        "sgp": Attacked(jdfl.SGP(gradients=steps, dpps=messages), linked),
    }
    own = {name.split(",")[0] for name in sound}
    sound |= {name: Attacked(kind(gradients=noisy), linked) for name, kind in noisy_kinds().items() if name not in own}
    assumed = replace(ceps, clip=None, sensitivity=ASSUMED)
    short = replace(noisy, noisy="communicating")
    return sound | {
        "ceps, literal": Attacked(replace(ceps, noise="literal"), linked, False),
        "ceps, unclipped": Attacked(assumed, linked, False),
        "d-psgd, noise between messages only": Attacked(jdfl.DPSGD(lr=0.1, period=3, gradients=short), linked, False),
        "d-psgd, a tenth of the noise": Attacked(
            jdfl.DPSGD(lr=0.1, gradients=replace(noisy, mechanism=Pretender())), linked, False
        ),
        "do-adp, a tenth of the noise": Attacked(
            jdfl.DOADP(lr=0.1, p=0.7, codec=jdfl.Sparse(share=0.3), gradients=replace(noisy, mechanism=Pretender())),
            linked,
            False,
        ),
        "dpdo, a tenth of the noise": Attacked(Faint(c=0.5, q=0.5, p=0.8, epsilon=3.0, gradients=steps), linked, False),
        "sgp, unclipped": Attacked(Unclipped(gradients=steps, dpps=messages), linked, False),
        "sgp, a tenth of the noise": Attacked(
            jdfl.SGP(gradients=steps, dpps=Quiet(b=SHARE, noise_rate=1.0)), linked, False
        ),
    }


def collect(seeds: int, runs: int, names: Sequence[str] | None = None) -> list[Row]:
    """Accounted and shown epsilon and mu, for everything that is attacked."""
    rows = []
    for name, one in attacked().items():
        if names is not None and name not in names:
            continue
        found = [
            jdfl.audit(one.algorithm, problem(seed), one.network, steps=STEPS, runs=runs, delta=1e-5, key=seed)
            for seed in range(seeds)
        ]
        told = {
            "claims": [float(one.claims)] * seeds,
            "releases": [float(audit.releases) for audit in found],
            "accounted epsilon": [audit.epsilon_accounted for audit in found],
            "shown epsilon": [audit.epsilon_lower for audit in found],
            "accounted mu": [audit.mu_accounted for audit in found if audit.mu_accounted is not None],
            "mu": [audit.mu_hat for audit in found],
            "AUC": [audit.auc for audit in found],
            "violated": [float(audit.violated) for audit in found],
        }
        rows += [row(name, column, None, values) for column, values in told.items() if values]
    return rows


@experiment(seeds=1)
def main(chosen: Options) -> Made:
    """All attacks, or with `--quick` a few of them."""
    few = ("ceps", "d-psgd", "ceps, literal", "ceps, unclipped", "d-psgd, a tenth of the noise")
    rows = collect(chosen.seeds, 8000, few) if chosen.quick else collect(chosen.seeds, 16000)
    claims = {one.case for one in rows if one.column == "claims" and one.mean}
    tables = {
        f"{title}, delta = 1e-5": [one for one in rows if (one.case in claims) == wanted]
        for title, wanted in (("Claimed", True), ("Not claimed", False))
    }
    return Made(tables, bars(rows, ["shown epsilon"], "epsilon", marks="accounted epsilon"))
