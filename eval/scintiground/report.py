"""The published report: counts of scored rows, and the blocks of rates made from them.

Every rate is rounded to six places before it enters an average; a rate with nothing below the
fraction bar is `None`. A block is made from counts alone, so that the bootstrap can add up counts
instead of scoring rows again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

from benchmarks.scintiground_text import CLASS_WORDS, TASKS
from eval.scintiground.scoring import Counts, ScoredRow

SELECTION_METRIC = "mean(vqa.balanced_accuracy, grounding.iou_at_0_5, grounded_vqa.strict_grounded_accuracy)"
_SELECTION = (
    ("vqa", "balanced_accuracy"),
    ("grounding", "iou_at_0_5"),
    ("grounded_vqa", "strict_grounded_accuracy"),
)
STRICT_NAMES = {"grounding": "strict_grounding_accuracy", "grounded_vqa": "strict_grounded_accuracy"}


def count(scored: Sequence[ScoredRow]) -> Counts:
    """Adds up the counts of rows of one task; IoU in the order of rows and targets."""
    if not scored:
        return Counts()
    sums = Counts(*(sum(column) for column in zip(*(row.counts for row in scored), strict=True)))
    return sums._replace(iou_sum=sum(chain.from_iterable(row.ious for row in scored)))


def rate(part: float, whole: float) -> float | None:
    """`part / whole` rounded to six places, `None` if `whole` is 0."""
    return round(part / whole, 6) if whole else None


def mean_of(*rates: float | None) -> float | None:
    """Mean of rounded rates, rounded again; `None` if any is."""
    known = [value for value in rates if value is not None]
    return round(sum(known) / len(known), 6) if len(known) == len(rates) else None


def task_block(task: str, counts: Counts) -> dict[str, Any]:
    """The report's block of one task."""
    validity = {
        "rows": counts.rows,
        "valid_output_rows": counts.valid,
        "valid_output_rate": rate(counts.valid, counts.rows),
    }
    if task == "vqa":
        return {**validity, **_classification(task, counts)}
    boxes = {
        "valid_boxes": counts.boxes,
        "mean_iou": rate(counts.iou_sum, counts.targets),
        "iou_at_0_5": rate(counts.hits, counts.targets),
        STRICT_NAMES[task]: rate(counts.strict, counts.rows),
    }
    if task == "grounding":
        return {**validity, "region_accuracy": rate(counts.regions, counts.rows), **boxes}
    accuracy = rate(counts.tp + counts.tn, counts.rows)
    return {**validity, "classification_accuracy": accuracy, **_classification(task, counts), **boxes}


def _classification(task: str, counts: Counts) -> dict[str, Any]:
    # An unread class is a missed positive, but on a negative row it is left out of the negative F1.
    missed = counts.positives - counts.tp
    accuracy = rate(counts.tp + counts.tn, counts.rows)
    precision, recall = rate(counts.tp, counts.tp + counts.fp), rate(counts.tp, counts.positives)
    f1 = rate(2 * counts.tp, 2 * counts.tp + counts.fp + missed)
    specificity = rate(counts.tn, counts.negatives)
    negative_f1 = rate(2 * counts.tn, 2 * counts.tn + missed + counts.fp)
    positive, negative = CLASS_WORDS[task]
    return {
        "invalid_classifications": counts.unread,
        "accuracy": accuracy,
        "exact_canonical_answer_accuracy": accuracy,
        "balanced_accuracy": mean_of(recall, specificity),
        "macro_f1": mean_of(f1, negative_f1),
        "per_class": {
            positive: {"precision": precision, "recall": recall, "f1": f1, "support": counts.positives},
            negative: {
                "precision": rate(counts.tn, counts.tn + missed),
                "recall": specificity,
                "f1": negative_f1,
                "support": counts.negatives,
            },
        },
        "precision": precision,
        "recall": recall,
        "specificity": specificity,
        "f1": f1,
        "confusion": {"tp": counts.tp, "tn": counts.tn, "fp": counts.fp, "fn": missed},
    }


def task_blocks(scored: Iterable[ScoredRow]) -> dict[str, dict[str, Any]]:
    """The blocks of all three tasks."""
    by_task: dict[str, list[ScoredRow]] = {task: [] for task in TASKS}
    for row in scored:
        by_task[row.row["task"]].append(row)
    return {task: task_block(task, count(rows)) for task, rows in by_task.items()}


def report(scored: Sequence[ScoredRow]) -> dict[str, Any]:
    """The whole report, with `per_region` by label in alphabetical order."""
    blocks = task_blocks(scored)
    by_region: dict[str, list[ScoredRow]] = {}
    for row in scored:
        by_region.setdefault(row.row["label"], []).append(row)
    return {
        "rows": len(scored),
        **blocks,
        "model_selection_metric": SELECTION_METRIC,
        "model_selection_score": mean_of(*(blocks[task][name] for task, name in _SELECTION)),
        "per_region": {label: task_blocks(by_region[label]) for label in sorted(by_region)},
    }
