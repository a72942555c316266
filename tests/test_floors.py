"""The least bytes that a round moves: derived from shapes and counts, against counts by hand."""

import pytest

import jdfl
from benchmarks import aot, methods
from jdfl.engine import floors
from tests.refused import refused

SIZE = aot.Size(48, 30, 6)
ROW = 4 * SIZE.n
EXAMPLE = 4 * (SIZE.n + 2)  # features, target and weight
ALL = 2 * SIZE.q * EXAMPLE
BY_HAND = {  # arrays of the state, rows that arrive, bytes of examples
    methods.PLAIN: (1, 8, ALL),
    methods.NOISY: (1, 8, EXAMPLE),
    methods.TRACKING: (3, 16, ALL),
    methods.CHOCO: (2, 8, ALL),
}


@pytest.mark.parametrize("method", BY_HAND, ids=lambda method: method.name)
def test_floors_by_hand(method):
    arrays, rows, data = BY_HAND[method]
    found = jdfl.floor(method.settings, aot.regression(SIZE), aot.network(SIZE.m), rounds=3)
    assert found.state == 2 * arrays * SIZE.m * ROW
    assert found.messages == rows * SIZE.m * ROW
    assert found.data == SIZE.m * data
    assert found.total == found.state + found.messages + found.data


def test_nodes_at_rest_need_no_data_batches_read_no_example_twice_and_a_matrix_is_read_with_every_message():
    given = aot.regression(SIZE), aot.network(SIZE.m)
    gradients = jdfl.Gradients(batch=4 * SIZE.q)
    assert jdfl.floor(jdfl.DPSGD(gradients=gradients), *given, rounds=2).data == SIZE.m * SIZE.q * EXAMPLE
    settings = jdfl.CEPS(s=3, rate=0.5, periods=(4, 4), sigma_rule="safe")
    found = jdfl.floor(settings, *given, rounds=16)
    assert found.messages == pytest.approx(SIZE.m * ROW * 4 * 3 / 16)  # 4 of 8, in 3 of 16 rounds: not in the first
    assert found.data == pytest.approx(SIZE.m * ALL * 3 / 16)
    own = jdfl.CEPS(**{**vars(settings), "codec": jdfl.OneBit(d=60)})
    more = jdfl.floor(own, *given, rounds=16).messages - found.messages
    assert more == pytest.approx(SIZE.m * floors.counts(own, *given, 16).senders * 4 * SIZE.n * 60)


def test_what_does_not_fit_is_refused():
    with refused(rounds=0):
        jdfl.floor(jdfl.DPSGD(), aot.regression(SIZE), aot.network(SIZE.m), rounds=0)
