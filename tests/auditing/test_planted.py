"""The audit with its default budget sees every planted bug, and the family that it names is the right one."""

import pytest

import jdfl
from tests.auditing.planted import BUGS, NETWORK, PROBLEM, STEPS, plant

BUDGET = 120.0  # seconds of an audit on two cores


@pytest.mark.slow
@pytest.mark.parametrize("name", list(BUGS))
def test_the_audit_sees_what_is_planted(name, monkeypatch, fresh):
    bug = BUGS[name]
    plant(bug, monkeypatch)
    found = jdfl.audit(bug.audited, PROBLEM(), NETWORK(), steps=STEPS, delta=1e-3)
    assert found.violated
    assert bug.family in found.families
    assert found.exit_status == 3
    assert found.seconds <= BUDGET
