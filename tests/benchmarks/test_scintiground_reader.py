import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.errors import DataError
from benchmarks.readers.scintiground import open_release
from benchmarks.schema import Box, Record, decode_record, encode_record
from benchmarks.validate import check_records, source_of
from tests.benchmarks.cases import (
    evidence_rows,
    export_rows,
    multitask_rows,
    split_items,
    write_exports,
    write_jsonl,
    write_release,
)

ONLY_IN_RELEASE = ("interaction_type", "question_form", "label_conflict", "lesion_class")


def comparable(record: Record) -> Record:
    strata = {key: value for key, value in record.strata.items() if key not in ONLY_IN_RELEASE}
    source = msgspec.structs.replace(record.source, file="", row=1)
    return msgspec.structs.replace(record, strata=strata, source=source)


def faults_of(folder: Path) -> list[str]:
    records, faults = split_items(open_release(folder))
    faults += check_records((source_of(record), record) for record in records).faults
    return [str(fault) for fault in faults]


def test_release_rows_become_records_in_row_order(tmp_path):
    records, faults = split_items(open_release(write_release(tmp_path)))
    assert not faults
    assert [record.id for record in records] == [row["task_id"] for row in multitask_rows()]
    grounding, vqa, grounded, lesion, whole = records
    assert [record.group for record in records] == ["13", "13", "11", "11", "12"]
    assert grounding.target.boxes == (
        Box(image=0, xyxy=(30, 70, 50, 90), label="left knee"),
        Box(image=1, xyxy=(14, 70, 34, 90), label="left knee"),
    )
    assert grounding.target.text is None
    assert grounding.target.label is None
    assert (vqa.target.text, vqa.target.label, vqa.target.boxes) == ("None — clear.", "no", ())
    assert grounded.target.boxes == (Box(image=1, xyxy=(14, 70, 34, 90), label="left knee"),)
    assert lesion.target.boxes == (Box(image=0, xyxy=(35, 75, 40, 80), label="left knee"),)
    assert lesion.strata == {
        "region": "left knee",
        "view_scope": "ANT",
        "region_level": "metastasis",
        "interaction_type": "classification",
        "question_form": "is",
        "label_conflict": "true",
        "lesion_class": "bone_metastasis",
    }
    assert [image.view for image in whole.images] == ["POST"]
    assert (whole.source.file, whole.source.row) == ("multitask.jsonl", 5)


def test_both_forms_give_equal_records(tmp_path):
    release, _ = split_items(open_release(write_release(tmp_path / "release")))
    export, faults = split_items(open_release(write_exports(tmp_path / "export")))
    assert not faults
    assert {r.id: comparable(r) for r in export} == {r.id: comparable(r) for r in release}
    in_files = [r["task_id"] for split in ("train", "val", "test") for r in export_rows() if r["split"] == split]
    assert [record.id for record in export] == in_files


def test_images_come_in_view_order_whatever_the_row_says(tmp_path):
    def change(rows, evidence):
        rows[0]["images"].reverse()
        rows[0]["targets"].reverse()

    records, _ = split_items(open_release(write_release(tmp_path, change)))
    assert [image.view for image in records[0].images] == ["ANT", "POST"]
    assert {records[0].images[box.image].view: box.xyxy[0] for box in records[0].target.boxes} == {
        "ANT": 30,
        "POST": 14,
    }


@pytest.mark.parametrize(
    ("layout", "given", "expected"),
    [
        ("bs80k/wholeBodyANT", True, "bs80k/wholeBodyANT/13.png"),
        ("wholeBodyANT", True, "wholeBodyANT/13.png"),
        ("bs80k-imaging-raw/wholeBodyANT", True, "bs80k-imaging-raw/wholeBodyANT/13.png"),
        ("elsewhere", True, "wholeBodyANT/13.png"),
        ("", False, "bs80k/wholeBodyANT/13.png"),
    ],
)
def test_image_paths_are_rebased_on_the_image_root(tmp_path, layout, given, expected):
    release, root = tmp_path / "release", tmp_path / "root"
    release.mkdir()
    (root / layout).mkdir(parents=True)
    row = multitask_rows()[0] | {"evidence_id": None, "patient_id": 13}
    for image in row["images"]:
        image["image"] = f"/somewhere/else/wholeBody{image['view']}/13.png"
    write_jsonl(release / "multitask.jsonl", [row])
    write_jsonl(release / "paired_evidence.jsonl", [])
    records, faults = split_items(open_release(release, root if given else None))
    assert not faults
    assert records[0].images[0].path == expected
    assert records[0].group == "13"


def put(row, key, value):
    return lambda rows, evidence: rows[row].__setitem__(key, value)


def drop(row, key):
    return lambda rows, evidence: rows[row].pop(key)


RELEASE_FAULTS = {
    "missing key": (drop(0, "label"), ["multitask.jsonl row 1", "missing required field `label`"]),
    "unknown task": (put(0, "task_type", "chat"), ["multitask.jsonl row 1", "'chat'", "$.task_type"]),
    "unknown split": (put(1, "split", "dev"), ["multitask.jsonl row 2", "'dev'", "$.split"]),
    "no prompt": (
        lambda rows, evidence: (rows[1].pop("prompt"), rows[1].pop("question")),
        ["row 2", "field prompt", "prompt is empty"],
    ),
    "prompts differ": (put(1, "question", "Cold?"), ["row 2", "field prompt", "'Cold?', 'Hot?'"]),
    "blank id": (put(1, "task_id", " "), ["row 2", "field task_id", "task_id is empty"]),
    "illegal label for vqa": (
        put(1, "answer_label", "normal"),
        ["row 2", "field target.label", "'normal' is not legal for vqa: yes or no"],
    ),
    "illegal label for grounded_vqa": (put(2, "answer_label", "yes"), ["field target.label", "abnormal or normal"]),
    "label on grounding": (put(0, "answer_label", "yes"), ["field target.label", "has no class"]),
    "answer missing": (drop(1, "answer"), ["row 2", "field target.text", "needs an answer sentence"]),
    "no boxes": (put(0, "targets", []), ["row 1", "field target.boxes", "needs a box"]),
    "box of a view that is not asked": (put(0, "view_scope", "ANT"), ["field target.boxes", "view_scope is ANT"]),
    "box of a view not shown": (
        put(4, "targets", [{"view": "ANT", "bbox": [1, 2, 3, 4]}]),
        ["row 5", "field targets[0]", "view ANT, which the row does not show"],
    ),
    "scope not shown": (put(4, "view_scope", "BOTH"), ["row 5", "field strata.view_scope", "does not show it"]),
    "box outside": (
        put(0, "targets", [{"view": "ANT", "bbox": [30, 70, 65, 90]}, {"view": "POST", "bbox": [1, 2, 3, 4]}]),
        ["row 1", "target.boxes[0]", "lies outside the 64x128 image"],
    ),
    "box inverted": (
        put(0, "targets", [{"view": "ANT", "bbox": [50, 70, 30, 90]}, {"view": "POST", "bbox": [1, 2, 3, 4]}]),
        ["row 1", "field targets[0].bbox", "empty or inverted"],
    ),
    "box of three numbers": (
        put(0, "targets", [{"view": "ANT", "bbox": [50, 70, 30]}]),
        ["row 1", "$.targets[0].bbox"],
    ),
    "two boxes for one view": (
        put(0, "targets", [{"view": "ANT", "bbox": [1, 2, 3, 4]}, {"view": "ANT", "bbox": [1, 2, 3, 4]}]),
        ["field target.boxes", "several boxes for one view"],
    ),
    "view unknown": (
        put(0, "images", [{"view": "PST", "image": "a.png", "image_size": [1, 1]}]),
        ["row 1", "'PST'", "$.images[0].view"],
    ),
    "no image": (put(1, "images", []), ["row 2", "field images", "the record has no image"]),
    "folder of the other view": (
        put(1, "images", [{"view": "ANT", "image": "wholeBodyPOST/13.png", "image_size": [64, 128]}]),
        ["row 2", "field images", "given as view ANT"],
    ),
    "path leaves the root": (
        put(1, "images", [{"view": "ANT", "image": "../13.png", "image_size": [64, 128]}]),
        ["row 2", "field images", "stay under the image root"],
    ),
    "size not positive": (
        put(1, "images", [{"view": "ANT", "image": "13.png", "image_size": [0, 128]}]),
        ["row 2", "field images", "not positive"],
    ),
    "evidence missing": (
        lambda rows, evidence: evidence.pop(2),
        ["row 1", "field evidence_id", "not in paired_evidence.jsonl"],
    ),
    "neither evidence nor patient": (drop(4, "patient_id"), ["row 5", "neither an evidence_id nor a patient_id"]),
    "patients disagree": (put(0, "patient_id", "99"), ["row 1", "field patient_id", "'99'", "'13'"]),
    "splits disagree": (
        lambda rows, evidence: evidence[2].__setitem__("split", "val"),
        ["row 1", "field split", "in test", "in val"],
    ),
    "evidence twice": (
        lambda rows, evidence: evidence.append(dict(evidence[0])),
        ["paired_evidence.jsonl row 4", "occurs twice"],
    ),
    "level unknown": (put(0, "region_level", "toe"), ["row 1", "'toe'", "$.region_level"]),
    "id twice": (
        lambda rows, evidence: rows.append(dict(rows[0])),
        ["multitask.jsonl row 6", "occurs twice", "first in multitask.jsonl row 1"],
    ),
}


@pytest.mark.parametrize(("change", "words"), RELEASE_FAULTS.values(), ids=RELEASE_FAULTS)
def test_fault_in_the_release_is_named(tmp_path, change, words):
    faults = faults_of(write_release(tmp_path, change))
    assert any(all(word in fault for word in words) for fault in faults), faults


EXPORT_FAULTS = {
    "a thirteenth key": (lambda rows: rows[0].__setitem__("question", "x"), ["unknown field `question`"]),
    "a key missing": (lambda rows: rows[0].pop("targets"), ["missing required field `targets`"]),
    "patient empty": (lambda rows: rows[0].__setitem__("patient_id", ""), ["field patient_id", "is empty"]),
    "target not JSON": (lambda rows: rows[0].__setitem__("target", "yes"), ["field target", "not a target text"]),
    "target of another class": (
        lambda rows: rows[0].__setitem__("target", rows[0]["target"].replace('"no"', '"yes"')),
        ["field target", "class 'yes', the row says 'no'"],
    ),
    "target of another task": (
        lambda rows: rows[0].__setitem__("target", rows[0]["target"].replace('"vqa"', '"grounding"')),
        ["field target", "task 'grounding', the row says 'vqa'"],
    ),
    "target with another box": (
        lambda rows: rows[-1].__setitem__("target", rows[-1]["target"].replace("[14,", "[15,")),
        ["field target", "boxes", "15.0", "14.0"],
    ),
    "target of another region": (
        lambda rows: rows[-1].__setitem__("target", rows[-1]["target"].replace("left_knee", "left knee")),
        ["field target", "region 'left knee', the row says 'left_knee'"],
    ),
}


@pytest.mark.parametrize(("change", "words"), EXPORT_FAULTS.values(), ids=EXPORT_FAULTS)
def test_fault_in_the_export_is_named(tmp_path, change, words):
    faults = faults_of(write_exports(tmp_path, change))
    assert any(all(word in fault for word in words) for fault in faults), faults


def test_split_in_the_wrong_export_file_is_a_fault(tmp_path):
    write_jsonl(tmp_path / "multitask_val.jsonl", [r for r in export_rows() if r["split"] == "test"])
    assert all("does not belong into multitask_val.jsonl" in fault for fault in faults_of(tmp_path))


def test_all_faults_are_listed_and_good_rows_survive(tmp_path):
    def change(rows, evidence):
        rows[0]["label"] = ""
        rows[0]["targets"][0]["bbox"] = [9, 9, 9, 9]
        rows[1]["prompt"] = rows[1]["question"] = ""

    write_release(tmp_path, change, sums=False)
    with (tmp_path / "multitask.jsonl").open("a") as stream:
        stream.write('{"task_id": \n[1]\n\n')
    records, faults = split_items(open_release(tmp_path))
    assert len(records) == 3
    assert [fault.where.split(", field ")[-1] for fault in faults] == [
        "label",
        "targets[0].bbox",
        "prompt",
        "multitask.jsonl row 6",
        "multitask.jsonl row 7",
        "multitask.jsonl row 8",
    ]


def test_checksums_are_checked_for_the_files_that_are_read(tmp_path):
    write_release(tmp_path)
    assert set(open_release(tmp_path).sources) == {"multitask.jsonl", "paired_evidence.jsonl"}
    with (tmp_path / "paired_evidence.jsonl").open("a") as stream:
        stream.write(json.dumps({"evidence_id": "new", "patient_id": "1", "split": "train"}) + "\n")
    with pytest.raises(DataError, match=r"SHA-256 of paired_evidence\.jsonl is"):
        open_release(tmp_path)


def test_broken_checksum_list_is_refused(tmp_path):
    write_release(tmp_path)
    (tmp_path / "SHA256SUMS.txt").write_text("abc multitask.jsonl\n")
    with pytest.raises(DataError, match=r"not a checksum line") as caught:
        open_release(tmp_path)
    assert "SHA256SUMS.txt row 1" in caught.value.where


@pytest.mark.parametrize(
    ("name", "message"),
    [("paired_evidence.jsonl", "paired_evidence.jsonl is missing"), ("multitask.jsonl", "neither multitask.jsonl nor")],
)
def test_missing_files_are_named(tmp_path, name, message):
    write_release(tmp_path, sums=False)
    (tmp_path / name).unlink()
    with pytest.raises(DataError, match=message):
        open_release(tmp_path)


def test_release_that_is_no_folder(tmp_path):
    with pytest.raises(DataError, match="is not a folder"):
        open_release(tmp_path / "nothing")


def test_release_without_images_can_still_be_read(tmp_path):
    write_release(tmp_path / "release")
    for path in (tmp_path / "release" / "bs80k").rglob("*.png"):
        path.unlink()
    records, faults = split_items(open_release(tmp_path / "release"))
    assert len(records) == 5
    assert not faults


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=6),
    lambda children: st.lists(children, max_size=5) | st.dictionaries(st.text(max_size=6), children, max_size=3),
    max_leaves=8,
)
FORMS = {
    "multitask.jsonl": multitask_rows,
    "paired_evidence.jsonl": evidence_rows,
    "multitask_test.jsonl": lambda: [row for row in export_rows() if row["split"] == "test"],
}


@settings(max_examples=150, deadline=None)
@given(
    data=st.data(),
    name=st.sampled_from(sorted(FORMS)),
    junk=st.sampled_from(["", "{", "[]", "\0", '{"task_id": "\\ud800"}', "[" * 50_000]),
)
def test_no_row_makes_the_reader_fail_otherwise(tmp_path_factory, data, name, junk):
    folder = tmp_path_factory.mktemp("fuzz")
    if name != "multitask_test.jsonl":
        write_release(folder, sums=False)
    rows = FORMS[name]()
    row = data.draw(st.sampled_from(rows))
    row.update(data.draw(st.dictionaries(st.sampled_from(sorted(row)), json_values, max_size=3)))
    if isinstance(row.get("target"), str) and data.draw(st.booleans()):
        row["target"] = json.dumps(data.draw(json_values))
    write_jsonl(folder / name, rows)
    with (folder / name).open("a") as stream:
        stream.write(junk + "\n")
    records, faults = split_items(open_release(folder))
    assert faults
    check_records((source_of(record), record) for record in records)
    for record in records:
        assert decode_record(encode_record(record), where="") == record
