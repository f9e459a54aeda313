"""The published V-Score: its rules, and the laws that they obey."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eval.sgmri.boxes import box_iou, rows_in_answer, score_boxes, truth_boxes, truth_frames
from eval.sgmri.parse import FramedBox


def row(x, y, width, height, **keys):
    return {"x": x, "y": y, "width": width, "height": height, **keys}


SQUARE = row(0, 0, 10, 10)


@pytest.mark.parametrize(
    ("rows", "frames"),
    [
        ([{"frame": 3, "slice_num": 4}], [3]),
        ([{"frame": 0, "slice_num": 4}], [4]),
        ([{"frame": None, "slice_num": "4"}], [4]),
        ([{"frame": 0}], [None]),
        ([{"frame": 0, "slice_num": 0}], [0]),
        ([{}], [None]),
    ],
)
def test_the_frame_of_the_truth(rows, frames):
    assert truth_frames(rows) == frames


def test_rows_without_a_key_are_dropped_but_their_frames_stay():
    rows = [{"x": 1, "frame": 3}, {**SQUARE, "frame": 5}]
    assert truth_boxes(rows) == [(0, 0, 10, 10)]
    found = score_boxes(rows, [FramedBox(3, (0, 0, 10, 10))])
    assert (found.value, found.truths) == (1.0, 1)


def test_a_null_in_the_truth_stops_the_scorer():
    with pytest.raises(TypeError):
        score_boxes([row(None, 1, 1, 1)], [])
    with pytest.raises(ValueError, match="invalid literal"):
        score_boxes([{**SQUARE, "frame": "six"}], [])


def test_without_truth_there_is_no_score_and_without_prediction_no_detection():
    assert score_boxes([{"x": 1}], [FramedBox(1, (0, 0, 10, 10))]) is None
    found = score_boxes([SQUARE], [])
    assert (found.value, found.mean_f1, found.detection, found.frame_aware) == (0.0, None, None, None)


@pytest.mark.parametrize(
    ("frame", "guess", "value"),
    [(4, 4, 1.0), (4, 5, 0.0), (None, 5, 1.0), (4, None, 1.0)],
)
def test_boxes_on_different_frames_never_match(frame, guess, value):
    assert score_boxes([{**SQUARE, "frame": frame}], [FramedBox(guess, (0, 0, 10, 10))]).value == value


def test_truth_in_the_answer_keeps_the_frames_that_the_parser_finds():
    assert rows_in_answer("Frame 7: <bbx>[1,2,3,4]</bbx>", (320, 320)) == [row(1, 2, 3, 4, frame=7)]
    assert rows_in_answer("on frame 7 at <bbx>[1,2,3,4]</bbx>", (320, 320)) == [row(1, 2, 3, 4)]


def test_detection_counts_assigned_pairs_at_each_threshold():
    found = score_boxes([SQUARE, row(100, 0, 10, 10)], [FramedBox(1, (0, 0, 10, 4)), FramedBox(1, (200, 0, 1, 1))])
    assert found.detection["P@0.25"] == found.detection["R@0.25"] == found.detection["F1@0.25"] == 0.5
    assert found.detection["F1@0.5"] == 0.0
    assert found.mean_f1 == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("first", "second", "iou"),
    [
        ((0, 0, 10, 10), (0, 0, 10, 10), 1.0),
        ((0, 0, 10, 10), (0, 0, 0, 0), 0.0),
        ((0, 0, 0, 0), (0, 0, 0, 0), 0.0),
        ((0, 0, 10, 10), (5, 5, 10, 10), 25 / 175),
        ((300, 0, 100, 10), (350, 0, 100, 10), 1 / 3),
        ((0, 0, 4, 4), (4, 4, -4, -4), 0.0),
    ],
)
def test_iou_of_known_pairs(first, second, iou):
    assert box_iou(first, second) == pytest.approx(iou)


number = st.floats(0, 1000) | st.integers(0, 60)
boxes = st.tuples(number, number, number, number)
truths = st.lists(st.tuples(boxes, st.none() | st.integers(1, 3)), min_size=1, max_size=4)
guesses = st.lists(st.builds(FramedBox, st.integers(1, 3), boxes), max_size=5)


def rows_of(pairs):
    return [{**row(*box), "frame": frame} for box, frame in pairs]


@given(truths, guesses)
@settings(deadline=None)
def test_the_score_of_boxes_with_sides_is_a_fraction(pairs, predicted):
    found = score_boxes(rows_of(pairs), predicted)
    assert 0.0 <= found.value <= 1.0
    assert found.mean_f1 is None or 0.0 <= found.mean_f1 <= 1.0


@given(truths, guesses, st.randoms(use_true_random=False))
@settings(deadline=None)
def test_the_order_of_boxes_does_not_matter(pairs, predicted, random):
    value = score_boxes(rows_of(pairs), predicted).value
    random.shuffle(pairs)
    random.shuffle(predicted)
    assert score_boxes(rows_of(pairs), predicted).value == pytest.approx(value, abs=1e-12)


@given(truths, guesses, guesses)
@settings(deadline=None)
def test_further_boxes_cost_nothing(pairs, predicted, more):
    assert score_boxes(rows_of(pairs), predicted + more).value >= score_boxes(rows_of(pairs), predicted).value - 1e-12


area = st.integers(1, 60)
solid = st.tuples(st.integers(0, 300), st.integers(0, 300), area, area)


@given(st.lists(st.tuples(solid, st.none() | st.integers(1, 3)), min_size=1, max_size=4))
@settings(deadline=None)
def test_the_truth_itself_earns_everything(pairs):
    found = score_boxes(rows_of(pairs), [FramedBox(frame or 1, box) for box, frame in pairs])
    assert found.value == pytest.approx(1.0)
    assert found.mean_f1 == pytest.approx(1.0)
