"""Whole official files: what is scored, means, breakdowns and the paper's columns."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eval.sgmri.marks import TextMarks
from eval.sgmri.published_tables import AVERAGE, COLUMNS, FINE_TUNED, PUBLISHED_TABLES
from eval.sgmri.result import score_result
from eval.sgmri.scoring import (
    breakdown_rows,
    evaluate_inference,
    leaderboard_row,
    leaderboard_text,
    paper_columns,
    paper_row,
)


def result(**keys):
    return {
        "sample_id": "knee_image_qa_1",
        "dataset": "knee",
        "level": "image_level",
        "task": "detection",
        "qa_type": "closed_ended",
        "question": "Is there a tear?",
        "gt_answer": "Yes",
        "gt_reasoning": "",
        "labels": [],
        "bboxes": [],
        "model_output": "Yes",
        **keys,
    }


BOX = {"x": 10, "y": 10, "width": 20, "height": 20, "label": "tear"}
LOCALIZATION = result(
    task="localization",
    question="Where is the tear?",
    qa_type="open_ended",
    gt_answer="medial <bbx>[10,10,20,20]</bbx>",
    bboxes=[BOX],
    model_output="Medial <bbx>[10,10,20,20]</bbx>",
)


def evaluate(*results, mode="image", marks=None):
    header = {"model_key": "m", "model_name": "M", "model_id": "org/m"}
    return evaluate_inference({**header, "results": list(results)}, mode, marks or {})


@pytest.mark.parametrize(
    ("row", "scores"),
    [
        (result(), {"a_score"}),
        (result(sample_id="knee_image_1"), set()),
        (result(qa_type="open_ended"), set()),
        (result(task="captioning", qa_type="open_ended"), {"ar_score"}),
        (result(task="captioning"), {"a_score", "ar_score"}),
        (result(task="counting", qa_type="unknown"), {"a_score"}),
        (LOCALIZATION, {"ar_score", "v_score", "map"}),
        ({**LOCALIZATION, "qa_type": "closed_ended"}, {"ar_score", "v_score", "map"}),
        ({**LOCALIZATION, "sample_id": "knee_image_ground_1"}, {"v_score", "map"}),
        ({**LOCALIZATION, "model_output": "medial"}, {"ar_score", "v_score"}),
        ({**LOCALIZATION, "bboxes": []}, {"ar_score", "v_score", "map"}),
        ({**LOCALIZATION, "bboxes": [], "gt_answer": "medial [10,10,20,20]"}, {"ar_score"}),
        ({**LOCALIZATION, "bboxes": [{"x": 1}]}, {"ar_score"}),
        ({"sample_id": "_qa_"}, set()),
    ],
)
def test_which_scores_a_result_gets(row, scores):
    assert score_result(row).scores.keys() == scores


def test_the_second_wording_of_localization_is_skipped_and_not_counted():
    skipped = {**LOCALIZATION, "question": "Locate the bounding box of the tear."}
    assert score_result(skipped) is None
    assert score_result({**skipped, "task": "detection"}) is not None
    assert evaluate(skipped, result())["total_samples"] == 1


def test_the_final_answer_cut_is_for_video_ids_and_the_a_score_alone():
    text = "No tear on frame 3. Therefore, the final answer is: Yes"
    assert score_result(result(model_output=text)).a.value == 0.0
    assert score_result(result(model_output=text, sample_id="knee_video_qa_1")).a.value == 1.0
    caption = result(task="captioning", model_output=text, sample_id="knee_video_qa_1")
    assert score_result(caption).ar == score_result({**caption, "sample_id": "knee_image_qa_1"}).ar


@pytest.mark.parametrize(
    ("output", "truth", "value"),
    [
        ("[ERROR: No images found]", "No", 1.0),
        ("<think>Yes</think>No", "No", 1.0),
    ],
)
def test_failed_calls_and_thinking(output, truth, value):
    assert score_result(result(model_output=output, gt_answer=truth)).a.value == value


@pytest.mark.parametrize(
    ("written", "frame", "value"),
    [("", 1, 1.0), ("Frame 0: ", 1, 1.0), ("", 7, 0.0), ("Frame 7: ", 7, 1.0), ("Frame 7 at ", 7, 0.0)],
)
def test_a_box_without_a_frame_lies_on_frame_one(written, frame, value):
    row = {**LOCALIZATION, "bboxes": [{**BOX, "frame": frame}], "model_output": f"{written}<bbx>[10,10,20,20]</bbx>"}
    assert score_result(row).v.value == value


def test_the_size_of_the_image_is_fixed_by_the_organ():
    row = {**LOCALIZATION, "model_output": "<|box_start|>(500,500),(1000,1000)<|box_end|>"}
    for dataset, side in {"brain": 256, "knee": 320, "hip": 1000}.items():
        half = {"x": side / 2, "y": side / 2, "width": side / 2, "height": side / 2}
        assert score_result({**row, "dataset": dataset, "bboxes": [half]}).v.value == 1.0


def test_a_box_that_appears_with_the_second_removal_of_thinking_has_no_frame():
    nested = "<bbx>[10,10,<th<think>a</think>ink>b</think>20,20]</bbx>"
    row = {**LOCALIZATION, "bboxes": [{**BOX, "frame": 7}], "model_output": nested}
    assert score_result(row).v.value == 1.0


@pytest.mark.parametrize(
    ("changes", "stop"),
    [
        ({"model_output": '{"bbox_2d": [1, 2, null, 4]}'}, TypeError),
        ({"model_output": None}, TypeError),
        ({"gt_reasoning": None}, TypeError),
        ({"bboxes": [{**BOX, "x": None}]}, TypeError),
        ({"bboxes": [{**BOX, "frame": "six"}]}, ValueError),
        ({"model_output": "<bbx>[1,2,nan,4]</bbx>"}, ValueError),
        ({"task": "captioning", "gt_answer": None}, AttributeError),
    ],
)
def test_one_result_that_stops_the_scorer_costs_the_whole_file(changes, stop):
    with pytest.raises(stop):
        evaluate(result(), {**LOCALIZATION, **changes})


def test_marks_reach_their_result_by_id():
    row = result(task="captioning", qa_type="open_ended", gt_answer="a tear", model_output="a tear")
    other = {**row, "sample_id": "knee_image_qa_2"}
    marks = {"knee_image_qa_2": TextMarks(judge_reply="5,5,5", judge_reply_on_reference="10,10,10")}
    first, second = (each["scores"]["ar_score"] for each in evaluate(row, other, marks=marks)["results"])
    assert second == pytest.approx(0.2 + 0.6 * first)


def test_detection_numbers_leave_out_samples_without_a_prediction():
    missed = {**LOCALIZATION, "model_output": "medial"}
    aggregates = evaluate(LOCALIZATION, missed)["aggregates"]
    assert aggregates["v_score"] == {"mean": 0.5, "count": 2}
    assert aggregates["map"] == {"mean": 1.0, "count": 1}
    assert aggregates["detection"]["F1@0.5"] == 1.0
    assert "detection" not in evaluate(missed)["aggregates"]


def test_columns_pool_the_samples_of_both_organs():
    brain = result(dataset="brain", gt_answer="No")
    evaluation = evaluate(result(), result(), brain)
    columns = paper_columns(evaluation, "image")
    assert columns["detection/a_score"] == {"percent": 66.67, "mean": pytest.approx(2 / 3), "count": 3}
    assert columns["captioning/ar_score"] == {"percent": None, "mean": None, "count": 0}
    assert paper_row(evaluation, "image")[AVERAGE] is None


def test_the_average_counts_localization_twice():
    caption = result(task="captioning", qa_type="open_ended", model_output="", sample_id="_qa_")
    rows = [result(task=task) for task in ("detection", "classification", "diagnosis")]
    row = paper_row(evaluate(*rows, caption, {**LOCALIZATION, "model_output": "<bbx>[10,10,20,20]</bbx>"}), "image")
    assert list(row) == [*COLUMNS["image"], AVERAGE]
    assert list(row.values()) == [100.0, 100.0, 100.0, 100.0, 0.0, 0.0, 66.67]


def test_a_file_without_results_has_an_empty_evaluation():
    evaluation = evaluate_inference({}, "video", {})
    assert (evaluation["total_samples"], evaluation["aggregates"], evaluation["results"]) == (0, {}, [])
    assert leaderboard_row(evaluation)["a_score_mean"] is None
    assert leaderboard_text([leaderboard_row(evaluation)]).count("N/A") == 3
    assert leaderboard_text([]) == "No results to display.\n"


def test_the_leaderboard_is_sorted_by_level_and_then_by_a_score():
    best, worst = evaluate(result()), evaluate(result(gt_answer="No"))
    keyed = [
        {**leaderboard_row(evaluation), "model_key": key}
        for key, evaluation in {"low": worst, "high": best, "none": evaluate(), "video": evaluate(mode="video")}.items()
    ]
    lines = leaderboard_text(keyed).splitlines()[3:]
    assert [line.split()[0] for line in lines if line] == ["high", "low", "none", "video"]


def test_groups_without_a_score_have_no_row():
    unscored = result(dataset="brain", sample_id="brain_image_1")
    rows = breakdown_rows(evaluate(unscored, result()))
    assert [row["group"] for row in rows["dataset"]] == ["knee"]
    assert rows["task"] == [
        {
            "model_key": "m",
            "eval_level": "image",
            "group": "detection",
            "a_score_mean": 1.0,
            "a_score_count": 1,
            "ar_score_mean": None,
            "ar_score_count": 0,
            "v_score_mean": None,
            "v_score_count": 0,
        }
    ]


answers = st.lists(
    st.tuples(st.sampled_from(["Yes", "No", "?"]), st.sampled_from(["brain", "knee"])), min_size=1, max_size=8
)


@given(answers, st.randoms(use_true_random=False))
@settings(deadline=None)
def test_the_order_of_results_does_not_matter_to_the_means(said, random):
    rows = [result(model_output=text, dataset=dataset, sample_id=f"_qa_{i}") for i, (text, dataset) in enumerate(said)]
    before = evaluate(*rows)
    random.shuffle(rows)
    after = evaluate(*rows)
    assert after["aggregates"] == before["aggregates"]
    assert after["breakdowns"] == before["breakdowns"]
    counts = [group["a_score"]["count"] for group in before["breakdowns"]["dataset"].values()]
    assert sum(counts) == before["total_samples"] == len(said)


@pytest.mark.parametrize(
    ("mode", "system"), [(mode, system) for mode, table in PUBLISHED_TABLES.items() for system in table]
)
def test_every_published_average_is_the_mean_of_the_six_columns(mode, system):
    row = PUBLISHED_TABLES[mode][system]
    assert sum(row[column] for column in COLUMNS[mode]) / 6 == pytest.approx(row[AVERAGE], abs=0.01)


def test_the_published_tables_are_whole():
    assert {mode: len(table) for mode, table in PUBLISHED_TABLES.items()} == {"image": 11, "video": 9}
    for mode, table in PUBLISHED_TABLES.items():
        assert FINE_TUNED in table
        assert all(list(row) == [*COLUMNS[mode], AVERAGE] for row in table.values())
        for column in COLUMNS[mode]:
            assert max(table, key=lambda system: table[system][column]) == FINE_TUNED
