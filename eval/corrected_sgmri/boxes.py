"""Boxes of one record: truth and prediction made comparable, matched, and turned into numbers.

Boxes are compared within the same image only. Both sides are clipped to their image; what then has no area is left
out and counted. A box that is given again, label and all, counts once: an answer may name a place twice, in the answer and in
its explanation. A predicted box on an image that was not shown matches nothing, but is
one of the predicted boxes. Matching maximises the sum of IoUs, one to one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum

import msgspec

from benchmarks.schema import XYXY, Box, Image
from eval.boxes import match_boxes
from eval.generic import normalise

THRESHOLDS = (0.3, 0.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """Boxes within their images.

    Attributes:
        boxes: Those that lie on a shown image and have an area there, clipped, each once, in the order given.
        clipped: How many of these lost a part.
        dropped: Boxes with nothing inside their image.
        repeated: Boxes that were there already.
        unplaced: Boxes on an image that was not shown.
    """

    boxes: tuple[Box, ...]
    clipped: int
    dropped: int
    repeated: int
    unplaced: int

    @property
    def count(self) -> int:
        """Number of boxes that count as given."""
        return len(self.boxes) + self.unplaced


def place(boxes: Sequence[Box], images: Sequence[Image]) -> Placed:
    """Clips boxes to their images."""
    kept: dict[tuple[int, XYXY, str], Box] = {}
    clipped = dropped = repeated = unplaced = 0
    for box in boxes:
        if not 0 <= box.image < len(images):
            unplaced += 1
            continue
        inside = _clip(box.xyxy, images[box.image])
        if inside is None:
            dropped += 1
            continue
        key = (box.image, inside, normalise(box.label or ""))
        repeated += key in kept
        clipped += key not in kept and inside != box.xyxy
        kept.setdefault(key, msgspec.structs.replace(box, xyxy=inside))
    return Placed(boxes=tuple(kept.values()), clipped=clipped, dropped=dropped, repeated=repeated, unplaced=unplaced)


def _clip(xyxy: XYXY, image: Image) -> XYXY | None:
    x1, y1, x2, y2 = xyxy
    x1, y1, x2, y2 = max(0.0, x1), max(0.0, y1), min(float(image.width), x2), min(float(image.height), y2)
    return (x1, y1, x2, y2) if x1 < x2 and y1 < y2 else None


def box_values(target: Placed, given: Placed, *, frames: bool, labels: bool) -> dict[str, float]:
    """The box metrics of a record that has target boxes, each in [0, 1].

    Args:
        target: The target's boxes, placed; at least one is left.
        given: The answer's boxes, placed.
        frames: Several frames were shown, so that naming the right ones is part of the task.
        labels: The answer's form writes labels of boxes.
    """
    ious = overlaps(target.boxes, given.boxes)
    total, both = fsum(ious), len(ious) + given.count
    values = {"v_score": total / len(ious), "iou_over_max": total / max(len(ious), given.count)}
    for threshold in THRESHOLDS:
        values[f"box_f1_at_{threshold}"] = 2 * sum(value >= threshold for value in ious) / both
    if labels:
        values["label_iou"] = _label_iou(target.boxes, given.boxes)
    return values | (_frame_values(target.boxes, given.boxes) if frames else {})


def overlaps(targets: Sequence[Box], given: Sequence[Box]) -> tuple[float, ...]:
    """IoU per target box, in the order of the targets; 0 where none is matched to it."""
    result = [0.0] * len(targets)
    for image in {box.image for box in targets}:
        # Sorted, so that of several best matchings always the same is taken.
        places = sorted((i for i, box in enumerate(targets) if box.image == image), key=lambda i: targets[i].xyxy)
        boxes = sorted(box.xyxy for box in given if box.image == image)
        for number, value in zip(places, match_boxes([targets[i].xyxy for i in places], boxes), strict=True):
            result[number] = value
    return tuple(result)


def extra(targets: Sequence[Box], given: Placed) -> int:
    """Predicted boxes beyond the number of targets of their image."""
    result = given.unplaced
    for image in {box.image for box in given.boxes}:
        surplus = sum(box.image == image for box in given.boxes) - sum(box.image == image for box in targets)
        result += max(0, surplus)
    return result


def _label_iou(targets: Sequence[Box], given: Sequence[Box]) -> float:
    """As the V-Score, where a box matches only a target of the same label, spelling aside."""
    total: list[float] = []
    for label in {normalise(box.label or "") for box in targets}:
        same = [[box for box in boxes if normalise(box.label or "") == label] for boxes in (targets, given)]
        total.extend(overlaps(same[0], same[1]))
    return fsum(total) / len(targets)


def _frame_values(targets: Sequence[Box], given: Sequence[Box]) -> dict[str, float]:
    """How well the set of frames with boxes is named."""
    wanted, named = {box.image for box in targets}, {box.image for box in given}
    shared = len(wanted & named)
    return {
        "frame_precision": shared / len(named) if named else 0.0,
        "frame_recall": shared / len(wanted),
        "frame_f1": 2 * shared / (len(wanted) + len(named)),
    }
