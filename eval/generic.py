"""The scorer of people's own data: any task, answers compared as wholes, boxes matched per image.

* A record with a label, or with an answer text and no boxes, is right if the predicted label (or text,
  where the codec gives no label) equals it after normalisation. The whole answer is compared: `note` is
  not `no`, and an answer that holds several choices is none of them.
* A record with target boxes is scored by one-to-one matching within each image; a predicted box beyond
  the number of targets in its image counts as one more box with IoU 0.
* Classes are the labels that occur in the targets of a task.
"""

from __future__ import annotations

import string
import unicodedata
from collections.abc import Mapping, Sequence

import msgspec

from benchmarks.predictions import Prediction
from benchmarks.schema import Answer, Record
from collators.codecs.base import Codec
from eval.boxes import match_boxes
from eval.corrected.tolerant import read_tolerantly
from eval.schema import Fault
from eval.schema_scores import RowResult
from eval.scorer import ScoredRows
from eval.sgmri.marks import TextMarks

# Strata with more values than this (an id, a file name) are not strata.
MAX_STRATA = 30
_PUNCTUATION = str.maketrans("", "", string.punctuation.replace("-", "").replace("+", "") + "„“”‚‘’…")


class GenericScorer:
    """Scores records of any benchmark without a scorer of its own."""

    accuracy = "exact_match"
    faults: tuple[Fault, ...] = ()

    def score(
        self,
        records: Sequence[Record],
        predictions: Sequence[Prediction],
        codec: Codec,
        *,
        marks: Mapping[str, TextMarks] | None = None,  # noqa: ARG002 - of texts, which are not graded here
    ) -> ScoredRows:
        """Scores predictions that are in the order of the records."""
        strict, tolerant = [], []
        for record, prediction in zip(records, predictions, strict=True):
            row = score_row(record, prediction, prediction.answer)
            second = row
            if prediction.invalid is not None and prediction.text is not None:
                second = score_row(record, prediction, read_tolerantly(prediction.text, codec, record.ask()))
            strict.append(msgspec.structs.replace(row, tolerant_valid=second.valid))
            tolerant.append(second)
        return ScoredRows(strict=tuple(strict), tolerant=tuple(tolerant))

    def labels(self, task: str, records: Sequence[Record]) -> tuple[str, ...]:
        """The normalised labels of a task's targets, sorted."""
        found = {self.label(record) for record in records if record.task == task}
        return tuple(sorted(label for label in found if label is not None))

    def pair(self, labels: tuple[str, ...]) -> tuple[str, str] | None:
        """`yes` and `no`; of any other two classes nothing says which is the positive one."""
        return ("yes", "no") if labels == ("no", "yes") else None

    def class_name(self, text: str) -> str:
        """The class after normalisation."""
        return normalise(text)

    def label(self, record: Record) -> str | None:
        """The record's normalised label."""
        return normalise(record.target.label) if record.target.label else None

    def strata(self, records: Sequence[Record]) -> tuple[str, ...]:
        """Every stratum with at most 30 values."""
        values: dict[str, set[str]] = {}
        for record in records:
            for key, value in record.strata.items():
                values.setdefault(key, set()).add(value)
        return tuple(key for key, found in sorted(values.items()) if len(found) <= MAX_STRATA)


def normalise(text: str) -> str:
    """An answer without the differences in capitals, punctuation, blanks and Unicode forms.

    Plus and minus signs stay, since they can be the answer. A text of punctuation only stays as it is.
    """
    plain = unicodedata.normalize("NFKC", text).casefold()
    return " ".join(plain.translate(_PUNCTUATION).split()) or plain.strip()


def score_row(record: Record, prediction: Prediction, answer: Answer | None) -> RowResult:
    """Scores one record; `answer` is the row's own answer or one read tolerantly from its text."""
    if prediction.error is not None:
        return RowResult(
            id=record.id, task=record.task, group=record.group, valid=False, error=prediction.error, reason="error"
        )
    reason = None
    if answer is None:
        reason = "truncated" if prediction.finish == "length" else prediction.invalid
    elif any(not 0 <= box.image < len(record.images) for box in answer.boxes):
        reason, answer = "image_not_shown", None
    label = normalise(record.target.label) if record.target.label else None
    expected = label or (normalise(record.target.text) if record.target.text and not record.target.boxes else None)
    given = _given(answer, closed=label is not None)
    ious, extra = _overlaps(record, answer)
    return RowResult(
        id=record.id,
        task=record.task,
        group=record.group,
        valid=answer is not None,
        reason=reason,
        label=label,
        predicted=given if label is not None else None,
        class_correct=None if expected is None else given == expected,
        ious=ious,
        extra_boxes=extra,
    )


def _given(answer: Answer | None, *, closed: bool) -> str | None:
    if answer is None:
        return None
    text = (answer.label or answer.text) if closed else (answer.text or answer.label)
    return normalise(text) if text else None


def _overlaps(record: Record, answer: Answer | None) -> tuple[tuple[float, ...], int]:
    """IoU per target box in the record's order, and the number of predicted boxes beyond the targets."""
    targets = record.target.boxes
    if not targets:
        return (), 0
    predicted = answer.boxes if answer is not None else ()
    ious, extra = [0.0] * len(targets), 0
    for image in range(len(record.images)):
        places = [place for place, box in enumerate(targets) if box.image == image]
        boxes = [box.xyxy for box in predicted if box.image == image]
        for place, value in zip(places, match_boxes([targets[p].xyxy for p in places], boxes), strict=True):
            ious[place] = value
        extra += max(0, len(boxes) - len(places))
    return tuple(ious), extra
