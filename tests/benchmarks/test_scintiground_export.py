"""A release row becomes the twelve-key row, or a message that names row and field."""

import json

import pytest

from benchmarks.errors import DataError
from benchmarks.readers.scintiground_export import export_row

KEYS = {
    "task_id", "task", "split", "patient_id", "images", "prompt", "target", "answer_label", "label", "targets",
    "region_level", "view_scope",
}  # fmt: skip
ROW = {
    "task_id": "t1",
    "task_type": "grounded_vqa",
    "split": "test",
    "label": "left knee",
    "region_level": "bone_region",
    "view_scope": "BOTH",
    "prompt": "Box it.",
    "answer": "Clear — both.",
    "answer_label": "normal",
    "images": [{"view": "POST", "image": "p"}, {"view": "ANT", "image": "a"}],
    "targets": [],
    "evidence_targets": [{"view": "ANT", "bbox": [1, 2, 3, 4]}],
}


def test_the_row_has_twelve_keys_and_evidence_targets_win():
    row = export_row(ROW, patient_id="4901")
    assert set(row) == KEYS
    assert [image["view"] for image in row["images"]] == ["ANT", "POST"]
    assert row["targets"] == ROW["evidence_targets"]
    assert json.loads(row["target"])["boxes"] == [{"view": "ANT", "bbox": [1, 2, 3, 4]}]


def test_a_patient_number_becomes_text_and_the_rows_own_patient_wins():
    assert export_row({**ROW, "patient_id": 7}, patient_id="8")["patient_id"] == "7"


@pytest.mark.parametrize(
    ("change", "message", "field"),
    [
        ({"task_type": "caption"}, "unknown task 'caption'", "task_type"),
        ({"answer_label": "yes"}, "answer_label 'yes' is not one of abnormal, normal", "answer_label"),
        ({"answer": None}, "the row has no answer", "row 3"),
        ({"region_level": None}, "the row has no region_level", "row 3"),
        ({"prompt": None}, "no question, query or prompt", "row 3"),
        ({"images": [{"view": "LAT"}]}, "unknown view 'LAT'", "images[0].view"),
        ({"evidence_targets": [{"view": "PST", "bbox": [1, 2, 3, 4]}]}, "unknown view 'PST'", "evidence_targets[0]"),
        ({"evidence_targets": [{"view": "ANT"}]}, "a target without a box", "evidence_targets[0].bbox"),
    ],
)
def test_a_faulty_row_is_refused_with_its_place(change, message, field):
    with pytest.raises(DataError, match=message) as raised:
        export_row({**ROW, **change}, patient_id="1", where="multitask.jsonl row 3")
    assert "multitask.jsonl row 3" in raised.value.where
    assert field in raised.value.where


def test_a_row_without_a_patient_says_where_patients_come_from():
    with pytest.raises(DataError, match="no patient") as raised:
        export_row(ROW)
    assert "paired_evidence.jsonl" in raised.value.fix
