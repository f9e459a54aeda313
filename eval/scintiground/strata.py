"""Strata, the threshold sweep and the audit of a set of outputs, as published."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from eval.scintiground.parse import Row, audit_issues
from eval.scintiground.report import mean_of, rate, task_blocks
from eval.scintiground.scoring import ScoredRow, target_ious

THRESHOLDS = (0.3, 0.5, 0.75, 0.9)
# No row has the label `shoulder`: the published report has this stratum all the same.
STRATA: Mapping[str, tuple[str, ...]] = {
    "view_scope": ("ANT", "POST", "BOTH"),
    "region_level": ("bone_region", "metastasis", "whole_body"),
    "label": ("shoulder",),
}
_CLASSES = ("accuracy", "balanced_accuracy", "macro_f1")
_BOXES = ("mean_iou", "iou_at_0_5")
_FIELDS: Mapping[str, tuple[str, ...]] = {
    "vqa": ("rows", *_CLASSES, "valid_output_rate"),
    "grounding": ("rows", *_BOXES, "strict_grounding_accuracy", "valid_output_rate"),
    "grounded_vqa": ("rows", *_CLASSES, *_BOXES, "strict_grounded_accuracy", "valid_output_rate"),
}


def strata(scored: Sequence[ScoredRow]) -> dict[str, dict[str, dict[str, dict[str, Any]]]]:
    """Field -> value -> task -> a few metrics; every value is listed, rows or not."""
    return {
        field: {value: _stratum(row for row in scored if row.row.get(field) == value) for value in values}
        for field, values in STRATA.items()
    }


def _stratum(scored: Iterable[ScoredRow]) -> dict[str, dict[str, Any]]:
    blocks = task_blocks(scored)
    return {task: {name: blocks[task][name] for name in names} for task, names in _FIELDS.items()}


def threshold_sweep(scored: Iterable[ScoredRow]) -> dict[str, float | None]:
    """Share of targets with at least each IoU, and the mean of the rounded shares.

    Pooled over every row with targets, those of `vqa` included; boxes are those of the lenient
    parse, so invalid outputs earn here what they lose in the report.
    """
    ious = [iou for row in scored for iou in target_ious(row.row, row.lenient.boxes)]
    rates = {
        f"accuracy_at_{threshold:.2f}": rate(sum(iou >= threshold for iou in ious), len(ious))
        for threshold in THRESHOLDS
    }
    return {**rates, "mean_average_accuracy": mean_of(*rates.values())}


def audit(rows: Iterable[Row], outputs: Mapping[str, object]) -> dict[str, Any]:
    """Counts the issues of all outputs, each name prefixed with `prediction_`; ids need not agree.

    Raises:
        TypeError: As `audit_issues`.
    """
    by_id = {row["task_id"]: row for row in rows}
    issues = {task_id: audit_issues(outputs[task_id], row) for task_id, row in by_id.items() if task_id in outputs}
    counts = Counter(f"prediction_{issue}" for found in issues.values() for issue in found)
    invalid = sum(bool(found) for found in issues.values())
    return {
        "rows": len(by_id),
        "valid_rows": len(issues) - invalid,
        "invalid_rows": invalid,
        "missing_prediction_rows": len(by_id) - len(issues),
        "issue_counts": dict(sorted(counts.items())),
        "unexpected_prediction_rows": len(outputs.keys() - by_id.keys()),
    }
