"""One scored row, and the pairing of rows with outputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from benchmarks.scintiground_text import BOX_TASKS, CLASS_WORDS, TASKS, TEXT_VIEWS, region_text
from eval.scintiground.parse import XYXY, Lenient, LenientBox, Row, is_valid, parse_lenient

HIT = 0.5


class Counts(NamedTuple):
    """What a task's block is made from; all counts of rows except the four of targets.

    Attributes:
        rows: Rows of the task.
        valid: Rows with a valid output.
        unread: Rows whose class is `None`.
        positives: Rows whose label is the positive word.
        negatives: Rows whose label is the negative word.
        tp: Positives called positive.
        tn: Negatives called negative.
        fp: Negatives called positive.
        regions: Rows with the right region.
        strict: Rows that are right in every respect.
        targets: Target boxes.
        boxes: Targets with a box in their view.
        hits: Targets with an IoU of at least one half.
        iou_sum: Sum of IoU over the targets.
    """

    rows: int = 0
    valid: int = 0
    unread: int = 0
    positives: int = 0
    negatives: int = 0
    tp: int = 0
    tn: int = 0
    fp: int = 0
    regions: int = 0
    strict: int = 0
    targets: int = 0
    boxes: int = 0
    hits: int = 0
    iou_sum: float = 0.0


@dataclass(frozen=True, kw_only=True)
class ScoredRow:
    """The published judgement of one output.

    Attributes:
        row: The official row.
        lenient: What the lenient parse found.
        valid: Published validity.
        label: The class that counts, `None` if unread; for `vqa` an invalid output counts too.
        region_correct: The region has the row's label, spelled with underscores.
        ious: One a target of the row, in the row's order; empty for `vqa`.
        boxes: Targets for which the output has a box in that view.
    """

    row: Row
    lenient: Lenient
    valid: bool
    label: str | None = None
    region_correct: bool = False
    ious: tuple[float, ...] = ()
    boxes: int = 0

    @property
    def label_correct(self) -> bool:
        """The class that counts is the row's."""
        return self.label is not None and self.label == self.row.get("answer_label")

    @property
    def strict(self) -> bool:
        """Every target found with an IoU of at least one half, the region right and, if asked, the class."""
        found = self.region_correct and all(iou >= HIT for iou in self.ious)
        return found and (self.row["task"] == "grounding" or self.label_correct)

    @cached_property
    def counts(self) -> Counts:
        """The counts of this row alone, kept: report, strata and bootstrap all add them up."""
        return row_counts(self)


def row_counts(scored: ScoredRow) -> Counts:
    """The counts of a single row."""
    task = scored.row["task"]
    boxed = task in BOX_TASKS
    positive, negative = CLASS_WORDS.get(task, (None, None))
    target, label = scored.row.get("answer_label"), scored.label
    is_positive = positive is not None and target == positive
    is_negative = negative is not None and target == negative
    return Counts(
        rows=1,
        valid=int(scored.valid),
        unread=int(label is None),
        positives=int(is_positive),
        negatives=int(is_negative),
        tp=int(is_positive and label == positive),
        tn=int(is_negative and label == negative),
        fp=int(is_negative and label == positive),
        regions=int(scored.region_correct),
        strict=int(boxed and scored.strict),
        targets=len(scored.ious),
        boxes=scored.boxes,
        hits=sum(iou >= HIT for iou in scored.ious),
        iou_sum=sum(scored.ious),
    )


def score_row(row: Row, text: object) -> ScoredRow:
    """Scores one text.

    Raises:
        ValueError: Unknown task.
        TypeError, OverflowError: Where the published scorer stops (`eval.scintiground.parse`).
    """
    task = row["task"]
    if task not in TASKS:
        raise ValueError(f"Unknown task: {task}")
    lenient = parse_lenient(text)
    valid = is_valid(text, row)
    label = _label(lenient, task, valid=valid)
    if task not in BOX_TASKS:
        return ScoredRow(row=row, lenient=lenient, valid=valid, label=label)
    boxes = lenient.boxes if valid else ()
    return ScoredRow(
        row=row,
        lenient=lenient,
        valid=valid,
        label=label,
        region_correct=valid and lenient.region == region_text(row["label"]),
        ious=target_ious(row, boxes),
        boxes=count_boxed_targets(row, boxes),
    )


def _label(lenient: Lenient, task: str, *, valid: bool) -> str | None:
    if task == "vqa":
        word = (lenient.label or "").strip().lower() if lenient.task == "vqa" else ""
        return word if word in CLASS_WORDS["vqa"] else None
    return lenient.label if valid and task in CLASS_WORDS else None


def targets(row: Row) -> Sequence[Mapping[str, Any]]:
    """The row's target boxes, `view` as in rows."""
    return row.get("targets") or ()


def target_ious(row: Row, boxes: Iterable[LenientBox]) -> tuple[float, ...]:
    """IoU of each target with the box of its view; no box gives 0, of several the last counts."""
    by_view = {box.view: box.bbox for box in boxes}
    return tuple(_target_iou(target, by_view) for target in targets(row))


def _target_iou(target: Mapping[str, Any], by_view: Mapping[str | None, XYXY]) -> float:
    bbox = by_view.get(_text_view(target))
    return 0.0 if bbox is None else box_iou(target["bbox"], bbox)


def count_boxed_targets(row: Row, boxes: Iterable[LenientBox]) -> int:
    """Number of targets for whose view there is a box."""
    views = {box.view for box in boxes}
    return sum(_text_view(target) in views for target in targets(row))


def _text_view(target: Mapping[str, Any]) -> str:
    return TEXT_VIEWS.get(target["view"], target["view"])


def box_iou(a: Sequence[float], b: Sequence[float]) -> float:
    """Intersection over union of two `(x1, y1, x2, y2)` boxes, in [0, 1].

    Coordinates are continuous (no pixel is added to a side); an empty union gives 0.
    """
    width = max(0.0, min(a[2], b[2]) - max(a[0], b[0]))
    height = max(0.0, min(a[3], b[3]) - max(a[1], b[1]))
    overlap = width * height
    union = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - overlap
    return overlap / union if union > 0 else 0.0


def pair(rows: Iterable[Row], outputs: Mapping[str, object]) -> list[tuple[Row, object]]:
    """Joins rows and outputs by `task_id`; a later row with the same id replaces the earlier one.

    Raises:
        ValueError: The ids are not exactly the same.
    """
    by_id = {row["task_id"]: row for row in rows}
    if by_id.keys() != outputs.keys():
        raise ValueError("Predictions must cover expected task_id values exactly")
    return [(row, outputs[task_id]) for task_id, row in by_id.items()]


def score_rows(rows: Iterable[Row], outputs: Mapping[str, object]) -> list[ScoredRow]:
    """Pairs and scores; in the order of the rows.

    Raises:
        ValueError, TypeError, OverflowError: As `pair` and `score_row`.
    """
    return [score_row(row, text) for row, text in pair(rows, outputs)]
