import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eval.boxes import iou, match_boxes

number, size = st.floats(-1e6, 1e6), st.floats(1e-3, 1e6)
box = st.builds(lambda x, y, w, h: (x, y, x + w, y + h), number, number, size, size)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ((0, 0, 10, 10), (0, 0, 10, 10), 1.0),
        ((0, 0, 10, 10), (0, 0, 10, 5), 0.5),
        ((0, 0, 10, 10), (10, 0, 20, 10), 0.0),
        ((0, 0, 10, 10), (5, 5, 15, 15), 25 / 175),
        ((0, 0, 1, 1), (0, 0, 1e308, 1e308), 0.0),
    ],
    ids=["same", "half", "touching", "quarter", "area overflows"],
)
def test_iou_of_known_pairs(first, second, expected):
    assert iou(first, second) == expected


@given(box, box)
@settings(max_examples=200)
def test_iou_is_symmetric_and_a_fraction(first, second):
    assert 0.0 <= iou(first, second) <= 1.0
    assert iou(first, second) == iou(second, first)


@given(st.lists(box, max_size=4), st.lists(box, max_size=4))
@settings(max_examples=60, deadline=None)
def test_matching_is_the_best_one_to_one_assignment(targets, predicted):
    found = match_boxes(targets, predicted)
    padded = predicted + [None] * len(targets)
    best = max(
        sum(iou(t, p) for t, p in zip(targets, chosen, strict=True) if p is not None)
        for chosen in itertools.permutations(padded, len(targets))
    )
    assert len(found) == len(targets)
    assert sum(found) == pytest.approx(best)
