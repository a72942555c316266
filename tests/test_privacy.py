import json
import math

import pytest

import jdfl
from jdfl.privacy import NO_NOISE
from tests.toy import regression


def test_ceps_claims_nothing_and_says_why():
    problem, noise = regression(), jdfl.Gaussian(1.0)
    kept, literal, silent = (
        jdfl.CEPS(s=3, mechanism=mechanism, noise=where, sensitivity=0.2).privacy(problem)
        for mechanism, where in ((noise, "kept"), (noise, "literal"), (None, "kept"))
    )
    assert not any(guarantee.claimed for guarantee in (kept, literal, silent))
    assert all(guarantee.enforced_by is None for guarantee in (kept, literal, silent))
    assert (kept.unit, kept.adjacency, kept.sensitivity) == ("record", "replace-one", 0.2)
    assert "not clipped" in kept.reason
    assert "first message" in literal.reason
    assert "first message" not in kept.reason
    assert silent == NO_NOISE
    assert silent.sensitivity is None
    for guarantee in (kept, literal, silent):
        assert "epsilon" not in json.dumps(guarantee.as_dict()).lower()
    paper = jdfl.CEPS.paper(s=3, epsilon=0.5)
    assert not paper.privacy(problem).claimed
    assert paper.mechanism is not None
    assert paper.mechanism.event().noise_multiplier == pytest.approx(math.sqrt(2 * math.log(2.5)) / 0.5)
