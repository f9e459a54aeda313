"""Scoring one SGMRI-VQA record, whatever the codec: the decoded answer counts, not the text.

What was asked of a record does not depend on its answer, so an invalid output has a 0 wherever a right one would have
had a 1. An answer that cannot be read (neither yes nor no, or both) is invalid too.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import msgspec

from benchmarks.errors import DataError
from benchmarks.predictions import Prediction
from benchmarks.schema import Answer, Record
from benchmarks.sgmri import BOX_TASKS, YES_NO, level_and_task
from eval.corrected_sgmri.answers import Key, key_of, mark
from eval.corrected_sgmri.boxes import box_values, extra, overlaps, place
from eval.corrected_sgmri.texts import Parts, ar_texts, text_values
from eval.schema_scores import RowResult
from eval.sgmri.marks import TextMarks

DETECTION = "detection"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What is the same for all rows of a run.

    Attributes:
        labels: Its codec writes labels of boxes.
        parts: Parts of the AR-Score that it has.
    """

    labels: bool
    parts: Parts


def check_record(record: Record) -> None:
    """Refuses a record that this scorer cannot count.

    Raises:
        DataError: The task is not one of the benchmark.
    """
    try:
        level_and_task(record)
    except ValueError as error:
        raise DataError(
            str(error),
            where=f"{record.place}, field task",
            fix="prepare the data as benchmark `generic`, whose scorer takes any task",
        ) from error


def detection_label(record: Record) -> str | None:
    """The class of a detection record with a yes/no key."""
    if level_and_task(record)[1] != DETECTION:
        return None
    key = key_of(record)
    return str(key.value) if isinstance(key, Key) and key.kind == "yes_no" else None


def score_row(
    record: Record, prediction: Prediction, answer: Answer | None, run: Run, marks: TextMarks | None
) -> RowResult:
    """Scores one record.

    Args:
        record: The record.
        prediction: Its row of the prediction file.
        answer: The answer to score: the row's own, or one read tolerantly from its text.
        run: What the whole run has.
        marks: What a judge and BERTScore said of the answer.
    """
    row = RowResult(id=record.id, task=record.task, group=record.group, valid=answer is not None)
    if prediction.error is not None:
        return msgspec.structs.replace(row, valid=False, error=prediction.error, reason="error")
    if answer is None:
        # A text that the token limit ended was not given the chance to become valid: its own reason.
        reason = "truncated" if prediction.finish == "length" else prediction.invalid
        row = msgspec.structs.replace(row, reason=reason)
    given = answer if answer is not None else Answer()
    if level_and_task(record)[1] in BOX_TASKS:
        return _with_text(_with_boxes(row, record, given, run), record, given, run, marks)
    return _with_answer(row, record, given)


def _with_answer(row: RowResult, record: Record, answer: Answer) -> RowResult:
    key = key_of(record)
    if not isinstance(key, Key):
        return row if key is None else msgspec.structs.replace(row, counts={key: 1})
    found = mark(key, answer, record)
    label = detection_label(record)
    return msgspec.structs.replace(
        row,
        valid=row.valid and found.fault is None,
        reason=row.reason if not row.valid else found.fault,
        label=label,
        predicted=str(found.given) if label is not None and found.given in YES_NO else None,
        class_correct=found.score == 1,
        values={"a_score": found.score},
    )


def _with_boxes(row: RowResult, record: Record, answer: Answer, run: Run) -> RowResult:
    target, given = place(record.target.boxes, record.images), place(answer.boxes, record.images)
    counts = {
        "truth_dropped": target.dropped + target.repeated,
        "box_dropped": given.dropped,
        "box_clipped": given.clipped,
        "box_repeated": given.repeated,
        "box_unplaced": given.unplaced,
        "no_truth_box": int(not target.boxes),
    }
    row = _counted(row, counts)
    if not target.boxes:
        return row
    frames = level_and_task(record)[0] == "volume"
    return msgspec.structs.replace(
        row,
        ious=overlaps(target.boxes, given.boxes),
        extra_boxes=extra(target.boxes, given),
        values=box_values(target, given, frames=frames, labels=run.labels),
    )


def _with_text(row: RowResult, record: Record, answer: Answer, run: Run, marks: TextMarks | None) -> RowResult:
    candidate, reference = ar_texts(record, answer)
    if not reference:
        return _counted(row, {"no_reference": 1})
    found = text_values(candidate, reference, marks, run.parts)
    row = _counted(row, {f"{part}_missing": 1 for part in found.missing})
    return msgspec.structs.replace(row, values=row.values | found.values)


def _counted(row: RowResult, counts: dict[str, int]) -> RowResult:
    """The row with these counts added; zeros are not kept."""
    return msgspec.structs.replace(row, counts=dict(Counter(row.counts) + Counter(counts)))
