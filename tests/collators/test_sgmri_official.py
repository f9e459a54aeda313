"""The official SGMRI-VQA form: what an inference file holds, and which text goes out."""

import json
import string

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.errors import DataError
from benchmarks.predictions import Manifest, Prediction, Tokens
from collators.codecs.registry import get_codec
from collators.codecs.sgmri_official import (
    FAILED,
    OFFICIAL_CODECS,
    inference_path,
    model_key,
    official_inference,
    official_result,
)
from tests.sgmri_cases import all_tasks, box, predict, record, right

RECORDS = [*all_tasks("brain"), *all_tasks("knee")]
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


def manifest(**fields):
    values = {"name": "my run", "dataset": "d", "dataset_hash": "h", "split": "test", "records": 1, "engine": "hf"}
    return Manifest(**{**values, "codec": "sgmri_text", **fields})


def test_a_result_has_the_fields_of_the_published_code_in_their_order():
    asked = RECORDS[4]
    row = msgspec.structs.replace(right(asked), tokens=Tokens(prompt=625, new=12))
    assert official_result(asked, row, "sgmri_text") == {
        "sample_id": asked.id,
        "model_output": "On the left at <bbx>[40,50,30,20]</bbx>. The signal is bright.",
        "prompt_tokens": 625,
        "completion_tokens": 12,
        "cost": 0.0,
        "duration": 0.0,
        "finish": "stop",
        "dataset": "brain",
        "level": "image_level",
        "task": "localization",
        "qa_type": "open_ended",
        "question": "localization: what is seen?",
        "gt_answer": "On the left at <bbx>[40,50,30,20]</bbx>.",
        "gt_reasoning": "The signal is bright.",
        "labels": ["Mass"],
        "bboxes": [{"x": 40, "y": 50, "width": 30, "height": 20, "label": "Mass"}],
        "volume_id": "file_brain_1",
    }


def test_ids_have_the_marks_that_decide_what_is_scored():
    for asked in RECORDS:
        found = official_result(asked, right(asked), "sgmri_text")
        assert "_qa_" in found["sample_id"]
        assert ("_video_" in found["sample_id"]) == (found["level"] == "volume_level")


numbers = st.integers(0, 300) | st.floats(0, 300, allow_nan=False)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), numbers, numbers, st.integers(1, 50), st.integers(1, 50)), max_size=4))
def test_truth_boxes_keep_their_places_and_their_official_frames(drawn):
    boxes = tuple(
        msgspec.structs.replace(box(image), xyxy=(float(x), float(y), float(x + w), float(y + h)))
        for image, x, y, w, h in drawn
    )
    volume = record("knee", "volume", "localization", "There.", boxes=boxes)
    written = official_result(volume, right(volume), "sgmri_text")["bboxes"]
    for name, side, place in (("x", "width", 2), ("y", "height", 3)):
        assert [each[name] + each[side] for each in written] == pytest.approx([each.xyxy[place] for each in boxes])
    assert [(each["x"], each["y"]) for each in written] == [each.xyxy[:2] for each in boxes]
    assert [each["frame"] for each in written] == [volume.images[each.image].frame for each in boxes]
    slice_ = record("knee", "image", "localization", "There.", boxes=tuple(box(0) for _ in boxes))
    assert not any("frame" in each for each in official_result(slice_, right(slice_), "sgmri_text")["bboxes"])


def test_a_slice_without_a_box_is_normal_and_a_volume_has_no_such_word():
    asked = record("brain", "image", "detection", "No")
    assert official_result(asked, right(asked), "sgmri_text")["labels"] == ["Normal"]
    asked = record("brain", "volume", "detection", "No")
    assert official_result(asked, right(asked), "sgmri_text")["labels"] == []


@settings(deadline=None)
@given(texts, st.sampled_from(OFFICIAL_CODECS), st.sampled_from(RECORDS))
def test_a_text_in_an_official_form_goes_out_untouched(text, codec, asked):
    assert official_result(asked, predict(asked, text, codec), codec)["model_output"] == text


@pytest.mark.parametrize("asked", RECORDS, ids=lambda asked: asked.id)
def test_any_other_codecs_answers_are_written_as_text_without_their_reasoning(asked):
    row = right(asked, "sgmri_answer_first")
    assert row.text.startswith('{"answer"')
    written = official_result(asked, row, "sgmri_answer_first")["model_output"]
    answer = msgspec.structs.replace(row.answer, reasoning=None)
    assert written == get_codec("sgmri_text").encode(answer, asked.ask())
    assert "{" not in written


@settings(deadline=None)
@given(texts, st.sampled_from(RECORDS))
def test_what_cannot_be_decoded_or_written_goes_out_as_it_is(text, asked):
    row = predict(asked, text, "sgmri_answer_first")
    if row.invalid is not None:
        assert official_result(asked, row, "sgmri_answer_first")["model_output"] == text
    blank = Prediction(id=asked.id, text=text, answer=msgspec.structs.replace(asked.target, text=None))
    assert official_result(asked, blank, "sgmri_answer_first")["model_output"] == text


@settings(deadline=None)
@given(texts)
def test_a_failed_row_is_stored_as_the_published_code_stores_it(words):
    asked = RECORDS[0]
    found = official_result(asked, Prediction(id=asked.id, error=words), "sgmri_json")
    assert (found["model_output"], found["error"]) == (f"[ERROR: {words}]", words)
    assert FAILED.fullmatch(found["model_output"])[1] == words
    assert not {"prompt_tokens", "completion_tokens", "cost"} & set(found)


def test_a_file_holds_one_level_in_the_order_of_the_records_and_depends_on_nothing_else():
    rows = [right(asked) for asked in RECORDS]
    for level in ("image", "volume"):
        found = official_inference(RECORDS, rows, manifest(encoder_fingerprint="f" * 64), level)
        expected = [asked.id for asked in RECORDS if asked.task.startswith(level)]
        assert [each["sample_id"] for each in found["results"]] == expected
        assert found["total_samples"] == len(expected)
        assert (found["model_key"], found["model_name"], found["model_id"]) == ("my_run", "my run", "my run")
        assert (found["prompt_mode"], found["encoder_fingerprint"]) == ("custom", "f" * 64)
        assert found == official_inference(RECORDS, rows, manifest(encoder_fingerprint="f" * 64), level)
        assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_files_lie_where_the_published_evaluator_looks_for_them():
    assert inference_path(manifest(), "image") == "image_level/inference/my_run_image_inference.json"
    assert inference_path(manifest(), "volume") == "video_level/inference/my_run_video_inference.json"


@settings(deadline=None)
@given(st.text(min_size=1, max_size=20))
def test_a_key_is_one_visible_file_name(name):
    key = model_key(manifest(name=name))
    assert key
    assert not key.startswith(".")
    assert not set(key) & (set(string.punctuation + string.whitespace) - set("._-"))


def _no_organ(asked):
    return msgspec.structs.replace(asked, strata={})


def _unknown_task(asked):
    return msgspec.structs.replace(asked, task="volume_diagnosis")


def _no_frame(asked):
    return msgspec.structs.replace(asked, images=tuple(msgspec.structs.replace(i, frame=None) for i in asked.images))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_no_organ, "organ None is not one of brain, knee"),
        (_unknown_task, "'volume_diagnosis' is not a task of sgmri"),
        (_no_frame, "has no frame number, and a box lies on it"),
    ],
)
def test_a_record_without_what_the_form_needs_is_refused(change, message):
    asked = record("brain", "volume", "localization", "There.", boxes=(box(1),))
    with pytest.raises(DataError, match=message) as raised:
        official_result(change(asked), right(asked), "sgmri_text")
    assert asked.id in raised.value.where
    assert raised.value.fix
