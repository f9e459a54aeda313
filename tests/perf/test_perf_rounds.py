import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perf.rounds import MeasurementError, Spread, alternating, measured_apart, spread


@settings(deadline=None)
@given(st.integers(1, 4), st.integers(0, 6))
def test_every_round_has_every_side_once_and_begins_with_the_one_that_the_last_round_ended_with(count, rounds):
    sides = [f"side {number}" for number in range(count)]
    order = alternating(sides, rounds)
    cut = [order[start : start + count] for start in range(0, len(order), count)]
    assert len(cut) == rounds
    assert all(sorted(each) == sides for each in cut)
    assert all(before[-1] == after[0] for before, after in itertools.pairwise(cut))


def test_a_spread_is_median_and_range():
    assert spread([3.04, 1.0, 2.0, 2.5], 1) == Spread(median=2.2, lowest=1.0, highest=3.0)


def test_a_process_that_fails_says_why_and_what_to_do():
    with pytest.raises(MeasurementError, match=r"'nonsense' ended with 2: .*invalid choice") as raised:
        measured_apart("heads", "nonsense", {"batch": 1}, fix="try less")
    assert raised.value.fix == "try less"
