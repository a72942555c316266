"""The comparison with decent-bench's own methods: its table, and that they agree where it is installed."""

import pytest

from benchmarks import common, originals, page
from tests.later import Later

SMALL = Later(originals.small)
BY_NAME = {pair.name: pair for pair in originals.PAIRS}
THEIRS = (
    "ADMM ATC ATC_Tracking ATG AugDGM DGD DLM DiNNO ED EXTRA GT_SAGA GT_SARAH GT_VR KGT LED LT_ADMM LT_ADMM_VR NIDS "
    "ProxSkip SimpleGT WangElia"
)


def test_every_method_was_compared_and_timed_and_differs_where_the_table_says_so():
    assert sorted(BY_NAME) == sorted(THEIRS.split()) == sorted(pair.name for pair in originals.PAIRS)
    table = common.read(page.RESULTS / "originals.json").rows
    for name, pair in BY_NAME.items():
        assert bool(pair.why) == (pair.mended is not None or pair.copied)
        rows = [one for one in table if one.case.startswith(f"{name}, ")]
        differences = [one for one in rows if one.unit == "relative"]
        assert [one.met for one in differences] == ([None, True] if pair.why else [True]), name
        assert all(pair.why in one.measure and one.value > 1e-4 for one in differences[:-1]), name
        assert [one.unit for one in rows if one not in differences] == ["ms", "ms", "x"], name


@pytest.mark.filterwarnings("ignore")  # of packages that are not ours
@pytest.mark.parametrize("name", ["NIDS", "DLM", "GT_SARAH"])
def test_the_originals_agree(name):
    module = pytest.importorskip("benchmarks.peer_decent_bench", exc_type=ImportError)
    rows = originals.compared(BY_NAME[name], SMALL(), lambda *given: originals.found_by(module, *given))
    assert rows[-1].met
    assert all(one.value > 1e-3 for one in rows[:-1])
