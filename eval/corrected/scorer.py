"""The corrected ScintiGround scorer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from benchmarks.predictions import Prediction
from benchmarks.schema import Record
from benchmarks.scintiground_text import CLASS_WORDS
from collators.codecs.base import Codec
from eval.corrected.faults import FAULTS
from eval.corrected.rows import check_record, score_row
from eval.corrected.tolerant import read_tolerantly
from eval.schema import Fault
from eval.schema_scores import RowResult
from eval.scorer import ScoredRows
from eval.sgmri.marks import TextMarks

STRATA = ("view_scope", "region_level", "region", "label_conflict")


class ScintiGroundScorer:
    """Scores `vqa`, `grounding` and `grounded_vqa` records, whatever the codec."""

    accuracy = "accuracy"
    faults: tuple[Fault, ...] = FAULTS

    def score(
        self,
        records: Sequence[Record],
        predictions: Sequence[Prediction],
        codec: Codec,
        *,
        marks: Mapping[str, TextMarks] | None = None,  # noqa: ARG002 - of texts, which are not graded here
    ) -> ScoredRows:
        """Scores predictions that are in the order of the records.

        Raises:
            DataError: A record that the benchmark does not allow.
        """
        strict, tolerant = [], []
        for record, prediction in zip(records, predictions, strict=True):
            check_record(record)
            row = score_row(record, prediction, prediction.answer)
            second = row if row.valid else _reread(record, prediction, codec, row)
            strict.append(msgspec.structs.replace(row, tolerant_valid=second.valid))
            tolerant.append(second)
        return ScoredRows(strict=tuple(strict), tolerant=tuple(tolerant))

    def labels(self, task: str, records: Sequence[Record]) -> tuple[str, ...]:  # noqa: ARG002 - fixed by the benchmark
        """Classes of a task, the positive one first."""
        return CLASS_WORDS.get(task, ())

    def pair(self, labels: tuple[str, ...]) -> tuple[str, str] | None:
        """The classes of a task with two."""
        return (labels[0], labels[1]) if len(labels) == 2 else None

    def class_name(self, text: str) -> str:
        """The class as it is: the benchmark allows one spelling."""
        return text

    def label(self, record: Record) -> str | None:
        """The record's class."""
        return record.target.label

    def strata(self, records: Sequence[Record]) -> tuple[str, ...]:
        """The benchmark's strata that occur in the records."""
        return tuple(key for key in STRATA if any(key in record.strata for record in records))


def _reread(record: Record, prediction: Prediction, codec: Codec, row: RowResult) -> RowResult:
    if prediction.text is None or prediction.invalid is None:
        return row
    answer = read_tolerantly(prediction.text, codec, record.ask())
    return row if answer is None else score_row(record, prediction, answer)
