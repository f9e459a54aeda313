"""A small release in both official forms, and helpers for the tests of `benchmarks`."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from benchmarks.errors import DataError
from benchmarks.prepare import prepare
from benchmarks.readers.base import Release
from benchmarks.readers.scintiground_export import export_row
from benchmarks.schema import Record

Row = dict[str, Any]
SIZE = (64, 128)


def picture(path: Path, size: tuple[int, int] = SIZE, value: int = 90) -> Path:
    """Writes a grey image with a bright corner."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.full((size[1], size[0]), value, np.uint8)
    pixels[:4, :4] = 250
    Image.fromarray(pixels).save(path)
    return path


def multitask_rows() -> list[Row]:
    """One row of every kind: patients 11 (train), 12 (val) and 13 (test)."""

    def images(patient: str, views: tuple[str, ...] = ("ANT", "POST")) -> list[Row]:
        return [{"view": v, "image": f"bs80k/wholeBody{v}/{patient}.png", "image_size": list(SIZE)} for v in views]

    def row(patient: str, split: str, task: str, scope: str, **rest: Any) -> Row:
        name = task.replace("_", "-")
        return {
            "task_id": f"wbbs:pair:{patient}:left_knee:{name}:{scope.lower()}",
            "task_type": task,
            "split": split,
            "images": images(patient),
            "label": "left knee",
            "view_scope": scope,
            "region_level": "bone_region",
            "evidence_id": f"wbbs:pair:{patient}:left_knee",
            "interaction_type": "classification",
            "question_form": "is",
            "label_conflict": False,
            "schema_version": "r3-multitask-v1",
            **rest,
        }

    ant, post = {"view": "ANT", "bbox": [30, 70, 50, 90]}, {"view": "POST", "bbox": [14, 70, 34, 90]}
    return [
        row("13", "test", "grounding", "BOTH", prompt="Mark it.", query="Mark it.", targets=[ant, post]),
        row(
            "13",
            "test",
            "vqa",
            "ANT",
            prompt="Hot?",
            question="Hot?",
            answer="None — clear.",
            answer_label="no",
            diagnosis_by_view={"ANT": "normal"},
        ),
        row(
            "11",
            "train",
            "grounded_vqa",
            "POST",
            prompt="Judge it.",
            question="Judge it.",
            answer="It is hot.",
            answer_label="abnormal",
            evidence_targets=[post],
            target={"region": {"label": "left knee"}, "locations": [post]},
        ),
        row(
            "11",
            "train",
            "vqa",
            "ANT",
            task_id="bs80k:nidus:11:ANT:0:lesion-vqa",
            prompt="Spot?",
            question="Spot?",
            answer="A spot.",
            answer_label="yes",
            targets=[{"view": "ANT", "bbox": [35, 75, 40, 80]}],
            region_level="metastasis",
            lesion_class="bone_metastasis",
            label_conflict=True,
        ),
        row(
            "12",
            "val",
            "vqa",
            "POST",
            task_id="wbbs:patient:12:whole-body:vqa:post",
            prompt="Anything?",
            question="Anything?",
            answer="Nothing.",
            answer_label="no",
            images=images("12", ("POST",)),
            label="whole_body",
            region_level="whole_body",
            evidence_id=None,
            patient_id="12",
            targets=[],
        ),
    ]


def evidence_rows() -> list[Row]:
    """Evidence of the patients of `multitask_rows`."""
    return [
        {"evidence_id": f"wbbs:pair:{patient}:left_knee", "patient_id": patient, "split": split, "region": "left knee"}
        for patient, split in (("11", "train"), ("12", "val"), ("13", "test"))
    ]


def write_jsonl(path: Path, rows: list[Row]) -> None:
    """Writes rows, one a line."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_images(folder: Path) -> None:
    """Writes the images of the three patients."""
    for patient in ("11", "12", "13"):
        for view in ("ANT", "POST"):
            picture(folder / f"bs80k/wholeBody{view}/{patient}.png")


def write_release(
    folder: Path, change: Callable[[list[Row], list[Row]], None] = lambda rows, evidence: None, *, sums: bool = True
) -> Path:
    """Writes the release form with images; `change` may spoil the rows first."""
    folder.mkdir(parents=True, exist_ok=True)
    rows, evidence = copy.deepcopy(multitask_rows()), copy.deepcopy(evidence_rows())
    change(rows, evidence)
    write_jsonl(folder / "multitask.jsonl", rows)
    write_jsonl(folder / "paired_evidence.jsonl", evidence)
    write_images(folder)
    if sums:
        lines = [
            f"{hashlib.sha256((folder / name).read_bytes()).hexdigest()}  {name}\n"
            for name in ("multitask.jsonl", "paired_evidence.jsonl")
        ]
        (folder / "SHA256SUMS.txt").write_text("".join(lines))
    return folder


def export_rows() -> list[Row]:
    """The twelve-key rows of `multitask_rows`, in the export's order."""
    patients = {row["evidence_id"]: row["patient_id"] for row in evidence_rows()}
    rows = [export_row(row, patient_id=patients.get(row["evidence_id"])) for row in multitask_rows()]
    return sorted(rows, key=lambda row: ("vqa", "grounding", "grounded_vqa").index(row["task"]))


def write_exports(folder: Path, change: Callable[[list[Row]], None] = lambda rows: None) -> Path:
    """Writes the export form with images."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = export_rows()
    change(rows)
    for split in ("train", "val", "test"):
        write_jsonl(folder / f"multitask_{split}.jsonl", [row for row in rows if row["split"] == split])
    write_images(folder)
    return folder


def split_items(release: Release) -> tuple[list[Record], list[DataError]]:
    """Records and faults of an opened release."""
    items = list(release.items)
    return [i for i in items if isinstance(i, Record)], [i for i in items if isinstance(i, DataError)]


def prepared(tmp_path: Path) -> Path:
    """A prepared dataset of the small release."""
    out = tmp_path / "dataset"
    prepare("scintiground", write_release(tmp_path / "release"), out)
    return out
