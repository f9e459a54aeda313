"""`prepare sgmri --volumes`: from HDF5 and tables to records, in one command, as published and corrected."""

import json
import shutil

import numpy as np
import pytest
from PIL import Image

from benchmarks.__main__ import main
from benchmarks.dataset import read_records
from benchmarks.errors import DataError
from benchmarks.phantom_mri_presets import configure
from benchmarks.phantom_mri_release import write_sources


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """Sources of small volumes, with and without the release's fault."""
    folders = {}
    for name, settings in {"true": ["volume_boxes=true"], "faulty": ["knee_fault=true"]}.items():
        folders[name] = tmp_path_factory.mktemp(name)
        write_sources(configure("tiny", ["train=2", "val=3", *settings]), folders[name])
    return folders


def prepare(folder, out, *settings):
    words = ["--volumes", str(folder / "hdf5"), "--annotations", str(folder / "annotations"), "--out", str(out)]
    status = main(["prepare", "sgmri", str(folder / "release"), *words, *(["--set", *settings] if settings else [])])
    assert status == 0
    return {record.id: record for split in ("train", "test") for record in read_records(out, split)}


@pytest.fixture(scope="module")
def prepared(sources, tmp_path_factory):
    root = tmp_path_factory.mktemp("prepared")
    return {
        "true": prepare(sources["true"], root / "true"),
        "corrected": prepare(sources["faulty"], root / "corrected", "knee_slice_offset=1"),
        "published": prepare(sources["faulty"], root / "published"),
        "root": root,
    }


def stands_out(record, box, root):
    """Whether a box encloses something brighter or darker than the ring around it."""
    image = record.images[box.image]
    pixels = np.asarray(Image.open(root / image.path)).astype(float)
    x1, y1, x2, y2 = map(int, box.xyxy)
    ring = pixels[max(0, y1 - 2) : y2 + 2, max(0, x1 - 2) : x2 + 2].sum() - pixels[y1:y2, x1:x2].sum()
    size = pixels[max(0, y1 - 2) : y2 + 2, max(0, x1 - 2) : x2 + 2].size - (y2 - y1) * (x2 - x1)
    return abs(pixels[y1:y2, x1:x2].mean() - ring / size) > 12


def share(records, root, organ):
    chosen = [record for record in records.values() if record.strata["organ"] == organ]
    hits = [stands_out(record, box, root) for record in chosen for box in record.target.boxes]
    assert len(hits) > 20
    return sum(hits) / len(hits)


@pytest.mark.parametrize("organ", ["brain", "knee"])
@pytest.mark.parametrize("name", ["true", "corrected"])
def test_boxes_lie_on_what_was_drawn(prepared, name, organ):
    assert share(prepared[name], prepared["root"] / name / "slices/data", organ) > 0.9


def placed(records, organ, moved=0):
    """Volume, frame and place of every box of an organ."""
    return sorted(
        (record.group, record.images[box.image].frame + moved, box.xyxy, record.task)
        for record in records.values()
        for box in record.target.boxes
        if record.strata["organ"] == organ
    )


def test_as_published_knee_boxes_are_one_frame_early_and_brain_boxes_are_not(prepared):
    assert placed(prepared["published"], "brain") == placed(prepared["corrected"], "brain")
    early, right = placed(prepared["published"], "knee", 1), placed(prepared["corrected"], "knee")
    assert early == [place for place in right if place in early]
    # A box on the first frame would be on frame 0, and is lost.
    assert {frame for group, frame, place, task in right if (group, frame, place, task) not in early} <= {1}


def test_one_option_gives_the_true_records_back(prepared):
    for name, record in prepared["true"].items():
        if record.strata["organ"] == "brain" or record.strata["level"] == "volume":
            other = prepared["corrected"][name]
            assert [(image.path, image.frame) for image in other.images] == [
                (image.path, image.frame) for image in record.images
            ]
            assert sorted(map(repr, other.target.boxes)) == sorted(map(repr, record.target.boxes))
            assert other.target.text == record.target.text


def test_a_second_run_makes_no_slice_again(sources, prepared, capsys):
    prepare(sources["faulty"], prepared["root"] / "published")
    assert "0 volumes converted now" in capsys.readouterr().out


def test_a_broken_volume_stops_preparation_unless_questions_may_be_left_out(sources, tmp_path, capsys):
    folder = tmp_path / "sources"
    shutil.copytree(sources["true"], folder)
    broken = next((folder / "hdf5").rglob("file9*.h5"))
    broken.write_bytes(broken.read_bytes()[:2000])
    words = ["--volumes", str(folder / "hdf5"), "--annotations", str(folder / "annotations")]
    command = ["prepare", "sgmri", str(folder / "release"), *words, "--out", str(tmp_path / "data")]
    with pytest.raises(DataError, match="volumes cannot be read") as raised:
        main(command)
    assert broken.name in str(raised.value)
    assert main([*command, "--set", "missing_volumes=drop"]) == 0
    assert "the volume has no slices" in capsys.readouterr().out
    dropped = json.loads((tmp_path / "data/dropped.json").read_text())
    assert dropped["counts"]["record: the volume has no slices"] == len(dropped["items"]) > 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["sgmri", "--volumes", "V"], "--volumes and --annotations go together"),
        (["generic", "--volumes", "V", "--annotations", "A"], "--volumes makes the slices of sgmri"),
        (["sgmri", "--volumes", "V", "--annotations", "A", "--image-root", "I"], "--volumes makes the slices of sgmri"),
    ],
)
def test_options_that_do_not_go_together(words, said, tmp_path):
    with pytest.raises(DataError, match=said):
        main(["prepare", words[0], "RELEASE", *words[1:], "--out", str(tmp_path / "data")])


def test_options_may_be_set_one_by_one(sources, tmp_path):
    words = ["--volumes", str(sources["faulty"] / "hdf5"), "--annotations", str(sources["faulty"] / "annotations")]
    settings = ["--set", "knee_slice_offset=1", "--set", "validation_share=0.999"]
    out = tmp_path / "data"
    assert main(["prepare", "sgmri", str(sources["faulty"] / "release"), *words, "--out", str(out), *settings]) == 0
    assert json.loads((out / "slices/dropped.json").read_text())["quirks"]["knee_slice_offset"] == 1
    assert list(read_records(out, "val"))
    sliced = ["slices", "fastmri", str(sources["faulty"] / "hdf5"), *words[2:], "--out", str(out / "slices")]
    assert main([*sliced, "--set", "knee_slice_offset=0", "boxes=valid"]) == 0
    assert json.loads((out / "slices/dropped.json").read_text())["quirks"]["boxes"] == "valid"


def test_at_least_one_process_is_needed(sources, tmp_path):
    words = ["--volumes", str(sources["true"] / "hdf5"), "--annotations", str(sources["true"] / "annotations")]
    with pytest.raises(DataError, match="--workers 0"):
        main(["prepare", "sgmri", str(sources["true"] / "release"), *words, "--out", str(tmp_path), "--workers", "0"])


@pytest.mark.parametrize(
    ("release", "settings", "said"),
    [
        ("elsewhere", (), "is not a folder"),
        ("hdf5", (), "no file of questions"),
        ("release", ("knee_slice_ofset=1",), "did you mean knee_slice_offset"),
        ("release", ("box=valid",), "missing_volumes, brain_min_slices, boxes, study_level"),
        ("release", ("validation_share=2",), "below 1"),
    ],
)
def test_a_slip_is_told_before_any_slice_is_made(sources, tmp_path, release, settings, said):
    folder, out = sources["true"], tmp_path / "data"
    words = ["--volumes", str(folder / "hdf5"), "--annotations", str(folder / "annotations"), "--out", str(out)]
    with pytest.raises(DataError, match=said):
        main(["prepare", "sgmri", str(folder / release), *words, *(["--set", *settings] if settings else [])])
    assert not out.exists()
