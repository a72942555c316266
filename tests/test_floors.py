"""The least bytes that a round moves, derived from shapes and counts, against counts by hand; timings of one run."""

import json

import pytest

import jdfl
from benchmarks import aot, floors, methods, one_run
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
    found = floors.floor(method.settings, aot.regression(SIZE), aot.network(SIZE.m), rounds=3)
    assert found.state == 2 * arrays * SIZE.m * ROW
    assert found.messages == rows * SIZE.m * ROW
    assert found.data == SIZE.m * data
    assert found.total == found.state + found.messages + found.data


def test_nodes_at_rest_need_no_data_batches_read_no_example_twice_and_a_matrix_is_read_with_every_message():
    given = aot.regression(SIZE), aot.network(SIZE.m)
    gradients = jdfl.Gradients(batch=4 * SIZE.q)
    assert floors.floor(jdfl.DPSGD(gradients=gradients), *given, rounds=2).data == SIZE.m * SIZE.q * EXAMPLE
    settings = jdfl.CEPS(s=3, rate=0.5, periods=(4, 4), sigma_rule="safe")
    found = floors.floor(settings, *given, rounds=16)
    assert found.messages == pytest.approx(SIZE.m * ROW * 4 * 3 / 16)  # 4 of 8, in 3 of 16 rounds: not in the first
    assert found.data == pytest.approx(SIZE.m * ALL * 3 / 16)
    own = jdfl.CEPS(**{**vars(settings), "codec": jdfl.OneBit(d=60)})
    more = floors.floor(own, *given, rounds=16).messages - found.messages
    assert more == pytest.approx(SIZE.m * floors.counts(own, *given, 16).senders * 4 * SIZE.n * 60)


def test_what_does_not_fit_is_refused():
    with refused(rounds=0):
        floors.floor(jdfl.DPSGD(), aot.regression(SIZE), aot.network(SIZE.m), rounds=0)


def test_one_run_tells_times_and_the_limit_and_refuses_rounds_that_a_run_does_not_make(capsys):
    tiny = ["--problem.m", "4", "--problem.n", "20", "--problem.s", "2", "--problem.rows", "5", "9"]
    flags = [*tiny, "--network", "ring", "--algorithm", "d-psgd"]
    assert one_run.main([*flags, "--rounds", "8", "--repeats", "3", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    each, least = told["milliseconds_per_round"], sum(told["least_megabytes_per_round"].values())
    assert 0 < each["least"] <= each["median"]
    assert told["times_the_limit"] == pytest.approx(each["median"] * told["copy_gigabytes_per_second"] / least)
    assert one_run.main([*flags, "--algorithm.lr", "1e30", "--rounds", "50"]) == 2
    assert "--rounds" in capsys.readouterr().err
