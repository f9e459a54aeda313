"""The published scorer of PaliGemma's location codes, on the 0..1023 grid of the composed canvas.

One box a text: the first four codes. Mean IoU is over rows with a box, IoU@0.5 over all rows; an
unread class counts as nothing but a wrong row.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from benchmarks.scintiground_text import BOX_TASKS, CLASS_WORDS
from collators.codecs.location import GridBox, box_to_grid, text_to_grid
from eval.scintiground.parse import Row
from eval.scintiground.report import mean_of, rate
from eval.scintiground.scoring import HIT, box_iou, targets

# The size of a whole-body image where the row does not state it.
_DEFAULT_SIZE = (256, 1024)


def read_label(text: str, task: str) -> str | None:
    """The class at the very start of the text or after `class =`; the positive word is tried first."""
    lowered = text.lower()
    for word in CLASS_WORDS[task]:
        if re.search(rf"(?:^|class\s*=\s*){word}\b", lowered):
            return word
    return None


def target_grid(row: Row) -> GridBox | None:
    """The row's first target on the grid of its canvas, posterior x moved by the anterior width."""
    boxes = targets(row)
    if not boxes:
        return None
    sizes = {image["view"]: tuple(image.get("image_size") or _DEFAULT_SIZE) for image in row.get("images") or ()}
    width = sum(size[0] for size in sizes.values()) or _DEFAULT_SIZE[0]
    height = max((size[1] for size in sizes.values()), default=_DEFAULT_SIZE[1])
    shift = sizes["ANT"][0] if boxes[0]["view"] == "POST" and "ANT" in sizes else 0
    x1, y1, x2, y2 = boxes[0]["bbox"]
    return box_to_grid((x1 + shift, y1, x2 + shift, y2), (width, height))


def score_loc(row: Row, text: str) -> dict[str, Any]:
    """What is read from one text, and the metrics of this row alone.

    Raises:
        TypeError, AttributeError: Not a text.
    """
    task = row["task"]
    result: dict[str, Any] = {}
    metrics: dict[str, Any] = {}
    if task in CLASS_WORDS:
        result["class"] = read_label(text, task)
        metrics["classification"] = label_metrics(task, [row], [result["class"]])
    if task in BOX_TASKS:
        box = text_to_grid(text)
        result["box_1024"] = None if box is None else list(box)
        metrics["grounding"] = box_metrics([row], [box])
    return {**result, "metrics": metrics if len(metrics) > 1 else next(iter(metrics.values()))}


def box_metrics(rows: Sequence[Row], boxes: Sequence[GridBox | None]) -> dict[str, Any]:
    """Localization metrics of rows and the boxes read for them."""
    ious: list[float] = []
    for row, box in zip(rows, boxes, strict=True):
        target = target_grid(row)
        if box is not None:
            ious.append(0.0 if target is None else box_iou(target, box))
    return {
        "rows": len(rows),
        "valid_boxes": len(ious),
        "mean_iou": rate(sum(ious), len(ious)),
        "iou_at_0_5": rate(sum(iou >= HIT for iou in ious), len(rows)),
    }


def label_metrics(task: str, rows: Sequence[Row], labels: Sequence[str | None]) -> dict[str, Any]:
    """Classification metrics of rows of one task and the classes read for them."""
    positive, negative = CLASS_WORDS[task]
    pairs = [(row.get("answer_label"), label) for row, label in zip(rows, labels, strict=True)]
    tp, tn = pairs.count((positive, positive)), pairs.count((negative, negative))
    fp, fn = pairs.count((negative, positive)), pairs.count((positive, negative))
    recall, specificity = rate(tp, tp + fn), rate(tn, tn + fp)
    return {
        "rows": len(rows),
        "invalid_predictions": sum(label is None for label in labels),
        "accuracy": rate(tp + tn, len(rows)),
        "balanced_accuracy": mean_of(recall, specificity),
        "precision": rate(tp, tp + fp),
        "recall": recall,
        "specificity": specificity,
        "f1": rate(2 * tp, 2 * tp + fp + fn),
        "confusion": {"tp": tp, "tn": tn, "fp": fp, "fn": fn},
    }
