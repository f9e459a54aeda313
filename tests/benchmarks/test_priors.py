"""The controls without images; their published texts are checked by the reference cases."""

import json

import pytest

from benchmarks.errors import DataError
from benchmarks.priors import control_text, fit


def row(task, prompt="Any?", label="left knee", answer_label=None, targets=(), view_scope="BOTH"):
    return {
        "task": task,
        "prompt": prompt,
        "label": label,
        "answer_label": answer_label,
        "targets": [{"view": view, "bbox": list(bbox)} for view, bbox in targets],
        "view_scope": view_scope,
    }


def boxed(label, bbox):
    return row("grounding", label=label, targets=[("ANT", bbox), ("POST", bbox)])


TRAIN = [
    boxed("left knee", (1, 1, 11, 11)),
    boxed("left knee", (2, 1, 12, 11)),
    boxed("vertebra", (50, 50, 60, 60)),
    boxed("head", (5, 5, 6, 6)),
    row("vqa", "is the spot hot", answer_label="yes", targets=[("ANT", (90, 90, 99, 99))], label="pelvis"),
    row("vqa", "is it cold", answer_label="no"),
    row("vqa", "is it cold", answer_label="no"),
]


def answer(question, *, control="prompt_only", corrected=False, train=TRAIN):
    return json.loads(control_text(fit(train), question, control=control, corrected=corrected))


def test_majority_ignores_the_question():
    assert answer(row("vqa", "is the spot hot"), control="majority")["class"] == "no"
    assert answer(row("grounding", "Box the head."), control="majority")["region"] == "left_knee"


def test_prompt_only_reads_the_question():
    assert answer(row("vqa", "is the spot hot"))["class"] == "yes"
    assert answer(row("vqa", "is it cold"))["class"] == "no"


def test_ties_go_to_the_first_in_the_alphabet():
    train = [row("vqa", "a", answer_label="yes"), row("vqa", "b", answer_label="no"), *TRAIN[:1], *TRAIN[2:4]]
    assert answer(row("vqa", "c"), train=train)["class"] == "no"
    assert answer(row("grounding"), control="majority", train=train)["region"] == "head"


def test_boxes_are_medians_with_halves_to_even_and_never_empty():
    boxes = answer(row("grounding"), control="majority")["boxes"]
    assert [box["bbox"] for box in boxes] == [[2, 1, 12, 11]] * 2  # medians 1.5 and 11.5
    train = [boxed("head", (1, 1, 2, 2)), boxed("head", (2, 2, 3, 3))]  # medians 1.5, 1.5, 2.5, 2.5
    assert answer(row("grounding"), control="majority", train=train)["boxes"][0]["bbox"] == [2, 2, 3, 3]


def test_a_region_without_a_box_in_a_view_takes_all_boxes_of_the_view():
    train = [*TRAIN[:2], row("grounding", label="head", targets=[("ANT", (5, 5, 6, 6))])]
    boxes = answer(row("grounding", "Box the head."), train=train)["boxes"]
    assert [box["bbox"] for box in boxes] == [[5, 5, 6, 6], [2, 1, 12, 11]]


@pytest.mark.parametrize(
    ("prompt", "published", "corrected"),
    [
        ("Box the left knee joint.", None, "left_knee"),
        ("Box the left-knee.", "left_knee", "left_knee"),
        ("Box the Left_Knee.", "left_knee", "left_knee"),
        ("Box the vertebral column.", None, "vertebra"),
        ("Box the head.", "head", "head"),
        ("Box the forehead.", None, None),
        ("Box the head of the left knee joint.", "head", "left_knee"),
    ],
)
def test_regions_in_prompts(prompt, published, corrected):
    priors = fit(TRAIN)
    assert priors.named_region(prompt, any_spelling=False) == published
    assert priors.named_region(prompt, any_spelling=True) == corrected


@pytest.mark.parametrize(("scope", "views"), [("ANT", ["ANT"]), ("POST", ["PST"]), ("BOTH", ["ANT", "PST"])])
def test_corrected_controls_box_the_asked_views_only(scope, views):
    question = row("grounding", "Box the head.", view_scope=scope)
    assert [box["view"] for box in answer(question, corrected=True)["boxes"]] == views
    assert [box["view"] for box in answer(question)["boxes"]] == ["ANT", "PST"]


def test_what_train_does_not_have_is_refused():
    with pytest.raises(DataError, match="no row of the task grounded_vqa"):
        answer(row("grounded_vqa"))
    with pytest.raises(DataError, match="no row with boxes"):
        answer(row("grounding"), train=TRAIN[4:])
    with pytest.raises(DataError, match="no box in the view POST"):
        answer(row("grounding"), train=[row("grounding", targets=[("ANT", (1, 1, 2, 2))])])
    with pytest.raises(DataError, match="unknown control 'coin'"):
        answer(row("vqa"), control="coin")


def test_the_target_of_a_row_is_not_looked_at():
    question = row("grounded_vqa", "Box the head.", answer_label="abnormal", targets=[("ANT", (9, 9, 10, 10))])
    blind = {key: question[key] for key in ("task", "prompt", "view_scope")}
    train = [*TRAIN, row("grounded_vqa", "it", answer_label="normal", targets=[("ANT", (1, 1, 2, 2))])]
    for control in ("majority", "prompt_only"):
        for corrected in (False, True):
            assert answer(question, control=control, corrected=corrected, train=train) == answer(
                blind, control=control, corrected=corrected, train=train
            )
