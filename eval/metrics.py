"""The metrics, as sums over records and formulas of these sums.

`row_columns` turns the scored rows of a task into columns, `group_sums` adds them up by group, and
`formulas` names the metrics and computes each from summed columns, for one total or for thousands of
resamples at once. An invalid output is an ordinary row that has no predicted class and
IoU 0 everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from eval.intervals import Array, GroupSums, Totals, ratio, sum_by_group
from eval.schema_scores import RowResult

Formula = Callable[[Totals], Array]
Mask = NDArray[np.bool_]
THRESHOLDS = (0.3, 0.5, 0.75, 0.9)
HEADLINE = (
    "balanced_accuracy",
    "macro_f1",
    "accuracy",
    "exact_match",
    "mean_iou",
    "iou_at_0.5",
    "strict",
    "strict_with_region",
    "a_score",
    "v_score",
    "iou_over_max",
    "box_f1_at_0.3",
    "box_f1_at_0.5",
    "frame_f1",
    "ar_score",
    "valid_rate",
)


def row_columns(rows: Sequence[RowResult], labels: Sequence[str]) -> dict[str, Array]:
    """All columns of the rows of one task, shape (rows,) each."""
    return {
        "rows": np.ones(len(rows)),
        "valid": _column(rows, lambda row: row.valid),
        **_class_columns(rows, labels),
        **_box_columns(rows),
        **_value_columns(rows),
    }


def _class_columns(rows: Sequence[RowResult], labels: Sequence[str]) -> dict[str, Array]:
    columns = {
        "asked": _column(rows, lambda row: row.class_correct is not None),
        "right": _column(rows, lambda row: row.class_correct is True),
    }
    target = np.array([row.label or "" for row in rows], dtype=object)
    predicted = np.array([row.predicted or "" for row in rows], dtype=object)
    for label in labels:
        is_target, is_predicted = target == label, predicted == label
        columns[f"support:{label}"] = is_target.astype(np.float64)
        # Predictions on records without a target class say nothing about precision.
        columns[f"predicted:{label}"] = (is_predicted & (target != "")).astype(np.float64)
        columns[f"hit:{label}"] = (is_target & is_predicted).astype(np.float64)
    return columns


def _box_columns(rows: Sequence[RowResult]) -> dict[str, Array]:
    boxes = _column(rows, lambda row: len(row.ious) + row.extra_boxes)
    iou_sum = _column(rows, lambda row: sum(row.ious))
    columns = {
        "boxes": boxes,
        "iou": iou_sum,
        "box_rows": (boxes > 0).astype(np.float64),
        "row_iou": np.divide(iou_sum, boxes, out=np.zeros(len(rows)), where=boxes > 0),
        "strict_asked": _column(rows, lambda row: row.strict is not None),
        "strict": _column(rows, lambda row: row.strict is True),
        "region_asked": _column(rows, lambda row: row.region_correct is not None),
        "region_right": _column(rows, lambda row: row.region_correct is True),
        "strict_with_region": _column(rows, lambda row: row.strict_with_region is True),
    }
    for threshold in THRESHOLDS:
        columns[f"at:{threshold}"] = _column(rows, partial(_count_at, threshold))
    return columns


def _value_columns(rows: Sequence[RowResult]) -> dict[str, Array]:
    """Sum and number of each metric that is a mean over rows."""
    columns = {}
    for name in sorted({name for row in rows for name in row.values}):
        columns[f"sum:{name}"] = _column(rows, partial(_value, name))
        columns[f"number:{name}"] = _column(rows, partial(_has_value, name))
    return columns


def _value(name: str, row: RowResult) -> float:
    return row.values.get(name, 0.0)


def _has_value(name: str, row: RowResult) -> bool:
    return name in row.values


def common_values(first: Mapping[str, Array], second: Mapping[str, Array]) -> list[dict[str, Array]]:
    """Both columns, where means over rows rest on the rows that have the value in both."""
    result = [dict(first), dict(second)]
    for name in {*first, *second}:
        kind, _, metric = name.partition(":")
        if kind not in {"sum", "number"}:
            continue
        numbers = [columns.get(f"number:{metric}") for columns in (first, second)]
        for columns in result:
            if numbers[0] is None or numbers[1] is None:
                columns.pop(name, None)
            else:
                columns[name] = columns[name] * numbers[0] * numbers[1]
    return result


def _count_at(threshold: float, row: RowResult) -> int:
    return sum(value >= threshold for value in row.ious)


def _column(rows: Sequence[RowResult], value: Callable[[RowResult], float]) -> Array:
    return np.fromiter((value(row) for row in rows), dtype=np.float64, count=len(rows))


def group_sums(columns: Mapping[str, Array], codes: NDArray[np.intp], groups: int) -> GroupSums:
    """Sums the columns by group and adds the means within a group, where a group counts once.

    Args:
        columns: From `row_columns`, shape (rows,) each.
        codes: Group number per row.
        groups: Number of groups of the dataset.
    """
    result = sum_by_group(columns, codes, groups)
    rows, iou_sum = (result.sums[:, result.names.index(name)] for name in ("box_rows", "row_iou"))
    mean = np.divide(iou_sum, rows, out=np.zeros(groups), where=rows > 0)
    return GroupSums(
        names=(*result.names, "box_groups", "group_iou"),
        sums=np.column_stack([result.sums, (rows > 0).astype(np.float64), mean]),
    )


def formulas(columns: Mapping[str, Array], labels: Sequence[str], accuracy: str) -> dict[str, Formula]:
    """The metrics that the rows of one task allow, in the order of reports.

    Args:
        columns: Columns of the rows, from `row_columns`.
        labels: Classes of the task; empty if it has none.
        accuracy: Name of the share of right answers.
    """
    result: dict[str, Formula] = {}
    if labels:
        result |= {
            "balanced_accuracy": partial(_balanced_accuracy, labels),
            "macro_f1": partial(_macro_f1, labels),
        }
    if columns["asked"].any():
        result[accuracy] = partial(_ratio, "right", "asked")
    if labels:
        result["majority_share"] = partial(_majority_share, labels)
        result["accuracy_gain"] = partial(_accuracy_gain, labels)
        for label in labels:
            result[f"precision:{label}"] = partial(_ratio, f"hit:{label}", f"predicted:{label}")
            result[f"recall:{label}"] = partial(_ratio, f"hit:{label}", f"support:{label}")
            result[f"f1:{label}"] = partial(_f1, label)
    if columns["boxes"].any():
        result |= _box_formulas(columns)
    for name in columns:
        if name.startswith("sum:"):
            metric = name.removeprefix("sum:")
            if columns[f"number:{metric}"].any():
                result[metric] = partial(_ratio, name, f"number:{metric}")
    return result | {"valid_rate": partial(_ratio, "valid", "rows")}


def _box_formulas(columns: Mapping[str, Array]) -> dict[str, Formula]:
    result: dict[str, Formula] = {
        "mean_iou": partial(_ratio, "iou", "boxes"),
        "mean_iou_row": partial(_ratio, "row_iou", "box_rows"),
        "mean_iou_group": partial(_ratio, "group_iou", "box_groups"),
    }
    result |= {f"iou_at_{threshold}": partial(_ratio, f"at:{threshold}", "boxes") for threshold in THRESHOLDS}
    result["iou_sweep_mean"] = _sweep_mean
    if columns["strict_asked"].any():
        result["strict"] = partial(_ratio, "strict", "strict_asked")
    if columns["region_asked"].any():
        result["strict_with_region"] = partial(_ratio, "strict_with_region", "region_asked")
        result["region_accuracy"] = partial(_ratio, "region_right", "region_asked")
    return result


def counted(metric: str, columns: Mapping[str, Array], labels: Sequence[str], accuracy: str) -> Mask:
    """Which rows a metric rests on, shape (rows,)."""
    if f"number:{metric}" in columns:
        return columns[f"number:{metric}"] > 0
    if metric == "valid_rate":
        return columns["rows"] > 0
    if metric == accuracy:
        return columns["asked"] > 0
    if metric in {"strict_with_region", "region_accuracy"}:
        return columns["region_asked"] > 0
    if metric.startswith(("strict", "mean_iou", "iou_")):
        return columns["boxes"] > 0
    return np.asarray(np.any([columns[f"support:{label}"] > 0 for label in labels], axis=0))


def _ratio(numerator: str, denominator: str, totals: Totals) -> Array:
    return ratio(totals[numerator], totals[denominator])


def _f1(label: str, totals: Totals) -> Array:
    """F1 of a class; not defined without a record of the class. A missing answer is a missed record of its class."""
    support = totals[f"support:{label}"]
    f1 = ratio(2 * totals[f"hit:{label}"], support + totals[f"predicted:{label}"])
    return np.where(support > 0, f1, np.nan)


def _balanced_accuracy(labels: Sequence[str], totals: Totals) -> Array:
    """Mean recall over the classes; not defined if a class is absent (NaN goes through the mean)."""
    return _mean([_ratio(f"hit:{label}", f"support:{label}", totals) for label in labels])


def _macro_f1(labels: Sequence[str], totals: Totals) -> Array:
    """Mean F1 over the classes; not defined if a class is absent."""
    return _mean([_f1(label, totals) for label in labels])


def _majority_share(labels: Sequence[str], totals: Totals) -> Array:
    """Share of the most frequent target class: what a constant answer gets."""
    support = np.stack([totals[f"support:{label}"] for label in labels])
    return ratio(support.max(axis=0), support.sum(axis=0))


def _accuracy_gain(labels: Sequence[str], totals: Totals) -> Array:
    """Accuracy over the records with a class, minus the majority share; negative is worse than a constant answer."""
    hits = np.stack([totals[f"hit:{label}"] for label in labels]).sum(axis=0)
    support = np.stack([totals[f"support:{label}"] for label in labels]).sum(axis=0)
    return ratio(hits, support) - _majority_share(labels, totals)


def _sweep_mean(totals: Totals) -> Array:
    return _mean([_ratio(f"at:{threshold}", "boxes", totals) for threshold in THRESHOLDS])


def _mean(values: Sequence[Array]) -> Array:
    return np.asarray(np.stack(values).mean(axis=0))


def undefined_note(metric: str, labels: Sequence[str], totals: Mapping[str, Array]) -> str:
    """Why a metric is not defined over all rows, with the counts that decide it."""
    if not labels or metric.startswith(("mean_iou", "iou_", "strict", "region_")):
        return "nothing to count"
    counts = ", ".join(f"{int(totals[f'support:{label}'][0])} {label}" for label in labels)
    predicted = ", ".join(f"{int(totals[f'predicted:{label}'][0])} {label}" for label in labels)
    return f"targets: {counts}; predicted: {predicted}"
