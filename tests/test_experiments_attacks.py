"""Every attack succeeds where the old behaviour is put back, and exceeds nothing that is claimed today."""

from dataclasses import replace

import pytest

from experiments import attack_beside, attacks
from experiments.attack_list import attacks as listed
from jdfl import privacy
from jdfl.algorithms import updates
from jdfl.base import streams
from jdfl.base.streams import Stream
from jdfl.engine import accountant, outcome, spending, start
from jdfl.privacy.flow import Flow, Label

ATTACKS = {name: one for name, one in listed().items() if not name.startswith("step, ")}  # see privacy/test_steps.py
SLOW = ("FedAvg, Gaussian, central", "noise after messages only", "tuned rate", "last bits")


def one_number_for_all_streams(patch):
    """Noise and codecs drew from the same purpose under one root."""
    patch.setattr(Stream, "number", 33)
    patch.setattr(streams, "_ROOTS", dict.fromkeys(streams._ROOTS, 1))


def keys_are_not_compared(patch):
    """Runs that share a private key were added up as if their noise were independent."""
    patch.setattr(accountant, "check_shared", lambda *_: None)


def no_new_key(patch):
    """Without a key every run had that of seed 0, and sums did not look at it."""
    patch.setattr(attack_beside, "FRESH", 0)


def the_whole_state(patch):
    """Whatever was not finite ended a run."""
    patch.setattr(spending, "watched", lambda *_: "state")


def laplace_as_gaussian(patch):
    """No refusal, and the multiplier that was given."""
    patch.setattr(updates.Updates, "check", lambda *_: None)
    whole = updates.Updates.guarantee
    patch.setattr(
        updates.Updates,
        "guarantee",
        lambda self, problem, clients=None: whole(self.replace(trust="local"), problem, clients),
    )


def own_noise_counted(patch):
    patch.setattr(updates, "central_multiplier", lambda multiplier, _: multiplier)


def nothing_is_derived(patch):
    """Data-dependent preprocessing, splits and step sizes left a warning, and stop rules as well."""
    patch.setattr(accountant, "guarantee_of", lambda algorithm, problem, *_: algorithm.privacy(problem))
    patch.setattr("jdfl.algorithms.ceps_privacy.exposing", lambda told, *_: told)
    patch.setattr("jdfl.algorithms.statement.outputs", lambda *_: ((Flow(), Flow()), Label.CLEAN, None))
    patch.setattr(Flow, "fault", lambda *_: "")
    patch.setattr(outcome, "exposing", lambda told, *_: told)
    patch.setattr("jdfl.lab.reported.exposing", lambda told, *_: told)


def untyped_outputs(patch):
    """One epsilon for messages and parameters alike."""
    for module in (accountant, start):
        patch.setattr(
            module,
            "guarantee_of",
            lambda one, problem, *_: replace(spending.guarantee_of(one, problem), local=""),
        )


def noise_in_floating_point(patch):
    """The grid of floating-point numbers for that of exact noise."""
    patch.setattr(privacy.ExactGaussian, "add", lambda self, *given: privacy.Gaussian(self.multiplier).add(*given))


def all_is_claimed(patch):
    """An epsilon for whatever noise there is."""
    patch.setattr(
        accountant, "guarantee_of", lambda algorithm, problem, *_: replace(algorithm.privacy(problem), claimed=True)
    )


OLD = {
    "noise of updates with a codec": one_number_for_all_streams,
    "FedAvg, Laplace, central": laplace_as_gaussian,
    "FedAvg, Gaussian, central": own_noise_counted,
    "standardised columns": nothing_is_derived,
    "hold-out by labels": nothing_is_derived,
    "split by labels": nothing_is_derived,
    "CEPS, sigma from curvature": nothing_is_derived,
    "two runs, other clip": keys_are_not_compared,
    "two runs, other noise": keys_are_not_compared,
    "two runs, user-defined noise": keys_are_not_compared,
    "two runs, loss negated": keys_are_not_compared,
    "two runs without a key": no_new_key,
    "PEDFL, parameters": untyped_outputs,
    "DPDO, parameters": untyped_outputs,
    "CPGT, parameters": untyped_outputs,
    "PartPSP, local part": untyped_outputs,
    "AverageConsensus, nothing sent": untyped_outputs,
    "CEPS, noise as printed": all_is_claimed,
    "noise after messages only": all_is_claimed,
    "unclipped gradients": all_is_claimed,
    "stop rule on data": nothing_is_derived,
    "stop rule on parameters": nothing_is_derived,
    "numbers not finite": the_whole_state,
    "tuned rate": nothing_is_derived,
    "last bits": noise_in_floating_point,
}


def test_every_attack_has_the_behaviour_that_it_refuted():
    assert set(OLD) == set(ATTACKS)
    assert len(OLD) >= 12


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in ATTACKS])
def test_the_attack_exceeds_what_was_claimed_and_nothing_that_is_claimed(name, monkeypatch):
    today = attacks.judge(ATTACKS[name])
    assert today.verdict in ("held", "no claim"), today
    assert (today.epsilon is None) == bool(today.words)
    with monkeypatch.context() as patch:
        OLD[name](patch)
        before = attacks.judge(ATTACKS[name])
    assert before.verdict == "EXCEEDED", before


def test_an_exceeded_claim_misses_the_goal():
    sound, broken = attacks.Found(0.5, 1.0, ""), attacks.Found(2.0, 1.0, "")
    told = attacks.verdict({"sound": [sound], "none": [attacks.Found(9.0, None, "why")], "broken": [sound, broken]})
    assert "1 of 3" in told
    assert "missed" in told
    assert "broken" in told
    assert "met" in attacks.verdict({"sound": [sound]})
