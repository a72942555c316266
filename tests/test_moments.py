"""Returns from the device and moments that are remembered follow from numbers of rounds alone."""

import random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from jdfl.engine.runner import MOST, ReleaseHistory, ReturnSchedule


@given(st.integers(0, 999))
def test_a_run_returns_where_it_would_have_wherever_it_goes_on(seed):
    draw = random.Random(seed)
    every, chunk, checkpoint, last = (draw.randint(1, most) for most in (7, 30, 40, 300))
    made = ReturnSchedule(every, chunk, checkpoint)
    assert made.chunk % every == 0
    done, whole = 0, []
    while done < last:
        after = made.after(done, last)
        assert done < after <= done + made.records * every
        assert after == last or after % every == 0
        done = after
        whole.append(done)
    chunks = set(range(made.chunk, last + 1, made.chunk))
    assert chunks <= set(whole)
    begin = draw.randint(0, last)
    assert begin == last or made.after(begin, last) == min(k for k in whole if k > begin)


@given(st.integers(0, 999))
def test_moments_are_those_of_a_run_that_was_never_resumed(seed):
    draw = random.Random(seed)
    chunk, last = draw.randint(1, 9), draw.randint(1, 2000)

    def play(moments, begin, end):
        for k in [*range((begin // chunk + 1) * chunk, end, chunk), end]:
            moments.add(k, lambda k=k: np.array([k, 2 * k]))

    whole = ReleaseHistory(chunk, {})
    play(whole, 0, last)
    cut = draw.randint(1, last - 1) if last > 1 else 0
    first = ReleaseHistory(chunk, {})
    if cut:
        play(first, 0, cut)
    rest = ReleaseHistory(chunk, first.until(cut))
    play(rest, cut, last)
    told = whole.until(last)
    assert list(told) == list(rest.until(last)) == sorted(told)
    assert all((told[k] == [k, 2 * k]).all() for k in told)
    assert max(told) == last
    assert min(MOST // 2, -(-last // chunk)) <= len(told) <= MOST
