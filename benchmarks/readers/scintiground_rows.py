"""Row types of the ScintiGround release, as far as they are read; msgspec checks them.

Fields of the release that no record needs are left out and ignored.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Task = Literal["vqa", "grounding", "grounded_vqa"]
View = Literal["ANT", "POST"]
Scope = Literal["ANT", "POST", "BOTH"]
Level = Literal["whole_body", "bone_region", "metastasis"]
Split = Literal["train", "val", "test"]


class RowImage(msgspec.Struct, frozen=True):
    """An image of a row; `image_size` is (width, height) in pixels."""

    view: View
    image: str
    image_size: tuple[int, int]


class RowBox(msgspec.Struct, frozen=True):
    """A target box, native pixels of the image of its view."""

    view: View
    bbox: tuple[float, float, float, float]


class MultitaskRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row of `multitask.jsonl`; which of the optional fields it has depends on its task."""

    task_id: str
    task_type: Task
    split: Split
    images: tuple[RowImage, ...]
    label: str
    view_scope: Scope
    region_level: Level
    prompt: str | None = None
    question: str | None = None
    query: str | None = None
    answer: str | None = None
    answer_label: str | None = None
    evidence_id: str | None = None
    patient_id: str | int | None = None
    targets: tuple[RowBox, ...] | None = None
    evidence_targets: tuple[RowBox, ...] | None = None
    interaction_type: str | None = None
    question_form: str | None = None
    label_conflict: bool | str | None = None
    lesion_class: str | None = None


class EvidenceRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row of `paired_evidence.jsonl`."""

    evidence_id: str
    patient_id: str | int
    split: Split


class ExportRow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A row of `multitask_<split>.jsonl`: exactly twelve keys."""

    task_id: str
    task: Task
    split: Split
    patient_id: str
    images: tuple[RowImage, ...]
    prompt: str
    target: str
    answer_label: str | None
    label: str
    targets: tuple[RowBox, ...]
    region_level: Level
    view_scope: Scope


class TargetBox(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A box in a target text, where the posterior view is spelled `PST`."""

    view: Literal["ANT", "PST"]
    bbox: tuple[float, float, float, float]


class TargetText(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"class_": "class"}):
    """The JSON object inside an export row's `target`."""

    task: Task
    answer: str | None = None
    region: str | None = None
    class_: str | None = None
    boxes: tuple[TargetBox, ...] = ()
