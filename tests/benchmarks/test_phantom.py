"""The synthetic benchmark: deterministic, consistent, and in the official form."""

from __future__ import annotations

import hashlib
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from benchmarks.dataset import read_records
from benchmarks.phantom import LAYOUTS, REGIONS, VIEWS, PhantomConfig, draw_patient
from benchmarks.phantom_presets import PRESETS, configure
from benchmarks.phantom_release import write_release
from benchmarks.phantom_wording import FORMS, SPOKEN
from benchmarks.prepare import prepare

SMALL = {"width": 64, "height": 128}


def digest(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_the_same_config_gives_the_same_bytes(tmp_path):
    config = PhantomConfig(train=3, val=1, test=1, **SMALL)
    for name in ("a", "b"):
        write_release(config, tmp_path / name)
    write_release(PhantomConfig(seed=1, train=3, val=1, test=1, **SMALL), tmp_path / "c")
    assert digest(tmp_path / "a") == digest(tmp_path / "b")
    assert digest(tmp_path / "a") != digest(tmp_path / "c")


def test_a_patient_does_not_depend_on_how_many_there_are():
    one, many = (draw_patient(PhantomConfig(train=n, **SMALL), 3) for n in (4, 400))
    assert all(np.array_equal(one.images[view], many.images[view]) for view in VIEWS)
    assert one.regions == many.regions


@pytest.mark.parametrize("size", [(64, 128), (256, 1024)], ids=["small", "full"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_boxes_lie_inside_and_spots_in_their_region(size, layout):
    config = PhantomConfig(width=size[0], height=size[1], layout=layout)
    for number in range(30):
        patient = draw_patient(config, number)
        for view in VIEWS:
            assert patient.images[view].shape == (size[1], size[0])
            for x1, y1, x2, y2 in (patient.regions[region][view] for region in REGIONS):
                assert 0 <= x1 < x2 <= size[0]
                assert 0 <= y1 < y2 <= size[1]
        for spot in patient.hotspots:
            for view, (x1, y1, x2, y2) in spot.boxes.items():
                left, top, right, bottom = patient.regions[spot.region][view]
                assert left - 1 <= x1 < x2 <= right + 1
                assert top - 1 <= y1 < y2 <= bottom + 1


def test_spots_are_as_bright_as_their_class_says():
    """Contrast is what the closed questions are about: abnormal spots are brighter than faint ones and bone."""
    means: dict[bool, list[float]] = {True: [], False: []}
    for number in range(40):
        patient = draw_patient(PhantomConfig(**SMALL), number)
        for spot in patient.hotspots:
            for view, (x1, y1, x2, y2) in spot.boxes.items():
                means[spot.abnormal].append(float(np.percentile(patient.images[view][y1:y2, x1:x2], 80)))
    assert min(means[True]) > max(means[False]) + 40


@pytest.mark.parametrize(("share", "low", "high"), [(0.1, 0.05, 0.2), (0.5, 0.38, 0.6)])
def test_class_imbalance_is_as_asked(share, low, high, tmp_path):
    write_release(PhantomConfig(train=150, val=0, test=0, abnormal_share=share, **SMALL), tmp_path / "release")
    prepare("scintiground", tmp_path / "release", tmp_path / "data", image_check=False)
    labels = Counter(
        record.target.label
        for record in read_records(tmp_path / "data", "train")
        if record.task != "grounding" and record.strata["region_level"] == "bone_region"
    )
    positive = labels["yes"] + labels["abnormal"]
    assert low < positive / sum(labels.values()) < high


def test_release_has_every_kind_of_row(phantom_data):
    records = [record for split in ("train", "val", "test") for record in read_records(phantom_data, split)]
    kinds = {(record.task, record.strata["region_level"]) for record in records}
    assert {(task, "bone_region") for task in ("vqa", "grounding", "grounded_vqa")} <= kinds
    assert ("grounding", "metastasis") in kinds
    assert ("vqa", "whole_body") in kinds
    assert {record.strata["view_scope"] for record in records} == {"ANT", "POST", "BOTH"}


@pytest.mark.parametrize("wording", FORMS.values(), ids=FORMS)
def test_wording_has_eight_questions_and_six_answers(wording):
    for family in ("vqa", "grounding", "grounded_vqa", "lesion"):
        assert len(set(wording.questions(family))) == 8
    assert len(set(wording.positive)) == len(set(wording.negative)) == 6
    assert set(SPOKEN) == {*REGIONS, "whole_body"}


def test_the_base_knows_other_phantoms_than_the_demo():
    base, demo = PRESETS["demo_base"], PRESETS["demo"]
    assert base.seed != demo.seed
    assert (base.layout, base.contrast, base.wording) != (demo.layout, demo.contrast, demo.wording)
    questions = [set(FORMS[config.wording].vqa) for config in (base, demo)]
    assert not questions[0] & questions[1]
    assert configure("demo", ["train=5"]).train == 5
