import json
from pathlib import Path

import pytest

from benchmarks.dataset import load_info, read_records, records_path
from benchmarks.errors import DataError
from benchmarks.prepare import prepare
from benchmarks.schema import SPLITS, decode_record
from benchmarks.validate import validate_dataset
from tests.benchmarks.cases import multitask_rows, picture, prepared, write_exports, write_images, write_release


def own(tmp_path, rows, name="rows.jsonl"):
    for image in ("a.png", "b.png", "c.png"):
        picture(tmp_path / image)
    path = tmp_path / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def row(image="a.png", **rest):
    return {"images": image, "question": "What?", "answer": "This.", "split": "train", **rest}


def test_prepared_dataset_holds_the_release_in_its_order(tmp_path):
    folder = prepared(tmp_path)
    ids = [record.id for split in SPLITS for record in read_records(folder, split)]
    expected = [r["task_id"] for split in SPLITS for r in multitask_rows() if r["split"] == split]
    assert ids == expected
    info = load_info(folder)
    assert info.counts == {
        "train": {"grounded_vqa": 1, "vqa": 1},
        "val": {"vqa": 1},
        "test": {"grounding": 1, "vqa": 1},
    }
    assert (info.name, info.benchmark, info.reader) == ("dataset", "scintiground", "scintiground@1")
    assert set(info.sources) == {"multitask.jsonl", "paired_evidence.jsonl"}


def test_preparing_twice_gives_the_same_content(tmp_path):
    release = write_release(tmp_path / "release")
    first = prepare("scintiground", release, tmp_path / "one").info
    second = prepare("scintiground", release, tmp_path / "two").info
    assert first.content_hash == second.content_hash


def test_export_form_can_be_prepared(tmp_path):
    prepared = prepare("scintiground", write_exports(tmp_path / "export"), tmp_path / "dataset")
    info, warnings = prepared.info, prepared.warnings
    assert sum(sum(tasks.values()) for tasks in info.counts.values()) == 5
    assert not warnings


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, ""),
        ({"task": "vqa"}, "unknown task 'vqa'; the benchmark has image_detection"),
        ({"strata": {}}, "None is not one of brain, knee"),
        ({"frame": None}, "a box lies on image 2, which has no frame number"),
    ],
)
def test_rows_of_ones_own_have_what_the_scorer_of_sgmri_needs(tmp_path, changes, said):
    asked = row(
        ["a.png", "b.png"], task="volume_localization", frame=[1, 2], strata={"organ": "knee"}, boxes=[[2, 1, 1, 4, 4]]
    )
    path = own(tmp_path, [{name: value for name, value in (asked | changes).items() if value is not None}])
    if not said:
        assert prepare("generic", path, tmp_path / "data", benchmark="sgmri").info.benchmark == "sgmri"
        return
    with pytest.raises(DataError) as raised:
        prepare("generic", path, tmp_path / "data", benchmark="sgmri")
    assert said in str(raised.value)


def test_image_root_and_no_image_check(tmp_path):
    release = write_release(tmp_path / "release")
    for path in (release / "bs80k").rglob("*.png"):
        path.unlink()
    with pytest.raises(DataError, match="does not exist") as caught:
        prepare("scintiground", release, tmp_path / "dataset")
    assert "5 faults" in str(caught.value)
    prepare("scintiground", release, tmp_path / "dataset", image_check=False)
    write_images(tmp_path / "images")
    prepare("scintiground", release, tmp_path / "other", image_root=tmp_path / "images")
    assert load_info(tmp_path / "other").image_root == str(tmp_path / "images")


def refused(tmp_path, rows):
    with pytest.raises(DataError) as caught:
        prepare("generic", own(tmp_path, rows), tmp_path / "dataset")
    assert not (tmp_path / "dataset").exists()
    return str(caught.value)


def test_group_in_two_splits_names_the_group_and_both_rows(tmp_path):
    rows = [row("a.png", group=f"p{n}", split=split) for n, split in ((1, "train"), (23, "train"), (2, "test"))]
    text = refused(tmp_path, [*rows, row("b.png", group="p23", split="test")])
    assert "group 'p23' is in several splits" in text
    assert "rows.jsonl row 2" in text
    assert "rows.jsonl row 4" in text


def test_group_that_differs_in_blanks_and_case_is_a_warning(tmp_path):
    rows = [row(group="p23"), row("b.png", group="P23 ", split="test"), row("c.png", group="P24", split="val")]
    warnings = prepare("generic", own(tmp_path, rows), tmp_path / "dataset").warnings
    [warning] = warnings
    assert "'p23', 'P23 '" in warning
    assert "rows.jsonl row 1" in warning
    assert "rows.jsonl row 2" in warning


def test_image_in_two_splits_is_a_warning(tmp_path):
    rows = [row(group="p1"), row(group="p2", split="test")]
    warnings = prepare("generic", own(tmp_path, rows), tmp_path / "dataset").warnings
    assert warnings[0].startswith("image 'a.png' is in several splits: train (rows.jsonl row 1")


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([row(id="q"), row(id="q")], ["id 'q' occurs twice", "row 2", "row 1"]),
        ([row(boxes=[[1, 0, 0, 64.5, 128]])], ["lies outside the 64x128 image", "target.boxes[0]", "row 1"]),
        ([row(boxes=[[1, -1, 0, 64, 128]])], ["lies outside the 64x128 image"]),
        ([], ["the release has no rows"]),
    ],
    ids=["duplicate id", "box too wide", "negative box", "no rows"],
)
def test_fault_is_refused_and_nothing_is_written(tmp_path, rows, words):
    text = refused(tmp_path, rows)
    assert all(word in text for word in words), text


def test_box_may_end_at_the_border(tmp_path):
    prepare("generic", own(tmp_path, [row(boxes=[[1, 0, 0, 64, 128]])]), tmp_path / "dataset")


def test_first_twenty_faults_are_shown_and_all_are_counted(tmp_path):
    text = refused(tmp_path, [row(question="")] * 30)
    assert text.count("question is empty") == 20
    assert "... and 10 more" in text
    assert "30 faults" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "generik"}, "did you mean generic"),
        ({"name": "scintiground", "benchmark": "generic"}, "cannot become benchmark 'generic'"),
        ({"benchmark": "scinti"}, "unknown benchmark 'scinti'"),
        ({"image_root": Path("nowhere")}, "image root nowhere is not a folder"),
        ({"out": "rows.jsonl"}, "exists and is not a folder"),
    ],
)
def test_wrong_arguments_are_refused(tmp_path, arguments, message):
    path = own(tmp_path, [row()])
    options = {"name": "generic", "out": "dataset"} | arguments
    out = tmp_path / options.pop("out")
    with pytest.raises(DataError) as caught:
        prepare(options.pop("name"), path, out, **options)
    assert message in str(caught.value)


def test_own_data_under_the_rules_of_scintiground(tmp_path):
    good = row(label="yes", view="ANT", boxes=[["ANT", 1, 2, 3, 4, "left knee"]])
    prepare("generic", own(tmp_path, [good]), tmp_path / "dataset", benchmark="scintiground")
    [record] = read_records(tmp_path / "dataset", "train")
    assert record.strata == {"region": "left knee", "view_scope": "ANT", "region_level": "bone_region"}
    bad = own(tmp_path, [row(label="maybe"), row(task="chat"), good])
    with pytest.raises(DataError) as caught:
        prepare("generic", bad, tmp_path / "other", benchmark="scintiground")
    text = str(caught.value)
    for word in ("'maybe' is not legal for vqa", "unknown task 'chat'", "views [None]"):
        assert word in text


def spoil(path, change):
    lines = path.read_bytes().splitlines()
    change(lines)
    path.write_bytes(b"\n".join(lines) + b"\n")


def replace(old, new):
    def change(lines):
        assert old in lines[0]
        lines[0] = lines[0].replace(old, new)

    return change


VALIDATION = {
    "not JSON": (lambda lines: lines.__setitem__(0, b"{"), ["records-train.jsonl row 1", "not a record"]),
    "unknown field": (replace(b'"task"', b'"tusk"'), ["records-train.jsonl row 1", "tusk"]),
    "path leaving the root": (replace(b'"bs80k/wholeBodyANT/11.png"', b'"../11.png"'), ["stay under the image root"]),
    "dot as path": (replace(b'"bs80k/wholeBodyANT/11.png"', b'"."'), ["row 1", "stay under the image root"]),
    "empty question": (replace(b'"Judge it."', b'""'), ["row 1", "question is empty"]),
    "box inverted": (replace(b"[14.0,70.0,34.0,90.0]", b"[34.0,70.0,14.0,90.0]"), ["row 1", "empty or inverted"]),
    "box outside": (replace(b"[14.0,70.0,34.0,90.0]", b"[14.0,70.0,99.0,90.0]"), ["field target.boxes[0]", "outside"]),
    "box of image 9": (replace(b'"image":1', b'"image":9'), ["row 1", "refers to image 9"]),
    "split of another file": (replace(b'"split":"train"', b'"split":"val"'), ["field split", "file of train"]),
    "unknown benchmark": (replace(b'"scintiground"', b'"scinti"'), ["field benchmark", "unknown benchmark"]),
    "size unlike the file's": (replace(b'"width":64', b'"width":65'), ["is 64x128 pixels", "the record says 65x128"]),
    "duplicate id": (
        lambda lines: lines.append(lines[0]),
        ["row 3", "occurs twice", "first in records-train.jsonl row 1"],
    ),
    "group of another split": (replace(b'"group":"11"', b'"group":"13"'), ["group '13' is in several splits"]),
}


@pytest.mark.parametrize(("change", "words"), VALIDATION.values(), ids=VALIDATION)
def test_validate_names_the_fault_and_the_changed_file(tmp_path, change, words):
    folder = prepared(tmp_path)
    spoil(records_path(folder, "train"), change)
    _, findings = validate_dataset(folder)
    faults = [str(fault) for fault in findings.faults]
    assert any("its SHA-256 differs" in fault for fault in faults)
    assert any(all(word in fault for word in words) for fault in faults), faults


def test_validate_lists_every_bad_image_once(tmp_path):
    folder = prepared(tmp_path)
    assert validate_dataset(folder)[1].faults == []
    images = tmp_path / "release/bs80k/wholeBodyANT"
    (images / "11.png").unlink()
    (images / "13.png").write_bytes((images / "13.png").read_bytes()[:40])
    number, findings = validate_dataset(folder)
    assert number == 5
    assert sorted(fault.message.split("image file ")[1].split(" ")[0] for fault in findings.faults) == [
        str(images / "11.png"),
        str(images / "13.png"),
    ]
    assert all("field images[0]" in fault.where for fault in findings.faults)


def test_validate_notes_missing_and_foreign_record_files(tmp_path):
    folder = prepared(tmp_path)
    records_path(folder, "val").unlink()
    assert ["is missing" in str(fault) for fault in validate_dataset(folder)[1].faults] == [True]
    info = json.loads((folder / "dataset.json").read_text())
    del info["files"]["records-test.jsonl"]
    (folder / "dataset.json").write_text(json.dumps(info))
    assert any("is not listed in dataset.json" in str(fault) for fault in validate_dataset(folder)[1].faults)


def test_full_disk_leaves_no_dataset_behind(tmp_path, monkeypatch):
    def full(path, data):
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr("benchmarks.dataset.write_atomic", full)
    with pytest.raises(DataError, match="the dataset cannot be written: No space left on device"):
        prepare("generic", own(tmp_path, [row()]), tmp_path / "dataset")
    with pytest.raises(DataError, match="is not a prepared dataset"):
        load_info(tmp_path / "dataset")


def test_schema_round_trip_of_prepared_records(tmp_path):
    folder = prepared(tmp_path)
    for line in records_path(folder, "train").read_bytes().splitlines():
        assert decode_record(line, where="").id
