"""Every attack succeeds where the old behaviour is put back, and exceeds nothing that is claimed today."""

from dataclasses import replace
from typing import Any

import pytest

from experiments import attacks
from jdfl import privacy
from jdfl.algorithms import ceps_paper, statement, updates
from jdfl.base import streams
from jdfl.base.streams import Stream
from jdfl.engine import accountant, result, spending, start
from jdfl.lab import experiment
from jdfl.privacy.flow import Flow, Label

ATTACKS = {
    name: one for name, one in attacks.attacks().items() if not name.startswith("step, ")
}  # see privacy/test_steps.py
SLOW = ("FedAvg, Gaussian, central", "noise after messages only", "tuned rate", "last bits")
GUARANTEE = updates.Updates.guarantee
Patches = list[tuple[Any, str, Any]]

# Old behaviour, as what has to be replaced by what.
ONE_STREAM: Patches = [(Stream, "number", 33), (streams, "_ROOTS", dict.fromkeys(streams._ROOTS, 1))]
KEYS: Patches = [(accountant, "check_shared", lambda *_: None)]  # runs with one key were added up as if independent
NO_KEY: Patches = [(attacks, "FRESH", 0)]  # without a key every run had that of seed 0
STATE: Patches = [(spending, "watched", lambda *_: "state")]  # whatever was not finite ended a run
LAPLACE: Patches = [  # as if it were Gaussian: no refusal, and the multiplier that was given
    (updates.Updates, "check", lambda *_: None),
    (updates.Updates, "guarantee", lambda self, *given: GUARANTEE(self.replace(trust="local"), *given)),
]
OWN_NOISE: Patches = [(updates, "central_multiplier", lambda multiplier, _: multiplier)]
NOTHING_DERIVED: Patches = [  # preprocessing, splits, step sizes and stop rules that depend on data were warned of
    (accountant, "guarantee_of", lambda algorithm, problem, *_: algorithm.privacy(problem)),
    (ceps_paper, "exposing", lambda told, *_: told),
    (statement, "outputs", lambda *_: ((Flow(), Flow()), Label.CLEAN, None)),
    (Flow, "fault", lambda *_: ""),
    (result, "exposing", lambda told, *_: told),
    (experiment, "exposing", lambda told, *_: told),
]
UNTYPED: Patches = [  # one epsilon for messages and parameters alike
    (module, "guarantee_of", lambda one, problem, *_: replace(spending.guarantee_of(one, problem), local=""))
    for module in (accountant, start)
]
ROUNDED: Patches = [(privacy.ExactGaussian, "add", lambda self, *given: privacy.Gaussian(self.multiplier).add(*given))]
CLAIMED: Patches = [  # an epsilon for whatever noise there is
    (accountant, "guarantee_of", lambda one, problem, *_: replace(one.privacy(problem), claimed=True))
]
OF_DATA = ("standardised columns", "hold-out by labels", "split by labels", "CEPS, sigma from curvature", "tuned rate")
PARTS = ("PEDFL, parameters", "DPDO, parameters", "CPGT, parameters", "PartPSP, local part")
TWO = ("two runs, other clip", "two runs, other noise", "two runs, user-defined noise", "two runs, loss negated")
OLD = {
    "noise of updates with a codec": ONE_STREAM,
    "FedAvg, Laplace, central": LAPLACE,
    "FedAvg, Gaussian, central": OWN_NOISE,
    **dict.fromkeys((*OF_DATA, "stop rule on data", "stop rule on parameters"), NOTHING_DERIVED),
    **dict.fromkeys(TWO, KEYS),
    "two runs without a key": NO_KEY,
    **dict.fromkeys((*PARTS, "AverageConsensus, nothing sent"), UNTYPED),
    **dict.fromkeys(("CEPS, noise as printed", "noise after messages only", "unclipped gradients"), CLAIMED),
    "numbers not finite": STATE,
    "last bits": ROUNDED,
}


def test_every_attack_has_the_behaviour_that_it_refuted():
    assert set(OLD) == set(ATTACKS)


@pytest.mark.rotated(6)
@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in ATTACKS])
def test_the_attack_exceeds_what_was_claimed_and_nothing_that_is_claimed(name, monkeypatch):
    today = attacks.judge(ATTACKS[name])
    assert today.verdict in ("held", "no claim"), today
    assert (today.epsilon is None) == bool(today.words)
    with monkeypatch.context() as patch:
        for place, what, old in OLD[name]:
            patch.setattr(place, what, old)
        before = attacks.judge(ATTACKS[name])
    assert before.verdict == "EXCEEDED", before
