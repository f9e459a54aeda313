"""Documented behaviour of the published scorer beyond the reference cases."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eval.scintiground.loc_form import read_label, target_grid
from eval.scintiground.old_forms import parse_old_json, parse_tags
from eval.scintiground.parse import audit_issues, is_valid, parse_lenient
from eval.scintiground.report import report
from eval.scintiground.scoring import box_iou, score_row, score_rows
from eval.scintiground.strata import audit, threshold_sweep

SIZES = [{"view": view, "image_size": [256, 1024]} for view in ("ANT", "POST")]
VQA = {"task_id": "v", "task": "vqa", "label": "head", "answer_label": "no", "images": SIZES, "targets": []}
GROUNDING = {
    "task_id": "g",
    "task": "grounding",
    "label": "left knee",
    "answer_label": None,
    "images": SIZES,
    "targets": [{"view": "POST", "bbox": [10, 10, 20, 20]}],
}


def grounding(**changes):
    box = {"view": "PST", "bbox": [10, 10, 20, 20]}
    return json.dumps({"task": "grounding", "region": "left_knee", "boxes": [box], **changes})


@pytest.mark.parametrize(
    ("row", "text", "stop"),
    [
        (VQA, '{"task":["vqa"],"answer":"x","class":"no"}', TypeError),
        (VQA, '{"task":"vqa","answer":"x","class":{}}', TypeError),
        (VQA, '{"task":"vqa","answer":"x","class":"no","boxes":true}', TypeError),
        (VQA, 5, TypeError),
        (VQA, "[" * 100_000, RecursionError),
        (GROUNDING, grounding(boxes=[{"view": {}, "bbox": [1, 2, 3, 4]}]), TypeError),
        (GROUNDING, grounding(boxes=[{"view": "ANT", "bbox": [1, 2, 10**400, 4]}]), OverflowError),
        ({**VQA, "task": "caption"}, "x", ValueError),
    ],
)
def test_the_published_scorer_stops_where_upstream_stops(row, text, stop):
    with pytest.raises(stop):
        score_row(row, text)


def test_an_unhashable_class_behind_an_earlier_fault_does_not_stop_scoring_but_stops_the_audit():
    text = '{"task":"vqa","answer":" ","class":[]}'
    assert not score_row(VQA, text).valid
    with pytest.raises(TypeError):
        audit_issues(text, VQA)


@given(st.text(max_size=60) | st.builds(grounding, boxes=st.lists(st.text(max_size=3), max_size=2)))
@settings(max_examples=200, deadline=None)
def test_a_text_without_a_box_object_earns_nothing(text):
    scored = score_row(GROUNDING, text)
    assert (scored.valid, scored.ious, scored.strict) == (False, (0.0,), False)


def test_infinite_coordinates_are_read_but_not_valid():
    text = '{"task":"grounding","region":"left_knee","boxes":[{"view":"PST","bbox":[0,0,Infinity,1e999]}]}'
    assert parse_lenient(text).boxes[0].bbox[2:] == (float("inf"), float("inf"))
    assert not is_valid(text, GROUNDING)


def test_a_view_is_bounded_only_if_the_row_shows_it_with_a_size():
    text = grounding(boxes=[{"view": "PST", "bbox": [10, 10, 300, 20]}])
    assert not is_valid(text, GROUNDING)
    assert is_valid(text, {**GROUNDING, "images": [SIZES[0]]})
    assert is_valid(text, {**GROUNDING, "images": [{"view": "POST", "image_size": None}]})


def test_issues_add_up_in_the_audits_order():
    text = '{"task":"x","answer":1,"class":"no","boxes":[],"region":" "}'
    row = {**GROUNDING, "task": "grounded_vqa"}
    assert audit_issues(text, row) == [
        "task_mismatch",
        "invalid_answer",
        "invalid_class",
        "invalid_region",
        "invalid_boxes",
    ]


def test_the_first_faulty_box_names_the_issue_and_hides_a_repeated_view():
    good, bad = {"view": "ANT", "bbox": [1, 2, 3, 4]}, {"view": "ANT", "bbox": [3, 2, 1, 4]}
    assert audit_issues(grounding(boxes=[good, good]), GROUNDING) == ["duplicate_box_view"]
    assert audit_issues(grounding(boxes=[good, bad, {}]), GROUNDING) == ["non_increasing_bbox"]


def test_the_audit_counts_missing_and_unexpected_ids():
    found = audit([VQA, GROUNDING], {"v": "x", "other": "y"})
    assert (found["missing_prediction_rows"], found["unexpected_prediction_rows"]) == (1, 1)
    assert found["issue_counts"] == {"prediction_invalid_json": 1}


def test_the_sweep_reads_invalid_outputs_and_rows_of_every_task():
    lesion = {**VQA, "targets": [{"view": "ANT", "bbox": [1, 1, 9, 9]}]}
    invalid = grounding(extra=1)
    scored = score_rows([lesion, GROUNDING], {"v": '{"task":"vqa","answer":"x","class":"no"}', "g": invalid})
    assert threshold_sweep(scored)["accuracy_at_0.90"] == 0.5
    assert report(scored)["grounding"]["iou_at_0_5"] == 0.0


def test_an_unknown_label_belongs_to_neither_class():
    scored = score_rows([{**VQA, "answer_label": "maybe"}], {"v": '{"task":"vqa","answer":"x","class":"yes"}'})
    block = report(scored)["vqa"]
    assert block["confusion"] == {"tp": 0, "tn": 0, "fp": 0, "fn": 0}
    assert (block["accuracy"], block["precision"]) == (0.0, None)


def test_a_report_without_rows_has_no_rates():
    empty = report([])
    assert empty["rows"] == 0
    assert empty["model_selection_score"] is None
    assert empty["grounding"]["mean_iou"] is None


boxes = st.tuples(*[st.integers(0, 40)] * 4).filter(lambda b: b[0] < b[2] and b[1] < b[3])


@given(boxes, boxes)
def test_iou_is_the_share_of_common_pixels(a, b):
    pixels = [{(x, y) for x in range(c[0], c[2]) for y in range(c[1], c[3])} for c in (a, b)]
    assert box_iou(a, b) == pytest.approx(len(pixels[0] & pixels[1]) / len(pixels[0] | pixels[1]))
    assert box_iou(a, b) == box_iou(b, a)


def test_empty_boxes_have_no_overlap():
    assert box_iou((1, 1, 1, 1), (1, 1, 1, 1)) == 0.0


def test_bare_boxes_are_read_only_if_no_view_has_one():
    tagged = "<ANT><BBX>1,2,3,4</BBX></ANT>"
    assert [box.view for box in parse_tags(tagged + "<BBX>5,6,7,8</BBX>").boxes] == ["ANT"]
    assert [box.view for box in parse_tags("<ANT><BBX>1,2,3,4</BBX></PST>").boxes] == [None]


def test_the_old_json_class_must_be_a_word_of_the_task():
    assert parse_old_json('{"class":"yes"}', "vqa").label == "yes"
    assert parse_old_json('{"class":"yes"}', "grounded_vqa").label is None
    assert parse_old_json('{"class":["yes"]}', "vqa").label is None
    assert parse_old_json("words", "vqa") == parse_old_json("[]", "vqa")


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("CLASS = Abnormal", "abnormal"),
        ("xclass=normal.", "normal"),
        ("normally", None),
        (" normal", None),
        ("normal class=abnormal", "abnormal"),
        ("class normal", None),
    ],
)
def test_where_a_class_is_read_in_the_location_form(text, label):
    assert read_label(text, "grounded_vqa") == label


def test_a_posterior_target_moves_by_the_anterior_width():
    assert target_grid(GROUNDING) == (531, 10, 551, 20)
    assert target_grid({**GROUNDING, "images": [SIZES[1]]}) == (40, 10, 80, 20)
    assert target_grid(VQA) is None
