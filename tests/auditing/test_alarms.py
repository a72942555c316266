"""Audits of sound settings: none of 500 may raise an alarm.

Beside the attack, an audit makes some 300 tests, which share a false-alarm level of 1e-6 (Bonferroni): an alarm of one
of them in 500 audits has chance 5e-4 at most. The attack's bound holds at 95 % confidence only, but it is compared with
an epsilon that the attack of so few runs does not come near in a sound setting.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import jdfl
from tests.later import Later

M, N, Q, SEEDS = 4, 6, 8, 20
_rng = np.random.default_rng(0)
_A = _rng.standard_normal((M, Q, N))
_B = _A @ _rng.standard_normal(N) + 0.1 * _rng.standard_normal((M, Q))
EVEN = Later(jdfl.problems.linear_regression, _A, _B)
UNEVEN = Later(jdfl.problems.linear_regression, *([part[i][: Q - i] for i in range(M)] for part in (_A, _B)))
CLASSES = Later(jdfl.problems.softmax_regression, [(_A[i], (_B[i] > 0).astype(int)) for i in range(M)], classes=3)
COMPLETE, RING = Later(jdfl.network.complete, M), Later(jdfl.network.ring, M)
DRAWN = Later(jdfl.network.erdos_renyi_rounds, M, 0.6)

PLAIN = jdfl.Gradients(clip=1.0, mechanism=jdfl.Gaussian(4.0))
BATCH = jdfl.Gradients(clip=1.0, per="batch", norm="l1")
NOISY = jdfl.DPPS(b=0.5, noise_rate=1.0)


def _samples(sampling: Any, batch: int = 2, **options: Any) -> jdfl.DPSGD:
    return jdfl.DPSGD(lr=0.1, gradients=replace(PLAIN, batch=batch, sampling=sampling, **options))


SOUND: dict[str, tuple[Any, Later, Later]] = {
    "all records": (jdfl.DPSGD(lr=0.1, gradients=PLAIN), EVEN, COMPLETE),
    "all records, uneven nodes on a ring": (jdfl.DPSGD(lr=0.1, gradients=PLAIN), UNEVEN, RING),
    "classes": (jdfl.DPSGD(lr=0.1, gradients=PLAIN), CLASSES, COMPLETE),
    "Poisson, a network drawn anew": (_samples("poisson"), EVEN, DRAWN),
    "Poisson, add-remove": (_samples("poisson", adjacency="add-remove"), UNEVEN, COMPLETE),
    "Poisson, classes": (_samples("poisson"), CLASSES, RING),
    "subset": (_samples("subset"), UNEVEN, COMPLETE),
    "with replacement": (_samples("replacement"), EVEN, COMPLETE),
    "single draws": (_samples("replacement", 1), EVEN, COMPLETE),
    "epochs": (_samples("epochs"), EVEN, COMPLETE),
    "Laplace": (
        jdfl.DPSGD(lr=0.1, gradients=jdfl.Gradients(clip=1.0, norm="l1", mechanism=jdfl.Laplace(4.0))), EVEN, COMPLETE
    ),
    "entries clipped": (jdfl.DPSGD(lr=0.1, gradients=replace(PLAIN, norm="entries")), EVEN, COMPLETE),
    "whole nodes": (jdfl.DPSGD(lr=0.1, gradients=replace(PLAIN, per="batch")), EVEN, COMPLETE),
    "updates": (jdfl.DPSGD(lr=0.1, updates=jdfl.Updates(clip=0.5, mechanism=jdfl.Gaussian(4.0))), EVEN, COMPLETE),
    "lossy links": (jdfl.DPSGD(lr=0.1, gradients=PLAIN), EVEN, Later(lambda: jdfl.network.link_loss(COMPLETE(), 0.3))),
    "Poisson, absent nodes": (_samples("poisson"), EVEN, Later(lambda: jdfl.network.outages(COMPLETE(), 0.3, 0.5))),
    "DSGT": (jdfl.DSGT(lr=0.05, gradients=PLAIN), EVEN, COMPLETE),
    "EXTRA": (jdfl.EXTRA(lr=0.05, gradients=PLAIN), EVEN, COMPLETE),
    "NIDS": (jdfl.NIDS(lr=0.05, gradients=PLAIN), EVEN, COMPLETE),
    "CHOCO-SGD": (jdfl.CHOCO(lr=0.1, gradients=PLAIN, codec=jdfl.Dense()), EVEN, COMPLETE),
    "DO-ADP": (jdfl.DOADP(lr=0.1, p=0.7, codec=jdfl.Sparse(share=0.3), gradients=PLAIN), EVEN, COMPLETE),
    "FedAvg": (jdfl.FedAvg(lr=0.1, local_steps=2, gradients=PLAIN), EVEN, COMPLETE),
    "DFedAvgM without links": (
        jdfl.DFedAvgM(lr=0.1, local_steps=1, gradients=PLAIN), EVEN,
        Later(jdfl.network.from_edges, [], M, connected=False),
    ),
    "CEPS": (
        jdfl.CEPS(
            s=2, rate=1.0, codec=jdfl.Dense(), sigma=1.0, period=np.full(M, 2, np.int32), clip=3.0,
            mechanism=jdfl.Gaussian(2.5),
        ),
        EVEN,
        COMPLETE,
    ),
    "SGP": (jdfl.SGP(gradients=BATCH, dpps=NOISY), EVEN, COMPLETE),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The score has")
@pytest.mark.parametrize("name", list(SOUND))
def test_no_sound_setting_raises_an_alarm(name):
    """Of 25 settings, 20 audits each: 500 in all."""
    assert len(SOUND) * SEEDS == 500
    algorithm, problem, network = SOUND[name]
    sound = {"algorithm": algorithm, "problem": problem(), "network": network(), "steps": 4, "delta": 1e-3}
    found = [jdfl.audit(**sound, key=seed) for seed in range(SEEDS)]
    alarms = [(seed, one.families, one.findings) for seed, one in enumerate(found) if one.violated]
    assert alarms == []
