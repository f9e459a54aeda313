import contextlib
import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from benchmarks.__main__ import main
from benchmarks.errors import DataError
from benchmarks.fastmri_plus import ORGANS, by_volume, read_tables
from benchmarks.locking import locked
from benchmarks.slices import make_slices
from benchmarks.slices_metadata import volume_entry
from benchmarks.slices_quirks import Quirks, parse_quirks
from benchmarks.slices_volume import Done
from recipes.errors import run_command
from tests.benchmarks.mri_files import CUT, tree, write_cut, write_h5

DATA = Path(__file__).parents[1] / "data/fastmri_plus"
TABLES = DATA / "cut"
SHORT = "file_brain_AXFLAIR_203_6000890"
AS_PUBLISHED = Quirks()
CORRECTED = Quirks(knee_slice_offset=1, brain_min_slices=1, boxes="valid", study_level="volume")


def make(volumes, out, quirks=AS_PUBLISHED, workers=1):
    return make_slices(volumes, TABLES, out, quirks=quirks, workers=workers)


def metadata(out, name):
    return json.loads((out / "data_processing" / name).read_text())


def dropped(out):
    return json.loads((out / "dropped.json").read_text())


@pytest.fixture(scope="module")
def cut(tmp_path_factory):
    """HDF5 files for all volumes of the cut, and their values by name."""
    folder = tmp_path_factory.mktemp("fastmri")
    return folder, write_cut(folder)


@pytest.fixture(scope="module")
def published(cut, tmp_path_factory):
    """The cut, converted as published by one process."""
    out = tmp_path_factory.mktemp("sgmri") / "out"
    return out, make(cut[0], out)


PLACES = {
    "file_brain_AXT1_202_2020089": "train_labeled_raw_by_modality/T1",
    "file_brain_AXFLAIR_202_6000476": "val_labeled_raw_by_modality/FLAIR",
    "file_brain_AXT1POST_200_6002373": "train_labeled_raw_by_modality/T1",
    "file1001706": "knee_train_labeled_raw",
    "file1002097": "knee_train_labeled_raw",
    "file1000990": "knee_val_labeled_raw",
    "file1001950": "knee_val_labeled_raw",
}


def test_the_tree_is_that_of_the_release_and_nothing_else_lies_in_it(cut, published):
    expected = {
        f"{place}/{name}/{name}_slice_{frame:03d}.png"
        for name, place in PLACES.items()
        for frame in range(1, CUT[name][1] + 1)
    }
    assert set(tree(published[0] / "data")) == expected


def test_pixels_are_the_published_rule_on_reversed_rows(cut, published):
    for name, place in PLACES.items():
        for frame, values in enumerate(cut[1][name], start=1):
            picture = Image.open(published[0] / f"data/{place}/{name}/{name}_slice_{frame:03d}.png")
            assert (picture.mode, picture.size) == ("L", (12, 9))
            top = values.max()
            for (row, column), grey in np.ndenumerate(np.asarray(picture)):
                value = values[8 - row, column]
                assert grey == int(np.float32(max(value, np.float32(0)) / top) * np.float32(255))


def test_metadata_names_every_slice_and_its_picture(published):
    for name in ("knee/knee_train", "knee/knee_val", "brain/brain_train", "brain/brain_val"):
        contents = metadata(published[0], f"{name}_volumes.json")
        if name.startswith("brain"):
            assert list(contents) == ["FLAIR", "T1"]
            contents = contents["FLAIR"] | contents["T1"]
        assert list(contents) == sorted(
            volume
            for volume in PLACES
            if name.split("_")[1] in CUT[volume][0] and (name[:5] == "brain") == ("brain" in volume)
        )
        for volume, entry in contents.items():
            assert list(entry) == ["volume_id", "final_diagnosis", "slices"]
            assert [one["slice"] for one in entry["slices"]] == list(range(1, CUT[volume][1] + 1))
            for one in entry["slices"]:
                assert (published[0] / "data" / one["image_path"]).is_file()


def boxes_by_frame(contents, volume):
    return {one["slice"]: one["bounding_boxes"] for one in contents[volume]["slices"] if one["bounding_boxes"]}


def test_published_brain_frames_are_right_and_knee_frames_one_too_early(published):
    rows = {organ: by_volume(table) for organ, table in read_tables(TABLES).items()}
    knee = boxes_by_frame(metadata(published[0], "knee/knee_val_volumes.json"), "file1000990")
    assert set(knee) == {row.index for row in rows["knee"]["file1000990"]}
    brain = boxes_by_frame(
        metadata(published[0], "brain/brain_train_volumes.json")["T1"], "file_brain_AXT1_202_2020089"
    )
    assert set(brain) == {row.index + 1 for row in rows["brain"]["file_brain_AXT1_202_2020089"] if row.box}


def test_boxes_are_as_published_in_the_tables_order(published):
    contents = metadata(published[0], "knee/knee_train_volumes.json")
    [*twice] = boxes_by_frame(contents, "file1001706")[21]
    assert len([box for box in twice if twice.count(box) == 2]) == 2
    assert [box["height"] for box in boxes_by_frame(contents, "file1002097")[27]].count(0) == 1
    assert list(twice[0]) == ["x", "y", "width", "height", "label"]
    for volume in contents:
        rows = [row for row in read_tables(TABLES)["knee"] if row.volume == volume]
        for frame, boxes in boxes_by_frame(contents, volume).items():
            mine = [(*row.box, row.label) for row in rows if row.index == frame and row.box]
            assert [tuple(box.values()) for box in boxes] == mine


def test_labels_are_sorted_sets_and_diagnosis_their_union(published):
    entry = metadata(published[0], "knee/knee_val_volumes.json")["file1001950"]
    assert entry["final_diagnosis"] == ["Ligament - MCL Low-Mod Grade Sprain", "artifact"]
    sprain = ["Ligament - MCL Low-Mod Grade Sprain"]
    assert [(one["slice"], one["label"]) for one in entry["slices"] if one["label"]] == [
        (23, sprain),
        (24, sprain),
        (25, sprain),
    ]
    everything = json.dumps(metadata(published[0], "knee/knee_train_volumes.json"))
    assert '"Joint Effusion"' in everything
    assert "Joint Effusion " not in everything


def test_study_level_labels_of_knees_find_no_slice_and_those_of_brains_the_first(cut, published, tmp_path):
    assert [(row["volume"], row["reason"]) for row in dropped(published[0])["rows"]] == [
        ("file1001950", "its frame is not in the volume")
    ]
    rows = {volume: by_volume(read_tables(TABLES)["brain"])[volume] for volume in (SHORT,)}[SHORT]
    assert all(row.study_level for row in rows)
    done = Done(
        volume=SHORT,
        organ="brain",
        split="val",
        sequence="FLAIR",
        slices=3,
        width=9,
        height=9,
        source_size=0,
        source_mtime_ns=0,
        png_bytes=[1, 1, 1],
    )
    labels = [one["label"] for one in volume_entry(done, rows, AS_PUBLISHED).value["slices"]]
    assert labels == [[rows[0].label], [], []]
    entry = volume_entry(done, rows, Quirks(study_level="volume")).value
    assert [one["label"] for one in entry["slices"]] == [[], [], []]
    assert entry["final_diagnosis"] == [rows[0].label]


def test_every_volume_and_row_is_accounted_for(published):
    contents = dropped(published[0])
    assert contents["volumes"] == [{"volume": SHORT, "reason": "fewer slices than brain_min_slices", "rows": 2}]
    counts = contents["counts"]
    assert counts["volumes"] == 7
    assert counts["table rows"] == 75 + 136
    assert counts["rows that are used"] + counts["rows of volumes left out"] + 1 == counts["table rows"]
    assert contents["faults"] == []


def test_corrected_options_put_each_knee_box_on_its_frame_and_mend_boxes(cut, tmp_path):
    wide = tmp_path / "fastmri"
    write_cut(wide, size=(320, 320))
    make(wide, tmp_path / "out", CORRECTED)
    knee = metadata(tmp_path / "out", "knee/knee_val_volumes.json")
    rows = by_volume(read_tables(TABLES)["knee"])["file1000990"]
    boxes = boxes_by_frame(knee, "file1000990")
    assert set(boxes) == {row.index + 1 for row in rows}
    [row] = [row for row in rows if row.outside]
    x, _, width, height = row.box
    assert {"x": x, "y": 0, "width": width, "height": height - 1, "label": row.label} in boxes[14]
    contents = dropped(tmp_path / "out")
    assert Counter(row["reason"] for row in contents["rows"]) == {"box without area": 3, "repeats an earlier row": 5}
    assert [(row["volume"], row["reason"]) for row in contents["changed"]] == [
        ("file1000990", "box clipped to the picture")
    ]
    everything = [
        box
        for name in ("knee_train", "knee_val")
        for entry in metadata(tmp_path / "out", f"knee/{name}_volumes.json").values()
        for one in entry["slices"]
        for box in one["bounding_boxes"]
    ]
    assert all(box["width"] > 0 and box["height"] > 0 and box["y"] >= 0 for box in everything)
    assert contents["volumes"] == []
    assert metadata(tmp_path / "out", "brain/brain_val_volumes.json")["FLAIR"][SHORT]["slices"][0]["label"] == []


@pytest.mark.parametrize("quirks", [AS_PUBLISHED, CORRECTED], ids=["published", "corrected"])
def test_whole_tables_lose_no_row_unsaid(tmp_path, quirks):
    for organ in ORGANS:
        (tmp_path / f"{organ}.csv").write_bytes(gzip.decompress((DATA / f"{organ}.csv.gz").read_bytes()))
    boxes, remarks, clipped = 0, Counter(), 0
    for organ, table in read_tables(tmp_path).items():
        for volume, rows in by_volume(table).items():
            done = Done(
                volume=volume,
                organ=organ,
                split="val",
                sequence="T1" if organ == "brain" else None,
                slices=16 if organ == "brain" else 46,
                width=320,
                height=320,
                source_size=0,
                source_mtime_ns=0,
                png_bytes=[],
            )
            entry = volume_entry(done, rows, quirks)
            boxes += sum(len(one["bounding_boxes"]) for one in entry.value["slices"])
            remarks += Counter(remark.reason for remark in entry.dropped)
            clipped += len(entry.changed)
    if quirks == AS_PUBLISHED:
        assert (boxes, remarks, clipped) == (23724, {"its frame is not in the volume": 13}, 0)
    else:
        # Of the six repeated rows one is study level and takes no box with it, nor is it remarked upon.
        assert (boxes, remarks, clipped) == (23724 - 3 - 5, {"box without area": 3, "repeats an earlier row": 5}, 6)


def test_two_processes_give_the_bytes_of_one(cut, published, tmp_path):
    make(cut[0], tmp_path / "out", workers=2)
    assert tree(tmp_path / "out") == tree(published[0])


def test_a_second_run_converts_nothing_and_changes_nothing(cut, tmp_path):
    out = tmp_path / "out"
    assert make(cut[0], out).written == 7
    before, times = tree(out), {path: path.stat().st_mtime_ns for path in out.rglob("*.png")}
    assert make(cut[0], out).written == 0
    assert tree(out) == before
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*.png")} == times


def test_other_options_later_give_what_they_give_alone(cut, published, tmp_path):
    out = tmp_path / "out"
    make(cut[0], out, CORRECTED)
    make(cut[0], tmp_path / "alone", CORRECTED)
    assert tree(out) == tree(tmp_path / "alone")
    assert make(cut[0], out).written == 0
    assert tree(out) == tree(published[0])


def lose_picture(out, source):
    (out / "data/knee_val_labeled_raw/file1000990/file1000990_slice_003.png").unlink()


def shorten_picture(out, source):
    path = out / "data/knee_val_labeled_raw/file1000990/file1000990_slice_003.png"
    path.write_bytes(path.read_bytes()[:-3])


def add_picture(out, source):
    shutil.copy(
        out / "data/knee_val_labeled_raw/file1000990/file1000990_slice_003.png",
        out / "data/knee_val_labeled_raw/file1000990/file1000990_slice_041.png",
    )


def spoil_state(out, source):
    (out / "slices/file1000990.json").write_text("{")


def leave_parts(out, source):
    part = out / "data/knee_val_labeled_raw/.file1000990.77.part"
    part.mkdir()
    (part / "file1000990_slice_001.png").write_bytes(b"half")
    (out / "slices/.file1000990.json.77.part").write_bytes(b"half")
    (out / "slices/file1000990.json").unlink()


@pytest.mark.parametrize("change", [lose_picture, shorten_picture, add_picture, spoil_state, leave_parts])
def test_what_is_not_whole_is_made_again(cut, published, tmp_path, change):
    out = tmp_path / "out"
    shutil.copytree(published[0], out)
    change(out, cut[0])
    assert make(cut[0], out).written == 1
    assert tree(out) == tree(published[0])


def test_a_changed_source_is_converted_again_and_old_slices_go(cut, tmp_path):
    source, out = tmp_path / "fastmri", tmp_path / "out"
    shutil.copytree(cut[0], source)
    make(source, out)
    values = np.ones((31, 4, 5), np.float32)
    write_h5(source / "knee_batch_0/multicoil_val/file1000990.h5", values)
    assert make(source, out).written == 1
    assert len(list((out / "data/knee_val_labeled_raw/file1000990").iterdir())) == 31


def test_archives_may_come_one_after_the_other(cut, published, tmp_path):
    source, out = tmp_path / "fastmri", tmp_path / "out"
    shutil.copytree(cut[0] / "brain_batch_0", source / "brain_batch_0")
    first = make(source, out)
    assert {done.organ for done in first.volumes} == {"brain"}
    assert (
        Counter(volume.reason for volume in first.dropped_volumes)["its file is not here and its slices are not done"]
        == 4
    )
    shutil.rmtree(source)
    shutil.copytree(cut[0] / "knee_batch_0", source / "knee_batch_0")
    second = make(source, out)
    assert (len(second.volumes), second.written) == (7, 4)
    assert tree(out) == tree(published[0])


def broken_link(path):
    path.unlink()
    path.symlink_to("nowhere.h5")


def mended(path, good, stat):
    path.unlink()
    path.write_bytes(good)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


FAULTS = {
    "broken link": broken_link,
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-400]),
    "no dataset": lambda path: write_h5(path, np.ones((2, 3, 3)), "kspace"),
    "rank": lambda path: write_h5(path, np.ones((2, 3, 3, 1))),
    "NaN": lambda path: write_h5(path, np.full((2, 3, 3), np.nan)),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_file_with_a_fault_is_listed_and_the_rest_goes_on(cut, published, tmp_path, fault, capsys):
    source, out = tmp_path / "fastmri", tmp_path / "out"
    shutil.copytree(cut[0], source)
    make(source, out)
    path = source / "knee_batch_0/multicoil_val/file1000990.h5"
    good = path.read_bytes()
    stat = path.stat()
    fault(path)
    command = ["slices", "fastmri", str(source), "--annotations", str(TABLES), "--out", str(out), "--workers", "1"]
    assert run_command(lambda: main(command)) == 1
    said = capsys.readouterr().out
    assert f"where: {path}" in said
    assert "next: mend or copy again" in said
    # What the file gave when it was whole is gone: it would pass for the file's slices.
    assert not (out / "data/knee_val_labeled_raw/file1000990").exists()
    assert "file1000990" not in metadata(out, "knee/knee_val_volumes.json")
    contents = dropped(out)
    assert {"volume": "file1000990", "reason": "its file has a fault", "rows": 50} in contents["volumes"]
    assert len(contents["faults"]) == 1
    mended(path, good, stat)
    assert run_command(lambda: main(command)) == 0
    assert tree(out) == tree(published[0])


def test_the_command_takes_options_and_says_where_and_what_next(cut, tmp_path, capsys):
    out = tmp_path / "out"
    argv = f"slices fastmri {cut[0]} --annotations {TABLES} --out {out} --workers 2 --set knee_slice_offset=1"
    assert main([*argv.split(), "--set", "brain_min_slices=1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines if line.startswith("FLAIR  val")] == [
        ["FLAIR", "val", "2", "18", "107", "1,694", "differs"]
    ]
    assert "8 volumes converted now, 0 done before" in lines
    assert lines[-1] == f"next: python -m benchmarks prepare sgmri RELEASE --image-root {out}/data --out DATASET"
    assert dropped(out)["quirks"]["knee_slice_offset"] == 1
    make(cut[0], tmp_path / "alone", Quirks(knee_slice_offset=1, brain_min_slices=1))
    assert tree(out) == tree(tmp_path / "alone")


def test_files_that_are_no_part_of_the_benchmark_are_left_out_with_the_reason(tmp_path):
    source = tmp_path / "fastmri"
    values = np.ones((12, 3, 3), np.float32)
    for place in (
        "multicoil_train/file1001706",
        "multicoil_test/file1002097",
        "multicoil_train/file1999999",
        "elsewhere/file1000990",
        "multicoil_val/file1001950",
        "singlecoil_val/file1001950",
    ):
        write_h5(source / f"{place}.h5", values)
    report = make(source, tmp_path / "out")
    assert [done.volume for done in report.volumes] == ["file1001706"]
    reasons = {volume.volume: volume.reason for volume in report.dropped_volumes if "brain" not in volume.volume}
    assert reasons == {
        "file1002097": "test split: the benchmark has none of it",
        "file1999999": "no row in the tables",
        "file1000990": "its file has a fault",
        "file1001950": "its file has a fault",
    }
    assert ["no folder says which split" in str(fault) for fault in report.faults] == [True, False]
    assert "file1001950 is there 2 times" in str(report.faults[1])


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (lambda source, out: shutil.rmtree(source), "is not a folder"),
        (lambda source, out: [path.unlink() for path in source.rglob("*.h5")], "no volume with a row in the tables"),
        (lambda source, out: out.write_text("x"), "File exists|Not a directory"),
    ],
    ids=["no folder", "no files", "out is a file"],
)
def test_what_cannot_be_used_at_all_is_refused(tmp_path, prepare, message):
    source, out = tmp_path / "fastmri", tmp_path / "out"
    write_h5(source / "multicoil_val/file1000990.h5", np.ones((1, 2, 2), np.float32))
    prepare(source, out)
    with pytest.raises(DataError, match=message):
        make(source, out)


def test_without_h5py_one_message_says_so(cut, tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(DataError, match="needs h5py"):
        make(cut[0], tmp_path / "out")


def test_one_run_writes_a_folder_at_a_time(cut, tmp_path):
    with locked(tmp_path / "out", needed=True), pytest.raises(DataError, match="another process is writing"):
        make(cut[0], tmp_path / "out")


def test_a_disk_that_is_full_ends_the_run_with_a_message_and_the_same_command_continues(
    cut, published, tmp_path, monkeypatch
):
    def full(self, *args, **kwargs):
        raise OSError(28, "No space left on device", "somewhere")

    with monkeypatch.context() as patch:
        patch.setattr(Image.Image, "save", full)
        with pytest.raises(DataError, match="cannot write: No space left"):
            make(cut[0], tmp_path / "out")
    make(cut[0], tmp_path / "out")
    assert tree(tmp_path / "out") == tree(published[0])


def test_foreign_files_in_a_volumes_folder_are_not_removed(cut, tmp_path):
    folder = tmp_path / "out/data/knee_val_labeled_raw/file1000990"
    folder.mkdir(parents=True)
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(DataError, match="Directory not empty"):
        make(cut[0], tmp_path / "out")
    assert (folder / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["knee_offset=1"], "unknown option 'knee_offset'"),
        (["knee_slice_offset=2"], "knee_slice_offset"),
        (["brain_min_slices=-1"], "brain_min_slices"),
        (["brain_min_slices"], "brain_min_slices"),
        (["boxes=right"], "boxes"),
    ],
)
def test_wrong_options_name_what_there_is(settings, message):
    with pytest.raises(DataError, match=message) as caught:
        parse_quirks(settings)
    assert "knee_slice_offset" in caught.value.fix


def test_options_are_typed_and_as_published_by_default():
    assert parse_quirks([]) == Quirks(knee_slice_offset=0, brain_min_slices=10, boxes="as_is", study_level="slice_0")
    changes = ["knee_slice_offset=1", "brain_min_slices=1", "boxes=valid", "study_level=volume"]
    assert parse_quirks(changes) == CORRECTED


def half_written(out, volumes_done):
    """Whether a run is in the middle of a volume and has done so many before."""
    try:
        return len(list(out.glob("slices/*.json"))) >= volumes_done and any(out.glob("data/**/.*.part/*.png"))
    except FileNotFoundError:
        # A folder was renamed under its listing.
        return False


def children(pid):
    """Processes whose parent is `pid`."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(path.read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(path.parent.name))
    return found


def running(pid):
    """Whether a process is there and not merely waiting to be collected."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("workers", [1, 2])
def test_killed_in_the_middle_leaves_nobody_behind_and_continues_to_the_same_bytes(tmp_path, workers):
    source, out = tmp_path / "fastmri", tmp_path / "out"
    write_cut(source, size=(64, 48))
    make(source, tmp_path / "whole")
    command = [sys.executable, "-m", "benchmarks", "slices", "fastmri", source, "--annotations", TABLES, "--out", out]
    for volumes_done in (0, 3):
        run = subprocess.Popen(
            [*map(str, command), "--workers", str(workers)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        deadline = time.monotonic() + 120
        while not half_written(out, volumes_done):
            assert run.poll() is None, "the run ended before it could be killed"
            assert time.monotonic() < deadline
        helpers = children(run.pid)
        run.send_signal(signal.SIGKILL)
        run.wait()
        assert len(helpers) >= (workers if workers > 1 else 0)
        while any(map(running, helpers)):
            assert time.monotonic() < deadline, "a helper process outlives the run"
            time.sleep(0.05)
        assert len(list(out.glob("slices/*.json"))) < len(CUT)
        for folder in (out / "data").glob("knee_*/[!.]*"):
            assert len(list(folder.iterdir())) == CUT[folder.name][1]
    make(source, out, workers=workers)
    assert tree(out) == tree(tmp_path / "whole")


@pytest.mark.realdata
def test_a_real_brain_in_fastmri_form_is_upright_and_its_boxes_are_where_they_were_drawn(tmp_path):
    nilearn = pytest.importorskip("nilearn", reason="nilearn is not installed (extra `realdata`)")
    import nibabel

    data = Path(nilearn.__file__).parent / "datasets/data"

    def load(kind):
        return np.asarray(nibabel.load(data / f"mni_icbm152_{kind}_tal_nlin_sym_09a_converted.nii.gz").dataobj)

    brain, white = load("t1").astype(np.float32), load("wm") > 128
    frames = range(60, 76)
    upright = [np.rot90(brain[:, :, frame]) for frame in frames]
    # fastMRI stores what the benchmark shows upside down.
    write_h5(tmp_path / "multicoil_val/file_brain_AXT1_202_2020089.h5", np.stack([each[::-1] for each in upright]))
    rows, columns = np.nonzero(np.rot90(white[:, :, frames[3]]))
    box = [columns.min(), rows.min(), np.ptp(columns) + 1, np.ptp(rows) + 1]
    head = "file,slice,study_level,x,y,width,height,label\n"
    (tmp_path / "brain.csv").write_text(
        f"{head}file_brain_AXT1_202_2020089,3,No,{','.join(map(str, box))},White matter\n"
    )
    (tmp_path / "knee.csv").write_text(head)
    out = tmp_path / "out"
    make_slices(tmp_path, tmp_path, out, quirks=AS_PUBLISHED, workers=1)
    one = metadata(out, "brain/brain_val_volumes.json")["T1"]["file_brain_AXT1_202_2020089"]["slices"][3]
    grey = np.asarray(Image.open(out / "data" / one["image_path"]))
    assert one["slice"] == 4
    assert np.array_equal(grey, np.floor(upright[3] / upright[3].max() * np.float32(255)))
    [found] = one["bounding_boxes"]
    inside = np.zeros(grey.shape, bool)
    inside[found["y"] : found["y"] + found["height"], found["x"] : found["x"] + found["width"]] = True
    assert not (np.rot90(white[:, :, frames[3]]) & ~inside).any()
