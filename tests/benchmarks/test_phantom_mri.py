"""The synthetic volumes: deterministic, and the same findings in pixels, tables and questions."""

from __future__ import annotations

import csv
import dataclasses
import hashlib
import json
import re
from collections import Counter
from pathlib import Path

import h5py
import numpy as np
import pytest

from benchmarks.__main__ import main
from benchmarks.errors import DataError
from benchmarks.phantom_mri import CONTRASTS, KINDS, draw_volume
from benchmarks.phantom_mri_presets import PRESETS, configure
from benchmarks.phantom_mri_release import write_sources
from benchmarks.phantom_mri_wording import FORMS
from benchmarks.sgmri import ANSWER_TYPES, TASKS

ORGANS = ("brain", "knee")
TAG = re.compile(r"<bbx>\[(\d+),(\d+),(\d+),(\d+)\]</bbx>")


def sources(folder: Path, preset: str = "tiny", *settings: str) -> Path:
    write_sources(configure(preset, settings), folder)
    return folder


@pytest.fixture(scope="module", params=["tiny", "full", "demo_mri"])
def written(request, tmp_path_factory) -> Path:
    settings = {"full": ["train=4", "val=3"], "demo_mri": ["train=8", "val=4"]}.get(request.param, [])
    return sources(tmp_path_factory.mktemp(request.param), request.param, *settings)


def digest(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def table(folder: Path, organ: str) -> list[dict[str, str]]:
    with (folder / f"annotations/{organ}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def boxes(folder: Path, organ: str) -> dict[tuple[str, int], list[tuple[str, tuple[int, ...]]]]:
    """(file, slice from 0) -> label and box, as the tables have them."""
    found: dict[tuple[str, int], list[tuple[str, tuple[int, ...]]]] = {}
    for row in table(folder, organ):
        if row["x"]:
            box = tuple(int(row[name]) for name in ("x", "y", "width", "height"))
            found.setdefault((row["file"], int(row["slice"])), []).append((row["label"].strip(), box))
    return found


def questions(folder: Path, organ: str, level: str) -> list[dict]:
    found = []
    for split in ("train", "val"):
        name = f"gpt4o_{organ}_{split}_{level}_qa_{level}_qa_pairs.json"
        found += json.loads((folder / "release/data_generation/qa_reasoning_data" / organ / name).read_text())
    return found


def volumes(folder: Path) -> dict[str, np.ndarray]:
    """Name -> slices as the published preparation shows them: rows reversed."""
    found = {}
    for path in folder.glob("hdf5/multicoil_*/*.h5"):
        with h5py.File(path) as file:
            found[path.stem] = file["reconstruction_rss"][()][:, ::-1]
    return found


def test_the_same_config_gives_the_same_bytes(tmp_path):
    first, second = (digest(sources(tmp_path / name, "tiny", "train=3", "val=1")) for name in "ab")
    assert first == second
    other = digest(sources(tmp_path / "c", "tiny", "train=3", "val=1", "seed=1"))
    assert set(other) == set(first)
    assert all(other[name] != first[name] for name in first)


@pytest.mark.parametrize("organ", ORGANS)
def test_a_volume_does_not_depend_on_how_many_there_are(organ):
    few, many = (draw_volume(configure("tiny", [f"train={n}"]), organ, 5) for n in (1, 500))
    assert np.array_equal(few.pixels, many.pixels)
    assert few.findings == many.findings


def test_volumes_have_the_real_form(written):
    for name, pixels in volumes(written).items():
        assert pixels.dtype == np.float32
        assert pixels.ndim == 3
        assert pixels.min() >= 0
        assert name.startswith("file_brain_AX") or re.fullmatch(r"file9\d{6}", name)


def test_full_volumes_have_the_real_sizes(tmp_path):
    found = volumes(sources(tmp_path, "full", "train=4", "val=0"))
    brain = {name: pixels.shape for name, pixels in found.items() if "brain" in name}
    assert {shape[1:] for name, shape in brain.items() if "FLAIR" in name} == {(256, 256)}
    assert {shape[1:] for name, shape in brain.items() if "T1" in name} == {(320, 320)}
    assert all(14 <= shape[0] <= 16 for shape in brain.values())
    assert all(28 <= found[name].shape[0] <= 36 for name in found if name not in brain)


@pytest.mark.parametrize("organ", ORGANS)
def test_every_box_of_the_tables_encloses_its_finding_and_nothing_else_is_upright(written, organ):
    """Brightness inside a box is the kind's, once rows are reversed; as stored, boxes often miss."""
    exponent, _ = CONTRASTS[PRESETS[written.name.rstrip("0123456789")].contrast]
    brightness = {kind.label: kind.brightness**exponent for kind in KINDS[organ]}
    shown = volumes(written)
    misses = 0
    for (name, index), found in boxes(written, organ).items():
        picture = shown[name][index] / np.percentile(shown[name][index], 99)
        for label, (x, y, w, h) in found:
            assert 0 <= x < x + w <= picture.shape[1]
            assert 0 <= y < y + h <= picture.shape[0]
            centre = (slice(y + h // 3, y + h - h // 3), slice(x + w // 3, x + w - w // 3))
            assert np.median(picture[centre]) == pytest.approx(brightness[label], abs=0.12)
            misses += abs(float(np.median(picture[::-1][centre])) - brightness[label]) > 0.12
    assert misses > 0


@pytest.mark.parametrize("preset", ["full", "demo_mri"])
@pytest.mark.parametrize("organ", ORGANS)
def test_findings_do_not_overlap_and_knees_have_none_on_the_first_slice(preset, organ):
    config = dataclasses.replace(PRESETS[preset], flair_px=64, t1_px=64, knee_px=64)
    for number in range(40):
        volume = draw_volume(config, organ, number)
        assert organ == "brain" or not volume.on_slice(0)
        for index in range(len(volume.pixels)):
            covered = np.zeros(volume.pixels.shape[1:], int)
            for _, (x, y, w, h) in volume.on_slice(index):
                covered[y : y + h, x : x + w] += 1
            assert covered.max() <= 1


@pytest.mark.parametrize("organ", ORGANS)
def test_questions_have_all_tasks_and_the_fields_of_their_level(written, organ):
    for level in ("image", "volume"):
        rows = questions(written, organ, level)
        assert {row["task"] for row in rows} == set(TASKS[level])
        assert {row["type"] for row in rows} <= set(ANSWER_TYPES)
        assert {row["level"] for row in rows} == {"slice" if level == "image" else "volume"}
        assert len({(row["volume_id"], row.get("slice_num"), row["task"]) for row in rows}) == len(rows)
        for row in rows:
            assert all(isinstance(row[name], str) for name in ("question", "answer", "reasoning"))
            assert row["question"]
            assert row["answer"]
            assert ("choices" in row) == (organ == "brain" and row["type"].endswith("choice"))


def test_all_answer_types_occur(tmp_path):
    sources(tmp_path, "tiny", "train=30", "val=0")
    for organ in ORGANS:
        for level in ("image", "volume"):
            assert {row["type"] for row in questions(tmp_path, organ, level)} == set(ANSWER_TYPES)


@pytest.mark.parametrize("organ", ORGANS)
def test_image_questions_agree_with_the_tables(written, organ):
    truth = boxes(written, organ)
    depths = {name: len(pixels) for name, pixels in volumes(written).items()}
    for row in questions(written, organ, "image"):
        frame = row["slice_num"]
        assert 1 <= frame <= depths[row["volume_id"]]
        assert row["image_path"].endswith(f"/{row['volume_id']}/{row['volume_id']}_slice_{frame:03d}.png")
        found = truth.get((row["volume_id"], frame - 1), [])
        stated = [
            (box["label"], (box["x"], box["y"], box["width"], box["height"])) for box in row["ground_truth"]["bboxes"]
        ]
        assert sorted(stated) == sorted(found)
        labels = sorted({label for label, _ in found}) or ["Normal"]
        assert row["ground_truth"]["labels"] == row["ground_truth"]["diagnosis"] == labels
        check_answer(row, {frame: found} if found else {}, labels)


def test_volume_rows_list_their_boxes_where_asked(tmp_path):
    sources(tmp_path, "tiny", "volume_boxes=true")
    for organ in ORGANS:
        truth = boxes(tmp_path, organ)
        for row in questions(tmp_path, organ, "volume"):
            stated = [
                (box["frame"], box["label"], (box["x"], box["y"], box["width"], box["height"]))
                for box in row["ground_truth"]["bboxes"]
            ]
            found = [
                (index + 1, label, box)
                for (name, index), items in truth.items()
                if name == row["volume_id"]
                for label, box in items
            ]
            assert sorted(stated) == sorted(found)


@pytest.mark.parametrize("organ", ORGANS)
def test_volume_questions_agree_with_the_tables(written, organ):
    truth = boxes(written, organ)
    depths = {name: len(pixels) for name, pixels in volumes(written).items()}
    for row in questions(written, organ, "volume"):
        assert row["num_slices"] == depths[row["volume_id"]]
        frames = {index + 1: found for (name, index), found in truth.items() if name == row["volume_id"]}
        labels = sorted({label for found in frames.values() for label, _ in found}) or ["Normal"]
        if frames:
            assert row["ground_truth"]["final_diagnosis"] == labels
        check_answer(row, frames, labels)


def check_answer(row: dict, frames: dict[int, list], labels: list[str]) -> None:
    """The answer is what the boxes say, by task and type."""
    normal = labels == ["Normal"]
    if row["task"] == "localization":
        assert tagged(row["answer"]) == {
            frame if row["level"] == "volume" else None: sorted(box for _, box in found)
            for frame, found in frames.items()
        }
    elif row["task"] == "counting":
        number = sum(map(len, frames.values())) if row["modality"] != "knee" else len(set(labels) - {"Normal"})
        assert row["answer"] == str(number)
    elif row["type"] == "closed_ended":
        assert row["answer"] in ("Yes", "No")
        named = [
            label for kinds in KINDS.values() for k in kinds if (label := k.label).lower() in row["question"].lower()
        ]
        assert row["answer"] == ("Yes" if ((set(named) & set(labels)) if named else not normal) else "No")
    elif row["type"].endswith("choice"):
        options = dict(re.findall(r"^([A-D])\) (.+)$", row["question"], re.MULTILINE))
        assert row.get("choices", options) == options
        letters = row["answer"].split(", ")
        assert len(letters) == 1 or row["type"] == "multiple_choice"
        assert sorted(options[letter] for letter in letters) == labels
    elif row["task"] != "captioning":
        assert [row["answer"]] == labels


def tagged(answer: str) -> dict[int | None, list[tuple[int, ...]]]:
    """Frame, if there are frames, -> boxes of an answer."""
    found: dict[int | None, list[tuple[int, ...]]] = {}
    for part in answer.split("; "):
        frame = re.search(r"Frame (\d+): <", part)
        for box in TAG.findall(part):
            found.setdefault(int(frame[1]) if frame else None, []).append(tuple(map(int, box)))
    return {frame: sorted(items) for frame, items in found.items()}


def test_normal_volumes_and_slices_exist_and_are_in_the_tables(written):
    for organ in ORGANS:
        rows = table(written, organ)
        names = {row["file"] for row in rows}
        assert names == {name for name in volumes(written) if ("brain" in name) == (organ == "brain")}
        for row in rows:
            assert (row["study_level"] == "Yes") == (row["x"] == "")
            assert row["study_level"] == "No" or row["slice"] == "0"
        assert any(row["ground_truth"]["labels"] == ["Normal"] for row in questions(written, organ, "image"))


def test_shares_are_as_asked(tmp_path):
    sources(tmp_path, "demo_mri", "train=150", "val=0")
    answers: Counter[str] = Counter()
    for organ in ORGANS:
        healthy = sum(row["label"] in ("Normal for age", "artifact") for row in table(tmp_path, organ))
        assert 0.12 < healthy / 150 < 0.28
        rows = questions(tmp_path, organ, "image")
        normal = sum(row["ground_truth"]["labels"] == ["Normal"] for row in rows) / len(rows)
        assert 0.3 < normal < 0.6
        answers.update(row["answer"] for row in rows if row["task"] == "detection")
    assert 0.4 < answers["Yes"] / answers.total() < 0.6


def test_joint_effusion_ends_in_a_blank_in_the_table_only(tmp_path):
    sources(tmp_path, "tiny", "train=12", "val=0")
    labels = {row["label"] for row in table(tmp_path, "knee")}
    assert "Joint Effusion " in labels
    assert "Joint Effusion" not in labels
    assert "Joint Effusion " not in json.dumps([row["ground_truth"] for row in questions(tmp_path, "knee", "image")])


def test_the_fault_moves_knee_questions_one_frame_early_and_nothing_else(tmp_path):
    """Published fault: the volume metadata take the tables' slice, from 0, as a frame, from 1."""
    true, faulty = (sources(tmp_path / name, "tiny", f"knee_fault={name}") for name in ("false", "true"))
    changed = {name for name, value in digest(true).items() if digest(faulty)[name] != value}
    assert {name.split("/")[-2] for name in changed} == {"knee"}
    assert all("qa_pairs" in name for name in changed)
    pairs = list(zip(questions(true, "knee", "volume"), questions(faulty, "knee", "volume"), strict=True))
    moved = [(tagged(a["answer"]), tagged(b["answer"])) for a, b in pairs if a["task"] == "localization"]
    assert any(before for before, _ in moved)
    for before, after in moved:
        assert after == {frame - 1: found for frame, found in before.items()}
    truth = boxes(faulty, "knee")
    for row in questions(faulty, "knee", "image"):
        stated = [
            (box["label"], (box["x"], box["y"], box["width"], box["height"])) for box in row["ground_truth"]["bboxes"]
        ]
        assert sorted(stated) == sorted(truth.get((row["volume_id"], row["slice_num"]), []))
    assert PRESETS["faulty"].knee_fault
    assert not any(PRESETS[name].knee_fault for name in PRESETS if name != "faulty")


def test_the_base_knows_other_volumes_than_the_demo():
    base, demo = PRESETS["demo_base_mri"], PRESETS["demo_mri"]
    assert base.seed != demo.seed
    assert base.contrast != demo.contrast
    first, second = (dataclasses.asdict(FORMS[config.wording]) for config in (base, demo))
    del first["place"], second["place"]
    assert all(first.pop(name) != second.pop(name) for name in ("located", "described"))
    assert all(not set(first[name]) & set(second[name]) for name in first)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["trian=3"], "did you mean train="),
        (["normal_share=2"], "normal_share=2.0 is not between 0 and 1"),
        (["brain_slices_min=9", "brain_slices_max=8"], "brain_slices_min=9 is above brain_slices_max=8"),
        (["contrast=loud"], "contrast=loud is not one of linear, compressed"),
        (["kinds=9"], "kinds=9 is not between 1 and 5"),
    ],
)
def test_a_wrong_setting_is_named(settings, message):
    with pytest.raises(DataError, match=re.escape(message)):
        configure("tiny", settings)


def test_the_command_says_what_comes_next(tmp_path, capsys):
    assert main(["phantom-mri", str(tmp_path), "--preset", "tiny", "train=1", "val=1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"wrote {tmp_path}: 1 + 1 volumes of brain and of knee, seed 0"
    assert "boxes of knee volumes one frame early" in lines[1]
    assert "prepare sgmri" in lines[2]
    assert len(list(tmp_path.glob("hdf5/*/*.h5"))) == 4


@pytest.mark.parametrize(("setting", "offset"), [("knee_fault=true", True), ("volume_boxes=true", False)])
def test_the_next_command_gives_boxes_on_their_slices(tmp_path, capsys, setting, offset):
    assert main(["phantom-mri", str(tmp_path), "--preset", "tiny", "train=1", "val=1", setting]) == 0
    _, following = capsys.readouterr().out.splitlines()
    assert following.endswith("knee_slice_offset=1") == offset
