"""How the terminal tables write names, numbers and columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from eval.schema import System
from eval.schema_scores import Metric

NOT_DEFINED = "n.d."
NAMES = {
    "accuracy": "acc",
    "exact_match": "exact",
    "majority_share": "majority",
    "balanced_accuracy": "balanced",
    "macro_f1": "macro-F1",
    "mean_iou": "mean IoU",
    "iou_at_0_5": "IoU@.5",
    "iou_at_0.3": "IoU@.3",
    "iou_at_0.5": "IoU@.5",
    "iou_at_0.75": "IoU@.75",
    "iou_at_0.9": "IoU@.9",
    "iou_sweep_mean": "sweep mean",
    "strict_with_region": "strict+region",
    "valid_output_rate": "valid",
    "valid_rate": "valid",
    "mean_iou_row": "mean IoU/row",
    "mean_iou_group": "mean IoU/group",
    "a_score": "A-Score",
    "v_score": "V-Score",
    "iou_over_max": "IoU/max",
    "box_f1_at_0.3": "box F1@.3",
    "box_f1_at_0.5": "box F1@.5",
    "label_iou": "V labels",
    "frame_precision": "frame prec.",
    "frame_recall": "frame recall",
    "frame_f1": "frame F1",
    "ar_score": "AR-Score",
    "bleu4": "BLEU-4",
    "rouge_l": "ROUGE-L",
    "bertscore": "BERTScore",
    "auroc": "AUROC",
    "average_precision": "avg. precision",
    "brier": "Brier",
    "ece": "ECE",
}


def system_label(system: System) -> str:
    """Name with its marks: incomplete, encoder letter, control."""
    encoder = f" [{system.encoder_mark}]" if system.encoder_mark else ""
    return f"{'! ' if system.errors else ''}{system.name}{encoder}{' (control)' if system.control else ''}"


def metric_cell(metric: Metric) -> str:
    """Value and interval of a metric."""
    return with_interval(metric.value, metric.low, metric.high)


def with_interval(value: float | None, low: float | None, high: float | None) -> str:
    """`0.643 [0.601, 0.685]`; the value alone if it has no interval."""
    if value is None or low is None:
        return number(value)
    return f"{number(value)} [{number(low)}, {number(high)}]"


def number(value: float | None) -> str:
    """Three decimals."""
    return NOT_DEFINED if value is None else f"{value:.3f}"


def percent(value: float | None) -> str:
    """In percent, two decimals."""
    return NOT_DEFINED if value is None else f"{100 * value:.2f}"


def signed(value: float | None) -> str:
    """Three decimals with a sign."""
    return NOT_DEFINED if value is None else f"{value:+.3f}"


def aligned(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Aligned columns, the first to the left, without columns that are empty in every row."""
    cells = [list(header), *(list(row) for row in rows)]
    kept = [0, *(i for i in range(1, len(header)) if any(row[i] for row in cells[1:]))]
    width = {i: max(len(row[i]) for row in cells) for i in kept}
    lines = [
        "  ".join(row[i].ljust(width[i]) if i == 0 else row[i].rjust(width[i]) for i in kept).rstrip() for row in cells
    ]
    return [lines[0], "-" * max(len(line) for line in lines), *lines[1:]]
