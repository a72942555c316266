"""Audits of sound settings: none of 180 may raise an alarm.

Beside the attack, an audit makes some 300 tests, which share a false-alarm level of 1e-6 (Bonferroni): an alarm of one
of them in 180 audits has chance 2e-4 at most. The attack's bound holds at 95 % confidence only, but it is compared with
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
COMPLETE = Later(jdfl.network.complete, M)
DRAWN = Later(jdfl.network.erdos_renyi_rounds, M, 0.6)

PLAIN = jdfl.Gradients(clip=1.0, mechanism=jdfl.Gaussian(4.0))
BATCH = jdfl.Gradients(clip=1.0, per="batch", norm="l1")
NOISY = jdfl.DPPS(b=0.5, noise_rate=1.0)


def _samples(sampling: Any, batch: int = 2, **options: Any) -> jdfl.DPSGD:
    return jdfl.DPSGD(lr=0.1, gradients=replace(PLAIN, batch=batch, sampling=sampling, **options))


SOUND: dict[str, tuple[Any, Later, Later]] = {
    "Poisson, a network drawn anew": (_samples("poisson"), EVEN, DRAWN),
    "Poisson, add-remove": (_samples("poisson", adjacency="add-remove"), UNEVEN, COMPLETE),
    "subset": (_samples("subset"), UNEVEN, COMPLETE),
    "epochs": (_samples("epochs"), EVEN, COMPLETE),
    "Laplace": (
        jdfl.DPSGD(lr=0.1, gradients=jdfl.Gradients(clip=1.0, norm="l1", mechanism=jdfl.Laplace(4.0))), EVEN, COMPLETE
    ),
    "Poisson, absent nodes": (_samples("poisson"), EVEN, Later(lambda: jdfl.network.outages(COMPLETE(), 0.3, 0.5))),
    "DO-ADP": (jdfl.DOADP(lr=0.1, p=0.7, codec=jdfl.Sparse(share=0.3), gradients=PLAIN), EVEN, COMPLETE),
    "FedAvg": (jdfl.FedAvg(lr=0.1, local_steps=2, gradients=PLAIN), EVEN, COMPLETE),
    "SGP": (jdfl.SGP(gradients=BATCH, dpps=NOISY), EVEN, COMPLETE),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The score has")
@pytest.mark.parametrize("name", list(SOUND))
def test_no_sound_setting_raises_an_alarm(name):
    """Of 9 settings, 20 audits each: 180 in all."""
    assert len(SOUND) * SEEDS == 180
    algorithm, problem, network = SOUND[name]
    sound = {"algorithm": algorithm, "problem": problem(), "network": network(), "steps": 4, "delta": 1e-3}
    found = [jdfl.audit(**sound, key=seed) for seed in range(SEEDS)]
    alarms = [(seed, one.families, one.findings) for seed, one in enumerate(found) if one.violated]
    assert alarms == []
