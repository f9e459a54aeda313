"""The corrected SGMRI-VQA scorer: its laws, and each mended fault."""

import math
from itertools import permutations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.errors import DataError
from benchmarks.schema import Answer
from eval.corrected_sgmri.faults import FAULTS
from eval.corrected_sgmri.texts import Parts, ar_texts, judge_mark, text_values
from eval.scorer import get_scorer
from eval.sgmri.marks import TextMarks
from eval.tally import confusion, invalid_counts
from tests.eval.sgmri_cases import (
    FRAMES,
    HEIGHT,
    HERE,
    SCORER,
    THERE,
    WIDTH,
    answered,
    boxes,
    closed,
    invalid,
    perfect,
    predict,
    record,
    row,
    score,
)

CAPTION = "The volume shows a small bright lesion in the left hemisphere."
EVERY = [
    closed(0, "Yes"),
    closed(1, "No"),
    closed(2, "3", "volume_counting"),
    closed(3, "FLAIR", "image_classification"),
    closed(4, "(B)", "image_diagnosis", answer_type="single_choice"),
    closed(5, "(A), (C)", "volume_classification", answer_type="multiple_choice"),
    closed(6, "Yes", "volume_detection"),
    closed(7, "No", "volume_detection"),
    record(8, "image_localization"),
    record(9, target=boxes((0, HERE), (0, THERE), (3, HERE))),
    record(
        10, "volume_captioning", CAPTION, answer_type="open_ended", target=boxes((2, HERE), (2, (-5.0, 0.0, 9.0, 9.0)))
    ),
    record(11, "image_captioning", "Tear.", answer_type="open_ended"),
]
# Not shares of right answers.
OTHER = {"majority_share", "accuracy_gain"}


def test_the_benchmark_has_this_scorer():
    assert type(get_scorer("sgmri")) is type(SCORER)


@pytest.mark.parametrize("codec", ["sgmri_json", "sgmri_answer_first", "sgmri_text", "plain"])
def test_right_answers_score_1_on_every_metric(codec):
    metrics, rows = score(EVERY, [perfect(each) for each in EVERY], codec)
    assert {m.value for (_, name), m in metrics.items() if name not in OTHER} == {1.0}
    assert all(each.valid for each in rows)
    assert ("volume_localization", "label_iou") in metrics or codec in ("sgmri_text", "plain")


@pytest.mark.parametrize("worst", [invalid, lambda r: answered(r, "", given=())], ids=["invalid", "empty"])
def test_no_answer_scores_0_wherever_one_was_asked(worst):
    best, _ = score(EVERY, [perfect(each) for each in EVERY])
    metrics, rows = score(EVERY, [worst(each) for each in EVERY])
    # Precision of a class that nothing was called is not defined.
    assert {key for key in best if not key[1].startswith("precision")} <= metrics.keys()
    for (task, name), metric in metrics.items():
        if name not in OTHER and not name.startswith("precision:") and not (name == "valid_rate" and rows[8].valid):
            assert metric.value == 0.0, (task, name)
        assert metric.n_records == best[task, name].n_records


def test_every_fault_is_named_once():
    assert [fault.number for fault in FAULTS] == list(range(1, 34))
    assert len({fault.id for fault in FAULTS}) == len(FAULTS)
    assert SCORER.faults == FAULTS


@pytest.mark.parametrize("text", ["Normal study, note the clear lungs", "yes or no", "abnormal", "Diagnosis noted"])
def test_01_words_that_hold_no_or_both_answer_nothing(text):
    asked = closed(1, "No")
    found = row(asked, answered(asked, text))
    assert (found.valid, found.predicted, found.values) == (False, None, {"a_score": 0.0})
    assert found.reason in ("no_yes_or_no", "yes_and_no")


def test_01_a_class_that_the_form_names_wins_over_its_words():
    asked = closed(1, "No")
    named = msgspec.structs.replace(answered(asked, "maybe"), answer=Answer(text="maybe", label="No"))
    assert row(asked, named).class_correct


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("(B)", "This is a mass.", 0.0),
        ("(A)", "This is a mass.", 0.0),
        ("(C)", "(A), (C)", 0.0),
        ("(C)", "Between (A) and (C), I choose (C).", 1.0),
        ("(C)", "It is not (A) but (C)", 1.0),
    ],
)
def test_02_to_04_single_choice(key, text, value):
    asked = closed(1, key, "image_diagnosis", answer_type="single_choice")
    assert row(asked, answered(asked, text)).values == {"a_score": value}


@pytest.mark.parametrize(
    ("text", "value"), [("A, C", 1.0), ("(A)", 2 / 3), ("A, B, C, D", 2 / 3), ("(B)", 0.0), ("none", 0.0)]
)
def test_05_multiple_choice_is_the_f1_of_the_letters(text, value):
    asked = closed(1, "(A), (C)", "volume_classification", answer_type="multiple_choice")
    found = row(asked, answered(asked, text))
    assert found.values == {"a_score": pytest.approx(value)}
    assert found.class_correct is (value == 1)


def test_06_options_beyond_d():
    asked = closed(1, "(E)", "image_diagnosis", answer_type="single_choice", choices=("A", "B", "C", "D", "E"))
    assert row(asked, answered(asked, "(E)")).values == {"a_score": 1.0}


@pytest.mark.parametrize(
    ("text", "value"),
    [("There are 3 findings, on frames 7, 8 and 9.", 1.0), ("three", 1.0), ("9", 0.0), ("3 or 4", 0.0)],
)
def test_07_counting(text, value):
    asked = closed(1, "3", "volume_counting")
    assert row(asked, answered(asked, text)).values == {"a_score": value}


@pytest.mark.parametrize(("text", "value"), [(" flair.", 1.0), ("T1", 0.0), ("FLAIR sequence", 0.0)])
def test_08_text_keys_are_compared_as_wholes(text, value):
    asked = closed(1, "FLAIR", "image_classification")
    assert row(asked, answered(asked, text)).values == {"a_score": value}


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"answer_type": "open_ended"}, "open_ended"),
        ({"answer_type": "short"}, "unknown_answer_type"),
        ({"answer_type": "single_choice", "label": None}, "unreadable_key"),
    ],
)
def test_09_what_has_no_key_is_left_out_and_counted(changes, name):
    asked = closed(1, "edema", "image_diagnosis", **changes)
    for prediction in (perfect(asked), invalid(asked)):
        metrics, (found,) = score([asked], [prediction])
        assert found.counts == {name: 1}
        assert set(metrics) == {("image_diagnosis", "valid_rate")}


def test_10_a_failed_call_is_in_no_score():
    asked = [closed(0, "Yes"), closed(1, "No")]
    failed = invalid(asked[1], text=None, invalid=None, error="[ERROR: No images found]")
    metrics, rows = score(asked, [perfect(asked[0]), failed])
    assert (metrics["image_detection", "a_score"].value, metrics["image_detection", "a_score"].n_records) == (1.0, 1)
    assert (rows[1].error, rows[1].values) == ("[ERROR: No images found]", {})
    assert invalid_counts(rows) == []


def test_14_a_box_on_a_frame_not_shown_matches_nothing_and_counts():
    asked = record(1)
    found = row(asked, answered(asked, given=boxes((1, HERE), (FRAMES, HERE), (-1, HERE))))
    assert found.counts == {"box_unplaced": 2}
    assert (found.values["v_score"], found.values["iou_over_max"], found.values["frame_f1"]) == (1.0, 1 / 3, 1.0)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            '{"reasoning": "", "answer": "Left.", "bboxes": [{"frame": null, "label": "x", "bbox": [1,2,3,4]}]}',
            "box_without_frame",
        ),
        (
            '{"reasoning": "", "answer": "Left.", "bboxes": [{"frame": 2, "label": "x", "bbox": [1,2,3,null]}]}',
            "invalid_bbox",
        ),
        ('{"reasoning": "", "answer": "Left.", "bboxes": [{"frame": 2, "label"', "invalid_json"),
    ],
)
def test_14_and_17_what_cannot_be_placed_is_one_invalid_answer(text, reason):
    asked = [record(1), record(2)]
    metrics, rows = score(asked, [predict(asked[0], text), perfect(asked[1])])
    assert (rows[0].reason, rows[0].values["v_score"]) == (reason, 0.0)
    assert metrics["volume_localization", "v_score"].value == 0.5


def test_15_frames_of_the_list_count_and_boxes_of_the_reasoning_do_not():
    asked = record(1)
    text = (
        '{"reasoning": "Frame 4: <bbx>[1,1,9,9]</bbx>", "answer": "Left.", '
        '"bboxes": [{"frame": 2, "label": "Edema", "bbox": [10, 10, 10, 10]}]}'
    )
    assert row(asked, predict(asked, text)).values["v_score"] == 1.0


def test_16_a_range_of_frames_is_a_box_on_each():
    asked = record(1, target=boxes(*((image, HERE) for image in (1, 2, 3))))
    values = row(
        asked, predict(asked, "Left. Slices #2-4: <bbx>[10,10,10,10]</bbx>", "sgmri_text"), codec="sgmri_text"
    ).values
    assert (values["v_score"], values["box_f1_at_0.5"], values["frame_f1"]) == (1.0, 1.0, 1.0)


def test_17_boxes_are_clipped_and_those_outside_are_dropped():
    asked = record(1, target=boxes((1, (54.0, 38.0, 64.0, 48.0))))
    given = boxes((1, (54.0, 38.0, 99.0, 99.0)), (1, (64.0, 0.0, 80.0, 9.0)), (0, (-9.0, -9.0, 0.0, 5.0)))
    found = row(asked, answered(asked, given=given))
    assert found.counts == {"box_clipped": 1, "box_dropped": 2}
    assert found.values["iou_over_max"] == found.values["box_f1_at_0.5"] == 1.0


def test_19_an_answer_without_boxes_counts():
    asked = [record(1), record(2)]
    metrics, _ = score(asked, [perfect(asked[0]), answered(asked[1], given=())])
    assert {metrics["volume_localization", name].value for name in ("v_score", "box_f1_at_0.5", "frame_precision")} == {
        0.5
    }


def test_20_repeated_targets_count_once():
    asked = record(1, target=boxes((1, HERE), (1, HERE), (1, (70.0, 0.0, 80.0, 9.0))))
    found = row(asked, answered(asked, given=boxes((1, HERE))))
    assert found.counts == {"truth_dropped": 2}
    assert found.values["v_score"] == found.values["iou_over_max"] == 1.0


@pytest.mark.parametrize(
    ("target", "given"),
    [
        ([(1, 7), (4, 8)], [(2, 6), (2, 4)]),
        ([(0, 2), (5, 9), (0, 4)], [(2, 6), (5, 9), (0, 6)]),
        ([(5, 7), (4, 8), (0, 6)], [(0, 2), (2, 6), (2, 4)]),
    ],
)
def test_of_several_best_matchings_the_order_of_boxes_chooses_none(target, given):
    """Sums of IoUs are equal, numbers of boxes at IoU .3 and .5 are not."""
    found = set()
    for wanted in permutations(target):
        for named in permutations(given):
            asked, other = (
                boxes(*((1, (float(left), 0.0, float(right), 10.0)) for left, right in spans))
                for spans in (wanted, named)
            )
            one = record(1, target=asked)
            values = row(one, answered(one, given=other)).values
            found.add((values["box_f1_at_0.3"], values["box_f1_at_0.5"]))
    assert len(found) == 1


def test_a_box_that_an_answer_names_twice_counts_once():
    asked = record(1)
    found = row(asked, answered(asked, given=boxes((1, HERE), (1, HERE))))
    assert found.counts == {"box_repeated": 1}
    assert (found.values["box_f1_at_0.5"], found.values["iou_over_max"], found.extra_boxes) == (1.0, 1.0, 0)


def test_20_equal_boxes_of_two_findings_are_two():
    asked = record(1, target=(*boxes((1, HERE)), *boxes((1, HERE), label="Mass")))
    values = row(asked, answered(asked, given=boxes((1, HERE)))).values
    assert (values["v_score"], values["label_iou"]) == (0.5, 0.5)


def test_records_without_a_target_box_are_in_no_box_metric():
    asked = record(1, "image_localization", target=())
    found = row(asked, answered(asked, given=boxes((0, HERE))))
    assert found.counts == {"no_truth_box": 1}
    assert set(found.values) == {"bleu4", "rouge_l", "ar_score"}


def test_labels_match_whatever_their_spelling():
    asked = record(1)
    assert row(asked, answered(asked, given=boxes((1, HERE), label=" edema."))).values["label_iou"] == 1.0
    wrong = row(asked, answered(asked, given=boxes((1, HERE), label="Mass"))).values
    assert (wrong["label_iou"], wrong["v_score"]) == (0.0, 1.0)


def test_frames_are_a_matter_of_volumes():
    asked = record(1, "image_localization")
    assert not any(name.startswith("frame") for name in row(asked, perfect(asked)).values)
    volume = record(2, target=boxes((0, HERE), (1, HERE)))
    values = row(volume, answered(volume, given=boxes((1, THERE), (4, HERE), (4, THERE)))).values
    assert (values["frame_precision"], values["frame_recall"], values["frame_f1"]) == (0.5, 0.5, 0.5)


def test_24_and_25_answers_are_compared_without_reasoning_and_places():
    asked = record(1, text="In the left hemisphere, Frame 2: <bbx>[10,10,10,10]</bbx>.")
    answer = Answer(text="In the left hemisphere on frame 5 [9.5, 1, 2, 3].", reasoning="Quite other words.")
    assert ar_texts(asked, answer) == ("In the left hemisphere.", "In the left hemisphere.")
    assert row(asked, msgspec.structs.replace(perfect(asked), answer=answer)).values["ar_score"] == 1.0


def test_a_target_of_places_only_is_in_no_ar_score():
    asked = record(1, "image_localization", "<bbx>[10,10,10,10]</bbx>")
    found = row(asked, perfect(asked))
    assert found.counts == {"no_reference": 1}
    assert "ar_score" not in found.values


def test_ar_is_the_published_weighting_of_the_parts_that_a_run_has():
    mark = TextMarks(corrected_judge_reply="7,8,6", corrected_bertscore_f1=0.4)
    texts = ("edema near the ventricle", "edema surrounds the ventricle")
    both = text_values(*texts, mark, Parts(judge=True, bertscore=True)).values
    assert both["judge"] == pytest.approx(0.7)
    assert both["ar_score"] == pytest.approx(0.4 * 0.7 + 0.2 * (0.4 + both["bleu4"] + both["rouge_l"]))
    alone = text_values(*texts, None, Parts()).values
    assert alone["ar_score"] == pytest.approx((alone["bleu4"] + alone["rouge_l"]) / 2)


@pytest.mark.parametrize(
    ("reply", "value"),
    [
        ("10,10,10", 1.0),
        ("7.5, 8 ,6", 21.5 / 30),
        ("Accuracy: 8, relevance: 7, helpfulness: 9.", 0.8),
        ("7, 8", None),
        ("7,8,9,10", None),
        ("0,5,5", None),
        ("11,5,5", None),
        ("8/10, 7/10, 9/10", None),
        ("good", None),
        ("", None),
        (None, None),
    ],
)
def test_23_a_reply_is_three_marks_or_nothing(reply, value):
    assert judge_mark(reply) == (None if value is None else pytest.approx(value))


def test_23_a_missing_mark_leaves_the_record_out_of_judge_and_ar_and_is_counted():
    asked = [record(number) for number in range(4)]
    predictions = [perfect(asked[0]), perfect(asked[1]), invalid(asked[2]), perfect(asked[3])]
    replies = ["5,5,5", "", "", "sorry"]
    marks = {r.id: TextMarks(corrected_judge_reply=reply) for r, reply in zip(asked, replies, strict=True)}
    metrics, rows = score(asked, predictions, marks=marks)
    assert [each.counts.get("judge_missing", 0) for each in rows] == [0, 1, 0, 1]
    # An output that cannot be read is a 0 for the judge too.
    judge, ar, rouge = (metrics["volume_localization", name] for name in ("judge", "ar_score", "rouge_l"))
    assert (judge.value, judge.n_records, ar.n_records, rouge.n_records) == (0.25, 2, 2, 4)


def test_bertscore_below_0_counts_0():
    asked = record(1)
    values = row(asked, perfect(asked), marks={asked.id: TextMarks(corrected_bertscore_f1=-0.3)}).values
    assert values["bertscore"] == 0.0
    assert values["ar_score"] == pytest.approx(2 / 3)


def test_32_always_yes_shows_in_balanced_accuracy():
    asked = [closed(number, "Yes" if number else "No") for number in range(20)]
    metrics, rows = score(asked, [answered(each, "Yes") for each in asked])
    found = {
        name: metrics["image_detection", name].value for name in ("a_score", "majority_share", "balanced_accuracy")
    }
    assert found == {"a_score": 0.95, "majority_share": 0.95, "balanced_accuracy": 0.5}
    matrix = confusion("image_detection", rows, ("Yes", "No"))
    assert matrix.counts == [[19, 0, 0], [1, 0, 0]]


def test_detection_has_classes_and_other_tasks_have_none():
    assert SCORER.labels("volume_detection", []) == ("Yes", "No") == SCORER.pair(("Yes", "No"))
    assert SCORER.labels("volume_counting", []) == ()
    assert (SCORER.class_name(" yes"), SCORER.class_name("NO"), SCORER.class_name("other")) == ("Yes", "No", "other")
    letter = closed(1, "(A)", answer_type="single_choice")
    assert (SCORER.label(closed(1, "Yes")), SCORER.label(letter)) == ("Yes", None)
    assert row(letter, perfect(letter)).label is None


def test_strata_are_those_that_occur():
    assert SCORER.strata(EVERY) == ("organ", "modality", "answer_type")
    assert SCORER.strata([msgspec.structs.replace(EVERY[0], strata={"organ": "knee"})]) == ("organ",)


def test_an_unknown_task_is_refused_by_name():
    asked = msgspec.structs.replace(closed(1, "Yes"), task="image_triage")
    with pytest.raises(DataError, match=r"(?s)image_triage.*record s1.*field task"):
        score([asked], [perfect(asked)])


def test_a_cut_answer_is_its_own_reason_and_a_fenced_one_is_read_tolerantly():
    asked = closed(1, "Yes")
    assert row(asked, invalid(asked, finish="length")).reason == "truncated"
    fenced = predict(asked, '```json\n{"reasoning": "", "answer": "Yes", "bboxes": []}\n```')
    metrics, (found,) = score([asked], [fenced])
    assert (found.valid, found.tolerant_valid) == (False, True)
    a_score = metrics["image_detection", "a_score"]
    assert (a_score.value, a_score.tolerant) == (0.0, 1.0)


corners = st.tuples(st.integers(-5, WIDTH), st.integers(-5, HEIGHT), st.integers(1, 30), st.integers(1, 30)).map(
    lambda b: (float(b[0]), float(b[1]), float(b[0] + b[2]), float(b[1] + b[3]))
)
placed = st.lists(
    st.tuples(st.integers(0, FRAMES - 1), corners, st.sampled_from(["Edema", "Mass", None])), max_size=6
).map(lambda found: tuple(box for image, xyxy, label in found for box in boxes((image, xyxy), label=label)))


@given(placed, placed, placed, st.randoms(use_true_random=False))
@settings(deadline=None)
def test_more_boxes_never_lower_the_v_score_and_their_order_is_nothing(target, given, flood, random):
    asked = record(1, target=target)
    before = row(asked, answered(asked, given=given)).values
    after = row(asked, answered(asked, given=given + flood)).values
    assert all(0.0 <= value <= 1.0 for value in (*before.values(), *after.values()))
    if "v_score" in before:
        assert after["v_score"] >= before["v_score"] - 1e-12
        assert before["label_iou"] <= before["v_score"] + 1e-12
        assert before["iou_over_max"] <= before["v_score"]
    mixed = [list(target), list(given)]
    for part in mixed:
        random.shuffle(part)
    other = record(1, target=tuple(mixed[0]))
    again = row(other, answered(other, given=tuple(mixed[1]))).values
    assert again == pytest.approx(before, abs=1e-12)


@given(placed.filter(bool))
@settings(deadline=None)
def test_flooding_lowers_f1_and_iou_over_max_but_not_the_v_score(target):
    asked = record(1, target=target)
    best = row(asked, answered(asked)).values
    flood = boxes(*((image, (1.0, 1.0, 3.0, 3.0)) for image in range(FRAMES)))
    flooded = row(asked, answered(asked, given=target + flood)).values
    if "v_score" in best:
        assert flooded["v_score"] == best["v_score"] == 1.0
        assert flooded["iou_over_max"] < best["iou_over_max"]
        assert flooded["box_f1_at_0.5"] < best["box_f1_at_0.5"]
        assert flooded["frame_precision"] <= best["frame_precision"]


TEXTS = ["Yes", "No", "yes or no", "(B)", "A, C", "3", "three on frame 9", "FLAIR", "", "In the left hemisphere."]


@given(
    st.lists(
        st.tuples(st.sampled_from(range(len(EVERY))), st.sampled_from([*TEXTS, None]), placed), min_size=1, max_size=12
    ),
    st.randoms(use_true_random=False),
)
@settings(max_examples=50, deadline=None)
def test_scores_are_fractions_and_do_not_depend_on_the_order_of_records(items, random):
    asked, predictions = [], []
    for number, (place, text, found) in enumerate(items):
        one = msgspec.structs.replace(EVERY[place], id=f"r{number}", group=f"v{number % 3}")
        asked.append(one)
        predictions.append(invalid(one) if text is None else answered(one, text, given=found))
    metrics, rows = score(asked, predictions)
    order = list(range(len(asked)))
    random.shuffle(order)
    shuffled, mixed = score([asked[i] for i in order], [predictions[i] for i in order])
    assert {each.id: each for each in rows} == {each.id: each for each in mixed}
    assert metrics.keys() == shuffled.keys()
    for key, metric in metrics.items():
        lowest = -1.0 if key[1] == "accuracy_gain" else 0.0
        for name in ("value", "low", "high"):
            value, other = getattr(metric, name), getattr(shuffled[key], name)
            assert (value is None) == (other is None)
            assert value is None or (lowest - 1e-12 <= value <= 1 + 1e-12 and math.isclose(value, other, abs_tol=1e-12))
