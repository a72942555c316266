"""ResNet-18 with both norms obeys the laws of every network."""

import pytest

from tests.models.laws import LAWS, compiled


@pytest.fixture(scope="module", params=["batch", "group"])
def case(request):
    """The small network with either norm."""
    return compiled(request.param)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_law(law, case):
    law(case)
