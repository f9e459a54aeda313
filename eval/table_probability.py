"""The terminal tables about closed answers as probabilities, and about thresholds on them."""

from __future__ import annotations

from eval.probability_metrics import BINS, METRICS
from eval.schema import EvalResult
from eval.schema_probability import Probability, Threshold, ThresholdChange
from eval.table_format import NAMES, NOT_DEFINED, aligned, metric_cell, number, signed, system_label, with_interval


def probability_tables(result: EvalResult) -> list[str]:
    """One table per task with label scores: the four metrics and how many records they cover."""
    lines: list[str] = []
    for task in (count.task for count in result.dataset.tasks):
        rows, positive = [], ""
        for system in result.systems:
            found = next((each for each in system.probabilities if each.task == task), None)
            if found is None:
                continue
            positive = found.positive
            metrics = {metric.metric: metric for metric in system.metrics if metric.task == task}
            rows.append([system_label(system), *(metric_cell(metrics[name]) for name in METRICS), *_cover(found)])
        if rows:
            lines += [
                "",
                *aligned([f"{task}: P({positive})", *(NAMES[name] for name in METRICS), "covers", "read at"], rows),
            ]
    if not lines:
        return []
    rule = f"Brier and ECE ({BINS} bins of equal width): lower is better; they cover records with label scores"
    return ["", f"answers as probabilities: P = softmax over the two label scores; {rule}", *lines]


def _cover(found: Probability) -> list[str]:
    return [f"{found.n_scored} of {found.n_records}", "+".join(found.at)]


def threshold_tables(result: EvalResult) -> list[str]:
    """What the thresholds chosen on validation predictions change, one line per system, task and metric."""
    rows, said = [], []
    for system in result.systems:
        for threshold in system.thresholds:
            said.append(f"  {system.name}, {threshold.task}: {describe(threshold)}")
            rows += [
                [
                    system_label(system),
                    threshold.task,
                    change_name(threshold, change),
                    *_change_cells(change),
                    f"{change.n_records}/{change.n_groups}",
                ]
                for change in threshold.changes
            ]
    if not said:
        return []
    lines = [
        "",
        "thresholds on P(positive), chosen on validation for balanced accuracy (of equal ones nearest .5)",
        *said,
    ]
    header = ["threshold", "task", "metric", "before", "after", "after - before", "95 %", "p", "records/groups"]
    return [*lines, "", *aligned(header, rows)] if rows else lines


def describe(threshold: Threshold) -> str:
    """What was chosen, on what, and how many class decisions it turns."""
    if threshold.threshold is None or threshold.note:
        return threshold.note
    counts = ", ".join(f"{count} {label}" for label, count in threshold.validation.items())
    without = f" ({threshold.validation_missing} more without scores)" if threshold.validation_missing else ""
    kept = f"; {threshold.kept} without scores keep their class" if threshold.kept else ""
    return (
        f"{threshold.positive} if P({threshold.positive}) >= {threshold.threshold:.4g}; "
        f"balanced accuracy {number(threshold.validation_balanced_accuracy)} on {counts} of {threshold.folder}{without}; "
        f"turns {threshold.to_positive} into {threshold.positive}, "
        f"{threshold.to_negative} into {threshold.negative}{kept}"
    )


def change_name(threshold: Threshold, change: ThresholdChange) -> str:
    """The metric's name; the F1 is marked as that of the minority class."""
    if change.metric.startswith("f1:"):
        return f"F1 {threshold.minority} (minority)"
    return NAMES.get(change.metric, change.metric)


def _change_cells(change: ThresholdChange) -> list[str]:
    return [
        with_interval(change.before, change.before_low, change.before_high),
        with_interval(change.after, change.after_low, change.after_high),
        signed(change.difference),
        f"[{signed(change.low)}, {signed(change.high)}]",
        NOT_DEFINED if change.p is None else f"{change.p:.4f}",
    ]
