"""Overlap of boxes, in native pixels."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.schema import XYXY


def iou(first: XYXY, second: XYXY) -> float:
    """Intersection over union of two boxes, in [0, 1].

    Coordinates are continuous (no added pixel), so that touching boxes give 0.
    """
    width = min(first[2], second[2]) - max(first[0], second[0])
    height = min(first[3], second[3]) - max(first[1], second[1])
    if width <= 0 or height <= 0:
        return 0.0
    shared = width * height
    union = _area(first) + _area(second) - shared
    # Boxes thinner than the spacing of floats have no measurable area.
    return min(1.0, shared / union) if union > 0 else 0.0


def _area(box: XYXY) -> float:
    return (box[2] - box[0]) * (box[3] - box[1])


def match_boxes(targets: Sequence[XYXY], predicted: Sequence[XYXY]) -> list[float]:
    """IoU per target under the one-to-one matching with the largest sum of IoUs; unmatched targets give 0."""
    if not targets or not predicted:
        return [0.0] * len(targets)
    overlaps = [[iou(target, box) for box in predicted] for target in targets]
    if len(targets) == 1:
        return [max(overlaps[0])]
    from scipy.optimize import linear_sum_assignment

    result = [0.0] * len(targets)
    for target, box in zip(*linear_sum_assignment(overlaps, maximize=True), strict=True):
        result[target] = overlaps[target][box]
    return result
