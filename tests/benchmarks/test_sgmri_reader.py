"""The SGMRI-VQA reader: records, truth boxes, known quirks and what is left out."""

import json

import pytest

from benchmarks.__main__ import main
from benchmarks.dataset import read_records
from benchmarks.errors import DataError
from benchmarks.prepare import prepare
from benchmarks.sgmri import level_and_task
from benchmarks.sgmri_text import shift_frames
from tests.benchmarks.sgmri_tree import BRAIN, KNEE, image_row, volume_row, write_tree


@pytest.fixture
def prepared(tmp_path):
    """Writes a release with changes, prepares it, and gives its records by official task."""

    def make(settings=None, split="test", **changes):
        release = write_tree(tmp_path / "release", **changes)
        outcome = prepare("sgmri", release, tmp_path / "data", settings=settings)
        return {record.strata["official_task"]: record for record in read_records(tmp_path / "data", split)}, outcome

    return make


def test_an_image_question(prepared):
    record = prepared()[0]["localization"]
    assert (record.task, record.answer_type, record.group) == ("image_localization", "closed_ended", KNEE)
    assert level_and_task(record) == ("image", "localization")
    assert [(image.path, image.frame, image.width) for image in record.images] == [
        (f"knee_val_labeled_raw/{KNEE}/{KNEE}_slice_003.png", 3, 128)
    ]
    assert [(box.image, box.xyxy, box.label) for box in record.target.boxes] == [
        (0, (60, 90, 100, 112), "Joint Effusion")
    ]
    assert record.target.text.startswith("In the lateral compartment")
    assert "_image_qa_" in record.id


def test_a_volume_question_has_all_slices_and_the_boxes_of_the_metadata(prepared):
    record = prepared()[0]["counting"]
    assert [image.frame for image in record.images] == [1, 2, 3, 4]
    assert [(record.images[box.image].frame, box.xyxy) for box in record.target.boxes] == [(2, (80, 70, 89, 78))]
    assert (record.target.label, record.target.text, record.target.reasoning) == (
        "2",
        "2",
        "Frame 2: [80,70,9,8] (Edema).",
    )
    assert "_video_qa_" in record.id
    assert record.strata == {
        "organ": "brain",
        "modality": "FLAIR",
        "level": "volume",
        "official_task": "counting",
        "answer_type": "closed_ended",
    }


def test_ids_depend_on_what_is_asked_only(prepared, tmp_path):
    first = prepared(knee_image=[image_row(), image_row(task="captioning")])[0]
    again = write_tree(tmp_path / "other", knee_image=[image_row(task="captioning"), image_row()])
    old = again / "data_generation/qa_reasoning_data/knee/gpt4o_knee_val_image_qa_image_qa_pairs.json"
    old.rename(old.with_name("knee_test_image_qa_pairs.json"))
    prepare("sgmri", again, tmp_path / "again")
    second = {record.strata["official_task"]: record for record in read_records(tmp_path / "again", "test")}
    assert {task: record.id for task, record in first.items()} == {task: record.id for task, record in second.items()}


def test_a_question_that_was_asked_twice_keeps_both_records(tmp_path):
    release = write_tree(tmp_path / "release", knee_image=[image_row(), image_row()])
    prepare("sgmri", release, tmp_path / "data")
    names = [record.id for record in read_records(tmp_path / "data", "test") if "_image_" in record.id]
    assert names == [names[0], f"{names[0]}_2"]


@pytest.mark.parametrize(
    ("changes", "choices", "label"),
    [
        ({"task": "detection", "question": "Is there a tear?", "answer": "Yes."}, ("Yes", "No"), "Yes"),
        ({"task": "detection", "question": "Is there a tear?", "answer": "Unclear"}, ("Yes", "No"), None),
        ({"task": "detection", "question": "Which sequence is this?", "answer": "No"}, (), None),
        ({"task": "localization", "question": "Is there a tear, and where?", "answer": "No finding."}, (), None),
        (
            {
                "task": "diagnosis",
                "type": "single_choice",
                "question": "Which?\n(A) Tear\n(B) Mass",
                "answer": "(B) Mass",
            },
            ("A", "B"),
            "B",
        ),
        (
            {
                "task": "classification",
                "type": "multiple_choice",
                "question": "Which?",
                "choices": {"A": "Tear", "B": "Mass", "C": "Edema"},
                "answer": "A, C",
            },
            ("A", "B", "C"),
            None,
        ),
        ({"task": "captioning", "type": "unknown", "answer": 3}, (), None),
    ],
)
def test_choices_and_labels(prepared, changes, choices, label):
    record = prepared(knee_image=[image_row(**changes)])[0][changes["task"]]
    assert (record.choices, record.target.label, record.answer_type) == (choices, label, record.strata["answer_type"])


@pytest.mark.parametrize(
    "path",
    [
        f"/cluster/home/x/data/knee_val_labeled_raw/{KNEE}/{KNEE}_slice_003.png",
        f"../knee_val_labeled_raw/{KNEE}/{KNEE}_slice_003.png",
        f"../../../data/knee_val_labeled_raw/{KNEE}/{KNEE}_slice_003.png",
        "elsewhere.png",
        "x/data//etc/hostname",
        f"../../../../knee_val_labeled_raw/{KNEE}/{KNEE}_slice_003.png",
        "a\0b.png",
        None,
    ],
)
def test_an_image_is_found_wherever_its_path_says_it_was(prepared, path):
    record = prepared(knee_image=[image_row(image_path=path)])[0]["localization"]
    assert record.images[0].path == f"knee_val_labeled_raw/{KNEE}/{KNEE}_slice_003.png"


def test_the_knee_offset_moves_image_boxes_and_words_by_one(prepared):
    rows = {
        "knee_image": [image_row(question="Where on Frame 3?")],
        "knee_volume": [
            volume_row(
                volume_id=KNEE,
                modality="knee",
                question="How many on Frame 1?",
                answer="1",
                reasoning="On Frames 1, 2 and 3.",
            ),
            volume_row(
                volume_id=KNEE,
                modality="knee",
                task="localization",
                answer="Frame 1: <bbx>[80,70,9,8]</bbx>",
                ground_truth={"bboxes": [{"x": 80, "y": 70, "width": 9, "height": 8, "frame": 1}]},
            ),
        ],
        "brain_volume": [],
    }
    records, _ = prepared({"knee_slice_offset": "1"}, **rows)
    assert records["counting"].target.reasoning == "On Frames 2, 3 and 4."
    assert records["counting"].question == "How many on Frame 2?"
    # Both from the metadata and from the row.
    for task in ("counting", "localization"):
        assert [records[task].images[box.image].frame for box in records[task].target.boxes] == [2]


def test_the_knee_offset_shows_the_next_slice(prepared):
    record = prepared({"knee_slice_offset": "1"})[0]["localization"]
    assert record.images[0].frame == 4
    assert record.images[0].path.endswith("_slice_004.png")
    assert record.target.reasoning.startswith("Bright fluid on frame 4 at <bbx>[60,90,40,22]</bbx>")


def test_a_question_that_moves_behind_the_last_slice_is_left_out(prepared):
    last = image_row(slice_num=4, image_path=None, task="detection", ground_truth={"labels": [], "bboxes": []})
    records, outcome = prepared({"knee_slice_offset": "1"}, knee_image=[image_row(), last])
    assert set(records) == {"localization", "counting"}
    assert dict(outcome.dropped) == {("record", "moved, its frame is not in the volume"): 1}
    assert set(prepared(knee_image=[image_row(), last])[0]) == {"localization", "counting", "detection"}


@pytest.mark.parametrize("missing", ["error", "drop"])
def test_boxes_on_the_last_slice_say_that_the_release_is_right_as_it_is(prepared, missing):
    with pytest.raises(DataError, match="row 1, field slice_num") as raised:
        prepared(
            {"knee_slice_offset": "1", "missing_volumes": missing},
            knee_image=[image_row(slice_num=4, image_path=None)],
        )
    assert "its boxes are not one frame early" in str(raised.value)


def test_the_brain_is_right_as_published(prepared):
    record = prepared({"knee_slice_offset": "1"})[0]["counting"]
    assert [record.images[box.image].frame for box in record.target.boxes] == [2]


def test_frame_numbers_in_words():
    assert (
        shift_frames("Frames 3-5 and slice #9; frame 7, 3 lesions", 1) == "Frames 4-6 and slice #10; frame 8, 3 lesions"
    )


def test_without_metadata_the_answer_states_the_boxes(prepared):
    answer = "Frame 2: <bbx>[1,2,30,40]</bbx>; Frame 3: <bbx>[1,2,30,40]</bbx>."
    records, _ = prepared(metadata=False, knee_image=[], brain_volume=[volume_row(task="localization", answer=answer)])
    localization = records["localization"]
    assert [(localization.images[box.image].frame, box.xyxy) for box in localization.target.boxes] == [
        (2, (1, 2, 31, 42)),
        (3, (1, 2, 31, 42)),
    ]


def test_boxes_that_cannot_be_used_are_left_out_or_cut_and_listed(prepared, tmp_path, capsys):
    truth = {
        "bboxes": [
            {"x": 3, "y": -1, "width": 10, "height": 5, "label": "a"},
            {"x": 3, "y": 4, "width": 0, "height": 5, "label": "b"},
            {"x": 120, "y": 4, "width": 30, "height": 5, "label": "c"},
            # What Python's JSON writes for an empty cell of a table.
            {"x": float("nan"), "y": 4, "width": 30, "height": 5, "label": "d"},
        ]
    }
    records, outcome = prepared(knee_image=[image_row(ground_truth=truth)])
    assert [box.xyxy for box in records["localization"].target.boxes] == [(3, 0, 13, 4), (120, 4, 128, 9)]
    assert dict(outcome.dropped) == {
        ("box", "the part of the box outside its image"): 2,
        ("box", "the box has no area inside its image"): 1,
        ("box", "the box has a side that is no number"): 1,
    }
    listed = json.loads((tmp_path / "data/dropped.json").read_text())
    assert sum(listed["counts"].values()) == len(listed["items"]) == 4
    assert listed["items"][0]["where"].endswith("pairs.json row 1")


def test_training_volumes_become_validation_by_name(tmp_path):
    release = write_tree(tmp_path / "release", split="train", knee_image=[image_row(image_path=None)])
    settings = {"validation_share": "0.999"}
    assert set(prepare("sgmri", release, tmp_path / "data", settings=settings).info.counts) == {"val"}
    held_out = write_tree(tmp_path / "test")
    assert set(prepare("sgmri", held_out, tmp_path / "test-data", settings=settings).info.counts) == {"test"}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"knee_image": [image_row(task="counting")]}, "task 'counting' is none of the image level"),
        ({"knee_image": [image_row(question=" ")]}, "question is empty"),
        ({"knee_image": [image_row(slice_num=2)]}, "is not frame 2"),
        ({"knee_image": [image_row(slice_num=None)]}, "slice_num is missing"),
        (
            {"knee_image": [image_row(volume_id="file1")]},
            f"'knee_val_labeled_raw/{KNEE}/{KNEE}_slice_003.png' is not a slice of file1",
        ),
        ({"knee_image": [image_row(slice_num="3")]}, "Expected `int | null`, got `str`"),
        ({"knee_image": [image_row(volume_id="file1", image_path=None)]}, "there is no slice of the question"),
        ({"brain_volume": [volume_row(volume_id="file1")]}, "there is no slice of the question"),
        ({"brain_volume": [volume_row(volume_id="../file1")]}, "'../file1' is not the name of a volume"),
        ({"brain_volume": [volume_row(volume_id="file1\0")]}, "is not the name of a volume"),
        ({"brain_volume": [volume_row(modality="../FLAIR")]}, "'../FLAIR' is not the name of a sequence"),
        ({"knee_image": [image_row(volume_id="/etc")]}, "'/etc' is not the name of a volume"),
    ],
)
def test_faults_name_file_row_and_field(prepared, changes, said):
    with pytest.raises(DataError, match="row 1") as raised:
        prepared(**changes)
    assert said in str(raised.value)
    assert "qa_pairs.json" in str(raised.value)


def test_volumes_without_slices_can_be_left_out(prepared):
    records, outcome = prepared({"missing_volumes": "drop"}, brain_volume=[volume_row(volume_id="file1")])
    assert set(records) == {"localization"}
    assert dict(outcome.dropped) == {("record", "the volume has no slices"): 1}


def test_a_gap_in_the_slices_is_a_fault(tmp_path):
    release = write_tree(tmp_path / "release")
    next((release / "data").rglob(f"{BRAIN}_slice_002.png")).unlink()
    with pytest.raises(DataError, match="not numbered from 1 without a gap"):
        prepare("sgmri", release, tmp_path / "data")


@pytest.mark.parametrize(
    ("settings", "said"),
    [({"knee_offset": "1"}, "knee_offset"), ({"knee_slice_offset": "2"}, "2"), ({"validation_share": "1"}, "below 1")],
)
def test_options_are_checked(prepared, settings, said):
    with pytest.raises(DataError, match="not an option of this reader") as raised:
        prepared(settings)
    assert said in str(raised.value)


def test_a_release_without_questions_or_with_two_of_a_kind(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="no file of questions"):
        prepare("sgmri", tmp_path / "empty", tmp_path / "data")
    release = write_tree(tmp_path / "release")
    (release / "knee_val_image_qa_pairs.json").write_text("[]")
    with pytest.raises(DataError, match="two files hold the image questions"):
        prepare("sgmri", release, tmp_path / "data")


def test_the_command_prints_what_was_left_out(tmp_path, capsys):
    truth = {"bboxes": [{"x": 3, "y": -1, "width": 10, "height": 5, "label": "a"}]}
    release = write_tree(tmp_path / "release", knee_image=[image_row(ground_truth=truth)])
    out = tmp_path / "data"
    assert main(["prepare", "sgmri", str(release), "--out", str(out), "--set", "knee_slice_offset=1"]) == 0
    printed = capsys.readouterr().out
    assert "left out: 1 box: the part of the box outside its image" in printed
    assert f"each of them: {out / 'dropped.json'}" in printed
    assert main(["validate", str(out)]) == 0
