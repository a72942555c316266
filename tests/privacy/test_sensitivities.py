"""The table of sensitivities: every setting has a claim, and a clip that is too large is seen."""

from dataclasses import replace

import pytest

import jdfl
from experiments import sensitivities
from experiments.sensitivities import cases, measure, methods
from jdfl.algorithms import REGISTRY
from jdfl.events import REGISTRY as EVENTS

PARTED = jdfl.Gradients.parted
DESCENT, EVENT = "dsgt", "ad-psgd, at times of their own"


def _wider(self, *given, **known):
    """Clips at 1.1 times the clip that noise is scaled by."""
    return PARTED(replace(self, clip=1.1 * self.clip), *given, **known)


@pytest.mark.rotated(2)
@pytest.mark.parametrize("name", [DESCENT, EVENT])
def test_a_clip_that_is_too_large_is_seen(name, monkeypatch):
    case, few = cases()[name], {"searches": 0, "pairs": 6}
    sound = measure(case, **few)
    assert sound.change.max() == pytest.approx(1, abs=1e-5)
    assert sound.spent.max() <= 1 + 1e-5
    assert sound.seen.max() == 0
    monkeypatch.setattr(jdfl.Gradients, "parted", _wider)
    bad = measure(replace(case, algorithm=replace(case.algorithm, lr=0.11)), **few)
    assert bad.change.max() == pytest.approx(1.1, abs=1e-4)
    assert bad.spent.max() > 1.05


def test_all_private_methods_are_in_the_table():
    """Those whose noise is their own as well, such as push-sum's."""
    named = {name.partition(",")[0] for name in methods()}
    own = {"ceps", "average-consensus", "cpgt", "dpdo", "partpsp", "pedfl", "sgp", "privsgp-vr"}
    private = {*sensitivities.noisy_kinds(), *own, *EVENTS}
    assert private == named
    assert not {name for name in REGISTRY if name not in named} & own
