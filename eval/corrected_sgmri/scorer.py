"""The corrected SGMRI-VQA scorer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from benchmarks.predictions import Prediction
from benchmarks.schema import Answer, Record
from benchmarks.sgmri import YES_NO, level_and_task
from collators.codecs.base import Codec, CodecError
from eval.corrected.tolerant import read_tolerantly
from eval.corrected_sgmri.faults import FAULTS
from eval.corrected_sgmri.rows import DETECTION, Run, check_record, detection_label, score_row
from eval.corrected_sgmri.texts import parts_of
from eval.schema import Fault
from eval.schema_scores import RowResult
from eval.scorer import ScoredRows
from eval.sgmri.marks import TextMarks

STRATA = ("organ", "modality", "answer_type")


class SgmriScorer:
    """Scores all tasks of both levels, whatever the codec.

    Values of a row, each asked or not by the record alone: `a_score` (all tasks but localization and captioning);
    `v_score` and the other box metrics (localization and captioning with target boxes; those of frames at volume level);
    `ar_score` and its parts (localization and captioning).
    """

    accuracy = "exact_match"
    faults: tuple[Fault, ...] = FAULTS

    def score(
        self,
        records: Sequence[Record],
        predictions: Sequence[Prediction],
        codec: Codec,
        *,
        marks: Mapping[str, TextMarks] | None = None,
    ) -> ScoredRows:
        """Scores predictions that are in the order of the records.

        Args:
            records: The records.
            predictions: Their predictions.
            codec: The codec that read them.
            marks: Record id -> what a judge and BERTScore said; the AR-Score then has these parts.

        Raises:
            DataError: A record whose task the benchmark does not have.
        """
        for record in records:
            check_record(record)
        said = dict(marks or {})
        run = Run(labels=_writes_labels(codec, records), parts=parts_of(said))
        strict, tolerant = [], []
        for record, prediction in zip(records, predictions, strict=True):
            row = score_row(record, prediction, prediction.answer, run, said.get(record.id))
            second = _reread(record, prediction, codec, run) or row
            strict.append(msgspec.structs.replace(row, tolerant_valid=second.valid))
            tolerant.append(second)
        return ScoredRows(strict=tuple(strict), tolerant=tuple(tolerant))

    def labels(self, task: str, records: Sequence[Record]) -> tuple[str, ...]:  # noqa: ARG002 - fixed by the benchmark
        """Yes and no of detection; other tasks have answers, but no classes."""
        return YES_NO if task.endswith(f"_{DETECTION}") else ()

    def pair(self, labels: tuple[str, ...]) -> tuple[str, str] | None:
        """The classes of detection."""
        return YES_NO if labels == YES_NO else None

    def class_name(self, text: str) -> str:
        """Yes and no in the benchmark's spelling."""
        return {name.casefold(): name for name in YES_NO}.get(text.strip().casefold(), text)

    def label(self, record: Record) -> str | None:
        """The class of a detection record."""
        return detection_label(record)

    def strata(self, records: Sequence[Record]) -> tuple[str, ...]:
        """The benchmark's strata that occur in the records."""
        return tuple(key for key in STRATA if any(key in record.strata for record in records))


def _reread(record: Record, prediction: Prediction, codec: Codec, run: Run) -> RowResult | None:
    """The row of an invalid text after tolerant reading; no judge has seen it."""
    if prediction.text is None or prediction.invalid is None:
        return None
    answer = read_tolerantly(prediction.text, codec, record.ask())
    return None if answer is None else score_row(record, prediction, answer, run, None)


def _writes_labels(codec: Codec, records: Sequence[Record]) -> bool:
    """Whether labels of boxes survive the codec, seen by the first record that has one to write."""
    for record in records:
        if level_and_task(record)[1] == "localization" and any(box.label for box in record.target.boxes):
            try:
                answer = codec.decode(codec.encode(record.target, record.ask()), record.ask())
            except CodecError:
                continue
            return isinstance(answer, Answer) and any(box.label for box in answer.boxes)
    return True
