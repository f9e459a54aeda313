"""Counts for tables and pictures: invalid outputs, confusion matrices, IoU histograms."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from eval.schema_scores import INVALID, Confusion, InvalidCount, IouHistogram, RowResult

BINS = 20
OTHER = "other"


def invalid_counts(rows: Sequence[RowResult]) -> list[InvalidCount]:
    """Invalid outputs by task and reason, the most frequent first within a task."""
    count = Counter((row.task, row.reason or INVALID) for row in rows if not row.valid and row.error is None)
    ordered = sorted(count.items(), key=lambda item: (item[0][0], -item[1], item[0][1]))
    return [InvalidCount(task=task, reason=reason, count=number) for (task, reason), number in ordered]


def confusion(task: str, rows: Sequence[RowResult], labels: Sequence[str]) -> Confusion:
    """Confusion matrix of a task; a predicted label that no target has is in column `other`."""
    count = Counter((row.label, _predicted(row, labels)) for row in rows if row.label is not None and not row.error)
    has_other = any(predicted == OTHER for _, predicted in count)
    columns = [*labels, *([OTHER] if has_other and OTHER not in labels else []), INVALID]
    return Confusion(
        task=task,
        targets=list(labels),
        predicted=columns,
        counts=[[count[label, column] for column in columns] for label in labels],
    )


def _predicted(row: RowResult, labels: Sequence[str]) -> str:
    if not row.valid or row.predicted is None:
        return INVALID
    return row.predicted if row.predicted in labels else OTHER


def histogram(task: str, rows: Sequence[RowResult]) -> IouHistogram:
    """IoU of every target box of the rows."""
    counts, invalid = [0] * BINS, 0
    for row in rows:
        if row.error is not None:
            continue
        for value in row.ious:
            counts[min(int(value * BINS), BINS - 1)] += 1
        invalid += 0 if row.valid else len(row.ious)
    return IouHistogram(task=task, edges=[i / BINS for i in range(BINS + 1)], counts=counts, invalid=invalid)
