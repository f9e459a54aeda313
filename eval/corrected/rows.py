"""Scoring one ScintiGround record: corrected validity, class, IoU per asked view, strict hits.

The decoded answer is scored, so the rules hold for every codec. They are checked again here because
codecs differ in what they can express: one that carries a box for a view that was not asked, say,
yields an answer that this benchmark calls invalid.
"""

from __future__ import annotations

import msgspec

from benchmarks.errors import DataError
from benchmarks.predictions import Prediction
from benchmarks.schema import Answer, Box, Record
from benchmarks.scintiground_text import BOX_TASKS, CLASS_WORDS, TASKS
from eval.boxes import iou
from eval.schema_scores import RowResult

STRICT_IOU = 0.5


def check_record(record: Record) -> None:
    """Refuses a record that this scorer cannot count.

    Raises:
        DataError: Unknown task, class label that the task does not have, no target box where boxes are
            asked, or two target boxes in one view.
    """
    where = record.place
    if record.task not in TASKS:
        raise DataError(
            f"task {record.task!r} is not one of {', '.join(TASKS)}",
            where=f"{where}, field task",
            fix="prepare the data as benchmark `generic`, whose scorer takes any task",
        )
    classes = CLASS_WORDS.get(record.task, ())
    if classes and record.target.label not in classes:
        raise DataError(
            f"class label {record.target.label!r} is not one of {', '.join(classes)}: it would count in no class",
            where=f"{where}, field target.label",
            fix="mend the label in the release and prepare again",
        )
    if record.task in BOX_TASKS:
        views = [box.image for box in record.target.boxes]
        if not views or len(set(views)) < len(views):
            raise DataError(
                f"a {record.task} record has exactly one target box in each asked view; "
                f"this one has boxes in images {views}",
                where=f"{where}, field target.boxes",
                fix="mend the boxes, or prepare the data as benchmark `generic`, which takes several per image",
            )


def answer_fault(answer: Answer, record: Record) -> str | None:
    """Why an answer is invalid for this record: a short stable name, or `None` if it is valid."""
    classes = CLASS_WORDS.get(record.task, ())
    if classes and answer.label not in classes:
        return "invalid_class"
    # A codec without a sentence (yes/no, a letter) leaves the text out; a blank one is no answer.
    if classes and answer.text is not None and not answer.text.strip():
        return "invalid_answer"
    return _box_fault(answer.boxes, record) if record.task in BOX_TASKS else None


def _box_fault(boxes: tuple[Box, ...], record: Record) -> str | None:
    if not boxes:
        return "invalid_boxes"
    views = [box.image for box in boxes]
    if len(set(views)) < len(views):
        return "duplicate_box_view"
    for box in boxes:
        if not 0 <= box.image < len(record.images):
            return "view_not_shown"
        image = record.images[box.image]
        if box.xyxy[0] < 0 or box.xyxy[1] < 0 or box.xyxy[2] > image.width or box.xyxy[3] > image.height:
            return "box_outside_image"
    asked = {box.image for box in record.target.boxes}
    if asked - set(views):
        return "missing_view"
    return "extra_view" if set(views) - asked else None


def score_row(record: Record, prediction: Prediction, answer: Answer | None) -> RowResult:
    """Scores one record.

    Args:
        record: The record.
        prediction: Its row of the prediction file.
        answer: The answer to score: the row's own, or one read tolerantly from its text.
    """
    if prediction.error is not None:
        return RowResult(
            id=record.id, task=record.task, group=record.group, valid=False, error=prediction.error, reason="error"
        )
    if answer is None:
        # A text that the token limit ended was not given the chance to become valid: its own reason.
        reason = "truncated" if prediction.finish == "length" else prediction.invalid
    else:
        reason = answer_fault(answer, record)
    valid = answer if answer is not None and reason is None else None
    label = record.target.label if CLASS_WORDS.get(record.task, ()) else None
    class_correct = (valid is not None and valid.label == label) if label is not None else None
    result = RowResult(
        id=record.id,
        task=record.task,
        group=record.group,
        valid=valid is not None,
        reason=reason,
        label=label,
        predicted=valid.label if valid is not None and label is not None else None,
        class_correct=class_correct,
    )
    return _with_boxes(result, record, valid) if record.task in BOX_TASKS else result


def _with_boxes(row: RowResult, record: Record, answer: Answer | None) -> RowResult:
    """Adds IoUs, region and strict hits; `answer` is `None` if the output is invalid."""
    given = {box.image: box for box in answer.boxes} if answer is not None else {}
    ious = tuple(
        iou(target.xyxy, given[target.image].xyxy) if target.image in given else 0.0 for target in record.target.boxes
    )
    region = record.target.boxes[0].label or record.strata.get("region")
    region_correct = None
    if region is not None:
        region_correct = bool(given) and all(fold_region(box.label) == fold_region(region) for box in given.values())
    strict = all(value >= STRICT_IOU for value in ious) and row.class_correct is not False
    return msgspec.structs.replace(
        row,
        ious=ious,
        region_correct=region_correct,
        strict=strict,
        strict_with_region=None if region_correct is None else strict and region_correct,
    )


def fold_region(name: str | None) -> str:
    """A region name without the differences that are spelling only."""
    return " ".join((name or "").replace("_", " ").casefold().split())
